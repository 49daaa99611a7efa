"""Each cause that a coordinator notes is made to happen, and its sentence is compared."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ottla.groupcoord.classic.rebalancing import NEW_MEMBER_JOIN_TIMEOUT_MS
from ottla.groupcoord.tests.consumer_conversation import REBALANCE_TIMEOUT_MS, SESSION_TIMEOUT_MS, ConsumerConversation
from ottla.groupcoord.tests.conversation import INITIAL_DELAY_MS, REBALANCE_MS, SESSION_MS, START_MS, Conversation
from ottla.groupcoord.tests.share_talk import SHARE_SESSION_MS, ShareTalk
from ottla.groupcoord.tests.streams.test_streams_groups import Streams
from ottla.groupcoord.tests.transaction_conversation import TIMEOUT_MS, Transactions
from ottla.wire.errors import ErrorCode
from ottla.wire.happenings import (
    COMMIT_REFUSED,
    MEMBER_FENCED,
    MEMBER_REFUSED,
    MEMBER_REMOVED,
    PRODUCER_FENCED,
    REBALANCE,
    TRANSACTION_ABORTED,
    Happening,
    Happenings,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

CLIENT = "; its client is 'client' at 127.0.0.1"


def causes(happenings: Happenings, kind: str) -> list[str]:
    return [each.cause.removesuffix(CLIENT) for each in happenings if each.kind == kind]


def only(happenings: Happenings, kind: str) -> Happening:
    (found,) = (each for each in happenings if each.kind == kind)
    return found


# ---------------------------------------------------------------------- members that go


def test_a_classic_member_that_is_silent() -> None:
    talk = Conversation()
    talk.stable_group(1)
    talk.advance(SESSION_MS)
    removed = only(talk.happenings, MEMBER_REMOVED)
    assert removed.cause == (
        "member 'client-uuid1' of group 'group' was removed because it sent no heartbeat for 10 s (its session timeout)"
        + CLIENT
    )
    assert removed.first_ms == START_MS + INITIAL_DELAY_MS + SESSION_MS
    assert removed.facts == {
        "group": "group",
        "member": "client-uuid1",
        "client_id": "client",
        "host": "127.0.0.1",
    }
    assert causes(talk.happenings, REBALANCE) == [
        "classic group 'group' rebalanced to generation 1 with 1 member after 3 s, because member 'client-uuid1' is new",
        (
            "classic group 'group' rebalanced to generation 2 with no members, because member 'client-uuid1' was silent for"
            " too long"
        ),
    ]


def test_a_classic_member_that_does_not_join_again() -> None:
    talk = Conversation()
    joins = talk.stable_group(2, session_ms=60_000)
    talk.join(joins[0].response.member_id, session_ms=60_000, reason="cached metadata has changed")
    talk.advance(REBALANCE_MS)
    assert causes(talk.happenings, MEMBER_REMOVED) == [
        (
            "member 'client-uuid2' of group 'group' was removed because it did not join again within 30 s of the beginning of"
            " a rebalance (the longest rebalance timeout of the members; in Java's consumer max.poll.interval.ms)"
        )
    ]
    assert causes(talk.happenings, REBALANCE)[-1] == (
        "classic group 'group' rebalanced to generation 2 with 1 member after 30 s, because member 'client-uuid1' joins"
        " again in Stable (it says: 'cached metadata has changed'); 1 did not join again"
    )


def test_a_classic_member_that_leaves_says_why() -> None:
    talk = Conversation()
    joins = talk.stable_group(1)
    talk.leave((joins[0].response.member_id, None), reason="consumer poll timeout has expired.")
    assert causes(talk.happenings, MEMBER_REMOVED) == [
        "member 'client-uuid1' of group 'group' left (it says: 'consumer poll timeout has expired.')"
    ]


def test_a_classic_member_that_never_asks_for_its_assignment() -> None:
    talk = Conversation()
    talk.join_twice(session_ms=600_000)
    talk.advance(INITIAL_DELAY_MS + REBALANCE_MS)
    assert causes(talk.happenings, MEMBER_REMOVED) == [
        (
            "member 'client-uuid1' of group 'group' was removed because it did not ask for its assignment (SyncGroup) for"
            " 30 s, the longest rebalance timeout"
        )
    ]


def test_a_member_id_that_nobody_uses() -> None:
    talk = Conversation()
    talk.join()
    talk.advance(SESSION_MS)
    assert causes(talk.happenings, MEMBER_REMOVED) == [
        (
            "member 'client-uuid1' of group 'group' was removed because no JoinGroup with this new member id came within the"
            " session timeout of its client"
        )
    ]


def test_a_new_member_that_waits_in_vain_or_disconnects() -> None:
    talk = Conversation()
    talk.stable_group(1, session_ms=600_000, rebalance_ms=600_000)
    first, second = talk.join_twice(), talk.join_twice()
    talk.disconnect(second)
    talk.advance(NEW_MEMBER_JOIN_TIMEOUT_MS)
    assert first.error is ErrorCode.UNKNOWN_MEMBER_ID
    assert causes(talk.happenings, MEMBER_REMOVED) == [
        "member 'client-uuid3' of group 'group' was removed because its connection ended while its first JoinGroup waited",
        "member 'client-uuid2' of group 'group' was removed because no rebalance ended within 300 s of its first JoinGroup",
    ]


def test_members_of_consumer_groups() -> None:
    talk = ConsumerConversation()
    talk.come("a")
    talk.stay("a")
    talk.come("b")
    talk.go("b")
    talk.come("b")
    talk.stay("b")
    # "a" goes on to own both partitions, and is asked to give up one.
    for _ in range(4):
        talk.heartbeat("a", talk.group().members["a"].epoch, owned={"topic": {0, 1}})
        talk.advance(REBALANCE_TIMEOUT_MS // 3)
    talk.advance(SESSION_TIMEOUT_MS)
    assert causes(talk.happenings, MEMBER_REMOVED) == [
        "member 'b' of group 'group' left",
        "member 'a' of group 'group' was removed because it did not give up its partitions in time",
        "member 'b' of group 'group' was removed because it sent no heartbeat for 45 s (its session timeout)",
    ]
    assert causes(talk.happenings, REBALANCE)[0] == (
        "consumer group 'group' rebalanced to generation 2 with 1 member, because member 'a' is new"
    )


def test_a_topic_that_gets_more_partitions() -> None:
    talk = ConsumerConversation()
    talk.come("a")
    talk.images.put("topic", 5)
    talk.stay("a")
    assert causes(talk.happenings, REBALANCE)[-1] == (
        "consumer group 'group' rebalanced to generation 3 with 1 member, because their topics have changed"
    )


def test_members_of_share_and_streams_groups() -> None:
    share, streams = ShareTalk(), Streams()
    share.joined("a")
    share.advance(SHARE_SESSION_MS)
    silent = "it sent no heartbeat for 45 s (its session timeout)"
    assert causes(share.happenings, MEMBER_REMOVED) == [
        f"member 'a' of group 'group' was removed because {silent}",
    ]
    streams.enter("a")
    streams.enter("b")
    streams.beat("b", -1)
    streams.advance(SHARE_SESSION_MS)
    assert causes(streams.happenings, MEMBER_REMOVED) == [
        "member 'b' of group 'group' left",
        f"member 'a' of group 'group' was removed because {silent}",
    ]


# ---------------------------------------------------------------------- members that are refused


def test_a_static_member_is_fenced_by_the_next_one() -> None:
    talk = Conversation()
    first = talk.join(instance="i")
    talk.advance(INITIAL_DELAY_MS)
    talk.settle_generation([first])
    talk.join(instance="i", client_id="other")
    talk.join(first.response.member_id, instance="i")
    assert talk.commit(joined=first, group_instance_id="i") is ErrorCode.FENCED_INSTANCE_ID
    # Repetitions are counted: the second refusal of this member has the latest sentence.
    fenced = only(talk.happenings, MEMBER_FENCED)
    assert fenced.count == 2 and fenced.facts["error"] == "FENCED_INSTANCE_ID"
    assert fenced.cause.removesuffix(CLIENT) == (
        "group 'group' answered member 'i-uuid1' with FENCED_INSTANCE_ID: its group.instance.id 'i' belongs to member"
        " 'i-uuid2' now"
    )
    assert causes(talk.happenings, COMMIT_REFUSED) == [
        (
            "a commit of offsets to group 'group' by member 'i-uuid1' was refused with FENCED_INSTANCE_ID: its"
            " group.instance.id 'i' belongs to another member now"
        )
    ]


def test_a_static_member_hears_who_took_its_place() -> None:
    talk = Conversation()
    talk.join(instance="i")
    talk.advance(INITIAL_DELAY_MS)
    talk.join(instance="i", client_id="other")
    assert causes(talk.happenings, MEMBER_FENCED) == [
        (
            "group 'group' answered member 'i-uuid1' with FENCED_INSTANCE_ID: 'other' at 127.0.0.1 came with its"
            " group.instance.id 'i', and is member 'i-uuid2' now"
        )
    ]


@pytest.mark.parametrize(
    ("settings", "joining", "sentence"),
    [
        (
            {},
            {"protocols": {"cooperative-sticky": b"", "roundrobin": b""}},
            (
                "a client that wants to join with INCONSISTENT_GROUP_PROTOCOL: it offers cooperative-sticky, roundrobin of type"
                " 'consumer', and the members have range of type 'consumer'"
            ),
        ),
        (
            {},
            {"protocols": {f"a{number}": b"" for number in range(7)}},
            (
                "a client that wants to join with INCONSISTENT_GROUP_PROTOCOL: it offers a0, a1, a2, a3, a4 and 2 more of type"
                " 'consumer', and the members have range of type 'consumer'"
            ),
        ),
        (
            {"group_max_size": 1},
            {},
            "a client that wants to join with GROUP_MAX_SIZE_REACHED: it has as many members as group.max.size allows",
        ),
        (
            {},
            {"member_id": "nobody"},
            (
                "member 'nobody' with UNKNOWN_MEMBER_ID: the group has no such member: it was removed, or another coordinator did"
                " not know it"
            ),
        ),
    ],
)
def test_a_refused_join_is_told_why(settings: dict[str, Any], joining: dict[str, Any], sentence: str) -> None:
    talk = Conversation(**settings)
    talk.stable_group(1)
    talk.join(**joining)
    assert causes(talk.happenings, MEMBER_REFUSED) == [f"group 'group' answered {sentence}"]


def test_a_first_member_has_to_offer_a_protocol() -> None:
    talk = Conversation()
    talk.join(protocols={}, protocol_type="connect")
    assert causes(talk.happenings, MEMBER_REFUSED) == [
        (
            "group 'group' answered a client that wants to join with INCONSISTENT_GROUP_PROTOCOL: it offers no protocol of type"
            " 'connect', and the first member has to offer a protocol with a type"
        )
    ]


@pytest.mark.parametrize(
    ("kind", "epoch", "sentence"),
    [
        (MEMBER_FENCED, 7, "group 'group' answered member 'a' with FENCED_MEMBER_EPOCH: "),
        (
            MEMBER_REFUSED,
            1,
            "group 'group' answered member 'b' with UNKNOWN_MEMBER_ID: Member b is not a member of group",
        ),
    ],
)
def test_heartbeats_of_consumer_groups_that_are_refused(kind: str, epoch: int, sentence: str) -> None:
    talk = ConsumerConversation()
    talk.come("a")
    talk.heartbeat("a" if epoch == 7 else "b", epoch)
    (cause,) = causes(talk.happenings, kind)
    assert cause.startswith(sentence)


def test_heartbeats_of_share_and_streams_groups_that_are_refused() -> None:
    share, streams = ShareTalk(), Streams()
    share.joined("a")
    share.beat("b", 5)
    assert causes(share.happenings, MEMBER_REFUSED)[0].startswith(
        "group 'group' answered member 'b' with UNKNOWN_MEMBER_ID: "
    )
    streams.enter("a")
    streams.beat("a", 77)
    assert causes(streams.happenings, MEMBER_FENCED)[0].startswith(
        "group 'group' answered member 'a' with FENCED_MEMBER_EPOCH: "
    )


# ---------------------------------------------------------------------- commits


def test_commits_that_are_refused() -> None:
    talk = Conversation()
    (joined,) = talk.stable_group(1)
    talk.commit(joined=joined, generation_id_or_member_epoch=0)
    talk.commit(member_id="nobody", generation_id_or_member_epoch=1)
    talk.commit()
    talk.commit(group="none", member_id="x", generation_id_or_member_epoch=3)
    again = talk.join(joined.response.member_id)
    talk.commit(joined=again)
    refused = "was refused with"
    assert causes(talk.happenings, COMMIT_REFUSED) == [
        (
            f"a commit of offsets to group 'group' by member 'client-uuid1' {refused} ILLEGAL_GENERATION: it names generation"
            " 0 where the group is at 1"
        ),
        (
            f"a commit of offsets to group 'group' by member 'nobody' {refused} UNKNOWN_MEMBER_ID: its member is not in the"
            " group any more, and the group has 1 member"
        ),
        (
            f"a commit of offsets to group 'group' by a client that names no member {refused} UNKNOWN_MEMBER_ID: it names no"
            " member, and the group has 1 member"
        ),
        (
            f"a commit of offsets to group 'none' by member 'x' {refused} GROUP_ID_NOT_FOUND: it names generation 3, and this"
            " coordinator knows no such group"
        ),
        (
            f"a commit of offsets to group 'group' by member 'client-uuid1' {refused} REBALANCE_IN_PROGRESS: the group"
            " rebalances, and the member does not know its partitions yet"
        ),
    ]


# ---------------------------------------------------------------------- producers


def producers(kinds: tuple[str, ...], talk: Transactions) -> Iterator[str]:
    return (each.cause for each in talk.happenings if each.kind in kinds)


def test_producers_that_are_fenced_and_transactions_that_are_aborted() -> None:
    talk = Transactions()
    first = talk.init()
    talk.init()
    talk.init(expected=(first.producer_id, first.producer_epoch))
    assert list(producers((PRODUCER_FENCED,), talk)) == [
        "Producer of 'tx' with producer id 1000, epoch 0 is fenced, because another one has come for that id",
        "Refused a producer of 'tx', which is fenced: it does not have producer id 1000, epoch 1",
    ]
    second = talk.init()
    talk.add(second)
    talk.init()
    assert next(producers((TRANSACTION_ABORTED,), talk)).startswith(
        "Transaction of 'tx' is aborted, because another producer has come for that id: producer id 1000, epoch 2, 2"
    )


def test_a_transaction_that_is_too_old() -> None:
    talk = Transactions()
    answer = talk.init()
    talk.add(answer)
    talk.advance(TIMEOUT_MS * 2)
    (cause,) = producers((TRANSACTION_ABORTED,), talk)
    assert cause == (
        "Transaction of 'tx' is aborted, because it is older than its timeout of 60000 ms: producer id 1000, epoch 0, 2"
        " partitions. That producer is fenced"
    )
