"""The end of a transaction in a partition of the offsets topic: in order with commits, and answered when it is committed."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import trio
import trio.testing

from ottla.groupcoord.runtime.answers import finished
from ottla.groupcoord.runtime.coordinator_shard import TransactionEnd
from ottla.groupcoord.shard import Shard
from ottla.groupcoord.tests.conversation import offset_record
from ottla.groupcoord.tests.fakes import FORMATS, Coordination
from ottla.groupcoord.tests.runtime.test_runtime import committed, error_of, offset_of
from ottla.wire.control_batches import ControlType, decode_end_txn_marker
from ottla.wire.errors import ErrorCode
from ottla.wire.record_decoding import decode_records
from ottla.wire.record_encoding import encode_batch
from ottla.wire.records import Record, iter_batches

COMMIT = TransactionEnd(9, 4, 7, committed=True, transaction_version=2)
ABORT = COMMIT._replace(committed=False)


def pending_offset(offset: int, producer_id: int = 9) -> bytes:
    """A batch of the log that commits an offset within a transaction."""
    records = [Record(0, 1, *FORMATS.encode_record(offset_record(offset)))]
    return encode_batch(records, producer_id=producer_id, producer_epoch=4, is_transactional=True)


def end(talk: Coordination, how: TransactionEnd = COMMIT, group: str = "group") -> Any:
    return talk.groups.end_transaction(talk.groups.partition_for(group), how)


async def started(nursery: trio.Nursery, *, pending: int | None = None) -> Coordination:
    talk = Coordination()
    if pending is not None:
        talk.log.append(talk.groups.partition_for("group"), pending_offset(pending))
    await talk.start(nursery)
    return talk


@pytest.mark.parametrize(("how", "offset"), [(COMMIT, 5), (ABORT, -1)])
async def test_pending_offsets_count_from_the_marker_on(
    autojump_clock: trio.abc.Clock, nursery: trio.Nursery, how: TransactionEnd, offset: int
) -> None:
    talk = await started(nursery, pending=5)
    before = await finished(committed(talk, require_stable=True))
    assert before.topics[0].partitions[0].error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT
    assert end(talk, how) is ErrorCode.NONE
    assert offset_of(await finished(committed(talk, require_stable=True))) == offset
    again = talk.new_coordinator()
    await nursery.start(again.run)
    again.on_election(again.partition_for("group"))
    await trio.testing.wait_all_tasks_blocked()
    talk.groups = again
    assert offset_of(committed(talk)) == offset


async def test_the_marker_in_the_log_names_producer_and_coordinator(
    autojump_clock: trio.abc.Clock, nursery: trio.Nursery
) -> None:
    talk = await started(nursery)
    end(talk, ABORT)
    [batch] = talk.log.batches[talk.groups.partition_for("group")]
    [(header, start, _)] = iter_batches(batch)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 4, -1)
    assert header.is_control and header.is_transactional
    [record] = decode_records(batch, start)
    assert decode_end_txn_marker(record) == (ControlType.ABORT, 7)
    assert talk.log.transaction_versions == [2]


async def test_a_marker_counts_when_it_is_committed(autojump_clock: trio.abc.Clock, nursery: trio.Nursery) -> None:
    talk = await started(nursery, pending=5)
    talk.log.commit_seconds = 2
    answer = end(talk)
    assert offset_of(committed(talk)) == -1
    assert await finished(answer) is ErrorCode.NONE
    assert trio.current_time() == pytest.approx(2, abs=0.01)
    assert offset_of(committed(talk)) == 5


async def test_a_marker_stands_behind_the_commits_before_it(
    autojump_clock: trio.abc.Clock, nursery: trio.Nursery
) -> None:
    talk = await started(nursery, pending=5)
    talk.log.commit_seconds = 2
    talk.commit(3)
    gathered = talk.commit(4)  # shares an append with others, which is not written yet
    answer = end(talk)
    assert await finished(answer) is ErrorCode.NONE
    assert gathered.is_ready
    # All plain commits are behind the transaction's own offset in the log, so they win.
    assert offset_of(committed(talk)) == 4
    headers = [
        header for data in talk.log.batches[talk.groups.partition_for("group")] for header, _, _ in iter_batches(data)
    ]
    assert [header.is_control for header in headers] == [False, False, False, True]


async def test_commits_are_handled_while_a_marker_is_on_its_way(
    autojump_clock: trio.abc.Clock, nursery: trio.Nursery
) -> None:
    talk = await started(nursery, pending=5)
    talk.log.commit_seconds = 2
    end(talk)
    second = end(talk, ABORT)
    await finished(second)
    assert trio.current_time() == pytest.approx(2, abs=0.01)


async def test_a_refused_marker_is_told_as_the_log_says(autojump_clock: trio.abc.Clock, nursery: trio.Nursery) -> None:
    talk = await started(nursery, pending=5)
    for refusal in (
        ErrorCode.TRANSACTION_COORDINATOR_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.NOT_ENOUGH_REPLICAS,
    ):
        talk.log.refusal = refusal
        assert end(talk) is refusal
    talk.log.refusal = None
    assert offset_of(committed(talk)) == -1
    assert end(talk) is ErrorCode.NONE


async def test_a_marker_in_line_comes_in_its_turn(autojump_clock: trio.abc.Clock, nursery: trio.Nursery) -> None:
    talk = await started(nursery, pending=5)
    talk.log.commit_seconds = 2
    talk.commit(3, group="group")
    stable = committed(talk, require_stable=True)  # forms a line until the commit has landed
    answer = end(talk)
    assert (await finished(stable)).topics[0].partitions[0].error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT
    assert await finished(answer) is ErrorCode.NONE
    assert trio.current_time() == pytest.approx(4, abs=0.01)


async def test_a_partition_that_is_not_coordinated_here_takes_no_marker(
    autojump_clock: trio.abc.Clock, nursery: trio.Nursery
) -> None:
    talk = Coordination()
    assert end(talk) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    talk.log.load_seconds = 1
    await talk.start(nursery)
    assert end(talk) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    await trio.sleep(5)
    talk.log.commit_seconds = 2
    answer = end(talk)
    talk.groups.on_resignation(talk.groups.partition_for("group"))
    assert await finished(answer) is ErrorCode.NOT_COORDINATOR
    assert end(talk) is ErrorCode.NOT_COORDINATOR


async def test_a_bug_in_the_shard_costs_no_more_than_a_reload(
    autojump_clock: trio.abc.Clock,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    nursery: trio.Nursery,
) -> None:
    talk = await started(nursery, pending=5)
    with monkeypatch.context() as patch, caplog.at_level(logging.CRITICAL, "ottla.groupcoord"):
        patch.setattr(Shard, "replay_marker", lambda *arguments, **options: 1 / 0)
        assert end(talk) is ErrorCode.UNKNOWN_SERVER_ERROR
    await trio.testing.wait_all_tasks_blocked()
    assert offset_of(committed(talk)) == 5  # the log has the marker
    assert error_of(talk.commit(6)) is ErrorCode.NONE
