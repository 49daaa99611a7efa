"""A producer that works in transactions, one after the other, and is replaced by a new one of its id when it cannot go on.

It does so in one of two ways, and asks one thing after the other:

- As the first clients with transactions did: add the partition, write, ask for the end. What is not answered is asked again, but
  for the end: an EndTxn that is still under way somewhere could end the next transaction, so that a new producer takes over and
  the transaction stays in doubt.
- As clients do where each transaction has an epoch of its own (KIP-890): write, which adds the partition, and ask for the end,
  again and again; the answer has the next epoch.

Some transactions take an offset of the processor's group on, which is the number of the transaction. What the group is told then
counts only if ZooKeeper knew the broker as the group's coordinator all the while (see `SimGroup`).
"""

import random
import time
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import trio
from compat_tests.simulation.producer import PRODUCE_VERSION, RETRIABLE, TIMEOUT_MS

from ottla.server.testing.client.connections import BACKOFF_S, Connections
from ottla.server.testing.history.history import (
    UNKNOWN_OFFSET,
    Acknowledged,
    EndAsked,
    Ended,
    Failed,
    Fenced,
    OffsetAdded,
    OffsetFetched,
    ProducerBegan,
    Recorder,
    Sent,
)
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest
from ottla.wire.messages.offsets import OffsetFetchRequest, OffsetFetchRequestTopic
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
from ottla.wire.records import Record
from ottla.wire.schema import Message

FIND_COORDINATOR_VERSION, INIT_VERSION, ADD_VERSION, OFFSET_FETCH_VERSION = 3, 4, 3, 7
TRANSACTION = 1
TRANSACTION_TIMEOUT_MS = 20_000
BATCHES_MAX = 5
PASSING = RETRIABLE | {
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.CONCURRENT_TRANSACTIONS,
}


class Versions(NamedTuple):
    produce: int
    end: int
    commit: int


OLD, NEW = Versions(PRODUCE_VERSION, 3, 3), Versions(12, 5, 5)


class CannotGoOn(Exception):
    """Another producer has to take over."""


class SimProcessor:
    """See the module's docstring."""

    def __init__(
        self,
        client: Connections,
        record: Recorder,
        partitions: list[tuple[str, int]],
        is_coordinator: Callable[[int, str], bool] | None = None,
        *,
        versions: Versions = OLD,
    ) -> None:
        """`is_coordinator` of a group: without it no offsets are taken on."""
        self._is_coordinator = is_coordinator
        self._versions = versions
        self.committed = self.in_doubt = 0
        self.is_over = self.is_done = False
        self._client = client
        self._id = client.name
        self._add = record.add
        self._chance = random.Random(client.name + str(client.network.chance.random()))
        self._partitions = partitions
        self._name = ""
        self._incarnations = self._transactions = self._values = 0
        self._producer_id = self._epoch = -1
        self._sequences: dict[tuple[str, int], int] = {}

    def state(self) -> str:
        return f"{self._name}: transaction {self._transactions}"

    async def run(self) -> None:
        await self._take_over()
        while not self.is_over:
            await trio.sleep(self._chance.expovariate(1.0))
            try:
                await self._transact()
            except CannotGoOn:
                await self._take_over()
        await self._take_over()
        self.is_done = True

    async def _take_over(self) -> None:
        before, self._name = self._name, f"{self._id}/{self._incarnations}"
        self._incarnations += 1
        self._add(ProducerBegan, self._name, True, -1)
        request = InitProducerIdRequest(transactional_id=self._id, transaction_timeout_ms=TRANSACTION_TIMEOUT_MS)
        while True:
            response = await self._ask(request, INIT_VERSION)
            if response is not None and response.error_code == ErrorCode.NONE:
                break
            await trio.sleep(BACKOFF_S)
        self._producer_id, self._epoch = response.producer_id, response.producer_epoch
        self._sequences.clear()
        if before:
            self._add(Fenced, before)
        if self._is_coordinator is not None:
            await self._fetch_offset(self._is_coordinator)

    async def _ask(self, request: Message, version: int) -> Any:
        """Of the coordinator; None if nobody knows."""
        found = await self._client.ask_any(
            FindCoordinatorRequest(key=self._id, key_type=TRANSACTION), FIND_COORDINATOR_VERSION
        )
        if found is None or found.error_code:
            return None
        return await self._client.ask(found.node_id, request, version)

    # ------------------------------------------------------------------ one transaction

    async def _transact(self) -> None:
        self._transactions += 1
        for _ in range(self._chance.randint(1, BATCHES_MAX)):
            where = self._chance.choice(self._partitions)
            if self._versions is OLD:
                await self._add_partition(*where)
            await self._write(*where)
        if self._is_coordinator is not None and self._chance.random() < 0.4:
            await self._take_offset_on()
        if self._chance.random() < 0.05:
            raise CannotGoOn
        await self._end(commit=self._chance.random() < 0.75)

    async def _add_partition(self, topic: str, partition: int) -> None:
        request = AddPartitionsToTxnRequest(
            transactions=[],
            v3_and_below_transactional_id=self._id,
            v3_and_below_producer_id=self._producer_id,
            v3_and_below_producer_epoch=self._epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=[partition])],
        )
        while True:
            response = await self._ask(request, ADD_VERSION)
            if response is not None:
                code = ErrorCode(response.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code)
                if code is ErrorCode.NONE:
                    return
                if code not in PASSING:
                    raise CannotGoOn
            await trio.sleep(BACKOFF_S)

    async def _write(self, topic: str, partition: int) -> None:
        where = (topic, partition)
        values = [f"{self._name}:{self._values + number}" for number in range(self._chance.randint(1, 3))]
        self._values += len(values)
        for value in values:
            self._add(Sent, self._name, *where, value, None, self._transactions)
        request = self._produce(*where, values)
        while True:
            leader, _ = await self._client.leader(*where)
            response = await self._client.ask(leader, request, self._versions.produce)
            if response is not None:
                answer = response.responses[0].partition_responses[0]
                code = ErrorCode(answer.error_code)
                if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                    break
                if code not in PASSING:
                    for value in values:
                        self._add(Failed, self._name, *where, value, code.name, True)
                    raise CannotGoOn
            self._client.forget_leader(*where)
            await trio.sleep(BACKOFF_S)
        self._sequences[where] = self._sequences.get(where, 0) + len(values)
        for number, value in enumerate(values):
            known = code is ErrorCode.NONE and answer.base_offset >= 0
            self._add(Acknowledged, self._name, *where, value, answer.base_offset + number if known else UNKNOWN_OFFSET)

    def _produce(self, topic: str, partition: int, values: list[str]) -> ProduceRequest:
        now_ms = int(time.time() * 1000)
        data = encode_batch(
            [Record(number, now_ms, None, value.encode()) for number, value in enumerate(values)],
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            base_sequence=self._sequences.get((topic, partition), 0),
            is_transactional=True,
        )
        placed = [PartitionProduceData(index=partition, records=memoryview(data))]
        topics = [TopicProduceData(name=topic, partition_data=placed)]
        return ProduceRequest(transactional_id=self._id, acks=-1, timeout_ms=TIMEOUT_MS, topic_data=topics)

    async def _end(self, *, commit: bool) -> None:
        self._add(EndAsked, self._name, self._transactions, commit)
        request = EndTxnRequest(
            transactional_id=self._id, producer_id=self._producer_id, producer_epoch=self._epoch, committed=commit
        )
        while True:
            response = await self._ask(request, self._versions.end)
            code = None if response is None else ErrorCode(response.error_code)
            if code is ErrorCode.NONE:
                break
            if code not in PASSING and not (code is None and self._versions is NEW):
                self.in_doubt += 1
                raise CannotGoOn
            await trio.sleep(BACKOFF_S)
        if self._versions is NEW:
            self._producer_id, self._epoch = response.producer_id, response.producer_epoch
            self._sequences.clear()
        self.committed += commit
        self._add(Ended, self._name, self._transactions, commit)

    # ------------------------------------------------------------------ offsets

    async def _take_offset_on(self) -> None:
        """Let the offset of this transaction be committed with it."""
        topic, partition = self._partitions[0]
        self._add(OffsetAdded, self._name, self._transactions, self._id, topic, partition, self._transactions)
        if self._versions is OLD:
            request = AddOffsetsToTxnRequest(
                transactional_id=self._id, producer_id=self._producer_id, producer_epoch=self._epoch, group_id=self._id
            )
            await self._insist(lambda: self._ask(request, ADD_VERSION), lambda response: response.error_code)
        offset = TxnOffsetCommitRequestPartition(
            partition_index=partition, committed_offset=self._transactions, committed_metadata=""
        )
        commit = TxnOffsetCommitRequest(
            transactional_id=self._id,
            group_id=self._id,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            topics=[TxnOffsetCommitRequestTopic(name=topic, partitions=[offset])],
        )
        await self._insist(
            lambda: self._ask_group(commit, self._versions.commit),
            lambda response: response.topics[0].partitions[0].error_code,
        )
        if self._is_coordinator is not None and self._chance.random() < 0.2:
            # The transactions before have ended, so that it need not be a stable one.
            await self._fetch_offset(self._is_coordinator, is_stable=False)

    async def _insist(self, ask: Callable[[], Awaitable[Any]], code_of: Callable[[Any], int]) -> None:
        """Ask until the answer is good."""
        while True:
            response = await ask()
            if response is not None:
                code = ErrorCode(code_of(response))
                if code is ErrorCode.NONE:
                    return
                if code not in PASSING:
                    raise CannotGoOn
            await trio.sleep(BACKOFF_S)

    async def _ask_group(self, request: Message, version: int) -> Any:
        return await self._client.ask(await self._client.coordinator(self._id), request, version)

    async def _fetch_offset(self, is_coordinator: Callable[[int, str], bool], *, is_stable: bool = True) -> None:
        """Write down what the group is told, if somebody tells it."""
        topic, partition = self._partitions[0]
        coordinator = await self._client.coordinator(self._id)
        asked = [OffsetFetchRequestTopic(name=topic, partition_indexes=[partition])]
        request = OffsetFetchRequest(group_id=self._id, topics=asked, require_stable=is_stable)
        was_coordinator = is_coordinator(coordinator, self._id)
        response = await self._client.ask(coordinator, request, OFFSET_FETCH_VERSION)
        if response is None or response.error_code or not was_coordinator or not is_coordinator(coordinator, self._id):
            return
        answer = response.topics[0].partitions[0]
        if not answer.error_code:
            self._add(OffsetFetched, self._id, topic, partition, max(answer.committed_offset, UNKNOWN_OFFSET))
