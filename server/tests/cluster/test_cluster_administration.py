import math
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from ottla.replication.cluster import znodes
from ottla.replication.cluster.coordination import CoordinationUnavailable, Create, Operation, SetData
from ottla.replication.cluster.metadata_cache import NO_LEADER, PartitionState, TopicState
from ottla.replication.controller.topic_planner import NewTopic, TopicPlan
from ottla.server.cluster.administration import TOPICS_PER_SLICE
from ottla.server.tests.clustered import Cluster, clustered
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages.create_topics import (
    CreatableTopic,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
)
from ottla.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState

OFFSETS = "__consumer_offsets"


def codes(outcomes: Any) -> list[ErrorCode]:
    return [outcome.code if isinstance(outcome, KafkaError) else ErrorCode.NONE for outcome in outcomes]


async def create(cluster: Cluster, *topics: NewTopic, **options: Any) -> list[ErrorCode]:
    return codes(await cluster[1].administration.create_topics(topics, **options))


async def test_a_topic_is_wanted_in_the_tree_and_answered_when_its_partitions_have_leaders(tmp_path: Path) -> None:
    async with clustered(tmp_path) as cluster:
        topic = NewTopic(name="t", partition_count=3, replication_factor=2, configs={"retention.ms": "5"})
        (plan,) = await cluster[1].administration.create_topics([topic])
        assert isinstance(plan, TopicPlan)
        written = znodes.decode_topic((await cluster.tree.get(znodes.topic_path("t"))).data)
        assert [len(set(ids)) for ids in written.partitions.values()] == [2, 2, 2]
        assert written.topic_id == plan.after.topic_id
        assert znodes.decode_config((await cluster.tree.get("/config/topics/t")).data) == {"retention.ms": "5"}
        assert await cluster.tree.children(znodes.topic_path("t")) == []
        assert not cluster[1]._planner.is_planned("t")
        assert "t" in cluster[3].cluster.topics


async def test_replicas_are_spread_over_racks(tmp_path: Path) -> None:
    racks: dict[int, str | None] = {1: "a", 2: "a", 3: "b", 4: "b", 5: "c", 6: "c"}
    async with clustered(tmp_path, racks=racks) as cluster:
        assert await create(cluster, NewTopic(name="t", partition_count=30, replication_factor=3)) == [ErrorCode.NONE]
        for state in cluster[1].cluster.topics["t"].partitions:
            assert {racks[broker] for broker in state.replicas} == {"a", "b", "c"}


async def test_a_topic_without_leaders_is_timed_out_but_stays(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with clustered(tmp_path) as cluster:
        cluster.controller.is_lazy = True
        started = trio.current_time()
        assert await create(cluster, NewTopic(name="t"), timeout_s=3) == [ErrorCode.REQUEST_TIMED_OUT]
        assert trio.current_time() - started == pytest.approx(3)
        assert await create(cluster, NewTopic(name="t"), timeout_s=3) == [ErrorCode.TOPIC_ALREADY_EXISTS]
        cluster.show("t", TopicState("t", b"t" * 16, (PartitionState(NO_LEADER, 0, (2,), (2,)),)))
        assert await create(cluster, NewTopic(name="t"), timeout_s=3) == [ErrorCode.TOPIC_ALREADY_EXISTS]


async def test_of_two_creations_of_one_name_one_finds_it_taken(tmp_path: Path) -> None:
    async with clustered(tmp_path) as cluster:
        found: list[ErrorCode] = []

        async def create_it(name: str) -> None:
            found.extend(await create(cluster, NewTopic(name=name)))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(create_it, "t")
            nursery.start_soon(create_it, "t")
        assert sorted(found) == [ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS]
        found.clear()
        cluster.controller.is_lazy = True
        async with trio.open_nursery() as nursery:
            nursery.start_soon(create_it, "a.b")
            nursery.start_soon(create_it, "a_b")
            await trio.testing.wait_all_tasks_blocked()
            cluster.controller.is_lazy = False
            cluster.controller._on_change("")
        assert sorted(found) == [ErrorCode.NONE, ErrorCode.INVALID_TOPIC_EXCEPTION]


async def test_requests_to_delete_very_many_topics_share_what_is_written_in_a_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with clustered(tmp_path) as cluster:
        multi, writing, most = cluster.tree.multi, 0, 0

        async def counted(operations: Sequence[Operation]) -> Any:
            nonlocal writing, most
            writing += 1
            most = max(most, writing)
            try:
                await trio.lowlevel.checkpoint()
                return await multi(operations)
            finally:
                writing -= 1

        names = [[f"t-{peer}-{number}" for number in range(TOPICS_PER_SLICE + 10)] for peer in range(4)]
        async with trio.open_nursery() as nursery:
            for some in names:
                nursery.start_soon(cluster[1].administration.create_topics, [NewTopic(name=name) for name in some])
        monkeypatch.setattr(cluster.tree, "multi", counted)
        async with trio.open_nursery() as nursery:
            for some in names:
                nursery.start_soon(cluster[1].administration.delete_topics, some)
        assert 1 < most <= TOPICS_PER_SLICE + 1  # the controller removes them meanwhile
        assert await cluster.tree.children(znodes.TOPICS) == []


async def test_a_topic_that_is_being_deleted_cannot_be_created(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with clustered(tmp_path) as cluster:
        await create(cluster, NewTopic(name="t"))
        cluster.controller.is_lazy = True
        await cluster.tree.multi([Create(znodes.deleted_topic_path("t"))])
        cluster.show("t", None)
        (error,) = await cluster[1].administration.create_topics([NewTopic(name="t")])
        assert isinstance(error, KafkaError)
        assert (error.code, error.message) == (ErrorCode.TOPIC_ALREADY_EXISTS, "Topic 't' is marked for deletion.")


@pytest.mark.parametrize("name", ["unknown", "", "..", "../ids/1", "t/partitions/0/state", "a\0b", "t" * 250])
async def test_a_topic_that_cannot_be_is_unknown_and_its_name_is_no_path(tmp_path: Path, name: str) -> None:
    async with clustered(tmp_path) as cluster:
        await create(cluster, NewTopic(name="t"))
        with pytest.raises(KafkaError) as refused:
            await cluster[1].administration.create_partitions(name, 2)
        assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_only_validating_writes_nothing(tmp_path: Path) -> None:
    async with clustered(tmp_path) as cluster:
        assert await create(cluster, NewTopic(name="t"), validate_only=True) == [ErrorCode.NONE]
        assert await cluster.tree.children(znodes.TOPICS) == []
        await create(cluster, NewTopic(name="t"))
        await cluster[1].administration.create_partitions("t", 5, validate_only=True)
        await cluster[1].administration.settings.alter_topic("t", lambda _: {"retention.ms": "5"}, validate_only=True)
        await cluster[1].administration.settings.alter_broker(
            lambda _: {"log.retention.ms": "5"}, for_all=True, validate_only=True
        )
        assert len(znodes.decode_topic((await cluster.tree.get(znodes.topic_path("t"))).data).partitions) == 1
        assert await cluster.tree.children(znodes.CONFIG_CHANGES) == []


async def test_too_few_brokers_for_the_replication_factor(tmp_path: Path) -> None:
    async with clustered(tmp_path) as cluster:
        assert await create(cluster, NewTopic(name="t", replication_factor=4)) == [ErrorCode.INVALID_REPLICATION_FACTOR]


async def test_a_controller_that_was_replaced_without_knowing_writes_nothing(tmp_path: Path) -> None:
    async with clustered(tmp_path) as cluster:
        administration = cluster[1].administration
        await create(cluster, NewTopic(name="u"))
        await cluster.tree.multi([SetData(znodes.CONTROLLER_EPOCH, b"8")])
        assert await create(cluster, NewTopic(name="t")) == [ErrorCode.NOT_CONTROLLER]
        assert codes(await administration.delete_topics(["u"])) == [ErrorCode.NOT_CONTROLLER]
        with pytest.raises(KafkaError) as refused:
            await administration.create_partitions("u", 2)
        assert refused.value.code is ErrorCode.NOT_CONTROLLER
        assert not cluster[1]._planner.is_planned("t")
        assert await cluster.tree.children(znodes.TOPICS) == ["u"]
        assert await cluster.tree.children(znodes.DELETED_TOPICS) == []


async def test_a_creation_that_the_controller_cannot_store_in_time_may_be_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    async with clustered(tmp_path) as cluster:

        async def unavailable(operations: Any) -> Any:
            raise CoordinationUnavailable("")

        with monkeypatch.context() as patch:
            patch.setattr(cluster.tree, "multi", unavailable)
            started = trio.current_time()
            assert await create(cluster, NewTopic(name="t"), timeout_s=3) == [ErrorCode.REQUEST_TIMED_OUT]
            assert trio.current_time() - started == pytest.approx(3)
        assert await create(cluster, NewTopic(name="t")) == [ErrorCode.NONE]


async def test_what_the_controller_refuses_is_refused_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with clustered(tmp_path) as cluster:
        refusal = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "no room")
        carry_out = cluster.controller.create_topics

        async def no_room_for_two(plans: Sequence[TopicPlan]) -> Mapping[str, KafkaError | None]:
            return {**await carry_out([plan for plan in plans if plan.name != "t-2"]), "t-2": refusal}

        monkeypatch.setattr(cluster.controller, "create_topics", no_room_for_two)
        topics = [NewTopic(name=f"t-{number}") for number in (1, 2, 3)]
        outcomes = await cluster[1].administration.create_topics(topics)
        assert codes(outcomes) == [ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NONE]
        assert outcomes[1] is refusal
        assert cluster[1].cluster.topics.keys() == {"t-1", "t-3"}
        assert not cluster[1]._planner.is_planned("t-2")


async def test_a_controller_that_resigns_meanwhile_creates_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with clustered(tmp_path) as cluster:

        async def resigned(*_: Any, **__: Any) -> Any:
            raise KafkaError(ErrorCode.NOT_CONTROLLER)

        await create(cluster, NewTopic(name="u"))
        monkeypatch.setattr(cluster.controller, "create_topics", resigned)
        monkeypatch.setattr(cluster.controller, "add_partitions", resigned)
        found = await create(cluster, NewTopic(name="t"), NewTopic(name="u"), NewTopic(name="v"))
        assert found == [ErrorCode.NOT_CONTROLLER, ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.NOT_CONTROLLER]
        assert not cluster[1]._planner.is_planned("t")
        with pytest.raises(KafkaError) as refused:
            await cluster[1].administration.create_partitions("u", 2)
        assert refused.value.code is ErrorCode.NOT_CONTROLLER


# ---------------------------------------------------------------------- partitions


async def test_partitions_are_added_on_top_of_what_is_written(tmp_path: Path) -> None:
    async with clustered(tmp_path) as cluster:
        await create(cluster, NewTopic(name="t", partition_count=2, replication_factor=2))
        before = znodes.decode_topic((await cluster.tree.get(znodes.topic_path("t"))).data)
        await cluster[1].administration.create_partitions("t", 4, [[3, 1], [2, 3]])
        after = znodes.decode_topic((await cluster.tree.get(znodes.topic_path("t"))).data)
        assert after.topic_id == before.topic_id
        assert after.partitions == {**before.partitions, 2: [3, 1], 3: [2, 3]}
        assert len(cluster[2].cluster.topics["t"].partitions) == 4


async def test_partitions_that_the_cluster_does_not_show_yet_count(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with clustered(tmp_path) as cluster:
        await create(cluster, NewTopic(name="t"))
        cluster.controller.is_lazy = True
        for expected in (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.INVALID_PARTITIONS):
            with pytest.raises(KafkaError) as refused:
                await cluster[1].administration.create_partitions("t", 2, timeout_s=1)
            assert refused.value.code is expected


async def test_partitions_are_not_added_where_the_controller_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with clustered(tmp_path) as cluster:
        await create(cluster, NewTopic(name="t"))

        async def refuse(*_: Any, **__: Any) -> Any:
            raise KafkaError(ErrorCode.REASSIGNMENT_IN_PROGRESS, "wait")

        monkeypatch.setattr(cluster.controller, "add_partitions", refuse)
        for validate_only in (False, True):
            with pytest.raises(KafkaError) as refused:
                await cluster[1].administration.create_partitions("t", 2, validate_only=validate_only)
            assert (refused.value.code, refused.value.message) == (ErrorCode.REASSIGNMENT_IN_PROGRESS, "wait")


async def test_partitions_of_an_unknown_topic(tmp_path: Path) -> None:
    async with clustered(tmp_path) as cluster:
        with pytest.raises(KafkaError) as refused:
            await cluster[1].administration.create_partitions("t", 2)
        assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_an_extension_that_the_controller_cannot_store_in_time_is_timed_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    async with clustered(tmp_path) as cluster:
        await create(cluster, NewTopic(name="t"))

        async def unavailable(operations: Any) -> Any:
            raise CoordinationUnavailable("")

        with monkeypatch.context() as patch:
            patch.setattr(cluster.tree, "multi", unavailable)
            with pytest.raises(KafkaError) as refused:
                await cluster[1].administration.create_partitions("t", 2, timeout_s=3)
            assert refused.value.code is ErrorCode.REQUEST_TIMED_OUT
        await cluster[1].administration.create_partitions("t", 2)


# ---------------------------------------------------------------------- deletion


async def test_a_topic_is_created_again_as_soon_as_it_is_gone(tmp_path: Path) -> None:
    async with clustered(tmp_path) as cluster:
        await create(cluster, NewTopic(name="t"))
        cluster.controller.is_lazy = True
        await cluster.tree.multi([Create(znodes.deleted_topic_path("t"))])
        cluster.show("t", None)
        created: list[ErrorCode] = []

        async def create_again() -> None:
            created.extend(await create(cluster, NewTopic(name="t"), NewTopic(name="u")))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(create_again)
            await trio.testing.wait_all_tasks_blocked()
            await cluster.tree.multi([SetData(znodes.deleted_topic_path("t"), b"still there")])
            await trio.testing.wait_all_tasks_blocked()
            assert not created
            cluster.controller.is_lazy = False
            cluster.controller._on_change("")
        assert created == [ErrorCode.NONE, ErrorCode.NONE]


async def test_a_deleted_topic_is_gone_when_the_answer_comes(tmp_path: Path) -> None:
    async with clustered(tmp_path) as cluster:
        await create(cluster, NewTopic(name="t"), NewTopic(name="u"))
        errors = await cluster[1].administration.delete_topics(["t", "x"])
        assert codes(errors) == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        assert list(cluster[1].cluster.topics) == ["u"]
        assert await create(cluster, NewTopic(name="t")) == [ErrorCode.NONE]


async def test_deletions_of_one_topic_wait_together(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    async with clustered(tmp_path) as cluster:
        await create(cluster, NewTopic(name="t"))
        cluster.controller.is_lazy = True
        first = await cluster[1].administration.delete_topics(["t"], timeout_s=1)
        assert codes(first) == [ErrorCode.REQUEST_TIMED_OUT]
        results: list[ErrorCode] = []

        async def delete() -> None:
            results.extend(codes(await cluster[1].administration.delete_topics(["t"])))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(delete)
            await trio.testing.wait_all_tasks_blocked()
            cluster.controller.is_lazy = False
            cluster.controller._on_change("")
        assert results == [ErrorCode.NONE]


async def test_a_topic_that_came_again_under_the_same_name_counts_as_deleted(tmp_path: Path) -> None:
    async with clustered(tmp_path) as cluster:
        await create(cluster, NewTopic(name="t"))
        cluster.controller.is_lazy = True
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(cluster[1].administration.delete_topics, ["t"], timeout_s=math.inf))
            await trio.testing.wait_all_tasks_blocked()
            cluster.show("t", TopicState("t", b"2" * 16, (PartitionState(1, 0, (1,), (1,)),)))


# ---------------------------------------------------------------------- elsewhere than at the controller


async def test_other_brokers_say_that_they_are_not_the_controller(tmp_path: Path) -> None:
    async with clustered(tmp_path) as cluster:
        topics = [
            CreatableTopic(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[])
            for name in "tt"
        ]
        created = await cluster[2].answer(CreateTopicsRequest(topics=topics), 7)
        assert [(each.name, each.error_code, each.error_message) for each in created.topics] == [
            ("t", ErrorCode.NOT_CONTROLLER, None)
        ] * 2
        more = [CreatePartitionsTopic(name="t", count=2, assignments=None)]
        extended = await cluster[2].answer(CreatePartitionsRequest(topics=more, timeout_ms=0, validate_only=False), 3)
        assert [(each.name, each.error_code) for each in extended.results] == [("t", ErrorCode.NOT_CONTROLLER)]
        states = [DeleteTopicState(name=None, topic_id=b"x" * 16), DeleteTopicState(name="t", topic_id=bytes(16))]
        deleted = await cluster[2].answer(DeleteTopicsRequest(topics=states, timeout_ms=0), 6)
        assert [(each.name, each.topic_id, each.error_code) for each in deleted.responses] == [
            (None, b"x" * 16, ErrorCode.NOT_CONTROLLER),
            ("t", bytes(16), ErrorCode.NOT_CONTROLLER),
        ]
        administration = cluster[2].administration
        assert codes(await administration.create_topics([NewTopic(name="t")])) == [ErrorCode.NOT_CONTROLLER]
        assert codes(await administration.delete_topics(["t"])) == [ErrorCode.NOT_CONTROLLER]
        with pytest.raises(KafkaError):
            await administration.create_partitions("t", 2)


async def test_the_handlers_of_the_controller_create_extend_and_delete(tmp_path: Path) -> None:
    async with clustered(tmp_path) as cluster:
        topic = CreatableTopic(name="t", num_partitions=1, replication_factor=3, assignments=[], configs=[])
        created = await cluster[1].answer(CreateTopicsRequest(topics=[topic]), 7)
        assert [(each.error_code, each.replication_factor) for each in created.topics] == [(0, 3)]
        more = [CreatePartitionsTopic(name=name, count=2, assignments=None) for name in "xt"]
        extended = await cluster[1].answer(
            CreatePartitionsRequest(topics=more, timeout_ms=1000, validate_only=False), 3
        )
        assert [(each.name, each.error_code) for each in extended.results] == [("x", 3), ("t", 0)]
        states = [DeleteTopicState(name="t", topic_id=bytes(16))]
        deleted = await cluster[1].answer(DeleteTopicsRequest(topics=states, timeout_ms=1000), 6)
        assert [(each.name, each.error_code) for each in deleted.responses] == [("t", 0)]


async def shown(cluster: Cluster, node_id: int, name: str) -> None:
    """Return when a member sees a topic."""
    seen = trio.Event()
    cancel = cluster[node_id].cluster.on_topic_change(lambda _: seen.set())
    while name not in cluster[node_id].cluster.topics:
        await seen.wait()
        seen = trio.Event()
    cancel()


@pytest.mark.parametrize("node_id", [1, 2])
async def test_a_topic_that_a_client_asks_for_is_created_from_any_broker(tmp_path: Path, node_id: int) -> None:
    async with clustered(tmp_path) as cluster:
        cluster[node_id].administration.request_creation(["t", "b@d"])
        await shown(cluster, node_id, "t")
        assert len(cluster[2].sent) == node_id - 1


@pytest.mark.parametrize("node_id", [1, 2])
async def test_topics_are_requested_from_any_broker_and_each_is_heard_of(tmp_path: Path, node_id: int) -> None:
    heard: dict[str, KafkaError | None] = {}
    async with clustered(tmp_path) as cluster:
        wanted = [
            NewTopic(name="t", partition_count=2, configs={"cleanup.policy": "compact"}),
            NewTopic(name="u", configs={"no.such": "setting"}),
        ]
        cluster[node_id].administration.request_topics(wanted, heard.__setitem__)
        await shown(cluster, node_id, "t")
        while len(heard) < 2:
            await trio.lowlevel.checkpoint()
        assert len(cluster[node_id].cluster.topics["t"].partitions) == 2
        assert len(cluster[2].sent) == node_id - 1
    assert heard["t"] is None
    assert isinstance(heard["u"], KafkaError) and heard["u"].code is ErrorCode.INVALID_CONFIG


async def test_an_internal_topic_is_there_when_it_is_needed(tmp_path: Path) -> None:
    settings = {"offsets.topic.num.partitions": "2"}
    async with clustered(tmp_path, settings=settings) as cluster:
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(cluster[2].administration.ensure_topic, OFFSETS)
        (request,) = cluster[2].sent
        assert request.topics[0].replication_factor == 3
        assert {each.name: each.value for each in request.topics[0].configs}["cleanup.policy"] == "compact"
        assert [len(state.replicas) for state in cluster[2].cluster.topics[OFFSETS].partitions] == [3, 3]
        await cluster[1].administration.ensure_topic(OFFSETS)


@pytest.mark.parametrize("node_id", [1, 2])
async def test_an_internal_topic_needs_as_many_brokers_as_it_is_to_have_replicas(tmp_path: Path, node_id: int) -> None:
    async with clustered(tmp_path, racks={1: None, 2: None}) as cluster:
        with pytest.raises(KafkaError) as refused:
            await cluster[node_id].administration.ensure_topic(OFFSETS)
        assert refused.value.code is ErrorCode.INVALID_REPLICATION_FACTOR


async def test_an_internal_topic_cannot_be_had_without_a_controller(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with clustered(tmp_path) as cluster:
        cluster[1].controller = None
        with pytest.raises(KafkaError) as refused:
            await cluster[2].administration.ensure_topic(OFFSETS)
        assert refused.value.code is ErrorCode.NOT_CONTROLLER
        cluster[1].controller = cluster.controller
        cluster.controller.is_lazy = True
        with pytest.raises(KafkaError) as refused:
            await cluster[1].administration.ensure_topic(OFFSETS)
        assert refused.value.code is ErrorCode.REQUEST_TIMED_OUT
