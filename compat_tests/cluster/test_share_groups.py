"""Share groups in a cluster: leaders whose share coordinators are other brokers, and leaders that change.

`OTTLA_SHARE_KILLS=20` kills the leader under Java's share consumers so many times.
"""

from __future__ import annotations

import base64
import os
import subprocess
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from compat_tests.support.brokers import wait_until
from compat_tests.support.cluster import Cluster
from compat_tests.support.wire_client import WireClient
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.wire.errors import ErrorCode
from ottla.wire.messages import share_fetch as fetching
from ottla.wire.messages import share_group as describing
from ottla.wire.messages import share_group_state as initializing
from ottla.wire.messages.create_topics import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.messages.share_fetch import ShareFetchRequest
from ottla.wire.record_encoding import encode_batch
from ottla.wire.records import Record

ACCEPT, RELEASE = 1, 2
PARTITIONS = 6
KILLS = int(os.environ.get("OTTLA_SHARE_KILLS", "1"))
DELIVERIES_MAX = 10


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    settings = {
        "share.coordinator.state.topic.num.partitions": "6",
        "share.coordinator.state.topic.replication.factor": "3",
        "group.share.delivery.count.limit": str(DELIVERIES_MAX),
    }
    with Cluster(tmp_path_factory.mktemp("share"), settings=settings, is_served=True) as cluster:
        yield cluster


class Shared:
    """A topic, and a group that shares it."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.clients: dict[int, WireClient] = {}
        self.epochs: dict[int, int] = {}
        assignments = [
            CreatableReplicaAssignment(partition_index=index, broker_ids=[(index + each) % 3 for each in range(3)])
            for index in range(PARTITIONS)
        ]
        topic = CreatableTopic(
            name="shared", num_partitions=-1, replication_factor=-1, assignments=assignments, configs=[]
        )
        controller = cluster.controller()
        with WireClient((controller.host, controller.port), client_id="test") as client:
            created = client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=30_000), 7)
        assert created.topics[0].error_code == ErrorCode.NONE, created
        cluster.wait_until_whole()
        self.topic_id = wait_until(self._topic_id, "broker 0 knows the topic")
        # The topic's id is random, and with it the brokers that keep states: some group has another one than the leader.
        self.group = next(
            group for group in (f"g{number}" for number in range(100)) if self._has_states_elsewhere(group)
        )

    def at(self, broker: int) -> WireClient:
        process = self.cluster.brokers[broker]
        return WireClient((process.host, process.port), client_id="test")

    def leader(self, index: int) -> int:
        return self.cluster._leader_id("shared", index)

    def _topic_id(self) -> bytes | None:
        """None while broker 0 has not heard of the topic."""
        with self.at(0) as client:
            (topic,) = client.ask(MetadataRequest(topics=[MetadataRequestTopic(name="shared")]), 12).topics
        return None if topic.error_code else bytes(topic.topic_id)

    def _key(self, group: str, index: int) -> str:
        return f"{group}:{base64.urlsafe_b64encode(self.topic_id).decode().rstrip('=')}:{index}"

    def _has_states_elsewhere(self, group: str) -> bool:
        found: list[int] = []

        def is_found() -> bool:
            keys = [self._key(group, index) for index in range(PARTITIONS)]
            with self.at(0) as client:
                answers = client.ask(FindCoordinatorRequest(key_type=2, coordinator_keys=keys), 6).coordinators
            found[:] = [each.node_id for each in answers]
            return not any(each.error_code for each in answers)

        wait_until(is_found, "share coordinators are found")
        return found != [self.leader(index) for index in range(PARTITIONS)]

    def begin(self, index: int) -> int:
        """Begins the group's state, as the group coordinator does; returns which broker keeps it."""
        key = self._key(self.group, index)
        begun = initializing.InitializeStatePartition(partition=index, state_epoch=0, start_offset=0)
        request = initializing.InitializeShareGroupStateRequest(
            group_id=self.group, topics=[initializing.InitializeStateData(topic_id=self.topic_id, partitions=[begun])]
        )
        found: list[int] = []

        def is_begun() -> bool:
            with self.at(0) as client:
                answer = client.ask(FindCoordinatorRequest(key_type=2, coordinator_keys=[key]), 6).coordinators[0]
            if answer.error_code:
                return False
            with self.at(answer.node_id) as client:
                result = client.ask(request, 0).results[0].partitions[0]
            found[:] = [answer.node_id]
            return result.error_code == ErrorCode.NONE

        wait_until(is_begun, "the share coordinator knows the share partition")
        return found[0]

    def produce(self, index: int, count: int) -> None:
        batch = encode_batch(Record(offset, 1, None, b"value") for offset in range(count))
        data = TopicProduceData(
            name="shared", partition_data=[PartitionProduceData(index=index, records=memoryview(batch))]
        )
        with self.at(self.leader(index)) as client:
            answer = client.ask(ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[data]), 9)
        assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE

    def fetch(self, index: int, *said: tuple[int, int, int]) -> Any:
        """The next fetch of the member that this partition has, from its leader."""
        epoch = self.epochs.get(index, 0)
        if index not in self.clients:
            self.clients[index] = self.at(self.leader(index))
        batches = [
            fetching.AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=[kind])
            for first, last, kind in said
        ]
        partition = fetching.FetchPartition(partition_index=index, acknowledgement_batches=batches)
        request = ShareFetchRequest(
            group_id=self.group,
            member_id=f"member-{index}",
            share_session_epoch=epoch,
            max_wait_ms=10_000,
            min_bytes=1,
            max_bytes=1 << 20,
            max_records=500,
            batch_size=500,
            topics=[fetching.FetchTopic(topic_id=self.topic_id, partitions=[partition])],
            forgotten_topics_data=[],
        )
        self.epochs[index] = epoch + 1
        answer = self.clients[index].ask(request, 2)
        assert answer.error_code == ErrorCode.NONE, answer
        (topic,) = answer.responses
        (data,) = topic.partitions
        assert data.acknowledge_error_code == ErrorCode.NONE, data
        return data

    def lose(self, index: int) -> None:
        self.clients.pop(index).close()
        self.epochs.pop(index)


def acquired(data: Any) -> list[tuple[int, int, int]]:
    assert data.error_code == ErrorCode.NONE, data
    return [(each.first_offset, each.last_offset, each.delivery_count) for each in data.acquired_records]


def test_a_new_leader_goes_on_where_the_former_one_was(cluster: Cluster) -> None:
    shared = Shared(cluster)
    coordinators = [shared.begin(index) for index in range(PARTITIONS)]
    leaders = [shared.leader(index) for index in range(PARTITIONS)]
    assert any(coordinator != leader for coordinator, leader in zip(coordinators, leaders, strict=True))
    for index in range(PARTITIONS):
        shared.produce(index, 5)
        shared.produce(index, 5)
        assert acquired(shared.fetch(index)) == [(0, 9, 1)]
        shared.produce(index, 1)
        assert acquired(shared.fetch(index, (0, 6, ACCEPT), (7, 7, RELEASE))) in ([(7, 7, 2)], [(10, 10, 1)])
    victim = leaders[0]
    cluster.brokers[victim].kill()
    for index in range(PARTITIONS):
        if leaders[index] == victim:
            wait_until(lambda index=index: shared.leader(index) not in (victim, -1), "another broker leads")
            shared.lose(index)
            found: list[tuple[int, int, int]] = []

            def is_served(index: int = index, found: list[tuple[int, int, int]] = found) -> bool:
                data = shared.fetch(index)
                if data.error_code:
                    return False
                found += acquired(data)
                return bool(found)

            wait_until(is_served, "the new leader has loaded the state of the group")
            # Nobody has said anything of 8 and 9: they come again, as often as nobody has counted. 7 has been given back.
            offsets = [offset for first, last, _ in found for offset in range(first, last + 1)]
            assert offsets[0] == 7 and found[0][2] in (2, 3)
            assert set(offsets) <= {7, 8, 9, 10}
    cluster.brokers[victim].restart()
    cluster.wait_until_whole()


# --- Java's share consumers -------------------------------------------------------------------------------------------


class Told:
    """What the members have told: of each record its deliveries, and whether the broker has confirmed what they said."""

    def __init__(self, log: str) -> None:
        assert "failed=" not in log, log[-4000:]
        self.events: dict[tuple[int, int], list[tuple[str, int]]] = defaultdict(list)
        for line in log[: log.rfind("\n") + 1].splitlines():
            name, _, record = line.partition("=")
            if name in ("read", "accepted", "released", "unaccepted", "unreleased"):
                partition, offset, count = map(int, record.split(":"))
                self.events[partition, offset].append((name, count))

    @property
    def accepted(self) -> int:
        """How many records need not come any more, as far as the members know: they may not have heard of an acceptance."""
        return sum(any(name.endswith("accepted") for name, _ in events) for events in self.events.values())

    def check(self) -> None:
        for record, events in self.events.items():
            deliveries, at_least, is_accepted = 0, 1, False
            assert events[0] == ("read", 1), (record, events)
            for name, count in events:
                if name == "read":
                    deliveries += 1
                    assert not is_accepted and at_least <= count <= deliveries, (record, events)
                elif name == "released":
                    at_least = count + 1
                is_accepted |= name == "accepted"


def has_nothing_left(cluster: Cluster, group: str) -> bool:
    """Whether all is accepted, as far as the brokers know."""
    with WireClient((cluster.brokers[0].host, cluster.brokers[0].port), client_id="test") as client:
        found = client.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=[group]), 6).coordinators[0]
    coordinator = cluster.brokers[found.node_id]
    asked = describing.DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=None)
    with WireClient((coordinator.host, coordinator.port), client_id="test") as client:
        answer = client.ask(describing.DescribeShareGroupOffsetsRequest(groups=[asked]), 1)
    return [each.lag for topic in answer.groups[0].topics for each in topic.partitions] == [0, 0]


@pytest.mark.timeout(900)  # each of its waits may take minutes on a busy machine
def test_a_record_is_not_delivered_again_once_its_acceptance_was_confirmed(
    cluster: Cluster, coordinated: list[str], tmp_path: Path, unique: Callable[[str], str]
) -> None:
    topic, group, log, sent = unique("topic"), unique("group"), tmp_path / "members.txt", 0
    new = NewTopic(topic, 2, 3, config={"min.insync.replicas": "2"})
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([new])[topic].result(60)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True})

    def told() -> Told:
        return Told(log.read_text())

    def send() -> None:
        nonlocal sent
        for number in range(sent, sent + 200):
            producer.produce(topic, str(number), partition=number % 2)
        assert producer.flush(60) == 0
        sent += 200

    command = [*coordinated, "shareUntilEnd", cluster.bootstrap, topic, group]
    with log.open("w") as output, subprocess.Popen(command, stdin=subprocess.PIPE, stdout=output) as members:
        try:
            for _ in range(KILLS):
                send()
                wait_until(lambda: told().accepted > sent - 190, "they are in the middle of it", 120)
                victim = cluster.leader(topic)
                victim.kill()
                send()
                wait_until(lambda: told().accepted > sent - 150, "they go on", 120)
                victim.restart()
                cluster.wait_until_whole()
            send()
            wait_until(lambda: told().accepted == sent and has_nothing_left(cluster, group), "all are accepted", 120)
        finally:
            members.communicate(timeout=240)
    assert members.returncode == 0
    told().check()
