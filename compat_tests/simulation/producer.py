"""An idempotent producer with acks=all and five batches in flight for each partition, as Kafka's own clients have it.

Batches of a partition go out in the order of their sequence numbers. One that fails with what may pass is sent again, before
all that come after it. It gives up nothing, so that in the end everything is acknowledged; what no client could go on with
is told to `fail`. What follows a batch that failed, and is refused as out of order itself, two kinds of clients see with
different eyes:

- Java's sends it again under the same sequence number.
- librdkafka sends nothing more of a partition before all answers about it have come, nor to a new leader, takes a new epoch when all answers about
  all partitions have come, and sends everything that is not acknowledged under new sequence numbers. What was written and not
  answered is doubled then. A broker must give it no reason to.
"""

import random
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

import trio

from ottla.server.testing.client.connections import Connections
from ottla.server.testing.history.history import (
    UNKNOWN_OFFSET,
    Acknowledged,
    EpochRaised,
    ProducerBegan,
    Recorder,
    Sent,
)
from ottla.server.testing.simulation.virtual import EPOCH_S
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.messages.producer_ids import InitProducerIdRequest
from ottla.wire.record_encoding import encode_batch
from ottla.wire.records import Record

IN_FLIGHT_MAX = 5
BATCH_RECORDS_MAX = 20
TIMEOUT_MS = 5_000
PRODUCE_VERSION, INIT_PRODUCER_ID_VERSION = 9, 4
BACKOFF_S = 0.1

RETRIABLE = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.LEADER_NOT_AVAILABLE,
    }
)


class Batch:
    """Records under one sequence number until they are acknowledged."""

    __slots__ = ("base_sequence", "data", "is_in_flight", "number", "values", "was_first")

    def __init__(self, number: int, values: list[str]) -> None:
        self.number = number
        self.base_sequence = -1
        self.values = values
        self.data = b""
        self.is_in_flight = False
        self.was_first = False  # when it was sent last, nothing before it was open


class Lane:
    """One partition as a producer has it."""

    def __init__(self, topic: str, partition: int) -> None:
        self.topic = topic
        self.partition = partition
        self.next_sequence = 0
        self.batches = 0
        self.waiting: deque[str] = deque()
        self.window: deque[Batch] = deque()
        self.changed = trio.Event()
        self.goes_on_at = trio.current_time()  # when something was acknowledged, or the first was handed over
        self.is_moved = False
        self.leader = -1  # to whom it was sent last
        self.is_draining = False  # nothing is sent before all that is in flight is answered
        self.has_failed = False

    def wake(self) -> None:
        self.changed.set()
        self.changed = trio.Event()

    @property
    def is_in_flight(self) -> bool:
        return any(batch.is_in_flight for batch in self.window)

    @property
    def is_done(self) -> bool:
        return self.has_failed or (not self.waiting and not self.window)


class SimProducer:
    """See the module's docstring."""

    def __init__(
        self,
        client: Connections,
        record: Recorder,
        partitions: list[tuple[str, int]],
        rate: float,
        fail: Callable[[str], None],
        raises_epoch: bool,
    ) -> None:
        """`raises_epoch`: as librdkafka does, else as Java's client."""
        self.acknowledged = self.epochs_raised = 0
        self.is_over = False
        self._client = client
        self._name = client.name
        self._record = record
        self._chance = random.Random(client.name + str(client.network.chance.random()))
        self._rate = rate
        self._fail = fail
        self._raises_epoch = raises_epoch
        self._is_raising = False
        self._lanes = [Lane(*each) for each in partitions]
        self._sent = 0
        self._producer_id = self._producer_epoch = -1

    @property
    def is_done(self) -> bool:
        return self.is_over and all(lane.is_done for lane in self._lanes)

    def waits_since(self) -> dict[str, float]:
        """Since when partitions take nothing, of those for which there is something."""
        return {f"{lane.topic}-{lane.partition}": lane.goes_on_at for lane in self._lanes if not lane.is_done}

    def state(self) -> str:
        open_lanes = [lane for lane in self._lanes if not lane.is_done]
        return f"{self._name}: " + ", ".join(
            f"{lane.topic}-{lane.partition}: {len(lane.waiting)} waiting,"
            f" {[(batch.base_sequence, batch.is_in_flight) for batch in lane.window]}"
            for lane in open_lanes
        )

    def __str__(self) -> str:
        return self._name

    async def run(self) -> None:
        self._record.add(ProducerBegan, self._name, True, -1)
        await self._get_id()
        async with trio.open_nursery() as nursery:
            for lane in self._lanes:
                nursery.start_soon(self._serve, lane)
            while True:
                await trio.sleep(self._chance.expovariate(self._rate))
                if self.is_over:
                    break
                lane = self._chance.choice(self._lanes)
                for _ in range(self._chance.choice((1, 1, 1, 2, 5))):
                    if self._raises_epoch:
                        await trio.sleep(self._chance.expovariate(200))
                    if not self.is_over:
                        self._hand_over(lane)
            for lane in self._lanes:
                lane.wake()

    def _hand_over(self, lane: Lane) -> None:
        value = f"{self._name}:{self._sent}:" + "x" * self._chance.choice((0, 10, 200))
        self._sent += 1
        value = value[:64]
        if lane.is_done:
            lane.goes_on_at = trio.current_time()
        lane.waiting.append(value)
        self._record.add(Sent, self._name, lane.topic, lane.partition, value)
        lane.wake()

    async def _get_id(self) -> None:
        while self._producer_id < 0:
            request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
            response = await self._client.ask_any(request, INIT_PRODUCER_ID_VERSION)
            if response is not None and response.error_code == ErrorCode.NONE:
                self._producer_id, self._producer_epoch = response.producer_id, response.producer_epoch
            else:
                await trio.sleep(BACKOFF_S)

    # ------------------------------------------------------------------ one partition

    async def _serve(self, lane: Lane) -> None:
        while not (lane.has_failed or (self.is_over and lane.is_done)):
            if lane.is_moved:
                lane.is_moved = False
                self._client.forget_leader(lane.topic, lane.partition)
                await trio.sleep(BACKOFF_S)
            changed = lane.changed
            if not await self._send_next(lane):
                await changed.wait()

    async def _send_next(self, lane: Lane) -> bool:
        """Send the first batch that is not in flight; False if there is none."""
        if self._is_raising or (lane.is_draining and lane.is_in_flight):
            return False
        lane.is_draining = False
        batch = next((each for each in lane.window if not each.is_in_flight), None) or self._new_batch(lane)
        if batch is None:
            return False
        leader, _ = await self._client.leader(lane.topic, lane.partition)
        channel = await self._client.channel(leader)
        if channel is None:
            lane.is_moved = True
            return True
        # While this waited for the leader, what was in flight may have failed.
        if self._raises_epoch and lane.is_in_flight and leader != lane.leader:
            lane.is_draining = True
        if self._is_raising or lane.is_draining:
            return True
        lane.leader = leader
        batch = next(each for each in lane.window if not each.is_in_flight)
        batch.is_in_flight = True
        batch.was_first = lane.window[0] is batch
        request = ProduceRequest(
            acks=-1,
            timeout_ms=TIMEOUT_MS,
            topic_data=[
                TopicProduceData(
                    name=lane.topic,
                    partition_data=[PartitionProduceData(index=lane.partition, records=memoryview(batch.data))],
                )
            ],
        )
        channel.send(request, PRODUCE_VERSION, partial(self._answered, lane, batch))
        return True

    def _new_batch(self, lane: Lane) -> Batch | None:
        if not lane.waiting or (lane.window and lane.batches - lane.window[0].number >= IN_FLIGHT_MAX):
            return None  # more would make a leader forget the first, which may have to be sent again
        batch = Batch(lane.batches, [lane.waiting.popleft() for _ in range(min(len(lane.waiting), BATCH_RECORDS_MAX))])
        self._number(lane, batch)
        lane.batches += 1
        lane.window.append(batch)
        return batch

    def _number(self, lane: Lane, batch: Batch) -> None:
        now_ms = int((EPOCH_S + trio.current_time()) * 1000)
        batch.base_sequence = lane.next_sequence
        batch.data = encode_batch(
            [Record(number, now_ms, None, value.encode()) for number, value in enumerate(batch.values)],
            producer_id=self._producer_id,
            producer_epoch=self._producer_epoch,
            base_sequence=lane.next_sequence,
        )
        lane.next_sequence += len(batch.values)

    def _answered(self, lane: Lane, batch: Batch, response: Any) -> None:
        batch.is_in_flight = False
        if response is None:
            lane.is_moved = True
            lane.is_draining = self._raises_epoch
        else:
            answer = response.responses[0].partition_responses[0]
            self._conclude(lane, batch, ErrorCode(answer.error_code), answer.base_offset)
        if self._is_raising:
            self._raise_epoch()
        lane.wake()

    def _conclude(self, lane: Lane, batch: Batch, code: ErrorCode, base_offset: int) -> None:
        if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            if batch not in lane.window:
                return
            lane.window.remove(batch)
            lane.goes_on_at = trio.current_time()
            for number, value in enumerate(batch.values):
                offset = base_offset + number if code is ErrorCode.NONE and base_offset >= 0 else UNKNOWN_OFFSET
                self._record.add(Acknowledged, self._name, lane.topic, lane.partition, value, offset)
                self.acknowledged += 1
        elif code in RETRIABLE:
            lane.is_moved = True
            lane.is_draining = self._raises_epoch
        elif code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and not batch.was_first:
            self._is_raising = self._raises_epoch  # what comes before it has failed
        else:
            where = f"{lane.topic}-{lane.partition}"
            self._fail(f"{self._name}: {code.name} for sequence {batch.base_sequence} of {where}")
            lane.has_failed = True

    def _raise_epoch(self) -> None:
        """Once nothing is in flight any more."""
        if any(lane.is_in_flight for lane in self._lanes):
            return
        self._is_raising = False
        self._producer_epoch += 1
        self.epochs_raised += 1
        self._record.add(EpochRaised, self._name, f"epoch {self._producer_epoch}")
        for lane in self._lanes:
            lane.next_sequence = 0
            lane.is_draining = False
            for batch in lane.window:
                self._number(lane, batch)
            lane.wake()
