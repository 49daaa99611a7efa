"""Three brokers that lead and follow each other in random histories: in the end all hold what the last leader holds.

Leaders change while answers are on their way, some hear of it late, connections are lost, records are deleted. Only that
the copies come together again is looked at here; that nothing committed is lost is `test_replicated_partition.py`'s.
"""

from __future__ import annotations

import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.replication.log.tests.logs import contents
from ottla.replication.partition.partition import Partition
from ottla.replication.tests.fetcher.test_fetcher import Follower, follow, lead, new_partition, until, write
from ottla.replication.tests.leading import Leader
from ottla.wire.errors import KafkaError
from ottla.wire.tests.effort import examples

BROKERS = (1, 2, 3)
brokers = st.sampled_from(BROKERS)
events = st.one_of(
    st.tuples(st.just("write"), brokers, st.integers(1, 5)),
    st.tuples(st.just("elect"), brokers, st.sets(brokers)),
    st.tuples(st.just("cut"), brokers, st.none()),
    st.tuples(st.just("delete"), brokers, st.integers(0, 30)),
    st.tuples(st.just("wait"), brokers, st.sampled_from((0.0, 0.0005, 0.02, 0.6, 1.1))),
)


class Cluster:
    """One partition on three brokers."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self.partitions = {broker: new_partition(broker) for broker in BROKERS}
        self.leaders = {broker: Leader(broker, [self.partitions[broker]]) for broker in BROKERS}
        self.followers = {broker: Follower(nursery, *self.leaders.values(), node_id=broker) for broker in BROKERS}
        self.epoch = 0
        self.value = 0

    async def happen(self, event: str, broker: int, detail: object) -> None:
        partition = self.partitions[broker]
        if event == "write" and partition.is_leader:
            self.write(partition, detail)
        elif event == "elect":
            self.elect(broker, detail)
        elif event == "cut":
            self.leaders[broker].is_reachable = not self.leaders[broker].is_reachable
        elif event == "delete" and partition.is_leader:
            self.delete(partition, detail)
        elif event == "wait":
            await trio.sleep(detail)

    def write(self, partition: Partition, count: int) -> None:
        for _ in range(count):
            self.value += 1
            write(partition, value=b"%d" % self.value)

    def delete(self, partition: Partition, offset: int) -> None:
        try:
            partition.delete_records(min(offset, partition.high_watermark))
        except KafkaError:
            return

    def elect(self, leader: int, deaf: set[int]) -> None:
        """Only those who are not deaf hear of it."""
        self.epoch += 1
        for broker in BROKERS:
            if broker in deaf:
                continue
            partition, fetchers = self.partitions[broker], self.followers[broker].fetchers
            if broker == leader:
                fetchers.forget(partition)
                lead(partition, self.epoch)
            else:
                follow(partition, leader, self.epoch)
                fetchers.follow(partition)

    async def come_together(self) -> None:
        for leader in self.leaders.values():
            leader.is_reachable = True
        last = max(self.partitions.values(), key=lambda each: each.log_end_offset)
        self.elect(last._local_id, set())
        self.write(last, 1)
        await until(lambda: all(self.is_like(each, last) for each in self.partitions.values()))

    def is_like(self, partition: Partition, leading: Partition) -> bool:
        if partition.log_end_offset != leading.log_end_offset or partition.log_start_offset > leading.high_watermark:
            return False
        start = max(partition.log_start_offset, leading.log_start_offset)
        end = leading.log_end_offset
        mine, theirs = (contents(each.log.read(start, 2**31, upper_bound=end).region) for each in (partition, leading))
        return mine == theirs


@given(history=st.lists(events, max_size=40))
@settings(max_examples=examples(60), deadline=None)
def test_all_come_to_hold_the_same(history: list[tuple[str, int, object]]) -> None:
    async def run() -> None:
        async with trio.open_nursery() as nursery:
            cluster = Cluster(nursery)
            for each in cluster.followers.values():
                await each.start()
            cluster.elect(1, set())
            for event in history:
                await cluster.happen(*event)
            await cluster.come_together()
            nursery.cancel_scope.cancel()

    trio.run(run, clock=trio.testing.MockClock(autojump_threshold=0))
