"""What a network kept or doubled: requests of a transaction arrive when it has ended, and when the next one is under way."""

from compat_tests.differential.asking_records import read_back
from compat_tests.differential.asking_transactions import (
    Producer,
    begin,
    by_partition,
    describe,
    new_producer,
    note_log,
    state_of,
    until_complete,
)
from compat_tests.differential.conversation import Talk, Topic, scenario
from compat_tests.differential.scenarios.transactional_records import describe_producers, written

from ottla.wire.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

OF_ONE_EPOCH, OF_AN_EPOCH_EACH = 4, 5
"""Versions of EndTxn: whether the next transaction has another epoch."""


def ended(talk: Talk, producer: Producer, version: int, *, commit: bool = True) -> Producer:
    """The producer of the next transaction."""
    answer = talk.do(producer.end(commit=commit), version)
    assert answer.error_code == 0, answer
    return until_complete(talk, producer.name)


@scenario(AddPartitionsToTxnRequest)
def partitions_that_come_late(talk: Talk) -> None:
    topic = talk.topic(partitions=3)
    for version in (OF_ONE_EPOCH, OF_AN_EPOCH_EACH):
        producer = new_producer(talk)
        begin(talk, producer, {topic.name: [0]})
        after = ended(talk, producer, version)
        begin(talk, after, {topic.name: [1]})
        for label in ("while the next one is open", "once more"):
            talk.ask(producer.add({topic.name: [0, 2]}), label=f"EndTxn {version}, {label}", arrange=by_partition)
        describe(talk, producer.name)
        ended(talk, after, version, commit=False)
        talk.ask(producer.add({topic.name: [0]}), label=f"EndTxn {version}, after both", arrange=by_partition)
        describe(talk, producer.name)
        note_log(talk, producer.name)
        talk.run += "x"


@scenario(AddOffsetsToTxnRequest)
def offsets_that_come_late(talk: Talk) -> None:
    topic, group = talk.topic(), talk.name("group")
    for version in (OF_ONE_EPOCH, OF_AN_EPOCH_EACH):
        producer = new_producer(talk)
        begin(talk, producer, {topic.name: [0]})
        after = ended(talk, producer, version)
        talk.ask(producer.add_offsets(group), label=f"EndTxn {version}, after the end")
        talk.note("state", state_of(talk, producer.name).transaction_state)
        begin(talk, after, {topic.name: [0]})
        talk.ask(producer.add_offsets(group), label=f"EndTxn {version}, while the next one is open")
        talk.note("state", state_of(talk, producer.name).transaction_state)
        talk.run += "x"


@scenario(EndTxnRequest)
def ends_that_come_twice(talk: Talk) -> None:
    topic = talk.topic()
    producer = new_producer(talk)
    written(talk, topic, producer, 0)
    talk.ask(producer.end(commit=True), label="the first")
    after = until_complete(talk, producer.name)
    written(talk, topic, after, 0 if after.epoch != producer.epoch else 1)
    talk.ask(producer.end(commit=True), label="the first again, while the second is open")
    if talk.version < OF_AN_EPOCH_EACH:
        # It has committed the second one.
        until_complete(talk, producer.name)
    describe(talk, producer.name)
    describe_producers(talk, topic, "the producer", 0)
    read_back(talk, topic)


def delayed_marker(talk: Talk, topic: Topic, producer: Producer, label: str, *, commit: bool) -> None:
    place = WritableTxnMarkerTopic(name=topic.name, partition_indexes=[0])
    marker = WritableTxnMarker(
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        transaction_result=commit,
        topics=[place],
        coordinator_epoch=0,
    )
    talk.ask(WriteTxnMarkersRequest(markers=[marker]), label=label)


@scenario(WriteTxnMarkersRequest)
def markers_that_come_late(talk: Talk) -> None:
    for version in (OF_ONE_EPOCH, OF_AN_EPOCH_EACH):
        topic = talk.topic(f"end-{version}")
        producer = new_producer(talk)
        written(talk, topic, producer, 0)
        after = ended(talk, producer, version)
        delayed_marker(talk, topic, after, f"EndTxn {version}, again", commit=True)
        written(talk, topic, after, 0 if after.epoch != producer.epoch else 1)
        for commit in (True, False):
            label = f"EndTxn {version}, of the first, commit {commit}"
            delayed_marker(talk, topic, producer, label, commit=commit)
            describe_producers(talk, topic, label, 0)
        ended(talk, after, version, commit=False)
        read_back(talk, topic)
        talk.run += "x"
