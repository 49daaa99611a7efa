"""A start goes on although ZooKeeper is away for a moment, whichever of its requests that hits."""

from collections.abc import Callable
from typing import Any

import pytest
import trio
from compat_tests.simulation.cluster import Plan, Simulation

from ottla.replication.cluster.coordination import CoordinationUnavailable
from ottla.server.testing.memory.agenda import Agenda
from ottla.server.testing.memory.coordination import MemoryCoordination
from ottla.server.testing.simulation.brokers import SimBroker
from ottla.server.testing.simulation.virtual import run

PATIENCE_S = 120.0
Fault = Callable[[SimBroker], None]


class FailingSession(MemoryCoordination):
    """Something goes wrong at one of the requests, before it or after it was carried out."""

    broker: "FailingStart"

    async def _ask(self, action: Callable[[], Any]) -> Any:
        if not self.broker.is_due():
            return await super()._ask(action)
        if self.broker.answer_is_lost:
            await super()._ask(action)
            self.broker.fault(self.broker)
            raise CoordinationUnavailable
        self.broker.fault(self.broker)
        return await super()._ask(action)


class FailingStart(SimBroker):
    """`fault` happens at the request of this number, counted from 0."""

    fault: Fault
    number: int
    answer_is_lost: bool
    asked = lives = 0

    def is_due(self) -> bool:
        self.asked += 1
        return self.asked == self.number + 1

    async def _live(self) -> None:
        self.lives += 1
        await super()._live()

    def _open_session(self, config: object) -> MemoryCoordination:
        session = FailingSession(
            self._link, timeout_s=self.session_timeout_s, connection_timeout_s=self.session_timeout_s
        )
        session.broker = self
        self._sessions = [session]
        return session


class Starting(Simulation):
    """One broker, which starts."""

    def __init__(self, fault: Fault, number: int, *, answer_is_lost: bool) -> None:
        super().__init__(Plan(1))
        self._fault, self._number, self._answer_is_lost = fault, number, answer_is_lost

    def _make_brokers(self) -> None:
        super()._make_brokers()
        first = self.brokers[0]
        broker = FailingStart(first.node_id, first._setting, first._settings)
        broker.fault, broker.number, broker.answer_is_lost = self._fault, self._number, self._answer_is_lost
        self.brokers = [broker]
        self.broker = broker

    async def serve(self, agenda: Agenda) -> bool:
        """Whether all of its requests came before the one that was to fail."""
        with trio.fail_after(PATIENCE_S):
            async with self.serving(agenda):
                return self.broker.asked <= self._number


@pytest.mark.parametrize("answer_is_lost", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("fault", [SimBroker.reset_session, SimBroker.expire_session])
def test_a_start_needs_no_second_one_because_zookeeper_was_away(fault: Fault, *, answer_is_lost: bool) -> None:
    number, is_through = 0, False
    while not is_through:
        starting = Starting(fault, number, answer_is_lost=answer_is_lost)
        is_through = run(starting.serve, 1)
        assert (starting.problems, starting.broker.lives) == ([], 1), number
        number += 1
    assert number > 10, "a start asks more than this"
