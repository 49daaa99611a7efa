"""What a test does to groups, transactions and brokers happens, and wrong use is answered by a sentence."""

from __future__ import annotations

import socket
from contextlib import suppress
from typing import Any

import pytest
import trio
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from ottla.server.coordinator_factory import groups_of
from ottla.server.serving import StartupError
from ottla.server.testing import partitions
from ottla.server.testing.errors import LabError
from ottla.server.testing.kafka import Kafka
from ottla.server.testing.wire_tap.tests.wire_talk import produce, request
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages.classic_group import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from ottla.wire.messages.consumer_group import ConsumerGroupHeartbeatRequest
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest
from ottla.wire.messages.groups import ListGroupsResponse
from ottla.wire.messages.producer_ids import InitProducerIdRequest
from ottla.wire.messages.streams_group import StreamsGroupHeartbeatRequest, Subtopology, Topology
from ottla.wire.record_encoding import encode_batch
from ottla.wire.records import Record

SESSION_MS = 45_000
BATCH = encode_batch([Record(0, 5, b"key", b"value")])
PATIENCE_LOOKS = 400


@pytest.fixture
def kafka(kafka: Kafka) -> Kafka:
    kafka.topic("orders", partitions=2)
    return kafka


@pytest.fixture
def cluster(kafka_cluster: Kafka) -> Kafka:
    kafka_cluster.topic("orders", partitions=3)
    return kafka_cluster


def ask(kafka: Kafka, request: Any, group: str = "g") -> Any:
    async def asked() -> Any:
        return await kafka.world.ask(request, await kafka.world.coordinator(group))

    return kafka.call(asked)


def join_request() -> JoinGroupRequest:
    """Return the first request of a new member of the classic group "g"."""
    return JoinGroupRequest(
        group_id="g",
        session_timeout_ms=SESSION_MS,
        rebalance_timeout_ms=SESSION_MS,
        member_id="",
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )


def join_classic(kafka: Kafka) -> str:
    """Join the group "g" by the classic protocol; return the member id."""
    joining = join_request()
    joining.member_id = ask(kafka, joining).member_id
    assert ask(kafka, joining).error_code == 0
    return joining.member_id


def heartbeat(kafka: Kafka, member_id: str) -> ErrorCode:
    request = HeartbeatRequest(group_id="g", generation_id=1, member_id=member_id)
    return ErrorCode.of(ask(kafka, request).error_code)


def join_newer(kafka: Kafka, member_id: str) -> None:
    request = ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id=member_id,
        member_epoch=0,
        rebalance_timeout_ms=SESSION_MS,
        subscribed_topic_names=["orders"],
        topic_partitions=[],
    )
    assert ask(kafka, request).error_code == 0


def join_streams(kafka: Kafka) -> None:
    """Join the group "g" as the application of a topology that reads the topic orders."""
    reading = Subtopology(
        subtopology_id="0",
        source_topics=["orders"],
        source_topic_regex=[],
        state_changelog_topics=[],
        repartition_sink_topics=[],
        repartition_source_topics=[],
        copartition_groups=[],
    )
    request = StreamsGroupHeartbeatRequest(
        group_id="g",
        member_id="m",
        member_epoch=0,
        endpoint_information_epoch=0,
        rebalance_timeout_ms=SESSION_MS,
        topology=Topology(epoch=0, subtopologies=[reading]),
        active_tasks=[],
        standby_tasks=[],
        warmup_tasks=[],
        process_id="p",
        client_tags=[],
    )
    assert ask(kafka, request).error_code == 0


def until(kafka: Kafka, is_true: Any) -> None:
    """Advance the clock until something is true."""
    for _ in range(PATIENCE_LOOKS):
        if is_true():
            return
        kafka.clock.advance(seconds=0.5)
    raise AssertionError("it has not become true")


def test_a_session_of_45_s_ends_when_the_clock_is_advanced(kafka: Kafka):
    kafka.group("g").commit({("orders", 0): 0})  # so that nothing waits for the time of the brokers any more
    kafka.clock.freeze()
    member = join_classic(kafka)
    assert [each.member_id for each in kafka.group("g").members] == [member]
    kafka.clock.advance(seconds=44)
    assert len(kafka.group("g").members) == 1
    kafka.clock.advance(seconds=2)
    assert kafka.group("g").members == [] and kafka.group("g").state == "Empty"
    kafka.clock.speed(1)


def test_an_evicted_member_has_to_join_again(kafka: Kafka):
    member = join_classic(kafka)
    kafka.group("g").evict(member)
    assert heartbeat(kafka, member) is ErrorCode.UNKNOWN_MEMBER_ID
    join_newer(kafka, "m")
    (newer,) = kafka.group("g").members
    assert newer.partitions == [("orders", 0), ("orders", 1)] and kafka.group("g").type == "consumer"
    kafka.group("g").evict(newer)
    assert kafka.group("g").members == []


def test_members_of_streams_groups_are_shown_and_evicted(kafka: Kafka):
    join_streams(kafka)
    group = kafka.group("g")
    (member,) = group.members
    assert (group.type, member.member_id) == ("streams", "m")
    kafka.clock.advance(seconds=5)  # the group waits for other members
    beat = StreamsGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=1, endpoint_information_epoch=0)
    assert ask(kafka, beat).error_code == 0
    assert group.members[0].partitions == [("orders", 0), ("orders", 1)]
    with pytest.raises(LabError, match="evict a member instead"):
        group.rebalance()
    with kafka.fork() as other:
        assert other.group("g").members == []
    group.evict("m")
    assert group.members == []


def test_a_rebalance_is_made_to_happen(kafka: Kafka):
    member = join_classic(kafka)
    with pytest.raises(LabError, match="CompletingRebalance; it rebalances already"):
        kafka.group("g").rebalance()
    assignment = SyncGroupRequestAssignment(member_id=member, assignment=b"")
    assert not ask(
        kafka,
        SyncGroupRequest(
            group_id="g",
            generation_id=1,
            member_id=member,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[assignment],
        ),
    ).error_code
    kafka.group("g").rebalance()
    assert heartbeat(kafka, member) is ErrorCode.REBALANCE_IN_PROGRESS
    assert [each.member_id for each in kafka.group("g").members] == [member]
    kafka.group("g").evict(member)
    join_newer(kafka, "m")
    kafka.group("g").rebalance()
    assert [each.member_id for each in kafka.group("g").members] == ["m"]


def test_offsets_are_committed_and_the_lag_told(kafka: Kafka):
    group = kafka.group("g")
    assert (group.members, group.offsets) == ([], {})
    kafka.produce("orders", "a", "b", "c", partition=1)
    group.commit({("orders", 1): 1})
    assert (group.offsets, group.lag, kafka.groups()) == ({("orders", 1): 1}, 2, ["g"])
    group.delete()
    assert kafka.groups() == []


def test_a_fenced_producer_has_an_old_epoch(kafka: Kafka):
    async def begin() -> Any:
        node = await kafka.world.coordinator("t", 1)
        return await kafka.world.ask(InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=1000), node)

    assert kafka.call(begin).producer_epoch == 0
    kafka.fence("t")
    told = kafka.transactions()["t"]
    assert (told.producer_epoch, told.state, told.partitions) == (1, "Empty", [])


def test_groups_and_transactions_are_told_while_others_take_them_over(cluster: Kafka):
    names = [f"n{each}" for each in range(6)]

    async def begin(name: str) -> None:
        node = await cluster.world.coordinator(name, 1)
        request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=1000)
        assert (await cluster.world.ask(request, node)).error_code == 0

    for each in names:
        cluster.group(each).commit({("orders", 0): 0})
        cluster.call(begin, each)
    for broker in cluster.brokers:
        broker.kill()
        assert cluster.groups() == names
        assert list(cluster.transactions()) == names
        broker.start()
        broker.restart()
        for topic in "__consumer_offsets", "__transaction_state":
            for partition in range(4):  # else the next one may be the last in sync
                cluster.expand_isr(topic, partition)
        assert all(cluster.group(each).offsets == {("orders", 0): 0} for each in names)


def test_a_group_is_found_while_its_coordinator_loads_others(kafka: Kafka, monkeypatch: pytest.MonkeyPatch):
    group = kafka.group("g")
    group.commit({("orders", 0): 3})
    service = kafka.loop.call_sync(groups_of, kafka.world.node(0).serving())
    loading = iter([ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 2)

    def list_groups(request: Any) -> Any:
        code = next(loading, None)
        return listed(request) if code is None else ListGroupsResponse(error_code=code, groups=[])

    listed = service.list_groups
    monkeypatch.setattr(service, "list_groups", list_groups)
    assert group.state == "Empty" and next(loading, None) is None


def test_wrong_use_is_answered_by_a_sentence(kafka: Kafka):
    kafka.group("known").commit({("orders", 0): 0})
    group = kafka.group("g")
    for wrong, text in (
        (lambda: group.state, "no group g; the groups are: known"),
        (lambda: group.evict("m"), "no group g"),
        (lambda: kafka.group("known").evict("m"), "has no member m; its members are: none"),
        (lambda: kafka.group("known").rebalance(), "has no members that could rebalance"),
        (lambda: kafka.fence("t"), "No producer has used the transactional id t; those known are: none"),
        (lambda: kafka.broker(1), "no broker 1; the brokers are 0"),
        (lambda: kafka.broker(0).isolate(), "nobody to be cut off from"),
        (lambda: kafka.broker(0).expire_session(), "has no session with a tree"),
        (lambda: kafka.broker(0).start(), "runs already"),
        (lambda: kafka.broker(0).corrupt("orders", 0, 0), "no record orders-0 at offset 0"),
    ):
        with pytest.raises(LabError, match=text):
            wrong()
    kafka.broker(0).kill()
    for ask_nobody in (
        kafka.topics,
        kafka.groups,
        kafka.transactions,
        lambda: kafka.fence("t"),
        lambda: kafka.registry,
    ):
        with pytest.raises(LabError, match="All brokers are down"):
            ask_nobody()


def test_a_killed_broker_keeps_what_it_had_written(kafka: Kafka):
    made = kafka.produce("orders", "a", partition=0)
    address = kafka.bootstrap
    kafka.broker(0).kill()
    kafka.broker(0).start()
    assert kafka.records("orders") == made and kafka.bootstrap == address
    kafka.broker(0).restart()
    assert kafka.records("orders") == made


def test_a_killed_broker_acknowledges_nothing_that_it_does_not_keep(kafka: Kafka):
    node = kafka.world.nodes[0]
    host, _, port = kafka.bootstrap.partition(":")
    client = socket.create_connection((host, int(port)), 30)

    async def end_late() -> None:
        """Serve the connection once more, as a task does that is awake when the broker is killed."""
        (connection,) = node.serving().listeners[0].connections
        with suppress(OSError):
            connection._step()
        await end()

    async def killed() -> None:
        client.sendall(request(produce(("orders", 0), records=BATCH), 9))
        await node.kill()

    with client:
        client.sendall(request(produce(("orders", 0), records=BATCH), 9))
        assert client.recv(1000)
        end, node._end_at_once = node._end_at_once, end_late
        kafka.loop.call(killed)
        node._end_at_once = end
        with suppress(ConnectionError):
            assert not client.recv(1000)
    kafka.broker(0).start()
    assert len(kafka.records("orders", 0)) == 1


def test_another_broker_leads_when_the_leader_is_killed(cluster: Kafka):
    victim = next(each for each in cluster.brokers if ("orders", 0) in each.leads)
    made = cluster.produce("orders", "a", partition=0)
    victim.kill()
    others = [each for each in cluster.brokers if each.node_id != victim.node_id]
    until(cluster, lambda: any(("orders", 0) in each.leads for each in others))
    assert not victim.is_running
    made += cluster.produce("orders", "b", partition=0)
    victim.start()
    assert cluster.records("orders", 0) == made


@pytest.mark.parametrize("node_id", [1, 2])
def test_topics_and_groups_are_made_while_a_broker_is_down(cluster: Kafka, node_id: int):
    cluster.broker(node_id).kill()
    cluster.topic("late")
    assert sorted(cluster.partition("late").replicas) == [1, 2, 3]
    cluster.group("g").commit({("late", 0): 5})  # makes Kafka's topic of the offsets
    assert cluster.group("g").offsets == {("late", 0): 5}
    cluster.broker(node_id).start()
    for _ in range(PATIENCE_LOOKS):
        if cluster.partition("late").isr == [1, 2, 3]:
            break
        cluster.clock.advance(seconds=0.1)
    assert cluster.partition("late").isr == [1, 2, 3]


def test_an_isolated_follower_leaves_the_isr_and_comes_back(cluster: Kafka):
    def isr() -> list[int]:
        return cluster.partition("orders", 0).isr

    leader = next(each for each in cluster.brokers if ("orders", 0) in each.leads)
    follower = next(each for each in cluster.brokers if each.node_id not in (leader.node_id, cluster.controller))
    follower.isolate(from_=leader.node_id)
    cluster.produce("orders", "a", partition=0, acks=1)
    until(cluster, lambda: follower.node_id not in isr())
    follower.heal()
    until(cluster, lambda: follower.node_id in isr())


def test_a_paused_broker_answers_nobody_and_goes_on(kafka: Kafka):
    kafka.broker(0).pause()
    kafka.broker(0).pause()
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "socket.timeout.ms": 60_000})
    producer.produce("orders", b"a", partition=0)
    assert producer.flush(0.3) == 1
    kafka.broker(0).resume()
    kafka.broker(0).resume()
    assert producer.flush(30) == 0
    assert [each.value for each in kafka.records("orders")] == [b"a"]


def test_a_paused_broker_answers_no_earlier_request(kafka: Kafka):
    settings = {"bootstrap.servers": kafka.bootstrap, "group.id": "g", "fetch.wait.max.ms": 60_000}
    consumer = Consumer(settings | {"socket.timeout.ms": 90_000})
    consumer.assign([TopicPartition("orders", 0, 0)])
    consumer.poll(0)
    fetch = kafka.wire.wait_for("Fetch")
    kafka.broker(0).pause()
    (made,) = kafka.produce("orders", "a", partition=0)
    assert kafka.records("orders") == [made] and kafka.wire.requests("Fetch") == [fetch] and not fetch.is_answered
    kafka.broker(0).resume()
    found = consumer.poll(30)
    assert found is not None and found.value() == b"a"
    consumer.close()


@pytest.mark.parametrize("how", ["stop", "restart"])
def test_a_paused_broker_is_not_stopped(kafka: Kafka, how: str):
    kafka.broker(0).pause()
    with pytest.raises(
        LabError, match=r"Broker 0 is paused, so that it hears no stop\(\); resume\(\) it first, or kill"
    ):
        getattr(kafka.broker(0), how)()
    kafka.broker(0).resume()
    getattr(kafka.broker(0), how)()


def test_a_pause_and_an_isolation_end_each_by_its_own_call(cluster: Kafka):
    leader = cluster.partition("orders", 0).leader
    broker, world = cluster.broker(leader), cluster.world
    others = [each for each in world.nodes if each != leader]
    for first, second in (broker.resume, broker.heal), (broker.heal, broker.resume):
        broker.isolate()
        broker.pause()
        first()
        assert all(world.is_cut(leader, each) for each in others)
        second()
        assert not any(world.is_cut(leader, each) for each in others)
    broker.pause()
    broker.kill()
    broker.start()
    broker.pause()
    cluster.restore(cluster.snapshot())
    assert not any(world.is_cut(leader, each) for each in others)
    producer = Producer({"bootstrap.servers": broker.address})
    producer.produce("orders", b"a", partition=0)
    assert producer.flush(30) == 0


def test_a_disk_that_fails_fails_after_a_kill(kafka: Kafka):
    kafka.broker(0).fail_disk()
    kafka.broker(0).kill()
    with pytest.raises(StartupError):
        kafka.broker(0).start()
    kafka.broker(0).free_disk()
    kafka.broker(0).start()
    kafka.produce("orders", "a")


def test_a_paused_leader_of_a_cluster_is_missed(cluster: Kafka):
    leader = cluster.partition("orders", 0).leader
    cluster.broker(leader).pause()
    others = [each for each in cluster.brokers if each.node_id != leader]
    until(cluster, lambda: any(("orders", 0) in each.leads for each in others))
    cluster.broker(leader).resume()
    made = cluster.produce("orders", "a", partition=0)
    assert cluster.records("orders", 0) == made


def test_a_frozen_group_gets_no_answers(kafka: Kafka):
    group = kafka.group("g")
    group.commit({("orders", 0): 0})
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "g"})
    asked = [TopicPartition("orders", 0)]
    assert consumer.committed(asked, timeout=30)[0].offset == 0
    group.freeze()
    with pytest.raises(KafkaException):
        consumer.committed(asked, timeout=0.3)
    group.thaw()
    assert consumer.committed(asked, timeout=30)[0].offset == 0
    consumer.close()


def test_leaders_are_elected_and_partitions_moved(cluster: Kafka):
    cluster.topic("small", replication_factor=2)
    before = cluster.partition("small")
    assert len(before.replicas) == 2 and before.isr == sorted(before.replicas) and before.leader == before.replicas[0]
    cluster.elect("small", 0, before.replicas[1])
    assert cluster.partition("small").leader == before.replicas[1]
    (third,) = {1, 2, 3} - set(before.replicas)
    with pytest.raises(LabError, match="not in the ISR"):
        cluster.elect("small", 0, third)
    made = cluster.produce("small", "a")
    cluster.move("small", 0, [third])
    until(cluster, lambda: cluster.partition("small").leader == third)
    assert cluster.records("small") == made
    with pytest.raises(LabError, match="no broker 9"):
        cluster.move("small", 0, [9])


def test_a_move_to_a_broker_out_of_reach_is_given_up(cluster: Kafka, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(partitions, "SHOWN_LOOKS", 20)
    cluster.topic("small", replication_factor=1)
    away = min({1, 2, 3} - {cluster.partition("small").leader, cluster.controller})
    cluster.broker(away).isolate()
    with pytest.raises(
        LabError, match="small-0 has not moved to .* after 0 s; do its brokers run, and reach each other"
    ):
        cluster.move("small", 0, [away])


def test_a_full_disk_refuses_records_and_takes_them_again(kafka: Kafka):
    kafka.broker(0).fill_disk()
    with pytest.raises(KafkaError) as refused:
        kafka.produce("orders", "a", partition=0)
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    kafka.broker(0).free_disk()
    assert kafka.produce("orders", "b", partition=0)[0].offset == 0


def test_a_corrupt_batch_is_not_served(kafka: Kafka):
    kafka.produce("orders", "a", partition=0)
    kafka.broker(0).corrupt("orders", 0, 0)
    with pytest.raises((KafkaError, LabError)):
        kafka.records("orders")


def test_the_lab_is_used_from_a_trio_program(kafka: Kafka):
    async def program() -> list[str]:
        kafka.group("g").commit({("orders", 0): 0})
        await trio.lowlevel.checkpoint()
        return kafka.groups()

    assert trio.run(program) == ["g"]


def test_who_has_found_the_coordinator_of_a_fresh_world_may_join_at_once(kafka: Kafka):
    async def find_and_join() -> ErrorCode:
        await kafka.world.ask(FindCoordinatorRequest(coordinator_keys=["g"]))
        return ErrorCode.of((await kafka.world.ask(join_request())).error_code)

    assert kafka.call(find_and_join) is ErrorCode.MEMBER_ID_REQUIRED
