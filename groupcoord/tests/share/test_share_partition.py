"""A share partition's conversations with members, share coordinator and log."""

from contextlib import suppress

import pytest

from ottla.groupcoord.share.partition import acknowledging
from ottla.groupcoord.share.partition.acknowledging import ACCEPT, GAP, REJECT, RELEASE, RENEW, RUNS_MAX, RUNS_SPARE
from ottla.groupcoord.share.partition.in_flight import DeadLetter, RecordState, StateBatch
from ottla.groupcoord.share.partition.share_partition import Phase, SharePartition
from ottla.groupcoord.tests.sharing import KEY, Sharing, check
from ottla.wire.errors import ErrorCode, KafkaError

LOCK_MS = 30_000


def refused(code: ErrorCode, sharing: Sharing, *said: object) -> None:
    with pytest.raises(KafkaError) as caught:
        sharing.say(*said)
    assert caught.value.code is code
    check(sharing.partition)


# ------------------------------------------------------------------ acquiring


def test_members_get_different_records() -> None:
    sharing = Sharing()
    sharing.produce(10, 10)
    assert sharing.fetch("a", batches=1) == [(0, 9, 1)]
    assert sharing.fetch("b") == [(10, 19, 1)]
    assert sharing.fetch("c") == []
    assert sharing.states() == "|" + "a" * 10 + "|" + "b" * 10


def test_a_limit_of_records_does_not_tear_a_batch() -> None:
    sharing = Sharing()
    sharing.produce(10, 10)
    assert sharing.fetch(records_max=3) == [(0, 9, 1)]


def test_a_limit_of_records_is_kept_to_the_record_in_its_own_mode() -> None:
    sharing = Sharing()
    sharing.produce(5, 5)
    assert sharing.fetch("a", records_max=3, is_record_limit=True) == [(0, 2, 1)]
    assert sharing.states() == "|aaa.."
    assert sharing.fetch("b", records_max=1, is_record_limit=True) == [(3, 3, 1)]
    assert sharing.fetch("c", records_max=4, is_record_limit=True) == [(4, 4, 1), (5, 7, 1)]
    assert sharing.states() == "|aaabc|ccc.."


def test_a_batch_size_splits_at_batches_of_the_log() -> None:
    sharing = Sharing()
    sharing.produce(4, 4, 4, 4)
    assert sharing.fetch(batch_size=6) == [(0, 7, 1), (8, 15, 1)]


def test_no_more_records_than_allowed_are_in_flight() -> None:
    sharing = Sharing(partition_max_record_locks=10)
    sharing.produce(5, 5, 5)
    assert sharing.fetch("a") == [(0, 9, 1)]
    assert not sharing.partition.can_acquire()
    # What is free again may be acquired all the same, but nothing behind it.
    sharing.say("a", (3, 3, RELEASE))
    assert sharing.fetch("b") == [(3, 3, 2)]
    sharing.say("a", (0, 2, ACCEPT))
    assert sharing.partition.start_offset == 3
    assert sharing.fetch("b") == [(10, 14, 1)]


def test_released_records_come_again_before_new_ones() -> None:
    sharing = Sharing()
    sharing.produce(4, 4, 4)
    assert sharing.fetch("a", batches=2) == [(0, 7, 1)]
    sharing.say("a", (2, 5, RELEASE))
    assert sharing.partition.next_fetch_offset() == 2
    assert sharing.fetch("b", batches=2) == [(2, 5, 2)]
    assert sharing.fetch("c") == [(8, 11, 1)]


def test_a_fetch_passes_over_what_others_hold() -> None:
    sharing = Sharing()
    sharing.produce(*[2] * 4)
    for member in "abcd":
        sharing.fetch(member, batches=1)
    sharing.release("a")
    sharing.release("c")
    sharing.produce(2)
    assert sharing.fetch("e") == [(0, 1, 2), (4, 5, 2), (8, 9, 1)]


def test_records_that_compaction_has_taken_are_archived() -> None:
    sharing = Sharing()
    sharing.produce(2, 2, 2)
    for member in "abc":
        sharing.fetch(member, batches=1)
    sharing.release("a")
    sharing.release("b")
    del sharing.log[:1]
    assert sharing.fetch("d", batches=1) == [(2, 3, 2)]
    assert sharing.states() == "|dd|cc"
    sharing.say("d", (2, 3, ACCEPT))
    assert sharing.partition.start_offset == 4


def test_a_batch_that_begins_before_the_start_is_acquired_from_the_start_on() -> None:
    sharing = Sharing(start_offset=0)
    sharing.produce(10)
    sharing.stored.start_offset = 4
    sharing.lead()
    assert sharing.fetch() == [(4, 9, 1)]


# ------------------------------------------------------------------ acknowledging


def test_the_start_moves_past_what_is_done() -> None:
    sharing = Sharing()
    sharing.produce(5, 5)
    sharing.fetch(batch_size=5)
    sharing.say("a", (5, 9, ACCEPT))
    assert sharing.partition.start_offset == 0
    assert sharing.stored.done_count == 5
    sharing.say("a", (0, 1, ACCEPT))
    assert (sharing.partition.start_offset, sharing.states()) == (2, "|AAaaa|AAAAA")
    sharing.say("a", (2, 4, [REJECT, GAP, ACCEPT]))
    assert (sharing.partition.start_offset, sharing.partition.end_offset, sharing.states()) == (10, 10, "")
    sharing.produce(1)
    assert sharing.fetch() == [(10, 10, 1)]


def test_one_batch_is_acknowledged_record_by_record() -> None:
    sharing = Sharing()
    sharing.produce(6)
    sharing.fetch()
    sharing.say("a", (0, 5, [ACCEPT, RELEASE, REJECT, GAP, RENEW, ACCEPT]))
    assert sharing.states() == "|A.XXaA"
    assert sharing.stored.batches() == [
        StateBatch(0, 0, RecordState.ACKNOWLEDGED, 1),
        StateBatch(1, 1, RecordState.AVAILABLE, 1),
        StateBatch(2, 3, RecordState.ARCHIVED, 1),
        StateBatch(5, 5, RecordState.ACKNOWLEDGED, 1),
    ]


def test_an_acknowledgement_may_span_batches() -> None:
    sharing = Sharing()
    sharing.produce(3, 3, 3)
    sharing.fetch(batch_size=3)
    sharing.say("a", (1, 7, ACCEPT))
    assert sharing.states() == "|aAA|AAA|AAa"


def test_only_the_holder_may_acknowledge() -> None:
    sharing = Sharing()
    sharing.produce(4)
    sharing.fetch("a")
    refused(ErrorCode.INVALID_RECORD_STATE, sharing, "b", (0, 3, ACCEPT))
    sharing.say("a", (0, 3, RELEASE))
    refused(ErrorCode.INVALID_RECORD_STATE, sharing, "a", (0, 3, ACCEPT))
    refused(ErrorCode.INVALID_REQUEST, sharing, "a", (4, 5, ACCEPT))
    refused(ErrorCode.INVALID_REQUEST, sharing, "a", (3, 4, ACCEPT))
    refused(ErrorCode.INVALID_REQUEST, sharing, "a", (0, 3, 5))
    assert sharing.fetch("b") == [(0, 3, 2)]


def test_unknown_records_are_refused() -> None:
    sharing = Sharing(start_offset=10)
    sharing.produce(4)
    refused(ErrorCode.INVALID_RECORD_STATE, sharing, "a", (10, 11, ACCEPT))
    sharing.fetch("a")
    sharing.say("a", (0, 9, ACCEPT))  # done long ago


def test_one_wrong_acknowledgement_takes_all_of_the_request_back() -> None:
    sharing = Sharing()
    sharing.produce(4, 4)
    sharing.fetch("a", batches=1)
    sharing.fetch("b")
    refused(ErrorCode.INVALID_RECORD_STATE, sharing, "a", (0, 3, ACCEPT), (4, 7, ACCEPT))
    assert sharing.states() == "|aaaa|bbbb"
    assert not sharing.answer()


def test_an_acknowledgement_of_records_before_the_start_counts_for_the_others() -> None:
    sharing = Sharing()
    sharing.produce(10)
    sharing.fetch("a")
    sharing.partition.on_log_start(5)
    sharing.say("a", (0, 9, ACCEPT))
    # What the log has dropped stays with its holder until the lock ends.
    assert sharing.states() == "|aaaaaAAAAA"
    sharing.pass_ms(LOCK_MS)
    assert (sharing.partition.start_offset, sharing.states()) == (10, "")


@pytest.mark.thorough
def test_a_peer_cannot_make_the_broker_keep_a_state_for_each_of_a_million_records() -> None:
    sharing = Sharing()
    sharing.produce(1_000_000)
    sharing.fetch()
    for start in range(0, RUNS_MAX, 10_000):
        kinds = [ACCEPT, RELEASE] * 5_000
        if start + 10_000 >= RUNS_MAX:
            refused(ErrorCode.INVALID_REQUEST, sharing, "a", (start, start + 9_999, kinds))
        else:
            sharing.say("a", (start, start + 9_999, kinds))
    sharing.say("a", (500_000, 999_999, ACCEPT))
    assert sharing.partition.in_flight.run_count() < RUNS_MAX


@pytest.mark.thorough
def test_many_short_acknowledgements_make_no_more_states_than_one_long_one() -> None:
    sharing = Sharing()
    sharing.produce(1_000_000)
    sharing.fetch()
    run_count = sharing.partition.in_flight.run_count
    too_many = [(2 * index, 2 * index, RELEASE) for index in range(RUNS_MAX)]
    refused(ErrorCode.INVALID_REQUEST, sharing, "a", *too_many)
    assert run_count() == 1, "what had begun is taken back"
    sharing.say("a", *too_many[: RUNS_MAX // 2 - 1])
    for start in range(100_000, 100_000 + 2 * RUNS_SPARE, 2):
        with suppress(KafkaError):
            sharing.say("a", (start, start, RELEASE))
    assert run_count() <= RUNS_MAX + RUNS_SPARE


def test_an_acknowledgement_of_many_whole_batches_needs_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acknowledging, "RUNS_MAX", 100)
    sharing = Sharing()
    sharing.produce(*[1] * 100)
    for _ in range(100):
        sharing.fetch(batches=1)
    sharing.say("a", (0, 99, [RELEASE, ACCEPT] * 50))
    assert sharing.partition.in_flight.run_count() == 100


def test_more_acknowledgements_than_records_can_be_in_flight_are_refused() -> None:
    sharing = Sharing()
    sharing.produce(10)
    sharing.fetch()
    refused(ErrorCode.INVALID_REQUEST, sharing, "a", *[(0, 0, ACCEPT)] * (RUNS_MAX + 1))
    refused(ErrorCode.INVALID_REQUEST, sharing, "a", (0, 0, 7))


# ------------------------------------------------------------------ locks


def test_records_that_are_held_too_long_are_free_again() -> None:
    sharing = Sharing()
    sharing.produce(4)
    sharing.fetch("a")
    sharing.pass_ms(LOCK_MS - 1)
    assert sharing.states() == "|aaaa"
    sharing.pass_ms(1)
    assert sharing.states() == "|...."
    assert sharing.fetch("b") == [(0, 3, 2)]


def test_a_renewed_lock_lasts_for_another_duration() -> None:
    sharing = Sharing()
    sharing.produce(4)
    sharing.fetch("a")
    sharing.pass_ms(LOCK_MS - 1)
    assert sharing.say("a", (0, 1, RENEW)).is_settled
    sharing.pass_ms(1)
    assert sharing.states() == "|aa.."
    sharing.pass_ms(LOCK_MS - 1)
    assert sharing.states() == "|...."


def test_a_group_may_forbid_renewals() -> None:
    sharing = Sharing(may_renew=False)
    sharing.produce(4)
    sharing.fetch("a")
    refused(ErrorCode.INVALID_RECORD_STATE, sharing, "a", (0, 3, RENEW))


def test_a_record_is_delivered_so_often_and_no_more() -> None:
    sharing = Sharing(delivery_count_limit=2)
    sharing.produce(4)
    assert sharing.fetch("a") == [(0, 3, 1)]
    sharing.release("a")
    assert sharing.fetch("a") == [(0, 3, 2)]
    sharing.pass_ms(LOCK_MS)
    assert sharing.fetch("a") == []
    assert sharing.partition.start_offset == 4


def test_a_batch_that_fails_again_and_again_is_delivered_in_ever_smaller_parts() -> None:
    sharing = Sharing(delivery_count_limit=6)
    sharing.produce(16)
    for count in (1, 2, 3):
        assert sharing.fetch() == [(0, 15, count)]
        sharing.release("a")
    assert sharing.fetch() == [(0, 7, 4)]
    sharing.release("a")
    assert sharing.fetch() == [(0, 3, 5)]
    sharing.release("a")
    assert [sharing.fetch(), sharing.fetch(), sharing.fetch()] == [[(0, 0, 6)], [(1, 1, 6)], [(2, 2, 6)]]


# ------------------------------------------------------------------ storing


def test_an_acknowledgement_is_answered_once_it_is_stored() -> None:
    sharing = Sharing()
    sharing.is_slow = True
    sharing.produce(4, 4)
    sharing.fetch(batch_size=4)
    first = sharing.say("a", (0, 3, ACCEPT))
    sharing.send()
    second = sharing.say("a", (4, 7, ACCEPT))
    assert sharing.partition.take_write() is None  # one at a time
    refused(ErrorCode.INVALID_RECORD_STATE, sharing, "a", (0, 3, ACCEPT))
    assert not first.is_settled and sharing.partition.start_offset == 0
    sharing.answer()
    assert first.is_settled and not second.is_settled and sharing.partition.start_offset == 4
    sharing.answer()
    assert second.is_settled and sharing.partition.start_offset == 8


def test_what_cannot_be_stored_is_held_as_before() -> None:
    sharing = Sharing()
    sharing.is_slow = True
    sharing.produce(4)
    sharing.fetch()
    change = sharing.say("a", (0, 3, [ACCEPT, RELEASE, REJECT, ACCEPT]))
    assert sharing.states() == "|A!.!X!A!"
    sharing.answer(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert change.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert sharing.states() == "|aaaa"
    check(sharing.partition)


def test_what_cannot_be_stored_is_free_if_its_lock_has_ended_meanwhile() -> None:
    sharing = Sharing()
    sharing.is_slow = True
    sharing.produce(4)
    sharing.fetch()
    sharing.say("a", (0, 1, ACCEPT))
    sharing.pass_ms(LOCK_MS)
    assert sharing.states() == "|A!A!.."
    sharing.answer(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert sharing.states() == "|...."
    assert sharing.partition.next_fetch_offset() == 0


def test_what_the_log_has_dropped_is_not_brought_back_by_a_failed_write() -> None:
    sharing = Sharing()
    sharing.is_slow = True
    sharing.produce(4)
    sharing.fetch()
    sharing.say("a", (0, 3, RELEASE))
    sharing.partition.on_log_start(2)
    sharing.answer(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert sharing.states() == "|XXaa"
    check(sharing.partition)


def test_a_new_leader_fetches_again_what_nobody_spoke_of() -> None:
    sharing = Sharing()
    sharing.produce(*[5] * 4)
    sharing.fetch("a", batches=2, batch_size=5)
    sharing.fetch("b", batch_size=5)
    sharing.say("a", (5, 9, ACCEPT))
    sharing.say("b", (17, 18, [RELEASE, ACCEPT]))
    sharing.lead()
    assert sharing.states() == "|AAAAA|.|A"
    assert sharing.fetch("c", batches=1) == [(0, 4, 1)]
    assert sharing.fetch("c", batches=1) == [(10, 14, 1)]
    assert sharing.fetch("c") == [(15, 16, 1), (17, 17, 2), (19, 19, 1)]
    assert sharing.states() == "|ccccc|AAAAA|ccccc|cc|c|A|c"
    check(sharing.partition)


def test_a_new_leader_does_not_look_for_records_that_the_log_has_dropped() -> None:
    sharing = Sharing()
    sharing.produce(4, 1)
    sharing.fetch(batches=1)
    sharing.say("a", (1, 1, ACCEPT), (3, 3, ACCEPT))
    sharing.lead()
    sharing.log_start = 3
    assert sharing.fetch("b") == [(4, 4, 1)]
    sharing.say("b", (4, 4, ACCEPT))
    assert (sharing.partition.start_offset, sharing.states()) == (5, "")


def test_a_new_leader_moves_the_start_when_the_last_hole_is_closed() -> None:
    sharing = Sharing()
    sharing.produce(1, 1)
    sharing.fetch("a", batches=1)
    sharing.fetch("b")
    sharing.say("b", (1, 1, ACCEPT))
    sharing.lead()
    assert sharing.fetch("c") == [(0, 0, 1)]
    sharing.say("c", (0, 0, ACCEPT))
    assert (sharing.partition.start_offset, sharing.states()) == (2, "")


def test_stored_state_that_makes_no_sense_is_refused() -> None:
    partition = SharePartition(KEY, 0, lambda group_id: Sharing().settings)
    with pytest.raises(KafkaError):
        partition.load(0, 5, [StateBatch(3, 4, RecordState.AVAILABLE, 1)])
    assert partition.phase is Phase.FAILED


# ------------------------------------------------------------------ transactions, dead letters


def test_records_of_aborted_transactions_are_archived() -> None:
    sharing = Sharing()
    sharing.produce(3, producer_id=7, is_transactional=True)
    sharing.produce(2)
    sharing.produce(1, producer_id=7, is_transactional=True, is_abort_marker=True)
    sharing.produce(2, producer_id=7, is_transactional=True)
    assert sharing.fetch(aborted=[(7, 0)]) == [(3, 7, 1)]
    assert sharing.states() == "|XXXaaaaa"
    sharing.say("a", (3, 7, [ACCEPT, ACCEPT, GAP, ACCEPT, ACCEPT]))
    assert sharing.partition.start_offset == 8


def test_aborted_records_that_fill_all_locks_make_room_for_more() -> None:
    sharing = Sharing(partition_max_record_locks=100)
    sharing.produce(120, producer_id=7, is_transactional=True)
    sharing.produce(1, producer_id=7, is_transactional=True, is_abort_marker=True)
    sharing.produce(10)
    assert sharing.fetch(aborted=[(7, 0)], batches=1) == []
    assert sharing.partition.start_offset == 120
    assert sharing.fetch(aborted=[(7, 0)]) == [(120, 130, 1)]


def test_records_that_fill_all_locks_make_room_when_compaction_takes_them() -> None:
    sharing = Sharing(partition_max_record_locks=100)
    sharing.produce(*[10] * 30)
    assert sharing.fetch(batches=10) == [(0, 99, 1)]
    sharing.release("a")
    sharing.log = [batch for batch in sharing.log if batch.base_offset >= 200]
    assert sharing.fetch("b", batches=5) == [(200, 249, 1)]
    assert sharing.partition.start_offset == 200


def test_records_that_nobody_can_process_go_to_the_dead_letter_queue() -> None:
    sharing = Sharing(delivery_count_limit=2, dead_letter_topic="dead")
    sharing.produce(4)
    sharing.fetch()
    sharing.say("a", (0, 0, REJECT), (1, 3, RELEASE))
    assert sharing.partition.dead_letters == [DeadLetter(0, 0, 1, is_rejected=True)]
    assert sharing.states() == "|D..."
    sharing.fetch("b")
    sharing.release("b")
    assert sharing.partition.dead_letters[1:] == [DeadLetter(1, 3, 2, is_rejected=False)]
    # A leader that comes now finds out the same.
    sharing.lead()
    assert sharing.partition.dead_letters == [
        DeadLetter(0, 0, 1, is_rejected=True),
        DeadLetter(1, 3, 2, is_rejected=False),
    ]
    for letter in sharing.partition.dead_letters:
        sharing.partition.on_dead_letter(letter)
        sharing.store()
    assert (sharing.partition.start_offset, sharing.states()) == (4, "")
