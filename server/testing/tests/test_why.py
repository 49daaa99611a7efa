"""`kafka.why`: causes as text and as objects, and what became of an offset."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.server.testing.errors import LabError
from ottla.server.testing.kafka import Kafka
from ottla.server.testing.why import why
from ottla.server.testing.wire_tap.wire import Wire
from ottla.server.testing.world.world import TRANSACTION
from ottla.wire.errors import KafkaError
from ottla.wire.happenings import utc_ms
from ottla.wire.messages.delete_topics import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.messages.producer_ids import InitProducerIdRequest
from ottla.wire.messages.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
)
from ottla.wire.record_encoding import encode_batch
from ottla.wire.records import Record


class Producer:
    """A transactional producer that writes to partition 0 of a topic."""

    def __init__(self, kafka: Kafka, name: str, topic: str = "orders") -> None:
        self.kafka, self.name, self.topic, self.sequence = kafka, name, topic, 0
        kafka.call(kafka.world.coordinator, name, TRANSACTION)
        answer = kafka.ask(InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000))
        assert not answer.error_code
        self.identity = answer.producer_id, answer.producer_epoch

    def write(self, value: bytes) -> None:
        producer_id, epoch = self.identity
        topics = [AddPartitionsToTxnTopic(name=self.topic, partitions=[0])]
        added = self.kafka.ask(
            AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self.name,
                v3_and_below_producer_id=producer_id,
                v3_and_below_producer_epoch=epoch,
                v3_and_below_topics=topics,
            ),
            version=3,
        )
        assert not added.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
        batch = encode_batch(
            [Record(0, self.kafka.clock.now_ms, None, value)],
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=self.sequence,
            is_transactional=True,
        )
        self.sequence += 1
        data = PartitionProduceData(index=0, records=memoryview(bytearray(batch)))
        written = self.kafka.ask(
            ProduceRequest(
                transactional_id=self.name,
                acks=-1,
                timeout_ms=1000,
                topic_data=[TopicProduceData(name=self.topic, partition_data=[data])],
            ),
            version=11,
        )
        assert not written.responses[0].partition_responses[0].error_code

    def end(self, *, commit: bool) -> None:
        producer_id, epoch = self.identity
        request = EndTxnRequest(
            transactional_id=self.name, producer_id=producer_id, producer_epoch=epoch, committed=commit
        )
        assert not self.kafka.ask(request, version=4).error_code
        while not self.kafka.transactions()[self.name].state.startswith(
            "Complete"
        ):  # the marker comes after the answer
            self.kafka.clock.advance(0)


def fate(kafka: Kafka, offset: int) -> tuple[str, str]:
    found = kafka.why("orders", 0, offset)
    return found.state, str(found)


# ---------------------------------------------------------------------- causes


def test_nothing_has_happened(kafka: Kafka) -> None:
    assert str(kafka.why()) == "Nothing out of the ordinary happened." and len(kafka.why()) == 0


def test_causes_are_told_as_a_text_and_as_objects(kafka: Kafka) -> None:
    kafka.clock.freeze()
    kafka.topic("orders", settings={"max.message.bytes": 100})
    with pytest.raises(KafkaError):
        kafka.produce("orders", b"x" * 200)
    kafka.clock.advance(seconds=1)
    with pytest.raises(KafkaError):
        kafka.produce("orders", b"x" * 200)
    (cause,) = kafka.why(topic="orders")
    assert (cause.kind, cause.times, cause.facts["error"]) == ("write refused", 2, "MESSAGE_TOO_LARGE")
    assert str(cause) == (
        f"{utc_ms(cause.time_ms)} A batch of 'ottla.testing' at this broker for orders-0 was refused with"
        " MESSAGE_TOO_LARGE: A batch of 270 bytes exceeds the maximum configured value of 100"
        f" (2 times until {utc_ms(cause.time_ms + 1000)})."
    )
    assert "MESSAGE_TOO_LARGE" in kafka.why() and "NOT_LEADER" not in kafka.why()
    assert not kafka.why(topic="other") and not kafka.why(kind="rebalance") and kafka.why(kind="write refused")
    kafka.clock.speed(1)


def test_a_kind_that_there_is_not(kafka: Kafka) -> None:
    with pytest.raises(LabError, match="There is no kind of causes named 'rebalnce'; did you mean 'rebalance'?"):
        kafka.why(kind="rebalnce")


def test_causes_of_a_cluster_name_brokers_and_outlive_them() -> None:
    with Kafka(brokers=2) as kafka:
        kafka.topic("orders", partitions=2, replication_factor=2)
        kafka.broker(2).kill()
        kafka.clock.advance(seconds=60)
        kafka.broker(1).kill()
        assert "broker 1: " in str(kafka.why(kind="leader change"))
        assert "changed from broker 2 to 1" in kafka.why()


def test_the_report_of_a_failing_test_has_the_last_causes(kafka: Kafka) -> None:
    assert kafka.report() == ""
    for number in range(40):
        kafka.call(_note, kafka, "rebalance", f"cause {number}", {})
    told = kafka.report().splitlines()
    assert len(told) == 30 and told[-1].endswith("Z Cause 39.")
    kafka.close()
    assert kafka.report() == ""


# ---------------------------------------------------------------------- offsets


def test_an_offset_that_is_there_or_not_yet_written(kafka: Kafka) -> None:
    kafka.topic("orders")
    (record,) = kafka.produce("orders", "value", key="key")
    assert fate(kafka, 0) == (
        "there",
        (
            f"Offset 0 of orders-0 is there: a record with a key of 3 bytes and a value of 5 bytes, of"
            f" {utc_ms(record.timestamp)}, in the batch of offsets 0 to 0."
        ),
    )
    assert fate(kafka, 1) == ("unwritten", "Offset 1 of orders-0 is not written yet: the next record gets offset 1.")
    assert str(kafka.why("orders", 3, 0)) == "Topic orders has 1 partition, from 0 to 0."
    with pytest.raises(LabError, match="both numbers begin at 0"):
        kafka.why("orders", 0, -1)


def test_a_topic_that_is_deleted(kafka: Kafka) -> None:
    assert fate(kafka, 0) == ("no topic", "There is no topic orders.")
    kafka.topic("orders")
    kafka.clock.freeze()
    kafka.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name="orders", topic_id=bytes(16))], timeout_ms=1000))
    deleted = f"There is no topic orders. It was deleted at {utc_ms(kafka.clock.now_ms)}."
    assert fate(kafka, 0) == ("no topic", deleted)
    kafka.clock.speed(1)


def test_a_record_that_retention_has_removed(kafka: Kafka) -> None:
    kafka.topic("orders", settings={"retention.ms": 60_000, "segment.ms": 1000})
    kafka.produce("orders", "a", "b")
    kafka.clock.advance(minutes=10)
    state, text = fate(kafka, 1)
    assert state == "removed"
    assert text.startswith("Offset 1 of orders-0 is not there any more: the log begins at offset 2. At 2")
    assert "Z retention.ms=60000 removed 2 records of orders-0, offsets 0 to 1, of " in text


def test_a_record_that_somebody_has_deleted(kafka: Kafka) -> None:
    kafka.topic("orders")
    kafka.produce("orders", "a", "b")
    partitions = [DeleteRecordsPartition(partition_index=0, offset=1)]
    kafka.ask(DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="orders", partitions=partitions)], timeout_ms=1000))
    assert "DeleteRecords removed 1 record of orders-0, offsets 0 to 0" in fate(kafka, 0)[1]


def test_a_transaction_that_is_open_committed_or_aborted(kafka: Kafka) -> None:
    kafka.topic("orders")
    first, second = Producer(kafka, "one"), Producer(kafka, "two")
    first.write(b"a")
    second.write(b"b")
    kafka.produce("orders", "plain")
    state, text = fate(kafka, 0)
    assert state == "open" and "The transaction is open since offset 0, with its last record at " in text
    assert text.endswith("consumers with read_committed do not see the record yet. Its transactional id is 'one'.")
    assert fate(kafka, 2)[1].endswith(
        "Consumers with read_committed wait at offset 0, the last stable offset, where a transaction of producer"
        f" {first.identity[0]} is open."
    )
    first.end(commit=True)
    second.end(commit=False)
    assert fate(kafka, 0)[0] == "there" and ", by the marker at offset 3. Its transactional id" in fate(kafka, 0)[1]
    state, text = fate(kafka, 1)
    assert (
        state == "aborted" and "by the marker at offset 4: consumers with read_committed leave the record out" in text
    )
    state, text = fate(kafka, 4)
    assert state == "marker" and "it is the marker that aborts a transaction of producer" in text


def test_a_record_that_is_compacted_away(kafka: Kafka) -> None:
    compacted = {
        "cleanup.policy": "compact",
        "segment.ms": 1000,
        "min.cleanable.dirty.ratio": 0.01,
        "max.compaction.lag.ms": 1000,
    }
    kafka.topic("orders", settings=compacted)
    kafka.produce("orders", "a", key="k")
    kafka.produce("orders", "b", key="other")
    kafka.produce("orders", "c", key="k")
    assert fate(kafka, 0)[1].endswith(
        "Its key has a newer record at offset 2, so that compaction will remove this one."
    )
    for _ in range(20):
        kafka.clock.advance(minutes=1)
        kafka.produce("orders", "d", key="k")
        if fate(kafka, 0)[0] == "compacted":
            break
    state, text = fate(kafka, 0)
    assert state == "compacted" and "Compaction removed it: a newer record of its key is in the log" in text


def test_a_record_that_replicas_have_not_confirmed() -> None:
    with Kafka(brokers=2) as kafka:
        kafka.topic("orders", replication_factor=2)
        kafka.produce("orders", "a")
        leader = kafka.partition("orders").leader
        kafka.clock.freeze()
        kafka.broker(3 - leader).isolate(from_=leader)
        kafka.produce("orders", "b", acks=1)
        assert fate(kafka, 1) == (
            "uncommitted",
            (
                "Offset 1 of orders-0 is in the leader's log, and consumers do not see it yet: the high watermark is 1, so"
                " that not all replicas in sync have confirmed it."
            ),
        )
        kafka.clock.speed(1)


# ---------------------------------------------------------------------- with the wire tap


class Seen:
    """A request in the tap, as `why` reads it."""

    def __init__(self, api: str, time_ms: int, *, member: str = "", errors: tuple[str, ...] = ()) -> None:
        self.api, self.time, self.errors = api, time_ms / 1000, errors
        self.groups, self.client_id, self.peer, self.node_id = ("g",), "billing", "127.0.0.1:5", 0
        self.request = type("Request", (), {"member_id": member})()


class FakeWire:
    def __init__(self, *seen: Seen) -> None:
        self.seen = seen

    def requests(self, **conditions: Any) -> list[Seen]:
        return [each for each in self.seen if conditions.get("client_id") in (None, each.client_id)]


def test_the_last_requests_of_a_member_are_told(kafka: Kafka) -> None:
    kafka.clock.freeze()
    now_ms = kafka.clock.now_ms
    facts = {"group": "g", "member": "m", "client_id": "billing"}
    kafka.call(_note, kafka, "member removed", "member 'm' of group 'g' was removed", facts)
    wire: Any = FakeWire(
        Seen("Fetch", now_ms - 14_000),
        Seen("Heartbeat", now_ms - 12_000, member="other"),
        Seen("JoinGroup", now_ms - 10_000, member="m"),
        Seen("Heartbeat", now_ms + 1_000, member="m"),
    )
    (cause,) = why(kafka, wire, {"group": "g"})
    assert cause.sentence == (
        "Member 'm' of group 'g' was removed. Its last request to the coordinator was a JoinGroup, 10 s before."
        " Its client last fetched 14 s before."
    )
    kafka.clock.speed(1)


async def _note(kafka: Kafka, kind: str, cause: str, facts: dict[str, Any]) -> None:
    kafka.world.any_node().serving().happenings.note(kind, cause, **facts)


def test_requests_that_have_to_be_sent_again_are_told(kafka: Kafka) -> None:
    wire: Any = FakeWire(
        Seen("Produce", 1_000, errors=("NOT_LEADER_OR_FOLLOWER",)),
        Seen("Fetch", 1_050, errors=("OFFSET_OUT_OF_RANGE",)),
        Seen("Produce", 1_100, errors=("NOT_LEADER_OR_FOLLOWER",)),
        Seen("Produce", 3_500),
        Seen("Metadata", 4_000, errors=("LEADER_NOT_AVAILABLE",)),
    )
    assert [each.sentence for each in why(kafka, wire, {})] == [
        (
            "'billing' at 127.0.0.1:5 was answered 2 times with NOT_LEADER_OR_FOLLOWER, after which Produce has to be sent"
            " again; it went well 2.5 s later."
        ),
        "'billing' at 127.0.0.1:5 was answered once with LEADER_NOT_AVAILABLE, after which Metadata has to be sent again.",
    ]
    assert not why(kafka, wire, {"client_id": "other"}) and not why(kafka, wire, {"group": "g"})


def test_a_real_tap_has_what_is_asked_of_it(kafka: Kafka) -> None:
    assert len(why(kafka, Wire(), {})) == 0
