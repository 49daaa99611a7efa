"""Tokens by which this program logs in somewhere else: fetched, looked at as Kafka's ClientJwtValidator does, and replaced in time.

A token is replaced with the first login after the time that sasl.login.refresh.* make of its life (Kafka's
ExpiringCredentialRefreshingLogin, which does it in a thread of its own). Sessions end with their tokens, and a connection among
brokers is begun anew before that, so a login comes in time. While the server that gives them out is away, a token is used as
long as it lasts, and the server is asked no more than once in RETRY_S.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import trio

from ottla.server.auth.oauth.https import https_context
from ottla.server.auth.oauth.retrieving import retrieve
from ottla.server.auth.oauth.token_requests import FailedRetrieval
from ottla.server.auth.oauth.tokens import InvalidToken, expires_ms, seconds, take_apart, user_name
from ottla.server.auth.refusals import LoginFailed
from ottla.server.settings.login_rules import ClientCredentials

if TYPE_CHECKING:
    import ssl

    from ottla.server.settings.login_rules import OAuthLogin, RefreshRules

logger = logging.getLogger("ottla.auth")

RETRY_S = 10.0
REPLACED_WITHIN_S = 5.0
"""How long a login waits for a new token while the old one is good."""


class LoginToken(NamedTuple):
    """A token that looks good. Times are in ms since 1970."""

    text: str
    starts_ms: int
    expires_ms: int

    def __repr__(self) -> str:
        return f"LoginToken(expires_ms={self.expires_ms})"  # a token opens doors


class LoginTokens:
    """Those of one login. `context` is for https; `clock_ms` gives the time in ms since 1970, `chance` a number below 1."""

    def __init__(
        self,
        login: OAuthLogin,
        context: ssl.SSLContext | None = None,
        *,
        clock_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._login = login
        self._context = context
        self._clock_ms = clock_ms
        self._chance = chance
        self._token: LoginToken | None = None
        self._replace_ms = 0
        self._one_at_a_time = trio.Lock()

    async def current(self) -> LoginToken:
        """A token that has not expired. LoginFailed: there is none."""
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
    """Reads the certificates for https. InvalidSetting: they cannot be used."""
    return LoginTokens(login, https_context(login.source.tls) if isinstance(login.source, ClientCredentials) else None)


def checked(text: str, subject_claim: str, now_ms: int) -> LoginToken:
    """A token that whoever gets it may take. FailedRetrieval: nobody will."""
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
    """When a token is to be replaced: after a share of its life, but in neither of the times that are kept free, if they fit."""
    share = rules.window_factor + rules.window_jitter * chance
    if now_ms + 1000 * (rules.min_period_s + rules.buffer_s) > token.expires_ms:
        return now_ms + int((token.expires_ms - now_ms) * share)
    proposed_ms = token.starts_ms + int((token.expires_ms - token.starts_ms) * share)
    last_ms, first_ms = token.expires_ms - 1000 * rules.buffer_s, now_ms + 1000 * rules.min_period_s
    return last_ms if proposed_ms > last_ms else max(proposed_ms, first_ms)
