"""Share groups inside a broker that is alone: handlers, the share coordinator beside them, restarts and deleted topics."""

from pathlib import Path
from typing import Any

import trio
from trio.testing import MockClock

from ottla.replication.cluster.metadata_cache import GROUP_METADATA_TOPIC
from ottla.replication.controller.topic_planner import NewTopic
from ottla.server.tests.administered import AdministeredBroker, ask, opened
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalConfig,
    IncrementalConfigsResource,
)
from ottla.wire.messages.groups import DeleteGroupsRequest, ListGroupsRequest
from ottla.wire.messages.share_group import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    ShareGroupDescribeRequest,
    ShareGroupHeartbeatRequest,
)

SETTINGS = {
    "share.coordinator.state.topic.num.partitions": "3",
    "offsets.topic.num.partitions": "3",
    "group.share.assignment.interval.ms": "0",
}


async def with_topic(directory: Path) -> AdministeredBroker:
    broker = await opened(directory, SETTINGS)
    await broker.administration.create_topics([NewTopic(name="t", partition_count=2)])
    await broker.ensure_internal_topic(GROUP_METADATA_TOPIC)
    while (await described(broker)).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        await trio.lowlevel.checkpoint()
    return broker


async def described(broker: AdministeredBroker) -> Any:
    request = ShareGroupDescribeRequest(group_ids=["g"], include_authorized_operations=True)
    (group,) = (await ask(broker, request, 1)).groups
    return group


async def set_of_broker(broker: AdministeredBroker, name: str, value: str) -> None:
    config = IncrementalConfig(name=name, config_operation=0, value=value)
    resource = IncrementalConfigsResource(resource_type=4, resource_name="", configs=[config])
    answer = await ask(broker, IncrementalAlterConfigsRequest(resources=[resource], validate_only=False), 1)
    assert [each.error_code for each in answer.responses] == [ErrorCode.NONE]


async def beat(broker: AdministeredBroker, epoch: int = 0, member: str = "m") -> Any:
    topics = ["t"] if epoch == 0 else None
    request = ShareGroupHeartbeatRequest(
        group_id="g", member_id=member, member_epoch=epoch, subscribed_topic_names=topics
    )
    return await ask(broker, request, 1)


async def joined(broker: AdministeredBroker) -> int:
    """The epoch of a member that has its partitions. The first member makes the topic of the share coordinator."""
    response = await beat(broker)
    while response.assignment is None or not response.assignment.topic_partitions:
        await trio.sleep(1)
        response = await beat(broker, response.member_epoch)
    assert [each.partitions for each in response.assignment.topic_partitions] == [[0, 1]]
    return int(response.member_epoch)


async def starts(broker: AdministeredBroker, version: int = 1) -> dict[int, tuple[int, int]]:
    """Start and lag by partition."""
    asked = DescribeShareGroupOffsetsRequestGroup(group_id="g", topics=None)
    (group,) = (await ask(broker, DescribeShareGroupOffsetsRequest(groups=[asked]), version)).groups
    assert group.error_code == ErrorCode.NONE
    partitions = [each for topic in group.topics for each in topic.partitions]
    return {each.partition_index: (each.start_offset, each.lag if version else -1) for each in partitions}


async def alter(broker: AdministeredBroker, *offsets: int) -> Any:
    partitions = [
        AlterShareGroupOffsetsRequestPartition(partition_index=index, start_offset=offset)
        for index, offset in enumerate(offsets)
    ]
    topics = [AlterShareGroupOffsetsRequestTopic(topic_name="t", partitions=partitions)]
    return await ask(broker, AlterShareGroupOffsetsRequest(group_id="g", topics=topics))


async def test_a_member_joins_reads_and_leaves_across_a_restart(tmp_path: Path, autojump_clock: MockClock) -> None:
    broker = await with_topic(tmp_path)
    epoch = await joined(broker)
    group = await described(broker)
    assert (group.group_state, group.group_epoch, group.authorized_operations) == ("Stable", epoch, 3400)
    assert [each.topic_name for each in group.members[0].assignment.topic_partitions] == ["t"]
    assert await starts(broker) == {0: (-1, -1), 1: (-1, -1)}
    await broker.stop()
    broker = await opened(tmp_path, SETTINGS)
    while (response := await beat(broker, epoch)).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        await trio.lowlevel.checkpoint()
    assert (response.member_epoch, response.assignment) == (epoch, None)
    assert (await beat(broker, -1)).error_code == ErrorCode.NONE
    listed = (await ask(broker, ListGroupsRequest(states_filter=[], types_filter=["share"]), 5)).groups
    assert [(each.group_id, each.group_state, each.group_type) for each in listed] == [("g", "Empty", "share")]
    await broker.stop()


async def test_a_group_has_settings_of_its_own(tmp_path: Path, autojump_clock: MockClock) -> None:
    broker = await with_topic(tmp_path)
    assert (await beat(broker)).heartbeat_interval_ms == 5000
    change = IncrementalConfig(name="share.heartbeat.interval.ms", config_operation=0, value="6000")
    resource = IncrementalConfigsResource(resource_type=32, resource_name="g", configs=[change])
    answer = await ask(broker, IncrementalAlterConfigsRequest(resources=[resource], validate_only=False), 1)
    assert [each.error_code for each in answer.responses] == [ErrorCode.NONE]
    assert (await beat(broker)).heartbeat_interval_ms == 6000
    await broker.stop()


async def test_the_brokers_assignment_interval_counts_as_soon_as_it_is_changed(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    broker = await with_topic(tmp_path)
    epoch = await joined(broker)
    await set_of_broker(broker, "group.share.assignment.interval.ms", "15000")
    assert (await beat(broker, member="n")).member_epoch == epoch
    await set_of_broker(broker, "group.share.assignment.interval.ms", "0")
    assert (await beat(broker, epoch)).member_epoch == epoch + 1
    await broker.stop()


async def test_offsets_are_altered_described_and_deleted(tmp_path: Path, autojump_clock: MockClock) -> None:
    broker = await with_topic(tmp_path)
    response = await alter(broker, 0, 0, 0)
    assert [each.error_code for each in response.responses[0].partitions] == [
        0,
        0,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert await starts(broker) == {0: (0, 0), 1: (0, 0)}
    assert await starts(broker, 0) == {0: (0, -1), 1: (0, -1)}
    topics = [DeleteShareGroupOffsetsRequestTopic(topic_name="t")]
    deleted = await ask(broker, DeleteShareGroupOffsetsRequest(group_id="g", topics=topics))
    assert [(each.topic_name, each.error_code) for each in deleted.responses] == [("t", 0)]
    assert await starts(broker) == {}
    await broker.stop()


async def test_a_group_is_deleted_with_its_state(tmp_path: Path, autojump_clock: MockClock) -> None:
    broker = await with_topic(tmp_path)
    await alter(broker, 5, 6)
    (result,) = (await ask(broker, DeleteGroupsRequest(groups_names=["g"]), 2)).results
    assert result.error_code == ErrorCode.NONE
    assert (await described(broker)).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    # A group of the same name begins anew, which it could not if the share coordinator still knew the old one.
    await joined(broker)
    assert await starts(broker) == {0: (-1, -1), 1: (-1, -1)}
    await broker.stop()


async def test_a_deleted_topic_is_read_anew_under_the_same_name(tmp_path: Path, autojump_clock: MockClock) -> None:
    broker = await with_topic(tmp_path)
    epoch = await joined(broker)
    await broker.administration.delete_topics(["t"])
    await trio.sleep(1)
    response = await beat(broker, epoch)
    assert response.assignment.topic_partitions == []
    assert await starts(broker) == {}
    await broker.administration.create_topics([NewTopic(name="t", partition_count=2)])
    await joined(broker)
    await broker.stop()
