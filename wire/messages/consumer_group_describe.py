"""ConsumerGroupDescribe (key 69): the members of consumer groups, and what they are assigned (KIP-848).

v1 the type of each member (KIP-1099)
"""

from ottla.wire.schema import Array, Bool, Int8, Int16, Int32, Message, String, Struct, Text, Uuid, field


class ConsumerGroupDescribeRequest(Message, key=69, versions="0-1", flexible="0+"):
    group_ids: list[str] = field(Array(String))
    include_authorized_operations: bool = field(Bool)


class TopicPartitions(Struct):
    topic_id: bytes = field(Uuid)
    topic_name: str = field(String)
    partitions: list[int] = field(Array(Int32))


class Assignment(Struct):
    topic_partitions: list[TopicPartitions] = field(Array(TopicPartitions))


class Member(Struct):
    member_id: str = field(String)
    instance_id: str | None = field(String, nullable="0+", default=None)
    rack_id: str | None = field(String, nullable="0+", default=None)
    member_epoch: int = field(Int32)
    client_id: str = field(String)
    client_host: str = field(String)
    subscribed_topic_names: list[str] = field(Array(String))
    subscribed_topic_regex: str | None = field(String, nullable="0+", default=None)
    assignment: Assignment = field(Assignment)
    target_assignment: Assignment = field(Assignment)
    member_type: int = field(Int8, versions="1+", default=-1)


class DescribedGroup(Struct):
    error_code: int = field(Int16)
    error_message: str | None = field(Text, nullable="0+", default=None)
    group_id: str = field(String)
    group_state: str = field(String)
    group_epoch: int = field(Int32)
    assignment_epoch: int = field(Int32)
    assignor_name: str = field(String)
    members: list[Member] = field(Array(Member))
    authorized_operations: int = field(Int32, default=-2147483648)


class ConsumerGroupDescribeResponse(Message, key=69, versions="0-1", flexible="0+"):
    throttle_time_ms: int = field(Int32, default=0)
    groups: list[DescribedGroup] = field(Array(DescribedGroup))
