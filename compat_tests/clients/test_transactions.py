"""Transactions, as the Python clients write and read them. The Java client's are in `test_java_clients.py`."""

import contextlib

import pytest

pytest.importorskip("confluent_kafka")
pytest.importorskip("kafka")
pytest.importorskip("aiokafka")
from compat_tests.clients.transactional import Aiokafka, KafkaPython, Librdkafka, committed, read

CLIENTS = pytest.mark.parametrize("client", [Librdkafka, KafkaPython, Aiokafka])


@pytest.fixture
def new_producer(bootstrap):
    with contextlib.ExitStack() as stack:

        def new(client, transactional_id, **options):
            return stack.enter_context(
                contextlib.closing(client(options.pop("servers", bootstrap), transactional_id, **options))
            )

        yield new


@CLIENTS
def test_committed_records_are_read_and_aborted_ones_are_not(bootstrap, topic, unique, new_producer, client):
    producer = new_producer(client, unique("id"))
    for number, end in enumerate([producer.commit, producer.abort, producer.commit, producer.abort, producer.commit]):
        producer.begin()
        producer.send(topic, *(b"%d-%d" % (number, i) for i in range(3)))
        end()
    kept = [b"%d-%d" % (number, i) for number in (0, 2, 4) for i in range(3)]
    assert read(bootstrap, topic, until=kept[-1]) == kept
    assert read(bootstrap, topic, "read_uncommitted") == [
        b"%d-%d" % (number, i) for number in range(5) for i in range(3)
    ]


@CLIENTS
def test_a_reader_waits_for_the_end_of_an_open_transaction(bootstrap, topic, unique, new_producer, client):
    producer, other = new_producer(client, unique("id")), new_producer(client, unique("other"))
    other.begin()
    other.send(topic, b"before")
    other.commit()
    producer.begin()
    producer.send(topic, b"open")
    other.begin()
    other.send(topic, b"behind")
    other.commit()
    assert read(bootstrap, topic, until=b"before") == [b"before"]
    assert read(bootstrap, topic, "read_uncommitted") == [b"before", b"open", b"behind"]
    producer.commit()
    assert read(bootstrap, topic, until=b"behind") == [b"before", b"open", b"behind"]


@CLIENTS
def test_a_newer_producer_of_the_same_id_fences_the_older_one(bootstrap, topic, unique, new_producer, client):
    transactional_id = unique("id")
    zombie = new_producer(client, transactional_id)
    zombie.begin()
    zombie.send(topic, b"of the zombie")
    successor = new_producer(client, transactional_id)
    with pytest.raises(client.fenced):
        zombie.commit()
    successor.begin()
    successor.send(topic, b"of the successor")
    successor.commit()
    assert read(bootstrap, topic, until=b"of the successor") == [b"of the successor"]


@CLIENTS
def test_offsets_count_if_their_transaction_is_committed(bootstrap, topic, unique, new_producer, client):
    producer, group = new_producer(client, unique("id")), unique("group")
    producer.begin()
    producer.send(topic, b"output")
    producer.send_offset(topic, 5, group)
    producer.abort()
    assert committed(bootstrap, topic, group) is None
    producer.begin()
    producer.send(topic, b"output")
    producer.send_offset(topic, 7, group)
    producer.commit()
    assert committed(bootstrap, topic, group) == 7


@CLIENTS
def test_a_transaction_that_lasts_too_long_is_aborted(start_broker, unique, make_topic, new_producer, client):
    broker = start_broker({"transaction.abort.timed.out.transaction.cleanup.interval.ms": "100"})
    topic = make_topic(servers=broker.bootstrap)
    producer = new_producer(client, unique("id"), servers=broker.bootstrap, timeout_ms=3000)
    producer.begin()
    producer.send(topic, b"too late")
    other = new_producer(client, unique("other"), servers=broker.bootstrap)
    other.begin()
    other.send(topic, b"in time")
    other.commit()
    assert read(broker.bootstrap, topic, until=b"in time") == [b"in time"]
    with pytest.raises(client.fenced):
        producer.commit()
