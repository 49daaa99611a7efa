"""Internal requests about one share partition; each wire request is split into these.

`refused` makes the response with an error.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from ottla.groupcoord.runtime.coordinator_shard import FORGETTING_REFUSED
from ottla.groupcoord.share.coordinator.records import SharePartitionKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import (
    delete_share_group_state,
    initialize_share_group_state,
    read_share_group_state,
    read_share_group_state_summary,
    write_share_group_state,
)


class InitializeState(NamedTuple):
    """Initialize a share partition, or initialize it anew at another offset."""

    key: SharePartitionKey
    state_epoch: int
    start_offset: int

    def refused(self, error: ErrorCode, message: str | None = None) -> initialize_share_group_state.PartitionResult:
        return initialize_share_group_state.PartitionResult(
            partition=self.key.partition, error_code=error, error_message=message or error.message
        )


class ReadState(NamedTuple):
    """Read all state for a new leader of the partition; leaders of lower epochs are fenced from then on."""

    key: SharePartitionKey
    leader_epoch: int

    def refused(self, error: ErrorCode, message: str | None = None) -> read_share_group_state.PartitionResult:
        return read_share_group_state.PartitionResult(
            partition=self.key.partition,
            error_code=error,
            error_message=message or error.message,
            state_epoch=0,
            start_offset=0,
            state_batches=[],
        )


class WriteState(NamedTuple):
    """Write changes of the partition's leader."""

    key: SharePartitionKey
    written: write_share_group_state.PartitionData

    def refused(self, error: ErrorCode, message: str | None = None) -> write_share_group_state.PartitionResult:
        return write_share_group_state.PartitionResult(
            partition=self.key.partition, error_code=error, error_message=message or error.message
        )


class DeleteState(NamedTuple):
    """Forget a share partition."""

    key: SharePartitionKey

    def refused(self, error: ErrorCode, message: str | None = None) -> delete_share_group_state.PartitionResult:
        return delete_share_group_state.PartitionResult(
            partition=self.key.partition, error_code=error, error_message=message or error.message
        )


class ReadSummary(NamedTuple):
    """Read the start offset of a share partition; no leader is fenced."""

    key: SharePartitionKey

    def refused(self, error: ErrorCode, message: str | None = None) -> read_share_group_state_summary.PartitionResult:
        return read_share_group_state_summary.PartitionResult(
            partition=self.key.partition,
            error_code=error,
            error_message=message or error.message,
            state_epoch=0,
            leader_epoch=0,
            start_offset=0,
        )


class ForgetTopics(NamedTuple):
    """Forget some of the share partitions of deleted topics; the response is their number."""

    topic_ids: Collection[bytes]

    def refused(self, error: ErrorCode, message: str | None = None) -> int:
        return FORGETTING_REFUSED


Request = InitializeState | ReadState | WriteState | DeleteState | ReadSummary | ForgetTopics
