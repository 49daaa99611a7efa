"""An operator at work meanwhile, by way of any broker: moves replicas and leaders, changes levels, makes topics and deletes them.

Errors are no matter.
"""

import random

from ottla.server.cluster.features import SAFE_DOWNGRADE, TRANSACTION_VERSION, UPGRADE
from ottla.server.testing.history.fault_kinds import FaultKind
from ottla.server.testing.history.history import FaultBegan
from ottla.server.testing.simulation.cluster import SimCluster
from ottla.wire.messages.cluster import FeatureUpdateKey, UpdateFeaturesRequest
from ottla.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.delete_topics import DeleteTopicsRequest
from ottla.wire.messages.elect_leaders import ElectLeadersRequest
from ottla.wire.messages.partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.wire.schema import Message

REASSIGN_VERSION, ELECT_VERSION, CREATE_VERSION, DELETE_VERSION, UPDATE_FEATURES_VERSION = 0, 2, 6, 5, 1
TIMEOUT_MS = 5_000
NAMES = ("side-1", "side-2")


class Administrator:
    """Operator that asks brokers for changes at random."""

    def __init__(self, simulation: SimCluster, chance: random.Random) -> None:
        self._simulation = simulation
        self._chance = chance
        self._client = simulation.connections("administrator")

    async def reassign(self) -> None:
        brokers, partitions = [each.node_id for each in self._simulation.brokers], self._simulation.partitions
        if not partitions:
            return
        topic, partition = self._chance.choice(partitions)
        replicas = self._chance.sample(brokers, min(self._chance.choice((2, 3, 3)), len(brokers)))
        wanted = ReassignablePartition(
            partition_index=partition, replicas=None if self._chance.random() < 0.1 else replicas
        )
        request = AlterPartitionReassignmentsRequest(
            timeout_ms=TIMEOUT_MS, topics=[ReassignableTopic(name=topic, partitions=[wanted])]
        )
        await self._ask(FaultKind.REASSIGNED, f"{topic}-{partition} to {wanted.replicas}", request, REASSIGN_VERSION)

    async def elect_preferred(self) -> None:
        request = ElectLeadersRequest(election_type=0, topic_partitions=None, timeout_ms=TIMEOUT_MS)
        await self._ask(FaultKind.LEADERS_MOVED, "", request, ELECT_VERSION)

    async def change_level(self) -> None:
        """Change the level of transaction.version: to the newest, to 0 (as in a cluster without levels), or to the one between."""
        level = self._chance.choice((2, 2, 1, 0))
        # As a raise it is refused if the level is higher, and the other way round.
        kind = self._chance.choice((UPGRADE, SAFE_DOWNGRADE))
        update = FeatureUpdateKey(feature=TRANSACTION_VERSION, max_version_level=level, upgrade_type=kind)
        request = UpdateFeaturesRequest(feature_updates=[update], timeout_ms=TIMEOUT_MS)
        await self._ask(FaultKind.LEVEL_CHANGED, f"{level} {kind}", request, UPDATE_FEATURES_VERSION)

    async def make_topic(self) -> None:
        name = self._chance.choice(NAMES)
        topic = CreatableTopic(name=name, num_partitions=2, replication_factor=3, assignments=[], configs=[])
        request = CreateTopicsRequest(topics=[topic], timeout_ms=TIMEOUT_MS)
        await self._ask(FaultKind.TOPIC_CREATED, name, request, CREATE_VERSION)

    async def delete_topic(self) -> None:
        name = self._chance.choice(NAMES)
        await self._ask(
            FaultKind.TOPIC_DELETED,
            name,
            DeleteTopicsRequest(topic_names=[name], timeout_ms=TIMEOUT_MS),
            DELETE_VERSION,
        )

    async def _ask(self, kind: FaultKind, target: str, request: Message, version: int) -> None:
        self._simulation.record.add(FaultBegan, kind, target)
        # Any broker: what only the controller does it hands on.
        response = await self._client.ask_any(request, version)
        self._simulation.trace.note(f"{kind} {target}: {response!r}")
