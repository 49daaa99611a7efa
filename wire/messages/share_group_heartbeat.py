"""ShareGroupHeartbeat (key 76): join, stay in or leave a share group (KIP-932).

v1 is the first stable version.
"""

from ottla.wire.schema import Array, Int16, Int32, Message, String, Struct, Text, Uuid, field


class ShareGroupHeartbeatRequest(Message, key=76, versions="1", flexible="0+"):
    group_id: str = field(String)
    member_id: str = field(String)
    member_epoch: int = field(Int32)
    rack_id: str | None = field(String, nullable="0+", default=None)
    subscribed_topic_names: list[str] | None = field(Array(String), nullable="0+", default=None)


class TopicPartitions(Struct):
    topic_id: bytes = field(Uuid)
    partitions: list[int] = field(Array(Int32))


class Assignment(Struct):
    topic_partitions: list[TopicPartitions] = field(Array(TopicPartitions))


class ShareGroupHeartbeatResponse(Message, key=76, versions="1", flexible="0+"):
    throttle_time_ms: int = field(Int32, default=0)
    error_code: int = field(Int16)
    error_message: str | None = field(Text, nullable="0+", default=None)
    member_id: str | None = field(String, nullable="0+", default=None)
    member_epoch: int = field(Int32)
    heartbeat_interval_ms: int = field(Int32)
    assignment: Assignment | None = field(Assignment, nullable="0+", default=None)
