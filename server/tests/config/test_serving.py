"""A broker inside another program: it serves and stops, and leaves the process as it was."""

import gc
import resource
import signal
import sys
from functools import partial
from pathlib import Path

import pytest
import trio

from ottla.server.broker import Broker
from ottla.server.config.broker_config import BrokerConfig, load_config
from ottla.server.serving import StartupError, bind_all, serve
from ottla.server.serving_state import Stop

HEARTBEAT_V0 = bytes.fromhex("0000001c 000c 0000 0000000b 0001 63 0001 67 00000001 0008") + b"memberid"


def config_for(directory: Path) -> BrokerConfig:
    return load_config({"log.dirs": str(directory), "listeners": "PLAINTEXT://127.0.0.1:0"})


def process_state() -> tuple[object, ...]:
    handlers = tuple(signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP))
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    return handlers, limits, gc.get_threshold(), gc.get_freeze_count(), sys.getswitchinterval()


async def test_a_broker_lives_in_somebody_elses_program_and_leaves_the_process_as_it_was(tmp_path: Path) -> None:
    gc.unfreeze()  # an object that an earlier test froze may die meanwhile, and change the count
    before, during = process_state(), []
    stop, ready = Stop(), trio.Event()
    brokers: list[Broker] = []

    def on_ready(broker: Broker) -> None:
        brokers.append(broker)
        ready.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(serve, config_for(tmp_path), stop=stop, on_ready=on_ready))
        await ready.wait()
        stream = await trio.open_tcp_stream("127.0.0.1", brokers[0].listeners[0].port)
        async with stream:
            await stream.send_all(HEARTBEAT_V0)
            answer = await stream.receive_some(100)
        during.append(process_state())
        stop.requested.set()
    assert answer[4:8] == bytes.fromhex("0000000b")
    assert during == [before]
    assert process_state() == before
    assert (tmp_path / ".kafka_cleanshutdown").exists()


async def test_brokers_one_after_the_other_serve_alike_in_one_program(tmp_path: Path) -> None:
    inside: list[bool] = []
    for directory in ("first", "second"):
        stop = Stop()

        def on_ready(broker: Broker, stop: Stop = stop) -> None:
            assert broker.readiness is not None
            inside.append(broker.readiness.is_inside_the_wait)
            stop.requested.set()

        await serve(config_for(tmp_path / directory), stop=stop, on_ready=on_ready)
    assert inside[0] == inside[1]


async def test_what_fails_while_a_broker_is_built_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(StartupError, match="cannot use the data directory"):
        await serve(config_for(Path("data")), stop=Stop(), on_ready=lambda _: None)


async def test_a_start_with_too_few_descriptors_says_how_many_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ottla.server.serving.present_limit", lambda: 100)
    with pytest.raises(StartupError, match="it needs 256 at least"):
        await serve(config_for(tmp_path), stop=Stop(), on_ready=lambda _: None)


async def test_a_start_that_is_given_up_frees_its_listeners(tmp_path: Path) -> None:
    stop = Stop()
    stop.requested.set()
    with trio.fail_after(30):
        await serve(config_for(tmp_path), stop=stop, on_ready=lambda _: pytest.fail("it was to stop"))


async def test_a_taken_port_is_told_before_the_directory_is_touched(tmp_path: Path) -> None:
    [(_, taken)] = bind_all(config_for(tmp_path / "first"))
    with taken:
        port = taken.getsockname()[1]
        config = load_config({"log.dirs": str(tmp_path / "second"), "listeners": f"PLAINTEXT://127.0.0.1:{port}"})
        taken.listen()
        with pytest.raises(StartupError, match=f"port {port} is taken"):
            await serve(config, stop=Stop(), on_ready=lambda _: None)
    assert not (tmp_path / "second").exists()
