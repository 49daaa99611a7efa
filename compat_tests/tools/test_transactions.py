"""kafka-transactions: what it lists and describes, and how it finds and ends a transaction that hangs."""

import time
from contextlib import suppress

import pytest
from compat_tests.support.brokers import wait_until
from compat_tests.support.wire_client import WireClient
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from ottla.wire.messages.alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalConfig,
    IncrementalConfigsResource,
)
from ottla.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.messages.producer_ids import InitProducerIdRequest
from ottla.wire.record_encoding import encode_batch
from ottla.wire.records import Record

COMMAND = "TransactionsCommand"
VERIFICATION = "transaction.partition.verification.enable"
ALL_BROKERS = 4, ""
HOUR_MS = 3_600_000
OF_THE_MOMENT = {
    "ProducerId",
    "LastTimestamp",
    "Duration(min)",
    "CurrentTransactionStartTimeMs",
    "TransactionDurationMs",
}
UNVERIFIED_VERSION = 11  # of Produce: a client that should have added its partitions before


def client(servers: str) -> WireClient:
    host, _, port = servers.partition(":")
    return WireClient((host, int(port)), client_id="tools")


def set_verification(connection: WireClient, enabled: bool) -> None:
    kind, name = ALL_BROKERS
    config = IncrementalConfig(name=VERIFICATION, config_operation=0, value=str(enabled).lower())
    resource = IncrementalConfigsResource(resource_type=kind, resource_name=name, configs=[config])
    answer = connection.ask(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False), 1)
    assert answer.responses[0].error_code == 0, answer


def leave_hanging(connection: WireClient, topic: str, name: str) -> None:
    """Records of a transaction that its coordinator knows nothing of, an hour old."""
    asked = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)
    answers = []

    def is_coordinated() -> bool:
        answers[:] = [connection.ask(asked, 4)]
        return answers[0].error_code == 0

    wait_until(is_coordinated, "the producer has an id")
    producer = answers[0]
    batch = encode_batch(
        [Record(0, int(time.time() * 1000) - HOUR_MS, None, b"hanging")],
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        base_sequence=0,
        is_transactional=True,
    )
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=batch)])
    request = ProduceRequest(transactional_id=name, acks=-1, timeout_ms=10_000, topic_data=[data])

    def is_written() -> bool:
        answer = connection.ask(request, UNVERIFIED_VERSION)
        return answer.responses[0].partition_responses[0].error_code == 0

    wait_until(is_written, "the setting is in force")


def stable_end(connection: WireClient, topic: str) -> int:
    topics = [ListOffsetsTopic(name=topic, partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])]
    answer = connection.ask(ListOffsetsRequest(replica_id=-1, isolation_level=1, topics=topics), 7)
    return answer.topics[0].partitions[0].offset


@pytest.fixture
def hanging(brokers, both_topic, unique):
    """A topic in which a transaction hangs."""
    topic, name = both_topic(), unique("transaction")
    for servers in brokers:
        Producer({"bootstrap.servers": servers, "transactional.id": unique("first")}).init_transactions(60)
        with client(servers) as connection:
            set_verification(connection, False)
            try:
                leave_hanging(connection, topic, name)
            finally:
                set_verification(connection, True)
            assert stable_end(connection, topic) == 0
    return topic


def table(printed: str) -> str:
    """A table without the columns that depend on the moment and on who was there before."""
    if not printed:
        return ""
    head, *lines = [[each.strip() for each in line.split("\t")] for line in printed.splitlines()]
    rows = [dict(zip(head, line, strict=True)) for line in lines]
    for row in rows:
        for column in OF_THE_MOMENT & row.keys():
            row[column] = f"<{column}>" if row[column].isdigit() else row[column]
        if "TopicPartitions" in row:
            row["TopicPartitions"] = ",".join(sorted(row["TopicPartitions"].split(",")))
    return "\n".join([" ".join(head), *(" ".join(row.values()) for row in rows)])


def test_a_hanging_transaction_is_found_and_ended(beside, brokers, hanging):
    def ask(*command: str) -> str:
        return beside(COMMAND, *command, arrange=table).fine()

    found = ask("find-hanging", "--topic", hanging)
    assert f"\n{hanging} 0 <ProducerId> 0 -1 0 " in found
    assert ask("find-hanging", "--topic", hanging, "--partition", "0", "--max-transaction-timeout", "30") == found
    assert hanging not in ask("find-hanging", "--topic", hanging, "--max-transaction-timeout", "90")
    place = ("--topic", hanging, "--partition", "0")
    assert ask("describe-producers", *place).endswith("\n<ProducerId> 0 -1 0 <LastTimestamp> 0 ")
    assert beside(COMMAND, "abort", *place, "--start-offset", "7").status != 0
    assert beside(COMMAND, "abort", *place, "--start-offset", "0").fine() == ""
    assert hanging not in ask("find-hanging", "--topic", hanging)
    assert ask("describe-producers", *place).endswith(" None ")
    for servers in brokers:
        with client(servers) as connection:
            assert stable_end(connection, hanging) == 2


@pytest.fixture
def open_transaction(brokers, both_topic, unique):
    """A transaction that has written into both partitions of a topic and goes on."""
    topic, name, producers = both_topic(partitions=2), unique("transaction"), []
    for servers in brokers:
        producer = Producer({"bootstrap.servers": servers, "transactional.id": name, "transaction.timeout.ms": 600_000})
        producer.init_transactions(60)
        producer.begin_transaction()
        for partition in range(2):
            producer.produce(topic, b"value", partition=partition)
        assert producer.flush(60) == 0
        producers.append(producer)
    yield topic, name, producers
    for producer in producers:
        with suppress(KafkaException):  # it may have been ended already
            producer.abort_transaction(60)


def test_an_open_transaction_is_listed_and_described(beside, open_transaction):
    topic, name, _ = open_transaction

    def own(printed: str) -> str:
        """Other tests may have transactions, too."""
        return "\n".join(line for line in table(printed).splitlines() if name in line)

    listed = f"{name} 0 <ProducerId> Ongoing "
    assert beside(COMMAND, "list", arrange=own).fine() == listed
    assert beside(COMMAND, "list", "--duration-filter", "3600000", arrange=own).fine() == ""
    said = beside(COMMAND, "describe", "--transactional-id", name, arrange=table).fine()
    assert " Ongoing 600000 " in said and f" {topic}-0,{topic}-1 " in said
    assert beside(COMMAND, "describe", "--transactional-id", f"{name}-unknown").status != 0
    # Its coordinator knows it, so it does not hang.
    assert topic not in beside(COMMAND, "find-hanging", "--topic", topic, "--max-transaction-timeout", "0").fine()


def test_a_transaction_is_ended_by_force(beside, brokers, open_transaction):
    topic, name, producers = open_transaction
    assert beside(COMMAND, "forceTerminateTransaction", "--transactionalId", name, timings=r"\d+").status == 0
    for servers in brokers:
        consumer = Consumer({"bootstrap.servers": servers, "group.id": "none", "isolation.level": "read_committed"})
        try:
            wait_until(
                lambda: consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=60)[1] == 2,  # noqa: B023
                "the marker is written",
            )
        finally:
            consumer.close()
    for producer in producers:
        with pytest.raises(KafkaException):
            producer.commit_transaction(60)
