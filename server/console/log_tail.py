"""The last lines of the broker's log, and how late its event loop is.

Lines tell what no Kafka client is told, such as addresses of others, so they need the token even where the console is open. They are
kept from the time on at which the endpoint is there, LINES_KEPT of them, cut to LINE_LENGTH_MAX.
"""

from __future__ import annotations

import logging
from collections import deque
from itertools import count
from typing import TYPE_CHECKING, Any

import trio

from ottla.server.console import questions
from ottla.server.http.metrics.process import BOUNDS

if TYPE_CHECKING:
    from ottla.server.console.access import Access
    from ottla.server.http.metrics.process import LoopLag
    from ottla.server.http.routes import Request

LINES_KEPT, LINES_PER_PAGE, LINE_LENGTH_MAX = 500, 200, 1_000


class LogTail(logging.Handler):
    """See the module's docstring. Threads log, too; a deque takes their lines without a lock of ours."""

    def __init__(self, access: Access, lag: LoopLag) -> None:
        super().__init__()
        self._access, self._lag = access, lag
        self._numbers = count(1)
        self._lines: deque[dict[str, Any]] = deque(maxlen=LINES_KEPT)

    async def run(self) -> None:
        """Keep what is logged, until cancelled."""
        logger = logging.getLogger("ottla")
        logger.addHandler(self)
        try:
            await trio.sleep_forever()
        finally:
            logger.removeHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Called by the logger, whose caller gets whatever is raised here."""
        try:
            message = _message_of(record)
        except Exception:  # noqa: BLE001 - the format does not fit its arguments; other handlers tell that
            message = record.msg if isinstance(record.msg, str) else "This line cannot be made."
        self._lines.append(
            {
                "number": next(self._numbers),
                "timestamp": int(record.created * 1000),
                "level": record.levelname,
                "logger": record.name,
                "message": message[:LINE_LENGTH_MAX],
            }
        )

    async def lines(self, request: Request) -> dict[str, Any]:
        """The lines after number `after`, the newest of them."""
        self._access.check_token(request)
        after = questions.number(request, "after", 0)
        lines = [each for each in list(self._lines) if each["number"] > after]
        return {"lines": lines[-LINES_PER_PAGE:]}

    async def loop(self, request: Request) -> dict[str, Any]:
        """How often the loop was looked at since the start, and how late it was. The page makes a history of it."""
        buckets = self._lag.buckets
        return {"bounds": BOUNDS, "buckets": buckets, "looks": sum(buckets), "seconds": self._lag.seconds}


def _message_of(record: logging.LogRecord) -> str:
    message = record.getMessage()
    if record.exc_info and record.exc_info[0] is not None:
        message += f": {record.exc_info[0].__name__}: {record.exc_info[1]}"
    return message
