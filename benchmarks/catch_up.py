"""How fast a follower that was away for long catches up, and what its doing so costs a producer.

    python -m benchmarks.catch_up                        Ottla, 2 GB
    python -m benchmarks.catch_up --apache-kafka         three brokers of Apache Kafka 3.9 instead
    python -m benchmarks.catch_up --gigabytes 8

One partition on three brokers, min.insync.replicas=2, acks=all. One follower stops, and the others are given so much. Then a
producer of 1,000 records a second goes on while the follower starts again, until it is in sync; the same producer before
that says what is usual. The speed is that of the follower's log, from its first new byte until it is in sync.
"""

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.clusters import FullSizeKafka
from benchmarks.steady_producer import SteadyProducer
from compat_tests.support.brokers import BrokerProcess, OttlaProcess, wait_until
from compat_tests.support.cluster import Cluster
from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

TOPIC = "filled"
VALUE = bytes(1024)
RECORDS_PER_S = 1000
USUAL_S = 10.0
GIGABYTE = 1_000_000_000


class Timed(SteadyProducer):
    """Notes how long each acknowledgement took."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(1 / RECORDS_PER_S)
        self._took_ms: list[float] = []
        self._producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 0, "log_level": 0})

    def _send(self) -> None:
        self._producer.produce(TOPIC, VALUE, partition=0, on_delivery=self._delivered)

    def _wait(self, seconds: float) -> None:
        self._producer.poll(seconds)

    def _flush(self) -> None:
        self._producer.flush(60)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self._took_ms.append(message.latency() * 1000)
        else:
            self.errors.append(error.str())

    def take(self) -> list[float]:
        """What was noted since the last time."""
        taken, self._took_ms = self._took_ms, []
        return taken


def held_bytes(broker: BrokerProcess) -> int:
    return sum(each.stat().st_size for each in (broker.data_dir / f"{TOPIC}-0").glob("*.log"))


def in_sync(cluster: Cluster) -> int:
    found = cluster.partitions(TOPIC)
    return len(found[0].isr_nodes) if found else 0


def fill(cluster: Cluster, size: int) -> None:
    settings = {"bootstrap.servers": cluster.bootstrap, "acks": "all", "batch.size": 1_000_000, "linger.ms": 20}
    producer = Producer(settings | {"log_level": 0, "queue.buffering.max.kbytes": 100_000})
    value = bytes(50_000)
    for _ in range(size // len(value)):
        while True:
            try:
                producer.produce(TOPIC, value, partition=0)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(600) == 0


def told(what: str, took_ms: list[float]) -> None:
    took_ms.sort()
    p50, p99, p999 = (took_ms[int(len(took_ms) * share)] for share in (0.5, 0.99, 0.999))
    print(f"{what:34} p50 {p50:6.1f} ms  p99 {p99:6.1f} ms  p99.9 {p999:6.1f} ms  max {took_ms[-1]:6.1f} ms", flush=True)


def measure(cluster: Cluster, size: int) -> bool:
    """Whether no error came to the producer."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    new = NewTopic(TOPIC, 1, replica_assignment=[[0, 1, 2]], config={"min.insync.replicas": "2"})
    admin.create_topics([new])[TOPIC].result(30)
    away = cluster.brokers[2]
    away.stop()
    fill(cluster, size)
    producer = Timed(cluster.bootstrap)
    producer.start()
    time.sleep(2)  # its first records are slow
    producer.take()
    time.sleep(USUAL_S)
    told("produced with two replicas", producer.take())
    before = held_bytes(away)
    away.start()
    wait_until(lambda: held_bytes(away) > before, "the follower fetches", 60)
    begin, held = time.perf_counter(), held_bytes(away)
    told("while the third one started", producer.take())
    wait_until(lambda: in_sync(cluster) == 3, "the follower is in sync", 600)
    seconds = time.perf_counter() - begin
    told("while the third one caught up", producer.take())
    print(f"it caught up with {(held_bytes(away) - held) / seconds / 1e6:.0f} MB/s, in {seconds:.1f} s", flush=True)
    time.sleep(USUAL_S)
    told("produced with three replicas", producer.take())
    producer.finish()
    for words in sorted(set(producer.errors)):
        print(f"    {words}")
    return not producer.errors


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.catch_up", description=__doc__.splitlines()[0])
    parser.add_argument("--gigabytes", type=float, default=2)
    parser.add_argument("--apache-kafka", action="store_true", help="measure Apache Kafka 3.9")
    chosen = parser.parse_args()
    kind = FullSizeKafka if chosen.apache_kafka else OttlaProcess
    directory = Path(tempfile.mkdtemp(prefix="ottla-catch-up-"))
    try:
        with Cluster(directory / "cluster", [kind] * 3) as cluster:
            return 0 if measure(cluster, int(chosen.gigabytes * GIGABYTE)) else 1
    finally:
        shutil.rmtree(directory)


if __name__ == "__main__":
    sys.exit(main())
