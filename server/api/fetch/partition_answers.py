"""Parts of responses to Fetch: failed partitions, invalid requests, aborted transactions, leaders."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from ottla.server.api.produce.request_checks import current_leader, endpoints
from ottla.server.network.sliced_work import answer_partitions
from ottla.server.ports import BrokerParts
from ottla.wire.answers import Worked
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)

if TYPE_CHECKING:
    from ottla.replication.log.transaction_index import AbortedTransaction as StoredTransaction
    from ottla.replication.partition.idle_partitions import FetchTarget
    from ottla.replication.partition.partition import Partition

NO_REPLICA = -1
STORAGE_ERROR_SINCE = 6
TOPIC_IDS_SINCE = 13
CURRENT_LEADER_SINCE = 16
_MOVED = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)

Answer = tuple["FetchTarget", PartitionData]


class PartitionRead(NamedTuple):
    """Result of reading one partition.

    It has the partition's response, and numbers that decide whether the fetch waits.
    """

    target: FetchTarget
    data: PartitionData
    size: int = 0  # bytes in the log, before any conversion
    available: int = 0  # bytes to read, up to the partition's own limit
    is_settled: bool = True  # ends a wait however little it is
    partition: Partition | None = None  # None if it could not be read
    layout: int = 0  # of its log when it was read


def add_answers(topics: list[FetchableTopicResponse], answers: Iterable[Answer]) -> list[FetchableTopicResponse]:
    """Append partitions to the response's `topics`; return it. Consecutive partitions of a topic share one entry."""
    for target, data in answers:
        # In a session partitions move to the end one by one, so one topic may stand in several places. Their order
        # counts.
        last = topics[-1] if topics else None
        if last is None or last.topic_id != target.topic_id or last.topic != (target.topic or ""):
            last = FetchableTopicResponse(topic=target.topic or "", topic_id=target.topic_id, partitions=[])
            topics.append(last)
        last.partitions.append(data)
    return topics


def without_records(target: FetchTarget, partition: Partition, preferred: int = NO_REPLICA) -> PartitionData:
    """Return a partition's response without records. `preferred`: id of the replica for the client to read from."""
    return PartitionData(
        partition_index=target.asked.partition,
        error_code=0,
        high_watermark=partition.high_watermark,
        last_stable_offset=partition.last_stable_offset,
        log_start_offset=partition.log_start_offset,
        aborted_transactions=None,
        preferred_read_replica=preferred,
        records=b"",
    )


def failed(target: FetchTarget, code: ErrorCode) -> PartitionData:
    return PartitionData(
        partition_index=target.asked.partition,
        error_code=code,
        high_watermark=-1,
        aborted_transactions=None,
        records=b"",
    )


def failed_read(broker: BrokerParts, version: int, target: FetchTarget, code: ErrorCode) -> PartitionData:
    """Return a failed partition's response, with the leader and an error code that `version` knows."""
    # An old client does not know the code. The replacement makes it look for the leader, which may be another broker.
    if code is ErrorCode.KAFKA_STORAGE_ERROR and version < STORAGE_ERROR_SINCE:
        code = ErrorCode.NOT_LEADER_OR_FOLLOWER
    data = failed(target, code)
    # The client goes to the new leader at once, without fetching metadata first (KIP-951).
    if code in _MOVED and version >= CURRENT_LEADER_SINCE and target.topic is not None:
        leader, epoch = current_leader(broker, target.topic, target.asked.partition)
        data.current_leader = LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch)
    return data


def aborted(transactions: list[StoredTransaction] | None) -> list[AbortedTransaction] | None:
    # As in Kafka: null for a reader that did not ask for committed records only, an empty list for one that did.
    if not transactions:
        return None if transactions is None else []
    return [AbortedTransaction(producer_id=each.producer_id, first_offset=each.first_offset) for each in transactions]


def leaders_of(broker: BrokerParts, listener_name: str, answers: Sequence[PartitionData]) -> list[NodeEndpoint]:
    """Return the endpoints of the current leaders named in the response, for partitions that failed (KIP-951)."""
    leaders = {each.current_leader.leader_id for each in answers if each.error_code}
    return [
        NodeEndpoint(node_id=each.node_id, host=each.host, port=each.port, rack=each.rack)
        for each in endpoints(broker, leaders, listener_name)
    ]


def refused_request(request: FetchRequest, version: int) -> Worked[FetchResponse]:
    """Return Kafka's response to an invalid request; before version 13 it carries the error in every partition, too."""
    code = ErrorCode.UNKNOWN_SERVER_ERROR
    topics = request.topics if version < TOPIC_IDS_SINCE else []

    def refuse(topic: FetchTopic, each: FetchPartition) -> PartitionData:
        return PartitionData(partition_index=each.partition, error_code=code, high_watermark=-1, records=b"")

    def respond(answers: list[list[PartitionData]]) -> FetchResponse:
        named = zip(topics, answers, strict=True)
        responses = [FetchableTopicResponse(topic=topic.topic, partitions=each) for topic, each in named]
        return FetchResponse(error_code=code, session_id=request.session_id, responses=responses)

    return answer_partitions(topics, attrgetter("partitions"), refuse, respond)
