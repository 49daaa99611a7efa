"""The requests of classic groups' members, and DescribeGroups."""

from __future__ import annotations

import trio

from ottla.groupcoord.classic.group import refused_join, refused_sync
from ottla.groupcoord.classic.manager import DescribeGroup, undescribed
from ottla.groupcoord.config import GroupConfig
from ottla.groupcoord.effects import TEXT_LENGTH_MAX
from ottla.groupcoord.runtime.answers import Caller, HiddenTopics, finished, then
from ottla.groupcoord.shard import ELEMENTS_PER_SLICE, GroupRuntime
from ottla.wire.answers import Given, Worked
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages.classic_group import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupResponse,
)
from ottla.wire.messages.groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse


class ClassicService:
    """Handler of DescribeGroups and of the requests of classic groups' members."""

    def __init__(self, runtime: GroupRuntime, config: GroupConfig) -> None:
        self._runtime = runtime
        self._config = config

    def join_group(
        self,
        request: JoinGroupRequest,
        *,
        api_version: int,
        client_id: str,
        client_host: str,
        hidden_topics: HiddenTopics | None = None,
    ) -> Given[JoinGroupResponse]:
        """Handle JoinGroup. `hidden_topics` finds topics that the client may not see; None: it may see all topics."""
        config = self._config

        def refuse(error: ErrorCode) -> JoinGroupResponse:
            return refused_join(request.member_id, error, api_version)

        if not 0 < len(request.group_id) <= TEXT_LENGTH_MAX:
            return refuse(ErrorCode.INVALID_GROUP_ID)
        timeout_ms = request.session_timeout_ms
        if not config.group_min_session_timeout_ms <= timeout_ms <= config.group_max_session_timeout_ms:
            return refuse(ErrorCode.INVALID_SESSION_TIMEOUT)
        # A join waits for other members, often for long. It is given up when its connection is gone.
        caller = Caller(
            refuse,
            api_version=api_version,
            client_id=client_id,
            client_host=client_host,
            hidden_topics=hidden_topics,
            is_abandonable=True,
        )
        return self._runtime.submit(request.group_id, request, caller)

    def sync_group(self, request: SyncGroupRequest, *, api_version: int) -> Given[SyncGroupResponse]:
        """Handle SyncGroup. Since version 5 protocol type and protocol name are mandatory."""
        if api_version >= 5 and (request.protocol_type is None or request.protocol_name is None):
            return refused_sync(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if not request.group_id:
            return refused_sync(ErrorCode.INVALID_GROUP_ID)
        caller = Caller(refused_sync, api_version=api_version, is_abandonable=True)
        return self._runtime.submit(request.group_id, request, caller)

    def heartbeat(self, request: HeartbeatRequest) -> HeartbeatResponse:
        """Handle Heartbeat. While the group is being loaded, every heartbeat succeeds."""
        if not request.group_id:
            return HeartbeatResponse(error_code=ErrorCode.INVALID_GROUP_ID)
        try:
            error: ErrorCode = self._runtime.read(request.group_id, request)
        except KafkaError as refusal:
            error = refusal.code
        if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            error = ErrorCode.NONE
        return HeartbeatResponse(error_code=error)

    def leave_group(self, request: LeaveGroupRequest, *, api_version: int) -> Worked[Given[LeaveGroupResponse]]:
        """Handle LeaveGroup. Before version 3 a request names one member, whose error becomes the response's error."""
        if api_version < 3:
            # The older form is turned into the newer one, so that the shard knows only one.
            request.members = [MemberIdentity(member_id=request.member_id)]
        if len(request.members) > ELEMENTS_PER_SLICE:
            return self._leave_in_parts(request, api_version)

        def refuse(error: ErrorCode) -> LeaveGroupResponse:
            return LeaveGroupResponse(error_code=error)

        def finish(response: LeaveGroupResponse) -> LeaveGroupResponse:
            if api_version >= 3 or response.error_code:
                return response
            return LeaveGroupResponse(error_code=response.members[0].error_code)

        if not request.group_id:
            return refuse(ErrorCode.INVALID_GROUP_ID)
        return then(self._runtime.submit(request.group_id, request, Caller(refuse)), finish)

    async def _leave_in_parts(self, request: LeaveGroupRequest, api_version: int) -> LeaveGroupResponse:
        whole = LeaveGroupResponse(error_code=ErrorCode.NONE, members=[])
        for start in range(0, len(request.members), ELEMENTS_PER_SLICE):
            members = request.members[start : start + ELEMENTS_PER_SLICE]
            part = LeaveGroupRequest(group_id=request.group_id, members=members)
            response: LeaveGroupResponse = await finished(self.leave_group(part, api_version=api_version))
            if response.error_code:
                return response
            whole.members += response.members
            await trio.lowlevel.checkpoint()
        return whole

    # ------------------------------------------------------------------ describe

    def describe_groups(self, request: DescribeGroupsRequest, *, api_version: int) -> DescribeGroupsResponse:
        """Describe the named groups; a group that is named repeatedly is described once."""
        groups = [self._describe(group_id, api_version) for group_id in dict.fromkeys(request.groups)]
        return DescribeGroupsResponse(groups=groups)

    def _describe(self, group_id: str, api_version: int) -> DescribedGroup:
        try:
            described: DescribedGroup = self._runtime.read(group_id, DescribeGroup(group_id, api_version))
        except KafkaError as error:
            return undescribed(group_id, error.code)
        return described
