"""Answers that a client tries again after, and the errors that it raises."""

from ottla.wire.errors import ErrorCode, KafkaError


class NoAnswer(Exception):
    """Raised if no broker answered in time: nobody knows whether the request was carried out."""


NOT_LEADER = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.REPLICA_NOT_AVAILABLE,
    }
)
"""Another broker leads the partition, or will soon: ask for metadata and try again."""

NOT_WRITTEN_YET = NOT_LEADER | {
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.REQUEST_TIMED_OUT,
}
"""A Produce with these answers is sent again."""

NOT_COORDINATOR = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
    }
)
"""Another broker coordinates, or this one will soon: look for the coordinator and try again."""


def raise_for(code: int, message: str | None = None) -> None:
    """Raise KafkaError unless the code is 0."""
    if code:
        raise KafkaError(ErrorCode.of(code), message)
