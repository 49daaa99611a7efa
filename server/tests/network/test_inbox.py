"""Frames are cut from whatever pieces a peer sends, and memory follows the bytes that arrived."""

import select
import socket
import struct
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.replication.system import IS_LINUX
from ottla.server.network.inbox import (
    FREE_BUFFER_BYTES,
    GROWN_AT_ONCE_BYTES,
    OWN_BUFFER_BYTES_MIN,
    SHARED_BUFFER_BYTES,
    Inbox,
    NoRoom,
    ReceiveBuffers,
)
from ottla.server.network.memory_accounting import MemoryBudget
from ottla.server.network.transport import EXPECTED_BYTES_MAX, PlainTransport
from ottla.wire.errors import ProtocolViolation
from ottla.wire.tests.effort import examples

FRAME_BYTES_MAX = 1_000_000


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, peer = socket.socketpair()
    ours.setblocking(False)
    with ours, peer:
        yield ours, peer


def frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def frames_of(inbox: Inbox) -> list[bytes]:
    found = []
    while (bounds := inbox.next_frame()) is not None:
        found.append(bytes(inbox.buffer[bounds[0] : bounds[1]]))
    return found


def test_several_frames_of_one_read_are_cut_from_the_shared_buffer(pair):
    ours, peer = pair
    buffers = ReceiveBuffers()
    inbox = Inbox(buffers, FRAME_BYTES_MAX)
    peer.sendall(frame(b"one") + frame(b"") + frame(b"three"))
    assert inbox.receive(PlainTransport(ours)) == 20
    assert frames_of(inbox) == [b"one", b"", b"three"]
    inbox.detach()
    assert inbox.buffer is buffers.shared


def test_a_partial_frame_survives_another_connection_using_the_shared_buffer(pair):
    ours, peer = pair
    buffers = ReceiveBuffers()
    inbox = Inbox(buffers, FRAME_BYTES_MAX)
    peer.sendall(frame(b"whole") + frame(b"partial")[:6])
    inbox.receive(PlainTransport(ours))
    assert frames_of(inbox) == [b"whole"]
    inbox.detach()
    buffers.shared[:64] = b"x" * 64
    peer.sendall(frame(b"partial")[6:])
    inbox.receive(PlainTransport(ours))
    assert frames_of(inbox) == [b"partial"]
    inbox.detach()
    assert inbox.buffer is buffers.shared


def test_a_claimed_length_allocates_nothing_before_its_bytes_arrive(pair):
    ours, peer = pair
    inbox = Inbox(ReceiveBuffers(), FRAME_BYTES_MAX)
    peer.sendall(struct.pack(">i", FRAME_BYTES_MAX) + b"only this")
    inbox.receive(PlainTransport(ours))
    assert frames_of(inbox) == []
    inbox.detach()
    assert len(inbox.buffer) == OWN_BUFFER_BYTES_MIN


def test_connections_share_a_buffer_which_is_made_with_the_first_of_them() -> None:
    buffers = ReceiveBuffers()
    assert "shared" not in vars(buffers)
    first, second = (Inbox(buffers, FRAME_BYTES_MAX) for _ in range(2))
    assert first.buffer is second.buffer is buffers.shared


def test_a_crowd_whose_large_frames_begin_at_once_takes_little_beyond_the_limit(pair):
    """All of them can be read before the first one waits for room."""
    ours, peer = pair
    memory = MemoryBudget(1_000_000)
    buffers = ReceiveBuffers(memory)
    for kept in [buffers.take(FRAME_BYTES_MAX, FRAME_BYTES_MAX) for _ in range(20)]:
        buffers.give_back(kept)
    crowd = [Inbox(buffers, FRAME_BYTES_MAX) for _ in range(100)]
    for inbox in crowd:
        peer.sendall(struct.pack(">i", FRAME_BYTES_MAX) + bytes(150_000))
        inbox.receive(PlainTransport(ours))
        inbox.detach()
        while True:
            try:
                ours.recv(SHARED_BUFFER_BYTES)  # what this one has left in the socket is not for the next one
            except BlockingIOError:
                break
    assert memory.used < 1_000_000 + FRAME_BYTES_MAX + len(crowd) * (FREE_BUFFER_BYTES + 4)


class Noting(PlainTransport):
    """Notes what it is to wait for."""

    def __init__(self, sock: socket.socket) -> None:
        super().__init__(sock)
        self.expected: list[int] = []

    def expect(self, count: int) -> None:
        self.expected.append(count)
        super().expect(count)


def receive_all(inbox: Inbox, transport: PlainTransport) -> list[bytes]:
    """The frames that are complete with what is in the socket."""
    found: list[bytes] = []
    while True:
        try:
            inbox.receive(transport)
        except BlockingIOError:
            return found
        found += frames_of(inbox)
        inbox.detach()


def test_the_rest_of_a_large_frame_is_waited_for_if_its_peer_is_quick(pair):
    ours, peer = pair
    transport, inbox = Noting(ours), Inbox(ReceiveBuffers(), FRAME_BYTES_MAX)
    data = memoryview(frame(b"x" * 900_000))
    for end in (1000, 2000):  # its own buffer begins with the second read, and little comes with it
        peer.sendall(data[end - 1000 : end])
        assert receive_all(inbox, transport) == []
    assert transport.expected == [0]
    peer.sendall(data[2000:102_000])
    receive_all(inbox, transport)
    assert transport.expected[-1] == 900_004 - 102_000
    lowest = ours.getsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT)
    assert lowest == (EXPECTED_BYTES_MAX if IS_LINUX else 1)
    data, found = data[102_000:], []
    while data:
        peer.sendall(data[:100_000])
        data = data[100_000:]
        found += receive_all(inbox, transport)
    assert found == [b"x" * 900_000]
    assert transport.expected[-1] == 0
    assert ours.getsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT) == 1  # or else a small frame would not be heard of


@pytest.mark.skipif(not IS_LINUX, reason="elsewhere the system tells of every byte")
def test_after_a_wait_for_memory_the_rest_of_a_frame_is_heard_of_however_short_it_is():
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as peer:
        ours, _ = server.accept()
        with ours:
            ours.setblocking(False)
            memory = MemoryBudget(FRAME_BYTES_MAX)
            transport, inbox = PlainTransport(ours), Inbox(ReceiveBuffers(memory), FRAME_BYTES_MAX)
            data = memoryview(frame(b"x" * 400_000))

            def receive(until: int) -> None:
                while inbox.end < until:
                    assert select.select([ours], [], [], 30)[0]
                    inbox.receive(transport)
                    inbox.detach()

            peer.sendall(data[:131_072])
            receive(131_072)
            peer.sendall(data[131_072:180_000])
            receive(180_000)
            memory.take(FRAME_BYTES_MAX)  # others are quicker
            with pytest.raises(NoRoom):
                peer.sendall(data[180_000:])
                receive(len(data))
            memory.give_back(FRAME_BYTES_MAX)
            receive(len(data))
            assert frames_of(inbox) == [b"x" * 400_000]


def test_in_a_series_of_large_frames_each_begins_in_a_buffer_of_its_own(pair):
    ours, peer = pair
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, FRAME_BYTES_MAX)
    transport, buffers = PlainTransport(ours), ReceiveBuffers()
    inbox, other = Inbox(buffers, FRAME_BYTES_MAX), Inbox(buffers, FRAME_BYTES_MAX)

    def received(bodies: list[bytes]) -> tuple[list[bytes], bool]:
        """The frames, and whether the beginning of the first one was received into the shared buffer."""
        data, found, is_shared = memoryview(b"".join(map(frame, bodies))), [], None
        while data:
            peer.sendall(data[:50_000])
            data = data[50_000:]
            inbox.receive(transport)
            is_shared = inbox.buffer is buffers.shared if is_shared is None else is_shared
            found += frames_of(inbox)
            inbox.detach()
        return found, bool(is_shared)

    large, small = b"l" * 600_000, b"s" * 100
    assert received([large]) == ([large], True)
    assert received([large]) == ([large], False)
    assert received([small, small]) == ([small, small], True)
    assert received([large]) == ([large], True)  # the small ones have ended the series
    assert received([b"l" * 400_000]) == ([b"l" * 400_000], False)
    # Nothing is there: the buffer goes back, and what others have in the shared one is not taken for ours.
    buffers.shared[:8] = frame(b"????")
    with pytest.raises(BlockingIOError):
        inbox.receive(transport)
    assert frames_of(inbox) == []
    inbox.detach()
    assert buffers.memory.used == 0
    assert other.buffer is inbox.buffer is buffers.shared


@pytest.mark.parametrize("size", [-1, FRAME_BYTES_MAX + 1, -(2**31), 2**31 - 1])
def test_an_impossible_length_is_a_violation(pair, size):
    ours, peer = pair
    inbox = Inbox(ReceiveBuffers(), FRAME_BYTES_MAX)
    peer.sendall(struct.pack(">i", size))
    inbox.receive(PlainTransport(ours))
    with pytest.raises(ProtocolViolation):
        inbox.next_frame()


@settings(max_examples=examples(12), deadline=None)
@given(
    bodies=st.lists(st.integers(0, 3 * SHARED_BUFFER_BYTES // 2), max_size=4),
    cuts=st.lists(st.integers(500, SHARED_BUFFER_BYTES), min_size=1, max_size=8),
)
def test_any_cutting_of_the_stream_gives_the_same_frames(bodies, cuts):
    ours, peer = socket.socketpair()
    with ours, peer:
        ours.setblocking(False)
        buffers = ReceiveBuffers()
        inbox = Inbox(buffers, FRAME_BYTES_MAX)
        sent = [bytes([index + 65]) * size for index, size in enumerate(bodies)]
        stream = memoryview(b"".join(map(frame, sent)))
        found: list[bytes] = []
        turn = 0
        while stream:
            piece, stream = stream[: cuts[turn % len(cuts)]], stream[cuts[turn % len(cuts)] :]
            turn += 1
            while piece:
                taken = peer.send(piece[:65536])
                piece = piece[taken:]
                while True:
                    try:
                        inbox.receive(PlainTransport(ours))
                    except BlockingIOError:
                        break
                    found += frames_of(inbox)
                    inbox.detach()
                    buffers.shared[:] = b"?" * len(buffers.shared)
        assert found == sent


def test_a_socket_without_input_leaves_nothing_of_others_in_the_inbox(pair):
    ours, peer = pair
    buffers = ReceiveBuffers()
    inbox = Inbox(buffers, FRAME_BYTES_MAX)
    peer.sendall(frame(b"mine"))
    inbox.receive(PlainTransport(ours))
    assert frames_of(inbox) == [b"mine"]
    inbox.detach()
    buffers.shared[:8] = frame(b"else")
    with pytest.raises(BlockingIOError):
        inbox.receive(PlainTransport(ours))
    assert frames_of(inbox) == []
    inbox.detach()
    assert inbox.buffer is buffers.shared


def received_in_steps(inbox: Inbox, pair: tuple[socket.socket, socket.socket], content: bytes) -> list[int]:
    """Give an inbox all of `content`; answers how much longer its buffer has become at a time."""
    ours, peer = pair
    grown = []
    peer.setblocking(False)
    rest = memoryview(content)
    while rest:
        rest = rest[peer.send(rest) :]
        while inbox.next_frame() is None:
            before = len(inbox.buffer)
            try:
                inbox.receive(PlainTransport(ours))
            except BlockingIOError:
                break
            inbox.detach()
            grown.append(len(inbox.buffer) - before)
    return grown


def test_a_large_buffer_grows_in_small_steps(pair):
    buffers = ReceiveBuffers()
    inbox = Inbox(buffers, 100_000_000)
    body = bytes(range(250)) * 100_000
    grown = received_in_steps(inbox, pair, frame(body))
    assert max(grown) <= GROWN_AT_ONCE_BYTES
    assert inbox.buffer[4:] == body
    assert buffers.memory.used == len(inbox.buffer)
    inbox.close()
    assert buffers.memory.used == 0


def test_a_buffer_that_somebody_looks_at_is_replaced_by_a_longer_one(pair):
    buffers = ReceiveBuffers()
    inbox = Inbox(buffers, 100_000_000)
    body = bytes(range(250)) * 50_000
    received_in_steps(inbox, pair, frame(body)[: GROWN_AT_ONCE_BYTES + 4])
    with memoryview(inbox.buffer):
        received_in_steps(inbox, pair, frame(body)[GROWN_AT_ONCE_BYTES + 4 :])
    assert inbox.buffer[4 : 4 + len(body)] == body
    assert buffers.memory.used == len(inbox.buffer)


def test_what_a_producer_has_under_way_fits_into_one_read() -> None:
    """Five batches of 64 KiB in requests with long names."""
    assert SHARED_BUFFER_BYTES >= 5 * (64 * 1024 + 1000)
