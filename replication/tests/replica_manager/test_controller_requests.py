"""What a controller's requests do to the replicas of a broker, and how they are answered when they must not."""

from __future__ import annotations

import errno
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from ottla.replication.cluster import znodes
from ottla.replication.cluster.coordination import CoordinationUnavailable, SessionExpired
from ottla.replication.cluster.metadata_cache import BrokerEndpoint, BrokerRegistration, MetadataCache
from ottla.replication.config import LogConfig
from ottla.replication.log.tests.logs import NOW_MS, batch
from ottla.replication.partition.partition import Partition
from ottla.replication.replica_manager.controller_fencing import ControllerFencing
from ottla.replication.replica_manager.controller_requests import ControllerRequests
from ottla.replication.replica_manager.manager import ReplicaManager
from ottla.replication.tests.disks import NODE, TOPIC_ID, Disk
from ottla.replication.tests.lagging_tree import LaggingTree
from ottla.wire import time_slice
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages.controller_requests import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaTopicState,
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from ottla.wire.schema import ZERO_UUID
from ottla.wire.tests.turns import counted_turns

OTHER, THIRD = NODE + 1, NODE + 2
EPOCH = 100  # of the broker
SETTINGS = LogConfig(min_insync_replicas=2)

pytestmark = pytest.mark.usefixtures("autojump_clock")


class Witness:
    """Stands for the fetchers and for the coordinators; notes what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []

    def follow(self, partition: Partition) -> None:
        self.told.append(("follow", partition.index, partition.leader_id))

    def forget(self, partition: Partition) -> None:
        self.told.append(("forget", partition.index))

    def on_election(self, partition: Partition) -> None:
        self.told.append(("elected", partition.index))

    def on_resignation(self, topic: str, index: int) -> None:
        self.told.append(("resigned", index))

    def on_topics_deleted(self, topics: Mapping[str, bytes]) -> None:
        self.told.append(("deleted", dict(topics)))

    def on_logs_missing(self) -> None:
        self.told.append(("missing",))

    def news(self) -> list[tuple[Any, ...]]:
        told, self.told = self.told, []
        return told


class Stage:
    """A broker's replicas under control."""

    def __init__(self, replicas: ReplicaManager, claims: ControllerFencing | None = None) -> None:
        self.replicas = replicas
        self.broker_epoch = EPOCH
        self.on_learn: Callable[[], None] = lambda: None
        self.cluster = MetadataCache()
        self.witness = Witness()
        self.learned: list[str] = []
        self.control = ControllerRequests(
            replicas,
            self.cluster,
            self.witness,
            self.witness,
            topic_config=lambda topic: SETTINGS if topic in self.learned else LogConfig(),
            learn_settings=self._learn,
            broker_epoch=lambda: self.broker_epoch,
            clock_ms=lambda: 0,
            fencing=claims,
        )
        self.control.registered.set()

    async def _learn(self, topics: Sequence[str]) -> None:
        self.learned += topics
        self.on_learn()

    def partition(self, index: int = 0) -> Partition:
        found = self.replicas.partition("topic", index)
        assert found is not None
        return found

    async def lead_and_follow(self, *states: LeaderAndIsrPartitionState, **changes: Any) -> list[int]:
        """The error codes, or the one of the whole request."""
        request = LeaderAndIsrRequest(
            controller_id=changes.get("controller_id", 9),
            controller_epoch=changes.get("controller_epoch", 1),
            broker_epoch=changes.get("broker_epoch", EPOCH),
            topic_states=[
                LeaderAndIsrTopicState(
                    topic_name=changes.get("topic", "topic"),
                    topic_id=changes.get("topic_id", TOPIC_ID),
                    partition_states=list(states),
                )
            ],
            live_leaders=[],
        )
        response = await self.control.lead_and_follow(request)
        if response.error_code:
            return [response.error_code]
        return [each.error_code for topic in response.topics for each in topic.partition_errors]

    async def stop(self, *states: StopReplicaPartitionState, **changes: Any) -> list[int]:
        request = StopReplicaRequest(
            controller_id=9,
            controller_epoch=changes.get("controller_epoch", 1),
            broker_epoch=changes.get("broker_epoch", EPOCH),
            topic_states=[StopReplicaTopicState(topic_name="topic", partition_states=list(states))],
        )
        response = await self.control.stop(request)
        return [response.error_code] if response.error_code else [each.error_code for each in response.partition_errors]

    async def update(
        self,
        *states: UpdateMetadataPartitionState,
        topic: str = "topic",
        topic_id: bytes = TOPIC_ID,
        brokers: Sequence[int] = (NODE,),
    ) -> int:
        request = UpdateMetadataRequest(
            controller_id=9,
            controller_epoch=1,
            broker_epoch=EPOCH,
            topic_states=[UpdateMetadataTopicState(topic_name=topic, topic_id=topic_id, partition_states=list(states))]
            if states
            else [],
            live_brokers=[
                UpdateMetadataBroker(
                    id=each,
                    endpoints=[UpdateMetadataEndpoint(port=9000 + each, host="h", listener="PLAINTEXT")],
                    rack="r",
                )
                for each in brokers
            ],
        )
        return (await self.control.update_metadata(request)).error_code


def state(index: int = 0, *, leader: int = NODE, epoch: int = 0, **changes: Any) -> LeaderAndIsrPartitionState:
    known = {
        "partition_index": index,
        "controller_epoch": 1,
        "leader": leader,
        "leader_epoch": epoch,
        "isr": [NODE, OTHER],
        "partition_epoch": epoch,
        "replicas": [NODE, OTHER],
        "is_new": True,
    }
    return LeaderAndIsrPartitionState(**(known | changes))


def told(
    index: int = 0, *, leader: int = NODE, epoch: int = 0, replicas: Sequence[int] = (NODE, OTHER)
) -> UpdateMetadataPartitionState:
    return UpdateMetadataPartitionState(
        partition_index=index,
        controller_epoch=1,
        leader=leader,
        leader_epoch=epoch,
        isr=[NODE],
        zk_version=3,
        replicas=list(replicas),
        offline_replicas=[OTHER],
    )


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    async with Disk().broker() as replicas:
        yield Stage(replicas)


async def test_new_partitions_get_logs_with_their_topics_settings(stage: Stage, autojump_clock: MockClock) -> None:
    assert await stage.lead_and_follow(state(0), state(1, leader=OTHER)) == [0, 0]
    assert stage.learned == ["topic"]
    assert (stage.partition(0).is_leader, stage.partition(0).min_isr) == (True, 2)
    assert (stage.partition(1).leader_id, stage.partition(1).topic_id) == (OTHER, TOPIC_ID)
    assert stage.witness.news() == [("forget", 0), ("elected", 0), ("resigned", 1), ("follow", 1, OTHER)]


@pytest.mark.parametrize(("topic", "index"), [("../escaped", 0), ("..", 0), ("a/b", 0), ("topic", -1)])
async def test_a_name_that_leads_out_of_the_log_directory_makes_nothing(topic: str, index: int) -> None:
    disk = Disk()
    async with disk.broker() as replicas:
        stage, before = Stage(replicas), disk.storage.files()
        assert await stage.lead_and_follow(state(index), topic=topic) == [ErrorCode.INVALID_TOPIC_EXCEPTION]
        assert stage.replicas.partition(topic, index) is None
        assert disk.storage.files() == before
        assert await stage.lead_and_follow(state(0)) == [0]


async def test_leaders_change(stage: Stage) -> None:
    await stage.lead_and_follow(state())
    stage.witness.news()
    assert await stage.lead_and_follow(state(epoch=1)) == [0]
    assert stage.witness.news() == [("forget", 0)]  # it led before
    assert await stage.lead_and_follow(state(leader=OTHER, epoch=2)) == [0]
    assert stage.witness.news() == [("resigned", 0), ("follow", 0, OTHER)]
    assert await stage.lead_and_follow(state(leader=-1, epoch=3)) == [0]
    assert stage.witness.news() == [("resigned", 0), ("forget", 0)]
    assert await stage.lead_and_follow(state(epoch=4)) == [0]
    assert stage.witness.news() == [("forget", 0), ("elected", 0)]


async def test_what_is_old_is_refused(stage: Stage) -> None:
    await stage.lead_and_follow(state(epoch=5), controller_epoch=2)
    assert await stage.lead_and_follow(state(leader=OTHER, epoch=4), controller_epoch=2) == [
        ErrorCode.STALE_CONTROLLER_EPOCH
    ]
    assert await stage.lead_and_follow(state(leader=OTHER, epoch=5), controller_epoch=2) == [
        ErrorCode.STALE_CONTROLLER_EPOCH
    ]
    assert await stage.lead_and_follow(state(epoch=6), controller_epoch=1) == [ErrorCode.STALE_CONTROLLER_EPOCH]
    assert await stage.lead_and_follow(state(epoch=6), controller_epoch=3, broker_epoch=EPOCH - 1) == [
        ErrorCode.STALE_BROKER_EPOCH
    ]
    assert (stage.partition().leader_epoch, stage.control.controller_epoch) == (5, 2)
    assert await stage.stop(StopReplicaPartitionState(partition_index=0), controller_epoch=1) == [
        ErrorCode.STALE_CONTROLLER_EPOCH
    ]
    assert await stage.update(told()) == ErrorCode.STALE_CONTROLLER_EPOCH
    assert stage.cluster.topics == {}


@pytest.mark.parametrize("broker_epoch", [-1, EPOCH, EPOCH + 1])
async def test_epochs_of_this_broker_that_may_be_meant(stage: Stage, broker_epoch: int) -> None:
    assert await stage.lead_and_follow(state(), broker_epoch=broker_epoch) == [0]
    assert stage.control.confirmed_epoch == broker_epoch


async def test_before_it_is_registered_nothing_is_carried_out_that_may_be_for_an_earlier_life(
    stage: Stage, nursery: trio.Nursery
) -> None:
    stage.control.registered = trio.Event()
    answers = []

    async def ask(broker_epoch: int) -> None:
        answers.append((broker_epoch, await stage.lead_and_follow(state(), broker_epoch=broker_epoch)))

    nursery.start_soon(ask, EPOCH - 1)
    await trio.testing.wait_all_tasks_blocked()
    nursery.start_soon(ask, EPOCH)
    await trio.testing.wait_all_tasks_blocked()
    assert not answers
    assert stage.replicas.partition("topic", 0) is None
    stage.control.registered.set()
    with trio.fail_after(60):
        while len(answers) < 2:
            await trio.sleep(0.001)
    assert sorted(answers) == [(EPOCH - 1, [ErrorCode.STALE_BROKER_EPOCH]), (EPOCH, [ErrorCode.NONE])]


async def test_topics_of_the_same_name_are_told_apart(stage: Stage) -> None:
    await stage.lead_and_follow(state(), topic_id=ZERO_UUID)
    assert stage.partition().topic_id is None
    assert await stage.lead_and_follow(state(), topic_id=TOPIC_ID) == [0]  # it brings the id
    assert stage.partition().topic_id == TOPIC_ID
    assert await stage.lead_and_follow(state(), topic_id=TOPIC_ID) == [ErrorCode.STALE_CONTROLLER_EPOCH]
    assert await stage.lead_and_follow(state(epoch=1), topic_id=b"x" * 16) == [ErrorCode.INCONSISTENT_TOPIC_ID]


async def test_a_refusal_names_every_partition(stage: Stage) -> None:
    topics = [
        LeaderAndIsrTopicState(topic_name="topic", topic_id=TOPIC_ID, partition_states=[state(0), state(1)]),
        LeaderAndIsrTopicState(topic_name="other", topic_id=b"x" * 16, partition_states=[state(4)]),
    ]
    response = await stage.control.lead_and_follow(
        LeaderAndIsrRequest(
            controller_id=9, controller_epoch=1, broker_epoch=EPOCH - 1, topic_states=topics, live_leaders=[]
        )
    )
    stale = ErrorCode.STALE_BROKER_EPOCH
    assert response.error_code == stale
    assert [
        (topic.topic_id, [(each.partition_index, each.error_code) for each in topic.partition_errors])
        for topic in response.topics
    ] == [(TOPIC_ID, [(0, stale), (1, stale)]), (b"x" * 16, [(4, stale)])]


async def test_who_is_no_replica_makes_no_log(stage: Stage) -> None:
    assert await stage.lead_and_follow(state(leader=OTHER, replicas=[OTHER, THIRD])) == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    ]
    assert list(stage.replicas.partitions()) == []


async def test_a_failed_disk_is_told(stage: Stage) -> None:
    await stage.lead_and_follow(state())
    (directory,) = stage.replicas.log_directories
    directory.take_offline(OSError("gone"))
    assert await stage.lead_and_follow(state(epoch=1), state(1, is_new=False)) == [ErrorCode.KAFKA_STORAGE_ERROR] * 2
    assert await stage.lead_and_follow(state(2)) == [ErrorCode.KAFKA_STORAGE_ERROR]  # there is no other disk
    assert (
        await stage.stop(
            StopReplicaPartitionState(partition_index=0, leader_epoch=5),
            StopReplicaPartitionState(partition_index=3, leader_epoch=5),
        )
        == [ErrorCode.KAFKA_STORAGE_ERROR] * 2
    )


async def test_stopping_and_deleting(stage: Stage) -> None:
    await stage.lead_and_follow(state(0, epoch=3), state(1, epoch=3), state(2, epoch=3))
    stage.witness.news()
    for index, count in ((1, 4), (2, 2)):
        stage.partition(index).append_as_leader(batch(*[NOW_MS] * count), required_acks=1, now_ms=NOW_MS)
    assert await stage.stop(
        StopReplicaPartitionState(partition_index=0, leader_epoch=2, delete_partition=True),
        StopReplicaPartitionState(partition_index=1, leader_epoch=-2, delete_partition=True),
        StopReplicaPartitionState(partition_index=2, leader_epoch=3),
        StopReplicaPartitionState(partition_index=7, leader_epoch=3, delete_partition=True),
    ) == [ErrorCode.FENCED_LEADER_EPOCH, 0, 0, 0]
    assert sorted(each.index for each in stage.replicas.partitions()) == [0, 2]
    assert stage.witness.news() == [("forget", 1), ("resigned", 1), ("forget", 2), ("resigned", 7)]
    # Only a topic that is deleted loses its records: those of a replica that goes elsewhere live on there.
    assert [each.records for each in stage.replicas.removals.of_topic("topic")] == [4]
    await stage.stop(StopReplicaPartitionState(partition_index=2, leader_epoch=3, delete_partition=True))
    assert [each.records for each in stage.replicas.removals.of_topic("topic")] == [4]


async def test_others_have_their_turns_however_the_partitions_are_spread_over_topics(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time_slice, "SLICE_S", 0)  # each piece of work uses up a slice
    count = 300
    names = [f"topic-{number}" for number in range(count)]
    led = [
        LeaderAndIsrTopicState(topic_name=name, topic_id=name.encode().ljust(16), partition_states=[state()])
        for name in names
    ]
    stopped = [
        StopReplicaTopicState(
            topic_name=name, partition_states=[StopReplicaPartitionState(partition_index=0, leader_epoch=0)]
        )
        for name in names
    ]
    sender: dict[str, Any] = {"controller_id": 9, "controller_epoch": 1, "broker_epoch": EPOCH}

    await stage.control.lead_and_follow(LeaderAndIsrRequest(topic_states=led, live_leaders=[], **sender))
    async with counted_turns() as turns:
        for each in led:
            each.partition_states[0].leader_epoch += 1
        await stage.control.lead_and_follow(LeaderAndIsrRequest(topic_states=led, live_leaders=[], **sender))
        assert turns.count >= count
        turns.count = 0
        response = await stage.control.stop(StopReplicaRequest(topic_states=stopped, **sender))
        assert len(response.partition_errors) == count
        assert turns.count >= count


async def test_the_picture_of_the_cluster(stage: Stage) -> None:
    assert await stage.update(told(0), told(2, leader=OTHER), brokers=(NODE, OTHER)) == 0
    topic = stage.cluster.topics["topic"]
    assert [each.leader for each in topic.partitions] == [NODE, -1, OTHER]
    assert (topic.partitions[0].partition_epoch, topic.partitions[0].offline_replicas) == (3, (OTHER,))
    assert stage.cluster.topic_by_id[TOPIC_ID] is topic
    assert (sorted(stage.cluster.brokers), stage.cluster.controller_id) == ([NODE, OTHER], 9)
    endpoint = stage.cluster.endpoint(OTHER, "PLAINTEXT")
    assert endpoint is not None
    assert (endpoint.host, endpoint.port, endpoint.rack) == ("h", 9000 + OTHER, "r")

    assert await stage.update(told(1), brokers=(NODE,)) == 0
    assert [each.leader for each in stage.cluster.topics["topic"].partitions] == [NODE, NODE, OTHER]
    assert sorted(stage.cluster.brokers) == [NODE]

    assert await stage.update(told(0), topic_id=b"x" * 16) == 0  # another topic of that name
    assert len(stage.cluster.topics["topic"].partitions) == 1
    assert list(stage.cluster.topic_by_id) == [b"x" * 16]
    stage.witness.news()
    assert await stage.update(told(0, leader=-2), topic_id=b"x" * 16) == 0
    assert (stage.cluster.topics, stage.cluster.topic_by_id) == ({}, {})
    assert stage.witness.news() == [("deleted", {"topic": b"x" * 16})]
    assert await stage.update(told(0, leader=-2), topic_id=b"x" * 16) == 0  # told once more
    assert stage.witness.news() == []


async def test_what_was_reassigned_away_unheard_is_led_no_longer(stage: Stage, autojump_clock: MockClock) -> None:
    await stage.lead_and_follow(state(0, epoch=2), state(1, epoch=2))
    stage.witness.news()
    moved = (OTHER, THIRD)
    assert await stage.update(told(0, leader=OTHER, epoch=2, replicas=moved), told(1, leader=OTHER, epoch=4)) == 0
    assert stage.partition(0).is_leader  # that is older than what it knows
    assert stage.partition(1).is_leader  # LeaderAndIsr is to say that
    assert stage.witness.news() == []
    assert await stage.update(told(0, leader=OTHER, epoch=4, replicas=moved)) == 0
    assert (stage.partition(0).is_leader, stage.partition(0).leader_id) == (False, OTHER)
    assert stage.witness.news() == [("forget", 0), ("resigned", 0)]
    assert await stage.lead_and_follow(state(0, epoch=5)) == [0]  # and back
    assert stage.partition(0).is_leader


# --- claims that are verified ------------------------------------------------------------------------------------------


class Verifying(Stage):
    """The same, with a coordination tree that says who is the controller and what topics there are."""

    def __init__(self, replicas: ReplicaManager) -> None:
        self.tree = LaggingTree()
        self.tree.elect(9, 1)
        for broker in (NODE, OTHER):
            self.tree.register(registration(broker))
        super().__init__(replicas, ControllerFencing(self.tree, NODE))


@pytest.fixture
async def verifying() -> AsyncIterator[Verifying]:
    async with Disk().broker() as replicas:
        yield Verifying(replicas)


async def test_only_the_broker_that_the_tree_names_is_the_controller(verifying: Verifying) -> None:
    stage = verifying
    stage.tree.make_topic("topic", TOPIC_ID, [NODE, OTHER])
    stale = [ErrorCode.STALE_CONTROLLER_EPOCH]
    assert await stage.lead_and_follow(state(), controller_epoch=2**31 - 1) == stale
    assert await stage.lead_and_follow(state(), controller_id=OTHER) == stale
    assert await stage.stop(StopReplicaPartitionState(partition_index=0, leader_epoch=-2), controller_epoch=7) == stale
    assert stage.control.controller_epoch == 0
    assert await stage.lead_and_follow(state()) == [0]  # the real one is not stale


async def test_the_last_controllers_words_count_until_there_is_another(verifying: Verifying) -> None:
    verifying.tree.make_topic("topic", TOPIC_ID, [NODE, OTHER])
    verifying.tree.put(znodes.CONTROLLER, None)
    assert await verifying.lead_and_follow(state()) == [0]


async def test_a_new_controller_is_believed_though_the_tree_lags_behind(verifying: Verifying) -> None:
    stage = verifying
    stage.tree.make_topic("topic", TOPIC_ID, [NODE, OTHER])
    assert await stage.lead_and_follow(state()) == [0]
    stage.tree.lags = True
    stage.tree.elect(OTHER, 2)
    assert await stage.lead_and_follow(state(epoch=1), controller_epoch=2, controller_id=OTHER) == [0]
    assert await stage.lead_and_follow(state(epoch=2)) == [ErrorCode.STALE_CONTROLLER_EPOCH]


async def test_a_claim_that_was_verified_is_not_read_again(verifying: Verifying) -> None:
    stage = verifying
    stage.tree.make_topic("topic", TOPIC_ID, *[[NODE, OTHER]] * 3)
    assert await stage.lead_and_follow(state()) == [0]
    reads = stage.tree.reads
    assert reads == 2  # of the controller, and of the topic
    for epoch in range(1, 50):
        assert await stage.lead_and_follow(state(epoch=epoch), state(1, epoch=epoch)) == [0, 0]
        assert await stage.update(told(0, epoch=epoch), told(2)) == 0
    assert stage.tree.reads == reads + 1  # of the brokers


def registration(node_id: int, *, port: int = 0) -> BrokerRegistration:
    endpoint = BrokerEndpoint(node_id, "h", port or 9000 + node_id, "r")
    return BrokerRegistration(node_id, {"PLAINTEXT": endpoint}, "r", security_protocols={"PLAINTEXT": 0})


async def test_metadata_that_were_overtaken_on_their_way_are_passed_over(stage: Stage) -> None:
    """A connection that was cut off delivers its last request when the controller has long sent later ones elsewhere."""
    newer, older, isr_before = told(epoch=5, leader=NODE), told(epoch=4, leader=OTHER), told(epoch=5)
    isr_before.zk_version, isr_before.isr = 2, [NODE, OTHER]
    await stage.update(told(1, epoch=3), newer)
    for late in (older, isr_before):
        await stage.update(late)
        (state, _) = stage.cluster.topics["topic"].partitions
        assert (state.leader, state.leader_epoch, state.isr) == (NODE, 5, (NODE,))
    await stage.update(told(epoch=0, leader=OTHER), topic_id=bytes([7] * 16))  # another topic, which begins anew
    assert stage.cluster.topics["topic"].partitions[0].leader == OTHER


async def test_clients_are_told_of_no_broker_that_the_tree_does_not_have(verifying: Verifying) -> None:
    stage = verifying
    assert await stage.update(brokers=(NODE, OTHER, 99)) == 0
    assert sorted(stage.cluster.brokers) == [NODE, OTHER]
    stage.tree.register(registration(OTHER, port=7))
    for claimed in ((NODE, OTHER, 99), (NODE, OTHER)):  # the other one at another port than the one that it has now
        assert await stage.update(brokers=claimed) == 0
    assert stage.cluster.brokers == {NODE: registration(NODE), OTHER: registration(OTHER, port=7)}


async def test_no_broker_is_gone_that_lives_by_the_tree(verifying: Verifying, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = verifying
    stage.tree.make_topic("topic", TOPIC_ID, [NODE, OTHER])
    assert await stage.lead_and_follow(state()) == [0]
    reconsidered: list[bool] = []
    monkeypatch.setattr(Partition, "reconsider", lambda partition: reconsidered.append(True))
    assert await stage.update(brokers=(NODE, OTHER)) == 0
    assert await stage.update(brokers=(NODE,)) == 0
    assert sorted(stage.cluster.brokers) == [NODE, OTHER] and not reconsidered
    stage.tree.lags = True
    stage.tree.put(znodes.broker_path(OTHER), None)
    assert await stage.update(brokers=(NODE,)) == 0
    assert sorted(stage.cluster.brokers) == [NODE] and reconsidered


async def test_a_broker_that_is_back_before_its_controller_noticed_is_seen(verifying: Verifying) -> None:
    stage = verifying
    stage.tree.put(znodes.broker_path(OTHER), None)
    assert await stage.update(brokers=(NODE, OTHER)) == 0
    assert sorted(stage.cluster.brokers) == [NODE]
    stage.tree.register(registration(OTHER))
    assert await stage.update(brokers=(NODE, OTHER)) == 0
    assert sorted(stage.cluster.brokers) == [NODE, OTHER]


async def test_a_broker_that_has_come_is_seen_though_the_tree_lags_behind(verifying: Verifying) -> None:
    stage = verifying
    assert await stage.update(brokers=(NODE,)) == 0
    assert sorted(stage.cluster.brokers) == [NODE]  # the other one lives, but was not introduced yet
    stage.tree.lags = True
    stage.tree.register(registration(7))
    assert await stage.update(brokers=(NODE, OTHER, 7)) == 0
    assert sorted(stage.cluster.brokers) == sorted([NODE, OTHER, 7])
    reads = stage.tree.reads
    assert await stage.update(brokers=(NODE, OTHER, 7)) == 0
    assert stage.tree.reads == reads


async def test_a_storm_of_requests_shares_one_look(verifying: Verifying) -> None:
    stage = verifying
    stage.tree.make_topic("topic", TOPIC_ID, [NODE, OTHER])
    answers: list[list[int]] = []

    async def claim() -> None:
        answers.append(await stage.lead_and_follow(state(), controller_epoch=77))

    async with trio.open_nursery() as nursery:
        for _ in range(100):
            nursery.start_soon(claim)
    assert answers == [[ErrorCode.STALE_CONTROLLER_EPOCH]] * 100
    assert stage.tree.reads == 2


async def test_requests_wait_while_the_tree_is_out_of_reach(verifying: Verifying, autojump_clock: MockClock) -> None:
    stage = verifying
    stage.tree.make_topic("topic", TOPIC_ID, [NODE, OTHER])
    stage.tree.problem = CoordinationUnavailable()
    answers: list[list[int]] = []

    async def ask() -> None:
        answers.append(await stage.lead_and_follow(state()))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        await trio.sleep(60)
        assert answers == []
        stage.tree.problem = SessionExpired()
        await trio.sleep(60)
        assert answers == []
        stage.tree.problem = None
    assert answers == [[0]]


@pytest.mark.parametrize(
    ("topic", "topic_id", "index", "code"),
    [
        ("phantom", TOPIC_ID, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("topic", TOPIC_ID, 2, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("topic", TOPIC_ID, 2**31 - 1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("topic", b"the id of others", 0, ErrorCode.INCONSISTENT_TOPIC_ID),
        ("topic", ZERO_UUID, 1, ErrorCode.NONE),
    ],
)
async def test_logs_are_made_of_partitions_that_the_tree_has(
    topic: str, topic_id: bytes, index: int, code: ErrorCode, verifying: Verifying
) -> None:
    verifying.tree.lags = True
    verifying.tree.make_topic("topic", TOPIC_ID, [NODE, OTHER], [NODE, OTHER])
    assert await verifying.lead_and_follow(state(index), topic=topic, topic_id=topic_id) == [code]
    assert (verifying.replicas.partition(topic, index) is None) == bool(code)


@pytest.mark.parametrize("index", [2, 20_000_000, 2**31 - 1, -1])
async def test_a_partition_number_that_is_none_costs_nothing(index: int, verifying: Verifying) -> None:
    verifying.tree.make_topic("topic", TOPIC_ID, [NODE, OTHER], [NODE, OTHER])
    assert await verifying.update(told(0), told(index)) == 0
    assert len(verifying.cluster.topics["topic"].partitions) == 1
    assert await verifying.update(told(0), told(index), topic="phantom") == 0
    assert "phantom" not in verifying.cluster.topics


@pytest.mark.parametrize("index", [20_000_000, 2**31 - 1])
async def test_a_great_partition_number_costs_nothing_whoever_tells_it(index: int, stage: Stage) -> None:
    assert await stage.update(told(0), told(index)) == 0
    assert len(stage.cluster.topics["topic"].partitions) == 1


async def test_topics_grow_and_are_made_anew(verifying: Verifying) -> None:
    stage = verifying
    stage.tree.make_topic("topic", TOPIC_ID, [NODE, OTHER])
    assert await stage.update(told(0)) == 0
    stage.tree.make_topic("topic", TOPIC_ID, [NODE, OTHER], [NODE, OTHER])
    assert await stage.update(told(1)) == 0
    assert len(stage.cluster.topics["topic"].partitions) == 2
    assert await stage.update(told(0, leader=-2), told(1, leader=-2)) == 0
    assert "topic" not in stage.cluster.topics
    stage.tree.put(znodes.topic_path("topic"), None)
    assert await stage.update(told(0)) == 0  # of the topic that is gone
    assert "topic" not in stage.cluster.topics
    assert await stage.lead_and_follow(state()) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    stage.tree.make_topic("topic", b"another topic id", [NODE, OTHER])
    assert await stage.update(told(0), topic_id=b"another topic id") == 0
    assert stage.cluster.topics["topic"].topic_id == b"another topic id"


async def test_a_replica_is_deleted_only_if_the_tree_says_that_it_goes(verifying: Verifying) -> None:
    stage = verifying
    stage.tree.make_topic("topic", TOPIC_ID, *[[NODE, OTHER]] * 4)
    await stage.lead_and_follow(*map(state, range(4)))

    async def delete(index: int) -> list[int]:
        return await stage.stop(StopReplicaPartitionState(partition_index=index, leader_epoch=0, delete_partition=True))

    stage.tree.lags = True
    assert await delete(0) == [ErrorCode.INVALID_REQUEST]
    assert stage.partition(0).is_leader
    stage.tree.make_topic("topic", TOPIC_ID, [OTHER], *[[NODE, OTHER]] * 3)
    assert await delete(0) == [0]
    stage.tree.make_topic("topic", TOPIC_ID, [OTHER], *[[NODE, OTHER]] * 3, removing={1: [NODE]})
    assert await delete(1) == [0]
    stage.tree.put(znodes.deleted_topic_path("topic"), b"")
    assert await delete(2) == [0]
    stage.tree.put(znodes.deleted_topic_path("topic"), None)
    stage.tree.put(znodes.topic_path("topic"), None)
    assert await delete(3) == [0]
    assert list(stage.replicas.partitions()) == []


# --- registered anew --------------------------------------------------------------------------------------------------


async def test_a_broker_that_registers_anew_has_to_hear_of_what_it_leads(stage: Stage) -> None:
    await stage.lead_and_follow(state(0), state(1), state(2, leader=OTHER), state(3))
    stage.witness.news()
    stage.control.begin_anew()
    assert stage.witness.news() == [("resigned", 0), ("resigned", 1), ("resigned", 3)]
    assert [stage.partition(index).must_hear for index in range(4)] == [True, True, False, True]
    await stage.update(told(0), told(1), told(2), told(3))  # says something, but not what this broker's role is
    assert stage.partition(0).must_hear
    await stage.lead_and_follow(state(0), state(1, epoch=1), state(2, leader=OTHER), state(3, leader=OTHER, epoch=1))
    assert not any(stage.partition(index).must_hear for index in range(4))
    assert stage.witness.news() == [
        ("elected", 0),
        ("forget", 1),
        ("elected", 1),
        ("resigned", 3),
        ("follow", 3, OTHER),
    ]


async def test_a_request_that_is_overtaken_by_a_new_registration_does_no_more(stage: Stage) -> None:
    await stage.lead_and_follow(state(0))
    stage.witness.news()

    def register_anew() -> None:
        stage.broker_epoch += 1
        stage.control.begin_anew()

    stage.on_learn = register_anew
    assert await stage.lead_and_follow(state(0), state(1)) == [ErrorCode.STALE_BROKER_EPOCH]
    assert stage.partition(0).must_hear
    assert not stage.partition(1).is_leader
    assert stage.witness.news() == [("resigned", 0)]


# --- what fails once --------------------------------------------------------------------------------------------------


async def test_logs_that_could_not_be_made_for_now_are_asked_for_again() -> None:
    disk = Disk()
    async with disk.broker() as replicas:
        stage = Stage(replicas)
        disk.storage.fail = lambda operation, path: OSError(errno.EMFILE, "Too many open files", path)
        assert await stage.lead_and_follow(state(0)) == [ErrorCode.KAFKA_STORAGE_ERROR]
        assert stage.witness.news() == [("missing",)]
        disk.storage.fail = None
        assert await stage.lead_and_follow(state(0, is_new=False)) == [0]
        assert stage.partition(0).is_leader


async def test_a_partition_that_fails_keeps_no_other_from_its_role(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    await stage.lead_and_follow(*map(state, range(4)))
    stage.witness.news()
    problems = {1: KafkaError(ErrorCode.KAFKA_STORAGE_ERROR), 2: ValueError("bug")}
    follow = stage.control._follow

    def fail_some(partition: Partition, told: LeaderAndIsrPartitionState) -> None:
        if partition.index in problems:
            raise problems[partition.index]
        follow(partition, told)

    monkeypatch.setattr(stage.control, "_follow", fail_some)
    with caplog.at_level(logging.CRITICAL, "ottla.replication.controller"):
        codes = await stage.lead_and_follow(*(state(index, leader=OTHER, epoch=1) for index in range(4)))
    assert codes == [0, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.UNKNOWN_SERVER_ERROR, 0]
    assert ("missing",) in stage.witness.news()
