"""Transactions: producers begin, add, commit, abort, fence each other and repeat themselves."""

from typing import Any

from compat_tests.differential.asking_records import read_back
from compat_tests.differential.asking_transactions import (
    Producer,
    begin,
    by_partition,
    describe,
    new_producer,
    note_log,
    until_complete,
)
from compat_tests.differential.conversation import Talk, scenario

from ottla.wire.messages.describe_transactions import DescribeTransactionsRequest, ListTransactionsRequest
from ottla.wire.messages.producer_ids import InitProducerIdRequest
from ottla.wire.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTransaction,
    EndTxnRequest,
)

INT32_MAX = 2**31 - 1
MAX_TIMEOUT_MS = 900_000
CONCURRENT_TRANSACTIONS = 51


# ---------------------------------------------------------------------- EndTxn


@scenario(EndTxnRequest)
def ends_of_transactions(talk: Talk) -> None:
    topic = talk.topic(partitions=2)
    for commit in (True, False):
        producer = new_producer(talk)
        begin(talk, producer, {topic.name: [0, 1]})
        talk.ask(producer.end(commit=commit), label=f"commit {commit}")
        after = until_complete(talk, producer.name)
        describe(talk, producer.name)
        for asked in (True, False):
            talk.ask(producer.end(commit=asked), label=f"again, commit {asked}")
        talk.ask(after.at(epoch=1).end(commit=commit), label="of the next epoch")
        talk.ask(after.at(epoch=-2).end(commit=commit), label="of an older epoch")
        talk.ask(after.at(id=1000).end(commit=commit), label="of another producer")
        note_log(talk, producer.name)
        # The next telling of this loop begins with the same names.
        talk.run += "x"
    read_back(talk, topic)


@scenario(EndTxnRequest)
def ends_of_nothing(talk: Talk) -> None:
    producer = new_producer(talk)
    for epoch in (-1, 1):
        talk.ask(producer.at(epoch=epoch).end(commit=False), label=f"epoch {epoch:+}")
    talk.ask(producer.at(id=1000).end(commit=True), label="of another producer")
    talk.ask(producer.end(commit=True), label="commit")
    talk.ask(producer.end(commit=False), label="abort")
    if talk.version >= 5:
        after = until_complete(talk, producer.name)
        talk.ask(producer.end(commit=False), label="abort again")
        talk.ask(producer.end(commit=True), label="now commit")
        talk.ask(after.end(commit=True), label="commit in the next epoch")
        talk.ask(after.end(commit=False), label="abort in the next epoch")
        until_complete(talk, producer.name)
    note_log(talk, producer.name)
    talk.ask(Producer(talk.name("unknown"), 5, 0).end(commit=True), label="of an unknown id")
    talk.ask(Producer("", 5, 0).end(commit=True), label="of no id")


@scenario(EndTxnRequest)
def the_next_transaction(talk: Talk) -> None:
    topic = talk.topic()
    producer = new_producer(talk)
    begin(talk, producer, {topic.name: [0]})
    talk.ask(producer.end(commit=True), label="the first")
    after = until_complete(talk, producer.name)
    begin(talk, after, {topic.name: [0]})
    talk.ask(producer.end(commit=False), label="the first, delayed")
    if talk.version < 5:
        # It has aborted the second one, which is why there are epochs for transactions.
        until_complete(talk, producer.name)
    describe(talk, producer.name)
    talk.ask(after.end(commit=False), label="the second")
    until_complete(talk, producer.name)
    note_log(talk, producer.name)


# ---------------------------------------------------------------------- InitProducerId


@scenario(InitProducerIdRequest)
def producers_come_and_go(talk: Talk) -> None:
    producer = new_producer(talk)
    talk.ask(producer.init(known=False), label="another")
    talk.ask(producer.init(known=False, timeout_ms=1), label="with little time")
    for timeout_ms in (0, -1, MAX_TIMEOUT_MS + 1, INT32_MAX):
        talk.ask(producer.init(known=False, timeout_ms=timeout_ms), label=f"timeout {timeout_ms}")
    talk.ask(producer.init(known=False, timeout_ms=MAX_TIMEOUT_MS), label="with all the time")
    describe(talk, producer.name)
    note_log(talk, producer.name)


@scenario(InitProducerIdRequest, versions="3+")  # before, a request cannot name a producer
def producers_that_name_themselves(talk: Talk) -> None:
    producer = new_producer(talk)
    talk.ask(producer.init(), label="goes on")
    talk.ask(producer.init(), label="goes on again")
    talk.ask(producer.at(epoch=1).init(), label="goes on from there")
    talk.ask(producer.init(), label="from the past")
    talk.ask(producer.at(epoch=5).init(), label="from the future")
    talk.ask(producer.at(id=1000).init(), label="somebody else")
    talk.ask(producer.init(known=False), label="somebody new")
    talk.ask(producer.at(epoch=2).init(), label="is too late")
    talk.ask(Producer(talk.name("unknown"), producer.id, 7).init(), label="of an unknown id")
    describe(talk, producer.name)


@scenario(InitProducerIdRequest)
def producers_that_left_something_open(talk: Talk) -> None:
    topic = talk.topic()
    producer = new_producer(talk)
    begin(talk, producer, {topic.name: [0]})
    talk.ask(producer.init(known=False), label="the next one")
    until_complete(talk, producer.name)
    talk.ask(producer.init(known=False), label="the next one again")
    talk.ask(producer.end(commit=True), label="the zombie commits")
    talk.ask(producer.add({topic.name: [0]}), 3, label="the zombie goes on")
    note_log(talk, producer.name)
    read_back(talk, topic)


# ---------------------------------------------------------------------- AddPartitionsToTxn, AddOffsetsToTxn


@scenario(AddPartitionsToTxnRequest)
def partitions_of_transactions(talk: Talk) -> None:
    topic, other = talk.topic(partitions=3), talk.topic("other")
    producer = new_producer(talk)

    def ask(asking: Producer, places: dict[str, list[int]], label: str) -> Any:
        return talk.ask(asking.add(places), label=label, arrange=by_partition)

    ask(producer, {topic.name: [0]}, "the first")
    ask(producer, {topic.name: [0, 2], other.name: [0]}, "more")
    ask(producer, {topic.name: [0]}, "known")
    ask(producer, {topic.name: [1, 7]}, "one that does not exist")
    ask(producer, {topic.name: [1], talk.name("nowhere"): [0]}, "a topic that does not exist")
    ask(producer, {}, "none")
    ask(producer, {topic.name: [1, 1]}, "one twice")
    ask(producer, {topic.name: [1, 1, 9, 9]}, "one twice, beside one that does not exist")
    ask(producer, {"__consumer_offsets_": [0]}, "a name beside an internal topic's")
    for epoch in (-1, 1):
        ask(producer.at(epoch=epoch), {topic.name: [0]}, f"epoch {epoch:+}")
    ask(producer.at(id=1000), {topic.name: [0]}, "another producer")
    ask(Producer(talk.name("unknown"), 5, 0), {topic.name: [0]}, "an unknown id")
    ask(Producer("", 5, 0), {topic.name: [0]}, "no id")
    describe(talk, producer.name)
    note_log(talk, producer.name)


@scenario(AddPartitionsToTxnRequest, versions="4+")  # before, only one transaction could be asked about
def questions_of_brokers(talk: Talk) -> None:
    topic = talk.topic(partitions=2)
    producer = new_producer(talk)

    def ask(asking: Producer, places: dict[str, list[int]], label: str) -> Any:
        return talk.ask(asking.add(places, verify_only=True), label=label, arrange=by_partition)

    ask(producer, {topic.name: [0]}, "before anything")
    talk.ask(producer.add({topic.name: [0]}), label="added", arrange=by_partition)
    ask(producer, {topic.name: [0]}, "what takes part")
    ask(producer, {topic.name: [0, 1]}, "what does not")
    ask(producer, {topic.name: [0, 9]}, "what does not exist")
    for epoch in (-1, 1):
        ask(producer.at(epoch=epoch), {topic.name: [0]}, f"epoch {epoch:+}")
    ask(producer.at(id=1000), {topic.name: [0]}, "another producer")
    ask(Producer(talk.name("unknown"), 5, 0), {topic.name: [0]}, "an unknown id")
    ask(Producer("", 5, 0), {topic.name: [0]}, "no id")
    several = AddPartitionsToTxnRequest(
        transactions=[
            AddPartitionsToTxnTransaction(
                transactional_id=name, producer_id=producer.id, producer_epoch=producer.epoch, topics=asked.topics
            )
            for name in (producer.name, talk.name("unknown"))
            for asked in producer.add({topic.name: [1]}).transactions
        ]
    )
    talk.ask(several, label="several", arrange=by_partition)
    after = talk.do(producer.end(commit=True))
    assert after.error_code == 0
    ask(until_complete(talk, producer.name), {topic.name: [0]}, "after the end")


@scenario(AddOffsetsToTxnRequest)
def offsets_of_transactions(talk: Talk) -> None:
    group = talk.group()
    producer = new_producer(talk)
    talk.ask(producer.add_offsets(group), label="a group")
    talk.ask(producer.add_offsets(group), label="the group again")
    talk.ask(producer.add_offsets(""), label="no group")
    for epoch in (-1, 1):
        talk.ask(producer.at(epoch=epoch).add_offsets(group), label=f"epoch {epoch:+}")
    talk.ask(producer.at(id=1000).add_offsets(group), label="another producer")
    talk.ask(Producer(talk.name("unknown"), 5, 0).add_offsets(group), label="an unknown id")
    talk.ask(Producer("", 5, 0).add_offsets(group), label="no id")


# ---------------------------------------------------------------------- administration


@scenario(DescribeTransactionsRequest)
def descriptions(talk: Talk) -> None:
    topic = talk.topic(partitions=2)
    producer = new_producer(talk)
    describe(talk, producer.name, label="empty")
    begin(talk, producer, {topic.name: [1, 0]})
    describe(talk, producer.name, label="ongoing")
    talk.do(producer.end(commit=False), 4)
    until_complete(talk, producer.name)
    describe(talk, producer.name, label="aborted")
    describe(talk, talk.name("unknown"), "", producer.name, producer.name, label="several")
    describe(talk, label="none")


@scenario(ListTransactionsRequest)
def listings(talk: Talk) -> None:
    producer = new_producer(talk)
    begin(talk, producer, {talk.topic().name: [0]})

    def ask(label: str, *states: str, ids: tuple[int, ...] = (producer.id,), duration_ms: int = -1) -> None:
        request = ListTransactionsRequest(
            state_filters=list(states), producer_id_filters=list(ids), duration_filter=duration_ms
        )
        talk.ask(request, label=label)

    ask("all")
    ask("ongoing", "Ongoing")
    ask("empty", "Empty")
    ask("both", "Empty", "Ongoing")
    ask("an unknown state", "Nowhere")
    ask("unknown states and a known one", "Nowhere", "Ongoing", "ongoing", "Nowhere")
    ask("nobody's id", ids=(producer.id + 1000,))
    ask("somebody's and nobody's", ids=(producer.id + 1000, producer.id))
    ask("young", duration_ms=3_600_000)
    ask("of any age", duration_ms=-2)


@scenario(ListTransactionsRequest, versions="2+")  # before, there was no pattern
def listings_by_pattern(talk: Talk) -> None:
    producer = new_producer(talk)
    # All ids of this telling begin in the same way, and end with its number.
    patterns = [None, "", ".*", "trans.*", "transaction", "^transaction-[0-9a-f]{8}$", "TRANS.*", "(?i)TRANS.*", "t|x"]
    invalid = ["(", "a(?=b)", r"(a)\1", "a**", "[b-a]", "a{1001}"]
    for pattern in (*patterns, *invalid):
        request = ListTransactionsRequest(
            state_filters=[], producer_id_filters=[producer.id], transactional_id_pattern=pattern
        )
        talk.ask(request, label=f"pattern {pattern}")
    request = ListTransactionsRequest(
        state_filters=["Nowhere"], producer_id_filters=[], duration_filter=0, transactional_id_pattern="("
    )
    talk.ask(request, label="everything is wrong")
