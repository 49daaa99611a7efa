"""Clients that work while faults happen and write down all they do: producers, readers, a group and somebody who asks for ends.

Each is a thread of its own with a librdkafka client. What the client library bears by itself (a broken connection, a leader
that moved) is no event. `finish` ends a client and raises what went wrong in its thread.
"""

import contextlib
import itertools
import logging
import random
import sys
import threading
import time
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterator

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from ottla.server.testing.history.history import (
    UNKNOWN_OFFSET,
    Acknowledged,
    EndSeen,
    EpochRaised,
    Failed,
    OffsetCommitted,
    OffsetFailed,
    OffsetFetched,
    OffsetSent,
    ProducerBegan,
    ReachedEnd,
    Read,
    ReadBegan,
    ReadFailed,
    Recorder,
    Sent,
    told,
)

QUICK = {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 200, "retry.backoff.ms": 50, "log_level": 0}
# Given before anything is appended, so that a record with one of these is sure not to be there; but only without
# retries that went before, and of these errors the broker's answer is the same every time.
REFUSALS = {KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.INVALID_RECORD, KafkaError._QUEUE_FULL}
UNFINISHED_MAX = 2000
NO_PROGRESS_S = 60.0
BURST, OF_ONE_REQUEST = 40, 2
"""Records that a producer which sends in bursts has for one partition at a time, and those that it puts into a request."""


class Client(threading.Thread):
    """Does `turn` again and again until it is told to finish."""

    def __init__(self, name: str, record: Recorder) -> None:
        super().__init__(name=name, daemon=True)
        self.add = record.add
        self.is_over = threading.Event()
        self.failure: BaseException | None = None

    def turn(self) -> None:
        raise NotImplementedError

    def close(self) -> None:
        """Called in the thread, after the last turn."""

    def run(self) -> None:
        try:
            while not self.is_over.is_set():
                self.turn()
            self.close()
        except BaseException as failure:  # noqa: BLE001 - finish() raises it
            self.failure = failure

    def _stack(self) -> str:
        frame = sys._current_frames().get(self.ident or 0)
        return "".join(traceback.format_stack(frame)[-4:])

    def finish(self) -> None:
        self.is_over.set()
        self.join(2 * NO_PROGRESS_S + 30)
        assert not self.is_alive(), f"{self.name} does not come to an end:\n{self._stack()}"
        if self.failure is not None:
            raise self.failure


def _logger(name: str, take: Callable[[str], None]) -> logging.Logger:
    """Hands on what a librdkafka client logs."""
    logger = logging.getLogger(f"librdkafka.{name.replace('.', '-')}")
    logger.setLevel(logging.DEBUG)
    logger.propagate = False
    handler = logging.Handler()
    handler.emit = lambda record: take(record.getMessage())  # type: ignore[method-assign]
    logger.handlers = [handler]
    return logger


class RecordedProducer(Client):
    """An idempotent producer with acks=all and five requests in flight, on all partitions of a topic in turns."""

    def __init__(
        self,
        name: str,
        record: Recorder,
        bootstrap: str,
        topic: str,
        partitions: int,
        rate: float,
        value_bytes: int,
        *,
        in_bursts: bool = False,
    ) -> None:
        """`rate`: about how many records a second. Values have up to value_bytes.

        In bursts: a partition gets so many records at a time that requests for it come together at the broker, which
        appends them in one write. Producers that take partitions in turns never make it do so.
        """
        super().__init__(name, record)
        self._random = random.Random(name)
        self._burst = BURST if in_bursts else 1
        self._topic, self._pause, self._value_bytes = topic, self._burst / rate, value_bytes
        self._partitions = itertools.cycle(range(partitions))
        self._numbers = itertools.count()
        self.sent = self.acknowledged = self.failed = self.epochs_raised = 0
        self._producer = Producer(
            QUICK
            | {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 3,
                "compression.type": self._random.choice(["none", "lz4", "zstd"]),
                "error_cb": self._noticed,
                "debug": "eos",
                "log_level": 7,
            }
            # What is compressed is not appended together.
            | ({"compression.type": "none", "batch.num.messages": OF_ONE_REQUEST} if in_bursts else {}),
            logger=_logger(name, self._logged),
        )
        self.add(ProducerBegan, name, True, -1)

    def turn(self) -> None:
        partition = next(self._partitions)
        behind = self.sent - self.acknowledged - self.failed > UNFINISHED_MAX
        # Bursts would pile up faster than a busy machine takes them, and the end of a run waits for all of them.
        for _ in range(1 if behind else self._burst):
            self._send(partition)
        end = time.monotonic() + (0.1 if behind else self._pause)
        while (left := end - time.monotonic()) > 0 and not self.is_over.is_set():
            self._producer.poll(left)

    def _send(self, partition: int) -> None:
        value = f"{self.name} {next(self._numbers)} ".encode()
        if self._random.random() < 0.2:
            value += self._random.randbytes(self._random.randrange(self._value_bytes))
        words = told(value)
        self.add(Sent, self.name, self._topic, partition, words)
        self.sent += 1
        try:
            self._producer.produce(
                self._topic,
                value,
                partition=partition,
                on_delivery=lambda e, m: self._delivered(words, partition, e, m),
            )
        except KafkaException as refusal:  # such as of a client that a broker of Apache Kafka told of no such topic
            self.failed += 1
            self.add(Failed, self.name, self._topic, partition, words, refusal.args[0].name(), False)
            self.is_over.wait(0.1)

    def _delivered(self, words: str, partition: int, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.acknowledged += 1
            offset = message.offset()
            self.add(
                Acknowledged, self.name, self._topic, partition, words, UNKNOWN_OFFSET if offset is None else offset
            )
        else:
            self.failed += 1
            self.add(Failed, self.name, self._topic, partition, words, error.name(), error.code() not in REFUSALS)

    def _logged(self, words: str) -> None:
        if "epoch bump" in words:
            self.epochs_raised += 1
        if "epoch bump" in words or "skipped sequence numbers" in words:
            self.add(EpochRaised, self.name, words)

    def _noticed(self, error: KafkaError) -> None:
        if error.fatal():
            self.failure = KafkaException(error)
            self.is_over.set()

    def close(self) -> None:
        left = self._producer.flush(NO_PROGRESS_S)
        assert left == 0, f"{self.name}: {left} records were neither acknowledged nor refused in {NO_PROGRESS_S} s"


def consumer_of(bootstrap: str, committed_only: bool, **settings: object) -> Consumer:
    isolation = "read_committed" if committed_only else "read_uncommitted"
    fixed = {"bootstrap.servers": bootstrap, "enable.auto.commit": False, "auto.offset.reset": "error"}
    return Consumer(
        QUICK | fixed | {"group.id": "nobody", "isolation.level": isolation, "fetch.wait.max.ms": 100} | settings
    )


def _by_partition(messages: list[Message]) -> Iterator[tuple[int, tuple[tuple[int, str], ...]]]:
    records: dict[int, list[tuple[int, str]]] = defaultdict(list)
    for message in messages:
        if message.error() is None:
            records[message.partition()].append((message.offset(), told(message.value())))
    for partition, found in records.items():
        yield partition, tuple(found)


class RecordedReader(Client):
    """Reads all partitions from the start and goes on as records come."""

    ENDS = (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._LOG_TRUNCATION)

    def __init__(
        self, name: str, record: Recorder, bootstrap: str, topic: str, partitions: int, committed_only: bool
    ) -> None:
        super().__init__(name, record)
        self._topic = topic
        self.read = 0
        self._consumer = consumer_of(bootstrap, committed_only)
        for partition in range(partitions):
            self.add(ReadBegan, name, topic, partition, 0, committed_only)
        self._consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])

    def turn(self) -> None:
        messages = self._consumer.consume(500, timeout=0.1)
        for partition, records in _by_partition(messages):
            self.add(Read, self.name, self._topic, partition, records)
            self.read += len(records)
        for message in messages:
            if (error := message.error()) and error.code() in self.ENDS:
                self.add(ReadFailed, self.name, self._topic, message.partition(), error.str())

    def close(self) -> None:
        self._consumer.close()


class RecordedGroup(Client):
    """Commits offsets of a group and asks for them again. They need not be offsets of records."""

    def __init__(self, name: str, record: Recorder, bootstrap: str, topic: str, partitions: int) -> None:
        super().__init__(name, record)
        self._random = random.Random(name)
        self._topic, self._partitions = topic, partitions
        self._offsets = itertools.count(1)
        self._consumer = consumer_of(bootstrap, False, **{"group.id": name})
        self.committed = self.fetched = 0

    def turn(self) -> None:
        partition = self._random.randrange(self._partitions)
        if self._random.random() < 0.7:
            self._commit(partition, next(self._offsets))
        else:
            self._fetch(partition)
        self.is_over.wait(0.01)

    def _commit(self, partition: int, offset: int) -> None:
        where = (self.name, self._topic, partition, offset)
        self.add(OffsetSent, *where)
        try:
            [answer] = self._consumer.commit(offsets=[TopicPartition(*where[1:])], asynchronous=False)
            if answer.error is not None:
                raise KafkaException(answer.error)
        except KafkaException as failure:
            self.add(OffsetFailed, *where, failure.args[0].name(), True)
        else:
            self.committed += 1
            self.add(OffsetCommitted, *where)

    def _fetch(self, partition: int) -> None:
        with contextlib.suppress(KafkaException):  # nothing was learned
            [answer] = self._consumer.committed([TopicPartition(self._topic, partition)], timeout=5)
            if answer.error is None:
                self.fetched += 1
                self.add(OffsetFetched, self.name, self._topic, partition, max(answer.offset, UNKNOWN_OFFSET))

    def close(self) -> None:
        for partition in range(self._partitions):
            self._fetch(partition)
        self._consumer.close()


class RecordedViewer(Client):
    """Asks for the ends of all partitions."""

    def __init__(self, name: str, record: Recorder, bootstrap: str, topic: str, partitions: int) -> None:
        super().__init__(name, record)
        self._asked = {TopicPartition(topic, partition): OffsetSpec.latest() for partition in range(partitions)}
        self._admin = AdminClient(QUICK | {"bootstrap.servers": bootstrap})
        self.seen = 0

    def turn(self) -> None:
        for asked, future in self._admin.list_offsets(self._asked, request_timeout=5).items():
            with contextlib.suppress(KafkaException):
                found = future.result()
                self.seen += 1
                self.add(EndSeen, self.name, asked.topic, asked.partition, found.offset, found.leader_epoch)
        self.is_over.wait(0.05)


def _start_of(consumer: Consumer, topic: str, partition: int) -> int:
    """The leader may just have moved, which this question is not asked again for by itself."""
    deadline = time.monotonic() + NO_PROGRESS_S
    while True:
        try:
            return int(consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=NO_PROGRESS_S)[0])
        except KafkaException:
            if time.monotonic() > deadline:
                raise
        time.sleep(0.1)


def read_to_end(name: str, record: Recorder, bootstrap: str, topic: str, partitions: int, committed_only: bool) -> None:
    """A final reader, which reads all partitions from their start to their end."""
    consumer = consumer_of(bootstrap, committed_only, **{"enable.partition.eof": True, "auto.offset.reset": "error"})
    left = {}
    for partition in range(partitions):
        start = _start_of(consumer, topic, partition)
        record.add(ReadBegan, name, topic, partition, start, committed_only, True)
        left[partition] = TopicPartition(topic, partition, start)
    consumer.assign(list(left.values()))
    with contextlib.closing(consumer):
        deadline = time.monotonic() + NO_PROGRESS_S
        while left and time.monotonic() < deadline:
            messages = consumer.consume(500, timeout=0.5)
            for partition, records in _by_partition(messages):
                deadline = time.monotonic() + NO_PROGRESS_S
                record.add(Read, name, topic, partition, records)
            for message in messages:
                error = message.error()
                if error and error.code() == KafkaError._PARTITION_EOF and left.pop(message.partition(), None):
                    record.add(ReachedEnd, name, topic, message.partition(), message.offset())
                elif error and error.code() in RecordedReader.ENDS and left.pop(message.partition(), None):
                    record.add(ReadFailed, name, topic, message.partition(), error.str())
    for partition in left:
        record.add(ReadFailed, name, topic, partition, f"no record and no end in {NO_PROGRESS_S} s")
