"""The messages of SCRAM (RFC 5802, section 7), read and written; Kafka's ScramMessages.

    client first   n,[a=authzid],n=name,r=nonce[,extensions]        server first   r=nonce,s=salt,i=iterations
    client final   c=binding,r=nonce[,extensions],p=proof           server final   v=signature, or e=error

Names may be of any script; Kafka takes ASCII alone. Channel binding is not served, and mandatory extensions are refused.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from typing import NamedTuple

from ottla.server.auth.refusals import LoginFailed

_NAME = r"(?:[^=,\x00]|=2C|=3D)+"
_NONCE = r"[\x21-\x2b\x2d-\x7e]+"
_BASE64 = r"(?:[a-zA-Z0-9/+]{4})*(?:[a-zA-Z0-9/+]{3}=|[a-zA-Z0-9/+]{2}==)?"
_EXTENSIONS = r"(?:,[A-Za-z]+=[^,\x00]+)*"
_CLIENT_FIRST = re.compile(rf"n,(?:a=({_NAME}))?,(n=({_NAME}),r=({_NONCE})({_EXTENSIONS}))")
_SERVER_FIRST = re.compile(rf"r=({_NONCE}),s=({_BASE64}),i=([0-9]{{1,9}}){_EXTENSIONS}")
_CLIENT_FINAL = re.compile(rf"(c={_BASE64},r=({_NONCE}){_EXTENSIONS}),p=({_BASE64})")
_SERVER_FINAL = re.compile(rf"(?:e=([^=,\x00]+)|v=({_BASE64})){_EXTENSIONS}")

# A client's nonce has 26 characters, a name at most some hundred.
CLIENT_FIRST_BYTES_MAX = 4_096
CLIENT_FINAL_BYTES_MAX = 8_192


class ClientFirst(NamedTuple):
    """`bare` is what both sides sign of it."""

    authorization_id: str
    name: str
    nonce: str
    extensions: Mapping[str, str]
    bare: str


class ServerFirst(NamedTuple):
    nonce: str
    salt: bytes
    iterations: int


class ClientFinal(NamedTuple):
    """`without_proof` is what both sides sign of it."""

    nonce: str
    proof: bytes
    without_proof: str


def decode_client_first(data: bytes) -> ClientFirst:
    found = _matched(_CLIENT_FIRST, data, CLIENT_FIRST_BYTES_MAX, "client first")
    authorization_id, bare, name, nonce, extensions = found.groups()
    pairs = (each.partition("=") for each in extensions.split(",")[1:])
    return ClientFirst(
        plain_name(authorization_id or ""), plain_name(name), nonce, {key: value for key, _, value in pairs}, bare
    )


def decode_client_final(data: bytes) -> ClientFinal:
    without_proof, nonce, proof = _matched(_CLIENT_FINAL, data, CLIENT_FINAL_BYTES_MAX, "client final").groups()
    return ClientFinal(nonce, base64.b64decode(proof), without_proof)


def decode_server_first(data: bytes) -> ServerFirst:
    nonce, salt, iterations = _matched(_SERVER_FIRST, data, CLIENT_FINAL_BYTES_MAX, "server first").groups()
    return ServerFirst(nonce, base64.b64decode(salt), int(iterations))


def decode_server_final(data: bytes) -> bytes:
    """The server's signature; LoginFailed if it tells an error instead."""
    error, signature = _matched(_SERVER_FINAL, data, CLIENT_FINAL_BYTES_MAX, "server final").groups()
    if error is not None:
        raise LoginFailed("the server refused the login")
    return base64.b64decode(signature)


def encode_server_first(message: ServerFirst) -> str:
    return f"r={message.nonce},s={base64.b64encode(message.salt).decode()},i={message.iterations}"


def sasl_name(name: str) -> str:
    """A name as it travels."""
    return name.replace("=", "=3D").replace(",", "=2C")


def plain_name(name: str) -> str:
    return name.replace("=2C", ",").replace("=3D", "=")


def _matched(pattern: re.Pattern[str], data: bytes, length_max: int, what: str) -> re.Match[str]:
    # The text is not in the message: a client may have sent its password by mistake.
    malformed = LoginFailed(f"Invalid SCRAM {what} message format")
    if len(data) > length_max:
        raise malformed
    try:
        found = pattern.fullmatch(data.decode())
    except UnicodeDecodeError:
        raise malformed from None
    if found is None:
        raise malformed
    return found
