"""A message is one line of the log, also when a peer's names hold line ends and control characters."""

import json
import logging
import re
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.replication.reminders import KEPT_MAX
from ottla.server.cli.command_line import LOG_LEVELS
from ottla.server.cli.start import LOG_FORMATS
from ottla.server.config.loggers import (
    FORMS,
    INFO_LIKE_MAX,
    LEVELS,
    LIKE_MAX,
    MESSAGE_CHARACTERS_MAX,
    FloodGate,
    JsonFormatter,
    LogFormatter,
    shown,
)

JSON_KEYS = {"time", "level", "logger", "message", "exception"}
LINE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} WARNING ottla\.test: ")


def record(message: str, *arguments: object, error: BaseException | None = None) -> logging.LogRecord:
    trace = None if error is None else (type(error), error, error.__traceback__)
    return logging.LogRecord("ottla.test", logging.WARNING, "file.py", 1, message, arguments, trace)


def test_an_ordinary_message_is_as_it_was_meant() -> None:
    line = LogFormatter().format(record("topic %s has %d partitions of %r", "jalapeño", 3, "me"))
    assert LINE.match(line)
    assert line.endswith(": topic jalapeño has 3 partitions of 'me'")


def test_a_forged_line_stays_within_the_line() -> None:
    line = LogFormatter().format(
        record("no topic %s", "x\n2031-01-01 00:00:00,000 CRITICAL ottla: all is lost\x1b[2J\u202e")
    )
    assert "\n" not in line and "\x1b" not in line and "\u202e" not in line
    assert r"x\n2031-01-01" in line


def test_a_long_name_is_cut_and_the_rest_of_the_message_stays() -> None:
    line = LogFormatter().format(record("the name %s of %s", "x" * 30_000, "a peer"))
    assert line.endswith("x... (30000 characters) of a peer")
    assert len(line) < 500


def test_an_error_that_quotes_a_peer_is_escaped_and_its_traceback_begins_no_line() -> None:
    try:
        raise ValueError("a name\n2031-01-01 00:00:00,000 CRITICAL forged\r" + "x" * 100_000)
    except ValueError as error:
        lines = LogFormatter().format(record("bug of %s", error, error=sys.exception())).split("\n")
    assert LINE.match(lines[0])
    assert all(line.startswith("    ") and line.isprintable() for line in lines[1:])
    assert sum(map(len, lines)) < 5 * MESSAGE_CHARACTERS_MAX


@given(st.text(), st.text(max_size=20))
def test_any_text_is_printable_and_short(name: str, other: str) -> None:
    assert shown(name).isprintable()
    assert len(shown("x" * 100 + name, 50)) < 100
    assert LogFormatter().format(record("%s and %r and %s", name, other, ValueError(name))).isprintable()


@pytest.mark.parametrize("name", ["\ud800", "\0", "\x85", "\u2028"])
def test_characters_that_end_lines_elsewhere_are_escaped_too(name: str) -> None:
    assert shown(name).isascii()


def test_the_options_name_what_there_is() -> None:
    assert [each.upper() for each in LOG_LEVELS] == list(LEVELS)
    assert list(LOG_FORMATS) == list(FORMS)


def test_json_lines_say_the_same() -> None:
    given = record("topic %s has %d partitions", "jalape\u00f1o", 3)
    given.created = 1_700_000_000.25
    assert json.loads(JsonFormatter().format(given)) == {
        "time": "2023-11-14T22:13:20.250Z",
        "level": "WARN",
        "logger": "ottla.test",
        "message": "topic jalape\u00f1o has 3 partitions",
    }


@given(st.text(), st.text())
def test_any_text_is_one_json_object_on_one_line(name: str, words: str) -> None:
    try:
        raise ValueError(words)
    except ValueError as error:
        line = JsonFormatter().format(record("%s and %s", name, error, error=error))
    assert line.isascii() and line.isprintable()
    fields = json.loads(line)
    assert fields.keys() == JSON_KEYS
    assert "ValueError" in fields["exception"] and len(line) < 20 * MESSAGE_CHARACTERS_MAX


def test_of_like_warnings_so_many_pass_in_a_minute_and_then_their_number() -> None:
    now_s = [0.0]
    gate = FloodGate(lambda: now_s[0])
    passed = [gate.filter(record("%s is full", number)) for number in range(LIKE_MAX + 7)]
    assert passed == [True] * LIKE_MAX + [False] * 7
    assert gate.filter(record("%s is empty", "it"))
    now_s[0] = 60.0
    again = record("%s is full", "it")
    assert gate.filter(again)
    assert again.getMessage() == "it is full (7 more like this since the last line)"
    assert gate.filter(again) and again.getMessage().count("more like this") == 1


def test_another_thread_may_begin_a_minute_at_any_moment() -> None:
    """To log something never fails."""
    gate = FloodGate(lambda: 0.0)

    class Interrupted(dict[tuple[str, str], int]):
        def __setitem__(self, place: tuple[str, str], count: int) -> None:
            super().__setitem__(place, count)
            gate._seen = {}

    assert gate.filter(record("%s is full", "it"))
    gate._seen = Interrupted()
    assert gate.filter(record("%s is full", "it"))


def test_of_other_lines_more_pass_and_below_info_all() -> None:
    """Each rebalance is a line, and a stranger can make groups rebalance without end."""
    gate, line = FloodGate(lambda: 0.0), record("Rebalance of group %s", "g")
    line.levelno = logging.INFO
    assert [gate.filter(line) for _ in range(INFO_LIKE_MAX + 7)] == [True] * INFO_LIKE_MAX + [False] * 7
    line.levelno = logging.DEBUG
    assert all(gate.filter(line) for _ in range(INFO_LIKE_MAX + 7))


def test_how_many_did_not_pass_is_told_however_late() -> None:
    now_s = [0.0]
    gate = FloodGate(lambda: now_s[0])
    for _ in range(LIKE_MAX + 7):
        gate.filter(record("%s is full", "it"))
    for now_s[0] in (60.0, 120.0):
        assert gate.filter(record("%s is empty", "it"))
    now_s[0] = 180.0
    late = record("%s is full", "it")
    assert gate.filter(late) and late.getMessage() == "it is full (7 more like this since the last line)"


@given(st.lists(st.text(max_size=3), max_size=50), st.booleans())
def test_any_texts_are_counted_within_bounds(texts: list[str], with_arguments: bool) -> None:
    now_s = [0.0]
    gate = FloodGate(lambda: now_s[0])
    for text in texts * (LIKE_MAX // 20):
        now_s[0] += 0.5
        line = record("%s", text) if with_arguments else record(text)
        if gate.filter(line):
            assert line.getMessage().startswith(text)
        assert len(gate._seen) <= KEPT_MAX + 1 and len(gate._untold) <= KEPT_MAX + 1
