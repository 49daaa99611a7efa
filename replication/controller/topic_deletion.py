"""Topics on their way out, as the controller sees them. Sans-IO; part of `PartitionStates`.

Theory (Kafka's class TopicDeletionManager, with fewer states because nothing is decided on such a topic any more)
    A topic is *queued* once it is marked below /admin/delete_topics. It is *started* when the controller has sent every
    broker that it has no leader any more (-2), and the brokers of its replicas that they delete them. It is *finished*
    when each of these brokers has answered that it did. Then its nodes are removed, the mark last. A broker that is
    dead, or failed to delete, holds this up until it comes up again and gets the request once more. A new controller
    starts over: deleting what is gone succeeds.
    Reassignments of the topic end with it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from ottla.replication.cluster.metadata_cache import PartitionState
from ottla.replication.controller.control_batch import (
    EPOCH_DURING_DELETE,
    LEADER_DURING_DELETE,
    ControlBatch,
    TopicPartition,
)
from ottla.replication.controller.decisions import OPERATIONS_PER_MULTI, NodeRemoval


class TopicDeletions:
    """For each topic that is being deleted the replicas that are not known to be gone."""

    def __init__(self) -> None:
        # By topic: partition and broker of each replica. A topic that is in here is queued.
        self._left: dict[str, set[tuple[int, int]]] = {}
        self._started: set[str] = set()
        self._announced: tuple[PartitionState, PartitionState] | None = None
        """The last state that was announced as gone, and the state that the brokers got in its place."""

    def __contains__(self, name: str) -> bool:
        return name in self._left

    def add(self, name: str, partitions: Mapping[int, PartitionState]) -> None:
        # Marks are looked at again and again. What was deleted meanwhile stays noted.
        if name not in self._left:
            self._left[name] = {(index, broker) for index, state in partitions.items() for broker in state.replicas}

    def remove(self, name: str) -> None:
        self._left.pop(name, None)
        self._started.discard(name)

    def not_started(self) -> list[str]:
        return [name for name in self._left if name not in self._started]

    def start(self, name: str) -> None:
        self._started.add(name)

    def finished(self) -> list[str]:
        return [name for name in sorted(self._started) if not self._left[name]]

    def note_deleted(self, partition: TopicPartition, broker: int) -> None:
        name, index = partition
        # Otherwise the answer is about a replica that a reassignment removed, or about a topic that is gone.
        if name in self._started:
            self._left[name].discard((index, broker))

    def left_on(self, broker: int) -> list[TopicPartition]:
        """The replicas that a broker has not deleted yet. When it comes up again it is asked again."""
        return [
            (name, index) for name in sorted(self._started) for index, at in sorted(self._left[name]) if at == broker
        ]

    def announce(
        self, batch: ControlBatch, partition: TopicPartition, state: PartitionState, brokers: Iterable[int]
    ) -> None:
        """Nobody leads it any more; Kafka gives no epochs then."""
        # Thousands of partitions of a topic have the same state.
        if self._announced is None or self._announced[0] is not state:
            gone = replace(state, leader=LEADER_DURING_DELETE, leader_epoch=0, partition_epoch=0)
            self._announced = state, gone
        batch.announce(brokers, partition, self._announced[1], ())

    def stop(self, batch: ControlBatch, partition: TopicPartition, brokers: Iterable[int]) -> None:
        for broker in brokers:
            # With this epoch a broker deletes the replica whatever leader epoch it knows.
            batch.stop(broker, partition, EPOCH_DURING_DELETE, delete=True)

    def removal(self, name: str, paths: list[str]) -> list[NodeRemoval]:
        """Remove all nodes in order."""
        starts = range(0, len(paths), OPERATIONS_PER_MULTI)
        # Only the last part names the topic: the controller forgets it when all of its nodes are gone.
        last = starts[-1]
        return [
            NodeRemoval(tuple(paths[start : start + OPERATIONS_PER_MULTI]), name if start == last else None)
            for start in starts
        ]
