"""Parts of answers to Fetch: partitions that failed, requests nobody understands, aborted transactions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.wire.errors import ErrorCode
from ottla.wire.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)

if TYPE_CHECKING:
    from ottla.replication.fetch_session import FetchTarget
    from ottla.replication.log.aborted_transactions import AbortedTransaction as StoredTransaction

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
