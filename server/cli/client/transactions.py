"""Requests of `ottla transactions`: transactional ids, transactions that are open in partitions, and their end."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from ottla.server.cli.client.cluster import Cluster, Partition, by_topic, check_answered, failed, leaders_of, only
from ottla.server.cli.client.output import RequestFailed
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.describe_transactions import (
    DescribeProducersRequest,
    DescribeTransactionsRequest,
    ListTransactionsRequest,
    TopicRequest,
)
from ottla.wire.messages.producer_ids import InitProducerIdRequest
from ottla.wire.messages.transactions import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest

if TYPE_CHECKING:
    from ottla.wire.messages.describe_transactions import PartitionResponse, TransactionState

OPEN_STATES = ("Ongoing", "PrepareCommit", "PrepareAbort")
STATES = ("Empty", *OPEN_STATES, "CompleteCommit", "CompleteAbort", "Dead", "PrepareEpochFence")
PARTITIONS_AT_ONCE = 1000


class Transaction(NamedTuple):
    """Transactional id in the list of its coordinator (a broker id)."""

    transactional_id: str
    state: str
    producer_id: int
    coordinator: int


class Open(NamedTuple):
    """Transaction that is open in a partition, as the partition's leader has it. `last_ms`: time of its last record."""

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    start_offset: int
    last_ms: int


def list_transactions(
    cluster: Cluster,
    *,
    states: Sequence[str] = (),
    producer_ids: Sequence[int] = (),
    longer_than_ms: int = -1,
    pattern: str | None = None,
) -> list[Transaction]:
    """List the transactional ids of all brokers that pass all filters, sorted. Raises RequestFailed."""
    request = ListTransactionsRequest(
        state_filters=list(states),
        producer_id_filters=list(producer_ids),
        duration_filter=longer_than_ms,
        transactional_id_pattern=pattern,
    )
    needed = 2 if pattern is not None else 1 if longer_than_ms >= 0 else 0

    def ask(node_id: int) -> list[Transaction]:
        broker = cluster.broker(node_id)
        if broker.version_of(ListTransactionsRequest) < needed:
            raise RequestFailed(f"broker {node_id} cannot filter transactions by {'pattern' if needed > 1 else 'age'}")
        answer = broker.ask(request)
        cluster.check(f"the transactions of broker {node_id}", answer.error_code)
        if answer.unknown_state_filters:
            raise RequestFailed(f"there is no state {answer.unknown_state_filters[0]}; there are {', '.join(STATES)}")
        return [
            Transaction(each.transactional_id, each.transaction_state, each.producer_id, node_id)
            for each in answer.transaction_states
            # What is not open has no age, and passes the broker's filter.
            if longer_than_ms < 0 or each.transaction_state in OPEN_STATES
        ]

    cluster.metadata(())
    return sorted(each for node_id in cluster.brokers() for each in cluster.patiently(partial(ask, node_id)))


def describe(cluster: Cluster, transactional_id: str) -> TransactionState:
    """Request the state of a transactional id. Raises RequestFailed."""
    found = _state_of(cluster, transactional_id)
    if found is None:
        raise RequestFailed(
            f"transactional id {transactional_id} does not exist: `ottla transactions` lists those that do"
        )
    return found


def _state_of(cluster: Cluster, transactional_id: str) -> TransactionState | None:
    """Request the state of a transactional id; None if it does not exist. Raises RequestFailed."""
    request = DescribeTransactionsRequest(transactional_ids=[transactional_id])

    def ask() -> TransactionState | None:
        answer = cluster.coordinator(transactional_id, of_transaction=True).ask(request)
        found: TransactionState = only(answer.transaction_states, f"transactional id {transactional_id}")
        if found.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            return None
        cluster.check(f"transactional id {transactional_id}", found.error_code)
        return found

    return cluster.patiently(ask)


def open_in(cluster: Cluster, places: Sequence[Partition]) -> list[Open]:
    """Return the transactions that are open in partitions, sorted. Raises RequestFailed."""
    found: dict[Partition, list[Open]] = {}

    def ask() -> None:
        left = [each for each in places if each not in found]
        for leader, topics in leaders_of(cluster, by_topic(left)).items() if left else ():
            for part in _parts(topics):
                answer = cluster.broker(leader).ask(DescribeProducersRequest(topics=part))
                for topic in answer.topics:
                    for each in topic.partitions:
                        cluster.check(
                            f"the producers of {topic.name}-{each.partition_index}", each.error_code, each.error_message
                        )
                        found[topic.name, each.partition_index] = list(_open(topic.name, each))

    cluster.patiently(ask)
    check_answered("producers", places, found)
    return sorted(each for of_place in found.values() for each in of_place)


def _parts(topics: dict[str, list[int]]) -> Iterator[list[TopicRequest]]:
    places = ((topic, number) for topic, numbers in topics.items() for number in numbers)
    while part := list(islice(places, PARTITIONS_AT_ONCE)):
        yield [TopicRequest(name=topic, partition_indexes=numbers) for topic, numbers in by_topic(part).items()]


def _open(topic: str, found: PartitionResponse) -> Iterable[Open]:
    for each in found.active_producers:
        if each.current_txn_start_offset >= 0:
            yield Open(
                topic,
                found.partition_index,
                each.producer_id,
                each.producer_epoch,
                each.coordinator_epoch,
                each.current_txn_start_offset,
                each.last_timestamp,
            )


def hanging(cluster: Cluster, places: Sequence[Partition], older_than_ms: int) -> list[Open]:
    """Return the open transactions that no coordinator will end: those without a record for `older_than_ms` that none knows.

    The rule is that of kafka-transactions.sh find-hanging.
    """
    now_ms = int(time.time() * 1000)
    old = [each for each in open_in(cluster, places) if now_ms - each.last_ms > older_than_ms]
    if not old:
        return []
    listed = list_transactions(cluster, producer_ids=sorted({each.producer_id for each in old}))
    known = {each.producer_id: _partitions_of(cluster, each.transactional_id) for each in listed}
    return [each for each in old if (each.topic, each.partition) not in known.get(each.producer_id, ())]


def _partitions_of(cluster: Cluster, transactional_id: str) -> set[Partition]:
    """Return the partitions of a transaction; none if the id has been forgotten meanwhile."""
    state = _state_of(cluster, transactional_id)
    return set() if state is None else {(topic.topic, number) for topic in state.topics for number in topic.partitions}


def fence(cluster: Cluster, transactional_id: str, timeout_ms: int) -> None:
    """Abort the open transaction of a transactional id, by the request of a new producer that fences the present one."""
    request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=timeout_ms)

    def ask() -> None:
        answer = cluster.coordinator(transactional_id, of_transaction=True).ask(request)
        cluster.check(f"transactional id {transactional_id}", answer.error_code)

    cluster.patiently(ask)


def abort_in_partition(cluster: Cluster, found: Open) -> None:
    """Write the marker that aborts an open transaction in its partition. Raises RequestFailed."""
    place = (found.topic, found.partition)
    marker = WritableTxnMarker(
        producer_id=found.producer_id,
        producer_epoch=found.producer_epoch,
        transaction_result=False,
        topics=[WritableTxnMarkerTopic(name=found.topic, partition_indexes=[found.partition])],
        # The partition has not seen a marker of this producer: the first coordinator is as good as any.
        coordinator_epoch=max(0, found.coordinator_epoch),
    )

    def ask() -> None:
        [leader] = leaders_of(cluster, by_topic([place]))
        answer = cluster.broker(leader).ask(WriteTxnMarkersRequest(markers=[marker]))
        what = f"the transaction in {found.topic}-{found.partition}"
        result = only(only(only(answer.markers, what).topics, what).partitions, what)
        if result.error_code == ErrorCode.INVALID_PRODUCER_EPOCH:
            raise failed(what, result.error_code, "its producer goes on meanwhile, so that it does not hang")
        cluster.check(what, result.error_code)

    cluster.patiently(ask)
