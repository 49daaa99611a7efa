"""Poison that the examples' own tests do not have: values that end a job, records that are too large, and topics that are gone."""

import shutil
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from secrets import token_hex

import pytest

for package in ("confluent_kafka", "kafka", "pyspark"):
    if find_spec(package) is None:
        pytest.skip(f"{package} is not installed (pip install '.[spark]')", allow_module_level=True)

from kafka import KafkaProducer
from kafka.errors import KafkaError
from pyspark.errors import StreamingQueryException
from spark_examples.tests.broker import Broker
from spark_examples.tests.programs import programs_of

from ottla.server.cli.cli import main

archive, clickstream, event_sourcing, flights, metrics, payments = (
    programs_of(name) for name in ("archive", "clickstream", "event_sourcing", "flights", "metrics", "payments")
)

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:unclosed:ResourceWarning"),
]
PATIENCE_S = 240
GONE = "UnknownTopicOrPartition|KAFKA_DATA_LOSS|may have been lost|UNKNOWN_TOPIC_OR_PARTITION"


@pytest.fixture
def own_broker(tmp_path) -> Iterator[Broker]:
    broker = Broker(tmp_path)
    broker.start()
    yield broker
    broker.stop()


def make(bootstrap: str, topic: str, *settings: str) -> None:
    words = [word for each in settings for word in ("-c", each)]
    assert main(["topics", "create", topic, "-b", bootstrap, "--timeout", "60", "-p", "1", *words]) == 0


def write(bootstrap: str, topic: str, *values: bytes | None) -> None:
    producer = KafkaProducer(bootstrap_servers=bootstrap)
    try:
        for value in values:
            producer.send(topic, value, key=b"key").get(timeout=60)
    finally:
        producer.close()


# ---------------------------------------------------------------------- topics that are gone


def sources(spark, bootstrap):
    """The source of each streaming example, as it makes it."""
    schema = clickstream.collect.FIRST
    known = clickstream.registry.Schemas({1: schema}, schema)
    return {
        "archive": archive.archive.records(spark, bootstrap, "archive", 100),
        "clickstream": clickstream.stream.clicks(spark, bootstrap, "clickstream", known, 100),
        "flights": flights.stream.rows(spark, bootstrap, "flights", flights.stream.FLIGHT, 100),
        "metrics": metrics.readings.stream(spark, bootstrap, "metrics", 100),
        "payments": payments.ledger.bookings(spark, bootstrap, "payments", 100),
    }


def running(spark, bootstrap, checkpoints: Path):
    """Queries that have read what is there and wait for more."""
    queries = []
    for name, source in sources(spark, bootstrap).items():
        writer = source.writeStream.format("noop").option("checkpointLocation", str(checkpoints / name))
        queries.append(writer.trigger(processingTime="200 milliseconds").start())
    end = time.monotonic() + PATIENCE_S
    while any(sum(each.numInputRows for each in query.recentProgress) < 3 for query in queries):
        assert time.monotonic() < end and not any(query.exception() for query in queries)
        time.sleep(0.1)
    return queries


def test_topics_that_are_gone_end_running_queries(spark, own_broker, tmp_path):
    """First the broker comes back with an empty directory, then the topics are deleted. No query goes on as if nothing was missing."""
    bootstrap = own_broker.bootstrap
    names = sorted(sources(spark, bootstrap))

    def fill() -> None:
        for name in names:
            make(bootstrap, name)
            write(bootstrap, name, b"{}", b"{}", b"{}")

    def begin_empty() -> None:
        own_broker.kill()
        shutil.rmtree(own_broker.directory / "data")
        own_broker.start()

    def delete() -> None:
        for name in names:
            assert main(["topics", "delete", name, "-b", bootstrap, "--timeout", "60", "--yes"]) == 0

    for number, lose in enumerate((begin_empty, delete)):
        fill()
        queries = running(spark, bootstrap, tmp_path / f"checkpoints-{number}")
        lose()
        for query in queries:
            with pytest.raises(StreamingQueryException, match=GONE):
                query.awaitTermination(PATIENCE_S)
    with pytest.raises(Exception, match=GONE):
        event_sourcing.rebuild.state(spark, bootstrap, names[0])


# ---------------------------------------------------------------------- values


def test_flights_fails_fast(spark, broker, tmp_path):
    for number, (value, words) in enumerate(
        (
            (b'{"year": 20', "MALFORMED_RECORD_IN_PARSING"),
            (b"\xff\xfe", "MALFORMED_RECORD"),
            (None, "offset 1: no value"),
        )
    ):
        topic = f"flights-{token_hex(4)}"
        make(broker.bootstrap, topic)
        write(broker.bootstrap, topic, b'{"year": 2013}', value)
        rows = flights.stream.rows(spark, broker.bootstrap, topic, flights.stream.FLIGHT, 100)
        writer = rows.writeStream.format("noop").option("checkpointLocation", str(tmp_path / str(number)))
        with pytest.raises(StreamingQueryException, match=words):
            writer.trigger(availableNow=True).start().awaitTermination(PATIENCE_S)


# ---------------------------------------------------------------------- records beyond the limit


def test_producers_are_told_of_records_that_are_too_large(broker, registry):
    name, bootstrap = f"small-{token_hex(4)}", broker.bootstrap
    make(bootstrap, name, "max.message.bytes=100")
    with pytest.raises(RuntimeError, match="not acknowledged, the first with .*MessageSizeTooLarge"):
        flights.produce.produce(
            bootstrap, name, [{"time_hour": "2013-01-01T05:00:00Z", "origin": "x" * 200}], ("origin",)
        )
    clerk = event_sourcing.move.Clerk(bootstrap, name)
    with pytest.raises(KafkaError):
        clerk.write(b"key", b"x" * 200)
    clerk.producer.close()
    for kind in ("metrics", "posts"):
        assert main(["generate", kind, "-t", name, "-b", bootstrap, "--timeout", "60", "--records", "50", "-q"]) == 1
    pages = f"pages-{token_hex(4)}"
    assert (
        main(["generate", "clicks", "-t", pages, "-b", bootstrap, "--timeout", "60", "--records", "20", "-p", "1"]) == 0
    )
    with pytest.raises(SystemExit, match="20 clicks were not written.*MSG_SIZE_TOO_LARGE"):
        clickstream.collect.collect(bootstrap, registry, pages, name)


def test_a_sink_ends_at_a_record_that_is_too_large(spark, broker):
    name = f"small-{token_hex(4)}"
    make(broker.bootstrap, name, "max.message.bytes=100")
    row = (b"key", b"x" * 200, 0, 7)
    rows = spark.createDataFrame([row], "key BINARY, value BINARY, partition INT, offset LONG")
    rows = rows.selectExpr("*", "timestamp_millis(0) AS timestamp")
    with pytest.raises(Exception, match="RecordTooLargeException"):
        archive.restore.restore(rows, broker.bootstrap, name)
