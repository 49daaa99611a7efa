"""The way of a request to the shard of its group: every part of the service takes it."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Protocol, TypeVar

from ottla.groupcoord.java_hashing import absolute_string_hash
from ottla.groupcoord.runtime.answers import WaitingCaller
from ottla.groupcoord.runtime.coordinator_runtime import Runtime
from ottla.groupcoord.runtime.partition_runtime import PartitionRuntime
from ottla.groupcoord.shard import Shard
from ottla.wire.answers import Given
from ottla.wire.errors import ErrorCode, KafkaError

T = TypeVar("T")

ELEMENTS_PER_SLICE = 500
"""A request about more topics, partitions and members than this is taken in parts."""


class GroupShards:
    """The shards of the groups that this broker coordinates."""

    def __init__(self, runtime: Runtime[Shard]) -> None:
        self.runtime = runtime

    def partition_for(self, group_id: str) -> int:
        """The partition of the offsets topic whose leader coordinates the group."""
        # Kafka's own formula, because brokers of both makes in one cluster have to agree on the coordinator.
        return absolute_string_hash(group_id) % self.runtime.log.partition_count()

    def submit(self, group_id: str, request: Any, caller: WaitingCaller[T]) -> Given[T]:
        """Have a request handled. Returns the response or, when others have to be waited for, the answer that will have it."""
        try:
            return self._partition_of(group_id).submit(request, caller)
        except KafkaError as error:
            return caller.refuse(error.code)

    def read(self, group_id: str, request: Any) -> Any:
        """Answer a request that only reads. Raises KafkaError if this broker does not coordinate the group now."""
        now_ms = self.now_ms()
        return self._partition_of(group_id).shard(now_ms).read(request, now_ms=now_ms)

    def check_running(self) -> None:
        """Raise KafkaError if there is no coordinator yet, or no longer."""
        if not self.runtime.is_running:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def partitions(self) -> list[PartitionRuntime[Shard]]:
        return self.runtime.partitions()

    def now_ms(self) -> int:
        return self.runtime.now_ms()

    def _partition_of(self, group_id: str) -> PartitionRuntime[Shard]:
        self.check_running()
        partition = self.runtime.partition(self.partition_for(group_id))
        if partition is None or self.runtime.is_suspended:
            # A fenced broker may have been replaced without knowing it, so it says nothing about groups.
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        return partition


class OffsetRights(Protocol):
    """Rights of the client that sent a request. None in its place: it may see everything."""

    def may_describe(self, group_id: str) -> bool:
        """True if the client may see a group at all."""

    def denied(self, topics: Collection[str]) -> Collection[str]:
        """Topics among the given that it may not see. Called for some hundred names at a time."""
