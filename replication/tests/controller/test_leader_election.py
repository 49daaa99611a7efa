import pytest

from ottla.replication.cluster.metadata_cache import NO_LEADER, RECOVERED, RECOVERING, PartitionState
from ottla.replication.controller.leader_election import (
    after_loss,
    controlled_shutdown_election,
    is_complete,
    offline_election,
    preferred_election,
    reassignment_election,
    without_replica,
)


def state(leader: int, isr: tuple[int, ...], replicas: tuple[int, ...] = (1, 2, 3), **more: object) -> PartitionState:
    return PartitionState(leader, 5, replicas, isr, 7, **more)  # type: ignore[arg-type]


def outcome(following: PartitionState | None) -> tuple[int, tuple[int, ...]] | None:
    if following is None:
        return None
    assert (following.leader_epoch, following.partition_epoch) == (6, 8)
    return following.leader, following.isr


@pytest.mark.parametrize(
    ("isr", "online", "unclean", "expected"),
    [
        ((1, 2, 3), {2, 3}, False, (2, (2, 3))),
        ((3, 2), {2, 3}, False, (2, (3, 2))),  # the order of assignment decides, not that of the ISR
        ((1, 3), {2, 3}, True, (3, (3,))),  # unclean only if need be
        ((1,), {2, 3}, False, None),
        ((1,), {2, 3}, True, (2, (2,))),
        ((1,), set(), True, None),
    ],
)
def test_offline(
    isr: tuple[int, ...], online: set[int], unclean: bool, expected: tuple[int, tuple[int, ...]] | None
) -> None:
    assert outcome(offline_election(state(1, isr), online, unclean=unclean)) == expected


def test_only_an_unclean_leader_has_to_recover() -> None:
    unclean = offline_election(state(1, (1,)), {2}, unclean=True)
    clean = offline_election(state(1, (1, 2)), {2}, unclean=True)
    assert unclean is not None and clean is not None
    assert (unclean.leader_recovery_state, clean.leader_recovery_state) == (RECOVERING, RECOVERED)
    again = offline_election(state(2, (2,), leader_recovery_state=RECOVERING), {2}, unclean=False)
    assert again is not None and again.leader_recovery_state == RECOVERING


@pytest.mark.parametrize(
    ("leader", "online", "expected"),
    [
        (1, {1, 2, 3, 4}, (3, (3, 4))),
        (4, {1, 2, 3, 4}, (4, (3, 4))),  # who leads and stays, goes on
        (4, {1, 2, 3}, (3, (3, 4))),
        (1, {1, 2}, None),
    ],
)
def test_reassignment(leader: int, online: set[int], expected: tuple[int, tuple[int, ...]] | None) -> None:
    before = state(leader, (1, 2, 3, 4), (3, 4, 1, 2), adding_replicas=(3, 4), removing_replicas=(1, 2))
    after = reassignment_election(before, online)
    assert outcome(after) == expected
    if after is not None:
        assert (after.replicas, after.adding_replicas, after.removing_replicas) == ((3, 4), (), ())


def test_a_reassignment_is_complete_when_all_who_come_are_in_sync() -> None:
    moving = {"adding_replicas": (3,), "removing_replicas": (1,)}
    assert is_complete(state(1, (1, 2, 3), (3, 2, 1), **moving))
    assert is_complete(state(2, (2, 3), (3, 2, 1), **moving))
    assert not is_complete(state(1, (1, 3), (3, 2, 1), **moving))
    assert not is_complete(state(1, (1, 2, 3)))


@pytest.mark.parametrize(
    ("isr", "online", "expected"),
    [((2, 1), {1, 2}, (1, (2, 1))), ((2,), {1, 2}, None), ((1, 2), {2}, None)],
)
def test_preferred(isr: tuple[int, ...], online: set[int], expected: tuple[int, tuple[int, ...]] | None) -> None:
    assert outcome(preferred_election(state(2, isr), online)) == expected


@pytest.mark.parametrize(
    ("isr", "alive", "shutting_down", "expected"),
    [
        ((1, 2, 3), {1, 2, 3}, {1}, (2, (2, 3))),
        ((1, 2, 3), {1, 3}, {1}, (3, (2, 3))),  # who is dead leaves the ISR by another way
        ((1, 2, 3), {1, 2, 3}, {1, 2}, (3, (3,))),
        ((1, 2), {1, 2, 3}, {1, 2}, None),
        ((1,), {1, 2, 3}, {1}, None),
    ],
)
def test_controlled_shutdown(
    isr: tuple[int, ...], alive: set[int], shutting_down: set[int], expected: tuple[int, tuple[int, ...]] | None
) -> None:
    assert outcome(controlled_shutdown_election(state(1, isr), alive, shutting_down)) == expected


@pytest.mark.parametrize(
    ("leader", "isr", "alive", "expected"),
    [
        (1, (1, 2, 3), {2, 3}, (2, (2, 3))),
        (1, (1, 2, 3), {1, 3}, (1, (1, 3))),
        (1, (1, 2, 3), {1, 2, 3}, None),
        (1, (1, 2), {3}, (NO_LEADER, (1, 2))),  # both have all that was committed
        (NO_LEADER, (1, 2), {3}, None),
        (NO_LEADER, (1, 2), {2, 3}, (2, (2,))),
    ],
)
def test_after_a_loss(
    leader: int, isr: tuple[int, ...], alive: set[int], expected: tuple[int, tuple[int, ...]] | None
) -> None:
    assert outcome(after_loss(state(leader, isr), alive, alive, unclean=False)) == expected


def test_a_leader_that_is_shutting_down_still_leads_but_nobody_is_elected_there() -> None:
    assert after_loss(state(1, (1, 2)), {1, 2}, {2}, unclean=False) is None
    assert outcome(after_loss(state(1, (1, 2)), {2}, set(), unclean=False)) == (NO_LEADER, (2,))


def test_a_follower_leaves_the_isr() -> None:
    assert outcome(without_replica(state(1, (1, 2)), 2)) == (1, (1,))
    assert without_replica(state(1, (1, 2)), 3) is None
    assert without_replica(state(NO_LEADER, (2,)), 2) is None
