"""Sessions kept sure by probes: the part shared by adapters whose service is on the other side of a connection.

A session cannot have ended before its timeout has passed since the last answered probe was sent. `session_sure_until`
keeps a third of the timeout in hand for clocks, for what the service's leader learns late, and for the broker to stop. A
probe every sixth of the timeout leaves at least half of it for the service to be restarted or to elect a leader. A
connection whose probe stays unanswered for a third is given up, so that another server is tried.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING

import trio

from ottla.replication.cluster.coordination import SessionExpired

if TYPE_CHECKING:
    from ottla.replication.cluster.coordination import OnSessionChange

SURE_SHARE, PROBE_SHARE, ANSWER_SHARE = 2 / 3, 1 / 6, 1 / 3  # of the session timeout


class ProbedSession(ABC):
    """Base class of sessions that send probes, to know until when they are certainly valid."""

    def __init__(self, timeout_s: float) -> None:
        self.session_id = 0
        self.session_sure_until = -math.inf
        self._timeout_s = timeout_s
        self._ended = self._was_sure = False
        self._changed = trio.Event()  # of the session; replaced each time
        self._probe_sent = -math.inf
        self._probe_open = False
        self._session_listeners: dict[object, OnSessionChange] = {}

    # ------------------------------------------------------------------ what the adapter does

    @property
    @abstractmethod
    def _is_connected(self) -> bool: ...

    @abstractmethod
    def _send_probe(self, sent: float) -> None:
        """Send a request that only a live session can answer. On success, `_probe_answered` is called with `sent`."""

    @abstractmethod
    async def _give_up_connection(self) -> None:
        """Drop the connection, because a probe was not answered."""

    # ------------------------------------------------------------------ the port

    def session_now(self) -> float:
        return trio.current_time()

    def watch_session(self, on_change: OnSessionChange) -> Callable[[], None]:
        token = object()
        self._session_listeners[token] = on_change
        return lambda: (self._session_listeners.pop(token, None), None)[1]

    async def until_available(self) -> None:
        # A caller that tries again in a loop gives way to others, even if it need not wait.
        await trio.lowlevel.checkpoint()
        while not self._is_connected:
            if self._ended:
                raise SessionExpired
            await self._changed.wait()

    # ------------------------------------------------------------------ being sure

    async def _keep_sure(self) -> None:
        """Send probes until the session ends. Notify the listeners when the session is no longer certainly valid."""
        while not self._ended:
            now = self.session_now()
            # Step 1: prove that the session lives, or give up a connection on which that cannot be proven.
            if self._is_connected and now >= self._probe_due():
                if self._probe_open:
                    await self._give_up_connection()
                    # The session may have ended meanwhile. Its change has been told, and nothing below would hear of it.
                    continue
                self._probe()
            # Step 2: the listeners fence what rests on the session, before it can have ended.
            if self._was_sure and now >= self.session_sure_until:
                self._was_sure = False
                self._call_session_listeners()
            # Step 3: sleep until one of these is due, or until something changes.
            wake = min(
                self._probe_due() if self._is_connected else math.inf,
                self.session_sure_until if self._was_sure else math.inf,
            )
            with trio.move_on_after(max(0, wake - self.session_now())):
                await self._changed.wait()

    def _probe_due(self) -> float:
        """Return the time of the next probe. While a probe is unanswered: the time to give up the connection."""
        return self._probe_sent + self._timeout_s * (ANSWER_SHARE if self._probe_open else PROBE_SHARE)

    def _probe(self) -> None:
        # The time is taken before the sending: the service counts
        # the session's timeout from the arrival, which is later.
        self._probe_open, self._probe_sent = True, self.session_now()
        self._send_probe(self._probe_sent)

    def _probe_answered(self, sent: float) -> None:
        if self._ended:
            return
        # An answer to an earlier probe proves that the session lived then, but the present one is still open.
        if sent == self._probe_sent:
            self._probe_open = False
        self._note_contact(sent)

    def _note_contact(self, sent: float) -> None:
        """Record a response to a request sent at time `sent`. It proves that the session was alive at `sent`."""
        # Never earlier than before: answers to older requests may come later.
        self.session_sure_until = max(self.session_sure_until, sent + self._timeout_s * SURE_SHARE)
        self._session_changed()
        if not self._was_sure:
            self._was_sure = True
            self._call_session_listeners()

    def _no_longer_sure(self) -> None:
        self._ended = True
        self.session_sure_until, self._was_sure = -math.inf, False

    def _session_changed(self) -> None:
        # Waiting tasks have the old event, which stays set, so none misses a change.
        self._changed.set()
        self._changed = trio.Event()

    def _call_session_listeners(self) -> None:
        for token, listener in list(self._session_listeners.items()):
            if token in self._session_listeners:
                listener()
