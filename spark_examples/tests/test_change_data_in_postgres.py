"""The table that Spark rebuilds of Debezium's changes is that of PostgreSQL, while Kafka Connect and the broker are killed."""

from importlib.util import find_spec
from pathlib import Path

import pytest

for package in ("kafka", "pyspark"):
    if find_spec(package) is None:
        pytest.skip(f"{package} is not installed (pip install '.[spark]')", allow_module_level=True)

from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient
from spark_examples.tests import submitting
from spark_examples.tests.test_change_data import example, rebuilt, topic_of_the_example, topics

from ottla.server.cli.cli import main

__all__ = ["topic_of_the_example"]
JARS = submitting.JARS / "change_data"

pytestmark = [
    pytest.mark.ecosystem,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:unclosed:ResourceWarning"),
]


@pytest.fixture
def debezium(tmp_path, monkeypatch):
    """Debezium as the example looks for it, brought by `make ecosystem`."""
    if not (JARS / ".ready").exists() or not list(Path("/usr/lib/postgresql").glob("*/bin/initdb")):
        pytest.skip("Debezium or PostgreSQL is not on this machine (`make ecosystem` brings them)")
    (tmp_path / "cache" / "ottla").mkdir(parents=True, exist_ok=True)
    (tmp_path / "cache" / "ottla" / "debezium-3.6.1.Final").symlink_to(JARS)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_the_example_says_equal(debezium, topic_of_the_example, run_example):
    told = run_example("change_data", "debezium")
    assert told.splitlines()[-1] == "equal"
    assert "Kafka Connect is killed" in told


def test_a_change_that_is_too_large_stops_debezium_and_is_not_lost(debezium, topic_of_the_example, broker, tmp_path):
    capture, bootstrap = example.capture, broker.bootstrap
    with capture.opened(bootstrap, tmp_path / "connect", 262144) as (database, connect):
        capture.begin(database, connect, bootstrap, ["INSERT INTO accounts VALUES (1, 'Ottla', 1);"])
        # Unless the offset of a change is in Connect's file, Connect takes a new snapshot at a restart, and a snapshot lacks earlier changes.
        capture.run_and_wait(database, connect, bootstrap, ["UPDATE accounts SET balance = 1;"])
        offsets = tmp_path / "connect" / "offsets"
        capture.wait_for(
            lambda: offsets.exists() and b'"messageType":"UPDATE"' in offsets.read_bytes(),
            "no offset is written",
            connect,
        )
        [lsn] = database.run(capture.LSN)
        database.run("UPDATE accounts SET name = repeat('x', 400000); UPDATE accounts SET balance = 2;")
        capture.wait_for(lambda: "RecordTooLargeException" in connect.log_end(), "nothing is refused", connect)
        assert not capture.has_change_from(bootstrap, int(lsn))
        allow_large_records(bootstrap, topic_of_the_example)
        connect.close()
        connect.start()
        capture.wait_for(lambda: capture.has_change_from(bootstrap, int(lsn)), "it does not go on", connect)
        capture.run_and_wait(database, connect, bootstrap, ["UPDATE accounts SET balance = 3;"])
    changes = [topics.change_of(record.value) for record in topics.records(bootstrap, topic_of_the_example)]
    rows = {each["source"]["lsn"]: (len(each["after"]["name"]), each["after"]["balance"]) for each in changes}
    versions = list(dict.fromkeys(rows[each] for each in sorted(rows)))
    assert versions == [(5, 1), (400_000, 1), (400_000, 2), (400_000, 3)]


def allow_large_records(bootstrap: str, topic: str) -> None:
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, {"max.message.bytes": "1000000"})])
    finally:
        admin.close()


def test_a_broker_that_is_killed_loses_no_change(debezium, topic_of_the_example, spark, killable, tmp_path):
    """The broker gets SIGKILL between two quarters of the statements, and Kafka Connect in the middle of the third."""
    capture, bootstrap = example.capture, killable.bootstrap
    main(["generate", "changes", "--no-topic", "--records", "2000", "--statements", str(tmp_path / "statements.sql")])
    statements = (tmp_path / "statements.sql").read_text().splitlines()
    quarters = [statements[begin : begin + 500] for begin in range(0, len(statements), 500)]
    with capture.opened(bootstrap, tmp_path / "connect", 262144) as (database, connect):
        capture.begin(database, connect, bootstrap, quarters[0])
        killable.kill()
        database.run("\n".join(quarters[1]))
        killable.start()
        capture.run_and_wait(database, connect, bootstrap, quarters[2])
        connect.kill()
        connect.start()
        capture.run_and_wait(database, connect, bootstrap, [each for some in quarters[3:] for each in some])
        (tmp_path / "source.jsonl").write_text("\n".join(database.run(capture.ROWS)) + "\n")
    topic = topic_of_the_example
    main(["topics", "create", f"{topic}-dead", "-b", bootstrap])
    assert rebuilt(spark, bootstrap, topic, tmp_path, 500) == []
    assert topics.Told(bootstrap, topic).counts["r"] > 50
