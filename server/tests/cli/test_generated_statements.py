"""Statements of generated changes: a database that runs them has the table that is told, and no broker is asked for them."""

import json
import sqlite3
from pathlib import Path

import pytest

from ottla.server.cli.cli import main
from ottla.server.cli.generation.arrival import Arrival, Shares
from ottla.server.cli.generation.kinds import Changes, Stated

TABLE = "CREATE TABLE accounts (id INTEGER PRIMARY KEY, name TEXT NOT NULL, balance INTEGER NOT NULL)"
NOBODY = "127.0.0.1:1"


def generate(folder: Path, *more: str) -> list[str]:
    """Write the files without a broker; returns the statements."""
    files = ("--statements", str(folder / "changes.sql"), "--expected", str(folder / "table.jsonl"))
    assert main(["generate", "changes", "--no-topic", "-b", NOBODY, "--records", "3000", *files, *more]) == 0
    return (folder / "changes.sql").read_text().splitlines()


def table_of(statements: list[str]) -> list[dict[str, object]]:
    database = sqlite3.connect(":memory:")
    try:
        database.execute(TABLE)
        for each in statements:
            assert database.execute(each).rowcount == 1, each
        names = ("id", "name", "balance")
        rows = database.execute("SELECT id, name, balance FROM accounts ORDER BY id")
        return [dict(zip(names, row, strict=True)) for row in rows]
    finally:
        database.close()


@pytest.mark.parametrize(
    "more", [(), ("--snapshot", "200"), ("--late", "0.1", "--doubled", "0.05", "--poison", "0.02", "--seed", "3")]
)
def test_a_database_that_runs_them_has_the_table(tmp_path: Path, more: tuple[str, ...]) -> None:
    statements = generate(tmp_path, *more)
    rows = [json.loads(line) for line in (tmp_path / "table.jsonl").read_text().splitlines()]
    assert rows and table_of(statements) == rows
    assert {each.split()[0] for each in statements} == {"INSERT", "UPDATE", "DELETE"}
    assert table_of(statements[:-1]) != rows


def test_they_are_those_of_the_records() -> None:
    """Each event has a statement, in the order of time; late ones and copies change nothing of it."""
    said: list[str] = []
    kind = Stated(Changes(lambda row: None, 10, 1), said.append)
    arrival = Arrival(kind, 2000, 1, 0, 10, Shares(0.1, 0.05, 0.02))
    written = [json.loads(each.value) for each in arrival if each.value and not each.key.startswith(b"poison")]
    assert len(said) == arrival.events == len({each["source"]["lsn"] for each in written})


def test_a_snapshot_comes_first_and_has_one_lsn() -> None:
    arrival = Arrival(Changes(lambda row: None, 10, 1, 50), 400, 1, 0, 10, Shares())
    changes = [json.loads(each.value) for each in arrival if each.value]
    assert {(each["op"], each["source"]["lsn"], each["before"]) for each in changes[:50]} == {("r", 50, None)}
    assert [each["after"]["id"] for each in changes[:50]] == list(range(1, 51))
    assert [each["source"]["lsn"] for each in changes[50:]] == list(range(51, len(changes) + 1))
    assert {each["op"] for each in changes[50:]} == {"c", "u", "d"}


def test_no_topic_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["generate", "clicks", "--no-topic", "-b", NOBODY, "--records", "50"]
    assert main([*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["topic"] is None
    assert main(words) == 0
    assert "none" in capsys.readouterr().out.splitlines()[0]


def test_records_without_a_topic_are_counted_without_the_closing_one(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["generate", "clicks", "--no-topic", "-b", NOBODY, "--records", "50", "--closing", "--json"]
    assert main(words) == 0
    assert json.loads(capsys.readouterr().out)["records"] == 50


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["clicks", "--statements", "x.sql"], "--statements is for changes: clicks have no table"),
        (["posts", "--snapshot", "5"], "--snapshot is for changes: posts have no table"),
        (["changes", "--snapshot", "1001"], "the table has at most 1000 rows"),
        (["changes", "--format", "avro"], "--no-topic: without records"),
        (["changes", "--statements", "/nowhere/x.sql"], "cannot write /nowhere/x.sql: No such file"),
    ],
)
def test_wrong_use_is_told(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["generate", *words, "--no-topic"]) == 2
    assert message in capsys.readouterr().err
