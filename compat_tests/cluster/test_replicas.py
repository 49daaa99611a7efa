"""What clients see of replication when brokers stop, hang and come back: the same of Ottla and of Apache Kafka 3.9.

Every test runs against three brokers of Ottla and (`make proofs`) against three of Apache Kafka, in a cluster with a ZooKeeper of its own.
"""

import contextlib
import secrets
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import pytest
from compat_tests.apache.brokers import ApacheKafka3
from compat_tests.support.brokers import BrokerProcess, OttlaProcess, wait_until
from compat_tests.support.cluster import Cluster
from compat_tests.support.raw import Peer, batch, fetch, message_class, produce, response
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from ottla.wire.errors import ErrorCode

LAG_S = 2.0
SETTINGS = {
    "auto.create.topics.enable": "false",
    "replica.lag.time.max.ms": str(int(LAG_S * 1000)),
    "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
    "zookeeper.session.timeout.ms": "8000",  # a broker that hangs for a while keeps its session
    "auto.leader.rebalance.enable": "true",
    "leader.imbalance.check.interval.seconds": "1",
}
RACKS = ("a", "b", "b")
PRODUCE, FETCH = 10, 16  # the first versions that name the new leader (KIP-951)


@pytest.fixture(
    scope="module",
    params=[pytest.param(OttlaProcess, id="ottla"), pytest.param(ApacheKafka3, id="kafka", marks=pytest.mark.long)],
)
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Use topics of your own, and leave all brokers running."""
    each = [{"broker.rack": rack} for rack in RACKS]
    with Cluster(tmp_path_factory.mktemp("replicas"), (request.param,) * 3, SETTINGS, each=each) as cluster:
        yield cluster


class Topic:
    """One partition, and what its replicas answer."""

    def __init__(self, cluster: Cluster, name: str, replicas: list[int], **config: str) -> None:
        self.cluster, self.name = cluster, name
        settings = {key.replace("_", "."): value for key, value in config.items()}
        new = NewTopic(name, 1, replica_assignment=[replicas], config=settings)
        self._ask(lambda admin: admin.create_topics([new])[name])
        self.until(
            lambda it: sorted(it.isr_nodes) == sorted(replicas) and it.leader_id == replicas[0], "all are in sync"
        )

    def seen_by(self, broker: BrokerProcess) -> Any | None:
        answer = self.cluster.metadata(broker, self.name)
        return answer.topics[0].partitions[0] if answer is not None and answer.topics[0].partitions else None

    def until(self, is_so: Callable[[Any], bool], what: str) -> None:
        """Wait until all running brokers say so of the partition."""
        for broker in self.cluster.running:
            wait_until(lambda broker=broker: (seen := self.seen_by(broker)) is not None and is_so(seen), what, 60)

    def produce(self, broker: int, value: bytes, acks: int = -1, timeout_ms: int = 20_000) -> Any:
        """What one broker answers; None if it hangs up."""
        with self.peer(broker) as peer:
            peer.send(produce(self.name, batch([value]), acks=acks, version=PRODUCE, timeout_ms=timeout_ms))
            payload = peer.receive()
        return None if payload is None else response("Produce", PRODUCE, payload)

    def produced(self, broker: int, value: bytes, acks: int = -1, timeout_ms: int = 20_000) -> tuple[int, int]:
        """The error code and the base offset that one broker answers."""
        answer = self.produce(broker, value, acks, timeout_ms).responses[0].partition_responses[0]
        return answer.error_code, answer.base_offset

    def fetch(self, broker: int, offset: int = 0, **options: Any) -> Any:
        """What one broker answers to a consumer: the whole, and the partition."""
        [topic] = self.cluster.anyones_metadata(self.name).topics
        with self.peer(broker) as peer:
            peer.send(fetch(self.name, offset, version=FETCH, topic_id=topic.topic_id, **options))
            answer = response("Fetch", FETCH, peer.receive())
        return answer, answer.responses[0].partitions[0]

    def end_of_epoch(self, broker: int, epoch: int) -> tuple[int, int]:
        """The largest epoch up to this one, and where it ends."""
        named = message_class("OffsetForLeaderEpochRequest").OffsetForLeaderTopic
        asked = named.OffsetForLeaderPartition(version=3, partition=0, current_leader_epoch=-1, leader_epoch=epoch)
        topics = [named(version=3, topic=self.name, partitions=[asked])]
        with self.peer(broker) as peer:
            answer = peer.call("OffsetForLeaderEpoch", 3, replica_id=-1, topics=topics).topics[0].partitions[0]
        return answer.leader_epoch, answer.end_offset

    def end(self, broker: int) -> int:
        """Where the leader's log ends, for a consumer: the high watermark."""
        named = message_class("ListOffsetsRequest").ListOffsetsTopic
        asked = named.ListOffsetsPartition(version=4, partition_index=0, current_leader_epoch=-1, timestamp=-1)
        topics = [named(version=4, name=self.name, partitions=[asked])]
        with self.peer(broker) as peer:
            answer = peer.call("ListOffsets", 4, replica_id=-1, isolation_level=0, topics=topics)
        return answer.topics[0].partitions[0].offset

    def configure(self, kind: ResourceType, name: str, operation: AlterConfigOpType, **settings: str) -> None:
        entries = [
            ConfigEntry(key.replace("_", "."), value, incremental_operation=operation)
            for key, value in settings.items()
        ]
        resource = ConfigResource(kind, name, incremental_configs=entries)
        self._ask(lambda admin: admin.incremental_alter_configs([resource])[resource])

    def _ask(self, question: Callable[[AdminClient], Future[None]]) -> None:
        """With a client of its own: an older one might go on looking for a controller that was killed."""
        admin = AdminClient({"bootstrap.servers": self.cluster.bootstrap, "log_level": 0})
        question(admin).result(60)

    def values(self, rack: str = "") -> list[bytes]:
        """All that a client reads."""
        settings = {"bootstrap.servers": self.cluster.bootstrap, "group.id": "x", "enable.partition.eof": True}
        client = Consumer(settings | ({"client.rack": rack} if rack else {}))
        client.assign([TopicPartition(self.name, 0, 0)])
        found: list[bytes] = []
        while True:
            message = client.poll(60)
            assert message is not None, "nothing is told for 60 s"
            if message.error() is not None:
                assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                client.close()
                return found
            found.append(message.value())

    def peer(self, broker: int) -> Peer:
        process = self.cluster.brokers[broker]
        return Peer((process.host, process.port), timeout_s=60)


@contextlib.contextmanager
def hanging(cluster: Cluster, *numbers: int) -> Iterator[None]:
    """Brokers that do not move meanwhile (SIGSTOP)."""
    brokers = [cluster.brokers[number] for number in numbers]
    for broker in brokers:
        broker.pause()
    try:
        yield
    finally:
        for broker in brokers:
            broker.resume()
        cluster.wait_until_whole()


@pytest.fixture
def topic(cluster: Cluster, unique: Callable[[str], str]) -> Callable[..., Topic]:
    """With all brokers at work, whatever the test before has left."""
    cluster.start_brokers([broker for broker in cluster.brokers if broker.died()])
    return lambda replicas, **config: Topic(cluster, unique("replicas"), replicas, **config)


# --- what acknowledges a record ---------------------------------------------------------------------------------------


def test_without_enough_replicas_in_sync_acks_all_is_refused_and_others_wait_to_be_read(topic) -> None:
    it = topic([0, 1, 2], min_insync_replicas="2")
    brokers = it.cluster.brokers
    assert it.produced(0, b"all") == (ErrorCode.NONE, 0)
    for number in (1, 2):
        brokers[number].stop()
    it.until(lambda seen: seen.isr_nodes == [0], "the leader is alone")
    assert it.produced(0, b"refused") == (ErrorCode.NOT_ENOUGH_REPLICAS, -1)
    assert it.produced(0, b"for one", acks=1) == (ErrorCode.NONE, 1)
    assert it.end(0) == 1
    _, partition = it.fetch(0, 1, max_wait_ms=300, min_bytes=1)
    assert (partition.error_code, partition.high_watermark, len(partition.records or b"")) == (ErrorCode.NONE, 1, 0)
    for number in (1, 2):
        brokers[number].restart()
    it.cluster.wait_until_whole()
    wait_until(lambda: it.end(0) == 2, "what one replica held is held by all")
    assert it.produced(0, b"all again") == (ErrorCode.NONE, 2)


def test_who_waits_for_too_few_replicas_is_told_where_the_record_is_when_time_is_up(topic) -> None:
    """The high watermark stands still while the ISR is too small: the record is neither acknowledged nor readable."""
    it = topic([0, 1, 2], min_insync_replicas="2")
    with hanging(it.cluster, 1, 2):
        assert it.produced(0, b"too few", timeout_ms=int(2.5 * LAG_S * 1000)) == (ErrorCode.REQUEST_TIMED_OUT, 0)
        assert it.end(0) == 0
    wait_until(lambda: it.end(0) == 1, "it was appended all the same")


def test_a_follower_that_hangs_leaves_the_isr_and_comes_back(topic) -> None:
    it = topic([0, 1, 2], min_insync_replicas="2")
    with hanging(it.cluster, 2):
        assert it.produced(0, b"without the third") == (ErrorCode.NONE, 0)  # once the ISR is smaller
        leader = it.cluster.brokers[0]
        wait_until(lambda: (seen := it.seen_by(leader)) and sorted(seen.isr_nodes) == [0, 1], "it is out of sync")
        assert it.produced(0, b"at once") == (ErrorCode.NONE, 1)
    it.until(lambda seen: sorted(seen.isr_nodes) == [0, 1, 2], "it is in sync again")


def test_acks_0_gets_no_answer_and_an_end_where_nobody_leads(topic) -> None:
    it = topic([0, 1])
    with it.peer(0) as peer:
        peer.send(produce(it.name, batch([b"unanswered"]), acks=0, version=PRODUCE))
        assert peer.call("Metadata", 9, topics=[]).controller_id >= 0  # the next word is of the next request
    wait_until(lambda: it.end(0) == 1, "it was appended")
    assert it.produce(1, b"wrong address", acks=0) is None


# --- who leads --------------------------------------------------------------------------------------------------------


def test_a_replica_that_is_not_in_sync_leads_only_if_it_may(topic) -> None:
    it = topic([1, 2])
    first, second = it.cluster.brokers[1:]
    assert it.produced(1, b"everywhere") == (ErrorCode.NONE, 0)
    second.stop()
    it.until(lambda seen: seen.isr_nodes == [1], "the leader is alone")
    assert it.produced(1, b"lost") == (ErrorCode.NONE, 1)
    first.kill()
    it.until(lambda seen: seen.leader_id == -1, "nobody leads")
    second.restart()
    it.until(lambda seen: seen.offline_replicas == [1], "the other replica is back")
    seen = it.seen_by(second)
    assert (seen.error_code, seen.leader_id, seen.isr_nodes) == (ErrorCode.LEADER_NOT_AVAILABLE, -1, [1])
    assert it.produced(2, b"refused")[0] == ErrorCode.NOT_LEADER_OR_FOLLOWER
    it.configure(ResourceType.TOPIC, it.name, AlterConfigOpType.SET, unclean_leader_election_enable="true")
    it.until(lambda seen: (seen.leader_id, seen.isr_nodes) == (2, [2]), "it leads all the same")
    assert it.produced(2, b"in its place") == (ErrorCode.NONE, 1)
    # A consumer that has read what is lost hears of it, by its epochs: 0 at first, 1 alone if that was handed over in time,
    # then nobody, then now.
    now = it.seen_by(second).leader_epoch
    told = {epoch: it.fetch(2, 2, current_leader_epoch=epoch)[1].error_code for epoch in (0, now - 1, now, now + 1)}
    fenced, unknown = ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH
    assert told == {0: fenced, now - 1: fenced, now: ErrorCode.NONE, now + 1: unknown}
    diverging = it.fetch(2, 2, last_fetched_epoch=1)[1].diverging_epoch
    assert (diverging.epoch, diverging.end_offset) == (0, 1)
    assert [it.end_of_epoch(2, epoch) for epoch in (0, now - 1, now, now + 6)] == [(0, 1), (0, 1), (now, 2), (-1, -1)]
    first.restart()
    it.cluster.wait_until_whole()
    it.until(lambda seen: sorted(seen.isr_nodes) == [1, 2], "the first one drops what the second never had")
    assert it.values() == [b"everywhere", b"in its place"]


def test_leadership_returns_to_the_preferred_replica_by_itself(topic) -> None:
    it = topic([1, 0])
    it.cluster.brokers[1].stop()
    it.until(lambda seen: seen.leader_id == 0, "another one leads")
    it.cluster.brokers[1].restart()
    it.cluster.wait_until_whole()
    it.until(lambda seen: seen.leader_id == 1, "it leads again")


def test_who_asks_the_wrong_broker_is_told_the_leader(topic) -> None:
    it = topic([1, 2])
    leader = it.cluster.brokers[1]
    produced = it.produce(2, b"x")
    fetched, partition = it.fetch(0)
    for answer, part in ((produced, produced.responses[0].partition_responses[0]), (fetched, partition)):
        assert part.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (part.current_leader.leader_id, part.current_leader.leader_epoch) == (1, 0)
        assert [(each.node_id, each.host, each.port, each.rack) for each in answer.node_endpoints] == [
            (1, leader.host, leader.port, "b")
        ]


# --- who is read from -------------------------------------------------------------------------------------------------


def test_consumers_read_from_the_replica_in_their_rack(topic) -> None:
    it = topic([0, 1])
    for number in range(3):
        assert it.produced(0, b"%d" % number) == (ErrorCode.NONE, number)
    _, elsewhere = it.fetch(0, rack_id="b")
    assert (elsewhere.error_code, elsewhere.preferred_read_replica, len(elsewhere.records or b"")) == (0, 1, 0)
    wait_until(lambda: it.fetch(1, rack_id="b")[1].high_watermark == 3, "the follower knows what is committed")
    _, here = it.fetch(1, rack_id="b")
    assert (here.error_code, here.preferred_read_replica) == (ErrorCode.NONE, -1)
    assert len(here.records) > 0
    for rack in ("a", "c", ""):
        _, leaders = it.fetch(0, rack_id=rack)
        assert (leaders.error_code, leaders.preferred_read_replica, len(leaders.records) > 0) == (0, -1, True)
    assert it.fetch(1, offset=7, rack_id="b")[1].error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert it.fetch(2, rack_id="b")[1].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert it.values(rack="b") == [b"0", b"1", b"2"]


# --- how fast replicas are filled -------------------------------------------------------------------------------------


def test_a_follower_that_was_away_catches_up_while_a_producer_goes_on(topic) -> None:
    """`make bench ARGS="--only failover"` measures how long the producer waits."""
    it = topic([0, 2, 1], min_insync_replicas="2")
    away = it.cluster.brokers[2]
    away.stop()
    errors: list[KafkaError] = []
    counts = Counter[str]()

    def delivered(error: KafkaError | None, _: object) -> None:
        counts["acknowledged"] += 1
        if error is not None:
            errors.append(error)

    producer = Producer({"bootstrap.servers": it.cluster.bootstrap, "acks": "all", "log_level": 0})
    for _ in range(1000):
        producer.produce(it.name, secrets.token_bytes(50_000), partition=0, on_delivery=delivered)
        producer.poll(0)
    assert producer.flush(60) == 0
    away.launch()

    def is_in_sync() -> bool:
        producer.produce(it.name, b"meanwhile", partition=0, on_delivery=delivered)
        producer.poll(0)
        seen = it.seen_by(it.cluster.brokers[0])
        return seen is not None and sorted(seen.isr_nodes) == [0, 1, 2]

    wait_until(is_in_sync, "it is in sync", 120)
    assert producer.flush(60) == 0
    assert errors == []
    away.wait_until_serving()
    it.cluster.wait_until_whole()
    it.cluster.brokers[0].stop()
    it.until(lambda seen: seen.leader_id == 2, "the one that was away leads")
    assert it.end(2) == counts["acknowledged"]
    it.cluster.brokers[0].restart()
    it.cluster.wait_until_whole()


def test_a_throttled_replica_is_complete_when_the_throttle_is_gone(topic) -> None:
    it, free = topic([0, 1]), topic([0, 1])
    value = secrets.token_bytes(900_000)
    for number in range(4):  # the first fetch is never throttled, and may take 1 MB
        for each in (it, free):
            assert each.produced(0, value) == (ErrorCode.NONE, number)
    rates = {"leader_replication_throttled_rate": "1000", "follower_replication_throttled_rate": "1000"}
    everyone = {"leader_replication_throttled_replicas": "*", "follower_replication_throttled_replicas": "*"}
    for number in range(3):
        it.configure(ResourceType.BROKER, str(number), AlterConfigOpType.SET, **rates)
    it.configure(ResourceType.TOPIC, it.name, AlterConfigOpType.SET, **everyone)
    it.cluster.reassign(it.name, {0: [0, 1, 2]})
    held = it.cluster.brokers[2].data_dir / f"{it.name}-0"
    wait_until(lambda: any(each.stat().st_size for each in held.glob("*.log")), "the first fetch has come")
    it.cluster.reassign(free.name, {0: [0, 1, 2]})
    free.until(
        lambda seen: sorted(seen.isr_nodes) == [0, 1, 2], "the replica that may be as fast as it can is complete"
    )
    assert sorted(it.seen_by(it.cluster.brokers[0]).isr_nodes) == [0, 1]
    it.configure(ResourceType.TOPIC, it.name, AlterConfigOpType.DELETE, **everyone)
    it.until(lambda seen: sorted(seen.isr_nodes) == [0, 1, 2], "the new replica is complete")
    for number in range(3):
        it.configure(ResourceType.BROKER, str(number), AlterConfigOpType.DELETE, **rates)
