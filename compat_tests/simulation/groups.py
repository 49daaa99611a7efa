"""What the groups of the simulation live by, and what an administrator of a share group asks for."""

from collections.abc import Iterable

import trio

from ottla.server.testing.client.connections import BACKOFF_S, Connections
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalConfig,
    IncrementalConfigsResource,
)
from ottla.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.wire.messages.share_group import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
)

SHARE_GROUP = "share group"
SESSION_TIMEOUT_MS, HEARTBEAT_MS, LOCK_MS = 10_000, 1_000, 5_000
MEMBERS_SETTINGS = {
    "group.min.session.timeout.ms": "1000",
    "group.consumer.min.session.timeout.ms": str(SESSION_TIMEOUT_MS),
    "group.consumer.session.timeout.ms": str(SESSION_TIMEOUT_MS),
    "group.consumer.min.heartbeat.interval.ms": str(HEARTBEAT_MS),
    "group.consumer.heartbeat.interval.ms": str(HEARTBEAT_MS),
    "group.share.min.session.timeout.ms": str(SESSION_TIMEOUT_MS),
    "group.share.session.timeout.ms": str(SESSION_TIMEOUT_MS),
    "group.share.min.heartbeat.interval.ms": str(HEARTBEAT_MS),
    "group.share.heartbeat.interval.ms": str(HEARTBEAT_MS),
    "group.share.min.record.lock.duration.ms": str(LOCK_MS),
    "group.share.record.lock.duration.ms": str(LOCK_MS),
    "share.coordinator.state.topic.replication.factor": "3",
}
GROUP, SET = 32, 0
RESET, EARLIEST = "share.auto.offset.reset", "earliest"
ALTER_VERSION, DESCRIBE_CONFIGS_VERSION, DESCRIBE_OFFSETS_VERSION = 1, 4, 1


async def begin_share_group(client: Connections, group: str) -> None:
    """Let a share group begin at the first records; returns when every broker knows it."""
    change = IncrementalConfig(name=RESET, config_operation=SET, value=EARLIEST)
    resource = IncrementalConfigsResource(resource_type=GROUP, resource_name=group, configs=[change])
    while not all([await _begins_early(client, broker, group) for broker in client.brokers]):
        await client.ask_any(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False), ALTER_VERSION)
        await trio.sleep(BACKOFF_S)


async def _begins_early(client: Connections, broker: int, group: str) -> bool:
    asked = DescribeConfigsResource(resource_type=GROUP, resource_name=group, configuration_keys=[RESET])
    response = await client.ask(broker, DescribeConfigsRequest(resources=[asked]), DESCRIBE_CONFIGS_VERSION)
    return response is not None and [each.value for each in response.results[0].configs] == [EARLIEST]


async def is_drained(client: Connections, group: str, topic: str, partitions: Iterable[int]) -> bool:
    """Whether a share group is done with everything that is in a topic."""
    named = DescribeShareGroupOffsetsRequestTopic(topic_name=topic, partitions=list(partitions))
    request = DescribeShareGroupOffsetsRequest(
        groups=[DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=[named])]
    )
    response = await client.ask(await client.coordinator(group), request, DESCRIBE_OFFSETS_VERSION)
    if response is None or response.groups[0].error_code:
        return False
    found = [each for told in response.groups[0].topics for each in told.partitions]
    return bool(found) and all(each.error_code == ErrorCode.NONE and each.lag == 0 for each in found)
