"""Base of the managers of consumer, share and streams groups: lookup of groups, and records that are in force at once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Generic, TypeVar

from ottla.groupcoord.effects import TimerKey
from ottla.groupcoord.group import AskLastRebalance, Group, LastRebalance
from ottla.groupcoord.manager import MetadataManager, ShardContext
from ottla.groupcoord.modern.group import HostedGroup
from ottla.groupcoord.records import GroupRecord
from ottla.wire.errors import ErrorCode, KafkaError

CLASSIC_TYPE, EMPTY = "classic", "Empty"


GroupT = TypeVar("GroupT", bound=HostedGroup[Any])


class ModernGroupManager(MetadataManager, ABC, Generic[GroupT]):
    """Base class of managers of one group type in a shard. A subclass defines `group_class` and `replay`."""

    group_class: ClassVar[type[Any]]

    def __init__(self, context: ShardContext) -> None:
        self._context = context
        self._effects = context.effects
        self._groups = context.groups
        self._topics = context.topics
        self._settings_of = context.settings_of
        self.adopted_reads = {AskLastRebalance: self._last_rebalance}

    # ------------------------------------------------------------------ groups

    def _group(self, group_id: str) -> GroupT | None:
        group: Any = self._groups.get(group_id)
        return group if isinstance(group, self.group_class) else None

    def _existing(self, group_id: str, called: str = "Group") -> GroupT:
        """Return the group. Raises KafkaError if there is none of this type; the message calls the group `called`."""
        group = self._group(group_id)
        if group is not None:
            return group
        if group_id in self._groups:
            raise self._of_another_kind(group_id)
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"{called} {group_id} not found.")

    def _last_rebalance(self, request: AskLastRebalance) -> LastRebalance | None:
        return self._existing(request.group_id).last_rebalance

    def _of_another_kind(self, group_id: str) -> KafkaError:
        return KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a {self.group_type} group.")

    def _at(self, end: Callable[[GroupT, Any], None]) -> Callable[[TimerKey], None]:
        """Return a deadline handler that calls `end` with the group and the member, if both still exist."""

        def passed(key: TimerKey) -> None:
            group = self._group(key.group_id)
            member = None if group is None else group.members.get(key.member_id)
            if group is not None and member is not None:
                end(group, member)

        return passed

    # ------------------------------------------------------------------ records

    def value_of(self, key: Any) -> Any | None:
        """Return the value of the record with this key; None if there is none."""
        group = self._group(key.group_id)
        return None if group is None else group.value_of(key)

    @abstractmethod
    def replay(self, record: GroupRecord) -> None:
        """Apply a record to its group; the first value creates the group."""

    def load(self, record: GroupRecord, record_offset: int, producer_id: int) -> None:
        """Apply a record that is read from the log during the load."""
        self.replay(record)


def gives_way(group: Group | None) -> bool:
    """Return True if a new group may take the id of `group`, which is None or an empty classic group."""
    return group is None or (group.group_type == CLASSIC_TYPE and group.state_name == EMPTY)
