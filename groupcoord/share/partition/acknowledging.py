"""Acknowledgements of members: each begins a change of its records' states.

| type    | the records are                                                                          |
|---------|------------------------------------------------------------------------------------------|
| gap     | ARCHIVED: there is no such record, compaction or a transaction's marker was there        |
| accept  | ACKNOWLEDGED                                                                             |
| release | AVAILABLE, or as with reject if they were delivered as often as is allowed               |
| reject  | ARCHIVED; ARCHIVING if the group has a dead-letter queue                                 |
| renew   | ACQUIRED for another lock duration; nothing is stored, and nothing takes it back         |

All of a request's acknowledgements for a partition count, or none: the first that is wrong takes the others back.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple

from ottla.groupcoord.share.partition.in_flight import FEW, Change, Run
from ottla.groupcoord.share.partition.in_flight import RecordState as State
from ottla.groupcoord.share.partition.state import ShareState
from ottla.wire.errors import ErrorCode, KafkaError

RUNS_MAX = 10_000
"""Limit of runs of a share partition: as many as the share coordinator takes in one write."""
RUNS_SPARE = 1_000
"""Runs beyond the limit for requests that make few of them, so that members can still acknowledge most records."""

GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
_STATES = {GAP: State.ARCHIVED, ACCEPT: State.ACKNOWLEDGED, RELEASE: State.AVAILABLE, REJECT: State.ARCHIVED}


class Part(NamedTuple):
    """Range of neighbouring records with one type of acknowledgement."""

    first: int
    last: int
    kind: int


class AcknowledgementBatch(NamedTuple):
    """Acknowledgement of a range of records. `types` has one type for all records, or one for each."""

    first_offset: int
    last_offset: int
    types: Sequence[int]


def begin(
    partition: ShareState, change: Change, member_id: str, acknowledgements: Sequence[AcknowledgementBatch], now_ms: int
) -> None:
    """Begin to acknowledge records, and collect their new states in `change`.

    After a KafkaError some states have changed: the caller must roll back `change`.
    """
    if len(acknowledgements) > RUNS_MAX:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "These are more acknowledgements than records can be in flight.")
    acknowledging = _Acknowledging(partition, change, member_id, now_ms)
    for acknowledgement in acknowledgements:
        if acknowledgement.last_offset < partition.start_offset:
            _check_types(acknowledgement)
            continue
        _check_known(partition, acknowledgement)
        _check_types(acknowledgement)
        _acknowledge(partition, acknowledging, _parts(acknowledgement))


def _check_types(acknowledgement: AcknowledgementBatch) -> None:
    if not (_STATES.keys() | {RENEW}).issuperset(acknowledgement.types):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "There is no such type of acknowledgement.")


def _parts(acknowledgement: AcknowledgementBatch) -> list[Part]:
    """Split an acknowledgement into ranges of records with the same type."""
    first, last, types = acknowledgement
    if len(types) == 1:
        return [Part(first, last, types[0])]
    parts = []
    for kind, equal in groupby(types):
        count = sum(1 for _ in equal)
        parts.append(Part(first, first + count - 1, kind))
        first += count
    return parts


def _check_known(partition: ShareState, acknowledgement: AcknowledgementBatch) -> None:
    """Raise KafkaError for records that are not in flight, unless they were."""
    first, last, _ = acknowledgement
    in_flight, start = partition.in_flight, partition.start_offset
    index = in_flight.floor_index(first)
    # The batch of the first records may be done and gone; the others count all the same.
    if index < 0 and first < start <= last:
        index = in_flight.floor_index(start)
    if index < 0:
        raise KafkaError(
            ErrorCode.INVALID_RECORD_STATE,
            "Batch record not found. The request batch offsets are not found in the cache.",
        )
    last_batch = in_flight.batches[max(index, in_flight.floor_index(last))]
    if last_batch.last < first:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, "Batch record not found. The first offset in request is past acquired records."
        )
    if last_batch.last < last:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, "Batch record not found. The last offset in request is past acquired records."
        )


def _acknowledge(partition: ShareState, acknowledging: _Acknowledging, parts: Sequence[Part]) -> None:
    # Records before the start offset are done.
    start, end = max(parts[0].first, partition.start_offset), parts[-1].last
    batches = partition.in_flight.touching(start, end)
    # The usual case: whole batches, and all alike.
    if len(parts) == 1 and batches and batches[0].first >= start and batches[-1].last <= end:
        for batch in batches:
            is_whole = batch.is_whole
            for run in batch.runs:
                acknowledging.acknowledge(run, parts[0].kind, is_whole=is_whole)
        return
    cuts = [start, *(part.first for part in parts[1:] if part.first > start), end + 1]
    index = 0
    for batch in batches:
        is_whole = batch.is_whole
        if is_whole:  # a member that does not hold it cannot cut it
            _check_holder(batch.runs[0], acknowledging.member_id, is_whole=True)
        cuts_inside = cuts[bisect_right(cuts, batch.first) : bisect_right(cuts, batch.last)]
        acknowledging.check_room(min(len(cuts_inside), len(batch) - len(batch.runs)))
        batch.cut(cuts_inside)
        for run in batch.touching(start, end):
            while parts[index].last < run.first:
                index += 1
            acknowledging.acknowledge(run, parts[index].kind, is_whole=is_whole)


class _Acknowledging:
    """Acknowledgements that one member has sent in one request."""

    __slots__ = ("_change", "_limit", "_may_renew", "_more_runs", "_now_ms", "_partition", "_run_count", "member_id")

    def __init__(self, partition: ShareState, change: Change, member_id: str, now_ms: int) -> None:
        settings = partition.settings
        self._partition = partition
        self._change = change
        self.member_id = member_id
        self._now_ms = now_ms
        self._limit = settings.delivery_count_limit
        self._may_renew = settings.may_renew
        self._more_runs = 0  # that this request has made, at most
        self._run_count = 0  # before it, if it makes any

    def check_room(self, more: int) -> None:
        """Raise KafkaError if `more` further runs of records would be too many for the partition."""
        if not more:
            return
        if not self._more_runs:
            self._run_count = self._partition.in_flight.run_count()
        self._more_runs += more
        runs_max = RUNS_MAX if self._more_runs > FEW else RUNS_MAX + RUNS_SPARE
        if self._run_count + self._more_runs > runs_max:
            text = "This share partition would have to keep too many different states."
            raise KafkaError(ErrorCode.INVALID_REQUEST, text)

    def acknowledge(self, run: Run, kind: int, *, is_whole: bool) -> None:
        """Begin the acknowledgement of a run of records with type `kind`. Type RENEW only extends the lock."""
        _check_holder(run, self.member_id, is_whole=is_whole)
        if kind != RENEW:
            is_rejected = kind == REJECT
            run.begin(
                self._change, self._partition.state_after(run, _STATES[kind], is_rejected=is_rejected), self._limit
            )
            self._change.note(run, is_rejected=is_rejected)
        elif self._may_renew:
            self._partition.lock(run, self._now_ms)
        else:
            raise KafkaError(ErrorCode.INVALID_RECORD_STATE, "Renewing acquisition locks is not enabled for the group.")


def _check_holder(run: Run, member_id: str, *, is_whole: bool) -> None:
    """Raise KafkaError unless the member has acquired the run of records.

    The text of the error depends on `is_whole`: whether the run is a complete batch.
    """
    if run.state is State.ACQUIRED and run.member_id == member_id:
        return
    if run.state is State.ACQUIRED:
        text = "Member is not the owner of " + ("batch record" if is_whole else "offset")
    elif is_whole:
        text = "The batch cannot be acknowledged. The batch is not in the acquired state."
    else:
        text = "The offset cannot be acknowledged. The offset is not acquired."
    raise KafkaError(ErrorCode.INVALID_RECORD_STATE, text)
