"""Producer: writes batches to the leaders of their partitions, with a few requests in flight.

A batch that a leader refuses with a retriable error is sent again, in order and one by one, once the leader is known again.
After a lost connection it is unknown whether its batches were written. An idempotent producer (KIP-98) sends them again,
and they are written once, because a leader remembers the last five batches of a producer id. Without idempotence the
command ends and says how many batches are in doubt.

A record with a key goes to the partition that Kafka's own clients choose for that key.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from ottla.server.cli.client.cluster import Cluster, TemporaryFailure, failed
from ottla.server.cli.client.connection import ANSWER_TIMEOUT_S, BrokerConnection
from ottla.server.cli.client.output import ConnectionLost, RequestFailed, UsageError
from ottla.wire.checksum import murmur2
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.messages.producer_ids import InitProducerIdRequest, InitProducerIdResponse

if TYPE_CHECKING:
    from collections.abc import Callable

SETTING, ALL = "enable.idempotence", -1
SEQUENCES = 1 << 31  # they begin again at 0 after the highest
NEVER_MS = (1 << 31) - 1  # there is no transaction that could time out


class Place(NamedTuple):
    """Position in a producer's sequence, for one batch: producer id, epoch, and sequence of the first record."""

    producer_id: int
    epoch: int
    sequence: int


class Sequences:
    """State of an idempotent producer: its id and, by partition, the next sequence."""

    def __init__(self, producer_id: int, epoch: int) -> None:
        self._producer_id, self._epoch = producer_id, epoch
        self._next: dict[int, int] = {}

    def take(self, partition: int, count: int) -> Place:
        """Reserve `count` sequences for a partition's next batch. Write the batches in the order of these calls."""
        sequence = self._next.get(partition, 0)
        self._next[partition] = (sequence + count) % SEQUENCES
        return Place(self._producer_id, self._epoch, sequence)


def producer_sequences(cluster: Cluster, texts: Mapping[str, str], acks: int) -> Sequences | None:
    """Request a producer id; None if idempotence is off. Raises UsageError, RequestFailed.

    Idempotence is the default, as in Kafka, if acks is all and the cluster allows it.
    """
    wanted = texts.get(SETTING, "").lower()
    if wanted not in ("", "true", "false"):
        raise UsageError(f"{SETTING}={wanted}: must be true or false")
    is_demanded = wanted == "true"
    if is_demanded and acks != ALL:
        raise UsageError(f"{SETTING}=true needs --acks all")
    if wanted == "false" or acks != ALL:
        return None
    return cluster.patiently(lambda: cluster.ask_any(lambda broker: _ask(cluster, broker, is_demanded)))


def _ask(cluster: Cluster, broker: BrokerConnection, is_demanded: bool) -> Sequences | None:
    if not is_demanded and InitProducerIdRequest.api_key not in broker.versions:
        return None  # it is older than Kafka 0.11
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=NEVER_MS)
    answer: InitProducerIdResponse = broker.ask(request)
    # Before Kafka 2.8 a right of its own was needed.
    if not is_demanded and answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        return None
    cluster.check("a producer id", answer.error_code)
    return Sequences(answer.producer_id, answer.producer_epoch)


def partition_of(key: bytes, partitions: Sequence[int]) -> int:
    """Return the partition for a key. `partitions`: all partitions of the topic, sorted."""
    return partitions[(murmur2(key) & 0x7FFFFFFF) % len(partitions)]


IN_FLIGHT_MAX = 5
MAY_BE_WRITTEN = (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.REQUEST_TIMED_OUT)
"""The leader has written it, but does not know whether the other replicas have it."""
DELIVERY_S = 120.0
"""Time for a batch that may be sent again; Kafka's delivery.timeout.ms."""
_NAMES_MAX_VERSION = 11  # of Produce: 12 is for transactions, and later ones name topics by their ids


@dataclass(slots=True)
class _Sent:
    """Produce request in flight. `batches` maps a partition to the batch and the batch's number of records."""

    leader: int
    connection: BrokerConnection
    batches: dict[int, tuple[bytes, int]]
    since_s: float


class Producer:
    """Producer of one topic. Call `settle`, then `close`, at the end. `acks`: -1 in-sync replicas, 1 leader, 0 none."""

    def __init__(
        self,
        cluster: Cluster,
        topic: str,
        acks: int,
        on_answer: Callable[[float], None] | None = None,
        *,
        sequences: Sequences | None = None,
    ) -> None:
        """`on_answer` gets each request's duration in seconds. `sequences`: given if batches can be retried."""
        self.topic = topic
        self.acknowledged = 0
        """Records; with acks 0 those that were sent."""

        self.sequences, self._cluster = sequences, cluster
        self._waits_again: set[int] = set()
        """Partitions of which a batch is to be sent again, while later ones of them are under way."""
        self._begun: set[int] = set()
        """Partitions that have an acknowledged batch."""
        self._acks, self._on_answer = acks, on_answer
        self._under_way: deque[_Sent] = deque()
        self._leaders: dict[int, int] = {}
        self._connections: dict[int, BrokerConnection] = {}
        self.partitions = self._learned()
        """All partitions of the topic, in their order."""

    def write(self, batches: dict[int, tuple[bytes, int]]) -> None:
        """Send one batch to each partition in `batches`, given as (batch, number of records). Raises RequestFailed."""
        left = dict(batches)
        while left:
            leader = self._leaders.get(next(iter(left)), -1)
            some = {each: batch for each, batch in left.items() if self._leaders.get(each, -1) == leader}
            if leader < 0:
                self.settle()
                for partition, batch in some.items():
                    self._write_anew(partition, batch)
            elif len(self._under_way) >= IN_FLIGHT_MAX or self._begins(some):
                self.settle_oldest()
                continue  # the leaders may be others now
            else:
                self._write_to(leader, some)
            for partition in some:
                del left[partition]

    def _begins(self, batches: Mapping[int, object]) -> bool:
        """Return True if a first batch of one of these partitions is in flight; the caller must then wait.

        A leader accepts any sequence of an unknown producer id. Suppose that a broker refuses the first batch, because
        it is not leader yet, and then accepts the second one: it would never accept the first one again.
        """
        return self.sequences is not None and any(
            partition in sent.batches for partition in batches.keys() - self._begun for sent in self._under_way
        )

    def _write_to(self, leader: int, batches: dict[int, tuple[bytes, int]]) -> None:
        try:
            self._send(leader, batches)
        except ConnectionLost as error:
            if self.sequences is None:
                raise self._lost(error, _records(batches) if self._connections.get(leader) else 0) from None
            self._hang_up(leader)
            self._write_again(batches)

    def settle(self) -> None:
        """Wait until all batches are acknowledged. Raises RequestFailed if a batch is refused."""
        while self._under_way:
            self.settle_oldest()

    def close(self) -> None:
        """Close all connections."""
        for each in self._connections.values():
            each.close()

    # --- parts

    def _learned(self) -> list[int]:
        [topic] = self._cluster.topics([self.topic], creates=True)
        self._leaders = {each.partition_index: each.leader_id for each in topic.partitions}
        return list(self._leaders)

    def _send(self, leader: int, batches: dict[int, tuple[bytes, int]]) -> None:
        parts = [PartitionProduceData(index=each, records=memoryview(batch)) for each, (batch, _) in batches.items()]
        topic = TopicProduceData(name=self.topic, partition_data=parts)
        request = ProduceRequest(acks=self._acks, timeout_ms=int(ANSWER_TIMEOUT_S * 1000), topic_data=[topic])
        connection = self._connections.get(leader)
        if connection is None:
            connection = self._connections[leader] = self._cluster.connected(leader)
        connection.send(request, at_most=_NAMES_MAX_VERSION, has_answer=self._acks != 0)
        if self._acks:
            self._under_way.append(_Sent(leader, connection, batches, time.monotonic()))
        else:
            self.acknowledged += _records(batches)

    def _hang_up(self, leader: int) -> None:
        """Close the connection to a leader. Requests in flight on this connection count as lost."""
        connection = self._connections.pop(leader, None)
        if connection is not None:
            connection.close()

    def settle_oldest(self) -> None:
        """Wait for the response to the oldest request, and retry refused batches."""
        refused = self._answered()
        if refused:
            # The others were sent after it. Their answers come first, and what they refuse is sent after it again.
            self._write_again({}, refused)

    def _write_again(
        self, last: dict[int, tuple[bytes, int]], first: dict[int, tuple[bytes, int]] | None = None
    ) -> None:
        """Write batches one by one: `first`, then those in flight that turn out to be refused or lost, then `last`."""
        again = [first or {}]
        while self._under_way:
            again.append(self._answered())
        for each in (*again, last):
            for partition, batch in each.items():
                self._write_anew(partition, batch)

    def _answered(self) -> dict[int, tuple[bytes, int]]:
        """Receive the response to the oldest request; return the batches to be retried."""
        sent = self._under_way[0]
        try:
            answer = sent.connection.receive()
        except ConnectionLost as error:
            if self.sequences is None:
                raise self._lost(error) from None
            self._under_way.popleft()
            if self._connections.get(sent.leader) is sent.connection:
                self._hang_up(sent.leader)
            self._waits_again.update(sent.batches)
            return sent.batches
        self._under_way.popleft()
        if self._on_answer is not None:
            self._on_answer(time.monotonic() - sent.since_s)
        answers = {each.index: each for topic in answer.responses for each in topic.partition_responses}
        again = {}
        for partition, batch in sent.batches.items():
            if partition not in answers:
                reason = ConnectionLost(
                    f"{sent.connection.address} does not say what became of records for {self.topic}-{partition}"
                )
                raise self._lost(reason, batch[1])
            if self._has_to_be_sent_again(partition, answers[partition].error_code, answers[partition].error_message):
                again[partition] = batch
                self._waits_again.add(partition)
            else:
                self.acknowledged += batch[1]
                self._begun.add(partition)
        return again

    def _has_to_be_sent_again(self, partition: int, code: int, message: str | None) -> bool:
        if not code:
            return False
        if self.sequences is not None:
            if code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
                return False  # it was written the time before
            if code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and partition in self._waits_again:
                return True  # the one before it is missing
        # It may be there already, and nobody would know it when it comes again.
        is_lost = self.sequences is None and code in MAY_BE_WRITTEN
        if is_lost or not ErrorCode.of(code).retriable:
            hint = "; max.message.bytes of the topic is the limit" if code == ErrorCode.MESSAGE_TOO_LARGE else ""
            what = f"records for {self.topic}-{partition} are refused"
            raise RequestFailed(f"{failed(what, code, message)}{hint}; {self._delivery_state()}")
        return True

    def _write_anew(self, partition: int, batch: tuple[bytes, int]) -> None:
        """Send one batch until a leader accepts it. No other request may be in flight."""

        def write() -> None:
            try:
                self._write_once(partition, batch)
            except ConnectionLost as error:
                if self.sequences is None:
                    raise self._lost(error, batch[1]) from None
                self._hang_up(self._leaders.get(partition, -1))
                raise TemporaryFailure(f"{error}; {self._delivery_state(batch[1])}") from None

        self._cluster.patiently(write, ANSWER_TIMEOUT_S if self.sequences is None else DELIVERY_S)

    def _write_once(self, partition: int, batch: tuple[bytes, int]) -> None:
        self._learned()
        leader = self._leaders.get(partition, -1)
        if leader < 0:
            raise TemporaryFailure(f"partition {self.topic}-{partition} has no leader")
        # It goes alone, and whatever is before it is written: a leader that misses something there will always miss it.
        self._waits_again.discard(partition)
        self._send(leader, {partition: batch})
        if self._acks and self._answered():
            # Of a known producer the answer may be what was lost.
            unknown = 0 if self.sequences is None else batch[1]
            raise TemporaryFailure(
                f"{self.topic}-{partition} has no leader that takes records; {self._delivery_state(unknown)}"
            )

    def _delivery_state(self, more: int = 0) -> str:
        unknown = more + sum(_records(sent.batches) for sent in self._under_way)
        known = f"{self.acknowledged:,} records are acknowledged"
        return f"{known}, and {unknown:,} may or may not be written" if unknown else known

    def _lost(self, error: ConnectionLost, more: int = 0) -> RequestFailed:
        return RequestFailed(f"{error}; {self._delivery_state(more)}")


def _records(batches: Mapping[int, tuple[bytes, int]]) -> int:
    return sum(count for _, count in batches.values())


class Spread:
    """Round-robin choice of partitions for batches without keys."""

    def __init__(self, partitions: Sequence[int], first: int) -> None:
        self._partitions = partitions
        self._next = first

    def next(self) -> int:
        """Return the partition for the next batch."""
        self._next = (self._next + 1) % len(self._partitions)
        return self._partitions[self._next]
