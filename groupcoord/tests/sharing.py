"""A share partition with a log, a clock and a share coordinator in memory, for tests."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from ottla.groupcoord.share.coordinator.records import SharePartitionKey
from ottla.groupcoord.share.partition.acknowledging import AcknowledgementBatch
from ottla.groupcoord.share.partition.acquiring import AbortedTransaction, AcquireRequest, FetchedBatch
from ottla.groupcoord.share.partition.in_flight import NO_MEMBER, Change, RecordState, StateBatch
from ottla.groupcoord.share.partition.share_partition import SharePartition, StateWrite
from ottla.groupcoord.share.partition.state import ShareGroupSettings
from ottla.wire.errors import ErrorCode

KEY = SharePartitionKey("group", b"t" * 16, 0)
MANY = 1_000_000
Span = tuple[int, int, int]


class Stored:
    """A share coordinator's state of one share partition: of two states of a record the later one counts."""

    def __init__(self) -> None:
        self.start_offset = -1
        self.done_count = 0
        self.records: dict[int, tuple[int, RecordState]] = {}

    def write(self, write: StateWrite) -> None:
        self.start_offset, self.done_count = write.start_offset, write.delivery_complete_count
        for first, last, state, delivery_count in write.batches:
            for offset in range(first, last + 1):
                known = self.records.get(offset, (-1, RecordState.AVAILABLE))
                self.records[offset] = max(known, (delivery_count, state))
        self.records = {offset: each for offset, each in self.records.items() if offset >= self.start_offset}

    def batches(self) -> list[StateBatch]:
        found: list[StateBatch] = []
        for offset in sorted(self.records):
            delivery_count, state = self.records[offset]
            before = found[-1] if found else None
            if before and before.last_offset + 1 == offset and before[2:] == (state, delivery_count):
                found[-1] = before._replace(last_offset=offset)
            else:
                found.append(StateBatch(offset, offset, state, delivery_count))
        return found


class Sharing:
    """One share partition and what surrounds it. Writes are stored at once, unless `is_slow`."""

    def __init__(self, *, start_offset: int = 0, **settings: Any) -> None:
        self.settings = replace(ShareGroupSettings(), **settings)
        self.log: list[FetchedBatch] = []
        self.log_start = self.end = start_offset
        self.now_ms = 1_000_000
        self.stored = Stored()
        self.is_slow = False
        self.on_its_way: StateWrite | None = None
        self.lead(start_offset)

    def lead(self, start_offset: int = 0) -> None:
        """A new leader loads what is stored."""
        self.on_its_way = None
        self.partition = SharePartition(KEY, 0, lambda group_id: self.settings)
        start = self.stored.start_offset
        self.partition.load(1, start_offset if start < 0 else start, self.stored.batches())

    def produce(self, *counts: int, **batch: Any) -> None:
        """Batches of so many records."""
        for count in counts:
            self.log.append(FetchedBatch(self.end, self.end + count - 1, **batch))
            self.end += count

    def fetch(
        self,
        member: str = "a",
        *,
        records_max: int = MANY,
        batch_size: int = MANY,
        is_record_limit: bool = False,
        batches: int = 1000,
        aborted: Iterable[tuple[int, int]] = (),
    ) -> list[Span]:
        """Read so many batches of the log and acquire."""
        if not self.partition.can_acquire():
            return []
        offset = self.partition.next_fetch_offset()
        if offset < self.log_start:
            self.partition.on_log_start(self.log_start)
            offset = self.partition.next_fetch_offset()
        found = [batch for batch in self.log if batch.last_offset >= offset][:batches]
        wish = AcquireRequest(member, records_max, batch_size, is_record_limit)
        transactions = [AbortedTransaction(*each) for each in aborted]
        return [tuple(each) for each in self.partition.acquire(wish, offset, found, self.now_ms, transactions)]

    def say(self, member: str, *parts: tuple[int, int, int | list[int]]) -> Change:
        """Acknowledge: first offset, last offset, and a type or types."""
        batches = [
            AcknowledgementBatch(first, last, [kinds] if isinstance(kinds, int) else kinds)
            for first, last, kinds in parts
        ]
        change = self.partition.acknowledge(member, batches, self.now_ms)
        self.store()
        return change

    def release(self, member: str) -> Change:
        change = self.partition.release(member)
        self.store()
        return change

    def pass_ms(self, ms: int) -> None:
        self.now_ms += ms
        deadline_ms = self.partition.next_deadline_ms()
        if deadline_ms is not None and deadline_ms <= self.now_ms:
            self.partition.expire(self.now_ms)
            self.store()

    def store(self) -> None:
        if not self.is_slow:
            while self.answer():
                pass

    def answer(self, error: ErrorCode = ErrorCode.NONE) -> bool:
        """Let the share coordinator answer one write; False if there is none."""
        write = self.on_its_way or self.partition.take_write()
        self.on_its_way = None
        if write is None:
            return False
        if error is ErrorCode.NONE:
            self.stored.write(write)
        self.partition.settle(write, error, self.now_ms)
        return True

    def send(self) -> None:
        """The next write is on its way, if there is one."""
        self.on_its_way = self.on_its_way or self.partition.take_write()

    def states(self) -> str:
        """The records in flight, a letter each: . free, a-z held by, A acknowledged, X archived, D archiving; ! changing."""
        letters = {RecordState.AVAILABLE: ".", RecordState.ACKNOWLEDGED: "A", RecordState.ARCHIVED: "X"}
        text = ""
        for batch in self.partition.in_flight.batches:
            text += "|"
            for run in batch.runs:
                letter = run.member_id if run.member_id != NO_MEMBER else letters.get(run.state, "D")
                text += (letter + ("!" if run.change else "")) * (run.last - run.first + 1)
        return text


def check(partition: SharePartition) -> None:
    """The invariants of the theories."""
    before = -1
    for batch in partition.in_flight.batches:
        assert before < batch.first, partition.in_flight.batches
        before = batch.last
        at = batch.first
        for run in batch.runs:
            assert run.first == at <= run.last, batch
            at = run.last + 1
            held = run.state is RecordState.ACQUIRED
            assert held == (run.member_id != NO_MEMBER), run
            assert not held or run.locked_until_ms is not None, run
            assert held or run.change is not None or run.locked_until_ms is None, run
            if held:
                assert partition.next_deadline_ms() is not None
                assert partition.next_deadline_ms() <= run.locked_until_ms, run
        assert at == batch.last + 1, batch
    if partition.in_flight:
        assert partition.end_offset >= before
    assert partition.start_offset <= partition.end_offset + 1
