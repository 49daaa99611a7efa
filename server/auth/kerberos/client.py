"""GSSAPI (RFC 4752): the client's side of one login, at another broker. `server.py` has the theory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ottla.server.auth.kerberos.failures import GssFailure, Stepped
from ottla.server.auth.kerberos.server import NO_LAYER, TOKEN_BYTES_MAX, TOKENS_MAX
from ottla.server.auth.refusals import LoginFailed


class Context(Protocol):
    """The library's side; each raises GssFailure."""

    def step(self, token: bytes) -> Stepped: ...

    def wrap(self, message: bytes) -> bytes: ...

    def unwrap(self, token: bytes) -> bytes: ...


class GssapiClient:
    """`begin` makes a context, for which it may have to ask a KDC."""

    def __init__(self, begin: Callable[[], Context]) -> None:
        self.is_complete = False
        self._begin = begin
        self._context: Context | None = None
        self._is_accepted = self._has_chosen = False
        self._tokens = 0

    def step(self, token: bytes) -> bytes:
        """Takes as long as the library and the KDC, so it is called in a thread."""
        self._tokens += 1
        if self._tokens > TOKENS_MAX or len(token) > TOKEN_BYTES_MAX:
            raise LoginFailed("the broker sends too many tokens, or one that is too long")
        if self._has_chosen:
            self.is_complete = True
            return b""
        try:
            return self._chosen(token) if self._is_accepted else self._stepped(token)
        except GssFailure as failure:
            raise LoginFailed(f"Kerberos: {failure}") from None

    def _stepped(self, token: bytes) -> bytes:
        if self._context is None:
            self._context = self._begin()
        elif not token:
            raise LoginFailed("the broker does not prove who it is")
        found = self._context.step(token)
        self._is_accepted = found.is_complete
        return found.token or b""

    def _chosen(self, token: bytes) -> bytes:
        assert self._context is not None
        offer = self._context.unwrap(token)
        if len(offer) < 4 or not offer[0] & NO_LAYER:
            raise LoginFailed("the broker offers no connection without a security layer")
        self._has_chosen = True
        return self._context.wrap(bytes((NO_LAYER, 0, 0, 0)))
