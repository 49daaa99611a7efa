"""Decisions about all partitions are made in steps, between which others have their turns."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import trio

from ottla.replication.controller.control_batch import Sender
from ottla.replication.controller.decisions import Decision
from ottla.replication.controller.partition_states import PartitionStates
from ottla.replication.controller.steps import Steps, at_once
from ottla.replication.tests.controlled import TOPIC, Controlled, registration
from ottla.wire import time_slice
from ottla.wire.time_slice import TimeSlice

PARTITIONS = 200


def counted(number: int) -> Steps[int]:
    for _ in range(number):
        yield
    return number


def steps_of(steps: Steps[object]) -> int:
    return sum(1 for _ in steps)


@pytest.mark.parametrize("number", [0, 1, 5])
async def test_steps_come_to_their_result_in_whatever_way_they_are_taken(number: int) -> None:
    assert at_once(counted(number)) == number
    assert await TimeSlice().take(counted(number)) == number


async def test_others_have_their_turns_between_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time_slice, "SLICE_S", 0.0)
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(other)
        await TimeSlice().take(counted(50))
        nursery.cancel_scope.cancel()
    assert turns >= 40  # about one for each step


async def test_what_cannot_be_decided_is_raised() -> None:
    def refused() -> Steps[int]:
        yield
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await TimeSlice().take(refused())


def many() -> Controlled:
    cluster = Controlled(1, 2, 3)
    cluster.create(*[(1 + index % 3, 1 + (index + 1) % 3, 1 + (index + 2) % 3) for index in range(PARTITIONS)])
    return cluster


INPUTS: dict[str, Callable[[PartitionStates], Steps[Decision]]] = {
    "start": lambda states: states.start(),
    "brokers up": lambda states: states.brokers_up([registration(2, 200)]),
    "brokers down": lambda states: states.brokers_down([2]),
    "controlled shutdown": lambda states: states.controlled_shutdown(2, -1),
    "log directory failed": lambda states: states.log_dir_failed(2),
    "elect offline": lambda states: states.elect_offline(),
}


@pytest.mark.parametrize("what", INPUTS)
def test_a_decision_takes_a_step_for_each_partition(what: str) -> None:
    assert steps_of(INPUTS[what](many().states)) >= PARTITIONS


def test_what_is_told_of_many_partitions_takes_steps_as_well() -> None:
    cluster = many()
    states, decision = cluster.states, at_once(cluster.states.start())
    sender = Sender(
        controller_id=1, controller_epoch=1, listener="PLAINTEXT", brokers=states.brokers, topic_ids={TOPIC: bytes(16)}
    )
    for receiver in (1, 2, 3):  # LeaderAndIsr and UpdateMetadata
        assert steps_of(sender.requests(decision.batch, receiver)) >= 2 * PARTITIONS


def test_an_input_counts_before_the_first_step() -> None:
    states = many().states
    shutting_down = states.controlled_shutdown(3, -1)
    going = states.brokers_down([2])
    assert set(states.brokers) == {1, 3}
    assert states.shutting_down == {3}
    coming = states.brokers_up([registration(2, 200)])
    assert set(states.brokers) == {1, 2, 3}
    for steps in (shutting_down, going, coming):
        steps.close()
