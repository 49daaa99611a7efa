"""Heartbeats of everybody, right and wrong, in each state of a group."""

from compat_tests.differential.asking_groups import Member, until_state
from compat_tests.differential.asking_stages import PREPARING, STABLE, STATES, impostors, out_of_step, stage, themselves
from compat_tests.differential.conversation import Talk, scenario

from ottla.wire.messages.classic_group import HeartbeatRequest


@scenario(HeartbeatRequest)
def heartbeats_in_each_state(talk: Talk) -> None:
    for state in STATES:
        group = stage(talk, state)
        for speaker in (*impostors(group), *out_of_step(group), *themselves(group)):
            request = HeartbeatRequest(
                group_id=group.group,
                generation_id=speaker.generation_id,
                member_id=speaker.member_id,
                group_instance_id=speaker.instance,
            )
            talk.ask(request, label=f"{state}, {speaker.label}")


@scenario(HeartbeatRequest)
def groups_that_cannot_be(talk: Talk) -> None:
    member = Member(talk, talk.group(), "member")
    member.heartbeat(group_id="")
    member.heartbeat(group_id="", member_id="who", generation_id=5)


@scenario(HeartbeatRequest)
def who_is_silent_goes(talk: Talk) -> None:
    """One member's session ends; who beats meanwhile hears of the rebalance, and stays."""
    group = stage(talk, STABLE, pending=False)
    silent = Member(talk, group.group, "silent", quiet=True)
    silent.send_join(session_timeout_ms=100)
    until_state(talk, group.group, PREPARING, 3)
    members = [silent, group.leader, group.follower]
    for member in members[1:]:
        member.send_join()
    for member in members:
        member.joined()
    group.leader.sync()
    talk.until(group.leader.heartbeat_request(), lambda answer: answer.error_code != 0)
    for member in members:
        member.quiet = False
        member.heartbeat()
