"""The tool that fails the k-th call: it counts all calls, fails the right one, and both storages ask it alike."""

from __future__ import annotations

import errno
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from ottla.replication.log.memory_storage import MemoryStorage
from ottla.replication.log.storage import OsStorage, Storage
from ottla.replication.log.tests.failing_calls import (
    FailingCalls,
    FailingStorage,
    Fault,
    run_case,
    run_every_case,
    run_pairs,
    single_faults,
)


def work(storage: Storage, root: str) -> None:
    storage.make_directory(f"{root}/a")
    file = storage.open(f"{root}/a/x", create=True)
    file.append(b"12345678")
    file.sync()
    assert file.size() == storage.size(f"{root}/a/x") == 8
    file.truncate(4)
    assert file.read_at(0, 10) == storage.read(f"{root}/a/x") == b"1234"
    storage.replace(f"{root}/a/y", b"new")
    storage.set_modified_ms(f"{root}/a/y", storage.modified_ms(f"{root}/a/x"))
    storage.rename(f"{root}/a/y", f"{root}/a/z")
    assert sorted(storage.names(f"{root}/a")) == ["x", "z"]
    assert storage.is_directory(f"{root}/a") and storage.exists(f"{root}/a/z")
    storage.remove(f"{root}/a/x")
    storage.remove_tree(f"{root}/a")
    storage.sync_directory(root)


def test_both_storages_ask_before_the_same_calls(tmp_path: Path) -> None:
    memory, on_disk = FailingCalls(), FailingCalls()
    in_memory = MemoryStorage()
    in_memory.fail = memory
    in_memory.make_directory("/root")
    work(in_memory, "/root")
    files = FailingStorage(OsStorage())
    with files.failing(on_disk):
        work(files, str(tmp_path))
    operations = [call.operation for call in memory.made]
    assert operations[0] == "make_directory"
    assert operations[1:] == [call.operation for call in on_disk.made]
    assert len(operations) > 25


def test_every_call_fails_in_every_way() -> None:
    seen: list[str] = []

    def case(calls: FailingCalls) -> None:
        storage = MemoryStorage()
        storage.fail = calls
        with suppress(OSError):
            work(storage, "")
        seen.extend(call.operation for call in calls.failed)

    count = run_every_case(case, lasting=True)
    assert count > 4 * 25
    assert {"open", "append", "sync", "size", "truncate", "read", "rename", "write", "names", "remove"} <= set(seen)
    made = run_case(case).made
    assert run_pairs(case, list(single_faults(made, (errno.ENOSPC,)))[:3]) >= 0


def test_a_failing_case_says_which_call_it_was() -> None:
    def case(calls: FailingCalls) -> None:
        storage = MemoryStorage()
        storage.fail = calls
        storage.write("/x", b"data")

    with pytest.raises(OSError) as raised:
        run_every_case(case, (errno.EIO,))
    assert raised.value.__notes__ == ["call 0 fails with EIO: write /x"]


@pytest.mark.parametrize(("share", "left"), [(0.0, b""), (0.5, b"1234"), (1.0, b"12345678")])
def test_a_short_write_leaves_a_part(share: float, left: bytes, tmp_path: Path) -> None:
    for storage, path in ((MemoryStorage(), "/x"), (FailingStorage(OsStorage()), str(tmp_path / "x"))):
        file = storage.open(path, create=True)
        calls = FailingCalls(Fault(0, errno.ENOSPC, share))
        if isinstance(storage, MemoryStorage):
            storage.fail = calls
        else:
            storage.calls = calls
        with pytest.raises(OSError):
            file.append(b"12345678")
        assert file.read_at(0, 100) == left


def test_a_failed_sync_loses_the_bytes_for_good() -> None:
    storage = MemoryStorage()
    file = storage.open("/x", create=True)
    storage.sync_directory("/")
    file.append(b"first")
    file.sync()
    file.append(b" second")
    storage.fail = FailingCalls(Fault(0, errno.EIO))
    with pytest.raises(OSError):
        file.sync()
    file.sync()
    contents = set()
    for seed in range(20):
        copy = storage.copy()
        copy.crash(Random(seed))
        contents.add(copy.read("/x"))
    assert file.read_at(0, 100) == b"first second"
    assert len(contents) > 2


def test_a_copy_of_a_storage_goes_its_own_way() -> None:
    storage = MemoryStorage()
    storage.make_directory("/d")
    storage.sync_directory("/")
    storage.write("/d/x", b"one", sync=True)
    storage.sync_directory("/d")
    storage.rename("/d/x", "/d/y")
    copy = storage.copy()
    storage.write("/d/y", b"two")
    storage.remove("/d/y")
    copy.sync_directory("/d")
    copy.crash(Random(1))
    assert (copy.files(), copy.read("/d/y")) == (["/d/y"], b"one")
    assert storage.files() == []
