"""Snapshots of worlds: what a broker keeps comes back, whatever was done since, and worlds of one snapshot are apart."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trio

from ottla.groupcoord.runtime import partition_runtime
from ottla.groupcoord.runtime.loading import shard_from_log
from ottla.replication.log import recovery
from ottla.server.broker import Broker
from ottla.server.testing.errors import LabError
from ottla.server.testing.kafka import Kafka
from ottla.server.testing.memory.names import StorageSnapshot
from ottla.server.testing.snapshots import snapshots
from ottla.server.testing.snapshots.files import NodeSnapshot
from ottla.server.testing.snapshots.living_producers import given_ids
from ottla.server.testing.snapshots.snapshots import closed
from ottla.server.testing.world.node import Node
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages.acls import AclCreation, CreateAclsRequest, DescribeAclsRequest
from ottla.wire.messages.alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalConfig,
    IncrementalConfigsResource,
)
from ottla.wire.messages.client_quotas import (
    AlterClientQuotasRequest,
    DescribeClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from ottla.wire.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
)
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.messages.producer_ids import InitProducerIdRequest
from ottla.wire.messages.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
)
from ottla.wire.record_encoding import encode_batch
from ottla.wire.records import Record

PASSING = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
}
LOOKS = 5000
GROUP, TRANSACTION = 0, 1


def values(kafka: Kafka, topic: str = "orders", **how: Any) -> list[bytes | None]:
    return [record.value for record in kafka.records(topic, **how)]


def asked(
    kafka: Kafka, request: Any, code: Callable[[Any], int], key: str, *, of: int = GROUP, version: int | None = None
) -> Any:
    """Ask the coordinator of a group or a transaction, again while it answers that it cannot yet; return the response."""
    for _ in range(LOOKS):
        node = kafka.loop.call(kafka.world.coordinator, key, of)
        answer = kafka.ask(request, node.node_id, version=version)
        if code(answer) not in PASSING:
            assert not code(answer), ErrorCode.of(code(answer))
            return answer
        kafka.clock.advance(0)
    raise AssertionError(answer)


def commit(kafka: Kafka, group: str, offset: int) -> None:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="m")
    topic = OffsetCommitRequestTopic(name="orders", partitions=[partition])
    request = OffsetCommitRequest(group_id=group, member_id="", topics=[topic])
    asked(kafka, request, lambda answer: answer.topics[0].partitions[0].error_code, group, version=8)


def committed(kafka: Kafka, group: str) -> list[int]:
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=None)])
    answer = asked(kafka, request, lambda answer: answer.groups[0].error_code, group, version=8)
    return [each.committed_offset for topic in answer.groups[0].topics for each in topic.partitions]


class Producer:
    """An idempotent or transactional producer of one partition."""

    def __init__(self, kafka: Kafka, transactional_id: str | None = None) -> None:
        self.transactional_id, self.sequence = transactional_id, 0
        request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000)
        answer = asked(
            kafka, request, lambda answer: answer.error_code, transactional_id or "any", of=TRANSACTION, version=4
        )
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch

    def send(self, kafka: Kafka, value: bytes, *, sequence: int | None = None) -> int:
        """Send one record; return its offset. `sequence`: None for the next one."""
        if self.transactional_id is not None:
            self.begin(kafka)
        produce = self.request(kafka, value, sequence=sequence)
        told = kafka.ask(produce, 0, version=11).responses[0].partition_responses[0]
        if told.error_code:
            raise KafkaError(ErrorCode.of(told.error_code), told.error_message or "")
        return int(told.base_offset)

    def begin(self, kafka: Kafka) -> None:
        """Let the partition take part in the transaction."""
        assert self.transactional_id is not None
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name="orders", partitions=[0])],
        )

        def code(answer: Any) -> int:
            (topic,) = answer.results_by_topic_v3_and_below
            return int(topic.results_by_partition[0].partition_error_code)

        asked(kafka, request, code, self.transactional_id, of=TRANSACTION, version=3)

    def request(self, kafka: Kafka, value: bytes, *, sequence: int | None = None) -> ProduceRequest:
        """Return the request that sends one record. `sequence`: None for the next one."""
        batch = encode_batch(
            [Record(0, kafka.clock.now_ms, b"k", value, ())],
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=self.sequence if sequence is None else sequence,
            is_transactional=self.transactional_id is not None,
        )
        self.sequence += sequence is None
        data = PartitionProduceData(index=0, records=memoryview(bytearray(batch)))
        topic = TopicProduceData(name="orders", partition_data=[data])
        return ProduceRequest(transactional_id=self.transactional_id, acks=-1, timeout_ms=30_000, topic_data=[topic])

    def end(self, kafka: Kafka, *, committed: bool) -> None:
        assert self.transactional_id is not None
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=committed,
        )
        asked(kafka, request, lambda answer: answer.error_code, self.transactional_id, of=TRANSACTION, version=3)
        for _ in range(LOOKS):  # the markers come after the answer
            if kafka.world.nodes[0].serving().partition("orders", 0).log.first_unstable_offset is None:
                return
            kafka.clock.advance(0)


@pytest.fixture
def no_recovery(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail a start that has to look through a log."""

    def recover(*_: object, **__: object) -> None:
        raise AssertionError("recovered")

    monkeypatch.setattr(recovery._Loader, "_recover_segment", recover)
    monkeypatch.setattr(recovery._Loader, "_recover_from", recover)


@pytest.mark.usefixtures("no_recovery")
def test_records_and_offsets_come_back(kafka: Kafka) -> None:
    kafka.topic("orders", partitions=2)
    kafka.produce("orders", "a", "b", partition=1)
    commit(kafka, "billing", 1)
    snapshot, address = kafka.snapshot(), kafka.bootstrap
    kafka.produce("orders", "c", partition=1)
    kafka.topic("later")
    commit(kafka, "billing", 3)
    commit(kafka, "other", 2)
    for _ in range(2):
        kafka.restore(snapshot)
        assert (kafka.topics(), kafka.bootstrap) == ({"orders": 2}, address)
        assert values(kafka) == [b"a", b"b"]
        assert (committed(kafka, "billing"), committed(kafka, "other")) == ([1], [])
        (made,) = kafka.produce("orders", "d", partition=1)
        assert made.offset == 2


def test_transactions_go_on_after_a_restore(kafka: Kafka) -> None:
    kafka.topic("orders")
    producer = Producer(kafka, "tx")
    producer.send(kafka, b"first")
    producer.end(kafka, committed=True)
    producer.send(kafka, b"aborted")
    producer.end(kafka, committed=False)
    producer.send(kafka, b"open")
    snapshot = kafka.snapshot()
    producer.end(kafka, committed=False)
    assert values(kafka, read_committed=True) == [b"first"]
    kafka.restore(snapshot)
    assert values(kafka, read_committed=True) == [b"first"]
    assert values(kafka) == [b"first", b"aborted", b"open"]
    producer.send(kafka, b"more")
    producer.end(kafka, committed=True)
    assert values(kafka, read_committed=True) == [b"first", b"open", b"more"]


def test_a_transaction_that_stays_open_ends_by_its_timeout(kafka: Kafka) -> None:
    kafka.topic("orders")
    Producer(kafka, "tx").send(kafka, b"open")
    with kafka.fork() as fork:
        kafka.produce("orders", "after")
        fork.produce("orders", "after")
        fork.clock.advance(minutes=2)
        for each in (fork, kafka):
            assert values(each, read_committed=True) == [b"after"]


def test_a_batch_that_was_sent_before_the_snapshot_is_a_duplicate_after_it(kafka: Kafka) -> None:
    kafka.topic("orders")
    producer = Producer(kafka)
    offset = producer.send(kafka, b"once")
    for each in (kafka, kafka.fork()):
        snapshot = each.snapshot()
        each.produce("orders", "of another")
        each.restore(snapshot)
        assert producer.send(each, b"once", sequence=0) == offset
        assert values(each) == [b"once"]
        with pytest.raises(KafkaError) as refused:
            producer.send(each, b"gap", sequence=7)
        assert refused.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    each.close()


def test_a_producer_that_has_sent_since_the_snapshot_goes_on(kafka: Kafka) -> None:
    kafka.topic("orders")
    producer = Producer(kafka)
    producer.send(kafka, b"first")
    snapshot = kafka.snapshot()
    for number in range(3):
        producer.send(kafka, b"never was")
        kafka.restore(snapshot)
        assert producer.send(kafka, b"%d" % number) == 1
        assert values(kafka) == [b"first", b"%d" % number]


def refuses(kafka: Kafka, producer: Producer, *, sequence: int) -> bool:
    try:
        producer.send(kafka, b"too early", sequence=sequence)
    except KafkaError as refused:
        return refused.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    return False


def test_a_producer_leaves_out_no_more_than_it_has_sent_since_the_snapshot(kafka: Kafka) -> None:
    kafka.topic("orders")
    empty = kafka.snapshot()
    producer = Producer(kafka)
    producer.send(kafka, b"first")
    snapshot = kafka.snapshot()
    for _ in range(2):
        producer.send(kafka, b"never was")
        kafka.restore(snapshot)
        # As if the batch before had met a broker that was no leader yet.
        assert refuses(kafka, producer, sequence=producer.sequence + 1)
        producer.send(kafka, b"next")
        assert values(kafka) == [b"first", b"next"]
    for each in (empty, empty, snapshot):
        kafka.restore(each)
        assert refuses(kafka, producer, sequence=producer.sequence + 1)
    producer.send(kafka, b"next")
    assert values(kafka) == [b"first", b"next"]


def test_what_is_accepted_while_a_restore_begins_is_known_after_it(
    kafka: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka.topic("orders")
    producer = Producer(kafka)
    producer.send(kafka, b"first")
    snapshot = kafka.snapshot()

    async def given(brokers: Iterable[Broker]) -> bytes:
        await kafka.world.ask(producer.request(kafka, b"late"), version=11)
        return await given_ids(brokers)

    monkeypatch.setattr(snapshots, "given_ids", given)
    kafka.restore(snapshot)
    producer.send(kafka, b"next", sequence=2)
    assert values(kafka) == [b"first", b"next"]


def test_a_producer_goes_on_if_its_broker_was_killed_before_the_restore(kafka: Kafka) -> None:
    kafka.topic("orders")
    producer = Producer(kafka)
    producer.send(kafka, b"first")
    snapshot = kafka.snapshot()
    producer.send(kafka, b"never was")
    kafka.broker(0).kill()
    kafka.restore(snapshot)
    producer.send(kafka, b"next")
    assert values(kafka) == [b"first", b"next"]


def test_a_transaction_of_the_snapshot_goes_on_after_what_was_sent_since(kafka: Kafka) -> None:
    kafka.topic("orders")
    producer = Producer(kafka, "payments")
    producer.send(kafka, b"first")
    snapshot = kafka.snapshot()
    producer.send(kafka, b"never was")
    kafka.restore(snapshot)
    assert refuses(kafka, producer, sequence=producer.sequence + 1)
    producer.send(kafka, b"next")
    kafka.restore(kafka.snapshot())
    producer.end(kafka, committed=True)
    producer.send(kafka, b"of another")
    producer.end(kafka, committed=True)
    assert values(kafka, read_committed=True) == [b"first", b"next", b"of another"]


def test_a_transaction_may_end_at_once_after_a_restore(kafka: Kafka) -> None:
    kafka.topic("orders")
    producer = Producer(kafka, "payments")
    producer.send(kafka, b"first")
    snapshot = kafka.snapshot()
    producer.send(kafka, b"never was")
    kafka.restore(snapshot)
    producer.end(kafka, committed=True)
    producer.send(kafka, b"of another")
    producer.end(kafka, committed=True)
    assert values(kafka, read_committed=True) == [b"first", b"of another"]


def test_a_transaction_ends_where_the_snapshot_has_nothing_of_it(kafka: Kafka) -> None:
    kafka.topic("orders")
    producer = Producer(kafka, "payments")
    producer.begin(kafka)
    for _ in range(2):
        snapshot = kafka.snapshot()
        producer.send(kafka, b"never was")
        kafka.restore(snapshot)
        producer.end(kafka, committed=True)
        assert refuses(kafka, producer, sequence=producer.sequence + 1)
        producer.send(kafka, b"of another")
        producer.end(kafka, committed=True)
        producer.begin(kafka)
    assert values(kafka, read_committed=True) == [b"of another", b"of another"]


def test_a_snapshot_whose_producers_are_damaged_is_put_back(kafka: Kafka) -> None:
    kafka.topic("orders")
    producer = Producer(kafka)
    producer.send(kafka, b"first")
    snapshot = kafka.snapshot()
    (node,) = snapshot.nodes.values()
    damaged = {
        path: b"damaged" for path, _ in node.storage.files() if path.endswith("orders-0/00000000000000000001.snapshot")
    }
    assert damaged
    kafka.restore(replace(snapshot, nodes={0: NodeSnapshot(node.storage.with_files(damaged, 0))}))
    assert values(kafka) == [b"first"]
    producer.send(kafka, b"next")


def test_a_producer_id_is_given_once_however_often_a_snapshot_is_restored(kafka: Kafka) -> None:
    snapshot = kafka.snapshot()
    ids: list[int] = []
    for _ in range(4):
        ids += [Producer(kafka).producer_id, Producer(kafka).producer_id]
        kafka.restore(snapshot)
    assert len({*ids}) == len(ids)


def test_settings_rules_and_quotas_come_back() -> None:
    authorizer = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    with Kafka(settings={"authorizer.class.name": authorizer, "super.users": "User:ANONYMOUS"}) as kafka:
        kafka.topic("orders", settings={"retention.ms": 1000})
        add_rule(kafka, "reader")
        set_quota(kafka, 1000.0)
        set_of_broker(kafka, "message.max.bytes", "2000")
        snapshot = kafka.snapshot()
        add_rule(kafka, "other")
        set_quota(kafka, 1.0)
        set_of_broker(kafka, "message.max.bytes", "3000")
        kafka.restore(snapshot)
        broker = kafka.world.nodes[0].serving()
        assert broker.configs.log_config("orders").retention_ms == 1000
        assert broker.configs.log_config("orders").max_message_bytes == 2000
        assert rules(kafka) == ["User:reader"]
        (entry,) = kafka.ask(DescribeClientQuotasRequest(components=[], strict=False)).entries
        assert [(each.key, each.value) for each in entry.values] == [("producer_byte_rate", 1000.0)]
        with pytest.raises(KafkaError, match="larger"):
            kafka.produce("orders", "x" * 2500)


def add_rule(kafka: Kafka, user: str) -> None:
    rule = AclCreation(
        resource_type=2, resource_name="orders", principal=f"User:{user}", host="*", operation=3, permission_type=3
    )
    assert not kafka.ask(CreateAclsRequest(creations=[rule])).results[0].error_code


def rules(kafka: Kafka) -> list[str]:
    everything = DescribeAclsRequest(
        resource_type_filter=1,
        resource_name_filter=None,
        pattern_type_filter=1,
        principal_filter=None,
        host_filter=None,
        operation=1,
        permission_type=1,
    )
    return [acl.principal for resource in kafka.ask(everything).resources for acl in resource.acls]


def set_quota(kafka: Kafka, rate: float) -> None:
    entity = [EntityData(entity_type="user", entity_name="billing")]
    entry = EntryData(entity=entity, ops=[OpData(key="producer_byte_rate", value=rate, remove=False)])
    assert not kafka.ask(AlterClientQuotasRequest(entries=[entry], validate_only=False)).entries[0].error_code


def set_of_broker(kafka: Kafka, name: str, value: str) -> None:
    config = IncrementalConfig(name=name, config_operation=0, value=value)
    resource = IncrementalConfigsResource(resource_type=4, resource_name="", configs=[config])
    answer = kafka.ask(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False))
    assert not answer.responses[0].error_code


def test_a_snapshot_has_what_a_clean_stop_leaves(kafka: Kafka) -> None:
    kafka.topic("orders", partitions=2, settings={"segment.bytes": 1 << 20, "cleanup.policy": "compact"})
    kafka.topic("empty")
    for number in range(5):
        kafka.produce("orders", "x" * 300_000, key=f"{number % 3}", partition=0)
    producer = Producer(kafka, "tx")
    producer.send(kafka, b"aborted")
    producer.end(kafka, committed=False)
    producer.send(kafka, b"open")
    commit(kafka, "billing", 1)
    kafka.clock.freeze()  # what is due on the way would be written by the one and not by the other
    try:
        node = kafka.world.nodes[0]
        taken = kafka.loop.call_sync(closed, node.serving())
        kafka.loop.call(node.stop)
        assert contents_of(taken) == contents_of(node.storage.snapshot())
    finally:
        kafka.clock.speed(1)


def contents_of(snapshot: StorageSnapshot) -> dict[str, bytes]:
    return {path: bytes(file.contents) for path, file in snapshot.files()}


def test_taking_a_snapshot_changes_nothing_for_the_broker(kafka: Kafka) -> None:
    kafka.topic("orders")
    kafka.produce("orders", "a")
    kafka.clock.freeze()
    try:
        assert kafka.snapshot() == kafka.snapshot()
    finally:
        kafka.clock.speed(1)
    assert not any("cleanshutdown" in path for path in kafka.world.nodes[0].storage.files())
    kafka.produce("orders", "b")
    assert values(kafka) == [b"a", b"b"]


def test_a_snapshot_of_a_full_or_broken_disk_is_whole(kafka: Kafka) -> None:
    kafka.topic("orders")
    kafka.produce("orders", "a")
    disk = kafka.world.nodes[0].storage
    disk.space_left, disk.fail = 0, lambda operation, path: OSError(5, "Input/output error", path)
    snapshot = kafka.snapshot()
    assert disk.space_left == 0 and disk.fail is not None
    kafka.restore(snapshot)
    kafka.produce("orders", "b")
    assert values(kafka) == [b"a", b"b"]


def test_a_fork_and_its_origin_are_apart(kafka: Kafka) -> None:
    kafka.topic("orders")
    kafka.produce("orders", "a")
    with kafka.fork() as first, first.fork() as second:
        assert len({kafka.bootstrap, first.bootstrap, second.bootstrap}) == 3
        for number, each in enumerate((kafka, first, second)):
            each.produce("orders", str(number))
        first.topic("mine")
        assert [values(each) for each in (kafka, first, second)] == [[b"a", b"0"], [b"a", b"1"], [b"a", b"2"]]
        assert [len(each.topics()) for each in (kafka, first, second)] == [1, 2, 1]
    assert values(kafka) == [b"a", b"0"]


def test_a_snapshot_in_a_file_makes_a_world_of_its_own(kafka: Kafka, tmp_path: Path) -> None:
    path = tmp_path / "orders.ottla"
    kafka.topic("orders")
    kafka.produce("orders", "a")
    kafka.snapshot().save(path)
    with Kafka.of(path) as made:
        assert values(made) == [b"a"]
    kafka.produce("orders", "b")
    kafka.restore(str(path))
    assert values(kafka) == [b"a"]
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(LabError, match=r"orders\.ottla is damaged"):
        kafka.restore(path)
    assert values(kafka) == [b"a"]


def test_time_never_goes_back_behind_a_snapshot(kafka: Kafka) -> None:
    kafka.topic("orders")
    kafka.clock.advance(minutes=10)
    snapshot = kafka.snapshot()
    kafka.reset()  # which sets the clock to the time of day
    assert kafka.clock.now_ms < snapshot.taken_ms
    kafka.restore(snapshot)
    assert kafka.clock.now_ms >= snapshot.taken_ms


def test_a_restore_cuts_connections(kafka: Kafka) -> None:
    snapshot = kafka.snapshot()
    host, _, port = kafka.bootstrap.partition(":")
    with socket.create_connection((host, int(port))) as client:
        kafka.restore(snapshot)
        assert client.recv(1) == b""
    socket.create_connection((host, int(port))).close()


def test_a_broker_that_was_down_is_down_after_a_restore(kafka: Kafka) -> None:
    kafka.topic("orders")
    kafka.loop.call(kafka.world.nodes[0].kill)
    snapshot = kafka.snapshot()
    kafka.loop.call(kafka.world.nodes[0].start)
    kafka.restore(snapshot)
    assert not kafka.world.nodes[0].is_running
    kafka.loop.call(kafka.world.nodes[0].start)
    assert kafka.topics() == {"orders": 1}


def test_a_cluster_comes_back_as_a_whole() -> None:
    with Kafka(3) as kafka:
        kafka.topic("orders", partitions=3)
        for partition in range(3):
            kafka.produce("orders", str(partition), partition=partition)
        commit(kafka, "billing", 1)
        snapshot = kafka.snapshot()
        kafka.produce("orders", "later", partition=0)
        kafka.loop.call(kafka.world.nodes[2].kill)
        kafka.restore(snapshot)
        assert all(node.is_running for node in kafka.world.nodes.values())
        assert sorted(values(kafka)) == [b"0", b"1", b"2"]
        assert committed(kafka, "billing") == [1]
        with Kafka.of(snapshot) as fork:
            fork.produce("orders", "in the fork", partition=1)
            assert len(values(fork)) == 4 and len(values(kafka)) == 3


def test_a_cluster_leads_and_coordinates_when_a_restore_or_a_fork_returns() -> None:
    with Kafka(3) as kafka:
        kafka.topic("orders", partitions=6)
        groups = [f"g{each}" for each in range(6)]
        for each in groups:
            commit(kafka, each, 1)
        snapshot = kafka.snapshot()
        for _ in range(3):
            kafka.restore(snapshot)
            assert values(kafka) == [] and kafka.groups() == groups
            with kafka.fork() as fork:
                assert values(fork) == [] and fork.groups() == groups


def test_a_snapshot_of_other_brokers_is_refused(kafka: Kafka) -> None:
    with Kafka(3) as cluster:
        snapshot = cluster.snapshot()
    with pytest.raises(LabError, match=r"^The snapshot is of brokers 1, 2, 3 and this Kafka has broker 0; Kafka\.of"):
        kafka.restore(snapshot)
    assert kafka.topics() == {}


def test_restores_at_the_same_time_come_one_after_the_other(kafka: Kafka) -> None:
    kafka.topic("orders")
    kafka.produce("orders", "a")
    snapshot = kafka.snapshot()
    problems: list[BaseException] = []

    def restore() -> None:
        try:
            kafka.restore(snapshot)
        except BaseException as problem:  # noqa: BLE001 - shown below
            problems.append(problem)

    threads = [threading.Thread(target=restore) for _ in range(3)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not problems
    kafka.produce("orders", "b")
    assert values(kafka) == [b"a", b"b"]


def test_a_kafka_that_is_closed_during_a_restore_leaves_nothing_running(monkeypatch: pytest.MonkeyPatch) -> None:
    kafka = Kafka()
    world, snapshot = kafka.world, kafka.snapshot()
    starting = threading.Event()
    go_on = threading.Event()
    start = world.start

    async def delayed(nodes: Iterable[Node], *, reserved: bool) -> None:
        starting.set()
        while not go_on.is_set():
            await trio.lowlevel.checkpoint()
        await start(nodes, reserved=reserved)

    monkeypatch.setattr(world, "start", delayed)
    problems: list[BaseException] = []

    def restore() -> None:
        try:
            kafka.restore(snapshot)
        except BaseException as problem:  # noqa: BLE001 - shown below
            problems.append(problem)

    thread = threading.Thread(target=restore)
    thread.start()
    assert starting.wait(30)
    kafka.close()
    go_on.set()
    thread.join()
    assert "was closed while a snapshot" in str(problems[0])
    assert not world.nodes[0].is_running and world not in world.loop.worlds


def test_groups_are_listed_when_all_are_loaded(kafka: Kafka, monkeypatch: pytest.MonkeyPatch) -> None:
    async def load_slowly(*arguments: Any) -> Any:
        for _ in range(500):
            await trio.lowlevel.checkpoint()
        return await shard_from_log(*arguments)

    monkeypatch.setattr(partition_runtime, "shard_from_log", load_slowly)
    kafka.topic("orders")
    names = [f"group-{number}" for number in range(8)]
    for name in names:
        kafka.group(name).commit({("orders", 0): 0})
    kafka.restore(kafka.snapshot())
    assert kafka.groups() == names


def test_a_restore_needs_no_time(kafka: Kafka) -> None:
    kafka.topic("orders")
    kafka.clock.freeze()
    try:
        frozen = kafka.clock.now_ms
        kafka.restore(kafka.snapshot())
        assert kafka.clock.now_ms == frozen and kafka.topics() == {"orders": 1}
    finally:
        kafka.clock.speed(1)


def test_a_file_of_the_first_version_is_opened_for_ever() -> None:
    with Kafka.of(Path(__file__).parent / "golden" / "version-1.ottla") as kafka:
        first = kafka.records("orders")[0]
        assert (first.key, first.value, first.headers) == (b"k", b"first", (("h", b"1"),))
        assert values(kafka, read_committed=True) == [b"first", b"committed"]
        assert values(kafka) == [b"first", b"committed", b"aborted"]
        assert kafka.group("billing").offsets == {("orders", 0): 2}
        # Its retention is off, so that its records stay however old they are.
        kafka.clock.advance(minutes=10)
        kafka.produce("orders", "new")
        assert len(values(kafka)) == 4


def test_brokers_that_are_cut_off_or_down_are_back_after_a_restore(monkeypatch: pytest.MonkeyPatch) -> None:
    with Kafka(3) as kafka:
        kafka.topic("orders", partitions=3)
        kafka.produce("orders", "a", partition=0)
        snapshot = kafka.snapshot()
        kafka.broker(1).kill()
        kafka.broker(2).isolate()

        async def given(brokers: Iterable[Broker]) -> bytes:
            # What is asked over a way that is cut is answered when the session is given up, seconds later.
            assert not kafka.world._links[2].to_service_cut
            return await given_ids(brokers)

        monkeypatch.setattr(snapshots, "given_ids", given)
        kafka.restore(snapshot)
        kafka.loop.call(kafka.world.until_shown, "orders")
        assert values(kafka) == [b"a"]
        assert all(broker.is_running for broker in kafka.brokers)


def test_a_broker_that_cannot_start_in_a_restore_is_named_and_the_others_serve() -> None:
    with Kafka(3) as kafka:
        kafka.topic("orders")
        kafka.produce("orders", "a")
        snapshot = kafka.snapshot()
        host, _, port = kafka.broker(2).address.partition(":")
        kafka.broker(2).kill()
        with socket.create_server((host, int(port))):
            with pytest.raises(
                LabError, match=r"put back, but broker 2 could not start: .*kafka\.broker\(2\)\.start\(\)"
            ):
                kafka.restore(snapshot)
            assert [each.is_running for each in kafka.brokers] == [True, False, True]
        kafka.broker(2).start()
        while kafka.partition("orders").isr != [1, 2, 3]:
            kafka.clock.advance(seconds=1)
        assert values(kafka) == [b"a"]
    with Kafka() as kafka:
        snapshot = kafka.snapshot()
        host, _, port = kafka.bootstrap.partition(":")
        kafka.broker(0).kill()
        with socket.create_server((host, int(port))), pytest.raises(LabError, match="broker 0 could not start"):
            kafka.restore(snapshot)
        kafka.broker(0).start()
        kafka.topic("orders")
