"""Ends connections that keep the event loop inside one read of TLS.

Theory
    OpenSSL reads on until it has data, and a peer may send messages without data for as long as it likes: in TLS 1.3 each
    KeyUpdate costs the reader twenty microseconds and the sender 27 bytes. Nothing limits that from within, so a thread looks
    from outside whether the loop has used READ_S of a processor in one read. An ordinary read takes a hundredth of that. The
    time of the processor counts, because on a busy machine any read may last long.

    The connection is cut off with all that it has sent, which ends the read with an error. That is done by the number of its
    descriptor, which is somebody else's as soon as the loop has closed the socket: whoever closes one takes `closing` first.
"""

from __future__ import annotations

import logging
import socket
import threading
import time
import weakref

from ottla.replication import system
from ottla.replication.reminders import Reminder

logger = logging.getLogger("ottla.tls")

READ_S = 0.02
LOOKED_AT_S = 0.02
IDLE_LOOKED_AT_S = 0.1  # while nobody reads


class Watch:
    """Looks at the reads of one event loop. Whoever reads sets `reading`, and counts in `count`."""

    __slots__ = ("__weakref__", "_has_started", "closing", "count", "reading")

    def __init__(self) -> None:
        self._has_started = False
        self.closing = threading.Lock()
        self.reading: socket.socket | None = None
        self.count = 0

    def start(self) -> None:
        """From now on, for the loop whose thread calls this, until nobody has this object any more."""
        if self._has_started:
            return
        self._has_started = True
        if not hasattr(time, "pthread_getcpuclockid") or not system.CAN_CUT_OFF:
            return
        clock = time.pthread_getcpuclockid(threading.get_ident())
        threading.Thread(target=_look, args=(weakref.ref(self), clock), name="endless reads", daemon=True).start()


def _look(reference: weakref.ref[Watch], clock: int) -> None:
    reminder = Reminder()
    count, began_s = -1, 0.0
    while (watch := reference()) is not None:
        is_idle = watch.reading is None and watch.count == count
        try:
            now_s = time.clock_gettime(clock)
        except OSError:  # the thread of the loop has ended
            return
        if watch.reading is None or watch.count != count:
            # Looked at anew, behind the count: what the loop has used before does not count as this read's.
            count = watch.count
            began_s = time.clock_gettime(clock)
        elif now_s - began_s > READ_S:
            _end(watch, count, reminder)
        del watch
        time.sleep(IDLE_LOOKED_AT_S if is_idle else LOOKED_AT_S)


def _end(watch: Watch, count: int, reminder: Reminder) -> None:
    with watch.closing:
        sock = watch.reading
        # Asked once more: that read may be over by now.
        is_cut_off = sock is not None and watch.count == count and system.cut_off(sock)
    if is_cut_off:
        reminder.tell(
            logger.warning, "cut off a peer that sends TLS messages without data, and keeps the event loop with them"
        )
