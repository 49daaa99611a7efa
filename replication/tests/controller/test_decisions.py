"""Decisions about all partitions are made in steps, between which others have their turns."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import trio

from ottla.replication.cluster.metadata_cache import PartitionState
from ottla.replication.controller.decisions import ControlBatch, Decision, Sender, Steps
from ottla.replication.controller.partition_states import PartitionStates
from ottla.replication.tests.controlled import TOPIC, Controlled, at_once, registration
from ottla.wire import time_slice
from ottla.wire.messages.controller_requests import LeaderAndIsrRequest, StopReplicaRequest, UpdateMetadataRequest
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


STATE = PartitionState(1, 5, (3, 1, 2), (1, 2), 7, (3,), (2,), 0, 4)
SENDER = Sender(
    controller_id=9,
    controller_epoch=6,
    listener="PLAINTEXT",
    brokers={node_id: registration(node_id, rack="a") for node_id in (1, 2, 3)},
    topic_ids={"t": bytes(range(16))},
)


def batch() -> ControlBatch:
    made = ControlBatch()
    made.lead_or_follow(1, ("t", 0), STATE, is_new=True)
    made.lead_or_follow(1, ("t", 0), STATE, is_new=False)
    made.stop(1, ("u", 3), 5, delete=True)
    made.stop(1, ("u", 3), 6, delete=False)
    made.announce([1, 2], ("t", 0), STATE, (3,))
    made.announce_brokers([3])
    return made


def test_requests_have_kafkas_order_and_content() -> None:
    told = batch()
    assert told.receivers() == [1, 2, 3]
    lead, know, stop = at_once(SENDER.requests(told, 1))
    assert isinstance(lead, LeaderAndIsrRequest)
    assert (lead.controller_id, lead.controller_epoch, lead.broker_epoch) == (9, 6, 101)
    [topic] = lead.topic_states
    [state] = topic.partition_states
    assert (topic.topic_name, topic.topic_id) == ("t", bytes(range(16)))
    assert (state.leader, state.leader_epoch, state.isr, state.partition_epoch) == (1, 5, [1, 2], 7)
    assert (state.replicas, state.adding_replicas, state.removing_replicas) == ([3, 1, 2], [3], [2])
    assert (state.controller_epoch, state.is_new, state.leader_recovery_state) == (4, True, 0)
    assert [(live.broker_id, live.host_name, live.port) for live in lead.live_leaders] == [(1, "host1", 9001)]
    assert isinstance(know, UpdateMetadataRequest)
    [known] = know.topic_states[0].partition_states
    assert (known.leader, known.zk_version, known.offline_replicas) == (1, 7, [3])
    assert [(broker.id, broker.rack) for broker in know.live_brokers] == [(1, "a"), (2, "a"), (3, "a")]
    [endpoint] = know.live_brokers[0].endpoints
    assert (endpoint.host, endpoint.port, endpoint.listener, endpoint.security_protocol) == (
        "host1",
        9001,
        "PLAINTEXT",
        0,
    )
    assert isinstance(stop, StopReplicaRequest)
    [stopped] = stop.topic_states[0].partition_states
    assert (stopped.partition_index, stopped.leader_epoch, stopped.delete_partition) == (3, 6, True)


def test_everybody_hears_only_what_concerns_them() -> None:
    told = batch()
    [know] = at_once(SENDER.requests(told, 2))
    assert isinstance(know, UpdateMetadataRequest) and know.broker_epoch == 102
    [brokers_only] = at_once(SENDER.requests(told, 3))
    assert isinstance(brokers_only, UpdateMetadataRequest) and brokers_only.topic_states == []
    assert at_once(SENDER.requests(told, 4)) == []


def test_who_is_told_to_follow_a_new_broker_hears_of_it_before() -> None:
    told = batch()
    told.introduce_brokers([1, 2])
    first, lead, stop = at_once(SENDER.requests(told, 1))
    assert isinstance(first, UpdateMetadataRequest) and len(first.topic_states) == 1
    assert [broker.id for broker in first.live_brokers] == [1, 2, 3]
    assert isinstance(lead, LeaderAndIsrRequest) and isinstance(stop, StopReplicaRequest)
    [know] = at_once(SENDER.requests(told, 2))
    assert isinstance(know, UpdateMetadataRequest) and know.topic_states != []


def test_the_requests_can_be_written_in_the_versions_of_kafka_3_9() -> None:
    for request, version in zip(at_once(SENDER.requests(batch(), 1)), (7, 8, 4), strict=True):
        assert type(request).decode(request.encode(version), version) == request


def test_a_leader_that_is_gone_has_no_address() -> None:
    made = ControlBatch()
    assert not made
    made.lead_or_follow(1, ("u", 0), PartitionState(-1, 5, (1,), (1,)), is_new=False)
    [lead] = at_once(SENDER.requests(made, 1))
    assert isinstance(lead, LeaderAndIsrRequest)
    assert lead.live_leaders == [] and lead.topic_states[0].topic_id == bytes(16)
    assert made
