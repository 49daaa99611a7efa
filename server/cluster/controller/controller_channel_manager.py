"""Channels from the controller to the brokers: requests arrive in order, and at least once (Kafka's ControllerChannelManager).

Every live broker has a queue and a task. A request is sent again until it was answered; a broker that cannot be reached
long enough loses its session, and with it its queue. A broker that came up again has a channel of its own.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Any

import trio

from ottla.replication.cluster.metadata_cache import BrokerRegistration
from ottla.replication.cluster.peers import Peer, PeerUnavailable
from ottla.replication.controller.decisions import ControlRequest, TopicPartition
from ottla.wire.messages.controller_requests import (
    LeaderAndIsrRequest,
    StopReplicaRequest,
    StopReplicaResponse,
    UpdateMetadataRequest,
)

logger = logging.getLogger("ottla.controller")

# Those of inter.broker.protocol.version 3.9; brokers do not negotiate them.
VERSIONS: dict[type, int] = {LeaderAndIsrRequest: 7, UpdateMetadataRequest: 8, StopReplicaRequest: 4}
RETRY_S = 0.1
GOODBYE_S = 1.0  # how long a broker that does not answer may hold up the end of its channel

Connect = Callable[[BrokerRegistration], Peer]
OnAnswer = Callable[["BrokerChannel", ControlRequest, Any], None]


class BrokerChannel:
    """Channel from the controller to a broker, for one incarnation (registration) of the broker."""

    def __init__(self, broker: BrokerRegistration, connect: Connect, on_answer: OnAnswer, timeout_s: float) -> None:
        self.broker, self._connect = broker, connect
        self._on_answer, self._timeout_s = on_answer, timeout_s
        self._queue: deque[ControlRequest] = deque()
        self._arrived = trio.Event()
        self._scope = trio.CancelScope()
        self._peer: Peer | None = None
        self._is_troubled = False  # one line in the log for each outage

    def put(self, requests: list[ControlRequest]) -> None:
        self._queue.extend(requests)
        self._arrived.set()

    def update(self, broker: BrokerRegistration) -> None:
        """Replace the broker's endpoint; the next connection uses it."""
        self.broker = broker

    def close(self) -> None:
        """Close the channel; unanswered requests are not sent again."""
        self._scope.cancel()

    async def run(self) -> None:
        """Send queued requests until the channel is closed."""
        with self._scope:
            try:
                while True:
                    request = await self._next()
                    self._on_answer(self, request, await self._answer(request))
            finally:
                await self._hang_up()

    async def _next(self) -> ControlRequest:
        while not self._queue:
            self._arrived = trio.Event()
            await self._arrived.wait()
        return self._queue.popleft()

    async def _answer(self, request: ControlRequest) -> Any:
        while True:
            try:
                if self._peer is None:
                    # At each attempt, as the broker may have another address by now.
                    self._peer = self._connect(self.broker)
                answer = await self._peer.ask(request, VERSIONS[type(request)], timeout_s=self._timeout_s)
            except PeerUnavailable as problem:
                self._note_trouble(problem)
                await self._hang_up()
                await trio.sleep(RETRY_S)
            else:
                self._is_troubled = False
                return answer

    def _note_trouble(self, problem: PeerUnavailable) -> None:
        if not self._is_troubled:
            logger.warning("The controller cannot reach broker %d, and tries again: %s", self.broker.node_id, problem)
        self._is_troubled = True

    async def _hang_up(self) -> None:
        # Shielded: this also runs when the channel is being cancelled.
        peer, self._peer = self._peer, None
        if peer is not None:
            with trio.move_on_after(GOODBYE_S, shield=True):
                await peer.aclose()


class ControllerChannelManager:
    """The controller's channels to all live brokers; `nursery` runs their tasks."""

    def __init__(
        self, nursery: trio.Nursery, connect: Connect, on_answer: OnAnswer, timeout_s: Callable[[], float]
    ) -> None:
        self._nursery, self._connect = nursery, connect
        self._on_answer, self._timeout_s = on_answer, timeout_s
        self._channels: dict[int, BrokerChannel] = {}

    def open(self, broker: BrokerRegistration) -> None:
        """Open a channel to a broker that has registered; close the channel to the broker's former incarnation."""
        # What was for its former incarnation must not reach this one: it may not know what went before.
        self.close(broker.node_id)
        channel = BrokerChannel(broker, self._connect, self._on_answer, self._timeout_s())
        self._channels[broker.node_id] = channel
        self._nursery.start_soon(channel.run)

    def close(self, node_id: int) -> None:
        if (channel := self._channels.pop(node_id, None)) is not None:
            channel.close()

    def update(self, broker: BrokerRegistration) -> None:
        self._channels[broker.node_id].update(broker)

    def put(self, node_id: int, requests: list[ControlRequest]) -> None:
        """Queue requests for a broker; do nothing if the broker has no channel."""
        if (channel := self._channels.get(node_id)) is not None:
            channel.put(requests)

    def is_open(self, channel: BrokerChannel) -> bool:
        return self._channels.get(channel.broker.node_id) is channel


def deleted_replicas(request: StopReplicaRequest, response: StopReplicaResponse) -> dict[TopicPartition, int]:
    """Return the error codes in `response` for those replicas that `request` told the broker to delete."""
    asked = {
        (topic.topic_name, each.partition_index)
        for topic in request.topic_states
        for each in topic.partition_states
        if each.delete_partition
    }
    return {
        name: each.error_code
        for each in response.partition_errors
        if (name := (each.topic_name, each.partition_index)) in asked
    }
