"""Sparse indexes: lookups, spilling to the file, cutting, and files that are not what they should be."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.replication.log import index as index_module
from ottla.replication.log.index import CorruptIndex, OffsetIndex, TimeIndex
from ottla.replication.log.storage import FileCache
from ottla.server.testing.memory.storage import MemoryStorage
from ottla.wire.tests.effort import examples

BASE = 1000


def new_files() -> FileCache:
    storage = MemoryStorage()
    storage.write("/index", b"")
    return FileCache(storage)


@pytest.fixture
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_module, "SPILL_ENTRIES", 3)
    monkeypatch.setattr(index_module, "PAGE_ENTRIES", 4)


def test_an_entry_has_the_bytes_kafka_writes() -> None:
    files = new_files()
    offsets = OffsetIndex(files, "/index", BASE)
    offsets.append(BASE + 5, 4200)
    offsets.save()
    assert files.storage.read("/index").hex() == "00000005" + "00001068"
    files.storage.write("/index", b"")
    times = TimeIndex(files, "/index", BASE)
    times.maybe_append(1_000_000, BASE + 5)
    times.save()
    assert files.storage.read("/index").hex() == "00000000000f4240" + "00000005"


@settings(max_examples=examples(50), deadline=None)
@given(
    steps=st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), max_size=30),
    saves=st.sets(st.integers(0, 30)),
    data=st.data(),
)
def test_lookups_agree_with_a_plain_list(steps: list[tuple[int, int]], saves: set[int], data: st.DataObject) -> None:
    files = new_files()
    index = OffsetIndex(files, "/index", BASE)
    entries = [(BASE, 0)]
    for number, (offset_step, position_step) in enumerate(steps):
        entries.append((entries[-1][0] + offset_step, entries[-1][1] + position_step))
        index.append(*entries[-1])
        if number in saves:
            index.save()
    if data.draw(st.booleans()):
        index.save()
        index = OffsetIndex(files, "/index", BASE, size_bytes=files.storage.size("/index"))
    assert index.last_entry() == entries[-1]
    for wanted in range(entries[-1][0] - BASE + 3):
        assert index.floor(BASE + wanted) == max(p for o, p in entries if o <= BASE + wanted)
    for wanted in range(entries[-1][1] + 3):
        assert index.floor_position(wanted) == max(p for _, p in entries if p <= wanted)
    cut = data.draw(st.integers(BASE, entries[-1][0] + 2))
    index.cut(index.cut_at(cut))
    kept = [entry for entry in entries[1:] if entry[0] < cut]
    assert (index.entries, index.last_entry()) == (len(kept), kept[-1] if kept else (BASE, 0))


def test_lookups_across_pages_of_the_file(small_pages: None) -> None:
    files = new_files()
    index = OffsetIndex(files, "/index", BASE)
    for number in range(1, 30):
        index.append(BASE + number * 10, number * 100)
    assert len(files.storage.read("/index")) >= 27 * 8  # spilled on the way
    for offset in (*range(300), *range(299, -1, -1), *range(0, 300, 97), 299, 0):
        assert index.floor(BASE + offset) == offset // 10 * 100


def test_who_reads_on_needs_one_read_of_the_file_a_lookup(small_pages: None, monkeypatch: pytest.MonkeyPatch) -> None:
    files = new_files()
    index = OffsetIndex(files, "/index", BASE)
    for number in range(1, 100):
        index.append(BASE + number * 10, number * 100)
    reads: list[tuple[int, int]] = []
    read = index._read
    monkeypatch.setattr(OffsetIndex, "_read", lambda self, *place: reads.append(place) or read(*place))
    for number in range(1, 90):
        reads.clear()
        assert index.floor(BASE + number * 10 + 5) == number * 100
        assert len(reads) == 1


def test_the_time_index_takes_only_what_is_later() -> None:
    index = TimeIndex(new_files(), "/index", BASE)
    index.maybe_append(10, BASE + 1)
    index.maybe_append(10, BASE + 2)
    index.maybe_append(9, BASE + 3)
    index.maybe_append(20, BASE + 4)
    assert index.entries == 2
    assert [index.first_reaching(timestamp) for timestamp in (9, 10, 11, 20, 21)] == [
        BASE + 1,
        BASE + 1,
        BASE + 4,
        BASE + 4,
        None,
    ]
    index.cut(index.cut_at(BASE + 4))
    assert (index.entries, index.last_timestamp, index.last_offset) == (1, 10, BASE + 1)
    index.cut(index.cut_at(BASE))
    assert (index.entries, index.last_timestamp, index.last_offset) == (0, -1, BASE)


def test_an_entry_out_of_order_is_left_out() -> None:
    index = OffsetIndex(new_files(), "/index", BASE)
    index.append(BASE + 1, 10)
    index.append(BASE + 1, 20)
    assert (index.entries, index.last_entry()) == (1, (BASE + 1, 10))


def test_a_file_of_broken_entries_is_corrupt() -> None:
    with pytest.raises(CorruptIndex):
        OffsetIndex(new_files(), "/index", BASE, size_bytes=12)
    with pytest.raises(CorruptIndex):
        TimeIndex(new_files(), "/index", BASE, size_bytes=8)


def test_a_full_disk_leaves_entries_in_memory_and_a_later_save_puts_the_file_right(small_pages: None) -> None:
    files = new_files()
    storage = files.storage
    assert isinstance(storage, MemoryStorage)
    index = OffsetIndex(files, "/index", BASE)
    storage.space_left = 13
    for number in range(1, 8):
        index.append(BASE + number, number)
    assert index.floor(BASE + 6) == 6
    with pytest.raises(OSError):
        index.save()
    storage.space_left = None
    index.save()
    again = OffsetIndex(files, "/index", BASE, size_bytes=storage.size("/index"))
    assert [again.entry(slot) for slot in range(again.entries)] == [(number, number) for number in range(1, 8)]
