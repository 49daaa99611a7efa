"""The controller against a tree in memory and puppets of brokers, on virtual time."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from ottla.replication.cluster import znodes
from ottla.replication.cluster.coordination import CoordinationUnavailable, Create, Delete, SetData, TooLarge
from ottla.replication.controller.elect_leaders import ElectionType
from ottla.server.tests.puppets import Candidate, Theatre, open_theatre
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages.controller_requests import AlterPartitionRequest, BrokerState, UpdateMetadataRequest

FIRST = ("t", 0)


@pytest.fixture
async def theatre(autojump_clock: MockClock) -> AsyncIterator[Theatre]:
    async with open_theatre() as theatre:
        yield theatre


async def test_a_broker_is_elected_and_says_so_in_the_tree(theatre: Theatre, autojump_clock: MockClock) -> None:
    candidate = await theatre.stand(1)
    node = await theatre.operator.get(znodes.CONTROLLER)
    assert json.loads(node.data).items() >= {"version": 2, "brokerid": 1, "kraftControllerEpoch": -1}.items()
    assert node.owner == candidate.session.session_id
    assert (await theatre.operator.get(znodes.CONTROLLER_EPOCH)).data == b"1"
    assert candidate.election.controller_id == 1
    assert theatre.controller.epoch == 1
    assert theatre.controller.epoch_version == 1


async def test_a_topic_is_created_by_its_node(theatre: Theatre, autojump_clock: MockClock) -> None:
    await theatre.up(1, 2, 3)
    await theatre.stand(1)
    await theatre.create("t", (2, 3, 1), (3, 1))
    await theatre.until_led(2)
    await theatre.until_led(3, index=1)
    await theatre.until(lambda: theatre.puppets[1].replicas.keys() == {("t", 0), ("t", 1)})
    assert theatre.puppets[1].new == {("t", 0), ("t", 1)}
    assert theatre.puppets[2].replicas.keys() == {("t", 0)}
    state = await theatre.state("t")
    assert state is not None
    assert (state[0].leader, state[0].isr, state[0].controller_epoch, state[1]) == (2, [2, 3, 1], 1, 0)


def proposal(
    theatre: Theatre, *isr: int, topic: str = "t", index: int = 0, leader: int | None = None
) -> AlterPartitionRequest:
    """What the leader of a partition asks for when these are in sync."""
    state = theatre.controller.states.partition((topic, index))
    assert state is not None
    data = AlterPartitionRequest.TopicData
    sender = state.leader if leader is None else leader
    return AlterPartitionRequest(
        broker_id=sender,
        broker_epoch=theatre.puppets[sender].epoch,
        topics=[
            data(
                topic_id=theatre.controller.states.topics[topic].topic_id,
                partitions=[
                    data.PartitionData(
                        partition_index=index,
                        leader_epoch=state.leader_epoch,
                        new_isr_with_epochs=[BrokerState(broker_id=each) for each in isr],
                        partition_epoch=state.partition_epoch,
                    )
                ],
            )
        ],
    )


async def settled(theatre: Theatre) -> None:
    """All that has happened so far was worked on, and the brokers have heard of it."""
    await theatre.until(lambda: theatre.quarrels() == [])


# ---------------------------------------------------------------------- elections


async def test_another_broker_takes_over_when_the_session_of_the_controller_ends(
    theatre: Theatre, autojump_clock: MockClock
) -> None:
    first, second = await theatre.stand(1), await theatre.stand(2)
    assert second.election.controller_id == 1
    assert second.election.active is None
    theatre.service.expire(first.session.session_id)
    await theatre.until(lambda: second.election.active is not None and first.election.active is None)
    assert second.election.controller_id == 2
    assert theatre.controller.epoch == 2
    assert first.election.controller_id == -1


async def test_taking_part_again_in_a_new_session(theatre: Theatre, autojump_clock: MockClock) -> None:
    first, second = await theatre.stand(1), await theatre.stand(2)
    theatre.service.expire(first.session.session_id)
    await theatre.until(lambda: second.election.active is not None)
    again = await theatre.stand(1)
    assert again.election.controller_id == 2
    theatre.service.expire(second.session.session_id)
    await theatre.until(lambda: theatre.active is not None and theatre.active is again.election.active)
    assert theatre.controller.epoch == 3


async def test_a_session_may_end_before_it_is_known_who_is_controller(
    theatre: Theatre, autojump_clock: MockClock
) -> None:
    candidate = Candidate(theatre, 1)
    async with trio.open_nursery() as nursery:
        await nursery.start(candidate.session.run)
        theatre.service.expire(candidate.session.session_id)
        await nursery.start(candidate.election.run)
    assert (candidate.election.active, candidate.election.controller_id) == (None, -1)


async def test_removing_the_node_by_hand_makes_another_election(theatre: Theatre, autojump_clock: MockClock) -> None:
    await theatre.up(1, 2)
    await theatre.stand(1)
    await theatre.stand(2)
    former = theatre.controller
    await theatre.operator.multi([Delete(znodes.CONTROLLER)])
    await theatre.until(lambda: theatre.active not in (None, former))
    assert theatre.controller.epoch == 2
    with pytest.raises(KafkaError) as refused:
        await former.reassignments()
    assert refused.value.code == ErrorCode.NOT_CONTROLLER
    assert (await former.alter_partition(AlterPartitionRequest(broker_id=1, topics=[]), 3)).error_code == (
        ErrorCode.NOT_CONTROLLER
    )


async def test_an_election_whose_outcome_was_lost_counts(theatre: Theatre, autojump_clock: MockClock) -> None:
    first, second = await theatre.stand(1), await theatre.stand(2)
    asked = second.session.multi

    async def lose_the_answer(operations: list) -> list:
        second.link.cut(to_service=False)
        return await asked(operations)

    second.session.multi = lose_the_answer  # type: ignore[method-assign]
    theatre.service.expire(first.session.session_id)
    await theatre.until(lambda: second.link.from_service_cut)
    second.session.multi = asked  # type: ignore[method-assign]
    await trio.sleep(0.1)
    second.link.heal()
    second.link.reset()
    await theatre.until(lambda: second.election.active is not None)
    assert theatre.controller.epoch == 2
    assert (await theatre.operator.get(znodes.CONTROLLER_EPOCH)).data == b"2"


async def test_a_controller_that_was_cut_off_is_deposed_and_writes_nothing(
    theatre: Theatre, autojump_clock: MockClock
) -> None:
    await theatre.up(1, 2)
    first, second = await theatre.stand(1), await theatre.stand(2)
    await theatre.create("t", (1, 2))
    await settled(theatre)
    former = theatre.controller
    first.link.cut()
    await theatre.until(lambda: second.election.active is not None)
    assert theatre.puppets[1].controller_epoch in (1, 2)
    async with trio.open_nursery() as nursery:

        async def ask() -> None:
            with pytest.raises(KafkaError):
                await former.reassign({FIRST: [2, 1]})

        nursery.start_soon(ask)
        await trio.sleep(1)
        first.link.heal()
    await theatre.until(lambda: first.election.active is None)
    await settled(theatre)
    assert theatre.controller.epoch == 2


async def test_a_controller_that_fails_makes_way(
    theatre: Theatre, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    await theatre.up(1)
    await theatre.stand(1)
    former = theatre.controller
    del former.states.nodes
    await theatre.create("t", (1,))
    await theatre.until(lambda: theatre.active not in (None, former))
    await settled(theatre)
    assert theatre.controller.epoch == 2
    assert "The controller failed" in caplog.text


async def test_it_stays_in_office_when_a_broker_is_wrong_about_the_epoch(
    theatre: Theatre, autojump_clock: MockClock
) -> None:
    await theatre.up(1, 2)
    await theatre.stand(1)
    await theatre.create("t", (1, 2))
    await settled(theatre)
    theatre.puppets[2].controller_epoch = 9
    await theatre.add_partitions("t", (1,))
    await theatre.until(lambda: ("t", 1) in theatre.puppets[1].metadata)
    assert await theatre.controller.reassignments() == {}
    assert theatre.controller.epoch == 1


async def test_a_new_controller_knows_everything_and_tells_it(theatre: Theatre, autojump_clock: MockClock) -> None:
    await theatre.up(1, 2, 3)
    first, second = await theatre.stand(1), await theatre.stand(2)
    await theatre.create("t", (1, 2, 3), (2, 3, 1))
    await theatre.create("u", (3,))
    await settled(theatre)
    theatre.service.expire(first.session.session_id)
    await theatre.down(3)
    await theatre.until(lambda: second.election.active is not None)
    await settled(theatre)
    assert theatre.known("u") is not None
    assert theatre.known("u").leader == -1  # type: ignore[union-attr]
    assert {puppet.controller_epoch for puppet in theatre.puppets.values()} == {2}
    state = await theatre.state("t")
    assert state is not None
    assert state[0].isr == [1, 2]


async def test_a_new_controller_goes_on_with_what_was_begun(theatre: Theatre, autojump_clock: MockClock) -> None:
    await theatre.up(1, 2, 3)
    first, second = await theatre.stand(1), await theatre.stand(2)
    await theatre.create("t", (1, 2))
    await theatre.create("u", (1, 3))
    await settled(theatre)
    await theatre.controller.reassign({FIRST: [3, 2]})
    await theatre.down(3)
    await theatre.delete("u")
    await theatre.until(lambda: ("u", 0) not in theatre.puppets[1].metadata)
    theatre.service.expire(first.session.session_id)
    await theatre.until(lambda: second.election.active is not None)
    await theatre.up(3)
    await theatre.until(lambda: "u" not in theatre.controller.states.topics)
    assert (await theatre.controller.reassignments()).keys() == {FIRST}
    await theatre.controller.alter_partition(proposal(theatre, 1, 2, 3), 3)
    await theatre.until_led(3)
    await settled(theatre)
    assert theatre.known("t").replicas == (3, 2)  # type: ignore[union-attr]
    assert FIRST not in theatre.puppets[1].replicas


# ---------------------------------------------------------------------- brokers


async def test_a_broker_that_dies_loses_its_leaderships_and_is_told_of_others_when_it_returns(
    theatre: Theatre, autojump_clock: MockClock
) -> None:
    await theatre.up(1, 2, 3)
    await theatre.stand(1)
    await theatre.create("t", (1, 2, 3))
    await theatre.until_led(1)
    await theatre.down(1)
    await theatre.until_led(2)
    state = await theatre.state("t")
    assert state is not None
    assert (state[0].leader_epoch, state[0].isr) == (1, [2, 3])
    await theatre.up(1)
    await settled(theatre)
    assert theatre.puppets[1].kinds()[:2] == ["UpdateMetadata", "LeaderAndIsr"]
    assert theatre.puppets[1].replicas[FIRST].leader == 2
    assert not theatre.puppets[1].new


async def test_a_broker_that_was_away_for_a_moment_is_another_one(theatre: Theatre, autojump_clock: MockClock) -> None:
    await theatre.up(1, 2)
    candidate = await theatre.stand(1)
    await theatre.create("t", (2, 1))
    await theatre.until_led(2)
    candidate.link.cut()
    await theatre.down(2)
    await theatre.up(2)
    candidate.link.heal()
    await theatre.until_led(1)
    await settled(theatre)
    assert theatre.puppets[2].replicas[FIRST].leader == 1


async def test_a_broker_that_moves_to_another_port_is_announced(theatre: Theatre, autojump_clock: MockClock) -> None:
    await theatre.up(1, 2)
    await theatre.stand(1)
    await theatre.create("t", (1, 2))
    await settled(theatre)
    node = await theatre.operator.get(znodes.broker_path(2))
    await theatre.operator.multi([SetData(znodes.broker_path(2), node.data.replace(b"9092", b"9099"))])

    def ports() -> list[int]:
        told = [each for each in theatre.puppets[1].requests if isinstance(each, UpdateMetadataRequest)]
        return [broker.endpoints[0].port for broker in told[-1].live_brokers]

    await theatre.until(lambda: ports() == [9092, 9099])


async def test_what_a_broker_does_not_answer_is_sent_again_in_order(
    theatre: Theatre, autojump_clock: MockClock
) -> None:
    await theatre.up(1, 2)
    await theatre.stand(1)
    await settled(theatre)
    theatre.puppets[2].is_reachable = False
    await theatre.create("t", (1, 2))
    await theatre.create("u", (2, 1))
    await theatre.until(lambda: ("u", 0) in theatre.puppets[1].metadata)
    assert FIRST not in theatre.puppets[2].metadata
    theatre.puppets[2].is_reachable = True
    await settled(theatre)
    assert theatre.puppets[2].replicas.keys() == {("t", 0), ("u", 0)}


async def test_registrations_that_nobody_understands_are_left_out(theatre: Theatre, autojump_clock: MockClock) -> None:
    await theatre.operator.multi(
        [Create(znodes.broker_path(7), b"?", ephemeral=True), Create(znodes.topic_path("x"), b"?")]
    )
    await theatre.up(1)
    await theatre.stand(1)
    await theatre.create("t", (1,))
    await theatre.until_led(1)
    assert theatre.controller.states.brokers.keys() == {1}
    assert theatre.controller.states.topics.keys() == {"t"}


async def test_a_broker_shuts_down_under_control(theatre: Theatre, autojump_clock: MockClock) -> None:
    await theatre.up(1, 2, 3)
    await theatre.stand(1)
    await theatre.create("t", (1, 2, 3), (2, 1), (1,))
    await settled(theatre)
    epoch = theatre.puppets[1].epoch
    assert await theatre.controller.controlled_shutdown(1, epoch) == []
    await theatre.until_led(2)
    assert theatre.known("t", 1).isr == (2,)  # type: ignore[union-attr]
    with pytest.raises(KafkaError) as refused:
        await theatre.controller.controlled_shutdown(1, epoch - 1)
    assert refused.value.code == ErrorCode.STALE_BROKER_EPOCH
    with pytest.raises(KafkaError) as refused:
        await theatre.controller.controlled_shutdown(9, 1)
    assert refused.value.code == ErrorCode.BROKER_NOT_AVAILABLE


async def test_a_lost_log_directory_moves_leaders(theatre: Theatre, autojump_clock: MockClock) -> None:
    await theatre.up(1, 2)
    await theatre.stand(1)
    await theatre.create("t", (1, 2), (1, 2))
    await settled(theatre)
    theatre.puppets[1].failed.add(FIRST)
    notice = f"{znodes.LOG_DIR_EVENTS}/log_dir_event_"
    await theatre.operator.multi([Create(notice, znodes.encode_log_dir_failure(1), sequential=True)])
    await theatre.until_led(2)
    await theatre.until_led(1, index=1)
    assert await theatre.operator.children(znodes.LOG_DIR_EVENTS) == []
    assert list(theatre.puppets[2].metadata[FIRST].offline_replicas) == [1]


# ---------------------------------------------------------------------- topics


async def test_partitions_are_added(theatre: Theatre, autojump_clock: MockClock) -> None:
    await theatre.up(1, 2)
    await theatre.stand(1)
    await theatre.create("t", (1, 2))
    await theatre.until_led(1)
    await theatre.add_partitions("t", (2,), (2, 1))
    await theatre.until_led(2, index=2)
    await settled(theatre)
    assert theatre.puppets[2].replicas.keys() == {("t", 0), ("t", 1), ("t", 2)}


async def test_a_topic_without_an_id_gets_one(theatre: Theatre, autojump_clock: MockClock) -> None:
    await theatre.up(1)
    await theatre.operator.multi([Create(znodes.topic_path("old"), b'{"version":1,"partitions":{"0":[1]}}')])
    await theatre.stand(1)
    await theatre.operator.multi([Create(znodes.topic_path("t"), b'{"version":1,"partitions":{"0":[1]}}')])
    await theatre.until_led(1, "old")
    await theatre.until_led(1)
    await settled(theatre)
    for name in ("old", "t"):
        node = await theatre.operator.get(znodes.topic_path(name))
        topic_id = znodes.decode_topic(node.data).topic_id
        assert topic_id is not None
        assert theatre.controller.states.topic_names[topic_id] == name


async def test_a_topic_is_deleted_once_all_replicas_are_gone(theatre: Theatre, autojump_clock: MockClock) -> None:
    await theatre.up(1, 2)
    await theatre.stand(1)
    await theatre.create("t", (1, 2), (2, 1))
    await settled(theatre)
    await theatre.down(2)
    await theatre.until_led(1, index=1)
    await theatre.delete("t")
    await theatre.until(lambda: theatre.puppets[1].replicas == {} == theatre.puppets[1].metadata)
    assert await theatre.operator.children(znodes.DELETED_TOPICS) == ["t"]
    assert znodes.topic_path("t") not in theatre.controller._watches  # ZooKeeper would keep it after the node has gone
    await theatre.up(2)
    await theatre.until(lambda: "t" not in theatre.controller.states.topics)
    assert await theatre.operator.children(znodes.DELETED_TOPICS) == []
    assert await theatre.operator.children(znodes.TOPICS) == []
    assert await theatre.operator.children(znodes.TOPIC_CONFIGS) == []
    assert theatre.puppets[2].replicas == {}
    await theatre.create("t", (2,), topic_id=b"another".ljust(16))
    await theatre.until_led(2)
    assert znodes.topic_path("t") in theatre.controller._watches


async def test_marks_of_topics_that_do_not_exist_are_removed(theatre: Theatre, autojump_clock: MockClock) -> None:
    await theatre.stand(1)
    await theatre.delete("nothing")
    await theatre.until(lambda: theatre.service.tree.children(znodes.DELETED_TOPICS) == [])


async def test_no_topic_is_deleted_where_that_is_switched_off(theatre: Theatre, autojump_clock: MockClock) -> None:
    theatre.set(delete_topic_enable="false")
    await theatre.up(1)
    await theatre.stand(1)
    await theatre.create("t", (1,))
    await theatre.until_led(1)
    await theatre.delete("t")
    await theatre.until(lambda: theatre.service.tree.children(znodes.DELETED_TOPICS) == [])
    assert await theatre.controller.reassignments() == {}
    assert FIRST in theatre.puppets[1].replicas


async def test_a_topic_that_somebody_else_removed_is_forgotten(theatre: Theatre, autojump_clock: MockClock) -> None:
    await theatre.up(1)
    await theatre.stand(1)
    await theatre.operator.multi([Create(znodes.topic_path("t"), b'{"version":1,"partitions":{}}')])
    await theatre.until(lambda: "t" in theatre.controller.states.topics)
    await theatre.operator.multi([Delete(znodes.topic_path("t"))])
    await theatre.until(lambda: "t" not in theatre.controller.states.topics)


# ---------------------------------------------------------------------- what the tree has that was not known


async def test_nodes_that_another_controller_left_behind_are_used(theatre: Theatre, autojump_clock: MockClock) -> None:
    await theatre.up(1)
    for path in (znodes.topic_path("t"), znodes.partitions_path("t"), znodes.partition_path("t", 1)):
        data = b'{"version":1,"partitions":{"0":[1],"1":[1]}}' if path == znodes.topic_path("t") else b""
        await theatre.operator.multi([Create(path, data)])
    await theatre.stand(1)
    await theatre.until_led(1, index=1)
    await settled(theatre)


async def test_a_deletion_that_another_controller_left_half_done_is_finished(
    theatre: Theatre, autojump_clock: MockClock
) -> None:
    await theatre.up(1)
    await theatre.stand(1)
    await theatre.create("t", (1,))
    await settled(theatre)
    stray = znodes.partition_path("t", 7)
    await theatre.operator.multi([Create(stray), Create(f"{stray}/state"), Delete(znodes.topic_config_path("t"))])
    await theatre.delete("t")
    await theatre.until(lambda: theatre.service.tree.children(znodes.TOPICS) == [])
    assert await theatre.operator.children(znodes.DELETED_TOPICS) == []


async def test_a_state_that_somebody_else_wrote_is_read_again(theatre: Theatre, autojump_clock: MockClock) -> None:
    await theatre.up(1, 2)
    await theatre.stand(1)
    await theatre.create("t", (1, 2))
    await settled(theatre)
    path = znodes.state_path("t", 0)
    state = znodes.decode_state((await theatre.operator.get(path)).data)
    state.isr.remove(2)
    await theatre.operator.multi([SetData(path, znodes.encode_state(state))])
    response = await theatre.controller.alter_partition(proposal(theatre, 1), 3)
    [answer] = response.topics[0].partitions
    assert (answer.error_code, answer.isr, answer.partition_epoch) == (ErrorCode.NONE, [1], 1)
    await settled(theatre)


async def test_leaders_of_old_brokers_write_their_states_themselves(
    theatre: Theatre, autojump_clock: MockClock
) -> None:
    await theatre.up(1, 2)
    await theatre.stand(1)
    await theatre.create("t", (1, 2))
    await settled(theatre)
    path = znodes.state_path("t", 0)
    state = znodes.decode_state((await theatre.operator.get(path)).data)
    state.isr.remove(2)
    notice = f"{znodes.ISR_CHANGES}/isr_change_"
    await theatre.operator.multi(
        [SetData(path, znodes.encode_state(state)), Create(notice, znodes.encode_partitions([FIRST]), sequential=True)]
    )
    await theatre.until(lambda: list(theatre.puppets[2].metadata[FIRST].isr) == [1])
    await settled(theatre)
    assert await theatre.operator.children(znodes.ISR_CHANGES) == []


async def test_what_is_too_large_for_one_multi_is_written_in_several(
    theatre: Theatre, autojump_clock: MockClock
) -> None:
    await theatre.up(1)
    candidate = await theatre.stand(1)
    ask, sizes = candidate.session.multi, []

    async def small(operations: list) -> list:
        sizes.append(len(operations))
        if len(operations) > 7:
            raise TooLarge(operations[-1].path)
        return await ask(operations)

    candidate.session.multi = small  # type: ignore[method-assign]
    await theatre.create("t", *[(1,)] * 20)
    await theatre.until_led(1, index=19)
    await settled(theatre)
    assert max(sizes) > 7


async def test_a_write_whose_outcome_was_lost_is_not_done_twice(theatre: Theatre, autojump_clock: MockClock) -> None:
    await theatre.up(1, 2)
    candidate = await theatre.stand(1)
    await theatre.create("t", (1, 2))
    await settled(theatre)
    ask = candidate.session.multi

    async def lose_the_answer(operations: list) -> list:
        candidate.session.multi = ask  # type: ignore[method-assign]
        await ask(operations)
        raise CoordinationUnavailable

    candidate.session.multi = lose_the_answer  # type: ignore[method-assign]
    await theatre.down(1)
    await theatre.until_led(2)
    await settled(theatre)
    state = await theatre.state("t")
    assert state is not None
    assert (state[0].leader_epoch, state[1]) == (1, 1)


# ---------------------------------------------------------------------- requests


async def test_a_leader_changes_the_isr(theatre: Theatre, autojump_clock: MockClock) -> None:
    await theatre.up(1, 2)
    await theatre.stand(1)
    await theatre.create("t", (1, 2))
    await settled(theatre)
    response = await theatre.controller.alter_partition(proposal(theatre, 1), 3)
    [answer] = response.topics[0].partitions
    assert (answer.error_code, answer.isr, answer.partition_epoch) == (ErrorCode.NONE, [1], 1)
    await settled(theatre)
    request = proposal(theatre, 1, 2)
    request.broker_epoch -= 1
    assert (await theatre.controller.alter_partition(request, 3)).error_code == ErrorCode.STALE_BROKER_EPOCH


async def test_a_reassignment_by_request(theatre: Theatre, autojump_clock: MockClock) -> None:
    await theatre.up(1, 2, 3)
    await theatre.stand(1)
    await theatre.create("t", (1, 2))
    await settled(theatre)
    outcomes = await theatre.controller.reassign({FIRST: [3, 2], ("t", 5): [1]})
    assert outcomes[FIRST] is None
    assert outcomes["t", 5] is not None
    assert outcomes["t", 5].code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (await theatre.controller.reassignments()).keys() == {FIRST}
    await settled(theatre)
    assert FIRST in theatre.puppets[3].new
    await theatre.controller.alter_partition(proposal(theatre, 1, 2, 3), 3)
    assert await theatre.controller.reassignments() == {}
    await theatre.until(lambda: FIRST not in theatre.puppets[1].replicas)
    await settled(theatre)
    topic = znodes.decode_topic((await theatre.operator.get(znodes.topic_path("t"))).data)
    assert (topic.partitions, topic.adding_replicas, topic.removing_replicas) == ({0: [3, 2]}, {}, {})


async def test_a_reassignment_by_a_node_stays_there_until_it_is_done(
    theatre: Theatre, autojump_clock: MockClock
) -> None:
    await theatre.up(1, 2, 3)
    await theatre.stand(1)
    await theatre.create("t", (1, 2), (1, 2))
    await settled(theatre)
    targets = {FIRST: [3, 2], ("t", 1): [1, 2], ("nothing", 0): [1]}
    await theatre.operator.multi([Create(znodes.REASSIGNMENTS, znodes.encode_reassignments(targets))])

    def left() -> dict | None:
        (node,) = theatre.service.tree.get_all([znodes.REASSIGNMENTS])
        return None if node is None else znodes.decode_reassignments(node.data)

    await theatre.until(lambda: left() == {FIRST: [3, 2]})
    await settled(theatre)
    await theatre.controller.alter_partition(proposal(theatre, 1, 2, 3), 3)
    await theatre.until(lambda: left() is None)
    assert theatre.known("t").replicas == (3, 2)  # type: ignore[union-attr]


async def test_a_request_overrides_a_reassignment_by_a_node(theatre: Theatre, autojump_clock: MockClock) -> None:
    await theatre.up(1, 2, 3)
    await theatre.stand(1)
    await theatre.create("t", (1, 2))
    await settled(theatre)
    node = znodes.encode_reassignments({FIRST: [3, 2]})
    await theatre.operator.multi([Create(znodes.REASSIGNMENTS, node)])
    await theatre.until(lambda: FIRST in theatre.puppets[3].replicas)
    await theatre.controller.reassign({FIRST: None})
    (gone,) = theatre.service.tree.get_all([znodes.REASSIGNMENTS])
    assert gone is None
    assert await theatre.controller.reassignments() == {}


async def test_preferred_leaders_by_request_and_by_a_node(theatre: Theatre, autojump_clock: MockClock) -> None:
    await theatre.up(1, 2)
    await theatre.stand(1)
    await theatre.create("t", (1, 2), (2, 1))
    await settled(theatre)
    elect = theatre.controller.elect_leaders
    assert await elect(ElectionType.PREFERRED, None) == {}
    await lose_the_first_leader(theatre)
    assert await elect(ElectionType.PREFERRED, None) == {FIRST: None}
    await theatre.until_led(1)
    outcomes = await elect(ElectionType.PREFERRED, [FIRST, ("t", 9)])
    assert {name: error and error.code for name, error in outcomes.items()} == {
        FIRST: ErrorCode.ELECTION_NOT_NEEDED,
        ("t", 9): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    await lose_the_first_leader(theatre)
    await theatre.operator.multi([Create(znodes.PREFERRED_ELECTION, znodes.encode_partitions([FIRST]))])
    await theatre.until_led(1)
    await theatre.until(lambda: theatre.service.tree.get_all([znodes.PREFERRED_ELECTION]) == [None])


async def lose_the_first_leader(theatre: Theatre) -> None:
    """Partition 0 is led by 2, and 1 is in sync again."""
    await theatre.down(1)
    await theatre.until_led(2)
    await theatre.up(1)
    await settled(theatre)
    await theatre.controller.alter_partition(proposal(theatre, 2, 1), 3)


async def test_leaders_are_balanced_from_time_to_time(theatre: Theatre, autojump_clock: MockClock) -> None:
    await theatre.up(1, 2)
    await theatre.stand(1)
    await theatre.create("t", (1, 2))
    await settled(theatre)
    await lose_the_first_leader(theatre)
    await trio.sleep(700)
    await theatre.until_led(2)
    theatre.set(auto_leader_rebalance_enable="true", leader_imbalance_check_interval_seconds="20")
    await trio.sleep(320)
    await theatre.until_led(1)


async def test_unclean_elections_when_they_are_asked_for_and_when_they_become_allowed(
    theatre: Theatre, autojump_clock: MockClock
) -> None:
    await theatre.up(1, 2)
    await theatre.stand(1)
    await theatre.create("t", (1, 2), (1, 2))
    await settled(theatre)
    await theatre.down(2)
    await settled(theatre)
    await theatre.down(1)
    await theatre.up(2)
    await settled(theatre)
    assert theatre.known("t").leader == -1  # type: ignore[union-attr]
    assert await theatre.controller.elect_leaders(ElectionType.UNCLEAN, [FIRST]) == {FIRST: None}
    await theatre.until_led(2)
    assert theatre.known("t", 1).leader == -1  # type: ignore[union-attr]
    theatre.unclean.add("t")
    theatre.controller.unclean_election_changed(["t"])
    await theatre.until_led(2, index=1)
    theatre.controller.unclean_election_changed(None)
    await settled(theatre)
    assert theatre.controller.elections == (2, 2)  # for metrics: all of them, and the unclean ones


async def test_who_waits_when_the_controller_resigns_is_told(theatre: Theatre, autojump_clock: MockClock) -> None:
    await theatre.up(1)
    candidate = await theatre.stand(1)
    await theatre.create("t", (1,))
    await settled(theatre)
    former = theatre.controller
    candidate.link.cut()
    refused: list[int] = []

    async def ask() -> None:
        try:
            await former.reassign({FIRST: [1]})
        except KafkaError as error:
            refused.append(error.code)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        nursery.start_soon(ask)
        await trio.testing.wait_all_tasks_blocked()
        theatre.service.expire(candidate.session.session_id)
        candidate.link.heal()
        candidate.link.reset()
    assert refused == [ErrorCode.NOT_CONTROLLER] * 2
