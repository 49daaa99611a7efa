"""The share coordinator on virtual time: requests about many share partitions, commits, restarts, and pruning."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from ottla.groupcoord.config import ShareCoordinatorConfig
from ottla.groupcoord.runtime.answers import finished
from ottla.groupcoord.share.coordinator.records import SharePartitionKey, decode_record
from ottla.groupcoord.share.coordinator.service import BATCHES_MAX, ELEMENTS_PER_SLICE, ShareCoordinator
from ottla.groupcoord.share.coordinator.shard import ShareCoordinatorShard
from ottla.groupcoord.tests.fakes import PARTITION_COUNT, FakeLog, FakeTopics
from ottla.groupcoord.tests.steps import counted
from ottla.wire.answers import PendingAnswer
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages import share_group_state
from ottla.wire.messages.share_group_state import StateBatch, WriteStatePartition
from ottla.wire.record_decoding import decode_records
from ottla.wire.records import read_header
from ottla.wire.time_slice import TimeSlice

ACKNOWLEDGED = 2
PRUNE_S = 300
MANY = 1_200


class ShareLog(FakeLog):
    """Partitions in memory that can lose their beginning."""

    def __init__(self) -> None:
        super().__init__()
        self.deletions: list[tuple[int, int]] = []
        self.deletion_refusal: ErrorCode | None = None

    def delete_records(self, partition: int, offset: int) -> None:
        if self.deletion_refusal:
            raise KafkaError(self.deletion_refusal)
        self.deletions.append((partition, offset))
        batches = self.batches[partition]
        self.batches[partition] = [each for each in batches if read_header(each).next_offset > offset]

    def kinds(self) -> list[str]:
        """The kinds of records in the log."""
        return [
            type(decode_record(each.key, each.value)).__name__
            for batches in self.batches.values()
            for batch in batches
            for each in decode_records(batch)
        ]


class ShareCoordination:
    """A running share coordinator of all partitions, its log and its topics."""

    def __init__(self, **config: Any) -> None:
        self.log = ShareLog()
        self.topics = FakeTopics(topic=MANY, other=2)
        self.topic_id, self.other_id = (each.topic_id for each in self.topics.topic_by_id.values())
        self.config = ShareCoordinatorConfig(**config)
        self.coordinator = self.new_coordinator()

    def new_coordinator(self) -> ShareCoordinator:
        return ShareCoordinator(
            self.config, self.log, self.topics, wall_clock=lambda: round(trio.current_time() * 1000) + 1_700_000_000_000
        )

    async def start(self, nursery: trio.Nursery) -> None:
        """Run the coordinator and wait until all partitions are loaded."""
        self.coordinator.start_in(nursery)
        for partition in range(PARTITION_COUNT):
            self.coordinator.on_election(partition)
        await trio.testing.wait_all_tasks_blocked()

    def initialize(self, *partitions: int, start_offset: int = 0) -> Any:
        data = [
            share_group_state.InitializeStatePartition(partition=index, state_epoch=0, start_offset=start_offset)
            for index in partitions
        ]
        topics = [share_group_state.InitializeStateData(topic_id=self.topic_id, partitions=data)]
        request = share_group_state.InitializeShareGroupStateRequest(group_id="group", topics=topics)
        return self.coordinator.initialize(request, api_version=0)

    def write(self, *partitions: int, offset: int = 0, batches: int = 1, leader_epoch: int = 0) -> Any:
        data = [
            WriteStatePartition(
                partition=index,
                state_epoch=0,
                leader_epoch=leader_epoch,
                start_offset=0,
                state_batches=[
                    StateBatch(
                        first_offset=offset + 2 * number,
                        last_offset=offset + 2 * number,
                        delivery_state=ACKNOWLEDGED,
                        delivery_count=1,
                    )
                    for number in range(batches)
                ],
            )
            for index in partitions
        ]
        topics = [share_group_state.WriteStateData(topic_id=self.topic_id, partitions=data)]
        request = share_group_state.WriteShareGroupStateRequest(group_id="group", topics=topics)
        return self.coordinator.write(request, api_version=1)

    def read(self, *partitions: int, leader_epoch: int = 0) -> Any:
        data = [
            share_group_state.ReadStatePartition(partition=index, leader_epoch=leader_epoch) for index in partitions
        ]
        topics = [share_group_state.ReadStateData(topic_id=self.topic_id, partitions=data)]
        request = share_group_state.ReadShareGroupStateRequest(group_id="group", topics=topics)
        return self.coordinator.read(request, api_version=0)

    def summaries(self, *partitions: int) -> Any:
        data = [share_group_state.ReadStatePartition(partition=index, leader_epoch=0) for index in partitions]
        topics = [share_group_state.ReadStateSummaryData(topic_id=self.topic_id, partitions=data)]
        request = share_group_state.ReadShareGroupStateSummaryRequest(group_id="group", topics=topics)
        return self.coordinator.read_summary(request, api_version=1)

    def delete(self, *partitions: int) -> Any:
        data = [share_group_state.DeleteStatePartition(partition=index) for index in partitions]
        topics = [share_group_state.DeleteStateData(topic_id=self.topic_id, partitions=data)]
        request = share_group_state.DeleteShareGroupStateRequest(group_id="group", topics=topics)
        return self.coordinator.delete(request, api_version=0)


def results(response: Any) -> dict[int, Any]:
    """The results of the one topic, by share partition."""
    (topic,) = response.results
    found = {each.partition: each for each in topic.partitions}
    assert len(found) == len(topic.partitions)
    return found


def errors(response: Any) -> dict[int, ErrorCode]:
    return {index: ErrorCode(result.error_code) for index, result in results(response).items()}


def offsets(response: Any, partition: int = 0) -> list[tuple[int, int]]:
    return [(each.first_offset, each.last_offset) for each in results(response)[partition].state_batches]


async def collect(answers: dict[Any, Any], name: Any, answer: Any) -> None:
    answers[name] = await finished(answer)


# ---------------------------------------------------------------------- answers


async def test_everything_is_answered_at_once_where_the_log_commits_at_once(
    autojump_clock: trio.abc.Clock, nursery: trio.Nursery
) -> None:
    talk = ShareCoordination()
    await talk.start(nursery)
    assert errors(talk.initialize(0, 1, MANY)) == {
        0: ErrorCode.NONE,
        1: ErrorCode.NONE,
        MANY: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert errors(talk.write(0, 5)) == {0: ErrorCode.NONE, 5: ErrorCode.INVALID_REQUEST}
    assert offsets(talk.read(0)) == [(0, 0)]
    assert results(talk.summaries(0, 5))[5].start_offset == -1
    assert errors(talk.delete(0)) == {0: ErrorCode.NONE}
    assert errors(talk.read(0, 1)) == {0: ErrorCode.INVALID_REQUEST, 1: ErrorCode.NONE}


async def test_share_partition_that_comes_twice_is_answered_once(
    autojump_clock: trio.abc.Clock, nursery: trio.Nursery
) -> None:
    talk = ShareCoordination()
    await talk.start(nursery)
    talk.initialize(0, 0)
    assert errors(talk.write(0, 0)) == {0: ErrorCode.NONE}
    assert talk.log.kinds() == ["SnapshotRecord", "UpdateRecord", "UpdateRecord"]


@pytest.mark.parametrize("group_id", ["", "group"])
async def test_requests_about_nothing_get_no_results(
    autojump_clock: trio.abc.Clock, nursery: trio.Nursery, group_id: str
) -> None:
    talk = ShareCoordination()
    await talk.start(nursery)
    topics = [share_group_state.WriteStateData(topic_id=talk.topic_id, partitions=[])]
    if not group_id:
        data = WriteStatePartition(partition=0, state_epoch=0, leader_epoch=0, start_offset=0, state_batches=[])
        topics = [share_group_state.WriteStateData(topic_id=talk.topic_id, partitions=[data])]
    for asked in (topics, topics * ELEMENTS_PER_SLICE * 2, []):
        request = share_group_state.WriteShareGroupStateRequest(group_id=group_id, topics=asked)
        assert (await finished(talk.coordinator.write(request, api_version=1))).results == []


async def test_write_is_answered_when_it_is_committed(autojump_clock: trio.abc.Clock, nursery: trio.Nursery) -> None:
    talk = ShareCoordination()
    await talk.start(nursery)
    talk.initialize(0)
    talk.log.commit_seconds = 2
    answer = talk.write(0)
    assert isinstance(answer, PendingAnswer) and not answer.is_ready
    assert errors(await finished(answer)) == {0: ErrorCode.NONE}
    assert trio.current_time() == pytest.approx(2, abs=0.01)


async def test_small_writes_that_wait_together_share_an_append(
    autojump_clock: trio.abc.Clock, nursery: trio.Nursery
) -> None:
    talk = ShareCoordination()
    await talk.start(nursery)
    talk.initialize(0)
    talk.log.commit_seconds = 2
    before = sum(map(len, talk.log.batches.values()))
    answers: dict[int, Any] = {}
    async with trio.open_nursery() as askers:
        for number in range(20):
            askers.start_soon(collect, answers, number, talk.write(0, offset=number))
    assert trio.current_time() == pytest.approx(4, abs=0.01)
    assert sum(map(len, talk.log.batches.values())) == before + 2
    assert all(errors(answer) == {0: ErrorCode.NONE} for answer in answers.values())
    assert offsets(await finished(talk.read(0))) == [(0, 19)]


async def test_read_waits_for_the_writes_before_it(autojump_clock: trio.abc.Clock, nursery: trio.Nursery) -> None:
    talk = ShareCoordination()
    await talk.start(nursery)
    talk.initialize(0)
    talk.log.commit_seconds = 2
    nursery.start_soon(collect, {}, "first", talk.write(0))
    nursery.start_soon(collect, {}, "second", talk.write(0, offset=1))
    assert offsets(await finished(talk.read(0))) == [(0, 1)]
    assert trio.current_time() == pytest.approx(4, abs=0.01)


async def test_long_requests_are_worked_off_in_parts(autojump_clock: trio.abc.Clock, nursery: trio.Nursery) -> None:
    talk = ShareCoordination()
    await talk.start(nursery)
    everything = range(MANY)
    no_errors = dict.fromkeys(everything, ErrorCode.NONE)
    assert errors(await finished(talk.initialize(*everything))) == no_errors
    assert errors(await finished(talk.write(*everything))) == no_errors
    assert errors(await finished(talk.read(*everything))) == no_errors
    assert offsets(await finished(talk.read(*everything)), MANY - 1) == [(0, 0)]


async def test_no_share_partition_takes_more_batches_than_one_can_have(
    autojump_clock: trio.abc.Clock, nursery: trio.Nursery
) -> None:
    talk = ShareCoordination()
    await talk.start(nursery)
    talk.initialize(0)
    assert errors(await finished(talk.write(0, batches=BATCHES_MAX + 1))) == {0: ErrorCode.INVALID_REQUEST}
    assert errors(await finished(talk.write(0, batches=BATCHES_MAX))) == {0: ErrorCode.NONE}
    assert len(offsets(talk.read(0))) == BATCHES_MAX


# ---------------------------------------------------------------------- coming and going


async def test_who_does_not_coordinate_says_so(autojump_clock: trio.abc.Clock, nursery: trio.Nursery) -> None:
    talk = ShareCoordination()
    assert errors(talk.write(0)) == {0: ErrorCode.COORDINATOR_NOT_AVAILABLE}
    await talk.start(nursery)
    key = SharePartitionKey("group", talk.topic_id, 0)
    talk.coordinator.on_resignation(talk.coordinator.partition_for(key))
    result = results(talk.write(0))[0]
    assert result.error_code == ErrorCode.NOT_COORDINATOR
    assert result.error_message == f"Unable to write share group state: {ErrorCode.NOT_COORDINATOR.message}"
    talk.coordinator.on_election(talk.coordinator.partition_for(key))
    assert errors(talk.read(0)) == {0: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}


async def test_state_outlives_the_coordinator(autojump_clock: trio.abc.Clock, nursery: trio.Nursery) -> None:
    talk = ShareCoordination()
    await talk.start(nursery)
    talk.initialize(0, start_offset=0)
    talk.write(0, offset=4)
    talk.coordinator = talk.new_coordinator()
    await talk.start(nursery)
    assert offsets(talk.read(0)) == [(4, 4)]


async def test_write_that_cannot_be_committed_is_forgotten(
    autojump_clock: trio.abc.Clock, nursery: trio.Nursery
) -> None:
    talk = ShareCoordination()
    await talk.start(nursery)
    talk.initialize(0)
    talk.log.commit_seconds, talk.log.failure = 1, ErrorCode.REQUEST_TIMED_OUT
    assert errors(await finished(talk.write(0))) == {0: ErrorCode.COORDINATOR_NOT_AVAILABLE}
    talk.log.commit_seconds = 0
    await trio.testing.wait_all_tasks_blocked()
    assert offsets(talk.read(0)) == []


async def test_write_that_is_refused_is_forgotten_with_those_that_share_its_append(
    autojump_clock: trio.abc.Clock, nursery: trio.Nursery
) -> None:
    talk = ShareCoordination()
    await talk.start(nursery)
    talk.initialize(0)
    talk.log.commit_seconds = 2
    answers: dict[int, Any] = {}
    async with trio.open_nursery() as askers:
        for number in range(3):
            askers.start_soon(collect, answers, number, talk.write(0, offset=number * 2))
        talk.log.refusal = ErrorCode.NOT_ENOUGH_REPLICAS
    refused = {0: ErrorCode.COORDINATOR_NOT_AVAILABLE}
    assert [errors(answers[number]) for number in range(3)] == [{0: ErrorCode.NONE}, refused, refused]
    assert offsets(talk.read(0)) == [(0, 0)]


# ---------------------------------------------------------------------- deleted topics


async def test_share_partitions_of_deleted_topics_are_forgotten_as_soon_as_the_log_lets_them(
    autojump_clock: trio.abc.Clock, nursery: trio.Nursery
) -> None:
    talk = ShareCoordination()
    await talk.start(nursery)
    await finished(talk.initialize(*range(MANY)))
    talk.log.refusal = ErrorCode.NOT_ENOUGH_REPLICAS
    await talk.coordinator.on_topics_deleted({"topic": talk.topic_id})
    assert results(talk.summaries(7))[7].start_offset == 0
    talk.log.refusal = None
    await trio.sleep(2)
    response = await finished(talk.summaries(*range(MANY)))
    assert {each.start_offset for each in results(response).values()} == {-1}


# ---------------------------------------------------------------------- pruning


async def test_redundant_records_are_cut_off_and_the_rest_is_enough(
    autojump_clock: trio.abc.Clock, nursery: trio.Nursery
) -> None:
    talk = ShareCoordination(share_coordinator_snapshot_update_records_per_snapshot=2)
    await talk.start(nursery)
    talk.initialize(0)
    for offset in range(4):
        talk.write(0, offset=offset)
    await trio.sleep(PRUNE_S - 1)
    assert talk.log.deletions == []
    talk.log.deletion_refusal = ErrorCode.OFFSET_OUT_OF_RANGE
    await trio.sleep(1.5)
    talk.log.deletion_refusal = None
    assert offsets(talk.read(0)) == [(0, 3)]
    await trio.sleep(PRUNE_S)
    ((partition, offset),) = talk.log.deletions
    assert offset > 0 and partition == talk.coordinator.partition_for(SharePartitionKey("group", talk.topic_id, 0))
    assert talk.log.kinds()[0] == "SnapshotRecord"
    talk.coordinator = talk.new_coordinator()
    await talk.start(nursery)
    assert offsets(talk.read(0)) == [(0, 3)]


async def test_what_is_pruned_is_not_pruned_again(autojump_clock: trio.abc.Clock, nursery: trio.Nursery) -> None:
    talk = ShareCoordination()
    await talk.start(nursery)
    talk.initialize(0)
    await trio.sleep(5 * PRUNE_S)
    # The only new snapshot is the one of a share partition that was quiet for long.
    assert [offset for _, offset in talk.log.deletions] == [1]


async def test_a_request_about_many_share_partitions_gives_others_a_turn_between_appends(
    autojump_clock: trio.abc.Clock, nursery: trio.Nursery
) -> None:
    talk = ShareCoordination()
    await talk.start(nursery)
    with counted((ShareCoordinatorShard, "handle"), (TimeSlice, "yield_if_over")) as steps:
        assert set(errors(await finished(talk.initialize(*range(200)))).values()) == {ErrorCode.NONE}
    assert steps.all["handle"] == 200
    assert steps.all["yield_if_over"] == 200, "if its time slice is over"
