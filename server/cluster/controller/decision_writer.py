"""Carrying out what the controller decides: write, commit, notify the brokers, and go on with what follows from it.

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
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from ottla.replication.cluster.coordination import (
    BadVersion,
    CoordinationError,
    Create,
    Delete,
    NodeExists,
    NoNode,
    NotEmpty,
    TooLarge,
    WriteRefused,
)
from ottla.replication.cluster.metadata_cache import NO_LEADER, NO_PARTITION_EPOCH, PartitionState
from ottla.replication.cluster.znodes import TOPICS
from ottla.replication.controller.decisions import (
    Change,
    ControlBatch,
    Decision,
    NodeRemoval,
    StateChange,
    Steps,
    TopicPartition,
)
from ottla.replication.controller.partition_states import FIRST_STATES_PER_WRITE, PartitionStates
from ottla.replication.controller.partition_table import ControlledTopic
from ottla.replication.reminders import counted
from ottla.server.cluster.controller.tree import ControllerTree, TreeReader
from ottla.wire.errors import ErrorCode, KafkaError, bare
from ottla.wire.time_slice import TimeSlice

if TYPE_CHECKING:
    from ottla.replication.cluster.metadata_cache import TopicState
    from ottla.replication.controller.topic_planner import TopicPlan
    from ottla.server.cluster.controller.events import Action

logger = logging.getLogger("ottla.controller")

Decide = Callable[[], Decision | Steps[Decision]]
ATTEMPTS_MAX = 100  # after as many the controller gives up its office: what it knows must be wrong


@dataclass(slots=True)
class CarriedOut:
    """Outcome of a controller event: its last decision, and all partition states written for it."""

    decision: Decision = field(default_factory=Decision)
    written: dict[TopicPartition, PartitionState] = field(default_factory=dict)


@dataclass(slots=True)
class Tally:
    """Counts of changed partitions by outcome, for log lines."""

    led: int = 0
    offline: int = 0
    reassigned: list[TopicPartition] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)

    def take_leaders(self) -> str:
        """Return a text for the log with the numbers of changed and lost leaders since the last call."""
        text = f"{self.led} partitions have another leader, {self.offline} have none any more"
        self.led = self.offline = 0
        return text


class DecisionWriter:
    """Writer of the controller's decisions. It writes them to the tree, commits them, and calls `notify`."""

    def __init__(
        self,
        tree: ControllerTree,
        reader: TreeReader,
        states: PartitionStates,
        notify: Callable[[ControlBatch], Awaitable[None]],
    ) -> None:
        self._tree, self._reader = tree, reader
        self._states, self._notify = states, notify
        self.tally = Tally()
        self.elections = self.unclean_elections = 0  # leaders that were chosen, and those that were not in sync before

    async def carry_out(self, decide: Decide) -> CarriedOut:
        """Carry out a decision, then the decisions that it causes. Raises WriteRefused, and the errors of `decide`."""
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
        """Write and commit one decision, and notify the brokers. Raises WriteRefused, and the errors of `decide`.

        Decisions that this one causes stay pending.
        """
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
        """Write and commit a decision's parts. If another writer was faster, reload the state and return False."""
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
            await self._notify(batch)

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
        logger.info(
            "The controller reads the state again after a failed write: %s %s", type(problem).__name__, problem.path
        )
        # 1. Clear the way for nodes that have to go.
        if isinstance(problem, NotEmpty):
            await self._tree.delete_below(problem.path)
        # 2. Know which nodes are there: Kafka's controllers make and remove them one by one, and may fail in between.
        if isinstance(problem, NodeExists | NoNode):
            await self._note_nodes(part)
        # 3. Know the topics as they are written.
        await self.read_again(dict.fromkeys(map(_topic, part.changes)))

    async def _note_nodes(self, part: Decision) -> None:
        operations = [each for change in part.changes for each in change.operations]
        paths = [each.path for each in operations if isinstance(each, Create | Delete)]
        for path, node in zip(paths, await self._tree.get_all(paths), strict=True):
            self._states.note_node(path, exists=node is not None)

    async def read_again(self, names: Iterable[str]) -> None:
        """Reload the states of topics `names`, and notify the brokers of states that changed."""
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
            await self._notify(batch)

    async def restate(self, names: Iterable[str]) -> None:
        """Notify the brokers of all partition states of topics `names`."""
        batch = ControlBatch()
        for name in names:
            self._restate(batch, name, {})
        if batch:
            await self._notify(batch)

    def _restate(self, batch: ControlBatch, name: str, before: Mapping[int, PartitionState]) -> None:
        """Add notifications to `batch` for the partitions of topic `name` whose states differ from `before`."""
        for partition, state in _led(self._states.topics[name]):
            known = before.get(partition[1])
            if state == known:
                continue
            # Brokers pass over LeaderAndIsr of an epoch that they know, so it is sent only where there is a new one.
            if known is None or (known.leader_epoch, known.replicas) != (state.leader_epoch, state.replicas):
                self._states.notify(batch, partition, state, self._states.online(partition, state.replicas))
            self._states.notify_all(batch, partition, state)


def _led(topic: ControlledTopic) -> Iterator[tuple[TopicPartition, PartitionState]]:
    for index, state in topic.partitions.items():
        if state.partition_epoch != NO_PARTITION_EPOCH:
            yield (topic.name, index), state


def _halves(part: Decision) -> Iterator[Decision]:
    sizes = [change.size for change in part.changes]
    # Not more than there is before the last change, which may be the large one: a part that is the whole would not end.
    return part.parts(min(sum(sizes) // 2, sum(sizes[:-1])))


def _topic(change: Change) -> str:
    if isinstance(change, StateChange):
        return change.partition[0]
    if isinstance(change, NodeRemoval):
        return change.paths[0].removeprefix(TOPICS + "/").split("/")[0]
    return change.topic


Outcomes = dict[str, KafkaError | None]


def not_stored() -> KafkaError:
    """Return the client's error for a change that the coordination tree could not store."""
    return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "The change cannot be stored.")


class TopicRequests:
    """Creator of topics and partitions in the controller. It turns a `TopicPlan` into tree nodes and broker requests.

    | step                                       | if the tree has no room for the step, or the step is too large |
    |--------------------------------------------|----------------------------------------------------------------|
    | 1. one write: node, settings, first states | KAFKA_STORAGE_ERROR; the topic or its partitions do not exist  |
    | 2. more writes: the states of partitions   | step 2 waits for room: the topic exists since step 1           |
    | beyond the first FIRST_STATES_PER_WRITE    |                                                                |

    A request ends with step 1, so no request waits for room. The writes of step 2 are later events of the controller.

    `watch` is called with the name of each topic that step 1 has written, `later` with each action of step 2.
    """

    def __init__(
        self,
        states: PartitionStates,
        writer: DecisionWriter,
        watch: Callable[[str], None],
        later: Callable[[Action], None],
    ) -> None:
        self._states, self._writer = states, writer
        self._watch, self._later = watch, later

    async def create(self, plans: Sequence[TopicPlan]) -> Outcomes:
        """Create topics; return None or an error for each name."""
        outcomes: Outcomes = {}
        # As many at a time as go into one write.
        for some in _in_groups(plans, FIRST_STATES_PER_WRITE):
            outcomes |= await self._create_some(some)
        return outcomes

    async def _create_some(self, plans: Sequence[TopicPlan]) -> Outcomes:
        outcomes: Outcomes = {}

        def decide() -> Decision:
            changes = []
            for plan in plans:
                # An attempt before this one may have created it, and failed with another topic.
                if plan.name in outcomes or self._exists(plan):
                    continue
                try:
                    changes.append(self._states.create_topic(*_created(plan)))
                except KafkaError as error:
                    outcomes[plan.name] = bare(error)
            return Decision(changes=tuple(changes))

        try:
            await self._writer.do(decide)
        except (WriteRefused, TooLarge) as problem:
            # A topic with very long settings must not keep the others from being.
            if isinstance(problem, TooLarge) and len(plans) > 1:
                for plan in plans:
                    outcomes |= {} if plan.name in outcomes else await self._create_some([plan])
                return outcomes
            logger.error("New topics such as %s cannot be stored: %r", plans[0].name, problem)
        for plan in plans:
            if self._exists(plan):
                self._complete(plan)
                outcomes[plan.name] = None
            else:
                outcomes.setdefault(plan.name, not_stored())
        return outcomes

    def _exists(self, plan: TopicPlan) -> bool:
        known = self._states.topics.get(plan.name)
        return known is not None and known.topic_id == plan.after.topic_id

    async def add_partitions(
        self, name: str, plan: Callable[[TopicState | None], TopicPlan], *, validate_only: bool
    ) -> TopicPlan:
        """Extend a topic; return the plan that was carried out. Raises KafkaError, and the errors of `plan`.

        `plan` gets the topic's last decided state (None: there is no such topic) and returns the plan of the extension.
        """
        planned: list[TopicPlan] = []

        def decide() -> Decision:
            # By the latest plan; an earlier one may have failed because a tool has written the node.
            planned[:] = [plan(self._states.topic(name))]
            added = [each.replicas for each in planned[0].after.partitions[planned[0].first_new :]]
            return Decision() if validate_only else Decision(changes=(self._states.add_partitions(name, added),))

        try:
            await self._writer.do(decide)
        except (WriteRefused, TooLarge) as problem:
            logger.error("New partitions of topic %s cannot be stored: %r", name, problem)
            raise not_stored() from None
        if not validate_only:
            self._complete(planned[0])
        return planned[0]

    def _complete(self, plan: TopicPlan) -> None:
        """Queue writes of the initial partition states that were too many for the topic's first write."""
        count = len(plan.after.partitions)
        happened = "has grown" if plan.before else "was created"
        logger.info("Topic %s %s, %s", plan.name, happened, counted(count, "partition"))
        self._watch(plan.name)
        for start in range(plan.first_new + FIRST_STATES_PER_WRITE, count, FIRST_STATES_PER_WRITE):
            part = range(start, min(start + FIRST_STATES_PER_WRITE, count))
            elect = partial(self._states.elect_new, plan.name, part)
            self._later(partial(self._writer.carry_out, elect))


def _created(plan: TopicPlan) -> tuple[str, bytes, list[tuple[int, ...]], Mapping[str, str]]:
    replicas = [partition.replicas for partition in plan.after.partitions]
    return plan.name, plan.after.topic_id, replicas, plan.configs or {}


def _in_groups(plans: Sequence[TopicPlan], partitions_max: int) -> Iterator[list[TopicPlan]]:
    """Group plans into groups of at most `partitions_max` partitions. A larger plan is a group of its own."""
    group: list[TopicPlan] = []
    size = 0
    for plan in plans:
        count = len(plan.after.partitions)
        if group and size + count > partitions_max:
            yield group
            group, size = [], 0
        group.append(plan)
        size += count
    if group:
        yield group
