"""The fast path of Produce: one ordinary batch for one partition, answered without a wait.

Nearly every request takes it. The connection (`server/network/connection.py`) asks here first, with the bytes of the request's body,
and is answered without objects for the parts of the request: that halves the cost. Whatever is out of the ordinary is left to
the handler and `appending.py`, a refusal above all, as if nothing had been done; only the verdict about the batch is handed on, so
that nothing is decompressed twice. The tests hold both to the same answers and logs.

Out of the ordinary are several topics or partitions, transactions, acks=0, compressed records that take long, topics that change
or refuse records or check their schemas, followers and forced flushes, and a producer whose refused batch has to be sent again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.replication.cluster.metadata_cache import INTERNAL_TOPICS
from ottla.replication.log.batch_checks import DOUBTFUL, check_quickly, ordinary_header
from ottla.server.dispatch.access import AclOperation, ResourceType, may
from ottla.wire.errors import KafkaError
from ottla.wire.one_batch import (
    FIRST_VERSION,
    FRONT_AT,
    LAST_VERSION,
    TOPIC_IDS_SINCE,
    decode_one_batch,
    encode_one_answer,
)
from ottla.wire.records import COMPRESSION_MASK

if TYPE_CHECKING:
    from ottla.replication.partition.partition import Partition
    from ottla.server.dispatch.context import RequestContext
    from ottla.server.ports import BrokerParts


class FastPath:
    """Fast path of Produce for one version of the request."""

    def __init__(self, version: int) -> None:
        self._has_id = version >= TOPIC_IDS_SINCE

    def answer(self, buffer: Any, position: int, end: int, context: RequestContext[BrokerParts]) -> list[bytes] | None:
        """Append the batch of the request in `buffer[position:end]`; return the pieces of the response's body.

        None: nothing was appended, and the regular handler must serve the request.
        """
        asked = decode_one_batch(buffer, position, end, self._has_id)
        if asked is None:
            return None
        acks, topic, index, head, records = asked
        # No attributes but a codec: not transactional either.
        header = ordinary_header(records, COMPRESSION_MASK)
        if header is None or acks not in (1, -1):
            return None
        partition = self._partition(topic, index, context)
        if partition is None:
            return None
        log = partition.log
        now_ms = context.now_ms
        if (
            partition.followers is not None
            or log.is_flush_required
            or log.has_schema_checks
            or partition.doubts_unknown_until_ms > now_ms
            or header[9] in context.broker.replicas.retry_window.by_producer  # field 9: the producer id
        ):
            return None
        checked = check_quickly(records, header, log.client_rules or log.validation_rules(), now_ms=now_ms)
        if checked is None or checked is DOUBTFUL:
            context.checked_batch = partition, header, checked
            return None
        try:
            info = partition.append_as_leader(records, required_acks=acks, now_ms=now_ms, checked=checked)
        except KafkaError:
            context.checked_batch = partition, header, checked
            return None  # the handler tries again, and says why
        first_offset, last_offset, append_time_ms, log_start_offset, _, _ = info
        # Without followers and forced flushes there is nobody to wait for.
        assert acks == 1 or partition.high_watermark > last_offset, partition
        return encode_one_answer(head[FRONT_AT:], first_offset, append_time_ms, log_start_offset)

    def _partition(self, topic: bytes, index: int, context: RequestContext[BrokerParts]) -> Partition | None:
        """Return the partition if it is here and the client may write to it, else None. `topic`: id or UTF-8 name."""
        broker = context.broker
        cluster = broker.cluster
        known = cluster.topic_by_id.get(topic) if self._has_id else cluster.topics.get(topic.decode("utf-8", "replace"))
        if known is None or index >= len(known.partitions) or known.name in INTERNAL_TOPICS:
            return None
        if broker.authorizer is not None and not may(
            context, AclOperation.WRITE, ResourceType.TOPIC, known.name, quietly=True
        ):
            return None
        partition = broker.replicas.partition(known.name, index)
        # As in `Broker.partition`; a broker that is alone is spared a call.
        if partition is None or (broker.is_in_cluster and broker.may_be_replaced_at(partition)):
            return None
        return partition


FAST_PATH = {version: FastPath(version).answer for version in range(FIRST_VERSION, LAST_VERSION + 1)}
"""Fast paths by the version of the request."""
