"""The table that Spark rebuilds of generated changes is that of their statements, also if it is cut off or killed half way."""

import json
from importlib.util import find_spec
from pathlib import Path
from secrets import token_hex

import pytest

for package in ("kafka", "pyspark"):
    if find_spec(package) is None:
        pytest.skip(f"{package} is not installed (pip install '.[spark]')", allow_module_level=True)

from spark_examples.tests.killing import run_and_kill
from spark_examples.tests.programs import programs_of

from ottla.server.cli.cli import main

example = programs_of("change_data")
table, topics = example.table, example.topic

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:unclosed:ResourceWarning"),
]
SHARES = ("--snapshot", "100", "--late", "0.05", "--doubled", "0.05", "--poison", "0.02")
LIMIT = "max.message.bytes=262144"


def generate(bootstrap: str, topic: str, output: Path, *more: str) -> None:
    files = ("--statements", str(output / "statements.sql"), "--expected", str(output / "source.jsonl"))
    words = ("-t", topic, "-b", bootstrap, "--timeout", "60", "-p", "2", "-c", LIMIT)
    assert main(["generate", "changes", *words, *files, *more]) == 0
    assert main(["topics", "create", f"{topic}-dead", "-b", bootstrap, "--timeout", "60"]) == 0


@pytest.fixture
def topic() -> str:
    return f"accounts-{token_hex(4)}"


@pytest.fixture
def topic_of_the_example(broker):
    """The name that the example's programs take; free again afterwards."""
    yield topics.TOPIC
    main(["topics", "delete", "-y", topics.TOPIC, f"{topics.TOPIC}-dead", "-b", broker.bootstrap, "--timeout", "60"])


def rebuilt(spark, bootstrap: str, topic: str, output: Path, records_per_batch: int) -> list[str]:
    """Run the job to its end; returns what differs."""
    table.follow(table.start_query(spark, bootstrap, topic, output, records_per_batch))
    table.export(spark, output)
    return example.check.problems(bootstrap, topic, output)


PROBLEMS = {
    "a null value of no row",
    "not UTF-8",
    "no change",
    "an operation that is not known",
    "the row does not fit",
}


def test_a_batch_that_is_cut_off_is_repeated(spark, broker, topic, tmp_path, monkeypatch):
    """One batch ends before its version of the table is there, and one just behind that."""
    generate(broker.bootstrap, topic, tmp_path, "--records", "1200", *SHARES)
    assert example.poison.write(broker.bootstrap, topic) == (len(example.poison.POISON), 1)
    write_version = table.write_version
    for cut_off_at, is_written in ((1, False), (2, True)):

        def cut_off(spark, rows, output, number, at=cut_off_at, is_written=is_written) -> None:
            if number != at or is_written:
                write_version(spark, rows, output, number)
            if number == at:
                raise RuntimeError("cut off")

        with monkeypatch.context() as patched:
            patched.setattr(table, "write_version", cut_off)
            with pytest.raises(Exception, match="cut off"):
                table.follow(table.start_query(spark, broker.bootstrap, topic, tmp_path, 500))
        assert max(table.versions(tmp_path)) == (cut_off_at if is_written else cut_off_at - 1)
    assert rebuilt(spark, broker.bootstrap, topic, tmp_path, 500) == []
    told = topics.Told(broker.bootstrap, topic)
    assert min(told.counts[kind] for kind in ("r", "c", "u", "d", topics.TOMBSTONE)) >= 70
    assert told.copies > 30 and told.counts[topics.DEAD] > 25
    assert len(table.versions(tmp_path)) == 2, "older versions are removed"
    letters = topics.records(broker.bootstrap, f"{topic}-dead")
    assert {dict(letter.headers)["problem"].decode() for letter in letters} == PROBLEMS
    _the_check_sees_what_differs(broker, topic, tmp_path)


def changes(*some: tuple[str, int, int, int], snapshot: str = "true") -> list[bytes]:
    """Changes as values: operation, id, balance and LSN of each."""
    source = {"snapshot": snapshot}
    rows = [(kind, {"id": each, "name": "Elli", "balance": balance}, lsn) for kind, each, balance, lsn in some]
    return [
        json.dumps(
            {"op": kind, "before": row, "after": None if kind == "d" else row, "source": source | {"lsn": lsn}}
        ).encode()
        for kind, row, lsn in rows
    ]


def test_a_second_snapshot_deletes_what_it_does_not_have(spark, broker, topic, tmp_path):
    """Not an incremental one; and older changes that come late bring nothing back."""
    main(["topics", "create", topic, "-p", "1", "-b", broker.bootstrap, "--timeout", "60"])
    later = [
        changes(("r", 1, 5, 30), ("r", 4, 5, 30), ("u", 2, 9, 12), ("u", 1, 6, 30)),
        changes(("r", 5, 5, 40), snapshot="incremental"),
        changes(("u", 4, 8, 35), ("c", 3, 7, 29), ("d", 5, 5, 50), ("c", 6, 1, 60), ("u", 5, 9, 45)),
    ]
    values = [*changes(("r", 1, 5, 10), ("r", 2, 5, 10), ("c", 3, 5, 11)), *(each for some in later for each in some)]
    producer = example.poison.KafkaProducer(bootstrap_servers=broker.bootstrap)
    for value in values:
        producer.send(topic, value, key=b'{"id":0}')
    producer.close()
    table.follow(table.start_query(spark, broker.bootstrap, topic, tmp_path, 4))
    table.export(spark, tmp_path)
    found = {key: balance for key, (_, balance) in example.check.table(tmp_path / "table.jsonl").items()}
    assert found == {1: 6, 4: 8, 6: 1}
    assert len(list((tmp_path / "counts").iterdir())) == 4, "the snapshots came in one batch, which would prove less"


def _the_check_sees_what_differs(broker, topic: str, output: Path) -> None:
    rows = (output / "table.jsonl").read_text()
    (output / "table.jsonl").write_text(rows.partition("\n")[2])
    count = output / "counts" / "batch-0.json"
    count.write_text(json.dumps(json.loads(count.read_text()) | {"u": 1}))
    wanted = ["rows and those of the source", "rows and those of the statements", "records"]
    assert example.check.problems(broker.bootstrap, topic, output) == wanted


def test_the_example_says_equal(topic_of_the_example, run_example):
    told = run_example("change_data", "generated")
    assert told.splitlines()[-1] == "equal"
    assert "bytes is refused: MessageSizeTooLargeError" in told


@pytest.mark.parametrize(
    "statement", ["DELETE FROM accounts WHERE id = 2;", "UPDATE accounts SET balance = 1;", "DROP TABLE accounts;"]
)
def test_a_statement_that_cannot_be_applied_is_told(statement):
    first = "INSERT INTO accounts (id, name, balance) VALUES (1, 'Ottla', 5);"
    assert example.expected.table([first]) == {1: ("Ottla", 5)}
    with pytest.raises(SystemExit, match="cannot be applied: "):
        example.expected.table([first, statement])


@pytest.mark.long
def test_a_killed_job_goes_on_and_loses_and_doubles_nothing(spark, broker, topic, tmp_path):
    """The driver and its JVM get SIGKILL when the second version is made, wherever they are then."""
    generate(broker.bootstrap, topic, tmp_path, "--records", "3000", *SHARES)
    job = f"table.follow(table.start_query(session.start(), {broker.bootstrap!r}, {topic!r}, output, 300))"
    run_and_kill("change_data", "table", job, "max(table.versions(output), default=0) >= 1", tmp_path)
    assert 1 <= max(table.versions(tmp_path)) < 8
    assert rebuilt(spark, broker.bootstrap, topic, tmp_path, 1000) == []
