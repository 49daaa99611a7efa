"""How long a producer gets no acknowledgements when its partition gets another leader: killed, shut down, or moved as planned.

    python -m benchmarks.failover                        Ottla, 20 of each
    python -m benchmarks.failover --apache-kafka         three brokers of Apache Kafka 3.9 instead
    python -m benchmarks.failover --rounds 100 --session-ms 6000
    python -m benchmarks.failover --client librdkafka    instead of kafka-python

One partition on three brokers, min.insync.replicas=2; an idempotent producer sends 200 small records a second with acks=all,
with its default settings but for how soon it connects and asks again. An interruption is the longest time between two
acknowledgements that follow each other, around the event; after a SIGKILL it is counted from the kill. Between two events
all replicas come back into sync.

After a SIGKILL librdkafka measures itself: while it cannot connect to a leader it asks for another one once a second, and
once it was told that the old one is gone, it waits for one more second before it goes to the new one.
"""

import argparse
import itertools
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.steady_producer import SteadyProducer
from compat_tests.apache.brokers import ApacheKafka3
from compat_tests.support.brokers import OttlaProcess, wait_until
from compat_tests.support.cluster import Cluster
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaProducer

TOPIC = "led"
# A broker that was down is tried again after up to 10 s by default, and the next leader is often one that was.
# With the clients' own pauses, which grow to seconds, these would be what is measured.
RECONNECT = {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 100, "retry.backoff.ms": 20}
ASK_AGAIN = {"retry.backoff.max.ms": 100, "topic.metadata.refresh.fast.interval.ms": 50}  # librdkafka only
INTERVAL_S = 0.005
CALM_S = 1.0
SYNC_S = 120.0


class Acknowledged(SteadyProducer):
    """Notes when acknowledgements come."""

    def __init__(self) -> None:
        super().__init__(INTERVAL_S)
        self.acknowledged: list[float] = []

    def wait_for_more(self, count: int = 20) -> None:
        wanted = len(self.acknowledged) + count
        wait_until(lambda: len(self.acknowledged) >= wanted, "acknowledgements", 60)

    def longest_silence(self, since: float) -> tuple[float, float]:
        """When it began and ended; `since` is when to look first."""
        times = [at for at in self.acknowledged if at >= since - CALM_S]
        return max(itertools.pairwise(times), key=lambda pair: pair[1] - pair[0])


class KafkaPython(Acknowledged):
    """The one of kafka-python, which asks for a new leader as soon as it has lost the old one."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__()
        pauses = {name.replace(".", "_"): value for name, value in RECONNECT.items()}
        self._producer = KafkaProducer(
            bootstrap_servers=bootstrap, enable_idempotence=True, acks="all", linger_ms=0, **pauses
        )

    def _send(self) -> None:
        sent = self._producer.send(TOPIC, b"x" * 100, partition=0)
        sent.add_callback(lambda _: self.acknowledged.append(time.perf_counter()))
        sent.add_errback(lambda error: self.errors.append(str(error)))

    def _wait(self, seconds: float) -> None:
        time.sleep(seconds)

    def _flush(self) -> None:
        self._producer.close(timeout=60)


class Librdkafka(Acknowledged):
    """The one of confluent-kafka."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__()
        settings = {"bootstrap.servers": bootstrap, "enable.idempotence": True, "acks": "all", "log_level": 0}
        self._producer = Producer(settings | RECONNECT | ASK_AGAIN | {"linger.ms": 0, "error_cb": self._noticed})

    def _send(self) -> None:
        self._producer.produce(TOPIC, b"x" * 100, partition=0, on_delivery=self._delivered)
        self._producer.poll(0)

    def _wait(self, seconds: float) -> None:
        self._producer.poll(seconds)

    def _flush(self) -> None:
        self._producer.flush(60)

    def _delivered(self, error: KafkaError | None, _: object) -> None:
        if error is None:
            self.acknowledged.append(time.perf_counter())
        else:
            self.errors.append(error.str())

    def _noticed(self, error: KafkaError) -> None:
        if error.code() not in (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN):  # connections come and go
            self.errors.append(error.str())


CLIENTS: dict[str, Callable[[str], Acknowledged]] = {"kafka-python": KafkaPython, "librdkafka": Librdkafka}


class Measured:
    def __init__(self, cluster: Cluster, rounds: int, client: Callable[[str], Acknowledged]) -> None:
        self._cluster = cluster
        self._rounds = rounds
        self._client = client

    def run(self, session_ms: int) -> bool:
        """Whether all is within its bounds."""
        admin = AdminClient({"bootstrap.servers": self._cluster.bootstrap, "log_level": 0})
        new = NewTopic(TOPIC, 1, 3, config={"min.insync.replicas": "2"})
        admin.create_topics([new])[TOPIC].result(30)
        self._settle()
        self._producer = self._client(self._cluster.bootstrap)
        self._producer.start()
        self._producer.wait_for_more()
        moved = self._measure("leader moved as planned", self._move, 200)
        errors_of_moves = len(self._producer.errors)
        stopped = self._measure("controlled shutdown of the leader", self._stop, 200)
        killed = self._measure("SIGKILL of the leader", self._kill, session_ms + 1000)
        self._producer.finish()
        print(f"errors that clients saw: {errors_of_moves} while leaders moved, {len(self._producer.errors)} in all")
        for words in sorted(set(self._producer.errors)):
            print(f"    {words}")
        return moved and stopped and killed and not self._producer.errors

    def _measure(self, name: str, event: Callable[[], float], bound_ms: float) -> bool:
        silences = sorted(event() * 1000 for _ in range(self._rounds))
        p50, p99 = (silences[min(len(silences) - 1, int(len(silences) * share))] for share in (0.5, 0.99))
        verdict = "" if p99 <= bound_ms else "   <- too long"
        print(
            f"{name:36} {self._rounds} times, silence p50 {p50:7.1f} ms  p99 {p99:7.1f} ms  max {silences[-1]:7.1f} ms"
            f"  (bound {bound_ms:.0f} ms){verdict}",
            flush=True,
        )
        return p99 <= bound_ms

    def _move(self) -> float:
        replicas = list(self._cluster.partitions(TOPIC)[0].replica_nodes)
        target = replicas[1:] + replicas[:1]
        self._cluster.reassign(TOPIC, {0: target})
        since = time.perf_counter()
        self._cluster.elect_preferred(TOPIC, [0])
        wait_until(lambda: self._cluster.partitions(TOPIC)[0].leader_id == target[0], "the leader has moved")
        return self._silence(since)

    def _stop(self) -> float:
        leader = self._cluster.leader(TOPIC)
        since = time.perf_counter()
        leader.stop()
        silence = self._silence(since)
        self._cluster.start_brokers([leader])
        self._settle()
        return silence

    def _kill(self) -> float:
        leader = self._cluster.leader(TOPIC)
        since = time.perf_counter()
        leader.kill()
        self._producer.wait_for_more()
        _, end = self._producer.longest_silence(since)
        self._cluster.start_brokers([leader])
        self._settle()
        return end - since

    def _silence(self, since: float) -> float:
        """Once it is over for sure."""
        while time.perf_counter() < since + CALM_S:
            time.sleep(0.01)
        self._producer.wait_for_more()
        begin, end = self._producer.longest_silence(since)
        return end - begin

    def _settle(self) -> None:
        wait_until(
            lambda: (found := self._cluster.partitions(TOPIC)) and len(found[0].isr_nodes) == 3, "in sync", SYNC_S
        )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.failover", description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--session-ms", type=int, default=6000)
    parser.add_argument("--client", choices=CLIENTS, default="kafka-python")
    parser.add_argument("--apache-kafka", action="store_true", help="measure Apache Kafka 3.9")
    chosen = parser.parse_args()
    kind = ApacheKafka3 if chosen.apache_kafka else OttlaProcess
    directory = Path(tempfile.mkdtemp(prefix="ottla-failover-"))
    settings = {"zookeeper.session.timeout.ms": str(chosen.session_ms)}
    cluster = Cluster(directory / "cluster", [kind] * 3, settings)
    for server in cluster.zookeeper.servers:
        server.settings |= {"maxSessionTimeout": "60000"}
    with cluster:
        is_within = Measured(cluster, chosen.rounds, CLIENTS[chosen.client]).run(chosen.session_ms)
    shutil.rmtree(directory)
    return 0 if is_within else 1


if __name__ == "__main__":
    sys.exit(main())
