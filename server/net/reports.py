"""What is logged about a connection at length."""

from __future__ import annotations

import logging
from functools import partial

import trio

logger = logging.getLogger("ottla.connection")


async def report_bug(error: Exception, peer: str, client_id: str) -> None:
    """Log it in a thread: a traceback has source lines in it, and those of many tasks take long to look up."""
    report = partial(logger.error, "bug: closing the connection of %s (client id %r)", exc_info=error)
    # The line is written even if the broker stops meanwhile: nothing else tells of the bug.
    with trio.CancelScope(shield=True):
        await trio.to_thread.run_sync(report, peer, client_id)
