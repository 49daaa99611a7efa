"""The embedded tree over a disk that fails: what was acknowledged is there, what was refused is not, and it serves again.

Each call to the disk is failed once, with each errno, for a conversation with the tree; then the broker goes on, and is
started again in order, after a kill and after a power cut.
"""

from __future__ import annotations

import errno
import itertools
import logging
import resource
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
from trio.testing import MockClock

from ottla.replication.cluster.coordination import (
    BadVersion,
    Check,
    CoordinationError,
    CoordinationUnavailable,
    Create,
    Delete,
    NodeExists,
    NoNode,
    Operation,
    SessionExpired,
    SetData,
    WriteRefused,
)
from ottla.replication.log.faults import Fault, classify
from ottla.server.cluster.coordination import embedded
from ottla.server.cluster.coordination.embedded import EmbeddedCoordination
from ottla.server.cluster.coordination.journal import DamagedJournal
from ottla.server.serving import StartupError, _startup_problem, _stopped
from ottla.server.testing.memory.storage import MemoryStorage
from ottla.server.tests.administered import at_once, disk_with

DIRECTORY = Path("/data")
ERRNOS = (errno.EMFILE, errno.ENOSPC, errno.EIO, errno.EINTR)


def opened(storage: MemoryStorage) -> EmbeddedCoordination:
    coordination = EmbeddedCoordination(DIRECTORY, run_in_thread=at_once, storage=storage)
    coordination.open()
    return coordination


def tree(coordination: EmbeddedCoordination) -> dict[str, tuple[bytes, int, int]]:
    nodes = coordination._tree.nodes.items()
    return {path: (node.data, node.version, node.next_sequence) for path, node in nodes}


# ---------------------------------------------------------------------- room that comes back


async def test_the_journal_serves_again_when_there_is_room(caplog: pytest.LogCaptureFixture) -> None:
    storage = disk_with(DIRECTORY)
    coordination = opened(storage)
    await coordination.multi([Create("/a", b"1")])
    storage.space_left = 10
    with caplog.at_level(logging.INFO):
        for _ in range(3):
            with pytest.raises(WriteRefused):
                await coordination.multi([Create("/b"), SetData("/a", b"2")])
        assert await coordination.children("/") == ["a"]
        storage.space_left = None
        assert await coordination.multi([Create("/b"), SetData("/a", b"3", 0)]) == ["/b", 1]
    assert [record.levelname for record in caplog.records] == ["ERROR", "INFO"]
    coordination.close()
    assert tree(opened(storage)) == {"": (b"", 0, 2), "/a": (b"3", 1, 0), "/b": (b"", 0, 0)}


async def test_nobody_sees_what_is_not_on_the_disk_yet() -> None:
    storage = disk_with(DIRECTORY)
    gate, seen = trio.Event(), list[str]()

    async def slow(function: Any, *arguments: Any) -> Any:
        await gate.wait()
        return function(*arguments)

    coordination = EmbeddedCoordination(DIRECTORY, run_in_thread=slow, storage=storage)
    coordination.open()
    coordination.watch_children("/", seen.append)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(coordination.multi, [Create("/a")])
        await trio.testing.wait_all_tasks_blocked()
        before = await coordination.children("/"), list(seen)
        gate.set()
    assert before == ([], [])
    assert (await coordination.children("/"), seen) == (["a"], [""])


async def test_a_multi_that_depends_on_a_refused_one_is_refused_with_it() -> None:
    storage = disk_with(DIRECTORY)
    coordination = opened(storage)
    await coordination.multi([Create("/a")])
    told: dict[str, Any] = {}

    async def write(name: str, *operations: Operation) -> None:
        try:
            told[name] = await coordination.multi(operations)
        except CoordinationError as error:
            told[name] = type(error)

    storage.space_left = 0
    async with trio.open_nursery() as nursery:
        nursery.start_soon(write, "parent", Create("/b"))
        nursery.start_soon(write, "child", Create("/b/c"))
        nursery.start_soon(write, "again", Create("/b"))
        nursery.start_soon(write, "version", SetData("/a", b"1", 0))
    assert set(told.values()) == {WriteRefused}
    storage.space_left = None
    assert await coordination.multi([SetData("/a", b"2", 0)]) == [1]
    with pytest.raises(NoNode):
        await coordination.multi([Create("/b/c")])
    coordination.close()
    assert sorted(tree(opened(storage))) == ["", "/a"]


async def test_writers_of_one_entry_see_each_other() -> None:
    gate, entries = trio.Event(), list[Any]()

    async def slow(function: Any, *arguments: Any) -> Any:
        entries.append(arguments)
        await gate.wait()
        return function(*arguments)

    coordination = EmbeddedCoordination(DIRECTORY, run_in_thread=slow, storage=disk_with(DIRECTORY))
    coordination.open()
    told: list[Any] = []

    async def write(operation: Operation) -> None:
        try:
            told.append(await coordination.multi([operation]))
        except CoordinationError as error:
            told.append(type(error))

    async with trio.open_nursery() as nursery:
        for operation in (
            Create("/first"),  # is being written while the others queue up
            Create("/a"),
            Create("/a"),
            SetData("/a", b"x", 0),
            SetData("/a", b"y", 0),
            Create("/a/n", sequential=True),
        ):
            nursery.start_soon(write, operation)
            await trio.testing.wait_all_tasks_blocked()
        gate.set()
    assert told == [["/first"], ["/a"], NodeExists, [1], BadVersion, ["/a/n0000000000"]]
    assert len(entries) == 2


# ---------------------------------------------------------------------- writers that go away


@pytest.mark.parametrize("goes", range(4))
async def test_a_cancelled_writer_takes_nothing_of_others_with_it(goes: int) -> None:
    storage = disk_with(DIRECTORY)
    gate = trio.Event()

    async def slow(function: Any, *arguments: Any) -> Any:
        await gate.wait()
        return function(*arguments)

    coordination = EmbeddedCoordination(DIRECTORY, run_in_thread=slow, storage=storage)
    coordination.open()
    told: dict[int, str] = {}
    scopes = [trio.CancelScope() for _ in range(4)]

    async def write(number: int) -> None:
        with scopes[number]:
            try:
                await coordination.multi([Create(f"/{number}")])
                told[number] = "durable"
            except trio.Cancelled:
                told[number] = "cancelled"
                raise

    async with trio.open_nursery() as nursery:
        for number in range(4):
            nursery.start_soon(write, number)
            if number < 2:
                await trio.testing.wait_all_tasks_blocked()
        await trio.testing.wait_all_tasks_blocked()
        scopes[goes].cancel()
        await trio.testing.wait_all_tasks_blocked()
        gate.set()
    names = {path[1:] for path in tree(coordination) if path}
    assert names == {str(number) for number, outcome in told.items() if outcome == "durable"}
    assert told == {number: "durable" if number != goes or goes == 0 else "cancelled" for number in range(4)}
    storage.crash(Random(goes))
    assert {path[1:] for path in tree(opened(storage)) if path} == names


async def test_a_writer_that_is_cancelled_before_it_begins_changes_nothing() -> None:
    coordination = opened(disk_with(DIRECTORY))
    with trio.CancelScope() as scope:
        scope.cancel()
        await coordination.multi([Create("/a")])
    assert scope.cancelled_caught
    assert await coordination.multi([Create("/b")]) == ["/b"]
    assert await coordination.children("/") == ["b"]


# ---------------------------------------------------------------------- a broken disk


async def write_in_vain(coordination: EmbeddedCoordination, operation: Operation) -> None:
    """A write is not only refused: nobody knows what is on the disk."""
    with pytest.raises(CoordinationUnavailable) as raised:
        await coordination.multi([operation])
    assert type(raised.value) is CoordinationUnavailable


async def test_a_failed_sync_breaks_the_journal_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    storage = disk_with(DIRECTORY)
    coordination = opened(storage)
    await coordination.multi([Create("/a")])
    storage.fail = lambda operation, path: OSError(errno.ENOSPC, "late") if operation == "sync" else None
    await write_in_vain(coordination, Create("/b"))
    storage.fail = None
    for _ in range(2):
        await write_in_vain(coordination, Create("/c"))
    assert isinstance(await coordination.until_broken(), OSError)
    assert await coordination.children("/") == ["a"]  # what is known to be on the disk can be read
    assert [record.levelname for record in caplog.records] == ["CRITICAL"]


async def test_who_waits_for_a_broken_journal_hears_that_this_is_the_end() -> None:
    storage = disk_with(DIRECTORY)
    coordination = opened(storage)
    await coordination.multi([Create("/a")])
    storage.fail = lambda operation, path: OSError(errno.EIO, "broken") if operation == "sync" else None
    await write_in_vain(coordination, Create("/b"))
    storage.fail = None
    for _ in range(2):
        with pytest.raises(SessionExpired):
            await coordination.until_available()


@pytest.mark.parametrize("at", [2, 5, 12])  # in the length, the checksum, the contents
async def test_a_journal_that_is_damaged_before_its_end_is_left_alone(at: int) -> None:
    storage = disk_with(DIRECTORY)
    coordination = opened(storage)
    await coordination.multi([Create("/first", b"1")])
    at += storage.size(coordination.path)
    for name in ("/second", "/third", "/fourth"):
        await coordination.multi([Create(name, b"1")])
    coordination.close()
    storage.damage(coordination.path, at, bytes([storage.read(coordination.path)[at] ^ 1]))
    before = storage.read(coordination.path)
    with pytest.raises(DamagedJournal, match="coordination.journal"):
        opened(storage)
    assert storage.read(coordination.path) == before


async def test_a_broker_starts_on_a_full_disk() -> None:
    storage = disk_with(DIRECTORY)
    coordination = opened(storage)
    await coordination.multi([Create("/a", b"1")])
    coordination.close()
    storage.space_left = 0
    coordination = opened(storage)
    assert await coordination.children("/") == ["a"]
    storage.space_left = None
    await coordination.multi([Create("/b")])
    coordination.close()
    assert await opened(storage).children("/") == ["a", "b"]


async def test_a_start_whose_journal_has_no_room_ends_with_one_line() -> None:
    storage = disk_with(DIRECTORY)
    opened(storage).close()
    storage.space_left = 0
    coordination = EmbeddedCoordination(DIRECTORY, run_in_thread=at_once, storage=storage)
    coordination._is_open = True
    coordination._journal.resume()
    with pytest.raises(BaseExceptionGroup) as caught:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(coordination.multi, [Create("/controller_epoch", b"2")])
    problem = _startup_problem(caught.value)
    assert isinstance(problem, StartupError)
    assert str(problem) == "/data/coordination.journal cannot be written; is there room on its disk?"


async def test_real_files_that_may_not_grow_serve_again_when_they_may(tmp_path: Path) -> None:
    coordination = EmbeddedCoordination(tmp_path)
    coordination.open()
    await coordination.multi([Create("/a", b"1")])
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (Path(coordination.path).stat().st_size + 20, limits[1]))
    try:
        for _ in range(2):
            with pytest.raises(WriteRefused):
                await coordination.multi([Create("/b", b"2" * 100)])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert await coordination.multi([Create("/c")]) == ["/c"]
    coordination.close()
    again = EmbeddedCoordination(tmp_path)
    again.open()
    assert await again.children("/") == ["a", "c"]
    again.close()


async def test_a_broker_whose_journal_is_broken_stops_and_says_why(caplog: pytest.LogCaptureFixture) -> None:
    storage = disk_with(DIRECTORY)
    coordination = opened(storage)
    stop = SimpleNamespace(requested=trio.Event())

    async def until_broken() -> str:
        return f"{coordination.path} cannot be written: {await coordination.until_broken()}"

    member = SimpleNamespace(until_broken=until_broken, join=trio.sleep_forever)
    broker = SimpleNamespace(replicas=SimpleNamespace(all_directories_failed=trio.Event()), member=member)
    storage.fail = lambda operation, path: OSError(errno.EIO, "Input/output error") if operation == "sync" else None
    await write_in_vain(coordination, Create("/a"))
    failure = await _stopped(cast(Any, broker), cast(Any, stop), lambda _: None)
    assert failure.startswith("/data/coordination.journal cannot be written: ")
    assert f"stopping: {failure}" in caplog.text


async def test_a_writer_that_waits_for_room_does_not_spin(autojump_clock: MockClock) -> None:
    storage = disk_with(DIRECTORY)
    coordination = opened(storage)
    await coordination.multi([Create("/a")])
    storage.space_left = 0
    for _ in range(2):
        with pytest.raises(WriteRefused):
            await coordination.multi([Create("/b")])
        before = trio.current_time()
        await coordination.until_available()
        assert trio.current_time() - before >= 1
    storage.space_left = None
    await coordination.multi([Create("/b")])
    before = trio.current_time()
    await coordination.until_available()
    assert trio.current_time() == before


async def test_who_starts_does_not_wait_for_room(autojump_clock: MockClock) -> None:
    storage = disk_with(DIRECTORY)
    opened(storage).close()
    coordination = opened(storage)
    coordination.is_patient = False
    await coordination.until_available()
    storage.space_left = 0
    with pytest.raises(WriteRefused):
        await coordination.multi([Create("/a")])
    with pytest.raises(CoordinationUnavailable, match="coordination.journal"):
        await coordination.until_available()
    with pytest.raises(WriteRefused):
        await coordination.multi([Create("/ephemeral", ephemeral=True), Create("/a")])
    with pytest.raises(CoordinationUnavailable, match="coordination.journal"):
        await coordination.until_available()
    storage.space_left = None
    await coordination.multi([Create("/a")])
    await coordination.until_available()


async def test_the_tree_is_open_as_long_as_it_runs() -> None:
    coordination = EmbeddedCoordination(DIRECTORY, run_in_thread=at_once, storage=disk_with(DIRECTORY))
    async with trio.open_nursery() as nursery:
        await nursery.start(coordination.run)
        assert await coordination.multi([Create("/a")]) == ["/a"]
        await coordination.until_available()
        nursery.cancel_scope.cancel()
    with pytest.raises(CoordinationUnavailable):
        await coordination.until_available()


# ---------------------------------------------------------------------- every call fails once


class FailOnce:
    """Fails the call of this number with this errno; counts the calls."""

    def __init__(self, number: int, code: int) -> None:
        self.calls = 0
        self.failed = ""
        self._number = number
        self._code = code

    def __call__(self, operation: str, path: str) -> OSError | None:
        self.calls += 1
        if self.calls != self._number:
            return None
        self.failed = operation
        return OSError(self._code, "as the test wants it", path)


class Ledger:
    """What a client of the tree has been told."""

    def __init__(self) -> None:
        self.acknowledged: dict[str, tuple[bytes, int]] = {}
        self.refused: list[Sequence[Operation]] = []

    async def write(self, coordination: EmbeddedCoordination, *operations: Operation) -> bool:
        try:
            results = await coordination.multi(operations)
        except CoordinationUnavailable as error:
            # Only of a broken journal nobody knows what is in it.
            assert isinstance(error, WriteRefused) == (coordination._journal.failure is None)
            self.refused.append(operations)
            return False
        for operation, result in zip(operations, results, strict=True):
            if isinstance(operation, Create):
                self.acknowledged[str(result)] = (operation.data, 0)
            elif isinstance(operation, SetData):
                assert isinstance(result, int)
                self.acknowledged[operation.path] = (operation.data, result)
            elif isinstance(operation, Delete):
                del self.acknowledged[operation.path]
        return True

    def check(self, coordination: EmbeddedCoordination, *, is_last_open: bool = False) -> None:
        """The tree agrees with the answers; the last multi may have happened if it was not answered."""
        found = {path: node[:2] for path, node in tree(coordination).items() if path}
        if found != self.acknowledged:
            assert is_last_open, (found, self.acknowledged)
            happened = dict(self.acknowledged)
            for operation in self.refused[-1]:
                if isinstance(operation, Create):
                    happened[operation.path] = (operation.data, 0)
                elif isinstance(operation, SetData):
                    happened[operation.path] = (operation.data, happened[operation.path][1] + 1)
                elif isinstance(operation, Delete):
                    del happened[operation.path]
            assert found == happened


async def converse(coordination: EmbeddedCoordination, ledger: Ledger) -> None:
    """Writes of all kinds, enough of them to have the journal rewritten; each is asked for until it is accepted."""
    for operations in (
        (Create("/t"), Create("/t/a", b"1")),
        (SetData("/t/a", b"2"), Create("/t/b", b"3" * 300)),
        (Check("/t", 0), Delete("/t/b"), Create("/t/c")),
        *((SetData("/t/c", str(number).encode()),) for number in range(5)),
    ):
        for _ in range(3):
            if await ledger.write(coordination, *operations):
                break
        else:
            return


Restart = Callable[[MemoryStorage, EmbeddedCoordination, int], None]


def in_order(storage: MemoryStorage, coordination: EmbeddedCoordination, seed: int) -> None:
    coordination.close()


def killed(storage: MemoryStorage, coordination: EmbeddedCoordination, seed: int) -> None:
    storage.kill()


def powered_off(storage: MemoryStorage, coordination: EmbeddedCoordination, seed: int) -> None:
    storage.crash(Random(seed))


@pytest.mark.parametrize("code", ERRNOS, ids=errno.errorcode.__getitem__)
@pytest.mark.parametrize("restart", [in_order, killed, powered_off])
async def test_every_call_to_the_disk_fails_once(restart: Restart, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "GARBAGE_MIN", 6)
    kinds: set[str] = set()
    for number in itertools.count(1):
        storage = disk_with(DIRECTORY)
        coordination, ledger = opened(storage), Ledger()
        await ledger.write(coordination, Create("/before"))
        storage.fail = fail = FailOnce(number, code)
        await converse(coordination, ledger)
        storage.fail = None
        if not fail.failed:
            break
        kinds.add(fail.failed)
        ledger.check(coordination)
        is_broken = coordination._journal.failure is not None
        if not fail.failed.startswith("sync"):  # which says nothing of the pages before it, whatever its errno
            assert is_broken == (classify(OSError(code, "")) is Fault.BROKEN)
        if not is_broken:
            assert len(ledger.refused) <= 1
            await ledger.write(coordination, Create("/after"))
            ledger.check(coordination)
        restart(storage, coordination, number)
        again = opened(storage)
        ledger.check(again, is_last_open=is_broken)
        await again.multi([Create("/at-last")])
    assert {"append", "sync", "rename", "open"} <= kinds


@pytest.mark.parametrize("restart", [in_order, killed, powered_off])
async def test_every_byte_may_be_the_last_there_is_room_for(restart: Restart) -> None:
    for room in range(0, 900, 13):
        storage = disk_with(DIRECTORY)
        coordination, ledger = opened(storage), Ledger()
        await ledger.write(coordination, Create("/before"))
        storage.space_left = room
        await converse(coordination, ledger)
        ledger.check(coordination)
        restart(storage, coordination, room)
        storage.space_left = None
        coordination = opened(storage)
        ledger.check(coordination)
        await ledger.write(coordination, Create("/after"))
        ledger.check(coordination)


@pytest.mark.parametrize("code", ERRNOS, ids=errno.errorcode.__getitem__)
async def test_a_start_whose_calls_fail_loses_nothing(code: int) -> None:
    for number in itertools.count(1):
        storage = disk_with(DIRECTORY)
        coordination, ledger = opened(storage), Ledger()
        await converse(coordination, ledger)
        coordination.close()
        storage.fail = fail = FailOnce(number, code)
        try:
            again: EmbeddedCoordination | None = opened(storage)
        except OSError:
            again = None
        storage.fail = None
        if not fail.failed:
            break
        if again is not None:
            ledger.check(again)
            await ledger.write(again, Create("/after"))
            ledger.check(again)
        storage.crash(Random(number))
        ledger.check(opened(storage))
