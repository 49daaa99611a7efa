"""What stands in for calls of the operating system that are missing, or refused."""

import contextlib
import ctypes
import errno
import fcntl
import importlib.util
import os
import select
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from ottla.replication import system


@pytest.mark.parametrize("refusal", [None, errno.EINVAL, errno.ENOSYS])
def test_a_file_is_sent_without_sendfile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refusal: int | None) -> None:
    content = os.urandom(600_000)
    (tmp_path / "file").write_bytes(content)
    if refusal is None:
        send = system._copy
    else:

        def refuse(*arguments: int) -> int:
            raise OSError(refusal, "refused")

        monkeypatch.setattr(os, "sendfile", refuse)
        send = system._sendfile
    ours, peer = socket.socketpair()
    received, position = b"", 100
    with ours, peer, (tmp_path / "file").open("rb") as file:
        ours.setblocking(False)
        while position < len(content):
            try:
                position += send(ours.fileno(), file.fileno(), position, len(content) - position)
            except BlockingIOError:
                received += peer.recv(1 << 20)
        assert send(ours.fileno(), file.fileno(), len(content), 10) == 0  # the file ends there
        ours.close()
        while part := peer.recv(1 << 20):
            received += part
    assert received == content[100:]


def test_other_errors_of_sendfile_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: int) -> int:
        raise OSError(errno.EIO, "broken")

    monkeypatch.setattr(os, "sendfile", fail)
    with pytest.raises(OSError, match="broken"):
        system._sendfile(0, 0, 0, 1)


def test_a_peer_that_closed_its_side_is_known_by_its_unread_bytes() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        peer = socket.create_connection(listener.getsockname())
        ours, _ = listener.accept()
        with peer, ours:
            peer.send(b"unread")
            assert not system.has_closed_its_side(ours)
            peer.shutdown(socket.SHUT_WR)
            assert ours.recv(1, socket.MSG_PEEK) == b"u"
            assert system.has_closed_its_side(ours)


def test_a_socket_that_is_none_of_tcp_tells_nothing() -> None:
    ours, peer = socket.socketpair()
    with ours:
        peer.close()
        assert not system.has_closed_its_side(ours)


def test_time_goes_on() -> None:
    before = system.boot_time()
    assert system.boot_time() >= before


@pytest.mark.skipif(not hasattr(time, "CLOCK_BOOTTIME"), reason="the system has no such clock")
def test_time_is_read_from_the_clock_that_counts_a_suspend(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "clock_gettime", {time.CLOCK_BOOTTIME: 7.5, time.CLOCK_MONOTONIC: 3.5}.get)
    assert system.boot_time() == 7.5


def as_elsewhere(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module as it is where OTTLA_PORTABLE=1 is set."""
    monkeypatch.setenv("OTTLA_PORTABLE", "1")
    spec = importlib.util.spec_from_file_location("portable_system", system.__file__)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_portable_broker_has_nothing_of_linux(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda *names: pytest.fail("the C library was asked"))
    portable = as_elsewhere(monkeypatch)
    assert (portable.MSG_MORE, portable.RWF_NOWAIT, portable.pidfd_open) == (0, None, None)
    assert portable.file_in_memory() is None
    assert not portable.CAN_CUT_OFF
    assert not portable.SYNC_WAITS
    assert portable.send_file is portable._copy
    assert portable.data_sync in (os.fsync, portable._full_sync)
    portable.keep_little_memory()
    portable.give_free_memory_back()
    assert subprocess.run(["true"], check=False, preexec_fn=portable.dying_with_this_process()).returncode == 0
    ours, peer = socket.socketpair()
    with ours, peer:
        assert not portable.cut_off(ours)
        assert not portable.has_closed_its_side(ours)
    assert portable.boot_time() <= time.clock_gettime(time.CLOCK_MONOTONIC)


def test_macos_is_asked_for_the_disk_itself(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[int] = []
    monkeypatch.setattr(fcntl, "F_FULLFSYNC", 51, raising=False)
    monkeypatch.setattr(fcntl, "fcntl", lambda descriptor, command: asked.append(command))
    as_elsewhere(monkeypatch).data_sync(5)
    assert asked == [51]


@pytest.mark.parametrize(("error", "is_passed_on"), [(errno.ENOTSUP, False), (errno.EIO, True)])
def test_a_file_system_without_full_sync_is_synced_as_it_can_be(
    monkeypatch: pytest.MonkeyPatch, error: int, is_passed_on: bool
) -> None:
    def refuse(descriptor: int, command: int) -> None:
        raise OSError(error, "refused")

    synced: list[int] = []
    monkeypatch.setattr(fcntl, "F_FULLFSYNC", 51, raising=False)
    monkeypatch.setattr(fcntl, "fcntl", refuse)
    monkeypatch.setattr(os, "fsync", synced.append)
    portable = as_elsewhere(monkeypatch)
    with pytest.raises(OSError, match="refused") if is_passed_on else contextlib.nullcontext():
        portable.full_sync(5)
    assert synced == ([] if is_passed_on else [5])


def test_nothing_is_sent_where_nothing_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sendfile", lambda *arguments: pytest.fail("to macOS 0 means everything"))
    assert system._sendfile(0, 0, 0, 0) == 0


@pytest.fixture
def asked_anew() -> Iterator[None]:
    system.bounds_expected_input.cache_clear()
    yield
    system.bounds_expected_input.cache_clear()


class OldSocket(socket.socket):
    """One of Linux before 4.18, which takes every number of bytes to wait for."""

    def getsockopt(self, level: int, option: int, *rest: int) -> Any:
        assert option == socket.SO_RCVLOWAT
        return 1 << 30


@pytest.mark.usefixtures("asked_anew")
def test_a_system_that_would_wait_for_more_than_it_has_room_for_is_not_asked_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(socket, "socket", OldSocket)
    assert not system.bounds_expected_input()


@pytest.mark.usefixtures("asked_anew")
def test_a_socket_that_waits_for_more_than_it_has_room_for_is_readable_all_the_same() -> None:
    if not system.bounds_expected_input():
        pytest.skip("the system does not bound it")
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        with socket.create_connection(server.getsockname()) as peer:
            ours, _ = server.accept()
            with ours:
                ours.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1 << 20)
                peer.setblocking(False)
                while not select.select([ours], [], [], 0)[0]:
                    assert select.select([ours], [peer], [], 30) != ([], [], [])
                    with contextlib.suppress(BlockingIOError):
                        peer.send(bytes(1000))
                assert len(ours.recv(1 << 20)) < 1 << 20
