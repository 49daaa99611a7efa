"""The algorithms that tokens may be signed by: those with a public key (RFC 7518, section 3.1), and no other."""

from __future__ import annotations

from collections.abc import Mapping

ALGORITHMS: Mapping[str, tuple[str, str | None]] = {
    **dict.fromkeys(("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"), ("RSA", None)),
    "ES256": ("EC", "P-256"),
    "ES384": ("EC", "P-384"),
    "ES512": ("EC", "P-521"),
}
"""Algorithm -> the kind of key that it takes, and on which curve."""
