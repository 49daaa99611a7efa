"""Carrying out what the controller decides: write, commit, tell the brokers, and go on with what follows from it.

| a multi fails with                     | then                                                                  |
|----------------------------------------|-----------------------------------------------------------------------|
| Deposed, SessionExpired                | the controller resigns                                                |
| CoordinationUnavailable                | `ControllerTree.write` finds out whether it was done, or tries again  |
| WriteRefused                           | the same; but a request that can be refused ends with it              |
| BadVersion, NodeExists, NoNode         | what the multi was about is read again, then the same input once more |
| NotEmpty                               | what is below a node that has to go is removed first                  |
| TooLarge                               | it is written in two halves                                           |
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from ottla.replication.cluster.coordination import (
    BadVersion,
    CoordinationError,
    Create,
    Delete,
    NodeExists,
    NoNode,
    NotEmpty,
    TooLarge,
)
from ottla.replication.cluster.metadata_cache import NO_LEADER, NO_PARTITION_EPOCH, PartitionState
from ottla.replication.cluster.znodes import TOPICS
from ottla.replication.controller.control_batch import ControlBatch, TopicPartition
from ottla.replication.controller.decisions import Change, Decision, NodeRemoval, StateChange
from ottla.replication.controller.partition_states import PartitionStates
from ottla.replication.controller.partition_table import ControlledTopic
from ottla.replication.controller.steps import Steps
from ottla.server.cluster.controller.tree import ControllerTree
from ottla.server.cluster.controller.tree_reader import TreeReader
from ottla.wire.time_slice import TimeSlice

logger = logging.getLogger("ottla.controller")

Decide = Callable[[], Decision | Steps[Decision]]
ATTEMPTS_MAX = 100  # after as many the controller gives up its office: what it knows must be wrong


@dataclass(slots=True)
class CarriedOut:
    """What an input came to. `decision` is the last one made of it, `written` what was written of all."""

    decision: Decision = field(default_factory=Decision)
    written: dict[TopicPartition, PartitionState] = field(default_factory=dict)


@dataclass(slots=True)
class Tally:
    """What became of partitions."""

    led: int = 0
    offline: int = 0
    reassigned: list[TopicPartition] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)

    def take_leaders(self) -> str:
        """How many leaders have changed since the last time."""
        text = f"{self.led} partitions have another leader, {self.offline} have none any more"
        self.led = self.offline = 0
        return text


class DecisionWriter:
    """See the module's docstring. `tell` gives a batch to the channels."""

    def __init__(
        self,
        tree: ControllerTree,
        reader: TreeReader,
        states: PartitionStates,
        tell: Callable[[ControlBatch], Awaitable[None]],
    ) -> None:
        self._tree = tree
        self._reader = reader
        self._states = states
        self._tell = tell
        self.tally = Tally()
        self.elections = self.unclean_elections = 0  # leaders that were chosen, and those that were not in sync before

    async def carry_out(self, decide: Decide) -> CarriedOut:
        """Do what is decided, and all that follows from it. Raises what `decide` does, and WriteRefused."""
        outcome = await self.do(decide)
        # What follows may have consequences of its own: a complete reassignment is settled, a deletion that has begun
        # ends.
        while (following := self._states.pending()) is not None:
            await self.do(self._pending_after(following))
        return outcome

    def _pending_after(self, first: Decision) -> Callable[[], Decision]:
        # The first attempt takes the decision that the loop has asked for. After a failed one what is pending is asked
        # for again; by then it may be nothing.
        decisions: list[Decision] = [first]
        return lambda: decisions.pop() if decisions else self._states.pending() or Decision()

    async def do(self, decide: Decide) -> CarriedOut:
        """Write one decision, commit it and tell the brokers; `pending` decisions stay pending. Raises as `carry_out`."""
        outcome = CarriedOut()
        for _ in range(ATTEMPTS_MAX):
            # After a failed attempt it decides on what was read again. What was written before that counts already.
            made = decide()
            # Only this task changes what is looked at, so that others may have their turns before it is decided.
            outcome.decision = made if isinstance(made, Decision) else await TimeSlice().take(made)
            if await self._do_parts(outcome.decision.parts(), outcome):
                return outcome
        raise RuntimeError(f"nothing comes of {ATTEMPTS_MAX} attempts to write {outcome.decision.changes[:3]}")

    async def _do_parts(self, parts: Iterable[Decision], outcome: CarriedOut) -> bool:
        """Whether all were written; if not, what they rest on was read again."""
        for part in parts:
            try:
                await self._write(part)
            except TooLarge:
                if len(part.changes) == 1:  # cannot be halved
                    raise
                if not await self._do_parts(_halves(part), outcome):
                    return False
                continue  # committed in there
            except (BadVersion, NodeExists, NoNode, NotEmpty) as problem:
                await self._learn(part, problem)
                return False
            await self._commit(part, outcome)
        return True

    async def _write(self, part: Decision) -> None:
        operations = [operation for change in part.changes for operation in change.operations]
        await self._tree.write(operations, can_be_refused=part.is_refusable)

    async def _commit(self, part: Decision, outcome: CarriedOut) -> None:
        for change in part.changes:
            self._count(change)  # before `commit`, which replaces the state that this looks at
            if isinstance(change, StateChange):
                outcome.written[change.partition] = change.state
        batch = self._states.commit(part)
        if batch:
            await self._tell(batch)

    def _count(self, change: Change) -> None:
        if isinstance(change, NodeRemoval):
            self.tally.deleted += [] if change.topic is None else [change.topic]
        elif isinstance(change, StateChange):
            known = self._states.partition(change.partition)
            if change.completes:
                self.tally.reassigned.append(change.partition)
            if known is not None and known.leader != change.state.leader:
                self.tally.led += change.state.leader != NO_LEADER
                # A new partition has had no replicas in sync, and its first leader is not elected instead of another.
                if known.isr and change.state.leader != NO_LEADER:
                    self.elections += 1
                    self.unclean_elections += change.state.leader not in known.isr
                self.tally.offline += change.state.leader == NO_LEADER

    # ------------------------------------------------------------------ when the tree is not as it was known

    async def _learn(self, part: Decision, problem: CoordinationError) -> None:
        logger.info("The controller reads again what it wrote in vain: %s %s", type(problem).__name__, problem.path)
        # 1. Clear the way for nodes that have to go.
        if isinstance(problem, NotEmpty):
            await self._tree.delete_below(problem.path)
        # 2. Know which nodes are there: Kafka's controllers make and remove them one by one, and may fail in between.
        if isinstance(problem, NodeExists | NoNode):
            await self._note_nodes(part)
        # 3. Know the topics as they are written.
        await self.read_again({_topic(change) for change in part.changes})

    async def _note_nodes(self, part: Decision) -> None:
        operations = [each for change in part.changes for each in change.operations]
        paths = [each.path for each in operations if isinstance(each, Create | Delete)]
        for path, node in zip(paths, await self._tree.get_all(paths), strict=True):
            self._states.note_node(path, exists=node is not None)

    async def read_again(self, names: Iterable[str]) -> None:
        """Load topics anew, and tell the brokers of whatever was not known."""
        wanted = [name for name in names if name in self._states.topics]
        found = await self._reader.topics(wanted)
        batch = ControlBatch()
        for name in wanted:
            before = self._states.topics[name]
            if name not in found:
                self._states.forget_topic(name)  # somebody else has removed it
                continue
            self._states.load_topic(name, *found[name])
            if name not in self._states.deletions:
                self._restate(batch, name, before.partitions)
        if batch:
            await self._tell(batch)

    async def restate(self, names: Iterable[str]) -> None:
        """Tell of all states of topics that nobody has heard of."""
        batch = ControlBatch()
        for name in names:
            self._restate(batch, name, {})
        if batch:
            await self._tell(batch)

    def _restate(self, batch: ControlBatch, name: str, before: Mapping[int, PartitionState]) -> None:
        """Tell of those partitions of a topic that are not as they were known before."""
        for partition, state in _led(self._states.topics[name]):
            known = before.get(partition[1])
            if state == known:
                continue
            # Brokers pass over LeaderAndIsr of an epoch that they know, so it is sent only where there is a new one.
            if known is None or (known.leader_epoch, known.replicas) != (state.leader_epoch, state.replicas):
                self._states.tell(batch, partition, state, self._states.online(partition, state.replicas))
            self._states.tell_all(batch, partition, state)


def _led(topic: ControlledTopic) -> Iterator[tuple[TopicPartition, PartitionState]]:
    for index, state in topic.partitions.items():
        if state.partition_epoch != NO_PARTITION_EPOCH:
            yield (topic.name, index), state


def _halves(part: Decision) -> Iterator[Decision]:
    """Several changes in smaller parts."""
    sizes = [change.size for change in part.changes]
    # Not more than there is before the last change, which may be the large one: a part that is the whole would not end.
    return part.parts(min(sum(sizes) // 2, sum(sizes[:-1])))


def _topic(change: Change) -> str:
    if isinstance(change, StateChange):
        return change.partition[0]
    if isinstance(change, NodeRemoval):
        return change.paths[0].removeprefix(TOPICS + "/").split("/")[0]
    return change.topic
