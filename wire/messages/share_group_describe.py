"""ShareGroupDescribe (key 77): the members of share groups, and what they are assigned (KIP-932).

v1 is the first stable version.
"""

from ottla.wire.schema import Array, Bool, Int16, Int32, Message, String, Struct, Text, Uuid, field


class ShareGroupDescribeRequest(Message, key=77, versions="1", flexible="0+"):
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
    rack_id: str | None = field(String, nullable="0+", default=None)
    member_epoch: int = field(Int32)
    client_id: str = field(String)
    client_host: str = field(String)
    subscribed_topic_names: list[str] = field(Array(String))
    assignment: Assignment = field(Assignment)


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


class ShareGroupDescribeResponse(Message, key=77, versions="1", flexible="0+"):
    throttle_time_ms: int = field(Int32, default=0)
    groups: list[DescribedGroup] = field(Array(DescribedGroup))
