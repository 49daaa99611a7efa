"""Delegation tokens in force on this broker, and their logins by SCRAM (Kafka's DelegationTokenCache).

Whoever logs in with a token by SCRAM gives its id as name and its HMAC, in base64, as password. What a server keeps of that
password takes 1.4 ms to make. It is made once for each token and mechanism: soon after the token is heard of, in a thread
(`derive`), or at its first login, if that comes sooner.

Salts follow from the id and a secret of the cluster, like those that are made up for tokens that do not exist. So an answer
to a login does not tell whether there is such a token.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from itertools import islice
from typing import TYPE_CHECKING

from ottla.server.security.scram import KnownToken
from ottla.server.security.scram_credentials import (
    HASHES,
    ITERATIONS_MIN,
    ScramCredential,
    credential_of,
    salted_password,
)
from ottla.server.security.tokens.token import DelegationToken, hmac_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

SaltOf = Callable[[str, str], bytes]
USER = "User"


class DelegationTokens:
    """All delegation tokens, their HMACs, and the SCRAM credentials made of these."""

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
        """Salt for a mechanism and a token's id; nobody logs in by a token before it is set."""

    def __len__(self) -> int:
        return len(self._tokens)

    def __iter__(self) -> Iterator[DelegationToken]:
        return iter(self._tokens.values())

    def get(self, token_id: str) -> DelegationToken | None:
        return self._tokens.get(token_id)

    def put(self, token: DelegationToken) -> None:
        """Add a token, or change its end."""
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
        """Remove a token, if it is known."""
        token = self._tokens.pop(token_id, None)
        if token is not None:
            self._count(token.requester, -1)
            del self._ids[self._hmacs.pop(token_id)]
            self._credentials.pop(token_id, None)
            self._underived.pop(token_id, None)

    def count_of(self, requester: str) -> int:
        """Number of tokens that somebody has asked for."""
        return self._counts.get(requester, 0)

    def _count(self, requester: str, change: int) -> None:
        count = self._counts.pop(requester, 0) + change
        if count:
            self._counts[requester] = count

    def hmac(self, token_id: str) -> bytes:
        """HMAC of a known token."""
        return self._hmacs[token_id]

    def by_hmac(self, hmac: bytes) -> DelegationToken | None:
        token_id = self._ids.get(hmac)
        return None if token_id is None else self._tokens[token_id]

    # ------------------------------------------------------------------ logging in

    def known(self, mechanism: str, token_id: str, now_ms: int) -> KnownToken | None:
        """Token that may log in. Kafka lets one that has expired log in, too, and ends that session at once."""
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
        """Some of the tokens whose credentials were not made in advance, each with its HMAC."""
        return [(each, self._hmacs[each]) for each in islice(self._underived, limit)]

    def derive(self, tokens: Iterable[tuple[str, bytes]]) -> dict[str, dict[str, ScramCredential]]:
        """Make the credentials of tokens; 3 ms each, so that belongs in a thread."""
        return {
            token_id: {mechanism: self._credential(mechanism, token_id, hmac) for mechanism in HASHES}
            for token_id, hmac in tokens
        }

    def take(self, derived: dict[str, dict[str, ScramCredential]]) -> None:
        """Keep the credentials that `derive` has made, of tokens that still exist."""
        for token_id, credentials in derived.items():
            if token_id in self._tokens:
                self._credentials[token_id] = credentials
                self._underived.pop(token_id, None)

    def _credential(self, mechanism: str, token_id: str, hmac: bytes) -> ScramCredential:
        assert self.salt_of is not None
        salt = self.salt_of(mechanism, token_id)
        salted = salted_password(mechanism, base64.b64encode(hmac).decode(), salt, ITERATIONS_MIN)
        return credential_of(mechanism, salted, salt, ITERATIONS_MIN)
