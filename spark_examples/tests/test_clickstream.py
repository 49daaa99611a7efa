"""The visits that Spark finds are those of plain Python and of the generator, also if the job is killed half way."""

import importlib
import json
import struct
from importlib.util import find_spec
from secrets import token_hex

import pytest

for package in ("confluent_kafka", "kafka", "pyarrow", "pyspark"):
    if find_spec(package) is None:
        pytest.skip(f"{package} is not installed (pip install '.[spark]')", allow_module_level=True)

from confluent_kafka import Producer
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient, SchemaRegistryError
from spark_examples.tests.killing import run_and_kill
from spark_examples.tests.programs import HERE, programs_of
from spark_examples.tests.submitting import JARS, jars_of_session

from ottla.server.cli.cli import main

if not any((JARS / "clickstream").glob("delta-spark_*.jar")):
    pytest.skip("Delta Lake is not on this machine (`make setup` brings it)", allow_module_level=True)

example = programs_of("clickstream")

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:unclosed:ResourceWarning"),
]
SHARES = ("--late", "0.05", "--doubled", "0.02", "--poison", "0.01", "--closing")


@pytest.fixture
def topic(spark, broker, registry, tmp_path) -> str:
    name = f"clicks-{token_hex(4)}"
    expected = ("--expected", str(tmp_path / "expected.jsonl"))
    place = ("-b", broker.bootstrap, "--timeout", "60")
    assert main(["generate", "clicks", "-t", f"{name}-pages", *place, "--records", "1500", *SHARES, *expected]) == 0
    assert main(["topics", "create", name, *place, "-p", "4", "-c", "retention.ms=-1"]) == 0
    counts = example.collect.collect(broker.bootstrap, registry, f"{name}-pages", name)
    assert min(counts.values()) > 5, counts
    return name


def test_the_example_says_equal(run_example, registry):
    """By state, into Delta, with the programs of the README."""
    assert run_example("clickstream", SCHEMA_REGISTRY=registry).splitlines()[-1] == "equal"


def start(spark, broker, registry, topic, output, **options):
    known = example.registry.schemas(registry, f"{topic}-value")
    assert len(known.by_id) == 2
    return example.stream.start_queries(spark, broker.bootstrap, topic, output, known, **options)


def test_a_table_passes_over_a_batch_that_it_has(spark, tmp_path):
    rows = spark.createDataFrame([(1,)], "n INT")
    counts = []
    for number, app in ((0, "a"), (0, "a"), (1, "a"), (0, "b")):
        example.sinks.to_delta(rows, number, tmp_path / "table", app)
        counts.append(len(example.check.rows(tmp_path / "table")))
    assert counts == [1, 1, 2, 3]


@pytest.mark.long
def test_a_batch_that_comes_twice_is_in_the_table_once(spark, broker, registry, topic, tmp_path):
    """As if the job was killed between the commit of the table and that of the batch."""
    options = {"has_state": False, "records_per_batch": 700}
    queries = start(spark, broker, registry, topic, tmp_path, **options)
    example.stream.follow(queries)
    dropped = sum(each.numRowsDroppedByWatermark for p in queries[0].recentProgress for each in p.stateOperators)
    assert dropped == 0, "clicks came later than the watermark allows, so the comparison would prove nothing"
    assert example.check.problems(broker.bootstrap, registry, topic, tmp_path) == []
    for name in ("visits", "dead"):
        last = max((tmp_path / f"checkpoint-{name}" / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
        last.unlink()
        (last.parent / f".{last.name}.crc").unlink(missing_ok=True)
    again = start(spark, broker, registry, topic, tmp_path, **options)
    example.stream.follow(again)
    repeated = [progress["batchId"] for query in again for progress in query.recentProgress]
    assert len(repeated) >= 2, repeated
    assert example.check.problems(broker.bootstrap, registry, topic, tmp_path) == []


JOB = """\
session.connector = lambda: ("spark.jars", {jars!r})
known = registry.schemas({registry!r}, {topic!r} + "-value")
spark = session.start()
spark.conf.set({provider!r}, {rocks!r})
stream.follow(stream.start_queries(spark, {bootstrap!r}, {topic!r}, output, known, **{options!r}))
"""
PROVIDER = "spark.sql.streaming.stateStore.providerClass"
ROCKS = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


@pytest.mark.parametrize(
    ("sink", "has_state", "commits"),
    [
        ("files", False, "visits/batch-*"),
        pytest.param("delta", True, "visits/_delta_log/*.json", marks=pytest.mark.long),
    ],
)
def test_a_killed_job_goes_on_and_doubles_nothing(
    spark, with_delta, broker, registry, topic, tmp_path, sink, has_state, commits
):
    """The driver and its JVM get SIGKILL after the second batch, wherever they are then."""
    options = {"sink": sink, "has_state": has_state, "records_per_batch": 250}
    job = JOB.format(
        bootstrap=broker.bootstrap,
        registry=registry,
        topic=topic,
        jars=jars_of_session(importlib.import_module("session")),
        options=options,
        provider=PROVIDER,
        rocks=ROCKS,
    )
    # Workers import the processor of the state by the name of its module.
    variables = with_delta | {"PYTHONPATH": str(HERE / "clickstream")}
    is_time = f"len(list(output.glob({commits!r}))) >= 2"
    run_and_kill("clickstream", "registry, stream", job, is_time, tmp_path, **variables)
    assert 2 <= len(list(tmp_path.glob(commits))) < 6
    spark.conf.set(PROVIDER, ROCKS)
    try:
        queries = start(spark, broker, registry, topic, tmp_path, **(options | {"records_per_batch": 600}))
        example.stream.follow(queries)
    finally:
        spark.conf.unset(PROVIDER)
    assert example.check.problems(broker.bootstrap, registry, topic, tmp_path) == []


def test_the_comparison_can_fail(broker, registry, topic, tmp_path):
    (tmp_path / "visits" / "batch-0").mkdir(parents=True)
    row = {"user": "u", "first": "", "last": "", "clicks": 1, "source": "", "pages": ""}
    (tmp_path / "visits" / "batch-0" / "more.json").write_text(json.dumps(row))
    wrong = example.check.problems(broker.bootstrap, registry, topic, tmp_path)
    assert wrong == ["visits", "what the generator told", "dead letters"]


def test_what_the_registry_refuses_and_what_is_of_another_schema(spark, broker, registry, topic, tmp_path):
    """A schema that does not fit is refused before a record is written. A record of another topic's schema is a dead letter."""
    fields = [{"name": "id", "type": "long"}]
    other = json.dumps({"type": "record", "name": "Click", "namespace": "shop", "fields": fields})
    with SchemaRegistryClient({"url": registry}) as client:
        with pytest.raises(SchemaRegistryError) as refused:
            client.register_schema(f"{topic}-value", Schema(other, "AVRO"))
        assert (refused.value.http_status_code, refused.value.error_code) == (409, 40901)
        schema_id = client.register_schema(f"{topic}-other-value", Schema(other, "AVRO"))
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce(topic, struct.pack(">bI", 0, schema_id) + b"\x02", partition=0)
    assert producer.flush(60) == 0
    known = example.registry.schemas(registry, f"{topic}-value")
    records = example.stream.clicks(spark, broker.bootstrap, topic, known, 10_000)
    query = example.sinks.write(
        records.where("problem IS NOT NULL").select("problem"), "files", tmp_path / "dead", tmp_path / "checkpoint"
    )
    assert query.awaitTermination(120)
    told = {row["problem"] for row in example.check.rows(tmp_path / "dead")}
    assert f"schema {schema_id} is not one of the topic's" in told
    assert {"no value", "no schema is named", "it does not fit its schema"} <= told


def test_a_registry_that_is_away_ends_the_job_at_its_start(topic):
    with pytest.raises(example.registry.NoSchemas, match=r"127\.0\.0\.1:1/subjects.*does a schema registry run there"):
        example.registry.schemas("http://127.0.0.1:1", f"{topic}-value")
