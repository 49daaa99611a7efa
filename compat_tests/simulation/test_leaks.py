"""What brokers hold on to does not grow with the sessions that they lose."""

from collections import Counter
from collections.abc import Iterator

import trio
from compat_tests.simulation.cluster import Plan, Simulation

from ottla.server.testing.memory.agenda import Agenda
from ottla.server.testing.simulation.virtual import run

EXPIRIES = 50
SETTLE_S = 30.0


class Expiring(Simulation):
    """Three brokers that lose their sessions in turn, and nothing else."""

    def __init__(self) -> None:
        super().__init__(Plan(1))

    async def expire(self, agenda: Agenda) -> tuple[Counter[str], Counter[str]]:
        async with self.serving(agenda):
            await trio.sleep(SETTLE_S)
            before, epochs = self.held(), self.epochs()
            for number in range(EXPIRIES):
                self.brokers[number % len(self.brokers)].expire_session()
                await trio.sleep(self.chance.uniform(0, 3))
            await trio.sleep(SETTLE_S)
            after = self.held()
            assert all(new >= old + EXPIRIES for new, old in zip(self.epochs(), epochs, strict=True))
        return before, after

    def epochs(self) -> list[int]:
        brokers = [each.broker for each in self.brokers if each.broker is not None]
        return [broker.member.broker_epoch for broker in brokers]

    def held(self) -> Counter[str]:
        """Tasks by their names."""
        root = trio.lowlevel.current_root_task()
        assert root is not None
        return Counter(task.name.rpartition(".")[2] for task in tasks_below(root))


def tasks_below(task: trio.lowlevel.Task) -> Iterator[trio.lowlevel.Task]:
    for nursery in task.child_nurseries:
        for child in nursery.child_tasks:
            yield child
            yield from tasks_below(child)


def test_lost_sessions_leave_nothing_behind() -> None:
    expiring = Expiring()
    before, after = run(expiring.expire, 1)
    assert expiring.problems == []
    assert after - before == Counter()
