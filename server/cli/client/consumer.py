"""Consumer of partitions: reads them from their leaders, batch by batch.

Each leader has a connection and one Fetch request in flight. The next one is sent as soon as an answer has come, before its records are
looked at, so that broker and command work at the same time. When a leader moves or a broker leaves, leaders are looked up again; the
command ends if that does not help within ANSWER_TIMEOUT_S.

With READ_COMMITTED records of aborted transactions are left out, as by Kafka's clients: the broker says which producers aborted one,
and from which offset on (KIP-98).
"""

from __future__ import annotations

import select
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.server.cli.client.cluster import (
    EARLIEST,
    LATEST,
    READ_COMMITTED,
    Cluster,
    Partition,
    Patience,
    TemporaryFailure,
    failed,
    leader_of_each,
    offsets_at,
)
from ottla.server.cli.client.connection import ANSWER_TIMEOUT_S, BrokerConnection
from ottla.server.cli.client.output import ConnectionLost, RequestFailed, say
from ottla.wire.control_batches import ControlType, control_type_id
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.record_decoding import decode_records
from ottla.wire.records import BatchHeader, crc_is_valid, iter_batches

if TYPE_CHECKING:
    from ottla.wire.messages.fetch import PartitionData

MAX_WAIT_MS = 500
ANSWER_BYTES = 16 << 20
PARTITION_BYTES = 4 << 20
OFFSET_MAX = (1 << 63) - 1
_NAMES_MAX_VERSION = 12  # of Fetch: later ones name topics by their ids


class Batch(NamedTuple):
    """Batch in a response buffer: `buffer[start:end]`, valid until the next batch is requested."""

    place: Partition
    broker: int
    header: BatchHeader
    buffer: Any
    start: int
    end: int
    first_offset: int
    """Records before it were not asked for: a broker answers with whole batches."""


class AtEnd(NamedTuple):
    """Event: the consumer has reached the end of a partition."""

    place: Partition
    offset: int
    open_until: int | None
    """End offset of the partition if records of an open transaction follow, which READ_COMMITTED leaves out; else None."""


class Consumer:
    """Reader of partitions, over one connection for each leader. It ends when all partitions are closed."""

    def __init__(
        self, cluster: Cluster, begins: Mapping[Partition, int], isolation: int, *, restarts: bool = False
    ) -> None:
        """`restarts`: go on with the first record, not at the end, where a partition ends before the wanted offset."""
        self.positions = dict(begins)
        """The next offset of each partition that is still read."""

        self._cluster, self._isolation, self._restarts = cluster, isolation, restarts
        self._leaders: dict[Partition, int] = {}
        self._connections: dict[int, BrokerConnection] = {}
        self._under_way: set[int] = set()
        self._patience = Patience()
        self._told_end: dict[Partition, int] = {}

    def close(self, place: Partition) -> None:
        """Stop reading a partition."""
        self.positions.pop(place, None)

    def close_all(self) -> None:
        """Close all connections."""
        for each in self._connections.values():
            each.close()

    def __iter__(self) -> Iterator[Batch | AtEnd]:
        """Yield the batches of each partition in order, and AtEnd whenever the end of a partition is reached."""
        while self.positions:
            yield from self.round()

    def round(self) -> Iterator[Batch | AtEnd]:
        """Send requests to leaders that have none in flight; yield the responses of one or more leaders."""
        try:
            self._ask_all()
        except (TemporaryFailure, ConnectionLost) as error:
            self._wait_for_better(error)
            return
        for leader in responding({leader: self._connections[leader] for leader in self._under_way}):
            yield from self._taken(leader)

    def assign(self, positions: Mapping[Partition, int]) -> None:
        """Read only the partitions in `positions` from now on, from these offsets. Drop outstanding responses."""
        for leader in list(self._under_way):
            self._drop(leader)
        self.positions = dict(positions)
        self._told_end.clear()

    # --- asking

    def _ask_all(self) -> None:
        """Send a fetch request to each leader that has no request in flight."""
        if any(place not in self._leaders for place in self.positions):
            self._leaders = leader_of_each(self._cluster, list(self.positions))
        for leader in {self._leaders[place] for place in self.positions} - self._under_way:
            self._ask(leader)

    def _ask(self, leader: int) -> None:
        if leader not in self._connections:
            self._connections[leader] = self._cluster.connected(leader)
        topics: dict[str, list[FetchPartition]] = {}
        is_caught_up = True
        for (topic, number), offset in self.positions.items():
            if self._leaders.get((topic, number)) == leader:
                asked = FetchPartition(partition=number, fetch_offset=offset, partition_max_bytes=PARTITION_BYTES)
                topics.setdefault(topic, []).append(asked)
                is_caught_up = is_caught_up and self._told_end.get((topic, number)) == offset
        if topics:
            request = FetchRequest(
                # Whoever wants to know where the end is need not wait there.
                max_wait_ms=MAX_WAIT_MS if is_caught_up else 0,
                min_bytes=1,
                max_bytes=ANSWER_BYTES,
                isolation_level=self._isolation,
                topics=[FetchTopic(topic=topic, partitions=asked) for topic, asked in topics.items()],
            )
            try:
                self._connections[leader].send(request, at_most=_NAMES_MAX_VERSION)
            except ConnectionLost:
                self._drop(leader)
                raise
            self._under_way.add(leader)

    def _drop(self, leader: int) -> None:
        self._under_way.discard(leader)
        self._connections.pop(leader).close()

    def _wait_for_better(self, error: Exception) -> None:
        """Pause before leaders are looked up again. Raises RequestFailed after ANSWER_TIMEOUT_S seconds of errors."""
        self._leaders.clear()
        self._patience.bear(error)

    # --- answers

    def _taken(self, leader: int) -> Iterator[Batch | AtEnd]:
        try:
            answer = self._connections[leader].receive()
        except ConnectionLost as error:
            self._drop(leader)
            self._wait_for_better(error)
            return
        self._under_way.discard(leader)
        found: list[Batch | AtEnd] = []
        trouble: TemporaryFailure | None = None
        for topic in answer.responses:
            for part in topic.partitions:
                try:
                    found += self._batches((topic.topic, part.partition_index), leader, part)
                except TemporaryFailure as error:
                    trouble = error
        # Before the records are looked at, so that the broker works meanwhile.
        if trouble is None:
            self._patience.renew()
            self._ask_unless_lost(leader)
        yield from found
        if trouble is not None:
            self._wait_for_better(trouble)

    def _ask_unless_lost(self, leader: int) -> None:
        try:
            self._ask(leader)
        except (ConnectionLost, TemporaryFailure):
            # The same comes out when it is tried again, after what has been read is printed.
            self._leaders.clear()

    def _batches(self, place: Partition, leader: int, part: PartitionData) -> Iterator[Batch | AtEnd]:
        if place not in self.positions:
            return
        if part.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._begin_anew(place)
            return
        self._cluster.check(f"partition {place[0]}-{place[1]}", part.error_code)
        yield from self._batches_of(place, leader, part)
        # Brokers before 0.11 know no transactions.
        is_stable = self._isolation == READ_COMMITTED and part.last_stable_offset >= 0
        end = part.last_stable_offset if is_stable else part.high_watermark
        position = self.positions[place]
        if position >= end and self._told_end.get(place) != position:
            self._told_end[place] = position
            yield AtEnd(place, position, part.high_watermark if end < part.high_watermark else None)

    def _batches_of(self, place: Partition, leader: int, part: PartitionData) -> Iterator[Batch]:
        if not part.records:
            return
        wanted = self.positions[place]
        is_wanted = _committed(part) if self._isolation == READ_COMMITTED else lambda header, *_: not header.is_control
        try:
            for header, start, end in iter_batches(part.records):  # type: ignore[arg-type]
                if header.next_offset <= wanted:
                    continue
                if header.next_offset > OFFSET_MAX or not crc_is_valid(part.records, start, end):  # type: ignore[arg-type]
                    raise corrupt(
                        place, KafkaError(ErrorCode.CORRUPT_MESSAGE, f"the batch at offset {header.base_offset}")
                    )
                self.positions[place] = header.next_offset
                if is_wanted(header, part.records, start):
                    yield Batch(place, leader, header, part.records, start, end, wanted)
        except KafkaError as error:
            raise corrupt(place, error) from None

    def _begin_anew(self, place: Partition) -> None:
        """Continue at the nearest existing offset. Raises TemporaryFailure if the refused offset does exist."""
        partition = {place[0]: [place[1]]}
        earliest = offsets_at(self._cluster, partition, EARLIEST)[place]
        latest = offsets_at(self._cluster, partition, LATEST, isolation=self._isolation)[place]
        wanted = self.positions[place]
        if earliest <= wanted <= latest:
            raise TemporaryFailure(
                f"offset {wanted} of {place[0]}-{place[1]} is refused, although {earliest} to {latest} are there"
            )
        self.positions[place] = earliest if wanted < earliest or self._restarts else latest
        say(
            f"offset {wanted} of {place[0]}-{place[1]} is not there ({earliest} to {latest} are);"
            f" going on at {self.positions[place]}"
        )


def responding(asked: Mapping[int, BrokerConnection]) -> list[int]:
    """Wait until any of the `asked` leaders responds; return all that do. Raises RequestFailed after ANSWER_TIMEOUT_S.

    A single leader is returned without waiting, because the read of its response has a timeout.
    """
    if len(asked) < 2:
        return list(asked)
    sockets = {connection.socket: leader for leader, connection in asked.items()}
    ready = select.select(list(sockets), [], [], ANSWER_TIMEOUT_S)[0]
    if not ready:
        raise RequestFailed(f"none of brokers {', '.join(map(str, sorted(asked)))} answers")
    return [sockets[each] for each in ready]


IsWanted = Callable[[BatchHeader, Any, int], bool]


def _committed(part: PartitionData) -> IsWanted:
    """Return a filter that selects committed batches. Call it for all batches of the response, in order."""
    to_come = sorted(part.aborted_transactions or (), key=lambda each: -each.first_offset)
    aborted: set[int] = set()

    def is_wanted(header: BatchHeader, buffer: Any, start: int) -> bool:
        while to_come and to_come[-1].first_offset <= header.last_offset:
            aborted.add(to_come.pop().producer_id)
        if header.is_control:
            if any(
                control_type_id(each.key) == ControlType.ABORT for each in decode_records(buffer, start, header=header)
            ):
                aborted.discard(header.producer_id)
            return False
        return not (header.is_transactional and header.producer_id in aborted)

    return is_wanted


def corrupt(place: Partition, error: KafkaError) -> RequestFailed:
    """Make the exception for a batch whose records cannot be decoded."""
    return failed(f"records of {place[0]}-{place[1]}", error.code, error.message)
