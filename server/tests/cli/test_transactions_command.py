"""`ottla transactions` beside a broker with transactions that are open, and some that no coordinator knows."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable

import pytest

from ottla.server.broker import Broker
from ottla.server.cli.client.cluster import Cluster
from ottla.server.cli.client.transactions import Open, abort_in_partition, describe, open_in
from ottla.server.tests.cli.commanded import Shell
from ottla.server.tests.console_client import write_open
from ottla.wire.messages.producer_ids import InitProducerIdRequest
from ottla.wire.messages.transactions import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic

LATE_MS = 1_000_000  # more than transaction.max.timeout.ms
UNKNOWN_ID = (1 << 40) + 1
SETTINGS = {"transaction_partition_verification_enable": "false"}
numbers = itertools.count()


@pytest.fixture
def topic(ottla: Shell) -> str:
    name = f"t{next(numbers)}"
    assert ottla("topics", "create", name, "-p", "3", "-c", "retention.ms=-1").code == 0
    return name


@pytest.fixture
def begun(cluster: Cluster) -> Callable[..., tuple[int, int]]:
    """Begins a transaction in some partitions of a topic, if any; returns the producer's id and epoch."""

    def begin(transactional_id: str, topic: str = "", *partitions: int) -> tuple[int, int]:
        def ask() -> tuple[int, int]:
            coordinator = cluster.coordinator(transactional_id, of_transaction=True)
            told = coordinator.ask(
                InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000)
            )
            cluster.check("the producer", told.error_code)
            request = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=transactional_id,
                v3_and_below_producer_id=told.producer_id,
                v3_and_below_producer_epoch=told.producer_epoch,
                v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=list(partitions))],
            )
            for each in coordinator.ask(request, at_most=3).results_by_topic_v3_and_below if partitions else ():
                for one in each.results_by_partition:
                    cluster.check("the partition", one.partition_error_code)
            return told.producer_id, told.producer_epoch

        return cluster.patiently(ask)

    return begin


def test_ids_are_listed_and_described(ottla: Shell, topic: str, begun: Callable[..., tuple[int, int]]) -> None:
    producer_id, epoch = begun("listed-1", topic, 0, 2)
    begun("listed-idle")
    listed = {each["transactional_id"]: each for each in ottla("transactions", "--json").json}
    assert listed["listed-1"] == {
        "transactional_id": "listed-1", "state": "Ongoing", "producer_id": producer_id, "coordinator": 1
    }  # fmt: skip
    assert listed["listed-idle"]["state"] == "Empty"

    def ids(*words: str) -> list[str]:
        return [each["transactional_id"] for each in ottla("transactions", "list", *words, "--json").json]

    assert ids("--pattern", "listed-.*", "--state", "Ongoing") == ["listed-1"]
    assert ids("--producer-id", str(producer_id)) == ["listed-1"]
    assert ids("--pattern", "listed-.*", "--older-than", "1h") == []
    assert ottla("transactions", "list", "--pattern", "nothing").out == "no transactional ids\n"
    [described] = ottla("transactions", "describe", "listed-1", "--json").json
    assert abs(described.pop("start_ms") - time.time() * 1000) < 600_000
    assert described == {
        "transactional_id": "listed-1",
        "state": "Ongoing",
        "producer_id": producer_id,
        "producer_epoch": epoch,
        "timeout_ms": 60_000,
        "partitions": {topic: [0, 2]},
    }
    shown = dict(line.split(None, 1) for line in ottla("transactions", "describe", "listed-1").lines)
    assert shown["partitions"] == f"{topic}:0,2"


def test_an_open_transaction_is_aborted_and_its_producer_fenced(
    ottla: Shell, topic: str, cluster: Cluster, begun: Callable[..., tuple[int, int]], broker: Broker
) -> None:
    producer_id, epoch = begun("aborted", topic, 0)
    write_open(broker, topic, producer_id, age_ms=0, epoch=epoch)
    question = "Abort the open transaction of aborted, and fence the producer?"
    assert ottla("transactions", "abort", "aborted").refusal(2) == f"{question} There is nobody to ask: give --yes"
    assert ottla("transactions", "abort", "aborted", answer="n\n").code == 1
    assert ottla("transactions", "abort", "aborted", "--dry-run").code == 0
    assert describe(cluster, "aborted").transaction_state == "Ongoing"
    told = ottla("transactions", "abort", "aborted", answer="y\n")
    assert told.lines == ["the transaction of aborted is aborted", "This cannot be undone: its records are aborted."]
    state = describe(cluster, "aborted")
    assert state.transaction_state != "Ongoing" and (state.producer_id, state.producer_epoch) != (producer_id, epoch)
    assert open_in(cluster, [(topic, 0)]) == []
    assert "has no open transaction" in ottla("transactions", "abort", "aborted", "--yes").refusal()


def test_what_hangs_is_found_and_aborted_and_nothing_else(
    ottla: Shell, topic: str, cluster: Cluster, begun: Callable[..., tuple[int, int]], broker: Broker
) -> None:
    known, epoch = begun("known", topic, 0)
    elsewhere, other_epoch = begun("elsewhere", topic, 1)
    write_open(broker, topic, known, age_ms=LATE_MS, epoch=epoch)
    write_open(broker, topic, elsewhere, age_ms=LATE_MS, epoch=other_epoch)
    write_open(broker, topic, UNKNOWN_ID, age_ms=2 * LATE_MS, epoch=3)
    write_open(broker, topic, UNKNOWN_ID + 1, age_ms=0)
    found = ottla("transactions", "hanging", "--json").json
    assert [(each["producer_id"], each["producer_epoch"]) for each in found] == [
        (elsewhere, other_epoch),
        (UNKNOWN_ID, 3),
    ]
    assert found == ottla("transactions", "hanging", "--partition", f"{topic}:0", "--json").json
    assert ottla("transactions", "hanging", "--partition", f"{topic}:1").out == "no transaction hangs\n"
    assert len(ottla("transactions", "hanging", "--older-than", "1m", "--json").json) == 2
    refusal = ottla("transactions", "abort", "--hanging", "--partition", topic).refusal(2)
    assert f"{topic}-0 (producer {elsewhere}), {topic}-0 (producer {UNKNOWN_ID})? There is nobody" in refusal
    assert (
        ottla("transactions", "abort", "--hanging", "--dry-run").lines[-1] == "Nothing is changed: this is a dry run."
    )
    assert len(open_in(cluster, [(topic, 0)])) == 4
    told = ottla("transactions", "abort", "--hanging", "--partition", topic, "--yes")
    assert told.lines[-2:] == ["2 transactions are aborted", "This cannot be undone: their records are aborted."]
    assert [each.producer_id for each in open_in(cluster, [(topic, 0)])] == [known, UNKNOWN_ID + 1]
    assert ottla("transactions", "abort", "--hanging", "--yes").lines == ["no transaction hangs"]
    # One that goes on meanwhile, with a later epoch, is left alone.
    stale = Open(topic, 0, UNKNOWN_ID, 2, 0, 0, 0)
    with pytest.raises(Exception, match="it does not hang"):
        abort_in_partition(cluster, stale)
    for each in open_in(cluster, [(topic, 0)]):
        abort_in_partition(cluster, each)


@pytest.mark.parametrize(
    ("words", "code", "reason"),
    [
        (("describe", "nobody"), 1, "transactional id nobody does not exist"),
        (("abort", "nobody", "--yes"), 1, "transactional id nobody does not exist"),
        (("abort",), 2, "which transactions?"),
        (("abort", "x", "--hanging"), 2, "which transactions?"),
        (("abort", "x", "--partition", "t"), 2, "go with --hanging"),
        (("hanging", "--partition", "t:x"), 2, "must be TOPIC or TOPIC:N,N"),
        (("list", "--state", "Asleep"), 1, "there is no state Asleep; there are Empty, Ongoing, PrepareCommit"),
        (("list", "--pattern", "("), 1, "INVALID_REGULAR_EXPRESSION"),
    ],
)
def test_what_cannot_be(ottla: Shell, words: tuple[str, ...], code: int, reason: str) -> None:
    assert reason in ottla("transactions", *words).refusal(code)


def test_words_that_are_no_numbers(ottla: Shell) -> None:
    assert ottla("transactions", "list", "--producer-id", "x").code == 2
    assert ottla("transactions", "hanging", "--older-than", "soon").code == 2
