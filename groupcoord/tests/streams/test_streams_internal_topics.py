"""Topologies checked against topics: partition counts of internal topics, tasks, and statuses of topics that do not fit."""

from collections.abc import Mapping

import pytest

from ottla.groupcoord.streams.internal_topics import ConfiguredTopology, configure
from ottla.groupcoord.streams.records import (
    CopartitionGroup,
    StreamsGroupTopologyValue,
    Subtopology,
    TopicConfig,
    TopicInfo,
)
from ottla.groupcoord.streams.topology import Status, Topology
from ottla.wire.errors import ErrorCode, KafkaError


def topic(name: str, partitions: int = 0, replicas: int = 0, **configs: str) -> TopicInfo:
    settings = [TopicConfig(key=key.replace("_", "."), value=value) for key, value in configs.items()]
    return TopicInfo(name=name, partitions=partitions, replication_factor=replicas, topic_configs=settings)


def subtopology(
    name: str,
    *sources: str,
    reads: tuple[TopicInfo, ...] = (),
    writes: tuple[str, ...] = (),
    keeps: tuple[TopicInfo, ...] = (),
    joins: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = (),
) -> Subtopology:
    groups = [
        CopartitionGroup(source_topics=list(plain), source_topic_regex=[], repartition_source_topics=list(repartition))
        for plain, repartition in joins
    ]
    return Subtopology(
        subtopology_id=name,
        source_topics=list(sources),
        source_topic_regex=[],
        state_changelog_topics=list(keeps),
        repartition_sink_topics=list(writes),
        repartition_source_topics=list(reads),
        copartition_groups=groups,
    )


def configured(existing: Mapping[str, int], *subtopologies: Subtopology) -> ConfiguredTopology:
    topology = Topology(StreamsGroupTopologyValue(epoch=3, subtopologies=list(subtopologies)))
    return configure(topology, existing.get)


def problem(existing: Mapping[str, int], *subtopologies: Subtopology) -> tuple[Status, str]:
    found = configured(existing, *subtopologies).problem
    assert found is not None
    return found.status, found.detail


def missing_counts(found: ConfiguredTopology) -> dict[str, int]:
    return {each.name: each.partitions for each in found.missing}


def test_a_topology_without_internal_topics_is_ready_when_its_sources_exist() -> None:
    found = configured({"words": 4, "more": 6}, subtopology("0", "words", "more"))
    assert found.is_ready and found.epoch == 3
    assert found.subtopologies is not None
    assert found.subtopologies["0"].task_count == 6
    assert not found.subtopologies["0"].is_stateful


def test_missing_sources_are_named_at_most_three_of_them() -> None:
    status, detail = problem({"b": 1}, subtopology("0", "e", "d", "b"), subtopology("1", "c", "a"))
    assert status is Status.MISSING_SOURCE_TOPICS
    assert detail == "Source topics a, c, d and 1 additional topics are missing."


def test_a_changelog_has_a_partition_for_each_task() -> None:
    found = configured({"words": 4, "more": 6}, subtopology("0", "words", "more", keeps=(topic("store"),)))
    assert missing_counts(found) == {"store": 6}
    assert found.problem is not None
    assert found.problem.status is Status.MISSING_INTERNAL_TOPICS
    assert found.problem.detail == "Internal topics are missing: store"
    assert found.subtopologies is not None and found.subtopologies["0"].is_stateful


def test_internal_topics_that_exist_as_needed_are_not_missing() -> None:
    found = configured({"words": 4, "store": 4}, subtopology("0", "words", keeps=(topic("store"),)))
    assert found.is_ready and not found.missing


def test_an_internal_topic_of_another_size_is_reported() -> None:
    status, detail = problem({"words": 4, "store": 3}, subtopology("0", "words", keeps=(topic("store"),)))
    assert status is Status.INCORRECTLY_PARTITIONED_TOPICS
    assert detail == "Existing topic store has different number of partitions: expected 4, found 3"


def test_a_repartition_topic_gets_the_largest_count_of_what_is_read_by_its_writer() -> None:
    found = configured(
        {"a": 2, "b": 5},
        subtopology("0", "a", "b", writes=("between",)),
        subtopology("1", reads=(topic("between"),), keeps=(topic("store"),)),
    )
    assert missing_counts(found) == {"between": 5, "store": 5}


def test_counts_pass_through_several_repartition_topics_whatever_the_order() -> None:
    found = configured(
        {"a": 7},
        subtopology("0", reads=(topic("second"),)),
        subtopology("1", reads=(topic("first"),), writes=("second",)),
        subtopology("2", "a", writes=("first",)),
    )
    assert missing_counts(found) == {"first": 7, "second": 7}
    assert found.subtopologies is not None
    assert [each.task_count for each in found.subtopologies.values()] == [7, 7, 7]


def test_a_repartition_topic_may_ask_for_its_count() -> None:
    found = configured(
        {"a": 7}, subtopology("0", "a", writes=("between",)), subtopology("1", reads=(topic("between", 3),))
    )
    assert missing_counts(found) == {"between": 3}


def test_a_loop_of_repartition_topics_is_refused() -> None:
    with pytest.raises(KafkaError, match="There may be loops") as refused:
        configured(
            {},
            subtopology("0", reads=(topic("a"),), writes=("b",)),
            subtopology("1", reads=(topic("b"),), writes=("a",)),
        )
    assert refused.value.code is ErrorCode.STREAMS_INVALID_TOPOLOGY


def test_a_repartition_topic_that_nobody_writes_is_refused() -> None:
    with pytest.raises(KafkaError, match="is never used as a sink topic") as refused:
        configured({"a": 1}, subtopology("0", "a", reads=(topic("between"),)))
    assert refused.value.code is ErrorCode.STREAMS_INVALID_TOPOLOGY


def test_a_subtopology_without_sources_is_refused() -> None:
    with pytest.raises(KafkaError, match="No source topics found for subtopology 0") as refused:
        configured({}, subtopology("0", keeps=(topic("store"),)))
    assert refused.value.code is ErrorCode.STREAMS_INVALID_TOPOLOGY


def test_joined_sources_must_have_equal_counts() -> None:
    status, detail = problem({"a": 2, "b": 3}, subtopology("0", "a", "b", joins=(((0, 1), ()),)))
    assert status is Status.INCORRECTLY_PARTITIONED_TOPICS
    assert detail == "Following topics do not have the same number of partitions: [{a=2, b=3}]"


def test_a_joined_repartition_topic_takes_the_count_of_the_other_source() -> None:
    found = configured(
        {"a": 2, "b": 6},
        subtopology("0", "a", writes=("between",)),
        subtopology("1", "b", reads=(topic("between"),), joins=(((0,), (0,)),)),
    )
    assert missing_counts(found) == {"between": 6}


def test_a_joined_repartition_topic_with_a_count_of_its_own_must_fit() -> None:
    status, detail = problem(
        {"a": 2, "b": 6},
        subtopology("0", "a", writes=("between",)),
        subtopology("1", "b", reads=(topic("between", 4),), joins=(((0,), (0,)),)),
    )
    assert status is Status.INCORRECTLY_PARTITIONED_TOPICS
    assert detail == (
        "Number of partitions [4] of repartition topic [between] doesn't match number of partitions [6] "
        "of the source topic."
    )


def test_joined_repartition_topics_take_the_largest_count_or_the_one_asked_for() -> None:
    writers = subtopology("0", "a", writes=("x",)), subtopology("1", "b", writes=("y",))
    both = ((), (0, 1))
    free = configured({"a": 2, "b": 6}, *writers, subtopology("2", reads=(topic("x"), topic("y")), joins=(both,)))
    assert missing_counts(free) == {"x": 6, "y": 6}
    fixed = configured({"a": 2, "b": 6}, *writers, subtopology("2", reads=(topic("x", 3), topic("y")), joins=(both,)))
    assert missing_counts(fixed) == {"x": 3, "y": 3}
    status, detail = problem(
        {"a": 2, "b": 6}, *writers, subtopology("2", reads=(topic("x", 3), topic("y", 4)), joins=(both,))
    )
    assert status is Status.INCORRECTLY_PARTITIONED_TOPICS
    assert detail == "Following topics do not have the same number of partitions: [{x=3, y=4}]"


@pytest.mark.parametrize("index", [-1, 1, 32767])
def test_a_copartition_group_of_a_source_that_is_not_there_is_refused(index: int) -> None:
    with pytest.raises(KafkaError) as refused:
        configured({"a": 1}, subtopology("0", "a", joins=(((index,), ()),)))
    assert refused.value.code is ErrorCode.UNKNOWN_SERVER_ERROR


def test_a_topic_is_created_with_what_the_application_asks_for() -> None:
    store = topic("store", replicas=2, cleanup_policy="compact")
    asked = configured({"a": 1}, subtopology("0", "a", keeps=(store, topic("plain")))).missing
    first, second = (each.creation() for each in asked)
    assert (first.name, first.num_partitions, first.replication_factor) == ("store", 1, 2)
    assert [(each.name, each.value) for each in first.configs] == [("cleanup.policy", "compact")]
    assert (second.name, second.replication_factor, second.configs) == ("plain", -1, [])


def test_a_subtopology_named_twice_is_refused() -> None:
    with pytest.raises(KafkaError):
        configured({"a": 1}, subtopology("0", "a"), subtopology("0", "a"))


def test_a_topology_of_very_many_tasks_is_refused() -> None:
    with pytest.raises(KafkaError, match="has 20100 tasks") as refused:
        configured({"a": 100}, *(subtopology(str(number), "a") for number in range(201)))
    assert refused.value.code is ErrorCode.STREAMS_INVALID_TOPOLOGY


def test_a_long_chain_in_the_worst_order_takes_a_step_for_each_link() -> None:
    length = 3_000
    asked: list[str] = []

    def count(name: str) -> int | None:
        asked.append(name)
        return 3 if name == "t0" else None

    chain = [
        subtopology(str(number), reads=(topic(f"t{number}"),), writes=(f"t{number + 1}",))
        for number in range(length, 0, -1)
    ]
    whole = Topology(StreamsGroupTopologyValue(epoch=0, subtopologies=[*chain, subtopology("0", "t0", writes=("t1",))]))
    found = configure(whole, count)
    assert missing_counts(found)[f"t{length}"] == 3
    assert len(asked) < 20 * length
