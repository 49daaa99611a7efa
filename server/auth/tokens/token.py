"""A delegation token (KIP-48), and what may be done to it (Kafka 4.4's DelegationTokenControlManager). Sans-IO.

Whoever asks for a token is its *requester*; it logs its *owner* in, who may be somebody else (KIP-373). Owner and *renewers* may
let it expire later, up to its `max_ms`, or earlier. A token that has expired is of no use, and is removed some time later.
Principals are texts such as `User:alice`, times are ms since 1970.

What logs in is the HMAC of the token's id with a key that all brokers have and nobody else. It is kept nowhere.
"""

from __future__ import annotations

import base64
import hmac
import secrets
from typing import TYPE_CHECKING, NamedTuple

from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.settings import LONG_MAX

if TYPE_CHECKING:
    from collections.abc import Collection

    from ottla.server.settings.security_config import TokenConfig

ID_BYTES = 16


class DelegationToken(NamedTuple):
    """See the module's docstring."""

    token_id: str
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issued_ms: int
    max_ms: int
    expires_ms: int

    def is_over(self, now_ms: int) -> bool:
        return self.max_ms < now_ms or self.expires_ms < now_ms

    def concerns(self, principals: Collection[str]) -> bool:
        """Whether one of these has to do with the token, whose tokens they may be told of."""
        return (
            self.owner in principals
            or self.requester in principals
            or any(each in principals for each in self.renewers)
        )

    def may_be_renewed_by(self, principal: str) -> bool:
        return principal == self.owner or principal in self.renewers


def new_token(
    requester: str, owner: str, renewers: tuple[str, ...], lifetime_ms: int, config: TokenConfig, now_ms: int
) -> DelegationToken:
    """`lifetime_ms` 0 or less: as long as the settings allow."""
    longest_ms = config.delegation_token_max_lifetime_ms
    max_ms = _later(now_ms, min(longest_ms, lifetime_ms) if lifetime_ms > 0 else longest_ms)
    expires_ms = min(max_ms, _later(now_ms, config.delegation_token_expiry_time_ms))
    return DelegationToken(_new_id(), owner, requester, renewers, now_ms, max_ms, expires_ms)


def renewed(
    token: DelegationToken, principal: str, period_ms: int, config: TokenConfig, now_ms: int
) -> DelegationToken:
    """The token with another end; `period_ms` 0 or less: as the settings say. Raises KafkaError."""
    if token.is_over(now_ms):
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_EXPIRED)
    _check_renewer(token, principal)
    longest_ms = config.delegation_token_expiry_time_ms
    period_ms = min(longest_ms, period_ms) if period_ms > 0 else longest_ms
    return token._replace(expires_ms=min(token.max_ms, _later(now_ms, period_ms)))


def expired(token: DelegationToken, principal: str, period_ms: int, now_ms: int) -> DelegationToken | None:
    """The token with another end; None if it is to be removed at once, for a negative `period_ms`. Raises KafkaError."""
    _check_renewer(token, principal)
    if period_ms < 0:
        return None
    if token.is_over(now_ms):
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_EXPIRED)
    return token._replace(expires_ms=min(token.max_ms, _later(now_ms, period_ms)))


def hmac_of(token_id: str, secret_key: bytes) -> bytes:
    """What the owner of a token has in hand: 64 bytes."""
    return hmac.digest(secret_key, token_id.encode(), "sha512")


def _check_renewer(token: DelegationToken, principal: str) -> None:
    if not token.may_be_renewed_by(principal):
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)


def _later(now_ms: int, period_ms: int) -> int:
    return min(now_ms + period_ms, LONG_MAX)


def _new_id() -> str:
    """A random id in Kafka's spelling, which does not begin with a dash, for the sake of command lines."""
    while (text := base64.urlsafe_b64encode(secrets.token_bytes(ID_BYTES)).decode().rstrip("=")).startswith("-"):
        pass
    return text
