"""Logins of requests, passed on to the brokers (`--propagate-logins`): so a user may do over HTTP what its ACLs allow.

Name and password of basic authentication are those of SASL PLAIN or SCRAM. Each login has a backend of its own, and so its own
connections, producer and consumer instances.

States of a backend
    stranger    the brokers have not accepted its login yet, so that its requests get no further than to them. It is dropped as soon as no request needs it, and at most STRANGERS_MAX
                are tried at a time, so that guesses of passwords take no place from users.
    known       kept until it has no consumer instance and was not used for IDLE_S, which is longer than a stream may pause
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import trio

from ottla.server.admin.http.basic_authentication import credentials_of, login_required
from ottla.server.admin.http.routes import Refused, Request, Response, Route, Routes
from ottla.server.rest.api import RestApi, is_stream, refusal_of
from ottla.server.rest.backend import Backend
from ottla.server.rest.logins import REALM, Logins

logger = logging.getLogger("ottla.rest")

BACKENDS_MAX, STRANGERS_MAX = 500, 100
IDLE_S, SWEEP_S = 600.0, 30.0


class Login(NamedTuple):
    """Name and password in a request."""

    name: str
    password: str


@dataclass(eq=False, slots=True)
class _Member:
    """Backend in the pool. `requests`: how many requests it is handling now, without streams."""

    backend: Backend
    used_at_s: float
    requests: int = 0
    running: trio.Event = field(default_factory=trio.Event)
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)

    @property
    def is_stranger(self) -> bool:
        return not self.backend.cluster.has_connected

    @property
    def is_due(self) -> bool:
        """True if the backend can be removed, because nothing uses it."""
        if self.requests or len(self.backend.instances):
            return False
        return self.is_stranger or trio.current_time() - self.used_at_s > IDLE_S


class Backends:
    """Pool of backends, one for each login. `run` must run while the pool is used."""

    def __init__(self, make: Callable[[Login], Backend]) -> None:
        self._make = make
        self._members: dict[Login, _Member] = {}
        self._nursery: trio.Nursery | None = None
        self._is_closing = False

    def __len__(self) -> int:
        return len(self._members)

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run the backends until cancelled. Meanwhile remove unused ones."""
        async with trio.open_nursery() as self._nursery:
            task_status.started()
            while True:
                await trio.sleep(SWEEP_S)
                self._sweep()

    def _sweep(self) -> None:
        for login in [login for login, each in self._members.items() if each.is_due]:
            self._members.pop(login).scope.cancel()

    def hasten(self) -> None:
        """End all waiting reads early, with the records that they have, because the proxy stops."""
        self._is_closing = True
        for each in self._members.values():
            each.backend.instances.hasten()

    async def handle(self, login: Login, request: Request) -> Response:
        """Handle a request in the backend of its login. Raises Refused."""
        member = self._members.get(login) or self._added(login)
        member.requests += 1
        try:
            await member.running.wait()
            response = await member.backend.handle(request)
        finally:
            member.requests -= 1
            member.used_at_s = trio.current_time()
            if member.is_stranger and self._members.get(login) is member and member.is_due:
                self._members.pop(login).scope.cancel()
        if isinstance(response.body, bytes):
            return response
        return replace(response, body=_noted(response.body, member))

    def _added(self, login: Login) -> _Member:
        if len(self._members) >= BACKENDS_MAX:
            self._sweep()
        strangers = sum(each.is_stranger for each in self._members.values())
        if len(self._members) >= BACKENDS_MAX or strangers >= STRANGERS_MAX:
            raise Refused(503, "Too many users log in at once; try again.", (("Retry-After", "1"),))
        member = self._members[login] = _Member(self._make(login), trio.current_time())
        if self._is_closing:
            member.backend.instances.hasten()
        assert self._nursery is not None, "`run` runs"
        self._nursery.start_soon(self._carry, member)
        return member

    async def _carry(self, member: _Member) -> None:
        with member.scope:
            async with trio.open_nursery() as nursery:
                await nursery.start(member.backend.run)
                member.running.set()


async def _noted(pieces: AsyncGenerator[bytes, None], member: _Member) -> AsyncGenerator[bytes, None]:
    """Yield the pieces of a stream. Each piece marks the member's backend as used, so that it is not removed."""
    async with aclosing(pieces):
        async for piece in pieces:
            member.used_at_s = trio.current_time()
            yield piece


class PropagatingApi(Routes):
    """Dispatcher of requests to backends: each login has its own. `logins`: users who must also log in at the proxy."""

    headers = RestApi.headers

    def __init__(self, backends: Backends, body_bytes_max: int, logins: Logins | None = None) -> None:
        super().__init__()
        self._backends, self._logins = backends, logins or Logins()
        self._route = Route(self._handle, body_bytes_max, self._check)

    def find(self, method: str, path: str) -> Route:
        """Return the route of a request; the route allows a streamed body if the request may have one."""
        return self._route._replace(streams=is_stream(method, path))

    def refusal(self, refused: Refused) -> Response:
        """Make the response for a request that the HTTP server refuses."""
        return refusal_of(refused)

    def _check(self, request: Request) -> None:
        self._login(request)
        self._logins.check(request)

    async def _handle(self, request: Request) -> Response:
        return await self._backends.handle(self._login(request), request)

    def _login(self, request: Request) -> Login:
        """Return the name and password in a request's headers. Raises Refused if there are none."""
        found = credentials_of(request)
        try:
            login = None if found is None else Login(found[0].decode(), found[1].decode())
        except UnicodeDecodeError:
            login = None
        if login is None or not login.name or not login.password or "\0" in login.name + login.password:
            raise login_required(REALM)
        return login
