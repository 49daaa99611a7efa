"""Tables and helps that fit a terminal."""

import os
import pty
import subprocess
import sys
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.server.cli.cli import COMMANDS
from ottla.server.cli.client.output import GAP, Table, print_pairs, wrapped
from ottla.wire.tests.effort import examples

words = st.text("ab.-_, /:", max_size=60)


@settings(max_examples=examples(200), deadline=None)
@given(words, st.integers(1, 30))
def test_nothing_but_spaces_is_lost_where_a_text_is_broken(text: str, width: int) -> None:
    lines = wrapped(text, width)
    assert all(len(line) <= width for line in lines)
    assert "".join(lines).replace(" ", "") == text.replace(" ", "")


def test_a_text_is_broken_after_a_mark() -> None:
    assert wrapped("payments.eu-west.settled", 14) == ["payments.eu-", "west.settled"]
    assert wrapped("x" * 10, 4) == ["xxxx", "xxxx", "xx"]
    assert wrapped("one two three", 8) == ["one two", "three"]
    assert wrapped("", 8) == [""]


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(st.tuples(words, words, st.integers(0, 10**12)), max_size=5), st.integers(40, 100))
def test_each_line_fits(rows: list[tuple[str, str, int]], width: int) -> None:
    texts = [[first, second, str(number)] for first, second, number in rows]
    table = Table(["TOPIC", "UNDER-REPLICATED", "END"], texts, [False, False, bool(rows)], width)
    heading, body = table.lines()
    assert all(len(line) <= width for line in [*heading, *body])
    # Numbers are never broken.
    assert [line.split()[-1] for line in body if line.endswith(tuple("0123456789"))] == [row[2] for row in texts]


def test_a_file_gets_whole_cells() -> None:
    table = Table(["TOPIC", "N"], [["x" * 200, "5"]], [False, True], None)
    assert table.lines() == (["TOPIC".ljust(200) + GAP + "N"], ["x" * 200 + GAP + "5"])


@pytest.fixture
def on_terminal() -> Callable[..., str]:
    """Runs a command on a terminal of 80 columns and returns what it shows."""

    def run(*arguments: str, **environment: str) -> str:
        ours, theirs = pty.openpty()
        known = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "TERM")}
        process = subprocess.Popen(
            [sys.executable, "-m", "ottla", *arguments],
            stdout=theirs,
            stderr=theirs,
            env={**known, "COLUMNS": "80", "TERM": "xterm", **environment},
        )
        os.close(theirs)
        shown = b""
        try:
            while piece := os.read(ours, 65536):
                shown += piece
        except OSError:  # reading fails when the command has ended and closed the terminal
            pass
        os.close(ours)
        process.wait()
        return shown.decode().replace("\r\n", "\n")

    return run


@pytest.mark.parametrize("command", [*sorted(COMMANDS), ""])
def test_helps_fit_80_columns(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from ottla.server.cli.cli import main

    if command in ("spark-submit",):
        pytest.skip("another program prints it")
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        main([each for each in (command, "--help") if each])
    long = [line for line in capsys.readouterr().out.splitlines() if len(line) > 80]
    assert [line for line in long if len(line.split()) > 1] == []


def test_errors_are_coloured_where_the_user_wants_it(on_terminal: Callable[..., str]) -> None:
    coloured = "\x1b[1;31mottla:\x1b[0m ottla has no command nonsense"
    plain = "ottla: ottla has no command nonsense"
    assert on_terminal("nonsense").startswith(coloured)
    for environment in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        assert on_terminal("nonsense", **environment).startswith(plain)


@pytest.mark.parametrize("is_terminal", [True, False])
def test_alarming_pairs_are_red_on_a_terminal(
    is_terminal: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: is_terminal, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "30")
    monkeypatch.delenv("NO_COLOR", raising=False)
    print_pairs([("topics", 5), ("offline", "orders-0, orders-1, orders-2")], alarming=["offline"])
    whole = "topics   5\noffline  orders-0, orders-1, orders-2\n"
    on_terminal = "topics   5\n\x1b[1;31moffline  orders-0, orders-1,\x1b[0m\n\x1b[1;31m         orders-2\x1b[0m\n"
    assert capsys.readouterr().out == (on_terminal if is_terminal else whole)
