"""In-sync replicas of a partition: a test lets some fall behind, and catch up again.

A replica that is held fetches nothing of its partition, from whichever leader and also after a restart, because a rule of the wire tap
refuses its fetches. The leader then proposes to the controller an ISR without it, as after replica.lag.time.max.ms; no time
passes meanwhile. A fetch that had passed the rule before says that the replica holds everything; the leader does not let it join for
that. What the replica holds ends where it was, so that an unclean election of it loses records, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from ottla.server.testing.errors import LabError
from ottla.server.testing.partitions import PartitionState, state_of
from ottla.server.testing.world.clock import pause
from ottla.server.testing.world.world import PAUSE_S, SHOWN_LOOKS, is_look_to_urge

if TYPE_CHECKING:
    from ottla.replication.partition.partition import Partition
    from ottla.server.testing.world.node import Node
    from ottla.server.testing.world.world import World

LEADER_LOOKS = 1_000
"""Looks for a leader: two seconds."""

REFUSAL = "NOT_LEADER_OR_FOLLOWER"
"""Error that a held replica is answered; it then asks again soon."""

FOR_EVER_MS = 1 << 62


async def shrink_isr(world: World, topic: str, partition: int, to: Collection[int] | None) -> None:
    """Remove replicas from the ISR; return when leader and controller have done it. `to`: ids that stay, None: the leader.

    Raises LabError.
    """
    if world.tree is None:
        raise LabError("A broker that is alone has no followers; use Kafka(3) or kafka_cluster.")
    state = await _led(world, topic, partition)
    kept = {state.leader} if to is None else set(to)
    for each in kept:
        world.node(each)
    if state.leader not in kept:
        raise LabError(
            f"Broker {state.leader} leads {topic}-{partition} and stays in its ISR; name it in to=, or elect() another leader."
        )
    if strangers := sorted(kept - set(state.isr)):
        raise LabError(f"Broker {strangers[0]} is not in the ISR of {topic}-{partition}, which is {state.isr}.")
    for each in set(state.replicas) - kept:
        _hold(world, topic, partition, each)
    await _until(world, topic, partition, lambda isr: isr <= kept, lambda _: _propose(world, topic, partition, kept))


async def expand_isr(world: World, topic: str, partition: int) -> None:
    """Let all replicas catch up; return when those are in the ISR that run and reach the leader. Raises LabError."""
    state = await _led(world, topic, partition)
    let_catch_up(world, topic, partition)
    able = {each for each in state.replicas if _reaches(world, each, state.leader)}

    def urge(number: int) -> None:
        # One joins at a time. The next one may wait at the leader for records, and a fetch is what lets it join.
        for each in able if is_look_to_urge(number) else ():
            world.node(each).fetch_anew(topic, partition)

    await _until(world, topic, partition, lambda isr: isr >= able, urge)


async def _led(world: World, topic: str, partition: int) -> PartitionState:
    """Return the state of a partition, once it has a leader, which it may lack for a moment. Raises LabError."""
    for _ in range(LEADER_LOOKS):
        if _leader(world, topic, partition) is not None:
            break
        if world.any_node().serving().cluster.partition(topic, partition) is None:
            break
        await pause(PAUSE_S)
    return await state_of(world, topic, partition)


def let_catch_up(world: World, topic: str | None = None, partition: int = 0) -> None:
    """Hold the replicas of a partition no longer; those of all partitions if `topic` is None."""
    for place in list(world.held_replicas):
        if topic is None or place[:2] == (topic, partition):
            world.held_replicas.pop(place).remove()
            _keep_out(world, *place, until_ms=0)


def _hold(world: World, topic: str, partition: int, broker: int) -> None:
    place = topic, partition, broker
    if place not in world.held_replicas:
        fetches = world.wire.on("Fetch", of_brokers=True, topic=topic, partition=partition, replica_id=broker)
        world.held_replicas[place] = fetches.fail(REFUSAL, times=None)
    _keep_out(world, topic, partition, broker, until_ms=FOR_EVER_MS)
    world.node(broker).fetch_anew(topic, partition)


def _keep_out(world: World, topic: str, partition: int, broker: int, *, until_ms: int) -> None:
    """Let no leader propose until then that a follower joins. A later leader has not heard of its fetches."""
    follower_node = world.nodes[broker].broker
    for node in world.nodes.values():
        held = None if node.broker is None else node.broker.replicas.partition(topic, partition)
        if held is not None and held.followers is not None and broker in held.followers.by_id:
            follower = held.followers.by_id[broker]
            follower.ineligible_until_ms = until_ms
            if follower_node is not None:  # else the first fetch with it would count as that of a restarted broker
                follower.broker_epoch = follower_node.member.broker_epoch


async def _until(
    world: World, topic: str, partition: int, is_right: Callable[[set[int]], bool], urge: Callable[[int], None]
) -> None:
    """Wait until leader, controller and all brokers in its reach know a right ISR; call `urge` with the number of each look.

    Raises LabError.
    """
    for number in range(SHOWN_LOOKS):
        urge(number)
        known = _known(world, topic, partition)
        if known and all(map(is_right, known)):
            return
        await pause(PAUSE_S)
    raise LabError(
        f"The ISR of {topic}-{partition} is still {sorted(known[0]) if known else 'unknown'} after"
        f" {SHOWN_LOOKS * PAUSE_S:.0f} s; is there a controller, and do its replicas reach the leader?"
    )


def _known(world: World, topic: str, partition: int) -> list[set[int]]:
    """Return the ISR as the leader knows it, and as the brokers know it that the controller reaches; empty without both, and while it changes."""
    leader, controller = _leader(world, topic, partition), world.controller()
    if leader is None or controller is None:
        return []
    if (followers := leader[1].followers) is not None and followers.proposed is not None:
        return []  # the ISR is about to change
    found = [set(leader[1].isr)]
    for node_id, node in world.nodes.items():
        if node.broker is not None and _reaches(world, node_id, controller.node_id):
            state = node.broker.cluster.partition(topic, partition)
            found.append({-1} if state is None else set(state.isr))
    return found


def _leader(world: World, topic: str, partition: int) -> tuple[Node, Partition] | None:
    try:
        node = world.leader(topic, partition)
    except LabError:  # between two leaders
        return None
    held = node.serving().replicas.partition(topic, partition)
    return None if held is None else (node, held)


def _reaches(world: World, one: int, other: int) -> bool:
    is_up = world.nodes[one].is_running and world.nodes[other].is_running
    return is_up and not world.is_cut(one, other)


def _propose(world: World, topic: str, partition: int, kept: Collection[int]) -> None:
    """Let the leader propose an ISR without those that are not kept, unless a proposal of it is under way."""
    if (found := _leader(world, topic, partition)) is None:
        return
    member, held = found[0].serving().member, found[1]
    followers, isr = held.followers, tuple(each for each in held.isr if each in kept)
    if followers is None or followers.proposed is not None or member.is_fenced or found[0].node_id not in isr:
        return
    if len(isr) < len(held.isr):
        for broker, follower in followers.by_id.items():
            if broker not in kept:  # else the high watermark would wait for it
                follower.rests_on, follower._caught_up_ms = None, 0
        member.alter_partition_manager._propose(held, isr)
