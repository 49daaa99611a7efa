"""SCRAM (RFC 5802 and 7677) as Kafka's ScramSaslServer and ScramSaslClient have it. Sans-IO.

Server
    first   the client names itself -> nonce, salt and iterations of its credential
    final   the client's proof -> the server's signature; complete
An unknown user gets an answer that looks like one for a known user and stays the same for the name (`MadeUpCredentials`). The
login then fails with the proof, as with a wrong password: at the same step, after the same work, with the
same words. A user whose credential has too few iterations gets such an answer, too. Kafka fails at the first step, which
tells who exists.

`tokenauth=true` logs in with a delegation token: the name is the token's id.

Messages (RFC 5802, section 7; Kafka's ScramMessages)
    client first   n,[a=authzid],n=name,r=nonce[,extensions]        server first   r=nonce,s=salt,i=iterations
    client final   c=binding,r=nonce[,extensions],p=proof           server final   v=signature, or e=error
Names may be of any script; Kafka takes ASCII alone. Channel binding is not served, and mandatory extensions are refused.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from ottla.server.security.mechanism import Login, LoginFailed, LoginRefused
from ottla.server.security.scram_credentials import (
    HASHES,
    ITERATIONS_MIN,
    ScramCredential,
    credential_of,
    salted_password,
)

# ---------------------------------------------------------------------- messages


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
    """Parsed first message of a client. `bare`: the part that client and server sign."""

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
    """Parsed final message of a client. `without_proof`: the part that client and server sign."""

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
    """Return the server's signature in its final message. Raises LoginFailed if the message is an error."""
    error, signature = _matched(_SERVER_FINAL, data, CLIENT_FINAL_BYTES_MAX, "server final").groups()
    if error is not None:
        raise LoginFailed("the server refused the login")
    return base64.b64decode(signature)


def encode_server_first(message: ServerFirst) -> str:
    return f"r={message.nonce},s={base64.b64encode(message.salt).decode()},i={message.iterations}"


def sasl_name(name: str) -> str:
    """Escape a user name for a SCRAM message."""
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


# ---------------------------------------------------------------------- exchanges


TOKEN_EXTENSION = "tokenauth"
ITERATIONS_MAX_OF_SERVER = 1_000_000  # of another broker; more would keep a thread for long
GS2_HEADER = "n,,"


class KnownToken(NamedTuple):
    """Delegation token that can be used to log in. `owner`: a principal, such as User:alice."""

    owner: str
    expires_ms: int
    credential: ScramCredential


class ScramStore(Protocol):
    """Interface of a store of SCRAM credentials, of users and of delegation tokens."""

    def credential(self, mechanism: str, name: str) -> ScramCredential | None:
        """Return the credential of a user; None if the user has none."""

    def token(self, mechanism: str, token_id: str, now_ms: int) -> KnownToken | None:
        """Return the delegation token with this id; None if there is none or it has expired."""

    def no_credential(self, mechanism: str, name: str, *, is_token: bool = False) -> ScramCredential:
        """Return a dummy credential for an unknown name, always the same. No proof matches it."""


class ScramServer:
    """Server side of one SCRAM login."""

    def __init__(self, mechanism: str, store: ScramStore, nonce: Callable[[], str]) -> None:
        self.login: Login | None = None
        self.refusal: str | None = None
        self._mechanism, self._store, self._nonce = mechanism, store, nonce
        self._pending: _Pending | None = None
        self._is_over = False

    def step(self, token: bytes, now_ms: int) -> bytes:
        if self._is_over:
            raise LoginFailed("a token after the end of the exchange")
        if self._pending is None:
            self._is_over = True  # until it is known that it goes on
            self._pending = self._begun(decode_client_first(token), now_ms)
            self._is_over = False
            return self._pending.first.encode()
        self._is_over = True
        return self._finished(self._pending, token)

    def _begun(self, client: ClientFirst, now_ms: int) -> _Pending:
        if client.authorization_id not in ("", client.name):
            raise LoginRefused(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        login, credential = self._known(client, now_ms)
        nonce = client.nonce + self._nonce()
        first = encode_server_first(ServerFirst(nonce, credential.salt, credential.iterations))
        return _Pending(login, credential, nonce, client.bare, first)

    def _known(self, client: ClientFirst, now_ms: int) -> tuple[Login | None, ScramCredential]:
        # Both are looked up in the same way, so that neither takes longer.
        is_token = client.extensions.get(TOKEN_EXTENSION, "").lower() == "true"
        nobody = self._store.no_credential(self._mechanism, client.name, is_token=is_token)
        if is_token:
            token = self._store.token(self._mechanism, client.name, now_ms)
            if token is None:
                return None, nobody
            return Login(token.owner, token.expires_ms, by_token=True), token.credential
        credential = self._store.credential(self._mechanism, client.name)
        if credential is None or credential.iterations < ITERATIONS_MIN:
            return None, nobody
        return Login(f"User:{client.name}"), credential

    def _finished(self, pending: _Pending, token: bytes) -> bytes:
        final = decode_client_final(token)
        if not hmac.compare_digest(final.nonce.encode(), pending.nonce.encode()):
            raise LoginFailed("Invalid client nonce in the final client message.")
        name = HASHES[self._mechanism]
        message = f"{pending.client_bare},{pending.first},{final.without_proof}".encode()
        credential = pending.credential
        signature = hmac.digest(credential.stored_key, message, name)
        client_key = bytes(left ^ right for left, right in zip(final.proof, signature, strict=False))
        answer = hmac.digest(credential.server_key, message, name)
        fits = hmac.compare_digest(hashlib.new(name, client_key).digest(), credential.stored_key)
        if not fits or pending.login is None or len(final.proof) != len(signature):
            raise LoginFailed("Invalid client credentials")
        self.login = pending.login
        return b"v=" + base64.b64encode(answer)


class _Pending(NamedTuple):
    """State of a login between its two steps. `login`: result of a valid proof; None for an unknown user."""

    login: Login | None
    credential: ScramCredential
    nonce: str
    client_bare: str
    first: str


class ScramClient:
    """Client side of one SCRAM login at another broker. Step 2 takes 1 ms or more, so run it in a thread."""

    def __init__(self, mechanism: str, name: str, password: str, nonce: str, *, with_token: bool = False) -> None:
        self.is_complete = False
        self._mechanism, self._password, self._nonce = mechanism, password, nonce
        extension = f",{TOKEN_EXTENSION}=true" if with_token else ""
        self._bare = f"n={sasl_name(name)},r={nonce}{extension}"
        self._signature: bytes | None = None
        self._has_begun = False

    def step(self, token: bytes) -> bytes:
        if not self._has_begun:
            self._has_begun = True
            return f"{GS2_HEADER}{self._bare}".encode()
        if self._signature is None:
            return self._proof(token)
        # Only who knows the credential can sign: it is the broker, and not somebody at its address.
        if not hmac.compare_digest(decode_server_final(token), self._signature):
            raise LoginFailed("the server's signature is wrong")
        self.is_complete = True
        return b""

    def _proof(self, token: bytes) -> bytes:
        server = decode_server_first(token)
        if not server.nonce.startswith(self._nonce) or len(server.nonce) == len(self._nonce):
            raise LoginFailed("the server's nonce does not begin with the client's")
        if not ITERATIONS_MIN <= server.iterations <= ITERATIONS_MAX_OF_SERVER:
            raise LoginFailed(f"the server asks for {server.iterations} iterations")
        name = HASHES[self._mechanism]
        salted = salted_password(self._mechanism, self._password, server.salt, server.iterations)
        credential = credential_of(self._mechanism, salted, server.salt, server.iterations)
        without_proof = f"c={base64.b64encode(GS2_HEADER.encode()).decode()},r={server.nonce}"
        message = f"{self._bare},{token.decode()},{without_proof}".encode()
        client_key = hmac.digest(salted, b"Client Key", name)
        signature = hmac.digest(credential.stored_key, message, name)
        proof = bytes(left ^ right for left, right in zip(client_key, signature, strict=True))
        self._signature = hmac.digest(credential.server_key, message, name)
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()
