"""GSSAPI (RFC 4752) as Java's GssKrb5Server and Kafka's SaslServerAuthenticator have it: the server's side of one login.

Theory
    state     takes                                    answers                                   goes to
    CONTEXT   a token of Kerberos                      Kerberos' token, if it has one            CONTEXT
              the last one                             Kerberos' token; if there is none: OFFER  READY, or LAYER
    READY     nothing, by which the client is ready    OFFER                                     LAYER
    LAYER     the client's choice                      nothing                                   complete

    OFFER is a wrapped message of four bytes: the layers that this side has, one bit each, and the size of its buffer. There is
    only one, none at all: on a network that is not trusted the listener speaks TLS. Its buffer is 0 as the RFC has it then.
    The choice is wrapped too: the same four bytes of the client, and an authorization id, which Kafka does not look at: a user
    is always who the ticket says.

Kerberos' own answer to a ticket that is wrong is not sent, as in Kafka. Errors that pass, such as a replay, end the connection
without an answer, so that the client tries again (Kafka's KerberosError).
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable
from typing import Protocol

from ottla.server.auth.kerberos.failures import GssFailure, Stepped
from ottla.server.auth.kerberos.names import NAME_CHARACTERS_MAX, KerberosName, NoShortName, parse_name
from ottla.server.auth.mechanism import Login
from ottla.server.auth.refusals import LoginFailed
from ottla.server.gate.dispatch import CloseConnection

TOKEN_BYTES_MAX = 65_536
"""As long as Active Directory makes a ticket at the most."""

TOKENS_MAX = 8
"""Kerberos takes two, or three, and one for the layer."""

NO_LAYER = 1
OFFER = bytes((NO_LAYER, 0, 0, 0))
_WITHOUT_CONTROLS = re.compile(r"[^\x00-\x1f\x7f]*")


class Context(Protocol):
    """The library's side; each raises GssFailure."""

    def step(self, token: bytes) -> Stepped: ...

    def initiator(self) -> str:
        """The client's principal, once it is complete."""

    def wrap(self, message: bytes) -> bytes: ...

    def unwrap(self, token: bytes) -> bytes: ...


class _State(enum.Enum):
    CONTEXT = enum.auto()
    READY = enum.auto()
    LAYER = enum.auto()
    OVER = enum.auto()


class GssapiServer:
    """See the module's docstring. `begin` makes a context; `short_name` says what a principal is called, or NoShortName."""

    def __init__(self, begin: Callable[[], Context], short_name: Callable[[KerberosName], str]) -> None:
        self.login: Login | None = None
        self.refusal: str | None = None
        self._begin = begin
        self._short_name = short_name
        self._context: Context | None = None
        self._state = _State.CONTEXT
        self._tokens = 0

    def step(self, token: bytes, now_ms: int) -> bytes:
        """Takes as long as the library, so it is called in a thread."""
        self._tokens += 1
        state, self._state = self._state, _State.OVER  # unless the step goes well
        if len(token) > TOKEN_BYTES_MAX:
            raise LoginFailed(f"a token of {len(token)} bytes")
        if self._tokens > TOKENS_MAX:
            raise LoginFailed("too many tokens")
        try:
            return self._stepped(state, token)
        except GssFailure as failure:
            if failure.is_passing:
                raise CloseConnection(f"Kerberos, for the moment: {failure}") from None
            raise LoginFailed(f"Kerberos: {failure}") from None

    def _stepped(self, state: _State, token: bytes) -> bytes:
        if state is _State.CONTEXT:
            return self._accept(token)
        if state is _State.OVER or self._context is None:
            raise LoginFailed("a token after the last one")
        if state is _State.LAYER:
            self._choose(self._context, token)
            return b""
        if token:
            raise LoginFailed("Handshake expecting no response data from server")
        return self._offer(self._context)

    def _accept(self, token: bytes) -> bytes:
        if self._context is None:
            self._context = self._begin()
        answer, is_complete = self._context.step(token)
        if is_complete and not answer:
            return self._offer(self._context)
        self._state = _State.READY if is_complete else _State.CONTEXT
        return answer or b""

    def _offer(self, context: Context) -> bytes:
        self._state = _State.LAYER
        return context.wrap(OFFER)

    def _choose(self, context: Context, token: bytes) -> None:
        choice = context.unwrap(token)
        if len(choice) < len(OFFER):
            raise LoginFailed("the client's choice of a layer is too short")
        if choice[0] != NO_LAYER:
            raise LoginFailed(f"Client selected unsupported protection: {choice[0]}")
        self.login = Login(f"User:{self._user(context.initiator())}")

    def _user(self, principal: str) -> str:
        # The library marks by a backslash that a separator is part of a name. Kafka would take such names apart wrongly.
        if "\\" in principal or len(principal) > NAME_CHARACTERS_MAX or not _WITHOUT_CONTROLS.fullmatch(principal):
            raise LoginFailed("Malformed Kerberos name")
        try:
            user = self._short_name(parse_name(principal))
        except NoShortName as error:
            raise LoginFailed(str(error)) from None
        if not user or len(user) > NAME_CHARACTERS_MAX:
            raise LoginFailed(f"the rules make no name of {principal}, or a name that is too long")
        return user
