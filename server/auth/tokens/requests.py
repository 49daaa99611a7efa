"""Common parts of the four requests about delegation tokens (Kafka's KafkaApis.allowTokenRequests, and its principals)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.server.gate.context import ANONYMOUS

if TYPE_CHECKING:
    from ottla.server.gate.context import RequestContext

USER = "User"
NO_TIME = -1
"""Time in the answer to a client that may not ask."""


def may_ask(context: RequestContext[Any]) -> bool:
    """Tell whether this client may ask for tokens at all: it has to be known by something other than a token."""
    protocol = context.security_protocol
    is_unknown = protocol == "PLAINTEXT" or (protocol == "SSL" and context.principal == ANONYMOUS)
    return not is_unknown and not context.is_token_authenticated


class Principal(NamedTuple):
    """Principal such as User:alice in two parts, as requests about tokens have it."""

    type: str
    name: str

    @classmethod
    def of(cls, text: str) -> Principal:
        kind, _, name = text.partition(":")
        return cls(kind, name)

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"
