"""Requests of a client to whoever answers them: any broker, a leader, a coordinator; topics and offsets.

Whatever may pass, such as a leader that has just moved, is tried again. KafkaError is raised with what a broker refuses,
NoAnswer if nobody answers within `timeout_s` seconds.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

import trio

from ottla.server.testing.client.answers import NOT_COORDINATOR, NOT_LEADER, NoAnswer, raise_for
from ottla.server.testing.client.connections import BACKOFF_S, GROUP, METADATA_VERSION, Connections
from ottla.server.testing.client.conversation import API_VERSIONS_VERSION
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.api_versions import ApiVersionsRequest
from ottla.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.wire.messages.delete_topics import DeleteTopicsRequest
from ottla.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from ottla.wire.messages.offsets import OffsetFetchRequest, OffsetFetchRequestTopic
from ottla.wire.schema import Message

LIST_OFFSETS_AT_MOST, OFFSET_FETCH_AT_MOST = 7, 7
TOPICS_AT_MOST = {CreateTopicsRequest: 7, DeleteTopicsRequest: 5}
EARLIEST, LATEST = -2, -1
"""Times of `offset_at` that mean the first record, and the place behind the last one."""

TIMEOUT_S = 30.0
TOPIC_TIMEOUT_MS = 5000
Found = TypeVar("Found")


class Admin:
    """Requests to one cluster. Its methods raise NoAnswer after `timeout_s` seconds."""

    def __init__(self, connections: Connections, timeout_s: float = TIMEOUT_S) -> None:
        self.connections = connections
        connections.refresh_pause_s = 0.0
        self.name = connections.name
        self.timeout_s = timeout_s

    # ------------------------------------------------------------------ requests

    async def ask(self, request: Message, *, broker: int | None = None, version: int | None = None) -> Any:
        """Return the response to any request of Kafka's protocol (`ottla.wire.messages`).

        `broker`: its id; None: any, and the next one if one does not answer. `version`: of the request; None: the newest
        that the broker serves.
        """
        if broker is not None:
            response = await self.connections.ask(broker, request, version, self.timeout_s)
            if response is None:
                raise NoAnswer(f"{self.name}: broker {broker} does not answer {type(request).__name__}")
            return response
        return await self.insist(
            type(request).__name__, lambda: self.connections.ask(self.any_broker(), request, version)
        )

    async def ask_leader(self, topic: str, partition: int, request: Message, *, at_most: int = 1000) -> Any:
        """Return the response of a partition's leader, in a version up to `at_most`; None if nobody knows."""
        leader, _ = await self.connections.leader(topic, partition)
        response = await self.connections.ask(leader, request, at_most=at_most)
        if response is None:
            self.connections.forget_leader(topic, partition)
        return response

    async def ask_coordinator(self, key: str, request: Message, *, kind: int = GROUP, at_most: int = 1000) -> Any:
        """Return the response of the coordinator of a group, or of a transactional id; None if nobody knows."""
        coordinator = await self.connections.coordinator(key, kind)
        return await self.connections.ask(coordinator, request, at_most=at_most)

    async def insist(
        self, what: str, attempt: Callable[[], Awaitable[Found | None]], timeout_s: float | None = None
    ) -> Found:
        """Attempt something until it returns anything but None. Raises NoAnswer, which names `what`."""
        timeout_s = self.timeout_s if timeout_s is None else timeout_s
        with trio.move_on_after(timeout_s):
            while True:
                found = await attempt()
                if found is not None:
                    return found
                await trio.sleep(BACKOFF_S)
        raise NoAnswer(f"{self.name}: no answer in {timeout_s:g} s: {what}")

    def any_broker(self) -> int:
        """Choose a broker by chance."""
        return self.connections.network.chance.choice(self.connections.brokers)

    # ------------------------------------------------------------------ topics

    async def create_topic(
        self, name: str, partitions: int = 1, replicas: int = -1, configs: Mapping[str, str] | None = None
    ) -> None:
        """Create a topic and wait until its partitions have leaders. `replicas`: -1 for the broker's default."""
        settings = [CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()]
        topic = CreatableTopic(
            name=name, num_partitions=partitions, replication_factor=replicas, assignments=[], configs=settings
        )
        request = CreateTopicsRequest(topics=[topic], timeout_ms=TOPIC_TIMEOUT_MS)
        await self._insist_once(f"topic {name!r} created", request, ErrorCode.TOPIC_ALREADY_EXISTS)
        for partition in range(partitions):
            await self._known_leader(name, partition)

    async def delete_topic(self, name: str) -> None:
        """Delete a topic."""
        request = DeleteTopicsRequest(topic_names=[name], timeout_ms=TOPIC_TIMEOUT_MS)
        await self._insist_once(f"topic {name!r} deleted", request, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    async def _insist_once(
        self, what: str, request: CreateTopicsRequest | DeleteTopicsRequest, done: ErrorCode
    ) -> None:
        """Let a topic be created or deleted. `done`: the error if that has been done."""
        attempts = 0

        async def attempt() -> bool | None:
            nonlocal attempts
            attempts += 1
            response = await self.connections.ask(self.any_broker(), request, at_most=TOPICS_AT_MOST[type(request)])
            if response is None:
                return None
            (answer,) = response.topics if isinstance(request, CreateTopicsRequest) else response.responses
            if answer.error_code in (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_CONTROLLER):
                return None
            if answer.error_code != done or attempts == 1:  # an attempt without an answer may have done it
                raise_for(answer.error_code, answer.error_message)
            return True

        await self.insist(what, attempt)

    async def metadata(self, *topics: str) -> MetadataResponse:
        """Return the metadata of some topics, of all if none is named."""
        named = [MetadataRequestTopic(name=each) for each in topics] if topics else None
        request = MetadataRequest(topics=named, allow_auto_topic_creation=False)
        response: MetadataResponse = await self.ask(request, version=METADATA_VERSION)
        return response

    async def finalized_level(self, feature: str) -> int:
        """Return the level of a feature, such as "transaction.version", that the cluster has finalized; 0 if none."""
        response = await self.ask(ApiVersionsRequest(), version=API_VERSIONS_VERSION)
        return max((each.max_version_level for each in response.finalized_features if each.name == feature), default=0)

    async def partitions_of(self, topic: str) -> list[int]:
        """Return the partitions of a topic; waits until the brokers know it."""

        async def attempt() -> list[int] | None:
            (found,) = (await self.metadata(topic)).topics
            if found.error_code and found.error_code not in NOT_LEADER:
                raise_for(found.error_code)
            return None if found.error_code else sorted(each.partition_index for each in found.partitions)

        return await self.insist(f"topic {topic!r} known", attempt)

    async def leader(self, topic: str, partition: int = 0) -> int:
        """Return the id of the broker that leads a partition, as the brokers say now."""
        self.connections.forget_leader(topic, partition)
        return await self._known_leader(topic, partition)

    async def _known_leader(self, topic: str, partition: int) -> int:
        async def attempt() -> int:
            return (await self.connections.leader(topic, partition))[0]

        return await self.insist(f"a leader of {topic}-{partition}", attempt)

    async def coordinator(self, group: str) -> int:
        """Return the id of the broker that coordinates a group."""
        return await self.insist(f"a coordinator of {group!r}", lambda: self.connections.coordinator(group))

    # ------------------------------------------------------------------ offsets

    async def start(self, topic: str, partition: int = 0) -> int:
        """Return the first offset of a partition."""
        return await self.offset_at(topic, partition, EARLIEST)

    async def end(self, topic: str, partition: int = 0, *, committed_only: bool = False) -> int:
        """Return the offset behind a partition's last record; `committed_only`: before that of open transactions."""
        return await self.offset_at(topic, partition, LATEST, committed_only=committed_only)

    async def offset_at(self, topic: str, partition: int, time_ms: int, *, committed_only: bool = False) -> int:
        """Return the first offset at or after a time, -1 if there is none; EARLIEST and LATEST are times, too."""
        asked = ListOffsetsPartition(partition_index=partition, current_leader_epoch=-1, timestamp=time_ms)
        topics = [ListOffsetsTopic(name=topic, partitions=[asked])]
        request = ListOffsetsRequest(replica_id=-1, isolation_level=int(committed_only), topics=topics)

        async def attempt() -> int | None:
            response = await self.ask_leader(topic, partition, request, at_most=LIST_OFFSETS_AT_MOST)
            if response is None:
                return None
            answer = response.topics[0].partitions[0]
            if answer.error_code in NOT_LEADER:
                self.connections.forget_leader(topic, partition)
                return None
            raise_for(answer.error_code)
            return int(answer.offset)

        return await self.insist(f"an offset of {topic}-{partition}", attempt)

    async def committed(self, group: str, topic: str, partition: int = 0) -> int | None:
        """Return a group's committed offset; None if it has none."""
        asked = [OffsetFetchRequestTopic(name=topic, partition_indexes=[partition])]
        request = OffsetFetchRequest(group_id=group, topics=asked, require_stable=True)

        async def attempt() -> int | None:
            response = await self.ask_coordinator(group, request, at_most=OFFSET_FETCH_AT_MOST)
            if response is None or response.error_code in NOT_COORDINATOR:
                return None
            raise_for(response.error_code)
            answer = response.topics[0].partitions[0]
            if answer.error_code in NOT_COORDINATOR:
                return None
            raise_for(answer.error_code)
            return int(answer.committed_offset)

        offset = await self.insist(f"the offset of {group!r}", attempt)
        return None if offset < 0 else offset
