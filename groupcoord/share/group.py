"""A share group as the shard, offsets and administrators see it. `state.py` has its state, `heartbeat.py` moves it."""

from __future__ import annotations

from typing import Any

from ottla.groupcoord.effects import Effects, KeyedState, Steps, in_pieces
from ottla.groupcoord.group import PartitionCheck
from ottla.groupcoord.group_settings import GroupSettingsSource
from ottla.groupcoord.modern.group import HostedGroup
from ottla.groupcoord.records import KeyedRecord
from ottla.groupcoord.share.records import (
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupMemberMetadataKey,
    ShareGroupMetadataKey,
    ShareGroupStatePartitionMetadataKey,
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupTargetAssignmentMetadataKey,
)
from ottla.groupcoord.share.state import Member, ShareGroupState
from ottla.wire.errors import ErrorCode

GROUP_TYPE = "share"
EMPTY, STABLE = "Empty", "Stable"
SESSION = "share-session"


class ShareGroup(ShareGroupState, HostedGroup[Member]):
    """See the module's docstring."""

    group_type = GROUP_TYPE
    timer_kinds = (SESSION,)

    def __init__(self, group_id: str, effects: Effects, keyed: KeyedState, settings_of: GroupSettingsSource) -> None:
        """`keyed` puts the group's records in force."""
        ShareGroupState.__init__(self, group_id)
        HostedGroup.__init__(self, effects, settings_of)
        self._keyed = keyed

    def put(self, key: Any, value: Any | None) -> None:
        """Append a record that comes into force at once."""
        self._effects.put(self._keyed, KeyedRecord(key, value))

    @property
    def state_name(self) -> str:
        return STABLE if self.members else EMPTY

    # ------------------------------------------------------------------ offsets, which share groups have elsewhere

    def check_offset_commit(
        self,
        member_id: str,
        group_instance_id: str | None,
        generation_id: int,
        *,
        api_version: int,
        is_transactional: bool = False,
    ) -> ErrorCode | PartitionCheck:
        return ErrorCode.GROUP_ID_NOT_FOUND

    def check_offset_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        # It has none, and Kafka tells that as it tells it of a group that does not exist.
        return ErrorCode.NONE

    def check_offset_delete(self) -> ErrorCode:
        return ErrorCode.GROUP_ID_NOT_FOUND

    def is_subscribed_to(self, topic: str) -> bool:
        return topic in self.subscriptions

    def offsets_retained_since(self, commit_timestamp_ms: int) -> int | None:
        return None

    # ------------------------------------------------------------------ its end

    @property
    def is_forgettable(self) -> bool:
        # The offsets of a share group are with the share coordinator, and never expire.
        return False

    def delete(self) -> None:
        """Append a tombstone for each record of the group, that of the group itself at the end."""
        for member_id in list(self.positions):
            self.put(ShareGroupCurrentMemberAssignmentKey(group_id=self.group_id, member_id=member_id), None)
        for member_id in list(self.targets):
            self.put(ShareGroupTargetAssignmentMemberKey(group_id=self.group_id, member_id=member_id), None)
        self.put(ShareGroupTargetAssignmentMetadataKey(group_id=self.group_id), None)
        for member_id in list(self.members):
            self.put(ShareGroupMemberMetadataKey(group_id=self.group_id, member_id=member_id), None)
        self.put(ShareGroupStatePartitionMetadataKey(group_id=self.group_id), None)
        self.put(ShareGroupMetadataKey(group_id=self.group_id), None)

    # ------------------------------------------------------------------ deadlines

    def start_sessions(self) -> Steps:
        return in_pieces(list(self.members), self.start_session)

    def start_session(self, member_id: str) -> None:
        self.schedule(SESSION, member_id, self.settings.share_session_timeout_ms)
