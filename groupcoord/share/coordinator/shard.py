"""The state machine of one partition of `__share_group_state`, with the share partitions whose key falls to it. Sans-IO.

A share partition is unknown or known. The checks of each request, in this order; in all of them a negative number is
INVALID_REQUEST, and a partition that does not exist is, at the end, UNKNOWN_TOPIC_OR_PARTITION:

    request      unknown                          known
    Initialize   is known from now on             FENCED_STATE_EPOCH below its epoch; nothing happens if it is so already;
                                                  else it begins anew
    Write        INVALID_REQUEST                  FENCED_LEADER_EPOCH, FENCED_STATE_EPOCH below the highest ever seen; else
                                                  the start moves forward, never back, and the batches are merged in
    Read         INVALID_REQUEST                  FENCED_LEADER_EPOCH below the highest ever seen; else everything, and from
                                                  now on leaders of a lower epoch are fenced
    ReadSummary  start -1 and epochs 0            where it starts, and its epochs
    Delete       nothing happens                  is unknown from now on

It also becomes unknown when its topic is deleted. A write is recorded as an update with what has changed. When
share.coordinator.snapshot.update.records.per.snapshot of them have come, the next write is recorded as a
snapshot with the whole state. Share partitions that are written to rarely get one every
share.coordinator.cold.partition.snapshot.interval.ms, so that they do not keep old records from being cut off.

Invariants
* The state of a share partition is what its records, replayed in the order of the log, come to (`state.py`).
* A record is in force as soon as it is made, so that the next request finds it. If the log refuses it, the state before
  it comes back. Its answer waits for the commit, as do all that rest on it.
* Only small writes may be made while others are not committed yet. Their order among each other is that of the log.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import chain, islice
from typing import Any, Protocol

from ottla.groupcoord.config import ShareCoordinatorConfig
from ottla.groupcoord.runtime.answers import Caller, Reply
from ottla.groupcoord.runtime.coordinator_shard import Outcome, Settlement
from ottla.groupcoord.share.coordinator.records import (
    SharePartitionKey,
    ShareRecord,
    ShareUpdateValue,
    SnapshotRecord,
    UpdateRecord,
    tombstone,
)
from ottla.groupcoord.share.coordinator.state import (
    SharePartitionState,
    StateBatch,
    after_snapshot,
    after_update,
    initial_snapshot,
    merged,
    recorded_batches,
)
from ottla.groupcoord.share.coordinator.state_requests import (
    DeleteState,
    ForgetTopics,
    InitializeState,
    ReadState,
    ReadSummary,
    Request,
    WriteState,
)
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import share_group_state

BATCHES_KNOWN_MAX = 20_000
"""State batches of a share partition, with those of one write: each may name all of its records in flight, of which there
are 10,000 at most (group.share.max.partition.max.record.locks)."""
RECORDS_PER_CALL = 500
BATCHES_PER_CALL = 5_000
KEYS_PER_CALL = 2_000
"""Limits of one call, so that other requests do not wait long behind it; the rest is due at once."""
Problem = tuple[ErrorCode, str | None]
NEGATIVE = {"partition": "partition id", "leader_epoch": "leader epoch", "state_epoch": "state epoch"}


class RedundantPrefix:
    """Offset of each share partition's last snapshot. Records before the lowest of these offsets are redundant."""

    def __init__(self) -> None:
        # In the order of the log, as a snapshot moves its share partition to the end: the first one has the lowest offset.
        self._snapshots: OrderedDict[SharePartitionKey, int] = OrderedDict()
        self._last_end = 0

    def note_snapshot(self, key: SharePartitionKey, offset: int) -> None:
        self._snapshots[key] = offset
        self._snapshots.move_to_end(key)

    def note_end(self, key: SharePartitionKey, offset: int) -> None:
        """Remember that the log has a tombstone of the share partition at `offset`."""
        self._snapshots.pop(key, None)
        self._last_end = offset

    def end_offset(self) -> int | None:
        """Return the first offset to keep; None if no record is redundant."""
        first = next(iter(self._snapshots.values()), self._last_end)
        return first if first > 0 else None


class Topics(Protocol):
    """Interface to the existing topics."""

    @property
    def topic_by_id(self) -> Mapping[bytes, Any]: ...


class ShareCoordinatorShard:
    """Shard with the share partitions of one partition of `__share_group_state`."""

    def __init__(self, config: ShareCoordinatorConfig, topics: Topics) -> None:
        self._config = config
        self._topics = topics
        self._states: dict[SharePartitionKey, SharePartitionState] = {}
        self._keys_by_topic: dict[bytes, dict[SharePartitionKey, None]] = {}
        self._redundant = RedundantPrefix()
        self._replies: list[Reply] = []
        self._is_loaded = False
        self._cold_scan_at_ms: int | None = None
        self._cold_scan: list[SharePartitionKey] = []
        self._handlers: dict[type, Callable[..., Outcome[ShareRecord]]] = {
            InitializeState: self._initialize,
            ReadState: self._read,
            WriteState: self._write,
            DeleteState: self._delete,
            ReadSummary: self._read_summary,
            ForgetTopics: self._forget_topics,
        }

    # ------------------------------------------------------------------ the shell's calls

    def handle(self, request: Request, caller: Caller, *, now_ms: int, timestamp_ms: int) -> Outcome[ShareRecord]:
        """Handle a request. The caller gets the response in the returned outcome, or when the records are committed."""
        return self._handlers[type(request)](request, caller, timestamp_ms)

    def abandon(self, caller: Caller, *, now_ms: int, timestamp_ms: int) -> Outcome[ShareRecord]:
        """Do nothing: this shard parks no requests."""
        return Outcome([], [], [])

    def settle(
        self, settlements: Iterable[Settlement], error: ErrorCode, *, now_ms: int, timestamp_ms: int
    ) -> list[Reply]:
        """Call settlements, after their records were appended or were refused by the log with `error`."""
        # The last record is taken back first, because it may rest on those before it.
        for settlement in reversed(list(settlements)) if error else settlements:
            settlement(error)
        replies, self._replies = self._replies, []
        return replies

    def unfinished(self) -> None:
        """Return None: every call takes all its steps."""

    def next_deadline_ms(self) -> int | None:
        """Return the time of the next scan for share partitions with an old snapshot; None before the load ends."""
        return self._cold_scan_at_ms

    def stands_alone(self, now_ms: int) -> bool:
        """Return True if snapshots are due: all of the state that a snapshot contains must be in the log before it."""
        return self._cold_scan_at_ms is not None and self._cold_scan_at_ms <= now_ms

    def expire(self, *, now_ms: int, timestamp_ms: int) -> Outcome[ShareRecord]:
        """Write due snapshots of share partitions that are rarely written; a limited number in each call."""
        if not self.stands_alone(now_ms):
            return Outcome([], [], [])
        if not self._cold_scan:
            self._cold_scan = self._keys_to_scan()
        records = self._cold_snapshots(timestamp_ms)
        # The one millisecond lets requests pass between two parts of a scan.
        pause_ms = 1 if self._cold_scan else self._config.share_coordinator_cold_partition_snapshot_interval_ms
        self._cold_scan_at_ms = now_ms + pause_ms
        return self._made(records)

    def start_sessions(self, now_ms: int) -> Iterator[None]:
        """Do nothing: the share coordinator has no sessions."""
        return iter(())

    def replay(self, record: ShareRecord, record_offset: int = -1, producer_id: int = -1) -> None:
        """Apply a record, in log order. After the load only its offset is noted, because the state has it already."""
        # After the load a record is in force before it is in the log.
        if not self._is_loaded:
            self._put_in_force(record)
        # Later records lie behind all that were loaded, so one without an offset does not matter.
        if isinstance(record, SnapshotRecord) and record_offset >= 0:
            if record.value is None:
                self._redundant.note_end(record.key, record_offset)
            else:
                self._redundant.note_snapshot(record.key, record_offset)

    def replay_marker(self, producer_id: int, *, committed: bool) -> None:
        """Do nothing: no record of the share state topic belongs to a transaction."""

    def loaded(self, *, now_ms: int, timestamp_ms: int) -> Outcome[ShareRecord]:
        """Finish the load and schedule the first scan for old snapshots."""
        self._is_loaded = True
        self._cold_scan_at_ms = now_ms + self._config.share_coordinator_cold_partition_snapshot_interval_ms
        return Outcome([], [], [])

    def unload(self, error: ErrorCode) -> list[Reply]:
        """Answer nobody, as this shard parks no requests, and let go of the handlers: they would hold the shard for good."""
        self._handlers = {}
        return []

    def discard(self) -> Outcome[ShareRecord]:
        """Return an empty outcome: a failed call leaves nothing behind."""
        return Outcome([], [], [])

    # ------------------------------------------------------------------ reads, allowed at any time

    def redundant_end_offset(self) -> int | None:
        """Return the first offset to keep in the log; None if no record is redundant."""
        return self._redundant.end_offset()

    def states(self) -> dict[SharePartitionKey, SharePartitionState]:
        """Return the current states of all share partitions, as a copy."""
        return dict(self._states)

    # ------------------------------------------------------------------ records

    def _put_in_force(self, record: ShareRecord) -> None:
        before = self._states.get(record.key)
        if isinstance(record, UpdateRecord):
            self._set(record.key, after_update(before, record.value))
        elif record.value is None:
            self._set(record.key, None)
        else:
            limit = self._config.share_coordinator_snapshot_update_records_per_snapshot
            self._set(record.key, after_snapshot(before, record.value, limit))

    def _set(self, key: SharePartitionKey, state: SharePartitionState | None) -> None:
        if state is not None:
            if key not in self._states:
                self._keys_by_topic.setdefault(key.topic_id, {})[key] = None
            self._states[key] = state
        elif self._states.pop(key, None) is not None:
            keys = self._keys_by_topic[key.topic_id]
            del keys[key]
            if not keys:
                del self._keys_by_topic[key.topic_id]

    def _made(
        self, records: list[ShareRecord], caller: Caller | None = None, response: object = None, request: Any = None
    ) -> Outcome[ShareRecord]:
        """Apply and append records. The caller is answered when they are committed, or with the log's error."""
        if not records:
            return Outcome([], [Reply(caller, response)] if caller is not None else [], [])
        before = [(record.key, self._states.get(record.key)) for record in records]
        for record in records:
            self._put_in_force(record)

        def settle(error: ErrorCode) -> None:
            if error:
                self._restore(before)
            if caller is not None:
                self._replies.append(Reply(caller, request.refused(error) if error else response))

        return Outcome(records, [], [settle])

    def _restore(self, before: list[tuple[SharePartitionKey, SharePartitionState | None]]) -> None:
        for key, state in reversed(before):
            self._set(key, state)

    # ------------------------------------------------------------------ requests

    def _initialize(self, request: InitializeState, caller: Caller, timestamp_ms: int) -> Outcome[ShareRecord]:
        state = self._states.get(request.key)
        problem = _negative(partition=request.key.partition, state_epoch=request.state_epoch)
        if problem is None and state is not None and state.state_epoch > request.state_epoch:
            problem = ErrorCode.FENCED_STATE_EPOCH, None
        problem = problem or self._missing(request.key)
        if problem is not None:
            return _refused(request, caller, problem)
        response = share_group_state.StatePartitionResult(partition=request.key.partition, error_code=ErrorCode.NONE)
        if state is not None and (state.state_epoch, state.start_offset) == request[1:]:
            return self._made([], caller, response)
        value = initial_snapshot(
            state, state_epoch=request.state_epoch, start_offset=request.start_offset, timestamp_ms=timestamp_ms
        )
        return self._made([SnapshotRecord(request.key, value)], caller, response, request)

    def _write(self, request: WriteState, caller: Caller, timestamp_ms: int) -> Outcome[ShareRecord]:
        state, written = self._states.get(request.key), request.written
        problem = _negative(
            partition=written.partition, leader_epoch=written.leader_epoch, state_epoch=written.state_epoch
        )
        problem = problem or _fenced(state, written.leader_epoch, written.state_epoch) or self._missing(request.key)
        problem = problem or _impossible(state, written)
        if problem is not None:
            return _refused(request, caller, problem)
        assert state is not None  # else it is fenced
        record = self._record_of(request.key, state, written, timestamp_ms, leader_epoch=state.leader_epoch)
        response = share_group_state.StatePartitionResult(partition=written.partition, error_code=ErrorCode.NONE)
        return self._made([record], caller, response, request)

    def _read(self, request: ReadState, caller: Caller, timestamp_ms: int) -> Outcome[ShareRecord]:
        state = self._states.get(request.key)
        problem = _negative(partition=request.key.partition, leader_epoch=request.leader_epoch)
        problem = problem or _fenced(state, request.leader_epoch) or self._missing(request.key)
        if problem is not None:
            return _refused(request, caller, problem)
        assert state is not None
        response = share_group_state.ReadStatePartitionResult(
            partition=request.key.partition,
            error_code=ErrorCode.NONE,
            state_epoch=state.state_epoch,
            start_offset=state.start_offset,
            state_batches=_answered(state.state_batches),
        )
        if state.leader_epoch_max == request.leader_epoch:
            return self._made([], caller, response)
        unchanged = share_group_state.WriteStatePartition(
            partition=request.key.partition,
            state_epoch=state.state_epoch,
            leader_epoch=request.leader_epoch,
            start_offset=state.start_offset,
            delivery_complete_count=state.delivery_complete_count,
            state_batches=[],
        )
        record = self._record_of(request.key, state, unchanged, timestamp_ms, leader_epoch=request.leader_epoch)
        return self._made([record], caller, response, request)

    def _read_summary(self, request: ReadSummary, caller: Caller, timestamp_ms: int) -> Outcome[ShareRecord]:
        problem = _negative(partition=request.key.partition) or self._missing(request.key)
        if problem is not None:
            return _refused(request, caller, problem)
        state = self._states.get(request.key)
        response = share_group_state.ReadStateSummaryPartitionResult(
            partition=request.key.partition,
            error_code=ErrorCode.NONE,
            state_epoch=0 if state is None else state.state_epoch,
            leader_epoch=0 if state is None else state.leader_epoch,
            start_offset=-1 if state is None else state.start_offset,
            delivery_complete_count=-1 if state is None else state.delivery_complete_count,
        )
        return self._made([], caller, response)

    def _delete(self, request: DeleteState, caller: Caller, timestamp_ms: int) -> Outcome[ShareRecord]:
        problem = _negative(partition=request.key.partition) or self._missing(request.key)
        if problem is not None:
            return _refused(request, caller, problem)
        # Only a known share partition gets a tombstone. Otherwise requests could make the log grow at will.
        records: list[ShareRecord] = [tombstone(request.key)] if request.key in self._states else []
        response = share_group_state.StatePartitionResult(partition=request.key.partition, error_code=ErrorCode.NONE)
        return self._made(records, caller, response, request)

    def _forget_topics(self, request: ForgetTopics, caller: Caller, timestamp_ms: int) -> Outcome[ShareRecord]:
        # Not all at once: the service repeats the request until none is left.
        known = chain.from_iterable(self._keys_by_topic.get(each, ()) for each in request.topic_ids)
        keys = list(islice(known, RECORDS_PER_CALL))
        return self._made([tombstone(key) for key in keys], caller, len(keys), request)

    # ------------------------------------------------------------------ their records

    def _record_of(
        self,
        key: SharePartitionKey,
        state: SharePartitionState,
        written: share_group_state.WriteStatePartition,
        timestamp_ms: int,
        *,
        leader_epoch: int,
    ) -> ShareRecord:
        """Return the record of a write: a snapshot if one is due, otherwise an update."""
        start_offset = max(written.start_offset, state.start_offset)
        count = _delivery_complete_count(state, written)
        written_batches = [
            StateBatch(each.first_offset, each.last_offset, each.delivery_state, each.delivery_count)
            for each in written.state_batches
        ]
        if state.update_count < self._config.share_coordinator_snapshot_update_records_per_snapshot:
            value = ShareUpdateValue(
                snapshot_epoch=state.snapshot_epoch,
                leader_epoch=leader_epoch,
                start_offset=start_offset,
                delivery_complete_count=count,
                state_batches=recorded_batches(merged((), written_batches, start_offset)),
            )
            return UpdateRecord(key, value)
        now = replace(
            state,
            snapshot_epoch=state.snapshot_epoch + 1,
            leader_epoch=leader_epoch,
            start_offset=start_offset,
            delivery_complete_count=count,
            state_batches=merged(state.state_batches, written_batches, start_offset),
            create_timestamp=timestamp_ms,
            write_timestamp=timestamp_ms,
        )
        return SnapshotRecord(key, now.snapshot())

    def _keys_to_scan(self) -> list[SharePartitionKey]:
        """Return the share partitions to scan for old snapshots.

        None if all have been idle since their last snapshots, because further snapshots would free no records.
        """
        if all(state.is_quiet for state in self._states.values()):
            return []
        return list(self._states)

    def _cold_snapshots(self, timestamp_ms: int) -> list[ShareRecord]:
        """Continue the scan and return the snapshots that are due. Deleted share partitions are skipped."""
        interval_ms = self._config.share_coordinator_cold_partition_snapshot_interval_ms
        records: list[ShareRecord] = []
        work = 0
        while self._cold_scan and work < KEYS_PER_CALL and len(records) < RECORDS_PER_CALL:
            key = self._cold_scan.pop()
            state = self._states.get(key)
            work += 1
            if state is None or timestamp_ms - state.write_timestamp < interval_ms:
                continue
            now = replace(state, snapshot_epoch=state.snapshot_epoch + 1, write_timestamp=timestamp_ms)
            records.append(SnapshotRecord(key, now.snapshot()))
            # A batch of the log has room for so many.
            work += len(state.state_batches) * KEYS_PER_CALL // BATCHES_PER_CALL
        return records

    # ------------------------------------------------------------------ checks

    def _missing(self, key: SharePartitionKey) -> Problem | None:
        topic = self._topics.topic_by_id.get(key.topic_id)
        if topic is None or len(topic.partitions) <= key.partition:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None
        return None


def _refused(request: Any, caller: Caller, problem: Problem) -> Outcome[ShareRecord]:
    return Outcome([], [Reply(caller, request.refused(*problem))], [])


def _negative(**numbers: int) -> Problem | None:
    for name, number in numbers.items():
        if number < 0:
            return ErrorCode.INVALID_REQUEST, f"The {NEGATIVE[name]} cannot be a negative number."
    return None


def _fenced(state: SharePartitionState | None, leader_epoch: int, state_epoch: int | None = None) -> Problem | None:
    """Return an error if a leader with these epochs may not access the state, else None. `state_epoch` None: a read."""
    if state is None:
        operation = "Read" if state_epoch is None else "Write"
        return ErrorCode.INVALID_REQUEST, f"{operation} operation on uninitialized share partition not allowed."
    if state.leader_epoch_max > leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH, None
    if state_epoch is not None and state.state_epoch > state_epoch:
        return ErrorCode.FENCED_STATE_EPOCH, None
    return None


def _impossible(state: SharePartitionState | None, written: share_group_state.WriteStatePartition) -> Problem | None:
    if any(batch.last_offset < batch.first_offset for batch in written.state_batches):
        return ErrorCode.INVALID_REQUEST, "A state batch ends before it begins."
    if state is not None and len(state.state_batches) + len(written.state_batches) > BATCHES_KNOWN_MAX:
        return ErrorCode.INVALID_REQUEST, f"More than {BATCHES_KNOWN_MAX} state batches."
    return None


def _delivery_complete_count(state: SharePartitionState, written: share_group_state.WriteStatePartition) -> int:
    """Return the delivery-complete count of the side with the higher start offset; if equal, the higher count."""
    if written.start_offset == state.start_offset:
        return max(written.delivery_complete_count, state.delivery_complete_count)
    return (
        written.delivery_complete_count if written.start_offset > state.start_offset else state.delivery_complete_count
    )


def _answered(batches: Iterable[StateBatch]) -> list[share_group_state.StateBatch]:
    return [
        share_group_state.StateBatch(first_offset=first, last_offset=last, delivery_state=state, delivery_count=count)
        for first, last, state, count in batches
    ]
