"""Reads Server-Sent Events, over as many connections as it takes: back-off, rate limits, and going on behind the last event."""

import email.utils
import http.client
import random
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

MAX_EVENT_BYTES = 1 << 20
"""Bytes of an event that are kept. What is longer is cut, and is no JSON then."""

READ_TIMEOUT_S = 60.0
BACKOFF_S = (0.2, 30.0)
WAIT_MAX_S = 900.0


class Lines(Protocol):
    def readline(self, limit: int, /) -> bytes: ...


class Event(NamedTuple):
    id: str
    name: str
    data: bytes


class FeedFailed(Exception):
    """The feed cannot be read, and trying again would not help, or has not helped for long."""


def parsed(lines: Lines, last_id: str = "") -> Iterator[Event]:
    """Parse events, as the HTML standard says. One without its blank line at the end is not whole, and is left out."""
    name, data, size, has_data = "", list[bytes](), 0, False
    while (line := lines.readline(MAX_EVENT_BYTES)).endswith(b"\n") or len(line) == MAX_EVENT_BYTES:
        is_whole = line.endswith(b"\n")
        line = line.removesuffix(b"\n").removesuffix(b"\r")
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if not line and is_whole:
            if has_data:
                yield Event(last_id, name or "message", b"\n".join(data))
            name, data, size, has_data = "", [], 0, False
        elif field == b"data":
            has_data = True
            if size < MAX_EVENT_BYTES:
                data.append(value[: MAX_EVENT_BYTES - size])
                size += len(data[-1]) + 1
        elif field == b"event":
            name = value[:100].decode("utf-8", "replace")
        elif field == b"id" and b"\0" not in value:
            last_id = value[:100].decode("latin-1")
        while not is_whole:  # the rest of a line that is too long
            rest = lines.readline(MAX_EVENT_BYTES)
            if is_whole := rest.endswith(b"\n"):
                break
            if not rest:
                return


def pause_s(attempt: int, headers: http.client.HTTPMessage | None) -> float:
    """Seconds to wait before the next connection: as long as the server asks for, or more with each attempt, at random."""
    asked = headers.get("Retry-After") if headers is not None else None
    if asked is not None and asked.isdecimal() and len(asked) < 6:
        return min(WAIT_MAX_S, float(asked))
    if asked is not None:
        try:
            return min(WAIT_MAX_S, max(0.0, email.utils.parsedate_to_datetime(asked).timestamp() - time.time()))
        except ValueError:
            pass
    least, most = BACKOFF_S
    return least + random.uniform(0, min(most, least * 2 ** min(attempt, 20)))


def follow(
    url: str,
    last_id: str = "",
    *,
    tell: Callable[[str], None] = print,
    sleep: Callable[[float], None] = time.sleep,
    attempts_max: int = 12,
) -> Iterator[Event]:
    """Yield events until the feed says that it is over (204). A connection that ends is opened again behind the last event.

    Raises FeedFailed if the server refuses for good, or if no attempt of `attempts_max` brings an event.
    """
    attempt = 0
    while True:
        request = urllib.request.Request(url, headers={"Accept": "text/event-stream"})
        if last_id:
            request.add_header("Last-Event-ID", last_id)
        headers, reason = None, "the connection ended"
        try:
            with urllib.request.urlopen(request, timeout=READ_TIMEOUT_S) as answer:
                if answer.status == 204:
                    return
                for event in parsed(answer, last_id):
                    last_id, attempt = event.id, 0
                    yield event
        except urllib.error.HTTPError as error:
            if error.code < 500 and error.code != 429:
                raise FeedFailed(f"{url} answers {error.code} {error.reason}") from None
            headers, reason = error.headers, f"{error.code} {error.reason}"
            error.close()
        except (OSError, http.client.HTTPException) as error:
            reason = str(error) or type(error).__name__
        attempt += 1
        if attempt > attempts_max:
            raise FeedFailed(f"{url} has brought nothing in {attempts_max} attempts: {reason}")
        seconds = pause_s(attempt, headers)
        tell(f"  {reason}; again in {seconds:.1f} s, behind event {last_id or 'none'}")
        sleep(seconds)
