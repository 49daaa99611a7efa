"""Joining: who is let in, on which terms, what is agreed upon, and how long the others wait."""

from compat_tests.differential.asking_groups import (
    RANGE_CHANGED,
    SUBSCRIPTION,
    Member,
    describe,
    leave_request,
    until_state,
)
from compat_tests.differential.asking_stages import (
    COMPLETING,
    DELETED,
    EMPTY,
    NONE,
    PREPARING,
    STABLE,
    STATES,
    hand_out_member_id,
    impostors,
    stage,
    themselves,
)
from compat_tests.differential.conversation import Talk, scenario

from ottla.wire.messages.classic_group import HeartbeatRequest, JoinGroupRequest

STATIC_VERSION = 5


@scenario(JoinGroupRequest)
def strangers_in_each_state(talk: Talk) -> None:
    """Those whom nobody let in. Before version 5 an instance id cannot be said, and a pending member would join."""
    for state in STATES:
        group = stage(talk, state)
        known = [speaker.member_id for speaker in themselves(group)] + [group.pending]
        for speaker in impostors(group):
            is_member = speaker.member_id in known and state not in (NONE, DELETED)
            is_told_apart = speaker.instance is not None and talk.version >= STATIC_VERSION
            if speaker.member_id and (is_told_apart or not is_member):
                request = group.follower.join_request(member_id=speaker.member_id, group_instance_id=speaker.instance)
                talk.ask(request, label=f"{state}, {speaker.label}")
        describe(talk, group.group)


@scenario(JoinGroupRequest)
def protocols_that_do_not_fit(talk: Talk) -> None:
    for state in STATES:
        group = stage(talk, state)
        follower = group.follower
        terms = [{"protocols": {}}, {"protocol_type": ""}]
        if state not in (NONE, DELETED, EMPTY):
            terms += [{"protocol_type": "connect"}, {"protocols": {"rr": SUBSCRIPTION}}]
        for each in terms:
            for member_id in ("", "who", follower.member_id):
                who = member_id if member_id in ("", "who") else "the follower"
                talk.ask(
                    follower.join_request(member_id=member_id, **each),
                    label=f"{state}, {who!r}, {each}".replace(": ", "="),
                )
        describe(talk, group.group)


@scenario(JoinGroupRequest)
def groups_and_sessions_that_cannot_be(talk: Talk) -> None:
    """The shortest session is 100 ms here, the longest half an hour."""
    group = talk.group()
    member = Member(talk, group, "member")
    member.join(group_id="")
    member.join(group_id="", session_timeout_ms=0)
    for session_ms in (0, -1, 99, 1_800_001, (1 << 31) - 1, -(1 << 31)):
        talk.ask(member.join_request(session_timeout_ms=session_ms), label=f"session of {session_ms} ms")
        talk.ask(member.join_request(session_timeout_ms=session_ms, member_id="who"), label="the same of a stranger")
    describe(talk, group)
    member.join(session_timeout_ms=1_800_000)
    member.sync()


@scenario(JoinGroupRequest)
def one_dynamic_member(talk: Talk) -> None:
    group = talk.group()
    member = Member(talk, group, "member")
    member.join()
    describe(talk, group)
    member.join()
    member.join(protocols=RANGE_CHANGED)
    member.sync({member: b"all"})
    describe(talk, group)
    member.join(protocols=RANGE_CHANGED)
    member.sync({member: b"all again"})
    member.leave()
    describe(talk, group)
    member.join()
    member.member_id = ""
    member.join(protocol_type="other", protocols={"other": b""})
    describe(talk, group)


@scenario(JoinGroupRequest)
def members_join_again(talk: Talk) -> None:
    """An unchanged follower is told what it knows; a changed one, and any leader in Stable, makes a rebalance."""
    for state in (COMPLETING, STABLE):
        group = stage(talk, state, pending=False)
        group.leader.quiet = group.follower.quiet = False
        group.follower.join()
        group.follower.join(session_timeout_ms=20_000, rebalance_timeout_ms=20_000)
        if state == COMPLETING:
            group.leader.join()
        group.follower.send_join(protocols=RANGE_CHANGED)
        until_state(talk, group.group, PREPARING)
        describe(talk, group.group, label=state)
        group.leader.join()
        group.follower.joined()
        group.follower.join(protocols=RANGE_CHANGED)


@scenario(JoinGroupRequest)
def the_leader_joins_again(talk: Talk) -> None:
    group = stage(talk, STABLE, pending=False)
    group.leader.quiet = group.follower.quiet = False
    group.leader.send_join()
    until_state(talk, group.group, PREPARING)
    group.follower.heartbeat()
    group.follower.join()
    group.leader.joined()


@scenario(JoinGroupRequest)
def member_ids_that_were_handed_out(talk: Talk) -> None:
    """Whoever was given one is waited for, may join with it once, and can be no static member."""
    group = stage(talk, STABLE, pending=False)
    group.leader.quiet = group.follower.quiet = False
    pending = Member(talk, group.group, "pending")
    pending.member_id = hand_out_member_id(group.follower)
    talk.ask(HeartbeatRequest(group_id=group.group, generation_id=2, member_id=pending.member_id))
    if talk.version >= STATIC_VERSION:
        pending.join(group_instance_id="two")
        describe(talk, group.group)
    group.follower.send_join(protocols=RANGE_CHANGED)
    until_state(talk, group.group, PREPARING)
    group.leader.send_join()
    talk.link(group.leader.name).stays_quiet(0.1)
    pending.send_join()
    group.leader.joined()
    group.follower.joined()
    pending.joined()
    pending.join()


@scenario(JoinGroupRequest)
def votes_for_a_protocol(talk: Talk) -> None:
    """The one that most like best of those that all know; what only some know does not count."""
    group = talk.group()
    a = Member(talk, group, "a", protocols={"mine": b"a", "rr": b"a", "range": b"a"})
    b = Member(talk, group, "b", protocols={"range": b"b", "rr": b"b", "yours": b"b"})
    c = Member(talk, group, "c", protocols={"range": b"c", "mine": b"c", "rr": b"c"})
    a.join()
    b.send_join()
    until_state(talk, group, PREPARING, 2)
    c.send_join()
    until_state(talk, group, PREPARING, 3)
    a.join()
    b.joined()
    c.joined()
    talk.ask(a.join_request(member_id=c.member_id, protocols={"mine": b"c"}), label="c without a common protocol")
    c.send_join(protocols={"rr": b"c", "range": b"c"})
    until_state(talk, group, PREPARING, 3)
    b.send_join()
    a.join()
    b.joined()
    c.joined()
    describe(talk, group)


@scenario(JoinGroupRequest)
def draws(talk: Talk) -> None:
    """The order of Kafka's hash table decides. (Names that fall into one slot of it, such as a and q, come in any order.)"""
    for names in ("range rr", "range roundrobin", "sticky cooperative-sticky", "x y z"):
        first, *others = names.split()
        protocols = {name: b"" for name in (first, *others)}
        group = talk.group(names.replace(" ", "-"))
        leader = Member(talk, group, f"{names} leader", protocols=protocols, quiet=True)
        leader.join()
        for name in others:
            preferred = {name: b""} | protocols
            Member(talk, group, f"{names} {name}", protocols=preferred, quiet=True).send_join()
            until_state(talk, group, PREPARING, 2 + others.index(name))
        leader.quiet = False
        leader.join()


@scenario(JoinGroupRequest)
def protocols_that_say_nothing(talk: Talk) -> None:
    """Empty names and empty metadata are as good as any.

    What a consumer says has to be a subscription, though: Kafka's coordinator fails on the rest, and never answers.
    """
    for number, protocols in enumerate(({"": b"nameless"}, {"range": b""})):
        group = talk.group(f"group{number}")
        member = Member(talk, group, f"member{number}", protocol_type="other", protocols=protocols)
        member.join()
        member.sync()
        describe(talk, group)


@scenario(JoinGroupRequest)
def protocols_listed_twice(talk: Talk) -> None:
    group = talk.group()
    member = Member(talk, group, "member", protocol_type="other")
    member.join(protocols=[("range", b"first"), ("rr", b""), ("range", b"second")])
    member.sync()
    describe(talk, group)


@scenario(JoinGroupRequest)
def who_does_not_come_back_is_dropped(talk: Talk) -> None:
    """After the longest rebalance timeout of all; version 0 has the session's for it."""
    group = talk.group()
    gone = Member(talk, group, "gone", session_ms=500, rebalance_ms=500)
    here = Member(talk, group, "here", session_ms=500, rebalance_ms=500)
    gone.join()
    gone.sync()
    here.join()
    gone.heartbeat()
    gone.join()


@scenario(JoinGroupRequest)
def no_time_to_come_back(talk: Talk) -> None:
    """Rebalance timeouts of nothing and less. Version 0 cannot say them."""
    for rebalance_ms in (0, -1, -(1 << 31)):
        group = talk.group(f"group{rebalance_ms}")
        gone = Member(talk, group, f"gone {rebalance_ms}", rebalance_ms=rebalance_ms, session_ms=300)
        here = Member(talk, group, f"here {rebalance_ms}", rebalance_ms=rebalance_ms, session_ms=300)
        gone.join()
        until_state(talk, group, EMPTY)
        gone.heartbeat()
        here.join()


@scenario(JoinGroupRequest)
def sessions_end(talk: Talk) -> None:
    group = talk.group()
    member = Member(talk, group, "member")
    member.join(session_timeout_ms=100)
    until_state(talk, group, EMPTY)
    describe(talk, group)
    member.heartbeat()
    member.join()


@scenario(JoinGroupRequest)
def a_member_joins_on_two_links(talk: Talk) -> None:
    """It may have given up the first one."""
    group = stage(talk, PREPARING, pending=False)
    again = Member(talk, group.group, "again")
    again.member_id = group.follower.member_id
    group.follower.quiet = group.leader.quiet = False
    again.send_join()
    talk.link("again").stays_quiet(0.1)
    talk.link(group.follower.name).stays_quiet(0.1)
    group.leader.join()
    again.joined()


@scenario(JoinGroupRequest, settings={"group.max.size": "2"})
def groups_that_are_full(talk: Talk) -> None:
    for state in STATES:
        group = stage(talk, state, pending=False)
        newcomer = Member(talk, group.group, f"{state} newcomer")
        if state not in (NONE, DELETED, EMPTY, PREPARING):
            talk.ask(newcomer.join_request(), label=f"{state}, newcomer")
            talk.ask(newcomer.join_request(member_id="who"), label=f"{state}, stranger")
        describe(talk, group.group)


@scenario(JoinGroupRequest, settings={"group.max.size": "2"})
def the_first_back_have_the_room(talk: Talk) -> None:
    """While members gather, a newcomer may be quicker than one that was in."""
    group = stage(talk, STABLE, pending=False, rebalance_ms=1_000)
    group.leader.send_join()
    until_state(talk, group.group, PREPARING)
    newcomer = Member(talk, group.group, "newcomer", quiet=True, rebalance_ms=1_000)
    newcomer.send_join()
    until_state(talk, group.group, PREPARING, 3)
    group.leader.quiet = group.follower.quiet = newcomer.quiet = False
    group.follower.join()
    group.leader.joined()
    newcomer.joined()
    describe(talk, group.group)


# How long a first rebalance waits has nothing to do with the version; it takes seconds to see it.
@scenario(JoinGroupRequest, versions="9", settings={"group.initial.rebalance.delay.ms": "1000"})
def a_first_rebalance_takes_its_time(talk: Talk) -> None:
    group = talk.group()
    members = [Member(talk, group, name, instance=name, rebalance_ms=30_000) for name in ("a", "b", "c")]
    for count, member in enumerate(members, start=1):
        member.send_join()
        until_state(talk, group, PREPARING, count)
    describe(talk, group)
    talk.link("a").stays_quiet(0.1)
    for member in members:
        member.joined()


@scenario(JoinGroupRequest, versions="9", settings={"group.initial.rebalance.delay.ms": "1000"})
def who_leaves_a_first_rebalance(talk: Talk) -> None:
    """The time is not cut short when everybody left, or when those who stay are all there."""
    group = talk.group()
    members = [Member(talk, group, name, instance=name) for name in ("a", "b")]
    for member in members:
        member.send_join()
    until_state(talk, group, PREPARING, 2)
    talk.ask(leave_request(group, ("", "a"), ("", "b")))
    for member in members:
        member.joined()
    describe(talk, group)
    until_state(talk, group, EMPTY)
    describe(talk, group)
