"""A rebalance is one line of the log, with its group, generation, members and reason, whatever the kind of the group."""

import logging
from typing import Any

import pytest

from ottla.groupcoord.consumer.patterns import REFRESH_INTERVAL_MIN_MS
from ottla.groupcoord.group import AskLastRebalance, LastRebalance
from ottla.groupcoord.tests.classic.test_classic import rejoin
from ottla.groupcoord.tests.consumer_conversation import SESSION_TIMEOUT_MS, ConsumerConversation
from ottla.groupcoord.tests.conversation import GROUP, REBALANCE_MS, START_MS, Conversation
from ottla.groupcoord.tests.share_talk import SHARE_SESSION_MS, ShareTalk
from ottla.groupcoord.tests.streams.test_streams_groups import Streams
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.streams_group import KeyValue


@pytest.fixture(autouse=True)
def told(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "ottla.groupcoord")
    return caplog


def test_a_classic_group_says_once_why_it_rebalanced(told: pytest.LogCaptureFixture) -> None:
    talk = Conversation()
    joins = talk.stable_group(3, session_ms=60_000)
    assert [each.partition(": ")[0] for each in told.messages] == ["Rebalance of classic group 'group'"]
    assert "generation 1, members 3, because member " in told.messages[0] and told.messages[0].endswith("is new")
    told.clear()
    again = rejoin(talk, joins[0], session_ms=60_000)
    talk.advance(REBALANCE_MS)
    (line,) = told.messages
    assert line.startswith("Rebalance of classic group 'group': generation 2, members 1, because member ")
    assert line.endswith("; 2 did not join again")
    told.clear()
    talk.leave((again.response.member_id, None))
    assert told.messages == ["Rebalance of classic group 'group': generation 3, members 0, because 1 member left"]


def test_a_consumer_group_says_once_why_it_rebalanced(told: pytest.LogCaptureFixture) -> None:
    talk = ConsumerConversation()
    talk.come("a")
    talk.come("b")
    talk.go("b")
    talk.advance(SESSION_TIMEOUT_MS)
    assert [each.partition(": ")[2] for each in told.messages] == [
        "generation 2, members 1, because member 'a' is new",
        "generation 3, members 2, because member 'b' is new",
        "generation 4, members 1, because member 'b' has left",
        "generation 5, members 0, because member 'a' was silent for too long",
    ]
    assert {each.partition(": ")[0] for each in told.messages} == {"Rebalance of consumer group 'group'"}


def reasons(told: pytest.LogCaptureFixture) -> list[str]:
    return [each.partition("because ")[2] for each in told.messages]


def last_rebalance(talk: Conversation) -> LastRebalance | None:
    found: LastRebalance | None = talk.shard.read(AskLastRebalance(GROUP), now_ms=talk.now_ms)
    return found


def test_a_consumer_group_tells_what_members_and_topics_have_done(told: pytest.LogCaptureFixture) -> None:
    talk = ConsumerConversation()
    talk.come("a")
    talk.stay("a", subscribed_topic_names=["topic", "other"])
    talk.images.put("other", 3)
    talk.stay("a")
    talk.stay("a", subscribed_topic_names=[], subscribed_topic_regex="top.*")
    talk.stay("a", server_assignor="range")
    talk.images.put("topics", 1)
    talk.advance(REFRESH_INTERVAL_MIN_MS + 1)
    talk.stay("a")
    assert reasons(told) == [
        "member 'a' is new",
        "member 'a' reads other topics",
        "their topics have changed",
        "member 'a' reads other topics",
        "a regular expression stands for other topics",
        "most members ask for another assignor",
        "a regular expression stands for other topics",
    ]
    assert last_rebalance(talk) == (START_MS + talk.now_ms, 7, reasons(told)[-1])


def test_a_share_group_tells_why_its_epoch_rises(told: pytest.LogCaptureFixture) -> None:
    talk = ShareTalk()
    talk.joined("a")
    assert reasons(told) == ["member 'a' is new", "other partitions than are assigned may be shared now"]
    told.clear()
    talk.beat("a", talk.epoch_of("a"), "topic", "other")
    talk.images.put("topic", 4)
    talk.beat("a", talk.epoch_of("a"))
    talk.advance(SHARE_SESSION_MS)
    assert reasons(told) == [
        "member 'a' reads other topics",
        "their topics have changed",
        "member 'a' was silent for too long",
    ]
    assert {each.partition(": ")[0] for each in told.messages} == {"Rebalance of share group 'group'"}
    kept = last_rebalance(talk)
    assert kept is not None and kept.reason == "member 'a' was silent for too long"


def test_a_streams_group_tells_why_its_epoch_rises(told: pytest.LogCaptureFixture) -> None:
    talk = Streams()
    first = talk.enter("a")
    kept = last_rebalance(talk)
    assert kept == (START_MS, first.member_epoch - 1, "member 'a' is new")
    talk.beat("a", first.member_epoch, client_tags=[KeyValue(key="zone", value="1")])
    talk.images.put("topic", 3)
    talk.beat("a", talk.group().members["a"].member_epoch)
    talk.beat("a", -1)
    assert reasons(told) == [
        "member 'a' is new",
        "member 'a' says other things of itself",
        "their topics have changed",
        "member 'a' has left",
    ]
    assert {each.partition(": ")[0] for each in told.messages} == {"Rebalance of streams group 'group'"}


@pytest.mark.parametrize("talk", [ConsumerConversation(), ShareTalk(), Streams()], ids=["consumer", "share", "streams"])
def test_a_rebalance_that_the_log_refuses_is_not_the_last_one(talk: Any) -> None:
    begin = {ConsumerConversation: "come", ShareTalk: "beat", Streams: "enter"}[type(talk)]
    getattr(talk, begin)("a")
    before = last_rebalance(talk)
    assert before is not None and before.reason == "member 'a' is new"
    talk.refuse_appends = ErrorCode.NOT_COORDINATOR
    getattr(talk, begin)("b")
    assert last_rebalance(talk) == before
    talk.refuse_appends = ErrorCode.NONE
    getattr(talk, begin)("b")
    again = last_rebalance(talk)
    assert again is not None and again.reason == "member 'b' is new"


def test_a_classic_group_answers_the_same_question() -> None:
    talk = Conversation()
    talk.stable_group(1)
    found = last_rebalance(talk)
    assert found is not None and found.after_generation == 0 and found.reason.endswith("is new")
