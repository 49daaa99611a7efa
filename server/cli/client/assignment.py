"""Requests, subscriptions and assignments of consumers in classic groups, and the range assignor of the member that leads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ottla.server.cli.client.cluster import Partition, by_topic
from ottla.wire.errors import KafkaError, ProtocolViolation
from ottla.wire.messages.classic_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from ottla.wire.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
    decode_subscription,
)

PROTOCOL_TYPE, RANGE = "consumer", "range"
SESSION_S = 45.0
_VERSION = 1  # of subscription and assignment; members of all makes read it


def join_request(group: str, member_id: str, topics: Sequence[str], rebalance_s: float) -> JoinGroupRequest:
    """Return a request to join a group. `rebalance_s`: seconds for which a rebalance waits for this member."""
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=int(SESSION_S * 1000),
        rebalance_timeout_ms=int(rebalance_s * 1000),
        member_id=member_id,
        protocol_type=PROTOCOL_TYPE,
        protocols=[JoinGroupRequestProtocol(name=RANGE, metadata=subscription(topics))],
    )


def sync_request(group: str, joined: JoinGroupResponse, shares: Mapping[str, Sequence[Partition]]) -> SyncGroupRequest:
    """Return a request for this member's partitions. `shares`: partitions by member id; empty if it does not lead."""
    return SyncGroupRequest(
        group_id=group,
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        protocol_type=PROTOCOL_TYPE,
        protocol_name=joined.protocol_name,
        assignments=[
            SyncGroupRequestAssignment(member_id=member_id, assignment=encoded(partitions))
            for member_id, partitions in shares.items()
        ],
    )


def subscription(topics: Sequence[str]) -> bytes:
    """Encode the topics to which a member subscribes, for a JoinGroup request."""
    return _VERSION.to_bytes(2, "big") + ConsumerProtocolSubscription(topics=list(topics)).encode(_VERSION)


def topics_in(metadata: bytes) -> list[str]:
    """Return the topics in an encoded subscription; empty if the format is unknown."""
    try:
        return list(decode_subscription(metadata).topics)
    except (KafkaError, ProtocolViolation, ValueError, IndexError):
        return []


def assigned(blob: bytes) -> tuple[Partition, ...]:
    """Decode the assignment of a classic consumer; empty if malformed, because members may send any bytes."""
    version = int.from_bytes(blob[:2], "big", signed=True)
    if len(blob) < 2 or version < 0:
        return ()
    try:
        newest = min(version, ConsumerProtocolAssignment.versions.last)
        decoded = ConsumerProtocolAssignment.decode(blob, newest, start=2)
    except (KafkaError, ProtocolViolation, ValueError, IndexError):
        return ()
    return tuple((topic.topic, number) for topic in decoded.assigned_partitions for number in topic.partitions)


def encoded(partitions: Sequence[Partition]) -> bytes:
    """Encode one member's assignment, for a SyncGroup request."""
    topics = [TopicPartition(topic=topic, partitions=numbers) for topic, numbers in by_topic(partitions).items()]
    return _VERSION.to_bytes(2, "big") + ConsumerProtocolAssignment(assigned_partitions=topics).encode(_VERSION)


def range_assignment(wanted: Mapping[str, Sequence[str]], counts: Mapping[str, int]) -> dict[str, list[Partition]]:
    """Assign each topic's partitions to its subscribers, in ranges. If uneven, the first subscribers get one more.

    `wanted`: topics by member id. `counts`: number of partitions by topic. Return the partitions by member id.
    """
    found: dict[str, list[Partition]] = {member_id: [] for member_id in wanted}
    for topic, count in sorted(counts.items()):
        members = sorted(member_id for member_id, topics in wanted.items() if topic in topics)
        if not members:
            continue
        each, more = divmod(count, len(members))
        start = 0
        for index, member_id in enumerate(members):
            end = start + each + (index < more)
            found[member_id] += [(topic, number) for number in range(start, end)]
            start = end
    return found
