"""SyncGroup (key 14): the leader of a classic group hands in the assignment, every member receives its part.

v1 throttle time   v2 answer first, throttle after   v3 static membership (KIP-345)   v4 flexible
v5 protocol type and name, so that both sides can check them (KIP-559)
"""

from ottla.wire.schema import Array, Bytes, Int16, Int32, Message, String, Struct, field


class SyncGroupRequestAssignment(Struct):
    member_id: str = field(String)
    assignment: bytes = field(Bytes)


class SyncGroupRequest(Message, key=14, versions="0-5", flexible="4+"):
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
