"""Large frames that a thread receives beside the event loop: complete, in order, and whatever happens meanwhile."""

from __future__ import annotations

import contextlib
import gc
import os
import random
import socket
import sys
import threading
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.server.network import background_worker
from ottla.server.network.background_worker import HANDED_OVER_BYTES_MIN, PENDING_MAX, BackgroundWorker
from ottla.server.network.inbox import HandOver, Inbox, ReceiveBuffers
from ottla.server.network.readiness import WAIT_READABLE, Readiness
from ottla.server.network.transport import PlainTransport

native: Any = pytest.importorskip("ottla.wire._native", reason="installed without a compiler")
if not hasattr(native, "hand_over"):
    pytest.skip("built before it could receive", allow_module_level=True)

PATIENCE_S = 60
FRAME_BYTES = 1_500_000


def frame(number: int, size: int = FRAME_BYTES) -> bytes:
    return size.to_bytes(4, "big") + random.Random(number).randbytes(size)


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.fixture
def readiness(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], Readiness]]:
    """Makes that of the test's loop, which always has something else to do, as it seems to it."""
    before, made = set(threading.enumerate()), []

    def make() -> Readiness:
        made.append(Readiness())
        if not made[0].is_inside_the_wait:
            pytest.skip("sockets are not served inside the wait here")
        return made[0]

    monkeypatch.setattr(BackgroundWorker, "ready_count", property(lambda self: 2, lambda self, count: None))
    yield make
    assert not [each for each in set(threading.enumerate()) - before if each.name == "background"]


class Peer:
    """A served socket, whose frames are collected as a connection does it, and the other end."""

    def __init__(self, readiness: Readiness, buffers: ReceiveBuffers) -> None:
        self.readiness, self.worker = readiness, readiness.worker
        ours, self.theirs = socket.socketpair()
        ours.setblocking(False)
        self.theirs.setblocking(False)
        self.transport, self.inbox = PlainTransport(ours), Inbox(buffers, 1 << 24)
        self.sums: list[int] = []
        self.handed_over = 0
        self.scope = trio.CancelScope()

    def step(self) -> Any:
        try:
            if not self.inbox.receive(self.transport, self.worker):
                return "end"
        except BlockingIOError:
            return WAIT_READABLE
        except HandOver:
            return "hand over"
        self.collect()
        self.inbox.detach()
        return WAIT_READABLE

    def collect(self) -> None:
        while (found := self.inbox.next_frame()) is not None:
            with memoryview(self.inbox.buffer) as view:
                self.sums.append(zlib.crc32(view[found[0] : found[1]]))

    async def run(self) -> None:
        try:
            with self.scope:
                while await self.readiness.serve(self.transport.socket, self.step) != "end":
                    self.handed_over += 1
                    self.inbox.detach()
                    await self.inbox.receive_beside(self.transport, self.worker)
                    self.collect()
                    self.inbox.detach()
        finally:
            self.inbox.close()
            self.transport.close()

    async def send(self, data: bytes, *, is_end: bool = True) -> None:
        stream = trio.SocketStream(trio.socket.from_stdlib_socket(self.theirs))
        with contextlib.suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            await stream.send_all(data)
        if is_end:
            await stream.aclose()


async def test_large_frames_are_received_beside_the_loop(readiness: Callable[[], Readiness]) -> None:
    loop, buffers = readiness(), ReceiveBuffers()
    before = descriptors()
    peers = [Peer(loop, buffers) for _ in range(6)]
    with trio.fail_after(PATIENCE_S):
        async with trio.open_nursery() as nursery:
            for index, peer in enumerate(peers):
                nursery.start_soon(peer.run)
                nursery.start_soon(peer.send, b"".join(frame(10 * index + number) for number in range(4)))
    for index, peer in enumerate(peers):
        assert peer.sums == [zlib.crc32(frame(10 * index + number)[4:]) for number in range(4)]
    assert sum(peer.handed_over for peer in peers) >= 6
    assert buffers.memory.used == 0
    loop.close()
    assert descriptors() == before


async def test_others_are_served_while_a_thread_receives(
    readiness: Callable[[], Readiness], monkeypatch: pytest.MonkeyPatch
) -> None:
    loop, buffers = readiness(), ReceiveBuffers()
    slow = Slow(monkeypatch)
    peer, other = Peer(loop, buffers), Peer(loop, buffers)
    with trio.fail_after(PATIENCE_S):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(peer.run)
            nursery.start_soon(other.run)
            nursery.start_soon(peer.send, frame(1) + frame(2))
            await slow.is_asked.wait()
            await other.send(frame(3, 100), is_end=False)
            loop.poke(peer.transport.socket)  # for nothing: it is not called meanwhile
            while not other.sums:
                await trio.sleep(0.001)
            assert peer.handed_over == 1
            slow.go_on.set()
            other.theirs.close()
    assert peer.sums == [zlib.crc32(frame(number)[4:]) for number in (1, 2)]
    loop.close()


class Slow:
    """Has the thread begin each receive only when it is told."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_asked, self.go_on = trio.Event(), threading.Event()
        hand_over, serve = native.hand_over, native.serve_receives

        def asked(*arguments: Any) -> None:
            hand_over(*arguments)
            self.is_asked.set()

        def served(end: int) -> None:
            assert self.go_on.wait(PATIENCE_S)
            serve(end)

        monkeypatch.setattr(background_worker, "_hand_over", asked)
        monkeypatch.setattr(background_worker, "_serve_receives", served)


@pytest.mark.parametrize("has_peer_left", [False, True])
async def test_a_connection_that_is_ended_meanwhile_keeps_its_socket_until_the_thread_is_done(
    readiness: Callable[[], Readiness], monkeypatch: pytest.MonkeyPatch, has_peer_left: bool
) -> None:
    loop, buffers = readiness(), ReceiveBuffers()
    slow, peer = Slow(monkeypatch), Peer(loop, buffers)
    with trio.fail_after(PATIENCE_S):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(peer.run)
            nursery.start_soon(peer.send, frame(1))
            await slow.is_asked.wait()
            if has_peer_left:
                peer.theirs.shutdown(socket.SHUT_RDWR)
            peer.scope.cancel()
            await trio.testing.wait_all_tasks_blocked()
            assert peer.transport.socket.fileno() >= 0
            assert buffers.memory.used > 0
            slow.go_on.set()
            while peer.transport.socket.fileno() >= 0:
                await trio.sleep(0.001)
            nursery.cancel_scope.cancel()
    peer.theirs.close()  # a sender that was cancelled has not done so
    assert peer.scope.cancelled_caught
    assert buffers.memory.used == 0
    loop.close()


async def test_a_stream_that_ends_within_a_frame(readiness: Callable[[], Readiness]) -> None:
    loop, buffers = readiness(), ReceiveBuffers()
    peer = Peer(loop, buffers)
    with trio.fail_after(PATIENCE_S):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(peer.run)
            nursery.start_soon(peer.send, frame(1) + frame(2)[:-1000])
    assert peer.sums == [zlib.crc32(frame(1)[4:])]
    assert buffers.memory.used == 0
    loop.close()


async def test_a_broken_connection_raises(readiness: Callable[[], Readiness]) -> None:
    worker = readiness().worker
    assert worker.is_wanted
    with socket.socket() as unconnected, pytest.raises(OSError, match="not connected"):
        await worker.receive(unconnected, bytearray(9), 0, 9)
    worker.close()
    with socket.socket() as unconnected:
        assert await worker.receive(unconnected, bytearray(9), 0, 9) == 0  # nobody does it any more
    assert not worker.is_wanted


async def test_the_thread_receives_nothing_from_a_peer_that_drips(readiness: Callable[[], Readiness]) -> None:
    """To hand over a byte takes longer than to receive it."""
    loop, buffers = readiness(), ReceiveBuffers()
    peer = Peer(loop, buffers)
    size, sent = 400_000, 270_000
    data = frame(1, size)
    with trio.fail_after(PATIENCE_S):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(peer.run)
            await peer.send(data[:sent], is_end=False)
            while peer.inbox.end < sent:
                await trio.sleep(0.001)
            for position in range(sent, sent + 50):
                peer.inbox.hear_all(peer.transport)  # as the housekeeper does it
                await peer.send(data[position : position + 1], is_end=False)
                while peer.inbox.end <= position:
                    await trio.sleep(0.001)
            dripped = peer.handed_over
            await peer.send(data[sent + 50 :] + frame(2))
    assert dripped <= 2
    assert peer.sums == [zlib.crc32(frame(*each)[4:]) for each in ((1, size), (2,))]
    loop.close()


async def test_without_a_thread_the_loop_receives(
    readiness: Callable[[], Readiness], monkeypatch: pytest.MonkeyPatch
) -> None:
    loop, before = readiness(), descriptors()

    def fails(*_: object) -> None:
        raise RuntimeError("no thread")

    monkeypatch.setattr(background_worker.threading.Thread, "start", fails)
    peer = Peer(loop, ReceiveBuffers())
    assert not loop.worker.is_wanted
    with trio.fail_after(PATIENCE_S):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(peer.run)
            nursery.start_soon(peer.send, frame(1) + frame(2))
    assert (len(peer.sums), peer.handed_over) == (2, 0)
    assert descriptors() == before


def test_a_loop_that_has_nothing_else_to_do_receives_itself() -> None:
    worker: Any = BackgroundWorker(lambda descriptor, act: None)
    with socket.socket() as worker._end:
        for ready, pending, expected in ((1, 0, False), (2, 0, True), (1, 1, True), (2, PENDING_MAX, False)):
            worker.ready_count, worker._pending = ready, pending
            assert worker.is_wanted is expected


@given(
    st.lists(st.integers(0, 4 * HANDED_OVER_BYTES_MIN) | st.integers(300_000, 900_000), min_size=1, max_size=4),
    st.lists(st.integers(1, 500_000), min_size=1, max_size=3).filter(lambda pieces: max(pieces) > 20_000),
)
@settings(max_examples=15, deadline=None)
def test_frames_of_any_size_in_any_pieces(sizes: list[int], pieces: list[int]) -> None:
    """The thread, or the loop, brings each byte to its place."""

    async def run() -> tuple[list[int], list[int], int]:
        loop, buffers = Readiness(), ReceiveBuffers()
        loop.worker._pending = 0
        whole = [frame(number, size) for number, size in enumerate(sizes)]
        peer, data, sent = Peer(loop, buffers), b"".join(whole), 0
        BackgroundWorker.is_wanted = property(lambda self: self._end is not None or self._start())  # type: ignore[assignment]
        with trio.fail_after(PATIENCE_S):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(peer.run)
                for number in range(sys.maxsize):
                    piece = pieces[number % len(pieces)]
                    await peer.send(data[sent : sent + piece], is_end=(sent := sent + piece) >= len(data))
                    if sent >= len(data):
                        break
        loop.close()
        return peer.sums, [zlib.crc32(each[4:]) for each in whole], buffers.memory.used

    wanted = BackgroundWorker.is_wanted
    try:
        received, expected, used = trio.run(run)
    finally:
        BackgroundWorker.is_wanted = wanted  # type: ignore[method-assign]
    assert received == expected
    assert used == 0


# ----------------------------------------------------------------------------- the functions in C


def test_jobs_are_done_in_their_order_and_hold_their_buffers() -> None:
    end, thread_end = socket.socketpair()
    ours, theirs = socket.socketpair()
    key, buffer = object(), bytearray(20)
    holders = sys.getrefcount(key)
    with end, thread_end, ours:
        theirs.send(b"abcdef")
        for start, size in ((0, 2), (10, 3), (5, 9), (6, 1)):
            native.hand_over(end.fileno(), key, ours.fileno(), buffer, start, size)
        assert sys.getrefcount(key) == holders + 4
        with pytest.raises(BufferError):
            buffer.append(1)
        assert native.take_received(end.fileno()) is None
        theirs.close()
        end.shutdown(socket.SHUT_WR)
        native.serve_receives(thread_end.fileno())  # what was handed over before is done
        results = [native.take_received(end.fileno()) for _ in range(5)]
        assert results == [(key, 2), (key, 3), (key, 1), (key, 0), None]
        with pytest.raises(OSError, match="Broken pipe"):
            native.hand_over(end.fileno(), key, ours.fileno(), buffer, 0, 1)
    del results
    gc.collect()
    assert sys.getrefcount(key) == holders
    assert buffer == b"ab\0\0\0f\0\0\0\0cde" + bytes(7)
    buffer.append(1)  # nobody holds it


def test_what_makes_no_sense_is_refused() -> None:
    buffer = bytearray(50)
    for start, size in ((-1, 1), (0, 0), (0, 51), (50, 1), (1 << 40, 1), (1, sys.maxsize)):
        with pytest.raises(ValueError, match="no such area"):
            native.hand_over(0, 1, 0, buffer, start, size)
    with pytest.raises(TypeError):
        native.hand_over(0, 1, 0, bytes(50), 0, 1)
    buffer.append(1)
