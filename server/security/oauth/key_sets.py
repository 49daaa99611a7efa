"""Sets of public keys (JWKS, RFC 7517) that token issuers publish.

`parse_key_set` belongs in a thread: it loads joserfc when it is first called, and takes a millisecond for some keys.
Unusable keys are left out, as in Kafka: a set may hold keys of types that only other software supports.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.server.security.oauth.tokens import ALGORITHMS
from ottla.wire.foreign_json import parse_json

if TYPE_CHECKING:
    from ottla.server.security.oauth.signatures import PublicKey

KEYS_MAX = 1_000
RSA_BITS_MIN, RSA_BITS_MAX = 2_048, 8_192


class MalformedKeySet(ValueError):
    """Malformed key set. The text is for the log."""


class KnownKey(NamedTuple):
    """Public key for one algorithm. `key_id` None: the key has no id."""

    key_id: str | None
    algorithm: str
    key: PublicKey


class KeySet:
    """Public keys by id and algorithm; of duplicates the first. `unusable`: number of keys that were left out."""

    def __init__(self, keys: Iterable[KnownKey], unusable: int = 0) -> None:
        self.unusable = unusable
        self._by_id: dict[tuple[str | None, str], PublicKey] = {}
        self._first: dict[str, PublicKey] = {}
        for each in keys:
            self._by_id.setdefault((each.key_id, each.algorithm), each.key)
            self._first.setdefault(each.algorithm, each.key)

    def __len__(self) -> int:
        return len({id(each) for each in self._by_id.values()})

    def find(self, key_id: str | None, algorithm: str) -> PublicKey | None:
        """Return the key for `algorithm` with this id, or None. `key_id` None: the first key, as in Kafka."""
        if key_id is None:
            return self._first.get(algorithm)
        return self._by_id.get((key_id, algorithm))


def parse_key_set(data: bytes) -> KeySet:
    """Parse a JWKS. Raises MalformedKeySet."""
    try:
        found = parse_json(data)
    except ValueError:
        raise MalformedKeySet("it is not JSON") from None
    listed = found.get("keys") if isinstance(found, dict) else None
    if not isinstance(listed, list):
        raise MalformedKeySet("it holds no list of keys")
    if len(listed) > KEYS_MAX:
        raise MalformedKeySet(f"it holds more than {KEYS_MAX} keys")
    keys: list[KnownKey] = []
    unusable = 0
    for each in listed:
        made = _keys_of(each)
        keys += made
        unusable += not made
    return KeySet(keys, unusable)


def _keys_of(jwk: object) -> list[KnownKey]:
    """Return a key for each algorithm that the key in a JWK can be used with; empty if it is unusable."""
    from ottla.server.security.oauth.signatures import PublicKey, UnusableKey

    if not isinstance(jwk, dict) or not _is_for_signatures(jwk):
        return []
    key_id = jwk.get("kid")
    if not isinstance(key_id, str | None):
        return []
    wanted = jwk.get("alg")
    kind = (jwk.get("kty"), jwk.get("crv") if jwk.get("kty") == "EC" else None)
    fitting = [each for each, of in ALGORITHMS.items() if of == kind and wanted in (None, each)]
    if not fitting:
        return []
    try:
        key = PublicKey(jwk)
    except UnusableKey:
        return []
    return [KnownKey(key_id, each, key) for each in fitting]


def _is_for_signatures(jwk: Mapping[str, Any]) -> bool:
    operations = jwk.get("key_ops")
    if jwk.get("use") not in (None, "sig") or not (
        operations is None or (isinstance(operations, list) and "verify" in operations)
    ):
        return False
    return jwk.get("kty") != "RSA" or RSA_BITS_MIN <= _bits(jwk.get("n")) <= RSA_BITS_MAX


def _bits(number: object) -> int:
    """Return the length in bits of a number in base64url; 0 if it is malformed."""
    if not isinstance(number, str) or not number.isascii():
        return 0
    try:
        data = base64.urlsafe_b64decode(number + "=" * (-len(number) % 4)).lstrip(b"\0")
    except (binascii.Error, ValueError):
        return 0
    return len(data) * 8 - (8 - data[0].bit_length()) if data else 0
