"""AddRaftVoter (key 80): a new voter for the Raft quorum that keeps Kafka's metadata (KIP-853).

v1 whether to answer before the voters have agreed (KIP-1186)
"""

from ottla.wire.schema import Array, Bool, Int16, Int32, Message, String, Struct, Text, Uint16, Uuid, field


class Listener(Struct):
    name: str = field(String)
    host: str = field(String)
    port: int = field(Uint16)


class AddRaftVoterRequest(Message, key=80, versions="0-1", flexible="0+"):
    cluster_id: str | None = field(String, nullable="0+")
    timeout_ms: int = field(Int32)
    voter_id: int = field(Int32)
    voter_directory_id: bytes = field(Uuid)
    listeners: list[Listener] = field(Array(Listener))
    ack_when_committed: bool = field(Bool, versions="1+", default=True)


class AddRaftVoterResponse(Message, key=80, versions="0-1", flexible="0+"):
    throttle_time_ms: int = field(Int32, default=0)
    error_code: int = field(Int16)
    error_message: str | None = field(Text, nullable="0+")
