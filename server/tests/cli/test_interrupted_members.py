"""Members of groups that are stopped at any moment of their life have left: by signals, beside a broker."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import pytest

from ottla.server.broker import Broker
from ottla.server.cli.client.cluster import Cluster
from ottla.server.cli.client.connection import BrokerConnection
from ottla.server.cli.client.groups import find_group, members_of
from ottla.server.tests.cli.commanded import Shell
from ottla.server.tests.console_client import write
from ottla.wire.records import Record

TOPIC = "orders"
MOMENTS_MIN, MOMENTS_MAX = 12, 60
OPTIONS = {"classic": (), "consumer": ("--group-protocol", "consumer"), "share": ("--share",)}


@pytest.fixture
def ottla(ottla: Shell, broker: Broker) -> Shell:
    assert ottla("topics", "create", TOPIC, "--if-not-exists").code == 0
    write(broker, TOPIC, [Record(0, 0, None, b"a"), Record(0, 0, None, b"b")])
    return ottla


class Stopped:
    """Signals to this process at one moment: before or behind a request of the member, or behind a response."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left = 0
        """Moments until the signals."""
        for name in ("_send", "receive"):
            monkeypatch.setattr(BrokerConnection, name, self._watched(getattr(BrokerConnection, name)))

    def _watched(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            self._pass()
            found = method(*args, **options)
            self._pass()
            return found

        return call

    def _pass(self) -> None:
        if signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
            return  # the command is not a member yet, or no longer
        self.left -= 1
        if self.left == 0:
            for _ in range(2):  # as `timeout` does
                os.kill(os.getpid(), signal.SIGTERM)


@pytest.mark.parametrize("kind", OPTIONS)
def test_a_member_that_is_stopped_has_left(
    ottla: Shell, cluster: Cluster, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    before = signal.getsignal(signal.SIGTERM)
    number = 0
    with monkeypatch.context() as patch:
        stopped = Stopped(patch)
        # A consumer of a share group ends late at the end of a topic, and does nothing new until then.
        while stopped.left <= 0 and number < (MOMENTS_MIN if kind == "share" else MOMENTS_MAX):
            number += 1
            stopped.left = number
            # It ends by itself at the end of the topic.
            told = ottla("consume", "-g", f"{kind}-{number}", "-e", *OPTIONS[kind], TOPIC)
            signal.signal(signal.SIGTERM, before)
            assert told.code == 0, (number, told)
    assert number >= MOMENTS_MIN
    for each in range(1, number):
        found = find_group(cluster, f"{kind}-{each}")
        members = () if found is None else members_of(cluster, found).all
        assert (found is None or found.state in ("Empty", "Dead")) and not members, (each, found, members)
