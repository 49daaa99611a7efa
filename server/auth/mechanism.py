"""The server's side of one SASL exchange, whatever the mechanism: a port."""

from __future__ import annotations

from typing import NamedTuple, Protocol


class Login(NamedTuple):
    """Who has logged in. `expires_ms`: when the credentials do, in ms since 1970 (None: never).

    `by_token`: with a delegation token, which has fewer rights than its owner.
    """

    principal: str
    expires_ms: int | None = None
    by_token: bool = False


class ServerMechanism(Protocol):
    """One exchange. Each raises LoginRefused or LoginFailed, after which the exchange is over."""

    login: Login | None
    """Set when the exchange is complete."""

    refusal: str | None
    """Why the client will be refused, for the log, if it has been told already and has the last word."""

    def step(self, token: bytes, now_ms: int) -> bytes:
        """The answer to a client's token; empty if there is nothing to say."""


class ClientMechanism(Protocol):
    """The client's side of one exchange."""

    is_complete: bool

    def step(self, token: bytes) -> bytes:
        """The next token for the server, given its answer; the first answer is empty. LoginFailed: it is not who it says."""
