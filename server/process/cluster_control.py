"""How another command speaks to a running `ottla cluster`: over a Unix socket in its data folder, which only its user may open.

A request is one line of JSON, {"do": "status"} or {"do": "start-broker", "broker": 2}, and so is its answer, an object that has
"error" if the request came to nothing. Whoever asks gets REQUEST_S to say what, and no more than ASKING_MAX ask at a time.
"""

from __future__ import annotations

import json
import logging
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

import trio

from ottla.server.coordination.sockets import bound, short_path

logger = logging.getLogger("ottla.cluster")

SOCKET: Final = ".control"
STATUS, START_BROKER = "status", "start-broker"
REQUEST_BYTES_MAX: Final = 1_000
ANSWER_BYTES_MAX: Final = 1_000_000
ASKING_MAX: Final = 20
REQUEST_S: Final = 5.0
CONNECT_S: Final = 3.0
RETRY_S: Final = 1.0


class Asked(NamedTuple):
    """A request. `broker` is 0 if it names none."""

    do: str
    broker: int = 0


class Unanswered(Exception):
    """Nobody answers, or the answer is that it came to nothing; one line for the user."""


Answer = Callable[[Asked], Awaitable[dict[str, Any]]]


def parse_request(line: bytes) -> Asked:
    """Raises Unanswered if it is none."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        raise Unanswered("a request is one line of JSON") from None
    if not isinstance(found, dict):
        raise Unanswered("a request is an object")
    do, broker = found.get("do"), found.get("broker", 0)
    if do not in (STATUS, START_BROKER) or type(broker) is not int:
        raise Unanswered(f"a request does {STATUS} or {START_BROKER}, which names a broker")
    return Asked(do, broker)


async def serve_control(listener: socket.socket, answer: Answer) -> None:
    """Answer requests until cancelled."""
    limit = trio.Semaphore(ASKING_MAX)
    with trio.socket.from_stdlib_socket(listener) as asynchronous:
        async with trio.open_nursery() as nursery:
            while True:
                await limit.acquire()
                try:
                    peer, _ = await asynchronous.accept()
                except OSError:  # there are no descriptors
                    limit.release()
                    await trio.sleep(RETRY_S)
                else:
                    nursery.start_soon(_converse, trio.SocketStream(peer), answer, limit)


def listen(folder: Path) -> socket.socket:
    """A socket for `serve_control`. OSError says why there is none."""
    # Nobody else listens there: whoever has the folder's lock runs the cluster.
    return bound(str(folder / SOCKET))


async def _converse(stream: trio.SocketStream, answer: Answer, limit: trio.Semaphore) -> None:
    try:
        async with stream:
            with trio.fail_after(REQUEST_S):
                line = await _line(stream)
            try:
                told = await answer(parse_request(line))
            except (Unanswered, OSError) as problem:
                told = {"error": str(problem)}
            except Exception:  # the cluster goes on
                logger.exception("bug: what was asked of the cluster")
                told = {"error": "this is a bug, which `ottla cluster` has told of"}
            with trio.fail_after(REQUEST_S):
                await stream.send_all(json.dumps(told).encode() + b"\n")
    except (trio.TooSlowError, trio.BrokenResourceError, OSError):
        pass  # whoever asked does not wait any more
    finally:
        limit.release()


async def _line(stream: trio.SocketStream) -> bytes:
    line = b""
    while b"\n" not in line and len(line) <= REQUEST_BYTES_MAX:
        received = await stream.receive_some(REQUEST_BYTES_MAX)
        if not received:
            break
        line += received
    return line[:REQUEST_BYTES_MAX]


def ask(folder: Path, request: Asked, *, timeout_s: float) -> dict[str, Any]:
    """Ask the cluster that runs in this folder; blocks. Raises Unanswered."""
    nobody = Unanswered(f"no `ottla cluster` runs in {folder}")
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(CONNECT_S)
        try:
            with short_path(str(folder / SOCKET)) as path:
                connection.connect(path)
            connection.settimeout(timeout_s)
            connection.sendall(json.dumps(request._asdict()).encode() + b"\n")
            line = _whole(connection)
        except TimeoutError:
            raise Unanswered(f"the `ottla cluster` in {folder} does not answer") from None
        except OSError:
            raise nobody from None
    try:
        told = json.loads(line)
    except ValueError:
        raise nobody from None  # it has ended meanwhile
    if not isinstance(told, dict):
        raise Unanswered(f"something else answers in {folder}")
    if "error" in told:
        raise Unanswered(str(told["error"]))
    return told


def _whole(connection: socket.socket) -> bytes:
    line = b""
    while len(line) <= ANSWER_BYTES_MAX and (received := connection.recv(65536)):
        line += received
    return line
