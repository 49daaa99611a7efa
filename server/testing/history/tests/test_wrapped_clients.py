"""Clients of other libraries that note what they do, with a broker in this process."""

import asyncio
import contextlib
import json
import threading
import time
from typing import Any

import pytest

from ottla.server.testing.errors import LabError
from ottla.server.testing.history.history import Acknowledged, Failed, OffsetCommitted, Read, ReadBegan, Sent
from ottla.server.testing.history.narration import FinalRead
from ottla.server.testing.history.rules import Rule
from ottla.server.testing.history.wrapping import History
from ottla.server.testing.kafka import Kafka
from ottla.wire.errors import KafkaError

COUNT = 10
PATIENCE_S = 20


@pytest.fixture
def kafka(kafka: Kafka) -> Kafka:
    kafka.topic("orders", partitions=2)
    return kafka


def kinds(history: History) -> dict[str, int]:
    """Count what was noted by its kind; each record of an answer counts."""
    found: dict[str, int] = {}
    for _, kind, fields in history._notes:
        found[kind.__name__] = found.get(kind.__name__, 0) + (len(fields[3]) if kind is Read else 1)
    return found


def read_all(poll: Any, count: int) -> list[Any]:
    found: list[Any] = []
    end = time.monotonic() + PATIENCE_S
    while len(found) < count and time.monotonic() < end:
        found += poll()
    return found


@pytest.mark.filterwarnings("ignore:.*does not implement kafka.serializer:DeprecationWarning")
def test_kafka_python(kafka: Kafka) -> None:
    library = pytest.importorskip("kafka")
    history = kafka.history
    servers = {"bootstrap_servers": kafka.bootstrap}
    producer = history.producer(
        library.KafkaProducer(**servers, value_serializer=lambda value: json.dumps(value).encode(), linger_ms=2)
    )
    futures = [producer.send("orders", {"n": number % 3}, key=b"%d" % number) for number in range(COUNT)]
    producer.flush()
    assert [each.get(PATIENCE_S).offset >= 0 for each in futures] == [True] * COUNT
    with pytest.raises(TypeError):
        producer.send("orders", object())
    settings = {"group_id": "g", "auto_offset_reset": "earliest", "enable_auto_commit": False}
    consumer = history.consumer(library.KafkaConsumer(**servers, **settings, value_deserializer=json.loads))
    with contextlib.closing(producer), contextlib.closing(consumer):
        # A leader that does not know the partitions yet joins twice, and a short poll may forget the second join.
        assert consumer.partitions_for_topic("orders")
        consumer.subscribe(["orders"])
        found = read_all(lambda: [each for part in consumer.poll(100).values() for each in part], COUNT)
        assert sorted(each.value["n"] for each in found) == sorted(number % 3 for number in range(COUNT))
        consumer.commit()
        place = library.TopicPartition("orders", 0)
        consumer.seek(place, 0)
        again = read_all(lambda: [each for part in consumer.poll(100).values() for each in part], 1)
        assert again[0].offset == 0 and consumer.position(place) > 0
    taken = kinds(history)
    assert (taken[Sent.__name__], taken[Acknowledged.__name__]) == (COUNT, COUNT)
    assert taken[Read.__name__] > COUNT and taken[OffsetCommitted.__name__] == 2 and taken[ReadBegan.__name__] >= 3
    history.check(all_producers=True)


def test_confluent_kafka(kafka: Kafka) -> None:
    library = pytest.importorskip("confluent_kafka")
    history = kafka.history
    settings = {"bootstrap.servers": kafka.bootstrap}
    producer = history.producer(library.Producer(settings | {"transactional.id": "t"}), idempotent=True)
    told: list[Any] = []
    producer.init_transactions()
    for number in range(4):
        producer.begin_transaction()
        for partition in (0, 1):
            producer.produce("orders", "the same", partition=partition, on_delivery=lambda *each: told.append(each))
        producer.flush(PATIENCE_S)  # librdkafka may not abort what it has not sent yet
        (producer.commit_transaction if number % 2 else producer.abort_transaction)()
    assert len(told) == 8
    consumer = history.consumer(
        library.Consumer(settings | {"group.id": "g", "auto.offset.reset": "earliest", "enable.auto.commit": False}),
        group="g",
    )
    assigned: list[Any] = []
    consumer.subscribe(["orders"], on_assign=lambda _, partitions: assigned.extend(partitions))
    found = read_all(lambda: [each for each in consumer.consume(10, timeout=0.1) if not each.error()], 4)
    assert [each.value() for each in found] == [b"the same"] * 4 and len(assigned) == 2
    consumer.commit(asynchronous=False)
    consumer.commit(message=found[-1])
    consumer.close()
    taken = kinds(history)
    assert (taken[Sent.__name__], taken[Read.__name__], taken[OffsetCommitted.__name__]) == (8, 4, 2)
    assert taken["Ended"] == 4
    history.check()


def test_confluent_kafka_with_serializers(kafka: Kafka) -> None:
    library = pytest.importorskip("confluent_kafka")
    from confluent_kafka.error import ValueSerializationError

    settings = {"bootstrap.servers": kafka.bootstrap}
    to_json = {
        f"{part}.serializer": lambda each, context: json.dumps([each, context.field]) for part in ("key", "value")
    }
    producer = kafka.history.producer(library.SerializingProducer(settings | to_json))
    told: list[Any] = []
    producer.produce("orders", "k", "v", 1, lambda *each: told.append(each))  # the key comes first here
    producer.produce("orders", value="w", partition=1)
    with pytest.raises(ValueSerializationError):
        producer.produce("orders", value=object())
    producer.flush(PATIENCE_S)
    assert len(told) == 1
    assert [(each.key, each.json()) for each in kafka.records("orders")] == [
        (b'["k", "key"]', ["v", "value"]),
        (b'[null, "key"]', ["w", "value"]),
    ]
    from_json = {"value.deserializer": lambda data, _: json.loads(data)[0]}
    options = {"group.id": "g", "auto.offset.reset": "earliest"}
    consumer = kafka.history.consumer(library.DeserializingConsumer(settings | options | from_json))
    consumer.subscribe(["orders"])
    assert [consumer.poll(PATIENCE_S).value() for _ in range(2)] == ["v", "w"]
    consumer.close()
    assert kinds(kafka.history)[Acknowledged.__name__] == 2
    kafka.history.check(all_producers=True)


def test_a_fenced_producer_of_confluent_kafka_gets_its_own_error(kafka: Kafka) -> None:
    library, told = pytest.importorskip("confluent_kafka"), []
    settings = {"bootstrap.servers": kafka.bootstrap, "transactional.id": "t"}
    producer = kafka.history.producer(library.Producer(settings), idempotent=True)
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce("orders", b"one", partition=0)
    producer.flush(PATIENCE_S)
    kafka.fence("t")
    producer.produce("orders", b"two", partition=0, on_delivery=lambda error, _: told.append(error.name()))
    with pytest.raises(library.KafkaException, match="fenced"):  # which a callback turns into a SystemError otherwise
        producer.flush(PATIENCE_S)
    # The library keeps the error for ever, and so this frame. The producer would look for its broker while other tests run.
    del producer
    assert len(told) == 1 and kinds(kafka.history)["Failed"] == 1
    kafka.history.check()


def test_aiokafka(kafka: Kafka) -> None:
    library = pytest.importorskip("aiokafka")
    history = kafka.history

    async def work() -> None:
        servers = {"bootstrap_servers": kafka.bootstrap}
        async with history.producer(library.AIOKafkaProducer(**servers, enable_idempotence=True)) as producer:
            await producer.send_and_wait("orders", b"one", partition=1)
            futures = [await producer.send("orders", b"%d" % number) for number in range(COUNT - 1)]
            await asyncio.gather(*futures)
        options = {"group_id": "g", "auto_offset_reset": "earliest", "enable_auto_commit": False}
        async with history.consumer(library.AIOKafkaConsumer("orders", **servers, **options)) as consumer:
            found = [await consumer.getone()]
            while len(found) < COUNT:
                found += [each for part in (await consumer.getmany(timeout_ms=100)).values() for each in part]
            await consumer.commit()
            consumer.seek(library.TopicPartition("orders", 1), 0)
            async for record in consumer:
                assert (record.partition, record.offset) == (1, 0)
                break
        async with history.producer(library.AIOKafkaProducer(**servers, transactional_id="t")) as producer:
            with pytest.raises(ValueError, match="changed my mind"):
                async with producer.transaction():
                    await producer.send_and_wait("orders", b"bad", partition=0)
                    raise ValueError("changed my mind")
            with pytest.raises(ValueError, match="fenced"):  # which aiokafka does not hide by an error of its abort
                async with producer.transaction():
                    kafka.fence("t")
                    with contextlib.suppress(library.errors.KafkaError):
                        await producer.send_and_wait("orders", b"too late", partition=0)
                    raise ValueError("fenced")

    asyncio.run(work())
    taken = kinds(history)
    assert (taken[Sent.__name__], taken[Acknowledged.__name__], taken["EndAsked"]) == (COUNT + 2, COUNT + 1, 1)
    assert taken[Read.__name__] > COUNT and taken[OffsetCommitted.__name__] == 2
    history.check(all_producers=True)


def delete_topic(kafka: Kafka, topic: str) -> None:
    admin = pytest.importorskip("confluent_kafka.admin").AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.delete_topics([topic])[topic].result(PATIENCE_S)
    until(lambda: topic not in kafka.topics())


def makes_topic(kafka: Kafka, topic: str) -> bool:
    """Make a topic; return False while the one of this name is being deleted."""
    try:
        kafka.topic(topic)
    except KafkaError:
        return False
    return True


def until(holds: Any) -> None:
    end = time.monotonic() + PATIENCE_S
    while not (has_held := holds()) and time.monotonic() < end:
        time.sleep(0.01)
    assert has_held


def test_records_and_offsets_of_a_topic_go_with_it(kafka: Kafka) -> None:
    library = pytest.importorskip("confluent_kafka")
    settings = {"bootstrap.servers": kafka.bootstrap, "group.id": "g"}
    consumer, place = library.Consumer(settings), library.TopicPartition("orders", 0, 1)
    for value, wrap in ((b"one", kafka.history.producer), (b"two", lambda client: client)):
        producer = wrap(library.Producer({"bootstrap.servers": kafka.bootstrap}))
        producer.produce("orders", value, partition=0)
        assert producer.flush(PATIENCE_S) == 0
        consumer.commit(offsets=[place], asynchronous=False)
        delete_topic(kafka, "orders")
        kafka.history.check()
        until(lambda: makes_topic(kafka, "orders"))
        assert consumer.committed([place], PATIENCE_S)[0].offset < 0
        kafka.history.check(all_producers=True)
    producer.produce("orders", b"three", partition=0)
    producer.flush(PATIENCE_S)
    (log, committed) = kafka.history._final_reads({"orders"})
    lost = [log._replace(records=[]), committed._replace(records=[])]
    assert {each.violation.rule for each in kafka.history.broken(lost)} == {Rule.LOST}
    consumer.close()


@pytest.mark.parametrize("how", ["expired", "deleted", "group deleted"])
def test_offsets_may_expire_or_be_deleted(kafka: Kafka, how: str) -> None:
    library = pytest.importorskip("confluent_kafka")
    settings = {"bootstrap.servers": kafka.bootstrap, "group.id": "g"}
    consumer, place = library.Consumer(settings), library.TopicPartition("orders", 0, 1)
    consumer.commit(offsets=[place], asynchronous=False)
    consumer.close()
    if how == "expired":
        kafka.clock.advance(days=8)
    elif how == "deleted":
        client = pytest.importorskip("kafka")
        with contextlib.closing(client.KafkaAdminClient(bootstrap_servers=kafka.bootstrap)) as admin:
            admin.delete_group_offsets("g", [client.TopicPartition("orders", 0)])
    else:
        admin = pytest.importorskip("confluent_kafka.admin").AdminClient({"bootstrap.servers": kafka.bootstrap})
        admin.delete_consumer_groups(["g"])["g"].result(PATIENCE_S)
    consumer = library.Consumer(settings)
    assert consumer.committed([place], PATIENCE_S)[0].offset < 0
    kafka.history.check()
    consumer.close()


def test_commits_under_way_together_may_come_in_any_order(kafka: Kafka) -> None:
    library = pytest.importorskip("confluent_kafka")
    settings = {"bootstrap.servers": kafka.bootstrap, "group.id": "g"}
    first, second = library.Consumer(settings), library.Consumer(settings)
    kafka.on("OffsetCommit").delay(20)
    first.commit(offsets=[library.TopicPartition("orders", 0, 5)])
    until(lambda: kafka.wire.requests("OffsetCommit"))
    second.commit(offsets=[library.TopicPartition("orders", 0, 9)], asynchronous=False)
    kafka.clock.advance(seconds=25)
    until(lambda: all(each.response for each in kafka.wire.requests("OffsetCommit")))
    with contextlib.closing(first), contextlib.closing(second):
        assert second.committed([library.TopicPartition("orders", 0)], PATIENCE_S)[0].offset == 9
    kafka.history.check()


def test_an_offset_may_be_fetched_before_a_commit_and_told_after_it(kafka: Kafka) -> None:
    library = pytest.importorskip("confluent_kafka")
    settings = {"bootstrap.servers": kafka.bootstrap, "group.id": "g"}
    place, told = library.TopicPartition("orders", 0), []
    with (
        contextlib.closing(library.Consumer(settings)) as first,
        contextlib.closing(library.Consumer(settings)) as second,
    ):
        first.commit(offsets=[library.TopicPartition("orders", 0, 5)], asynchronous=False)
        kafka.on("OffsetFetch").delay(20)
        asking = threading.Thread(target=lambda: told.append(first.committed([place], PATIENCE_S)[0].offset))
        asking.start()
        until(lambda: kafka.wire.requests("OffsetFetch"))
        second.commit(offsets=[library.TopicPartition("orders", 0, 9)], asynchronous=False)
        kafka.clock.advance(seconds=25)
        asking.join(PATIENCE_S)
    assert told == [5]
    kafka.history.check()


def test_a_transaction_may_be_open(kafka: Kafka) -> None:
    library = pytest.importorskip("confluent_kafka")
    settings = {"bootstrap.servers": kafka.bootstrap}
    producer = library.Producer(settings | {"transactional.id": "t"})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce("orders", b"open", partition=0)
    producer.flush(PATIENCE_S)
    other = library.Producer(settings)
    other.produce("orders", b"behind it", partition=0)
    other.flush(PATIENCE_S)
    kafka.history.check()
    producer.commit_transaction()
    kafka.history.check()


def test_a_partition_whose_transaction_hangs_is_found(kafka: Kafka) -> None:
    test_a_transaction_may_be_open(kafka)
    until(lambda: kafka.transactions()["t"].state == "CompleteCommit")
    log, committed, *_ = kafka.history._final_reads({"orders"})
    hanging = committed._replace(records=[], end=0)
    assert {each.violation.rule for each in kafka.history.broken([log, hanging])} == {Rule.UNREAD}


def test_clients_may_go_on_while_a_history_is_checked(kafka: Kafka) -> None:
    library = pytest.importorskip("confluent_kafka")
    producer, is_over = (
        kafka.history.producer(library.Producer({"bootstrap.servers": kafka.bootstrap})),
        threading.Event(),
    )

    def work() -> None:
        for number in range(3000):
            producer.produce("orders", b"%d" % number, partition=number % 2)
            if number % 50 == 0:
                producer.flush(PATIENCE_S)
        is_over.set()

    working = threading.Thread(target=work)
    working.start()
    try:
        while not is_over.is_set():
            kafka.history.check(all_producers=True)
    finally:
        working.join(PATIENCE_S)


def test_a_lab_that_loses_a_record_is_found_out(kafka: Kafka) -> None:
    library = pytest.importorskip("confluent_kafka")
    producer = kafka.history.producer(library.Producer({"bootstrap.servers": kafka.bootstrap}))
    before = kafka.snapshot()
    producer.produce("orders", b"one", partition=0)
    producer.flush(10)
    kafka.history.check()
    kept = kafka.history
    kafka.restore(before)
    assert {each.violation.rule for each in kept.broken()} == {Rule.LOST}
    assert len(kafka.history) == 0


def test_a_record_of_any_client_is_missed_by_its_requests(kafka: Kafka) -> None:
    library = pytest.importorskip("confluent_kafka")
    producer = library.Producer({"bootstrap.servers": kafka.bootstrap})
    before, history = kafka.snapshot(), kafka.history
    producer.produce("orders", b"one", partition=0)
    producer.flush(PATIENCE_S)
    history.check()
    kafka.restore(before)
    assert {each.violation.rule for each in history.broken()} == {Rule.LOST}
    kafka.history.check()


def test_what_is_no_client_is_refused() -> None:
    for wrap in (History().producer, History().consumer):
        with pytest.raises(LabError, match="of kafka-python, aiokafka or confluent-kafka is wanted, not 7"):
            wrap(7)


class _Record:
    """A record of kafka-python."""

    topic, partition = "orders", 0

    def __init__(self, offset: int) -> None:
        self.offset, self.value = offset, b"%d" % offset


class _Broken:
    """A consumer and a producer of kafka-python that do what they must not."""

    def __init__(self, group_id: str | None, generation_id: int | None = None) -> None:
        self.config = {"group_id": group_id, "isolation_level": "read_uncommitted"}
        self.generation_id = generation_id
        if generation_id is not None:
            self.group_metadata = lambda: self

    def poll(self, offset: int) -> dict[Any, list[_Record]]:
        return {_Record(offset): [_Record(offset)]}

    def seek(self) -> None:
        """Makes it a consumer."""

    def flush(self) -> None:
        """Makes it a producer."""

    def send(self, topic: str, **options: Any) -> Any:
        raise ValueError("too large")


@pytest.mark.parametrize(
    ("group", "generation", "is_broken"), [(None, None, True), ("g", None, False), ("g", 1, True), ("g", 2, False)]
)
def test_a_step_back_is_a_fault_unless_the_group_may_have_assigned_anew(
    group: str | None, generation: int | None, *, is_broken: bool
) -> None:
    history, client = History(), _Broken(group, None if generation is None else 1)
    consumer = history.consumer(client)
    consumer.poll(5)
    client.generation_id = generation
    consumer.poll(4)
    assert {each.violation.rule for each in history.broken()} == ({Rule.BACKWARDS} if is_broken else set())


@pytest.mark.parametrize(("generation", "is_broken"), [(None, False), (1, True), (2, False)])
def test_a_step_ahead_is_a_fault_unless_the_group_may_have_assigned_anew(
    generation: int | None, *, is_broken: bool
) -> None:
    history, client = History(), _Broken("g", None if generation is None else 1)
    history.producer_began("p", idempotent=False, acks=-1).sent("orders", 0, b"6").acknowledged(6)
    consumer = history.consumer(client)
    consumer.poll(5)
    client.generation_id = generation
    consumer.poll(7)
    log = FinalRead("orders", 0, 5, 8, [(5, "5"), (6, "6"), (7, "7")])
    assert {each.violation.rule for each in history.broken([log])} == ({Rule.SKIPPED} if is_broken else set())


def test_a_consumer_of_aiokafka_gets_partitions_back(kafka: Kafka) -> None:
    library = pytest.importorskip("aiokafka")
    history, place = kafka.history, library.TopicPartition("orders", 0)
    options = {
        "group_id": "g",
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
        "heartbeat_interval_ms": 50,
    }

    async def work() -> None:
        client = library.AIOKafkaConsumer("orders", bootstrap_servers=kafka.bootstrap, **options)
        async with (
            history.producer(library.AIOKafkaProducer(bootstrap_servers=kafka.bootstrap)) as producer,
            history.consumer(client) as consumer,
        ):
            await producer.send_and_wait("orders", b"0", partition=0)
            assert (await consumer.getone()).offset == 0
            await producer.send_and_wait("orders", b"1", partition=0)
            await consumer.commit({place: 2})  # as another member that has had the partition meanwhile
            before = client._coordinator.generation
            kafka.group("g").rebalance()
            while client._coordinator.generation in (before, -1):
                await asyncio.sleep(0.01)
            await producer.send_and_wait("orders", b"2", partition=0)
            assert (await consumer.getone()).offset == 2

    asyncio.run(asyncio.wait_for(work(), PATIENCE_S))
    history.check()


def test_a_record_that_the_client_refuses_is_not_sent() -> None:
    history = History()
    producer = history.producer(_Broken(None), idempotent=True)
    with pytest.raises(ValueError, match="too large"):
        producer.send("orders", b"a", partition=0)
    assert [note.kind for note in history._notes][-1] is Failed
    history.consumer(_Broken(None)).poll(0)
    assert repr(producer).startswith("<taken down: ")
