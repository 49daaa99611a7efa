"""Creating and extending topics as the controller: what a `TopicPlan` becomes in the tree and at the brokers.

| step                                      | if there is no room for it, or it is too large                     |
|-------------------------------------------|--------------------------------------------------------------------|
| one write: node, settings, first states   | KAFKA_STORAGE_ERROR, and there is no such topic or partition       |
| more writes: the states of partitions     | they wait until there is room: the topic exists since the first one |
| beyond the first FIRST_STATES_PER_WRITE   |                                                                    |

A request ends with the first step, so it never waits for room. The others are events of their own, later.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from ottla.replication.cluster.coordination import TooLarge, WriteRefused
from ottla.replication.controller.decisions import Decision
from ottla.replication.controller.partition_states import FIRST_STATES_PER_WRITE, PartitionStates
from ottla.wire.errors import ErrorCode, KafkaError, bare

if TYPE_CHECKING:
    from ottla.replication.cluster.metadata_cache import TopicState
    from ottla.replication.controller.topic_planner import TopicPlan
    from ottla.server.cluster.controller.decision_writer import DecisionWriter
    from ottla.server.cluster.controller.events import Action

logger = logging.getLogger("ottla.controller")

Outcomes = dict[str, KafkaError | None]


def not_stored() -> KafkaError:
    """What a client is told of a change for which there is no room."""
    return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "The change cannot be stored.")


class TopicsByRequest:
    """See the module's docstring. `watch` is called with each topic that was written, `later` with what is to be done then."""

    def __init__(
        self,
        states: PartitionStates,
        writer: DecisionWriter,
        watch: Callable[[str], None],
        later: Callable[[Action], None],
    ) -> None:
        self._states = states
        self._writer = writer
        self._watch = watch
        self._later = later

    async def create(self, plans: Sequence[TopicPlan]) -> Outcomes:
        """By name None, or why the topic was not created."""
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
        """The plan that was carried out. Raises KafkaError."""
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
        """Give first states to the partitions that were too many for the first write."""
        count = len(plan.after.partitions)
        logger.info("Topic %s %s, %d partitions", plan.name, "has grown" if plan.before else "was created", count)
        self._watch(plan.name)
        for start in range(plan.first_new + FIRST_STATES_PER_WRITE, count, FIRST_STATES_PER_WRITE):
            part = range(start, min(start + FIRST_STATES_PER_WRITE, count))
            elect = partial(self._states.elect_new, plan.name, part)
            self._later(partial(self._writer.carry_out, elect))


def _created(plan: TopicPlan) -> tuple[str, bytes, list[tuple[int, ...]], Mapping[str, str]]:
    replicas = [partition.replicas for partition in plan.after.partitions]
    return plan.name, plan.after.topic_id, replicas, plan.configs or {}


def _in_groups(plans: Sequence[TopicPlan], partitions_max: int) -> Iterator[list[TopicPlan]]:
    """Plans that together have about so many partitions."""
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
