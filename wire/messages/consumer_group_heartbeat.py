"""ConsumerGroupHeartbeat (key 68): join, stay in or leave a consumer group whose assignments the broker makes (KIP-848).

v1 subscription by a regular expression; the client makes its member id
"""

from ottla.wire.schema import Array, Int16, Int32, Message, String, Struct, Text, Uuid, field


class TopicPartitions(Struct):
    topic_id: bytes = field(Uuid)
    partitions: list[int] = field(Array(Int32))


class ConsumerGroupHeartbeatRequest(Message, key=68, versions="0-1", flexible="0+"):
    group_id: str = field(String)
    member_id: str = field(String)
    member_epoch: int = field(Int32)
    instance_id: str | None = field(String, nullable="0+", default=None)
    rack_id: str | None = field(String, nullable="0+", default=None)
    rebalance_timeout_ms: int = field(Int32, default=-1)
    subscribed_topic_names: list[str] | None = field(Array(String), nullable="0+", default=None)
    subscribed_topic_regex: str | None = field(String, versions="1+", nullable="1+", default=None)
    server_assignor: str | None = field(String, nullable="0+", default=None)
    topic_partitions: list[TopicPartitions] | None = field(Array(TopicPartitions), nullable="0+", default=None)


class Assignment(Struct):
    topic_partitions: list[TopicPartitions] = field(Array(TopicPartitions))


class ConsumerGroupHeartbeatResponse(Message, key=68, versions="0-1", flexible="0+"):
    throttle_time_ms: int = field(Int32, default=0)
    error_code: int = field(Int16)
    error_message: str | None = field(Text, nullable="0+", default=None)
    member_id: str | None = field(String, nullable="0+", default=None)
    member_epoch: int = field(Int32)
    heartbeat_interval_ms: int = field(Int32)
    assignment: Assignment | None = field(Assignment, nullable="0+", default=None)
