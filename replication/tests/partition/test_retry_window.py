"""Producers that are refused for a moment, told as conversations."""

from __future__ import annotations

import pytest

from ottla.replication.log.producers import SEQUENCE_MAX
from ottla.replication.log.tests.logs import NOW_MS, idempotent, new_log
from ottla.replication.partition import retry_window
from ottla.replication.partition.retry_window import PATIENCE_S, RUN_MAX, RetryWindow
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.records import BatchHeader, unpack_header

PLACE = ("t", bytes(16), 0)
OTHER_PLACE = ("t", bytes(16), 1)
TOO_FEW = ErrorCode.NOT_ENOUGH_REPLICAS
DISK = ErrorCode.KAFKA_STORAGE_ERROR
MOVED = ErrorCode.NOT_LEADER_OR_FOLLOWER
GAP = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
FINE = ErrorCode.NONE


class Leader:
    """A log, and the memory of refused batches in front of it, as in the produce handler."""

    def __init__(self) -> None:
        self.log = new_log()
        self.refused = RetryWindow()
        self.trouble = FINE
        self.leader_epoch = 0
        self.epoch_start = 0
        self.now_s = 100.0

    def begins_epoch(self) -> None:
        """Another broker leads from here on, or this one once more, with all that was written before."""
        self.leader_epoch += 1
        self.epoch_start = self.log.log_end_offset
        self.refused = RetryWindow()

    def hears(self, sequence: int, *, epoch: int = 0, producer_id: int = 7, count: int = 1) -> ErrorCode:
        records = idempotent(sequence, count, epoch=epoch, producer_id=producer_id)
        header = BatchHeader._make(unpack_header(records))
        code = self.refused.missing(PLACE, header, self.log.producers.get(producer_id)) or self.trouble
        if code is FINE:
            try:
                self.log.append_as_leader(records, leader_epoch=self.leader_epoch, now_ms=NOW_MS)
            except KafkaError as error:
                code = error.code
                if code is GAP and self.waits_for_what_is_missing(header):
                    code = MOVED
        if code.retriable:
            self.refused.note(PLACE, header, code)
        return code

    def waits_for_what_is_missing(self, header: BatchHeader) -> bool:
        entry = self.log.producers.get(header.producer_id)
        return self.refused.may_come_yet(PLACE, header, entry, self.leader_epoch, self.epoch_start, self.now_s)

    def refuses(self, code: ErrorCode, *sequences: int) -> None:
        self.trouble = code
        assert [self.hears(sequence) for sequence in sequences] == [code] * len(sequences)
        self.trouble = FINE

    @property
    def remembers(self) -> bool:
        assert self.refused.count == sum(map(len, self.refused.by_producer.values()))
        return bool(self.refused.by_producer)


@pytest.fixture
def leader() -> Leader:
    return Leader()


def test_batches_behind_a_refused_one_get_its_error_until_it_comes_again(leader: Leader) -> None:
    assert leader.hears(0) is FINE
    leader.refuses(TOO_FEW, 1)
    assert [leader.hears(sequence) for sequence in (2, 3)] == [TOO_FEW, TOO_FEW]
    assert [leader.hears(sequence) for sequence in (1, 2, 3, 4)] == [FINE] * 4
    assert not leader.remembers


def test_the_first_error_is_told_even_if_others_have_come(leader: Leader) -> None:
    leader.refuses(DISK, 0)
    leader.trouble = TOO_FEW
    assert [leader.hears(sequence) for sequence in (1, 2)] == [DISK, DISK]


def test_a_producer_that_the_log_does_not_know_begins_with_what_was_refused(leader: Leader) -> None:
    leader.refuses(TOO_FEW, 0)
    assert leader.hears(1) is TOO_FEW
    assert [leader.hears(sequence) for sequence in (0, 1)] == [FINE, FINE]


def test_refused_again_it_holds_up_the_others_again(leader: Leader) -> None:
    leader.refuses(TOO_FEW, 0, 1, 2)
    leader.refuses(DISK, 0)
    assert [leader.hears(sequence) for sequence in (1, 2)] == [DISK, DISK]
    assert [leader.hears(sequence) for sequence in (0, 1, 2)] == [FINE] * 3


def test_a_gap_that_was_never_refused_is_a_gap(leader: Leader) -> None:
    assert [leader.hears(sequence) for sequence in (0, 2)] == [FINE, GAP]
    leader.refuses(TOO_FEW, 3)
    assert leader.hears(4) is TOO_FEW
    assert leader.hears(3) is GAP, "it has come again, and what is missing before it nobody refused"
    assert leader.hears(4) is GAP


def test_a_producer_that_gives_up_a_refused_batch_leaves_a_gap(leader: Leader) -> None:
    assert leader.hears(0) is FINE
    leader.refuses(TOO_FEW, 1)
    assert leader.hears(2) is TOO_FEW
    assert leader.hears(2) is GAP, "a producer sends again in order"
    assert leader.hears(3) is GAP


def test_what_is_left_on_an_old_connection_changes_nothing(leader: Leader) -> None:
    leader.refuses(TOO_FEW, 0, 1)
    leader.refuses(TOO_FEW, 0)  # from here on the new connection, and between them what is left of the old one
    assert leader.hears(2) is TOO_FEW
    assert leader.hears(1) is TOO_FEW
    assert leader.hears(3) is TOO_FEW
    assert leader.hears(2) is TOO_FEW
    assert [leader.hears(sequence) for sequence in range(4)] == [FINE] * 4
    assert not leader.remembers


def test_a_batch_that_another_leader_has_taken_is_not_waited_for(leader: Leader) -> None:
    assert leader.hears(0) is FINE
    leader.refuses(TOO_FEW, 1, 2)
    leader.log.append_as_follower(idempotent(1, 2, base_offset=1), now_ms=NOW_MS)
    assert leader.hears(3) is FINE
    assert not leader.remembers


def test_a_batch_that_is_sent_twice_is_still_a_duplicate(leader: Leader) -> None:
    assert leader.hears(0) is FINE
    leader.refuses(TOO_FEW, 1)
    assert leader.hears(0) is FINE
    assert leader.log.log_end_offset == 1
    assert leader.hears(2) is TOO_FEW


def test_a_higher_epoch_begins_anew_and_a_lower_one_changes_nothing(leader: Leader) -> None:
    leader.refuses(TOO_FEW, 0)
    assert leader.hears(0, epoch=1) is FINE
    assert not leader.remembers
    leader.trouble = TOO_FEW
    assert leader.hears(1, epoch=1) is TOO_FEW
    assert leader.hears(5, epoch=0) is TOO_FEW
    leader.trouble = FINE
    assert leader.hears(5, epoch=0) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert leader.hears(2, epoch=1) is TOO_FEW


def test_producers_and_partitions_do_not_concern_each_other(leader: Leader) -> None:
    leader.refuses(TOO_FEW, 0)
    assert leader.hears(5, producer_id=8) is FINE
    header = BatchHeader._make(unpack_header(idempotent(5)))
    assert leader.refused.missing(OTHER_PLACE, header, None) is None
    assert leader.refused.missing(PLACE, header, None) is TOO_FEW


def test_sequences_that_begin_again_after_the_highest(leader: Leader) -> None:
    assert leader.hears(SEQUENCE_MAX - 1) is FINE
    leader.refuses(TOO_FEW, SEQUENCE_MAX)
    assert [leader.hears(sequence) for sequence in (0, 1)] == [TOO_FEW, TOO_FEW]
    assert [leader.hears(sequence) for sequence in (SEQUENCE_MAX, 0, 1)] == [FINE] * 3


def test_a_batch_that_is_refused_late_and_lost_has_to_come_again(leader: Leader) -> None:
    assert [leader.hears(sequence) for sequence in (0, 1)] == [FINE, FINE]
    leader.refuses(TOO_FEW, 2)
    for sequence in (0, 1):
        header = BatchHeader._make(unpack_header(idempotent(sequence)))
        leader.refused.note_late(PLACE, header, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert leader.hears(3) is TOO_FEW, "the log has what was refused late"
    leader.log.truncate_to(0, now_ms=NOW_MS)
    assert leader.hears(4) is TOO_FEW
    assert [leader.hears(sequence) for sequence in range(5)] == [FINE] * 5


def test_a_batch_that_is_refused_late_but_stays_is_not_waited_for(leader: Leader) -> None:
    assert leader.hears(0) is FINE
    header = BatchHeader._make(unpack_header(idempotent(0)))
    leader.refused.note_late(PLACE, header, ErrorCode.REQUEST_TIMED_OUT)
    assert leader.hears(1) is FINE
    assert not leader.remembers


def test_the_memory_is_bounded(leader: Leader, monkeypatch: pytest.MonkeyPatch) -> None:
    leader.refuses(TOO_FEW, *range(3 * RUN_MAX))
    ((run,),) = [places.values() for places in leader.refused.by_producer.values()]
    assert run.sequences == list(range(RUN_MAX))
    assert leader.hears(3 * RUN_MAX) is TOO_FEW
    monkeypatch.setattr(retry_window, "RUNS_MAX", 3)
    leader.trouble = TOO_FEW
    for producer_id in range(10, 20):
        assert leader.hears(0, producer_id=producer_id) is TOO_FEW
    assert list(leader.refused.by_producer) == [17, 18, 19]
    assert leader.remembers


def test_batches_that_reach_a_new_leader_before_a_refused_one_come_again(leader: Leader) -> None:
    assert [leader.hears(sequence) for sequence in (0, 1)] == [FINE, FINE]
    leader.begins_epoch()  # the old leader refused 2; 3 and 4 have overtaken it
    assert [leader.hears(sequence) for sequence in (3, 4)] == [MOVED, MOVED]
    assert [leader.hears(sequence) for sequence in (2, 3, 4, 5)] == [FINE] * 4
    assert not leader.remembers


def test_a_new_leader_waits_for_what_is_missing_more_than_once(leader: Leader) -> None:
    assert leader.hears(0) is FINE
    leader.begins_epoch()
    for _ in range(3):
        assert [leader.hears(sequence) for sequence in (2, 3)] == [MOVED, MOVED]
        leader.now_s += PATIENCE_S / 4
    assert [leader.hears(sequence) for sequence in (1, 2, 3)] == [FINE] * 3


def test_a_gap_that_stays_is_a_gap_on_a_new_leader_too(leader: Leader) -> None:
    assert leader.hears(0) is FINE
    leader.begins_epoch()
    assert [leader.hears(sequence) for sequence in (2, 3)] == [MOVED, MOVED]
    leader.now_s += PATIENCE_S
    assert [leader.hears(sequence) for sequence in (2, 3, 2, 5)] == [GAP] * 4
    assert leader.hears(1) is FINE, "what is missing may still come"
    leader.begins_epoch()
    assert leader.hears(3) is MOVED, "the next leader knows nothing of that"


def test_a_producer_that_has_written_to_a_new_leader_leaves_gaps_again(leader: Leader) -> None:
    assert leader.hears(0) is FINE
    leader.begins_epoch()
    assert [leader.hears(sequence) for sequence in (1, 3)] == [FINE, GAP]


def test_what_was_written_long_before_is_no_gap_for_a_new_leader(leader: Leader) -> None:
    assert [leader.hears(sequence) for sequence in range(10)] == [FINE] * 10
    leader.begins_epoch()
    assert leader.hears(1) is GAP
    assert leader.hears(9, count=2) is GAP, "it overlaps with what is there"
    assert leader.hears(9) is FINE, "a duplicate"
    assert leader.hears(11) is MOVED


def test_an_epoch_that_begins_with_the_old_leader_is_waited_for(leader: Leader) -> None:
    assert leader.hears(0) is FINE
    leader.begins_epoch()
    assert leader.hears(4, epoch=1) is MOVED
    leader.now_s += PATIENCE_S
    assert leader.hears(4, epoch=1) is GAP
    assert leader.hears(4, epoch=2) is MOVED
    assert [leader.hears(sequence, epoch=2) for sequence in (0, 1)] == [FINE, FINE]
    assert leader.hears(4, epoch=0) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_gap_across_the_highest_sequence_is_waited_for(leader: Leader) -> None:
    assert leader.hears(SEQUENCE_MAX - 1) is FINE
    leader.begins_epoch()
    assert leader.hears(0) is MOVED
    assert [leader.hears(sequence) for sequence in (SEQUENCE_MAX, 0)] == [FINE, FINE]


def test_the_memory_of_gaps_is_bounded(leader: Leader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry_window, "RUNS_MAX", 3)
    for producer_id in range(10, 20):
        assert leader.hears(0, producer_id=producer_id) is FINE
    leader.begins_epoch()
    for producer_id in range(10, 20):
        assert leader.hears(2, producer_id=producer_id) is MOVED
    assert [producer_id for producer_id, _ in leader.refused._gaps] == [17, 18, 19]
