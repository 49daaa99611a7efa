"""What a client of OAUTHBEARER begins with (RFC 7628, section 3.1; Kafka's OAuthBearerClientInitialResponse).

    n,[a=authorization id],^A auth=Bearer <token> ^A [key=value ^A ...] ^A        ^A is the byte 1, and there are no spaces

Extensions (KIP-342) are checked for their form and then left: nothing in Ottla asks for them, and Kafka's handlers take
each of them.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from ottla.server.auth.refusals import LoginFailed

TOKEN_CHARACTERS_MAX = 65_536
"""Of a token; Kafka takes what fits into a frame. The longest in use have some 16 KiB, as much as a header of HTTP."""

MESSAGE_BYTES_MAX = 2 * TOKEN_CHARACTERS_MAX
PAIRS_MAX = 1_000

_SEPARATOR = "\x01"
_AUTH = "auth"
# =2C and =3D stay as they are, as in Kafka.
_HEADER = re.compile(r"n,(?:a=((?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D){1,1000}))?,\x01")
_PAIR = re.compile(r"([A-Za-z]+)=([\x21-\x7e \t\r\n]+)")
_SCHEME = re.compile(r"[A-Za-z0-9_]+")
_TOKEN = re.compile(r"[-_~+/.a-zA-Z0-9]+=*")


class ClientFirst(NamedTuple):
    """`authorization_id` is empty if there is none."""

    token: str
    authorization_id: str

    def __repr__(self) -> str:
        return "ClientFirst()"  # a token opens doors


def decode_client_first(data: bytes) -> ClientFirst:
    """Raises LoginFailed, whose text holds nothing of the message."""
    if len(data) > MESSAGE_BYTES_MAX:
        raise LoginFailed(f"a token of {len(data)} bytes")
    text = data.decode("latin-1")  # what is not ASCII fits nowhere below
    header = _HEADER.match(text)
    if header is None or not text.endswith(_SEPARATOR):
        raise LoginFailed("Invalid OAUTHBEARER client first message")
    auth = _pairs(text[header.end() : -1]).get(_AUTH)
    if auth is None:
        raise LoginFailed("Invalid OAUTHBEARER client first message: 'auth' not specified")
    scheme, _, rest = auth.partition(" ")
    token = rest.lstrip(" ")
    if not _SCHEME.fullmatch(scheme) or not _TOKEN.fullmatch(token):
        raise LoginFailed("Invalid OAUTHBEARER client first message: invalid 'auth' format")
    if scheme.lower() != "bearer":
        raise LoginFailed("Invalid scheme in OAUTHBEARER client first message")
    if len(token) > TOKEN_CHARACTERS_MAX:
        raise LoginFailed(f"a token of {len(token)} characters")
    return ClientFirst(token, header[1] or "")


def _pairs(text: str) -> dict[str, str]:
    """Of two with one name the last counts, as in Kafka."""
    if not text:
        return {}
    if not text.endswith(_SEPARATOR):
        raise LoginFailed("Invalid OAUTHBEARER client first message")
    pairs = text[:-1].split(_SEPARATOR, PAIRS_MAX)
    if len(pairs) > PAIRS_MAX:
        raise LoginFailed("Invalid OAUTHBEARER client first message: too many extensions")
    found = {}
    for pair in pairs:
        matched = _PAIR.fullmatch(pair)
        if matched is None:
            raise LoginFailed("Invalid OAUTHBEARER client first message")
        found[matched[1]] = matched[2]
    return found
