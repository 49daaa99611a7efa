"""The share coordinator inside a broker that is alone: its topic, its handlers, restarts and deleted topics."""

from pathlib import Path
from typing import Any

import trio
from trio.testing import MockClock

from ottla.groupcoord.share.coordinator.records import SharePartitionKey
from ottla.replication.cluster.metadata_cache import SHARE_GROUP_STATE_TOPIC
from ottla.replication.controller.topic_planner import NewTopic
from ottla.server.tests.administered import AdministeredBroker, ask, opened
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest
from ottla.wire.messages.share_group_state import (
    InitializeShareGroupStateRequest,
    InitializeStateData,
    ReadShareGroupStateRequest,
    ReadShareGroupStateSummaryRequest,
    ReadStateData,
    ReadStateSummaryData,
    StateBatch,
    WriteShareGroupStateRequest,
    WriteStateData,
    WriteStatePartition,
)
from ottla.wire.messages.share_group_state import InitializeStatePartition as InitializedPartition
from ottla.wire.messages.share_group_state import ReadStatePartition as ReadPartition
from ottla.wire.messages.share_group_state import ReadStatePartition as SummarizedPartition

SETTINGS = {
    "share.coordinator.state.topic.num.partitions": "3",
    "share.coordinator.state.topic.prune.interval.ms": "1000",
    "share.coordinator.snapshot.update.records.per.snapshot": "2",
}


def initialize(topic_id: bytes, start_offset: int = 0) -> InitializeShareGroupStateRequest:
    data = InitializedPartition(partition=0, state_epoch=0, start_offset=start_offset)
    topics = [InitializeStateData(topic_id=topic_id, partitions=[data])]
    return InitializeShareGroupStateRequest(group_id="group", topics=topics)


def write(topic_id: bytes, offset: int) -> WriteShareGroupStateRequest:
    batch = StateBatch(first_offset=offset, last_offset=offset, delivery_state=2, delivery_count=1)
    data = WriteStatePartition(
        partition=0, state_epoch=0, leader_epoch=0, start_offset=0, delivery_complete_count=3, state_batches=[batch]
    )
    topics = [WriteStateData(topic_id=topic_id, partitions=[data])]
    return WriteShareGroupStateRequest(group_id="group", topics=topics)


def read(topic_id: bytes) -> ReadShareGroupStateRequest:
    topics = [ReadStateData(topic_id=topic_id, partitions=[ReadPartition(partition=0, leader_epoch=0)])]
    return ReadShareGroupStateRequest(group_id="group", topics=topics)


def summary(topic_id: bytes) -> ReadShareGroupStateSummaryRequest:
    topics = [ReadStateSummaryData(topic_id=topic_id, partitions=[SummarizedPartition(partition=0, leader_epoch=0)])]
    return ReadShareGroupStateSummaryRequest(group_id="group", topics=topics)


def result(response: Any) -> Any:
    return response.results[0].partitions[0]


async def with_topic(directory: Path) -> tuple[AdministeredBroker, bytes]:
    """A broker with a topic and the state topic, and the topic's id."""
    broker = await opened(directory, SETTINGS)
    await broker.administration.create_topics([NewTopic(name="t", partition_count=1)])
    topic = broker.cluster.topics.get("t")
    assert topic is not None
    key = "group" + SharePartitionKey("group", topic.topic_id, 0).coordinator_key_end()
    request = FindCoordinatorRequest(key_type=2, coordinator_keys=[key, "group"])
    found = (await ask(broker, request, 6)).coordinators
    assert [(each.error_code, each.node_id) for each in found] == [(0, 1), (ErrorCode.INVALID_REQUEST, -1)]
    await loaded(broker, topic.topic_id)
    return broker, topic.topic_id


async def loaded(broker: AdministeredBroker, topic_id: bytes) -> None:
    while result(await ask(broker, summary(topic_id))).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        await trio.lowlevel.checkpoint()


async def test_the_first_question_makes_the_topic_by_kafkas_rules(tmp_path: Path, autojump_clock: MockClock) -> None:
    broker, _ = await with_topic(tmp_path)
    topic = broker.cluster.topics.get(SHARE_GROUP_STATE_TOPIC)
    assert topic is not None and topic.is_internal and len(topic.partitions) == 3
    config = broker.log_config(SHARE_GROUP_STATE_TOPIC)
    assert (config.is_compacted, config.is_deleting, config.retention_ms) == (False, True, -1)
    assert (config.segment_bytes, config.min_insync_replicas) == (104_857_600, 1)
    await broker.stop()


async def test_state_is_there_after_a_restart(tmp_path: Path, autojump_clock: MockClock) -> None:
    broker, topic_id = await with_topic(tmp_path)
    assert result(await ask(broker, initialize(topic_id))).error_code == ErrorCode.NONE
    for offset in range(4):
        assert result(await ask(broker, write(topic_id, offset), 1)).error_code == ErrorCode.NONE
    await broker.stop()
    broker = await opened(tmp_path, SETTINGS)
    await loaded(broker, topic_id)
    found = result(await ask(broker, read(topic_id)))
    assert [(each.first_offset, each.last_offset, each.delivery_state) for each in found.state_batches] == [(0, 3, 2)]
    assert result(await ask(broker, summary(topic_id), 1)).delivery_complete_count == 3
    assert result(await ask(broker, summary(topic_id), 0)).start_offset == 0
    await broker.stop()


async def test_redundant_records_are_cut_off_the_log(tmp_path: Path, autojump_clock: MockClock) -> None:
    broker, topic_id = await with_topic(tmp_path)
    await ask(broker, initialize(topic_id))
    for offset in range(4):
        await ask(broker, write(topic_id, offset), 1)
    index = broker.share_coordinator.partition_for(SharePartitionKey("group", topic_id, 0))
    assert broker.partition(SHARE_GROUP_STATE_TOPIC, index).log.log_start_offset == 0
    await trio.sleep(1.5)
    assert broker.partition(SHARE_GROUP_STATE_TOPIC, index).log.log_start_offset == 3
    await broker.stop()


async def test_deleted_topic_takes_its_state_along(tmp_path: Path, autojump_clock: MockClock) -> None:
    broker, topic_id = await with_topic(tmp_path)
    await ask(broker, initialize(topic_id))
    index = broker.share_coordinator.partition_for(SharePartitionKey("group", topic_id, 0))
    log = broker.partition(SHARE_GROUP_STATE_TOPIC, index).log
    assert log.log_end_offset == 1
    await broker.administration.delete_topics(["t"])
    await trio.sleep(1)
    assert log.log_end_offset == 2
    assert result(await ask(broker, read(topic_id))).error_code == ErrorCode.INVALID_REQUEST
    await broker.stop()
