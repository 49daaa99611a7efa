"""A rebalance is one line of the log, with its group, generation, members and reason, whatever the kind of the group."""

import logging

import pytest

from ottla.groupcoord.tests.consumer_conversation import SESSION_TIMEOUT_MS, ConsumerConversation
from ottla.groupcoord.tests.conversation import REBALANCE_MS, Conversation
from ottla.groupcoord.tests.test_classic import rejoin


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
    assert told.messages == ["Rebalance of classic group 'group': generation 3, members 0, because 1 members left"]


def test_a_consumer_group_says_once_why_it_rebalanced(told: pytest.LogCaptureFixture) -> None:
    talk = ConsumerConversation()
    talk.come("a")
    talk.come("b")
    talk.go("b")
    talk.advance(SESSION_TIMEOUT_MS)
    assert [each.partition(": ")[2] for each in told.messages] == [
        "generation 2, members 1, because members or their subscriptions have changed",
        "generation 3, members 2, because members or their subscriptions have changed",
        "generation 4, members 1, because member 'b' left",
        "generation 5, members 0, because member 'a' was silent for too long",
    ]
    assert {each.partition(": ")[0] for each in told.messages} == {"Rebalance of consumer group 'group'"}
