"""The client's side of librdkafka.py: one load in a process of its own, its cost and times as JSON on standard output."""

import argparse
import json
import os
import resource
import time

from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, Producer, TopicPartition

RECORD_BYTES = 1024
BATCH_BYTES = 1 << 20
PARTITIONS = 4
RECORDS_PER_SECOND = 1000
PATIENCE_S = 120.0


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("load", choices=["produce", "consume", "latency"])
    parser.add_argument("--bootstrap", help="without it, latency is measured against librdkafka's own mock broker")
    parser.add_argument("--topic", required=True)
    parser.add_argument("--records", type=int, default=400_000)
    parser.add_argument("--seconds", type=int, default=4)
    options = parser.parse_args()
    if options.load == "latency":
        result = latency(options.bootstrap, options.topic, options.seconds)
    else:
        result = (produce if options.load == "produce" else consume)(options.bootstrap, options.topic, options.records)
    print(json.dumps(result))


class Refused:
    """Counts the records that were not acknowledged."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, error: object, message: Message) -> None:
        self.count += error is not None


def produce(bootstrap: str, topic: str, records: int) -> dict[str, float]:
    refused = Refused()
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": "all",
            "linger.ms": 5,
            "batch.size": BATCH_BYTES,
            "message.max.bytes": 2 * BATCH_BYTES,
            "batch.num.messages": 10_000,
            "queue.buffering.max.messages": 100_000,
            "on_delivery": refused,
        }
    )
    producer.list_topics(topic, timeout=10)
    values = [os.urandom(RECORD_BYTES) for _ in range(256)]
    began, cpu = time.perf_counter(), cpu_seconds()
    for number in range(records):
        # Runs of records for one partition, as a key or the sticky partitioner would make them.
        hand_over(producer, topic, values[number % 256], number // 500 % PARTITIONS)
    left = producer.flush(PATIENCE_S)
    if left or refused.count:
        raise SystemExit(f"{left} records not sent, {refused.count} refused")
    return {"seconds": time.perf_counter() - began, "client_cpu_s": cpu_seconds() - cpu}


def hand_over(producer: Producer, topic: str, value: bytes, partition: int) -> None:
    while True:
        try:
            producer.produce(topic, value, partition=partition)
            return
        except BufferError:
            producer.poll(0.01)


def consume(bootstrap: str, topic: str, records: int) -> dict[str, float]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "bench",
            "enable.auto.commit": False,
            "fetch.message.max.bytes": BATCH_BYTES,
            "queued.min.messages": 100_000,
        }
    )
    consumer.assign([TopicPartition(topic, index, OFFSET_BEGINNING) for index in range(PARTITIONS)])
    began, cpu, got = time.perf_counter(), cpu_seconds(), 0
    while got < records:
        messages = consumer.consume(500, timeout=1.0)
        if any(message.error() for message in messages) or time.perf_counter() - began > PATIENCE_S:
            raise SystemExit(f"stopped after {got} records: {[message.error() for message in messages][:1]}")
        got += len(messages)
    result = {"seconds": time.perf_counter() - began, "client_cpu_s": cpu_seconds() - cpu}
    consumer.close()
    return result


def latency(bootstrap: str | None, topic: str, seconds: int) -> dict[str, float]:
    """One record every millisecond; the time from handing it over to being told that it is acknowledged."""
    where: dict[str, object] = {"bootstrap.servers": bootstrap} if bootstrap else {"test.mock.num.brokers": 1}
    producer = Producer(where | {"acks": "all", "linger.ms": 0, "log_level": 3})
    producer.list_topics(topic, timeout=10)
    value, times = os.urandom(RECORD_BYTES), []

    def send() -> None:
        handed_over = time.perf_counter()

        def acknowledged(error: object, message: Message) -> None:
            if error is not None:
                raise SystemExit(f"a record was refused: {error}")
            times.append(time.perf_counter() - handed_over)

        producer.produce(topic, value, partition=0, on_delivery=acknowledged)

    began = time.perf_counter()
    for number in range(RECORDS_PER_SECOND * seconds):
        due = began + number / RECORDS_PER_SECOND
        while (early := due - time.perf_counter()) > 0:
            producer.poll(early)
        send()
    producer.flush(PATIENCE_S)
    counted = sorted(times[len(times) // 10 :])
    return {"p50_us": counted[len(counted) // 2] * 1e6, "p99_us": counted[len(counted) * 99 // 100] * 1e6}


def cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
