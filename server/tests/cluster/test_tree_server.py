"""Whoever holds the tree goes on when its disk had no room, and begins no new tree where its journal is missing."""

import errno
import gc
import json
import os
import signal
import weakref
from collections.abc import AsyncIterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
import trio

from ottla.replication.cluster.coordination import CoordinationUnavailable, Create, SessionExpired, WriteRefused
from ottla.replication.log.storage import OsFile
from ottla.replication.replica_manager.directories import LogDirectoryProblem
from ottla.server.cluster.coordination import tree_server
from ottla.server.cluster.coordination.embedded import EmbeddedCoordination
from ottla.server.cluster.coordination.journal import JOURNAL_NAME, TEMPORARY_NAME
from ottla.server.cluster.coordination.tree import Tree
from ottla.server.cluster.coordination.tree_client import ServedCoordination
from ottla.server.cluster.coordination.tree_server import hold_tree
from ottla.server.launch.supervisor import Report
from ottla.server.launch.workers_command import _keep
from ottla.server.testing.memory.storage import MemoryStorage
from ottla.server.tests.administered import disk_with

DIRECTORY = Path("/data")
JOURNAL = str(DIRECTORY / JOURNAL_NAME)
NO_ROOM = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> MemoryStorage:
    """What a holder has its journal on; it looks again and again at once."""
    storage = disk_with(DIRECTORY)
    monkeypatch.setattr(tree_server, "EmbeddedCoordination", partial(EmbeddedCoordination, storage=storage))
    monkeypatch.setattr(tree_server, "RETRY_S", 0.01)
    monkeypatch.setattr(tree_server, "RETRY_S_MAX", 0.01)
    return storage


@pytest.fixture
async def nursery() -> AsyncIterator[trio.Nursery]:
    async with trio.open_nursery() as nursery:
        yield nursery
        nursery.cancel_scope.cancel()


async def member(nursery: trio.Nursery, socket: Path) -> ServedCoordination:
    while True:
        found = ServedCoordination(str(socket), timeout_s=60.0)
        with suppress(CoordinationUnavailable):  # it has met a holder that was about to let go of the socket
            await nursery.start(found.run)
            return found


async def test_a_sync_without_room_ends_the_sessions_and_not_the_holder(
    disk: MemoryStorage, nursery: trio.Nursery, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    socket = tmp_path / "socket"
    later = list[int]()
    incarnation = await nursery.start(partial(hold_tree, DIRECTORY, socket, on_other_incarnation=later.append))
    first = await member(nursery, socket)
    await first.multi([Create("/acknowledged")])
    failures = 0

    def fail(operation: str, path: str) -> OSError | None:
        nonlocal failures
        if operation == "sync" and failures < 3:
            failures += 1
            return NO_ROOM
        return None

    disk.fail = fail
    with pytest.raises((CoordinationUnavailable, SessionExpired)):
        await first.multi([Create("/perhaps")])
    with pytest.raises(SessionExpired), trio.fail_after(60):
        while True:
            await first.until_available()
    second = await member(nursery, socket)
    assert "acknowledged" in await second.children("/")
    await second.multi([Create("/afterwards")])
    assert failures == 3  # the write, and two attempts to open the journal anew
    assert caplog.text.count("The coordination tree is away") == 1
    assert later[-1] == second.session_id >> 32 > incarnation


async def test_who_follows_another_holder_waits_for_room(disk: MemoryStorage, tmp_path: Path) -> None:
    socket = tmp_path / "socket"
    async with trio.open_nursery() as former:
        incarnation = await former.start(partial(hold_tree, DIRECTORY, socket))
        first = await member(former, socket)
        await first.multi([Create("/acknowledged")])
        disk.space_left = 0
        with pytest.raises(WriteRefused):
            await first.multi([Create("/refused")])
        former.cancel_scope.cancel()
    # Nobody was there before: whoever starts it hears of it.
    with pytest.raises(OSError, match=NO_ROOM.strerror):
        await hold_tree(DIRECTORY, socket)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(hold_tree, DIRECTORY, socket, last_incarnation=incarnation))
        found = ServedCoordination(str(socket), timeout_s=60.0)
        async with trio.open_nursery() as begun:
            begun.start_soon(nursery.start, found.run)
            while found._connection is None:  # it is connected, and not greeted yet
                await trio.sleep(0.01)
            assert not found.session_id
            disk.space_left = None
        assert await found.children("/") == ["acknowledged"]
        nursery.cancel_scope.cancel()


async def test_a_broken_disk_ends_it(disk: MemoryStorage, tmp_path: Path) -> None:
    disk.fail = lambda operation, path: OSError(errno.EIO, "broken") if operation == "sync" else None
    with pytest.raises(OSError, match="broken"):
        await hold_tree(DIRECTORY, tmp_path / "socket", last_incarnation=0)
    disk.fail = None
    async with trio.open_nursery() as nursery:
        await nursery.start(partial(hold_tree, DIRECTORY, tmp_path / "socket"))
        nursery.cancel_scope.cancel()
    disk.fail = lambda operation, path: OSError(errno.EIO, "broken") if operation == "sync" else None
    with pytest.raises(OSError, match="broken"):
        await hold_tree(DIRECTORY, tmp_path / "socket", last_incarnation=1)


async def test_an_older_journal_or_none_is_not_taken_for_the_one_before(disk: MemoryStorage, tmp_path: Path) -> None:
    socket = tmp_path / "socket"
    kept = []
    for _ in range(2):
        async with trio.open_nursery() as nursery:
            incarnation = await nursery.start(partial(hold_tree, DIRECTORY, socket))
            kept.append(disk.read(JOURNAL))
            nursery.cancel_scope.cancel()
    for old in (kept[0], None):
        disk.remove(JOURNAL)
        if old is not None:
            disk.replace(JOURNAL, old)
        with pytest.raises(
            LogDirectoryProblem, match=r"is gone, or an older one is in its place\. Is its disk mounted\?"
        ):
            await hold_tree(DIRECTORY, socket, last_incarnation=incarnation)
        assert disk.exists(JOURNAL) == (old is not None)
    disk.replace(JOURNAL, kept[1])
    async with trio.open_nursery() as nursery:
        assert (
            await nursery.start(partial(hold_tree, DIRECTORY, socket, last_incarnation=incarnation)) == incarnation + 1
        )
        nursery.cancel_scope.cancel()


def removed_files(folder: Path) -> list[str]:
    """Which files of a folder this process holds although they are gone, so that their room is not free."""
    found = []
    for descriptor in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # that of the listing
            found.append(os.readlink(f"/proc/self/fd/{descriptor}"))
    return [each for each in found if each.startswith(f"{folder}/") and each.endswith("(deleted)")]


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="nothing tells which files are open")
async def test_who_waits_for_room_holds_none_itself(
    nursery: trio.Nursery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing, held = set[str](), list[list[str]]()
    sync, sleep = OsFile.sync, trio.sleep

    def full(file: OsFile) -> None:
        name = Path(os.readlink(f"/proc/self/fd/{file.fileno()}")).name
        if name in failing:
            failing.discard(name)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        sync(file)

    async def looked_at(seconds: float) -> None:
        if seconds == rest_s:  # and not a member: meanwhile a journal is put in the place of another one
            held.append(removed_files(tmp_path))
        await sleep(seconds)

    rest_s = 0.011
    monkeypatch.setattr(tree_server, "RETRY_S", rest_s)
    monkeypatch.setattr(tree_server, "RETRY_S_MAX", rest_s)
    monkeypatch.setattr(OsFile, "sync", full)
    monkeypatch.setattr(trio, "sleep", looked_at)
    trees = list[weakref.ref[Tree]]()

    class Noted(EmbeddedCoordination):
        def open(self) -> None:
            # Whoever reads a tree has let go of the one before: both together might be more than the memory.
            assert not any(each() for each in trees)
            super().open()
            trees.append(weakref.ref(self._tree))

    monkeypatch.setattr(tree_server, "EmbeddedCoordination", Noted)
    gc.collect()
    gc.disable()  # a cycle of references would hold them until it runs
    try:
        await nursery.start(partial(hold_tree, tmp_path, tmp_path / "socket"))
        for number, name in enumerate((JOURNAL_NAME, TEMPORARY_NAME, JOURNAL_NAME)):
            found = await member(nursery, tmp_path / "socket")
            failing |= {name, JOURNAL_NAME}
            with suppress(CoordinationUnavailable, SessionExpired):
                await found.multi([Create(f"/{number}")])
        await member(nursery, tmp_path / "socket")
        held.append(removed_files(tmp_path))
    finally:
        gc.enable()
    assert len(held) == 5 and not any(held)
    assert len(trees) == 4


# --- the keeper's process


class Told(Report):
    """A keeper's words, by what it says."""

    def __init__(self, era: int = 0) -> None:
        self._hears, tells = os.pipe()
        super().__init__(tells, {"era": era} if era else None)

    def all(self) -> dict[str, object]:
        # The keeper may go on: what it tells from now on must not get to a file that has this number then.
        tells, self._descriptor = self._descriptor, -1
        os.close(tells)
        with open(self._hears, "rb") as hears:
            return {name: value for line in hears for name, value in json.loads(line).items()}


async def test_the_keeper_tells_each_era_that_it_begins(
    disk: MemoryStorage, nursery: trio.Nursery, tmp_path: Path
) -> None:
    report, socket = Told(), tmp_path / "socket"
    nursery.start_soon(_keep, DIRECTORY, socket, report, None)
    first = await member(nursery, socket)
    failures = [NO_ROOM]
    disk.fail = lambda operation, path: failures.pop() if operation == "sync" and failures else None
    with pytest.raises((CoordinationUnavailable, SessionExpired)):
        await first.multi([Create("/a")])
    second = await member(nursery, socket)
    assert second.session_id >> 32 > 1
    assert report.all() == {"ready": {"era": second.session_id >> 32}}


async def test_the_keeper_tells_its_era_and_what_an_operator_can_do_something_about(tmp_path: Path) -> None:
    report = Told()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_keep, tmp_path, tmp_path / "socket", report, None)
        await member(nursery, tmp_path / "socket")
        nursery.cancel_scope.cancel()
    assert report.all() == {"ready": {"era": 1}}
    # Another one whose disk is not mounted.
    (tmp_path / JOURNAL_NAME).unlink()
    problem = await _keep(tmp_path, tmp_path / "socket", Told(era=1), None)
    assert "Is its disk mounted?" in str(problem)


async def test_a_keeper_that_waits_for_room_heeds_signals(
    disk: MemoryStorage, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    disk.fail = lambda operation, path: NO_ROOM
    ended = []
    async with trio.open_nursery() as nursery:

        async def keep() -> None:
            ended.append(await _keep(DIRECTORY, tmp_path / "socket", Told(era=1), None))

        nursery.start_soon(keep)
        with trio.fail_after(60):
            while "its members wait until there is room" not in caplog.text:
                await trio.sleep(0.01)
            os.kill(os.getpid(), signal.SIGTERM)
    assert ended == [None]


async def test_a_bug_of_the_keeper_is_no_reason_to_end_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*given: object) -> None:
        raise OSError(errno.EBADF, "a bug, by any number")

    monkeypatch.setattr(tree_server._Service, "accept", fail)
    report = Told()
    raised = False
    try:
        await _keep(tmp_path, tmp_path / "socket", report, None)
    except* OSError:
        raised = True
    assert raised  # so that its process ends without a problem to tell, and is started again
    with suppress(OSError):
        assert "problem" not in report.all()
