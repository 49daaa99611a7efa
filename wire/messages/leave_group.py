"""LeaveGroup (key 13): members leave a classic group.

v1 throttle time   v2 answer first, throttle after   v3 many members at once, static ones too (KIP-345)   v4 flexible
v5 reason (KIP-800)
"""

from ottla.wire.schema import Array, Int16, Int32, Message, String, Struct, field


class MemberIdentity(Struct):
    member_id: str = field(String, versions="3+")
    group_instance_id: str | None = field(String, versions="3+", nullable="3+", default=None)
    reason: str | None = field(String, versions="5+", nullable="5+", default=None)


class LeaveGroupRequest(Message, key=13, versions="0-5", flexible="4+"):
    group_id: str = field(String)
    member_id: str = field(String, versions="0-2", default="")
    members: list[MemberIdentity] = field(Array(MemberIdentity), versions="3+", default=[])


class MemberResponse(Struct):
    member_id: str = field(String, versions="3+")
    group_instance_id: str | None = field(String, versions="3+", nullable="3+")
    error_code: int = field(Int16, versions="3+")


class LeaveGroupResponse(Message, key=13, versions="0-5", flexible="4+"):
    throttle_time_ms: int = field(Int32, versions="1+", default=0)
    error_code: int = field(Int16)
    members: list[MemberResponse] = field(Array(MemberResponse), versions="3+", default=[])
