"""Producers that send at a steady pace, whatever comes of it, and note how that goes."""

import itertools
import threading
import time
from abc import ABC, abstractmethod

from compat_tests.support.brokers import wait_until
from confluent_kafka import KafkaError, Message, Producer
from kafka import KafkaProducer

# A broker that was down is tried again after up to 10 s by default, and the next leader is often one that was.
# With the clients' own pauses, which grow to seconds, these would be what is measured.
RECONNECT = {"reconnect_backoff_ms": 20, "reconnect_backoff_max_ms": 100, "retry_backoff_ms": 20}


class SteadyProducer(threading.Thread, ABC):
    """Sends a record every `interval_s` seconds until `finish`; what is late is sent as soon as that is possible."""

    def __init__(self, interval_s: float) -> None:
        super().__init__(daemon=True)
        self.errors: list[str] = []
        self._interval_s = interval_s
        self._is_over = threading.Event()

    @abstractmethod
    def _send(self) -> None:
        """Hand one record over."""

    @abstractmethod
    def _wait(self, seconds: float) -> None:
        """Until the next record is due."""

    @abstractmethod
    def _flush(self) -> None: ...

    def run(self) -> None:
        due = time.perf_counter()
        while not self._is_over.is_set():
            self._send()
            due += self._interval_s
            while (left := due - time.perf_counter()) > 0:
                self._wait(left)
        self._flush()

    def finish(self) -> None:
        self._is_over.set()
        self.join()


class Acknowledged(SteadyProducer):
    """Notes when acknowledgements come: kafka-python, which asks for a new leader as soon as it has lost the old one."""

    INTERVAL_S = 0.005

    def __init__(self, bootstrap: str, topic: str) -> None:
        super().__init__(self.INTERVAL_S)
        self._acknowledged: list[float] = []
        self._topic = topic
        self._producer = KafkaProducer(
            bootstrap_servers=bootstrap, enable_idempotence=True, acks="all", linger_ms=0, **RECONNECT
        )

    def wait_for_more(self, count: int = 20) -> None:
        wanted = len(self._acknowledged) + count
        wait_until(lambda: len(self._acknowledged) >= wanted, "acknowledgements", 60)

    def longest_wait(self, since: float) -> tuple[float, float]:
        """When the longest time between two acknowledgements began and ended, of those since then."""
        times = [at for at in self._acknowledged if at >= since]
        return max(itertools.pairwise(times), key=lambda pair: pair[1] - pair[0])

    def _send(self) -> None:
        sent = self._producer.send(self._topic, b"x" * 100, partition=0)
        sent.add_callback(lambda _: self._acknowledged.append(time.perf_counter()))
        sent.add_errback(lambda error: self.errors.append(str(error)))

    def _wait(self, seconds: float) -> None:
        time.sleep(seconds)

    def _flush(self) -> None:
        self._producer.close(timeout=60)


class Timed(SteadyProducer):
    """Notes how long each acknowledgement took, in milliseconds: librdkafka."""

    INTERVAL_S = 0.001
    VALUE = bytes(1024)

    def __init__(self, bootstrap: str, topic: str) -> None:
        super().__init__(self.INTERVAL_S)
        self._took_ms: list[float] = []
        self._topic = topic
        self._producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 0, "log_level": 0})

    def take(self) -> list[float]:
        """What was noted since the last time."""
        taken, self._took_ms = self._took_ms, []
        return taken

    def _send(self) -> None:
        self._producer.produce(self._topic, self.VALUE, partition=0, on_delivery=self._delivered)

    def _wait(self, seconds: float) -> None:
        self._producer.poll(seconds)

    def _flush(self) -> None:
        self._producer.flush(60)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self._took_ms.append(message.latency() * 1000)
        else:
            self.errors.append(error.str())
