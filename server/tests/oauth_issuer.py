"""Somebody who issues tokens: keys, what they publish of them, and tokens that are good or wrong."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from functools import cache
from typing import Any

from joserfc import jws
from joserfc.jwk import ECKey, RSAKey

NOW_S = 1_700_000_000
NOW_MS = NOW_S * 1000
ISSUER, AUDIENCE = "https://issuer.example", "kafka"
CLAIMS = {"sub": "alice", "iss": ISSUER, "aud": AUDIENCE, "iat": NOW_S - 60, "exp": NOW_S + 600, "scope": ["a", "b"]}
ALL = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512"]


def rsa(key_id: str = "first") -> RSAKey:
    """The same key for an id each time."""
    return _rsa(key_id)


@cache
def _rsa(key_id: str) -> RSAKey:
    return RSAKey.generate_key(2048, {"kid": key_id})


@cache
def curve(name: str, key_id: str) -> ECKey:
    return ECKey.generate_key(name, {"kid": key_id})


def published(*keys: RSAKey | ECKey, **more: Any) -> bytes:
    """A set of keys as it is told to everybody."""
    return json.dumps({"keys": [each.as_dict(private=False) | more for each in keys]}).encode()


def signed(
    claims: Mapping[str, Any] | bytes = CLAIMS,
    key: RSAKey | ECKey | None = None,
    algorithm: str = "RS256",
    **header: Any,
) -> str:
    """A token. `header` adds to the header; None takes away."""
    key = key or rsa()
    payload = claims if isinstance(claims, bytes) else json.dumps(claims).encode()
    whole = {"alg": algorithm, "typ": "JWT", "kid": key.kid} | header
    registry = jws.JWSRegistry(algorithms=ALL, strict_check_header=False)
    return jws.serialize_compact({k: v for k, v in whole.items() if v is not None}, payload, key, registry=registry)


def part(value: Any) -> str:
    text = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(text).rstrip(b"=").decode()


def unsigned(claims: Any = CLAIMS, header: Any = None) -> str:
    return f"{part(header or {'alg': 'none'})}.{part(claims)}."


def first_message(token: str, authorization_id: str = "", extensions: str = "") -> bytes:
    asked = f"a={authorization_id}" if authorization_id else ""
    return f"n,{asked},\x01auth=Bearer {token}\x01{extensions}\x01".encode()
