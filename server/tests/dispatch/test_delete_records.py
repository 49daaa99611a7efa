"""DeleteRecords waits until the live followers have deleted, too."""

from __future__ import annotations

import logging
import threading
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio

from ottla.replication.cluster.metadata_cache import BrokerRegistration, MetadataCache, PartitionState, TopicState
from ottla.replication.log.tests.logs import NOW_MS, TOPIC_ID, batch, new_log
from ottla.replication.partition.partition import Partition
from ottla.replication.partition.removals import Removals
from ottla.server.api.handlers.delete_topics import Deletion, delete_records
from ottla.server.dispatch.context import RequestContext
from ottla.server.network.deadlines import Deadlines
from ottla.server.testing.memory.storage import MemoryStorage
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.delete_topics import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic


class Leader:
    """It leads both partitions of t, which hold five committed records; brokers 2 and 3 follow."""

    authorizer = None

    def __init__(self) -> None:
        self.cluster = MetadataCache()
        state = PartitionState(replicas=(1, 2, 3), isr=(1, 2, 3), leader=1, leader_epoch=0)
        self.cluster.put_topic(TopicState("t", TOPIC_ID, (state, state)))
        for broker in (1, 2, 3):
            self.cluster.put_broker(BrokerRegistration(broker, {}))
        self.deadlines = Deadlines()
        self.replicas = SimpleNamespace(removals=Removals())
        self.partitions = [Partition("t", index, new_log(), local_id=1) for index in (0, 1)]
        for partition in self.partitions:
            partition.make_leader(leader_epoch=0, partition_epoch=0, replicas=(1, 2, 3), isr=(1, 2, 3), now_ms=NOW_MS)
            partition.append_as_leader(batch(*[NOW_MS] * 5), required_acks=1, now_ms=NOW_MS)
        for broker in (2, 3):
            for index in (0, 1):
                self.fetched(broker, index, start=0)

    def fetched(self, broker: int, index: int, *, start: int) -> None:
        self.partitions[index].on_follower_fetch(broker, 5, start, now_ms=NOW_MS)

    def now_ms(self) -> int:
        return NOW_MS

    def partition(self, topic: str, index: int) -> Partition:
        return self.partitions[index]

    def delete(self, *offsets: int, timeout_ms: int = 60_000) -> Any:
        wishes = [DeleteRecordsPartition(partition_index=index, offset=offset) for index, offset in enumerate(offsets)]
        request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="t", partitions=wishes)], timeout_ms=timeout_ms)
        context = RequestContext(
            cast(Any, self), api_version=2, now_ms=NOW_MS, principal="User:ann", client_host="/10.0.0.1"
        )
        return delete_records(request, context)


def results(response: Any) -> list[tuple[int, int]]:
    assert not isinstance(response, Deletion)
    return [(each.low_watermark, each.error_code) for topic in response.topics for each in topic.partitions]


@pytest.fixture
async def leader() -> Leader:
    return Leader()


async def test_the_answer_waits_for_all_followers(leader: Leader) -> None:
    deletion = leader.delete(2, -1)
    leader.fetched(2, 0, start=2)
    leader.fetched(3, 0, start=3)
    leader.fetched(2, 1, start=5)
    assert not deletion.is_ready
    leader.fetched(3, 1, start=5)
    assert deletion.is_ready
    assert results(deletion.response()) == [(2, 0), (5, 0)]
    assert not any(partition.watchers for partition in leader.partitions)


async def test_followers_that_are_not_alive_do_not_count(leader: Leader) -> None:
    del leader.cluster.brokers[3]
    deletion = leader.delete(1)
    leader.fetched(2, 0, start=1)
    assert results(deletion.response()) == [(1, 0)]


async def test_what_was_deleted_everywhere_is_answered_at_once(leader: Leader) -> None:
    leader.delete(4)
    for broker in (2, 3):
        leader.fetched(broker, 0, start=4)
    assert results(leader.delete(3)) == [(4, 0)]


async def test_other_partitions_errors_do_not_end_the_wait(leader: Leader) -> None:
    deletion = leader.delete(1, 6)
    assert not deletion.is_ready
    for broker in (2, 3):
        leader.fetched(broker, 0, start=1)
    assert results(deletion.response()) == [(1, 0), (-1, ErrorCode.OFFSET_OUT_OF_RANGE)]


async def test_time_is_over(leader: Leader, nursery: trio.Nursery) -> None:
    nursery.start_soon(leader.deadlines.run)
    ready = trio.Event()
    deletion = leader.delete(1, 2, timeout_ms=1)
    deletion.on_ready = ready.set
    for broker in (2, 3):
        leader.fetched(broker, 1, start=2)
    await ready.wait()
    assert results(deletion.response()) == [(0, ErrorCode.REQUEST_TIMED_OUT), (2, 0)]


async def test_another_broker_leads_by_now(leader: Leader) -> None:
    deletion = leader.delete(1)
    leader.partitions[0].make_follower(leader_id=2, leader_epoch=1, partition_epoch=1, replicas=(1, 2, 3))
    assert results(deletion.response()) == [(-1, ErrorCode.NOT_LEADER_OR_FOLLOWER)]


async def test_a_partition_without_followers(leader: Leader) -> None:
    alone = leader.partitions[0] = Partition("t", 0, new_log(), local_id=1)
    alone.make_leader(leader_epoch=0, partition_epoch=0, replicas=(1,), isr=(1,))
    alone.append_as_leader(batch(*[NOW_MS] * 5), required_acks=1, now_ms=NOW_MS)
    assert results(leader.delete(3)) == [(3, 0)]


async def test_who_deleted_which_records_is_told(leader: Leader, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    leader.delete(2, -1)
    leader.delete(2, 6)  # nothing, and an error
    assert caplog.messages == [
        f"t-{index}: DeleteRecords removed {count} records, offsets 0 to {count - 1},"
        " of 1970-01-01T00:16:40Z to 1970-01-01T00:16:40Z, for User:ann at 10.0.0.1"
        for index, count in ((0, 2), (1, 5))
    ]
    assert [(each.cause, each.records) for each in leader.replicas.removals.of_topic("t")] == [("DeleteRecords", 7)]


async def test_the_event_loop_does_not_wait_for_the_disk(leader: Leader, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    waits: list[int] = []
    for partition in leader.partitions:
        storage = cast(MemoryStorage, partition.log.log_directory.storage)
        storage.evict()
        storage.on_wait = lambda path: waits.append(threading.get_ident())
    deletion = await leader.delete(2, -1)
    assert len(waits) == 2 and threading.get_ident() not in waits
    assert [partition.log.log_start_offset for partition in leader.partitions] == [2, 5]
    assert len(caplog.messages) == 2 and all("of 1970-01-01T00:16:40Z to" in each for each in caplog.messages)
    for broker in (2, 3):
        leader.fetched(broker, 0, start=2)
        leader.fetched(broker, 1, start=5)
    assert results(deletion.response()) == [(2, 0), (5, 0)]
