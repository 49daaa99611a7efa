"""Delegation tokens (KIP-48): operations on them (Kafka 4.4's DelegationTokenControlManager), and their nodes. Sans-IO.

The user who requests a token is its *requester*; the token logs in its *owner*, who may be another user (KIP-373). Owner
and *renewers* may let it expire later, up to its `max_ms`, or earlier. A token that has expired is of no use, and is
removed some time later. Principals are texts such as `User:alice`, times are ms since 1970.

The secret of a token is the HMAC of its id, with a key that only the brokers have. It is kept nowhere.

Nodes in the coordination tree, as Kafka 3.9 has them (DelegationTokenManagerZk)
    /delegation_token/tokens/<id>                        a token, as JSON
    /delegation_token/token_changes/token_change_<seq>   id of a token that has changed, or is gone
A token is {"version":3,"owner":"User%3Aalice","tokenRequester":...,"renewers":[...],"issueTimestamp":...,"maxTimestamp":...,
"expiryTimestamp":...,"tokenId":...}, with principals encoded as in addresses of the web. Before version 3 the owner was the
one who asked.
"""

from __future__ import annotations

import base64
import hmac
import json
import re
import secrets
from collections.abc import Callable
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote, unquote_plus

from ottla.replication.cluster.znodes import MalformedNode
from ottla.server.dispatch.context import ANONYMOUS
from ottla.server.security.scram import KnownToken
from ottla.server.security.scram_credentials import (
    HASHES,
    ITERATIONS_MIN,
    ScramCredential,
    credential_of,
    salted_password,
)
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.settings import LONG_MAX
from ottla.wire.text import UUID_BYTES, uuid_text

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from ottla.server.config.security_config import TokenConfig
    from ottla.server.dispatch.context import RequestContext


class DelegationToken(NamedTuple):
    """Delegation token without its HMAC. Times are in ms since 1970."""

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
        """Return True if one of these principals may see the token: as owner, requester or renewer."""
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
    """Create a token. `lifetime_ms`: 0 or less for the longest lifetime that the settings allow."""
    longest_ms = config.delegation_token_max_lifetime_ms
    max_ms = _later(now_ms, min(longest_ms, lifetime_ms) if lifetime_ms > 0 else longest_ms)
    expires_ms = min(max_ms, _later(now_ms, config.delegation_token_expiry_time_ms))
    return DelegationToken(_new_id(), owner, requester, renewers, now_ms, max_ms, expires_ms)


def renewed(
    token: DelegationToken, principal: str, period_ms: int, config: TokenConfig, now_ms: int
) -> DelegationToken:
    """Return the token with a new expiry, `period_ms` from now. Raises KafkaError.

    `period_ms` 0 or less: the configured period. Later expiries are cut to the limits of the settings and the token.
    """
    if token.is_over(now_ms):
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_EXPIRED)
    _check_renewer(token, principal)
    longest_ms = config.delegation_token_expiry_time_ms
    period_ms = min(longest_ms, period_ms) if period_ms > 0 else longest_ms
    return token._replace(expires_ms=min(token.max_ms, _later(now_ms, period_ms)))


def expired(token: DelegationToken, principal: str, period_ms: int, now_ms: int) -> DelegationToken | None:
    """Return the token with an expiry `period_ms` from now; None to remove it now. Raises KafkaError.

    `period_ms` negative: remove it now.
    """
    _check_renewer(token, principal)
    if period_ms < 0:
        return None
    if token.is_over(now_ms):
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_EXPIRED)
    return token._replace(expires_ms=min(token.max_ms, _later(now_ms, period_ms)))


def hmac_of(token_id: str, secret_key: bytes) -> bytes:
    """Return a token's HMAC (64 bytes). In base64 it is the password of SCRAM logins with the token."""
    return hmac.digest(secret_key, token_id.encode(), "sha512")


def _check_renewer(token: DelegationToken, principal: str) -> None:
    if not token.may_be_renewed_by(principal):
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)


def _later(now_ms: int, period_ms: int) -> int:
    return min(now_ms + period_ms, LONG_MAX)


def _new_id() -> str:
    """Return a random id as Kafka spells it. It never begins with a dash, which would look like an option."""
    while (text := uuid_text(secrets.token_bytes(UUID_BYTES))).startswith("-"):
        pass
    return text


# ---------------------------------------------------------------------- nodes in the coordination tree


ABOVE = "/delegation_token"
TOKENS = f"{ABOVE}/tokens"
CHANGES = f"{ABOVE}/token_changes"
CHANGE_PREFIX = "token_change_"
PATHS = (ABOVE, TOKENS, CHANGES)
"""Paths of the nodes that have to exist, parents first."""

PRINCIPAL_CHARACTERS_MAX = 4_096
_VERSION, _VERSION_WITH_REQUESTER = 3, 3
_TIMES = ("issueTimestamp", "maxTimestamp", "expiryTimestamp")
_ID = re.compile(r"[A-Za-z0-9_-]{1,100}")
_DATA_BYTES_MAX = 1 << 20  # as much as ZooKeeper takes
_SHOWN_MAX = 100


def token_path(token_id: str) -> str:
    return f"{TOKENS}/{token_id}"


def is_token_id(name: str) -> bool:
    """Return True if `name` can be a token's id: Kafka's ids are 22 characters of URL-safe base64."""
    return _ID.fullmatch(name) is not None


def encode_token(token: DelegationToken) -> bytes:
    node: dict[str, Any] = {
        "version": _VERSION,
        "owner": _sanitized(token.owner),
        "tokenRequester": _sanitized(token.requester),
        "renewers": [_sanitized(each) for each in token.renewers],
        **dict(zip(_TIMES, (token.issued_ms, token.max_ms, token.expires_ms), strict=True)),
        "tokenId": token.token_id,
    }
    return json.dumps(node, separators=(",", ":")).encode()


def decode_token(token_id: str, data: bytes) -> DelegationToken:
    """Decode the node of a token. Raises MalformedNode."""
    if not is_token_id(token_id) or len(data) > _DATA_BYTES_MAX:
        raise MalformedNode(f"no token: {len(data)} bytes of {token_id[:_SHOWN_MAX]!r}")
    try:
        node = json.loads(data)
        version = _number(node["version"])
        if not 0 < version <= _VERSION:
            raise MalformedNode(f"version {version} of tokens is not known")
        if node["tokenId"] != token_id:
            raise MalformedNode("the token has another id than its node")
        owner = _principal(node["owner"])
        requester = _principal(node["tokenRequester"]) if version >= _VERSION_WITH_REQUESTER else owner
        if not isinstance(node["renewers"], list):
            raise MalformedNode("renewers are no list")
        renewers = tuple(_principal(each) for each in node["renewers"])
        issued_ms, max_ms, expires_ms = (_number(node[name]) for name in _TIMES)
    except MalformedNode:
        raise
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        # Not what the node holds, which may be anything and of any length.
        raise MalformedNode(f"no token: {type(error).__name__}") from None
    return DelegationToken(token_id, owner, requester, renewers, issued_ms, max_ms, expires_ms)


def _number(value: Any) -> int:
    if type(value) is not int or not -LONG_MAX <= value <= LONG_MAX:
        raise MalformedNode("a number is missing")
    return value


def _principal(value: Any) -> str:
    if not isinstance(value, str):
        raise MalformedNode("a principal is missing")
    principal = unquote_plus(value, errors="replace")
    if ":" not in principal or len(principal) > PRINCIPAL_CHARACTERS_MAX:
        raise MalformedNode("a principal has no type, or is too long")
    principal.encode()  # half of a pair of surrogates could be told to nobody
    return principal


def _sanitized(principal: str) -> str:
    return quote(principal, safe="", errors="replace").replace("~", "%7E")


# ---------------------------------------------------------------------- requests


NO_TIME = -1
"""Time in the answer to a client that may not ask."""


def may_ask(context: RequestContext[Any]) -> bool:
    """Return True if a client may request tokens: if it is authenticated, but not by a token."""
    protocol = context.security_protocol
    is_unknown = protocol == "PLAINTEXT" or (protocol == "SSL" and context.principal == ANONYMOUS)
    return not is_unknown and not context.is_token_authenticated


class Principal(NamedTuple):
    """Principal such as User:alice, split into type and name like in requests about tokens."""

    type: str
    name: str

    @classmethod
    def of(cls, text: str) -> Principal:
        kind, _, name = text.partition(":")
        return cls(kind, name)

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


SaltOf = Callable[[str, str], bytes]
USER = "User"


class DelegationTokens:
    """Delegation tokens in force on this broker, their HMACs and SCRAM credentials (Kafka's DelegationTokenCache).

    In a SCRAM login with a token, the user name is its id, and the password its HMAC in base64. Deriving the server's
    credential takes 1.4 ms for each token and mechanism. `derive` does it in a thread soon after the token is known,
    unless its first login comes earlier. Salts come from the token's id and a cluster secret. Dummy credentials of
    unknown tokens have such salts, too, so that a login attempt does not reveal whether the token exists.
    """

    def __init__(self, secret_key: bytes) -> None:
        assert secret_key
        self._secret_key = secret_key
        self._tokens: dict[str, DelegationToken] = {}
        self._hmacs: dict[str, bytes] = {}
        self._ids: dict[bytes, str] = {}
        self._counts: dict[str, int] = {}
        self._credentials: dict[str, dict[str, ScramCredential]] = {}
        self._underived: dict[str, None] = {}
        self.salt_of: SaltOf | None = None
        """Salt for a mechanism and a token's id; logins by token are refused until it is set."""

    def __len__(self) -> int:
        return len(self._tokens)

    def __iter__(self) -> Iterator[DelegationToken]:
        return iter(self._tokens.values())

    def get(self, token_id: str) -> DelegationToken | None:
        return self._tokens.get(token_id)

    def put(self, token: DelegationToken) -> None:
        """Add a token, or change the expiry of a known one."""
        token_id = token.token_id
        if (before := self._tokens.get(token_id)) is None:
            hmac = hmac_of(token_id, self._secret_key)
            self._hmacs[token_id], self._ids[hmac] = hmac, token_id
            self._underived[token_id] = None
        else:
            self._count(before.requester, -1)
        self._tokens[token_id] = token
        self._count(token.requester, 1)

    def remove(self, token_id: str) -> None:
        """Remove a token if it is known."""
        token = self._tokens.pop(token_id, None)
        if token is not None:
            self._count(token.requester, -1)
            del self._ids[self._hmacs.pop(token_id)]
            self._credentials.pop(token_id, None)
            self._underived.pop(token_id, None)

    def count_of(self, requester: str) -> int:
        """Return the number of existing tokens that a principal has requested."""
        return self._counts.get(requester, 0)

    def _count(self, requester: str, change: int) -> None:
        count = self._counts.pop(requester, 0) + change
        if count:
            self._counts[requester] = count

    def hmac(self, token_id: str) -> bytes:
        """Return the HMAC of a known token."""
        return self._hmacs[token_id]

    def by_hmac(self, hmac: bytes) -> DelegationToken | None:
        token_id = self._ids.get(hmac)
        return None if token_id is None else self._tokens[token_id]

    # ------------------------------------------------------------------ logging in

    def known(self, mechanism: str, token_id: str, now_ms: int) -> KnownToken | None:
        """Return a token that may log in; None if unknown or expired. (For an expired one Kafka ends the session.)"""
        token = self._tokens.get(token_id)
        if token is None or token.is_over(now_ms) or self.salt_of is None:
            return None
        made = self._credentials.setdefault(token_id, {})
        if (credential := made.get(mechanism)) is None:
            credential = made[mechanism] = self._credential(mechanism, token_id, self._hmacs[token_id])
        # As in Kafka: a login makes a user, whatever the type of the owner.
        owner = f"{USER}:{token.owner.partition(':')[2]}"
        return KnownToken(owner, min(token.expires_ms, token.max_ms), credential)

    def underived(self, limit: int) -> list[tuple[str, bytes]]:
        """Return (token id, HMAC) of up to `limit` tokens whose credentials are not derived yet."""
        return [(each, self._hmacs[each]) for each in islice(self._underived, limit)]

    def derive(self, tokens: Iterable[tuple[str, bytes]]) -> dict[str, dict[str, ScramCredential]]:
        """Derive the credentials of tokens. Each token takes 3 ms, so call this in a thread."""
        return {
            token_id: {mechanism: self._credential(mechanism, token_id, hmac) for mechanism in HASHES}
            for token_id, hmac in tokens
        }

    def take(self, derived: dict[str, dict[str, ScramCredential]]) -> None:
        """Store credentials that `derive` has returned; tokens removed meanwhile are skipped."""
        for token_id, credentials in derived.items():
            if token_id in self._tokens:
                self._credentials[token_id] = credentials
                self._underived.pop(token_id, None)

    def _credential(self, mechanism: str, token_id: str, hmac: bytes) -> ScramCredential:
        assert self.salt_of is not None
        salt = self.salt_of(mechanism, token_id)
        salted = salted_password(mechanism, base64.b64encode(hmac).decode(), salt, ITERATIONS_MIN)
        return credential_of(mechanism, salted, salt, ITERATIONS_MIN)
