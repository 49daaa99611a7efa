"""The coordinators of this broker, by the internal topic that each of them lives in, and the creation of these topics.

Blocks of producer ids are kept in the coordination tree, so that no id is ever given out twice.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, Protocol

from ottla.replication.cluster import znodes
from ottla.replication.cluster.coordination import BadVersion, Coordination, CoordinationError, SetData
from ottla.replication.cluster.metadata_cache import (
    GROUP_METADATA_TOPIC,
    SHARE_GROUP_STATE_TOPIC,
    TRANSACTION_STATE_TOPIC,
)
from ottla.replication.controller.topic_planner import NewTopic
from ottla.server.config.broker_config import BrokerConfig
from ottla.wire.errors import ErrorCode, KafkaError

logger = logging.getLogger("ottla.broker")
id_logger = logging.getLogger("ottla.producer_ids")


class Coordinator(Protocol):
    """Coordinator whose log is an internal topic (a protocol for `Coordinators`)."""

    def on_election(self, partition: int) -> None:
        """Load a partition after this broker's election as its leader."""

    def on_resignation(self, partition: int) -> None:
        """Unload a partition that this broker no longer leads."""

    async def on_topics_deleted(self, topics: Mapping[str, bytes]) -> None:
        """Delete the coordinator's state of deleted topics; `topics` maps their names to their topic ids."""


def _nothing_to_load() -> None:
    pass


class Coordinators:
    """Coordinators of this broker, by internal topic. Events about other topics are ignored."""

    def __init__(
        self, coordinators: Mapping[str, Callable[[], Coordinator]], load: Callable[[], None] = _nothing_to_load
    ) -> None:
        """Create the coordinators from factories by internal topic; `load` imports the modules that they need.

        A factory is called when this broker first leads a partition of its topic.
        """
        self._coordinators, self._load = coordinators, load
        # Python's own table has a module already while a thread is still importing it.
        self._is_loaded = False
        self._needed: dict[str, Coordinator] = {}
        self._led: dict[str, set[int]] = {topic: set() for topic in coordinators}

    def lack_code(self, topics: Iterable[str]) -> bool:
        """Return True if `load_code` must be called before this broker leads partitions of these topics."""
        return not self._is_loaded and any(topic in self._coordinators for topic in topics)

    async def ensure_code(self, topics: Iterable[str], run_in_thread: Callable[..., Awaitable[Any]]) -> None:
        """Import the coordinators' modules in a thread, if one of the topics needs modules not imported yet."""
        if self.lack_code(topics):
            await run_in_thread(self.load_code)

    def load_code(self) -> None:
        """Import the coordinators' modules. This is slow, so call it in a thread."""
        with suppress(ImportError, OSError):  # it is tried again when it is needed
            self._load()
            self._is_loaded = True

    def on_election(self, topic: str, partition: int) -> None:
        """Load a partition after this broker's election as its leader."""
        if topic not in self._led:
            return
        self._led[topic].add(partition)
        if topic in self._needed:
            self._needed[topic].on_election(partition)
            return
        try:
            self.take_up(topic, self._coordinators[topic]())
        except (ImportError, OSError):  # its code cannot be read now, as when too many files are open
            logger.exception("%s has no coordinator before a request asks for it", topic)

    def take_up(self, topic: str, coordinator: Coordinator) -> None:
        """Register a new coordinator, and let it load the partitions of `topic` that this broker already leads."""
        if topic not in self._needed:
            self._needed[topic] = coordinator
            for partition in sorted(self._led[topic]):
                coordinator.on_election(partition)

    def on_resignation(self, topic: str, partition: int) -> None:
        """Unload a partition that this broker no longer leads."""
        self._led.get(topic, set()).discard(partition)
        if (coordinator := self._needed.get(topic)) is not None:
            coordinator.on_resignation(partition)

    async def on_topics_deleted(self, topics: Mapping[str, bytes]) -> None:
        """Delete all coordinators' state of deleted topics; `topics` maps their names to their topic ids."""
        for coordinator in tuple(self._needed.values()):
            await coordinator.on_topics_deleted(topics)


def new_topic(name: str, config: BrokerConfig, *, replicas_max: int | None) -> NewTopic:
    """Return the topic to create if `name` is missing: by the broker's defaults, or the rules for internal topics.

    `replicas_max` limits internal topics' replication factor (None: no limit): a lone broker cannot have Kafka's three.
    """
    if name == GROUP_METADATA_TOPIC:
        groups = config.groups
        return NewTopic(
            name=name,
            partition_count=groups.offsets_topic_num_partitions,
            replication_factor=_bounded(groups.offsets_topic_replication_factor, replicas_max),
            # As Kafka sets them. Compaction keeps the last record of each key, and a load needs no more.
            configs={
                "cleanup.policy": "compact",
                "compression.type": "producer",
                "segment.bytes": str(groups.offsets_topic_segment_bytes),
            },
        )
    if name == TRANSACTION_STATE_TOPIC:
        transactions = config.transactions
        return NewTopic(
            name=name,
            partition_count=transactions.transaction_state_log_num_partitions,
            replication_factor=_bounded(transactions.transaction_state_log_replication_factor, replicas_max),
            configs={
                "cleanup.policy": "compact",
                "compression.type": "uncompressed",
                "min.insync.replicas": str(_bounded(transactions.transaction_state_log_min_isr, replicas_max)),
                "segment.bytes": str(transactions.transaction_state_log_segment_bytes),
                "unclean.leader.election.enable": "false",
            },
        )
    if name == SHARE_GROUP_STATE_TOPIC:
        share = config.share_coordinator
        return NewTopic(
            name=name,
            partition_count=share.share_coordinator_state_topic_num_partitions,
            replication_factor=_bounded(share.share_coordinator_state_topic_replication_factor, replicas_max),
            # Not compacted, as an update does not replace the one before it. The coordinator itself cuts off what is
            # redundant.
            configs={
                "cleanup.policy": "delete",
                "compression.type": "producer",
                "min.insync.replicas": str(_bounded(share.share_coordinator_state_topic_min_isr, replicas_max)),
                "retention.ms": "-1",
                "segment.bytes": str(share.share_coordinator_state_topic_segment_bytes),
            },
        )
    return NewTopic(name=name)


def _bounded(value: int, replicas_max: int | None) -> int:
    return value if replicas_max is None else min(value, replicas_max)


BLOCK_SIZE = 1000


class ProducerIdBlocks:
    """Allocator of producer id blocks; it advances /latest_producer_id_block, as Kafka's controller does."""

    def __init__(self, coordination: Coordination, node_id: int) -> None:
        self._coordination, self._node_id = coordination, node_id

    async def allocate_block(self) -> range:
        """Reserve a block of producer ids that no other broker uses; return it when the reservation is durable.

        Raises KafkaError COORDINATOR_LOAD_IN_PROGRESS, which producers retry, while the tree is unavailable.
        """
        try:
            return await self._allocate()
        except CoordinationError as error:
            id_logger.error("No block of producer ids can be reserved: %r", error)
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS) from None

    async def _allocate(self) -> range:
        while True:
            node = await self._coordination.get(znodes.PRODUCER_ID_BLOCK)
            first = znodes.decode_producer_id_block(node.data)[1] + 1 if node.data else 0
            block = range(first, first + BLOCK_SIZE)
            data = znodes.encode_producer_id_block(self._node_id, block[0], block[-1])
            try:
                # The version lets only one of several brokers succeed that have read the same block.
                await self._coordination.multi([SetData(znodes.PRODUCER_ID_BLOCK, data, node.version)])
            except BadVersion:
                continue  # another broker was faster
            return block
