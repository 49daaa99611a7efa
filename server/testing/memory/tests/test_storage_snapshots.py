"""Snapshots of a storage in memory: nothing changes them, and nothing that is done to one storage is seen in another."""

from __future__ import annotations

from collections import deque
from random import Random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from ottla.replication.system import MADV_FREE
from ottla.server.testing.kafka import Kafka
from ottla.server.testing.memory import chunks, contents
from ottla.server.testing.memory.chunks import CHUNK_BYTES, POOLED_BYTES_MAX
from ottla.server.testing.memory.contents import PIECES_MAX, SHORT_BYTES_MAX, Contents
from ottla.server.testing.memory.names import StorageSnapshot
from ottla.server.testing.memory.storage import MemoryStorage
from ottla.wire.tests.effort import examples

Files = dict[str, bytes]

FILE_NAMES = [f"/{directory}/{name}" for directory in "ab" for name in "xy"]


def contents_of(storage: MemoryStorage) -> Files:
    return {path: storage.read(path) for path in storage.files()}


def frozen(snapshot: StorageSnapshot) -> Files:
    return {path: bytes(file.contents) for path, file in snapshot.files()}


class Sharing(RuleBasedStateMachine):
    """Storages and snapshots that come from each other, each beside its files as plain bytes."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        # A few bytes are a long file then, which is in chunks.
        self.patch.setattr(chunks, "CHUNK_BYTES", 5)
        self.patch.setattr(chunks, "_pool", deque())
        self.patch.setattr(contents, "CHUNK_BYTES", 5)
        self.patch.setattr(contents, "SHORT_BYTES_MAX", 8)
        first = MemoryStorage()
        first.make_directory("/a")
        first.make_directory("/b")
        self.storages: list[tuple[MemoryStorage, Files]] = [(first, {})]
        self.snapshots: list[tuple[StorageSnapshot, Files]] = []

    def _one(self, number: int) -> tuple[MemoryStorage, Files]:
        return self.storages[number % len(self.storages)]

    numbers = st.integers(0, 5)
    paths = st.sampled_from(FILE_NAMES)
    data = st.binary(max_size=6)

    @rule(number=numbers, path=paths, data=data)
    def append(self, number: int, path: str, data: bytes) -> None:
        storage, files = self._one(number)
        storage.open(path, create=True).append(data)
        files[path] = files.get(path, b"") + data

    @rule(number=numbers, path=paths, size=st.integers(0, 12))
    def truncate(self, number: int, path: str, size: int) -> None:
        storage, files = self._one(number)
        storage.open(path, create=True).truncate(size)
        files[path] = files.get(path, b"")[:size]

    @rule(number=numbers, path=paths, data=data)
    def write(self, number: int, path: str, data: bytes) -> None:
        storage, files = self._one(number)
        storage.write(path, data)
        files[path] = data

    @rule(number=numbers, path=paths, position=st.integers(0, 8), data=data)
    def damage(self, number: int, path: str, position: int, data: bytes) -> None:
        storage, files = self._one(number)
        if path in files and position <= len(files[path]):
            storage.damage(path, position, data)
            files[path] = files[path][:position] + data + files[path][position + len(data) :]

    @rule(number=numbers, path=paths, new_path=paths)
    def rename(self, number: int, path: str, new_path: str) -> None:
        storage, files = self._one(number)
        if path in files:
            storage.rename(path, new_path)
            files[new_path] = files.pop(path)

    @rule(number=numbers, path=paths)
    def remove(self, number: int, path: str) -> None:
        storage, files = self._one(number)
        storage.remove(path)
        files.pop(path, None)

    @rule(number=numbers, path=paths)
    def sync(self, number: int, path: str) -> None:
        storage, files = self._one(number)
        if path in files:
            storage.open(path).sync()
            storage.sync_directory("/a")

    @rule(number=numbers, seed=st.integers(0, 99))
    def cut_power(self, number: int, seed: int) -> None:
        storage, files = self._one(number)
        storage.crash(Random(seed))
        files.clear()
        files.update(contents_of(storage))
        for directory in ("/a", "/b"):
            if not storage.is_directory(directory):
                storage.make_directory(directory)

    @rule(number=numbers)
    def take(self, number: int) -> None:
        storage, files = self._one(number)
        self.snapshots = [*self.snapshots[-3:], (storage.snapshot(), dict(files))]

    @rule(number=numbers)
    def restore(self, number: int) -> None:
        if self.snapshots:
            snapshot, files = self.snapshots[number % len(self.snapshots)]
            self.storages = [*self.storages[-3:], (MemoryStorage.from_snapshot(snapshot), dict(files))]

    @rule(number=numbers)
    def copy(self, number: int) -> None:
        storage, files = self._one(number)
        self.storages = [*self.storages[-3:], (storage.copy(), dict(files))]

    def teardown(self) -> None:
        self.storages, self.snapshots = [], []  # so that their chunks go to their own pool
        self.patch.undo()

    @invariant()
    def all_are_as_told(self) -> None:
        for storage, files in self.storages:
            assert contents_of(storage) == files
            for path, data in files.items():
                file = storage.open(path)
                assert (file.size(), file.read_at(2, 3), file.read_at(4, 9)) == (len(data), data[2:5], data[4:13])
                assert bytes(file.view_at(2, 1)) == data[2:3]
                view = bytes(file.view_at(6, 9))
                assert data[6:15].startswith(view) and bool(view) == (len(data) > 6)
        for snapshot, files in self.snapshots:
            assert frozen(snapshot) == files


test_sharing = Sharing.TestCase
test_sharing.settings = settings(max_examples=examples(40), stateful_step_count=30, deadline=None)


def test_a_snapshot_shares_the_bytes_of_a_log_that_goes_on() -> None:
    storage = MemoryStorage()
    log = storage.open("/log", create=True)
    log.append(bytes(100_000))
    ((_, file),) = storage.snapshot().files()
    log.append(b"more")
    ((_, later),) = storage.snapshot().files()
    assert file.contents.pieces[0].buffer is later.contents.pieces[0].buffer
    assert (file.contents.length, later.contents.length) == (100_000, 100_004)
    assert file.contents != later.contents


def test_a_restored_file_has_few_pieces_however_often_it_was_restored() -> None:
    storage, written = MemoryStorage(), b""
    for number in range(3 * PIECES_MAX):
        written += b"%d" % number
        storage.open("/log", create=True).append(b"%d" % number)
        snapshot = storage.snapshot()
        ((_, file),) = snapshot.files()
        assert len(file.contents.pieces) <= PIECES_MAX + 1
        storage = MemoryStorage.from_snapshot(snapshot)
    assert storage.read("/log") == written
    assert storage.open("/log").read_at(3, 1000) == written[3:]


def test_what_was_restored_is_on_the_disk() -> None:
    storage = MemoryStorage()
    storage.make_directory("/d")
    storage.write("/d/a", b"never synced")
    again = MemoryStorage.from_snapshot(storage.snapshot())
    again.crash(Random(1))
    assert contents_of(again) == {"/d/a": b"never synced"}


def test_a_snapshot_keeps_times_and_empty_directories() -> None:
    storage = MemoryStorage(lambda: 1234)
    storage.make_directory("/empty")
    storage.write("/a", b"1")
    again = MemoryStorage.from_snapshot(storage.snapshot(), lambda: 5678)
    assert (again.modified_ms("/a"), again.names("/empty")) == (1234, [])
    again.write("/a", b"2")
    assert again.modified_ms("/a") == 5678


def test_a_directory_is_never_renamed_onto_one_with_files() -> None:
    storage = MemoryStorage()
    for directory in "ab":
        storage.make_directory(f"/{directory}")
        storage.write(f"/{directory}/file", directory.encode())
    with pytest.raises(OSError, match="not empty"):
        storage.rename("/a", "/b")
    assert contents_of(storage) == {"/a/file": b"a", "/b/file": b"b"}


def test_a_file_below_a_renamed_directory_fails_by_its_new_path() -> None:
    storage = MemoryStorage()
    storage.make_directory("/a")
    storage.make_directory("/a/b")
    file = storage.open("/a/b/c", create=True)
    storage.rename("/a", "/z")
    asked: list[str] = []

    def fail(operation: str, path: str) -> OSError | None:
        asked.append(path)
        return None

    storage.fail = fail
    file.append(b"x")
    storage.sync_directory("/z")  # which makes the old name and the rename again, for the disk
    file.append(b"y")
    assert asked == ["/z/b/c", "/z", "/z/b/c"]


def test_a_name_costs_the_same_among_thousands(monkeypatch: pytest.MonkeyPatch) -> None:
    storage = MemoryStorage()
    for number in range(1000):
        storage.make_directory(f"/{number}")
        storage.write(f"/{number}/file", b"")
    seen: list[str] = []

    def files_in(path: str, names: object) -> list[object]:
        seen.append(path)
        return []

    monkeypatch.setattr("ottla.server.testing.memory.storage.files_in", files_in)
    storage.rename("/7/file", "/7/renamed")
    assert storage.names("/7") == ["renamed"]
    storage.rename("/7", "/seven")
    storage.remove_tree("/8")
    assert seen == ["/seven"]


def test_contents_cut_below_a_promise_leave_it_alone() -> None:
    contents = Contents()
    contents.append(b"0123456789")
    kept = contents.freeze()
    contents.truncate(4)
    shorter = contents.freeze()
    contents.append(b"abc")
    contents.truncate(20)  # longer than it is
    assert (bytes(kept), bytes(shorter), bytes(contents)) == (b"0123456789", b"0123", b"0123abc")
    assert contents.read(2, 4) == b"23ab" and bytes(contents.first_view(2, 4)) == b"23"


class GrowingTail(bytearray):
    """A buffer to which another thread appends whenever somebody has asked for its length."""

    def __len__(self) -> int:
        length = super().__len__()
        self.extend(b"z")
        return length


def test_a_copy_is_of_one_moment_while_a_thread_appends():
    contents = Contents()
    contents._layout = contents._layout._replace(tail=GrowingTail(b"abc"))
    frozen = contents.freeze()
    ((_, length),) = frozen.pieces
    assert frozen.length == length == contents._promised


needs_pool = pytest.mark.skipif(MADV_FREE is None, reason="this system cannot take kept memory back")


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> deque[object]:
    made: deque[object] = deque()
    monkeypatch.setattr(chunks, "_pool", made)
    return made


@needs_pool
def test_memory_that_nobody_holds_is_used_again(pool: deque[object]) -> None:
    long = bytes(range(256)) * (2 * CHUNK_BYTES // 256)
    contents = Contents()
    contents.append(b"first")
    contents.append(long)
    kept = contents.freeze()
    contents.append(long)
    contents = Contents()
    assert len(pool) == 2  # the others are the copy's
    again = Contents()
    again.append(b"x" * (2 * CHUNK_BYTES))
    assert not pool and bytes(kept) == b"first" + long
    del again, kept
    assert len(pool) == 4


@needs_pool
def test_a_bounded_amount_of_memory_is_kept(pool: deque[object], monkeypatch: pytest.MonkeyPatch) -> None:
    assert chunks._POOLED_MAX * CHUNK_BYTES == POOLED_BYTES_MAX
    monkeypatch.setattr(chunks, "_POOLED_MAX", 3)
    many = [chunks.Chunk() for _ in range(5)]
    del many
    assert len(pool) == 3


def test_a_storage_that_is_discarded_holds_no_bytes_to_speak_of() -> None:
    storage = MemoryStorage()
    storage.write("/long", bytes(5000), sync=True)
    storage.write("/tiny", b"tiny")
    snapshot = storage.snapshot()
    storage.discard()
    assert contents_of(storage) == {"/long": b"", "/tiny": b"tiny"}
    assert frozen(snapshot)["/long"] == bytes(5000)


def test_short_files_take_no_chunks(pool: deque[object], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "pages", None)
    storage = MemoryStorage()
    storage.write("/short", bytes(SHORT_BYTES_MAX))
    with pytest.raises(TypeError):
        storage.open("/short").append(b"more")


@needs_pool
def test_a_closed_world_gives_its_memory_back_and_leaves_a_snapshot_its_own(pool: deque[object]) -> None:
    values = [bytes([number]) * (CHUNK_BYTES - 1000) for number in range(6)]
    with Kafka() as kafka:
        kafka.topic("orders")
        for value in values[:3]:
            kafka.produce("orders", value)
        snapshot = kafka.snapshot()
        for value in values[3:]:
            kafka.produce("orders", value)
        kafka.restore(snapshot)
        assert len(pool) >= 2  # of the records that the restore has taken away
        kafka.reset()
        kafka.topic("orders")
        for value in values[3:]:
            kafka.produce("orders", value)
        kafka.broker(0).kill()
        kafka.broker(0).start()
        assert [each.value for each in kafka.records("orders")] == values[3:]
    before = len(pool)
    with Kafka.of(snapshot) as kafka:
        assert [each.value for each in kafka.records("orders")] == values[:3]
    del snapshot
    assert len(pool) >= before + 3


@needs_pool
def test_memory_that_the_kernel_could_not_take_back_is_not_kept(
    pool: deque[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunks, "MADV_FREE", -1)
    chunk = chunks.Chunk()
    del chunk
    assert not pool
