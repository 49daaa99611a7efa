"""Transactional ids that this broker coordinates, and the producers that its partitions remember.

A transaction *hangs* if it is open in a partition and no coordinator will end it, so that readers with read_committed never
get past it. The rule is that of kafka-transactions.sh find-hanging: it has been open for longer than any
transaction may take (transaction.max.timeout.ms), and no coordinator knows it. A broker that coordinates all transactional
ids is sure of that. Another one can only say that the transaction is open for too long.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ottla.server.admin.console import requests
from ottla.server.admin.console.requests import (
    Wanted,
    ask,
    body_number,
    body_text,
    change,
    check_error,
    done,
    first_page,
)
from ottla.server.admin.http.routes import PacedTimeSlice, Refused
from ottla.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)
from ottla.wire.messages.transactions import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest

if TYPE_CHECKING:
    from ottla.replication.log.producers import ProducerEntry
    from ottla.server.admin.console.requests import Option
    from ottla.server.admin.http.routes import Pace, Request
    from ottla.server.broker import Broker

IDS_PER_PAGE, PRODUCERS_SHOWN_MAX, PARTITIONS_SHOWN_MAX = 50, 200, 100
OPEN_STATES = ("Ongoing", "PrepareCommit", "PrepareAbort")
MARKERS_VERSION = 1  # as Kafka's tool
LIST_VERSION, DESCRIBE_VERSION = ListTransactionsRequest.versions.last, DescribeTransactionsRequest.versions.last


class TransactionsView:
    """Handlers of the console's requests for transactions and producers."""

    def __init__(self, broker: Broker, pace: Pace) -> None:
        self._broker, self._pace = broker, pace

    async def transactions(self, request: Request) -> dict[str, Any]:
        """Return a page of transactions sorted by transactional id. Parameters: as in `ClusterView.topics`."""
        wanted, time_slice = Wanted.by(request), PacedTimeSlice(self._pace)
        listed = await self._listed()
        page, following = await first_page(
            listed.transaction_states, lambda each: each.transactional_id, wanted, IDS_PER_PAGE, time_slice
        )
        shown_states = []
        for each in page:
            # One by one: a transaction may be in very many partitions.
            query = DescribeTransactionsRequest(transactional_ids=[each.transactional_id])
            described = await ask(self._broker, query, DESCRIBE_VERSION)
            # It may have been forgotten meanwhile.
            shown_states += [self._as_json(state) for state in described.transaction_states if not state.error_code]
            await time_slice.yield_if_over()
        return {"transactions": shown_states, "next": following}

    async def _listed(self, producer_ids: Sequence[int] = ()) -> ListTransactionsResponse:
        """List the transactions of `producer_ids`; if empty, of all. Raises Refused while the coordinator still loads."""
        request = ListTransactionsRequest(state_filters=[], producer_id_filters=list(producer_ids))
        listed: ListTransactionsResponse = await ask(self._broker, request, LIST_VERSION)
        check_error(listed.error_code)
        return listed

    def _as_json(self, state: TransactionState) -> dict[str, Any]:
        is_open = state.transaction_state in OPEN_STATES
        age_ms = self._broker.now_ms() - state.transaction_start_time_ms
        return {
            "id": state.transactional_id,
            "state": state.transaction_state,
            "producerId": str(state.producer_id),
            "producerEpoch": state.producer_epoch,
            "timeoutMs": state.transaction_timeout_ms,
            "since": state.transaction_start_time_ms if is_open else None,
            "ageMs": age_ms if is_open else None,
            "isOpen": is_open,
            # Its coordinator should have ended it.
            "isLate": is_open and age_ms > state.transaction_timeout_ms,
            "partitions": _shown((topic.topic, topic.partitions) for topic in state.topics),
            "partitionCount": sum([len(topic.partitions) for topic in state.topics]),
        }

    # ------------------------------------------------------------------ producers of a partition

    async def producers(self, request: Request) -> dict[str, Any]:
        """Return a partition's producers on this broker: longest open transactions first, then the latest writers."""
        topic, index = requests.text(request, "topic"), requests.number(request, "partition", None)
        entries = list(self._broker.partition(topic, index).log.producers.values())
        time_slice = PacedTimeSlice(self._pace)
        shown = await _first_producers(entries, time_slice)
        late = [each for each in shown if self._is_open_too_long(each)]
        known = await self._known_transactions(topic, index, late, time_slice)
        return {
            "topic": topic,
            "partition": index,
            "count": len(entries),
            "isSure": self._coordinates_all,
            "producers": [self._producer(each, known) for each in shown],
        }

    async def abort(self, request: Request) -> dict[str, Any]:
        """Abort a transaction of `producerId` that is open in a partition for longer than any may take.

        Writes the marker that a coordinator would write; this broker must lead the partition.
        """
        body = requests.posted(request)
        topic, index = body_text(body, "topic"), body_number(body, "partition", None)
        producer_id = body_text(body, "producerId")
        producers = self._broker.partition(topic, index).log.producers
        entry = next((each for each in producers.values() if str(each.producer_id) == producer_id), None)
        if entry is None or not await self._may_be_aborted(topic, index, entry):
            raise Refused(409, "No transaction of this producer hangs in this partition.")
        marker = WritableTxnMarker(
            producer_id=entry.producer_id,
            producer_epoch=entry.epoch,
            transaction_result=False,
            topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=[index])],
            coordinator_epoch=max(entry.coordinator_epoch, 0),
        )
        answer = await change(self._broker, WriteTxnMarkersRequest(markers=[marker]), MARKERS_VERSION)
        for each in answer.markers[0].topics[0].partitions:
            check_error(each.error_code)
        sentence = f"The transaction of producer {producer_id} in {topic} {index} is aborted."
        options: list[Option] = ["--hanging", ("--partition", f"{topic}:{index}")]
        return done(self._broker, sentence, "transactions abort", (), options)

    async def _may_be_aborted(self, topic: str, index: int, entry: ProducerEntry) -> bool:
        """Tell whether a transaction hangs; if other brokers may coordinate it, whether it is open for too long."""
        if not self._is_open_too_long(entry):
            return False
        if not self._coordinates_all:
            return True
        known = await self._known_transactions(topic, index, [entry], PacedTimeSlice(self._pace))
        return bool(self._producer(entry, known)["isHanging"])

    def _is_open_too_long(self, entry: ProducerEntry) -> bool:
        longest_ms = self._broker.configs.started_with.transactions.transaction_max_timeout_ms
        return _is_open(entry) and self._broker.now_ms() - entry.last_timestamp > longest_ms

    @property
    def _coordinates_all(self) -> bool:
        """Tell whether this broker alone coordinates all transactional ids."""
        return len(self._broker.cluster.brokers) == 1

    async def _known_transactions(
        self, topic: str, index: int, entries: Iterable[ProducerEntry], time_slice: PacedTimeSlice
    ) -> set[tuple[int, int]]:
        """Return (producer id, epoch) of each producer in `entries` with an open transaction in this partition.

        Only transactions that this broker coordinates are found.
        """
        producer_ids = [each.producer_id for each in entries]
        if not producer_ids:
            return set()
        known = set()
        for each in (await self._listed(producer_ids)).transaction_states:
            query = DescribeTransactionsRequest(transactional_ids=[each.transactional_id])
            for state in (await ask(self._broker, query, DESCRIBE_VERSION)).transaction_states:
                named = {part.topic: part.partitions for part in state.topics}
                if state.transaction_state in OPEN_STATES and index in named.get(topic, ()):
                    known.add((state.producer_id, state.producer_epoch))
            await time_slice.yield_if_over()
        return known

    def _producer(self, entry: ProducerEntry, known: set[tuple[int, int]]) -> dict[str, Any]:
        is_late = self._is_open_too_long(entry)
        return {
            "producerId": str(entry.producer_id),
            "producerEpoch": entry.epoch,
            "lastSequence": entry.last_sequence,
            "lastTimestamp": entry.last_timestamp,
            "openSinceOffset": entry.current_txn_first_offset if _is_open(entry) else None,
            "ageMs": self._broker.now_ms() - entry.last_timestamp if _is_open(entry) else None,
            "isOpenTooLong": is_late,
            # An end of the transaction may have raised the epoch at its coordinator already (KIP-890).
            "isHanging": is_late
            and self._coordinates_all
            and known.isdisjoint((entry.producer_id, epoch) for epoch in (entry.epoch, entry.epoch + 1)),
        }


def _is_open(entry: ProducerEntry) -> bool:
    return entry.current_txn_first_offset >= 0


async def _first_producers(entries: list[ProducerEntry], time_slice: PacedTimeSlice) -> list[ProducerEntry]:
    first: list[ProducerEntry] = []
    for each in entries:
        first.append(each)
        # There may be a hundred thousand, which are not sorted in one step.
        if len(first) > 2 * PRODUCERS_SHOWN_MAX:
            first = _sorted(first)
        await time_slice.yield_if_over()
    return _sorted(first)


def _sorted(entries: list[ProducerEntry]) -> list[ProducerEntry]:
    return sorted(entries, key=_order)[:PRODUCERS_SHOWN_MAX]


def _order(entry: ProducerEntry) -> tuple[bool, int, int]:
    if _is_open(entry):
        return False, entry.last_timestamp, entry.producer_id
    return True, -entry.last_timestamp, entry.producer_id


def _shown(topics: Iterable[tuple[str, Sequence[int]]]) -> list[list[Any]]:
    shown: list[list[Any]] = []
    left = PARTITIONS_SHOWN_MAX
    for topic, partitions in topics:
        if left <= 0:
            break
        shown.append([topic, sorted(partitions[:left])])
        left -= len(partitions)
    return shown
