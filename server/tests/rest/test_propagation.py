"""Logins of requests choose a backend each; guesses take no place from users."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import cast

import pytest
import trio
import trio.testing

from ottla.server.admin.http.routes import Refused, Request, Response
from ottla.server.cli.client.security import Security
from ottla.server.rest import propagation as module
from ottla.server.rest.api import RestApi
from ottla.server.rest.backend import Backend
from ottla.server.rest.client.cluster import KafkaCluster
from ottla.server.rest.errors import Code, RestError
from ottla.server.rest.logins import Logins
from ottla.server.rest.propagation import IDLE_S, SWEEP_S, Backends, Login, PropagatingApi
from ottla.server.rest.schemas.schemas import Schemas
from ottla.server.rest.v2.instances import Instances as ConsumerInstances
from ottla.server.rest.v2.instances import ReadingRoom


class Instances(list[str]):
    """Names of instances."""

    is_closing = False

    def hasten(self) -> None:
        self.is_closing = True


class FakeBackend:
    """Answers with the name of its login, if its password is right."""

    def __init__(self, login: Login) -> None:
        self.login = login
        self.cluster = SimpleNamespace(has_connected=False)
        self.instances = Instances()
        self.is_running = False
        self.gate = trio.Event()
        self.gate.set()

    async def run(self, task_status: trio.TaskStatus[None]) -> None:
        await trio.lowlevel.checkpoint()
        self.is_running = True
        task_status.started()
        try:
            await trio.sleep_forever()
        finally:
            self.is_running = False

    async def handle(self, request: Request) -> Response:
        assert self.is_running
        await self.gate.wait()
        if self.login.password != "right":
            return Response(b"no", 401)
        self.cluster.has_connected = True
        if request.path == "/stream":
            return Response(self._pieces())
        return Response(self.login.name.encode())

    async def _pieces(self) -> AsyncGenerator[bytes, None]:
        for _ in range(10):
            await trio.sleep(IDLE_S / 2)
            yield b"piece"


class Pool:
    """A pool of fake backends, and the paths in front of it."""

    def __init__(self, logins: Logins | None = None) -> None:
        self.made: list[FakeBackend] = []
        self.backends = Backends(self._make)
        self.api = PropagatingApi(self.backends, 100, logins)
        self.closed_gates = False

    def _make(self, login: Login) -> Backend:
        self.made.append(FakeBackend(login))
        if self.closed_gates:
            self.made[-1].gate = trio.Event()
        return cast(Backend, self.made[-1])

    async def ask(self, name: str, password: str = "right", path: str = "/topics") -> Response:
        authorization = f"Basic {b64encode(f'{name}:{password}'.encode()).decode()}"
        request = Request(method="GET", path=path, headers={"authorization": authorization})
        route = self.api.find("GET", path)
        route.check(request)
        return await route.handler(request)


@asynccontextmanager
async def pool_of(logins: Logins | None = None) -> AsyncGenerator[Pool, None]:
    pool = Pool(logins)
    async with trio.open_nursery() as nursery:
        await nursery.start(pool.backends.run)
        yield pool
        nursery.cancel_scope.cancel()


async def test_each_login_has_a_backend_that_is_kept() -> None:
    async with pool_of() as pool:
        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(pool.ask, "alice")
        assert (await pool.ask("bob")).body == b"bob"
        assert (await pool.ask("alice")).body == b"alice"
        assert [each.login.name for each in pool.made] == ["alice", "bob"]
        # Another password is another login, which changes nothing for the first one.
        assert (await pool.ask("alice", "wrong")).status == 401
        assert (await pool.ask("alice")).body == b"alice"
        assert len(pool.backends) == 2
        await trio.testing.wait_all_tasks_blocked()
        assert [each.is_running for each in pool.made] == [True, True, False]


@pytest.mark.parametrize(
    "header", [None, "", "Basic", "Basic *", "Bearer x", "Basic YWxpY2U=", "Basic Og==", "Basic /zpi"]
)
async def test_a_request_without_a_login_is_refused(header: str | None) -> None:
    async with pool_of() as pool:
        request = Request(method="GET", path="/topics", headers={} if header is None else {"authorization": header})
        with pytest.raises(Refused) as refused:
            pool.api.find("GET", "/topics").check(request)
        assert refused.value.status == 401 and refused.value.headers
        assert not pool.made


async def test_users_of_a_file_have_to_log_in_at_the_proxy_first() -> None:
    async with pool_of(Logins({"alice": b"right"})) as pool:
        assert (await pool.ask("alice")).body == b"alice"
        with pytest.raises(Refused):
            await pool.ask("bob")
        assert len(pool.made) == 1


async def test_strangers_are_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "STRANGERS_MAX", 3)
    async with pool_of() as pool:
        await pool.ask("alice")
        pool.closed_gates = True
        async with trio.open_nursery() as nursery:
            for number in range(3):
                nursery.start_soon(pool.ask, f"guess{number}", "wrong")
            await trio.testing.wait_all_tasks_blocked()
            with pytest.raises(Refused) as refused:
                await pool.ask("guess", "wrong")
            assert refused.value.status == 503
            assert (await pool.ask("alice")).body == b"alice"
            for each in pool.made:
                each.gate.set()
        assert len(pool.backends) == 1


async def test_a_backend_that_nobody_needs_is_dropped(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    monkeypatch.setattr(module, "BACKENDS_MAX", 2)
    async with pool_of() as pool:
        await pool.ask("alice")
        await pool.ask("bob")
        with pytest.raises(Refused):
            await pool.ask("carol")
        pool.made[0].instances.append("an instance")
        await trio.sleep(IDLE_S + 2 * SWEEP_S)
        assert len(pool.backends) == 1 and [each.is_running for each in pool.made] == [True, False]
        # A stream is used by its pieces.
        stream = (await pool.ask("carol", path="/stream")).body
        assert not isinstance(stream, bytes)
        assert [piece async for piece in stream] == [b"piece"] * 10
        assert [each.is_running for each in pool.made] == [True, False, True]


async def test_all_backends_hasten_when_the_proxy_stops() -> None:
    async with pool_of() as pool:
        await pool.ask("alice")
        pool.backends.hasten()
        await pool.ask("bob")
        assert all(each.instances.is_closing for each in pool.made)


class Asked:
    """A schema registry that is not to be asked."""

    def __getattr__(self, name: str) -> object:
        pytest.fail(f"{name} is asked for")


@pytest.mark.parametrize(
    ("path", "kind", "body"),
    [
        ("/consumers/group", "application/vnd.kafka.v2+json", {"name": "i"}),
        ("/topics/t", "application/vnd.kafka.avro.v2+json", {"value_schema": '"int"', "records": [{"value": 1}]}),
        ("/", "application/json", None),
    ],
)
async def test_a_login_that_no_broker_has_accepted_gets_nowhere(
    path: str, kind: str, body: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = KafkaCluster([], Security())

    async def refreshed(topics: object) -> None:
        raise RestError(Code.KAFKA_AUTHENTICATION, "The password is wrong")

    monkeypatch.setattr(cluster, "refreshed", refreshed)
    room = ReadingRoom()
    schemas = cast(Schemas, Asked())
    backend = Backend(cluster, RestApi("http"), ConsumerInstances(cluster, 60.0, schemas, room), 1000, schemas)
    backends = Backends(lambda login: backend)
    async with trio.open_nursery() as nursery:
        await nursery.start(backends.run)
        content = b"" if body is None else json.dumps(body).encode()
        method = "GET" if body is None else "POST"
        request = Request(method=method, path=path, raw_path=path, headers={"content-type": kind}, body=content)
        response = await backends.handle(Login("stranger", "made up"), request)
        assert isinstance(response.body, bytes)
        assert (response.status, json.loads(response.body)["error_code"]) == (401, 40101)
        assert (room.instances, len(backends)) == (0, 0)
        nursery.cancel_scope.cancel()
