"""librdkafka's idempotent producer is refused again and again for a moment, with several requests under way."""

import logging

import pytest

pytest.importorskip("confluent_kafka")
from compat_tests.support.refusing import RefusingProcess
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

RECORDS, PARTITIONS = 2000, 2


class Listening(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())

    def having(self, words: str) -> list[str]:
        return [line for line in self.lines if words in line]


@pytest.fixture
def broker(tmp_path):
    process = RefusingProcess(tmp_path, {"auto.create.topics.enable": "false"})
    yield process.start()
    process.stop()


def read_all(bootstrap, topic):
    settings = {"bootstrap.servers": bootstrap, "group.id": "unused", "enable.partition.eof": True}
    consumer, found, open_partitions = Consumer(settings), {}, set(range(PARTITIONS))
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    while open_partitions:
        for message in consumer.consume(500, timeout=1):
            if message.error():
                open_partitions.discard(message.partition())
            else:
                found.setdefault(message.partition(), []).append(int(message.value()))
    consumer.close()
    return found


@pytest.mark.parametrize("compression", ["none", "lz4"])
def test_a_pipelined_producer_keeps_its_epoch_and_every_record_is_there_once(broker, compression):
    topic = f"refused-{compression}"
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1, config={"flush.messages": "1"})])[topic].result(60)
    listening, logger = Listening(), logging.getLogger(f"refused.{compression}")
    logger.setLevel(logging.DEBUG)
    logger.propagate = False
    logger.addHandler(listening)
    settings = {
        "bootstrap.servers": broker.bootstrap,
        "enable.idempotence": True,
        "linger.ms": 1,
        "batch.num.messages": 20,  # at least a hundred requests, however fast they are answered
        "compression.type": compression,
        "retry.backoff.ms": 5,
        "retry.backoff.max.ms": 10,
        "debug": "eos,msg",
    }
    delivered, failed = [], []
    producer = Producer(settings, logger=logger)
    for number in range(RECORDS):
        producer.produce(
            topic,
            str(number).encode(),
            partition=number % PARTITIONS,
            on_delivery=lambda error, message: failed.append(error) if error else delivered.append(message),
        )
        producer.poll(0.001)
    assert producer.flush(60) == 0
    assert failed == []
    assert len(delivered) == RECORDS
    assert listening.having("NOT_ENOUGH_REPLICAS") or listening.having("Not enough in-sync replicas")
    assert listening.having("disk") or listening.having("KAFKA_STORAGE_ERROR")
    assert listening.having("epoch bump") == []
    assert listening.having("skipped sequence numbers") == []
    expected = {partition: list(range(partition, RECORDS, PARTITIONS)) for partition in range(PARTITIONS)}
    assert read_all(broker.bootstrap, topic) == expected
