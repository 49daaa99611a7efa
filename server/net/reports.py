"""What is logged about connections that end because something is wrong."""

from __future__ import annotations

import logging
from functools import partial

import trio

from ottla.replication.reminders import Reminders, log_with_count

logger = logging.getLogger("ottla.connection")

KEPT_MAX = 200
TEXT_CHARACTERS_MAX = 200


class Complaints:
    """Those of one listener: the same about the same client is told once a minute, and of different ones at most KEPT_MAX."""

    def __init__(self, listener_name: str) -> None:
        self._listener_name = listener_name
        self._reminders, self._bugs = Reminders(KEPT_MAX), Reminders(KEPT_MAX)

    def close(self, peer: str, client_id: str, reason: str) -> None:
        """A connection is closed because of what its peer has sent."""
        text = "closing the connection of %s (client id %r) to listener %s: %s"
        name = (peer, client_id[:TEXT_CHARACTERS_MAX], reason[:TEXT_CHARACTERS_MAX])
        self._reminders.tell(name, logger.warning, text, peer, client_id, self._listener_name, reason, source=peer)

    def note(self, peer: str, client_id: str, what: str) -> None:
        """A peer does what cannot be right; its connection stays."""
        text = "%s (client id %r) at listener %s: %s"
        name = (peer, client_id[:TEXT_CHARACTERS_MAX], what[:TEXT_CHARACTERS_MAX])
        self._reminders.tell(name, logger.warning, text, peer, client_id, self._listener_name, what, source=peer)

    async def report_bug(self, error: Exception, peer: str, client_id: str, *, is_closing: bool = True) -> None:
        """Log it in a thread: a traceback has source lines in it, and those of many tasks take long to look up.

        `is_closing`: its connection ends.
        """
        untold = self._bugs.untold(_place(error))
        if untold is None:
            return
        text = f"bug: {'closing the connection' if is_closing else 'no answer to a request'} of %s (client id %r)"
        tell = partial(log_with_count, untold, partial(logger.error, exc_info=error), text, peer, client_id)
        # The line is written even if the broker stops meanwhile: nothing else tells of the bug.
        with trio.CancelScope(shield=True):
            await trio.to_thread.run_sync(tell)


def _place(error: Exception) -> tuple[type[Exception], str, int]:
    """The kind of error and where it was raised: the same bug again and again is told once a minute."""
    trace = error.__traceback__
    if trace is None:
        return type(error), "", 0
    while trace.tb_next is not None:
        trace = trace.tb_next
    return type(error), trace.tb_frame.f_code.co_filename, trace.tb_lineno
