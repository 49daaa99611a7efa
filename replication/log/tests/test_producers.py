"""Idempotence and transactions in one partition: every row of the table in producers.py, and snapshots."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from ottla.replication.log.producers import (
    SEQUENCE_MAX,
    CorruptSnapshot,
    MarkerVersion,
    ProducerStateManager,
    decode_snapshot,
)
from ottla.replication.log.transaction_index import AbortedTransaction
from ottla.replication.log.verification import NOT_REQUIRED, VerificationGuard
from ottla.wire.control_batches import ControlType, EndTxnMarker
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.records import CONTROL_FLAG, TRANSACTIONAL_FLAG, BatchHeader

NOW_MS = 1_000_000
DAY_MS = 86_400_000


class Log:
    """Offsets for batches, and the producer state that goes with them."""

    def __init__(self) -> None:
        self.producers = ProducerStateManager()
        self.end = 0

    def batch(self, sequence: int, count: int = 1, *, pid: int = 1, epoch: int = 0, attributes: int = 0) -> BatchHeader:
        return BatchHeader(self.end, 49, 0, 2, 0, attributes, count - 1, NOW_MS, NOW_MS, pid, epoch, sequence, count)

    def send(self, *args: int, guard: VerificationGuard | None = NOT_REQUIRED, **options: Any) -> str:
        """What a client that sends this is told."""
        batch = self.batch(*args, **options)
        if self.producers.duplicate(batch) is not None:
            return "duplicate"
        entry = self.producers.in_order(batch)
        if entry is not None:
            entry.add(batch)
        else:
            try:
                update = self.producers.check(batch, is_client=True, guard=guard)
            except KafkaError as error:
                return error.code.name
            self.producers.apply(update)
        self.end = batch.next_offset
        return "appended"

    def end_transaction(
        self, kind: ControlType, *, pid: int = 1, epoch: int = 0, coordinator_epoch: int = 0, version: int = 0
    ) -> list[AbortedTransaction]:
        batch = self.batch(-1, pid=pid, epoch=epoch, attributes=TRANSACTIONAL_FLAG | CONTROL_FLAG)
        update = self.producers.check_marker(batch, EndTxnMarker(kind, coordinator_epoch), MarkerVersion(version))
        self.end = batch.next_offset
        return self.producers.apply(update)


def test_batches_in_order_are_appended() -> None:
    log = Log()
    assert [log.send(0, 3), log.send(3), log.send(4, 2), log.send(6)] == ["appended"] * 4


def test_a_batch_sent_again_is_a_duplicate_as_long_as_it_is_among_the_last_five() -> None:
    log = Log()
    for sequence in range(0, 12, 2):
        log.send(sequence, 2)
    assert [log.send(sequence, 2) for sequence in range(2, 12, 2)] == ["duplicate"] * 5
    assert log.send(0, 2) == "OUT_OF_ORDER_SEQUENCE_NUMBER"
    assert log.send(10, 1) == "OUT_OF_ORDER_SEQUENCE_NUMBER"  # not exactly the same batch
    known = log.producers.duplicate(log.batch(4, 2))
    assert known is not None and (known.first_offset, known.last_offset) == (4, 5)


def test_a_gap_is_refused() -> None:
    log = Log()
    log.send(0)
    assert log.send(2) == "OUT_OF_ORDER_SEQUENCE_NUMBER"
    assert log.send(1) == "appended"


def test_an_unknown_producer_may_begin_anywhere() -> None:
    assert Log().send(41) == "appended"


def test_sequences_wrap_to_zero() -> None:
    log = Log()
    assert log.send(SEQUENCE_MAX - 1, 2) == "appended"
    assert log.send(SEQUENCE_MAX - 1, 2) == "duplicate"
    assert log.send(0) == "appended"
    assert log.send(1, 3) == "appended"
    log = Log()
    log.send(SEQUENCE_MAX - 1, 4)
    assert log.send(SEQUENCE_MAX - 1, 4) == "duplicate"
    assert log.send(2) == "appended"


def test_a_higher_epoch_begins_at_zero() -> None:
    log = Log()
    log.send(0, 5)
    assert log.send(5, epoch=1) == "OUT_OF_ORDER_SEQUENCE_NUMBER"
    assert log.send(0, epoch=1) == "appended"
    assert log.send(1, epoch=1) == "appended"


def test_a_lower_epoch_is_fenced() -> None:
    log = Log()
    log.send(0, epoch=3)
    assert log.send(1, epoch=2) == "INVALID_PRODUCER_EPOCH"


def test_a_refused_batch_changes_nothing() -> None:
    log = Log()
    log.send(0)
    before = log.producers.encode_snapshot()
    log.send(9)
    log.send(7, epoch=4)
    assert log.producers.encode_snapshot() == before


def test_idle_producers_are_forgotten_but_not_within_a_transaction() -> None:
    log = Log()
    log.send(0, pid=1)
    log.send(0, pid=2, attributes=TRANSACTIONAL_FLAG)
    assert sum(log.producers.remove_expired(NOW_MS + DAY_MS - 1, DAY_MS)) == 0
    assert sum(log.producers.remove_expired(NOW_MS + DAY_MS, DAY_MS)) == 1
    assert list(log.producers.producers) == [2]


def test_the_first_unstable_offset_is_the_oldest_open_transaction() -> None:
    log = Log()
    producers = log.producers
    log.send(0, 10)
    assert producers.first_unstable_offset is None
    log.send(0, 2, pid=2, attributes=TRANSACTIONAL_FLAG)
    log.send(0, 2, pid=3, attributes=TRANSACTIONAL_FLAG)
    log.send(2, pid=2, attributes=TRANSACTIONAL_FLAG)
    assert producers.first_unstable_offset == 10
    log.end_transaction(ControlType.COMMIT, pid=2)
    assert producers.first_unstable_offset == 10  # the marker is not replicated yet
    producers.on_high_watermark(log.end - 1)
    assert producers.first_unstable_offset == 10
    producers.on_high_watermark(log.end)
    assert producers.first_unstable_offset == 12


@pytest.mark.parametrize("seed", range(20))
def test_the_first_unstable_offset_of_random_transactions(seed: int) -> None:
    random = Random(seed)
    log = Log()
    ongoing: dict[int, int] = {}
    unreplicated: dict[int, int] = {}
    for _ in range(300):
        pid = random.randrange(20)
        if pid not in ongoing:
            ongoing[pid] = log.end
            sequence = log.producers.producers[pid].last_sequence + 1 if pid in log.producers.producers else 0
            assert log.send(sequence, pid=pid, attributes=TRANSACTIONAL_FLAG) == "appended"
        else:
            unreplicated[first := ongoing.pop(pid)] = log.end
            stable = min(ongoing.values(), default=log.end + 1)
            assert log.end_transaction(ControlType.ABORT, pid=pid) == [(pid, first, log.end - 1, stable)]
        if random.random() < 0.2:
            high_watermark = random.randint(max(0, log.end - 20), log.end)
            log.producers.on_high_watermark(high_watermark)
            unreplicated = {first: last for first, last in unreplicated.items() if last >= high_watermark}
        if random.random() < 0.02:
            data = log.producers.encode_snapshot()
            log.producers.load(decode_snapshot(data, now_ms=NOW_MS, expiration_ms=DAY_MS), log.end)
            unreplicated.clear()
        assert log.producers.first_unstable_offset == min([*ongoing.values(), *unreplicated], default=None)


def test_many_open_transactions_cost_no_more_than_one(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at: list[int] = []

    class Counted(OrderedDict[int, int]):
        """Notes what is looked at."""

        def __iter__(self) -> Iterator[int]:
            for key in super().__iter__():
                looked_at.append(key)
                yield key

    log = Log()
    monkeypatch.setattr(log.producers, "ongoing", Counted())
    for pid in range(1_000):
        log.send(0, pid=pid, attributes=TRANSACTIONAL_FLAG)
    for pid in range(500, 600):
        log.end_transaction(ControlType.ABORT, pid=pid)
        assert log.producers.first_unstable_offset == 0
    assert len(looked_at) < 500


def test_aborted_transactions_are_told_with_the_stable_offset_they_leave() -> None:
    log = Log()
    log.send(0, 2, pid=2, attributes=TRANSACTIONAL_FLAG)
    log.send(0, 2, pid=3, attributes=TRANSACTIONAL_FLAG)
    assert log.end_transaction(ControlType.ABORT, pid=3) == [AbortedTransaction(3, 2, 4, 0)]
    assert log.end_transaction(ControlType.ABORT, pid=2) == [AbortedTransaction(2, 0, 5, 6)]
    log.send(2, pid=2, attributes=TRANSACTIONAL_FLAG)
    assert log.end_transaction(ControlType.COMMIT, pid=2) == []
    assert log.end_transaction(ControlType.ABORT, pid=2) == []  # a transaction without data leaves no trace


def test_writing_outside_an_open_transaction_is_refused() -> None:
    log = Log()
    log.send(0, attributes=TRANSACTIONAL_FLAG)
    assert log.send(1) == "INVALID_TXN_STATE"
    assert log.send(1, attributes=TRANSACTIONAL_FLAG) == "appended"
    log.end_transaction(ControlType.COMMIT)
    assert log.send(2) == "appended"


def test_a_marker_that_raises_the_epoch_resets_sequences() -> None:
    log = Log()
    log.send(0, attributes=TRANSACTIONAL_FLAG)
    log.end_transaction(ControlType.COMMIT, epoch=1, version=2)
    assert log.send(1, epoch=0) == "INVALID_PRODUCER_EPOCH"
    assert log.send(1, epoch=1) == "OUT_OF_ORDER_SEQUENCE_NUMBER"
    assert log.send(0, epoch=1) == "appended"


@pytest.mark.parametrize(
    ("version", "epoch", "is_open", "is_accepted"),
    [
        (0, 5, True, True),
        (0, 4, True, False),
        (2, 6, True, True),
        (2, 5, True, False),  # would end a transaction it does not belong to
        (2, 5, False, True),  # a retry of the marker that ended it
        (2, 4, False, False),
    ],
)
def test_which_markers_are_accepted(version: int, epoch: int, is_open: bool, is_accepted: bool) -> None:
    log = Log()
    log.send(0, epoch=5, attributes=TRANSACTIONAL_FLAG if is_open else 0)
    if is_accepted:
        log.end_transaction(ControlType.ABORT, epoch=epoch, version=version)
    else:
        with pytest.raises(KafkaError) as error:
            log.end_transaction(ControlType.ABORT, epoch=epoch, version=version)
        assert error.value.code == ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_former_coordinator_is_fenced() -> None:
    log = Log()
    log.end_transaction(ControlType.ABORT, coordinator_epoch=3)
    log.end_transaction(ControlType.ABORT, coordinator_epoch=3)
    with pytest.raises(KafkaError) as error:
        log.end_transaction(ControlType.ABORT, coordinator_epoch=2)
    assert error.value.code == ErrorCode.TRANSACTION_COORDINATOR_FENCED


def test_what_was_checked_before_is_noted_without_complaint() -> None:
    log = Log()
    producers = log.producers
    for sequence, epoch in ((0, 3), (7, 3), (1, 2)):
        producers.apply(producers.note(log.batch(sequence, epoch=epoch)))
    assert (producers.producers[1].epoch, producers.producers[1].last_sequence) == (2, 1)


def test_a_snapshot_has_the_bytes_kafka_writes() -> None:
    log = Log()
    log.send(5, 3, pid=9, epoch=2)
    data = log.producers.encode_snapshot()
    fields = "000000000000000900020000000700000000000000020000000200000000000f4240"
    assert data.hex() == "0001" + data[2:6].hex() + "00000001" + fields + "ffffffff" + "ff" * 8
    assert ProducerStateManager().encode_snapshot().hex() == "0001" + "48674bc7" + "00000000"


def test_a_snapshot_brings_back_the_last_batch_and_open_transactions() -> None:
    log = Log()
    for sequence in range(3):
        log.send(sequence)
    log.send(0, pid=2, attributes=TRANSACTIONAL_FLAG)
    log.end_transaction(ControlType.COMMIT, pid=3, epoch=4, coordinator_epoch=6)
    restarted = Log()
    restarted.end = log.end
    entries = decode_snapshot(log.producers.encode_snapshot(), now_ms=NOW_MS, expiration_ms=DAY_MS)
    restarted.producers.load(entries, log.end)
    assert restarted.producers.first_unstable_offset == 3
    assert restarted.producers.encode_snapshot() == log.producers.encode_snapshot()
    assert [restarted.send(2), restarted.send(1), restarted.send(3)] == [
        "duplicate", "OUT_OF_ORDER_SEQUENCE_NUMBER", "appended",
    ]  # fmt: skip
    assert restarted.producers.producers[3].coordinator_epoch == 6


def test_expired_producers_are_not_loaded() -> None:
    log = Log()
    log.send(0)
    log.send(0, pid=2, attributes=TRANSACTIONAL_FLAG)
    data = log.producers.encode_snapshot()
    entries = decode_snapshot(data, now_ms=NOW_MS + DAY_MS, expiration_ms=DAY_MS)
    assert [entry.producer_id for entry in entries] == [2]


def test_every_damaged_snapshot_is_noticed() -> None:
    log = Log()
    log.send(0)
    data = log.producers.encode_snapshot()
    damaged = [data[:length] for length in range(len(data))]
    damaged += [data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :] for at in range(len(data))]
    for each in (*damaged, data + b"\0"):
        with pytest.raises(CorruptSnapshot):
            decode_snapshot(each, now_ms=NOW_MS, expiration_ms=DAY_MS)
