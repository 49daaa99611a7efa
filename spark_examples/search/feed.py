"""Plays the recorded feed over HTTP, as the streaming APIs of social networks do, and runs a command meanwhile.

    python feed.py --bootstrap 127.0.0.1:9092 -- python produce.py

The command finds the address in FEED_URL. Posts are Server-Sent Events with ids, of which `Last-Event-ID` asks for those behind one. As
its models do, the feed limits how often a client connects (429 with Retry-After and X-RateLimit headers), is unavailable now and then
(503), cuts connections in the middle of an event, and repeats some events after a reconnect. 204 says that it is over.
"""

import argparse
import os
import subprocess
import sys
import threading
import time
from collections import deque
from datetime import UTC, datetime
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

import expected

PATH = "/api/v1/streaming/public"
HEARTBEAT_EVENTS = 100
LONG_POSTS = 2
LONG_WORDS = 40_000


class Habits(NamedTuple):
    """The troubles of a feed."""

    cut_after: int = 400
    """Events of a connection."""

    repeats: int = 20
    """Events before the one that a client asks for."""

    connections: int = 4
    """Connections that a client may open in a window."""

    window_s: float = 2.0


class Feed(ThreadingHTTPServer):
    """Serves events, whose ids are their numbers from 1 on."""

    daemon_threads = True

    def __init__(self, events: list[bytes], habits: Habits, address: tuple[str, int] = ("127.0.0.1", 0)) -> None:
        super().__init__(address, Stream)
        self.events, self.habits = events, habits
        self.refused = self.cut = self.sent = 0
        self._opened: deque[float] = deque()
        self._lock = threading.Lock()
        self._was_unavailable = False

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}{PATH}"

    def admit(self) -> tuple[HTTPStatus, int, float]:
        """Count a connection: the answer, how many more are left in this window, and when the window ends."""
        with self._lock:
            now = time.time()
            while self._opened and self._opened[0] <= now - self.habits.window_s:
                self._opened.popleft()
            if len(self._opened) >= self.habits.connections:
                self.refused += 1
                return HTTPStatus.TOO_MANY_REQUESTS, 0, self._opened[0] + self.habits.window_s
            self._opened.append(now)
            left, until = self.habits.connections - len(self._opened), self._opened[0] + self.habits.window_s
            # Once, at the second connection.
            if self.cut and not self._was_unavailable:
                self._was_unavailable = True
                return HTTPStatus.SERVICE_UNAVAILABLE, left, until
            return HTTPStatus.OK, left, until


class Stream(BaseHTTPRequestHandler):
    """One connection of a client."""

    server: Feed
    timeout = 30

    def do_GET(self) -> None:
        if self.path != PATH:
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        last = self.headers.get("Last-Event-ID", "0")
        if not last.isdecimal() or len(last) > 18:
            self.send_error(HTTPStatus.BAD_REQUEST, "Last-Event-ID is no number")
            return
        status, left, until = self.server.admit()
        if status is HTTPStatus.OK and int(last) >= len(self.server.events):
            status = HTTPStatus.NO_CONTENT
        self._head(status, left, until)
        if status is HTTPStatus.OK:
            self._play(max(0, int(last) - self.server.habits.repeats) if int(last) else 0)

    def _head(self, status: HTTPStatus, left: int, until: float) -> None:
        self.send_response(status)
        self.send_header("X-RateLimit-Limit", str(self.server.habits.connections))
        self.send_header("X-RateLimit-Remaining", str(left))
        self.send_header("X-RateLimit-Reset", datetime.fromtimestamp(until, UTC).isoformat().replace("+00:00", "Z"))
        if status is HTTPStatus.TOO_MANY_REQUESTS:
            self.send_header("Retry-After", str(int(until - time.time()) + 1))
        if status is HTTPStatus.OK:
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Cache-Control", "no-store")
        self.end_headers()

    def _play(self, begin: int) -> None:
        """Write events until the connection is cut, in the middle of one."""
        events = self.server.events
        end = begin + self.server.habits.cut_after
        for index in range(begin, min(end, len(events))):
            if index % HEARTBEAT_EVENTS == 0:
                self.wfile.write(b":thump\n\n")
            self.wfile.write(framed(index + 1, events[index]))
            self.server.sent += 1
        if end < len(events):
            self.wfile.write(framed(end + 1, events[end])[:-20])
            self.server.cut += 1

    def log_message(self, format: str, *arguments: Any) -> None:
        """Nothing: the producer says what it meets."""


def framed(number: int, data: bytes) -> bytes:
    """Frame an event; each line of its data has a field of its own."""
    lines = b"".join(b"data: %b\n" % line for line in data.split(b"\n"))
    return b"id: %d\nevent: update\n%b\n" % (number, lines)


def recording(bootstrap: str, topic: str) -> list[bytes]:
    """All values of the recorded topic. One that is null comes as nothing at all, which is no post either."""
    return [record.value or b"" for record in expected.records(bootstrap, topic)]


def with_long_posts(events: list[bytes], count: int = LONG_POSTS) -> list[bytes]:
    """The events with some between them that are longer than the topic allows."""
    found = list(events)
    for number in range(count):
        text = b" ".join([b"word"] * LONG_WORDS)
        post = b'{"id":"long-%d","author":"a0","text":"%b","tags":[],"lang":"en","time":"2026-01-01T10:00:00Z"}'
        found.insert((number + 1) * len(events) // (count + 1), post % (number, text))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="Play the recorded feed over HTTP while a command runs.")
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    parser.add_argument("--topic", default="posts", help="name of the topic of posts; the recording is TOPIC-recorded")
    parser.add_argument("command", nargs="+", help="a command and its arguments, behind --")
    options = parser.parse_args()
    events = with_long_posts(recording(options.bootstrap, f"{options.topic}-recorded"))
    with Feed(events, Habits()) as feed:
        threading.Thread(target=feed.serve_forever, daemon=True).start()
        done = subprocess.run(options.command, env=os.environ | {"FEED_URL": feed.url}, check=False)
        feed.shutdown()
    print(
        f"feed: {len(events):,} events, {feed.sent:,} sent; {feed.cut} connections cut, {feed.refused} refused by 429"
    )
    sys.exit(done.returncode)


if __name__ == "__main__":
    main()
