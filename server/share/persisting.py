"""The way of a share partition's state: requests to its share coordinator, and what their answers mean to the leader.

A share partition is read once, when this broker begins to lead it for a group, and written with every change.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from ottla.groupcoord.share.partition.in_flight import RecordState, StateBatch
from ottla.groupcoord.share.partition.share_partition import SharePartition, StateWrite
from ottla.wire.answers import Given
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages import read_share_group_state as reading
from ottla.wire.messages import write_share_group_state as writing
from ottla.wire.messages.read_share_group_state import ReadShareGroupStateRequest, ReadShareGroupStateResponse
from ottla.wire.messages.write_share_group_state import WriteShareGroupStateRequest, WriteShareGroupStateResponse

_SHORT_MAX = (1 << 15) - 1
UNINITIALIZED = -1
"""The start offset of a share partition that nobody has fetched from yet."""

_TO_MEMBERS = {
    ErrorCode.NOT_COORDINATOR: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.GROUP_ID_NOT_FOUND: ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    # Another leader has been there: the member has to look for it.
    ErrorCode.FENCED_LEADER_EPOCH: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_STATE_EPOCH: ErrorCode.NOT_LEADER_OR_FOLLOWER,
}
FENCING = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_STATE_EPOCH,
    ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)
"""Errors after which a share partition has to be loaded anew."""


class SharePersister(Protocol):
    """The way to the share coordinators. They answer everything, in the end with an error."""

    def read(self, request: ReadShareGroupStateRequest) -> Given[ReadShareGroupStateResponse]: ...

    def write(self, request: WriteShareGroupStateRequest) -> Given[WriteShareGroupStateResponse]: ...


class StoredState(NamedTuple):
    """What the share coordinator knows."""

    state_epoch: int
    start_offset: int
    batches: list[StateBatch]


def read_request(partition: SharePartition) -> ReadShareGroupStateRequest:
    """Asks for the state, and fences the leaders before this one."""
    group_id, topic_id, index = partition.key
    asked = reading.PartitionData(partition=index, leader_epoch=partition.leader_epoch)
    return ReadShareGroupStateRequest(
        group_id=group_id, topics=[reading.ReadStateData(topic_id=topic_id, partitions=[asked])]
    )


def state_of(partition: SharePartition, response: ReadShareGroupStateResponse) -> StoredState:
    """What was read; KafkaError as the member hears it."""
    result = _only(partition, response.results)
    _raise(result.error_code)
    try:
        batches = [
            StateBatch(each.first_offset, each.last_offset, RecordState(each.delivery_state), each.delivery_count)
            for each in result.state_batches
        ]
    except ValueError:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "The stored state has an unknown delivery state") from None
    return StoredState(result.state_epoch, result.start_offset, batches)


def write_request(partition: SharePartition, write: StateWrite) -> WriteShareGroupStateRequest:
    """Stores what has changed."""
    group_id, topic_id, index = partition.key
    changed = writing.PartitionData(
        partition=index,
        state_epoch=partition.state_epoch,
        leader_epoch=partition.leader_epoch,
        start_offset=write.start_offset,
        delivery_complete_count=write.delivery_complete_count,
        state_batches=[
            writing.StateBatch(
                first_offset=first, last_offset=last, delivery_state=state, delivery_count=min(count, _SHORT_MAX)
            )
            for first, last, state, count in write.batches
        ],
    )
    return WriteShareGroupStateRequest(
        group_id=group_id, topics=[writing.WriteStateData(topic_id=topic_id, partitions=[changed])]
    )


def error_of(partition: SharePartition, response: WriteShareGroupStateResponse) -> ErrorCode:
    """How a write ended, as the member hears it."""
    try:
        _raise(_only(partition, response.results).error_code)
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE


def _only(partition: SharePartition, results: Sequence[Any]) -> Any:
    """The result for this share partition, which has to be the only one."""
    found: list[Any] = (
        results[0].partitions if len(results) == 1 and results[0].topic_id == partition.key.topic_id else []
    )
    if len(found) != 1 or found[0].partition != partition.key.partition:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "The share coordinator answered for another partition")
    return found[0]


def _raise(code: int) -> None:
    error = ErrorCode.of(code)
    if error is not ErrorCode.NONE:
        raise KafkaError(_TO_MEMBERS.get(error, ErrorCode.UNKNOWN_SERVER_ERROR))
