"""GSSAPI (RFC 4752) as Java's GssKrb5Server and Kafka's SaslServerAuthenticator have it: both sides of one login.

Server
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

This module does not need the package gssapi, which `library.py` alone imports.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable
from typing import NamedTuple, Protocol

from ottla.server.dispatch.dispatch import CloseConnection
from ottla.server.security.kerberos.names import NAME_CHARACTERS_MAX, KerberosName, NoShortName, parse_name
from ottla.server.security.mechanism import Login, LoginFailed


class GssFailure(Exception):
    """Error of the Kerberos library, as one line. `is_passing`: another attempt may succeed later."""

    def __init__(self, text: str, *, is_passing: bool = False) -> None:
        super().__init__(text)
        self.is_passing = is_passing


class Stepped(NamedTuple):
    """Result of a step in a login. `token`: token for the peer; None or empty: nothing to send."""

    token: bytes | None
    is_complete: bool


TOKEN_BYTES_MAX = 65_536
"""Longest token: the longest ticket of Active Directory."""

TOKENS_MAX = 8
"""Kerberos takes two, or three, and one for the layer."""

NO_LAYER = 1
OFFER = bytes((NO_LAYER, 0, 0, 0))
_WITHOUT_CONTROLS = re.compile(r"[^\x00-\x1f\x7f]*")


class Context(Protocol):
    """Security context of the Kerberos library, for one login. Methods raise GssFailure."""

    def step(self, token: bytes) -> Stepped: ...

    def wrap(self, message: bytes) -> bytes: ...

    def unwrap(self, token: bytes) -> bytes: ...


class ServerContext(Context, Protocol):
    """Security context of the server in one login."""

    def initiator(self) -> str:
        """Principal of the client; available once the context is complete."""


class _State(enum.Enum):
    CONTEXT = enum.auto()
    READY = enum.auto()
    LAYER = enum.auto()
    OVER = enum.auto()


class GssapiServer:
    """Server side of one GSSAPI login.

    `begin` creates a security context. `short_name` maps a principal to a user name, or raises NoShortName.
    """

    def __init__(self, begin: Callable[[], ServerContext], short_name: Callable[[KerberosName], str]) -> None:
        self.login: Login | None = None
        self.refusal: str | None = None
        self._begin, self._short_name = begin, short_name
        self._context: ServerContext | None = None
        self._state = _State.CONTEXT
        self._tokens = 0

    def step(self, token: bytes, now_ms: int) -> bytes:
        """Process a client's token; return the answer. It blocks, so call it in a thread.

        Raises LoginFailed; or CloseConnection for a temporary error, so that the client tries again.
        """
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

    def _choose(self, context: ServerContext, token: bytes) -> None:
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


# ---------------------------------------------------------------------- the client's side


class GssapiClient:
    """Client side of one GSSAPI login at another broker.

    `begin` creates a security context, for which it may ask a KDC.
    """

    def __init__(self, begin: Callable[[], Context]) -> None:
        self.is_complete = False
        self._begin = begin
        self._context: Context | None = None
        self._is_accepted = self._has_chosen = False
        self._tokens = 0

    def step(self, token: bytes) -> bytes:
        """Process a server's token; return the answer. Raises LoginFailed.

        It blocks, perhaps until a KDC answers, so call it in a thread.
        """
        self._tokens += 1
        if self._tokens > TOKENS_MAX or len(token) > TOKEN_BYTES_MAX:
            raise LoginFailed("the broker sends too many tokens, or one that is too long")
        if self._has_chosen:
            self.is_complete = True
            return b""
        try:
            return self._chosen(token) if self._is_accepted else self._stepped(token)
        except GssFailure as failure:
            raise LoginFailed(f"Kerberos: {failure}") from None

    def _stepped(self, token: bytes) -> bytes:
        if self._context is None:
            self._context = self._begin()
        elif not token:
            raise LoginFailed("the broker does not prove who it is")
        found = self._context.step(token)
        self._is_accepted = found.is_complete
        return found.token or b""

    def _chosen(self, token: bytes) -> bytes:
        assert self._context is not None
        offer = self._context.unwrap(token)
        if len(offer) < 4 or not offer[0] & NO_LAYER:
            raise LoginFailed("the broker offers no connection without a security layer")
        self._has_chosen = True
        return self._context.wrap(bytes((NO_LAYER, 0, 0, 0)))
