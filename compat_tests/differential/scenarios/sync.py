"""Assignments: handed in, asked for, waited for, and refused to everybody who is not in the group."""

from compat_tests.differential.asking_groups import RANGE_CHANGED, Member, describe, leave_request, until_state
from compat_tests.differential.asking_stages import (
    COMPLETING,
    PREPARING,
    STABLE,
    STATES,
    Speaker,
    Stage,
    impostors,
    out_of_step,
    stage,
    themselves,
)
from compat_tests.differential.conversation import Talk, scenario

from ottla.wire.messages.classic_group import SyncGroupRequest, SyncGroupRequestAssignment


def waits(talk: Talk, state: str, group: Stage, speaker: Speaker) -> bool:
    """Whether the answer comes only with the assignment: who says who it is before version 3 is who it is."""
    is_member = speaker.member_id in (group.leader.member_id, group.follower.member_id)
    is_itself = talk.version < 3 or speaker in themselves(group)
    return state == COMPLETING and is_member and is_itself and speaker.generation_id == group.generation_id


@scenario(SyncGroupRequest)
def syncs_in_each_state(talk: Talk) -> None:
    for state in STATES:
        group = stage(talk, state)
        for speaker in (*impostors(group), *out_of_step(group), *themselves(group)):
            if not waits(talk, state, group, speaker):
                request = group.leader.sync_request(
                    {group.leader: b"stolen", group.follower: b"stolen"},
                    member_id=speaker.member_id,
                    generation_id=speaker.generation_id,
                    group_instance_id=speaker.instance,
                )
                talk.ask(request, label=f"{state}, {speaker.label}")


@scenario(SyncGroupRequest)
def protocols_that_are_not_the_groups(talk: Talk) -> None:
    """Since version 5 the protocol must be named; before it cannot be."""
    for state in STATES:
        if state == COMPLETING and talk.version < 5:
            continue  # the answer would wait for the leader's assignment
        group = stage(talk, state)
        for type_, name in (
            ("connect", "range"),
            ("consumer", "rr"),
            ("", ""),
            (None, "range"),
            ("consumer", None),
            (None, None),
        ):
            request = group.follower.sync_request(protocol_type=type_, protocol_name=name)
            talk.ask(request, label=f"{state}, {type_} {name}")


@scenario(SyncGroupRequest)
def groups_that_cannot_be(talk: Talk) -> None:
    member = Member(talk, talk.group(), "member")
    member.sync(group_id="", protocol_name="range")
    member.sync(group_id="", protocol_name=None)


@scenario(SyncGroupRequest)
def followers_wait_for_the_leader(talk: Talk) -> None:
    group = stage(talk, COMPLETING, pending=False)
    leader, follower = group.leader, group.follower
    leader.quiet = follower.quiet = False
    follower.send_sync({leader: b"a follower's word", follower: b"counts nothing"})
    talk.link(follower.name).stays_quiet(0.1)
    stranger = Member(talk, group.group, "stranger")
    leader.sync({leader: b"leader's", follower: b"follower's", stranger: b"nobody's"})
    follower.synced()
    describe(talk, group.group)
    leader.sync({leader: b"too late", follower: b"too late"})
    follower.sync()
    describe(talk, group.group)


@scenario(SyncGroupRequest)
def members_without_an_assignment(talk: Talk) -> None:
    group = stage(talk, COMPLETING, pending=False)
    group.leader.quiet = group.follower.quiet = False
    group.follower.send_sync()
    group.leader.sync()
    group.follower.synced()
    describe(talk, group.group)


@scenario(SyncGroupRequest)
def assignments_given_twice(talk: Talk) -> None:
    group = stage(talk, COMPLETING, pending=False)
    group.follower.quiet = False
    given = [
        SyncGroupRequestAssignment(member_id=member.member_id, assignment=data)
        for member, data in (
            (group.follower, b"first"),
            (group.leader, b"leader's"),
            (group.follower, b"second"),
        )
    ]
    request = group.leader.sync_request()
    request.assignments = given
    talk.ask(request)
    group.follower.sync()


@scenario(SyncGroupRequest)
def rebalances_end_the_waiting(talk: Talk) -> None:
    """A member changes its mind while another waits for the assignment."""
    group = stage(talk, COMPLETING, pending=False)
    leader, follower = group.leader, group.follower
    leader.quiet = follower.quiet = False
    follower.send_sync()
    talk.link(follower.name).stays_quiet(0.1)
    leader.send_join(protocols=RANGE_CHANGED)
    follower.synced()
    until_state(talk, group.group, PREPARING)
    talk.ask(leader.sync_request(), label="sync while joining")
    follower.join()
    leader.joined()
    leader.sync({follower: b"follower's"})
    follower.sync()


@scenario(SyncGroupRequest)
def somebody_leaves_while_another_waits(talk: Talk) -> None:
    group = stage(talk, COMPLETING, pending=False)
    group.follower.quiet = False
    group.follower.send_sync()
    talk.link(group.follower.name).stays_quiet(0.1)
    talk.do(leave_request(group.group, ("", "one")))
    group.follower.synced()
    group.follower.join()
    group.follower.sync({group.follower: b"all"})


@scenario(SyncGroupRequest)
def who_never_asks_is_dropped(talk: Talk) -> None:
    """The rebalance timeout holds for asking for the assignment as well."""
    group = stage(talk, STABLE, pending=False)
    group.leader.rebalance_ms = group.follower.rebalance_ms = 500
    group.follower.send_join(protocols=RANGE_CHANGED)
    group.leader.join()
    group.follower.joined()
    group.leader.quiet = group.follower.quiet = False
    group.leader.sync({group.leader: b"leader's", group.follower: b"never fetched"})
    until_state(talk, group.group, PREPARING, 1)
    group.leader.sync()
    group.follower.sync()
    group.leader.join()
    group.leader.sync({group.leader: b"all"})
    describe(talk, group.group)


@scenario(SyncGroupRequest)
def a_member_syncs_on_two_links(talk: Talk) -> None:
    """It may have given up the first one."""
    group = stage(talk, COMPLETING, pending=False)
    group.follower.send_sync()
    again = Member(talk, group.group, "again")
    again.member_id, again.generation_id = group.follower.member_id, group.generation_id
    talk.link(group.follower.name).stays_quiet(0.1)
    again.send_sync(protocol_name="range")
    talk.link("again").stays_quiet(0.1)
    talk.link(group.follower.name).stays_quiet(0.1)
    group.leader.sync({group.follower: b"follower's"})
    again.synced()


@scenario(SyncGroupRequest)
def a_member_leaves_while_its_sync_waits(talk: Talk) -> None:
    group = stage(talk, COMPLETING, pending=False)
    group.follower.send_sync()
    talk.link(group.follower.name).stays_quiet(0.1)
    talk.do(leave_request(group.group, (group.follower.member_id, None)))
    talk.link(group.follower.name).stays_quiet(0.1)
    group.leader.join()
    group.leader.sync()
    describe(talk, group.group)
