"""A broker stops in bounded time, although ZooKeeper is gone."""

import logging
from collections.abc import Callable
from typing import Any

import pytest
import trio
from compat_tests.simulation.cluster import TOPIC, Plan, Simulation

from ottla.server.testing.memory.agenda import Agenda
from ottla.server.testing.simulation.brokers import SimBroker
from ottla.server.testing.simulation.virtual import run

HAND_OVER_S = 30.0
GRACE_S = 2.0


class Stopping(Simulation):
    """Three brokers and a topic; one of them is stopped after ZooKeeper has gone for good."""

    def __init__(self, choose: Callable[[SimBroker], bool]) -> None:
        super().__init__(Plan(1))
        self._choose = choose

    async def stop(self, agenda: Agenda) -> float:
        """How long it takes."""
        async with self.serving(agenda):
            await self._create_topic(TOPIC)
            await trio.sleep(10)
            (chosen, *_) = filter(self._choose, self.brokers)
            self.zookeeper.stop()
            await trio.sleep(1)
            began = trio.current_time()
            with trio.move_on_after(3600):
                await chosen.stop()
            took_s = trio.current_time() - began
        return took_s


@pytest.mark.parametrize("is_controller", [True, False])
def test_a_broker_stops_though_zookeeper_has_gone_for_good(
    is_controller: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "ottla.cluster"):
        took_s: Any = run(Stopping(lambda broker: broker.is_controller == is_controller).stop, 1)
    assert took_s <= HAND_OVER_S + GRACE_S
    told = [record.getMessage() for record in caplog.records if "still leads" in record.getMessage()]
    assert len(told) == 1
    assert "partitions" in told[0]
