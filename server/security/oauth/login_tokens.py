"""OAuth tokens for this broker's logins at other brokers: fetched, validated like Kafka's ClientJwtValidator, and renewed.

A token comes from a token server in exchange for a secret (RFC 6749, section 4.4), from a file, or from this broker,
unsigned. Like Kafka's HttpJwtRetriever, the broker retries an unreachable or failing server for
sasl.login.retry.backoff.max.ms, with pauses that double.

The first login after a token's refresh time, which follows from its lifetime and sasl.login.refresh.*, replaces the token
(Kafka's ExpiringCredentialRefreshingLogin uses a thread). A session ends with its token, and brokers reconnect before that,
so a login comes in time. While the token server is down the broker uses the token until it expires, and tries the server at
most once in RETRY_S.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import trio

from ottla.server.config.login_rules import ClientCredentials, TokenFile
from ottla.server.security.mechanism import LoginFailed
from ottla.server.security.oauth.fetching import https_context
from ottla.server.security.oauth.token_requests import (
    FailedRetrieval,
    body_of,
    headers_of,
    plain_token,
    read_token_file,
    token_of_answer,
    unsecured_token,
)
from ottla.server.security.oauth.tokens import InvalidToken, expires_ms, seconds, take_apart, user_name

if TYPE_CHECKING:
    import ssl

    from ottla.server.config.login_rules import OAuthLogin, RefreshRules, UnsecuredLogin

    Source = ClientCredentials | TokenFile | UnsecuredLogin

FOREVER_MS_MAX = 300_000
_PAUSE_S_MIN = 0.01
_reads = trio.CapacityLimiter(1)  # of its own: a disk that hangs blocks no other work


async def retrieve(source: Source, context: ssl.SSLContext | None, now_ms: int) -> str:
    """Return a new token from `source`; only its characters are checked. Raises FailedRetrieval."""
    if isinstance(source, ClientCredentials):
        text = await _of_server(source, context)
    elif isinstance(source, TokenFile):
        text = await trio.to_thread.run_sync(_of_file, source.path, limiter=_reads, abandon_on_cancel=True)
    else:
        text = unsecured_token(source, now_ms)
    return plain_token(text)


def _of_file(address: str) -> str:
    try:
        return read_token_file(Path(address))
    except (OSError, ValueError) as error:
        raise FailedRetrieval(f"{address} cannot be read: {getattr(error, 'strerror', None) or error}") from None


# ---------------------------------------------------------------------- of a server


async def _of_server(source: ClientCredentials, context: ssl.SSLContext | None) -> str:
    deadline = trio.current_time() + min(source.retry_backoff_max_ms, FOREVER_MS_MAX) / 1000
    attempts = 0
    while True:
        try:
            return await _asked(source, context)
        except FailedRetrieval as failure:
            attempts += 1
            doubled_ms = max(source.retry_backoff_ms, 0) << min(attempts - 1, 30)
            pause_s = max(_PAUSE_S_MIN, min(doubled_ms, FOREVER_MS_MAX) / 1000)
            if failure.is_lasting or trio.current_time() + pause_s > deadline:
                raise
        await trio.sleep(pause_s)


async def _asked(source: ClientCredentials, context: ssl.SSLContext | None) -> str:
    from ottla.server.security.oauth.fetching import TIME_S, FailedRead, Limits, exchange  # here, as files need no HTTP

    limits = Limits(
        connect_s=TIME_S if source.connect_timeout_ms is None else max(source.connect_timeout_ms, 1) / 1000,
        read_s=TIME_S if source.read_timeout_ms is None else max(source.read_timeout_ms, 1) / 1000,
    )
    try:
        answer = await exchange(source.url, context, "POST", headers_of(source), body_of(source), limits)
    except FailedRead as failure:
        raise FailedRetrieval(str(failure), is_lasting=False) from None
    except ImportError as error:  # as long as too many files are open
        raise FailedRetrieval(str(error), is_lasting=False) from None
    return token_of_answer(answer.status, answer.body)


# ---------------------------------------------------------------------- tokens of one login


logger = logging.getLogger("ottla.auth")

RETRY_S = 10.0
REPLACED_WITHIN_S = 5.0
"""Longest wait of a login for a new token while the old one is good."""


class LoginToken(NamedTuple):
    """Token for logins at other brokers, checked when it was retrieved. Times are in ms since 1970."""

    text: str
    starts_ms: int
    expires_ms: int

    def __repr__(self) -> str:
        return f"LoginToken(expires_ms={self.expires_ms})"  # a token opens doors


class LoginTokens:
    """Cache of the token of one login configuration. It replaces the token before it expires.

    `context`: TLS for https. `clock_ms` returns ms since 1970, `chance` a random number from 0 to below 1.
    """

    def __init__(
        self,
        login: OAuthLogin,
        context: ssl.SSLContext | None = None,
        *,
        clock_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._login, self._context = login, context
        self._clock_ms, self._chance = clock_ms, chance
        self._token: LoginToken | None = None
        self._replace_ms = 0
        self._one_at_a_time = trio.Lock()

    async def current(self) -> LoginToken:
        """Return a token that has not expired; retrieve a new one if needed. Raises LoginFailed if that fails."""
        async with self._one_at_a_time:
            token, now_ms = self._token, self._clock_ms()
            if token is None or token.expires_ms <= now_ms:
                try:
                    return await self._replaced()
                except FailedRetrieval as failure:
                    raise LoginFailed(f"there is no token: {failure}") from None
            if now_ms >= self._replace_ms:
                token = await self._replaced_while_good(token)
            return token

    async def _replaced_while_good(self, token: LoginToken) -> LoginToken:
        reason = f"no answer within {REPLACED_WITHIN_S:g} s"
        with trio.move_on_after(REPLACED_WITHIN_S):
            try:
                return await self._replaced()
            except FailedRetrieval as failure:
                reason = str(failure)
        self._replace_ms = self._clock_ms() + round(RETRY_S * 1000)
        left_s = (token.expires_ms - self._clock_ms()) / 1000
        logger.warning("The token for logins, which is good for another %d s, cannot be replaced: %s", left_s, reason)
        return token

    async def _replaced(self) -> LoginToken:
        text = await retrieve(self._login.source, self._context, self._clock_ms())
        now_ms = self._clock_ms()
        token = checked(text, self._login.subject_claim, now_ms)
        self._token, self._replace_ms = token, replace_ms(token, self._login.refresh, now_ms, self._chance())
        return token


def tokens_for(login: OAuthLogin) -> LoginTokens:
    """Create the token cache for a login configuration. Reads certificates for https. Raises InvalidSetting."""
    return LoginTokens(login, https_context(login.source.tls) if isinstance(login.source, ClientCredentials) else None)


def checked(text: str, subject_claim: str, now_ms: int) -> LoginToken:
    """Check a retrieved token. Raises FailedRetrieval if brokers would reject it."""
    try:
        claims = take_apart(text).claims
        user_name(claims, subject_claim)
        issued_s, expires_s = seconds(claims, "iat"), seconds(claims, "exp")
    except InvalidToken as invalid:
        raise FailedRetrieval(f"what came for a token is none: {invalid}") from None
    if expires_s is None:
        raise FailedRetrieval("the token does not say when it expires")
    ends_ms = expires_ms(expires_s)
    if ends_ms <= now_ms:
        raise FailedRetrieval("the token has expired")
    return LoginToken(text, now_ms if issued_s is None else expires_ms(issued_s), ends_ms)


def replace_ms(token: LoginToken, rules: RefreshRules, now_ms: int, chance: float) -> int:
    """Return when to replace a token, in ms since 1970: after a share of its lifetime.

    If possible, this is at least `min_period_s` from now, and at least `buffer_s` before the token expires.
    """
    share = rules.window_factor + rules.window_jitter * chance
    if now_ms + 1000 * (rules.min_period_s + rules.buffer_s) > token.expires_ms:
        return now_ms + int((token.expires_ms - now_ms) * share)
    proposed_ms = token.starts_ms + int((token.expires_ms - token.starts_ms) * share)
    last_ms, first_ms = token.expires_ms - 1000 * rules.buffer_s, now_ms + 1000 * rules.min_period_s
    return last_ms if proposed_ms > last_ms else max(proposed_ms, first_ms)
