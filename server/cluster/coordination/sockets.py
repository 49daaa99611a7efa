"""Unix sockets that only their user may use, and frames sent over them.

A listening process holds a lock on the file `<socket>.lock`. The system releases the lock when the process ends, which
distinguishes a killed holder's socket from a live one's. A name that is too long for a socket is reached by the open
folder.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import socket
from collections import deque
from collections.abc import Iterator
from itertools import islice

import trio

from ottla.replication import system
from ottla.server.cluster.coordination.messages import Frame, Frames

PATH_BYTES_MAX = 100  # what the systems take for the path of a socket
LOCK_SUFFIX = ".lock"
BACKLOG = 64


class HeldElsewhere(OSError):
    """Error: another process listens on the socket. The message is one line for the operator."""


@contextlib.contextmanager
def listening(path: str) -> Iterator[socket.socket]:
    """Yield a Unix socket that listens at `path` for this user; remove it at the end.

    Raises OSError; HeldElsewhere if another process listens there.
    """
    # Once the lock is held, the former owner of the socket is dead.
    with _locked(path), bound(path) as listener:
        try:
            yield listener
        finally:
            with contextlib.suppress(OSError), short_path(path) as short:
                os.unlink(short)


def bound(path: str) -> socket.socket:
    """Return a non-blocking Unix socket that listens at `path`, open to this user only. Raises OSError.

    An existing socket at `path` is replaced. The caller must hold the lock that proves that no process listens there.
    """
    listener = socket.socket(socket.AF_UNIX)
    try:
        with short_path(path) as short:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(short)
            before = os.umask(0o177)
            try:
                listener.bind(short)
            finally:
                os.umask(before)
        listener.listen(BACKLOG)
        listener.setblocking(False)
    except BaseException:
        listener.close()
        raise
    return listener


@contextlib.contextmanager
def _locked(path: str) -> Iterator[None]:
    # The file stays: who would remove it could remove that of somebody who has locked it meanwhile.
    descriptor = os.open(path + LOCK_SUFFIX, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise HeldElsewhere(f"another process serves {path}") from None
        yield
    finally:
        os.close(descriptor)


def is_held(path: str) -> bool:
    """Return True if a process listens at `path`. Raises OSError if the folder does not exist."""
    try:
        with _locked(path):
            return False
    except HeldElsewhere:
        return True


def connected(path: str) -> socket.socket:
    """Return a non-blocking connection to the listener at `path`. Raises OSError if no process listens there."""
    sock = socket.socket(socket.AF_UNIX)
    try:
        sock.setblocking(False)
        with short_path(path) as short:
            sock.connect(short)
    except BaseException:
        sock.close()
        raise
    return sock


def is_own(sock: socket.socket) -> bool:
    """Return True if the peer runs as this user, or if its user is unknown: file permissions admit only this user."""
    try:
        return system.peer_user(sock) in (None, os.geteuid())
    except OSError:
        return False  # it is gone


@contextlib.contextmanager
def short_path(path: str) -> Iterator[str]:
    """Yield a path of the file that is short enough for a socket; else `path` itself if the system has none.

    The shorter path leads through an open descriptor of the file's folder.
    """
    if len(os.fsencode(path)) <= PATH_BYTES_MAX:
        yield path
        return
    folder, name = os.path.split(path)
    descriptor = os.open(folder, os.O_RDONLY | system.O_DIRECTORY | os.O_CLOEXEC)
    try:
        short = system.path_of_open(descriptor)
        yield path if short is None else f"{short}/{name}"
    finally:
        os.close(descriptor)


RECEIVED_BYTES = 64 << 10  # at a time, after which others get their turn
ROOM_BYTES = 256 << 10  # of what waits to be sent, above which nothing is begun that would add to it
PIECES_MAX = 100  # sent in one call
WAITING_BYTES_MAX = 16 << 20  # above which the other side is given up: it does not receive what it is told


class FramedSocket:
    """Unix socket for frames: one task receives, one sends, all may queue. It owns the non-blocking `sock`."""

    def __init__(self, sock: socket.socket, *, frame_bytes_max: int) -> None:
        self._sock = sock
        self._frames = Frames(frame_bytes_max)
        self._waiting: deque[memoryview] = deque()
        self._waiting_bytes = 0
        self.sent_at = trio.current_time()
        """Time of the last send that had to wait."""
        self._moved = trio.Event()  # something was given to be sent, or was sent; replaced each time
        self.is_closed = False
        self._look_for_end, self._look_for_input = select.poll(), select.poll()
        self._look_for_end.register(sock, 0)  # it is reported without being asked for
        self._look_for_input.register(sock, select.POLLIN)

    # ------------------------------------------------------------------ sending

    def send(self, frame: bytes, *, at_once: bool = True) -> None:
        """Send or queue a frame. Only a response proves that the frame arrived.

        `at_once` False: only queue the frame, so that all frames of this step of the event loop are sent together.
        """
        if self.is_closed:
            return
        rest = memoryview(frame)
        # Most frames go at once, and no other task has to run for them.
        if at_once and not self._waiting:
            rest = rest[self._sent([rest]) :]
        if not rest or self.is_closed:
            return
        self._waiting.append(rest)
        self._waiting_bytes += len(rest)
        if self._waiting_bytes > WAITING_BYTES_MAX:
            self.close()
        self._move()

    def _sent(self, pieces: list[memoryview]) -> int:
        """Send as much as possible without blocking; return the number of bytes sent."""
        try:
            return self._sock.sendmsg(pieces)
        except BlockingIOError:
            return 0
        except OSError:  # the receiving task hears of it, too
            self.close()
            return 0

    async def run_sender(self) -> None:
        """Send queued frames until the connection is lost."""
        while not self.is_closed:
            if not self._waiting:
                await self._moved.wait()
                continue
            try:
                await trio.lowlevel.wait_writable(self._sock)
            except trio.ClosedResourceError:
                return
            self._forget(self._sent(list(islice(self._waiting, PIECES_MAX))))

    def _forget(self, sent: int) -> None:
        if not sent or self.is_closed:
            return
        self._waiting_bytes -= sent
        self.sent_at = trio.current_time()
        while sent:
            first = self._waiting.popleft()
            if len(first) > sent:
                self._waiting.appendleft(first[sent:])
            sent -= min(sent, len(first))
        self._move()

    @property
    def has_room(self) -> bool:
        """True if few bytes are queued for sending."""
        return self._waiting_bytes <= ROOM_BYTES

    async def until_room(self) -> None:
        """Wait until few bytes are queued, or the connection is lost."""
        await trio.lowlevel.checkpoint()
        while not self.has_room and not self.is_closed:
            await self._moved.wait()

    def _move(self) -> None:
        self._moved.set()
        self._moved = trio.Event()

    # ------------------------------------------------------------------ receiving

    async def receive(self) -> Iterator[Frame] | None:
        """Wait for data; return an iterator of frames (raises Malformed), or None at the end of the connection."""
        while not self.is_closed:
            try:
                await trio.lowlevel.wait_readable(self._sock)
                data = self._sock.recv(RECEIVED_BYTES)
            except BlockingIOError:
                continue
            except (OSError, trio.ClosedResourceError):
                return None
            return self._frames.feed(data) if data else None
        return None

    @property
    def has_come(self) -> bool:
        """True if `receive` would return without a wait: data or the end of the stream has arrived."""
        return self.is_closed or bool(self._look_for_input.poll(0))

    @property
    def is_lost(self) -> bool:
        """True if the system reports that the peer has closed the connection or died."""
        return self.is_closed or bool(self._look_for_end.poll(0))

    def close(self) -> None:
        """Shut the connection down, even if another process holds a copy of the socket."""
        if self.is_closed:
            return
        self.is_closed = True
        self._waiting.clear()
        trio.lowlevel.notify_closing(self._sock)
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        self._sock.close()
        self._move()
