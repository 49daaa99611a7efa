"""Partitions of a lab's Kafka: who leads, who is in sync, and how a test changes that."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ottla.server.testing.errors import LabError, check
from ottla.server.testing.world.clock import pause
from ottla.server.testing.world.world import PAUSE_S, SHOWN_LOOKS
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from ottla.wire.messages.partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)

if TYPE_CHECKING:
    from ottla.server.testing.world.world import World

PREFERRED = 0
TIMEOUT_MS = 30_000


class PartitionState(NamedTuple):
    """State of a partition, as its leader knows it. Brokers are named by their ids."""

    leader: int
    leader_epoch: int
    replicas: list[int]
    isr: list[int]
    log_start_offset: int
    high_watermark: int
    log_end_offset: int


async def state_of(world: World, topic: str, partition: int) -> PartitionState:
    """Return the state of a partition. Raises LabError if there is none, or it has no leader."""
    node = world.leader(topic, partition)
    held = node.serving().replicas.partition(topic, partition)
    assert held is not None
    log = held.log
    offsets = log.log_start_offset, held.high_watermark, log.log_end_offset
    return PartitionState(node.node_id, held.leader_epoch, list(held.replicas), sorted(held.isr), *offsets)


async def elect(world: World, topic: str, partition: int, leader: int) -> None:
    """Let a replica in sync lead a partition. Raises LabError if it is none, and KafkaError."""
    state = await state_of(world, topic, partition)
    if leader not in state.isr:
        raise LabError(f"Broker {leader} is not in the ISR of {topic}-{partition}, which is {state.isr}.")
    if leader == state.leader:
        return
    # The first of the replicas is the preferred one.
    await _reassign(world, topic, partition, [leader, *(each for each in state.replicas if each != leader)])
    wanted = TopicPartitions(topic=topic, partitions=[partition])
    answer = await world.ask(
        ElectLeadersRequest(election_type=PREFERRED, topic_partitions=[wanted], timeout_ms=TIMEOUT_MS)
    )
    result = answer.replica_election_results[0].partition_result[0]
    check(answer.error_code)
    if result.error_code != ErrorCode.ELECTION_NOT_NEEDED:
        check(result.error_code, result.error_message)
    problem = f"Broker {leader} does not lead {topic}-{partition}"
    await _until(lambda: _leader_of(world, topic, partition) == leader, problem)
    await world.until_settled([topic])


async def move(world: World, topic: str, partition: int, replicas: Sequence[int]) -> None:
    """Move a partition to the brokers `replicas`; return when they are its replicas, the new ones in sync. Raises LabError or KafkaError."""
    await _reassign(world, topic, partition, replicas)
    problem = f"Partition {topic}-{partition} has not moved to {list(replicas)}"
    await _until(lambda: _is_at(world, topic, partition, replicas), problem)
    await world.until_settled([topic])


async def _reassign(world: World, topic: str, partition: int, replicas: Sequence[int]) -> None:
    for each in replicas:
        world.node(each)
    wanted = ReassignablePartition(partition_index=partition, replicas=list(replicas))
    answer = await world.ask(
        AlterPartitionReassignmentsRequest(
            timeout_ms=TIMEOUT_MS, topics=[ReassignableTopic(name=topic, partitions=[wanted])]
        )
    )
    check(answer.error_code, answer.error_message)
    result = answer.responses[0].partitions[0]
    check(result.error_code, result.error_message)


async def _until(holds: Callable[[], bool], problem: str) -> None:
    """Wait until something holds. Raises LabError, with the problem, after 30 s."""
    for _ in range(SHOWN_LOOKS):
        if holds():
            return
        await pause(PAUSE_S)
    raise LabError(f"{problem} after {SHOWN_LOOKS * PAUSE_S:.0f} s; do its brokers run, and reach each other?")


def _leader_of(world: World, topic: str, partition: int) -> int | None:
    try:
        return world.leader(topic, partition).node_id
    except LabError:  # between two leaders
        return None


def _is_at(world: World, topic: str, partition: int, replicas: Sequence[int]) -> bool:
    node = world.controller()
    active = None if node is None else node.serving().member.controller
    state = None if active is None else active.states.partition((topic, partition))
    # While it moves, the replicas that it is to have come first, and those that are to go follow.
    return state is not None and state.replicas == tuple(replicas) and not state.is_being_reassigned
