"""Parts of answers to Fetch: partitions that failed, requests nobody understands, aborted transactions, leaders."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ottla.server.leader_hints import endpoints
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    NodeEndpoint,
    PartitionData,
)

if TYPE_CHECKING:
    from ottla.replication.fetch_session import FetchTarget
    from ottla.replication.log.aborted_transactions import AbortedTransaction as StoredTransaction
    from ottla.server.broker import Broker

TOPIC_IDS_SINCE = 13


def failed(target: FetchTarget, code: ErrorCode) -> PartitionData:
    return PartitionData(
        partition_index=target.asked.partition,
        error_code=code,
        high_watermark=-1,
        aborted_transactions=None,
        records=b"",
    )


def aborted(transactions: list[StoredTransaction] | None) -> list[AbortedTransaction] | None:
    if not transactions:
        return None if transactions is None else []
    return [AbortedTransaction(producer_id=each.producer_id, first_offset=each.first_offset) for each in transactions]


def leaders_of(broker: Broker, listener_name: str, answers: Sequence[PartitionData]) -> list[NodeEndpoint]:
    """Where the leaders are that an answer names (KIP-951)."""
    leaders = {each.current_leader.leader_id for each in answers if each.error_code}
    return [
        NodeEndpoint(node_id=each.node_id, host=each.host, port=each.port, rack=each.rack)
        for each in endpoints(broker, leaders, listener_name)
    ]


def not_understood(request: FetchRequest, version: int) -> FetchResponse:
    """Kafka's answer to a request that it fails over as a whole; older versions find the error in every partition."""
    code = ErrorCode.UNKNOWN_SERVER_ERROR
    response = FetchResponse(error_code=code, session_id=request.session_id, responses=[])
    if version < TOPIC_IDS_SINCE:
        for topic in request.topics:
            refused = [
                PartitionData(partition_index=each.partition, error_code=code, high_watermark=-1, records=b"")
                for each in topic.partitions
            ]
            response.responses.append(FetchableTopicResponse(topic=topic.topic, partitions=refused))
    return response
