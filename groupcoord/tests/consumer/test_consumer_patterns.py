"""Subscriptions by regular expression: resolved beside the loop, written, and held against new topics."""

from typing import Any

import pytest

from ottla.groupcoord.consumer import patterns, rebalancing
from ottla.groupcoord.consumer.patterns import REFRESH_INTERVAL_MIN_MS, resolve
from ottla.groupcoord.modern import assignor
from ottla.groupcoord.tests.consumer_conversation import (
    INTERVAL_MS,
    ConsumerConversation,
    Owned,
    all_partitions,
    snapshot,
)
from ottla.groupcoord.tests.conversation import Asked
from ottla.wire.errors import ErrorCode


@pytest.fixture
def talk() -> ConsumerConversation:
    return ConsumerConversation()


def reads(talk: ConsumerConversation, member_id: str = "a") -> Owned:
    """What a member has after its next heartbeats."""
    talk.advance(INTERVAL_MS)
    talk.stay(member_id)
    return talk.owned(member_id)


def come(talk: ConsumerConversation, pattern: str, member_id: str = "a", **details: object) -> Asked:
    return talk.come(member_id, subscribed_topic_regex=pattern, **details)


def test_a_pattern_is_resolved_after_the_answer_and_assigned_with_the_next_heartbeat(
    talk: ConsumerConversation,
) -> None:
    talk.holds_jobs = True
    came = come(talk, "to.*|oth[a-z]r")
    assert (came.error, talk.told(came)) == (ErrorCode.NONE, {})
    assert talk.group().group_epoch == 1 and not talk.group().resolved
    talk.do_jobs()
    assert talk.group().group_epoch == 2
    assert reads(talk) == {"topic": {0, 1}, "other": {0}}
    (resolved,) = talk.group().resolved.values()
    assert resolved.topics == ["other", "topic"]
    assert talk.described().members[0].subscribed_topic_regex == "to.*|oth[a-z]r"


def test_the_whole_name_has_to_match(talk: ConsumerConversation) -> None:
    come(talk, "top")
    assert reads(talk) == {}


@pytest.mark.parametrize("pattern", ["(", "a{2000}", "(?=a)", "\\1", "x" * 40_000, "\ud800"])
def test_what_is_no_pattern_is_refused_and_changes_nothing(talk: ConsumerConversation, pattern: str) -> None:
    refused = come(talk, pattern)
    assert refused.error is ErrorCode.INVALID_REGULAR_EXPRESSION and not talk.listed()
    talk.come("a")
    before = snapshot(talk)
    refused = talk.heartbeat("a", 2, subscribed_topic_regex=pattern)
    assert refused.error is ErrorCode.INVALID_REGULAR_EXPRESSION and snapshot(talk) == before


def test_new_topics_are_found_after_a_while(talk: ConsumerConversation) -> None:
    come(talk, "topic.*")
    assert reads(talk) == {"topic": {0, 1}}
    talk.images.put("topic-new", 1)
    assert reads(talk) == {"topic": {0, 1}}, "patterns are not looked at all the time"
    talk.advance(REFRESH_INTERVAL_MIN_MS)
    talk.stay("a")
    assert reads(talk) == {"topic": {0, 1}, "topic-new": {0}}
    written = len(talk.log)
    talk.advance(REFRESH_INTERVAL_MIN_MS)
    talk.stay("a")
    assert len(talk.log) == written, "no topic has changed"


def test_new_topics_are_found_even_if_the_log_refuses_the_first_time(talk: ConsumerConversation) -> None:
    come(talk, "topic.*")
    assert reads(talk) == {"topic": {0, 1}}
    talk.images.put("topic-new", 1)
    talk.advance(REFRESH_INTERVAL_MIN_MS)
    talk.holds_jobs = True
    talk.stay("a")
    talk.refuse_appends = ErrorCode.COORDINATOR_NOT_AVAILABLE
    talk.do_jobs()
    talk.refuse_appends = ErrorCode.NONE
    talk.holds_jobs = False
    talk.stay("a")
    assert reads(talk) == {"topic": {0, 1}, "topic-new": {0}}


def test_a_deleted_topic_is_given_up_at_once(talk: ConsumerConversation) -> None:
    come(talk, "topic|other")
    assert reads(talk) == {"topic": {0, 1}, "other": {0}}
    talk.images.remove("other")
    assert reads(talk) == {"topic": {0, 1}}


def test_a_known_pattern_counts_at_once_for_the_next_member(talk: ConsumerConversation) -> None:
    come(talk, "topic")
    assert reads(talk) == {"topic": {0, 1}}
    talk.advance(INTERVAL_MS)
    come(talk, "topic", "b")
    assert talk.group().assignment_epoch == talk.group().group_epoch
    assert len(talk.group().target_of("b")) == 1
    assert talk.group().is_homogeneous
    come(talk, "other", "c")
    assert not talk.group().is_homogeneous


def test_a_pattern_that_nobody_has_any_more_is_forgotten(talk: ConsumerConversation) -> None:
    come(talk, "topic")
    come(talk, "other", "b")
    talk.advance(REFRESH_INTERVAL_MIN_MS + 1)
    talk.stay("a")
    assert set(talk.group().resolved) == {"topic", "other"}
    talk.go("b")
    assert set(talk.group().resolved) == {"topic"}
    talk.heartbeat("a", talk.group().members["a"].epoch, subscribed_topic_regex="", subscribed_topic_names=["other"])
    assert not talk.group().resolved and list(talk.group().subscriptions.topics) == ["other"]
    assert reads(talk) == {"other": {0}}


def test_names_and_a_pattern_add_up(talk: ConsumerConversation) -> None:
    come(talk, "topic", subscribed_topic_names=["other"])
    assert reads(talk) == {"topic": {0, 1}, "other": {0}}


def test_resolved_patterns_survive_a_restart_and_are_looked_at_again(talk: ConsumerConversation) -> None:
    come(talk, "topic.*")
    assert reads(talk) == {"topic": {0, 1}}
    before = snapshot(talk)
    talk.images.put("topic-new", 1)
    talk.restart()
    assert snapshot(talk) == before
    talk.advance(REFRESH_INTERVAL_MIN_MS)
    talk.stay("a")
    assert reads(talk) == {"topic": {0, 1}, "topic-new": {0}}


def test_a_result_for_a_group_that_is_gone_is_dropped(talk: ConsumerConversation) -> None:
    talk.holds_jobs = True
    come(talk, "topic")
    talk.go("a")
    talk.delete_group()
    talk.do_jobs()
    assert not talk.listed()
    come(talk, "topic")
    talk.do_jobs()
    assert reads(talk) == {"topic": {0, 1}}


def test_a_result_that_a_bug_has_prevented_is_asked_for_again(talk: ConsumerConversation) -> None:
    talk.holds_jobs = True
    come(talk, "topic")
    (job,) = talk.jobs
    talk.jobs.clear()
    talk.ask(job.request(None), 0)
    talk.stay("a")
    talk.do_jobs()
    assert reads(talk) == {"topic": {0, 1}}


def test_what_would_take_too_long_is_not_resolved() -> None:
    names = [f"{number:0249}" for number in range(8000)]
    cheap, dear = "0*1", "(a?){400}"
    assert resolve([cheap, dear], names) == {cheap: [f"{1:0249}"], dear: None}


def test_topics_of_a_pattern_that_takes_too_long_stay(talk: ConsumerConversation) -> None:
    come(talk, "topic")
    assert reads(talk) == {"topic": {0, 1}}
    talk.holds_jobs = True
    talk.images.put("new", 1)
    talk.advance(REFRESH_INTERVAL_MIN_MS)
    talk.stay("a")
    (job,) = talk.jobs
    talk.jobs.clear()
    epoch = talk.group().group_epoch
    talk.ask(job.request({"topic": None}), 0)
    assert reads(talk) == {"topic": {0, 1}} and talk.group().group_epoch == epoch


def test_topics_of_a_pattern_are_put_together_for_each_member_beside_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rebalancing, "MIXED_SIZE_AT_ONCE", 0)
    talk = ConsumerConversation()
    for number in range(20):
        talk.images.put(f"many-{number}", 1)
    for number in range(6):
        names = ["topic"] if number % 2 else []
        talk.come(f"m{number}", subscribed_topic_names=names, subscribed_topic_regex="many-.*")
    talk.settle(4 * 6)
    members = list(talk.group().members.values())
    assert len({id(talk.group().matched_by(each)) for each in members}) == 1, "one set for all"
    looked_up: list[object] = []
    of = assignor._TopicIds.of

    def counted(*arguments: Any) -> Any:
        looked_up.append(arguments)
        return of(*arguments)

    monkeypatch.setattr(assignor._TopicIds, "of", counted)
    talk.holds_jobs = True
    talk.come("last", subscribed_topic_regex="many-.*")
    assert talk.jobs
    assert not looked_up
    talk.holds_jobs = False
    talk.do_jobs()
    assert len(looked_up) == 7
    talk.settle(4 * 6)
    owned = all_partitions(*[talk.owned(each) for each in talk.group().members])
    assert len(owned) == len(set(owned)) == 22


def test_patterns_that_stand_for_too_much_together_are_left_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patterns, "CHARACTERS_MAX", 30)
    assert resolve(["a.*", "aa|b", ".*", "b"], ["aa", "ab", "b"]) == {
        "a.*": ["aa", "ab"],
        "aa|b": None,
        ".*": None,
        "b": ["b"],
    }
    monkeypatch.setattr(patterns, "CHARACTERS_MAX", 5)
    assert resolve([".*", "b"], ["aa", "ab", "b"]) == {".*": ["aa", "ab", "b"], "b": None}
