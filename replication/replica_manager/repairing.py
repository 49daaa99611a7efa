"""Making indexes anew for the readers of logs, one segment after the other, in a thread.

A reader that meets damaged indexes of a large segment, or needs a timestamp that nobody has read yet, gets `DamagedIndexes`
and has to come again. The log asks here for the repair, and learns the new indexes when they are made.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

import trio

from ottla.replication.log.index import CorruptIndex
from ottla.replication.log.log_reader import LogReader
from ottla.replication.log.scan import CorruptSegment
from ottla.replication.log.segment import Segment
from ottla.replication.log.segment_pictures import Survey
from ottla.wire.errors import KafkaError

logger = logging.getLogger("ottla.replication")

RunInThread = Callable[..., Awaitable[Any]]


class Repairer:
    """See the module's docstring."""

    def __init__(self, run_in_thread: RunInThread) -> None:
        self._run_in_thread = run_in_thread
        self._requests: dict[Segment, LogReader] = {}  # those to be repaired and the one in work, each once
        self._wanted = trio.Event()
        self._done = trio.Event()  # of the repair in work; replaced with each

    def request(self, log: LogReader, segment: Segment) -> None:
        """Read a segment through soon, and make its indexes anew if they are damaged."""
        self._requests.setdefault(segment, log)
        self._wanted.set()

    async def until_done(self, segment: Segment) -> None:
        """Wait until a request is over, whether the segment could be repaired or not."""
        while segment in self._requests:
            await self._done.wait()

    async def run(self) -> None:
        """Repair what is asked for; until cancelled."""
        while True:
            await self._wanted.wait()
            self._wanted = trio.Event()
            while self._requests:
                segment, log = next(iter(self._requests.items()))
                try:
                    await self._repair(log, segment)
                finally:
                    # Only now, not when it begins: readers that come back meanwhile would ask for the same work again.
                    del self._requests[segment]
                    self._done.set()
                    self._done = trio.Event()

    async def _repair(self, log: LogReader, segment: Segment) -> None:
        # Retention, a cut or a deletion may have come first.
        if segment not in log.segments or not log.log_directory.is_online:
            return
        # The thread reads a picture of the segment. `finish` drops what it found if the log has changed under it.
        survey = Survey(log, [segment])
        await self._run_in_thread(survey.run)
        try:
            survey.finish()
        except OSError as error:
            logger.error("%r cannot be repaired: %s", segment, log.storage_error(error))
        except (CorruptIndex, CorruptSegment, KafkaError) as error:
            logger.error("%r cannot be repaired: %s", segment, error)
