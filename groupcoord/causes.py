"""Causes of what happens to members of groups, noted for people who ask why (`wire/happenings.py`).

The machines of the group types note a member that goes, and a request of a member that is refused. `Effects.note` takes both.
"""

from __future__ import annotations

from typing import Protocol

from ottla.groupcoord.effects import Effects
from ottla.wire.errors import ErrorCode
from ottla.wire.happenings import COMMIT_REFUSED, MEMBER_FENCED, MEMBER_REFUSED, MEMBER_REMOVED, cut, in_seconds

_FENCED = frozenset({ErrorCode.FENCED_INSTANCE_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNRELEASED_INSTANCE_ID})


class HasClient(Protocol):
    """A member, or the sender of a request: the client id and address of its client."""

    @property
    def client_id(self) -> str: ...

    @property
    def client_host(self) -> str: ...


def note_removed(effects: Effects, group_id: str, member_id: str, client: HasClient | None, because: str) -> None:
    """Note that a member was removed from its group. `client` None: nobody knows whose the member id was."""
    _note_gone(effects, group_id, member_id, client, f"was removed because {because}")


def note_left(
    effects: Effects, group_id: str, member_id: str, client: HasClient | None, reason: str | None = None
) -> None:
    """Note that a member left its group, or that an administrator removed it, for the `reason` that the request gives."""
    _note_gone(effects, group_id, member_id, client, f"left{said(reason)}")


def _note_gone(effects: Effects, group_id: str, member_id: str, client: HasClient | None, what: str) -> None:
    cause = f"member {cut(member_id)!r} of group {cut(group_id)!r} {what}"
    if client is None:
        effects.note(MEMBER_REMOVED, cause, group=group_id, member=member_id)
        return
    # The rebalance that follows is about this client, too.
    effects.source = host = address_of(client.client_host)
    cause += f"; its client is {cut(client.client_id)!r} at {host}"
    names = {"client_id": client.client_id, "host": host}
    effects.note(MEMBER_REMOVED, cause, source=host, group=group_id, member=member_id, **names)


def was_silent(timeout_ms: int) -> str:
    """Return the reason why a member's session ended, as the end of a sentence. `timeout_ms`: its session timeout."""
    return f"it sent no heartbeat for {in_seconds(timeout_ms)} (its session timeout)"


def said(reason: str | None) -> str:
    """Return what a client gave as its reason (KIP-800), in brackets behind a sentence; "" if it gave none."""
    return f" (it says: {cut(reason)!r})" if reason else ""


def note_refused(
    effects: Effects, group_id: str, member_id: str, client: HasClient, error: ErrorCode, because: str | None
) -> None:
    """Note that a request of a member, or of a client that would be one, was answered with an error."""
    kind = MEMBER_FENCED if error in _FENCED else MEMBER_REFUSED
    who = f"member {cut(member_id)!r}" if member_id else "a client that wants to join"
    host = address_of(client.client_host)
    names = {"member": member_id} if member_id else {}
    cause = f"group {cut(group_id)!r} answered {who} with {error.name}: {(because or error.message).rstrip('.')}"
    cause += f"; its client is {cut(client.client_id)!r} at {host}"
    names |= {"client_id": client.client_id, "host": host, "error": error.name}
    effects.note(kind, cause, source=host, group=group_id, **names)


def note_commit_refused(
    effects: Effects, group_id: str, member_id: str, error: ErrorCode, because: str, *, is_known: bool
) -> None:
    """Note that a commit of offsets was refused. `is_known` false: there is no such group."""
    who = f"member {cut(member_id)!r}" if member_id else "a client that names no member"
    cause = f"a commit of offsets to group {cut(group_id)!r} by {who} was refused with {error.name}: {because}"
    # Whoever invents groups must not push out what is known of others.
    source = group_id if is_known else ""
    effects.note(COMMIT_REFUSED, cause, source=source, group=group_id, member=member_id, error=error.name)


def address_of(client_host: str) -> str:
    """Return the address of a client as people write it, without Java's slash."""
    return client_host.removeprefix("/")
