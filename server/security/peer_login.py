"""SASL login of this broker at another one, over a connection of requests and answers (Kafka's SaslClientAuthenticator).

SaslHandshake chooses the mechanism, SaslAuthenticate carries its tokens. Kafka asks for ApiVersions before that; brokers
know each other's versions (`replication/cluster/peers.py`). A session that has an end is not renewed on its connection:
`log_in` says how long it lasts, and who owns the connection makes another one in time.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import trio

from ottla.server.config.sasl_config import PLAIN
from ottla.server.security.mechanism import LoginRefused, PlainClient
from ottla.server.security.sasl_listener import new_nonce
from ottla.server.security.scram import ScramClient
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

if TYPE_CHECKING:
    from ottla.server.config.sasl_rules import KerberosKeys, PeerLoginConfig
    from ottla.server.security.kerberos.library import InitiatedContext, Initiator
    from ottla.server.security.mechanism import ClientMechanism
    from ottla.server.security.oauth.login_tokens import LoginTokens
    from ottla.wire.schema import Message

HANDSHAKE_VERSION, AUTHENTICATE_VERSION = 1, 2
REASON_LENGTH_MAX = 200  # of what another broker says, in the log
WAITING_MAX = 4  # logins of one listener that wait for a KDC
_steps = trio.CapacityLimiter(
    2
)  # of its own: a step of SCRAM hashes for milliseconds, and none of them waits for a disk

Ask = Callable[["Message", int], Awaitable[Any]]
"""Function that sends a request of that version and returns its answer."""


class PeerLogin:
    """Login of this broker at other brokers, with one set of credentials for all."""

    def __init__(self, config: PeerLoginConfig, run_in_thread: Callable[..., Awaitable[Any]] | None = None) -> None:
        self._config = config
        # A login that waits for a KDC is abandoned when time is over, and its thread ends by itself.
        waits = config.kerberos is not None
        limiter = trio.CapacityLimiter(WAITING_MAX) if waits else _steps
        self._run_in_thread = run_in_thread or partial(
            trio.to_thread.run_sync, limiter=limiter, abandon_on_cancel=waits
        )
        self._tickets: Initiator | None = None
        self._tokens: LoginTokens | None = None
        if config.tokens is not None:
            from ottla.server.security.oauth.login_tokens import (
                tokens_for,  # here, because few brokers log in by tokens
            )

            self._tokens = tokens_for(config.tokens)

    async def log_in(self, ask: Ask, host: str = "") -> int:
        """Log in at another broker; return the session's lifetime in ms, or 0 if it has no limit.

        `ask` sends a request and returns the response. `host`: the other broker's host. Raises LoginRefused, LoginFailed.
        """
        name = self._config.mechanism
        mechanism = await self._begun(host)  # first, as the other broker does not wait for long
        chosen = await ask(SaslHandshakeRequest(mechanism=name), HANDSHAKE_VERSION)
        if chosen.error_code:
            raise LoginRefused(f"mechanism {name} is refused: {ErrorCode.of(chosen.error_code).name}")
        token = await self._run_in_thread(mechanism.step, b"")
        while True:
            answer = await ask(SaslAuthenticateRequest(auth_bytes=token), AUTHENTICATE_VERSION)
            if answer.error_code:
                told = (answer.error_message or "")[:REASON_LENGTH_MAX]
                raise LoginRefused(f"the login by {name} is refused: {ErrorCode.of(answer.error_code).name} {told!r}")
            token = await self._run_in_thread(mechanism.step, bytes(answer.auth_bytes))
            if mechanism.is_complete:
                lifetime_ms: int = answer.session_lifetime_ms
                return max(0, lifetime_ms)

    async def _begun(self, host: str) -> ClientMechanism:
        config = self._config
        if config.kerberos is not None:
            from ottla.server.security.kerberos.exchange import GssapiClient  # here, because few brokers have Kerberos

            return GssapiClient(partial(self._ticket_for, config.kerberos, host))
        if self._tokens is not None and config.tokens is not None:
            from ottla.server.security.oauth.bearer import OAuthBearerClient

            return OAuthBearerClient((await self._tokens.current()).text, config.tokens.extensions)
        if config.mechanism == PLAIN:
            return PlainClient(config.name, config.password)
        return ScramClient(config.mechanism, config.name, config.password, new_nonce())

    def _ticket_for(self, keys: KerberosKeys, host: str) -> InitiatedContext:
        """Return a security context with a ticket for the service on `host`. Blocks. Raises GssFailure."""
        if self._tickets is None:
            from ottla.server.security.kerberos.library import Initiator

            self._tickets = Initiator(keys)
        return self._tickets.begin(host)
