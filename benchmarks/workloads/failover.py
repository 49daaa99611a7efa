"""Three brokers while one of them goes or comes back: how long a producer is interrupted, how fast a follower catches up.

Interruptions: one partition, min.insync.replicas=2. An idempotent producer of kafka-python sends 200 small records a second
with acks=all. An interruption is the longest time between two acknowledgements around the event, after a SIGKILL it is
counted from the kill. Between two events all replicas come back into sync. (librdkafka would measure itself here: without a
connection to a leader it asks for another one once a second, and then waits for a second more.)

Catching up: a follower stops, the others are given a gigabyte. Then a producer of 1,000 records a second goes on while the
follower starts again, until it is in sync. The speed is that of the follower's log, from its first new byte on.
"""

import time
from collections.abc import Callable, Generator, Mapping
from statistics import median

from benchmarks.brokers import Broker, Failed, stop_all
from benchmarks.clusters import KINDS, SESSION_S, ThreeBrokers
from benchmarks.rows import Metric, Row, at_least, at_most
from benchmarks.session import Session, warm_up
from benchmarks.steady_producer import Acknowledged, Timed
from compat_tests.support.brokers import BrokerProcess, wait_until
from compat_tests.support.cluster import Cluster
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

LED, FILLED = "led", "filled"
EVENTS, QUICK_EVENTS = {"moved": 5, "stopped": 3, "killed": 3}, {"moved": 2, "stopped": 1, "killed": 1}
CALM_S = 1.0
SYNC_S = 120.0
FILL_BYTES = 1_000_000_000
FILL_VALUE = bytes(50_000)
USUAL_S = 5.0


def rows(session: Session) -> Generator[Row]:
    clusters = [session.new(kind) for kind in KINDS if not kind.missing()]
    events = QUICK_EVENTS if session.quick else EVENTS
    try:
        for cluster in clusters:
            cluster.start()
            warm_up(cluster, 1)
        name = f"three brokers, a producer's longest wait, median of {events['killed']} to {events['moved']} times"
        interruptions = (
            Metric("moved_ms", "ms", digits=0, label="leader moved as planned"),
            Metric("stopped_ms", "ms", at_most(1.0), digits=0, label="controlled shutdown of the leader"),
            Metric(
                "killed_ms", "ms", at_most(1.0), digits=0, label=f"SIGKILL of the leader, {SESSION_S:.0f} s session"
            ),
        )
        yield Row(name, clusters, lambda broker: interruptions_of(_cluster(broker), events), interruptions, rounds=1)
        catching_up = (
            Metric("MB/s", "MB/s", at_least(1.0), more_is_better=True, digits=0, label="speed"),
            Metric("p99_ms", "ms", at_most(1.0), label="a producer's p99 meanwhile"),
        )
        size = int(FILL_BYTES * session.share)
        name = f"three brokers, a follower catches up with {size / 1e9:g} GB"
        yield Row(name, clusters, lambda broker: catch_up(_cluster(broker), size), catching_up, rounds=1)
    finally:
        stop_all(clusters)


def _cluster(broker: Broker) -> Cluster:
    assert isinstance(broker, ThreeBrokers)
    return broker.cluster


def _new_topic(cluster: Cluster, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    topic = NewTopic(name, 1, replica_assignment=[[0, 1, 2]], config={"min.insync.replicas": "2"})
    admin.create_topics([topic])[name].result(30)


def _until_in_sync(cluster: Cluster, topic: str) -> None:
    def are_in_sync() -> bool:
        found = cluster.partitions(topic)
        return bool(found) and len(found[0].isr_nodes) == len(cluster.brokers)

    wait_until(are_in_sync, "all replicas are in sync", SYNC_S)


# --- interruptions ----------------------------------------------------------------------------------------------------


def interruptions_of(cluster: Cluster, events: Mapping[str, int]) -> Mapping[str, float]:
    """The median of a producer's longest waits, for each kind of event."""
    _new_topic(cluster, LED)
    _until_in_sync(cluster, LED)
    producer = Acknowledged(cluster.bootstrap, LED)
    producer.start()
    producer.wait_for_more()
    kinds: dict[str, Callable[[Cluster, Acknowledged], float]] = {"moved": move, "stopped": stop, "killed": kill}
    waits = {f"{kind}_ms": median(kinds[kind](cluster, producer) * 1000 for _ in range(events[kind])) for kind in kinds}
    producer.finish()
    if producer.errors:
        raise Failed(f"the producer was told: {producer.errors[0]}")
    return waits


def move(cluster: Cluster, producer: Acknowledged) -> float:
    """Another replica becomes the preferred one, and leads."""
    replicas = list(cluster.partitions(LED)[0].replica_nodes)
    target = replicas[1:] + replicas[:1]
    cluster.reassign(LED, {0: target})
    since = time.perf_counter()
    cluster.elect_preferred(LED, [0])
    wait_until(lambda: cluster.partitions(LED)[0].leader_id == target[0], "the leader has moved")
    return _longest_wait(producer, since)


def stop(cluster: Cluster, producer: Acknowledged) -> float:
    leader = cluster.leader(LED)
    since = time.perf_counter()
    leader.stop()
    wait = _longest_wait(producer, since)
    _bring_back(cluster, leader)
    return wait


def kill(cluster: Cluster, producer: Acknowledged) -> float:
    leader = cluster.leader(LED)
    killed = time.perf_counter()
    leader.kill()
    producer.wait_for_more()
    _, end = producer.longest_wait(killed - CALM_S)
    _bring_back(cluster, leader)
    return end - killed


def _longest_wait(producer: Acknowledged, since: float) -> float:
    """The producer's longest wait around `since`, in seconds; asked once it is certainly over."""
    time.sleep(max(0.0, since + CALM_S - time.perf_counter()))
    producer.wait_for_more()
    begin, end = producer.longest_wait(since - CALM_S)
    return end - begin


def _bring_back(cluster: Cluster, broker: BrokerProcess) -> None:
    cluster.start_brokers([broker])
    _until_in_sync(cluster, LED)


# --- catching up ------------------------------------------------------------------------------------------------------


def catch_up(cluster: Cluster, size: int) -> Mapping[str, float]:
    _new_topic(cluster, FILLED)
    away = cluster.brokers[2]
    away.stop()
    _fill(cluster, size)
    producer = Timed(cluster.bootstrap, FILLED)
    producer.start()
    time.sleep(USUAL_S)
    before = _held_bytes(away)
    cluster.start_brokers([away])
    wait_until(lambda: _held_bytes(away) > before, "the follower fetches", 60)
    began, held = time.perf_counter(), _held_bytes(away)
    producer.take()
    _until_in_sync(cluster, FILLED)
    seconds = time.perf_counter() - began
    took_ms = sorted(producer.take())
    producer.finish()
    if producer.errors:
        raise Failed(f"the producer was told: {producer.errors[0]}")
    return {"MB/s": (_held_bytes(away) - held) / seconds / 1e6, "p99_ms": took_ms[int(len(took_ms) * 0.99)]}


def _fill(cluster: Cluster, size: int) -> None:
    settings = {"bootstrap.servers": cluster.bootstrap, "acks": "all", "batch.size": 1_000_000, "linger.ms": 20}
    producer = Producer(settings | {"log_level": 0, "queue.buffering.max.kbytes": 100_000})
    for _ in range(size // len(FILL_VALUE)):
        while True:
            try:
                producer.produce(FILLED, FILL_VALUE, partition=0)
                break
            except BufferError:
                producer.poll(0.1)
    if producer.flush(600):
        raise Failed("the records that a follower is to catch up with were not acknowledged")


def _held_bytes(broker: BrokerProcess) -> int:
    return sum(each.stat().st_size for each in (broker.data_dir / f"{FILLED}-0").glob("*.log"))
