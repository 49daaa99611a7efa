"""RemoveRaftVoter (key 81): one voter less for the Raft quorum that keeps Kafka's metadata (KIP-853)."""

from ottla.wire.schema import Int16, Int32, Message, String, Text, Uuid, field


class RemoveRaftVoterRequest(Message, key=81, versions="0", flexible="0+"):
    cluster_id: str | None = field(String, nullable="0+")
    voter_id: int = field(Int32)
    voter_directory_id: bytes = field(Uuid)


class RemoveRaftVoterResponse(Message, key=81, versions="0", flexible="0+"):
    throttle_time_ms: int = field(Int32, default=0)
    error_code: int = field(Int16)
    error_message: str | None = field(Text, nullable="0+")
