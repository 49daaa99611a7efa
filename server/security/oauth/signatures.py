"""Verification of signatures by joserfc. This is the only module that imports that optional package.

Only what makes a public key is handed to it: whatever else a set of keys says of a key stays outside.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cryptography.exceptions import UnsupportedAlgorithm
from joserfc.errors import JoseError
from joserfc.jwk import ECKey, RSAKey
from joserfc.jws import JWSRegistry, deserialize_compact

from ottla.server.security.oauth.tokens import ALGORITHMS

_MEMBERS: Mapping[str, tuple[str, ...]] = {"RSA": ("kty", "n", "e"), "EC": ("kty", "crv", "x", "y")}


class UnusableKey(ValueError):
    """Public key that cannot be used to verify signatures."""


class _AnyLength(JWSRegistry):
    """Registry of algorithms that hardly limits lengths, because tokens are limited when they are received."""

    max_header_length = max_payload_length = max_signature_length = 1 << 20


_REGISTRY = _AnyLength(algorithms=list(ALGORITHMS), strict_check_header=False)


class PublicKey:
    """Public key of a token issuer. The constructor takes up to 1 ms, and raises UnusableKey."""

    def __init__(self, jwk: Mapping[str, Any]) -> None:
        kind = jwk["kty"]
        public: dict[str, str | list[str]] = {}
        for name in _MEMBERS[kind]:
            if not isinstance(jwk.get(name), str):
                raise UnusableKey("a part is missing")
            public[name] = jwk[name]
        try:
            self._key = (RSAKey if kind == "RSA" else ECKey).import_key(public)
        except (JoseError, UnsupportedAlgorithm, ValueError, TypeError) as error:
            raise UnusableKey(type(error).__name__) from None

    def has_signed(self, token: str) -> bool:
        """Tell whether this key signed the token, by the algorithm in the token's header, which must fit the key."""
        try:
            deserialize_compact(token, self._key, registry=_REGISTRY)
        except (JoseError, ValueError, TypeError):
            return False
        return True
