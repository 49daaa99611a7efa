"""The processes of `ottla cluster` are minded until they have ended, whatever fails beside them. They are no brokers here."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from ottla.replication import system
from ottla.server.launch import cluster_children, cluster_command
from ottla.server.launch.cluster_children import Child
from ottla.server.launch.cluster_command import ClusterFailed, LocalCluster

SERVING = "import signal; print('listening on nothing', flush=True); signal.pause()"
pytestmark = pytest.mark.skipif(not system.SHARES_PORTS, reason="processes end with their parent on Linux alone")

FULL = OSError(28, "No space left on device")
BUG = RuntimeError("a bug")


class Served:
    """A cluster of two processes, which is stopped when it serves and `until` has happened."""

    def __init__(self, folder: Path, program: str = SERVING) -> None:
        self.cluster = LocalCluster(folder, [None, 2, 3], {}, (), log_level="warn")
        for broker in self.cluster._brokers:
            broker._command = [sys.executable, "-c", program]
        self.serves = trio.Event()
        self.cluster._announce = lambda has_keys: self.serves.set()  # type: ignore[method-assign]

    @property
    def first(self) -> Child:
        return self.cluster._brokers[0]

    async def run(self, until: Callable[[], Awaitable[object]]) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._stop, until)
            await self.cluster.run()

    async def _stop(self, until: Callable[[], Awaitable[object]]) -> None:
        await self.serves.wait()
        await until()
        assert any(is_there(broker.pid) for broker in self.cluster._brokers)
        os.kill(os.getpid(), signal.SIGTERM)

    def assert_all_have_ended(self) -> None:
        for broker in self.cluster._brokers:
            assert broker.pid and not is_there(broker.pid)


def is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.fixture(autouse=True)
def tree_without_members(monkeypatch: pytest.MonkeyPatch) -> None:
    async def hold(folder: Path, where: Path, *, task_status: trio.TaskStatus[int]) -> None:
        task_status.started(1)
        await trio.sleep_forever()

    monkeypatch.setattr(cluster_command, "hold_tree", hold)


@pytest.mark.parametrize("problem", [FULL, BUG])
@pytest.mark.parametrize("task", ["_serve_control", "_heed_keys", "_mind"])
async def test_a_task_that_fails_leaves_no_process_unminded(
    task: str, problem: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    mind = LocalCluster._mind

    async def fail(cluster: LocalCluster, *arguments: Child) -> None:
        if task == "_mind":
            await mind(cluster, *arguments)
        raise problem

    monkeypatch.setattr(LocalCluster, task, fail)
    served = Served(tmp_path)
    with trio.fail_after(60):
        await served.run(wait_all_tasks_blocked)
    served.assert_all_have_ended()
    assert "bug: a task of the cluster has ended" in caplog.text


async def test_a_log_that_is_away_ends_neither_the_cluster_nor_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    served = Served(tmp_path)

    async def lose_the_log_and_the_broker() -> None:
        ended = served.first.ended
        served.first.log_path.unlink()
        served.first.log_path.mkdir()  # nor can another one be made
        os.kill(served.first.pid, signal.SIGKILL)
        await ended.wait()
        await wait_all_tasks_blocked()

    with trio.fail_after(60):
        await served.run(lose_the_log_and_the_broker)
    served.assert_all_have_ended()
    assert f"broker 1 has ended (signal 9; its log is {served.first.log_path})" in capsys.readouterr().err


async def test_what_a_process_says_need_not_be_readable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There are no descriptors: its output is lost, and its end is found out by asking again and again."""
    child = Child("broker 1", [sys.executable, "-c", SERVING], tmp_path / "log")
    child.start()

    def refuse(number: int) -> int:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(os, "dup", refuse)
    if cluster_children.pidfd_open is not None:
        monkeypatch.setattr(cluster_children, "pidfd_open", refuse)
    child.signal(signal.SIGKILL)
    with trio.fail_after(60):
        assert await child.until_ended() is False
    assert child.exit_status == -signal.SIGKILL


async def test_a_process_that_cannot_be_made_ends_all_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served, popen = Served(tmp_path), subprocess.Popen
    made: list[subprocess.Popen[bytes]] = []

    def refuse_the_second(*arguments: object, **options: object) -> object:
        if made:
            raise BlockingIOError(11, "Resource temporarily unavailable")
        made.append(popen(*arguments, **options))  # type: ignore[call-overload]
        return made[0]

    monkeypatch.setattr("subprocess.Popen", refuse_the_second)
    with trio.fail_after(60), pytest.raises(ClusterFailed, match="Resource temporarily unavailable"):
        await served.cluster.run()
    assert not is_there(made[0].pid)


@pytest.mark.parametrize("problem", [FULL, BUG])
async def test_a_tree_that_ends_by_whatever_ends_all_in_order(
    problem: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = Served(tmp_path)

    async def hold(folder: Path, where: Path, *, task_status: trio.TaskStatus[int]) -> None:
        task_status.started(1)
        await served.serves.wait()
        raise ExceptionGroup("of a nursery", [problem])

    monkeypatch.setattr(cluster_command, "hold_tree", hold)
    with trio.fail_after(60), pytest.raises(ClusterFailed, match="the coordination tree cannot be kept"):
        await served.cluster.run()
    served.assert_all_have_ended()


async def test_what_cannot_be_ended_is_left_to_the_system(
    tmp_path: Path, autojump_clock: MockClock, capsys: pytest.CaptureFixture[str]
) -> None:
    """A process whose disk hangs does not even end by SIGKILL."""
    cluster = LocalCluster(tmp_path, [None, 2], {}, (), log_level="warn")
    [broker] = cluster._brokers
    broker.ended = trio.Event()
    with trio.CancelScope(shield=True):
        await cluster._end()
    assert "broker 1 does not end, and is left to the system" in capsys.readouterr().err
