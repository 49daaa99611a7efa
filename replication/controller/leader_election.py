"""Leader elections (Kafka's four), and the consequences of lost replicas. Pure functions.

Theory
    All but the unclean election choose a leader among the in-sync replicas, so that no committed record is lost; the
    first in the order of assignment wins. Each returns the state that is to follow, with a new leader epoch, or None if no
    replica can be elected, or nothing changes; nothing is decided before that state is written.

| election            | when                             | chooses among                      | the ISR after it       |
|---------------------|----------------------------------|------------------------------------|------------------------|
| offline             | leader lost, or a broker comes   | online and in sync                 | those who are online   |
| - unclean           | nobody of them, topic allows it  | online                             | the new leader alone   |
| reassignment        | all new replicas are in sync     | new, online and in sync            | the new replicas       |
| preferred replica   | ElectLeaders, leader imbalance   | the first, if online and in sync   | the same               |
| controlled shutdown | the leader is about to leave     | alive, in sync, not shutting down  | not shutting down      |

    *Alive* is a replica whose broker has a session and whose log directory works; *online* is one that is alive and
    whose broker is not shutting down.

Invariants
    The leader is in the ISR, or there is none. The ISR is never empty: if none of its members is alive it stays as it was,
    because any member that returns has every committed record. (Kafka removes them one after the other, and keeps the last one.)
    Leader epoch and partition epoch rise by one with every step.
"""

from collections.abc import Container
from dataclasses import replace

from ottla.replication.cluster.metadata_cache import NO_LEADER, RECOVERING, PartitionState


def offline_election(state: PartitionState, online: Container[int], *, unclean: bool) -> PartitionState | None:
    """Elect a leader for a leaderless partition; None if no replica can. An unclean leader must recover (KIP-704)."""
    in_sync = tuple(broker for broker in state.isr if broker in online)
    if (leader := _first(state.replicas, online, in_sync)) is not None:
        return succeed(state, leader, in_sync)
    if unclean and (leader := _first(state.replicas, online)) is not None:
        # The others may hold records that the new leader never had. They drop those before they count as in sync.
        return replace(succeed(state, leader, (leader,)), leader_recovery_state=RECOVERING)
    return None


def reassignment_election(state: PartitionState, online: Container[int]) -> PartitionState | None:
    """Return the state that completes a reassignment; the leader stays if it is eligible.

    Returns None while no target replica is in sync and online.
    """
    target = state.target_replicas
    in_sync = tuple(broker for broker in state.isr if broker in target)
    # Clients need not look for another leader where the present one may stay.
    leader = state.leader if state.leader in in_sync and state.leader in online else _first(target, online, in_sync)
    if leader is None:
        return None
    return replace(succeed(state, leader, in_sync), replicas=target, adding_replicas=(), removing_replicas=())


def is_complete(state: PartitionState) -> bool:
    """Tell whether all target replicas of a reassignment are in sync; the old replicas can then be removed."""
    return state.is_being_reassigned and set(state.target_replicas) <= set(state.isr)


def preferred_election(state: PartitionState, online: Container[int]) -> PartitionState | None:
    """Elect the first replica as leader; None if it is offline or not in sync."""
    preferred = _first(state.replicas[:1], online, state.isr)
    return None if preferred is None else succeed(state, preferred, state.isr)


def controlled_shutdown_election(
    state: PartitionState, alive: Container[int], shutting_down: Container[int]
) -> PartitionState | None:
    """Elect a new leader in place of a leader that is shutting down; None if no other replica can lead."""
    staying = tuple(broker for broker in state.isr if broker not in shutting_down)
    leader = _first(state.replicas, alive, staying)
    return None if leader is None else succeed(state, leader, staying)


def after_loss(
    state: PartitionState, alive: Container[int], online: Container[int], *, unclean: bool
) -> PartitionState | None:
    """Return the state after replicas died: a new leader, no leader, or a smaller ISR; None if nothing changes."""
    if state.leader not in alive:
        elected = offline_election(state, online, unclean=unclean)
        if elected is not None or state.leader == NO_LEADER:
            return elected
        # Those who are in sync and alive, and were not elected, are shutting down. They stay in sync without a leader.
        return succeed(state, NO_LEADER, tuple(broker for broker in state.isr if broker in alive) or state.isr)
    in_sync = tuple(broker for broker in state.isr if broker in alive)
    return None if in_sync == state.isr else succeed(state, state.leader, in_sync)


def without_replica(state: PartitionState, broker: int) -> PartitionState | None:
    """Return the state after a follower has left the ISR; None if it is not in the ISR or is its only member."""
    assert broker != state.leader
    in_sync = tuple(each for each in state.isr if each != broker)
    # The last one in sync stays: it has every committed record.
    return None if in_sync == state.isr or not in_sync else succeed(state, state.leader, in_sync)


def succeed(state: PartitionState, leader: int, isr: tuple[int, ...]) -> PartitionState:
    """Return the next state with this leader and ISR; leader epoch and partition epoch grow by one."""
    assert isr and (leader == NO_LEADER or leader in isr)
    return replace(
        state, leader=leader, isr=isr, leader_epoch=state.leader_epoch + 1, partition_epoch=state.partition_epoch + 1
    )


def _first(replicas: tuple[int, ...], *conditions: Container[int]) -> int | None:
    return next((broker for broker in replicas if all(broker in each for each in conditions)), None)
