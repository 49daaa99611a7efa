"""The transaction index."""

from __future__ import annotations

from random import Random

import pytest

from ottla.replication.log.index import CorruptIndex
from ottla.replication.log.storage import FileCache
from ottla.replication.log.transaction_index import AbortedInRange, AbortedTransaction, TransactionIndex
from ottla.server.testing.memory.storage import MemoryStorage

PATH = "/00000000000000000000.txnindex"
# Producers 1 and 2 abort one after the other; 3 had begun before both and aborts last.
FIRST = AbortedTransaction(1, 10, 20, 5)
SECOND = AbortedTransaction(2, 15, 30, 5)
THIRD = AbortedTransaction(3, 5, 40, 41)


@pytest.fixture
def index() -> TransactionIndex:
    index = TransactionIndex(FileCache(MemoryStorage()), PATH)
    for transaction in (FIRST, SECOND, THIRD):
        index.append(transaction)
    return index


def collected(
    index: TransactionIndex, start: int, end: int, at_most: int = 1_000_000
) -> tuple[list[AbortedTransaction], bool]:
    """What the index knows of a range, and whether later ones know nothing of it."""
    found = AbortedInRange(start, end, at_most)
    is_complete = index.collect(found)
    return found.transactions, is_complete


def test_an_entry_has_the_bytes_kafka_writes(index: TransactionIndex) -> None:
    data = index._file.open().read_at(0, 200)
    assert len(data) == 3 * 34
    assert data[:34].hex() == "0000" + "".join(f"{number:016x}" for number in (1, 10, 20, 5))


def test_there_is_no_file_before_the_first_abort() -> None:
    storage = MemoryStorage()
    index = TransactionIndex(FileCache(storage), PATH)
    assert collected(index, 0, 100) == ([], False)
    assert index.file_to_sync() is None and not storage.exists(PATH)


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        (0, 100, ([FIRST, SECOND, THIRD], False)),
        (0, 41, ([FIRST, SECOND, THIRD], True)),
        (21, 41, ([SECOND, THIRD], True)),
        (31, 41, ([THIRD], True)),
        (41, 100, ([], False)),
        (0, 12, ([FIRST, THIRD], True)),
        (0, 5, ([], True)),
    ],
)
def test_transactions_that_touch_a_range(
    index: TransactionIndex, start: int, end: int, expected: tuple[list[AbortedTransaction], bool]
) -> None:
    assert collected(index, start, end) == expected


def test_many_entries_are_read_piece_by_piece() -> None:
    index = TransactionIndex(FileCache(MemoryStorage()), PATH)
    transactions = [AbortedTransaction(1, n * 10, n * 10 + 5, n * 10 + 6) for n in range(300)]
    for transaction in transactions:
        index.append(transaction)
    assert collected(index, 100, 2000) == (transactions[10:200], True)


def test_what_was_aborted_during_a_long_transaction_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    storage = MemoryStorage()
    index = TransactionIndex(FileCache(storage), PATH)
    # A transaction is open from offset 0 on, so none of these says that no other one begins below it.
    for number in range(1, 10_001):
        index.append(AbortedTransaction(1, 10 * number, 10 * number + 1, 0))
    first, long = AbortedTransaction(1, 10, 11, 0), AbortedTransaction(2, 0, 100_002, 100_003)
    index.append(long)
    again = TransactionIndex(FileCache(storage), PATH, size_bytes=storage.size(PATH))
    again.sanity_check(0)
    read: list[int] = []
    rows = TransactionIndex._rows
    monkeypatch.setattr(
        TransactionIndex, "_rows", lambda self, slot, count: read.append(count) or rows(self, slot, count)
    )
    for each in (index, again):
        assert collected(each, 0, 11) == ([first, long], True)
    assert sum(read) < 500


def test_the_range_ends_where_the_transactions_get_too_many() -> None:
    index = TransactionIndex(FileCache(MemoryStorage()), PATH)
    transactions = [AbortedTransaction(1, n * 10, n * 10 + 5, n * 10 + 6) for n in range(300)]
    for transaction in transactions:
        index.append(transaction)
    found = AbortedInRange(100, 2000, 3)
    assert index.collect(found)
    assert (found.end_offset, found.transactions) == (130, transactions[10:13])


def test_what_reaches_below_the_range_is_never_left_out(index: TransactionIndex) -> None:
    found = AbortedInRange(17, 100, 1)
    index.append(AbortedTransaction(4, 50, 60, 61))
    assert index.collect(found)
    assert (found.end_offset, found.transactions) == (50, [FIRST, SECOND, THIRD])


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(20))
def test_ranges_of_random_transactions(seed: int) -> None:
    random = Random(seed)
    storage = MemoryStorage()
    index = TransactionIndex(FileCache(storage), PATH)
    known: list[AbortedTransaction] = []
    producers: dict[int, int] = {}
    for offset in range(2_000):
        if (first := producers.pop(producer := random.randrange(30), None)) is None:
            producers[producer] = offset
            continue
        known.append(AbortedTransaction(producer, first, offset, min(producers.values(), default=offset + 1)))
        index.append(known[-1])
        if random.random() < 0.01:
            count = random.randrange(len(known) + 1)
            index.cut(count)
            known = known[:count]
            index.save()
        if random.random() < 0.01:
            index = TransactionIndex(FileCache(storage), PATH, size_bytes=storage.size(PATH))
        start = random.randrange(offset + 1)
        found = AbortedInRange(start, random.randint(start, offset + 1), random.choice([0, 1, 5, 1_000_000]))
        index.collect(found)
        assert found.transactions == [
            each for each in known if each.last_offset >= start and each.first_offset < found.end_offset
        ]


def test_cutting_drops_transactions_whose_marker_goes(index: TransactionIndex) -> None:
    index.cut(index.cut_at(31))
    assert index.all() == [FIRST, SECOND]
    index.append(THIRD)
    index.cut(index.cut_at(20))
    assert index.all() == []


def test_an_index_of_another_segment_is_corrupt(index: TransactionIndex) -> None:
    index.sanity_check(20)
    with pytest.raises(CorruptIndex):
        index.sanity_check(21)


def test_an_entry_that_cannot_be_written_is_found_all_the_same_and_written_later() -> None:
    storage = MemoryStorage()
    index = TransactionIndex(FileCache(storage), PATH)
    index.append(FIRST)
    storage.space_left = 50  # one entry and a half
    index.append(SECOND)
    index.append(THIRD)
    assert collected(index, 0, 100) == ([FIRST, SECOND, THIRD], False)
    assert collected(index, 31, 100) == ([THIRD], False)
    with pytest.raises(OSError):
        index.file_to_sync()
    storage.space_left = None
    assert index.file_to_sync() is not None
    assert TransactionIndex(FileCache(storage), PATH, size_bytes=storage.size(PATH)).all() == [FIRST, SECOND, THIRD]


def test_half_an_entry_is_written_over() -> None:
    files = FileCache(MemoryStorage())
    for transaction in (FIRST, SECOND, THIRD):
        TransactionIndex(files, PATH, size_bytes=files.storage.size(PATH) if files.storage.exists(PATH) else 0).append(
            transaction
        )
    files.storage.open(PATH).append(b"half")
    again = TransactionIndex(files, PATH, size_bytes=files.storage.size(PATH))
    fourth = AbortedTransaction(4, 50, 60, 61)
    again.append(fourth)
    assert again.all() == [FIRST, SECOND, THIRD, fourth]
    assert files.storage.size(PATH) == 4 * 34
