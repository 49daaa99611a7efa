"""The consumer protocol: what members of a group of protocol type "consumer" tell their leader, and what it answers.

JoinGroup and SyncGroup carry both as opaque bytes: two bytes of version, then the body declared here. Brokers pass them
on unread, except to learn which topics a group is subscribed to. A newer version only ever appends fields, so that
bytes of a version we do not know are read as the newest one we do.

Subscription: v1 partitions owned so far (KIP-429)   v2 the generation they were owned in   v3 rack (KIP-881)
Assignment: the versions go along, nothing changes
"""

from ottla.wire.errors import ProtocolViolation
from ottla.wire.schema import Array, Bytes, Int32, String, Struct, field


class TopicPartition(Struct):
    topic: str = field(String)
    partitions: list[int] = field(Array(Int32))


class ConsumerProtocolSubscription(Struct, versions="0-3"):
    topics: list[str] = field(Array(String))
    user_data: bytes | None = field(Bytes, nullable="0+", default=None)
    owned_partitions: list[TopicPartition] = field(Array(TopicPartition), versions="1+", default=[])
    generation_id: int = field(Int32, versions="2+", default=-1)
    rack_id: str | None = field(String, versions="3+", nullable="3+", default=None)


class ConsumerProtocolAssignment(Struct, versions="0-3"):
    assigned_partitions: list[TopicPartition] = field(Array(TopicPartition))
    user_data: bytes | None = field(Bytes, nullable="0+", default=None)


def decode_subscription(blob: bytes) -> ConsumerProtocolSubscription:
    version = int.from_bytes(blob[:2], "big", signed=True)
    if len(blob) < 2 or version < 0:
        raise ProtocolViolation(f"not a consumer subscription: {len(blob)} bytes, version {version}")
    newest = ConsumerProtocolSubscription.versions.last
    return ConsumerProtocolSubscription.decode(blob, min(version, newest), start=2)
