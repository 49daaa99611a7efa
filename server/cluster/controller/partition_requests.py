"""Handling of queued partition requests, and of requests that old tools write into the tree.

    AlterPartition, ControlledShutdown, ElectLeaders                 by request
    AlterPartitionReassignments, or /admin/reassign_partitions       the node names what it still has under way
    /admin/preferred_replica_election                                by the node, which goes when it is done

Modules that a start does not need are imported at their first use.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import trio

from ottla.replication.cluster import znodes
from ottla.replication.cluster.coordination import BadVersion, NoNode, SetData
from ottla.replication.controller.decisions import TopicPartition
from ottla.replication.controller.partition_states import PartitionStates
from ottla.server.cluster.controller.decision_writer import CarriedOut, DecisionWriter
from ottla.server.cluster.controller.tree import ControllerTree, TreeReader
from ottla.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.replication.controller.elect_leaders import ElectionType
    from ottla.replication.controller.reassignment import Targets
    from ottla.wire.messages.controller_requests import AlterPartitionRequest, AlterPartitionResponse

logger = logging.getLogger("ottla.controller")

NAMES_IN_LOG_MAX = 10
PARTITIONS_PER_DECISION = 500

T = TypeVar("T")

Outcomes = dict[TopicPartition, KafkaError | None]


class PartitionRequests:
    """Executor of the controller's requests about partitions. The event queue calls its methods one at a time."""

    def __init__(
        self, states: PartitionStates, writer: DecisionWriter, tree: ControllerTree, reader: TreeReader
    ) -> None:
        self._states, self._writer, self._tree, self._reader = states, writer, tree, reader

    async def alter_partition(self, request: AlterPartitionRequest, version: int) -> AlterPartitionResponse:
        from ottla.replication.controller.alter_partition import judge, respond

        outcome = await self._writer.carry_out(lambda: judge(self._states, request, version))
        return respond(self._states, request, outcome.decision)

    async def controlled_shutdown(self, broker_id: int, broker_epoch: int) -> list[TopicPartition]:
        await self._writer.carry_out(lambda: self._states.controlled_shutdown(broker_id, broker_epoch))
        left = self._states.led_by(broker_id)
        logger.info(
            "Broker %d shuts down: %s, it still leads %d", broker_id, self._writer.tally.take_leaders(), len(left)
        )
        return left

    async def elect_leaders(self, election_type: ElectionType, partitions: Iterable[TopicPartition] | None) -> Outcomes:
        from ottla.replication.controller.elect_leaders import elect_leaders

        wanted = [name for name, _ in self._states.partitions()] if partitions is None else list(partitions)
        outcomes: Outcomes = {}
        for part in in_parts(wanted):
            outcome = await self._writer.carry_out(partial(elect_leaders, self._states, part, election_type))
            outcomes |= _outcomes(outcome)
            await trio.lowlevel.checkpoint()
        if partitions is None:
            outcomes = {
                name: error
                for name, error in outcomes.items()
                if error is None or error.code != ErrorCode.ELECTION_NOT_NEEDED
            }
        return outcomes

    async def reassign(self, targets: Targets, allow_replication_factor_change: bool) -> Outcomes:
        from ottla.replication.controller.reassignment import plan_reassignments

        outcomes: Outcomes = {}
        for part in in_parts(list(targets)):
            plan = partial(plan_reassignments, self._states, {name: targets[name] for name in part})
            outcome = await self._writer.carry_out(
                partial(plan, allow_replication_factor_change=allow_replication_factor_change)
            )
            outcomes |= _outcomes(outcome)
            await trio.lowlevel.checkpoint()
        if begun := [f"{name}-{index}" for (name, index), error in outcomes.items() if error is None]:
            logger.info("Reassignments of %d partitions were begun or cancelled: %s", len(begun), some_of(begun))
        return outcomes

    async def look_at_reassignments(self) -> None:
        """Begin the reassignments that old tools wrote to /admin/reassign_partitions. Unfinished ones stay there."""
        if (read := await self._reader.reassignments()) is not None:
            # Those that are on their way there are not begun again.
            wanted = {name: target for name, target in read[0].items() if not self._has_target(name, target)}
            for (topic, index), error in (await self.reassign(wanted, True)).items():
                if error is not None:
                    logger.warning("%s-%d cannot be reassigned: %s", topic, index, error)
            await self.settle_reassignments()

    async def settle_reassignments(self) -> None:
        """Remove reassignments from /admin/reassign_partitions if they have ended or their target was changed."""
        if (read := await self._reader.reassignments()) is None:
            return
        targets, version = read
        left = {
            name: target
            for name, target in targets.items()
            if name in self._states.reassigned and self._has_target(name, target)
        }
        if not left:
            await self._tree.delete([znodes.REASSIGNMENTS])
        elif left != targets:
            with suppress(BadVersion, NoNode):  # then the watch calls
                await self._tree.write([SetData(znodes.REASSIGNMENTS, znodes.encode_reassignments(left), version)])

    def _has_target(self, partition: TopicPartition, target: list[int]) -> bool:
        state = self._states.partition(partition)
        return state is not None and list(state.target_replicas) == target

    async def look_at_preferred_elections(self) -> None:
        partitions = await self._reader.preferred_elections()
        if partitions is not None:
            from ottla.replication.controller.elect_leaders import ElectionType

            await self.elect_leaders(ElectionType.PREFERRED, partitions)
            await self._tree.delete([znodes.PREFERRED_ELECTION])


def in_parts(names: Sequence[T], size: int = PARTITIONS_PER_DECISION) -> Iterator[Sequence[T]]:
    """Split `names` into parts of at most `size`, so that a large request does not block the event loop."""
    for start in range(0, len(names), size):
        yield names[start : start + size]


def _outcomes(outcome: CarriedOut) -> Outcomes:
    return {
        # An attempt may be written in part and then fail. The last decision finds nothing to do for what was written.
        name: answer if isinstance(answer, KafkaError) and name not in outcome.written else None
        for name, answer in outcome.decision.answers.items()
    }


def some_of(names: Sequence[str]) -> str:
    shown = ", ".join(names[:NAMES_IN_LOG_MAX])
    return shown if len(names) <= NAMES_IN_LOG_MAX else f"{shown} and {len(names) - NAMES_IN_LOG_MAX} more"
