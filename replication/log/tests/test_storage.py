"""The port for files: the real adapter and its twin keep the same promises."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
from pathlib import Path
from queue import SimpleQueue
from random import Random

import pytest

from ottla.replication.log.atomic_files import SYNCS_MAX, Replacement
from ottla.replication.log.names import LOG_SUFFIX, segment_path
from ottla.replication.log.segment import Segment
from ottla.replication.log.storage import (
    CLOSED_BY_A_THREAD_FROM_BYTES,
    FileCache,
    FileRegion,
    LazyFile,
    LogDirectory,
    OsStorage,
    Storage,
)
from ottla.server.testing.memory.storage import MemoryStorage
from ottla.wire.errors import ErrorCode


@pytest.fixture(params=["real", "in memory"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Storage, str]:
    if request.param == "real":
        return OsStorage(), str(tmp_path)
    storage = MemoryStorage()
    storage.make_directory("/place")
    return storage, "/place"


def test_a_file_is_appended_to_read_cut_and_measured(place: tuple[Storage, str]) -> None:
    storage, path = place
    file = storage.open(f"{path}/a", create=True)
    file.append(b"hello ")
    file.append(memoryview(bytearray(b"world")))
    file.sync()
    assert (file.size(), storage.size(f"{path}/a")) == (11, 11)
    assert (file.read_at(6, 100), file.read_at(0, 5), file.read_at(20, 5)) == (b"world", b"hello", b"")
    file.truncate(5)
    file.append(b"!")
    assert storage.read(f"{path}/a") == b"hello!"


def test_opening_what_is_not_there_fails(place: tuple[Storage, str]) -> None:
    storage, path = place
    with pytest.raises(FileNotFoundError):
        storage.open(f"{path}/a")
    with pytest.raises(FileNotFoundError):
        storage.open(f"{path}/nowhere/a", create=True)
    with pytest.raises(FileNotFoundError):
        storage.read(f"{path}/a")


def test_names_appear_move_and_go(place: tuple[Storage, str]) -> None:
    storage, path = place
    storage.make_directory(f"{path}/d")
    with pytest.raises(FileExistsError):
        storage.make_directory(f"{path}/d")
    storage.write(f"{path}/d/a", b"1")
    storage.write(f"{path}/d/b", b"2", sync=True)
    storage.rename(f"{path}/d/a", f"{path}/d/b")
    assert storage.names(f"{path}/d") == ["b"]
    assert storage.read(f"{path}/d/b") == b"1"
    storage.rename(f"{path}/d", f"{path}/e")
    assert (storage.is_directory(f"{path}/d"), storage.is_directory(f"{path}/e")) == (False, True)
    assert storage.read(f"{path}/e/b") == b"1"
    storage.sync_directory(f"{path}/e")
    storage.remove(f"{path}/e/b")
    storage.remove(f"{path}/e/b")
    assert not storage.exists(f"{path}/e/b")
    storage.write(f"{path}/e/c", b"3")
    storage.remove_tree(f"{path}/e")
    storage.remove_tree(f"{path}/e")
    assert not storage.exists(f"{path}/e")


def test_replace_leaves_the_new_contents_and_no_temporary_file(place: tuple[Storage, str]) -> None:
    storage, path = place
    storage.replace(f"{path}/a", b"old")
    storage.replace(f"{path}/a", b"new")
    assert storage.read(f"{path}/a") == b"new"
    assert storage.names(path) == ["a"]


def test_space_is_told(place: tuple[Storage, str]) -> None:
    storage, path = place
    total, usable = storage.space(path)
    assert total >= usable > 0


def test_a_file_without_room_is_refused_with_part_of_it_written() -> None:
    storage = MemoryStorage()
    storage.space_left = 4
    file = storage.open("/a", create=True)
    with pytest.raises(OSError) as error:
        file.append(b"too long")
    assert error.value.errno == errno.ENOSPC
    assert file.read_at(0, 10) == b"too "


def test_a_lock_keeps_others_out_until_it_is_released() -> None:
    storage = MemoryStorage()
    lock = storage.lock("/.lock")
    assert lock is not None and storage.lock("/.lock") is None
    lock.release()
    assert storage.lock("/.lock") is not None


def test_a_lock_file_keeps_other_processes_out(tmp_path: Path) -> None:
    path = str(tmp_path / ".lock")
    # Record locks do not stop their own process, so ask from another one.
    ask = f"import fcntl; fcntl.lockf(open({path!r}, 'r+'), fcntl.LOCK_EX | fcntl.LOCK_NB)"

    def others_get_it() -> bool:
        return subprocess.run([sys.executable, "-S", "-c", ask], check=False, capture_output=True).returncode == 0

    lock = OsStorage().lock(path)
    assert lock is not None and not others_get_it()
    lock.release()
    assert others_get_it()


def test_only_so_many_files_are_open_and_all_stay_usable(tmp_path: Path) -> None:
    cache = FileCache(OsStorage(), open_files_max=4)
    before = len(os.listdir("/proc/self/fd"))
    files = []
    for index in range(20):
        path = str(tmp_path / str(index))
        OsStorage().write(path, b"%d" % index)
        files.append(LazyFile(cache, path))
        files[-1].open()
    assert sum(file.file is not None for file in files) == len(cache) == 4
    assert len(os.listdir("/proc/self/fd")) <= before + 4
    assert [file.open().read_at(0, 10) for file in files] == [b"%d" % index for index in range(20)]


def test_a_file_in_use_is_not_the_first_to_be_closed() -> None:
    storage = MemoryStorage()
    cache = FileCache(storage, open_files_max=2)
    for name in "abc":
        storage.write(f"/{name}", b"")
    busy, idle, third = (LazyFile(cache, f"/{name}") for name in "abc")
    busy.open()
    idle.open()
    idle.used = False
    third.open()
    assert busy.file is not None and idle.file is None


def test_a_buffer_is_written_whole_although_the_system_takes_a_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = OsStorage().open(str(tmp_path / "a"), create=True)
    write = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, data[:4]))
    file.append(memoryview(bytearray(b"one, two, three")))
    assert file.read_at(0, 100) == b"one, two, three"


def test_a_region_outlives_the_file_and_its_place_in_the_cache(tmp_path: Path) -> None:
    storage = OsStorage()
    storage.write(str(tmp_path / "a"), b"0123456789")
    lazy = LazyFile(FileCache(storage, 1), str(tmp_path / "a"))
    region = FileRegion(lazy.open(), 2, 5)
    lazy.close()
    storage.remove(str(tmp_path / "a"))
    assert (len(region), region.read(), os.fstat(region.file.fileno()).st_size) == (5, b"23456", 10)


@pytest.mark.parametrize(("is_removed", "is_large"), [(False, True), (True, False), (True, True)])
def test_a_large_file_that_was_removed_is_closed_by_another_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_removed: bool, is_large: bool
) -> None:
    """The system gives up its contents when it is closed."""
    storage = OsStorage()
    file = storage.open(str(tmp_path / "a"), create=True)
    os.truncate(tmp_path / "a", CLOSED_BY_A_THREAD_FROM_BYTES - (not is_large))
    if is_removed:
        storage.remove(str(tmp_path / "a"))
    closed: SimpleQueue[int] = SimpleQueue()
    close, number = os.close, file.fileno()

    def noted(fd: int) -> None:
        close(fd)
        if fd == number:  # others may close theirs meanwhile
            closed.put(threading.get_ident())

    monkeypatch.setattr(os, "close", noted)
    del file
    assert (closed.get(timeout=60) != threading.get_ident()) is (is_removed and is_large)


def test_a_lock_whose_release_fails_closes_no_other_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system has freed the number all the same."""
    lock = OsStorage().lock(str(tmp_path / ".lock"))
    assert lock is not None
    close = os.close

    def failing(fd: int) -> None:
        close(fd)
        raise OSError(errno.EIO, "the disk is gone")

    with monkeypatch.context() as patched, pytest.raises(OSError, match="gone"):
        patched.setattr(os, "close", failing)
        lock.release()
    with (tmp_path / "other").open("wb") as other:
        lock.release()
        del lock
        os.fstat(other.fileno())


@pytest.mark.parametrize("left", [b"", b"left"])
def test_a_new_segment_is_cut_only_if_something_is_left_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left: bytes
) -> None:
    """A file that was ever cut to nothing is written to the disk when it is closed (ext4), which the event loop would wait for."""
    cuts: list[int] = []
    cut = os.ftruncate

    def noted(fd: int, size: int) -> None:
        cuts.append(size)
        cut(fd, size)

    monkeypatch.setattr(os, "ftruncate", noted)
    path = Path(segment_path(str(tmp_path), 7, LOG_SUFFIX))
    if left:
        path.write_bytes(left)
    Segment.create(FileCache(OsStorage()), str(tmp_path), 7, created_ms=0)
    assert path.read_bytes() == b"" and cuts == ([0] if left else [])


def test_removals_come_due_in_order_of_time() -> None:
    directory = LogDirectory("/", MemoryStorage())
    directory.remove_later("/b", 20)
    directory.remove_later("/a", 10)
    assert directory.removals_due(9) == []
    assert directory.removals_due(20, limit=1) == ["/a"]
    assert directory.removals_due(20) == ["/b"]


def test_the_first_failure_takes_a_directory_offline_and_is_told_once() -> None:
    directory = LogDirectory("/", MemoryStorage())
    told: list[OSError] = []
    directory.on_failure = lambda _, error: told.append(error)
    error = OSError(errno.EIO, "broken")
    assert directory.take_offline(error).code == ErrorCode.KAFKA_STORAGE_ERROR
    directory.take_offline(OSError(errno.EIO, "again"))
    assert (told, directory.is_online) == ([error], False)


def test_a_full_disk_is_logged_and_takes_nothing_offline(caplog: pytest.LogCaptureFixture) -> None:
    directory = LogDirectory("/data", MemoryStorage())
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    for each in (directory, directory, directory.apart()):
        assert each.judge(full, "orders-0").code == ErrorCode.KAFKA_STORAGE_ERROR
    directory.judge(OSError(errno.EMFILE, "too many"), "orders-1")
    assert [each.getMessage() for each in caplog.records] == [
        "no room in /data, so writes such as to orders-0 fail: [Errno 28] No space left on device"
    ]
    assert directory.is_online


def test_a_power_cut_keeps_what_was_synced_and_a_prefix_of_the_rest() -> None:
    lengths = set()
    for seed in range(50):
        storage = MemoryStorage()
        storage.make_directory("/d")
        file = storage.open("/d/a", create=True)
        file.append(b"synced")
        file.sync()
        storage.sync_directory("/d")
        storage.sync_directory("/")
        file.append(b"perhaps")
        storage.write("/d/b", b"")
        storage.crash(Random(seed))
        data = storage.read("/d/a")
        assert data.startswith(b"synced") and b"syncedperhaps".startswith(data.rstrip(b"\0"))
        lengths.add(len(data))
    assert len(lengths) > 3


def test_a_power_cut_loses_names_that_were_not_synced() -> None:
    survived = set()
    for seed in range(20):
        storage = MemoryStorage()
        storage.write("/a", b"", sync=True)
        storage.crash(Random(seed))
        survived.add(storage.exists("/a"))
    assert survived == {True, False}


@pytest.mark.parametrize("count", [1, 3, 2 * SYNCS_MAX])
def test_nothing_is_written_into_a_directory_that_has_become_anothers(place: tuple[Storage, str], count: int) -> None:
    storage, path = place
    files = [Replacement(f"{path}/{number}", b"old log", lambda: False) for number in range(count)]
    for write in (storage.write, storage.replace):
        with pytest.raises(FileNotFoundError):
            write(f"{path}/0", b"old log", is_still=lambda: False)
    storage.replace_all(files)
    assert storage.names(path) == []
    storage.replace_all([*files[1:], files[0]._replace(is_still=lambda: True)])
    assert storage.names(path) == ["0"]


@pytest.mark.parametrize("count", [1, 2 * SYNCS_MAX])
def test_a_directory_that_is_renamed_while_it_is_written_into_keeps_its_name_free_of_it(
    tmp_path: Path, count: int
) -> None:
    """The writer was told that all is well, and then is slow."""
    logs = [tmp_path / f"topic-{number}" for number in range(count)]

    def renamed(log: Path) -> bool:
        if not log.with_suffix(".x-delete").exists():
            log.rename(log.with_suffix(".x-delete"))
            log.mkdir()
        return True

    for log in logs:
        log.mkdir()
    OsStorage().replace_all([Replacement(f"{log}/file", b"old log", lambda log=log: renamed(log)) for log in logs])
    assert all(list(log.iterdir()) == [] for log in logs)


@pytest.mark.parametrize("count", [3, 2 * SYNCS_MAX])
def test_replace_all_replaces_every_file_whose_directory_is_there(place: tuple[Storage, str], count: int) -> None:
    storage, path = place
    storage.replace(f"{path}/0", b"old")
    files = [(f"{path}/{number}", b"%d" % number) for number in range(count)]
    storage.replace_all([Replacement(*file) for file in (*files, (f"{path}/gone/file", b"lost"))])
    assert sorted(storage.names(path)) == sorted(str(number) for number in range(count))
    assert all(storage.read(name) == data for name, data in files)
