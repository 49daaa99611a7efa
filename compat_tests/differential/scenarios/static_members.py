"""Static members: the instance id decides who somebody is, and whoever had it before is fenced."""

from compat_tests.differential.asking_groups import (
    CHANGED,
    RANGE,
    SUBSCRIPTION,
    Member,
    describe,
    leave_request,
    until_state,
)
from compat_tests.differential.asking_stages import COMPLETING, EMPTY, PREPARING, STABLE
from compat_tests.differential.conversation import Talk, scenario

from ottla.wire.messages.classic_group import JoinGroupRequest

# Before version 5 a JoinGroup cannot say an instance id.
STATIC = "5+"
BOTH = {"range": SUBSCRIPTION, "rr": SUBSCRIPTION}
BOTH_CHANGED = {"range": CHANGED, "rr": CHANGED}
OTHER_ORDER = {"rr": SUBSCRIPTION, "range": SUBSCRIPTION}
ONLY_RR = {"rr": SUBSCRIPTION}


def pair(talk: Talk, state: str, kind: str = "group") -> tuple[Member, Member]:
    """A leader with instance one and a follower with instance two, of whom no transcript tells yet."""
    group = talk.group(kind)
    leader = Member(talk, group, f"{kind} leader", instance="one", protocols=BOTH, quiet=True)
    follower = Member(talk, group, f"{kind} follower", instance="two", protocols=BOTH, quiet=True)
    leader.join()
    follower.send_join()
    until_state(talk, group, PREPARING, 2)
    leader.join()
    follower.joined()
    if state == STABLE:
        leader.sync({leader: b"leader's", follower: b"follower's"})
        follower.sync()
    leader.quiet = follower.quiet = False
    return leader, follower


def back(member: Member, name: str = "back", **details: object) -> Member:
    """The same instance after a restart, which knows no member id."""
    said = {"protocols": BOTH} | details
    return Member(member.talk, member.group, f"{member.name} {name}", instance=member.instance, **said)


@scenario(JoinGroupRequest, versions=STATIC)
def members_of_a_stable_group_come_back(talk: Talk) -> None:
    """Without a rebalance. A leader of version 9 is told to skip the assignment; older ones do not learn that they lead."""
    leader, follower = pair(talk, STABLE)
    for member in (follower, leader):
        again = back(member)
        again.join()
        again.sync({again: b"news"})
        member.heartbeat()
        member.join()
        member.sync()
        member.leave()
        again.heartbeat()
        describe(talk, leader.group)


@scenario(JoinGroupRequest, versions=STATIC)
def they_come_back_changed(talk: Talk) -> None:
    """Only the vote matters: other metadata goes unnoticed by the others."""
    for who in (0, 1):
        members = pair(talk, STABLE, f"group-{who}")
        again = back(members[who], protocols=BOTH_CHANGED)
        again.join()
        again.sync()
        describe(talk, again.group)


@scenario(JoinGroupRequest, versions=STATIC)
def they_come_back_with_other_preferences(talk: Talk) -> None:
    """Of three votes one may change; the second makes a rebalance."""
    leader, follower = pair(talk, STABLE)
    third = Member(talk, leader.group, "third", instance="three", protocols=BOTH, quiet=True)
    leader.quiet = follower.quiet = True
    third.send_join()
    until_state(talk, leader.group, PREPARING, 3)
    follower.send_join()
    leader.join()
    follower.joined()
    third.joined()
    leader.sync({leader: b"leader's", follower: b"follower's", third: b"third's"})
    for member in (follower, third):
        again = back(member, protocols=OTHER_ORDER)
        again.send_join()
        if member is follower:
            again.joined()
    until_state(talk, leader.group, PREPARING)
    describe(talk, leader.group)


@scenario(JoinGroupRequest, versions=STATIC)
def they_come_back_with_another_choice(talk: Talk) -> None:
    """The vote changes, so that there is a rebalance."""
    for who in (0, 1):
        members = pair(talk, STABLE, f"group-{who}")
        other = members[1 - who]
        again = back(members[who], protocols=ONLY_RR)
        again.send_join()
        until_state(talk, again.group, PREPARING)
        other.heartbeat()
        members[who].heartbeat()
        other.join()
        again.joined()
        describe(talk, again.group)


@scenario(JoinGroupRequest, versions=STATIC)
def they_come_back_with_nothing_in_common(talk: Talk) -> None:
    leader, follower = pair(talk, STABLE)
    back(follower, protocols={"other": b""}).join()
    back(leader, "as something else", protocol_type="connect").join()
    follower.heartbeat()
    leader.heartbeat()


@scenario(JoinGroupRequest, versions=STATIC)
def they_come_back_before_the_assignment(talk: Talk) -> None:
    """A rebalance, because the leader may know the old member id."""
    leader, follower = pair(talk, COMPLETING)
    follower.send_sync()
    talk.link(follower.name).stays_quiet(0.1)
    again = back(follower)
    again.send_join()
    follower.synced()
    until_state(talk, leader.group, PREPARING)
    leader.sync({leader: b"too late"})
    leader.join()
    again.joined()
    leader_again = back(leader)
    leader_again.send_join()
    until_state(talk, leader.group, PREPARING)
    again.join()
    leader_again.joined()
    leader.sync()


@scenario(JoinGroupRequest, versions=STATIC)
def they_come_back_while_members_gather(talk: Talk) -> None:
    """Over a join that waits, and in place of one that was awaited."""
    leader, follower = pair(talk, STABLE)
    leader.send_join()
    until_state(talk, leader.group, PREPARING)
    leader_again = back(leader)
    leader_again.send_join()
    leader.joined()
    leader.heartbeat()
    follower_again = back(follower)
    follower_again.join()
    leader_again.joined()
    follower.heartbeat()
    describe(talk, leader.group)


@scenario(JoinGroupRequest, versions=STATIC)
def instances_that_went(talk: Talk) -> None:
    leader, follower = pair(talk, STABLE)
    talk.do(leave_request(leader.group, ("", "one"), ("", "two")))
    leader.join()
    leader.heartbeat()
    again = back(leader)
    again.join()
    back(follower, "with the other's member id").join(member_id=again.member_id)
    again.sync()
    describe(talk, leader.group)


@scenario(JoinGroupRequest, versions=STATIC)
def members_that_know_their_ids_join_again(talk: Talk) -> None:
    leader, follower = pair(talk, STABLE)
    follower.join()
    follower.join(group_instance_id=None)
    follower.join(group_instance_id="one")
    follower.join(group_instance_id="three")
    follower.join(group_instance_id="")
    leader.send_join()
    until_state(talk, leader.group, PREPARING)
    follower.join()
    leader.joined()


@scenario(JoinGroupRequest, versions=STATIC)
def empty_instance_ids(talk: Talk) -> None:
    group = talk.group()
    member = Member(talk, group, "member", instance="")
    member.join()
    member.sync()
    describe(talk, group)
    back(member, protocols=RANGE).join()


@scenario(JoinGroupRequest, versions=STATIC)
def silent_instances_stay_until_their_session_ends(talk: Talk) -> None:
    """A rebalance that one of them does not take part in goes on with it in the list."""
    group = talk.group()
    silent = Member(talk, group, "silent", instance="silent", rebalance_ms=500)
    here = Member(talk, group, "here", instance="here", rebalance_ms=500)
    silent.join()
    silent.sync()
    here.join()
    here.sync()
    describe(talk, group)
    silent.heartbeat()


@scenario(JoinGroupRequest, versions=STATIC)
def sessions_of_instances_end(talk: Talk) -> None:
    group = talk.group()
    member = Member(talk, group, "member", instance="one", session_ms=100)
    member.join()
    until_state(talk, group, EMPTY)
    member.heartbeat()
    member.join()
    back(member, protocols=RANGE).join()


@scenario(JoinGroupRequest, versions=STATIC)
def instances_of_other_groups_do_not_matter(talk: Talk) -> None:
    first, second = (Member(talk, talk.group(name), name, instance="same") for name in ("first", "second"))
    first.join()
    second.join()
    first.heartbeat()
    second.heartbeat()
