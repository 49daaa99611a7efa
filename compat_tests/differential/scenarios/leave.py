"""Leaving: one member before version 3, a list of them since, each with an error of its own."""

from compat_tests.differential.asking_groups import Member, describe, leave_request, until_state
from compat_tests.differential.asking_stages import (
    COMPLETING,
    EMPTY,
    NONE,
    PREPARING,
    STABLE,
    STATES,
    hand_out_member_id,
    impostors,
    stage,
)
from compat_tests.differential.conversation import Talk, scenario

from ottla.wire.messages.classic_group import LeaveGroupRequest, MemberIdentity


@scenario(LeaveGroupRequest)
def impostors_leave_in_each_state(talk: Talk) -> None:
    """One at a time; before version 3 an instance id cannot be said, so that some of them are members."""
    for state in STATES:
        group = stage(talk, state)
        for speaker in impostors(group):
            request = leave_request(group.group, (speaker.member_id, speaker.instance))
            talk.ask(request, label=f"{state}, {speaker.label}")
        describe(talk, group.group)


@scenario(LeaveGroupRequest)
def lists_with_mixed_fates(talk: Talk) -> None:
    for state in STATES:
        group = stage(talk, state)
        identities = [(speaker.member_id, speaker.instance) for speaker in impostors(group)]
        leader, follower = (group.leader.member_id, "one"), (group.follower.member_id, None)
        talk.ask(leave_request(group.group, *identities, leader, leader, follower, follower), label=state)
        describe(talk, group.group)


@scenario(LeaveGroupRequest)
def an_administrator_removes_by_instance(talk: Talk) -> None:
    """It says no member id; before version 3 that removes nobody."""
    for state in STATES:
        group = stage(talk, state)
        talk.ask(leave_request(group.group, ("", "two"), ("", None), ("", "one"), ("", "one")), label=state)
        describe(talk, group.group)


@scenario(LeaveGroupRequest)
def nobody_leaves(talk: Talk) -> None:
    for state in (NONE, STABLE):
        group = stage(talk, state)
        talk.ask(leave_request(group.group), label=state)
        describe(talk, group.group)


@scenario(LeaveGroupRequest)
def groups_that_cannot_be(talk: Talk) -> None:
    talk.ask(leave_request("", ("who", None)))
    talk.ask(leave_request(""))


@scenario(LeaveGroupRequest)
def reasons_do_not_matter(talk: Talk) -> None:
    group = stage(talk, STABLE)
    member_id = group.follower.member_id
    for reason in ("", "r" * 300, None):
        members = [MemberIdentity(member_id=member_id, group_instance_id=None, reason=reason)]
        talk.ask(LeaveGroupRequest(group_id=group.group, member_id=member_id, members=members))


@scenario(LeaveGroupRequest)
def who_joins_is_told_that_it_left(talk: Talk) -> None:
    group = stage(talk, PREPARING, pending=False)
    group.follower.quiet = group.leader.quiet = False
    talk.ask(leave_request(group.group, (group.follower.member_id, None)))
    group.follower.joined()
    group.leader.join()
    describe(talk, group.group)


@scenario(LeaveGroupRequest)
def a_pending_member_leaves(talk: Talk) -> None:
    """The others waited for it."""
    group = stage(talk, STABLE, pending=False)
    group.follower.quiet = group.leader.quiet = False
    pending = hand_out_member_id(group.follower)
    describe(talk, group.group)
    group.leader.send_join()
    until_state(talk, group.group, PREPARING)
    group.follower.send_join()
    talk.link(group.leader.name).stays_quiet(0.1)
    talk.ask(leave_request(group.group, (pending, None)))
    group.leader.joined()
    group.follower.joined()


@scenario(LeaveGroupRequest)
def the_last_one_awaited_leaves(talk: Talk) -> None:
    group = stage(talk, PREPARING, pending=False)
    group.follower.quiet = False
    talk.ask(leave_request(group.group, (group.leader.member_id, None)))
    group.follower.joined()
    describe(talk, group.group)


@scenario(LeaveGroupRequest)
def members_leave_one_after_the_other(talk: Talk) -> None:
    for state in (STABLE, COMPLETING):
        group = stage(talk, state, pending=False)
        talk.ask(leave_request(group.group, (group.leader.member_id, None)), label=f"{state}, the leader")
        describe(talk, group.group)
        group.follower.quiet = False
        group.follower.heartbeat()
        group.follower.join()
        talk.ask(leave_request(group.group, (group.follower.member_id, None)), label=f"{state}, the follower")
        group.follower.heartbeat()
        until_state(talk, group.group, EMPTY)
        newcomer = Member(talk, group.group, f"{state} newcomer")
        newcomer.join()
        newcomer.leave()
        describe(talk, group.group)
