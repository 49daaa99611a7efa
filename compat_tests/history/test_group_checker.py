"""The rules for share groups and for owners of partitions, told by hand: what breaks them, and what looks like it and does not.

That they find a broker that is broken is proven by `compat_tests/simulation/broken.py`.
"""

from ottla.server.testing.history.checker import check
from ottla.server.testing.history.group_events import (
    Disowned,
    Owned,
    ShareAcquired,
    ShareAnswered,
    ShareBegan,
    ShareSaid,
    ShareSessionLost,
    ShareTold,
)
from ottla.server.testing.history.history import (
    Acknowledged,
    FaultBegan,
    ProducerBegan,
    ReachedEnd,
    Read,
    ReadBegan,
    Sent,
    TopicBegan,
)
from ottla.server.testing.history.rules import Rule

LOCK_S, LIMIT = 5.0, 3
WRITTEN = (
    TopicBegan(0, "t", 1),
    ProducerBegan(0, "p", True, -1),
    Sent(0, "p", "t", 0, "a"),
    Acknowledged(0, "p", "t", 0, "a", 0),
    ShareBegan(0, "g", "t", LIMIT),
)
READ = (
    ReadBegan(900, "f", "t", 0, 0, False, True),
    Read(900, "f", "t", 0, ((0, "a"),)),
    ReachedEnd(900, "f", "t", 0, 1),
)


def acquired(at, session, count=1, *, epoch=1, asked=None):
    return ShareAcquired(at, "g", session, "t", 0, 0, 0, count, epoch, at - 0.5 if asked is None else asked, LOCK_S)


def said(at, session, what):
    return ShareSaid(at, "g", session, "t", 0, 0, 0, what)


def told(at, session, what, count=1, *, epoch=1, error="", may_count=True):
    return ShareTold(at, "g", session, "t", 0, 0, 0, what, count, epoch, at - 0.1, error, may_count)


def accepted(at, session, count=1, epoch=1):
    return said(at, session, "accept"), told(at + 0.1, session, "accept", count, epoch=epoch)


def lost(at, session, unanswered=None):
    return ShareSessionLost(at, "g", session, "t", 0, unanswered)


def found(*events):
    return {proof.violation.rule for proof in check([*WRITTEN, *events, *READ])}


def test_a_record_that_is_accepted_is_settled():
    assert found(acquired(1, "A"), *accepted(2, "A")) == set()


def test_a_record_that_nobody_accepted_is_not():
    assert found() == {Rule.UNSETTLED}
    assert found(acquired(1, "A"), said(2, "A", "release"), told(2, "A", "release")) == {Rule.UNSETTLED}
    refused = told(2, "A", "accept", error="INVALID_RECORD_STATE", may_count=False)
    assert found(acquired(1, "A"), said(2, "A", "accept"), refused) == {Rule.UNSETTLED}


def test_what_was_accepted_without_an_answer_may_be_settled():
    assert found(acquired(1, "A"), said(2, "A", "accept")) == set()
    assert found(acquired(1, "A"), said(2, "A", "accept"), told(2, "A", "accept", error="TIMED_OUT")) == set()


def test_a_record_is_archived_after_as_many_deliveries_as_may_be():
    assert found(*(acquired(10 * count, "A", count) for count in (1, 2))) == {Rule.UNSETTLED}
    assert found(*(acquired(10 * count, "A", count) for count in (1, 2, 3))) == set()
    assert found(*(acquired(10 * count, "A", count) for count in (1, 2)), lost(25, "B", 24)) == set()


def test_a_lost_delivery_of_what_was_passed_over_before_explains_nothing():
    later = acquired(60, "B")._replace(first=7, last=7)
    losses = [lost(at, "C", at - 1) for at in (70, 80, 90)]
    assert found(acquired(1, "A"), *losses) == set()
    assert found(acquired(1, "A"), later, *losses) == {Rule.UNSETTLED}
    assert found(acquired(1, "A"), lost(55, "C", 54), later, *losses) == set()


def test_what_was_accepted_is_not_delivered_again():
    done = (acquired(1, "A"), *accepted(2, "A"))
    assert found(*done, acquired(9, "B", 2)) == {Rule.DONE_AGAIN}
    assert found(*done, acquired(9, "B", 2, asked=1.0)) == set()
    # One that was a leader before may not know that it is none.
    assert found(*done[:1], *accepted(2, "A", epoch=2), acquired(9, "B", 1)) == set()


def test_nobody_gets_what_another_one_holds():
    both = (acquired(1, "A"), acquired(2, "B", 2), ShareAnswered(3, "g", "A", 2.5))
    end = accepted(8, "B", 2)
    assert found(*both, *end) == {Rule.TWO_HOLDERS}
    assert found(both[0], said(1.5, "A", "release"), *both[1:], *end) == set()


def test_a_session_that_was_lost_holds_nothing():
    both, end = (acquired(1, "A"), acquired(2, "B", 2)), accepted(8, "B", 2)
    assert found(*both, *end) == set()
    assert found(*both, ShareAnswered(3, "g", "A", 1.5), lost(4, "A"), *end) == set()


def test_a_lock_ends_with_its_time_and_with_its_leader():
    later = ShareAnswered(9, "g", "A", 8)
    assert found(acquired(1, "A"), acquired(5.6, "B", 2), later, *accepted(8, "B", 2)) == set()
    assert found(acquired(1, "A"), acquired(5.4, "B", 2), later, *accepted(8, "B", 2)) == {Rule.TWO_HOLDERS}
    assert found(acquired(1, "A"), acquired(2, "B", epoch=2), later, *accepted(8, "B", epoch=2)) == set()
    assert found(acquired(1, "A"), acquired(2, "B", epoch=None), later, *accepted(8, "B")) == set()


def test_a_lock_that_was_renewed_lasts_longer():
    renewed = (acquired(1, "A"), said(4, "A", "renew"), told(4.1, "A", "renew"), acquired(6, "B", 2))
    assert found(*renewed, ShareAnswered(7, "g", "A", 6.5), *accepted(8, "B", 2)) == {Rule.TWO_HOLDERS}


def test_a_delivery_count_is_not_more_than_there_were_deliveries():
    assert found(acquired(1, "A", 2), *accepted(2, "A")) == {Rule.DELIVERY_COUNT}
    assert found(lost(1, "A", 0.5), acquired(2, "B", 2), *accepted(3, "B")) == set()
    assert found(*(acquired(10 * count, "A", count) for count in (1, 2, 3, 4)), *accepted(50, "A")) == {
        Rule.DELIVERY_COUNT
    }


def test_a_delivery_may_be_heard_of_after_the_next_one():
    second, end = acquired(20, "B", 2, asked=19.9), accepted(21, "B", 2)
    assert found(second, lost(24, "A", 10), *end) == set()  # A waited for 14 s and heard nothing
    assert found(second, acquired(20.1, "A", 1, asked=10), *end) == set()
    assert found(second, lost(24, "A", 20.1), *end) == {Rule.DELIVERY_COUNT}  # it had not asked yet
    assert found(second, lost(24, "A"), *end) == {Rule.DELIVERY_COUNT}
    assert found(second, acquired(20.1, "A", 1, asked=10)._replace(first=7, last=7), *end) == {Rule.DELIVERY_COUNT}
    assert found(second._replace(delivery_count=3), lost(24, "A", 10), *end) == {Rule.DELIVERY_COUNT}
    calm = (acquired(100, "A"), acquired(120, "B", 3, asked=119), *accepted(121, "B", 3))
    assert found(*calm) == {Rule.DELIVERY_COUNT}
    assert found(*calm, lost(124, "C", 110)) == set()


def test_a_delivery_count_does_not_fall_behind_what_is_stored():
    released = (acquired(1, "A"), said(2, "A", "release"), told(2.1, "A", "release"))
    assert found(*released, acquired(3, "B", 1, epoch=2), *accepted(4, "B", epoch=2)) == {Rule.DELIVERY_COUNT}
    assert found(*released, acquired(3, "B", 2, epoch=2), *accepted(4, "B", epoch=2)) == set()


def test_a_delivery_count_goes_on_in_a_calm():
    again = (acquired(100, "A"), acquired(110, "B", 1), *accepted(112, "B"))
    assert found(*again) == {Rule.DELIVERY_COUNT}
    assert found(FaultBegan(90, "SIGKILL", "broker 1"), *again) == set()
    assert found(acquired(100, "A"), acquired(110, "B", 1, epoch=2), *accepted(112, "B", epoch=2)) == set()


def owned(at, member, epoch):
    return Owned(at, "c", member, epoch, "t", 0)


def disowned(at, member, was_member):
    return Disowned(at, "c", member, "t", 0, was_member)


def owners(*events):
    return found(acquired(1, "A"), *accepted(2, "A"), *events)


def test_a_partition_goes_from_one_owner_to_the_next():
    assert owners(owned(1, "A", 1), owned(2, "A", 2), disowned(3, "A", 3), owned(4, "B", 3)) == set()


def test_no_epoch_has_two_owners():
    assert owners(owned(1, "A", 1), disowned(3, "A", 0), owned(4, "B", 1)) == {Rule.TWO_OWNERS}


def test_a_partition_has_one_owner_at_a_time():
    assert owners(owned(1, "A", 1), owned(2, "B", 2), disowned(5, "A", 4)) == {Rule.TWO_OWNERS}
    assert owners(owned(1, "A", -1), owned(2, "B", -1), disowned(5, "A", 4)) == {Rule.TWO_OWNERS}


def test_who_was_put_out_may_hear_of_it_late():
    assert owners(owned(1, "A", 1), owned(20, "B", 2), disowned(25, "A", 5)) == set()
