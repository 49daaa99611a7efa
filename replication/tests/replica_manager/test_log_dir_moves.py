"""Replicas move between log directories: what is copied, what ends a move, and what is left when the power goes."""

from __future__ import annotations

import errno
from collections.abc import Callable
from random import Random

import pytest
import trio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from ottla.replication.config import LogConfig
from ottla.replication.fetcher.throttle import Limit, ReplicationThrottle
from ottla.replication.log.batch_checks import AppendOrigin
from ottla.replication.log.tests.failing_calls import some
from ottla.replication.log.tests.logs import batch, idempotent, marker, offsets, read_batches
from ottla.replication.log.verification import NOT_REQUIRED
from ottla.replication.partition.partition import Partition
from ottla.replication.replica_manager import future_replica
from ottla.replication.replica_manager.manager import ReplicaManager
from ottla.replication.tests.disks import NODE, Disk, Hosted, LedReplicas, partition_of, produce
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.record_decoding import decode_records
from ottla.wire.records import iter_batches
from ottla.wire.tests.effort import examples, thorough_or_quick

DIRS = ("/a", "/b", "/c")


@pytest.fixture
def disk() -> Disk:
    return Disk(DIRS)


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """The event loop copies one or two batches itself, so that small logs move in several steps."""
    monkeypatch.setattr(future_replica, "LAST_BYTES", 200)


async def move(manager: ReplicaManager, path: str, topic: str = "topic", index: int = 0) -> None:
    await manager.moves.move(partition_of(manager, topic, index), manager.moves.destination(topic, index, path))


def home(partition: Partition) -> str:
    return partition.log.log_directory.path


def plain_names(disk: Disk) -> list[str]:
    """Every directory that claims to be a replica in use."""
    return [f"{path}/{name}" for path in DIRS for name in disk.names(path) if name == "topic-0"]


def marked(disk: Disk, mark: str, path: str | None = None) -> list[str]:
    return [name for each in DIRS if path in (None, each) for name in disk.names(each) if name.endswith(mark)]


def values(partition: Partition) -> list[bytes | None]:
    """The value of every record there is."""
    log = partition.log
    found: list[bytes | None] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        read = log.read(offset, 10_000, upper_bound=log.log_end_offset, at_least_one_batch=True)
        data = read.region if isinstance(read.region, bytes) else read.region.read()
        for _, start, end in iter_batches(data):
            found += [record.value for record in decode_records(data[start:end]) if record.offset >= offset]
        offset = read.end_offset
    return found


def append(partition: Partition, value: bytes) -> None:
    partition.append_as_leader(batch(Disk.now_ms(), value=value), required_acks=1, now_ms=Disk.now_ms())


# --- moving -----------------------------------------------------------------------------------------------------------


async def test_a_replica_moves_and_everything_about_it_moves_along(disk: Disk, autojump_clock: MockClock) -> None:
    hosted = Hosted(config=LogConfig(segment_bytes=400))
    async with disk.broker(hosted, log_dirs=DIRS) as manager:
        partition = partition_of(manager)
        for count in range(10):
            append(partition, b"%d" % count * 100)
        partition.delete_records(4)
        partition.make_leader(leader_epoch=3, partition_epoch=1, replicas=(NODE,), isr=(NODE,))
        partition.append_as_leader(idempotent(0, 2), required_acks=-1, now_ms=0)
        partition.append_as_leader(idempotent(2, is_transactional=True), required_acks=-1, now_ms=0, guard=NOT_REQUIRED)
        before = (partition.log_start_offset, partition.log_end_offset, partition.high_watermark, values(partition))
        assert home(partition) == "/a"
        partition.make_leader(leader_epoch=5, partition_epoch=2, replicas=(NODE,), isr=(NODE,))
        await move(manager, "/b")
        assert len(marked(disk, "-future", "/b")) == 1
        await trio.sleep(5)
        assert home(partition) == "/b"
        after = (partition.log_start_offset, partition.log_end_offset, partition.high_watermark, values(partition))
        assert after == before == (4, 13, 13, values(partition))
        assert partition.last_stable_offset == 12
        assert partition.end_offset_for_epoch(0) == (0, 10)
        assert (partition.topic_id, partition.log.latest_leader_epoch) == (hosted.topic_id, 5)
        assert partition.append_as_leader(idempotent(0, 2), required_acks=-1, now_ms=0).duplicate
        partition.append_as_leader(marker(), required_acks=-1, now_ms=0, origin=AppendOrigin.COORDINATOR)
        assert plain_names(disk) == ["/b/topic-0"]
        assert len(marked(disk, "-delete", "/a")) == 1
        assert disk.storage.read("/b/replication-offset-checkpoint") == b"0\n1\ntopic 0 13\n"
        assert disk.storage.read("/a/replication-offset-checkpoint") == b"0\n0\n"
        await trio.sleep(70)
        assert not marked(disk, "-delete")
    async with disk.broker(hosted, log_dirs=DIRS) as manager:
        partition = partition_of(manager)
        assert (home(partition), partition.log_start_offset, partition.high_watermark) == ("/b", 4, 14)
        assert values(partition)[:9] == before[3]


async def test_producers_whose_records_are_gone_are_known_after_a_move(disk: Disk, autojump_clock: MockClock) -> None:
    async with disk.broker(Hosted(), log_dirs=DIRS, clean=False) as manager:
        partition = partition_of(manager)
        partition.append_as_leader(idempotent(0, 2), required_acks=-1, now_ms=Disk.now_ms())
        produce(partition)
        partition.delete_records(3)
        await move(manager, "/b")
        await trio.sleep(5)
        assert home(partition) == "/b"
    disk.storage.kill()
    async with disk.broker(Hosted(), log_dirs=DIRS) as manager:
        partition = partition_of(manager)
        assert partition.append_as_leader(idempotent(0, 2), required_acks=-1, now_ms=Disk.now_ms()).duplicate


async def test_appends_while_a_replica_moves_are_in_both_logs(disk: Disk, autojump_clock: MockClock) -> None:
    async with disk.broker(Hosted(), log_dirs=DIRS) as manager:
        partition = partition_of(manager)
        for _ in range(5):
            produce(partition)
        await move(manager, "/b")
        disk.thread_delay_s = 0.5
        written = 5
        while home(partition) == "/a":
            written = produce(partition)
            await trio.sleep(0.3)
        assert partition.high_watermark == written
        assert offsets(read_batches(partition.log)) == list(range(written))


async def test_compaction_leaves_gaps_and_waits_for_the_move(disk: Disk, autojump_clock: MockClock) -> None:
    hosted = Hosted(config=LogConfig(cleanup_policy=("compact",), segment_bytes=400))
    async with disk.broker(hosted, log_dirs=DIRS) as manager:
        partition = partition_of(manager)
        for _ in range(5):
            produce(partition, value=b"x" * 100)
        await trio.sleep(40)
        assert offsets(read_batches(partition.log)) == [3, 4]
        await move(manager, "/b")
        disk.thread_delay_s = 100
        await trio.sleep(50)
        for _ in range(5):
            produce(partition, value=b"x" * 100)
        disk.thread_delay_s = 0
        while home(partition) == "/a":
            await trio.sleep(1)
        assert partition.log.first_dirty_offset == 4
        await trio.sleep(40)
        assert len(read_batches(partition.log)) < 7


async def test_a_batch_larger_than_segments_are_now_is_moved(disk: Disk, autojump_clock: MockClock) -> None:
    async with disk.broker(Hosted(), log_dirs=DIRS) as manager:
        partition = partition_of(manager)
        produce(partition, value=b"x" * 1000)
        manager.update_topic_config("topic", LogConfig(segment_bytes=500))
        await move(manager, "/b")
        await trio.sleep(1)
        assert home(partition) == "/b"
        assert partition.log.config.segment_bytes == 500


async def test_forced_flushes_are_kept_through_a_move(disk: Disk, autojump_clock: MockClock) -> None:
    async with disk.broker(Hosted(config=LogConfig(flush_messages=1)), log_dirs=DIRS) as manager:
        partition = partition_of(manager)
        await move(manager, "/b")
        disk.thread_delay_s = 0.01
        for _ in range(30):
            end = produce(partition)
            assert await manager.wait_committed(partition, end) == ErrorCode.NONE
            assert partition.log.recovery_point >= end
        assert home(partition) == "/b"


async def test_a_cut_of_the_current_log_cuts_the_future_one(disk: Disk, autojump_clock: MockClock) -> None:
    async with disk.broker(Hosted(config=LogConfig(segment_bytes=600)), log_dirs=DIRS) as manager:
        partition = partition_of(manager)
        for _ in range(10):
            produce(partition, value=b"old")
        await move(manager, "/b")
        disk.thread_delay_s = 1
        future = manager.moves.move_of(partition)
        assert future is not None
        await trio.sleep(1.5)
        assert (future.log.log_end_offset > 3, home(partition)) == (True, "/a")
        partition.make_follower(leader_id=2, leader_epoch=1, partition_epoch=1, replicas=(NODE, 2))
        partition.truncate_to(partition.divergence(0, 3), now_ms=0)
        partition.make_leader(leader_epoch=2, partition_epoch=2, replicas=(NODE,), isr=(NODE,))
        for _ in range(6):
            produce(partition, value=b"new")
        await trio.sleep(20)
        assert home(partition) == "/b"
        assert values(partition) == [b"old"] * 3 + [b"new"] * 6
        assert partition.end_offset_for_epoch(0) == (0, 3)


async def test_records_deleted_on_the_way_are_not_moved(disk: Disk, autojump_clock: MockClock) -> None:
    async with disk.broker(Hosted(config=LogConfig(segment_bytes=400)), log_dirs=DIRS) as manager:
        partition = partition_of(manager)
        produce(partition, 3, value=b"x" * 50)
        await move(manager, "/b")
        disk.thread_delay_s = 1
        for _ in range(10):
            produce(partition, value=b"x" * 100)
        partition.delete_records(9)
        partition.delete_old_segments(Disk.now_ms())
        await trio.sleep(30)
        assert home(partition) == "/b"
        assert (partition.log_start_offset, partition.log_end_offset) == (9, 13)
        assert len(values(partition)) == 4


async def test_moves_obey_the_throttle(disk: Disk, autojump_clock: MockClock) -> None:
    limit = Limit(bytes_per_second=1000, window_count=11, window_seconds=1)
    throttle = ReplicationThrottle(NODE, limit=lambda: limit, throttled_replicas=lambda topic: ("*",))
    manager = LedReplicas(
        DIRS,
        node_id=NODE,
        config=disk.manager().config,
        storage=disk.storage,
        clock_ms=disk.now_ms,
        run_in_thread=disk.run_in_thread,
        log_dirs_throttle=throttle,
    )
    await manager.open()
    await manager.load([Hosted(config=LogConfig(segment_bytes=2000))], cluster_id="cluster")
    partition = partition_of(manager)
    for _ in range(20):
        produce(partition, value=b"x" * 900)
    async with trio.open_nursery() as nursery:
        await nursery.start(manager.run)
        began = trio.current_time()
        await move(manager, "/b")
        while home(partition) == "/a":
            await trio.sleep(0.1)
        assert 5 < trio.current_time() - began < 60
        nursery.cancel_scope.cancel()
    await manager.shutdown()


# --- requests ---------------------------------------------------------------------------------------------------------


async def test_a_move_elsewhere_replaces_a_move_and_home_ends_it(disk: Disk, autojump_clock: MockClock) -> None:
    async with disk.broker(Hosted(), log_dirs=DIRS) as manager:
        partition = partition_of(manager)
        produce(partition)
        await move(manager, "/b")
        await move(manager, "/c")
        disk.thread_delay_s = 10
        assert (len(marked(disk, "-future", "/b")), len(marked(disk, "-delete", "/b"))) == (0, 1)
        assert len(marked(disk, "-future", "/c")) == 1
        await move(manager, "/a")
        assert (marked(disk, "-future"), len(marked(disk, "-delete"))) == ([], 2)
        assert manager.moves.move_of(partition) is None
        await trio.sleep(100)
        assert (home(partition), marked(disk, "-delete")) == ("/a", [])
        assert values(partition) == [b"value"]


async def test_where_a_replica_cannot_go(disk: Disk, autojump_clock: MockClock) -> None:
    async with disk.broker(Hosted(), log_dirs=DIRS) as manager:
        partition = partition_of(manager)

        async def refusal(path: str, topic: str = "topic") -> ErrorCode:
            with pytest.raises(KafkaError) as caught:
                await manager.moves.move(partition, manager.moves.destination(topic, 0, path))
            return caught.value.code

        assert await refusal("/elsewhere") == ErrorCode.LOG_DIR_NOT_FOUND
        assert await refusal("/b", "t" * 220) == ErrorCode.INVALID_TOPIC_EXCEPTION
        manager.log_directories[2].take_offline(OSError(errno.EIO, "broken"))
        assert await refusal("/c") == ErrorCode.KAFKA_STORAGE_ERROR
        assert await refusal("/b") == ErrorCode.KAFKA_STORAGE_ERROR
        manager.log_directories[0].take_offline(OSError(errno.EIO, "broken"))
        assert await refusal("/a") == ErrorCode.KAFKA_STORAGE_ERROR


async def test_a_directory_is_remembered_for_a_replica_to_come(disk: Disk, autojump_clock: MockClock) -> None:
    async with disk.broker(log_dirs=DIRS) as manager:
        manager.moves.prefer("topic", 0, manager.moves.destination("topic", 0, "/c"))
        await manager.create_partitions([Hosted(index=index) for index in range(3)])
        assert [home(partition_of(manager, index=index)) for index in range(3)] == ["/c", "/a", "/b"]


async def test_a_deleted_partition_takes_its_move_along(disk: Disk, autojump_clock: MockClock) -> None:
    async with disk.broker(Hosted(), log_dirs=DIRS) as manager:
        produce(partition_of(manager))
        await move(manager, "/b")
        disk.thread_delay_s = 10
        await trio.sleep(5)
        disk.thread_delay_s = 0
        in_threads: list[bool] = []

        def note(operation: str, path: str) -> None:
            if operation == "rename" and not path.endswith("checkpoint.tmp"):
                in_threads.append(disk.is_in_thread)

        disk.storage.fail = note
        await manager.delete_partitions([("topic", 0)])
        assert in_threads == [True, True]
        assert (marked(disk, "-future"), plain_names(disk)) == ([], [])
        assert len(marked(disk, "-delete")) == 2
        await trio.sleep(100)
        assert not marked(disk, "-delete")


# --- failing disks ----------------------------------------------------------------------------------------------------


def broken(path: str, *operations: str) -> Callable[[str, str], OSError | None]:
    def fail(operation: str, at: str) -> OSError | None:
        return OSError(errno.EIO, "broken") if at.startswith(path) and operation in operations else None

    return fail


@pytest.mark.parametrize("operation", ["append", "sync", "sync_directory"])
async def test_a_broken_target_goes_offline_and_the_replica_stays(
    disk: Disk, autojump_clock: MockClock, operation: str
) -> None:
    async with disk.broker(Hosted(), log_dirs=DIRS) as manager:
        partition = partition_of(manager)
        produce(partition)
        await move(manager, "/b")
        disk.storage.fail = broken("/b", operation)
        await trio.sleep(5)
        assert [each.is_online for each in manager.log_directories] == [True, False, True]
        assert (home(partition), manager.moves.move_of(partition)) == ("/a", None)
        assert await manager.wait_committed(partition, produce(partition)) == ErrorCode.NONE
        disk.storage.fail = None


async def test_a_source_that_cannot_be_read_goes_offline(disk: Disk, autojump_clock: MockClock) -> None:
    async with disk.broker(Hosted(), log_dirs=DIRS) as manager:
        partition = partition_of(manager)
        produce(partition)
        disk.storage.fail = broken("/a", "read")
        await move(manager, "/b")
        await trio.sleep(5)
        assert [each.is_online for each in manager.log_directories] == [False, True, True]
        assert len(marked(disk, "-future", "/b")) == 1
        disk.storage.fail = None
    async with disk.broker(Hosted(), log_dirs=DIRS) as manager:
        await trio.sleep(5)
        assert (home(partition_of(manager)), values(partition_of(manager))) == ("/b", [b"value"])


async def test_a_full_disk_makes_a_move_wait(disk: Disk, autojump_clock: MockClock) -> None:
    async with disk.broker(Hosted(), log_dirs=DIRS) as manager:
        partition = partition_of(manager)
        produce(partition)
        await move(manager, "/b")
        disk.storage.space_left = 10
        await trio.sleep(3)
        assert (home(partition), all(each.is_online for each in manager.log_directories)) == ("/a", True)
        disk.storage.space_left = None
        await trio.sleep(5)
        assert (home(partition), values(partition)) == ("/b", [b"value"])


# --- after a stop -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("clean", [True, False])
async def test_a_move_goes_on_after_a_restart(disk: Disk, autojump_clock: MockClock, clean: bool) -> None:
    hosted = Hosted(config=LogConfig(segment_bytes=400))
    async with disk.broker(hosted, log_dirs=DIRS, clean=clean) as manager:
        partition = partition_of(manager)
        for count in range(20):
            append(partition, b"%d" % count * 50)
        await move(manager, "/b")
        disk.thread_delay_s = 1
        await trio.sleep(5.5)
        copied = manager.moves.move_of(partition)
        assert copied is not None
        assert 0 < copied.log.log_end_offset < 20
    disk.thread_delay_s = 0
    async with disk.broker(hosted, log_dirs=DIRS) as manager:
        partition = partition_of(manager)
        assert home(partition) == "/a"
        resumed = manager.moves.move_of(partition)
        assert resumed is not None
        assert resumed.log.log_end_offset == copied.log.log_end_offset
        await trio.sleep(5)
        assert home(partition) == "/b"
        assert values(partition) == [b"%d" % count * 50 for count in range(20)]


async def test_what_no_move_needs_is_put_away_at_start(disk: Disk, autojump_clock: MockClock) -> None:
    async with disk.broker(Hosted(), Hosted("gone"), Hosted("empty"), log_dirs=DIRS) as manager:
        append(partition_of(manager, "gone"), b"kept")
        await move(manager, "/c", "gone")
        disk.thread_delay_s = 10
    disk.storage.make_directory("/a/topic-0.0123-future")
    disk.thread_delay_s = 0
    async with disk.broker(Hosted(), log_dirs=DIRS) as manager:
        assert manager.moves.move_of(partition_of(manager)) is None
        assert not marked(disk, "-future")
        assert [name.split(".")[0] for name in marked(disk, "-stray")] == ["gone-0"]
        assert "empty-0" not in [*disk.names("/a"), *disk.names("/b"), *disk.names("/c")]


# --- crashes ----------------------------------------------------------------------------------------------------------


class PowerCut(BaseException):
    """The machine stops here."""


class Run:
    """A broker that moves a replica while a producer writes, until the machine stops at one of its file operations."""

    def __init__(self, config: LogConfig, stop_at: float) -> None:
        self.disk = Disk(DIRS)
        self.hosted = Hosted(config=config)
        self.written: list[bytes] = []
        self.acknowledged = 0
        self.durable = 0
        self.operations = 0
        self.kinds: list[tuple[str, str]] = []
        """Of the operations, each with the kind of its file."""
        self._stop_at = stop_at

    def _count(self, operation: str, path: str) -> None:
        self.operations += 1
        self.kinds.append((operation, path.rpartition("/")[2].lstrip("0123456789")))
        if self.operations > self._stop_at:
            raise PowerCut

    async def run(self) -> None:
        disk = self.disk
        try:
            async with disk.broker(self.hosted, log_dirs=DIRS, clean=False) as manager:
                partition = partition_of(manager)
                partition.watchers.add(lambda: self._look(partition))
                for _ in range(6):
                    self._write(partition)
                await trio.sleep(65)  # flushed and noted in the checkpoints
                disk.storage.fail = self._count  # type: ignore[assignment]
                await move(manager, "/b")
                while plain_names(disk) != ["/b/topic-0"] or manager.moves._settling:
                    self._write(partition)
                    for _ in range(4):  # slower than what is copied meanwhile
                        await trio.lowlevel.checkpoint()
                self._write(partition)
                await trio.sleep(1)
        except* PowerCut:
            pass
        disk.storage.fail = None

    def _look(self, partition: Partition) -> None:
        self.acknowledged = max(self.acknowledged, partition.high_watermark)
        self.durable = max(self.durable, min(partition.log.recovery_point, partition.durability_limit))

    def _write(self, partition: Partition) -> None:
        self.written.append(b"%d" % len(self.written) * 20)
        append(partition, self.written[-1])

    async def check(self, least: int) -> tuple[str, bool]:
        """Start again, having kept at least so much; returns where the replica was, and whether a move was under way."""
        assert len(plain_names(self.disk)) <= 1
        async with self.disk.broker(self.hosted, log_dirs=DIRS, clean=False) as manager:
            partition = partition_of(manager)
            state = (home(partition), manager.moves.move_of(partition) is not None)
            found = values(partition)
            assert found == self.written[: len(found)]
            assert len(found) >= least
            await trio.sleep(2)
            assert plain_names(self.disk) == [f"{home(partition)}/topic-0"]
            assert (home(partition), marked(self.disk, "-future")) == ("/b" if state[1] else state[0], [])
            assert values(partition) == found
            assert await manager.wait_committed(partition, produce(partition)) == ErrorCode.NONE
        return state


STATES = {("/a", False), ("/a", True), ("/b", False)}


@pytest.mark.thorough
async def test_a_process_that_is_killed_anywhere_in_a_move_loses_nothing(autojump_clock: MockClock) -> None:
    config = LogConfig(segment_bytes=400)
    whole = Run(config, float("inf"))
    await whole.run()
    found = set()
    for stop_at in range(whole.operations):
        run = Run(config, stop_at)
        await run.run()
        run.disk.storage.kill()
        found.add(await run.check(run.acknowledged))
    assert found == STATES


@pytest.mark.thorough
@pytest.mark.parametrize("seeds", [pytest.param(4, marks=pytest.mark.long), 1])
async def test_a_power_cut_anywhere_in_a_move_loses_nothing(autojump_clock: MockClock, seeds: int) -> None:
    config = LogConfig(segment_bytes=400, flush_messages=1)
    whole = Run(config, float("inf"))
    await whole.run()
    found = set()
    for stop_at in range(whole.operations):
        for seed in range(seeds):
            run = Run(config, stop_at)
            await run.run()
            run.disk.storage.crash(Random(seed))
            found.add(await run.check(run.acknowledged))
    assert found == STATES


@pytest.mark.parametrize(
    "every", [pytest.param(1, marks=pytest.mark.long, id="all"), pytest.param(thorough_or_quick(3, 17), id="some")]
)
async def test_a_power_cut_takes_no_more_than_it_would_without_a_move(autojump_clock: MockClock, every: int) -> None:
    config = LogConfig(segment_bytes=400)
    whole = Run(config, float("inf"))
    await whole.run()
    for stop_at in some(whole.kinds, every):
        run = Run(config, stop_at)
        await run.run()
        run.disk.storage.crash(Random(stop_at))
        await run.check(run.durable)


# --- at random --------------------------------------------------------------------------------------------------------

ACTIONS = st.one_of(
    st.tuples(st.just("append"), st.integers(1, 12)),
    st.tuples(st.just("cut"), st.integers(1, 8)),
    st.tuples(st.just("delete records"), st.integers(1, 8)),
    st.tuples(st.just("move"), st.sampled_from(DIRS)),
    st.tuples(st.just("wait"), st.integers(1, 5)),
    st.tuples(st.just("kill"), st.just(0)),
    st.tuples(st.just("stop"), st.just(0)),
)


class Story:
    """What becomes of a replica, beside a plain list of what it must hold from `start` on."""

    def __init__(self) -> None:
        self.disk = Disk(DIRS)
        self.hosted = Hosted(config=LogConfig(segment_bytes=600, file_delete_delay_ms=1000))
        self.expected: list[bytes | None] = []
        self.start = 0
        self._number = 0

    async def tell(self, actions: list[tuple[str, int | str]]) -> None:
        while actions:
            end = next((index for index, (name, _) in enumerate(actions) if name in ("kill", "stop")), len(actions))
            clean = end == len(actions) or actions[end][0] == "stop"
            async with self.disk.broker(self.hosted, log_dirs=DIRS, clean=clean) as manager:
                self._check(partition_of(manager))
                self.disk.thread_delay_s = 0.2
                for name, argument in actions[:end]:
                    await self._act(manager, name, argument)
                    self._check(partition_of(manager))
                if not clean:
                    # Where the log begins is noted now and then, and it may begin at the last note after a kill.
                    await manager.housekeeping.note_offsets(manager.log_directories)
                self.disk.thread_delay_s = 0
            if not clean:
                self.disk.storage.kill()
            actions = actions[end + 1 :]
        async with self.disk.broker(self.hosted, log_dirs=DIRS) as manager:
            await trio.sleep(10)
            self._check(partition_of(manager))
            assert plain_names(self.disk) == [f"{home(partition_of(manager))}/topic-0"]
            assert (marked(self.disk, "-future"), marked(self.disk, "-delete")) == ([], [])

    async def _act(self, manager: ReplicaManager, name: str, argument: int | str) -> None:
        partition, log = partition_of(manager), partition_of(manager).log
        if name == "append":
            for _ in range(int(argument)):
                self._number += 1
                self.expected.append(b"%d" % self._number * 10)
                append(partition, b"%d" % self._number * 10)
        elif name == "cut":
            offset = max(log.log_end_offset - int(argument), self.start)
            epoch = partition.leader_epoch
            partition.make_follower(leader_id=2, leader_epoch=epoch + 1, partition_epoch=0, replicas=(NODE, 2))
            partition.truncate_to(partition.divergence(epoch, offset), now_ms=Disk.now_ms())
            partition.make_leader(leader_epoch=epoch + 2, partition_epoch=0, replicas=(NODE,), isr=(NODE,))
            del self.expected[offset - self.start :]
        elif name == "delete records":
            offset = min(self.start + int(argument), log.log_end_offset)
            partition.delete_records(offset)
            partition.delete_old_segments(Disk.now_ms())
            del self.expected[: offset - self.start]
            self.start = offset
        elif name == "move":
            await move(manager, str(argument))
        else:
            await trio.sleep(int(argument) / 2)

    def _check(self, partition: Partition) -> None:
        assert (partition.log_start_offset, partition.log_end_offset) == (self.start, self.start + len(self.expected))
        assert values(partition) == self.expected
        assert partition.high_watermark == partition.log_end_offset


@given(st.lists(ACTIONS, max_size=25))
@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_happens_a_replica_holds_what_it_must(actions: list[tuple[str, int | str]]) -> None:
    trio.run(Story().tell, actions, clock=MockClock(autojump_threshold=0))
