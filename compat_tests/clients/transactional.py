"""Transactional producers of several clients, all with the same methods, and what a reader sees of their work."""

import asyncio
import contextlib
import subprocess
import time

import aiokafka
import aiokafka.errors
import confluent_kafka
import kafka
import kafka.errors


class Librdkafka:
    """A transactional producer of librdkafka."""

    fenced = confluent_kafka.KafkaException

    def __init__(self, bootstrap, transactional_id, timeout_ms=60_000):
        options = {"transactional.id": transactional_id, "transaction.timeout.ms": timeout_ms, "linger.ms": 0}
        self._producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap} | options)
        self._producer.init_transactions(60)
        self.begin = self._producer.begin_transaction

    def send(self, topic, *values):
        for value in values:
            self._producer.produce(topic, value)
        assert self._producer.flush(60) == 0

    def commit(self):
        self._producer.commit_transaction(60)

    def abort(self):
        self._producer.abort_transaction(60)

    def send_offset(self, topic, offset, group):
        # The metadata of a consumer that has no members: the group alone.
        with contextlib.closing(self._consumer(group)) as consumer:
            position = confluent_kafka.TopicPartition(topic, 0, offset)
            self._producer.send_offsets_to_transaction([position], consumer.consumer_group_metadata(), 60)

    def _consumer(self, group):
        return confluent_kafka.Consumer({"bootstrap.servers": "127.0.0.1:1", "group.id": group})

    def close(self):
        """librdkafka's producer ends when nobody holds it."""


class KafkaPython:
    """A transactional producer of kafka-python."""

    fenced = kafka.errors.KafkaError

    def __init__(self, bootstrap, transactional_id, timeout_ms=60_000):
        self._producer = kafka.KafkaProducer(
            bootstrap_servers=bootstrap, transactional_id=transactional_id, transaction_timeout_ms=timeout_ms
        )
        self._producer.init_transactions()
        self.begin = self._producer.begin_transaction
        self.commit = self._producer.commit_transaction
        self.abort = self._producer.abort_transaction
        self.close = self._producer.close

    def send(self, topic, *values):
        sent = [self._producer.send(topic, value) for value in values]
        self._producer.flush(60)
        for each in sent:
            each.get(timeout=60)

    def send_offset(self, topic, offset, group):
        position = {kafka.TopicPartition(topic, 0): kafka.OffsetAndMetadata(offset, "", -1)}
        self._producer.send_offsets_to_transaction(position, group)


class Aiokafka:
    """A transactional producer of aiokafka, on an event loop of its own."""

    fenced = aiokafka.errors.KafkaError

    def __init__(self, bootstrap, transactional_id, timeout_ms=60_000):
        self._runner = asyncio.Runner()
        self._producer = self._run(self._start(bootstrap, transactional_id, timeout_ms))

    async def _start(self, bootstrap, transactional_id, timeout_ms):
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=bootstrap, transactional_id=transactional_id, transaction_timeout_ms=timeout_ms
        )
        await producer.start()
        return producer

    def _run(self, work):
        async def within_time():
            async with asyncio.timeout(60):
                return await work

        return self._runner.run(within_time())

    def begin(self):
        self._run(self._producer.begin_transaction())

    def commit(self):
        self._run(self._producer.commit_transaction())

    def abort(self):
        self._run(self._producer.abort_transaction())

    def send(self, topic, *values):
        for value in values:
            self._run(self._producer.send_and_wait(topic, value))

    def send_offset(self, topic, offset, group):
        offsets = {aiokafka.TopicPartition(topic, 0): offset}
        self._run(self._producer.send_offsets_to_transaction(offsets, group))

    def close(self):
        with contextlib.suppress(aiokafka.errors.KafkaError):
            self._run(self._producer.stop())
        self._runner.close()


class Java:
    """A transactional producer of Java, in a process that does what it is told on its standard input."""

    def __init__(self, command, bootstrap, transactional_id):
        self._process = subprocess.Popen(
            [*command, "driven", bootstrap, "unused", transactional_id],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self._do("init")

    def _do(self, *words):
        self._process.stdin.write(" ".join(words) + "\n")
        self._process.stdin.flush()
        told = self._process.stdout.readline().strip()
        assert told == f"{words[0]}=done", f"{words}: {told}"

    def begin(self):
        self._do("begin")

    def send(self, topic, *values):
        for value in values:
            self._do("send", topic, value.decode())

    def send_offset(self, topic, offset, group):
        self._do("offset", topic, str(offset), group)

    def commit(self):
        self._do("commit")

    def abort(self):
        self._do("abort")

    def close(self):
        self._process.communicate(timeout=60)


def read(bootstrap, topic, isolation="read_committed", *, until=None, timeout_s=60):
    """The values up to the end of the partition as this reader sees it, once the value `until` is among them.

    The broker tells a producer that its transaction is committed, and writes the markers after that. Readers see them later.
    """
    settings = {"group.id": "unused", "enable.partition.eof": True, "isolation.level": isolation}
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap} | settings)
    values, deadline = [], time.monotonic() + timeout_s
    with contextlib.closing(consumer):
        consumer.assign([confluent_kafka.TopicPartition(topic, 0, confluent_kafka.OFFSET_BEGINNING)])
        while time.monotonic() < deadline:
            message = consumer.poll(0.5)
            if message is None:
                continue
            if message.error():
                assert message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF, message.error()
                if until is None or until in values:
                    return values
                continue
            values.append(message.value())
    raise AssertionError(f"{len(values)} values in {timeout_s} s")


def committed(bootstrap, topic, group):
    """The offset that a group has committed for partition 0; None if there is none."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    with contextlib.closing(consumer):
        offset = consumer.committed([confluent_kafka.TopicPartition(topic, 0)], timeout=60)[0].offset
        return None if offset < 0 else offset
