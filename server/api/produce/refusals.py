"""Refused writes as happenings: who sent the batch, where it was to go, and why it was refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.happenings import PRODUCER_FENCED, WRITE_REFUSED, cut

if TYPE_CHECKING:
    from ottla.replication.partition.partition import Partition
    from ottla.server.dispatch.context import RequestContext
    from ottla.server.ports import BrokerParts
    from ottla.wire.happenings import Fact
    from ottla.wire.records import BatchHeader

# Refusals that do not say where the log starts, as Kafka gives them out before or instead of looking at the log. It does not
# count them as failed requests either (ReplicaManager.appendRecordsToLeader).
WITHOUT_LOG_START = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)

_FENCED = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED})

_AFTER_APPEND = {
    ErrorCode.REQUEST_TIMED_OUT: "its replicas did not confirm it within the producer's request timeout",
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: "fewer replicas than min.insync.replicas are in sync since it was appended",
    ErrorCode.NOT_LEADER_OR_FOLLOWER: "this broker lost the leadership before the replicas had confirmed it",
}


def note_refusal(
    context: RequestContext[BrokerParts],
    topic: str,
    index: int,
    error: KafkaError,
    partition: Partition | None,
    batch: BatchHeader | None,
) -> None:
    """Note that a batch was refused. `partition` None: it was not looked up; `batch` None: its header was not read."""
    because = (error.message or error.code.message).rstrip(".")
    if error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER and partition is not None:
        because += f"; this broker knows broker {partition.leader_id} as the leader"
    _note(context, topic, index, error.code, f"was refused with {error.code.name}: {because}", batch)


def note_late_refusal(
    context: RequestContext[BrokerParts],
    partition: Partition,
    code: ErrorCode,
    next_offset: int,
    batch: BatchHeader | None,
) -> None:
    """Note that a batch was appended up to `next_offset`, and that its producer gets an error all the same."""
    because = _AFTER_APPEND.get(code) or code.message.rstrip(".")
    what = f"was appended up to offset {next_offset - 1} and answered with {code.name}: {because}"
    _note(context, partition.topic, partition.index, code, what, batch)


def _note(
    context: RequestContext[Any], topic: str, index: int, code: ErrorCode, what: str, batch: BatchHeader | None
) -> None:
    host = context.client_host.removeprefix("/")
    facts: dict[str, Fact] = {"topic": topic, "partition": index, "error": code.name}
    facts |= {"client_id": context.client_id, "host": host}
    if batch is not None and batch.producer_id >= 0:
        facts |= {"producer_id": batch.producer_id, "producer_epoch": batch.producer_epoch}
    kind = PRODUCER_FENCED if code in _FENCED else WRITE_REFUSED
    cause = f"a batch of {cut(context.client_id)!r} at {host} for {cut(topic)}-{index} {what}"
    context.note(kind, cause, source=host, **facts)
