"""Work of an event loop in a thread: what comes of it, in which order, and that a loop that sleeps is told."""

import gc
import os
import random
import select
import socket
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from ottla.wire.compressed_walk import walk_stored
from ottla.wire.compression import Compression, compress
from ottla.wire.records import encode_record

native = pytest.importorskip("ottla.wire._native", reason="installed without a compiler")
if not hasattr(native, "Background") or not hasattr(os, "eventfd"):
    pytest.skip("not on this system, or built before", allow_module_level=True)

PATIENCE_S = 60
JOBS_MAX = 8
WORDS = [random.Random(3).randbytes(6) for _ in range(50)]


class Work:
    """A thread that works, and the loop's side of it."""

    def __init__(self) -> None:
        self.told_by = os.eventfd(0)
        self.native: Any = native.Background(self.told_by)
        self.thread = threading.Thread(target=self.native.run)

    def next(self) -> Any:
        """The next that is finished, after sleeping until there is one."""
        while (finished := self.native.take()) is None:
            if not self.native.has_news():
                assert select.select([self.told_by], [], [], PATIENCE_S)[0], "the loop was not told"
                os.eventfd_read(self.told_by)
        return finished

    def end(self) -> None:
        self.native.close()
        if self.thread.ident is not None:
            self.thread.join(PATIENCE_S)
            assert not self.thread.is_alive()
        os.close(self.told_by)


@pytest.fixture
def idle() -> Iterator[Work]:
    """Its thread does not run yet."""
    work = Work()
    yield work
    work.end()


@pytest.fixture
def work(idle: Work) -> Work:
    idle.thread.start()
    return idle


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with ours, theirs:
        yield ours, theirs


Pair = tuple[socket.socket, socket.socket]


def area(count: int) -> bytes:
    dice = random.Random(count)
    return b"".join(encode_record(index, 0, None, b" ".join(dice.choices(WORDS, k=100))) for index in range(count))


def test_it_receives_what_there_is(work: Work, pair: Pair) -> None:
    ours, theirs = pair
    buffer = bytearray(100)
    for sent, size, expected in (
        (b"abc", 90, (3, 0, False)),
        (b"defg", 2, (2, 0, False)),
        (b"", 90, (2, 0, False)),
        (b"", 1, (0, 0, False)),
    ):
        theirs.send(sent)
        assert work.native.receive_into("key", ours.fileno(), buffer, 10, size)
        assert work.next() == ("key", expected)
    assert buffer[:15] == bytes(10) + b"fgc" + bytes(2)
    theirs.send(b"end")
    theirs.close()
    assert work.native.receive_into("key", ours.fileno(), buffer, 0, 100)
    assert work.next() == ("key", (3, 0, True))
    assert work.native.receive_into("key", ours.fileno(), buffer, 0, 100)
    assert work.next() == ("key", (0, 0, True))


def test_it_tells_what_is_wrong_with_a_socket(work: Work) -> None:
    with socket.socket() as unconnected:
        assert work.native.receive_into("key", unconnected.fileno(), bytearray(9), 0, 9)
        (_, (received, error, is_end)) = work.next()
    assert (received, is_end) == (0, False)
    assert isinstance(OSError(error, ""), OSError)
    assert error != 0


def test_it_walks_over_records(work: Work) -> None:
    good = compress(Compression.LZ4, area(300))
    expected = walk_stored(Compression.LZ4, good, 1 << 20, 300)
    assert expected == (0, 0, 0, True, True)
    for data, limit, count, found in (
        (good, 1 << 20, 300, expected),
        (good, 1 << 20, 299, None),
        (good, 1000, 300, None),
        (good[:-5], 1 << 20, 300, None),
        (b"", 1 << 20, 300, None),
        (compress(Compression.LZ4, encode_record(0, 0, None, bytes(2_000_000))), 1 << 21, 1, expected),
    ):
        assert work.native.walk_records(count, Compression.LZ4, data, limit, count)
        assert work.next() == (count, found)


def test_it_keeps_the_order_and_takes_no_more_than_it_has_room_for(idle: Work, pair: Pair) -> None:
    ours, theirs = pair
    theirs.send(b"x" * 100)
    buffer, data = bytearray(50), compress(Compression.LZ4, area(3))
    for number in range(JOBS_MAX):
        if number % 2:
            assert idle.native.receive_into(number, ours.fileno(), buffer, number, 1)
        else:
            assert idle.native.walk_records(number, Compression.LZ4, data, 1 << 20, 3)
    key = object()
    holders = sys.getrefcount(key)
    assert not idle.native.receive_into(key, ours.fileno(), buffer, 0, 1)
    assert not idle.native.walk_records(key, Compression.LZ4, data, 1 << 20, 3)
    assert sys.getrefcount(key) == holders
    assert idle.native.take() is None
    idle.thread.start()
    for number in range(JOBS_MAX):
        assert idle.next() == (number, (1, 0, False) if number % 2 else (0, 0, 0, True, True))
    assert idle.native.take() is None
    assert idle.native.receive_into(key, ours.fileno(), buffer, 0, 1)
    assert idle.next()[0] is key


def test_a_buffer_is_held_until_its_job_is_taken(idle: Work, pair: Pair) -> None:
    buffer = bytearray(50)
    assert idle.native.receive_into("key", pair[0].fileno(), buffer, 0, 50)
    with pytest.raises(BufferError):
        buffer.append(1)
    idle.thread.start()
    assert idle.next() == ("key", (0, 0, False))
    buffer.append(1)


def test_what_makes_no_sense_is_refused(idle: Work) -> None:
    buffer = bytearray(50)
    for descriptor, start, size in (
        (-1, 0, 1),
        (0, -1, 1),
        (0, 0, 0),
        (0, 0, 51),
        (0, 50, 1),
        (0, 1 << 40, 1),
        (0, 1, sys.maxsize),
    ):
        with pytest.raises(ValueError, match="no such"):
            idle.native.receive_into(1, descriptor, buffer, start, size)
    for limit, count in ((-1, 1), ((2 << 20) + 1, 1), (1, -1)):
        with pytest.raises(ValueError, match="no such"):
            idle.native.walk_records(1, 3, b"", limit, count)
    with pytest.raises(TypeError):
        idle.native.receive_into(1, 0, bytes(50), 0, 1)
    with pytest.raises(TypeError):
        native.Background()
    buffer.append(1)  # nobody holds it


def test_it_ends_and_lets_go_of_what_was_not_done(pair: Pair) -> None:
    work, buffer = Work(), bytearray(50)
    key = object()
    holders = sys.getrefcount(key)
    assert work.native.receive_into(key, pair[0].fileno(), buffer, 0, 50)
    work.native.close()
    assert not work.native.receive_into(key, pair[0].fileno(), buffer, 0, 50)
    work.thread.start()
    work.end()
    assert work.native.take() is None
    with pytest.raises(RuntimeError):
        work.native.run()
    del work
    gc.collect()
    assert sys.getrefcount(key) == holders
    buffer.append(1)
