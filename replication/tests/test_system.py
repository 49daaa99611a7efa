"""What stands in for calls of the operating system that are missing, or refused."""

import errno
import os
import socket
import time
from pathlib import Path

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
