"""The first batch of a transaction is appended only with the guard of a question that nothing has overtaken."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.replication.log import verification
from ottla.replication.log.batch_checks import AppendOrigin
from ottla.replication.log.partition_log import PartitionLog
from ottla.replication.log.tests.logs import NOW_MS, idempotent, load, marker, new_log
from ottla.replication.log.verification import NOT_REQUIRED, VerificationGuard
from ottla.wire.control_batches import ControlType
from ottla.wire.errors import ErrorCode, KafkaError

DAY_MS = 86_400_000
PRODUCER = 7


def started(
    log: PartitionLog, sequence: int = 0, epoch: int = 0, *, bumps: bool = False, **options: Any
) -> VerificationGuard:
    guard = log.producer_state().start_verification(
        PRODUCER, sequence, epoch, supports_epoch_bump=bumps, now_ms=options.get("now_ms", NOW_MS)
    )
    assert guard is not None
    return guard


def sent(
    log: PartitionLog, sequence: int = 0, epoch: int = 0, *, guard: VerificationGuard | None = None, **options: Any
) -> str:
    """What a client hears that sends a batch in a transaction."""
    records = idempotent(sequence, producer_id=PRODUCER, epoch=epoch, is_transactional=True)
    try:
        info = log.append_as_leader(records, leader_epoch=0, now_ms=NOW_MS, guard=guard, **options)
    except KafkaError as error:
        return error.code.name
    return "duplicate" if info.duplicate else "appended"


def ended(log: PartitionLog, epoch: int = 0, kind: ControlType = ControlType.ABORT, version: int = 0) -> None:
    log.append_as_leader(
        marker(kind, producer_id=PRODUCER, epoch=epoch),
        leader_epoch=0,
        now_ms=NOW_MS,
        origin=AppendOrigin.COORDINATOR,
        transaction_version=version,
    )


def is_open(log: PartitionLog, epoch: int = 0) -> bool:
    return log.producer_state().is_in_transaction(PRODUCER, epoch)


@pytest.mark.parametrize("origin", [AppendOrigin.CLIENT, AppendOrigin.COORDINATOR])
def test_a_transaction_begins_only_with_the_guard_and_goes_on_without_it(origin: AppendOrigin) -> None:
    log = new_log()
    assert sent(log, origin=origin) == "INVALID_TXN_STATE"
    guard = started(log)
    assert sent(log, origin=origin) == "INVALID_TXN_STATE"
    assert sent(log, guard=VerificationGuard(), origin=origin) == "INVALID_TXN_STATE"
    assert log.log_end_offset == 0
    assert sent(log, guard=guard, origin=origin) == "appended"
    assert is_open(log)
    assert sent(log, 1, origin=origin) == "appended"


def test_an_open_transaction_needs_no_verification() -> None:
    log = new_log()
    sent(log, guard=started(log))
    state = log.producer_state()
    assert state.start_verification(PRODUCER, 1, 0, supports_epoch_bump=False, now_ms=NOW_MS) is None
    assert state.start_verification(PRODUCER, 0, 1, supports_epoch_bump=False, now_ms=NOW_MS) is not None


def test_a_marker_that_comes_before_the_batch_makes_its_guard_worthless() -> None:
    log = new_log()
    guard = started(log)
    ended(log)
    assert sent(log, guard=guard) == "INVALID_TXN_STATE"
    # The next question is another one, although producer and epoch are the same.
    assert started(log) is not guard
    assert sent(log, guard=guard) == "INVALID_TXN_STATE"


def test_after_a_marker_the_same_epoch_has_to_be_verified_again() -> None:
    log = new_log()
    guard = started(log)
    sent(log, guard=guard)
    ended(log, kind=ControlType.COMMIT)
    assert sent(log, 1, guard=guard) == sent(log, 1) == "INVALID_TXN_STATE"
    assert sent(log, 1, guard=started(log, 1)) == "appended"


def test_a_marker_of_the_epoch_that_was_asked_about_leaves_the_guard_from_transaction_version_2_on() -> None:
    log = new_log()
    sent(log, guard=started(log, bumps=True))
    # The marker ends the transaction of epoch 0, and raises the epoch to that of the next transaction, which has begun.
    guard = started(log, 0, 1, bumps=True)
    ended(log, 1, version=2)
    assert sent(log, 0, 1, guard=guard) == "appended"
    guard = started(log, 0, 2, bumps=True)
    ended(log, 3, version=2)
    assert sent(log, 0, 2, guard=guard) == "INVALID_PRODUCER_EPOCH"
    assert sent(log, 0, 3, guard=guard) == "INVALID_TXN_STATE"


def test_before_transaction_version_2_every_marker_takes_the_guard() -> None:
    log = new_log()
    sent(log, guard=started(log))
    guard = started(log, 0, 1)
    ended(log, 1)
    assert sent(log, 0, 1, guard=guard) == "INVALID_TXN_STATE"


@pytest.mark.parametrize("epoch", [4, 5])
def test_a_question_that_was_asked_in_vain_does_not_say_what_the_present_producer_speaks(epoch: int) -> None:
    """Otherwise a marker would leave the guard, and a late batch would begin a transaction that nobody ends."""
    log = new_log()
    started(log, epoch=4, bumps=True)
    guard = started(log, epoch=epoch)
    ended(log, epoch=epoch)
    assert sent(log, epoch=epoch, guard=guard) == "INVALID_TXN_STATE"


def test_a_producer_may_speak_the_newer_protocol_after_a_question_in_the_older_one() -> None:
    log = new_log()
    started(log, epoch=4)
    guard = started(log, epoch=5, bumps=True)
    ended(log, epoch=5, version=2)
    assert sent(log, epoch=5, guard=guard) == "appended"


def test_a_transaction_of_a_lower_epoch_is_none_of_the_batch() -> None:
    log = new_log()
    sent(log, guard=started(log))
    assert is_open(log, 0) and not is_open(log, 1)
    assert sent(log, 0, 1) == "INVALID_TXN_STATE"
    assert sent(log, 0, 1, guard=started(log, 0, 1)) == "appended"


def test_an_outdated_epoch_is_told_before_anybody_is_asked() -> None:
    log = new_log()
    sent(log, 0, 3, guard=started(log, 0, 3))
    with pytest.raises(KafkaError) as error:
        started(log, 0, 2)
    assert error.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
    assert sent(log, 0, 2) == "INVALID_PRODUCER_EPOCH"
    ended(log, 3)
    assert sent(log, 0, 2) == "INVALID_PRODUCER_EPOCH"


def test_a_later_batch_does_not_take_the_place_of_an_earlier_one() -> None:
    log = new_log()
    guard = started(log, 0)
    assert started(log, 1) is guard
    assert sent(log, 1, guard=guard) == "OUT_OF_ORDER_SEQUENCE_NUMBER"
    assert sent(log, 0, guard=guard) == "appended"
    assert sent(log, 1) == "appended"


def test_the_lowest_sequence_is_that_of_the_highest_epoch() -> None:
    log = new_log()
    guard = started(log, 5, 0)
    assert started(log, 3, 0) is started(log, 4, 0) is started(log, 9, 1) is guard
    assert started(log, 2, 0) is guard
    assert sent(log, 10, 1, guard=guard) == "OUT_OF_ORDER_SEQUENCE_NUMBER"
    assert sent(log, 9, 1, guard=guard) == "appended"


@pytest.mark.parametrize(("bumps", "answer"), [(False, "appended"), (True, "OUT_OF_ORDER_SEQUENCE_NUMBER")])
def test_an_unknown_producer_begins_at_0_from_transaction_version_2_on(bumps: bool, answer: str) -> None:
    log = new_log()
    assert sent(log, 4, guard=started(log, 4, bumps=bumps)) == answer


def test_batches_of_the_epoch_before_are_not_in_order_any_more() -> None:
    log = new_log()
    sent(log, guard=started(log))
    guard = started(log, 0, 1)
    assert sent(log, 1, 0) == "OUT_OF_ORDER_SEQUENCE_NUMBER"
    assert sent(log, 0, 1, guard=guard) == "appended"


def test_nothing_is_verified_where_that_is_switched_off() -> None:
    log = new_log()
    assert sent(log, guard=NOT_REQUIRED) == "appended"
    ended(log)
    assert sent(log, 1, guard=NOT_REQUIRED) == "appended"


def test_a_duplicate_of_a_transaction_that_is_over_is_answered_as_one() -> None:
    log = new_log()
    sent(log, guard=started(log))
    ended(log)
    assert sent(log) == "duplicate"


def test_what_a_leader_sends_takes_the_guard() -> None:
    log = new_log()
    guard = started(log)
    log.append_as_follower(idempotent(0, producer_id=PRODUCER, is_transactional=True), now_ms=NOW_MS)
    assert is_open(log)
    assert not log.producer_state().verifications.accept(PRODUCER, guard)


def test_an_open_transaction_is_known_after_a_restart() -> None:
    log = new_log()
    sent(log, guard=started(log))
    log.close()
    assert sent(load(log), 1) == "appended"


def test_what_nobody_comes_back_to_is_forgotten() -> None:
    log = new_log()
    started(log)
    verifications = log.producer_state().verifications
    list(log.remove_expired_producers(NOW_MS + DAY_MS - 1, DAY_MS))
    assert list(verifications.by_producer) == [PRODUCER]
    list(log.remove_expired_producers(NOW_MS + DAY_MS, DAY_MS))
    assert verifications.by_producer == {}


def test_the_oldest_are_forgotten_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verification, "VERIFICATIONS_MAX", 3)
    state = new_log().producer_state()
    for producer_id in range(5):
        state.start_verification(producer_id, 0, 0, supports_epoch_bump=False, now_ms=NOW_MS)
    assert list(state.verifications.by_producer) == [2, 3, 4]


def test_a_refused_batch_leaves_the_guard() -> None:
    log = new_log(segment_bytes=100)
    guard = started(log)
    records = idempotent(0, 20, producer_id=PRODUCER, is_transactional=True)
    with pytest.raises(KafkaError) as error:
        log.append_as_leader(records, leader_epoch=0, now_ms=NOW_MS, guard=guard)
    assert error.value.code is ErrorCode.RECORD_LIST_TOO_LARGE
    assert sent(log, guard=guard) == "appended"
