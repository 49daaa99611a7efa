"""Requests about transactions as they come off the wire: versions, forms of answers, loading, and what is owed to others."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from typing import Any

import pytest
import trio
import trio.testing

from ottla.groupcoord.config import TransactionConfig
from ottla.groupcoord.runtime.answers import finished
from ottla.groupcoord.tests.fakes import PARTITION_COUNT, FakeLog
from ottla.groupcoord.transactions import listing
from ottla.groupcoord.transactions.metadata import Partitions
from ottla.groupcoord.transactions.producer_ids import ProducerIdManager
from ottla.groupcoord.transactions.service import DESCRIBED_AS_NAMED, ELEMENTS_PER_SLICE, TransactionCoordinator
from ottla.groupcoord.transactions.shard import MarkersOwed
from ottla.wire import time_slice
from ottla.wire.answers import PendingAnswer
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages.describe_transactions import DescribeTransactionsRequest, ListTransactionsRequest
from ottla.wire.messages.producer_ids import InitProducerIdRequest
from ottla.wire.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
    EndTxnRequest,
)
from ottla.wire.tests.turns import counted_turns

NOW_MS = 1_700_000_000_000
ID = "tx"
OFFSETS = "__consumer_offsets"


class Places:
    """Topics with so many partitions."""

    def __init__(self, **counts: int) -> None:
        self.counts = counts

    def partition(self, topic: str, index: int) -> object | None:
        return True if 0 <= index < self.counts.get(topic, 0) else None


class Sent:
    """Notes the markers that are to be sent."""

    def __init__(self) -> None:
        self.owed: list[tuple[int, MarkersOwed]] = []
        self.forgotten: list[int] = []

    def send(self, partition: int, owed: Sequence[MarkersOwed]) -> None:
        self.owed += [(partition, each) for each in owed]

    def forget(self, partition: int) -> None:
        self.forgotten.append(partition)


class Coordination:
    """A coordinator of all partitions, its log, and producers who ask it."""

    def __init__(self, **config: Any) -> None:
        self.log = FakeLog()
        self.topics = Places(topic=3, other=1)
        self.markers = Sent()
        self.config = TransactionConfig(**config)
        self.refusal: ErrorCode | None = None
        self.blocks = 0
        self.timestamp_ms = NOW_MS
        self.service = self.new_coordinator()

    def new_coordinator(self) -> TransactionCoordinator:
        return TransactionCoordinator(
            self.config,
            self.log,
            self.topics,
            ProducerIdManager(self._allocate_block, trio.Lock()),
            self.markers,
            transaction_version=lambda: 2,
            offsets_partition=lambda group_id: (OFFSETS, len(group_id)),
            tell=lambda name, log, text, *arguments: log(text, *arguments),
            wall_clock=lambda: self.timestamp_ms,
        )

    async def _allocate_block(self) -> range:
        await trio.lowlevel.checkpoint()
        if self.refusal:
            raise KafkaError(self.refusal)
        self.blocks += 1
        return range(self.blocks * 1000, self.blocks * 1000 + 3)

    async def start(self, nursery: trio.Nursery) -> None:
        self.service.start_in(nursery)
        for partition in range(PARTITION_COUNT):
            self.service.on_election(partition)
        await trio.testing.wait_all_tasks_blocked()

    # ------------------------------------------------------------------ requests

    async def init(self, name: str | None = ID, *, version: int = 5, timeout_ms: int = 60_000, **known: int) -> Any:
        request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=timeout_ms, **known)
        return await finished(self.service.init_producer_id(request, api_version=version))

    async def add(
        self, producer: Any, places: dict[str, list[int]], *, name: str = ID, version: int = 3, verify: bool = False
    ) -> dict[tuple[str, int], int]:
        """The errors by partition."""
        topics = [AddPartitionsToTxnTopic(name=topic, partitions=indexes) for topic, indexes in places.items()]
        request = AddPartitionsToTxnRequest(
            transactions=[
                AddPartitionsToTxnTransaction(
                    transactional_id=name,
                    producer_id=producer.producer_id,
                    producer_epoch=producer.producer_epoch,
                    verify_only=verify,
                    topics=topics,
                )
            ],
            v3_and_below_transactional_id=name,
            v3_and_below_producer_id=producer.producer_id,
            v3_and_below_producer_epoch=producer.producer_epoch,
            v3_and_below_topics=topics,
        )
        response = await finished(self.service.add_partitions(request, api_version=version))
        results = response.results_by_topic_v3_and_below
        if version >= 4:
            assert not results and response.error_code == 0
            (result,) = response.results_by_transaction
            assert result.transactional_id == name
            results = result.topic_results
        return {
            (topic.name, each.partition_index): each.partition_error_code
            for topic in results
            for each in topic.results_by_partition
        }

    async def end(self, producer: Any, *, commit: bool = True, name: str = ID, version: int = 5) -> Any:
        request = EndTxnRequest(
            transactional_id=name,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            committed=commit,
        )
        return await finished(self.service.end_txn(request, api_version=version))

    async def describe(self, *names: str) -> Any:
        answer = self.service.describe_transactions(DescribeTransactionsRequest(transactional_ids=list(names)))
        return (await answer if isinstance(answer, Coroutine) else answer).transaction_states

    async def list(self, *states: str, ids: Sequence[int] = (), duration_ms: int = -1) -> Any:
        request = ListTransactionsRequest(
            state_filters=list(states), producer_id_filters=list(ids), duration_filter=duration_ms
        )
        answer = listing.list_transactions(self.service, request)
        return await answer if isinstance(answer, Coroutine) else answer


@pytest.fixture
async def talk(nursery: trio.Nursery) -> Coordination:
    coordination = Coordination()
    await coordination.start(nursery)
    return coordination


# ---------------------------------------------------------------------- producers


async def test_a_new_id_brings_the_first_block_of_producer_ids(talk: Coordination) -> None:
    response = await talk.init()
    assert (response.error_code, response.producer_id, response.producer_epoch) == (0, 1000, 0)
    again = await talk.init()
    assert (again.producer_id, again.producer_epoch) == (1000, 1) and talk.blocks == 1


async def test_blocks_follow_each_other(talk: Coordination) -> None:
    ids = [(await talk.init(f"tx{number}")).producer_id for number in range(7)]
    assert ids == [1000, 1001, 1002, 2000, 2001, 2002, 3000]


async def test_without_producer_ids_a_producer_asks_again(talk: Coordination) -> None:
    talk.refusal = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    response = await talk.init()
    assert (response.error_code, response.producer_id, response.producer_epoch) == (talk.refusal, -1, -1)
    talk.refusal = None
    assert (await talk.init()).error_code == 0


@pytest.mark.parametrize("producer_id", [-2, -(2**63)])
async def test_a_producer_id_that_cannot_be_is_not_the_one_that_was_given(talk: Coordination, producer_id: int) -> None:
    await talk.init()
    response = await talk.init(producer_id=producer_id, producer_epoch=0)
    assert (response.error_code, response.producer_id) == (ErrorCode.PRODUCER_FENCED, -1)


@pytest.mark.parametrize("name", ["", None])
async def test_an_empty_id_is_invalid(talk: Coordination, name: str | None) -> None:
    assert (await talk.init(name, timeout_ms=0)).error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001, 2**31 - 1])
async def test_a_timeout_has_bounds(talk: Coordination, timeout_ms: int) -> None:
    response = await talk.init(timeout_ms=timeout_ms)
    assert (response.error_code, response.producer_id) == (ErrorCode.INVALID_TRANSACTION_TIMEOUT, -1)
    assert (await talk.init(timeout_ms=900_000)).error_code == 0


FENCED, OLDER = ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH


@pytest.mark.parametrize(("version", "error"), [(3, OLDER), (4, FENCED), (5, FENCED)])
async def test_older_producers_do_not_know_that_they_are_fenced(
    talk: Coordination, version: int, error: ErrorCode
) -> None:
    await talk.init()
    response = await talk.init(version=version, producer_id=77, producer_epoch=0)
    assert (response.error_code, response.producer_id, response.producer_epoch) == (error, -1, -1)


async def test_a_producer_id_that_cannot_be_takes_nobodys_place(talk: Coordination) -> None:
    producer = await talk.init()
    assert (await talk.init(version=5, producer_id=-5, producer_epoch=0)).error_code == FENCED
    assert (await talk.init(version=5, producer_id=producer.producer_id, producer_epoch=0)).producer_epoch == 1


@pytest.mark.parametrize(("version", "error"), [(0, OLDER), (1, OLDER), (2, FENCED), (3, FENCED)])
async def test_older_requests_of_a_transaction_do_not_know_it_either(
    talk: Coordination, version: int, error: ErrorCode
) -> None:
    zombie = await talk.init()
    await talk.init()
    assert await talk.add(zombie, {"topic": [0]}, version=version) == {("topic", 0): error}
    assert (await talk.end(zombie, version=version)).error_code == error
    request = AddOffsetsToTxnRequest(
        transactional_id=ID, producer_id=zombie.producer_id, producer_epoch=zombie.producer_epoch, group_id="g"
    )
    assert (await finished(talk.service.add_offsets(request, api_version=version))).error_code == error


# ---------------------------------------------------------------------- partitions


@pytest.mark.parametrize("version", range(6))
async def test_all_partitions_or_none(talk: Coordination, version: int) -> None:
    producer = await talk.init()
    errors = await talk.add(producer, {"topic": [0, 3], "nowhere": [0], "other": [0]}, version=version)
    unknown, spared = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.OPERATION_NOT_ATTEMPTED
    assert errors == {("topic", 0): spared, ("topic", 3): unknown, ("nowhere", 0): unknown, ("other", 0): spared}
    (state,) = await talk.describe(ID)
    assert state.transaction_state == "Empty" and not state.topics
    assert await talk.add(producer, {"topic": [0, 2], "other": [0]}, version=version) == {
        ("topic", 0): 0,
        ("topic", 2): 0,
        ("other", 0): 0,
    }
    (state,) = await talk.describe(ID)
    assert {each.topic: each.partitions for each in state.topics} == {"topic": [0, 2], "other": [0]}
    assert state.transaction_state == "Ongoing" and state.transaction_start_time_ms == NOW_MS


@pytest.mark.parametrize("version", [0, 3, 5])
async def test_nobody_adds_to_an_empty_or_unknown_id(talk: Coordination, version: int) -> None:
    producer = await talk.init()
    invalid, unmapped = ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert await talk.add(producer, {"topic": [0]}, name="", version=version) == {("topic", 0): invalid}
    assert await talk.add(producer, {"topic": [0]}, name="unknown", version=version) == {("topic", 0): unmapped}
    assert (await talk.end(producer, name="", version=version)).error_code == invalid


async def test_a_broker_asks_what_takes_part(talk: Coordination) -> None:
    producer = await talk.init()
    await talk.add(producer, {"topic": [0]}, version=4)
    absent = ErrorCode.TRANSACTION_ABORTABLE
    errors = await talk.add(producer, {"topic": [0, 1]}, version=5, verify=True)
    assert errors == {("topic", 0): 0, ("topic", 1): absent}
    for name, error in (("", ErrorCode.INVALID_REQUEST), ("unknown", ErrorCode.INVALID_PRODUCER_ID_MAPPING)):
        assert await talk.add(producer, {"topic": [0]}, version=5, verify=True, name=name) == {("topic", 0): error}
    (state,) = await talk.describe(ID)
    assert state.topics[0].partitions == [0]


async def test_many_transactions_in_one_request(talk: Coordination) -> None:
    producers = {f"tx{number}": await talk.init(f"tx{number}") for number in range(3)}
    transactions = [
        AddPartitionsToTxnTransaction(
            transactional_id=name,
            producer_id=each.producer_id,
            producer_epoch=each.producer_epoch + (name == "tx1"),
            topics=[AddPartitionsToTxnTopic(name="topic", partitions=[1])],
        )
        for name, each in producers.items()
    ]
    request = AddPartitionsToTxnRequest(transactions=transactions)
    response = await finished(talk.service.add_partitions(request, api_version=4))
    found = {
        each.transactional_id: each.topic_results[0].results_by_partition[0].partition_error_code
        for each in response.results_by_transaction
    }
    assert found == {"tx0": 0, "tx1": FENCED, "tx2": 0}


async def test_very_many_partitions_are_looked_up_in_slices(
    talk: Coordination, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time_slice, "SLICE_S", 0)
    count = ELEMENTS_PER_SLICE + 1
    talk.topics.counts["topic"] = count
    producer = await talk.init()
    async with counted_turns() as counted:
        errors = await talk.add(producer, {"topic": list(range(count))})
        assert counted.count >= 2 * ELEMENTS_PER_SLICE  # to find out what exists, and to answer
    assert set(errors.values()) == {0} and len(errors) == count


async def test_who_leaves_while_many_are_added_leaves_no_answer_behind(
    talk: Coordination, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time_slice, "SLICE_S", 0)
    count = ELEMENTS_PER_SLICE // 2 + 1
    talk.topics.counts["topic"] = count
    transactions = []
    for name in ("tx0", "tx1"):
        producer = await talk.init(name)
        topics = [AddPartitionsToTxnTopic(name="topic", partitions=list(range(count)))]
        ids = {"producer_id": producer.producer_id, "producer_epoch": producer.producer_epoch}
        transactions.append(AddPartitionsToTxnTransaction(transactional_id=name, topics=topics, **ids))
    left: list[PendingAnswer[Any]] = []
    monkeypatch.setattr(Waiting, "abandon", lambda self: left.append(self))
    monkeypatch.setattr(talk.service, "_add_checked", lambda *_: Waiting())
    answer = talk.service.add_partitions(AddPartitionsToTxnRequest(transactions=transactions), api_version=4)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(finished, answer)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert len(left) == 2


class Waiting(PendingAnswer[Any]):
    """An answer that never comes."""


async def test_a_record_of_very_many_partitions_is_made_without_a_look_at_each(
    talk: Coordination, monkeypatch: pytest.MonkeyPatch
) -> None:
    talk.topics.counts["topic"] = 1000
    producer = await talk.init()
    monkeypatch.setattr(Partitions, "__iter__", None)
    await talk.add(producer, {"topic": list(range(900))})
    await talk.add(producer, {"topic": list(range(800, 1000)), "other": [0]})
    await talk.end(producer)
    monkeypatch.undo()
    ((_, owed),) = talk.markers.owed
    assert owed.partitions == {("other", 0), *(("topic", index) for index in range(1000))}


def test_partitions_by_topic_are_a_set_like_any_other() -> None:
    some, more = {("a", 1), ("a", 2), ("b", 0)}, {("a", 2), ("c", 0)}
    kept = Partitions.of(some)
    assert kept == some and some == kept and len(kept) == 3 and ("a", 1) in kept and ("a", 0) not in kept
    assert "a" not in kept and bool(kept) and not Partitions({}) and hash(kept) == hash(frozenset(some))
    assert kept | more == some | more and more | kept == some | more and kept & more == some & more
    assert kept <= (kept | more) and not Partitions.of(more) <= kept and kept <= some and not kept <= more
    assert Partitions.of(some | more).in_order() == {"a": [1, 2], "b": [0], "c": [0]}


async def test_the_offsets_of_a_group_take_part(talk: Coordination) -> None:
    producer = await talk.init()
    request = AddOffsetsToTxnRequest(
        transactional_id=ID, producer_id=producer.producer_id, producer_epoch=producer.producer_epoch, group_id="four"
    )
    assert (await finished(talk.service.add_offsets(request, api_version=4))).error_code == 0
    (state,) = await talk.describe(ID)
    assert [(each.topic, each.partitions) for each in state.topics] == [(OFFSETS, [4])]


async def test_a_long_request_hears_of_each_transaction_once(talk: Coordination) -> None:
    producer = await talk.init()
    await talk.add(producer, {"topic": [0, 1, 2]})
    assert [each.transactional_id for each in await talk.describe(*[ID] * DESCRIBED_AS_NAMED)] == [
        ID
    ] * DESCRIBED_AS_NAMED
    # Each of these names takes three bytes, and asks for all partitions of a transaction.
    states = await talk.describe(*["nobody", ID] * DESCRIBED_AS_NAMED)
    assert [each.transactional_id for each in states] == ["nobody", ID]


# ---------------------------------------------------------------------- the end, and markers


@pytest.mark.parametrize(("version", "epoch"), [(0, -1), (4, -1), (5, 1)])
async def test_the_end_names_the_next_epoch_since_version_5(talk: Coordination, version: int, epoch: int) -> None:
    producer = await talk.init()
    await talk.add(producer, {"topic": [0, 1]})
    response = await talk.end(producer, version=version)
    assert response.error_code == 0
    if version >= 5:
        assert (response.producer_id, response.producer_epoch) == (producer.producer_id, epoch)
    ((partition, owed),) = talk.markers.owed
    assert partition == talk.service.partition_for(ID) and owed.partitions == {("topic", 0), ("topic", 1)}
    assert await finished(talk.service.complete(owed)) is ErrorCode.NONE
    assert await finished(talk.service.complete(owed)) is ErrorCode.INVALID_TXN_STATE
    (state,) = await talk.describe(ID)
    assert state.transaction_state == "CompleteCommit" and not state.topics


async def test_markers_are_owed_only_when_the_decision_is_committed(
    talk: Coordination, autojump_clock: trio.abc.Clock
) -> None:
    producer = await talk.init()
    await talk.add(producer, {"topic": [0]})
    talk.log.commit_seconds = 1
    request = EndTxnRequest(transactional_id=ID, producer_id=producer.producer_id, producer_epoch=0, committed=True)
    answer = talk.service.end_txn(request, api_version=5)
    assert isinstance(answer, PendingAnswer) and not talk.markers.owed
    assert (await talk.end(producer)).error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    assert (await finished(answer)).error_code == 0 and len(talk.markers.owed) == 1


async def test_a_new_leader_owes_what_the_one_before_has_not_completed(
    talk: Coordination, nursery: trio.Nursery
) -> None:
    producer = await talk.init()
    await talk.add(producer, {"topic": [0]})
    await talk.end(producer, commit=False)
    (first,) = talk.markers.owed
    talk.markers.owed.clear()
    talk.markers.forgotten.clear()
    talk.service.on_resignation(first[0])
    assert talk.markers.forgotten == [first[0]]
    assert await finished(talk.service.complete(first[1])) is ErrorCode.NOT_COORDINATOR
    talk.service.on_election(first[0])
    assert talk.markers.forgotten == [first[0]] * 2
    await trio.testing.wait_all_tasks_blocked()
    assert talk.markers.owed == [first]
    assert await finished(talk.service.complete(first[1])) is ErrorCode.NONE
    talk.service.on_election(first[0])
    await trio.testing.wait_all_tasks_blocked()
    assert talk.markers.owed == [first] and (await talk.describe(ID))[0].transaction_state == "CompleteAbort"


async def test_a_decision_that_could_not_be_committed_is_looked_up_in_the_log(
    talk: Coordination, autojump_clock: trio.abc.Clock
) -> None:
    producer = await talk.init()
    await talk.add(producer, {"topic": [0]})
    talk.log.commit_seconds, talk.log.failure = 1, ErrorCode.REQUEST_TIMED_OUT
    assert (await talk.end(producer)).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    await trio.testing.wait_all_tasks_blocked()
    talk.log.commit_seconds, talk.log.failure = 0, None
    assert not talk.markers.owed and (await talk.describe(ID))[0].transaction_state == "Ongoing"
    assert (await talk.end(producer)).error_code == 0 and len(talk.markers.owed) == 1


async def test_late_transactions_are_aborted_without_being_asked(
    talk: Coordination, autojump_clock: trio.abc.Clock
) -> None:
    await talk.add(await talk.init(timeout_ms=1), {"topic": [0]})
    talk.timestamp_ms += 1_000
    await trio.sleep(11)
    assert len(talk.markers.owed) == 1 and not talk.markers.owed[0][1].is_commit


# ---------------------------------------------------------------------- administration


async def test_a_description_has_everything(talk: Coordination) -> None:
    producer = await talk.init(timeout_ms=5_000)
    state, unknown, empty = await talk.describe(ID, "unknown", "")
    assert (state.error_code, state.transactional_id, state.transaction_state) == (0, ID, "Empty")
    assert (state.transaction_timeout_ms, state.transaction_start_time_ms) == (5_000, -1)
    assert (state.producer_id, state.producer_epoch, state.topics) == (producer.producer_id, 0, [])
    assert unknown.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND and unknown.transaction_state == ""
    assert empty.error_code == ErrorCode.INVALID_REQUEST


async def test_a_list_and_its_filters(talk: Coordination) -> None:
    producers = {name: await talk.init(name) for name in "abc"}
    await talk.add(producers["b"], {"topic": [0]}, name="b")
    talk.timestamp_ms += 1_000

    async def listed(*states: str, ids: Sequence[int] = (), duration_ms: int = -1) -> str:
        response = await talk.list(*states, ids=ids, duration_ms=duration_ms)
        assert response.error_code == 0
        return "".join(sorted(each.transactional_id for each in response.transaction_states))

    assert await listed() == "abc"
    assert await listed("Ongoing") == "b"
    assert await listed("Ongoing", "Empty") == "abc"
    assert await listed(ids=[producers["a"].producer_id, producers["b"].producer_id, 7]) == "ab"
    assert await listed("Empty", ids=[producers["b"].producer_id]) == ""
    assert await listed("Ongoing", duration_ms=999) == "b" and await listed("Ongoing", duration_ms=1_000) == ""
    response = await talk.list("Nowhere", "Elsewhere", "Nowhere")
    assert response.unknown_state_filters == ["Nowhere", "Elsewhere"] and response.transaction_states == []
    assert await listed("Nowhere", "Ongoing") == "b"
    (found,) = (await talk.list("Ongoing")).transaction_states
    assert (found.producer_id, found.transaction_state) == (producers["b"].producer_id, "Ongoing")


async def test_a_long_list_is_made_in_slices(talk: Coordination) -> None:
    for number in range(ELEMENTS_PER_SLICE + 1):
        await talk.init(f"tx{number}")
    answer = listing.list_transactions(talk.service, ListTransactionsRequest(state_filters=[], producer_id_filters=[]))
    assert isinstance(answer, Coroutine)
    assert len((await answer).transaction_states) == ELEMENTS_PER_SLICE + 1


# ---------------------------------------------------------------------- who is the coordinator


async def test_before_it_runs_there_is_no_coordinator() -> None:
    talk = Coordination()
    not_available = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert (await talk.init()).error_code == not_available
    assert (await talk.describe(ID))[0].error_code == not_available
    assert (await talk.describe(""))[0].error_code == not_available
    assert (await talk.list()).error_code == not_available


async def test_another_broker_may_be_the_coordinator(nursery: trio.Nursery) -> None:
    talk = Coordination()
    talk.service.start_in(nursery)
    producer = await talk.init()
    assert producer.error_code == ErrorCode.NOT_COORDINATOR and talk.blocks == 0
    assert (await talk.end(producer)).error_code == ErrorCode.NOT_COORDINATOR
    assert (await talk.describe(ID))[0].error_code == ErrorCode.NOT_COORDINATOR
    assert await talk.add(producer, {"topic": [0]}, version=4, verify=True) == {("topic", 0): ErrorCode.NOT_COORDINATOR}


async def test_while_a_partition_is_loaded_its_ids_wait(nursery: trio.Nursery, autojump_clock: trio.abc.Clock) -> None:
    talk = Coordination()
    talk.service.start_in(nursery)
    talk.log.load_seconds = 5
    talk.service.on_election(talk.service.partition_for(ID))
    loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert (await talk.init()).error_code == loading
    assert (await talk.describe(ID))[0].error_code == loading
    assert (await talk.list()).error_code == loading
    await trio.sleep(6)
    assert (await talk.init()).error_code == 0 and (await talk.list()).error_code == 0


async def test_a_fenced_broker_says_nothing(talk: Coordination) -> None:
    producer = await talk.init()
    talk.log.fenced = True
    assert (await talk.end(producer)).error_code == ErrorCode.NOT_COORDINATOR


async def test_what_was_written_is_known_after_a_restart(talk: Coordination, nursery: trio.Nursery) -> None:
    producer = await talk.init()
    await talk.add(producer, {"topic": [0, 1]})
    before = await talk.describe(ID)
    talk.service = talk.new_coordinator()
    await talk.start(nursery)
    assert await talk.describe(ID) == before
    assert (await talk.end(producer)).error_code == 0


async def test_a_completion_that_a_fenced_broker_refuses_is_taken_later(talk: Coordination) -> None:
    producer = await talk.init()
    await talk.add(producer, {"topic": [0]})
    await talk.end(producer)
    [(_, owed)] = talk.markers.owed
    talk.log.fenced = True
    assert await finished(talk.service.complete(owed)) is ErrorCode.NOT_COORDINATOR
    talk.log.fenced = False
    assert await finished(talk.service.complete(owed)) is ErrorCode.NONE
    assert await finished(talk.service.complete(owed)) is ErrorCode.INVALID_TXN_STATE
    assert (await talk.describe(ID))[0].transaction_state == "CompleteCommit"
