"""Cipher suites by Java's names (which are IANA's), in OpenSSL's."""

from __future__ import annotations

from collections.abc import Iterable

TLS_1_3 = (
    "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256",
    "TLS_AES_128_GCM_SHA256",
    "TLS_AES_128_CCM_SHA256",
    "TLS_AES_128_CCM_8_SHA256",
)
USUAL_OF_TLS_1_3 = frozenset(TLS_1_3[:3])
"""What OpenSSL offers if nobody chooses."""

_EXCHANGES = {
    "RSA": "",
    "DHE_RSA": "DHE-RSA-",
    "DHE_DSS": "DHE-DSS-",
    "ECDHE_RSA": "ECDHE-RSA-",
    "ECDHE_ECDSA": "ECDHE-ECDSA-",
}


def of_openssl(name: str) -> str:
    """A suite of TLS 1.2 or older in OpenSSL's words; what is no name of IANA's is taken for OpenSSL's already."""
    exchange, separator, rest = name.removeprefix("TLS_").removeprefix("SSL_").partition("_WITH_")
    if not separator or exchange not in _EXCHANGES:
        return name
    # OpenSSL names the hash of CBC and GCM suites, but not of CHACHA20 and CCM; it leaves CBC unsaid.
    rest = rest.replace("AES_128", "AES128").replace("AES_256", "AES256").replace("_CBC", "")
    if rest.startswith("CHACHA20"):
        rest = rest.removesuffix("_SHA256")
    if rest.startswith("3DES_EDE"):
        rest = rest.replace("3DES_EDE", "DES-CBC3")
    return _EXCHANGES[exchange] + rest.replace("_", "-")


def split(names: Iterable[str]) -> tuple[list[str], list[str]]:
    """Suites of TLS 1.3, and the others in OpenSSL's words."""
    newest, older = [], []
    for name in names:
        if name in TLS_1_3:
            newest.append(name)
        else:
            older.append(of_openssl(name))
    return newest, older
