"""Logging: line formats, and logger levels as resource BROKER_LOGGER (Kafka's LoggingController).

A level is in force at once, also for the loggers below it that have none of their own, and forgotten when the process ends.
Levels have Kafka's names; FATAL is Python's CRITICAL. A logger exists once its module is loaded, as in Kafka.

Lines are text or JSON. Nothing that a peer sends may begin a line, move the cursor or fill the disk: topic names, client ids, group
ids, names of settings and errors that quote them come from strangers. All lines pass these formatters, which
escape them, so code that logs needs no escaping of its own.
"""

from __future__ import annotations

import logging
import math
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from ottla.replication.reminders import INTERVAL_S, KEPT_MAX, MORE
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.settings import parse_integer

if TYPE_CHECKING:
    from ottla.server.config.repository import ConfigChange

logger = logging.getLogger("ottla.configs")

ROOT = "root"
OWN = "ottla"
# What a client library says of its requests at these loggers may be secret: their levels cannot be changed.
WITHHELD = frozenset(["ottla.zookeeper.kazoo"])
LEVELS = {
    "TRACE": logging.DEBUG // 2,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}


def level_name(level: int) -> str:
    """Return Kafka's name for Python log level `level`; a level between two of Kafka's gets the lower one's name."""
    return next((name for name, number in reversed(LEVELS.items()) if level >= number), "TRACE")


def logger_levels() -> dict[str, str]:
    """Return the effective level of each logger, by name."""
    names = {OWN, *(each for each in logging.root.manager.loggerDict if each.startswith(f"{OWN}."))} - {*WITHHELD}
    found = {name: logging.getLogger(name) for name in sorted(names)}
    return {name: level_name(each.getEffectiveLevel()) for name, each in found.items()} | {
        ROOT: level_name(logging.root.level)
    }


def check_logger_changes(resource_name: str, node_id: int, changes: Sequence[ConfigChange]) -> None:
    """Check log level changes. Raises KafkaError for the first invalid one, as Kafka's RuntimeLoggerManager does."""
    named = parse_integer(resource_name)
    if named is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Node id must be an integer, but it is: {resource_name}")
    if named != node_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unexpected node id. Expected {node_id}, but received {named}")
    known = logger_levels().keys()
    for change in changes:
        _check(change, known)


def _check(change: ConfigChange, known: Iterable[str]) -> None:
    from ottla.server.config.repository import ConfigOperation  # all settings, of which a proxy has none

    if change.operation not in (ConfigOperation.SET, ConfigOperation.DELETE):
        raise KafkaError(ErrorCode.INVALID_REQUEST, _refused_operation(change.operation))
    if change.name not in known:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Logger {change.name} does not exist!")
    if change.operation == ConfigOperation.SET and change.value not in LEVELS:
        message = (
            f"Cannot set the log level of {change.name} to {change.value} as it is not a supported log level."
            f" Valid log levels are {', '.join(sorted(LEVELS))}"
        )
        raise KafkaError(ErrorCode.INVALID_CONFIG, message)
    if change.operation == ConfigOperation.DELETE and change.name == ROOT:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Removing the log level of the {ROOT} logger is not allowed")


def _refused_operation(operation: int) -> str:
    from ottla.server.config.repository import ConfigOperation

    if operation in ConfigOperation._value2member_map_:
        return f"{ConfigOperation(operation).name} operation is not allowed for the BROKER_LOGGER resource"
    return f"Unknown operation type {operation} is not allowed for the BROKER_LOGGER resource"


def change_loggers(changes: Iterable[ConfigChange]) -> None:
    """Set log levels; `check_logger_changes` must have accepted the changes."""
    from ottla.server.config.repository import ConfigOperation

    for change in changes:
        is_set = change.operation == ConfigOperation.SET
        level = LEVELS[change.value or ""] if is_set else logging.NOTSET
        logging.getLogger(None if change.name == ROOT else change.name).setLevel(level)
        if is_set:
            logger.warning("Updated the log level of %s to %s", change.name, change.value)
        else:
            logger.warning("Unset the log level of %s", change.name)


LIKE_MAX = 200
INFO_LIKE_MAX = 1_000
QUOTED_CHARACTERS_MAX = 300  # longer than any name that a topic can have
MESSAGE_CHARACTERS_MAX = 2_000
LINE_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_TRACE_INDENTATION = "    "


def shown(text: str, characters_max: int = QUOTED_CHARACTERS_MAX) -> str:
    """Return a text for one line of the log: unprintable characters are escaped, and a long text is shortened."""
    if len(text) > characters_max:
        return f"{_escaped(text[:characters_max])}... ({len(text)} characters)"
    return text if text.isprintable() else _escaped(text)


def _escaped(text: str) -> str:
    return "".join([each if each.isprintable() else each.encode("unicode_escape").decode() for each in text])


class LogFormatter(logging.Formatter):
    """Log formatter with one line per message. Traceback lines are indented, so that none looks like a message."""

    def __init__(self, process: str | None = None) -> None:
        super().__init__(LINE_FORMAT if process is None else f"{process}: {LINE_FORMAT}")

    def format(self, record: logging.LogRecord) -> str:
        line = self.formatMessage(_with_message(record, shown(_message(record), MESSAGE_CHARACTERS_MAX)))
        if record.exc_info:
            line += "\n" + _indented(self.formatException(record.exc_info))
        return line

    def formatMessage(self, record: logging.LogRecord) -> str:
        record.asctime = self.formatTime(record)
        return super().formatMessage(record)


class JsonFormatter(logging.Formatter):
    """Log formatter that writes one JSON object a line: time (UTC, RFC 3339), level (Kafka's name), logger, message.

    An exception adds its own field. In a start of several processes the process's name comes first.
    """

    def __init__(self, process: str | None = None) -> None:
        super().__init__()
        self._process = {} if process is None else {"process": process}

    def format(self, record: logging.LogRecord) -> str:
        import json  # few want it, and a start pays for each module

        seconds, milliseconds = divmod(int(record.created * 1000), 1000)
        fields = {
            **self._process,
            "time": f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{milliseconds:03d}Z",
            "level": level_name(record.levelno),
            "logger": record.name,
            "message": shown(_message(record), MESSAGE_CHARACTERS_MAX),
        }
        if record.exc_info:
            trace = self.formatException(record.exc_info).split("\n")
            fields["exception"] = "\n".join([shown(line, MESSAGE_CHARACTERS_MAX) for line in trace])
        return json.dumps(fields)


class FloodGate(logging.Filter):
    """Rate limit per minute for log lines that come from the same place in the code.

    The limit is LIKE_MAX for warnings and errors, INFO_LIKE_MAX for INFO; lines below INFO are not limited. The next
    line that passes has the number of suppressed lines. Unauthenticated peers or a broken disk can cause some lines
    endlessly; these have a limit of their own, which names the peer (`replication/reminders.py`).
    """

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock_s = clock_s
        self._minute_end_s = -math.inf
        self._seen: dict[tuple[str, str], int] = {}  # in this minute
        self._untold: dict[tuple[str, str], int] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno < logging.INFO:
            return True
        now_s = self._clock_s()
        if now_s >= self._minute_end_s:
            self._minute_end_s = now_s + INTERVAL_S
            self._seen = {}
        place = _kept(self._seen, (record.name, str(record.msg)[:QUOTED_CHARACTERS_MAX]))
        # Threads log, too, and one of them may begin another minute just now.
        self._seen[place] = count = self._seen.get(place, 0) + 1
        if count > (LIKE_MAX if record.levelno >= logging.WARNING else INFO_LIKE_MAX):
            place = _kept(self._untold, place)
            self._untold[place] = self._untold.get(place, 0) + 1
            return False
        if untold := self._untold.pop(place, 0):
            _add_count(record, untold)
        return True


def _kept(places: Mapping[tuple[str, str], int], place: tuple[str, str]) -> tuple[str, str]:
    """Return the key under which lines from `place` are counted.

    When KEPT_MAX places are counted, all new ones share one key.
    """
    return place if place in places or len(places) < KEPT_MAX else ("", "")


def _add_count(record: logging.LogRecord, untold: int) -> None:
    if isinstance(record.args, tuple) and record.args:
        record.msg, record.args = str(record.msg) + MORE, (*record.args, untold)
    else:
        record.msg, record.args = record.getMessage() + MORE % untold, ()


def set_up_log(level: str, form: str, process: str | None = None) -> None:
    """Send all loggers' lines to stderr. `level` is a key of `LEVELS`, `form` one of `FORMS`.

    `process`: name of this process; it begins each line, and an earlier set-up of the log is replaced. None: there is
    only one process.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(FORMS[form](process))
    handler.addFilter(FloodGate())
    logging.basicConfig(level=LEVELS[level], handlers=[handler], force=process is not None)


def _message(record: logging.LogRecord) -> str:
    """Return a record's message, with each text argument shortened to the limit."""
    if isinstance(record.args, tuple) and record.args:
        return str(record.msg) % tuple([shown(each) if type(each) is str else each for each in record.args])
    return record.getMessage()


def _with_message(record: logging.LogRecord, message: str) -> logging.LogRecord:
    record.message = message
    return record


def _indented(trace: str) -> str:
    """Return a traceback with every line escaped and indented, even lines inside an exception's text."""
    return "\n".join([_TRACE_INDENTATION + shown(line, MESSAGE_CHARACTERS_MAX) for line in trace.split("\n")])


FORMS: Final[dict[str, Callable[[str | None], logging.Formatter]]] = {"text": LogFormatter, "json": JsonFormatter}
