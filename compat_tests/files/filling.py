"""Puts into a broker what a data directory can hold: see `fill`."""

import random
import subprocess
import time
from pathlib import Path
from typing import NamedTuple

from compat_tests.files.portrait import Asker
from compat_tests.support.brokers import BrokerProcess, wait_until
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.wire.messages.delete_topics import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from ottla.wire.messages.offsets import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.messages.producer_ids import InitProducerIdRequest
from ottla.wire.record_encoding import encode_batch
from ottla.wire.records import Record

SEGMENT = {"segment.bytes": str(1 << 20), "index.interval.bytes": "2000"}  # the smallest that Kafka 4 allows
KEEP = {"retention.ms": "-1"}
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
TOPICS = {"segments": 2, "codecs": 1, "compacted": 1, "headless": 1, "sequences": 1, "transactions": 1, "empty": 1}
CONFIGS = {
    "segments": SEGMENT | KEEP,
    "codecs": KEEP | {"compression.type": "producer", "max.message.bytes": "2000000"},
    "compacted": SEGMENT | {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"},
    "headless": SEGMENT | KEEP,
    "sequences": KEEP,
    "transactions": SEGMENT | KEEP,
    "empty": {"cleanup.policy": "compact,delete", "retention.ms": "1000"},
}
GROUPS = ("simple", "classic")
COMPACTED_RECORDS = 600


class Known(NamedTuple):
    """The producer that wrote to "sequences": what it would send next, and what it sent last and where that is."""

    producer_id: int
    next_sequence: int
    last_sequence: int
    last_offset: int


def fill(broker: BrokerProcess, transactions: list[str] | None) -> Known:
    """Writes to topics with several segments, all codecs, compaction, a deleted head and sequences, with the command
    `transactions` also those; deletes a topic; commits offsets of a group with members and of one without."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    # Records of long ago, which retention would take.
    new = [NewTopic(name, count, 1, config=CONFIGS[name]) for name, count in TOPICS.items()]
    for created in admin.create_topics([*new, NewTopic("gone", 3, 1)]).values():
        created.result(60)
    wait_until(lambda: TOPICS.keys() <= admin.list_topics(timeout=60).topics.keys(), "the topics are known")
    write_segments(broker.bootstrap)
    write_codecs(broker.bootstrap)
    write_compacted(broker.bootstrap)
    if transactions is not None:
        write_transactions(broker.bootstrap, transactions, "4", "40000")
    commit_offsets(broker.bootstrap)
    with Asker((broker.host, broker.port)) as asker:
        delete_head(asker, broker.bootstrap)
        commit_without_members(asker)
        known = write_sequences(asker)
    for deleted in admin.delete_topics(["gone"]).values():
        deleted.result(60)
    wait_until(lambda: is_compacted(broker.data_dir), "the cleaner has compacted what it can")
    return known


def produce(bootstrap: str, records: list[tuple[str, bytes, bytes, int]], **settings: object) -> None:
    """Writes (topic, key, value, timestamp) to partition 0, each as a batch of its own unless the settings say otherwise."""
    alone = {"batch.num.messages": 1, "linger.ms": 0}
    producer = Producer({"bootstrap.servers": bootstrap, **alone, **settings})
    for topic, key, value, timestamp in records:
        producer.produce(topic, value, key, partition=0, timestamp=timestamp)
    assert producer.flush(60) == 0


def write_segments(bootstrap: str, start: int = 0) -> None:
    noise = random.Random(start)
    records = [("segments", b"%d" % i, noise.randbytes(9000), 1_000_000 + 10 * i) for i in range(start, start + 300)]
    produce(bootstrap, records)
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20})
    for i in range(500):
        producer.produce("segments", b"small %d" % i, partition=1, timestamp=2_000_000 - i)
    assert producer.flush(60) == 0


def write_codecs(bootstrap: str) -> None:
    """Batches of ten records at most, three or four of each codec: where they begin is the client's."""
    for codec in CODECS:
        records = [("codecs", b"key", b"%s %d " % (codec.encode(), i) * 50, 3_000_000 + i) for i in range(30)]
        settings = {"compression.type": codec, "batch.num.messages": 10, "linger.ms": 60_000}
        produce(bootstrap, records, **settings)


def write_compacted(bootstrap: str) -> None:
    """Of the first keys there is one record each: Kafka finds no offset by time behind a segment that is left empty."""
    values, now_ms = random.Random(1), time.time_ns() // 1_000_000
    keys = [b"only %d" % i if i < 5 else b"%d" % (i % 50) for i in range(COMPACTED_RECORDS)]
    records = [("compacted", key, values.randbytes(5000), now_ms + i) for i, key in enumerate(keys)]
    produce(bootstrap, records, **{"enable.idempotence": True})


def is_compacted(data_dir: Path) -> bool:
    """Whether the cleaner notes that it has come to the active segment."""
    checkpoint = data_dir / "cleaner-offset-checkpoint"
    lines = checkpoint.read_text().splitlines() if checkpoint.exists() else []
    active = max(int(path.stem) for path in (data_dir / "compacted-0").glob("*.log"))
    return f"compacted 0 {active}" in lines


def write_transactions(bootstrap: str, transactions: list[str], *arguments: str) -> None:
    command = [*transactions, bootstrap, "transactions", *arguments]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr[-4000:]


def commit_offsets(bootstrap: str) -> None:
    """A consumer that reads, and another in a group's generation that only commits."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "classic", "auto.offset.reset": "earliest"})
    consumer.subscribe(["codecs"])
    assert len(consumer.consume(20, timeout=60)) == 20
    consumer.commit(asynchronous=False)
    consumer.commit(offsets=[TopicPartition("segments", 1, 77, "note")], asynchronous=False)
    consumer.close()


def commit_as_a_new_consumer(bootstrap: str) -> None:
    """In a group of KIP-848, which has its own records beside those of the offsets."""
    settings = {"group.id": "new", "group.protocol": "consumer", "auto.offset.reset": "earliest"}
    consumer = Consumer({"bootstrap.servers": bootstrap, **settings})
    consumer.subscribe(["codecs"])
    assert len(consumer.consume(30, timeout=60)) == 30
    consumer.commit(asynchronous=False)
    consumer.close()


def commit_without_members(asker: Asker) -> None:
    part = OffsetCommitRequestPartition(
        partition_index=0, committed_offset=42, committed_leader_epoch=0, committed_metadata="by hand"
    )
    topics = [OffsetCommitRequestTopic(name=name, partitions=[part]) for name in ("segments", "headless")]
    request = OffsetCommitRequest(group_id="simple", member_id="", topics=topics)

    def is_committed() -> bool:
        answer = asker.ask(request)
        return all(partition.error_code == 0 for topic in answer.topics for partition in topic.partitions)

    wait_until(is_committed, "the offsets are committed")


def delete_head(asker: Asker, bootstrap: str) -> None:
    """Of several segments the first goes, and of the next one half."""
    noise = random.Random(2)
    produce(bootstrap, [("headless", b"", noise.randbytes(20_000), 5_000_000 + i) for i in range(120)])
    part = DeleteRecordsPartition(partition_index=0, offset=70)
    request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="headless", partitions=[part])], timeout_ms=10_000)
    assert asker.ask(request).topics[0].partitions[0].low_watermark == 70


def write_sequences(asker: Asker) -> Known:
    """Three batches of a producer, of two records each."""
    asked = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
    wait_until(lambda: asker.ask(asked).error_code == 0, "producer ids are given out")
    producer_id = asker.ask(asked).producer_id
    for sequence in (0, 2, 4):
        code, offset = send_sequence(asker, producer_id, sequence)
        assert code == 0
    return Known(producer_id, 6, 4, offset)


def send_sequence(asker: Asker, producer_id: int, sequence: int) -> tuple[int, int]:
    """The error code and the base offset that a batch of two records gets."""
    now_ms = time.time_ns() // 1_000_000  # long ago would mean that the producer is forgotten
    records = [Record(0, now_ms, b"key", b"value %d" % (sequence + i)) for i in range(2)]
    batch = encode_batch(records, producer_id=producer_id, producer_epoch=0, base_sequence=sequence)
    data = TopicProduceData(
        name="sequences", partition_data=[PartitionProduceData(index=0, records=memoryview(bytearray(batch)))]
    )
    answer = asker.ask(ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[data]))
    (found,) = answer.responses[0].partition_responses
    return int(found.error_code), int(found.base_offset)
