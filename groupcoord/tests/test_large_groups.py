"""Groups of ten thousand members: no step of a shard grows with them, whatever they do, and half a step is never seen.

Steps are held against a number of function calls. What is done for each member takes twenty of them and more. Here are the steps that
follow when the log refuses, and what is seen between steps and after a crash; `test_bounded_steps.py` tries all requests.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy, deepcopy
from functools import partial
from typing import Any

import pytest
import trio
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize

from ottla.groupcoord import effects
from ottla.groupcoord.classic.members import (
    GroupMetadataKey,
    GroupMetadataRecord,
    GroupMetadataValue,
    MemberMetadata,
)
from ottla.groupcoord.consumer import rebalancing
from ottla.groupcoord.consumer.records import ConsumerGroupMemberMetadataKey
from ottla.groupcoord.effects import PIECE
from ottla.groupcoord.records import KeyedRecord
from ottla.groupcoord.runtime.answers import finished
from ottla.groupcoord.share.records import ShareGroupMemberMetadataKey
from ottla.groupcoord.streams.records import StreamsGroupMemberMetadataKey
from ottla.groupcoord.tests.consumer.test_consumer_migration import MigratingConversation, assignment, words
from ottla.groupcoord.tests.consumer.test_consumer_random import ConsumerMachine
from ottla.groupcoord.tests.consumer_conversation import INTERVAL_MS, ConsumerConversation, all_partitions, snapshot
from ottla.groupcoord.tests.conversation import GROUP, Asked, Conversation
from ottla.groupcoord.tests.fakes import FORMATS, Coordination
from ottla.groupcoord.tests.share_talk import ShareTalk
from ottla.groupcoord.tests.streams.test_streams_groups import Streams
from ottla.groupcoord.tests.watched import Watched
from ottla.wire import time_slice
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.classic_group import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    MemberIdentity,
)
from ottla.wire.messages.consumer_group import ConsumerGroupHeartbeatRequest
from ottla.wire.messages.offsets import OffsetFetchRequest
from ottla.wire.record_decoding import decode_records
from ottla.wire.record_encoding import encode_pairs
from ottla.wire.tests.effort import examples, first

MEMBERS = 10_000
CALLS_PER_STEP = 5 * MEMBERS
TIMEOUT_MS = 60_000
REFUSED = ErrorCode.COORDINATOR_NOT_AVAILABLE


def member_id(number: int) -> str:
    return f"m{number:05d}"


def classic_record(count: int) -> GroupMetadataRecord:
    """A stable classic group, each of whose members has one partition of "topic"."""
    subscription = words("topic")["range"]
    members = [
        MemberMetadata(
            member_id=member_id(number),
            client_id="client",
            client_host="/127.0.0.1",
            rebalance_timeout=TIMEOUT_MS,
            session_timeout=TIMEOUT_MS,
            subscription=subscription,
            assignment=assignment(topic={number}),
        )
        for number in range(count)
    ]
    value = GroupMetadataValue(
        protocol_type="consumer", generation=5, protocol="range", leader=member_id(0), members=members
    )
    return GroupMetadataRecord(GroupMetadataKey(group=GROUP), value)


class LargeGroup(MigratingConversation):
    """A shard whose steps are watched, with a classic group in its log."""

    def __init__(self, count: int, **config: Any) -> None:
        super().__init__(group_initial_rebalance_delay_ms=0, **config)
        self.images.put("topic", count)
        self.log = [self.formats.encode_record(classic_record(count))]
        self.restart()


class WatchedGroup(LargeGroup):
    shard_class = Watched


class WatchedConversation(ConsumerConversation):
    shard_class = Watched


def multiply(talk: Conversation, key_class: type, count: int) -> None:
    """Let a member have very many like it, as if they had joined."""
    template = next(each for each in talk.records() if each is not None and isinstance(each.key, key_class))
    for number in range(count):
        key = copy(template.key)
        key.member_id = member_id(number)
        record = KeyedRecord(key, template.value)
        talk.log.append(talk.formats.encode_record(record))
        talk.shard.replay(record)


def assert_steps_are_small(talk: Conversation) -> None:
    shard = talk.shard
    assert isinstance(shard, Watched)
    assert shard.steps and max(shard.most.values()) <= CALLS_PER_STEP, dict(shard.most)
    shard.most.clear()


# ---------------------------------------------------------------------- every kind, ten thousand members


@pytest.mark.thorough
def test_a_large_group_changes_its_protocol_and_is_assigned_in_small_steps() -> None:
    talk = WatchedGroup(MEMBERS)
    assert_steps_are_small(talk)
    talk.refuse_appends = REFUSED
    assert talk.come("new").error is REFUSED
    assert talk.kind == "classic" and len(talk.log) == 1
    talk.refuse_appends = ErrorCode.NONE
    assert talk.come("new").error is ErrorCode.NONE
    assert len(talk.group().members) == MEMBERS + 1
    assert talk.group().assignment_epoch == talk.group().group_epoch, "computed, and put in force"
    assert_steps_are_small(talk)
    talk.refuse_appends = REFUSED
    assert talk.go("new").error is REFUSED and len(talk.group().members) == MEMBERS + 1
    talk.refuse_appends = ErrorCode.NONE
    assert talk.go("new").error is ErrorCode.NONE
    assert talk.kind == "classic" and talk.state() == "PreparingRebalance"
    assert_steps_are_small(talk)


@pytest.mark.thorough
def test_all_members_of_a_large_consumer_group_leave_in_small_steps() -> None:
    talk = WatchedConversation()
    talk.come("new")
    multiply(talk, ConsumerGroupMemberMetadataKey, MEMBERS)
    talk.restart()
    everybody = [*map(member_id, range(MEMBERS)), "new"]
    talk.refuse_appends = REFUSED
    assert talk.leave(*((each, None) for each in everybody)).error is REFUSED
    assert len(talk.group().members) == MEMBERS + 1
    talk.refuse_appends = ErrorCode.NONE
    assert talk.leave(*((each, None) for each in everybody)).error is ErrorCode.NONE
    assert talk.group().is_empty
    assert_steps_are_small(talk)


class WatchedShareTalk(ShareTalk):
    shard_class = Watched


class WatchedStreams(Streams):
    shard_class = Watched

    def check_replay(self) -> None:
        """Not after every word of so many."""


@pytest.mark.thorough
def test_a_large_share_group_is_assigned_in_small_steps() -> None:
    talk = WatchedShareTalk(group_share_max_size=2 * MEMBERS)
    talk.images.put("topic", MEMBERS)
    talk.joined("first")
    multiply(talk, ShareGroupMemberMetadataKey, MEMBERS)
    talk.restart()
    talk.shard.most.clear()  # type: ignore[attr-defined]
    talk.advance(INTERVAL_MS)
    talk.beat("last")
    assert len(talk.group().targets) == MEMBERS + 2
    assert_steps_are_small(talk)
    talk.assert_replay_is_equal()


@pytest.mark.thorough
def test_a_large_streams_group_is_assigned_in_small_steps() -> None:
    talk = WatchedStreams()
    talk.images.put("topic", MEMBERS)
    talk.enter("first")
    multiply(talk, StreamsGroupMemberMetadataKey, MEMBERS)
    talk.restart()
    talk.advance(INTERVAL_MS)
    talk.shard.most.clear()  # type: ignore[attr-defined]
    talk.enter("last")
    assert len(talk.group().targets) == MEMBERS + 2
    assert_steps_are_small(talk)


# ---------------------------------------------------------------------- steps come to what one step comes to


@contextmanager
def piece_of(size: int) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(effects, "PIECE", size)
        yield


class Twins(MigratingConversation):
    """Two shards that hear the same. One takes a step for each element, the other does all in one."""

    def __init__(self, **config: Any) -> None:
        self.twin: MigratingConversation | None = None
        super().__init__(**config)
        self.twin = MigratingConversation(**config)
        self.twin.images = self.images
        self.twin.shard = self.twin._new_shard()
        self.twin.restart()

    def both(self, name: str, *arguments: Any) -> Any:
        twin = self.twin
        if twin is None:
            return getattr(super(), name)(*arguments)
        twin.refuse_appends, twin.holds_jobs = self.refuse_appends, self.holds_jobs
        # Requests may be changed on the way.
        given = deepcopy(arguments)
        self.twin = None  # whatever this call calls
        with piece_of(1_000_000):
            getattr(twin, name)(*given)
        with piece_of(1):
            answer = getattr(super(), name)(*arguments)
        self.twin = twin
        assert self.log == twin.log
        assert snapshot(self) == snapshot(twin)
        return answer

    def ask(self, request: Any, version: int, client_id: str = "client") -> Asked:
        asked: Asked = self.both("ask", request, version, client_id)
        return asked

    def advance(self, milliseconds: int) -> None:
        self.both("advance", milliseconds)

    def restart(self) -> None:
        if self.twin is not None:
            self.twin.jobs.clear()
        self.both("restart")

    def do_jobs(self) -> None:
        self.both("do_jobs")


class TwinsMachine(ConsumerMachine):
    @initialize(holds_jobs=st.booleans())
    def begin(self, holds_jobs: bool) -> None:
        self.talk = Twins(group_consumer_max_size=4)
        self.talk.images.put("third", 3)
        self.talk.holds_jobs = holds_jobs
        self.was_refused: Any = None
        self.patch = pytest.MonkeyPatch()
        for name in ("SIZE_AT_ONCE", "MIXED_SIZE_AT_ONCE"):
            self.patch.setattr(rebalancing, name, 0)

    def teardown(self) -> None:
        super().teardown()
        self.patch.undo()


TestTwinsMachine = TwinsMachine.TestCase
TestTwinsMachine.settings = settings(
    max_examples=examples(25), stateful_step_count=25, deadline=None, report_multiple_bugs=False
)


# ---------------------------------------------------------------------- between two steps


class LargeCoordination(Coordination):
    """A running coordinator that gives way after each piece, with a classic group in its log."""

    def __init__(self, count: int) -> None:
        super().__init__(group_initial_rebalance_delay_ms=0)
        self.images.put("topic", count)
        self.index = self.groups.partition_for(GROUP)
        self.log.append(self.index, encode_pairs([FORMATS.encode_record(classic_record(count))], 0))

    def come(self, name: str) -> Any:
        request = ConsumerGroupHeartbeatRequest(
            group_id=GROUP,
            member_id=name,
            member_epoch=0,
            rebalance_timeout_ms=TIMEOUT_MS,
            subscribed_topic_names=["topic"],
            topic_partitions=[],
        )
        return self.groups.consumer.heartbeat(request, api_version=1, client_id="client", client_host="/127.0.0.1")

    def go(self, *names: str) -> Any:
        members = [MemberIdentity(member_id=each, group_instance_id=None) for each in names]
        return self.groups.classic.leave_group(LeaveGroupRequest(group_id=GROUP, members=members), api_version=5)

    def beat(self, number: int) -> ErrorCode:
        request = HeartbeatRequest(group_id=GROUP, generation_id=5, member_id=member_id(number))
        return ErrorCode(self.groups.classic.heartbeat(request).error_code)

    def kind(self) -> str:
        return self.group().group_type

    def members(self) -> Any:
        return self.group().members

    def group(self) -> Any:
        partition = self.groups._runtime.led_partition(self.index)
        assert partition._shard is not None
        return partition._shard._groups[GROUP]

    async def again(self, nursery: trio.Nursery) -> None:
        """Another coordinator loads the log."""
        self.groups.on_resignation(self.index)
        self.groups.on_election(self.index)
        await trio.testing.wait_all_tasks_blocked()


@pytest.fixture
def small_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time_slice, "SLICE_S", 0.0)
    monkeypatch.setattr(effects, "PIECE", 10)


async def test_the_others_wait_for_a_large_group_in_their_order_and_reads_pass(
    small_turns: None, autojump_clock: trio.abc.Clock, nursery: trio.Nursery
) -> None:
    talk = LargeCoordination(200)
    await talk.start(nursery)
    answered: list[str] = []
    seen: list[tuple[str, ErrorCode]] = []

    def note(name: str, answer: Any) -> None:
        assert answer.response().error_code == ErrorCode.NONE
        answered.append(name)

    neighbour = next(name for name in map(str, range(99)) if talk.groups.partition_for(name) != talk.index)
    asked = {"upgrade": talk.come("new"), "leave": talk.go(member_id(0)), "second": talk.come("second")}
    for name, answer in asked.items():
        answer.on_ready = partial(note, name, answer)
    while len(answered) < 3:
        seen.append((talk.kind(), talk.beat(1)))
        fetched = talk.groups.offsets.offset_fetch(OffsetFetchRequest(group_id=GROUP, topics=[]), api_version=7)
        assert fetched.error_code == ErrorCode.NONE
        other = talk.commit(group=neighbour)
        assert other.topics[0].partitions[0].error_code == ErrorCode.NONE, "at once"
        await trio.lowlevel.checkpoint()
    assert answered == ["upgrade", "leave", "second"]
    assert len(seen) > 30
    old = [each for each in seen if each[0] == "classic"]
    assert old == seen[: len(old)] and {error for _, error in old} == {ErrorCode.NONE}, "the old group until the end"
    assert {kind for kind, _ in seen[len(old) :]} == {"consumer"}


@pytest.mark.parametrize("steps", first(6, sorted(range(0, 120, 7), key=lambda steps: steps % 21)))
async def test_a_shard_that_is_lost_between_two_steps_answers_everybody_and_leaves_no_half_group(
    steps: int, small_turns: None, autojump_clock: trio.abc.Clock, nursery: trio.Nursery
) -> None:
    talk = LargeCoordination(200)
    await talk.start(nursery)
    errors: list[int] = []
    join = JoinGroupRequest(
        group_id=GROUP,
        session_timeout_ms=TIMEOUT_MS,
        rebalance_timeout_ms=TIMEOUT_MS,
        member_id=member_id(0),
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=words("topic")["range"])],
    )

    async def ask(answer: Any) -> None:
        errors.append((await finished(answer)).error_code)

    async with trio.open_nursery() as asking:
        # The leader joins again. It waits for the others.
        parked = talk.groups.classic.join_group(join, api_version=5, client_id="client", client_host="/127.0.0.1")
        for answer in (parked, talk.come("new"), talk.go(member_id(1)), talk.come("second")):
            asking.start_soon(ask, answer)
        for _ in range(steps):
            await trio.lowlevel.checkpoint()
        talk.groups.on_resignation(talk.index)
    allowed = {ErrorCode.NONE, ErrorCode.NOT_COORDINATOR, ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.UNKNOWN_MEMBER_ID}
    assert len(errors) == 4 and set(errors) <= allowed
    talk.groups.on_election(talk.index)
    await trio.testing.wait_all_tasks_blocked()
    batches = talk.log.batches[talk.index]
    assert talk.kind() == ("classic" if len(batches) == 1 else "consumer")
    # The upgrade, the one who leaves, and the second who comes.
    assert len(talk.members()) == 200 + (0, 1, 0, 1)[min(len(batches) - 1, 3)]


# ---------------------------------------------------------------------- after a crash


@pytest.mark.parametrize("count", first(1, [30, 3_000]))
async def test_a_log_that_ends_anywhere_in_a_change_of_protocol_has_the_old_group_or_the_new_one(
    count: int, autojump_clock: trio.abc.Clock, nursery: trio.Nursery
) -> None:
    talk = LargeCoordination(count)
    await talk.start(nursery)
    batches = talk.log.batches[talk.index]
    kinds = []
    for change in (lambda: talk.come("new"), lambda: talk.go("new")):
        before = len(batches)
        assert (await finished(change())).error_code == ErrorCode.NONE
        added = [len(list(decode_records(batch))) for batch in batches[before:]]
        assert added[0] > 3 * count, "the whole change is one batch, and a log ends between batches"
        kinds.append(talk.kind())
        whole = list(batches)
        for end in range(before, len(whole) + 1):
            batches[:] = whole[:end]
            await talk.again(nursery)
            assert talk.kind() == (
                kinds[-1] if end > before else {"consumer": "classic", "classic": "consumer"}[kinds[-1]]
            )
            assert len(talk.members()) == count + (talk.kind() == "consumer")
        batches[:] = whole
    assert kinds == ["consumer", "classic"]


def test_a_log_that_ends_anywhere_in_an_assignment_leaves_a_group_that_becomes_stable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its targets may be cut between any two records: they count for nobody before their epoch is there."""
    monkeypatch.setattr(rebalancing, "SIZE_AT_ONCE", 0)
    count = 12
    talk = MigratingConversation()
    talk.images.put("topic", count)
    for number in range(count):
        talk.come(member_id(number))
    talk.settle()
    for number in range(0, count, 3):
        talk.go(member_id(number))
    before = len(talk.log)
    talk.come("new")
    targets = [each for each in talk.record_keys()[before:] if each.startswith("TargetAssignment")]
    assert len(targets) > 4 and targets[-1] == "TargetAssignmentMetadata"
    for end in range(before, len(talk.log)):
        again = MigratingConversation()
        again.images, again.log = talk.images, talk.log[:end]
        again.restart()
        again.settle()
        assert again.group().state_name == "Stable"
        assert all_partitions(*map(again.owned, again.group().members)) == [("topic", each) for each in range(count)]


def test_the_piece_is_small() -> None:
    assert PIECE <= 200
