"""DeleteShareGroupOffsets (key 92): an empty share group forgets topics (KIP-932).

v0 is the only version.
"""

from ottla.wire.schema import Array, Int16, Int32, Message, String, Struct, Text, Uuid, field


class DeleteShareGroupOffsetsRequestTopic(Struct):
    topic_name: str = field(String)


class DeleteShareGroupOffsetsRequest(Message, key=92, versions="0", flexible="0+"):
    group_id: str = field(String)
    topics: list[DeleteShareGroupOffsetsRequestTopic] = field(Array(DeleteShareGroupOffsetsRequestTopic))


class DeleteShareGroupOffsetsResponseTopic(Struct):
    topic_name: str = field(String)
    topic_id: bytes = field(Uuid)
    error_code: int = field(Int16)
    error_message: str | None = field(Text, nullable="0+", default=None)


class DeleteShareGroupOffsetsResponse(Message, key=92, versions="0", flexible="0+"):
    throttle_time_ms: int = field(Int32, default=0)
    error_code: int = field(Int16)
    error_message: str | None = field(Text, nullable="0+", default=None)
    responses: list[DeleteShareGroupOffsetsResponseTopic] = field(Array(DeleteShareGroupOffsetsResponseTopic))
