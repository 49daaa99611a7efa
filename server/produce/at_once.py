"""The shortest way of a produce request: one ordinary batch for one partition, for which nobody has to wait.

Nearly every request takes it, for the connection asks here first (`server/net/connection.py`). What `appending.py` does for all
requests is done here without objects for their parts. Whatever is out of the ordinary is left to that, a refusal above all, as
if nothing had been done. So all that is decided here is that a batch is good. The tests hold both ways to the same answers and logs.

Clients have several requests under way. Those that came together and differ in their records only are looked at one after the
other, and what was found good is appended in one write (`AtOnce.follow`, `carry_out_all`).

Out of the ordinary are several topics or partitions, transactions, acks=0, compressed records that take long, topics that change
or refuse records, followers and forced flushes, the first batch of a producer that numbers them, one that comes again, and a
producer of whom a batch was refused and has to come again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ottla.replication.cluster.metadata_cache import INTERNAL_TOPICS
from ottla.replication.log.ordinary_batches import check_ordinary, ordinary_header
from ottla.replication.log.ordinary_compressed import check_compressed
from ottla.replication.log.several_batches import follows
from ottla.replication.partition.appending_together import append_together
from ottla.server.gate.access import may
from ottla.server.gate.authorized_operations import AclOperation, ResourceType
from ottla.wire.errors import KafkaError
from ottla.wire.one_batch import (
    FIRST_VERSION,
    FRONT_AT,
    LAST_VERSION,
    TOPIC_IDS_SINCE,
    OneBatch,
    decode_alike,
    decode_one_batch,
    encode_one_answer,
)
from ottla.wire.records import COMPRESSION_MASK

if TYPE_CHECKING:
    from ottla.replication.log.validator import CheckedRecords
    from ottla.replication.partition.partition import Partition
    from ottla.server.gate.context import RequestContext
    from ottla.server.ports import BrokerParts

    Prepared = tuple[OneBatch, str, Partition, memoryview, CheckedRecords]
    """A request that takes this way: all that can be said before anything is done. A plain tuple, because every request makes one."""

Parts = list[bytes]


class AtOnce:
    """This way, for one version of the request. Each step says None where the request is to be left to the other one."""

    def __init__(self, version: int) -> None:
        self._has_id = version >= TOPIC_IDS_SINCE

    def prepare(self, buffer: Any, position: int, end: int, context: RequestContext[BrokerParts]) -> Prepared | None:
        """What the request in `buffer[position:end]` asks for."""
        asked = decode_one_batch(buffer, position, end, self._has_id)
        if asked is None:
            return None
        acks, topic, index, _, records = asked
        # No attributes but a codec: not transactional either.
        header = ordinary_header(records, COMPRESSION_MASK)
        if header is None or acks not in (1, -1):
            return None
        broker = context.broker
        cluster = broker.cluster
        known = cluster.topic_by_id.get(topic) if self._has_id else cluster.topics.get(topic.decode("utf-8", "replace"))
        if known is None or index >= len(known.partitions):
            return None
        name = known.name
        if name in INTERNAL_TOPICS or (broker.authorizer is not None and not _may_write(context, name)):
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
        rules = log.client_rules or log.validation_rules()
        if header[5]:
            checked = check_compressed(records, header, rules, now_ms=now_ms)
        else:
            checked = check_ordinary(records, header, rules, now_ms=now_ms)
        return None if checked is None else (asked, name, partition, records, checked)

    def follow(
        self, before: Prepared, buffer: Any, position: int, end: int, context: RequestContext[BrokerParts]
    ) -> Prepared | None:
        """The same of one that came right behind another, which was not carried out yet: None where more than its records differs."""
        asked, topic, partition, _, checked = before
        records = decode_alike(asked[3], buffer, position, end)
        header = None if records is None else ordinary_header(records)
        if records is None or header is None or header[5] or not follows(checked[1], header):
            return None
        if context.broker.authorizer is not None and not _may_write(context, topic):
            return None
        found = check_ordinary(records, header, partition.log.validation_rules(), now_ms=context.now_ms)
        return None if found is None else (asked, topic, partition, records, found)

    def carry_out(self, prepared: Prepared, context: RequestContext[BrokerParts]) -> Parts | None:
        """The answer, once the records are appended; None: nothing was done."""
        asked, _, partition, _, checked = prepared
        acks = asked[0]
        offset = partition.append_ordinary(checked, acks, context.now_ms)
        if offset is None:
            return None
        # Without followers and forced flushes there is nobody to wait for.
        assert acks == 1 or partition.high_watermark > offset, partition
        return encode_one_answer(asked[3][FRONT_AT:], offset, checked[3], partition.log.log_start_offset)

    def carry_out_all(self, prepared: Sequence[Prepared], context: RequestContext[BrokerParts]) -> list[Parts] | None:
        """The same of several, each of which follows the one before."""
        asked, _, partition, _, _ = prepared[0]
        checked = [each[4] for each in prepared]
        offset = append_together(partition, checked, required_acks=asked[0], now_ms=context.now_ms)
        if offset is None:
            return None
        front, start, answers = asked[3][FRONT_AT:], partition.log_start_offset, []
        for each in checked:
            answers.append(encode_one_answer(front, offset, each[3], start))
            offset += each[1][6] + 1
        assert asked[0] == 1 or partition.high_watermark >= offset, partition
        return answers


def _may_write(context: RequestContext[BrokerParts], topic: str) -> bool:
    return may(context, AclOperation.WRITE, ResourceType.TOPIC, topic, quietly=True)


AT_ONCE = {version: AtOnce(version) for version in range(FIRST_VERSION, LAST_VERSION + 1)}
"""By the version of the request."""
