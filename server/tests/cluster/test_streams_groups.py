"""Streams groups inside a broker that is alone: their handlers, and the topics that applications need for themselves."""

from pathlib import Path
from typing import Any

import trio
from trio.testing import MockClock

from ottla.replication.controller.topic_planner import NewTopic
from ottla.server.cluster.streams_topics import StreamsTopics
from ottla.server.tests.administered import AdministeredBroker, ask, opened
from ottla.server.tests.api.test_config_handlers import SET, change
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest
from ottla.wire.messages.groups import ListGroupsRequest
from ottla.wire.messages.streams_group import (
    KeyValue,
    StreamsGroupDescribeRequest,
    StreamsGroupHeartbeatRequest,
    StreamsGroupTopologyDescriptionUpdateRequest,
    Subtopology,
    TopicInfo,
    Topology,
    TopologyDescription,
)

SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "group.streams.initial.rebalance.delay.ms": "0",
    "group.streams.assignment.interval.ms": "0",
}
MISSING_INTERNAL_TOPICS, MISSING_CLIENT_TAGS = 3, 6
GROUP = 32


def join(*sources: str, member: str = "m", store: TopicInfo | None = None) -> StreamsGroupHeartbeatRequest:
    part = Subtopology(
        subtopology_id="0",
        source_topics=list(sources),
        source_topic_regex=[],
        state_changelog_topics=[] if store is None else [store],
        repartition_sink_topics=[],
        repartition_source_topics=[],
        copartition_groups=[],
    )
    return StreamsGroupHeartbeatRequest(
        group_id="g",
        member_id=member,
        member_epoch=0,
        endpoint_information_epoch=0,
        rebalance_timeout_ms=60_000,
        topology=Topology(epoch=0, subtopologies=[part]),
        active_tasks=[],
        standby_tasks=[],
        warmup_tasks=[],
        process_id="p",
        client_tags=[],
    )


def beat(epoch: int, member: str = "m") -> StreamsGroupHeartbeatRequest:
    return StreamsGroupHeartbeatRequest(
        group_id="g", member_id=member, member_epoch=epoch, endpoint_information_epoch=0
    )


def store(name: str, replicas: int = 0, **configs: str) -> TopicInfo:
    settings = [KeyValue(key=key.replace("_", "."), value=value) for key, value in configs.items()]
    return TopicInfo(name=name, partitions=0, replication_factor=replicas, topic_configs=settings)


async def with_source(directory: Path) -> AdministeredBroker:
    broker = await opened(directory, SETTINGS)
    await broker.administration.create_topics([NewTopic(name="source", partition_count=2)])
    await ask(broker, FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 6)
    while (await ask(broker, beat(5), 1)).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        await trio.lowlevel.checkpoint()
    return broker


async def test_internal_topics_are_created_and_then_there_are_tasks(tmp_path: Path, autojump_clock: MockClock) -> None:
    broker = await with_source(tmp_path)
    first = await ask(broker, join("source", store=store("g-store", cleanup_policy="compact")), 1)
    assert [each.status_code for each in first.status] == [MISSING_INTERNAL_TOPICS]
    while broker.cluster.topics.get("g-store") is None:
        await trio.sleep(0.01)
    topic = broker.cluster.topics.get("g-store")
    assert topic is not None and len(topic.partitions) == 2
    assert broker.log_config("g-store").is_compacted
    answer = await ask(broker, beat(first.member_epoch), 1)
    assert [(each.subtopology_id, each.partitions) for each in answer.active_tasks] == [("0", [0, 1])]
    assert answer.status == []

    described = await ask(
        broker,
        StreamsGroupDescribeRequest(
            group_ids=["g", "", "none"], include_authorized_operations=True, include_topology_description=True
        ),
        1,
    )
    states = [(each.error_code, each.group_state, each.topology_description_status) for each in described.groups]
    assert states == [(0, "Stable", 1), (ErrorCode.INVALID_GROUP_ID, "", 0), (ErrorCode.GROUP_ID_NOT_FOUND, "", 0)]
    assert described.groups[0].authorized_operations > 0 > described.groups[2].authorized_operations
    listed = await ask(broker, ListGroupsRequest(types_filter=["streams"]), 5)
    assert [(each.group_id, each.group_type) for each in listed.groups] == [("g", "streams")]
    await broker.stop()


async def test_members_hear_why_a_topic_cannot_be_created(tmp_path: Path, autojump_clock: MockClock) -> None:
    broker = await with_source(tmp_path)
    first = await ask(broker, join("source", store=store("g-store", no_such="setting")), 1)
    (status,) = first.status
    assert status.status_detail == "Internal topics are missing: g-store"
    await trio.sleep(1)
    (status,) = (await ask(broker, beat(first.member_epoch), 1)).status
    assert status.status_detail.startswith("Internal topics are missing: g-store; Creation failed: g-store (")
    assert status.status_detail.endswith(").")
    await broker.stop()


async def test_the_brokers_assignment_interval_counts_as_soon_as_it_is_changed(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    broker = await with_source(tmp_path)
    assert (await ask(broker, join("source"), 1)).status == []
    await change(broker, (4, "", [("group.streams.assignment.interval.ms", SET, "15000")]))
    (status,) = (await ask(broker, join("source", member="n"), 1)).status
    assert status.status_detail == "Assignment delayed due to the configured assignment interval."
    await change(broker, (4, "", [("group.streams.assignment.interval.ms", SET, "0")]))
    assert (await ask(broker, beat(2), 1)).status == []
    await broker.stop()


class Orders:
    """An administration that writes down what is ordered."""

    def __init__(self) -> None:
        self.ordered: list[list[str]] = []
        self.heard: Any = None

    def request_topics(self, topics: list[NewTopic], heard: Any) -> None:
        self.ordered.append([topic.name for topic in topics])
        self.heard = heard


def test_a_topic_is_ordered_once_and_again_after_a_pause_if_that_failed() -> None:
    now_ms = 0
    orders = Orders()
    topics = StreamsTopics(orders, lambda: now_ms)  # type: ignore[arg-type]
    wanted = [
        CreatableTopic(name=name, num_partitions=1, replication_factor=-1, assignments=[], configs=[]) for name in "ab"
    ]
    assert topics.create(wanted, pause_ms=10_000) == {}
    assert topics.create(wanted, pause_ms=10_000) == {}
    assert orders.ordered == [["a", "b"]]
    orders.heard("a", KafkaError(ErrorCode.INVALID_CONFIG, "no"))
    orders.heard("b", None)
    assert topics.create(wanted, pause_ms=10_000) == {"a": "no"}
    assert orders.ordered == [["a", "b"], ["b"]]
    now_ms = 10_000
    assert topics.create(wanted, pause_ms=10_000) == {}
    assert orders.ordered == [["a", "b"], ["b"], ["a"]]


def test_what_cannot_be_ordered_at_all_fails_at_once() -> None:
    orders = Orders()
    topics = StreamsTopics(orders, lambda: 0)  # type: ignore[arg-type]
    configs = [CreatableTopicConfig(name="cleanup.policy", value=None)]
    wanted = [CreatableTopic(name="a", num_partitions=1, replication_factor=-1, assignments=[], configs=configs)]
    assert topics.create(wanted, pause_ms=10_000) == {}
    assert topics.create(wanted, pause_ms=10_000) == {"a": "Null value not supported for topic configs: cleanup.policy"}
    assert orders.ordered == []


async def test_topologies_with_impossible_names_are_refused(tmp_path: Path, autojump_clock: MockClock) -> None:
    broker = await with_source(tmp_path)
    internal = await ask(broker, join("source", "__consumer_offsets"), 1)
    assert internal.error_code == ErrorCode.STREAMS_INVALID_TOPOLOGY
    assert internal.error_message == (
        "Use of Kafka internal topics __consumer_offsets in a Kafka Streams topology is prohibited."
    )
    invalid = await ask(broker, join("source", "what?", "no/way"), 1)
    assert invalid.error_message == "Topic names what?,no/way are not valid topic names."
    assert (await ask(broker, join("source", member=" "), 1)).error_message == "MemberId can't be empty."
    await broker.stop()


async def test_a_group_may_have_other_settings_than_the_broker(tmp_path: Path, autojump_clock: MockClock) -> None:
    broker = await with_source(tmp_path)
    first = await ask(broker, join("source"), 1)
    assert (first.heartbeat_interval_ms, first.status) == (5000, [])
    settings = {"streams.heartbeat.interval.ms": "7000", "streams.rack.aware.assignment.tags": "zone"}
    group = (GROUP, "g", [(name, SET, value) for name, value in settings.items()])
    assert await change(broker, group) == [(0, None)]
    then = await ask(broker, beat(first.member_epoch), 1)
    assert then.heartbeat_interval_ms == 7000 and then.member_epoch > first.member_epoch
    assert [each.status_code for each in then.status] == [MISSING_CLIENT_TAGS]
    await broker.stop()


async def test_nobody_keeps_descriptions_of_topologies(tmp_path: Path, autojump_clock: MockClock) -> None:
    broker = await with_source(tmp_path)
    description = TopologyDescription(subtopologies=[], global_stores=[])
    request = StreamsGroupTopologyDescriptionUpdateRequest(
        group_id="g", member_id="m", topology_epoch=0, topology_description=description
    )
    assert (await ask(broker, request, 0)).error_code == ErrorCode.UNSUPPORTED_VERSION
    await broker.stop()
