"""Heartbeat (key 12): a member of a classic group says that it is alive, and hears of rebalances.

v1 throttle time   v2 answer first, throttle after   v3 static membership (KIP-345)   v4 flexible
"""

from ottla.wire.schema import Int16, Int32, Message, String, field


class HeartbeatRequest(Message, key=12, versions="0-4", flexible="4+"):
    group_id: str = field(String)
    generation_id: int = field(Int32)
    member_id: str = field(String)
    group_instance_id: str | None = field(String, versions="3+", nullable="3+", default=None)


class HeartbeatResponse(Message, key=12, versions="0-4", flexible="4+"):
    throttle_time_ms: int = field(Int32, versions="1+", default=0)
    error_code: int = field(Int16)
