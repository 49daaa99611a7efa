"""Topics that the active controller creates and extends by request, against a tree in memory and puppets of brokers."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from ottla.replication.cluster import znodes
from ottla.replication.cluster.coordination import (
    CoordinationUnavailable,
    Create,
    Delete,
    Operation,
    SetData,
    TooLarge,
    WriteRefused,
)
from ottla.replication.cluster.metadata_cache import NO_LEADER, PartitionState, TopicState
from ottla.replication.controller.partition_states import FIRST_STATES_PER_WRITE
from ottla.replication.controller.topic_planner import TopicPlan
from ottla.server.tests.puppets import Candidate, Theatre, open_theatre
from ottla.wire.errors import ErrorCode, KafkaError

FIRST = ("t", 0)
topic_ids = itertools.count(2)
MANY = 2 * FIRST_STATES_PER_WRITE + 5


@pytest.fixture
async def theatre(autojump_clock: MockClock) -> AsyncIterator[Theatre]:
    async with open_theatre() as theatre:
        yield theatre


@pytest.fixture
async def candidate(theatre: Theatre, autojump_clock: MockClock) -> Candidate:
    """The controller, of a cluster with the brokers 1 and 2."""
    await theatre.up(1, 2)
    return await theatre.stand(1)


def new(name: str, *replicas: tuple[int, ...], **configs: str) -> TopicPlan:
    """A new topic with these replicas."""
    partitions = tuple(PartitionState(NO_LEADER, 0, ids, ids) for ids in replicas)
    topic = TopicState(name, next(topic_ids).to_bytes(16), partitions)
    settings = {name.replace("_", "."): value for name, value in configs.items()}
    return TopicPlan(before=None, after=topic, configs=settings)


def more(*replicas: tuple[int, ...]) -> Callable[[TopicState | None], TopicPlan]:
    """Partitions with these replicas behind those that there are."""

    def plan(topic: TopicState | None) -> TopicPlan:
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        added = tuple(PartitionState(NO_LEADER, 0, ids, ids) for ids in replicas)
        after = replace(topic, partitions=topic.partitions + added)
        return TopicPlan(before=topic, after=after, first_new=len(topic.partitions))

    return plan


async def create(theatre: Theatre, *plans: TopicPlan) -> dict[str, ErrorCode]:
    outcomes = await theatre.controller.create_topics(plans)
    return {name: ErrorCode.NONE if error is None else error.code for name, error in outcomes.items()}


async def extension_refusal(theatre: Theatre, *replicas: tuple[int, ...]) -> ErrorCode:
    with pytest.raises(KafkaError) as refused:
        await theatre.controller.add_partitions("t", more(*replicas))
    return refused.value.code


async def settled(theatre: Theatre) -> None:
    """All that has happened so far was worked on, and the brokers have heard of it."""
    await theatre.until(lambda: theatre.quarrels() == [])


def paths(theatre: Theatre, topic: str) -> list[str]:
    """Every node of a topic."""
    return [path for path in theatre.service.tree.nodes if topic in path.split("/")]


Multi = Callable[[Sequence[Operation]], Awaitable[Any]]


def before_each_write(candidate: Candidate, look: Callable[[Sequence[Operation]], Awaitable[None]]) -> Multi:
    """Have `look` called before each write of the controller, which fails if that raises. Answers the write as it was."""
    write: Multi = candidate.session.multi

    async def multi(operations: Sequence[Operation]) -> Any:
        await look(operations)
        return await write(operations)

    candidate.session.multi = multi  # type: ignore[method-assign]
    return write


def refuse_writes(candidate: Candidate) -> Callable[[], None]:
    """Let the service have no room, until the answer is called."""

    async def refuse(operations: Sequence[Operation]) -> None:
        await trio.lowlevel.checkpoint()
        raise WriteRefused("the journal")

    write = before_each_write(candidate, refuse)

    def make_room() -> None:
        candidate.session.multi = write  # type: ignore[method-assign]

    return make_room


# ---------------------------------------------------------------------- creation


async def test_several_topics_are_created_in_one_write(
    theatre: Theatre, candidate: Candidate, autojump_clock: MockClock
) -> None:
    writes: list[Sequence[Operation]] = []

    async def note(operations: Sequence[Operation]) -> None:
        writes.append(operations)

    before_each_write(candidate, note)
    plans = [new("t", (1, 2), (2, 1), retention_ms="5"), new("u", (2,)), new("v", (1,))]
    assert await create(theatre, *plans) == dict.fromkeys("tuv", ErrorCode.NONE)
    (write,) = writes
    assert write[0].path == znodes.CONTROLLER_EPOCH
    assert {znodes.topic_path(name) for name in "tuv"} <= {operation.path for operation in write}
    # Who hears that it was created finds it in the tree and in what was decided.
    topic = znodes.decode_topic((await theatre.operator.get(znodes.topic_path("t"))).data)
    assert (topic.topic_id, topic.partitions) == (plans[0].after.topic_id, {0: [1, 2], 1: [2, 1]})
    assert znodes.decode_config((await theatre.operator.get("/config/topics/t")).data) == {"retention.ms": "5"}
    state = await theatre.state("t", 1)
    assert state is not None
    assert (state[0].leader, state[0].isr, state[0].leader_epoch, state[1]) == (2, [2, 1], 0, 0)
    await theatre.until_led(2, index=1)
    await settled(theatre)
    assert theatre.puppets[1].new == {("t", 0), ("t", 1), ("v", 0)}


async def test_a_created_topic_is_watched(theatre: Theatre, candidate: Candidate, autojump_clock: MockClock) -> None:
    await create(theatre, new("t", (1,)))
    await theatre.add_partitions("t", (2,))
    await theatre.until_led(2, index=1)
    await theatre.operator.multi([Delete(path) for path in reversed(paths(theatre, "t"))])
    await theatre.until(lambda: "t" not in theatre.controller.states.topics)
    assert await create(theatre, new("t", (2,))) == {"t": ErrorCode.NONE}
    await theatre.until_led(2)


async def test_a_name_that_exists_is_refused_and_the_others_are_made(
    theatre: Theatre, candidate: Candidate, autojump_clock: MockClock
) -> None:
    await create(theatre, new("t", (1,)))
    outcomes = await theatre.controller.create_topics([new("u", (1,)), new("t", (2,)), new("v", (1,))])
    assert (outcomes["u"], outcomes["v"]) == (None, None)
    assert outcomes["t"] is not None
    assert (outcomes["t"].code, outcomes["t"].message) == (
        ErrorCode.TOPIC_ALREADY_EXISTS,
        "Topic 't' already exists.",
    )
    await settled(theatre)
    assert theatre.known("t").replicas == (1,)  # type: ignore[union-attr]


async def test_a_name_that_somebody_else_is_faster_to_take_is_refused_and_the_others_are_made(
    theatre: Theatre, candidate: Candidate, autojump_clock: MockClock
) -> None:
    async def be_faster(operations: Sequence[Operation]) -> None:
        candidate.session.multi = write  # type: ignore[method-assign]
        await theatre.create("t", (2,))

    write = before_each_write(candidate, be_faster)
    found = await create(theatre, new("u", (1,)), new("t", (1,)), new("v", (1,)))
    assert found == {"u": ErrorCode.NONE, "t": ErrorCode.TOPIC_ALREADY_EXISTS, "v": ErrorCode.NONE}
    await theatre.until_led(2)
    await settled(theatre)
    assert theatre.controller.states.nodes == {}


async def test_a_topic_that_is_being_deleted_exists(
    theatre: Theatre, candidate: Candidate, autojump_clock: MockClock
) -> None:
    await create(theatre, new("t", (1, 2)))
    await settled(theatre)
    await theatre.down(2)
    await theatre.delete("t")
    await theatre.until(lambda: "t" in theatre.controller.states.deletions)
    assert await create(theatre, new("t", (1,))) == {"t": ErrorCode.TOPIC_ALREADY_EXISTS}
    await theatre.up(2)
    await theatre.until(lambda: "t" not in theatre.controller.states.topics)
    assert await create(theatre, new("t", (1,))) == {"t": ErrorCode.NONE}
    await settled(theatre)


async def test_settings_that_an_earlier_topic_has_left_give_way(
    theatre: Theatre, candidate: Candidate, autojump_clock: MockClock
) -> None:
    left = znodes.encode_config({"retention.ms": "9"})
    await theatre.operator.multi([Create("/config/topics/t", left), Create("/config/topics/u", left)])
    plans = new("t", (1,), segment_ms="8"), new("u", (1,)), new("v", (1,))
    assert await create(theatre, *plans) == dict.fromkeys("tuv", ErrorCode.NONE)
    found = await theatre.operator.get_all([f"/config/topics/{name}" for name in "tuv"])
    assert [znodes.decode_config(node.data) for node in found if node is not None] == [{"segment.ms": "8"}, {}, {}]
    await settled(theatre)


@pytest.mark.parametrize("has_settings", [False, True])
async def test_a_creation_whose_outcome_was_lost_is_not_done_twice(
    theatre: Theatre, candidate: Candidate, has_settings: bool, autojump_clock: MockClock
) -> None:
    if has_settings:
        await theatre.operator.multi([Create("/config/topics/t", b"left behind")])
    write = candidate.session.multi

    async def lose_the_answer(operations: Sequence[Operation]) -> Any:
        await write(operations)
        candidate.session.multi = write  # type: ignore[method-assign]
        raise CoordinationUnavailable

    candidate.session.multi = lose_the_answer  # type: ignore[method-assign]
    assert await create(theatre, new("t", (1, 2)), new("u", (2,))) == dict.fromkeys("tu", ErrorCode.NONE)
    await theatre.until_led(1)
    await settled(theatre)
    state = await theatre.state("t")
    assert state is not None
    assert (state[0].leader_epoch, state[1]) == (0, 0)


async def test_a_partition_whose_replicas_are_all_away_gets_its_state_when_one_comes(
    theatre: Theatre, candidate: Candidate, autojump_clock: MockClock
) -> None:
    assert await create(theatre, new("t", (3, 4), (1,))) == {"t": ErrorCode.NONE}
    await theatre.until_led(1, index=1)
    assert await theatre.state("t") is None
    await theatre.up(4)
    await theatre.until_led(4)
    await settled(theatre)
    assert FIRST in theatre.puppets[4].new


async def test_all_partitions_of_a_very_large_topic_get_their_first_states(
    theatre: Theatre, candidate: Candidate, autojump_clock: MockClock
) -> None:
    sizes: list[int] = []

    async def note(operations: Sequence[Operation]) -> None:
        sizes.append(sum(operation.path.endswith("/state") for operation in operations))

    before_each_write(candidate, note)
    assert await create(theatre, new("t", *[(1, 2)] * MANY), new("u", (1,))) == dict.fromkeys("tu", ErrorCode.NONE)
    await theatre.until_led(1, index=MANY - 1)
    assert sum(sizes) == MANY + 1
    assert max(sizes) == FIRST_STATES_PER_WRITE
    assert theatre.known("t", MANY - 1).leader == 1  # type: ignore[union-attr]
    await settled(theatre)


async def test_very_many_topics_are_created_in_several_writes(
    theatre: Theatre, candidate: Candidate, autojump_clock: MockClock
) -> None:
    names = [f"t-{number}" for number in range(3 * FIRST_STATES_PER_WRITE // 100)]
    plans = [new(name, *[(1,)] * 100) for name in names]
    assert await create(theatre, *plans) == dict.fromkeys(names, ErrorCode.NONE)
    await settled(theatre)


async def test_who_waits_for_a_topic_when_the_controller_resigns_is_told(
    theatre: Theatre, candidate: Candidate, autojump_clock: MockClock
) -> None:
    former = theatre.controller
    candidate.link.cut()
    refused: list[ErrorCode] = []

    async def note(ask: Callable[..., Awaitable[Any]], *arguments: Any) -> None:
        with pytest.raises(KafkaError) as error:
            await ask(*arguments)
        refused.append(error.value.code)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(note, former.create_topics, [new("t", (1,))])
        nursery.start_soon(note, former.add_partitions, "t", more((1,)))
        await trio.testing.wait_all_tasks_blocked()
        theatre.service.expire(candidate.session.session_id)
        candidate.link.heal()
        candidate.link.reset()
    assert refused == [ErrorCode.NOT_CONTROLLER] * 2


# ---------------------------------------------------------------------- no room


async def test_topics_that_cannot_be_stored_are_refused_and_not_known(
    theatre: Theatre, candidate: Candidate, autojump_clock: MockClock
) -> None:
    before = set(theatre.service.tree.nodes)
    make_room = refuse_writes(candidate)
    outcomes = await theatre.controller.create_topics([new("t", (1,)), new("u", (1,))])
    assert [(error.code, error.message) for error in outcomes.values() if error is not None] == [
        (ErrorCode.KAFKA_STORAGE_ERROR, "The change cannot be stored.")
    ] * 2
    states = theatre.controller.states
    assert (states.topics, states.topic_names, states.nodes) == ({}, {}, {})
    assert set(theatre.service.tree.nodes) == before
    assert theatre.puppets[1].replicas == {}
    make_room()
    assert await create(theatre, new("t", (1,))) == {"t": ErrorCode.NONE}
    await settled(theatre)
    assert theatre.controller.epoch == 1


async def test_what_exists_is_said_to_exist_also_where_there_is_no_room(
    theatre: Theatre, candidate: Candidate, autojump_clock: MockClock
) -> None:
    await create(theatre, new("t", (1,)))
    refuse_writes(candidate)
    assert await create(theatre, new("t", (1,)), new("u", (1,))) == {
        "t": ErrorCode.TOPIC_ALREADY_EXISTS,
        "u": ErrorCode.KAFKA_STORAGE_ERROR,
    }


async def test_partitions_that_cannot_be_stored_are_refused_and_not_known(
    theatre: Theatre, candidate: Candidate, autojump_clock: MockClock
) -> None:
    await create(theatre, new("t", (1, 2)))
    make_room = refuse_writes(candidate)
    assert await extension_refusal(theatre, (1,)) is ErrorCode.KAFKA_STORAGE_ERROR
    assert theatre.known("t", 1) is None
    await settled(theatre)
    make_room()
    await theatre.controller.add_partitions("t", more((2,)))
    await theatre.until_led(2, index=1)
    await settled(theatre)


async def test_what_cannot_be_refused_waits_for_room(
    theatre: Theatre, candidate: Candidate, autojump_clock: MockClock
) -> None:
    await create(theatre, new("t", (1, 2)))
    await theatre.until_led(1)
    make_room = refuse_writes(candidate)
    await theatre.down(1)
    await trio.sleep(2)
    assert theatre.known("t").leader == 1  # type: ignore[union-attr]
    make_room()
    await theatre.until_led(2)
    await settled(theatre)
    assert theatre.controller.epoch == 1


def refuse_large_writes(candidate: Candidate, largest: int) -> None:
    async def check(operations: Sequence[Operation]) -> None:
        if len(operations) > largest:
            raise TooLarge(operations[-1].path)

    before_each_write(candidate, check)


async def test_a_topic_that_is_too_large_is_refused_and_the_controller_goes_on(
    theatre: Theatre, candidate: Candidate, autojump_clock: MockClock
) -> None:
    refuse_large_writes(candidate, 20)
    assert await create(theatre, new("t", *[(1,)] * 30)) == {"t": ErrorCode.KAFKA_STORAGE_ERROR}
    assert theatre.controller.states.topics == {}
    assert await create(theatre, new("t", (1,))) == {"t": ErrorCode.NONE}
    assert await extension_refusal(theatre, *[(1,)] * 30) is ErrorCode.KAFKA_STORAGE_ERROR
    await theatre.controller.add_partitions("t", more((2,)))
    await theatre.until_led(2, index=1)
    await settled(theatre)
    assert theatre.controller.epoch == 1


async def test_topics_that_are_too_large_together_are_written_one_by_one(
    theatre: Theatre, candidate: Candidate, autojump_clock: MockClock
) -> None:
    refuse_large_writes(candidate, 20)
    plans = [new(f"t-{number}", *[(1,)] * count) for number, count in enumerate((1, 1, 6, 1, 6, 3))]
    assert set((await create(theatre, *plans)).values()) == {ErrorCode.NONE}
    await settled(theatre)


async def test_a_small_topic_is_created_beside_one_that_is_too_large(
    theatre: Theatre, candidate: Candidate, autojump_clock: MockClock
) -> None:
    refuse_large_writes(candidate, 20)
    assert await create(theatre, new("t", (1,)), new("u", *[(1,)] * 30)) == {
        "t": ErrorCode.NONE,
        "u": ErrorCode.KAFKA_STORAGE_ERROR,
    }
    await settled(theatre)
    assert theatre.controller.epoch == 1


# ---------------------------------------------------------------------- extension


async def test_partitions_are_added_by_request(
    theatre: Theatre, candidate: Candidate, autojump_clock: MockClock
) -> None:
    await create(theatre, new("t", (1, 2), (2, 1)))
    plan = await theatre.controller.add_partitions("t", more((2,), (1, 2)))
    assert (plan.first_new, len(plan.after.partitions)) == (2, 4)
    topic = znodes.decode_topic((await theatre.operator.get(znodes.topic_path("t"))).data)
    assert topic.partitions == {0: [1, 2], 1: [2, 1], 2: [2], 3: [1, 2]}
    assert theatre.known("t", 3).leader == 1  # type: ignore[union-attr]
    await theatre.until_led(2, index=2)
    await settled(theatre)
    assert ("t", 3) in theatre.puppets[2].new


async def test_only_validating_an_extension_writes_nothing(
    theatre: Theatre, candidate: Candidate, autojump_clock: MockClock
) -> None:
    await create(theatre, new("t", (1,)))
    plan = await theatre.controller.add_partitions("t", more((2,)), validate_only=True)
    assert len(plan.after.partitions) == 2
    assert theatre.known("t", 1) is None
    assert (await theatre.operator.get(znodes.topic_path("t"))).version == 0
    await settled(theatre)


async def test_a_topic_that_does_not_exist_is_not_extended(
    theatre: Theatre, candidate: Candidate, autojump_clock: MockClock
) -> None:
    assert await extension_refusal(theatre, (1,)) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_very_many_new_partitions_get_their_first_states(
    theatre: Theatre, candidate: Candidate, autojump_clock: MockClock
) -> None:
    await create(theatre, new("t", (1,), (2,)))
    await theatre.controller.add_partitions("t", more(*[(1, 2)] * MANY))
    await theatre.until_led(1, index=MANY + 1)
    assert theatre.known("t", MANY + 1).leader == 1  # type: ignore[union-attr]
    await settled(theatre)


async def test_new_partitions_whose_replicas_are_away_wait_for_one(
    theatre: Theatre, candidate: Candidate, autojump_clock: MockClock
) -> None:
    await create(theatre, new("t", (1,)))
    await theatre.controller.add_partitions("t", more((3,), (2,)))
    await theatre.until_led(2, index=2)
    assert await theatre.state("t", 1) is None
    await theatre.up(3)
    await theatre.until_led(3, index=1)
    await settled(theatre)


def a_tool_is_faster(theatre: Theatre, candidate: Candidate) -> None:
    """Before the candidate's next write a tool adds a partition to topic t."""

    async def be_faster(operations: Sequence[Operation]) -> None:
        candidate.session.multi = write  # type: ignore[method-assign]
        await theatre.add_partitions("t", (2,))

    write = before_each_write(candidate, be_faster)


async def test_an_extension_is_decided_again_when_a_tool_has_written_the_topic(
    theatre: Theatre, candidate: Candidate, autojump_clock: MockClock
) -> None:
    await create(theatre, new("t", (1,)))
    a_tool_is_faster(theatre, candidate)
    seen: list[int] = []

    def plan(topic: TopicState | None) -> TopicPlan:
        assert topic is not None
        seen.append(len(topic.partitions))
        return more((1, 2))(topic)

    planned = await theatre.controller.add_partitions("t", plan)
    assert seen == [1, 2]
    assert planned.first_new == 2
    topic = znodes.decode_topic((await theatre.operator.get(znodes.topic_path("t"))).data)
    assert topic.partitions == {0: [1], 1: [2], 2: [1, 2]}
    # The partition of the tool is led as well.
    await theatre.until_led(2, index=1)
    await theatre.until_led(1, index=2)
    await settled(theatre)


async def test_an_extension_is_refused_when_it_is_no_extension_any_more(
    theatre: Theatre, candidate: Candidate, autojump_clock: MockClock
) -> None:
    await create(theatre, new("t", (1,)))
    a_tool_is_faster(theatre, candidate)

    def plan(topic: TopicState | None) -> TopicPlan:
        assert topic is not None
        if len(topic.partitions) > 1:
            raise KafkaError(ErrorCode.INVALID_PARTITIONS, "there are two")
        return more((1,))(topic)

    with pytest.raises(KafkaError, match="there are two"):
        await theatre.controller.add_partitions("t", plan)
    await theatre.until_led(2, index=1)
    await settled(theatre)


async def test_a_topic_whose_node_a_tool_has_written_without_a_change_is_extended(
    theatre: Theatre, candidate: Candidate, autojump_clock: MockClock
) -> None:
    await create(theatre, new("t", (1,)))
    node = await theatre.operator.get(znodes.topic_path("t"))
    await theatre.operator.multi([SetData(znodes.topic_path("t"), node.data)])
    await theatre.controller.add_partitions("t", more((2,)))
    await theatre.until_led(2, index=1)
    await settled(theatre)


@pytest.mark.parametrize("validate_only", [False, True])
async def test_a_topic_is_not_extended_while_it_is_being_reassigned(
    theatre: Theatre, candidate: Candidate, validate_only: bool, autojump_clock: MockClock
) -> None:
    await create(theatre, new("t", (1,), (1, 2)))
    await theatre.controller.reassign({("t", 1): [2, 3], FIRST: [2]})
    with pytest.raises(KafkaError) as refused:
        await theatre.controller.add_partitions("t", more((1,)), validate_only=validate_only)
    assert refused.value.code is ErrorCode.REASSIGNMENT_IN_PROGRESS
    await theatre.controller.reassign({("t", 1): None, FIRST: None})
    await theatre.controller.add_partitions("t", more((1,)), validate_only=validate_only)
    await settled(theatre)


@pytest.mark.parametrize("validate_only", [False, True])
async def test_a_topic_is_not_extended_while_it_is_being_deleted(
    theatre: Theatre, candidate: Candidate, validate_only: bool, autojump_clock: MockClock
) -> None:
    await create(theatre, new("t", (1, 2)))
    await settled(theatre)
    await theatre.down(2)
    await theatre.delete("t")
    await theatre.until(lambda: "t" in theatre.controller.states.deletions)
    with pytest.raises(KafkaError) as refused:
        await theatre.controller.add_partitions("t", more((1,)), validate_only=validate_only)
    assert refused.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION
