"""What the controller has decided and not yet done: conditional writes, and what to tell the brokers after them.

A `Decision` changes nothing until its writes have succeeded and `PartitionStates.commit` was called with it. Its
changes are independent of each other, so that a large one is written in several multis (`parts`), each a decision of its
own; only their order is kept. A decision whose writes failed is dropped.

    decide -> for each part: write it -> commit it -> tell the brokers -> (after all parts) `pending` -> ... -> None
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from ottla.replication.cluster import znodes
from ottla.replication.cluster.coordination import Check, Create, Delete, Operation, SetData
from ottla.replication.cluster.metadata_cache import NO_PARTITION_EPOCH, PartitionState
from ottla.replication.cluster.znodes import TopicAssignment
from ottla.replication.controller.control_batch import ControlBatch, TopicPartition
from ottla.wire.errors import KafkaError

# ZooKeeper refuses a multi beyond jute.maxbuffer, 1 MB by default. The `DecisionWriter` halves a part that it refuses.
OPERATIONS_PER_MULTI = 500

Answer = PartitionState | KafkaError


@dataclass(frozen=True, slots=True, kw_only=True)
class StateChange:
    """The next state of a partition, written on top of the one before.

    `recipients` lead or follow by it, `newcomers` among them had no replica before; `deleted` and `stopped` give up
    theirs, with and without its log. All live brokers hear of it. `completes` ends a reassignment: the topic's node is to
    follow. A first state is written below `parents`, which are made with it.
    """

    partition: TopicPartition
    state: PartitionState
    recipients: tuple[int, ...] = ()
    newcomers: tuple[int, ...] = ()
    stopped: tuple[int, ...] = ()
    deleted: tuple[int, ...] = ()
    completes: bool = False
    parents: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        """How many operations it takes."""
        return 1 + len(self.parents)

    @property
    def operations(self) -> list[Operation]:
        topic, index = self.partition
        data = znodes.encode_state(
            znodes.LeaderAndIsr(
                self.state.leader,
                self.state.leader_epoch,
                list(self.state.isr),
                self.state.controller_epoch,
                self.state.leader_recovery_state,
            )
        )
        path = znodes.state_path(topic, index)
        # `state` is the next state, so the node still has the version before it. The write fails if anybody else wrote
        # meanwhile, and the controller decides again on what it reads then.
        expected = self.state.partition_epoch - 1
        if expected != NO_PARTITION_EPOCH:
            return [SetData(path, data, expected)]
        return [*map(Create, self.parents), Create(path, data)]


@dataclass(frozen=True, slots=True)
class TopicChange:
    """Other replicas for some partitions of a topic; `version` is that of the topic's node before."""

    topic: str
    version: int
    data: bytes
    states: Mapping[int, PartitionState] = field(default_factory=dict)
    size = 1

    @property
    def operations(self) -> list[Operation]:
        return [SetData(znodes.topic_path(self.topic), self.data, self.version)]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicCreation:
    """A new topic with the first states of its partitions; partitions that it does not name get theirs later.

    All of it is one write: a topic that could not be stored does not exist. `has_settings`: an earlier topic of this name
    has left its settings, which give way to the new ones.
    """

    topic: str
    assignment: TopicAssignment
    configs: Mapping[str, str]
    states: tuple[StateChange, ...] = ()
    has_settings: bool = False

    @property
    def size(self) -> int:
        return 2 + sum([state.size for state in self.states])

    @property
    def operations(self) -> list[Operation]:
        path, data = znodes.topic_config_path(self.topic), znodes.encode_config(self.configs)
        return [
            SetData(path, data) if self.has_settings else Create(path, data),
            Create(znodes.topic_path(self.topic), znodes.encode_topic(self.assignment)),
            *(operation for state in self.states for operation in state.operations),
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicExtension:
    """More partitions of a topic, and first states of them. All of it is one write, as of a creation."""

    change: TopicChange
    states: tuple[StateChange, ...]

    @property
    def topic(self) -> str:
        return self.change.topic

    @property
    def size(self) -> int:
        return 1 + sum([state.size for state in self.states])

    @property
    def operations(self) -> list[Operation]:
        return self.change.operations + [operation for state in self.states for operation in state.operations]


@dataclass(frozen=True, slots=True)
class NodeRemoval:
    """Nodes of a topic that is being deleted, children first; `topic` is named when these are the last of it."""

    paths: tuple[str, ...]
    topic: str | None = None

    @property
    def size(self) -> int:
        return len(self.paths)

    @property
    def operations(self) -> list[Operation]:
        # Any version: the topic goes, whatever its nodes hold by now.
        return [Delete(path) for path in self.paths]


Change = StateChange | TopicChange | TopicCreation | TopicExtension | NodeRemoval


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Changes to write, and what to tell the brokers besides.

    `answers` says for each partition that a request named what it comes to if the writes succeed.
    """

    changes: tuple[Change, ...] = ()
    batch: ControlBatch = field(default_factory=ControlBatch)
    answers: Mapping[TopicPartition, Answer] = field(default_factory=dict)

    def operations(self, controller_epoch_version: int) -> list[Operation]:
        """One multi; it fails if this controller is the controller no more. Empty if there is nothing to write."""
        operations = [operation for change in self.changes for operation in change.operations]
        # A controller that was replaced without hearing of it must not write: its successor has raised the epoch.
        fence = Check(znodes.CONTROLLER_EPOCH, controller_epoch_version)
        return [fence, *operations] if operations else []

    @property
    def is_refusable(self) -> bool:
        """Whether all of it is a request that can be refused: without room for it there is no such topic or partition."""
        return bool(self.changes) and all(isinstance(each, TopicCreation | TopicExtension) for each in self.changes)

    def parts(self, limit: int = OPERATIONS_PER_MULTI) -> Iterator["Decision"]:
        """The decision in pieces of about `limit` operations; there is at least one."""
        batch, changes, size = self.batch, list[Change](), 0
        for change in self.changes:
            changes.append(change)
            size += change.size
            if size >= limit:
                yield Decision(changes=tuple(changes), batch=batch, answers=self.answers)
                # The first part carries the batch of the whole decision. The others tell only of their own changes.
                batch, changes, size = ControlBatch(), [], 0
        # A decision without changes may still have something to tell.
        if changes or batch is self.batch:
            yield Decision(changes=tuple(changes), batch=batch, answers=self.answers)
