"""A producer that writes records one batch after the other for each partition, idempotent unless told otherwise.

`send` returns when the record is acknowledged, and tries again meanwhile what may pass. Several tasks may send at a time; the
records of one partition are written in the order of the calls.

With a transactional id all records belong to transactions: `begin`, `commit`, `abort`, or `async with producer.transaction()`.
There are two ways to do so:

1  as the first clients: AddPartitionsToTxn before a partition's first record, AddOffsetsToTxn before a group's offsets; a producer
   keeps its epoch, so that a late EndTxn may end the next transaction
2  since KIP-890: a Produce and a TxnOffsetCommit add what they concern by themselves, and each EndTxn gives the next epoch
"""

import contextlib
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, NamedTuple

import trio

from ottla.server.testing.client.admin import Admin
from ottla.server.testing.client.answers import NOT_COORDINATOR, NOT_LEADER, NOT_WRITTEN_YET, NoAnswer, raise_for
from ottla.server.testing.client.connections import GROUP, TRANSACTION
from ottla.server.testing.client.consumer import Consumer
from ottla.server.testing.history.observed import Observations, SendingLog
from ottla.wire.checksum import murmur2
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.messages.producer_ids import InitProducerIdRequest
from ottla.wire.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from ottla.wire.record_encoding import encode_batch
from ottla.wire.records import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, Record

UNKNOWN_OFFSET = -1
INIT_AT_MOST, ADD_PARTITIONS_AT_MOST, ADD_OFFSETS_AT_MOST = 4, 3, 3
PRODUCE_AT_MOST, END_AT_MOST, COMMIT_AT_MOST = {1: 11, 2: 12}, {1: 3, 2: 5}, {1: 3, 2: 5}
"""Newest versions of requests by the way of transactions: later ones say that the client goes the second way."""

TRANSACTION_FEATURE = "transaction.version"
TIMEOUT_MS = 5_000
DELIVERY_TIMEOUT_S = 120.0
TRANSACTION_TIMEOUT_MS = 60_000
ALL = -1
Place = tuple[str, int]
Headers = Sequence[tuple[str, bytes | None]]


class Outgoing(NamedTuple):
    """A record to be written."""

    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()


class Producer:
    """Producer of one client.

    `transactional_id`: None for no transactions. `transaction_version`: 1, or 2 for transactions as since KIP-890; None for what the
    cluster has finalized. `idempotent`: each record is written once, though it is sent again. `acks`: -1 for
    all in-sync replicas, 1 for the leader. A record that is not acknowledged in `delivery_timeout_s` raises NoAnswer: it may
    have been written. `history` notes what is sent; None: nobody does.
    """

    def __init__(
        self,
        admin: Admin,
        name: str,
        *,
        transactional_id: str | None = None,
        transaction_version: int | None = None,
        idempotent: bool = True,
        acks: int = ALL,
        delivery_timeout_s: float = DELIVERY_TIMEOUT_S,
        transaction_timeout_ms: int = TRANSACTION_TIMEOUT_MS,
        history: Observations | None = None,
    ) -> None:
        if acks not in (ALL, 1):
            raise ValueError(
                f"acks is -1 (all) or 1, not {acks!r}: without acknowledgements nothing can be said of a record"
            )
        if transactional_id is not None and not idempotent:
            raise ValueError("a producer with a transactional id is idempotent")
        if idempotent and acks != ALL:
            raise ValueError("an idempotent producer has acks=-1: give idempotent=False, too")
        if transaction_version not in (None, 1, 2):
            raise ValueError(
                f"transaction_version is 1 or 2, None for what the cluster has, not {transaction_version!r}"
            )
        self.name = name
        self.transactional_id = transactional_id
        self.producer_id, self.producer_epoch = NO_PRODUCER_ID, NO_PRODUCER_EPOCH
        self._admin = admin
        self._idempotent, self._acks = idempotent, acks
        self._wanted_way, self._way = transaction_version, transaction_version or 1
        self._delivery_timeout_s, self._transaction_timeout_ms = delivery_timeout_s, transaction_timeout_ms
        self._sequences: dict[Place, int] = {}
        self._locks: dict[Place, trio.Lock] = {}
        self._joining = trio.Lock()
        self._partitions: dict[str, list[int]] = {}
        self._next_partition = 0
        self._added: set[Place] | None = None  # to the transaction that is open
        self._has_offsets = False
        self._has_failed = False  # a record of the transaction was not acknowledged, and may have been written
        self._log = None if history is None else history.producer_began(name, idempotent=idempotent, acks=acks)

    # ------------------------------------------------------------------ records

    async def send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        *,
        partition: int | None = None,
        headers: Headers = (),
    ) -> int:
        """Write a record; return its offset, UNKNOWN_OFFSET if it was acknowledged as written before.

        `partition`: None for that of the key (as Java's client has it), without a key for one after the other.
        """
        return await self.send_batch(topic, [Outgoing(value, key, headers)], partition=partition)

    async def send_batch(self, topic: str, records: Sequence[Outgoing], *, partition: int | None = None) -> int:
        """Write records as one batch; return the offset of the first. `partition` as for the first by `send`."""
        if not records:
            raise ValueError("a batch has at least one record")
        if self.transactional_id is not None and self._added is None:
            raise KafkaError(ErrorCode.INVALID_TXN_STATE, "begin a transaction first")
        place = (topic, await self._partition_of(topic, records[0].key) if partition is None else partition)
        sendings = [] if self._log is None else [self._log.sent(*place, each.value, each.key) for each in records]
        async with self._locks.setdefault(place, trio.Lock()):
            try:
                return await self._write(place, records, sendings)
            except (KafkaError, NoAnswer, trio.Cancelled) as failure:
                name = failure.code.name if isinstance(failure, KafkaError) else "not acknowledged in time"
                self._failed(sendings, name)
                # An attempt without an answer may have been written, so that its sequence number must not be used again, and a
                # batch under the next one would be out of order.
                if self.transactional_id is None:
                    self.producer_id = NO_PRODUCER_ID
                raise

    async def _write(self, place: Place, records: Sequence[Outgoing], sendings: Sequence[SendingLog]) -> int:
        await self._have_id()
        if self._added is not None and place not in self._added:
            if self._way == 1:
                await self._add_partition(place)
            self._added.add(place)
        sequence = self._sequences.get(place, 0)
        request = self._request(place, records, sequence)

        async def attempt() -> Any:
            response = await self._admin.ask_leader(*place, request, at_most=PRODUCE_AT_MOST[self._way])
            if response is None:
                return None
            answer = response.responses[0].partition_responses[0]
            if answer.error_code in NOT_WRITTEN_YET | NOT_COORDINATOR:  # the leader asks the coordinator
                if answer.error_code in NOT_LEADER:
                    self._admin.connections.forget_leader(*place)
                return None
            return answer

        answer = await self._admin.insist(f"a record of {place[0]}-{place[1]}", attempt, self._delivery_timeout_s)
        if answer.error_code != ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            raise_for(answer.error_code, answer.error_message)
        self._sequences[place] = (sequence + len(records)) & 0x7FFFFFFF
        offset = UNKNOWN_OFFSET if answer.error_code else int(answer.base_offset)
        for number, each in enumerate(sendings):
            each.acknowledged(offset + number if offset >= 0 else UNKNOWN_OFFSET)
        return offset

    def _request(self, place: Place, records: Sequence[Outgoing], sequence: int) -> ProduceRequest:
        now_ms = int(time.time() * 1000)
        batch = encode_batch(
            [
                Record(number, now_ms, each.key, each.value, tuple((name.encode(), it) for name, it in each.headers))
                for number, each in enumerate(records)
            ],
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            base_sequence=sequence if self._idempotent else NO_SEQUENCE,
            is_transactional=self.transactional_id is not None,
        )
        topic, partition = place
        data = [PartitionProduceData(index=partition, records=memoryview(batch))]
        return ProduceRequest(
            transactional_id=self.transactional_id,
            acks=self._acks,
            timeout_ms=TIMEOUT_MS,
            topic_data=[TopicProduceData(name=topic, partition_data=data)],
        )

    async def _partition_of(self, topic: str, key: bytes | None) -> int:
        if topic not in self._partitions:
            self._partitions[topic] = await self._admin.partitions_of(topic)
        partitions = self._partitions[topic]
        if key is not None:
            return partitions[(murmur2(key) & 0x7FFFFFFF) % len(partitions)]
        self._next_partition += 1
        return partitions[self._next_partition % len(partitions)]

    def _failed(self, sendings: Sequence[SendingLog], words: str) -> None:
        self._has_failed = self.transactional_id is not None
        for each in sendings:
            each.failed(words, may_be_written=True)

    # ------------------------------------------------------------------ ids

    async def _have_id(self) -> None:
        if not self._idempotent:
            return
        async with self._joining:
            if self.producer_id == NO_PRODUCER_ID:
                await self._get_id()

    async def _get_id(self) -> None:
        key = self.transactional_id
        request = InitProducerIdRequest(transactional_id=key, transaction_timeout_ms=self._transaction_timeout_ms)

        async def attempt() -> Any:
            if key is None:
                response = await self._admin.connections.ask(self._admin.any_broker(), request, at_most=INIT_AT_MOST)
            else:
                response = await self._admin.ask_coordinator(key, request, kind=TRANSACTION, at_most=INIT_AT_MOST)
            return None if response is None or response.error_code in NOT_COORDINATOR else response

        response = await self._admin.insist("a producer id", attempt)
        raise_for(response.error_code)
        if self._wanted_way is None and key is not None:
            level = await self._admin.finalized_level(TRANSACTION_FEATURE)
            self._way = 2 if level >= 2 else 1
        self._take_id(response)

    def _take_id(self, response: Any) -> None:
        self.producer_id, self.producer_epoch = response.producer_id, response.producer_epoch
        self._sequences.clear()

    # ------------------------------------------------------------------ transactions

    async def begin(self) -> None:
        """Begin a transaction; the first one fences older producers of the transactional id."""
        if self.transactional_id is None:
            raise KafkaError(ErrorCode.INVALID_TXN_STATE, "give the producer a transactional_id")
        if self._added is not None:
            raise KafkaError(ErrorCode.INVALID_TXN_STATE, "a transaction is open: commit or abort it first")
        await self._have_id()
        self._added, self._has_offsets = set(), False
        if self._log is not None:
            self._log.transaction_began()

    async def commit(self) -> None:
        """Commit the open transaction."""
        await self._end(commit=True)

    async def abort(self) -> None:
        """Abort the open transaction."""
        await self._end(commit=False)

    @contextlib.asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        """Begin a transaction; commit it at the end of the block, or abort it if the block raises."""
        await self.begin()
        try:
            yield
        except Exception:
            with contextlib.suppress(KafkaError, NoAnswer):  # such as of one that is fenced; the first error is raised
                await self.abort()
            raise
        await self.commit()

    async def send_offsets(self, group: str | Consumer, offsets: Mapping[Place, int]) -> None:
        """Commit a group's offsets with the open transaction.

        `group`: its name, or a consumer of it: then they are refused (KafkaError) if it is no member any more.
        """
        key = self.transactional_id
        if key is None or self._added is None:
            raise KafkaError(ErrorCode.INVALID_TXN_STATE, "begin a transaction first")
        name, member = (group, {}) if isinstance(group, str) else (group.group, group.identity)
        if name is None:
            raise ValueError("this consumer is in no group: give the name of one")
        if not offsets:
            return
        for place, offset in offsets.items():
            if self._log is not None:
                self._log.offset_added(name, *place, offset)
        whose: dict[str, Any] = {
            "transactional_id": key,
            "producer_id": self.producer_id,
            "producer_epoch": self.producer_epoch,
            "group_id": name,
        }
        if self._way == 1:
            add = AddOffsetsToTxnRequest(**whose)
            await self._insist_on(add, key, lambda response: [response.error_code], ADD_OFFSETS_AT_MOST)
        self._has_offsets = True
        topics = [
            TxnOffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    TxnOffsetCommitRequestPartition(
                        partition_index=partition, committed_offset=offset, committed_metadata=""
                    )
                ],
            )
            for (topic, partition), offset in offsets.items()
        ]
        commit = TxnOffsetCommitRequest(topics=topics, **whose, **member)
        await self._insist_on(
            commit,
            name,
            lambda response: [each.error_code for topic in response.topics for each in topic.partitions],
            COMMIT_AT_MOST[self._way],
            kind=GROUP,
        )

    async def _add_partition(self, place: Place) -> None:
        assert self.transactional_id is not None and self._added is not None
        request = AddPartitionsToTxnRequest(
            transactions=[],
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.producer_epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=place[0], partitions=[place[1]])],
        )
        await self._insist_on(
            request,
            self.transactional_id,
            lambda response: [
                each.partition_error_code
                for topic in response.results_by_topic_v3_and_below
                for each in topic.results_by_partition
            ],
            ADD_PARTITIONS_AT_MOST,
        )

    async def _end(self, *, commit: bool) -> None:
        key = self.transactional_id
        if key is None or self._added is None:
            raise KafkaError(ErrorCode.INVALID_TXN_STATE, "no transaction is open")
        if commit and self._has_failed:
            raise KafkaError(ErrorCode.INVALID_TXN_STATE, "a record of this transaction was not acknowledged: abort it")
        if self._log is not None:
            self._log.end_asked(commit)
        if self._added or self._has_offsets:
            request = EndTxnRequest(
                transactional_id=key,
                producer_id=self.producer_id,
                producer_epoch=self.producer_epoch,
                committed=commit,
            )
            response = await self._insist_on(
                request, key, lambda response: [response.error_code], END_AT_MOST[self._way]
            )
            if self._way == 2:
                self._take_id(response)
        if self._way == 1 and self._has_failed:
            self.producer_id = NO_PRODUCER_ID  # the next transaction has an epoch and sequences of its own
        self._added, self._has_failed = None, False
        if self._log is not None:
            self._log.ended(commit)

    async def _insist_on(self, request: Any, key: str, codes: Any, at_most: int, *, kind: int = TRANSACTION) -> Any:
        """Ask a coordinator until it has done it; return its response. Raises KafkaError with what it refuses."""

        async def attempt() -> Any:
            response = await self._admin.ask_coordinator(key, request, kind=kind, at_most=at_most)
            found = None if response is None else codes(response)
            if found is None or any(each in NOT_COORDINATOR or each in NOT_LEADER for each in found):
                return None
            for each in found:
                raise_for(each)
            return response

        return await self._admin.insist(type(request).__name__, attempt)
