"""Groups brought into each state of their state machine, and those who may speak to them."""

from typing import Any, NamedTuple

from compat_tests.differential.asking_groups import Member, leave_request, until_state
from compat_tests.differential.conversation import Talk

from ottla.wire.errors import ErrorCode
from ottla.wire.messages.classic_group import JoinGroupRequest
from ottla.wire.messages.groups import DeleteGroupsRequest

NONE, DELETED, EMPTY = "no group", "deleted", "Empty"
PREPARING, COMPLETING, STABLE = "PreparingRebalance", "CompletingRebalance", "Stable"
STATES = (NONE, DELETED, EMPTY, PREPARING, COMPLETING, STABLE)


class Stage(NamedTuple):
    """A group that was brought into a state without a word in the transcript.

    Its static member leads. The dynamic one follows; in PreparingRebalance its join waits for the leader's. Somebody
    was told to join with the member id `pending`, and `fenced` had the leader's instance before.
    """

    group: str
    leader: Member
    follower: Member
    pending: str
    fenced: str

    @property
    def generation_id(self) -> int:
        return self.leader.generation_id


def stage(talk: Talk, state: str, *, kind: str = "", pending: bool = True, **details: Any) -> Stage:
    """`kind` tells two groups of one state apart. Somebody `pending` keeps a rebalance from ending, if there is one."""
    kind = f"{kind} {state}".strip()
    group = talk.group(kind.replace(" ", "-"))
    leader = Member(talk, group, f"{kind} leader", instance="one", quiet=True, **details)
    follower = Member(talk, group, f"{kind} follower", quiet=True, **details)
    if state == NONE:
        leader.member_id, follower.member_id, leader.generation_id, follower.generation_id = "leader", "follower", 1, 1
        leader.protocol_name = follower.protocol_name = "range"
        return Stage(group, leader, follower, "pending", "fenced")
    leader.join()
    leader.sync({leader: b"first"})
    fenced, leader.member_id = leader.member_id, ""
    leader.join()
    follower.send_join()
    until_state(talk, group, PREPARING, 2)
    leader.join()
    follower.joined()
    if state != COMPLETING:
        leader.sync({leader: b"leader's", follower: b"follower's"})
        follower.sync()
    if state in (EMPTY, DELETED):
        talk.do(leave_request(group, (leader.member_id, "one"), (follower.member_id, None)))
    if state == PREPARING:
        follower.send_join(protocols={name: data + b"changed" for name, data in follower.protocols.items()})
        until_state(talk, group, PREPARING)
    if state == DELETED:
        talk.do(DeleteGroupsRequest(groups_names=[group]))
    if state == DELETED or not pending:
        return Stage(group, leader, follower, "pending", fenced)
    return Stage(group, leader, follower, hand_out_member_id(follower), fenced)


def hand_out_member_id(member: Member) -> str:
    """A new one, for somebody who speaks the same protocols."""
    answer = member.talk.do(member.join_request(member_id=""), JoinGroupRequest.versions.last)
    assert answer.error_code == ErrorCode.MEMBER_ID_REQUIRED, answer
    member_id: str = answer.member_id
    return member_id


class Speaker(NamedTuple):
    """Who somebody says it is."""

    label: str
    member_id: str
    generation_id: int
    instance: str | None


def impostors(group: Stage) -> list[Speaker]:
    """Those who are no member, or not the one they say."""
    leader, follower, generation_id = group.leader.member_id, group.follower.member_id, group.generation_id
    return [
        Speaker("a stranger", "who", generation_id, None),
        Speaker("a stranger with an instance of nobody's", "who", generation_id, "two"),
        Speaker("a stranger with the leader's instance", "who", generation_id, "one"),
        Speaker("nobody", "", generation_id, None),
        Speaker("nobody with an instance of nobody's", "", generation_id, "two"),
        Speaker("nobody with the leader's instance", "", generation_id, "one"),
        Speaker("pending", group.pending, generation_id, None),
        Speaker("pending with the leader's instance", group.pending, generation_id, "one"),
        Speaker("fenced", group.fenced, generation_id, "one"),
        Speaker("fenced without its instance", group.fenced, generation_id, None),
        Speaker("the leader with an instance of nobody's", leader, generation_id, "two"),
        Speaker("the follower with an instance of nobody's", follower, generation_id, "two"),
        Speaker("the follower with the leader's instance", follower, generation_id, "one"),
    ]


def out_of_step(group: Stage) -> list[Speaker]:
    """Members of another generation."""
    follower, generation_id = group.follower.member_id, group.generation_id
    return [
        Speaker("the follower, a generation behind", follower, generation_id - 1, None),
        Speaker("the follower, a generation ahead", follower, generation_id + 1, None),
        Speaker("the follower without a generation", follower, -1, None),
        Speaker("the follower in generation -2", follower, -2, None),
        Speaker("the leader, a generation behind", group.leader.member_id, generation_id - 1, "one"),
        Speaker("a stranger without a generation", "who", -1, None),
        Speaker("nobody without a generation", "", -1, None),
        Speaker("nobody with an instance, without a generation", "", -1, "one"),
    ]


def themselves(group: Stage) -> list[Speaker]:
    generation_id = group.generation_id
    return [
        Speaker("the leader", group.leader.member_id, generation_id, "one"),
        Speaker("the leader without its instance", group.leader.member_id, generation_id, None),
        Speaker("the follower", group.follower.member_id, generation_id, None),
    ]
