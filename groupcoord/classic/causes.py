"""Why members of classic groups go, and why joins are refused: the ends of sentences behind "because"."""

from __future__ import annotations

from collections.abc import Iterable

from ottla.groupcoord.causes import address_of, was_silent
from ottla.groupcoord.classic.members import Member, Members
from ottla.groupcoord.runtime.answers import Caller
from ottla.wire.errors import ErrorCode
from ottla.wire.happenings import cut, in_seconds

NAMES_SHOWN_MAX = 5

FULL = "it has as many members as group.max.size allows"
LEFT_WHILE_WAITING = "its connection ended while its first JoinGroup waited"


def disagreement(members: Members, protocol_type: str, protocols: Iterable[str], *, is_first: bool) -> str:
    """Return why a newcomer and the members have no protocol in common. `is_first`: the group is empty."""
    offered = f"it offers {names_of(protocols) or 'no protocol'} of type {cut(protocol_type)!r}"
    if is_first:
        return f"{offered}, and the first member has to offer a protocol with a type"
    common = names_of(members.common_protocols()) or "none in common"
    return f"{offered}, and the members have {common} of type {members.protocol_type!r}"


def why_no_member(members: Members, group_instance_id: str | None, error: ErrorCode) -> str:
    """Return why the ids in a request are not those of a member."""
    if error is ErrorCode.FENCED_INSTANCE_ID and group_instance_id is not None:
        owner = members.static.get(group_instance_id, "")
        return f"its group.instance.id {cut(group_instance_id)!r} belongs to member {cut(owner)!r} now"
    return "the group has no such member: it was removed, or another coordinator did not know it"


def taken_over(member: Member, caller: Caller, new_member_id: str) -> str:
    """Return why a static member is fenced: `caller` came with its instance id, and got `new_member_id`."""
    newcomer = f"{cut(caller.client_id)!r} at {address_of(caller.client_host)}"
    instance = f"its group.instance.id {cut(member.group_instance_id or '')!r}"
    return f"{newcomer} came with {instance}, and is member {cut(new_member_id)!r} now"


def not_back(waited_ms: int) -> str:
    """Return why a member was dropped at the end of a rebalance that took `waited_ms`."""
    return (
        f"it did not join again within {in_seconds(waited_ms)} of the beginning of a rebalance"
        " (the longest rebalance timeout of the members; in Java's consumer max.poll.interval.ms)"
    )


def no_sync(timeout_ms: int) -> str:
    """Return why a member was dropped that has joined and sent no SyncGroup for `timeout_ms`."""
    return f"it did not ask for its assignment (SyncGroup) for {in_seconds(timeout_ms)}, the longest rebalance timeout"


def session_ended(member: Member | None, new_member_timeout_ms: int) -> str:
    """Return why a member's session ended. None: the member id was handed out, and nobody has joined with it.

    `new_member_timeout_ms`: how long the first JoinGroup of a member may wait.
    """
    if member is None:
        return "no JoinGroup with this new member id came within the session timeout of its client"
    if member.is_new:
        return f"no rebalance ended within {in_seconds(new_member_timeout_ms)} of its first JoinGroup"
    return was_silent(member.session_timeout_ms)


def names_of(protocols: Iterable[str]) -> str:
    """Return names of protocols (of consumers: assignors) for a sentence: the first few if they are many, "" for none."""
    names = sorted(protocols)
    more = f" and {len(names) - NAMES_SHOWN_MAX} more" if len(names) > NAMES_SHOWN_MAX else ""
    return ", ".join(cut(each) for each in names[:NAMES_SHOWN_MAX]) + more
