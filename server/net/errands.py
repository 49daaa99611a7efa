"""What a thread does for the event loop, without the interpreter lock, while the loop serves others.

Theory
    A large request is received, its records are decompressed and walked over, and it is appended. Only the last step needs what
    is the event loop's. Where several connections have something for the loop, the first two are handed over to one thread
    (`wire/_background.h`), which is kept: the rest of a large frame to be received (`Inbox`), and records that lz4 has compressed to be
    walked over (`ahead.py`). The connection is away meanwhile (`Readiness`), with its buffer, and goes on when that is done as if the bytes had
    come now, or the walk had taken no time.

    To hand over and to come back costs the loop some 10 us. A loop that is busy is not told: it asks before it looks at its sockets.

    Nobody waits for long: no errand waits for anything, all of them are short (2 MiB to receive, or to become of a batch), and
    there are few. What finds no room the loop does itself, as it does when nobody else waits for it, or where the thread cannot be
    had: without the native module, where it cannot be started, and where sockets are not served inside the wait.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable
from typing import Any

from ottla.replication.system import event_descriptor, hear_event
from ottla.wire.compressed_walk import Background
from ottla.wire.compression import Buffer

PENDING_MAX = 4
"""So many errands are under way at most. A connection has one."""
BYTES_MIN = 128 * 1024
"""Less, as it came, is done sooner than handed over and taken back."""
WALKED_BYTES_MAX = 2 * 1024 * 1024
TRIED_AGAIN_S = 10.0

Deliver = Callable[[Any], None]


class HandedOver(Exception):
    """The thread does it. Whoever wanted it is called again when it is done."""


class Errands:
    """Those of one event loop. `watch` has the loop look at a descriptor."""

    __slots__ = ("_native", "_not_before", "_thread", "_watch", "is_open", "others", "pending", "told_by")

    def __init__(self, watch: Callable[[int], None]) -> None:
        self._watch = watch
        self._native: Any = None
        self._thread: threading.Thread | None = None
        self._not_before = -math.inf if Background is not None else math.inf
        self.is_open = False
        """Whether the loop serves sockets, so that a connection may go away."""
        self.others = 0
        """How many sockets have something for the loop behind the one that is served."""
        self.pending = 0
        self.told_by = -1

    @property
    def is_wanted(self) -> bool:
        """Whether the loop has something else to do meanwhile, and the thread has time."""
        is_busy = self.is_open and (self.others or self.pending) and self.pending < PENDING_MAX
        return bool(is_busy) and (self._native is not None or self._start())

    def _start(self) -> bool:
        """Only now, because most brokers never need it. False: it cannot be had, and is asked for again after a while."""
        now = time.monotonic()
        if now < self._not_before:
            return False
        self._not_before = now + TRIED_AGAIN_S
        try:
            told_by = event_descriptor()
        except OSError:
            return False
        try:
            native = Background(told_by)
            self._watch(told_by)
            thread = threading.Thread(target=native.run, daemon=True, name="errands")
            thread.start()
        # No memory, no room in the epoll, no thread. A closed descriptor is in no epoll.
        except (MemoryError, OSError, RuntimeError):
            os.close(told_by)
            return False
        self._native, self._thread, self.told_by = native, thread, told_by
        return True

    def receive(self, descriptor: int, deliver: Deliver, buffer: Any, start: int, size: int) -> None:
        """Have `buffer[start:start + size]` filled by a socket. `deliver` gets (bytes, errno or 0, whether the stream has ended).

        HandedOver: it is. The descriptor has to stay open, and the buffer untouched, until then.
        """
        if self.is_wanted and self._native.receive_into((descriptor, deliver), descriptor, buffer, start, size):
            self.pending += 1
            raise HandedOver

    def walk(self, descriptor: int, deliver: Deliver, codec: int, data: Buffer, count: int) -> None:
        """Have `walk_stored` done for a connection. HandedOver: it is."""
        key = descriptor, deliver
        if self.is_wanted and self._native.walk_records(key, codec, data, WALKED_BYTES_MAX, count):
            self.pending += 1
            raise HandedOver

    def take_finished(self) -> list[int]:
        """Deliver what is finished; the descriptors of its connections."""
        descriptors = []
        while self.pending and (finished := self._native.take()) is not None:
            self.pending -= 1
            (descriptor, deliver), result = finished
            deliver(result)
            descriptors.append(descriptor)
        return descriptors

    def has_news(self) -> bool:
        """Whether any is finished. If none is, and one is under way, the descriptor `told_by` is readable when it is."""
        return bool(self._native.has_news())

    def hear(self) -> None:
        """The descriptor was readable: it shall not be before there is news again."""
        hear_event(self.told_by)

    def close(self) -> None:
        """End the thread."""
        native, self._native = self._native, None
        told_by, self.told_by = self.told_by, -1
        self._not_before = math.inf
        if native is not None:
            native.close()
            assert self._thread is not None
            self._thread.join()
            os.close(told_by)
