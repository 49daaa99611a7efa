"""What a start writes, and when: nothing is lost or refused whichever call to the disk was the last one before the power went.

A tree that is written later shows its changes at once. They are in the journal, all or none, when `keep` has returned. A broker
that starts waits for the disk a few times only.
"""

from __future__ import annotations

import errno
import itertools
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest
import trio

from ottla.replication.cluster.coordination import CoordinationUnavailable, Create, Operation, SetData
from ottla.replication.controller.topic_planner import NewTopic
from ottla.server.cluster.coordination import embedded
from ottla.server.cluster.coordination.embedded import EmbeddedCoordination
from ottla.server.cluster.coordination.journal import JOURNAL_NAME
from ottla.server.testing.memory.storage import MemoryStorage
from ottla.server.tests.administered import AdministeredBroker, at_once, disk_with, opened
from ottla.wire.errors import KafkaError

DIRECTORY = Path("/data")
STEPS: tuple[tuple[Operation, ...] | None, ...] = (
    (Create("/t"), Create("/t/a", b"1")),
    (SetData("/t/a", b"2"), Create("/t/b", b"3" * 300)),
    None,  # keep
    (SetData("/t/a", b"4", 1), Create("/t/q", sequential=True)),
    (Create("/here", ephemeral=True),),
    (Create("/t/c"),),
    None,
)

LOOKS = frozenset(("exists", "is_directory", "modified_ms", "names", "read", "size"))
"""The calls to the disk that change nothing there. With one of them a power cut changes no more than with the next one."""

Picture = dict[str, tuple[bytes, int, int]]


def tree_on(storage: MemoryStorage) -> EmbeddedCoordination:
    return EmbeddedCoordination(DIRECTORY, run_in_thread=at_once, storage=storage)


def picture(coordination: EmbeddedCoordination) -> Picture:
    """What outlives the process."""
    nodes = coordination._tree.nodes.items()
    return {path: (node.data, node.version, node.next_sequence) for path, node in nodes if path and not node.owner}


def reopened(storage: MemoryStorage) -> Picture:
    coordination = tree_on(storage)
    coordination.open()
    found = picture(coordination)
    coordination.close()
    return found


class Call:
    """Fails one call that changes the disk, or (`is_last`) all from that one on, as if the power had gone."""

    def __init__(self, number: int, code: int, *, is_last: bool) -> None:
        self.calls: list[str] = []
        self._number, self._code, self._is_last = number, code, is_last

    @property
    def has_failed(self) -> bool:
        return len(self.calls) >= self._number

    def __call__(self, operation: str, path: str) -> OSError | None:
        if operation in LOOKS:
            return None
        self.calls.append(f"{operation} {path}")
        fails = len(self.calls) >= self._number if self._is_last else len(self.calls) == self._number
        return OSError(self._code, "as the test wants it", path) if fails else None


async def start_later(storage: MemoryStorage, steps: Sequence[tuple[Operation, ...] | None] = STEPS) -> list[Picture]:
    """Carry out STEPS; answers what may be found afterwards: what was kept last, and what was about to be."""
    coordination = tree_on(storage)
    coordination.write_later()
    possible: list[Picture] = []
    try:
        coordination.open()
        possible = [picture(coordination)]
        for step in steps:
            if step is not None:
                await coordination.multi(step)
                continue
            possible.append(picture(coordination))
            await coordination.keep()
            del possible[:-1]
    except (OSError, CoordinationUnavailable):
        pass
    return possible


@pytest.mark.parametrize("has_journal", [False, True])
@pytest.mark.parametrize(
    ("code", "is_last"), [(errno.EIO, True), (errno.EIO, False), (errno.ENOSPC, False), (errno.EMFILE, False)]
)
async def test_all_or_nothing_of_what_was_kept_outlives_a_power_cut(
    *, has_journal: bool, code: int, is_last: bool
) -> None:
    for number in itertools.count(1):
        storage = disk_with(DIRECTORY)
        before: Picture = {}
        if has_journal:
            old = tree_on(storage)
            old.open()
            await old.multi([Create("/old", b"old")])
            before = picture(old)
            old.close()
        storage.fail = call = Call(number, code, is_last=is_last)
        possible = await start_later(storage) or [before]
        storage.fail = None
        storage.crash(Random(number))
        assert reopened(storage) in possible, (number, call.calls)
        if not call.has_failed:
            assert {"/t/a", "/t/c", "/t/q0000000002"} <= reopened(storage).keys()
            break


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EMFILE])
async def test_what_was_kept_is_there_although_nothing_is_written_after_it(code: int) -> None:
    """A rewritten file has to have its name for good, or the power cut would bring back the one before it."""
    first = STEPS[: STEPS.index(None) + 1]
    for number, seed in ((number, seed) for number in itertools.count(1) for seed in range(6)):
        storage = disk_with(DIRECTORY)
        storage.fail = call = Call(number, code, is_last=False)
        possible = await start_later(storage, first)
        storage.fail = None
        storage.crash(Random(seed))
        assert reopened(storage) in (possible or [{}]), (number, seed, call.calls)
        if not call.has_failed:
            break


async def test_what_could_not_be_kept_is_kept_by_the_next_attempt() -> None:
    for number, seed in ((number, seed) for number in itertools.count(1) for seed in range(6)):
        storage = disk_with(DIRECTORY)
        coordination = tree_on(storage)
        coordination.write_later()
        coordination.open()
        await coordination.multi([Create("/a", b"1"), SetData("/a", b"2")])
        storage.fail = call = Call(number, errno.EMFILE, is_last=False)
        with suppress(CoordinationUnavailable):
            await coordination.keep()
        storage.fail = None
        if coordination._journal.failure is None:  # else nobody knows what is on the disk
            await coordination.keep()
            expected = picture(coordination)
            storage.crash(Random(seed))
            assert reopened(storage) == expected, (number, seed, call.calls)
        if not call.has_failed:
            break


async def test_what_is_to_be_written_later_is_written_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the journal has grown so long meanwhile that it would be rewritten."""
    monkeypatch.setattr(embedded, "GARBAGE_MIN", 10)
    storage = disk_with(DIRECTORY)
    coordination = tree_on(storage)
    coordination.write_later()
    coordination.open()
    await coordination.multi([Create("/a")])
    await coordination.keep()
    await coordination.multi([SetData("/a", b"2")] * 20)
    await coordination.keep()
    await coordination.multi([SetData("/a", b"3")])
    await coordination.write_at_once()
    expected = picture(coordination)
    coordination.close()
    assert reopened(storage) == expected


async def test_what_is_written_later_is_seen_at_once_and_is_nowhere_without_keep() -> None:
    storage = disk_with(DIRECTORY)
    coordination = tree_on(storage)
    coordination.write_later()
    coordination.open()
    seen: list[str] = []
    coordination.watch_node("/a", seen.append)
    await coordination.multi([Create("/a", b"1")])
    assert ((await coordination.get("/a")).data, seen) == (b"1", ["/a"])
    assert storage.files() == []
    coordination.close()
    assert reopened(storage) == {}


async def test_after_the_start_each_multi_is_on_the_disk_when_it_is_answered() -> None:
    storage = disk_with(DIRECTORY)
    coordination = tree_on(storage)
    coordination.write_later()
    coordination.open()
    await coordination.multi([Create("/a")])
    await coordination.write_at_once()
    await coordination.multi([Create("/b")])
    expected = picture(coordination)
    storage.crash(Random(0))
    assert reopened(storage) == expected
    assert expected.keys() == {"/a", "/b"}


async def test_a_full_disk_that_has_room_for_the_changes_alone_keeps_them(caplog: pytest.LogCaptureFixture) -> None:
    storage = disk_with(DIRECTORY)
    old = tree_on(storage)
    old.open()
    await old.multi([Create("/long", b"x" * 2_000)])
    old.close()
    storage.space_left = 1_000
    coordination = tree_on(storage)
    coordination.write_later()
    coordination.open()
    await coordination.multi([Create("/a")])
    with pytest.raises(CoordinationUnavailable):
        # Nothing is left of the room now that the attempt to write all of it anew has taken.
        await coordination.keep()
    storage.space_left = 2_100
    await coordination.keep()
    assert "is not rewritten" in caplog.text
    expected = picture(coordination)
    storage.crash(Random(0))
    assert reopened(storage) == expected
    assert expected.keys() == {"/long", "/a"}


# ---------------------------------------------------------------------- whole brokers


async def started(storage: MemoryStorage, *directories: str) -> AdministeredBroker:
    return await opened(DIRECTORY, {"log.dirs": ",".join(directories)}, storage=storage)


async def first_topic(storage: MemoryStorage, *directories: str) -> bool:
    """Start, and create a topic; whether a client was told that it is there."""
    try:
        broker = await started(storage, *directories)
    except Exception:  # noqa: BLE001 - whatever it is: its disk is dead
        return False
    try:
        (outcome,) = await broker.administration.create_topics([NewTopic(name="t")], timeout_s=60)
        return not isinstance(outcome, KafkaError)
    finally:
        await broker.stop()


@pytest.mark.thorough
@pytest.mark.parametrize("directories", [["/data"], ["/data", "/more"]])
async def test_a_start_goes_on_wherever_the_power_went_during_the_first_one(directories: list[str]) -> None:
    for number in itertools.count(1):
        storage = MemoryStorage()
        for each in directories:
            storage.make_directory(each)
        storage.sync_directory("/")
        storage.fail = call = Call(number, errno.EIO, is_last=True)
        with trio.fail_after(60):
            was_told = await first_topic(storage, *directories)
        storage.fail = None
        storage.crash(Random(number))
        again = await started(storage, *directories)
        assert ("t" in again.cluster.topics) >= was_told, (number, call.calls)
        assert again.cluster.cluster_id
        await again.stop()
        if not call.has_failed:
            assert was_told
            break


async def test_a_first_start_waits_for_the_disk_six_times_and_the_next_one_twice() -> None:
    """And each topic once."""
    storage = MemoryStorage()
    waits: list[str] = []

    def note(operation: str, path: str) -> None:
        if operation in ("sync", "sync_directory"):
            waits.append(f"{operation} {path.rpartition('/')[2]}")

    storage.fail = note
    broker = await started(storage, "/data")
    journal = ["sync coordination.tmp", "sync_directory data"]
    marks = ["sync recovery-point-offset-checkpoint", "sync meta.properties.tmp", "sync_directory data"]
    assert waits == [*journal, *marks, f"sync {JOURNAL_NAME}"]
    waits.clear()
    await broker.administration.create_topics([NewTopic(name="t")])
    assert waits == [f"sync {JOURNAL_NAME}"]
    storage.kill()  # as a kill leaves it: no clean end, which writes more
    waits.clear()
    again = await started(storage, "/data")
    assert waits == journal
    await broker.stop()
    await again.stop()
