"""The requests about streams groups, each sent to the shard of its group."""

from __future__ import annotations

from collections.abc import Callable

from ottla.groupcoord.modern.describing import Descriptions
from ottla.groupcoord.runtime.answers import Caller
from ottla.groupcoord.shard import GroupRuntime
from ottla.groupcoord.streams.describing import undescribed
from ottla.groupcoord.streams.heartbeat import HeartbeatResult
from ottla.groupcoord.streams.heartbeat_checks import check_heartbeat, refused_heartbeat
from ottla.groupcoord.streams.manager import DescribeStreamsGroup
from ottla.wire.answers import Given, Worked
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages.streams_group import (
    DescribedGroup,
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
    StreamsGroupHeartbeatRequest,
)

NOT_STORED = 1
"""Status of a topology description that was never stored."""


class StreamsService:
    """Handler of StreamsGroupHeartbeat and StreamsGroupDescribe."""

    def __init__(self, runtime: GroupRuntime) -> None:
        self._runtime = runtime
        self._descriptions = Descriptions(runtime, DescribeStreamsGroup, undescribed)

    def heartbeat(
        self, request: StreamsGroupHeartbeatRequest, *, api_version: int, client_id: str, client_host: str
    ) -> Given[HeartbeatResult]:
        """Handle StreamsGroupHeartbeat. The result has the response and the internal topics to create."""
        try:
            check_heartbeat(request)
        except KafkaError as error:
            return _refused(error.code, error.message)
        caller = Caller(_refused, api_version=api_version, client_id=client_id, client_host=client_host)
        return self._runtime.submit(request.group_id, request, caller)

    def describe(
        self, request: StreamsGroupDescribeRequest, *, operations: Callable[[str], int]
    ) -> Worked[Given[StreamsGroupDescribeResponse]]:
        """Describe groups, each once; `operations` returns the client's authorized operations on a group."""

        def response(groups: list[DescribedGroup]) -> StreamsGroupDescribeResponse:
            for group in groups:
                if request.include_topology_description and not group.error_code:
                    group.topology_description_status = NOT_STORED
            return StreamsGroupDescribeResponse(groups=groups)

        return self._descriptions.of(
            list(dict.fromkeys(request.group_ids)),
            response,
            operations=operations if request.include_authorized_operations else None,
        )


def _refused(error: ErrorCode, message: str | None = None) -> HeartbeatResult:
    return HeartbeatResult(refused_heartbeat(error, message), [], ())
