"""Buffers and file regions reach the socket in order and whole, however little it takes at a time."""

import errno
import math
import os
import socket
from pathlib import Path

import pytest

from ottla.replication.system import SENDFILE_BYTES, SPLICED_BYTES_MAX
from ottla.server.network import outbox as outbox_module
from ottla.server.network import transport
from ottla.server.network.outbox import Outbox, Progress
from ottla.server.network.transport import PlainTransport


@pytest.fixture(autouse=True)
def unhurried(monkeypatch: pytest.MonkeyPatch):
    """Let a call of `send` take as long as a busy machine needs."""
    monkeypatch.setattr(outbox_module, "TURN_S", math.inf)


class File:
    """An open file, with the face of the storage's files."""

    def __init__(self, file):
        self.fileno = file.fileno

    def read_at(self, position, length):
        return os.pread(self.fileno(), length, position)


class Region:
    """A piece of an open file, with the face of the log's file regions."""

    def __init__(self, file, position, length):
        self.file, self.position, self.length = File(file), position, length

    def __len__(self):
        return self.length


def drain(outbox: Outbox, ours: socket.socket, peer: socket.socket) -> bytes:
    received = b""
    while outbox.parts:
        progress = outbox.send(PlainTransport(ours))
        if progress is Progress.COLD:
            outbox.warm()
        if progress is not Progress.DONE:
            received += peer.recv(1 << 20) if progress is Progress.BLOCKED else b""
    peer.setblocking(False)
    while True:
        try:
            received += peer.recv(1 << 20)
        except BlockingIOError:
            return received


def test_parts_arrive_in_order_through_a_narrow_socket(tmp_path: Path):
    content = os.urandom(3_000_000)
    path = tmp_path / "segment.log"
    path.write_bytes(content)
    ours, peer = socket.socketpair()
    with ours, peer, path.open("rb") as file:
        ours.setblocking(False)
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8192)
        outbox = Outbox()
        outbox.parts += [
            b"head",
            bytearray(b"er"),
            Region(file, 10, 2_500_000),
            b"between" * 9000,
            Region(file, 0, 5),
            b"tail",
        ]
        expected = b"header" + content[10:2_500_010] + b"between" * 9000 + content[:5] + b"tail"
        assert drain(outbox, ours, peer) == expected


def test_small_regions_go_out_with_what_surrounds_them(tmp_path: Path):
    content = os.urandom(200_000)
    path = tmp_path / "segment.log"
    path.write_bytes(content)
    ours, peer = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)  # keeps apart what was sent apart
    with ours, peer, path.open("rb") as file:
        outbox = Outbox()
        for start in range(0, 60_000, 20_000):
            outbox.parts += [b"head", Region(file, start, 20_000)]
        assert outbox.send(PlainTransport(ours)) is Progress.DONE
        pieces = (b"head" + content[start : start + 20_000] for start in range(0, 60_000, 20_000))
        assert peer.recv(1 << 20) == b"".join(pieces)


def test_a_region_that_is_not_cached_is_left_to_a_thread(tmp_path: Path):
    path = tmp_path / "cold.log"
    path.write_bytes(b"c" * (4 << 20))
    with path.open("rb+") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        ours, peer = socket.socketpair()
        with ours, peer:
            ours.setblocking(False)
            outbox = Outbox()
            outbox.parts += [Region(file, 2 << 20, 100)]
            assert drain(outbox, ours, peer) == b"c" * 100


@pytest.mark.parametrize(("turn_s", "calls"), [(math.inf, 1), (-1.0, 2)])
def test_a_file_shorter_than_promised_ends_the_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, turn_s: float, calls: int
):
    monkeypatch.setattr(outbox_module, "TURN_S", turn_s)
    path = tmp_path / "short.log"
    path.write_bytes(b"short")
    ours, peer = socket.socketpair()
    with ours, peer, path.open("rb") as file:
        outbox = Outbox()
        outbox.parts.append(Region(file, 0, 50))
        for _ in range(calls - 1):
            assert outbox.send(PlainTransport(ours)) is Progress.BLOCKED
        with pytest.raises(ConnectionError, match="promised"):
            outbox.send(PlainTransport(ours))


def test_a_file_that_cannot_be_read_is_told_apart_from_a_socket_that_is_gone(tmp_path: Path):
    path = tmp_path / "segment.log"
    path.write_bytes(bytes(100_000))
    failures = []

    class Watched(Region):
        def fail(self, error):
            failures.append(error)

    ours, peer = socket.socketpair()
    with ours, peer, path.open("ab") as unreadable, path.open("rb") as readable:
        ours.setblocking(False)
        outbox = Outbox()
        outbox.parts.append(Watched(unreadable, 0, 100_000))
        with pytest.raises(ConnectionError):
            outbox.send(PlainTransport(ours))
        assert len(failures) == 1
        outbox = Outbox()
        outbox.parts.append(Watched(readable, 0, 100_000))
        peer.close()
        with pytest.raises(ConnectionError):
            outbox.send(PlainTransport(ours))
        assert len(failures) == 1


def test_a_failure_that_has_passed_ends_the_connection_and_blames_no_file(tmp_path: Path):
    path = tmp_path / "segment.log"
    path.write_bytes(bytes(100_000))

    class Failing(PlainTransport):
        def send_region(self, region, position, length):
            raise OSError(errno.EMFILE, "Too many open files")

    ours, peer = socket.socketpair()
    with ours, peer, path.open("rb") as file:
        outbox = Outbox()
        outbox.parts.append(Region(file, 0, 100_000))  # which has no `fail` that could be called
        with pytest.raises(ConnectionError, match="Too many open files"):
            outbox.send(Failing(ours))


def test_what_is_sent_several_times_counts_once_as_memory() -> None:
    outbox, body = Outbox(), bytes(1000)
    outbox.parts += [b"head", body, b"head of another", body]
    assert outbox.buffered_bytes == 4 + 15 + 1000


def test_a_socket_is_offered_twice_what_it_took_and_not_asked_again_while_it_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = tmp_path / "segment.log"
    path.write_bytes(bytes(4 << 20))
    # What it takes each time; a list for each call of `send`, which ends when the socket is full.
    takes = [[100_000], [70_000], [140_000, 280_000, 10_000], [300, None]]
    offers: list[int] = []
    left = [count for each in takes for count in each]

    def take(out: int, descriptor: int, position: int, count: int) -> int:
        offers.append(count)
        if (taken := left.pop(0)) is None:
            raise BlockingIOError
        return taken

    monkeypatch.setattr(transport, "send_much_of_file", take)
    monkeypatch.setattr(transport, "CAN_SPLICE", True)
    ours, peer = socket.socketpair()
    with ours, peer, path.open("rb") as file:
        outbox, to = Outbox(), PlainTransport(ours)
        outbox.parts.append(Region(file, 0, 4 << 20))
        for number in range(len(takes)):
            assert outbox.send(to) is Progress.BLOCKED
            assert len(offers) == sum(map(len, takes[: number + 1]))
    assert offers[:4] == [SPLICED_BYTES_MAX, 200_000, 140_000, 280_000]
    # From a socket that takes very little it costs nothing to hear that it is full.
    assert offers[4:] == [
        (1 << 20) - 590_000,
        SENDFILE_BYTES,
        SENDFILE_BYTES,
    ]  # first what is left of the piece looked for


class Greedy:
    """Transport of a peer that reads as fast as anybody sends."""

    def __init__(self):
        self.sent = b""

    def send(self, data, flags=0):
        self.sent += data
        return len(data)

    def send_region(self, region, position, length):
        return self.send(region.file.read_at(position, length))

    def is_in_memory(self, region, position, length):
        return True

    def read_in_memory(self, region):
        return None


def test_others_have_a_turn_although_a_peer_takes_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(outbox_module, "TURN_S", -1.0)
    content = os.urandom(3 * outbox_module.SENDFILE_CHUNK_BYTES)
    path = tmp_path / "segment.log"
    path.write_bytes(content)
    outbox, greedy = Outbox(), Greedy()
    with path.open("rb") as file:
        outbox.parts += [b"head", Region(file, 0, len(content)), b"tail"]
        progress = [outbox.send(greedy) for _ in range(5)]
    assert progress == [Progress.BLOCKED] * 4 + [Progress.DONE]
    assert greedy.sent == b"head" + content + b"tail" and not outbox.parts
