"""Internal requests about one share partition; each wire request is split into these.

`refused` makes the response with an error.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from ottla.groupcoord.runtime.coordinator_shard import FORGETTING_REFUSED
from ottla.groupcoord.share.coordinator.records import SharePartitionKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import share_group_state


class InitializeState(NamedTuple):
    """Initialize a share partition, or reinitialize it at another offset."""

    key: SharePartitionKey
    state_epoch: int
    start_offset: int

    def refused(self, error: ErrorCode, message: str | None = None) -> share_group_state.StatePartitionResult:
        return share_group_state.StatePartitionResult(
            partition=self.key.partition, error_code=error, error_message=message or error.message
        )


class ReadState(NamedTuple):
    """Read all state for a new leader of the partition; leaders of lower epochs are fenced from then on."""

    key: SharePartitionKey
    leader_epoch: int

    def refused(self, error: ErrorCode, message: str | None = None) -> share_group_state.ReadStatePartitionResult:
        return share_group_state.ReadStatePartitionResult(
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
    written: share_group_state.WriteStatePartition

    def refused(self, error: ErrorCode, message: str | None = None) -> share_group_state.StatePartitionResult:
        return share_group_state.StatePartitionResult(
            partition=self.key.partition, error_code=error, error_message=message or error.message
        )


class DeleteState(NamedTuple):
    """Forget a share partition."""

    key: SharePartitionKey

    def refused(self, error: ErrorCode, message: str | None = None) -> share_group_state.StatePartitionResult:
        return share_group_state.StatePartitionResult(
            partition=self.key.partition, error_code=error, error_message=message or error.message
        )


class ReadSummary(NamedTuple):
    """Read the start offset of a share partition; no leader is fenced."""

    key: SharePartitionKey

    def refused(
        self, error: ErrorCode, message: str | None = None
    ) -> share_group_state.ReadStateSummaryPartitionResult:
        return share_group_state.ReadStateSummaryPartitionResult(
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
