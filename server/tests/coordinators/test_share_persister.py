"""The way to share coordinators: this broker, another one, one that moves, and none."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio

from ottla.groupcoord.share.coordinator.records import SharePartitionKey
from ottla.replication.cluster.metadata_cache import (
    SHARE_GROUP_STATE_TOPIC,
    BrokerEndpoint,
    BrokerRegistration,
    MetadataCache,
    PartitionState,
    TopicState,
)
from ottla.replication.cluster.peers import PeerUnavailable
from ottla.server.api.share.persister import RoutedPersister
from ottla.server.coordinators.share_coordinators import WAITS_S
from ottla.wire.answers import PendingAnswer
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import share_group_state as writing

TOPIC_ID = b"t" * 16
CALLS_MAX = len(WAITS_S) + 1


def response(code: ErrorCode) -> Any:
    result = writing.StatePartitionResult(partition=0, error_code=code)
    return writing.WriteShareGroupStateResponse(
        results=[writing.WriteStateResult(topic_id=TOPIC_ID, partitions=[result])]
    )


class Town:
    """Brokers 1, which asks, and 2. `says` are the answers to come, of whoever is asked."""

    node_id = 1

    def __init__(self, leader: int | None) -> None:
        self.cluster = MetadataCache()
        for node_id in (1, 2):
            endpoint = BrokerEndpoint(node_id, "host", 9090 + node_id, None)
            self.cluster.put_broker(BrokerRegistration(node_id, {"PLAINTEXT": endpoint}, None))
        self.config = SimpleNamespace(inter_broker_listener_name="PLAINTEXT")
        self.member = SimpleNamespace(peer=lambda broker_id, purpose: self)
        self.share_coordinator = SimpleNamespace(
            partition_for=self.partition_for, write=lambda request, api_version: self.said("here")
        )
        self.says: list[Any] = []
        self.asked: list[str] = []
        self.tasks: list[Callable[[], Awaitable[None]]] = []
        if leader is not None:
            self.elect(leader)

    def elect(self, leader: int) -> None:
        state = PartitionState(replicas=(1, 2), isr=(1, 2), leader=leader, leader_epoch=0)
        self.cluster.put_topic(TopicState(SHARE_GROUP_STATE_TOPIC, b"s" * 16, (state,)))

    def partition_for(self, key: SharePartitionKey) -> int:
        assert key == SharePartitionKey("g", TOPIC_ID, 0)
        return 0

    def said(self, who: str) -> Any:
        self.asked.append(who)
        answer = self.says.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return response(answer)

    async def ask(self, request: Any, version: int, *, timeout_s: float) -> Any:
        assert version == 1
        return self.said("there")

    async def ensure_internal_topic(self, name: str) -> None:
        self.asked.append("topic")
        self.elect(2)

    async def write(self) -> tuple[ErrorCode, bool]:
        """The error, and True if it was known at once."""
        persister = RoutedPersister(cast(Any, self), self.tasks.append)
        partition = writing.WriteStatePartition(
            partition=0, state_epoch=0, leader_epoch=0, start_offset=0, delivery_complete_count=0, state_batches=[]
        )
        request = writing.WriteShareGroupStateRequest(
            group_id="g", topics=[writing.WriteStateData(topic_id=TOPIC_ID, partitions=[partition])]
        )
        answer: Any = persister.write(request)
        is_pending = isinstance(answer, PendingAnswer)
        if is_pending:
            for task in self.tasks:
                await task()
            assert answer.is_ready
            answer = answer.response()
        return ErrorCode.of(answer.results[0].partitions[0].error_code), not is_pending


async def test_the_coordinator_here_answers_at_once() -> None:
    town = Town(leader=1)
    town.says = [ErrorCode.NONE]
    assert await town.write() == (ErrorCode.NONE, True)
    town.says = [ErrorCode.FENCED_STATE_EPOCH]
    assert await town.write() == (ErrorCode.FENCED_STATE_EPOCH, True)


async def test_another_coordinator_is_asked_over_the_network() -> None:
    town = Town(leader=2)
    town.says = [ErrorCode.NONE]
    assert await town.write() == (ErrorCode.NONE, False)
    assert town.asked == ["there"]


@pytest.mark.parametrize(
    "trouble",
    [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, PeerUnavailable("gone")],
)
async def test_a_coordinator_that_is_not_there_yet_is_asked_again(autojump_clock: trio.abc.Clock, trouble: Any) -> None:
    town = Town(leader=2)
    town.says = [trouble, trouble, ErrorCode.NONE]
    assert await town.write() == (ErrorCode.NONE, False)
    town = Town(leader=1)
    town.says = [ErrorCode.NOT_COORDINATOR, ErrorCode.NONE]
    assert await town.write() == (ErrorCode.NONE, False)


async def test_everybody_gets_an_answer_in_the_end(autojump_clock: trio.abc.Clock) -> None:
    town = Town(leader=2)
    town.says = [ErrorCode.NOT_COORDINATOR] * CALLS_MAX
    assert await town.write() == (ErrorCode.NOT_COORDINATOR, False)
    assert not town.says


async def test_the_topic_of_the_coordinators_is_made(autojump_clock: trio.abc.Clock) -> None:
    town = Town(leader=None)
    town.says = [ErrorCode.NONE]
    assert await town.write() == (ErrorCode.NONE, False)
    assert town.asked == ["topic", "there"]
