"""ListGroups (key 16): the groups this broker coordinates.

v1 throttle time   v2 answer first, throttle after   v3 flexible   v4 states (KIP-518)   v5 types (KIP-848)
"""

from ottla.wire.schema import Array, Int16, Int32, Message, String, Struct, field


class ListGroupsRequest(Message, key=16, versions="0-5", flexible="3+"):
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
