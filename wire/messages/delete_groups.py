"""DeleteGroups (key 42): delete empty groups together with their offsets.

v1 answer first, throttle after   v2 flexible   v3 each error may have a message
"""

from ottla.wire.schema import Array, Int16, Int32, Message, String, Struct, Text, field


class DeleteGroupsRequest(Message, key=42, versions="0-3", flexible="2+"):
    groups_names: list[str] = field(Array(String))


class DeletableGroupResult(Struct):
    group_id: str = field(String)
    error_code: int = field(Int16)
    error_message: str | None = field(Text, versions="3+", nullable="3+", default=None)


class DeleteGroupsResponse(Message, key=42, versions="0-3", flexible="2+"):
    throttle_time_ms: int = field(Int32, default=0)
    results: list[DeletableGroupResult] = field(Array(DeletableGroupResult))
