"""Three brokers, every partition on all of them: what acknowledged records cost, how long they wait, and who takes over.

The clients are those of the single-broker rows. `broker CPU` is the sum of all three: a record is written three times and
fetched twice by the brokers themselves.
"""

import time
from collections.abc import Callable, Generator, Mapping
from typing import Any

from benchmarks.brokers import Broker, stop_all
from benchmarks.clients import new_topic
from benchmarks.clusters import KINDS, SESSION_S, ThreeBrokers, Watched
from benchmarks.rows import Metric, Row, at_least, at_most, within
from benchmarks.session import Session, warm_up
from benchmarks.wire_client import Client
from benchmarks.workloads.latency import latency
from benchmarks.workloads.throughput import (
    KIB,
    MIB,
    Produce,
    by_librdkafka,
    partitions_name,
    records_of,
    size_name,
)
from compat_tests.support.brokers import BrokerProcess

LIBRDKAFKA = "librdkafka"
TUNED = [Produce(LIBRDKAFKA, KIB, 64 * KIB, "all", 3), Produce(LIBRDKAFKA, KIB, MIB, "all", 12)]
BYTES = 300e6
# Until the JVMs of three brokers have compiled what is hot on two processors; with less Kafka looks ten times as slow.
WARM_UP_PASSES, QUICK_WARM_UP_PASSES = 5, 4
LATENCY_RATE, LATENCY_S = 1000, 5
LATENCIES = {"p50_us": "p50", "p99_us": "p99", "p999_us": "p99.9"}
# Of 2,000 partitions every broker has a replica, and leads a third.
PARTITIONS, PARTITIONS_PER_TOPIC = 2000, 100
NAME = "three brokers, replication 3"


def rows(session: Session) -> Generator[Row]:
    clusters = [session.new(kind) for kind in KINDS if not kind.missing()]
    try:
        for cluster in clusters:
            cluster.start()
            warm_up(cluster, QUICK_WARM_UP_PASSES if session.quick else WARM_UP_PASSES)
        for workload in TUNED[:1] if session.quick else TUNED:
            yield throughput_row(session, clusters, workload)
        yield latency_row(session, clusters)
        for cluster in clusters:
            grow(cluster)
        yield from takeover_rows(session, clusters)
    finally:
        stop_all(clusters)


def throughput_row(session: Session, clusters: list[Broker], workload: Produce) -> Row:
    batches = f"linger 5 ms, {size_name(workload.batch)} batches"
    return Row(
        f"{NAME}, produce 1 KiB, {LIBRDKAFKA}, {batches}, acks=all, {partitions_name(workload.partitions)}",
        clusters,
        produce(session, workload),
        (
            Metric("MB/s", "MB/s", at_least(1.0), more_is_better=True, digits=0),
            Metric("s/GB", "s/GB", at_most(0.5 if workload.batch == MIB else 0.6), label="broker CPU"),
        ),
        session.rounds,
        beside=[Metric("client s/GB", "s/GB", label="client CPU")],
    )


def produce(session: Session, workload: Produce) -> Callable[[Broker], Mapping[str, float]]:
    def run(broker: Broker) -> Mapping[str, float]:
        records = records_of(session, BYTES, workload.size)
        with new_topic(broker, workload.partitions) as topic:
            return by_librdkafka(broker, topic, workload, records)

    return run


def latency_row(session: Session, clusters: list[Broker]) -> Row:
    metrics = [
        Metric(key, "us", at_most(1.0) if key == "p99_us" else None, digits=0, label=label)
        for key, label in LATENCIES.items()
    ]
    run = latency(LATENCY_RATE, max(2, int(LATENCY_S * session.share)))
    return Row(f"{NAME}, latency at {LATENCY_RATE:,} records/s, acks=all", clusters, run, metrics, session.rounds)


# --- many partitions, and somebody has to take over -------------------------------------------------------------------


def grow(cluster: ThreeBrokers) -> None:
    """2,000 partitions; returns when every broker knows a leader of each."""
    with Client(cluster.admin_port, timeout_s=180) as client:
        for number in range(PARTITIONS // PARTITIONS_PER_TOPIC):
            client.create_topics([f"many-{number:02}"], PARTITIONS_PER_TOPIC, cluster.replication_factor)
    with Watched(cluster) as watched:
        for broker in cluster.cluster.brokers:
            watched.wait_for(
                lambda at=broker: sum(led >= 0 for led in watched.leaders(at)) >= PARTITIONS, "2,000 leaders"
            )


def takeover_rows(session: Session, clusters: list[Broker]) -> Generator[Row]:
    rounds = 1 if session.quick else 2
    name = f"three brokers, {PARTITIONS:,} partitions on each"
    failures = (
        Metric(
            "from_kill_s", "s", within(10, "s"), label=f"killed broker to leaders for all ({SESSION_S:.0f} s session)"
        ),
        Metric("from_session_end_s", "s", label="from the end of the session to leaders for all"),
    )
    yield Row(name, clusters, fail_over, failures, rounds)
    control = Metric("control_s", "s", within(5, "s"), label="lost controller to the next one's first topic")
    yield Row(name, clusters, lose_controller, [control], rounds + 1)


def fail_over(three: Broker) -> Mapping[str, float]:
    """A broker that is not the controller is killed; afterwards it comes back and leads again what it led."""
    assert isinstance(three, ThreeBrokers)
    cluster = three.cluster
    number = next(each for each, broker in enumerate(cluster.brokers) if broker is not cluster.controller())
    victim = cluster.brokers[number]
    with Watched(three) as watched:
        before = watched.leaders(cluster.controller())
        killed = time.perf_counter()
        victim.kill()
        ended = watched.wait_for(lambda: not watched.has(f"/brokers/ids/{number}"), "the session has ended")
        led = max(
            watched.wait_for(lambda at=broker: _is_led(watched, at, number), "leaders") for broker in cluster.running
        )
        cluster.start_brokers([victim])
        _lead_again(watched, cluster.brokers, before)
    return {"from_kill_s": led - killed, "from_session_end_s": led - ended}


def _is_led(watched: Watched, broker: BrokerProcess, without: int) -> bool:
    leaders = watched.leaders(broker)
    return len(leaders) >= PARTITIONS and all(leader not in (without, -1) for leader in leaders)


def _lead_again(watched: Watched, brokers: list[BrokerProcess], before: list[int]) -> None:
    """After the broker's return: all replicas in sync, and as many led by it as before."""
    watched.wait_for(
        lambda: all(
            len(part.isr_nodes) == len(brokers) for topic in watched.topics(brokers[0]) for part in topic.partitions
        ),
        "all replicas are in sync again",
    )
    with Client(watched.cluster.controller().port) as client:
        client.elect_preferred_leaders()
    watched.wait_for(lambda: sorted(watched.leaders(brokers[0])) == sorted(before), "leaders are as before")


def lose_controller(three: Broker) -> Mapping[str, float]:
    """As people do it: /controller is deleted, and there is another election."""
    assert isinstance(three, ThreeBrokers)
    topic = f"next-{time.monotonic_ns()}"
    with Watched(three) as watched:
        epoch, _ = watched.zookeeper.get("/controller_epoch")
        began = time.perf_counter()
        watched.zookeeper.delete("/controller")
        watched.wait_for(lambda: watched.zookeeper.get("/controller_epoch")[0] != epoch, "there is another controller")
        watched.wait_for(lambda: _created(three, topic), "a topic is created")
        led = max(
            watched.wait_for(lambda at=broker: _all_led(watched.topics(at, [topic])), "the topic is led")
            for broker in three.cluster.brokers
        )
    return {"control_s": led - began}


def _created(three: ThreeBrokers, topic: str) -> bool:
    try:
        with Client(three.admin_port) as client:
            client.create_topics([topic], 1, three.replication_factor)
    except (OSError, RuntimeError):
        return False
    return True


def _all_led(topics: list[Any]) -> bool:
    return bool(topics) and all(
        topic.partitions and all(part.leader_id >= 0 for part in topic.partitions) for topic in topics
    )
