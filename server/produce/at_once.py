"""The shortest way of a produce request: one ordinary batch for one partition, for which nobody has to wait.

Nearly every request takes it, for the connection asks here first (`server/net/connection.py`). What `appending.py` does for all
requests is done here without objects for their parts. Whatever is out of the ordinary is left to that, a refusal above all, as
if nothing had been done. So all that is decided here is that a batch is good. The tests hold both ways to the same answers and logs.

Out of the ordinary are several topics or partitions, transactions, acks=0, compressed records that take long, topics that change
or refuse records, followers and forced flushes, and a producer of whom a batch was refused and has to come again.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from ottla.replication.cluster.state import INTERNAL_TOPICS
from ottla.replication.log.ordinary_batches import check_ordinary, ordinary_header
from ottla.replication.log.ordinary_compressed import check_compressed
from ottla.server.gate.access import may
from ottla.server.gate.authorized_operations import AclOperation, ResourceType
from ottla.wire.errors import KafkaError
from ottla.wire.one_batch import FIRST_VERSION, LAST_VERSION, TOPIC_IDS_SINCE, decode_one_batch, encode_one_answer
from ottla.wire.records import COMPRESSION_MASK

if TYPE_CHECKING:
    from ottla.server.gate.context import RequestContext
    from ottla.server.produce.appending import Port


def append_at_once(
    has_id: bool, buffer: Any, position: int, end: int, context: RequestContext[Port]
) -> list[bytes | bytearray] | None:
    """The answer to the request in `buffer[position:end]` if it takes this way; None: nothing was done."""
    asked = decode_one_batch(buffer, position, end, has_id=has_id)
    if asked is None:
        return None
    acks, topic, index, front, records = asked
    # No attributes but a codec: not transactional either.
    header = ordinary_header(records, COMPRESSION_MASK)
    if header is None or acks not in (1, -1):
        return None
    broker = context.broker
    if has_id:
        known = broker.cluster.topic_by_id.get(bytes(topic))
        if known is None:
            return None
        name = known.name
    else:
        name = topic.decode("utf-8", "replace")
    if broker.authorizer is not None and not may(context, AclOperation.WRITE, ResourceType.TOPIC, name, quietly=True):
        return None
    if broker.cluster.partition(name, index) is None or name in INTERNAL_TOPICS:
        return None
    try:
        partition = broker.partition(name, index)
    except KafkaError:
        return None
    log = partition.log
    now_ms = context.now_ms
    if (
        partition.followers is not None
        or log.is_flush_required
        or partition.doubts_unknown_until_ms > now_ms
        or header[9] in broker.replicas.refused_sequences.by_producer
    ):
        return None
    check = check_compressed if header[5] else check_ordinary
    checked = check(records, header, log.validation_rules(), now_ms=now_ms)
    if checked is None:
        return None
    try:
        info = partition.append_as_leader(records, required_acks=acks, now_ms=now_ms, checked=checked)
    except KafkaError:
        checked.take_back()
        return None
    # Without followers and forced flushes there is nobody to wait for.
    assert acks == 1 or partition.high_watermark > info.last_offset, partition
    return encode_one_answer(front, info.first_offset, info.log_append_time_ms, info.log_start_offset)


AT_ONCE = {
    version: partial(append_at_once, version >= TOPIC_IDS_SINCE) for version in range(FIRST_VERSION, LAST_VERSION + 1)
}
"""By the version of the request."""
