"""A broker that leads topic t for share groups, with a share coordinator in memory, for tests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import trio

from ottla.groupcoord.config import SharePartitionConfig
from ottla.groupcoord.group_settings import GroupSettings
from ottla.groupcoord.share.coordinator.records import SharePartitionKey
from ottla.groupcoord.share.partition.in_flight import RecordState
from ottla.replication.cluster.metadata_cache import (
    BrokerEndpoint,
    BrokerRegistration,
    MetadataCache,
    PartitionState,
    TopicState,
)
from ottla.replication.config import ReplicationConfig
from ottla.replication.log.descriptors import Descriptors
from ottla.replication.log.tests.logs import NOW_MS, TOPIC_ID, batch, new_log
from ottla.replication.partition.partition import Partition
from ottla.server.api.handlers.share_fetch import share_acknowledge, share_fetch
from ottla.server.api.share.share_partition_manager import SharePartitionManager
from ottla.server.dispatch.context import RequestContext
from ottla.server.environment import Environment
from ottla.server.network.deadlines import Deadlines
from ottla.wire.answers import PendingAnswer
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import share_group_state
from ottla.wire.messages.share_fetch import (
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    FetchPartition,
    FetchTopic,
    ForgottenTopic,
    ShareAcknowledgeRequest,
    ShareFetchRequest,
)
from ottla.wire.messages.share_fetch import AcknowledgementBatch as SaidAlone

EPOCH = 3
Said = tuple[int, int, int | Sequence[int]]


class Stored:
    """The share coordinator's state of one share partition."""

    def __init__(self) -> None:
        self.start_offset = -1
        self.records: dict[int, tuple[int, int]] = {}


class Slow(PendingAnswer[Any]):
    """An answer that comes when the test lets it."""

    def __init__(self, make: Any) -> None:
        super().__init__()
        self.make = make

    def response(self) -> Any:
        return self.make()

    def abandon(self) -> None: ...


class Coordinator:
    """A share coordinator. With `is_slow` it answers by `answer`."""

    def __init__(self) -> None:
        self.stored: dict[SharePartitionKey, Stored] = {}
        self.error = ErrorCode.NONE
        self.is_slow = False
        self.waiting: list[Slow] = []

    def answer(self) -> None:
        waiting, self.waiting = self.waiting, []
        for each in waiting:
            each.become_ready()

    def _given(self, make: Any) -> Any:
        if not self.is_slow:
            return make()
        self.waiting.append(Slow(make))
        return self.waiting[-1]

    def of(self, request: Any) -> tuple[SharePartitionKey, Any, Stored]:
        (topic,) = request.topics
        (partition,) = topic.partitions
        key = SharePartitionKey(request.group_id, topic.topic_id, partition.partition)
        return key, partition, self.stored.setdefault(key, Stored())

    def read(self, request: Any) -> Any:
        key, _, stored = self.of(request)

        def make() -> Any:
            batches: list[Any] = []
            for offset, (count, state) in sorted(stored.records.items()):
                last = batches[-1] if batches else None
                if last and (last.last_offset, last.delivery_count, last.delivery_state) == (offset - 1, count, state):
                    last.last_offset = offset
                else:
                    batches.append(
                        share_group_state.StateBatch(
                            first_offset=offset, last_offset=offset, delivery_state=state, delivery_count=count
                        )
                    )
            result = share_group_state.ReadStatePartitionResult(
                partition=key.partition,
                error_code=self.error,
                state_epoch=0,
                start_offset=stored.start_offset,
                state_batches=batches,
            )
            return share_group_state.ReadShareGroupStateResponse(
                results=[share_group_state.ReadStateResult(topic_id=key.topic_id, partitions=[result])]
            )

        return self._given(make)

    def write(self, request: Any) -> Any:
        key, asked, stored = self.of(request)

        def make() -> Any:
            if self.error is ErrorCode.NONE:
                stored.start_offset = asked.start_offset
                for each in asked.state_batches:
                    assert each.delivery_state != RecordState.ACQUIRED
                    for offset in range(each.first_offset, each.last_offset + 1):
                        found = each.delivery_count, each.delivery_state
                        stored.records[offset] = max(stored.records.get(offset, found), found)
                stored.records = {o: each for o, each in stored.records.items() if o >= stored.start_offset}
            result = share_group_state.StatePartitionResult(partition=key.partition, error_code=self.error)
            return share_group_state.WriteShareGroupStateResponse(
                results=[share_group_state.WriteStateResult(topic_id=key.topic_id, partitions=[result])]
            )

        return self._given(make)


class Market:
    """A broker with share groups, which begin with the earliest record."""

    node_id = 1
    is_in_cluster = False
    authorizer = None

    def __init__(self, partitions: int = 1, **settings: Any) -> None:
        self.cluster = MetadataCache()
        state = PartitionState(replicas=(1,), isr=(1,), leader=1, leader_epoch=EPOCH)
        self.cluster.put_topic(TopicState("t", TOPIC_ID, (state,) * partitions))
        for node_id in (1, 2):
            endpoint = BrokerEndpoint(node_id, f"host{node_id}", 9090 + node_id, None)
            self.cluster.put_broker(BrokerRegistration(node_id, {"PLAINTEXT": endpoint}, None))
        self.replicas = SimpleNamespace(partition=lambda topic, index: self.partitions[index])
        self.config = SimpleNamespace(
            replication=ReplicationConfig(), share_partitions=SharePartitionConfig(**settings)
        )
        groups = SimpleNamespace(in_force=lambda group_id: GroupSettings(), on_change=lambda listener: None)
        self.configs = SimpleNamespace(groups=groups)
        self.member = SimpleNamespace(features=SimpleNamespace(level=lambda name: self.share_version))
        self.share_version = 2
        self.deadlines = Deadlines()
        self.environment = Environment(descriptors=Descriptors(1000))
        self.coordinator = Coordinator()
        self.share_groups = SharePartitionManager(cast(Any, self), self.coordinator)
        self.partitions = [self.led(index) for index in range(partitions)]
        for index in range(partitions):
            for group in ("g", "h"):
                stored = self.coordinator.stored[SharePartitionKey(group, TOPIC_ID, index)] = Stored()
                stored.start_offset = 0

    def led(self, index: int) -> Partition:
        partition = Partition("t", index, new_log(), local_id=1)
        partition.make_leader(leader_epoch=EPOCH, partition_epoch=0, replicas=(1,), isr=(1,), now_ms=NOW_MS)
        return partition

    def now_ms(self) -> int:
        return NOW_MS

    def partition(self, topic: str, index: int) -> Partition:
        return self.partitions[index]

    def produce(self, *counts: int, index: int = 0) -> None:
        for count in counts:
            self.partitions[index].append_as_leader(batch(*[1] * count), required_acks=1, now_ms=NOW_MS)

    def set(self, group: str = "g", **settings: Any) -> None:
        """Settings of a group."""
        self.share_groups._settings[group] = replace(self.share_groups.settings_of(group), **settings)

    def share(self, index: int = 0, group: str = "g") -> Any:
        return self.share_groups.share(SharePartitionKey(group, TOPIC_ID, index))

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.deadlines.run)
            self.share_groups.start_in(nursery)
            task_status.started()


class Member:
    """A member of a share group, and its connection."""

    def __init__(self, market: Market, name: str = "a", group: str = "g", version: int = 2) -> None:
        self.market = market
        self.name = name
        self.group = group
        self.context = RequestContext(cast(Any, market), api_version=version, now_ms=NOW_MS)
        self.epoch = 0

    def fetch(
        self,
        *indexes: int,
        said: dict[int, list[Said]] | None = None,
        forgotten: Sequence[int] = (),
        epoch: int | None = None,
        topic_id: bytes = TOPIC_ID,
        **wishes: Any,
    ) -> Any:
        """The answer, or what will have it."""
        said = said or {}
        partitions = [
            FetchPartition(
                partition_index=index,
                acknowledgement_batches=[_batch(AcknowledgementBatch, each) for each in said.get(index, [])],
            )
            for index in dict.fromkeys((*indexes, *said))
        ]
        wanted: dict[str, Any] = {
            "max_wait_ms": 500,
            "min_bytes": 1,
            "max_bytes": 1 << 20,
            "max_records": 500,
            "batch_size": 500,
        }
        request = ShareFetchRequest(
            group_id=self.group,
            member_id=self.name,
            share_session_epoch=self.epoch if epoch is None else epoch,
            topics=[FetchTopic(topic_id=topic_id, partitions=partitions)] if partitions else [],
            forgotten_topics_data=[ForgottenTopic(topic_id=TOPIC_ID, partitions=list(forgotten))] if forgotten else [],
            **{**wanted, **wishes},
        )
        answer = share_fetch(request, self.context)
        if epoch is None:
            self.epoch += 1
        return answer

    def say(self, *said: Said, index: int = 0, epoch: int | None = None, **options: Any) -> Any:
        partition = AcknowledgePartition(
            partition_index=index, acknowledgement_batches=[_batch(SaidAlone, each) for each in said]
        )
        request = ShareAcknowledgeRequest(
            group_id=self.group,
            member_id=self.name,
            share_session_epoch=self.epoch if epoch is None else epoch,
            topics=[AcknowledgeTopic(topic_id=TOPIC_ID, partitions=[partition])],
            **options,
        )
        if epoch is None:
            self.epoch += 1
        return share_acknowledge(request, self.context)


def _batch(kind: Any, said: Said) -> Any:
    first, last, types = said
    listed = [types] if isinstance(types, int) else list(types)
    return kind(first_offset=first, last_offset=last, acknowledge_types=listed)


def told(response: Any) -> dict[int, Any]:
    assert response.error_code == ErrorCode.NONE, response
    return {each.partition_index: each for topic in response.responses for each in topic.partitions}


def acquired(response: Any, index: int = 0) -> list[tuple[int, int, int]]:
    data = told(response).get(index)
    if data is None:
        return []
    return [(each.first_offset, each.last_offset, each.delivery_count) for each in data.acquired_records]
