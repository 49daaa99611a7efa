"""Conversations of producers with the transaction coordinator's machine: every state, every request, and the way out."""

import logging

import pytest

from ottla.groupcoord.tests.transaction_conversation import (
    FIRST_PRODUCER_ID,
    ID,
    PLACES,
    START_MS,
    TIMEOUT_MS,
    Transactions,
)
from ottla.groupcoord.transactions.metadata import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    EMPTY,
    EPOCH_EXHAUSTED,
    EPOCH_MAX,
    NO_TIMEOUT_MS,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    TransactionState,
)
from ottla.groupcoord.transactions.records import TransactionRecord
from ottla.groupcoord.transactions.shard import (
    IDS_PER_SCAN,
    PARTITIONS_PER_CALL,
    RECORDS_PER_CALL,
    CompleteTransaction,
    ProducerAnswer,
    TransactionShard,
)
from ottla.groupcoord.transactions.transitions import AddPartitions, EndTransaction, InitProducerId, verify
from ottla.wire.errors import ErrorCode
from ottla.wire.tests.garbage import nothing_is_left_of

NONE = ErrorCode.NONE
FENCED = ErrorCode.PRODUCER_FENCED
CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS
INVALID = ErrorCode.INVALID_TXN_STATE
UNMAPPED = ErrorCode.INVALID_PRODUCER_ID_MAPPING

AT_REST = [EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT]
PREPARED = [PREPARE_COMMIT, PREPARE_ABORT]
ALL_STATES = [*AT_REST, ONGOING, *PREPARED]
VERSIONS = [0, 2]

SECOND_MS, HOUR_MS = 1_000, 3_600_000


def producer(producer_id: int, epoch: int) -> ProducerAnswer:
    return ProducerAnswer(NONE, producer_id, epoch)


def present(talk: Transactions) -> ProducerAnswer:
    """The producer as the coordinator knows it."""
    known = talk.known()
    return producer(known.producer_id, known.producer_epoch)


def exhausted(talk: Transactions, state: TransactionState = EMPTY) -> ProducerAnswer:
    """The producer, at the last epoch that it is given."""
    talk.in_state(EMPTY)
    last = talk.known().moved(EMPTY, producer_epoch=EPOCH_EXHAUSTED)
    talk.shard.replay(TransactionRecord(ID, last))
    if state is ONGOING:
        assert talk.add(present(talk)) is NONE
    return present(talk)


# ---------------------------------------------------------------------- a whole transaction


@pytest.mark.parametrize("commit", [True, False])
def test_a_transaction_in_a_shared_epoch(commit: bool) -> None:
    talk = Transactions(transaction_version=0)
    first = talk.init()
    assert first == producer(FIRST_PRODUCER_ID, 0) and talk.state is EMPTY
    assert talk.add(first) is NONE and talk.state is ONGOING
    assert talk.known().partitions == PLACES and talk.known().start_timestamp_ms == START_MS
    assert talk.end(first, commit=commit).error is NONE
    assert talk.state is (PREPARE_COMMIT if commit else PREPARE_ABORT)
    (owed,) = talk.write_markers()
    assert owed == (ID, FIRST_PRODUCER_ID, 0, commit, PLACES, 0)
    assert talk.state is (COMPLETE_COMMIT if commit else COMPLETE_ABORT)
    assert present(talk) == first and not talk.known().partitions
    assert talk.add(first) is NONE and talk.state is ONGOING


@pytest.mark.parametrize("commit", [True, False])
def test_a_transaction_with_an_epoch_of_its_own(commit: bool) -> None:
    talk = Transactions()
    first = talk.init()
    assert talk.add(first) is NONE
    second = talk.end(first, commit=commit)
    assert second == producer(FIRST_PRODUCER_ID, 1)
    (owed,) = talk.write_markers()
    # The marker already carries the next epoch, so that nothing of the old one can follow it.
    assert owed == (ID, FIRST_PRODUCER_ID, 1, commit, PLACES, 2)
    assert talk.state is (COMPLETE_COMMIT if commit else COMPLETE_ABORT) and present(talk) == second
    assert talk.add(first) is FENCED
    assert talk.add(second) is NONE


def test_each_transition_is_one_record() -> None:
    talk = Transactions()
    first = talk.init()
    talk.add(first)
    talk.add(first, ("other", 7))
    talk.end(first)
    talk.write_markers()
    assert len(talk.log) == 5


def test_partitions_are_gathered_and_the_age_is_that_of_the_first() -> None:
    talk = Transactions()
    first = talk.init()
    talk.add(first, ("a", 0))
    talk.advance(SECOND_MS)
    talk.add(first, ("b", 1))
    assert talk.known().partitions == {("a", 0), ("b", 1)}
    assert talk.known().start_timestamp_ms == START_MS
    assert talk.known().last_update_timestamp_ms == START_MS + SECOND_MS


def test_partitions_that_take_part_already_change_nothing() -> None:
    talk = Transactions()
    first = talk.in_state(ONGOING)
    size = len(talk.log)
    assert talk.add(first, ("topic", 1)) is NONE and len(talk.log) == size


# ---------------------------------------------------------------------- InitProducerId


@pytest.mark.parametrize("state", AT_REST)
@pytest.mark.parametrize("version", VERSIONS)
def test_a_new_producer_fences_the_one_before(state: TransactionState, version: int) -> None:
    talk = Transactions(transaction_version=version)
    before = talk.in_state(state) if version else (talk.in_state(state), present(talk))[1]
    after = talk.init(timeout_ms=5)
    assert after == producer(before.producer_id, before.producer_epoch + 1)
    assert talk.state is EMPTY and talk.known().timeout_ms == 5 and talk.known().start_timestamp_ms == -1
    assert talk.add(before) is FENCED
    assert talk.end(before).error is FENCED


@pytest.mark.parametrize("version", VERSIONS)
def test_an_open_transaction_is_aborted_before_another_producer_begins(version: int) -> None:
    talk = Transactions(transaction_version=version)
    zombie = talk.in_state(ONGOING)
    assert talk.init().error is CONCURRENT
    assert talk.state is PREPARE_ABORT and present(talk) == producer(zombie.producer_id, zombie.producer_epoch + 1)
    assert talk.init().error is CONCURRENT
    (owed,) = talk.write_markers()
    assert not owed.is_commit and owed.producer_epoch == zombie.producer_epoch + 1
    assert owed.transaction_version == version
    after = talk.init()
    assert after == producer(zombie.producer_id, zombie.producer_epoch + 2)
    assert talk.add(zombie) is FENCED and talk.end(zombie).error is FENCED


@pytest.mark.parametrize("state", PREPARED)
@pytest.mark.parametrize("version", VERSIONS)
def test_while_markers_are_written_everything_waits(state: TransactionState, version: int) -> None:
    talk = Transactions(transaction_version=version)
    talk.in_state(state)
    now = present(talk)
    assert talk.init().error is CONCURRENT
    assert talk.init(expected=(now.producer_id, now.producer_epoch)).error is CONCURRENT
    assert talk.add(now) is CONCURRENT
    assert [talk.end(now, commit=each).error for each in (True, False)] == [CONCURRENT, CONCURRENT]
    assert talk.state is state


@pytest.mark.parametrize("state", AT_REST)
@pytest.mark.parametrize("version", VERSIONS)
def test_a_producer_goes_on_with_its_own_epoch(state: TransactionState, version: int) -> None:
    talk = Transactions(transaction_version=version)
    talk.in_state(state)
    now = present(talk)
    raised = talk.init(expected=(now.producer_id, now.producer_epoch))
    assert raised == producer(now.producer_id, now.producer_epoch + 1)
    # The answer was lost, so it asks again with what it has.
    assert talk.init(expected=(now.producer_id, now.producer_epoch)) == raised
    assert talk.init(expected=(raised.producer_id, raised.producer_epoch)).producer_epoch == raised.producer_epoch + 1


def test_a_producer_of_an_older_epoch_may_not_go_on() -> None:
    talk = Transactions()
    first = talk.init()
    for _ in range(2):
        talk.init()
    assert talk.init(expected=(first.producer_id, first.producer_epoch)).error is FENCED
    # Somebody new has come since, so even the epoch before is no repetition.
    assert talk.init(expected=(first.producer_id, 1)).error is FENCED
    assert talk.init(expected=(first.producer_id + 77, 2)).error is FENCED
    assert present(talk) == producer(first.producer_id, 2)


def test_a_producer_that_was_fenced_in_a_shared_epoch_does_not_repeat_itself() -> None:
    talk = Transactions(transaction_version=0)
    first = talk.init()
    second = talk.init(expected=(first.producer_id, first.producer_epoch))
    talk.add(second)
    assert talk.init().error is CONCURRENT
    talk.write_markers()
    for each in (first, second):
        assert talk.init(expected=(each.producer_id, each.producer_epoch)).error is FENCED


def test_a_producer_whose_id_is_forgotten_gets_a_new_one() -> None:
    talk = Transactions()
    assert talk.init(expected=(77, 5)) == producer(FIRST_PRODUCER_ID, 0)


def test_a_producer_that_names_itself_aborts_what_it_left_open() -> None:
    talk = Transactions()
    now = talk.in_state(ONGOING)
    assert talk.init(expected=(now.producer_id + 1, 0)).error is FENCED and talk.state is ONGOING
    assert talk.init(expected=(now.producer_id, now.producer_epoch)).error is CONCURRENT
    assert talk.state is PREPARE_ABORT


@pytest.mark.parametrize("names_itself", [True, False])
def test_an_exhausted_epoch_brings_a_new_producer_id(names_itself: bool) -> None:
    talk = Transactions()
    last = exhausted(talk)
    expected = (last.producer_id, last.producer_epoch) if names_itself else None
    after = talk.init(expected=expected)
    assert after == producer(last.producer_id + 1, 0)
    # Only the last epoch of the former producer id may be one that comes again.
    assert talk.init(expected=(last.producer_id, 0)).error is FENCED
    again = talk.init(expected=expected)
    # Whoever named itself is known by that when it comes again; a new one is somebody else.
    assert again == (after if names_itself else producer(last.producer_id + 1, 1))


def test_a_wrong_epoch_beside_an_exhausted_one_fails_as_with_kafka() -> None:
    talk = Transactions()
    last = exhausted(talk)
    assert talk.init(expected=(last.producer_id, 3)).error is ErrorCode.UNKNOWN_SERVER_ERROR


def test_fencing_the_last_epoch_in_a_shared_epoch_uses_the_one_that_is_kept_for_it() -> None:
    talk = Transactions(transaction_version=0)
    last = exhausted(talk, ONGOING)
    assert talk.init().error is CONCURRENT
    assert present(talk) == producer(last.producer_id, EPOCH_MAX)
    talk.write_markers()
    assert talk.init() == producer(last.producer_id + 1, 0)


@pytest.mark.parametrize("commit", [True, False])
def test_the_transaction_after_the_last_epoch_has_a_new_producer_id(commit: bool) -> None:
    talk = Transactions()
    last = exhausted(talk, ONGOING)
    after = talk.end(last, commit=commit)
    assert after == producer(last.producer_id + 1, 0)
    assert talk.known().next_producer_id == after.producer_id
    (owed,) = talk.write_markers()
    assert (owed.producer_id, owed.producer_epoch) == (last.producer_id, EPOCH_MAX)
    assert present(talk) == after and talk.known().previous_producer_id == last.producer_id
    # The answer was lost: it is told by its last epoch.
    assert talk.end(last, commit=commit) == after
    assert talk.end(last, commit=not commit).error is INVALID
    assert talk.add(after) is NONE


@pytest.mark.parametrize("commit", [True, False])
def test_nobody_is_given_the_epoch_that_is_kept_for_fencing(commit: bool) -> None:
    """Its transactions could not be told from each other. The level was lowered, and this client has not heard of it."""
    talk = Transactions(transaction_version=0)
    last = exhausted(talk, ONGOING)
    assert talk.init().error is CONCURRENT
    talk.write_markers()
    assert talk.end(last, commit=commit, version=2).error is ErrorCode.PRODUCER_FENCED
    assert talk.init() == producer(last.producer_id + 1, 0)


def test_fencing_the_last_epoch_brings_a_new_producer_id() -> None:
    talk = Transactions()
    last = exhausted(talk, ONGOING)
    assert talk.init().error is CONCURRENT
    talk.write_markers()
    assert talk.init() == producer(last.producer_id + 1, 1)


def test_without_producer_ids_those_who_need_one_wait() -> None:
    talk = Transactions()
    loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    last = exhausted(talk, ONGOING)
    talk.has_producer_ids = False
    assert talk.init("other").error is loading and talk.shard.known("other") is None
    assert talk.end(last).error is loading and talk.state is ONGOING
    assert talk.init().error is loading and talk.state is ONGOING
    talk.has_producer_ids = True
    assert talk.end(last).error is NONE


# ---------------------------------------------------------------------- AddPartitionsToTxn


@pytest.mark.parametrize("state", ALL_STATES)
@pytest.mark.parametrize("version", VERSIONS)
def test_who_may_add_partitions(state: TransactionState, version: int) -> None:
    talk = Transactions(transaction_version=version)
    talk.in_state(state)
    now = present(talk)
    waits = state in PREPARED
    assert talk.add(producer(77, now.producer_epoch)) is (CONCURRENT if waits else UNMAPPED)
    assert talk.add(producer(now.producer_id, now.producer_epoch + 1)) is (CONCURRENT if waits else FENCED)
    assert talk.add(now, ("new", 3)) is (CONCURRENT if waits else NONE)
    assert talk.state is (state if waits else ONGOING)
    assert waits or ("new", 3) in talk.known().partitions


def test_an_unknown_id_has_no_transaction() -> None:
    talk = Transactions()
    assert talk.add(producer(1, 0)) is UNMAPPED
    assert [talk.end(producer(1, 0), version=version).error for version in VERSIONS] == [UNMAPPED, UNMAPPED]
    assert verify(None, 1, 0) is UNMAPPED
    assert not talk.log


def test_the_version_of_the_client_is_remembered() -> None:
    talk = Transactions()
    now = talk.init()
    talk.add(now, version=0)
    assert talk.known().client_transaction_version == 0
    assert talk.end(now, version=0).producer_epoch == 0
    (owed,) = talk.write_markers()
    assert owed.transaction_version == 0 and present(talk) == now


@pytest.mark.parametrize("state", ALL_STATES)
def test_verification_looks_at_what_is_in_force(state: TransactionState) -> None:
    talk = Transactions()
    talk.in_state(state)
    now = present(talk)
    assert verify(talk.known(), now.producer_id, now.producer_epoch) is (CONCURRENT if state in PREPARED else NONE)
    assert verify(talk.known(), now.producer_id + 1, now.producer_epoch) is UNMAPPED
    assert verify(talk.known(), now.producer_id, now.producer_epoch + 1) is FENCED


# ---------------------------------------------------------------------- EndTxn


@pytest.mark.parametrize(
    ("state", "commit", "abort"),
    [
        (EMPTY, INVALID, INVALID),
        (ONGOING, NONE, NONE),
        (COMPLETE_COMMIT, NONE, INVALID),
        (COMPLETE_ABORT, INVALID, NONE),
    ],
)
def test_the_end_in_a_shared_epoch(state: TransactionState, commit: ErrorCode, abort: ErrorCode) -> None:
    for is_commit, error in ((True, commit), (False, abort)):
        talk = Transactions(transaction_version=0)
        talk.in_state(state)
        now = present(talk)
        assert talk.end(producer(77, now.producer_epoch), commit=is_commit).error is UNMAPPED
        for epoch in (now.producer_epoch - 1, now.producer_epoch + 1):
            assert talk.end(producer(now.producer_id, epoch), commit=is_commit).error is FENCED
        assert talk.end(now, commit=is_commit).error is error
        moves = state is ONGOING
        assert talk.state is ((PREPARE_COMMIT if is_commit else PREPARE_ABORT) if moves else state)


# What Kafka's table says: the producer's own epoch, and the one before it.
ENDS = {
    EMPTY: {(True, False): INVALID, (False, False): NONE, (True, True): FENCED, (False, True): FENCED},
    ONGOING: {(True, False): NONE, (False, False): NONE, (True, True): FENCED, (False, True): FENCED},
    COMPLETE_COMMIT: {(True, False): INVALID, (False, False): NONE, (True, True): NONE, (False, True): INVALID},
    COMPLETE_ABORT: {(True, False): INVALID, (False, False): NONE, (True, True): INVALID, (False, True): NONE},
}


@pytest.mark.parametrize("state", ENDS)
@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("again", [True, False])
def test_the_end_with_an_epoch_per_transaction(state: TransactionState, commit: bool, again: bool) -> None:
    talk = Transactions()
    if state is EMPTY:
        talk.init()
    talk.in_state(state)
    now = present(talk)
    size = len(talk.log)
    asked = producer(now.producer_id, now.producer_epoch - again)
    answer = talk.end(asked, commit=commit)
    expected = ENDS[state][commit, again]
    assert answer.error is expected
    if expected is NONE and again:
        assert answer == now and len(talk.log) == size
    elif expected is NONE:
        assert answer == producer(now.producer_id, now.producer_epoch + 1)
        assert talk.state is (PREPARE_COMMIT if commit else PREPARE_ABORT)
    else:
        assert answer == ProducerAnswer(expected, -1, -1) and len(talk.log) == size
    if talk.state is state:
        assert talk.end(producer(77, now.producer_epoch), commit=commit).error is UNMAPPED
        for epoch in (now.producer_epoch - 2, now.producer_epoch + 1):
            assert talk.end(producer(now.producer_id, epoch), commit=commit).error is FENCED


@pytest.mark.parametrize("state", AT_REST)
def test_an_abort_of_nothing_has_no_markers_to_wait_for(state: TransactionState) -> None:
    talk = Transactions()
    talk.in_state(state)
    now = present(talk)
    talk.advance(SECOND_MS)
    after = talk.end(now, commit=False)
    (owed,) = talk.write_markers()
    assert not owed.partitions and talk.state is COMPLETE_ABORT and present(talk) == after
    assert talk.known().start_timestamp_ms == START_MS + SECOND_MS


def test_a_delayed_end_does_not_end_a_later_transaction() -> None:
    talk = Transactions()
    first = talk.in_state(ONGOING)
    second = talk.end(first)
    talk.write_markers()
    talk.add(second)
    assert talk.end(first).error is FENCED and talk.state is ONGOING


def test_an_unloaded_shard_is_freed_without_the_garbage_collector() -> None:
    talk = Transactions()
    talk.in_state(PREPARE_COMMIT)
    with nothing_is_left_of(TransactionShard):
        talk.shard.unload(ErrorCode.NOT_COORDINATOR)
        talk.restart()


# ---------------------------------------------------------------------- markers


def test_markers_are_handed_out_once_and_again_after_a_restart() -> None:
    talk = Transactions()
    talk.in_state(PREPARE_COMMIT)
    first = talk.shard.take_owed()
    assert len(first) == 1 and talk.shard.take_owed() == []
    talk.restart()
    assert talk.shard.take_owed() == first


@pytest.mark.parametrize("state", [*AT_REST, ONGOING])
def test_nothing_else_owes_markers(state: TransactionState) -> None:
    talk = Transactions()
    talk.in_state(state)
    talk.shard.take_owed()
    talk.restart()
    assert talk.shard.take_owed() == []


def test_markers_of_another_life_complete_nothing() -> None:
    talk = Transactions()
    assert talk.ask(CompleteTransaction(ID, FIRST_PRODUCER_ID, 0)).error is INVALID
    now = talk.in_state(ONGOING)
    assert talk.ask(CompleteTransaction(ID, now.producer_id, now.producer_epoch)).error is INVALID
    talk.end(now)
    assert talk.ask(CompleteTransaction(ID, now.producer_id, now.producer_epoch)).error is INVALID
    assert talk.ask(CompleteTransaction(ID, now.producer_id, now.producer_epoch + 1)).error is NONE
    assert talk.state is COMPLETE_COMMIT


def test_a_transaction_is_completed_once() -> None:
    talk = Transactions()
    talk.in_state(PREPARE_COMMIT)
    (owed,) = talk.shard.take_owed()
    complete = CompleteTransaction(ID, owed.producer_id, owed.producer_epoch)
    talk.is_committing = False
    first = talk.send(complete)
    assert talk.ask(complete).error is INVALID
    talk.commit()
    assert first.answer is not None and first.answer.error is NONE and talk.state is COMPLETE_COMMIT


# ---------------------------------------------------------------------- commits that take time, and refusals


def test_a_pending_id_answers_nobody_until_its_record_is_committed() -> None:
    talk = Transactions()
    now = talk.in_state(EMPTY)
    talk.is_committing = False
    asked = talk.send(AddPartitions(ID, now.producer_id, now.producer_epoch, PLACES, 2))
    assert asked.answer is None and talk.state is EMPTY
    assert talk.add(now) is CONCURRENT
    assert talk.end(now).error is CONCURRENT
    assert talk.init().error is CONCURRENT
    talk.commit()
    assert asked.answer == ProducerAnswer(NONE) and talk.state is ONGOING


def test_in_a_shared_epoch_a_foreign_producer_hears_that_first() -> None:
    talk = Transactions(transaction_version=0)
    now = talk.in_state(ONGOING)
    talk.is_committing = False
    talk.send(EndTransaction(ID, now.producer_id, now.producer_epoch, True, 0))
    assert talk.end(producer(77, 0)).error is UNMAPPED
    assert talk.end(producer(now.producer_id, 7)).error is FENCED
    assert talk.end(now).error is CONCURRENT


def test_the_first_record_of_an_id_may_be_on_its_way() -> None:
    talk = Transactions()
    talk.is_committing = False
    asked = talk.send(InitProducerId(ID, TIMEOUT_MS, None))
    assert talk.shard.known(ID) is None and talk.init().error is CONCURRENT
    talk.commit()
    assert asked.answer == producer(FIRST_PRODUCER_ID, 0)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_refused_record_changes_nothing(version: int) -> None:
    talk = Transactions(transaction_version=version)
    talk.refuse_appends = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert talk.init() == ProducerAnswer(ErrorCode.COORDINATOR_NOT_AVAILABLE, -1, -1)
    assert talk.shard.known(ID) is None
    talk.refuse_appends = NONE
    now = talk.in_state(ONGOING)
    before = talk.known()
    talk.refuse_appends = ErrorCode.NOT_COORDINATOR
    assert talk.end(now).error is talk.init().error is talk.add(now, ("new", 0)) is ErrorCode.NOT_COORDINATOR
    assert talk.known() == before
    talk.refuse_appends = NONE
    assert talk.end(now).error is NONE


def test_a_refused_completion_is_tried_again() -> None:
    talk = Transactions()
    talk.in_state(PREPARE_ABORT)
    (owed,) = talk.shard.take_owed()
    complete = CompleteTransaction(ID, owed.producer_id, owed.producer_epoch)
    talk.refuse_appends = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert talk.ask(complete).error is ErrorCode.COORDINATOR_NOT_AVAILABLE and talk.state is PREPARE_ABORT
    talk.refuse_appends = NONE
    assert talk.ask(complete).error is NONE and talk.state is COMPLETE_ABORT


# ---------------------------------------------------------------------- time


@pytest.mark.parametrize("version", VERSIONS)
def test_a_transaction_that_takes_too_long_is_aborted(version: int) -> None:
    talk = Transactions(transaction_version=version)
    zombie = talk.in_state(ONGOING)
    talk.advance(TIMEOUT_MS)
    assert talk.state is ONGOING
    talk.advance(10 * SECOND_MS)
    assert talk.state is PREPARE_ABORT
    (owed,) = talk.write_markers()
    assert not owed.is_commit and owed.producer_epoch == zombie.producer_epoch + 1
    assert talk.add(zombie) is FENCED
    assert talk.end(zombie, commit=True).error is (INVALID if version else FENCED)
    # With an epoch per transaction its own abort looks like one that comes again, and it may go on.
    assert talk.end(zombie, commit=False) == (present(talk) if version else ProducerAnswer(FENCED))


def test_the_age_of_a_transaction_survives_a_restart() -> None:
    talk = Transactions()
    talk.in_state(ONGOING)
    talk.advance(TIMEOUT_MS - SECOND_MS)
    talk.restart()
    talk.advance(11 * SECOND_MS)
    assert talk.state is PREPARE_ABORT


def test_what_is_pending_or_has_no_timeout_is_not_aborted() -> None:
    talk = Transactions()
    talk.add(talk.init("endless", timeout_ms=NO_TIMEOUT_MS), transactional_id="endless")
    now = talk.in_state(ONGOING)
    talk.is_committing = False
    asked = talk.send(EndTransaction(ID, now.producer_id, now.producer_epoch, True, 2))
    talk.advance(2 * TIMEOUT_MS)
    talk.commit()
    assert asked.answer is not None and asked.answer.error is NONE and talk.state is PREPARE_COMMIT
    assert talk.known("endless").state is ONGOING


def test_an_abort_that_the_log_refuses_is_tried_again() -> None:
    talk = Transactions()
    talk.in_state(ONGOING)
    talk.refuse_appends = ErrorCode.COORDINATOR_NOT_AVAILABLE
    talk.advance(TIMEOUT_MS + 30 * SECOND_MS)
    assert talk.state is ONGOING
    talk.refuse_appends = NONE
    talk.advance(10 * SECOND_MS)
    assert talk.state is PREPARE_ABORT


@pytest.mark.parametrize("state", ALL_STATES)
def test_only_what_rests_is_forgotten(state: TransactionState) -> None:
    talk = Transactions(transactional_id_expiration_ms=HOUR_MS)
    talk.in_state(state) if state is not ONGOING else talk.add(talk.init(timeout_ms=NO_TIMEOUT_MS))
    talk.advance(HOUR_MS - SECOND_MS)
    assert talk.shard.known(ID) is not None
    talk.advance(HOUR_MS + SECOND_MS)
    rests = state in AT_REST
    assert (talk.shard.known(ID) is None) is rests
    assert (talk.log[-1][1] is None) is rests
    talk.restart()
    assert (talk.shard.known(ID) is None) is rests
    if rests:
        assert talk.init().producer_epoch == 0


def test_an_id_that_is_being_forgotten_is_pending() -> None:
    talk = Transactions(transactional_id_expiration_ms=HOUR_MS)
    now = talk.in_state(EMPTY)
    talk.is_committing = False
    talk.advance(HOUR_MS)
    assert talk.add(now) is CONCURRENT and talk.init().error is CONCURRENT
    talk.commit()
    assert talk.add(now) is UNMAPPED


def test_much_that_is_due_is_done_in_parts() -> None:
    talk = Transactions(transactional_id_expiration_ms=HOUR_MS)
    count = 2 * IDS_PER_SCAN + 5
    for number in range(count):
        name = f"tx{number}"
        talk.add(talk.init(name), transactional_id=name)
    talk.now_ms = 10 * SECOND_MS + TIMEOUT_MS
    aborted = []
    while (deadline_ms := talk.shard.next_deadline_ms()) is not None and deadline_ms <= talk.now_ms:
        before = len(talk.log)
        talk._carry_out(talk.shard.expire(**talk.times()))
        aborted.append(len(talk.log) - before)
        talk.now_ms += 1
    assert sum(aborted) == count and max(aborted) <= RECORDS_PER_CALL
    talk.write_markers()
    talk.advance(2 * HOUR_MS)
    assert len(talk.shard) == 0


def test_aborts_of_large_transactions_are_fewer_at_a_time() -> None:
    talk = Transactions()
    places = [("topic", index) for index in range(PARTITIONS_PER_CALL)]
    for name in "abc":
        talk.add(talk.init(name), *places, transactional_id=name)
    talk.now_ms = 10 * SECOND_MS + TIMEOUT_MS
    outcome = talk.shard.expire(**talk.times())
    assert len(outcome.records) == 1


# ---------------------------------------------------------------------- the log


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "ottla.groupcoord")
    return caplog


def test_a_transaction_that_is_too_old_is_told_of_with_its_id(told: pytest.LogCaptureFixture) -> None:
    talk = Transactions()
    late = talk.in_state(ONGOING)
    talk.refuse_appends = ErrorCode.NOT_ENOUGH_REPLICAS
    talk.advance(TIMEOUT_MS + 20 * SECOND_MS)
    assert not told.messages, "nothing has happened yet"
    talk.refuse_appends = NONE
    talk.advance(20 * SECOND_MS)
    assert told.messages == [
        (
            f"Transaction of 'tx' is aborted, because it is older than its timeout of {TIMEOUT_MS} ms: producer id"
            f" {late.producer_id}, epoch {late.producer_epoch}, 2 partitions. That producer is fenced"
        )
    ]
    talk.write_markers()
    told.clear()
    assert talk.add(late) is FENCED
    assert told.messages == [
        f"Refused a producer of 'tx', which is fenced: it does not have producer id {late.producer_id}, epoch {late.producer_epoch + 1}"
    ]


def test_a_producer_in_whose_place_another_one_comes_is_told_of(told: pytest.LogCaptureFixture) -> None:
    talk = Transactions()
    first = talk.init()
    assert not told.messages, "nobody was fenced"
    second = talk.init()
    assert told.messages == [
        f"Producer of 'tx' with producer id {first.producer_id}, epoch 0 is fenced, because another one has come for that id"
    ]
    told.clear()
    talk.init(expected=(second.producer_id, second.producer_epoch))
    assert not told.messages, "it goes on with its own id"
    talk.add(present(talk))
    told.clear()
    talk.init()
    assert told.messages == [
        (
            f"Transaction of 'tx' is aborted, because another producer has come for that id: producer id {first.producer_id}, epoch 2,"
            " 2 partitions. That producer is fenced"
        )
    ]
