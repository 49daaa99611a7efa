"""Groups of all types, as administrators see them: DescribeGroups, ListGroups and DeleteGroups."""

from ottla.wire.schema import Array, Bool, Bytes, Int16, Int32, Message, String, Struct, Text, field


class DescribeGroupsRequest(Message, key=15, versions="0-6", flexible="5+"):
    """DescribeGroups (key 15): return state, protocol and members of classic groups.

    v1 throttle time   v2 answers before throttling   v3 authorized operations   v4 static membership (KIP-345)
    v5 flexible   v6 an unknown group has GROUP_ID_NOT_FOUND and a text, not the state Dead (KIP-1043)
    """

    groups: list[str] = field(Array(String))
    include_authorized_operations: bool = field(Bool, versions="3+", default=False)


class DescribedGroupMember(Struct):
    member_id: str = field(String)
    group_instance_id: str | None = field(String, versions="4+", nullable="4+", default=None)
    client_id: str = field(String)
    client_host: str = field(String)
    member_metadata: bytes = field(Bytes)
    member_assignment: bytes = field(Bytes)


class DescribedGroup(Struct):
    error_code: int = field(Int16)
    error_message: str | None = field(Text, versions="6+", nullable="6+", default=None)
    group_id: str = field(String)
    group_state: str = field(String)
    protocol_type: str = field(String)
    protocol_data: str = field(String)
    members: list[DescribedGroupMember] = field(Array(DescribedGroupMember))
    authorized_operations: int = field(Int32, versions="3+", default=-(1 << 31))


class DescribeGroupsResponse(Message, key=15, versions="0-6", flexible="5+"):
    throttle_time_ms: int = field(Int32, versions="1+", default=0)
    groups: list[DescribedGroup] = field(Array(DescribedGroup))


class ListGroupsRequest(Message, key=16, versions="0-5", flexible="3+"):
    """ListGroups (key 16): list the groups that this broker coordinates.

    v1 throttle time   v2 answers before throttling   v3 flexible   v4 states (KIP-518)   v5 types (KIP-848)
    """

    states_filter: list[str] = field(Array(String), versions="4+", default=[])
    types_filter: list[str] = field(Array(String), versions="5+", default=[])


class ListedGroup(Struct):
    group_id: str = field(String)
    protocol_type: str = field(String)
    group_state: str = field(String, versions="4+", default="")
    group_type: str = field(String, versions="5+", default="")


class ListGroupsResponse(Message, key=16, versions="0-5", flexible="3+"):
    throttle_time_ms: int = field(Int32, versions="1+", default=0)
    error_code: int = field(Int16)
    groups: list[ListedGroup] = field(Array(ListedGroup))


class DeleteGroupsRequest(Message, key=42, versions="0-3", flexible="2+"):
    """DeleteGroups (key 42): delete empty groups with their offsets.

    v1 answers before throttling   v2 flexible   v3 error texts
    """

    groups_names: list[str] = field(Array(String))


class DeletableGroupResult(Struct):
    group_id: str = field(String)
    error_code: int = field(Int16)
    error_message: str | None = field(Text, versions="3+", nullable="3+", default=None)


class DeleteGroupsResponse(Message, key=42, versions="0-3", flexible="2+"):
    throttle_time_ms: int = field(Int32, default=0)
    results: list[DeletableGroupResult] = field(Array(DeletableGroupResult))
