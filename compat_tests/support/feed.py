"""A producer that never pauses, and a reader of all that is there: whoever breaks a broker learns by them what was lost."""

import contextlib
import threading
import time

from confluent_kafka import Consumer, Producer, TopicPartition


def read_all(bootstrap, topic, partition=0):
    """Everything in a partition from its start to its present end: [(offset, value)]."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "unused", "auto.offset.reset": "earliest"}
    consumer = Consumer(settings | {"enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, partition, 0)])
    found, deadline = [], time.monotonic() + 60
    with contextlib.closing(consumer):
        while time.monotonic() < deadline:
            message = consumer.poll(0.5)
            if message is not None and message.error():
                return found
            if message is not None:
                found.append((message.offset(), message.value()))
    raise AssertionError(f"no end after {len(found)} records")


class Feed:
    """Produces numbered records without a pause, in a thread, and remembers which were acknowledged and where."""

    def __init__(self, bootstrap, topic, partition=0, pace_s=0.001, **options):
        self.topic, self.partition, self.pace_s = topic, partition, pace_s
        self.producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 2,
                "batch.num.messages": 20,
                "retry.backoff.ms": 50,
                "reconnect.backoff.max.ms": 200,
                "log_level": 2,
                **options,
            }
        )
        self.produced = 0
        self.acknowledged: dict[int, int] = {}
        self.errors: list[object] = []
        self.stopping = threading.Event()
        self.thread = threading.Thread(target=self.run)

    def run(self):
        while not self.stopping.is_set():
            number = self.produced
            self.producer.produce(self.topic, b"%d" % number, partition=self.partition, on_delivery=self.delivered)
            self.produced += 1
            # At some pace, and not without limit while the broker is away.
            self.producer.poll(0.05 if self.produced - len(self.acknowledged) > 2000 else self.pace_s)

    def delivered(self, error, message):
        if error:
            self.errors.append(error)
        else:
            self.acknowledged[int(message.value())] = message.offset()

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *failure):
        self.stopping.set()
        self.thread.join()

    def finish(self):
        """Stops producing and waits for everything to be acknowledged."""
        self.stopping.set()
        self.thread.join()
        assert self.producer.flush(60) == 0
        assert not self.errors
