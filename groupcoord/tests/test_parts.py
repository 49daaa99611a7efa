"""A kind of groups enters a shard by what it registers: shown with the tally groups of `tally.py` beside the others."""

import pytest
import trio
import trio.testing

from ottla.groupcoord.config import GroupConfig
from ottla.groupcoord.group_settings import GroupSettings
from ottla.groupcoord.manager import GroupType, MetadataManager, ShardContext
from ottla.groupcoord.runtime.answers import Caller, finished
from ottla.groupcoord.runtime.coordinator_runtime import Runtime
from ottla.groupcoord.runtime.coordinator_shard import COMPRESSED_FROM, RECORDS_PER_BATCH, Appended
from ottla.groupcoord.service import GROUP_TYPES, GroupTypes, shard_kind
from ottla.groupcoord.shard import Shard
from ottla.groupcoord.tests.conversation import GROUP, Asked, Conversation
from ottla.groupcoord.tests.fakes import FakeImages, FakeLog, beside_the_loop
from ottla.groupcoord.tests.tally import SESSION_MS, TALLY, Add, Sum, TallyGroup
from ottla.wire.answers import Given
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequestGroup,
)
from ottla.wire.record_decoding import decode_records

WITH_TALLY = (*GROUP_TYPES, TALLY)
MANY = {f"member {number}": 1 for number in range(4 * RECORDS_PER_BATCH)}


def tally_talk() -> Conversation:
    return Conversation(WITH_TALLY)


def add(talk: Conversation, group: str = GROUP, **numbers: int) -> Asked:
    return talk.ask(Add(group, numbers), 0)


def total(talk: Conversation, group: str = GROUP) -> int:
    return talk.shard.read(Sum(group), now_ms=talk.now_ms)


def commit_as(talk: Conversation, member_id: str, *partitions: int) -> set[int]:
    committed = [
        OffsetCommitRequestPartition(partition_index=each, committed_offset=5, committed_metadata="")
        for each in partitions
    ]
    topics = [OffsetCommitRequestTopic(name="topic", partitions=committed)]
    request = OffsetCommitRequest(group_id=GROUP, member_id=member_id, generation_id_or_member_epoch=1, topics=topics)
    (answer,) = talk.ask(request, 9).response.topics
    return {each.error_code for each in answer.partitions}


# ---------------------------------------------------------------------- registration


def test_requests_reads_records_and_deadlines_reach_the_kind_that_registered_them() -> None:
    talk = tally_talk()
    assert add(talk, a=1, b=2).response == {"a": 1, "b": 2}
    talk.advance(SESSION_MS - 1)
    assert add(talk, a=10).response == {"a": 11}
    assert total(talk) == 13
    talk.restart()
    assert total(talk) == 13, "loaded from the log"
    talk.advance(SESSION_MS - 1)
    add(talk, a=0)
    talk.advance(1)
    assert total(talk) == 11, "b was silent for too long"


def test_groups_of_all_kinds_live_side_by_side() -> None:
    talk = tally_talk()
    talk.join_twice(group="classic")
    add(talk, "tally", a=1)
    assert {(each.group_id, each.group_type) for each in talk.listed()} == {("classic", "classic"), ("tally", "tally")}
    assert [each.group_id for each in talk.listed(types=["Tally"])] == ["tally"]
    assert [each.group_id for each in talk.listed(states=["counting"])] == ["tally"]
    assert talk.shard.group_count == 2


def test_a_request_goes_to_the_kind_of_the_group_if_that_has_adopted_it() -> None:
    talk = tally_talk()
    add(talk, "tally", a=1)
    assert talk.join(group="tally").response == "a tally group counts its members itself"
    assert talk.join(group="new").error is ErrorCode.MEMBER_ID_REQUIRED, "the owner makes a group of its own kind"
    assert talk.join(group="new", version=3).response is None
    assert talk.state("new") == "PreparingRebalance"


def test_a_classic_request_for_a_group_of_a_kind_that_did_not_adopt_it_is_refused() -> None:
    kind = GroupType(make=_without_adoption, formats=TALLY.formats, overlapping=TALLY.overlapping)
    talk = Conversation((*GROUP_TYPES, kind))
    add(talk, a=1)
    refused = talk.join("somebody")
    assert refused.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL and refused.response.member_id == ""
    assert talk.leave(("a", None)).response.members[0].error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert talk.state() == "Dead" and total(talk) == 1


def _without_adoption(context: ShardContext) -> MetadataManager:
    part = TALLY.make(context)
    part.adopted = {}
    return part


def test_the_same_type_cannot_be_registered_twice() -> None:
    with pytest.raises(AssertionError, match="registered twice"):
        Conversation((*WITH_TALLY, TALLY))


# ---------------------------------------------------------------------- offsets and the end of groups


def test_offsets_are_committed_and_fetched_as_the_kind_allows() -> None:
    talk = tally_talk()
    add(talk, a=1)
    assert commit_as(talk, "b", 0) == {ErrorCode.UNKNOWN_MEMBER_ID}
    assert commit_as(talk, "a", 0) == {ErrorCode.NONE}
    assert talk.committed() == 5
    assert commit_as(talk, "a", 2, 1) == {ErrorCode.STALE_MEMBER_EPOCH}, "one partition spoils all of the request"
    assert talk.committed(partition=2) == -1
    asked = OffsetFetchRequestGroup(group_id=GROUP, member_id="b", member_epoch=1, topics=None)
    assert talk.shard.read(asked, now_ms=0).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    deleted = talk.delete_offset("topic").response.topics[0].partitions[0]
    assert deleted.error_code == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC


def test_a_group_is_deleted_with_its_offsets() -> None:
    talk = tally_talk()
    add(talk, a=1, b=2)
    commit_as(talk, "a", 0)
    assert talk.delete_group() is ErrorCode.NONE
    assert (total(talk), talk.committed(), talk.listed()) == (-1, -1, [])
    talk.restart()
    assert (total(talk), talk.committed(), talk.listed()) == (-1, -1, [])


def test_offsets_without_members_make_way_for_any_kind_of_group() -> None:
    talk = tally_talk()
    talk.commit(7)
    assert [each.group_type for each in talk.listed()] == ["classic"]
    add(talk, a=1)
    assert [each.group_type for each in talk.listed()] == ["tally"] and talk.committed() == 7
    talk.restart()
    assert [each.group_type for each in talk.listed()] == ["tally"] and talk.committed() == 7


def test_unloading_tells_the_groups_of_every_kind() -> None:
    talk = tally_talk()
    add(talk, a=1)
    group = talk.shard._groups[GROUP]
    assert isinstance(group, TallyGroup)
    assert not list(talk.shard.unload(ErrorCode.NOT_COORDINATOR))
    assert group.told == ["NOT_COORDINATOR"]


# ---------------------------------------------------------------------- records that are in force at once


def test_what_the_log_refuses_is_taken_back_record_by_record() -> None:
    talk = tally_talk()
    add(talk, a=1)
    add(talk, b=1)
    talk.refuse_appends = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert add(talk, a=10, c=10).response is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert total(talk) == 2
    assert add(talk, "new", a=1).response is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert [each.group_id for each in talk.listed()] == [GROUP]
    assert talk.delete_group() is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert total(talk) == 2, "the group that was to be deleted is whole again"
    talk.refuse_appends = ErrorCode.NONE
    assert add(talk, a=10).response == {"a": 11}


def test_a_key_that_was_put_twice_gets_back_what_it_had_first() -> None:
    talk = tally_talk()
    add(talk, a=1)
    talk.refuse_appends = ErrorCode.COORDINATOR_NOT_AVAILABLE

    class Twice(dict[str, int]):
        def items(self) -> list[tuple[str, int]]:  # type: ignore[override]
            return [("a", 5), ("a", 6)]

    assert talk.ask(Add(GROUP, Twice()), 0).response is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert total(talk) == 1


class Tallies:
    """A runtime of shards with tally groups, over a log that may take its time."""

    def __init__(self) -> None:
        self.log = FakeLog()
        images = FakeImages()
        settings = GroupSettings()
        kind = shard_kind(
            GroupTypes(WITH_TALLY),
            lambda: Shard(WITH_TALLY, GroupConfig(), images, lambda group_id: settings, make_uuid=str),
        )
        self.runtime = Runtime(kind, self.log, wall_clock_ms=lambda: 1_700_000_000_000, run_in_thread=beside_the_loop)

    async def start(self, nursery: trio.Nursery) -> None:
        await nursery.start(self.runtime.run)
        self.runtime.on_election(0)
        await trio.testing.wait_all_tasks_blocked()

    async def add(self, numbers: dict[str, int], *, is_cuttable: bool = False) -> object:
        return await finished(self.ask(numbers, is_cuttable=is_cuttable))

    def ask(self, numbers: dict[str, int], *, is_cuttable: bool = False) -> Given[object]:
        request = Add(GROUP, numbers, is_cuttable)
        return self.runtime.led_partition(0).submit(request, Caller(lambda error: error))

    def total(self) -> int:
        now_ms = self.runtime.now_ms()
        return self.runtime.led_partition(0).shard(now_ms).read(Sum(GROUP), now_ms=now_ms)


@pytest.mark.parametrize("commit_seconds", [0, 1])
async def test_a_request_finds_what_those_before_it_did_although_it_is_not_committed(
    commit_seconds: float, autojump_clock: trio.abc.Clock, nursery: trio.Nursery
) -> None:
    tallies = Tallies()
    tallies.log.commit_seconds = commit_seconds
    await tallies.start(nursery)
    answers: list[object] = []

    async def collect(number: int) -> None:
        answers.append(await tallies.add({"a": number}))

    async with trio.open_nursery() as asking:
        for number in (1, 1, 1):
            asking.start_soon(collect, number)
    assert sorted(each["a"] for each in answers if isinstance(each, dict)) == [1, 2, 3]
    assert tallies.total() == 3, "at its commit a record does not come into force a second time"


async def test_half_an_append_that_the_log_refuses_is_decided_by_the_log(
    autojump_clock: trio.abc.Clock, nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first batch is in the log and all of it in force: neither may stay as it is."""
    tallies = Tallies()
    await tallies.start(nursery)
    batches = iter((ErrorCode.NONE, ErrorCode.NOT_ENOUGH_REPLICAS))
    append = tallies.log.append

    def append_some(partition: int, batch: bytes, now_ms: int) -> Appended:
        if error := next(batches):
            raise KafkaError(error)
        return append(partition, batch, now_ms)

    monkeypatch.setattr(tallies.log, "append", append_some)
    assert await tallies.add(MANY, is_cuttable=True) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    await trio.testing.wait_all_tasks_blocked()
    written = sum(len(list(decode_records(batch))) for batch in tallies.log.batches[0])
    assert written == RECORDS_PER_BATCH and tallies.total() == written


@pytest.mark.parametrize("commit_seconds", [0, 1])
async def test_an_atomic_append_is_one_batch(
    commit_seconds: float, autojump_clock: trio.abc.Clock, nursery: trio.Nursery
) -> None:
    tallies = Tallies()
    tallies.log.commit_seconds = commit_seconds
    await tallies.start(nursery)
    assert await tallies.add(MANY) == MANY
    (batch,) = tallies.log.batches[0]
    assert len(list(decode_records(batch))) == len(MANY) == tallies.total()
    assert len(batch) < COMPRESSED_FROM, "compressed"
    tallies.log.batch_bytes_max = len(batch) // 2
    assert await tallies.add(MANY) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert tallies.total() == len(MANY) and len(tallies.log.batches[0]) == 1, "taken back"


async def test_an_atomic_append_that_is_unloaded_on_its_way_is_answered(
    autojump_clock: trio.abc.Clock, nursery: trio.Nursery
) -> None:
    tallies = Tallies()
    await tallies.start(nursery)
    answer = tallies.ask(MANY)
    await trio.lowlevel.checkpoint()
    tallies.runtime.on_resignation(0)
    assert await finished(answer) is ErrorCode.NOT_COORDINATOR and not tallies.log.batches[0]
