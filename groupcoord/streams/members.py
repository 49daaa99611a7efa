"""One member of a streams group: what it said about itself, which tasks it has, and how far it has come."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import NamedTuple

from ottla.groupcoord.streams.tasks import NOTHING_ASSIGNED, AssignedTasks


class MemberState(IntEnum):
    """How a member stands to the target assignment; the numbers are those of the record."""

    STABLE = 1
    """It has all tasks of the target assignment of its epoch."""
    UNREVOKED_TASKS = 2
    """It has to give up tasks before it can have the next epoch."""
    UNRELEASED_TASKS = 3
    """It has the epoch, and waits for tasks that others have not given up."""
    UNKNOWN = 127
    """A newer coordinator wrote a state that this one does not know."""


def member_state(number: int) -> MemberState:
    """The state of a record."""
    return MemberState(number) if number in (1, 2, 3) else MemberState.UNKNOWN


class Endpoint(NamedTuple):
    """Where an instance of the application answers queries of its state."""

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class Member:
    """A member at one moment; a change makes another object."""

    member_id: str
    member_epoch: int = 0
    previous_member_epoch: int = 0
    state: MemberState = MemberState.STABLE
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topology_epoch: int = -1
    process_id: str = ""
    user_endpoint: Endpoint | None = None
    client_tags: Mapping[str, str] = field(default_factory=dict)
    assigned: AssignedTasks = NOTHING_ASSIGNED
    pending_revocation: AssignedTasks = NOTHING_ASSIGNED

    def is_reconciled_to(self, assignment_epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.member_epoch == assignment_epoch

    def at_epoch(
        self, epoch: int, state: MemberState, assigned: AssignedTasks, pending_revocation: AssignedTasks
    ) -> Member:
        """This member with a new epoch; the one it had becomes the previous one."""
        return replace(
            self,
            member_epoch=epoch,
            previous_member_epoch=self.member_epoch,
            state=state,
            assigned=assigned,
            pending_revocation=pending_revocation,
        )
