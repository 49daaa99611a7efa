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
    """Internal request to initialize a share partition, or to reinitialize it at another start offset."""

    key: SharePartitionKey
    state_epoch: int
    start_offset: int

    def refused(self, error: ErrorCode, message: str | None = None) -> share_group_state.StatePartitionResult:
        return share_group_state.StatePartitionResult(
            partition=self.key.partition, error_code=error, error_message=message or error.message
        )


class ReadState(NamedTuple):
    """Internal request of a partition's new leader for the full state. Leaders with lower epochs are fenced."""

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
    """Internal request of a partition's leader to write changes."""

    key: SharePartitionKey
    written: share_group_state.WriteStatePartition

    def refused(self, error: ErrorCode, message: str | None = None) -> share_group_state.StatePartitionResult:
        return share_group_state.StatePartitionResult(
            partition=self.key.partition, error_code=error, error_message=message or error.message
        )


class DeleteState(NamedTuple):
    """Internal request to delete the state of a share partition."""

    key: SharePartitionKey

    def refused(self, error: ErrorCode, message: str | None = None) -> share_group_state.StatePartitionResult:
        return share_group_state.StatePartitionResult(
            partition=self.key.partition, error_code=error, error_message=message or error.message
        )


class ReadSummary(NamedTuple):
    """Internal request for the start offset of a share partition. Unlike `ReadState` it fences no leader."""

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
    """Internal request to delete some states of deleted topics.

    The response is the number of states deleted. The request is repeated until that is 0.
    """

    topic_ids: Collection[bytes]

    def refused(self, error: ErrorCode, message: str | None = None) -> int:
        return FORGETTING_REFUSED


Request = InitializeState | ReadState | WriteState | DeleteState | ReadSummary | ForgetTopics
