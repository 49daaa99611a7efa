"""Long pieces of files go to sockets through a pipe: whole and in order, whatever fails on the way."""

import contextlib
import errno
import os
import socket
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import pytest

from ottla.replication import system

pytestmark = pytest.mark.skipif(not system.CAN_SPLICE, reason="only Linux has splice")
KIB = 1024
PIECE = system.SPLICED_BYTES_MAX


@pytest.fixture(autouse=True)
def own_pipe() -> Iterator[None]:
    system._forget_pipe()
    yield
    system._forget_pipe()
    system._pipes.pieces_without = 0


@pytest.fixture
def content() -> bytes:
    return os.urandom(3 * PIECE + 12_345)


@pytest.fixture
def file(tmp_path: Path, content: bytes) -> Iterator[IO[bytes]]:
    (tmp_path / "file").write_bytes(content)
    with (tmp_path / "file").open("rb") as opened:
        yield opened


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        peer = socket.create_connection(listener.getsockname())
        ours, _ = listener.accept()
    with ours, peer:
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 128 * KIB)
        ours.setblocking(False)
        peer.settimeout(60)
        yield ours, peer


def send_all(ours: socket.socket, peer: socket.socket, file: IO[bytes], position: int, end: int) -> bytes:
    """What a peer receives that reads only when the socket is full."""
    received = bytearray()
    while position < end:
        try:
            sent = system.send_much_of_file(ours.fileno(), file.fileno(), position, end - position)
        except BlockingIOError:
            received += peer.recv(100_000)
        else:
            assert sent, "the file ends early"
            position += sent
    ours.shutdown(socket.SHUT_WR)
    while part := peer.recv(1 << 20):
        received += part
    return bytes(received)


def failing(monkeypatch: pytest.MonkeyPatch, which: Callable[[int, int], bool], error: int) -> list[int]:
    """From now on those calls of splice fail of which `which(from, to)` is true; returns the list of these."""
    splice, failed = os.splice, list[int]()

    def call(source: int, target: int, count: int, *rest: Any, **options: Any) -> int:
        if which(source, target):
            failed.append(count)
            raise OSError(error, os.strerror(error))
        return splice(source, target, count, *rest, **options)

    monkeypatch.setattr(os, "splice", call)
    return failed


@pytest.mark.parametrize("position", [0, 1, 4097])
def test_a_socket_that_takes_a_little_at_a_time_gets_everything_in_order(
    pair: tuple[socket.socket, socket.socket], file: IO[bytes], content: bytes, position: int
) -> None:
    assert send_all(*pair, file, position, len(content)) == content[position:]
    assert system._pipes.pipe is not None


def test_what_a_full_socket_refused_comes_in_nobody_elses_answer(
    pair: tuple[socket.socket, socket.socket], file: IO[bytes], content: bytes
) -> None:
    ours, _ = pair
    with pytest.raises(BlockingIOError):
        while True:
            system.send_much_of_file(ours.fileno(), file.fileno(), 0, PIECE)
    other, its_peer = socket.socketpair()
    with other, its_peer:
        other.setblocking(False)
        assert send_all(other, its_peer, file, PIECE, len(content)) == content[PIECE:]


def test_a_peer_that_has_reset_the_connection_harms_no_other(
    pair: tuple[socket.socket, socket.socket], file: IO[bytes], content: bytes
) -> None:
    gone, its_peer = socket.socketpair()
    with gone, its_peer:
        gone.setblocking(False)
        its_peer.close()
        with pytest.raises(ConnectionError):
            system.send_much_of_file(gone.fileno(), file.fileno(), 0, PIECE)
    assert send_all(*pair, file, 7, len(content)) == content[7:]


def test_a_file_that_was_cut_gives_what_is_left_and_then_nothing(
    pair: tuple[socket.socket, socket.socket], file: IO[bytes]
) -> None:
    ours, _ = pair
    os.truncate(file.name, 100_000)
    assert 0 < system.send_much_of_file(ours.fileno(), file.fileno(), 40_000, PIECE) <= 60_000
    assert system.send_much_of_file(ours.fileno(), file.fileno(), 100_000, PIECE) == 0


def test_a_file_that_cannot_be_read_says_so_and_harms_no_other(
    pair: tuple[socket.socket, socket.socket], file: IO[bytes], content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, _ = pair
    with monkeypatch.context() as broken:
        failing(broken, lambda source, target: source == file.fileno(), errno.EIO)
        with pytest.raises(OSError, match="Input/output error"):
            system.send_much_of_file(ours.fileno(), file.fileno(), 0, PIECE)
    assert send_all(*pair, file, 0, len(content)) == content


def test_a_file_system_without_splice_has_sendfile(
    pair: tuple[socket.socket, socket.socket], file: IO[bytes], content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = failing(monkeypatch, lambda source, target: source == file.fileno(), errno.EINVAL)
    assert send_all(*pair, file, 0, len(content)) == content
    assert failed


@pytest.mark.parametrize("error", [errno.EPERM, errno.EACCES, errno.ENOSYS])
@pytest.mark.parametrize("at", ["from the file", "to the socket"])
def test_where_splice_is_filtered_away_there_is_sendfile(
    pair: tuple[socket.socket, socket.socket],
    file: IO[bytes],
    content: bytes,
    monkeypatch: pytest.MonkeyPatch,
    error: int,
    at: str,
) -> None:
    ends = {
        "from the file": lambda source, _: source == file.fileno(),
        "to the socket": lambda _, target: target == pair[0].fileno(),
    }
    failed = failing(monkeypatch, ends[at], error)
    assert send_all(*pair, file, 0, len(content)) == content
    assert len(failed) == 1  # and not with every piece


def test_a_pipe_that_was_refused_for_a_while_is_asked_for_again(
    pair: tuple[socket.socket, socket.socket], file: IO[bytes], content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, _ = pair
    monkeypatch.setattr(system, "_PIECES_WITHOUT_PIPE", 3)
    with monkeypatch.context() as exhausted:
        failing_pipe(exhausted)
        assert system.send_much_of_file(ours.fileno(), file.fileno(), 0, PIECE)
    for _ in range(3):
        assert system._pipes.pipe is None
        with contextlib.suppress(BlockingIOError):
            system.send_much_of_file(ours.fileno(), file.fileno(), 0, PIECE)
    other, its_peer = socket.socketpair()
    with other, its_peer:
        other.setblocking(False)
        assert send_all(other, its_peer, file, 0, len(content)) == content
    assert system._pipes.pipe is not None


def failing_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    def pipe2(_: int) -> tuple[int, int]:
        raise OSError(errno.EMFILE, "no more")

    monkeypatch.setattr(os, "pipe2", pipe2)


def test_a_file_in_place_of_the_null_device_is_not_written_to(
    pair: tuple[socket.socket, socket.socket],
    file: IO[bytes],
    content: bytes,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    (tmp_path / "null").touch()
    monkeypatch.setattr(os, "devnull", str(tmp_path / "null"))
    assert send_all(*pair, file, 0, len(content)) == content
    assert (tmp_path / "null").read_bytes() == b""
    assert system._pipes.pipe is None


@pytest.mark.parametrize("error", [errno.EIO, errno.EINTR])
def test_a_pipe_that_cannot_be_emptied_is_replaced(
    pair: tuple[socket.socket, socket.socket],
    file: IO[bytes],
    content: bytes,
    monkeypatch: pytest.MonkeyPatch,
    error: int,
) -> None:
    nowhere = os.stat(os.devnull).st_rdev
    failed = failing(monkeypatch, lambda source, target: os.fstat(target).st_rdev == nowhere, error)
    open_before = len(os.listdir("/dev/fd"))
    assert send_all(*pair, file, 0, len(content)) == content
    assert failed
    assert len(os.listdir("/dev/fd")) <= open_before + 3  # those before are closed


@pytest.mark.parametrize("at", ["from the file", "to the socket", "to nowhere"])
def test_ctrl_c_in_the_middle_leaves_nothing_for_the_next(
    pair: tuple[socket.socket, socket.socket], file: IO[bytes], content: bytes, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    ours, _ = pair
    splice, calls = os.splice, iter(["from the file", "to the socket", "to nowhere"])

    def call(*arguments: Any, **options: Any) -> int:
        count = splice(*arguments, **options)
        if next(calls, "") == at:
            raise KeyboardInterrupt
        return count

    with monkeypatch.context() as interrupted:
        interrupted.setattr(os, "splice", call)
        with pytest.raises(KeyboardInterrupt):
            system.send_much_of_file(ours.fileno(), file.fileno(), 0, PIECE)
    other, its_peer = socket.socketpair()
    with other, its_peer:
        other.setblocking(False)
        assert send_all(other, its_peer, file, PIECE, len(content)) == content[PIECE:]


@pytest.mark.parametrize("refused", ["pipe2", "open", "a longer pipe", "a short pipe"])
def test_without_a_pipe_sendfile_sends_and_no_descriptor_is_left(
    pair: tuple[socket.socket, socket.socket],
    file: IO[bytes],
    content: bytes,
    monkeypatch: pytest.MonkeyPatch,
    refused: str,
) -> None:
    asked = []

    def refuse(*arguments: Any) -> int:
        asked.append(arguments)
        if refused == "a short pipe":
            return 4096
        raise OSError(errno.EMFILE, "no more")

    target: Any = system.fcntl if "pipe" in refused and refused != "pipe2" else os
    monkeypatch.setattr(target, "fcntl" if target is system.fcntl else refused, refuse)
    open_before = len(os.listdir("/dev/fd"))
    assert send_all(*pair, file, 0, len(content)) == content
    assert len(os.listdir("/dev/fd")) == open_before
    assert len(asked) == 1  # and not with every answer


def test_a_short_piece_needs_no_pipe(
    pair: tuple[socket.socket, socket.socket], file: IO[bytes], content: bytes
) -> None:
    ours, peer = pair
    assert system.send_much_of_file(ours.fileno(), file.fileno(), 5, 1000) == 1000
    assert peer.recv(1000, socket.MSG_WAITALL) == content[5:1005]
    assert system._pipes.pipe is None


def test_each_thread_has_a_pipe_of_its_own_and_closes_it(file: IO[bytes], content: bytes) -> None:
    received = [b""] * 3

    def play(number: int) -> None:
        ours, peer = socket.socketpair()
        with ours, peer:
            ours.setblocking(False)
            received[number] = send_all(ours, peer, file, number, len(content))

    open_before = len(os.listdir("/dev/fd"))
    threads = [threading.Thread(target=play, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert received == [content[number:] for number in range(3)]
    assert len(os.listdir("/dev/fd")) == open_before


def test_a_forked_process_leaves_its_parents_pipe_alone(
    pair: tuple[socket.socket, socket.socket], file: IO[bytes]
) -> None:
    ours, _ = pair
    system.send_much_of_file(ours.fileno(), file.fileno(), 0, PIECE)
    assert system._pipes.pipe is not None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of other threads of this process
        child = os.fork()
    if not child:
        with contextlib.suppress(BaseException):
            os._exit(system._pipes.pipe is not None)
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert system._pipes.pipe is not None
