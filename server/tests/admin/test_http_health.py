"""Health and readiness over HTTP, of a broker in this program from its start to its end."""

from __future__ import annotations

import errno
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from ottla.server.admin.http.endpoint import readiness_of
from ottla.server.broker import Broker
from ottla.server.config.broker_config import ConfigError, load_config
from ottla.server.serving import StartupError, serve
from ottla.server.serving_state import Stop

FAR_S = 60.0


def config_for(*directories: Path, **more: str) -> Any:
    texts = {"log.dirs": ",".join(map(str, directories)), "listeners": "PLAINTEXT://127.0.0.1:0", "http.listener": ":0"}
    return load_config(texts | {name.replace("_", "."): text for name, text in more.items()})


@asynccontextmanager
async def running(config: Any, stop: Stop | None = None) -> AsyncIterator[Broker]:
    brokers: list[Broker] = []
    stop, ready = stop or Stop(), trio.Event()

    def on_ready(broker: Broker) -> None:
        brokers.append(broker)
        ready.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(serve, config, stop=stop, on_ready=on_ready))
        await ready.wait()
        try:
            yield brokers[0]
        finally:
            stop.requested.set()


async def get(broker: Broker, path: str, host: str = "localhost") -> tuple[int, str]:
    """Status and body."""
    assert broker.http_address is not None
    with trio.fail_after(FAR_S):
        async with await trio.open_tcp_stream(*broker.http_address) as stream:
            # Of this version, so that a long answer does not come in chunks.
            request = f"GET {path} HTTP/1.0\r\nHost: {host}\r\n\r\n"
            await stream.send_all(request.encode())
            received = b""
            async for piece in stream:
                received += piece
    head, _, body = received.partition(b"\r\n\r\n")
    return int(head.split()[1]), body.decode()


async def test_a_broker_that_serves_is_healthy_and_ready(tmp_path: Path) -> None:
    async with running(config_for(tmp_path, http_allowed_hosts="metrics.example")) as broker:
        assert broker.http_address is not None
        assert broker.http_address[0] == "127.0.0.1"
        assert await get(broker, "/healthz") == (200, "log directories: ok\n")
        assert (await get(broker, "/readyz"))[0] == 200
        assert (await get(broker, "/healthz", "metrics.example"))[0] == 200
        assert (await get(broker, "/healthz", "evil.example"))[0] == 421


async def test_health_tells_of_a_disk_that_failed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with running(config_for(tmp_path / "a", tmp_path / "b")) as broker:
        broker.replicas.log_directories[1].take_offline(OSError(errno.EIO, "a broken disk"))
        assert await get(broker, "/healthz") == (503, "log directories: 1 offline\n")
        assert (await get(broker, "/readyz"))[0] == 200


async def test_a_broker_is_ready_only_between_its_start_and_its_end(tmp_path: Path) -> None:
    stop = Stop()
    async with running(config_for(tmp_path), stop) as broker:
        assert set(readiness_of(broker, stop).values()) == {"ok"}
        listeners, broker.listeners = broker.listeners, []
        status, body = await get(broker, "/readyz")
        assert status == 503
        assert "listeners: not open" in body
        broker.listeners = listeners
        broker.cluster.brokers.clear()
        assert "registration: not registered" in (await get(broker, "/readyz"))[1]
        broker.member.election.controller_id = -1
        assert "controller: unknown" in (await get(broker, "/readyz"))[1]
        stop.requested.set()
        assert readiness_of(broker, stop)["stop"] == "asked for"


async def test_a_broker_that_ends_by_itself_is_not_ready_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[int, str]] = []
    with pytest.RaisesGroup(StartupError, flatten_subgroups=True):
        async with running(config_for(tmp_path)) as broker:
            shutdown = broker.replicas.shutdown

            async def shutting_down(*arguments: int) -> None:
                seen.append(await get(broker, "/readyz"))
                await shutdown(*arguments)

            monkeypatch.setattr(broker.replicas, "shutdown", shutting_down)
            broker.replicas.log_directories[0].take_offline(OSError(errno.EIO, "a broken disk"))
            with trio.fail_after(60):
                while not seen:
                    await trio.sleep(0.01)
    assert seen[0][0] == 503
    assert "listeners: not open" in seen[0][1]


@pytest.mark.parametrize("place", ["_guard", "LoopLag.run"])
async def test_a_bug_ends_the_endpoint_and_not_the_broker(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(f"ottla.server.admin.http.endpoint.{place}", broken)
    async with running(config_for(tmp_path)) as broker:
        assert broker.http_address is not None
        assert "HTTP is not served any more" in caplog.text
        with pytest.raises(OSError):
            await trio.open_tcp_stream(*broker.http_address)
        # Clients are.
        async with await trio.open_tcp_stream("127.0.0.1", broker.listeners[0].port):
            pass


async def test_a_taken_port_ends_the_start_before_anything_is_touched(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(StartupError, match=f"port {port} is taken: .* change the port of http.listener=:{port}"):
            config = config_for(tmp_path / "data", http_listener=f":{port}")
            await serve(config, stop=Stop(), on_ready=lambda _: None)
    assert not (tmp_path / "data").exists()


def test_there_is_no_endpoint_unless_it_is_asked_for_and_a_wrong_address_is_refused() -> None:
    assert load_config({}).http.address is None
    with pytest.raises(ConfigError, match=r"http\.listener"):
        load_config({"http.listener": "9644"})


async def test_an_address_of_another_machine_is_refused_in_one_line(tmp_path: Path) -> None:
    config = config_for(tmp_path, http_listener="192.0.2.1:0")
    with pytest.raises(StartupError, match=r"cannot listen on http\.listener=192\.0\.2\.1:0"):
        await serve(config, stop=Stop(), on_ready=lambda _: None)
