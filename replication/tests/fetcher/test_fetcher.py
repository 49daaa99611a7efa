"""Followers and what their leaders say: catching up, parting of logs, changes of leaders, errors, throttles."""

from __future__ import annotations

import logging
import threading
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, NoReturn, cast

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.replication.cluster.peers import PeerUnavailable
from ottla.replication.config import LogConfig, ReplicationConfig
from ottla.replication.fetcher.fetcher import pieces
from ottla.replication.fetcher.fetcher_manager import ReplicaFetcherManager
from ottla.replication.log import segment_snapshots
from ottla.replication.log.partition_log import PartitionLog
from ottla.replication.log.tests.logs import NOW_MS, TOPIC_ID, batch, contents, idempotent, log_directory
from ottla.replication.partition.partition import Partition
from ottla.replication.partition.removals import Removals
from ottla.replication.tests.leading import Leader, failing
from ottla.server.testing.memory.storage import MemoryStorage
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages.fetch import EpochEndOffset, FetchRequest, FetchResponse
from ottla.wire.messages.list_offsets import ListOffsetsRequest
from ottla.wire.schema import ZERO_UUID
from ottla.wire.tests.effort import examples

FOLLOWER, LEADER = 2, 1
OTHER_ID = bytes(15) + b"2"
SESSION_ERRORS = (
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    ErrorCode.UNKNOWN_SERVER_ERROR,
)


def new_partition(
    node: int, index: int = 0, *, topic: str = "topic", topic_id: bytes | None = TOPIC_ID, start: int = 0, **config: Any
) -> Partition:
    log = PartitionLog.create(
        log_directory(MemoryStorage()),
        topic,
        index,
        LogConfig(**config),
        topic_id=topic_id,
        now_ms=NOW_MS,
        log_start_offset=start,
    )
    return Partition(topic, index, log, local_id=node)


def lead(partition: Partition, epoch: int) -> Partition:
    node = partition._local_id
    partition.make_leader(leader_epoch=epoch, partition_epoch=epoch, replicas=(1, 2, 3), isr=(node,), now_ms=NOW_MS)
    return partition


def follow(partition: Partition, leader: int, epoch: int) -> Partition:
    partition.make_follower(leader_id=leader, leader_epoch=epoch, partition_epoch=epoch, replicas=(1, 2, 3))
    return partition


def write(partition: Partition, count: int = 1, value: bytes = b"value") -> None:
    """Append as leader, one batch of one record each."""
    for _ in range(count):
        partition.append_as_leader(batch(value=value), required_acks=1, now_ms=NOW_MS)


def history(partition: Partition, *epochs: int) -> Partition:
    """Let the log hold one record for each of these epochs."""
    for number, epoch in enumerate(epochs):
        partition.log.append_as_leader(batch(value=b"%d-%d" % (epoch, number)), leader_epoch=epoch, now_ms=NOW_MS)
    return partition


def content(partition: Partition) -> bytes:
    log = partition.log
    return contents(log.read(log.log_start_offset, 2**31, upper_bound=log.log_end_offset).region)


class FakeThrottle:
    def __init__(self) -> None:
        self.throttled: set[tuple[str, int]] = set()
        self.exceeded = False
        self.recorded = 0

    def is_throttled(self, topic: str, index: int) -> bool:
        return (topic, index) in self.throttled

    def is_exceeded(self, now_ms: int) -> bool:
        return self.exceeded

    def record(self, size: int, now_ms: int) -> None:
        self.recorded += size


class Follower:
    """A broker that follows, on virtual time."""

    def __init__(self, nursery: trio.Nursery, *leaders: Leader, node_id: int = FOLLOWER) -> None:
        self.leaders = {leader.node_id: leader for leader in leaders}
        self.config = ReplicationConfig()
        self.throttle = FakeThrottle()
        self.removals = Removals()
        self.connected: list[tuple[int, int]] = []
        self.fetchers = ReplicaFetcherManager(
            node_id,
            connect=self._connect,
            config=lambda: self.config,
            clock_ms=lambda: NOW_MS + int(trio.current_time() * 1000),
            broker_epoch=lambda: 77,
            throttle=self.throttle,
            removals=self.removals,
        )
        self._nursery = nursery
        self.scope = trio.CancelScope()

    def _connect(self, leader: int, number: int) -> Any:
        self.connected.append((leader, number))
        return self.leaders[leader].to()

    async def start(self) -> Follower:
        await self._nursery.start(self._run)
        return self

    async def _run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        with self.scope:
            await self.fetchers.run(task_status)


async def until(condition: Callable[[], bool], *, within_s: float = 100) -> None:
    """Let virtual time pass until something holds."""
    with trio.fail_after(within_s):
        while not condition():
            await trio.sleep(0.001)


@pytest.fixture
def leading() -> Partition:
    return lead(new_partition(LEADER), 3)


@pytest.fixture
def following() -> Partition:
    return follow(new_partition(FOLLOWER), LEADER, 3)


@pytest.fixture
def leader(leading: Partition) -> Leader:
    return Leader(LEADER, [leading])


@pytest.fixture
async def follower(nursery: trio.Nursery, leader: Leader) -> Follower:
    return await Follower(nursery, leader).start()


# --- steady state


async def test_a_follower_catches_up_and_keeps_up(autojump_clock, leader, leading, follower, following):
    write(leading, 5)
    follower.fetchers.follow(following)
    await until(lambda: following.log_end_offset == 5)
    for end in range(6, 20):
        write(leading)
        await until(lambda end=end: following.log_end_offset == end, within_s=0.1)
    assert content(following) == content(leading)
    assert following.log.latest_leader_epoch == 3
    await until(lambda: following.high_watermark == leading.high_watermark == 19)
    assert leading.followers is not None
    assert leader.connections == 1


async def test_what_is_asked_for_is_told_once(autojump_clock, leader, leading, follower, following):
    write(leading)
    follower.fetchers.follow(following)
    await until(lambda: len(leader.fetches) >= 4)
    first, second, third, _ = leader.fetches
    assert (first.session_id, first.session_epoch) == (0, 0)
    assert (first.replica_state.replica_id, first.replica_state.replica_epoch) == (FOLLOWER, 77)
    assert (first.max_wait_ms, first.min_bytes, first.max_bytes) == (500, 1, 10 << 20)
    (asked,) = first.topics[0].partitions
    assert first.topics[0].topic_id == TOPIC_ID
    assert (asked.current_leader_epoch, asked.fetch_offset, asked.last_fetched_epoch) == (3, 0, -1)
    assert (asked.log_start_offset, asked.partition_max_bytes) == (0, 1 << 20)
    assert (second.session_id, second.session_epoch) == (1, 1)
    (asked,) = second.topics[0].partitions
    assert (asked.fetch_offset, asked.last_fetched_epoch) == (1, 3)
    assert (third.session_id, third.session_epoch, third.topics, third.forgotten_topics_data) == (1, 2, [], [])


async def test_the_leaders_log_start_is_followed_and_the_followers_is_told(
    autojump_clock, leader, leading, follower, following
):
    write(leading, 10)
    follower.fetchers.follow(following)
    await until(lambda: following.high_watermark == 10)
    leading.delete_records(4)
    write(leading)
    await until(lambda: following.log_start_offset == 4)
    following.log.increase_log_start_offset(6)  # by the follower's own retention
    await until(lambda: any(each.log_start_offset == 6 for each in asked_partitions(leader)))


def asked_partitions(leader: Leader) -> list[Any]:
    return [each for request in leader.fetches for topic in request.topics for each in topic.partitions]


async def test_many_partitions_of_several_topics(autojump_clock, nursery):
    names = [("a", TOPIC_ID, index) for index in range(5)] + [("b", OTHER_ID, index) for index in range(5)]
    leading = [
        lead(new_partition(LEADER, index, topic=topic, topic_id=topic_id), 1) for topic, topic_id, index in names
    ]
    leader = Leader(LEADER, leading)
    follower = await Follower(nursery, leader).start()
    following = [
        follow(new_partition(FOLLOWER, index, topic=topic, topic_id=topic_id), LEADER, 1)
        for topic, topic_id, index in names
    ]
    for each in leading:
        write(each, each.index)
    for each in following:
        follower.fetchers.follow(each)
    assert follower.fetchers.partition_count == 10
    await until(lambda: all(each.log_end_offset == each.index for each in following))
    write(leading[7])
    await until(lambda: following[7].log_end_offset == leading[7].log_end_offset)
    assert len(leader.fetches[-1].topics) <= 1


async def test_records_that_have_to_be_on_disk_are_claimed_when_they_are(autojump_clock, leader, leading, follower):
    flushed: list[Partition] = []
    log = new_partition(FOLLOWER, flush_messages=1).log
    following = follow(Partition("topic", 0, log, local_id=FOLLOWER, request_flush=flushed.append), LEADER, 3)
    write(leading)
    follower.fetchers.follow(following)
    await until(lambda: following.log_end_offset == 1)
    await trio.sleep(10)
    assert len(leader.fetches) == 1
    assert flushed == [following]
    log.flush()
    following.on_flushed()
    await until(lambda: len(leader.fetches) >= 2)
    assert leader.fetches[1].topics[0].partitions[0].fetch_offset == 1


async def test_a_disk_that_failed_before_it_had_the_records_holds_nobody_up(autojump_clock, leader, leading, follower):
    following = follow(new_partition(FOLLOWER, flush_messages=1), LEADER, 3)
    write(leading)
    follower.fetchers.follow(following)
    await until(lambda: following.log_end_offset == 1)
    following.log.log_directory.take_offline(OSError("broken"))
    following.notify_watchers()
    other = follow(new_partition(FOLLOWER, 1), LEADER, 3)
    leader.partitions["topic", 1] = lead(new_partition(LEADER, 1), 3)
    write(leader.partitions["topic", 1])
    follower.fetchers.follow(other)
    await until(lambda: other.log_end_offset == 1)


async def test_a_partition_that_is_led_here_before_its_records_are_on_disk_holds_nobody_up(
    autojump_clock, leader, leading, follower
):
    following = follow(new_partition(FOLLOWER, flush_messages=1), LEADER, 3)
    write(leading)
    follower.fetchers.follow(following)
    await until(lambda: following.log_end_offset == 1)
    follower.fetchers.forget(following)
    lead(following, 4)  # and it is written to without end, so that its disk is never done with it
    other = follow(new_partition(FOLLOWER, 1), LEADER, 3)
    leader.partitions["topic", 1] = lead(new_partition(LEADER, 1), 3)
    write(leader.partitions["topic", 1])
    follower.fetchers.follow(other)
    await until(lambda: other.log_end_offset == 1)


async def test_large_answers_are_appended_in_pieces(autojump_clock, leader, leading, follower, following):
    follower.config = replace(follower.config, replica_fetch_max_bytes=10 << 20)
    write(leading, 60, b"x" * 50_000)
    seen: list[int] = []
    following.watchers.add(lambda: seen.append(following.log_end_offset))
    follower.fetchers.follow(following)
    await until(lambda: following.log_end_offset == 60)
    assert len(leader.fetches) <= 2
    assert len(set(seen)) == 12  # of 5 batches each
    assert content(following) == content(leading)


async def test_batches_longer_than_a_turn_are_appended_one_by_one(autojump_clock, leader, leading, follower, following):
    follower.config = replace(follower.config, replica_fetch_max_bytes=10 << 20)
    write(leading, 6, b"x" * 300_000)
    seen: list[int] = []
    following.watchers.add(lambda: seen.append(following.log_end_offset))
    follower.fetchers.follow(following)
    await until(lambda: following.log_end_offset == 6)
    assert len(leader.fetches) <= 2
    assert sorted(set(seen)) == [1, 2, 3, 4, 5, 6]
    assert content(following) == content(leading)


async def test_long_answers_that_cannot_be_appended_take_a_turn_each(autojump_clock, nursery, monkeypatch):
    leading = [lead(new_partition(LEADER, index), 3) for index in range(8)]
    for each in leading:
        write(each, 6, b"x" * 50_000)
    follower = await Follower(nursery, Leader(LEADER, leading)).start()
    begun: list[int] = []
    tasks_begun = 0

    class Steps(trio.abc.Instrument):
        def before_task_step(self, task: trio.lowlevel.Task) -> None:
            nonlocal tasks_begun
            tasks_begun += 1

    def fail(*_: Any, **__: Any) -> NoReturn:
        begun.append(tasks_begun)
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)

    trio.lowlevel.add_instrument(Steps())
    monkeypatch.setattr(PartitionLog, "append_as_follower", fail)
    for index in range(8):
        follower.fetchers.follow(follow(new_partition(FOLLOWER, index), LEADER, 3))
    await until(lambda: len(begun) >= 8)
    assert len(set(begun)) == len(begun)


@given(sizes=st.lists(st.integers(0, 300), max_size=8), rest=st.integers(0, 80), limit=st.integers(1, 1000))
@settings(max_examples=examples(60), deadline=None)
def test_pieces_are_cut_between_batches(sizes: list[int], rest: int, limit: int) -> None:
    batches = [bytes(batch(value=b"v" * size)) for size in sizes]
    records = memoryview(b"".join(batches) + bytes(batch(value=b"v" * 100))[:rest])
    found = list(pieces(records, limit))
    assert b"".join(found) == records
    ends = {sum(map(len, batches[:count])) for count in range(len(batches) + 1)}
    position = 0
    for piece in found[:-1]:
        position += len(piece)
        assert position in ends
    for piece in found[:-1]:
        assert len(piece) <= limit or len(piece) in map(len, batches)


# --- logs that have parted


async def test_a_follower_truncates_where_the_logs_part(autojump_clock, nursery, caplog):
    caplog.set_level(logging.INFO)
    leading = lead(history(new_partition(LEADER), 1, 1, 1, 3, 3, 6), 7)
    following = follow(history(new_partition(FOLLOWER), 1, 1, 2, 2, 4, 4, 5, 5), LEADER, 7)
    leader = Leader(LEADER, [leading])
    follower = await Follower(nursery, leader).start()
    follower.fetchers.follow(following)
    await until(lambda: content(following) == content(leading))
    await until(lambda: following.high_watermark == leading.high_watermark)
    assert following.log.end_offset_for_epoch(3) == leading.log.end_offset_for_epoch(3)
    assert [message.partition(", of ")[0] for message in caplog.messages if "removed" in message] == [
        "topic-0: truncation to epoch 3 of leader 1 removed 4 records, offsets 4 to 7",
        "topic-0: truncation to epoch 1 of leader 1 removed 2 records, offsets 2 to 3",
    ]


async def test_times_of_truncated_records_are_read_by_threads(nursery, caplog):
    caplog.set_level(logging.INFO)
    leading = lead(history(new_partition(LEADER), 1, 1, 3), 7)
    following = follow(history(new_partition(FOLLOWER), 1, 1, 2, 2), LEADER, 7)
    storage, waits = cast(MemoryStorage, following.log.log_directory.storage), []
    storage.evict()
    storage.on_wait = lambda path: waits.append(threading.get_ident())
    follower = await Follower(nursery, Leader(LEADER, [leading])).start()
    follower.fetchers.follow(following)
    with trio.fail_after(60):
        while following.log.latest_leader_epoch != 3:
            await trio.sleep(0.01)
    assert waits and threading.get_ident() not in waits
    [line] = [message for message in caplog.messages if "removed" in message]
    assert "epoch 1 of leader 1 removed 2 records, offsets 2 to 3, of 1970-01-01T00:16:40Z" in line


@given(
    common=st.lists(st.integers(1, 3), max_size=4),
    led=st.lists(st.integers(4, 9), max_size=4),
    followed=st.lists(st.integers(4, 9), max_size=4),
)
@settings(max_examples=examples(40), deadline=None)
def test_whatever_two_brokers_wrote_the_follower_comes_to_hold_what_the_leader_has(common, led, followed):
    """Epochs are one broker's alone: after a common beginning the two have no epoch in common."""
    led = [2 * epoch for epoch in sorted(led)]
    followed = [2 * epoch + 1 for epoch in sorted(followed)]
    common = sorted(common)

    async def converge() -> None:
        leading = lead(history(new_partition(LEADER), *common, *led), 30)
        following = follow(history(new_partition(FOLLOWER), *common, *followed), LEADER, 30)
        async with trio.open_nursery() as nursery:
            follower = await Follower(nursery, Leader(LEADER, [leading])).start()
            follower.fetchers.follow(following)
            write(leading)
            await until(lambda: content(following) == content(leading))
            nursery.cancel_scope.cancel()

    trio.run(converge, clock=trio.testing.MockClock(autojump_threshold=0))


def _with_producers(partition, *epochs):
    """Batches of an idempotent producer, each in a segment of its own, so that cutting takes the state of producers."""
    for number, epoch in enumerate(epochs):
        data = idempotent(partition.log.log_end_offset)
        partition.log.append_as_leader(data, leader_epoch=epoch, now_ms=NOW_MS)
        if number % 2:
            partition.log.roll(NOW_MS)
    return partition


@pytest.mark.parametrize("meanwhile", ["nothing", "the log changes", "another leader"])
async def test_what_a_cut_needs_is_read_in_a_thread_and_not_believed_of_another_log(
    autojump_clock, nursery, monkeypatch, meanwhile
):
    monkeypatch.setattr(segment_snapshots, "READ_AT_ONCE_BYTES", 0)
    leading = lead(_with_producers(new_partition(LEADER), 1, 1, 1), 7)
    following = follow(_with_producers(new_partition(FOLLOWER), *[1] * 3, *[2] * 80), LEADER, 7)
    leader = Leader(LEADER, [leading])
    original, runs = segment_snapshots.Truncation.run, []  # one for each piece

    def run(self):
        runs.append(self.offset)
        original(self)

    async def run_in_thread(work, **_):
        await trio.lowlevel.checkpoint()
        work()
        if len(runs) == 1:
            if meanwhile == "the log changes":
                following.log.layout += 1
            elif meanwhile == "another leader":
                follow(following, LEADER, 8)

    monkeypatch.setattr(segment_snapshots.Truncation, "run", run)
    monkeypatch.setattr(trio.to_thread, "run_sync", run_in_thread)
    follower = await Follower(nursery, leader).start()
    follower.fetchers.follow(following)
    if meanwhile == "another leader":
        await until(lambda: len(runs) == 1)
        await trio.sleep(5)
        assert following.log_end_offset == 83
        return
    await until(lambda: following.log_end_offset == leading.log_end_offset)
    assert len(runs) == 2 + (meanwhile == "the log changes")  # a few dozen segments at a time
    state = following.log.producers
    assert {key: entry.last_sequence for key, entry in state.items()} == {7: 2}


async def test_a_diverging_epoch_without_an_end_truncates_nothing(
    autojump_clock, leader, leading, follower, following, caplog
):
    history(following, 3, 3)
    response = failing(ErrorCode.NONE)
    response.responses[0].partitions[0].diverging_epoch = EpochEndOffset(epoch=1, end_offset=-1)
    leader.instead = [lambda request: response, lambda request: response]
    follower.fetchers.follow(following)
    await until(lambda: len(leader.fetches) >= 2)
    assert following.log_end_offset == 2
    assert len(caplog.messages) == 1


async def follower_without_epochs(nursery, *, leader_has):
    """A follower of old batches with 4 records, of which 2 are committed, and its leader, which has so many records."""
    leading = lead(new_partition(LEADER), 3)
    write(leading, leader_has)
    following = new_partition(FOLLOWER)
    history(following, 1, 1, 1, 1)
    following.log._epochs.clear()
    following.high_watermark = 2
    follow(following, LEADER, 3)
    return leading, following, await Follower(nursery, Leader(LEADER, [leading])).start()


async def test_a_follower_without_epochs_truncates_to_its_high_watermark(autojump_clock, nursery):
    """Batches of old formats carry no epoch, so that nothing can tell where the logs part."""
    _, following, follower = await follower_without_epochs(nursery, leader_has=3)
    follower.fetchers.follow(following)
    assert following.log_end_offset == 2
    await until(lambda: following.log_end_offset == 3)


async def test_records_that_cannot_be_cut_for_now_are_cut_before_others_are_appended(
    autojump_clock, nursery, monkeypatch
):
    leading, following, follower = await follower_without_epochs(nursery, leader_has=6)
    truncate, refusals = Partition.truncate_to, [KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "Too many open files")] * 3

    def truncate_later(partition, offset, *, now_ms):
        if refusals:
            raise refusals.pop()
        truncate(partition, offset, now_ms=now_ms)

    monkeypatch.setattr(Partition, "truncate_to", truncate_later)
    follower.fetchers.follow(following)
    assert following.log_end_offset == 4
    await until(lambda: following.log_end_offset == 6)
    assert not refusals
    beyond = [contents(each.log.read(2, 2**31, upper_bound=6).region) for each in (following, leading)]
    assert beyond[0] == beyond[1] != b""


# --- out of range


async def test_what_the_leader_does_not_have_is_dropped(autojump_clock, leader, leading, follower, following):
    write(leading, 3)
    history(following, 3, 3, 3, 3, 3)
    leader.instead = [lambda request: failing(ErrorCode.OFFSET_OUT_OF_RANGE)]
    follower.fetchers.follow(following)
    await until(lambda: following.log_end_offset == 3)
    (asked,) = [each for each in leader.requests if isinstance(each, ListOffsetsRequest)]
    assert (asked.replica_id, asked.topics[0].partitions[0].timestamp) == (FOLLOWER, -1)
    assert asked.topics[0].partitions[0].current_leader_epoch == 3
    write(leading)
    await until(lambda: following.log_end_offset == 4)


async def test_a_log_that_ends_before_the_leaders_begins_starts_anew_there(autojump_clock, nursery, following):
    leading = lead(new_partition(LEADER, start=20), 3)
    write(leading, 3)
    history(following, 1, 1)
    follower = await Follower(nursery, Leader(LEADER, [leading])).start()
    follower.fetchers.follow(following)
    await until(lambda: following.log_end_offset == 23)
    await until(lambda: following.high_watermark == 23)
    assert following.log_start_offset == 20
    assert content(following) == content(leading)


async def test_a_long_log_that_starts_anew_is_given_up_a_few_segments_at_a_time(
    autojump_clock, nursery, following, monkeypatch
):
    given_up_at_once = []
    for method in ("truncate_to", "truncate_fully_and_start_at"):
        original = getattr(PartitionLog, method)

        def counting(log, *arguments, original=original, **options):
            before = len(log.segments)
            outcome = original(log, *arguments, **options)
            given_up_at_once.append(before - len(log.segments))
            return outcome

        monkeypatch.setattr(PartitionLog, method, counting)
    leading = lead(new_partition(LEADER, start=200), 3)
    write(leading, 3)
    following.log.config = LogConfig(segment_bytes=100)
    history(following, *(1,) * 100)
    assert len(following.log.segments) == 100
    following.log.config = LogConfig()
    follower = await Follower(nursery, Leader(LEADER, [leading])).start()
    follower.fetchers.follow(following)
    await until(lambda: following.log_end_offset == 203)
    assert content(following) == content(leading)
    assert sum(given_up_at_once) >= 99 and max(given_up_at_once) <= 32


async def test_a_log_may_begin_within_a_batch(autojump_clock, leader, leading, follower, following):
    """Records were deleted up to an offset in the middle of a batch."""
    leading.append_as_leader(batch(NOW_MS, NOW_MS, NOW_MS, NOW_MS), required_acks=1, now_ms=NOW_MS)
    leading.delete_records(2)
    follower.fetchers.follow(following)
    await until(lambda: following.log_end_offset == 4)
    assert following.log_start_offset == 2
    assert content(following) == content(leading)


async def test_out_of_range_for_no_reason_is_tried_again(autojump_clock, leader, leading, follower, following):
    write(leading, 3)
    leader.instead = [lambda request: failing(ErrorCode.OFFSET_OUT_OF_RANGE)]
    follower.fetchers.follow(following)
    await until(lambda: following.log_end_offset == 3, within_s=0.5)


@pytest.mark.parametrize("code", [ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_SERVER_ERROR])
async def test_a_leader_that_does_not_tell_its_offsets_is_asked_again(
    autojump_clock, leader, leading, follower, following, code
):
    def unknown(request: ListOffsetsRequest) -> Any:
        response = leader._list_offsets(request)
        response.topics[0].partitions[0].error_code = code
        return response

    write(leading, 3)
    history(following, 3, 3, 3, 3, 3)
    leader.instead = [lambda request: failing(ErrorCode.OFFSET_OUT_OF_RANGE), unknown]
    follower.fetchers.follow(following)
    await trio.sleep(0.5)
    assert following.log_end_offset == 5
    await until(lambda: following.log_end_offset == 3)


async def test_a_leader_that_is_lost_while_it_is_asked_for_offsets(
    autojump_clock, leader, leading, follower, following
):
    def lose(request: object) -> None:
        raise PeerUnavailable("gone")

    write(leading, 3)
    leader.instead = [lambda request: failing(ErrorCode.OFFSET_OUT_OF_RANGE), lose]
    follower.fetchers.follow(following)
    await until(lambda: following.log_end_offset == 3)
    assert leader.connections == 2


# --- change on the way


def held(event: trio.Event, leader: Leader) -> Callable[[Any], Awaitable[Any]]:
    """Answer as always, but keep the answer until an event."""

    async def hold(request: Any) -> Any:
        version = 17 if isinstance(request, FetchRequest) else 9
        answer = await (leader._fetch(request, version) if version == 17 else leader.answer(request, version))
        await event.wait()
        return answer

    return hold


async def test_an_answer_of_an_earlier_epoch_is_dropped(autojump_clock, leader, leading, follower, following):
    sent = trio.Event()
    leader.instead = [held(sent, leader)]
    write(leading, 3)
    follower.fetchers.follow(following)
    await until(lambda: len(leader.fetches) >= 1)
    lead(leading, 5)
    follow(following, LEADER, 5)
    follower.fetchers.follow(following)
    sent.set()
    await until(lambda: len(leader.fetches) >= 2)
    assert leader.fetches[1].session_epoch == 0  # what was told is told again
    asked = leader.fetches[1].topics[0].partitions[0]
    assert (asked.current_leader_epoch, asked.fetch_offset) == (5, 0)
    await until(lambda: following.log_end_offset == 3)
    await until(lambda: following.high_watermark == leading.high_watermark)


async def test_another_leader_takes_over_while_the_first_one_does_not_answer(
    autojump_clock, nursery, leader, leading, following
):
    never = trio.Event()
    leader.instead = [held(never, leader)]
    other = lead(new_partition(3), 4)
    write(leading, 3)
    write(other, 2, b"other")
    follower = await Follower(nursery, leader, Leader(3, [other])).start()
    follower.fetchers.follow(following)
    await until(lambda: len(leader.fetches) >= 1)
    follow(following, 3, 4)
    follower.fetchers.follow(following)
    await until(lambda: following.log_end_offset == 2)
    assert content(following) == content(other)
    assert len(leader.requests) == 1


@pytest.mark.parametrize("how", ["forgotten", "leading", "deleted", "truncated"])
async def test_an_answer_to_what_is_not_followed_any_more_is_dropped(
    autojump_clock, leader, leading, follower, following, how
):
    sent = trio.Event()
    leader.instead = [held(sent, leader)]
    write(leading, 3)
    history(following, *([3] if how == "truncated" else []))
    leading.truncate_to(0 if how == "truncated" else 3, now_ms=NOW_MS)
    follower.fetchers.follow(following)
    await until(lambda: len(leader.fetches) >= 1)
    if how == "forgotten":
        follower.fetchers.forget(following)
    elif how == "leading":
        lead(following, 4)
    elif how == "deleted":
        following.mark_deleted()
    else:
        following.truncate_to(0, now_ms=NOW_MS)
    sent.set()
    await trio.sleep(5)
    assert following.log_end_offset == 0
    assert follower.fetchers.partition_count == (how != "forgotten")


async def test_a_change_between_two_pieces_of_an_answer(autojump_clock, leader, leading, follower, following):
    write(leading, 20, b"x" * 50_000)
    following.watchers.add(lambda: follower.fetchers.forget(following))
    follower.fetchers.follow(following)
    await trio.sleep(5)
    assert following.log_end_offset == 5


async def test_the_same_once_more_changes_nothing(autojump_clock, leader, leading, follower, following):
    follower.fetchers.follow(following)
    await until(lambda: len(leader.fetches) >= 3)
    for _ in range(5):
        follower.fetchers.follow(following)
    await until(lambda: len(leader.fetches) >= 6)
    assert [each.session_epoch for each in leader.fetches] == [0, 1, 2, 3, 4, 5]
    assert leader.connections == 1


async def test_a_new_partition_does_not_wait_for_a_leader_that_has_nothing_to_send(
    autojump_clock, leader, leading, follower, following
):
    follower.fetchers.follow(following)
    await until(lambda: len(leader.fetches) >= 2)
    leader.partitions["topic", 1] = lead(new_partition(LEADER, 1), 3)
    write(leader.partitions["topic", 1])
    other = follow(new_partition(FOLLOWER, 1), LEADER, 3)
    follower.fetchers.follow(other)
    await until(lambda: other.log_end_offset == 1, within_s=0.1)
    assert (leader.fetches[2].session_id, leader.fetches[2].session_epoch) == (1, 0)


async def test_an_answer_that_takes_long_is_not_given_up_again_and_again(
    autojump_clock, leader, leading, follower, following
):
    async def slow(request: Any) -> None:
        await trio.sleep(5)

    leader.instead = [slow] * 100
    write(leading)
    for number in range(100):
        follower.fetchers.follow(follow(new_partition(FOLLOWER, 1 + number), LEADER, 3))
        follower.fetchers.follow(following)
        await trio.sleep(0.2)
    await until(lambda: following.log_end_offset == 1)
    assert leader.connections < 20  # of 100 occasions


async def test_a_fetcher_ends_when_nothing_is_left_and_begins_again(
    autojump_clock, leader, leading, follower, following
):
    never = trio.Event()
    leader.instead = [held(never, leader)]
    follower.fetchers.follow(following)
    await until(lambda: len(leader.fetches) >= 1)
    follower.fetchers.forget(following)
    await until(lambda: not follower.fetchers._fetchers)
    write(leading)
    follower.fetchers.follow(following)
    await until(lambda: following.log_end_offset == 1)
    assert leader.connections == 2


async def test_a_topic_that_is_made_again_is_another_one(autojump_clock, leader, leading, follower, following):
    write(leading)
    follower.fetchers.follow(following)
    await until(lambda: len(leader.fetches) >= 3)
    following.mark_deleted()
    follower.fetchers.forget(following)
    again = lead(new_partition(LEADER, topic_id=OTHER_ID), 0)
    write(again, 2, b"again")
    leader.partitions["topic", 0] = again
    leader.tell_of("topic", OTHER_ID)
    new = follow(new_partition(FOLLOWER, topic_id=OTHER_ID), LEADER, 0)
    follower.fetchers.follow(new)
    follower.fetchers.forget(following)  # that was the other one
    await until(lambda: new.log_end_offset == 2)
    assert following.log_end_offset == 1


async def test_it_can_be_stopped_and_run_again(autojump_clock, nursery, leader, leading, follower, following):
    follower.fetchers.follow(following)
    await until(lambda: len(leader.fetches) >= 3)
    follower.scope.cancel()
    await trio.testing.wait_all_tasks_blocked()
    write(leading)
    await trio.sleep(5)
    assert following.log_end_offset == 0
    follower.scope = trio.CancelScope()
    await follower.start()
    await until(lambda: following.log_end_offset == 1)
    assert leader.fetches[3].session_epoch == 0


# --- sessions


@pytest.mark.parametrize("code", SESSION_ERRORS)
async def test_a_session_that_the_leader_does_not_serve_is_begun_anew(
    autojump_clock, leader, leading, follower, following, code
):
    follower.fetchers.follow(following)
    await until(lambda: len(leader.fetches) >= 2)
    leader.instead = [lambda request: FetchResponse(error_code=code, responses=[])]
    write(leading)
    await until(lambda: following.log_end_offset == 1)
    write(leading)
    await until(lambda: following.log_end_offset == 2)
    anew = next(each for each in leader.fetches[3:] if each.session_epoch == 0)
    assert anew.session_id == (0 if code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND else 1)
    assert leader.connections == 1


async def test_a_leader_that_refuses_again_and_again_is_left_alone_in_between(
    autojump_clock, leader, leading, follower, following
):
    leader.instead = [lambda request: FetchResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR, responses=[])] * 100
    follower.fetchers.follow(following)
    await trio.sleep(20)
    assert 10 <= len(leader.fetches) <= 50


async def test_a_leader_without_sessions_is_told_everything_each_time(
    autojump_clock, leader, leading, follower, following
):
    leader.sessions._slots = 0
    write(leading)
    follower.fetchers.follow(following)
    await until(lambda: following.log_end_offset == 1)
    write(leading)
    await until(lambda: following.log_end_offset == 2)
    assert {(each.session_id, each.session_epoch, len(each.topics)) for each in leader.fetches} == {(0, 0, 1)}


async def test_a_session_that_the_leader_ends_is_begun_anew(autojump_clock, leader, leading, follower, following):
    follower.fetchers.follow(following)
    await until(lambda: len(leader.fetches) >= 2)
    leader.instead = [lambda request: FetchResponse(session_id=0, responses=[])]
    await until(lambda: len(leader.fetches) >= 4)
    assert (leader.fetches[3].session_id, leader.fetches[3].session_epoch) == (0, 0)


@pytest.mark.parametrize("is_full", [True, False])
async def test_answers_to_other_questions_are_not_used(
    autojump_clock, leader, leading, follower, following, is_full, caplog
):
    strange = failing(ErrorCode.NONE, topic_id=bytes(15) + b"x")
    empty = FetchResponse(session_id=9, responses=[])
    if is_full:
        leader.instead = [lambda request: strange, lambda request: empty]
    write(leading)
    follower.fetchers.follow(following)
    await until(lambda: following.log_end_offset == 1)
    if not is_full:
        leader.instead = [lambda request: strange]
        write(leading)
        await until(lambda: following.log_end_offset == 2)
    assert ["answered fetch session" in message for message in caplog.messages] == [True] * (2 if is_full else 1)


# --- topics without ids


async def test_a_topic_without_an_id_is_fetched_by_name(autojump_clock, nursery, leader, leading, following):
    leader.partitions["old", 0] = lead(new_partition(LEADER, topic="old", topic_id=None), 3)
    leader.tell_of("old", None)
    old = follow(new_partition(FOLLOWER, topic="old", topic_id=None), LEADER, 3)
    versions: list[int] = []
    really = leader.answer

    async def note(request: Any, version: int) -> Any:
        versions.append(version)
        return await really(request, version)

    leader.answer = note
    follower = await Follower(nursery, leader).start()
    write(leading)
    follower.fetchers.follow(following)
    await until(lambda: following.log_end_offset == 1)
    assert set(versions) == {17}
    write(leader.partitions["old", 0])
    follower.fetchers.follow(old)
    await until(lambda: old.log_end_offset == 1)
    assert versions[-1] == 12
    assert {topic.topic for topic in leader.fetches[-2].topics} <= {"topic", "old"}
    write(leading)
    await until(lambda: following.log_end_offset == 2)
    old.log.topic_id = bytes(15) + b"o"  # the controller has given it one
    leader.cluster.remove_topic("old")
    leader.tell_of("old", bytes(15) + b"o")
    await until(lambda: versions[-1] == 17)
    write(leader.partitions["old", 0])
    await until(lambda: old.log_end_offset == 2)
    assert leader.connections <= 2


# --- errors


UNDER_WAY = [
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
]


@pytest.mark.parametrize("code", UNDER_WAY)
async def test_a_leader_that_has_not_heard_of_it_is_asked_again_soon(
    autojump_clock, leader, leading, follower, following, code
):
    def refuse(request: Any) -> Any:
        response = failing(code)
        response.session_id = request.session_id
        return response

    write(leading)
    leader.instead = [refuse] * 3
    follower.fetchers.follow(following)
    await until(lambda: following.log_end_offset == 1, within_s=0.2)


async def test_a_leader_that_does_not_hear_of_it_is_asked_ever_less(
    autojump_clock, leader, leading, follower, following
):
    def refuse(request: Any) -> Any:
        response = failing(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        response.session_id = request.session_id
        return response

    leader.instead = [refuse] * 1000
    follower.fetchers.follow(following)
    await trio.sleep(30)
    asked = sum(bool(topic.partitions) for each in leader.fetches for topic in each.topics)
    assert 25 < asked < 45


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ],
)
async def test_a_partition_with_an_error_is_left_alone_for_a_while(
    autojump_clock, leader, leading, follower, following, code, caplog
):
    caplog.set_level(logging.INFO)
    leader.partitions["topic", 1] = lead(new_partition(LEADER, 1), 3)
    other = follow(new_partition(FOLLOWER, 1), LEADER, 3)
    follower.fetchers.follow(following)
    follower.fetchers.follow(other)
    await until(lambda: len(leader.fetches) >= 2)

    def refuse(request: Any) -> Any:
        response = failing(code)
        response.session_id = request.session_id
        return response

    leader.instead = [refuse]
    refused_s = trio.current_time() + 0.5
    await until(lambda: not leader.instead)
    write(leader.partitions["topic", 1])
    write(leading)
    await until(lambda: other.log_end_offset == 1, within_s=0.5)
    await until(lambda: following.log_end_offset == 1)
    assert trio.current_time() - refused_s > 0.9
    assert any(topic.partitions == [0] for each in leader.fetches for topic in each.forgotten_topics_data)
    assert [code.name in message for message in caplog.messages if "Cannot fetch" in message] == [True]


async def test_an_error_that_this_version_does_not_know(autojump_clock, leader, leading, follower, following):
    leader.instead = [lambda request: failing(9999)]
    write(leading)
    follower.fetchers.follow(following)
    await until(lambda: following.log_end_offset == 1)


async def test_damaged_records_are_fetched_again(autojump_clock, leader, leading, follower, following, caplog):
    def damage(request: Any) -> Any:
        response = failing(ErrorCode.NONE)
        records = bytearray(content(leading))
        records[-1] ^= 1
        response.responses[0].partitions[0].records = memoryview(records)
        return response

    write(leading, 3)
    leader.instead = [damage, damage]
    follower.fetchers.follow(following)
    await until(lambda: following.log_end_offset == 3)
    assert following.log_end_offset == 3
    assert content(following) == content(leading)
    assert len(caplog.messages) == 1
    assert "checksum" in caplog.messages[0]
    assert trio.current_time() > 1.9


async def test_records_without_a_whole_batch_are_not_asked_for_in_a_loop(
    autojump_clock, leader, leading, follower, following
):
    def part(request: Any) -> Any:
        response = failing(ErrorCode.NONE)
        response.responses[0].partitions[0].records = memoryview(content(leading))[:-1]
        return response

    write(leading)
    leader.instead = [part] * 10
    follower.fetchers.follow(following)
    await trio.sleep(5)
    assert len(leader.fetches) <= 6
    await until(lambda: following.log_end_offset == 1)


async def test_batches_of_a_later_epoch_wait_for_the_controller(autojump_clock, leader, leading, follower, following):
    """A deposed leader may send what it fetched from its successor (KAFKA-18723)."""
    write(leading, 2)
    leading.log.append_as_leader(batch(), leader_epoch=4, now_ms=NOW_MS)
    follower.fetchers.follow(following)
    await until(lambda: following.log_end_offset == 2)
    await trio.sleep(5)
    assert following.log_end_offset == 2
    lead(leading, 4)
    follow(following, LEADER, 4)
    follower.fetchers.follow(following)
    await until(lambda: following.log_end_offset == 3)


async def test_a_failed_log_directory_stops_its_partitions_alone(
    autojump_clock, leader, leading, follower, following, caplog
):
    leader.partitions["topic", 1] = lead(new_partition(LEADER, 1), 3)
    other = follow(new_partition(FOLLOWER, 1), LEADER, 3)
    follower.fetchers.follow(following)
    follower.fetchers.follow(other)
    await until(lambda: len(leader.fetches) >= 2)
    following.log.log_directory.take_offline(OSError("broken"))
    caplog.clear()
    write(leading)
    write(leader.partitions["topic", 1])
    await until(lambda: other.log_end_offset == 1)
    await trio.sleep(20)
    assert following.log_end_offset == 0
    assert ["broken" in message or "KAFKA_STORAGE_ERROR" in message for message in caplog.messages] == [True]


async def test_a_bug_concerns_one_partition_until_its_next_epoch(
    autojump_clock, leader, leading, follower, following, monkeypatch, caplog
):
    write(leading)
    monkeypatch.setattr(PartitionLog, "append_as_follower", lambda *_, **__: 1 / 0)
    follower.fetchers.follow(following)
    await trio.sleep(5)
    assert len(leader.fetches) == 1
    assert "cannot be fetched" in caplog.messages[0]
    monkeypatch.undo()
    follower.fetchers.follow(following)
    await until(lambda: following.log_end_offset == 1)


async def test_a_leader_that_is_away_is_tried_again(autojump_clock, leader, leading, follower, following, caplog):
    caplog.set_level(logging.INFO)
    follower.fetchers.follow(following)
    await until(lambda: len(leader.fetches) >= 3)
    leader.is_reachable = False
    await trio.sleep(1)
    write(leading)
    await trio.sleep(9)
    assert 9 <= len(follower.connected) <= 12
    leader.is_reachable = True
    await until(lambda: following.log_end_offset == 1, within_s=2)
    assert any(each.session_epoch == 0 for each in leader.fetches[3:])
    assert caplog.messages == []  # the way to it has said so


async def test_a_leader_that_never_answers_is_given_up(autojump_clock, leader, leading, follower, following):
    leader.instead = [held(trio.Event(), leader)]
    follower.config = replace(follower.config, replica_socket_timeout_ms=3_000)
    write(leading)
    follower.fetchers.follow(following)
    await until(lambda: following.log_end_offset == 1)
    assert 4 <= trio.current_time() <= 4.1


# --- throttle


async def test_a_throttled_follower_waits_while_it_is_not_in_sync(autojump_clock, leader, leading, follower, following):
    leader.partitions["topic", 1] = lead(new_partition(LEADER, 1), 3)
    other = follow(new_partition(FOLLOWER, 1), LEADER, 3)
    follower.throttle.throttled = {("topic", 0)}
    follower.throttle.exceeded = True
    write(leading, 3)
    write(leader.partitions["topic", 1])
    follower.fetchers.follow(following)
    follower.fetchers.follow(other)
    await until(lambda: other.log_end_offset == 1)
    await trio.sleep(5)
    assert following.log_end_offset == 0
    assert follower.throttle.recorded == 0
    follower.throttle.exceeded = False
    await until(lambda: following.log_end_offset == 3)
    assert follower.throttle.recorded == len(content(leading))
    await until(lambda: following.high_watermark == 3)
    follower.throttle.exceeded = True
    write(leading)  # in sync: it may always go on
    await until(lambda: following.log_end_offset == 4)


async def test_a_follower_that_is_throttled_on_the_way_leaves_the_session(
    autojump_clock, leader, leading, follower, following
):
    follower.config = replace(follower.config, replica_fetch_max_bytes=100)
    follower.throttle.throttled = {("topic", 0)}
    follower.throttle.record = lambda size, now_ms: setattr(follower.throttle, "exceeded", True)
    write(leading, 5)
    follower.fetchers.follow(following)
    for end in range(1, 5):
        await until(lambda end=end: following.log_end_offset == end)
        await trio.sleep(3)
        assert following.log_end_offset == end
        follower.throttle.exceeded = False
    await until(lambda: following.log_end_offset == 5)


# --- several fetchers


async def test_several_fetchers_share_the_partitions_of_a_leader(autojump_clock, nursery):
    leading = [lead(new_partition(LEADER, index), 1) for index in range(9)]
    following = [follow(new_partition(FOLLOWER, index), LEADER, 1) for index in range(9)]
    follower = Follower(nursery, Leader(LEADER, leading))
    follower.config = replace(follower.config, num_replica_fetchers=3)
    follower.fetchers.resize()
    for each in following:
        follower.fetchers.follow(each)
    await follower.start()
    for count in (3, 1, 2):
        follower.config = replace(follower.config, num_replica_fetchers=count)
        for each in leading:
            write(each)
        await until(lambda: all(each.log_end_offset == leading[0].log_end_offset for each in following))
        await until(lambda count=count: len(follower.fetchers._fetchers) == count)
        numbers = {follower.fetchers._followed["topic", each.index][0].number for each in following}
        assert numbers == set(range(count))
    assert {number for _, number in follower.connected} == {0, 1, 2}
    assert ZERO_UUID not in {topic.topic_id for topic in follower.leaders[LEADER].fetches[0].topics}
