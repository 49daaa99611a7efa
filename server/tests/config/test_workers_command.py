"""The ports that a start of several workers holds."""

from __future__ import annotations

import socket
import time
from types import SimpleNamespace

import pytest

from ottla.server.cluster.start import worker_folders
from ottla.server.config.broker_config import BrokerConfig, load_config
from ottla.server.config.worker_places import Ports
from ottla.server.launch.workers_command import LOOKS_AT_OTHERS, HeldPorts
from ottla.server.network.listener import bind
from ottla.server.serving import StartupError

HOST = "127.0.0.1"


class Processor:
    """It is away for two seconds whenever somebody sleeps."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, ending: socket.socket, after: float) -> None:
        self._ending, self._after = ending, after
        self._away_s, now = 0.0, time.monotonic
        self.looks = 0
        ending.listen()  # or else the system lets others bind beside it
        # Only there: threads of other tests sleep, too.
        monkeypatch.setattr(worker_folders, "time", SimpleNamespace(sleep=self.sleep))
        monkeypatch.setattr(time, "monotonic", lambda: now() + self._away_s)

    def sleep(self, seconds: float) -> None:
        self._away_s += 2
        self.looks += 1
        if self.looks == self._after:
            self._ending.close()


@pytest.fixture
def config() -> BrokerConfig:
    return load_config({"listeners": f"PLAINTEXT://{HOST}:0", "node.id": "1"})


def held(config: BrokerConfig, port: int) -> None:
    HeldPorts(config, {"PLAINTEXT": Ports(port, [])}).close()


@pytest.mark.parametrize(("with_others", "after"), [(True, 240), (False, LOOKS_AT_OTHERS)])
def test_a_port_is_waited_for_by_looks_and_not_by_a_clock(
    config: BrokerConfig, monkeypatch: pytest.MonkeyPatch, with_others: bool, after: int
) -> None:
    with bind(HOST, 0, with_others=with_others) as ending:
        processor = Processor(monkeypatch, ending, after)
        held(config, ending.getsockname()[1])
        assert processor.looks == after


def test_a_port_that_somebody_else_keeps_is_told_soon(config: BrokerConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    with bind(HOST, 0) as other:
        processor = Processor(monkeypatch, other, 0)
        with pytest.raises(
            StartupError, match=rf"port \d+ is taken: .* PLAINTEXT://{HOST}:\d+, which a worker needs for itself"
        ):
            held(config, other.getsockname()[1])
        assert processor.looks == LOOKS_AT_OTHERS
