"""The tap as tests see it: what clients and brokers said to each other.

A world of the lab has one `Wire`, and each of its brokers an acceptor: `Environment(accept=wire.acceptor(node_id), ...)`.

Connections are served in the thread of the broker's event loop. All other methods may be called from any thread.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ottla.server.testing.errors import LabError
from ottla.server.testing.wire_tap.filters import Filter
from ottla.server.testing.wire_tap.request_log import BYTES_MAX, REQUESTS_MAX, RequestLog
from ottla.server.testing.wire_tap.rules import RuleMaker, Rules
from ottla.server.testing.wire_tap.subjects import NameOf
from ottla.server.testing.wire_tap.topic_names import TopicNames
from ottla.server.testing.wire_tap.wire_request import WireConnection, WireRequest

if TYPE_CHECKING:
    from trio.lowlevel import TrioToken

    from ottla.server.network.transport import Transport

PATIENCE_S = 10.0
SETTLED_S = 1.0
SHOWN_LINES = 200
NOWHERE = ("0.0.0.0", 0)
"""Address of a client that cannot be told."""


def _system_clock_ms() -> float:
    return time.time_ns() / 1_000_000


class Wire:
    """Requests of all clients, with their answers, as they passed on the connections.

    Requests between brokers are left out, unless a call says `of_brokers=True`.
    """

    def __init__(
        self,
        clock_ms: Callable[[], float] = _system_clock_ms,
        *,
        topic_name: NameOf = lambda topic_id: None,
        requests_max: int = REQUESTS_MAX,
        bytes_max: int = BYTES_MAX,
    ) -> None:
        """`clock_ms`: the brokers' clock, milliseconds since 1970.

        `topic_name` returns the brokers' name of a topic id, or None for what the wire tells. `requests_max` and `bytes_max`
        bound what is remembered.
        """
        self.clock_ms = clock_ms
        self.keeps_records = False
        """Set to True to keep the records of large requests and answers, too; this costs a copy of each."""
        self.topics = TopicNames(topic_name)
        self._logs = {is_of_broker: RequestLog(requests_max, bytes_max) for is_of_broker in (False, True)}
        self.rules = Rules()
        self._connections = 0
        self._token: TrioToken | None = None
        self._loop_thread = self._process = 0
        self._changed = threading.Condition()
        self._waiting = self._news = 0

    # ------------------------------------------------------------------ for the lab

    def acceptor(self, node_id: int) -> Callable[[socket.socket], Transport]:
        """Return a function that makes the tapped transport of a socket that broker `node_id` has accepted."""
        return lambda sock: self._tapped(sock, node_id, sock)

    def acceptor_over_tls(self, node_id: int) -> Callable[[Transport], Transport]:
        """Return a function that makes the tapped transport of a connection with TLS from the one that encrypts its bytes."""
        from ottla.server.testing.wire_tap.decrypted import decrypted  # here, because few tests use TLS

        return lambda encrypted: self._tapped(decrypted(encrypted), node_id, encrypted.socket)

    def _tapped(self, plain: socket.socket, node_id: int, of_client: socket.socket) -> Transport:
        """Tap the plain text that a broker exchanges on `plain` with the client at `of_client`."""
        from ottla.server.testing.wire_tap.tapped import TappedTransport  # here, because readers of a tap need none

        self._connections += 1
        self._note_loop()
        connection = WireConnection(self._connections, node_id, *_ends(of_client), self.clock_ms())
        return TappedTransport(plain, connection, self, self.rules)

    def _note_loop(self) -> None:
        import trio  # here, because readers of a tap need none

        self._loop_thread, self._process = threading.get_ident(), os.getpid()
        with contextlib.suppress(RuntimeError):  # a test without an event loop
            self._token = trio.lowlevel.current_trio_token()

    def _settle(self) -> None:
        """Let the event loop finish its present step: an answer may have reached its client a moment ago."""
        # A child made by os.fork has no such loop.
        if self._token is None or threading.get_ident() == self._loop_thread or os.getpid() != self._process:
            return
        done = threading.Event()
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._token.run_sync_soon(done.set)
            done.wait(SETTLED_S)

    def note_request(self, request: WireRequest, kept_bytes: int) -> None:
        """Add a request to the log; called by connections."""
        self._logs[request.connection.is_of_broker].add(request, kept_bytes)
        self._tell()

    def note_answer(self, request: WireRequest, kept_bytes: int) -> None:
        """Count an answer; called by connections."""
        self._logs[request.connection.is_of_broker].grow(request, kept_bytes)
        self._tell()

    def _tell(self) -> None:
        self._news += 1
        # Nearly always nobody waits, and then the lock is not taken.
        if self._waiting:
            with self._changed:
                self._changed.notify_all()

    # ------------------------------------------------------------------ for tests

    def on(self, api: str | None = None, *, of_brokers: bool = False, **conditions: Any) -> RuleMaker:
        """Return the maker of a rule for requests that meet the conditions of `requests`, save `error` and `since`.

        `api`: None for requests of any API. `of_brokers`: for requests of other brokers instead of clients'. For example
        `wire.on("Produce", topic="orders").fail("NOT_LEADER_OR_FOLLOWER", times=3)`.
        """
        if "error" in conditions or "since" in conditions:
            raise LabError("A rule acts before there is an answer; leave error= and since= out.")
        return RuleMaker(self.rules, Filter(api, of_brokers=of_brokers, **conditions))

    @property
    def dropped(self) -> int:
        """Number of requests that were forgotten because there were too many."""
        return self._logs[False].dropped

    def clear(self) -> None:
        """Forget all requests."""
        for log in self._logs.values():
            log.clear()

    def requests(
        self,
        api: str | None = None,
        *,
        since: WireRequest | float | None = None,
        of_brokers: bool = False,
        **conditions: Any,
    ) -> list[WireRequest]:
        """Return the requests of clients that meet all conditions, oldest first.

        `api`: by Kafka's name, such as "Produce". `since`: only requests after this one, or after this time in seconds since
        1970. `of_brokers`: requests between brokers, too. `conditions`: `client_id`, `node` (broker id), `topic`,
        `partition`, `group`, `error` (Kafka's name), `version`, and fields of the request in snake_case, such as `acks=-1`.
        """
        wanted = Filter(api, **conditions)
        self._settle()
        return [each for each in self._seen(of_brokers, since) if wanted.matches(each)]

    def saw(self, api: str | None = None, **conditions: Any) -> bool:
        """True if there was a request that meets the conditions, which are those of `requests`."""
        return bool(self.requests(api, **conditions))

    def wait_for(self, api: str | None = None, *, timeout: float = PATIENCE_S, **conditions: Any) -> WireRequest:
        """Wait until a request meets the conditions of `requests`, and return the first one.

        Raises LabError after `timeout` seconds of real time. It blocks, so in an async program call it in a thread.
        """
        wanted_for = Filter(
            api, **{name: each for name, each in conditions.items() if name not in ("since", "of_brokers")}
        )
        until = time.monotonic() + timeout
        self._waiting += 1
        try:
            while True:
                news = self._news
                # Without the lock, which connections take to tell their news.
                if found := self.requests(api, **conditions):
                    return found[0]
                if (left := until - time.monotonic()) <= 0:
                    raise LabError(
                        f"No {wanted_for} was seen within {timeout:g} s; the tap has seen {self._summary()}."
                    )
                with self._changed:
                    if self._news == news:
                        self._changed.wait(left)
        finally:
            self._waiting -= 1

    def _summary(self) -> str:
        counts: dict[str, int] = {}
        for each in self._logs[False].all():
            counts[each.api] = counts.get(each.api, 0) + 1
        return ", ".join(f"{count} {api}" for api, count in counts.items()) or "no request"

    def lines(self, api: str | None = None, *, last: int = SHOWN_LINES, **conditions: Any) -> list[str]:
        """Return the last requests that meet the conditions of `requests`, as a line of text each.

        If there were more, the first line tells how many.
        """
        found = self.requests(api, **conditions)
        shown = found[-last:] if last > 0 else []
        earlier = len(found) - len(shown) + self.dropped
        head = [f"... {earlier:,} earlier requests"] if earlier else []
        return head + [each.line() for each in shown]

    def save(self, path: str | Path, api: str | None = None, *, hide_records: bool = False, **conditions: Any) -> int:
        """Write the requests that meet the conditions of `requests` to a file, as a line of JSON each; return their number.

        Messages are decoded, bytes are text or base64, and secrets are hidden. `hide_records`: hide keys, values and headers
        of records, too. Raises LabError if the file cannot be written.
        """
        from ottla.server.testing.wire_tap.json_lines import save_json_lines  # here, because few tests save

        return save_json_lines(path, self.requests(api, **conditions), hide_records=hide_records)

    def save_pcap(
        self,
        path: str | Path,
        api: str | None = None,
        *,
        port: int | None = 9092,
        hide_records: bool = False,
        **conditions: Any,
    ) -> int:
        """Write the requests that meet the conditions of `requests` to a capture file for Wireshark; return its packets' number.

        `port`: port of the brokers in the file, by which Wireshark recognizes Kafka; None for the real ones. Secrets are
        zeros; with `hide_records` so are records. Raises LabError if the file cannot be written.
        """
        from ottla.server.testing.wire_tap.pcap import save_pcap  # here, because few tests save

        return save_pcap(path, self.requests(api, **conditions), port=port, hide_records=hide_records)

    def _seen(self, of_brokers: bool, since: WireRequest | float | None) -> Iterator[WireRequest]:
        seen = self._logs[False].all()
        if of_brokers:
            seen = sorted(seen + self._logs[True].all(), key=lambda each: each.time)
        for each in seen:
            if isinstance(since, WireRequest):
                if each.time < since.time or (each.number <= since.number and each.is_of_broker == since.is_of_broker):
                    continue
            elif since is not None and each.time < since:
                continue
            yield each


def _ends(sock: socket.socket) -> tuple[tuple[str, int], int]:
    """Return the client's address, and the broker's port; for sockets without them stand-ins."""
    try:
        peer, own = sock.getpeername(), sock.getsockname()
    except OSError:  # the client has gone already
        return NOWHERE, 0
    # Sockets of other families have names or nothing.
    return ((str(peer[0]), int(peer[1])), int(own[1])) if isinstance(peer, tuple) else (NOWHERE, 0)
