"""What is asked of one share partition: each request of the wire is split into these. `refused` is the answer with an error."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from ottla.groupcoord.runtime.outcome import FORGETTING_REFUSED
from ottla.groupcoord.share.coordinator.keys import SharePartitionKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import (
    delete_share_group_state,
    initialize_share_group_state,
    read_share_group_state,
    read_share_group_state_summary,
    write_share_group_state,
)


class InitializeState(NamedTuple):
    """Begin a share partition, or begin it anew at another offset."""

    key: SharePartitionKey
    state_epoch: int
    start_offset: int

    def refused(self, error: ErrorCode, message: str | None = None) -> initialize_share_group_state.PartitionResult:
        return initialize_share_group_state.PartitionResult(
            partition=self.key.partition, error_code=error, error_message=message or error.message
        )


class ReadState(NamedTuple):
    """A new leader of the partition wants to know everything. From then on leaders before it are fenced."""

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
    """The leader of the partition says what has changed."""

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
    """Where the share partition starts, whoever asks."""

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
    """Forget some of the share partitions of deleted topics; answered with how many these were."""

    topic_ids: Collection[bytes]

    def refused(self, error: ErrorCode, message: str | None = None) -> int:
        return FORGETTING_REFUSED


Request = InitializeState | ReadState | WriteState | DeleteState | ReadSummary | ForgetTopics
