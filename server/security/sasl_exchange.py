"""Authentication of one connection of a SASL listener (Kafka's SaslServerAuthenticator). Sans-IO.

Theory
    state           takes                                                           goes to
    FIRST           ApiVersions; SaslHandshake; a bare token of GSSAPI (0.9)        VERSIONS, HANDSHAKE or TOKENS
    VERSIONS        the same, after an ApiVersions that was answered with an error  the same
    HANDSHAKE       SaslHandshake, after an ApiVersions that was answered           TOKENS
    TOKENS          SaslAuthenticate; bare tokens if the handshake had version 0    TOKENS, COMPLETE
    WRONG_MECHANISM anything, and fails: see below                                  FAILED
    COMPLETE        SaslHandshake begins anew if the session has an end             TOKENS, WRONG_MECHANISM
    FAILED          nothing

    A client that reauthenticates has to keep its mechanism and its principal. What fails in Kafka's own words is an
    `AuthenticationFailed`: the answer, if there is one, goes out after a pause, and the connection ends. Requests that have no
    place here end the connection at once (`CloseConnection`), as in Kafka.

    Of the requests that have no place, only SaslHandshake and ApiVersions are answered before the end: others are not
    decoded for somebody who is not known. (Kafka decodes them once a mechanism is chosen, to say ILLEGAL_SASL_STATE.)
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from ottla.server.config.sasl_config import GSSAPI
from ottla.server.dispatch.dispatch import CloseConnection, api_name
from ottla.server.security.mechanism import LoginFailed, LoginRefused
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.sasl import SaslAuthenticateResponse, SaslHandshakeResponse

if TYPE_CHECKING:
    from ottla.server.security.mechanism import Login, ServerMechanism
    from ottla.wire.schema import Message

API_VERSIONS_KEY, SASL_HANDSHAKE_KEY, SASL_AUTHENTICATE_KEY = 18, 17, 36
REAUTHENTICATION_INTERVAL_MS = 1_000
# The first byte of a first token of GSS-API (RFC 2743, section 3.1). As the first byte of a request it would be a key that none has.
_GSS_TOKEN_BEGINS = b"\x60"


class State(enum.Enum):
    """State of a connection's authentication. The module's docstring shows the transitions."""

    FIRST = enum.auto()
    VERSIONS = enum.auto()
    HANDSHAKE = enum.auto()
    TOKENS = enum.auto()
    WRONG_MECHANISM = enum.auto()
    COMPLETE = enum.auto()
    FAILED = enum.auto()


class AuthenticationFailed(Exception):
    """Failure of an authentication. `answer`: response to send before the connection ends; None: no response."""

    def __init__(self, reason: str, answer: Message | None = None) -> None:
        super().__init__(reason)
        self.answer = answer


class OfferedMechanism(NamedTuple):
    """SASL mechanism that a listener offers. `begin` creates the server side of an exchange.

    `max_reauth_ms`: longest session without reauthentication; 0: unlimited. `in_thread`: steps may be slow or import
    modules, so they run in a thread.
    """

    begin: Callable[[], ServerMechanism]
    max_reauth_ms: int = 0
    in_thread: bool = False


class SaslExchange:
    """SASL authentication of one connection: the first one, and later reauthentications. Times are in ms since 1970."""

    def __init__(self, mechanisms: Mapping[str, OfferedMechanism]) -> None:
        self.state = State.FIRST
        self.login: Login | None = None
        self.expires_ms: int | None = None
        """End of this session, unless the client reauthenticates; None: never."""
        self._mechanisms = mechanisms
        self._name = ""
        self._mechanism: ServerMechanism | None = None
        self._offered: OfferedMechanism | None = None
        self._has_headers = False
        self._is_anew = False
        self._last_anew_ms = 0
        self._wrong = ""

    @property
    def is_complete(self) -> bool:
        return self.state is State.COMPLETE

    @property
    def takes_tokens(self) -> bool:
        return self.state is State.TOKENS

    @property
    def takes_bare_tokens(self) -> bool:
        """True if the next frame is a bare SASL token, not a Kafka request."""
        return self.state is State.TOKENS and not self._has_headers

    @property
    def refusal(self) -> str | None:
        """Reason why the mechanism refused the client; None if it did not refuse."""
        return None if self._mechanism is None else self._mechanism.refusal

    @property
    def works_in_thread(self) -> bool:
        """True if the next token has to be processed in a thread."""
        return self._offered is not None and self._offered.in_thread

    def begin_bare(self, frame: bytes) -> None:
        """Begin GSSAPI with bare tokens, as in Kafka 0.9, if `frame` is the first and a GSSAPI token.

        No-op if the listener does not offer GSSAPI.
        """
        offered = self._mechanisms.get(GSSAPI)
        if self.state is State.FIRST and offered is not None and frame.startswith(_GSS_TOKEN_BEGINS):
            self._name, self._offered, self._mechanism = GSSAPI, offered, offered.begin()
            self.state = State.TOKENS

    def expect(self, api_key: int) -> None:
        """Raise AuthenticationFailed if a request is not allowed in the present state; it may be undecoded."""
        if self.state is State.WRONG_MECHANISM:
            self._fail(self._wrong)
        if self.state is State.TOKENS:
            if api_key not in (SASL_AUTHENTICATE_KEY, SASL_HANDSHAKE_KEY, API_VERSIONS_KEY):
                self._fail(f"Unexpected Kafka request of type {api_name(api_key)} during SASL authentication.")
        elif api_key not in (SASL_HANDSHAKE_KEY, API_VERSIONS_KEY):
            self._end(f"Unexpected Kafka request of type {api_name(api_key)} during SASL handshake.")
        elif api_key == API_VERSIONS_KEY and self.state is State.HANDSHAKE:
            self._end("Unexpected ApiVersions request received during SASL authentication state HANDSHAKE_REQUEST")

    def refuse_request(self, name: str, answer: Message | None) -> NoReturn:
        """Raise AuthenticationFailed, because the request `name` came instead of a token. `answer`: error response."""
        self._fail(f"Unexpected Kafka request of type {name} during SASL authentication.", answer)

    def on_versions(self, *, is_error: bool) -> None:
        """Advance the state after the response to an ApiVersions request."""
        self.state = State.VERSIONS if is_error else State.HANDSHAKE

    def on_handshake(self, mechanism: str, version: int) -> SaslHandshakeResponse:
        names = list(self._mechanisms)
        offered = self._mechanisms.get(mechanism)
        if offered is None:
            answer = SaslHandshakeResponse(error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=names)
            self._fail("the client asks for a SASL mechanism that is not enabled", answer)
        if self._is_anew and mechanism != self._name:
            # The client gets the error only with its next request, as in Kafka.
            self.state = State.WRONG_MECHANISM
            self._wrong = (
                f"SASL mechanism '{mechanism}' requested by client is not supported for re-authentication of"
                f" mechanism '{self._name}'"
            )
        else:
            self._name, self._offered, self._mechanism = mechanism, offered, offered.begin()
            self._has_headers = version >= 1
            self.state = State.TOKENS
        return SaslHandshakeResponse(error_code=ErrorCode.NONE, mechanisms=names)

    def on_token(self, token: bytes, now_ms: int) -> SaslAuthenticateResponse:
        """Process the token of a SaslAuthenticate request; return the response. Raises AuthenticationFailed."""
        try:
            answer = self._step(token, now_ms)
        except LoginRefused as refused:
            self._refuse(refused.reason, str(refused))
        except LoginFailed as failed:
            # The reason may say whether there is such a user, so the client does not hear it.
            self._refuse(
                str(failed),
                f"Authentication failed during {'re-authentication' if self._is_anew else 'authentication'}"
                f" due to invalid credentials with SASL mechanism {self._name}",
            )
        lifetime_ms = 0 if self.expires_ms is None or not self.is_complete else self.expires_ms - now_ms
        return SaslAuthenticateResponse(
            error_code=ErrorCode.NONE, error_message="", auth_bytes=answer, session_lifetime_ms=lifetime_ms
        )

    def on_bare_token(self, token: bytes, now_ms: int) -> bytes:
        """Process a bare token; return the bare token to answer with. Raises AuthenticationFailed."""
        try:
            return self._step(token, now_ms)
        except LoginRefused as refused:
            self._fail(refused.reason)
        except LoginFailed as failed:
            self._fail(str(failed))

    def may_begin_anew(self, now_ms: int) -> bool:
        """Return True if SaslHandshake may begin a reauthentication now. It may once a second."""
        return self.expires_ms is not None and now_ms - self._last_anew_ms >= REAUTHENTICATION_INTERVAL_MS

    def begin_anew(self, mechanism: str, version: int, now_ms: int) -> SaslHandshakeResponse:
        """Begin the reauthentication of a logged-in client; return the response to its SaslHandshake request."""
        assert self.is_complete
        self._last_anew_ms, self._is_anew = now_ms, True
        return self.on_handshake(mechanism, version)

    def _step(self, token: bytes, now_ms: int) -> bytes:
        assert self._mechanism is not None and self._offered is not None
        answer = self._mechanism.step(token, now_ms)
        login = self._mechanism.login
        if login is not None:
            self._check_same(login)
            self.login, self.expires_ms = login, self._end_of_session(login, now_ms)
            self._mechanism = None
            self.state = State.COMPLETE
        return answer

    def _check_same(self, login: Login) -> None:
        if self.login is not None and self.login.principal != login.principal:
            before, after = (each.replace(":", ".", 1) for each in (self.login.principal, login.principal))
            raise LoginRefused(f"Cannot change principals during re-authentication from {before}: {after}")

    def _end_of_session(self, login: Login, now_ms: int) -> int | None:
        assert self._offered is not None
        ends = [now_ms + self._offered.max_reauth_ms] if self._offered.max_reauth_ms > 0 else []
        if login.expires_ms is not None:
            ends.append(max(now_ms, login.expires_ms))
        return min(ends, default=None)

    def _refuse(self, reason: str, told: str) -> NoReturn:
        answer = SaslAuthenticateResponse(
            error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=told, auth_bytes=b""
        )
        self._fail(reason, answer)

    def _fail(self, reason: str, answer: Message | None = None) -> NoReturn:
        self.state = State.FAILED
        raise AuthenticationFailed(reason, answer)

    def _end(self, reason: str) -> NoReturn:
        self.state = State.FAILED
        raise CloseConnection(reason)
