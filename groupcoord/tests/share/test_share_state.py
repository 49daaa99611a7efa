"""Leaders of share partitions talk to a shard. After every step the log alone has to lead to the same state."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.groupcoord.config import ShareCoordinatorConfig
from ottla.groupcoord.runtime.answers import Caller, Reply
from ottla.groupcoord.runtime.coordinator_shard import FORGETTING_REFUSED, Outcome
from ottla.groupcoord.share.coordinator.records import (
    SharePartitionKey,
    SnapshotRecord,
    UpdateRecord,
    decode_record,
    encode_record,
)
from ottla.groupcoord.share.coordinator.shard import RECORDS_PER_CALL, ShareCoordinatorShard
from ottla.groupcoord.share.coordinator.state import initial_snapshot
from ottla.groupcoord.share.coordinator.state_requests import (
    DeleteState,
    ForgetTopics,
    InitializeState,
    ReadState,
    ReadSummary,
    Request,
    WriteState,
)
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.share_group_state import StateBatch, WriteStatePartition
from ottla.wire.tests.effort import first
from ottla.wire.tests.garbage import nothing_is_left_of

TOPIC, OTHER, UNKNOWN = bytes([1] * 16), bytes([2] * 16), bytes([3] * 16)
START_MS = 1_700_000_000_000
COLD_MS = 300_000
ACKNOWLEDGED = 2


class Asked(Caller):
    """One request on its way: `response` is there once it was answered."""

    __slots__ = ("response",)

    def __init__(self) -> None:
        super().__init__(ErrorCode)
        self.response: Any = None

    @property
    def error(self) -> ErrorCode:
        return ErrorCode(self.response.error_code)


class Conversation:
    """Requests of leaders to a shard and its answers, with a log that commits at once and a clock that tests move."""

    def __init__(self, updates_per_snapshot: int = 3) -> None:
        self.config = ShareCoordinatorConfig(
            share_coordinator_snapshot_update_records_per_snapshot=updates_per_snapshot
        )
        partitions = SimpleNamespace(partitions=range(600))
        self.topics = SimpleNamespace(topic_by_id={TOPIC: partitions, OTHER: partitions})
        self.now_ms = 0
        self.log: list[tuple[bytes, bytes | None]] = []
        self.log_start_offset = 0
        self.refusal = ErrorCode.NONE
        self.shard = self.read_log()

    def times(self) -> dict[str, int]:
        return {"now_ms": self.now_ms, "timestamp_ms": START_MS + self.now_ms}

    def read_log(self) -> ShareCoordinatorShard:
        """The shard that a restart would come to."""
        shard = ShareCoordinatorShard(self.config, self.topics)
        for offset, (key, value) in enumerate(self.log):
            if offset >= self.log_start_offset:
                record = decode_record(key, value)
                assert record is not None
                shard.replay(record, offset)
        assert shard.loaded(**self.times()) == Outcome([], [], [])
        return shard

    def carry_out(self, outcome: Outcome[Any]) -> None:
        self.send(outcome.replies)
        if not self.refusal:
            for record in outcome.records:
                self.log.append(encode_record(record))
                self.shard.replay(record, len(self.log) - 1)
        self.send(self.shard.settle(outcome.settlements, self.refusal, **self.times()))
        assert self.shard.states() == self.read_log().states()
        assert self.shard.redundant_end_offset() == self.read_log().redundant_end_offset()

    def send(self, replies: list[Reply]) -> None:
        for caller, response in replies:
            assert isinstance(caller, Asked) and caller.response is None
            caller.response = response

    def ask(self, request: Request) -> Asked:
        asked = Asked()
        self.carry_out(self.shard.handle(request, asked, **self.times()))
        assert asked.response is not None
        return asked

    def advance(self, milliseconds: int) -> None:
        end_ms = self.now_ms + milliseconds
        while (deadline_ms := self.shard.next_deadline_ms()) is not None and deadline_ms <= end_ms:
            self.now_ms = max(self.now_ms, deadline_ms)
            assert self.shard.stands_alone(self.now_ms)
            self.carry_out(self.shard.expire(**self.times()))
        self.now_ms = end_ms

    # ------------------------------------------------------------------ what leaders say

    def initialize(
        self, start_offset: int = -1, *, state_epoch: int = 0, key: SharePartitionKey | None = None
    ) -> Asked:
        return self.ask(InitializeState(key or share_partition(), state_epoch, start_offset))

    def write(
        self,
        *batches: tuple[int, int, int, int],
        start_offset: int = -1,
        count: int = -1,
        leader_epoch: int = 0,
        state_epoch: int = 0,
        key: SharePartitionKey | None = None,
    ) -> Asked:
        return self.ask(
            written(
                *batches,
                start_offset=start_offset,
                count=count,
                leader_epoch=leader_epoch,
                state_epoch=state_epoch,
                key=key,
            )
        )

    def read(self, leader_epoch: int = 0, key: SharePartitionKey | None = None) -> Asked:
        return self.ask(ReadState(key or share_partition(), leader_epoch))

    def summary(self, key: SharePartitionKey | None = None) -> Any:
        return self.ask(ReadSummary(key or share_partition())).response

    def kinds(self) -> str:
        """Snapshots, updates and ends in the log, one letter for each."""
        letters = []
        for key, value in self.log:
            record = decode_record(key, value)
            is_end = isinstance(record, SnapshotRecord) and record.value is None
            letters.append("u" if isinstance(record, UpdateRecord) else "e" if is_end else "s")
        return "".join(letters)


def share_partition(partition: int = 0, *, topic: bytes = TOPIC, group: str = "group") -> SharePartitionKey:
    return SharePartitionKey(group, topic, partition)


def written(
    *batches: tuple[int, int, int, int],
    start_offset: int = -1,
    count: int = -1,
    leader_epoch: int = 0,
    state_epoch: int = 0,
    key: SharePartitionKey | None = None,
) -> WriteState:
    found = key or share_partition()
    data = WriteStatePartition(
        partition=found.partition,
        state_epoch=state_epoch,
        leader_epoch=leader_epoch,
        start_offset=start_offset,
        delivery_complete_count=count,
        state_batches=[
            StateBatch(first_offset=first, last_offset=last, delivery_state=state, delivery_count=delivered)
            for first, last, state, delivered in batches
        ],
    )
    return WriteState(found, data)


def batches_of(asked: Asked) -> list[tuple[int, int, int, int]]:
    return [
        (each.first_offset, each.last_offset, each.delivery_state, each.delivery_count)
        for each in asked.response.state_batches
    ]


@pytest.fixture
def talk() -> Conversation:
    return Conversation()


def known(talk: Conversation, count: int) -> None:
    """Let a log from before hold so many share partitions."""
    for partition in range(count):
        value = initial_snapshot(None, state_epoch=0, start_offset=0, timestamp_ms=START_MS)
        talk.log.append(encode_record(SnapshotRecord(share_partition(partition), value)))
    talk.shard = talk.read_log()


# ---------------------------------------------------------------------- initialize


def test_initialized_share_partition_is_known(talk: Conversation) -> None:
    assert talk.initialize(5).error is ErrorCode.NONE
    read = talk.read()
    assert (read.error, read.response.start_offset, read.response.state_epoch) == (ErrorCode.NONE, 5, 0)
    assert batches_of(read) == []


def test_unloaded_shard_is_freed_without_the_garbage_collector(talk: Conversation) -> None:
    talk.initialize(5)
    with nothing_is_left_of(ShareCoordinatorShard):
        talk.shard.unload(ErrorCode.NOT_COORDINATOR)
        talk.shard = talk.read_log()


@pytest.mark.parametrize(("start_offset", "count"), [(-1, -1), (0, 0), (7, 0)])
def test_without_a_start_nothing_is_known_of_what_was_delivered(
    talk: Conversation, start_offset: int, count: int
) -> None:
    talk.initialize(start_offset)
    assert talk.summary().delivery_complete_count == count


def test_same_initialization_again_writes_nothing(talk: Conversation) -> None:
    talk.initialize(5)
    assert talk.initialize(5).error is ErrorCode.NONE
    assert talk.kinds() == "s"


def test_new_initialization_begins_anew(talk: Conversation) -> None:
    talk.initialize(5)
    talk.write((5, 9, ACKNOWLEDGED, 1), start_offset=5, leader_epoch=3)
    assert talk.initialize(2, state_epoch=1).error is ErrorCode.NONE
    read = talk.read(3)
    assert (read.response.start_offset, read.response.state_epoch, batches_of(read)) == (2, 1, [])


def test_initialization_of_an_earlier_state_is_fenced(talk: Conversation) -> None:
    talk.initialize(5, state_epoch=2)
    assert talk.initialize(5, state_epoch=1).error is ErrorCode.FENCED_STATE_EPOCH


# ---------------------------------------------------------------------- write


def test_what_is_written_can_be_read(talk: Conversation) -> None:
    talk.initialize(0)
    assert talk.write((0, 4, ACKNOWLEDGED, 1), (5, 9, 0, 1), start_offset=0, count=5).error is ErrorCode.NONE
    assert batches_of(talk.read()) == [(0, 4, ACKNOWLEDGED, 1), (5, 9, 0, 1)]
    assert talk.summary().delivery_complete_count == 5


def test_start_never_moves_back(talk: Conversation) -> None:
    talk.initialize(0)
    talk.write((0, 9, ACKNOWLEDGED, 1), start_offset=10, count=1)
    talk.write((0, 14, ACKNOWLEDGED, 1), start_offset=3, count=9)
    read = talk.read()
    assert (read.response.start_offset, batches_of(read)) == (10, [(10, 14, ACKNOWLEDGED, 1)])
    assert talk.summary().delivery_complete_count == 1


@pytest.mark.parametrize(("start_offset", "count"), [(10, 4), (12, 2), (-1, 4)])
def test_count_is_that_of_the_later_start(talk: Conversation, start_offset: int, count: int) -> None:
    talk.initialize(0)
    talk.write(start_offset=10, count=4)
    talk.write(start_offset=start_offset, count=2)
    assert talk.summary().delivery_complete_count == count


def test_snapshot_follows_so_many_updates(talk: Conversation) -> None:
    talk.initialize(0)
    for offset in range(8):
        talk.write((offset, offset, ACKNOWLEDGED, 1), start_offset=0)
    assert talk.kinds() == "suuusuuus"
    assert batches_of(talk.read()) == [(0, 7, ACKNOWLEDGED, 1)]


def test_every_write_is_a_snapshot_where_no_updates_are_wanted() -> None:
    talk = Conversation(updates_per_snapshot=0)
    talk.initialize(0)
    talk.write((0, 0, ACKNOWLEDGED, 1), start_offset=0)
    talk.write((1, 1, ACKNOWLEDGED, 1), start_offset=0)
    assert talk.kinds() == "sss"


def test_writers_of_the_past_are_fenced(talk: Conversation) -> None:
    talk.initialize(0, state_epoch=2)
    talk.read(leader_epoch=3)
    assert talk.write(leader_epoch=2, state_epoch=2).error is ErrorCode.FENCED_LEADER_EPOCH
    assert talk.write(leader_epoch=3, state_epoch=1).error is ErrorCode.FENCED_STATE_EPOCH
    assert talk.write(leader_epoch=3, state_epoch=2).error is ErrorCode.NONE


def test_leader_stays_fenced_after_a_new_initialization(talk: Conversation) -> None:
    talk.initialize(0)
    talk.read(leader_epoch=3)
    talk.initialize(0, state_epoch=1)
    assert talk.write(leader_epoch=2, state_epoch=1).error is ErrorCode.FENCED_LEADER_EPOCH


@pytest.mark.parametrize(
    "request_",
    [
        InitializeState(share_partition(-1), 0, 0),
        InitializeState(share_partition(), -1, 0),
        ReadState(share_partition(-1), 0),
        ReadState(share_partition(), -1),
        written(key=share_partition(-1)),
        written(leader_epoch=-1),
        written(state_epoch=-1),
        written((5, 4, ACKNOWLEDGED, 1)),
        DeleteState(share_partition(-1)),
        ReadSummary(share_partition(-1)),
        ReadState(share_partition(1), 0),
        written(key=share_partition(1)),
        written(key=share_partition(group="other")),
    ],
    ids=str,
)
def test_impossible_requests_are_refused_and_change_nothing(talk: Conversation, request_: Request) -> None:
    talk.initialize(0)
    assert talk.ask(request_).error is ErrorCode.INVALID_REQUEST
    assert talk.kinds() == "s"


@pytest.mark.parametrize("key", [share_partition(600), share_partition(topic=UNKNOWN)], ids=["partition", "topic"])
def test_partitions_that_do_not_exist(talk: Conversation, key: SharePartitionKey) -> None:
    for request in (InitializeState(key, 0, 0), DeleteState(key), ReadSummary(key)):
        assert talk.ask(request).error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_deleted_topic_is_unknown_to_reads_and_writes(talk: Conversation) -> None:
    talk.initialize(0)
    del talk.topics.topic_by_id[TOPIC]
    assert talk.read().error is talk.write().error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


# ---------------------------------------------------------------------- read, summary, delete


def test_read_of_a_new_leader_is_written_down_once(talk: Conversation) -> None:
    talk.initialize(4)
    talk.write((4, 5, ACKNOWLEDGED, 1), start_offset=4, count=2)
    assert batches_of(talk.read(leader_epoch=2)) == batches_of(talk.read(leader_epoch=2)) == [(4, 5, ACKNOWLEDGED, 1)]
    assert talk.kinds() == "suu"
    assert talk.read(leader_epoch=1).error is ErrorCode.FENCED_LEADER_EPOCH
    assert (talk.summary().leader_epoch, talk.summary().delivery_complete_count) == (2, 2)


def test_summary_of_an_unknown_share_partition(talk: Conversation) -> None:
    found = talk.summary()
    assert (found.error_code, found.start_offset, found.delivery_complete_count) == (0, -1, -1)
    assert (found.leader_epoch, found.state_epoch) == (0, 0)


def test_deleted_share_partition_is_unknown(talk: Conversation) -> None:
    talk.initialize(4)
    assert talk.ask(DeleteState(share_partition())).error is ErrorCode.NONE
    assert talk.read().error is ErrorCode.INVALID_REQUEST
    assert talk.ask(DeleteState(share_partition())).error is ErrorCode.NONE
    assert talk.kinds() == "se"


def test_topics_are_forgotten_some_share_partitions_at_a_time(talk: Conversation) -> None:
    count = RECORDS_PER_CALL + 2
    known(talk, count)
    talk.initialize(key=share_partition(topic=OTHER))
    found = [talk.ask(ForgetTopics([TOPIC])).response for _ in range(3)]
    assert found == [RECORDS_PER_CALL, 2, 0]
    assert set(talk.shard.states()) == {share_partition(topic=OTHER)}


class Unwalked(dict[Any, Any]):
    """States that are looked up only: a walk along all of them grows with topics that are not concerned."""

    def __iter__(self) -> Any:
        raise AssertionError("walked")


def test_a_topic_is_forgotten_without_a_walk_along_the_states_of_others(talk: Conversation) -> None:
    talk.initialize()
    talk.initialize(key=share_partition(topic=OTHER))
    talk.shard._states = Unwalked(talk.shard._states)
    outcome = talk.shard.handle(ForgetTopics([TOPIC, UNKNOWN]), Asked(), **talk.times())
    assert [record.key for record in outcome.records] == [share_partition()]


# ---------------------------------------------------------------------- refusals of the log


def test_what_the_log_refuses_never_happened(talk: Conversation) -> None:
    talk.initialize(0)
    talk.refusal = ErrorCode.NOT_COORDINATOR
    assert talk.write((0, 4, ACKNOWLEDGED, 1)).error is ErrorCode.NOT_COORDINATOR
    assert talk.initialize(9, state_epoch=1).error is ErrorCode.NOT_COORDINATOR
    assert talk.initialize(key=share_partition(1)).error is ErrorCode.NOT_COORDINATOR
    assert talk.ask(DeleteState(share_partition())).error is ErrorCode.NOT_COORDINATOR
    assert talk.read(leader_epoch=5).error is ErrorCode.NOT_COORDINATOR
    assert talk.ask(ForgetTopics([TOPIC])).response == FORGETTING_REFUSED
    talk.refusal = ErrorCode.NONE
    assert batches_of(talk.read()) == []


def test_writes_that_are_refused_together_are_taken_back_together(talk: Conversation) -> None:
    talk.initialize(0)
    before = talk.shard.states()
    outcomes = [
        talk.shard.handle(written((offset, offset, ACKNOWLEDGED, 1), start_offset=0), Asked(), **talk.times())
        for offset in range(3)
    ]
    assert len(talk.shard.states()[share_partition()].state_batches) == 1
    settlements = [each for outcome in outcomes for each in outcome.settlements]
    replies = talk.shard.settle(settlements, ErrorCode.COORDINATOR_NOT_AVAILABLE, **talk.times())
    assert {reply.response.error_code for reply in replies} == {ErrorCode.COORDINATOR_NOT_AVAILABLE}
    assert len(replies) == 3 and talk.shard.states() == before


# ---------------------------------------------------------------------- cold share partitions, and pruning


def test_share_partition_that_is_rarely_written_to_gets_a_new_snapshot(talk: Conversation) -> None:
    talk.initialize(0)
    talk.write((0, 4, ACKNOWLEDGED, 1), start_offset=0)
    talk.advance(COLD_MS)
    assert talk.kinds() == "sus"
    assert batches_of(talk.read()) == [(0, 4, ACKNOWLEDGED, 1)]


def test_quiet_share_partitions_are_left_alone(talk: Conversation) -> None:
    talk.initialize(0)
    talk.advance(10 * COLD_MS)
    assert talk.kinds() == "ss"


def test_quiet_share_partition_gets_snapshots_while_another_is_not_quiet(talk: Conversation) -> None:
    talk.initialize(0)
    talk.advance(COLD_MS)
    talk.initialize(0, key=share_partition(1))
    talk.advance(COLD_MS)
    assert talk.kinds() == "sssss"


def test_very_many_cold_share_partitions_get_their_snapshots_in_parts(talk: Conversation) -> None:
    known(talk, RECORDS_PER_CALL + 2)
    talk.advance(COLD_MS - 1)
    talk.now_ms += 1
    first = talk.shard.expire(**talk.times())
    talk.carry_out(first)
    assert len(first.records) == RECORDS_PER_CALL
    talk.advance(1)
    assert len(talk.log) == 2 * (RECORDS_PER_CALL + 2)


def test_records_before_the_first_snapshot_are_redundant(talk: Conversation) -> None:
    talk.initialize(0)
    assert talk.shard.redundant_end_offset() is None
    talk.initialize(0, key=share_partition(1))
    assert talk.shard.redundant_end_offset() is None
    for offset in range(4):
        talk.write((offset, offset, ACKNOWLEDGED, 1), start_offset=0)
    assert talk.kinds() == "ssuuus" and talk.shard.redundant_end_offset() == 1
    talk.ask(DeleteState(share_partition(1)))
    assert talk.shard.redundant_end_offset() == 5
    talk.ask(DeleteState(share_partition()))
    assert talk.shard.redundant_end_offset() == 7


@pytest.mark.parametrize("seed", first(10, range(60)))
def test_random_conversations_survive_refusals_restarts_and_pruning(seed: int) -> None:
    chance = random.Random(seed)
    talk = Conversation(updates_per_snapshot=chance.choice((0, 1, 3, 10)))
    keys = [share_partition(index, group=group) for index in range(2) for group in ("a", "b")]
    for _ in range(120):
        key, epoch = chance.choice(keys), chance.randrange(4)
        talk.refusal = ErrorCode.NOT_COORDINATOR if chance.random() < 0.1 else ErrorCode.NONE
        first = chance.randrange(30)
        requests: list[Request] = [
            InitializeState(key, chance.randrange(3), chance.randrange(-1, 10)),
            ReadState(key, epoch),
            DeleteState(key),
            ForgetTopics([chance.choice((TOPIC, OTHER))]),
        ]
        write = written(
            (first, first + chance.randrange(5), chance.choice((0, 2, 4)), chance.randrange(1, 4)),
            start_offset=chance.randrange(-1, 30),
            count=chance.randrange(-1, 9),
            leader_epoch=epoch,
            state_epoch=chance.randrange(3),
            key=key,
        )
        talk.ask(chance.choice(requests) if chance.random() < 0.3 else write)
        if chance.random() < 0.05:
            talk.advance(chance.choice((1000, COLD_MS)))
        if chance.random() < 0.05:
            before = talk.shard.states()
            # What a restart finds after the redundant records are gone lacks nothing that is known.
            talk.log_start_offset = talk.shard.redundant_end_offset() or 0
            talk.shard = talk.read_log()
            assert _without_epochs(talk.shard.states()) == _without_epochs(before)


def _without_epochs(states: dict[Any, Any]) -> dict[Any, Any]:
    """Without what only the records that were cut off told: the highest leader epoch, and when a snapshot was due."""
    return {
        key: (
            state.start_offset,
            state.state_epoch,
            state.leader_epoch,
            state.state_batches,
            state.delivery_complete_count,
        )
        for key, state in states.items()
    }
