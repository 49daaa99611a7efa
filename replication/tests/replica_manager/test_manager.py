"""The replica manager: starting on what is there, group-committed flushes, background work, failing disks, shutdown."""

from __future__ import annotations

import errno
import logging
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from ottla.replication.cluster.metadata_cache import PartitionState
from ottla.replication.config import LogConfig, ReplicationConfig
from ottla.replication.log import segment
from ottla.replication.log.checkpoints import decode_offsets
from ottla.replication.log.names import PARTITION_METADATA
from ottla.replication.log.partition_log import PartitionLog
from ottla.replication.log.tests.logs import batch, offsets, read_batches
from ottla.replication.replica_manager.directories import LogDirectoryProblem
from ottla.replication.replica_manager.housekeeping import SEGMENTS_PER_SLICE
from ottla.replication.replica_manager.log_lifecycle import THREADS_MAX
from ottla.replication.tests.disks import NODE, TOPIC_ID, Disk, Hosted, LedReplicas, partition_of, produce
from ottla.wire import time_slice
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.tests.turns import counted_turns


@pytest.fixture
def disk() -> Disk:
    return Disk()


# --- starting and stopping --------------------------------------------------------------------------------------------


async def test_partitions_are_made_and_come_back(disk: Disk, autojump_clock: MockClock) -> None:
    hosted = [Hosted(index=index) for index in range(3)]
    async with disk.broker() as manager:
        assert manager.partition("topic", 0) is None
        await manager.create_partitions(hosted)
        assert [each.index for each in manager.partitions_of("topic")] == [0, 1, 2]
        for count, partition in enumerate(manager.partitions(), 1):
            produce(partition, count)
            assert (partition.is_leader, partition.topic_id) == (True, TOPIC_ID)
    assert disk.storage.read("/logs/recovery-point-offset-checkpoint") == b"0\n3\ntopic 0 1\ntopic 1 2\ntopic 2 3\n"
    assert ".kafka_cleanshutdown" in disk.names()
    async with disk.broker(*hosted) as manager:
        assert [partition_of(manager, index=index).high_watermark for index in range(3)] == [1, 2, 3]
        assert ".kafka_cleanshutdown" not in disk.names()
        assert manager.cluster_id == "cluster"


async def test_hosted_partitions_that_are_missing_are_made_at_start(disk: Disk, autojump_clock: MockClock) -> None:
    async with disk.broker(Hosted(), Hosted(index=1)) as manager:
        assert len(list(manager.partitions())) == 2


async def test_after_a_power_cut_flushed_records_are_there(disk: Disk, autojump_clock: MockClock) -> None:
    hosted = Hosted(config=LogConfig(flush_messages=1))
    async with disk.broker(hosted, clean=False) as manager:
        partition = partition_of(manager)
        for _ in range(5):
            assert await manager.wait_committed(partition, produce(partition)) == ErrorCode.NONE
        produce(partition)
    for seed in range(5):
        disk.storage.crash(Random(seed))
        async with disk.broker(hosted, clean=False) as manager:
            assert offsets(read_batches(partition_of(manager).log))[:5] == [0, 1, 2, 3, 4]


async def test_a_killed_broker_recovers_from_its_checkpoints(disk: Disk, autojump_clock: MockClock) -> None:
    hosted = Hosted(config=LogConfig(segment_bytes=400))
    async with disk.broker(hosted, clean=False) as manager:
        partition = partition_of(manager)
        for _ in range(6):
            produce(partition, value=b"x" * 100)
        partition.delete_records(3)
        await trio.sleep(70)
        produce(partition)
        assert partition.log.recovery_point == 4
    assert disk.storage.read("/logs/log-start-offset-checkpoint") == b"0\n1\ntopic 0 3\n"
    assert disk.storage.read("/logs/topic-0/leader-epoch-checkpoint") == b"0\n1\n0 3\n"
    async with disk.broker(hosted) as manager:
        partition = partition_of(manager)
        assert (partition.log_start_offset, partition.high_watermark) == (3, 7)


async def test_a_directory_nobody_claims_is_put_aside_and_kept(disk: Disk, autojump_clock: MockClock) -> None:
    async with disk.broker(Hosted(), Hosted("other")) as manager:
        produce(partition_of(manager))
    async with disk.broker(Hosted(topic_id=bytes(16)), Hosted("other")) as manager:
        assert partition_of(manager).log_end_offset == 0
        assert partition_of(manager, "other").topic_id == TOPIC_ID
    (stray,) = [name for name in disk.names() if name.endswith("-stray")]
    assert disk.storage.size(f"/logs/{stray}/{0:020d}.log") > 0


async def test_a_topic_whose_deletion_was_cut_short_is_never_served_and_told_of_at_every_start(
    disk: Disk, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """The tree has forgotten the topic, and the broker was killed before it renamed the directory."""
    async with disk.broker(Hosted(), Hosted("other"), clean=False) as manager:
        produce(partition_of(manager))
    for _ in range(3):
        caplog.clear()
        async with disk.broker(Hosted("other"), clean=False) as manager:
            assert manager.partition("topic", 0) is None
        (stray,) = [name for name in disk.names() if name.endswith("-stray")]
        assert [record for record in caplog.records if "no topic claims" in record.message and stray in record.message]
    async with disk.broker(Hosted("other")) as manager:
        await manager.create_partitions([Hosted(topic_id=bytes(16))])
        assert partition_of(manager).log_end_offset == 0


async def test_found_partitions_are_told_before_loading(disk: Disk, autojump_clock: MockClock) -> None:
    async with disk.broker(Hosted("a"), Hosted("b", 3)):
        pass
    manager = disk.manager()
    await manager.open()
    assert manager.cluster_id == "cluster"
    found = sorted(
        (each.parsed.topic, each.parsed.partition, each.topic_id) for each in manager.directories.found_partitions()
    )
    assert found == [("a", 0, TOPIC_ID), ("b", 3, TOPIC_ID)]


@pytest.mark.parametrize("failing", ["/b", "/b/topic-1", "/b/topic-1/partition.metadata"])
async def test_a_directory_that_cannot_be_looked_through_is_not_taken_for_empty(
    disk: Disk, autojump_clock: MockClock, failing: str
) -> None:
    hosted = {("topic", index): Hosted(index=index) for index in range(2)}
    async with disk.broker(*hosted.values(), log_dirs=("/a", "/b")) as manager:
        produce(partition_of(manager, index=1))
    manager = disk.manager(log_dirs=("/a", "/b"))
    await manager.open()
    disk.storage.fail = lambda operation, path: OSError(errno.EMFILE, "none left") if path == failing else None
    found = manager.directories.found_partitions()
    disk.storage.fail = None
    assert [each.parsed.partition for each in found] == [0]
    await manager.load([hosted[each.parsed.topic, each.parsed.partition] for each in found], cluster_id="cluster")
    assert [directory.is_online for directory in manager.log_directories] == [True, False]
    await manager.shutdown()
    assert "topic-1" in disk.names("/b")


async def test_a_second_broker_on_the_same_directory_is_refused(disk: Disk, autojump_clock: MockClock) -> None:
    async with disk.broker():
        with pytest.raises(LogDirectoryProblem):
            await disk.manager().open()


async def test_another_broker_may_lead_what_is_kept_here(disk: Disk, autojump_clock: MockClock) -> None:
    async with disk.broker(Hosted(state=PartitionState(2, 5, (1, 2), (2,)))) as manager:
        partition = partition_of(manager)
        assert (partition.is_leader, partition.leader_id, partition.leader_epoch) == (False, 2, 5)
        await manager.create_partitions([Hosted(state=PartitionState(1, 6, (1, 2), (1,), 1))])
        assert (partition.is_leader, partition.leader_epoch) == (True, 6)


async def test_partitions_spread_over_directories(disk: Disk, autojump_clock: MockClock) -> None:
    hosted = [Hosted(index=index) for index in range(7)]
    async with disk.broker(*hosted, log_dirs=("/a", "/b", "/c")) as manager:
        counts = [len(manager.partitions_in(directory)) for directory in manager.log_directories]
        assert sorted(counts) == [2, 2, 3]
    async with disk.broker(*hosted, log_dirs=("/a", "/b", "/c")) as manager:
        assert [len(manager.partitions_in(directory)) for directory in manager.log_directories] == counts


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EMFILE], ids=errno.errorcode.get)
async def test_a_log_whose_topic_id_cannot_be_written_at_start_is_served(
    disk: Disk, autojump_clock: MockClock, error: int
) -> None:
    """Brokers that knew no topic ids have made the log."""
    async with disk.broker(Hosted(topic_id=bytes(16))) as manager:
        produce(partition_of(manager))
    disk.storage.fail = lambda operation, path: (
        OSError(error, "not now") if operation == "write" and path.endswith(PARTITION_METADATA) else None
    )
    async with disk.broker(Hosted()) as manager:
        assert partition_of(manager).log_end_offset == 1
        disk.storage.fail = None
    async with disk.broker(Hosted()) as manager:
        assert partition_of(manager).topic_id == TOPIC_ID


async def test_a_partition_in_two_directories_stops_the_start(disk: Disk, autojump_clock: MockClock) -> None:
    for path in ("/a", "/b"):
        async with disk.broker(Hosted(), log_dirs=(path,)):
            pass
    manager = disk.manager(log_dirs=("/a", "/b"))
    await manager.open()
    with pytest.raises(LogDirectoryProblem, match="topic-0 is in more than one log directory"):
        await manager.load([Hosted()], cluster_id="cluster")


async def test_many_partitions_are_made_without_holding_up_others(disk: Disk, autojump_clock: MockClock) -> None:
    async with disk.broker() as manager, counted_turns() as turns:
        await manager.create_partitions([Hosted(index=index) for index in range(300)])
    assert turns.count > 5


async def test_a_disk_that_refuses_new_partitions_says_so(disk: Disk, autojump_clock: MockClock) -> None:
    async with disk.broker(Hosted()) as manager:
        disk.storage.space_left = 0
        with pytest.raises(OSError):
            await manager.create_partitions([Hosted("new")])
        disk.storage.space_left = None
        assert manager.partition("new", 0) is None
        await manager.create_partitions([Hosted("new")])


@pytest.mark.parametrize("refusal", [errno.ENAMETOOLONG, errno.EMLINK], ids=errno.errorcode.get)
async def test_a_name_that_the_file_system_will_not_have_takes_no_directory_offline(
    disk: Disk, autojump_clock: MockClock, refusal: int
) -> None:
    def refuses_long_names(operation: str, path: str) -> OSError | None:
        is_long = any(len(name) > 143 for name in path.split("/"))
        return OSError(refusal, "as some file systems say", path) if operation == "make_directory" and is_long else None

    async with disk.broker(Hosted()) as manager:
        disk.storage.fail = refuses_long_names
        with pytest.raises(OSError, match="as some file systems say"):
            await manager.create_partitions([Hosted("x" * 249)])
        await manager.create_partitions([Hosted("short")])
        assert manager.log_directories[0].is_online
        disk.storage.fail = None


async def test_topics_of_the_longest_name_come_and_go(tmp_path: Any) -> None:
    longest = [Hosted("x" * 249, index) for index in (0, 9, 99_999)]
    manager = LedReplicas([str(tmp_path)], node_id=NODE, config=ReplicationConfig())
    await manager.open()
    await manager.load([], cluster_id="cluster")
    await manager.create_partitions(longest)
    for hosted in longest:
        produce(partition_of(manager, hosted.topic, hosted.index))
    with pytest.raises(KafkaError) as refusal:
        await manager.create_partitions([Hosted("x" * 249, 100_000), Hosted("other")])
    assert refusal.value.code == ErrorCode.INVALID_TOPIC_EXCEPTION
    await manager.delete_partitions([(each.topic, each.index) for each in longest])
    await manager.create_partitions(longest)
    assert manager.log_directories[0].is_online
    assert all(partition.log_end_offset == 0 for partition in manager.partitions())
    await manager.shutdown()


async def test_leftovers_of_a_failed_creation_do_not_stop_the_next_one(disk: Disk, autojump_clock: MockClock) -> None:
    def is_full(operation: str, path: str) -> OSError | None:
        refused = operation == "write" or (operation.startswith("remove") and "/logs/new-0" in path)
        return OSError(errno.ENOSPC, "No space left on device", path) if refused else None

    async with disk.broker(Hosted(), log_dirs=("/logs", "/more")) as manager:
        disk.storage.fail = is_full
        with pytest.raises(OSError):
            await manager.create_partitions([Hosted("new")])
        disk.storage.fail = None
        await manager.create_partitions([Hosted("new"), Hosted("new", 1), Hosted("new", 2)])
        produce(partition_of(manager, "new"))
    hosted = [Hosted(), *(Hosted("new", index) for index in range(3))]
    async with disk.broker(*hosted, log_dirs=("/logs", "/more")) as manager:
        assert partition_of(manager, "new").log_end_offset == 1
        await trio.sleep(2)
        assert sorted([*disk.names("/logs"), *disk.names("/more")]).count("new-0") == 1


async def test_prepared_logs_are_not_seen_until_their_partitions_are_created(
    disk: Disk, autojump_clock: MockClock
) -> None:
    hosted = [Hosted(topic, index) for topic in ("a", "b") for index in range(40)]
    async with disk.broker() as manager:
        disk.storage.fail = lambda operation, path: OSError(errno.EMFILE, "full") if "/b-7." in path else None
        failures = await manager.prepare_logs(hosted)
        disk.storage.fail = None
        assert list(failures) == ["b"]
        assert list(manager.partitions()) == []
        await manager.discard_prepared([each for each in hosted if each.topic == "b"])
        jobs = disk.jobs
        await manager.create_partitions([each for each in hosted if each.topic == "a"])
        assert disk.jobs == jobs  # all that has to be done on the disk was done before
        assert len(manager.partitions_of("a")) == 40
        assert partition_of(manager, "a", 39).is_leader
        assert not manager.partitions_of("b")
        assert [name for name in disk.names() if name.startswith("b-")] in ([], ["b-7"])
        await manager.create_partitions([Hosted("b", 7)])  # the leftover does not stop it
    async with disk.broker(*(each for each in hosted if each.topic == "a")) as manager:
        assert len(manager.partitions_of("a")) == 40


async def test_a_log_that_was_prepared_for_another_topic_id_is_not_taken_up(
    disk: Disk, autojump_clock: MockClock
) -> None:
    """The topic was deleted before it was led, and another one has its name."""
    other_id = bytes(range(16, 32))
    async with disk.broker() as manager:
        assert await manager.prepare_logs([Hosted(), Hosted(index=1)]) == {}
        prepared = manager._prepared["topic", 0].log
        await manager.create_partitions([Hosted(topic_id=other_id), Hosted(index=1)])
        assert partition_of(manager).topic_id == other_id
        assert partition_of(manager).log is not prepared
        assert partition_of(manager, index=1).topic_id == TOPIC_ID
        assert produce(partition_of(manager)) == 1
        await manager.discard_prepared([Hosted()])
        assert "topic-0" in disk.names()
    async with disk.broker(Hosted(topic_id=other_id)) as manager:
        assert partition_of(manager).log_end_offset == 1


async def test_a_prepared_log_has_the_settings_that_its_topic_has_when_it_is_taken_up(
    disk: Disk, autojump_clock: MockClock
) -> None:
    async with disk.broker() as manager:
        await manager.prepare_logs([Hosted()])
        changed = LogConfig(segment_bytes=400)
        await manager.create_partitions([Hosted(config=changed)])
        assert partition_of(manager).log.config == changed


async def test_a_prepared_log_that_nobody_wants_is_removed(disk: Disk, autojump_clock: MockClock) -> None:
    async with disk.broker() as manager:
        await manager.prepare_logs([Hosted(), Hosted(index=1)])
        await manager.discard_prepared([Hosted(), Hosted(index=7)])
        assert "topic-0" not in disk.names()
        await manager.discard_prepared([Hosted()])
        assert (manager._prepared.keys(), list(manager.partitions())) == ({("topic", 1)}, [])
    async with disk.broker() as manager:  # nobody hosts what was never taken up
        assert list(manager.partitions()) == []


async def test_few_threads_make_logs_at_once(disk: Disk, autojump_clock: MockClock) -> None:
    """A crowd may ask for topics. Threads that compute keep the event loop from running."""
    running: list[int] = []
    async with disk.broker() as manager:
        run_in_thread = manager._creation._run_in_thread

        async def counted(*arguments: Any) -> Any:
            running.append(1)
            assert len(running) <= THREADS_MAX
            try:
                await trio.sleep(1)
                return await run_in_thread(*arguments)
            finally:
                running.pop()

        manager._creation._run_in_thread = counted
        async with trio.open_nursery() as nursery:
            for number in range(10):
                nursery.start_soon(manager.create_partitions, [Hosted(f"topic-{number}")])
        assert len(list(manager.partitions())) == 10


async def test_a_deletion_whose_rename_fails_is_tried_again(disk: Disk, autojump_clock: MockClock) -> None:
    def full(operation: str, path: str) -> OSError | None:
        is_partition = operation == "rename" and path.startswith("/logs/topic-")
        return OSError(errno.ENOSPC, "No space left on device", path) if is_partition else None

    async with disk.broker(Hosted(), Hosted(index=1)) as manager:
        produce(partition_of(manager))
        produce(partition_of(manager, index=1))
        disk.storage.fail = full
        await manager.delete_partitions([("topic", 0), ("topic", 1)])
        disk.storage.fail = None
        assert {"topic-0", "topic-1"} <= set(disk.names())
        await manager.create_partitions([Hosted(topic_id=bytes(16))])  # of the same name, before it is tried again
        await trio.sleep(150)
        assert partition_of(manager).log_end_offset == 0
        assert [name for name in disk.names() if name.startswith("topic")] == ["topic-0"]
        assert manager.log_directories[0].is_online


# --- deleting ---------------------------------------------------------------------------------------------------------


async def test_a_deleted_partition_is_gone_at_once_and_its_files_later(disk: Disk, autojump_clock: MockClock) -> None:
    async with disk.broker(Hosted(), Hosted(index=1)) as manager:
        partition = partition_of(manager)
        produce(partition)
        await manager.delete_partitions([("topic", 0), ("topic", 9), ("none", 0)])
        assert manager.partition("topic", 0) is None and partition.is_deleted
        (name,) = [name for name in disk.names() if name.endswith("-delete")]
        assert name.startswith("topic-0.")
        assert disk.storage.read("/logs/replication-offset-checkpoint") == b"0\n1\ntopic 1 0\n"
        await manager.create_partitions([Hosted(topic_id=bytes(16))])
        assert partition_of(manager).log_end_offset == 0
        await trio.sleep(59)
        assert name in disk.names()
        await trio.sleep(5)
        assert name not in disk.names()
        assert "topic-0" in disk.names()


async def test_a_deletion_that_was_cut_short_is_finished_after_the_start(disk: Disk, autojump_clock: MockClock) -> None:
    async with disk.broker(Hosted(), clean=False) as manager:
        await manager.delete_partitions([("topic", 0)])
    async with disk.broker():
        await trio.sleep(5)
        assert not [name for name in disk.names() if name.startswith("topic")]


async def test_a_producer_that_waits_when_its_topic_is_deleted_is_told(disk: Disk, autojump_clock: MockClock) -> None:
    async with disk.broker(Hosted(config=LogConfig(flush_ms=1))) as manager:
        partition = partition_of(manager)
        disk.thread_delay_s = 100
        end = produce(partition)
        async with trio.open_nursery() as nursery:
            answers: list[ErrorCode] = []

            async def wait() -> None:
                answers.append(await manager.wait_committed(partition, end))

            nursery.start_soon(wait)
            await trio.sleep(1)
            nursery.start_soon(manager.delete_partitions, [("topic", 0)])
            await trio.sleep(1)
            assert answers == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
            disk.thread_delay_s = 0


# --- committing -------------------------------------------------------------------------------------------------------


async def test_appends_share_a_flush(disk: Disk, autojump_clock: MockClock) -> None:
    async with disk.broker(Hosted(config=LogConfig(flush_messages=1))) as manager:
        partition = partition_of(manager)
        disk.thread_delay_s = 0.01
        before = disk.jobs
        codes = []

        async def producer() -> None:
            for _ in range(10):
                codes.append(await manager.wait_committed(partition, produce(partition), timeout_s=5))

        async with trio.open_nursery() as nursery:
            for _ in range(50):
                nursery.start_soon(producer)
        assert codes == [ErrorCode.NONE] * 500
        assert disk.jobs - before <= 25
        assert partition.log.recovery_point == partition.high_watermark == 500


async def test_without_forced_flushes_nobody_waits_for_the_disk(disk: Disk, autojump_clock: MockClock) -> None:
    async with disk.broker(Hosted()) as manager:
        before = disk.jobs
        assert await manager.wait_committed(partition_of(manager), produce(partition_of(manager))) == ErrorCode.NONE
        assert disk.jobs == before


async def test_a_commit_that_does_not_come_times_out(disk: Disk, autojump_clock: MockClock) -> None:
    async with disk.broker(Hosted(config=LogConfig(flush_messages=1))) as manager:
        partition = partition_of(manager)
        disk.thread_delay_s = 60
        end = produce(partition)
        assert await manager.wait_committed(partition, end, timeout_s=1) == ErrorCode.REQUEST_TIMED_OUT
        assert not partition.watchers
        assert await manager.wait_committed(partition, end, required_acks=1) == ErrorCode.NONE


async def test_settings_reach_every_partition_of_a_topic(disk: Disk, autojump_clock: MockClock) -> None:
    async with disk.broker(Hosted(), Hosted(index=1), Hosted("other")) as manager:
        changed = LogConfig(retention_ms=5)
        manager.update_topic_config("topic", changed)
        assert [each.topic for each in manager.partitions() if each.log.config is changed] == ["topic", "topic"]


# --- background work --------------------------------------------------------------------------------------------------


async def test_retention_is_applied_and_files_removed(disk: Disk, autojump_clock: MockClock) -> None:
    config = LogConfig(segment_bytes=400, retention_ms=60_000, file_delete_delay_ms=30_000)
    async with disk.broker(Hosted(config=config), log_retention_check_interval_ms=10_000) as manager:
        partition = partition_of(manager)
        for _ in range(4):
            produce(partition, value=b"x" * 100)
        await trio.sleep(50)
        assert partition.log_start_offset == 0
        await trio.sleep(30)
        assert partition.log_start_offset == 4
        assert [name for name in disk.names("/logs/topic-0") if name.endswith(".deleted")]
        await trio.sleep(35)
        assert not [name for name in disk.names("/logs/topic-0") if name.endswith(".deleted")]


def removed(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The lines about records that were removed, without their times."""
    return [each.getMessage().partition(", of ")[0] for each in caplog.records if "removed" in each.getMessage()]


async def test_retention_says_once_a_run_what_each_log_has_lost(
    disk: Disk, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    old = LogConfig(segment_bytes=200, retention_ms=60_000)
    hosted = [Hosted(config=old), Hosted(index=1, config=old), Hosted("kept"), Hosted("empty", config=old)]
    async with disk.broker(*hosted, log_retention_check_interval_ms=10_000) as manager:
        for index in (0, 1):
            for _ in range(2 * SEGMENTS_PER_SLICE + index):
                produce(partition_of(manager, index=index), value=b"x" * 100)
        produce(partition_of(manager, "kept"))
        await trio.sleep(100)
        assert removed(caplog) == [
            f"topic-{index}: retention.ms=60000 removed {count} records, offsets 0 to {count - 1}"
            for index, count in ((0, 2 * SEGMENTS_PER_SLICE), (1, 2 * SEGMENTS_PER_SLICE + 1))
        ]
        (event,) = manager.removals.of_topic("topic")
        assert (event.records, event.logs, event.runs) == (4 * SEGMENTS_PER_SLICE + 1, 2, 1)
        assert manager.removals.of_topic("kept") == manager.removals.of_topic("empty") == []


async def test_the_deletion_of_a_topic_is_told_and_the_move_of_a_replica_is_not(
    disk: Disk, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    hosted = [Hosted(), Hosted(index=1), Hosted(index=2), Hosted("moved"), Hosted("empty")]
    async with disk.broker(*hosted) as manager:
        produce(partition_of(manager), 3)
        produce(partition_of(manager, index=2), 2)
        produce(partition_of(manager, "moved"), 4)
        names = [("topic", 0), ("topic", 1), ("topic", 2), ("moved", 0), ("empty", 0), ("nobody's", 0)]
        await manager.delete_partitions(names, deleted_topics={"topic", "empty", "nobody's"})
        assert removed(caplog) == ["topic: deletion of the topic removed 5 records, 2 logs"]
        assert [each.records for each in manager.removals.of_topic("topic")] == [5]
        assert manager.removals.of_topic("moved") == []


async def test_times_of_removed_records_are_read_by_threads(
    disk: Disk, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    waits: list[bool] = []
    disk.storage.on_wait = lambda path: waits.append(disk.is_in_thread)
    old = LogConfig(segment_bytes=20_000, retention_ms=60_000)
    hosted = [Hosted("old", config=old), Hosted("gone")]
    async with disk.broker(*hosted, log_retention_check_interval_ms=1_000_000_000) as manager:
        for name in ("old", "gone"):
            for _ in range(3 * SEGMENTS_PER_SLICE):
                produce(partition_of(manager, name), value=b"x" * 15_000)
        await trio.sleep(100)
        disk.storage.evict()
        await manager.housekeeping.apply_retention()
        await manager.delete_partitions([("gone", 0)], deleted_topics={"gone"})
        assert len(waits) >= 3 and all(waits)
    of = "of 1970-01-01T00:00:00Z to 1970-01-01T00:00:00Z"
    assert [each for each in caplog.messages if "removed" in each] == [
        f"old-0: retention.ms=60000 removed 48 records, offsets 0 to 47, {of}",
        f"gone: deletion of the topic removed 48 records, 1 log, {of}",
    ]


@pytest.fixture
def given_up(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many segments retention gives up at a time."""
    given_up: list[int] = []
    original = PartitionLog.delete_old_segments

    def counting(log: PartitionLog, *arguments: Any, **options: Any) -> int:
        given_up.append(original(log, *arguments, **options))
        return given_up[-1]

    monkeypatch.setattr(PartitionLog, "delete_old_segments", counting)
    return given_up


async def test_retention_gives_up_a_few_segments_at_a_time(
    disk: Disk, autojump_clock: MockClock, given_up: list[int]
) -> None:
    config = LogConfig(segment_bytes=200, retention_ms=60_000)
    async with disk.broker(Hosted(config=config), log_retention_check_interval_ms=10_000) as manager:
        partition = partition_of(manager)
        for _ in range(100):
            produce(partition, value=b"x" * 100)
        await trio.sleep(80)
        assert partition.log_start_offset == 100
        assert sum(given_up) == 100
        assert max(given_up) <= SEGMENTS_PER_SLICE < 20


async def test_segments_without_times_are_read_for_retention_in_threads(
    disk: Disk, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Old producers send no timestamps. Then a segment has no index of times, and its age is that of its file."""
    monkeypatch.setattr(segment, "REPAIR_AT_ONCE_BYTES", 1000)
    hosted = Hosted(config=LogConfig(segment_bytes=2000, retention_ms=60_000))
    async with disk.broker(hosted) as manager:
        for _ in range(100):
            partition_of(manager).append_as_leader(batch(-1, value=b"x" * 100), required_acks=1, now_ms=disk.now_ms())
    await trio.sleep(600)
    async with disk.broker(hosted, log_retention_check_interval_ms=10_000) as manager:
        log, jobs = partition_of(manager).log, disk.jobs
        sealed = len(log.segments) - 1
        await trio.sleep(15)
        assert log.log_start_offset == log.log_end_offset == 100
        assert disk.jobs - jobs >= sealed >= 5
    assert not [record for record in caplog.records if "Retention" in record.message]


async def test_very_many_files_are_removed_some_at_a_time(disk: Disk, autojump_clock: MockClock) -> None:
    async with disk.broker() as manager:
        (directory,) = manager.log_directories
        for number in range(2500):
            disk.storage.write(f"/logs/{number}", b"")
            directory.remove_later(f"/logs/{number}", 0)
        jobs = disk.jobs
        await trio.sleep(1.5)
        assert disk.jobs - jobs == 3
        assert not [name for name in disk.names() if name.isdecimal()]


async def test_retention_gives_way_after_each_segment_where_a_disk_is_slow(
    disk: Disk, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, given_up: list[int]
) -> None:
    passed_s = 0.0

    def slow(operation: str, path: str) -> None:
        nonlocal passed_s
        passed_s += 0.001 if operation == "rename" else 0

    monkeypatch.setattr(time_slice, "time", SimpleNamespace(perf_counter=lambda: passed_s))
    config = LogConfig(segment_bytes=200, retention_ms=60_000)
    async with disk.broker(Hosted(config=config), log_retention_check_interval_ms=10_000) as manager:
        partition = partition_of(manager)
        for _ in range(20):
            produce(partition, value=b"x" * 100)
        disk.storage.fail = slow
        await trio.sleep(80)
        disk.storage.fail = None
        assert partition.log_start_offset == 20
        assert sum(given_up) == 20 and max(given_up) == 1


async def test_files_that_could_not_be_removed_are_removed_later(
    disk: Disk, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(operation: str, path: str) -> OSError | None:
        return OSError(errno.EMFILE, "Too many open files") if operation.startswith("remove") else None

    config = LogConfig(file_delete_delay_ms=1000)
    async with disk.broker(Hosted(config=config)) as manager:
        disk.storage.fail = refuse
        with caplog.at_level(logging.CRITICAL, "ottla.replication"):
            await manager.delete_partitions([("topic", 0)])
            await trio.sleep(10)
        assert [name for name in disk.names() if name.endswith("-delete")]
        disk.storage.fail = None
        await trio.sleep(60)
        assert not [name for name in disk.names() if name.endswith("-delete")]


async def test_a_finished_segment_is_flushed_in_the_background(disk: Disk, autojump_clock: MockClock) -> None:
    async with disk.broker(Hosted(config=LogConfig(segment_bytes=400))) as manager:
        partition = partition_of(manager)
        for _ in range(3):
            produce(partition, value=b"x" * 100)
        assert partition.log.recovery_point == 0
        await trio.sleep(1)
        assert partition.log.recovery_point == 2


async def test_a_log_of_many_segments_is_flushed_in_rounds_that_others_share(
    disk: Disk, autojump_clock: MockClock
) -> None:
    config = LogConfig(segment_bytes=400)
    async with disk.broker(Hosted(config=config), Hosted(index=1, config=config)) as manager:
        disk.thread_delay_s = 0.1
        long, other = partition_of(manager).log, partition_of(manager, index=1).log
        for _ in range(40):
            produce(partition_of(manager), value=b"x" * 100)
        await trio.sleep(0.05)
        produce(partition_of(manager, index=1), value=b"x" * 100)
        produce(partition_of(manager, index=1), value=b"x" * 300)
        await trio.sleep(0.2)
        assert 0 < long.recovery_point < long.segments[-1].base_offset
        assert other.recovery_point == other.segments[-1].base_offset == 1
        await trio.sleep(10)
        assert long.recovery_point == long.segments[-1].base_offset
        disk.thread_delay_s = 0.0
    async with disk.broker(Hosted(config=config), Hosted(index=1, config=config)) as manager:
        assert partition_of(manager).log.recovery_point == partition_of(manager).log.log_end_offset == 40


async def test_high_watermarks_are_noted_every_few_seconds(disk: Disk, autojump_clock: MockClock) -> None:
    async with disk.broker(Hosted()) as manager:
        produce(partition_of(manager))
        await trio.sleep(6)
        assert disk.storage.read("/logs/replication-offset-checkpoint") == b"0\n1\ntopic 0 1\n"


async def test_idle_producers_are_forgotten(disk: Disk, autojump_clock: MockClock) -> None:
    async with disk.broker(Hosted(), producer_id_expiration_ms=1000) as manager:
        partition = partition_of(manager)
        records = batch(Disk.now_ms(), producer_id=5, producer_epoch=0, base_sequence=0)
        partition.append_as_leader(records, required_acks=1, now_ms=Disk.now_ms())
        assert len(partition.log.producers) == 1
        await trio.sleep(1000)
        assert partition.log.producers == {}


async def test_background_work_goes_on_after_a_mistake(
    disk: Disk, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with disk.broker(Hosted(config=LogConfig(retention_ms=1)), log_retention_check_interval_ms=1000) as manager:
        partition = partition_of(manager)
        log, partition.log = partition.log, None  # type: ignore[assignment]
        await trio.sleep(2.5)
        partition.log = log
        assert "Background work failed" in caplog.text
        produce(partition)
        await trio.sleep(2)
        assert partition.log_start_offset == 1


# --- failing disks ----------------------------------------------------------------------------------------------------


async def test_a_failed_flush_takes_the_directory_offline_and_tells_who_waits(
    disk: Disk, autojump_clock: MockClock
) -> None:
    hosted = Hosted(config=LogConfig(flush_messages=1))
    async with disk.broker(hosted) as manager:
        partition = partition_of(manager)
        disk.storage.fail = lambda operation, path: OSError(errno.EIO, "broken") if operation == "sync" else None
        assert await manager.wait_committed(partition, produce(partition)) == ErrorCode.KAFKA_STORAGE_ERROR
        assert partition.high_watermark == 0
        assert manager.all_directories_failed.is_set()
        with pytest.raises(KafkaError):
            produce(partition)
        disk.storage.fail = None
    assert ".kafka_cleanshutdown" not in disk.names()


async def test_one_directory_may_fail_and_the_other_go_on(disk: Disk, autojump_clock: MockClock) -> None:
    hosted = [Hosted(index=index) for index in range(4)]
    async with disk.broker(*hosted, log_dirs=("/a", "/b")) as manager:
        broken, sound = manager.log_directories
        broken.take_offline(OSError(errno.EIO, "broken"))
        assert not manager.all_directories_failed.is_set()
        for partition in manager.partitions_in(sound):
            assert await manager.wait_committed(partition, produce(partition)) == ErrorCode.NONE
        await manager.create_partitions([Hosted("new", index) for index in range(2)])
        assert len(manager.partitions_in(sound)) == 4
        await trio.sleep(100)
    assert ".kafka_cleanshutdown" not in disk.names("/a")
    assert ".kafka_cleanshutdown" in disk.names("/b")


async def test_a_full_disk_is_told_in_one_line_at_the_stop(
    disk: Disk, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    hosted = [Hosted(index=index) for index in range(6)]
    async with disk.broker(*hosted, log_dirs=("/a", "/b")) as manager:
        for partition in manager.partitions():
            produce(partition)
        disk.storage.fail = lambda operation, path: (
            OSError(errno.ENOSPC, "No space left on device")
            if operation != "delete" and path.startswith("/a/")
            else None
        )
    told = [each.getMessage() for each in caplog.records if each.levelname == "ERROR"]
    [line] = [each for each in told if "cannot be closed" in each]
    assert (
        line.startswith("/a/topic-") and ", and 2 other logs beside it, cannot be closed: " in line and len(told) == 1
    )
    assert ".kafka_cleanshutdown" not in disk.names("/a")
    assert ".kafka_cleanshutdown" in disk.names("/b")


async def test_partitions_on_a_disk_that_fails_at_start_are_not_made_anew(
    disk: Disk, autojump_clock: MockClock
) -> None:
    hosted = [Hosted(index=index) for index in range(4)]
    async with disk.broker(*hosted, log_dirs=("/a", "/b")):
        pass
    disk.storage.fail = lambda operation, path: (
        OSError(errno.EIO, "broken") if operation == "read" and path.startswith("/a/topic") else None
    )
    async with disk.broker(*hosted, log_dirs=("/a", "/b")) as manager:
        assert [directory.is_online for directory in manager.log_directories] == [False, True]
        assert len(list(manager.partitions())) == 2
        disk.storage.fail = None
    async with disk.broker(*hosted, log_dirs=("/a", "/b")) as manager:
        assert len(list(manager.partitions())) == 4


async def test_a_disk_that_cannot_be_used_at_start_keeps_its_partitions(disk: Disk, autojump_clock: MockClock) -> None:
    hosted = [Hosted(index=index) for index in range(4)]
    async with disk.broker(*hosted, log_dirs=("/a", "/b")) as manager:
        for partition in manager.partitions():
            produce(partition)
    disk.storage.fail = lambda operation, path: OSError(errno.EIO, "broken") if path.startswith("/a/") else None
    async with disk.broker(*hosted, log_dirs=("/a", "/b")) as manager:
        assert [directory.is_online for directory in manager.log_directories] == [False, True]
        assert [manager.is_offline("topic", index) for index in range(4)] == [True, False, True, False]
        assert manager.is_offline("other", 0)
        assert {each.parsed.partition for each in manager.directories.found_partitions()} == {1, 3}
        disk.storage.fail = None
    async with disk.broker(*hosted, log_dirs=("/a", "/b")) as manager:
        assert [partition.log_end_offset for partition in manager.partitions()] == [1, 1, 1, 1]
        assert not manager.is_offline("other", 0)


async def test_a_checkpoint_that_cannot_be_written_takes_the_directory_offline(
    disk: Disk, autojump_clock: MockClock
) -> None:
    async with disk.broker(Hosted()) as manager:
        produce(partition_of(manager))
        disk.storage.fail = lambda operation, path: (
            OSError(errno.EIO, "broken") if operation == "write" and "checkpoint" in path else None
        )
        await trio.sleep(10)
        assert not manager.log_directories[0].is_online
        disk.storage.fail = None


# --- with real threads and files --------------------------------------------------------------------------------------


SHORTAGES = [errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOSPC]


@pytest.mark.parametrize("shortage", SHORTAGES, ids=errno.errorcode.get)
async def test_a_checkpoint_that_meets_a_shortage_is_written_later(
    disk: Disk, autojump_clock: MockClock, shortage: int
) -> None:
    async with disk.broker(Hosted()) as manager:
        produce(partition_of(manager))
        disk.storage.fail = lambda operation, path: OSError(shortage, "short")
        await trio.sleep(200)
        assert [directory.is_online for directory in manager.log_directories] == [True]
        disk.storage.fail = None
        await trio.sleep(100)
        assert b"topic 0 1" in disk.storage.read("/logs/replication-offset-checkpoint")
        assert b"\n0 0\n" in disk.storage.read("/logs/topic-0/leader-epoch-checkpoint")
    assert ".kafka_cleanshutdown" in disk.names()


@pytest.mark.parametrize("shortage", SHORTAGES, ids=errno.errorcode.get)
async def test_a_flush_that_meets_a_shortage_is_tried_again_while_its_producer_waits(
    disk: Disk, autojump_clock: MockClock, shortage: int
) -> None:
    async with disk.broker(Hosted(config=LogConfig(flush_messages=1))) as manager:
        partition = partition_of(manager)
        partition.log.assign_epoch(5, 0)  # which the flush has to write
        disk.storage.fail = lambda operation, path: OSError(shortage, "short") if operation == "write" else None
        end_offset = produce(partition)
        assert await manager.wait_committed(partition, end_offset, timeout_s=5) == ErrorCode.REQUEST_TIMED_OUT
        assert partition.high_watermark == 0
        disk.storage.fail = None
        assert await manager.wait_committed(partition, end_offset, timeout_s=5) == ErrorCode.NONE


async def test_a_shortage_of_one_disk_keeps_no_log_of_another_waiting(disk: Disk, autojump_clock: MockClock) -> None:
    hosted = [Hosted(index=index, config=LogConfig(flush_messages=1)) for index in range(2)]
    async with disk.broker(*hosted, log_dirs=("/a", "/b")) as manager:
        full, sound = (manager.partitions_in(directory)[0] for directory in manager.log_directories)
        for partition in (full, sound):
            partition.log.assign_epoch(5, 0)
        disk.storage.fail = lambda operation, path: (
            OSError(errno.ENOSPC, "full") if operation == "write" and path.startswith("/a/") else None
        )
        produce(full)
        await trio.sleep(0.01)
        started = trio.current_time()
        for _ in range(5):
            assert await manager.wait_committed(sound, produce(sound)) == ErrorCode.NONE
        assert trio.current_time() == started
        assert full.high_watermark == 0
        disk.storage.fail = None
        assert await manager.wait_committed(full, full.log_end_offset, timeout_s=1) == ErrorCode.NONE


@pytest.mark.parametrize("shortage", SHORTAGES, ids=errno.errorcode.get)
async def test_a_stop_during_a_shortage_leaves_no_mark_of_an_orderly_one(
    disk: Disk, autojump_clock: MockClock, shortage: int
) -> None:
    async with disk.broker(Hosted()) as manager:
        produce(partition_of(manager))
        disk.storage.fail = lambda operation, path: OSError(shortage, "short") if "checkpoint" in path else None
    disk.storage.fail = None
    assert ".kafka_cleanshutdown" not in disk.names()


@pytest.mark.parametrize("error", [errno.EMFILE, errno.ENOSPC, errno.EIO], ids=errno.errorcode.get)
async def test_after_a_failed_sync_no_other_is_believed(disk: Disk, autojump_clock: MockClock, error: int) -> None:
    async with disk.broker(Hosted(config=LogConfig(flush_messages=1))) as manager:
        partition = partition_of(manager)
        disk.storage.fail = lambda operation, path: (
            OSError(error, "lost") if operation == "sync" and path.endswith(".log") else None
        )
        assert await manager.wait_committed(partition, produce(partition)) == ErrorCode.KAFKA_STORAGE_ERROR
        assert manager.all_directories_failed.is_set()
        disk.storage.fail = None


async def test_the_same_with_real_threads_and_files(tmp_path: Any) -> None:
    hosted = [Hosted(index=index, config=LogConfig(flush_messages=1)) for index in range(3)]
    for round_number in (1, 2):
        manager = LedReplicas([str(tmp_path / "logs")], node_id=NODE, config=ReplicationConfig())
        await manager.open()
        await manager.load(hosted, cluster_id="cluster")
        async with trio.open_nursery() as nursery:
            await nursery.start(manager.run)
            for partition in manager.partitions():
                assert await manager.wait_committed(partition, produce(partition, 2)) == ErrorCode.NONE
                assert offsets(read_batches(partition.log)) == [0, 2][:round_number]
            nursery.cancel_scope.cancel()
        await manager.shutdown()


async def test_compacted_topics_are_compacted_and_the_place_noted(disk: Disk, autojump_clock: MockClock) -> None:
    hosted = Hosted(config=LogConfig(cleanup_policy=("compact",), segment_bytes=400))
    async with disk.broker(hosted) as manager:
        partition = partition_of(manager)
        for _ in range(5):
            produce(partition, value=b"x" * 100)
        await trio.sleep(40)
        assert offsets(read_batches(partition.log)) == [3, 4]
        assert disk.storage.read("/logs/cleaner-offset-checkpoint") == b"0\n1\ntopic 0 4\n"
        await trio.sleep(120)
        assert not [name for name in disk.names("/logs/topic-0") if name.endswith((".deleted", ".cleaned", ".swap"))]
    async with disk.broker(hosted) as manager:
        partition = partition_of(manager)
        assert partition.log.first_dirty_offset == 4
        assert offsets(read_batches(partition.log)) == [3, 4]
        manager.config = ReplicationConfig(log_cleaner_enable=False)
        for _ in range(5):
            produce(partition, value=b"x" * 100)
        await trio.sleep(40)
        assert len(read_batches(partition.log)) == 7


async def test_a_cut_below_the_recovery_point_is_in_the_checkpoint_at_once(
    disk: Disk, autojump_clock: MockClock
) -> None:
    def noted() -> int:
        return decode_offsets(disk.storage.read("/logs/recovery-point-offset-checkpoint"))["topic", 0]

    async with disk.broker(Hosted()) as manager:
        partition = partition_of(manager)
        for _ in range(4):
            produce(partition)
        partition.log.flush()
        await manager.housekeeping.note_offsets(manager.log_directories)
        assert noted() == 4
        partition.truncate_to(2, now_ms=disk.now_ms())
        await trio.sleep(0.1)
        assert noted() == 2


async def test_a_log_is_made_while_what_an_earlier_one_gave_up_is_removed(
    disk: Disk, autojump_clock: MockClock
) -> None:
    async with disk.broker() as manager:
        disk.storage.make_directory("/logs/topic-0")
        given_up = f"/logs/topic-0/{0:020d}.log.deleted"
        disk.storage.write(given_up, b"records")

        def remove_first(operation: str, path: str) -> None:
            if operation == "size" and path == given_up:
                disk.storage.fail = None
                disk.storage.remove(path)

        disk.storage.fail = remove_first
        await manager.create_partitions([Hosted()])
        assert disk.storage.fail is None
        assert partition_of(manager).is_leader and manager.log_directories[0].is_online


async def test_only_the_directory_that_fails_goes_offline_when_a_log_is_made_in_another(
    autojump_clock: MockClock,
) -> None:
    disk = Disk(("/a", "/b"))
    for path in ("/a", "/b"):
        disk.storage.make_directory(path)
    async with disk.broker(log_dirs=("/a", "/b")) as manager:
        first, second = manager.log_directories

        def fail(operation: str, path: str) -> OSError | None:
            return OSError(errno.EIO, "broken") if operation == "exists" and path.startswith("/b/") else None

        disk.storage.fail = fail
        with pytest.raises(OSError, match="broken"):
            await manager.create_partitions([Hosted()])
        assert (first.is_online, second.is_online) == (True, False)
        await manager.create_partitions([Hosted()])
        assert partition_of(manager).log.log_directory is first


@pytest.mark.parametrize("is_killed", [True, False])
async def test_a_new_topic_does_not_begin_where_checkpoints_say_a_deleted_one_began(
    is_killed: bool, autojump_clock: MockClock
) -> None:
    disk, earlier, later = Disk(), Hosted(config=LogConfig(segment_bytes=400)), Hosted(topic_id=bytes(range(16, 32)))
    async with disk.broker(earlier, clean=False) as manager:
        partition = partition_of(manager)
        for _ in range(6):
            produce(partition, value=b"x" * 100)
        partition.delete_records(3)
        await trio.sleep(70)
        assert b"topic 0 3" in disk.storage.read("/logs/log-start-offset-checkpoint")
        if not is_killed:  # else it is before the topic's directory has another name
            disk.storage.fail = lambda operation, path: (
                OSError(errno.EMFILE, "too many") if operation == "write" and path.endswith(".tmp") else None
            )
            await manager.delete_partitions([("topic", 0)])
            disk.storage.fail = None
            await manager.create_partitions([later])
            produce(partition_of(manager))
    if is_killed:
        async with disk.broker(later, clean=False) as manager:
            produce(partition_of(manager))
    async with disk.broker(later, clean=False) as manager:
        log = partition_of(manager).log
        assert (log.log_start_offset, offsets(read_batches(log))) == (0, [0])


async def test_a_log_is_not_made_while_the_checkpoints_tell_of_an_earlier_one(autojump_clock: MockClock) -> None:
    disk = Disk()
    async with disk.broker(Hosted()) as manager:
        await trio.sleep(70)
        disk.storage.fail = lambda operation, path: (
            OSError(errno.EMFILE, "too many") if operation == "write" and path.endswith(".tmp") else None
        )
        await manager.delete_partitions([("topic", 0)])
        with pytest.raises(OSError, match="deleted partitions"):
            await manager.create_partitions([Hosted()])
        assert list(await manager.prepare_logs([Hosted()])) == ["topic"]
        assert not manager._prepared
        assert manager.log_directories[0].is_online
        disk.storage.fail = None
        await manager.create_partitions([Hosted()])
        assert partition_of(manager).is_leader
