"""An authorizer by a list, with which tests of handlers say what their client may do, and a way to ask any handler."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ottla.groupcoord.runtime.answers import finished
from ottla.server.dispatch.access import AclOperation, ResourceType
from ottla.server.dispatch.context import THIS_BROKER
from ottla.server.dispatch.dispatch import all_routes
from ottla.wire.answers import EncodedAnswer
from ottla.wire.error_answers import error_answer
from ottla.wire.errors import KafkaError
from ottla.wire.schema import Message

Right = tuple[AclOperation, ResourceType, str]


class OnlyThese:
    """Allows exactly `rights` to every client, and everything to the broker itself. Refusals that would be logged are noted in `refused`."""

    def __init__(self, *rights: Right) -> None:
        self.rights = set(rights)
        self.refused: list[Right] = []
        self.version = 0

    def allows(
        self,
        principal: str,
        host: str,
        operation: AclOperation,
        resource_type: ResourceType,
        name: str,
        quietly: bool,
    ) -> bool:
        if principal == THIS_BROKER:
            return True
        right = (operation, resource_type, name)
        if right not in self.rights and not quietly:
            self.refused.append(right)
        return right in self.rights

    def allows_on_any(self, principal: str, host: str, operation: AclOperation, resource_type: ResourceType) -> bool:
        return any(right[:2] == (operation, resource_type) for right in self.rights)

    def operations(
        self, principal: str, host: str, candidates: Sequence[AclOperation], resource_type: ResourceType, name: str
    ) -> int:
        return sum(1 << each for each in candidates if (each, resource_type, name) in self.rights)


def guard(broker: Any, *rights: Right) -> OnlyThese:
    """From now on clients of the broker may do only this."""
    broker.authorizer = OnlyThese(*rights)
    return broker.authorizer


async def ask(broker: Any, request: Message, version: int, *, security_protocol: str = "PLAINTEXT") -> Any:
    """What the broker answers, in whatever form its handler gives it."""
    route = all_routes()[type(request).api_key]
    context = broker.context(version)
    context.security_protocol = security_protocol
    try:
        answer: Any = await finished(route.handler(request, context))
    except KafkaError as error:
        return error_answer(request, route.response_class, version, error.code, error.message)
    if isinstance(answer, EncodedAnswer):
        return route.response_class.decode(answer.body, version)
    return answer
