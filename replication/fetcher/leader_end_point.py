"""A replica fetcher's connection to its leader (Kafka: RemoteLeaderEndPoint): fetches that can be given up, and offset lookups.

A new partition does not wait for a leader that has nothing to send: an idle fetch is given up soon after it was added.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import trio

from ottla.wire.errors import ErrorCode
from ottla.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

if TYPE_CHECKING:
    from ottla.replication.cluster.peers import Peer
    from ottla.replication.config import ReplicationConfig
    from ottla.replication.fetcher.fetch_session_handler import PartitionFetchState

LIST_OFFSETS_VERSION = 9  # brokers of Kafka 3.9 speak this one among themselves, and do not negotiate
GRACE_S = 0.02  # for an answer that is just coming, before an idle fetch is given up for the sake of new partitions
GOODBYE_S = 1.0  # to hang up, even while the broker is being stopped
INTERRUPTION_S = 0.1  # for the answer to a fetch after one that was given up; twice as long for the next


class LeaderEndPoint:
    """Connection of a fetcher to its leader; only the fetcher's task may call methods other than `interrupt`."""

    def __init__(self, node_id: int, *, connect: Callable[[], Peer], config: Callable[[], ReplicationConfig]) -> None:
        """Create the end point; it calls `connect`, which may raise PeerUnavailable, for each new connection."""
        self._node_id = node_id
        self._connect = connect
        self._config = config
        self._peer: Peer | None = None
        self._asking: trio.CancelScope | None = None
        self._interrupted_s = 0.0
        self._interruptions = 0  # since the last answer

    def interrupt(self) -> None:
        """Interrupt the wait for a fetch response, because there is more to fetch."""
        if self._asking is None:
            return
        soon = trio.current_time() + GRACE_S
        # An answer that takes longer than the grace would be given
        # up each time that a partition is added, and never come.
        if self._interruptions:  # it may be that an answer takes long on its way
            soon = max(soon, self._interrupted_s + INTERRUPTION_S * 2**self._interruptions)
        # The deadline only moves nearer: a later interruption must not let an earlier one wait longer.
        self._asking.deadline = min(self._asking.deadline, soon)

    async def fetch(self, request: Any, version: int) -> Any:
        """Send a fetch and return its response; None if it was interrupted first. Raises PeerUnavailable."""
        with trio.CancelScope() as self._asking:
            try:
                response = await self._ask(request, version)
                self._interruptions = 0
                return response
            finally:
                # An interruption that comes later must not shorten a wait for something else.
                self._asking = None
        # Only the deadline of `interrupt` leads here.
        self._interrupted_s = trio.current_time()
        self._interruptions += 1
        return None

    async def list_offsets(
        self, wanted: Sequence[PartitionFetchState], timestamp: int
    ) -> dict[PartitionFetchState, tuple[ErrorCode, int]]:
        """Return each partition's (error code, offset) at `timestamp` (first or last). Raises PeerUnavailable."""
        topics: dict[str, ListOffsetsTopic] = {}
        for each in wanted:
            topic = topics.setdefault(each.partition.topic, ListOffsetsTopic(name=each.partition.topic, partitions=[]))
            topic.partitions.append(
                ListOffsetsPartition(
                    # A leader of another epoch refuses: its ends must not cut this log.
                    partition_index=each.partition.index,
                    current_leader_epoch=each.leader_epoch,
                    timestamp=timestamp,
                )
            )
        request = ListOffsetsRequest(replica_id=self._node_id, topics=list(topics.values()))
        response = await self._ask(request, LIST_OFFSETS_VERSION)
        answered = {(topic.name, each.partition_index): each for topic in response.topics for each in topic.partitions}
        offsets: dict[PartitionFetchState, tuple[ErrorCode, int]] = {}
        for each in wanted:
            # The leader may leave partitions out. Without an answer nothing is known, and nothing may be cut.
            answer = answered.get((each.partition.topic, each.partition.index))
            if answer is None:
                offsets[each] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1
            else:
                offsets[each] = ErrorCode.of(answer.error_code), answer.offset
        return offsets

    async def close(self) -> None:
        """Close the connection; the next request connects again."""
        # Forgotten before the await: no request may use a connection that is being closed.
        peer, self._peer = self._peer, None
        if peer is not None:
            # A cancelled task could not await the goodbye without a shield. A peer that hangs may not hold up the stop.
            with trio.move_on_after(GOODBYE_S, shield=True):
                await peer.aclose()

    async def _ask(self, request: Any, version: int) -> Any:
        if self._peer is None:
            self._peer = self._connect()
        return await self._peer.ask(request, version, timeout_s=self._config().replica_socket_timeout_ms / 1000)
