"""SCRAM (RFC 5802 and 7677) as Kafka's ScramSaslServer and ScramSaslClient have it. Sans-IO.

Server
    first   the client names itself -> nonce, salt and iterations of its credential
    final   the client's proof -> the server's signature; complete
Whoever is not known gets an answer all the same, which looks like that for a known user and stays the same for the name
(`scram_made_up.py`), and fails with the proof, as with a wrong password: at the same step, after the same work, with the same
words. So does a user whose credential has too few iterations. Kafka fails at the first step, which tells who exists.

`tokenauth=true` logs in with a delegation token: the name is the token's id.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Callable
from typing import NamedTuple, Protocol

from ottla.server.auth.mechanism import Login
from ottla.server.auth.refusals import LoginFailed, LoginRefused
from ottla.server.auth.scram_credentials import (
    HASHES,
    ITERATIONS_MIN,
    ScramCredential,
    credential_of,
    salted_password,
)
from ottla.server.auth.scram_messages import (
    ClientFirst,
    ServerFirst,
    decode_client_final,
    decode_client_first,
    decode_server_final,
    decode_server_first,
    encode_server_first,
    sasl_name,
)

TOKEN_EXTENSION = "tokenauth"
ITERATIONS_MAX_OF_SERVER = 1_000_000  # of another broker; more would keep a thread for long
GS2_HEADER = "n,,"


class KnownToken(NamedTuple):
    """A delegation token that may log in. `owner` is a principal such as User:alice."""

    owner: str
    expires_ms: int
    credential: ScramCredential


class ScramStore(Protocol):
    """Who may log in."""

    def credential(self, mechanism: str, name: str) -> ScramCredential | None:
        """The credential of a user."""

    def token(self, mechanism: str, token_id: str, now_ms: int) -> KnownToken | None:
        """A delegation token that has not expired."""

    def no_credential(self, mechanism: str, name: str, *, is_token: bool = False) -> ScramCredential:
        """Of somebody, or of a token, that is not known: one that no proof fits, always the same for a name."""


class ScramServer:
    """One login; see the module's docstring."""

    def __init__(self, mechanism: str, store: ScramStore, nonce: Callable[[], str]) -> None:
        self.login: Login | None = None
        self.refusal: str | None = None
        self._mechanism = mechanism
        self._store = store
        self._nonce = nonce
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
    """A login between its two steps. No login: nobody of that name is known."""

    login: Login | None
    credential: ScramCredential
    nonce: str
    client_bare: str
    first: str


class ScramClient:
    """One login at another broker. Its second step takes a millisecond and more, so it belongs in a thread."""

    def __init__(self, mechanism: str, name: str, password: str, nonce: str, *, with_token: bool = False) -> None:
        self.is_complete = False
        self._mechanism = mechanism
        self._password = password
        self._nonce = nonce
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
