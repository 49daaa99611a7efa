import pytest

from ottla.groupcoord.classic.members import Member, Members
from ottla.groupcoord.runtime.outcome import Caller
from ottla.wire.errors import ErrorCode


def member(member_id: str, *protocols: str, instance: str | None = None) -> Member:
    return Member(
        member_id,
        group_instance_id=instance,
        client_id="client",
        client_host="/127.0.0.1",
        rebalance_timeout_ms=1000,
        session_timeout_ms=1000,
        protocols=dict.fromkeys(protocols or ("range",), b"x"),
    )


def group_of(*those: Member) -> Members:
    members = Members()
    for each in those:
        members.add(each, "consumer")
    return members


def test_first_member_leads_until_it_goes() -> None:
    members = group_of(member("a"), member("b"))
    assert members.leader_id == "a"
    members.remove("a")
    assert members.leader_id == "b"
    members.remove("b")
    assert members.leader_id is None and members.metadata_bytes == 0


def test_protocols_count_for_a_newcomer_only_if_everybody_speaks_them() -> None:
    members = group_of(member("a", "x", "y"), member("b", "y", "z"))
    assert members.supports("consumer", ["q", "y"])
    assert not members.supports("consumer", ["x", "z"])
    assert not members.supports("connect", ["y"])
    members.remove("b")
    assert members.supports("consumer", ["x"]) and not members.supports("consumer", ["z"])


@pytest.mark.parametrize(
    ("offers", "chosen"),
    [
        (["x y", "y x", "y x"], "y"),
        (["x y z", "z y", "y z x"], "z"),
        (["x y", "y x"], "x"),
        (["y x", "x y"], "x"),  # a draw
        (["range rr", "rr range"], "rr"),
        (["rr range", "range rr"], "rr"),
    ],
)
def test_vote(offers: list[str], chosen: str) -> None:
    members = group_of(*(member(str(number), *names.split()) for number, names in enumerate(offers)))
    if chosen == "z":
        members.update(members.by_id["2"], dict.fromkeys(("z", "y"), b""), 1, 1)
    with pytest.raises(StopIteration) as chosen_so:
        next(members.select_protocol())
    assert chosen_so.value.value == chosen


def test_static_member_keeps_its_place_under_a_new_id() -> None:
    members = group_of(member("a", instance="one"), member("b", instance="two"))
    replaced = members.replace_static("one", "c")
    assert replaced.member_id == "c" and members.leader_id == "c" and "a" not in members
    assert members.validate("c", "one") is ErrorCode.NONE
    assert members.validate("a", "one") is ErrorCode.FENCED_INSTANCE_ID
    assert members.validate("a", None) is ErrorCode.UNKNOWN_MEMBER_ID
    assert members.validate("b", "three") is ErrorCode.UNKNOWN_MEMBER_ID


def test_joined_members_are_counted_once() -> None:
    members = group_of(member("a"), member("b"))
    first, second = Caller(api_version=9), Caller(api_version=9)
    a, b = members
    assert members.park_join(a, first) is None
    assert members.park_join(a, second) is first
    assert members.awaiting_join_count == 1 and not members.all_joined
    members.park_join(b, first)
    assert members.all_joined
    members.pending_join.add("c")
    assert not members.all_joined
    assert members.take_join(a) is second and members.take_join(a) is None
    members.remove("b")
    assert members.awaiting_join_count == 0


def test_leader_is_taken_from_those_who_joined() -> None:
    members = group_of(member("a"), member("b"))
    assert not members.elect_joined_leader()
    members.park_join(members.by_id["b"], Caller(api_version=9))
    assert members.elect_joined_leader() and members.leader_id == "b"


def test_absurd_timeouts_are_no_wait() -> None:
    absurd = member("a")
    absurd.rebalance_timeout_ms = -5
    assert group_of(absurd).rebalance_timeout_ms == 0 == Members().rebalance_timeout_ms
