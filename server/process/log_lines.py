"""How log lines are written: nothing that a peer sends may begin a line, move the cursor or fill the disk.

Topic names, client ids, group ids, names of settings and errors that quote them come from strangers. This formatter
is the only way to the log, so nobody who logs has to think of that.
"""

from __future__ import annotations

import logging

QUOTED_CHARACTERS_MAX = 300  # longer than any name that a topic can have
MESSAGE_CHARACTERS_MAX = 2_000
LINE_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_TRACE_INDENTATION = "    "


def shown(text: str, characters_max: int = QUOTED_CHARACTERS_MAX) -> str:
    """The text on one line: what cannot be printed is escaped, and what is too long is cut."""
    if len(text) > characters_max:
        return f"{_escaped(text[:characters_max])}... ({len(text)} characters)"
    return text if text.isprintable() else _escaped(text)


def _escaped(text: str) -> str:
    return "".join([each if each.isprintable() else each.encode("unicode_escape").decode() for each in text])


class LogFormatter(logging.Formatter):
    """One line for each message; the lines of a traceback are indented, so that none looks like a message."""

    def __init__(self) -> None:
        super().__init__(LINE_FORMAT)

    def format(self, record: logging.LogRecord) -> str:
        line = self.formatMessage(_with_message(record, shown(_message(record), MESSAGE_CHARACTERS_MAX)))
        if record.exc_info:
            line += "\n" + _indented(self.formatException(record.exc_info))
        return line

    def formatMessage(self, record: logging.LogRecord) -> str:
        record.asctime = self.formatTime(record)
        return super().formatMessage(record)


def _message(record: logging.LogRecord) -> str:
    """The message with each text in it cut, so that none of them takes all the room."""
    if isinstance(record.args, tuple) and record.args:
        return str(record.msg) % tuple([shown(each) if type(each) is str else each for each in record.args])
    return record.getMessage()


def _with_message(record: logging.LogRecord, message: str) -> logging.LogRecord:
    record.message = message
    return record


def _indented(trace: str) -> str:
    """Each line escaped and behind blanks; what separates lines within an exception's text looks the same."""
    return "\n".join([_TRACE_INDENTATION + shown(line, MESSAGE_CHARACTERS_MAX) for line in trace.split("\n")])
