"""Offsets of transactions, open and ended: what is asked about one partition, and what that costs while there are very many."""

from __future__ import annotations

import random
from typing import Any

import pytest
import trio
import trio.testing

from ottla.groupcoord.offsets import table, transactional
from ottla.groupcoord.offsets.pending import CommittedOffset, PendingOffsets
from ottla.groupcoord.offsets.table import (
    SETTLED_AT_ONCE,
    OffsetCommitKey,
    OffsetCommitValue,
    OffsetRecord,
    Offsets,
    OffsetTable,
    offset_tombstone,
)
from ottla.groupcoord.runtime.answers import finished
from ottla.groupcoord.runtime.coordinator_shard import TransactionEnd
from ottla.groupcoord.shard import ELEMENTS_PER_SLICE
from ottla.groupcoord.tests.fakes import Coordination, FakeTopics
from ottla.groupcoord.tests.runtime.test_runtime import committed as asked_for
from ottla.groupcoord.tests.runtime.test_runtime import offset_of
from ottla.groupcoord.tests.steps import counted
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.groups import DeleteGroupsRequest
from ottla.wire.messages.offsets import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from ottla.wire.messages.transactions import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from ottla.wire.tests.effort import first

Place = tuple[str, str, int]

PLACES: list[Place] = [(group, topic, partition) for group in "ab" for topic in "tu" for partition in range(2)]
PRODUCER, EPOCH = 9, 4
MANY = 5 * SETTLED_AT_ONCE


def committed(offset: int = 1) -> CommittedOffset:
    return CommittedOffset(offset, -1, "", 0, -1, bytes(16), offset)


def everything(pending: PendingOffsets) -> set[Place]:
    return {
        (group_id, topic, partition)
        for group_id in "ab"
        for topic, partitions in pending.group(group_id).items()
        for partition in partitions
    }


class Plain:
    """Offsets as they would be if every marker moved all of its transaction at once, in the simplest of ways."""

    def __init__(self) -> None:
        self.committed: dict[Place, tuple[int, int]] = {}
        self.open: dict[int, dict[Place, tuple[int, int]]] = {}

    def replay(self, place: Place, offset: int, record_offset: int, producer_id: int) -> None:
        held = self.committed if producer_id < 0 else self.open.setdefault(producer_id, {})
        held[place] = (record_offset, offset)

    def remove(self, place: Place) -> None:
        for held in (self.committed, *self.open.values()):
            held.pop(place, None)

    def end(self, producer_id: int, *, commits: bool) -> None:
        for place, offset in self.open.pop(producer_id, {}).items():
            if commits:
                self.committed[place] = max(offset, self.committed.get(place, offset))

    def answer(self, place: Place, *, require_stable: bool) -> int | None:
        if require_stable and any(place in each for each in self.open.values()):
            return None
        return self.committed.get(place, (0, -1))[1]


def answers(offsets: Offsets, *, require_stable: bool, whole: bool = False) -> dict[Place, int | None]:
    """What is fetched, for each place; None is UNSTABLE_OFFSET_COMMIT."""
    found = {}
    for group in "ab":
        topics = [OffsetFetchRequestTopics(name=name, partition_indexes=[0, 1]) for name in "tu"]
        asked = OffsetFetchRequestGroup(group_id=group, topics=None if whole else topics)
        for topic in offsets.fetch(asked, require_stable=require_stable).topics:
            for each in topic.partitions:
                is_stable = each.error_code != ErrorCode.UNSTABLE_OFFSET_COMMIT
                found[group, topic.name, each.partition_index] = each.committed_offset if is_stable else None
    return found


@pytest.mark.parametrize("settled_at_once", [0, 1, 3, 1000])
@pytest.mark.parametrize("seed", first(2, range(10)))
def test_nobody_sees_whether_a_transaction_is_settled(
    seed: int, settled_at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ottla.groupcoord.offsets.table.SETTLED_AT_ONCE", settled_at_once)
    chance = random.Random(seed)
    offsets, plain = Offsets(metadata_max=10, retention_ms=1), Plain()
    for record_offset in range(300):
        producer_id, place = chance.randrange(-1, 4), chance.choice(PLACES)
        match chance.choice(("put", "put", "put", "remove", "end", "settle")):
            case "put":
                value = OffsetCommitValue(offset=record_offset * 7 % 100, metadata="", commit_timestamp=0)
                key = OffsetCommitKey(group=place[0], topic=place[1], partition=place[2])
                offsets.replay(OffsetRecord(key, value), record_offset, producer_id)
                plain.replay(place, value.offset, record_offset, producer_id)
            case "remove":
                offsets.replay(offset_tombstone(*place), record_offset)
                plain.remove(place)
            case "end":
                commits = chance.random() < 0.7
                offsets.replay_marker(producer_id, committed=commits)
                plain.end(producer_id, commits=commits)
            case _:
                offsets.settle()
        for require_stable in (False, True):
            expected = {place: plain.answer(place, require_stable=require_stable) for place in PLACES}
            assert answers(offsets, require_stable=require_stable) == expected
            whole = {place: expected[place] for place in plain.committed}
            assert answers(offsets, require_stable=require_stable, whole=True) == whole
            assert snapshot_of(offsets, require_stable=require_stable) == whole
        held = {*plain.committed, *(place for each in plain.open.values() for place in each)}
        assert {place for place in PLACES if offsets.has(*place)} == held
        assert forgotten(offsets) == held


def snapshot_of(offsets: Offsets, *, require_stable: bool) -> dict[Place, int | None]:
    """The same, told in parts."""
    return {
        (group, topic.name, each.partition_index): (
            None if each.error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT else each.committed_offset
        )
        for group in "ab"
        for part in offsets.snapshot(group, require_stable=require_stable).parts(1)
        for topic in part
        for each in topic.partitions
    }


def forgotten(offsets: Offsets) -> set[Place]:
    return {place for place in offsets.places_of_topics({"t": bytes(16), "u": bytes(16)}) if place is not None}


@pytest.mark.parametrize("seed", first(5, range(20)))
def test_both_snapshots_say_the_same(seed: int) -> None:
    chance = random.Random(seed)
    pending, table = PendingOffsets(), OffsetTable()
    expected: dict[int, dict[Place, int]] = {}
    for offset in range(300):
        producer_id, place = chance.randrange(5), chance.choice(PLACES)
        match chance.choice(("put", "put", "put", "remove", "end")):
            case "put":
                pending.put(producer_id, *place, committed(offset))
                expected.setdefault(producer_id, {})[place] = offset
            case "remove":
                pending.remove(*place)
                for offsets in expected.values():
                    offsets.pop(place, None)
            case _:
                pending.end(producer_id, committed=True)
                pending.settle(table.put_if_newer, 100)
                for place, known in expected.pop(producer_id, {}).items():
                    settled = table.get(*place)
                    assert settled is not None and settled.offset >= known
        places = {place for offsets in expected.values() for place in offsets}
        assert everything(pending) == places
        assert {place for place in PLACES if pending.is_open(*place)} == places
        assert {group_id for group_id in "ab" if group_id in pending} == {place[0] for place in places}
        for topic in "tu":
            assert set(pending.groups_of(topic)) == {place[0] for place in places if place[1] == topic}
    assert not pending.is_settling


class Untouchable(dict):  # type: ignore[type-arg]
    """Transactions of others, at which nobody may look."""

    def __getitem__(self, key: object, default: object = None) -> object:
        raise AssertionError(f"somebody looked at the transaction of {key}")

    def __iter__(self) -> object:
        raise AssertionError("somebody walked through all transactions")

    get = pop = __getitem__
    keys = values = items = __iter__


def test_no_offset_of_a_deleted_topic_is_missed_when_its_transaction_ends_in_between() -> None:
    offsets = Offsets(metadata_max=100, retention_ms=1)
    for record_offset, (group, producer_id) in enumerate((("a", -1), ("b", PRODUCER), ("c", PRODUCER))):
        value = OffsetCommitValue(offset=1, metadata="", commit_timestamp=0)
        offsets.replay(
            OffsetRecord(OffsetCommitKey(group=group, topic="t", partition=0), value), record_offset, producer_id
        )
    walk = offsets.places_of_topics({"t": bytes(16)})
    found = {next(walk)}
    offsets.replay_marker(PRODUCER, committed=True)
    assert found.union(walk) == {("a", "t", 0), ("b", "t", 0), ("c", "t", 0)}


@pytest.mark.parametrize("others", [0, SETTLED_AT_ONCE + 100])
def test_an_offset_of_a_later_topic_is_not_forgotten_with_the_one_before(others: int) -> None:
    deleted, later = b"d" * 16, b"l" * 16

    def record(topic: str, partition: int, topic_id: bytes) -> OffsetRecord:
        value = OffsetCommitValue(
            offset=5, leader_epoch=-1, metadata="", commit_timestamp=0, expire_timestamp=-1, topic_id=topic_id
        )
        return OffsetRecord(OffsetCommitKey(group="group", topic=topic, partition=partition), value)

    offsets = Offsets(metadata_max=100, retention_ms=10**9)
    offsets.replay(record("topic", 0, deleted), 1)
    for number in range(others):
        offsets.replay(record("other", number, deleted), 2 + number, PRODUCER)
    offsets.replay(record("topic", 0, later), 2 + others, PRODUCER)
    assert set(offsets.places_of_topics({"topic": deleted})) == {None}, "it is still open"
    assert offsets.replay_marker(PRODUCER, committed=True) == (others > 0)
    assert set(offsets.places_of_topics({"topic": deleted})) == {None}


def test_nobody_walks_through_the_transactions_of_others() -> None:
    pending = PendingOffsets()
    for producer_id in range(50):
        pending.put(producer_id, "a", "t", producer_id, committed())
    pending._by_producer = Untouchable(pending._by_producer)
    assert not pending.is_open("b", "t", 0) and pending.is_open("a", "t", 7)
    assert "b" not in pending and not pending.group("b") and len(pending.group("a")["t"]) == 50
    pending.remove("b", "t", 0)
    pending.remove("a", "t", 7)
    with pytest.raises(AssertionError, match="transaction of 7"):
        pending.end(7, committed=True)


# --- many at once -----------------------------------------------------------------------------------------------------


def test_a_marker_moves_only_some_of_many_offsets_and_all_of_them_count() -> None:
    pending, table = PendingOffsets(), CountingTable()
    for index in range(MANY):
        pending.put(PRODUCER, "a", "t", index, committed(index))
    pending.end(PRODUCER, committed=True)
    assert table.puts == 0
    while pending.is_settling:
        before = table.puts
        pending.settle(table.put_if_newer, 100)
        assert table.puts - before <= 100
        for index in (0, MANY // 2, MANY - 1):
            newest = pending.newest("a", "t", index, table.get("a", "t", index))
            assert newest is not None and newest.offset == index
    assert table.puts == MANY and "a" not in pending


def test_very_many_small_transactions_are_settled_some_at_a_time_as_well() -> None:
    pending, table = PendingOffsets(), CountingTable()
    for producer_id in range(300):
        pending.put(producer_id, "a", "t", producer_id, committed())
        pending.end(producer_id, committed=False)
    steps = 0
    while pending.is_settling:
        pending.settle(table.put_if_newer, 100)
        steps += 1
    assert steps == 6 and table.puts == 0  # each costs its offset and itself


class CountingTable(OffsetTable):
    puts = 0

    def put_if_newer(self, *arguments: Any) -> None:
        self.puts += 1
        super().put_if_newer(*arguments)


@pytest.fixture
async def talk(nursery: trio.Nursery, mock_clock: trio.testing.MockClock) -> Coordination:
    talk = Coordination(group_initial_rebalance_delay_ms=0)
    talk.topics = FakeTopics(topic=MANY)
    talk.groups = talk.new_coordinator()
    await talk.start(nursery)
    return talk


async def until_settled(talk: Coordination, clock: trio.testing.MockClock) -> None:
    while offsets_in(talk)._pending.is_settling:
        clock.jump(0.001)
        await trio.testing.wait_all_tasks_blocked()


async def commit_many(talk: Coordination, offset: int) -> None:
    partitions = [
        TxnOffsetCommitRequestPartition(partition_index=index, committed_offset=offset, committed_metadata="")
        for index in range(MANY)
    ]
    request = TxnOffsetCommitRequest(
        transactional_id="tx",
        group_id="group",
        producer_id=PRODUCER,
        producer_epoch=EPOCH,
        topics=[TxnOffsetCommitRequestTopic(name="topic", partitions=partitions)],
    )
    answer = await finished(talk.groups.transactional_offsets.txn_offset_commit(request, api_version=5))
    assert {each.error_code for each in answer.topics[0].partitions} == {ErrorCode.NONE}


async def end_it(talk: Coordination, *, commits: bool = True) -> None:
    how = TransactionEnd(PRODUCER, EPOCH, 7, committed=commits, transaction_version=2)
    partition = talk.groups.partition_for("group")
    assert await finished(talk.groups.end_transaction(partition, how)) is ErrorCode.NONE


def offsets_in(talk: Coordination) -> Offsets:
    shard = talk.groups._runtime.shard_of("group")
    return next(part._offsets for part in shard._managers if hasattr(part, "_offsets"))


def committed_at(talk: Coordination) -> set[int]:
    """The offsets of the first, the middle and the last partition."""
    asked = OffsetFetchRequestTopics(name="topic", partition_indexes=[0, MANY // 2, MANY - 1])
    answer = talk.groups._runtime.read("group", OffsetFetchRequestGroup(group_id="group", topics=[asked]))
    return {each.committed_offset for each in answer.topics[0].partitions}


@pytest.mark.parametrize("commit_seconds", [0, 1])
@pytest.mark.parametrize(("commits", "offset"), [(True, 6), (False, 5)])
async def test_a_large_transaction_ends_at_one_moment_and_is_settled_in_its_time(
    talk: Coordination, mock_clock: trio.testing.MockClock, commits: bool, offset: int, commit_seconds: float
) -> None:
    made = ("OffsetCommitRequestPartition", "TxnOffsetCommitResponsePartition")
    with counted(*((transactional, name) for name in made)) as steps:
        await commit_many(talk, 5)
    assert set(steps.all.values()) == {MANY} and max(steps.most.values()) <= ELEMENTS_PER_SLICE
    await end_it(talk)
    await commit_many(talk, 6)
    talk.log.commit_seconds = commit_seconds
    mock_clock.autojump_threshold = 0
    await end_it(talk, commits=commits)
    mock_clock.autojump_threshold = float("inf")
    assert offsets_in(talk)._pending.is_settling
    assert committed_at(talk) == {offset}
    assert offset_of(await finished(asked_for(talk, require_stable=True))) == offset
    await until_settled(talk, mock_clock)
    assert committed_at(talk) == {offset}


@pytest.mark.parametrize("require_stable", [False, True])
async def test_all_offsets_of_a_large_group_are_told_in_slices_and_are_those_of_one_moment(
    talk: Coordination, require_stable: bool
) -> None:
    await commit_many(talk, 5)
    await end_it(talk)
    await commit_many(talk, 6)
    all_of_it = OffsetFetchRequestGroup(group_id="group", topics=None)
    request = OffsetFetchRequest(groups=[all_of_it], require_stable=require_stable)
    found: list[Any] = []

    async def fetch() -> None:
        found.append(await finished(talk.groups.offsets.offset_fetch(request, api_version=9)))

    with counted((table, "OffsetFetchResponsePartitions")) as steps:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fetch)
            while not steps.all:
                await trio.lowlevel.checkpoint()
            await end_it(talk)  # in the middle of it
        assert steps.all == {"OffsetFetchResponsePartitions": MANY}
        assert steps.most["OffsetFetchResponsePartitions"] <= ELEMENTS_PER_SLICE
    [topic] = found[0].groups[0].topics
    assert [each.partition_index for each in topic.partitions] == list(range(MANY))
    expected = (ErrorCode.UNSTABLE_OFFSET_COMMIT, -1) if require_stable else (ErrorCode.NONE, 5)
    assert {(each.error_code, each.committed_offset) for each in topic.partitions} == {expected}


async def test_a_load_leaves_a_large_transaction_to_be_settled(
    talk: Coordination, mock_clock: trio.testing.MockClock
) -> None:
    await commit_many(talk, 5)
    await end_it(talk)
    index = talk.groups.partition_for("group")
    for _ in range(2):  # the second time in the middle of it
        talk.groups.on_resignation(index)
        talk.groups.on_election(index)
        await trio.testing.wait_all_tasks_blocked()
        assert offsets_in(talk)._pending.is_settling
        assert committed_at(talk) == {5}
    await until_settled(talk, mock_clock)
    assert committed_at(talk) == {5}


async def test_a_group_that_is_deleted_takes_what_is_not_settled_with_it(
    talk: Coordination, mock_clock: trio.testing.MockClock
) -> None:
    await commit_many(talk, 5)
    await end_it(talk)
    answer = await finished(talk.groups.delete_groups(DeleteGroupsRequest(groups_names=["group"])))
    assert [each.error_code for each in answer.results] == [ErrorCode.NONE]
    assert committed_at(talk) == {-1}
    await until_settled(talk, mock_clock)
    assert committed_at(talk) == {-1}
    assert "group" not in offsets_in(talk)._pending
