"""`ottla stop` ends the process that has the lock of a data directory, and no other."""

import errno
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from ottla.replication import system
from ottla.replication.log.locks import holder_of
from ottla.server.cli import stop
from ottla.server.cli.cli import main
from ottla.server.config.server_config import FOLDER

# Program that takes a lock and prints "held". SIGTERM ends it unless its last argument is 1.
HOLDER = """
import fcntl, os, signal, sys, time
path, kind, is_deaf = sys.argv[1:]
if is_deaf == "1":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
fcntl.lockf(file, fcntl.LOCK_EX if kind == "exclusive" else fcntl.LOCK_SH)
print("held", flush=True)
time.sleep(600)
"""

# Program that answers like an `ottla cluster`, with the pid in its last argument.
CLUSTER = """
import json, socket, sys
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
listener.listen()
print("listens", flush=True)
while True:
    peer, _ = listener.accept()
    peer.recv(1000)
    peer.sendall(json.dumps({"pid": int(sys.argv[2])}).encode() + b"\\n")
    peer.close()
"""

Hold = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def hold() -> Iterator[Hold]:
    """Starts processes that hold a lock."""
    begun: list[subprocess.Popen[str]] = []

    def start(path: Path, kind: str = "exclusive", *, is_deaf: bool = False) -> subprocess.Popen[str]:
        path.parent.mkdir(parents=True, exist_ok=True)
        words = [sys.executable, "-c", HOLDER, str(path), kind, str(int(is_deaf))]
        process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        begun.append(process)
        assert process.stdout is not None and process.stdout.readline() == "held\n"
        return process

    yield start
    for process in begun:
        with suppress(ProcessLookupError):
            process.kill()
        process.communicate()


@pytest.mark.parametrize("has_pidfd", [True, False])
def test_the_holder_of_the_lock_is_stopped_and_awaited(
    tmp_path: Path, hold: Hold, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, has_pidfd: bool
) -> None:
    if not has_pidfd:
        monkeypatch.setattr(system, "pidfd_open", None)
    bystander, holder = hold(tmp_path / "other" / ".lock"), hold(tmp_path / ".lock")
    if not has_pidfd:
        # Without it an ended process counts as running until its parent has asked for its status.
        monkeypatch.setattr("ottla.server.cli.stop._has_ended", lambda pid, _: holder.wait(60) is not None)
    assert main(["stop", "--data", str(tmp_path)]) == 0
    assert capsys.readouterr().out == f"stopped: {tmp_path} (pid {holder.pid})\n"
    assert holder.wait(60) == -signal.SIGTERM
    assert bystander.poll() is None
    assert main(["stop", "--data", str(tmp_path)]) == 1
    assert capsys.readouterr().err == f"ottla: no broker runs on {tmp_path}\n"


def test_of_several_workers_the_supervisor_is_stopped(tmp_path: Path, hold: Hold) -> None:
    worker, supervisor = hold(tmp_path / ".lock"), hold(tmp_path / FOLDER / ".lock")
    assert main(["stop", "--data", str(tmp_path)]) == 0
    assert supervisor.wait(60) == -signal.SIGTERM and worker.poll() is None


def test_the_default_is_the_directory_of_a_start_without_settings(
    tmp_path: Path, hold: Hold, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    holder = hold(tmp_path / "ottla" / ".lock")
    assert main(["stop"]) == 0
    assert holder.wait(60) == -signal.SIGTERM
    capsys.readouterr()
    assert main(["stop"]) == 1
    assert capsys.readouterr().err == (
        f"ottla: no broker runs on {tmp_path / 'ottla'}; --data FOLDER names another directory\n"
    )


def test_the_file_of_a_start_names_the_directory(
    tmp_path: Path, hold: Hold, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "default"))
    file = tmp_path / "server.properties"
    file.write_text(f"log.dirs={tmp_path / 'a'}, {tmp_path / 'b'}\n")
    holder = hold(tmp_path / "a" / ".lock")
    assert main(["stop", str(file), "--data", str(tmp_path / "a")]) == 2
    assert main(["stop", str(tmp_path / "absent")]) == 2
    assert "cannot read" in capsys.readouterr().err and holder.poll() is None
    assert main(["stop", str(file)]) == 0
    assert holder.wait(60) == -signal.SIGTERM
    file.write_text("num.partitions=3\n")
    capsys.readouterr()
    assert main(["stop", str(file)]) == 1
    assert f"no broker runs on {tmp_path / 'default' / 'ottla'}" in capsys.readouterr().err


def test_a_holder_of_a_shared_lock_is_left_alone(
    tmp_path: Path, hold: Hold, capsys: pytest.CaptureFixture[str]
) -> None:
    """`ottla check` and the like have a shared lock."""
    reader = hold(tmp_path / ".lock", "shared")
    assert main(["stop", "--data", str(tmp_path)]) == 1
    assert "no broker runs" in capsys.readouterr().err and reader.poll() is None


@pytest.mark.parametrize("name", ["absent", "file", "empty"])
def test_where_no_broker_runs_one_line_says_so(tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "empty").mkdir()
    assert main(["stop", "--data", str(tmp_path / name)]) == 1
    assert capsys.readouterr().err == f"ottla: no broker runs on {tmp_path / name}\n"
    assert not (tmp_path / "absent").exists() and not list((tmp_path / "empty").iterdir())


def test_a_broker_that_does_not_end_is_reported_after_the_timeout(
    tmp_path: Path, hold: Hold, capsys: pytest.CaptureFixture[str]
) -> None:
    holder = hold(tmp_path / ".lock", is_deaf=True)
    assert main(["stop", "--data", str(tmp_path), "--timeout", "0.1"]) == 1
    error = capsys.readouterr().err
    assert f"(pid {holder.pid}) has not ended after 0.1 s" in error and error.count("\n") == 1


def test_a_broker_of_another_user_is_not_touched(
    tmp_path: Path, hold: Hold, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    holder = hold(tmp_path / ".lock")

    def refuse(*_: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    with monkeypatch.context() as patched:
        patched.setattr(stop, "_terminate", refuse)
        assert main(["stop", "--data", str(tmp_path)]) == 1
        assert "is another user's" in capsys.readouterr().err
    monkeypatch.setattr(stop, "holder_of", refuse)
    assert main(["stop", "--data", str(tmp_path)]) == 1
    assert capsys.readouterr().err == f"ottla: {tmp_path} belongs to another user, who may stop its broker\n"
    assert holder.poll() is None


def test_a_broker_of_another_container_is_not_guessed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel has no pid for it here; 0 would be this whole group of processes."""
    monkeypatch.setattr(stop, "holder_of", lambda path: 0 if path == str(tmp_path / ".lock") else None)
    monkeypatch.setattr(stop, "_terminate", lambda *_: pytest.fail("somebody is signalled"))
    assert main(["stop", "--data", str(tmp_path)]) == 1
    assert "runs in another container" in capsys.readouterr().err


@pytest.mark.parametrize("has_pidfd", [True, False])
def test_a_process_that_got_the_pid_of_the_broker_is_left_alone(
    tmp_path: Path, hold: Hold, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, has_pidfd: bool
) -> None:
    """The broker ends after its lock was looked at, and its pid is given away before it is signalled."""
    if not has_pidfd:
        monkeypatch.setattr(system, "pidfd_open", None)
    bystander = hold(tmp_path / "other" / ".lock")
    seen = iter([bystander.pid])
    monkeypatch.setattr(stop, "holder_of", lambda path: next(seen, None))
    assert main(["stop", "--data", str(tmp_path)]) == 1
    assert "no broker runs" in capsys.readouterr().err and bystander.poll() is None


@pytest.mark.skipif(sys.platform != "linux", reason="Linux tells the pid of a peer")
def test_a_cluster_is_stopped_by_the_pid_that_it_has_here(
    tmp_path: Path, hold: Hold, capsys: pytest.CaptureFixture[str]
) -> None:
    """A cluster in a container reports its pid there, which may be another process's pid here."""
    bystander = hold(tmp_path / "other" / ".lock")
    words = [sys.executable, "-c", CLUSTER, str(tmp_path / ".control"), str(bystander.pid)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as cluster:
        assert cluster.stdout is not None and cluster.stdout.readline() == "listens\n"
        try:
            assert main(["stop", "--data", str(tmp_path)]) == 0
            assert cluster.wait(60) == -signal.SIGTERM
        finally:
            cluster.kill()
    assert bystander.poll() is None


def test_a_lock_tells_its_holder(tmp_path: Path, hold: Hold) -> None:
    path = tmp_path / ".lock"
    assert holder_of(str(path)) is None
    path.touch()
    assert holder_of(str(path)) is None
    assert holder_of(str(path)) != os.getpid()
    holder = hold(path)
    assert holder_of(str(path)) == holder.pid


class FailingCall:
    """Wrapper of functions: call number `index` of them all fails with an error number; they are counted in `count`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, index: int, number: int) -> None:
        self.count = 0
        self._index, self._number = index, number
        for owner, name in CALLS:
            if (function := getattr(owner, name)) is not None:
                monkeypatch.setattr(owner, name, self._wrapped(function))

    def _wrapped(self, function: Callable[..., object]) -> Callable[..., object]:
        def call(*arguments: object, **options: object) -> object:
            self.count += 1
            if self.count == self._index:
                raise OSError(self._number, os.strerror(self._number))
            return function(*arguments, **options)

        return call


CALLS = [
    *((os, name) for name in ("open", "stat", "kill")),
    *((system, name) for name in ("record_lock_holder", "pidfd_open", "pidfd_send_signal")),
    (select, "select"),
    (socket, "socket"),
]


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize("runs", ["broker", "cluster", "nobody"])
def test_each_system_call_may_fail(
    tmp_path: Path, hold: Hold, capsys: pytest.CaptureFixture[str], runs: str, number: int
) -> None:
    (tmp_path / "cluster").mkdir()
    (tmp_path / "cluster" / stop.CONTROL).touch()
    if runs == "cluster":
        (tmp_path / stop.CONTROL).touch()
    index = 0
    while True:
        index += 1
        holder = hold(tmp_path / ".lock", is_deaf=False) if runs == "broker" else None
        with pytest.MonkeyPatch.context() as patch:
            failing = FailingCall(patch, index, number)
            code = main(["stop", "--data", str(tmp_path), "--timeout", "0.3"])
        told = capsys.readouterr()
        if failing.count < index:
            break
        assert code in (0, 1) and told.err.count("\n") == (code == 1), told
        if holder is not None and code == 0:
            assert holder.wait(60) == -signal.SIGTERM
        if holder is not None:
            holder.kill()
            holder.wait(60)
    assert index > (5 if runs == "broker" else 3)
