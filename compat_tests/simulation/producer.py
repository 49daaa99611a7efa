"""An idempotent producer with acks=all and five batches in flight for each partition, as Kafka's own clients have it.

Batches of a partition go out in the order of their sequence numbers. One that fails with what may pass is sent again, before
all that come after it; those that are in flight meanwhile are refused as out of order, and sent again as well. It gives up
nothing, so that in the end everything is acknowledged; what no client could go on with is told to `fail`.

There is one exception, and it is Kafka's: a broker that starts knows only the last batch of each producer, because that is
all that a snapshot holds. So a retry of an earlier one is refused as out of order although the batch is in the log. Who
was sent nothing before it takes that for an error with unknown outcome, if the batch is in the leader's log indeed.
"""

import random
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

import trio
from compat_tests.history.history import UNKNOWN_OFFSET, Acknowledged, Failed, ProducerBegan, Recorder, Sent
from compat_tests.simulation.client import Client
from compat_tests.simulation.virtual import EPOCH_S

from ottla.wire.errors import ErrorCode
from ottla.wire.messages.init_producer_id import InitProducerIdRequest
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.records import Record, encode_batch

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

    __slots__ = ("base_sequence", "data", "is_in_flight", "values", "was_first")

    def __init__(self, base_sequence: int, values: list[str], data: bytes) -> None:
        self.base_sequence = base_sequence
        self.values = values
        self.data = data
        self.is_in_flight = False
        self.was_first = False  # when it was sent last, nothing before it was open


class Lane:
    """One partition as a producer has it."""

    def __init__(self, topic: str, partition: int) -> None:
        self.topic = topic
        self.partition = partition
        self.next_sequence = 0
        self.waiting: deque[str] = deque()
        self.window: deque[Batch] = deque()
        self.changed = trio.Event()
        self.is_moved = False
        self.has_failed = False

    def wake(self) -> None:
        self.changed.set()
        self.changed = trio.Event()

    @property
    def is_done(self) -> bool:
        return self.has_failed or (not self.waiting and not self.window)


class SimProducer:
    """See the module's docstring."""

    def __init__(
        self,
        client: Client,
        record: Recorder,
        partitions: list[tuple[str, int]],
        rate: float,
        fail: Callable[[str], None],
        is_in_log: Callable[[str, int, int, int], bool],
    ) -> None:
        """`is_in_log(topic, partition, producer id, base sequence)`: whether the leader's log has the batch."""
        self.acknowledged = 0
        self.is_over = False
        self._client = client
        self._name = client.name
        self._record = record
        self._chance = random.Random(client.name + str(client.network.chance.random()))
        self._rate = rate
        self._fail = fail
        self._is_in_log = is_in_log
        self._lanes = [Lane(*each) for each in partitions]
        self._sent = 0
        self._producer_id = self._producer_epoch = -1

    @property
    def is_done(self) -> bool:
        return self.is_over and all(lane.is_done for lane in self._lanes)

    def state(self) -> str:
        open_lanes = [lane for lane in self._lanes if not lane.is_done]
        return f"{self._name}: " + ", ".join(
            f"{lane.topic}-{lane.partition}: {len(lane.waiting)} waiting,"
            f" {[(batch.base_sequence, batch.is_in_flight) for batch in lane.window]}"
            for lane in open_lanes
        )

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
                    self._hand_over(lane)
            for lane in self._lanes:
                lane.wake()

    def _hand_over(self, lane: Lane) -> None:
        value = f"{self._name}:{self._sent}:" + "x" * self._chance.choice((0, 10, 200))
        self._sent += 1
        value = value[:64]
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
        batch = next((each for each in lane.window if not each.is_in_flight), None) or self._new_batch(lane)
        if batch is None:
            return False
        leader, _ = await self._client.leader(lane.topic, lane.partition)
        channel = await self._client.channel(leader)
        if channel is None:
            lane.is_moved = True
            return True
        # While this waited for the leader, what was in flight may have failed.
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
        if not lane.waiting or len(lane.window) >= IN_FLIGHT_MAX:
            return None
        values = [lane.waiting.popleft() for _ in range(min(len(lane.waiting), BATCH_RECORDS_MAX))]
        now_ms = int((EPOCH_S + trio.current_time()) * 1000)
        data = encode_batch(
            [Record(number, now_ms, None, value.encode()) for number, value in enumerate(values)],
            producer_id=self._producer_id,
            producer_epoch=self._producer_epoch,
            base_sequence=lane.next_sequence,
        )
        batch = Batch(lane.next_sequence, values, data)
        lane.next_sequence += len(values)
        lane.window.append(batch)
        return batch

    def _answered(self, lane: Lane, batch: Batch, response: Any) -> None:
        batch.is_in_flight = False
        if response is None:
            lane.is_moved = True
        else:
            answer = response.responses[0].partition_responses[0]
            self._conclude(lane, batch, ErrorCode(answer.error_code), answer.base_offset)
        lane.wake()

    def _conclude(self, lane: Lane, batch: Batch, code: ErrorCode, base_offset: int) -> None:
        if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            if batch not in lane.window:
                return
            lane.window.remove(batch)
            for number, value in enumerate(batch.values):
                offset = base_offset + number if code is ErrorCode.NONE and base_offset >= 0 else UNKNOWN_OFFSET
                self._record.add(Acknowledged, self._name, lane.topic, lane.partition, value, offset)
                self.acknowledged += 1
        elif code in RETRIABLE:
            lane.is_moved = True
        elif code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and not batch.was_first:
            pass  # what comes before it has failed
        elif code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and self._is_in_log(
            lane.topic, lane.partition, self._producer_id, batch.base_sequence
        ):
            lane.window.remove(batch)
            for value in batch.values:
                self._record.add(Failed, self._name, lane.topic, lane.partition, value, code.name, True)
        else:
            where = f"{lane.topic}-{lane.partition}"
            self._fail(f"{self._name}: {code.name} for sequence {batch.base_sequence} of {where}")
            lane.has_failed = True
