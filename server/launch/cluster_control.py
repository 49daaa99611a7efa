"""Control of a running `ottla cluster` by other commands, over a Unix socket that only its user may open.

A request is one line of JSON, {"do": "status"} or {"do": "start-broker", "broker": 2}, and so is its answer, an object that has
"error" if the request came to nothing. A client has REQUEST_S to send its request, and at most ASKING_MAX clients are connected
at a time.

`ottla cluster status` (`cluster_status`) shows the brokers, and who leads each partition and who is in sync. The command that runs
the cluster knows its processes; the rest says one of the brokers, asked as any client asks (Metadata).

In the command's own terminal the keys 1 to 9 kill that broker, or start it again (`terminal`, `keys`).
"""

from __future__ import annotations

import json
import logging
import os
import socket
import ssl
import struct
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import trio

from ottla.replication.system import peer_pid
from ottla.server.cluster.coordination.sockets import bound, short_path
from ottla.server.config.loggers import shown
from ottla.wire.errors import ErrorCode, ProtocolViolation
from ottla.wire.headers import RequestHeader, encode_request_header
from ottla.wire.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponsePartition

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
    """Request of an `ottla cluster` control command. `broker`: the broker's number; 0 if the request names none."""

    do: str
    broker: int = 0


class Unanswered(Exception):
    """Raised if the cluster did not respond, or reported a failure. The text is one line for the user."""


class NotRunning(Unanswered):
    """Raised if no cluster runs in the folder."""


Answer = Callable[[Asked], Awaitable[dict[str, Any]]]


def parse_request(line: bytes) -> Asked:
    """Return a control request parsed from a line. Raises Unanswered if it is invalid."""
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
    """Accept connections of control commands and answer their requests, until cancelled."""
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
    """Return the listening Unix socket for `serve_control`. Raises OSError if it cannot be opened."""
    # No other process listens there: the owner of the folder's lock runs the cluster.
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
        pass  # the client does not wait any more
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
    """Send a request to the cluster that runs in `folder`, and return its response. Blocks. Raises Unanswered.

    `pid` in the response is replaced by the pid that the kernel reports, if it does: in a container they may differ.
    """
    nobody = NotRunning(f"no `ottla cluster` runs in {folder}; --data FOLDER names another")
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(CONNECT_S)
            with short_path(str(folder / SOCKET)) as path:
                connection.connect(path)
            connection.settimeout(timeout_s)
            connection.sendall(json.dumps(request._asdict()).encode() + b"\n")
            line = _whole(connection)
            pid = peer_pid(connection)
    except TimeoutError:
        raise Unanswered(f"the `ottla cluster` in {folder} does not answer") from None
    except (ConnectionError, FileNotFoundError, NotADirectoryError):
        raise nobody from None
    except OSError as error:
        raise Unanswered(f"the `ottla cluster` in {folder} cannot be asked: {error.strerror or error}") from None
    try:
        told = json.loads(line)
    except ValueError:
        raise nobody from None  # it has ended meanwhile
    if not isinstance(told, dict):
        raise Unanswered(f"something else answers in {folder}")
    if "error" in told:
        raise Unanswered(str(told["error"]))
    return told if pid is None or "pid" not in told else told | {"pid": pid}


def _whole(connection: socket.socket) -> bytes:
    line = b""
    while len(line) <= ANSWER_BYTES_MAX and (received := connection.recv(65536)):
        line += received
    return line


ASKED_S: Final = 3.0
METADATA_BYTES_MAX: Final = 100 * 1024 * 1024
PARTITIONS_SHOWN_MAX: Final = 1_000
METADATA_VERSION: Final = 12
_CLIENT_ID: Final = "ottla-cluster-status"
_NOBODY: Final = -1


def cluster_status(folder: Path) -> list[str]:
    """Return the lines of `ottla cluster status` for the user. Raises Unanswered if no cluster runs in `folder`."""
    told = ask(folder, Asked(STATUS), timeout_s=ASKED_S)
    brokers = told["brokers"]
    metadata, problem = None, "no broker runs"
    for broker in (each for each in brokers if each["serves"]):
        try:
            metadata = ask_metadata(broker["host"], broker["port"], _context(told.get("secure")))
            break
        except (OSError, ProtocolViolation) as error:
            problem = f"broker {broker['number']} does not say: {error}"
    return [*broker_lines(brokers, metadata), "", *topic_lines(metadata, problem)]


def _context(secure: str | None) -> ssl.SSLContext | None:
    if secure is None:
        return None
    from ottla.server.launch.cluster_children import NotSecured, Secured

    try:
        return Secured(Path(secure)).client_context()
    except NotSecured as error:
        raise Unanswered(str(error)) from None


def ask_metadata(host: str, port: int, context: ssl.SSLContext | None) -> MetadataResponse:
    """Ask a broker for the metadata of all topics, and return the response.

    Raises OSError, also if no response arrives in time, or ProtocolViolation.
    """
    header = encode_request_header(RequestHeader(MetadataRequest.api_key, METADATA_VERSION, 1, _CLIENT_ID), 2)
    request = header + MetadataRequest(topics=None, allow_auto_topic_creation=False).encode(METADATA_VERSION)
    with socket.create_connection((host, port), timeout=ASKED_S) as plain:
        connection = plain if context is None else context.wrap_socket(plain, server_hostname=host)
        with connection:
            connection.sendall(struct.pack(">i", len(request)) + request)
            (size,) = struct.unpack(">i", _received(connection, 4))
            if not 5 <= size <= METADATA_BYTES_MAX:
                raise ProtocolViolation(f"an answer of {size} bytes")
            return MetadataResponse.decode(_received(connection, size), METADATA_VERSION, 5, size)


def _received(connection: socket.socket, size: int) -> bytes:
    received = bytearray()
    while len(received) < size:
        chunk = connection.recv(min(size - len(received), 1 << 20))
        if not chunk:
            raise ConnectionResetError("it closes the connection")
        received += chunk
    return bytes(received)


def broker_lines(brokers: Sequence[Mapping[str, Any]], metadata: MetadataResponse | None) -> list[str]:
    """Return one line of text for each broker: address, number of led partitions, and state."""
    leads: dict[int, int] = {}
    for _, partition in _partitions(metadata):
        leads[partition.leader_id] = leads.get(partition.leader_id, 0) + 1
    controller = None if metadata is None else metadata.controller_id
    rows = [("broker", "address", "leads", "state")]
    for broker in brokers:
        number = broker["number"]
        state = broker["state"] + (", is the controller" if number == controller else "")
        count = "?" if metadata is None else str(leads.get(number, 0))
        rows.append((str(number), f"{broker['host']}:{broker['port']}", count, shown(state)))
    return _table(rows)


def topic_lines(metadata: MetadataResponse | None, problem: str) -> list[str]:
    """Return a line of text for each partition, with marks for missing replicas. Without metadata return `problem`."""
    if metadata is None:
        return [f"leaders are not known: {problem}"]
    if not metadata.topics:
        return ["there are no topics yet"]
    rows = [("topic", "partition", "leader", "replicas", "in sync", "")]
    partitions = sorted(_partitions(metadata), key=lambda each: (each[0], each[1].partition_index))
    for name, partition in partitions[:PARTITIONS_SHOWN_MAX]:
        rows.append((shown(name), *_cells(partition)))
    left = len(partitions) - PARTITIONS_SHOWN_MAX
    return _table(rows) + ([f"and {left} partitions more"] if left > 0 else [])


def _cells(partition: MetadataResponsePartition) -> tuple[str, str, str, str, str]:
    leader = "none" if partition.leader_id == _NOBODY else str(partition.leader_id)
    missing = len(partition.replica_nodes) - len(partition.isr_nodes)
    mark = "offline" if partition.leader_id == _NOBODY else "under-replicated" if missing > 0 else ""
    return str(partition.partition_index), leader, _listed(partition.replica_nodes), _listed(partition.isr_nodes), mark


def _listed(node_ids: Sequence[int]) -> str:
    return ",".join(map(str, node_ids)) or "none"


def _partitions(metadata: MetadataResponse | None) -> Iterator[tuple[str, MetadataResponsePartition]]:
    for topic in [] if metadata is None else metadata.topics:
        if topic.error_code == ErrorCode.NONE:
            for partition in topic.partitions:
                yield topic.name or "", partition


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


BACKGROUND_S = 0.5  # between two looks whether this process is in the foreground again
_READ_BYTES = 64


class Keyboard:
    """Terminal from which single keys are read, while the command runs in the terminal's foreground.

    Input and output must be this terminal. Keys are not echoed; Ctrl-C and Ctrl-Z work; modes are restored at the end.
    The terminal is opened anew, so that reads do not block and no other process's descriptor changes. A background
    command has no Keyboard: the system stops a background process that reads a terminal or sets its modes.
    """

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.is_open = True
        """Afterwards the number of the descriptor may be that of another file."""


@contextmanager
def terminal() -> Iterator[Keyboard | None]:
    """Yield a Keyboard for the command's terminal, or None if there is no suitable one. Call this inside trio."""
    import termios  # there is none on every system

    descriptor = _opened()
    if descriptor is None:
        yield None
        return
    keyboard = Keyboard(descriptor)
    try:
        before = termios.tcgetattr(descriptor)
        modes = termios.tcgetattr(descriptor)
        modes[3] &= ~(termios.ICANON | termios.ECHO)
        termios.tcsetattr(descriptor, termios.TCSADRAIN, modes)
        try:
            yield keyboard
        finally:
            if _is_in_foreground(descriptor):
                termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
    finally:
        keyboard.is_open = False
        trio.lowlevel.notify_closing(descriptor)
        os.close(descriptor)


def _opened() -> int | None:
    try:
        if not (os.isatty(sys.stdin.fileno()) and os.isatty(sys.stdout.fileno())):
            return None
        descriptor = os.open(os.ttyname(sys.stdin.fileno()), os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
    except (OSError, ValueError, AttributeError):  # there is no input, or it is closed
        return None
    if _is_in_foreground(descriptor):
        return descriptor
    os.close(descriptor)
    return None


def _is_in_foreground(descriptor: int) -> bool:
    try:
        return os.tcgetpgrp(descriptor) == os.getpgrp()
    except OSError:  # it is the terminal of another session, or has gone
        return False


async def keys(keyboard: Keyboard) -> AsyncIterator[str]:
    """Yield the keys pressed while this process is in the foreground, until the terminal is closed."""
    descriptor = keyboard.descriptor
    while keyboard.is_open:
        try:
            await trio.lowlevel.wait_readable(descriptor)
            # Closed since this task was woken: the loop lets others go first.
            if not keyboard.is_open:
                return
            if not _is_in_foreground(descriptor):
                await trio.sleep(BACKGROUND_S)
                continue
            pressed = os.read(descriptor, _READ_BYTES)
        except BlockingIOError:  # somebody else was quicker
            continue
        except (OSError, trio.ClosedResourceError):
            return
        if not pressed:
            return
        for key in pressed.decode("ascii", "replace"):
            yield key
