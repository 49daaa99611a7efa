"""The log of a coordinator over a real partition: when all that it holds is committed."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
import trio.testing

from ottla.replication.log.tests.logs import NOW_MS, batch, new_log, read_batches
from ottla.replication.partition.partition import Partition
from ottla.server.coordinators import coordinator_log
from ottla.server.coordinators.coordinator_log import InternalTopicLog
from ottla.server.testing.memory.storage import MemoryStorage
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.record_encoding import encode_pairs


def led(*, isr: tuple[int, ...] = (1, 2), min_isr: int = 1) -> Partition:
    partition = Partition("__consumer_offsets", 0, new_log(min_insync_replicas=min_isr), local_id=1)
    partition.make_leader(leader_epoch=3, partition_epoch=0, replicas=(1, 2), isr=isr, now_ms=NOW_MS)
    partition.append_as_leader(batch(), required_acks=1, now_ms=NOW_MS)
    return partition


def load_codecs() -> None:
    pass


def log_of(partition: Partition, **broker: object) -> InternalTopicLog:
    return InternalTopicLog(
        cast(Any, SimpleNamespace(partition=lambda *_: partition, **broker)),
        partition.topic,
        partitions_wanted=lambda: 1,
        commit_timeout_ms=lambda: 1,
        load_codecs=load_codecs,
    )


async def test_a_log_is_committed_when_the_followers_in_sync_have_it(nursery: trio.Nursery) -> None:
    partition = led()
    waited = trio.Event()

    async def wait() -> None:
        commit = log_of(partition).partition(0).until_committed()
        assert commit is not None
        await commit
        waited.set()

    nursery.start_soon(wait)
    await trio.testing.wait_all_tasks_blocked()
    assert not waited.is_set()
    partition.on_follower_fetch(2, partition.log.log_end_offset, 0, now_ms=NOW_MS)
    await trio.testing.wait_all_tasks_blocked()
    assert waited.is_set()
    assert log_of(partition).partition(0).until_committed() is None


@pytest.mark.parametrize("is_in_cluster", [False, True])
def test_only_a_member_of_a_cluster_can_have_been_replaced(is_in_cluster: bool) -> None:
    broker = {"is_in_cluster": is_in_cluster, "member": SimpleNamespace(is_fenced=True)}
    assert log_of(led(), **broker).is_fenced() is is_in_cluster


def test_a_log_that_stamps_its_records_gives_a_batch_the_coordinator_s_time() -> None:
    log = new_log(message_timestamp_type="LogAppendTime")
    partition = Partition("__consumer_offsets", 0, log, local_id=1)
    partition.make_leader(leader_epoch=3, partition_epoch=0, replicas=(1,), isr=(1,), now_ms=NOW_MS)
    log_of(partition, is_in_cluster=False).partition(0).append(encode_pairs([(b"key", b"value")], NOW_MS), NOW_MS + 5)
    assert [each.max_timestamp for each in read_batches(log)] == [NOW_MS + 5]


def test_a_leader_that_may_have_been_replaced_appends_nothing() -> None:
    partition = led()
    end = partition.log.log_end_offset
    log = log_of(partition, is_in_cluster=True, may_be_replaced_at=lambda each: each is partition).partition(0)
    with pytest.raises(KafkaError) as error:
        log.append(encode_pairs([(b"key", b"value")], NOW_MS), NOW_MS)
    assert error.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER and partition.log.log_end_offset == end


def test_the_only_replica_in_sync_has_committed_all_though_writes_are_refused() -> None:
    assert log_of(led(isr=(1,), min_isr=2)).partition(0).until_committed() is None


async def test_what_another_leader_decides_is_not_waited_for(nursery: trio.Nursery) -> None:
    partition = led()
    problems = []

    async def wait() -> None:
        commit = log_of(partition).partition(0).until_committed()
        assert commit is not None
        with pytest.raises(KafkaError) as raised:
            await commit
        problems.append(raised.value.code)

    nursery.start_soon(wait)
    await trio.testing.wait_all_tasks_blocked()
    partition.make_follower(leader_id=2, leader_epoch=4, partition_epoch=1, replicas=(1, 2))
    await trio.testing.wait_all_tasks_blocked()
    assert problems == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    with pytest.raises(KafkaError):
        log_of(partition).partition(0).until_committed()


async def test_threads_read_a_long_log_and_what_is_on_the_disk_only(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[object] = []

    async def run_in_thread(function: Callable[[], Any]) -> Any:
        threads.append(function)
        return function()

    partition = led()
    storage = partition.log.log_directory.storage
    assert isinstance(storage, MemoryStorage)

    async def read() -> bytes:
        log = log_of(partition, environment=SimpleNamespace(run_in_thread=run_in_thread))
        return b"".join([each async for each in log.partition(0).read_batches()])

    monkeypatch.setattr(coordinator_log, "_topics_with_codecs", set())
    found = await read()
    assert threads == [load_codecs] and len(found) == partition.log.segments[-1].size
    assert await read() == found and len(threads) == 1
    storage.evict()
    assert await read() == found and len(threads) == 2
    assert await read() == found and len(threads) == 2
    monkeypatch.setattr(coordinator_log, "AT_ONCE_BYTES_MAX", len(found) - 1)
    assert await read() == found and len(threads) == 3
