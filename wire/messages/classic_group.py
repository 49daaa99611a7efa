"""Membership of a classic group: JoinGroup, SyncGroup, Heartbeat and LeaveGroup."""

from ottla.wire.schema import Array, Bool, Bytes, Int16, Int32, Message, String, Struct, field


class JoinGroupRequestProtocol(Struct):
    name: str = field(String)
    metadata: bytes = field(Bytes)


class JoinGroupRequest(Message, key=11, versions="0-9", flexible="6+"):
    """JoinGroup (key 11): join a classic group; the response comes when the rebalance has gathered all members.

    v1 separate rebalance timeout (v0 uses the session timeout)   v2 throttle time
    v3 answers before throttling   v4 a new member gets its id first (MEMBER_ID_REQUIRED, KIP-394)
    v5 static membership (KIP-345)   v6 flexible   v7 protocol type in the response; null for a missing name (KIP-559)
    v8 reason (KIP-800)   v9 a returning static leader may skip the assignment (KIP-814)
    """

    group_id: str = field(String)
    session_timeout_ms: int = field(Int32)
    rebalance_timeout_ms: int = field(Int32, versions="1+", default=-1)
    member_id: str = field(String)
    group_instance_id: str | None = field(String, versions="5+", nullable="5+", default=None)
    protocol_type: str = field(String)
    protocols: list[JoinGroupRequestProtocol] = field(Array(JoinGroupRequestProtocol))
    reason: str | None = field(String, versions="8+", nullable="8+", default=None)


class JoinGroupResponseMember(Struct):
    member_id: str = field(String)
    group_instance_id: str | None = field(String, versions="5+", nullable="5+", default=None)
    metadata: bytes = field(Bytes)


class JoinGroupResponse(Message, key=11, versions="0-9", flexible="6+"):
    throttle_time_ms: int = field(Int32, versions="2+", default=0)
    error_code: int = field(Int16)
    generation_id: int = field(Int32, default=-1)
    protocol_type: str | None = field(String, versions="7+", nullable="7+", default=None)
    protocol_name: str | None = field(String, nullable="7+")
    leader: str = field(String)
    skip_assignment: bool = field(Bool, versions="9+", default=False)
    member_id: str = field(String)
    members: list[JoinGroupResponseMember] = field(Array(JoinGroupResponseMember))


class SyncGroupRequestAssignment(Struct):
    member_id: str = field(String)
    assignment: bytes = field(Bytes)


class SyncGroupRequest(Message, key=14, versions="0-5", flexible="4+"):
    """SyncGroup (key 14): a classic group's leader sends the assignment; every member receives its own part.

    v1 throttle time   v2 answers before throttling   v3 static membership (KIP-345)   v4 flexible
    v5 protocol type and name, so that both sides can check them (KIP-559)
    """

    group_id: str = field(String)
    generation_id: int = field(Int32)
    member_id: str = field(String)
    group_instance_id: str | None = field(String, versions="3+", nullable="3+", default=None)
    protocol_type: str | None = field(String, versions="5+", nullable="5+", default=None)
    protocol_name: str | None = field(String, versions="5+", nullable="5+", default=None)
    assignments: list[SyncGroupRequestAssignment] = field(Array(SyncGroupRequestAssignment))


class SyncGroupResponse(Message, key=14, versions="0-5", flexible="4+"):
    throttle_time_ms: int = field(Int32, versions="1+", default=0)
    error_code: int = field(Int16)
    protocol_type: str | None = field(String, versions="5+", nullable="5+", default=None)
    protocol_name: str | None = field(String, versions="5+", nullable="5+", default=None)
    assignment: bytes = field(Bytes)


class HeartbeatRequest(Message, key=12, versions="0-4", flexible="4+"):
    """Heartbeat (key 12): a classic group's member reports that it is alive, and learns of rebalances.

    v1 throttle time   v2 answers before throttling   v3 static membership (KIP-345)   v4 flexible
    """

    group_id: str = field(String)
    generation_id: int = field(Int32)
    member_id: str = field(String)
    group_instance_id: str | None = field(String, versions="3+", nullable="3+", default=None)


class HeartbeatResponse(Message, key=12, versions="0-4", flexible="4+"):
    throttle_time_ms: int = field(Int32, versions="1+", default=0)
    error_code: int = field(Int16)


class MemberIdentity(Struct):
    member_id: str = field(String, versions="3+")
    group_instance_id: str | None = field(String, versions="3+", nullable="3+", default=None)
    reason: str | None = field(String, versions="5+", nullable="5+", default=None)


class LeaveGroupRequest(Message, key=13, versions="0-5", flexible="4+"):
    """LeaveGroup (key 13): members leave a classic group.

    v1 throttle time   v2 answers before throttling   v3 several members, also static ones (KIP-345)
    v4 flexible   v5 reason (KIP-800)
    """

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
