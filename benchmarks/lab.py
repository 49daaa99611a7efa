"""Figures of the lab (`ottla.testing`), one a line: python -m benchmarks.lab [first suite session seeds throughput]

    first        seconds from the import to the end of a first test with a broker, in a process of its own
    suite        seconds that fresh worlds add to a suite of 1,000 tests
    session      ms of a test in which a session of 45 s ends
    seeds        seconds of 100 seeds of a failover test with three brokers on virtual time
    throughput   MB/s of librdkafka with the lab's broker, and with `ottla start`, in turns

`python -m benchmarks.lab_snapshots` has those of snapshots.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

TESTS, SESSION_MS, SEEDS, ROUNDS = 1000, 45_000, 100, 3
RECORDS, RECORD_BYTES = 400_000, 1024

FIRST = """
import time
began = time.perf_counter()
from ottla.testing import Kafka
imported = time.perf_counter()
with Kafka() as kafka:
    kafka.topic("orders")
    kafka.produce("orders", "x")
    assert kafka.records("orders")
print(imported - began, time.perf_counter() - imported)
"""

SUITE = """
import pytest

@pytest.mark.parametrize("number", range({tests}))
def test_each({fixture}number):
    pass
"""


def first() -> None:
    """Print the seconds of an import and of a first test."""
    rounds = [
        tuple(
            map(
                float,
                subprocess.run(
                    [sys.executable, "-c", FIRST], capture_output=True, text=True, check=True
                ).stdout.split(),
            )
        )
        for _ in range(ROUNDS)
    ]
    imported, tested = (statistics.median(column) for column in zip(*rounds, strict=True))
    print(f"first         import {imported:.2f} s, then a first test {tested:.3f} s")


def suite() -> None:
    """Print the seconds that fresh worlds add to a suite."""
    took = {name: min(_suite(text) for _ in range(ROUNDS)) for name, text in (("with", "kafka, "), ("without", ""))}
    added = took["with"] - took["without"]
    print(
        f"suite         {TESTS} tests: {took['with']:.2f} s, without a broker {took['without']:.2f} s: {added:.2f} s are the worlds'"
    )


def _suite(fixture: str) -> float:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "test_suite.py").write_text(SUITE.format(tests=TESTS, fixture=fixture))
        began = time.perf_counter()
        subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", folder],
            stdout=subprocess.DEVNULL,
            check=True,
        )
        return time.perf_counter() - began


def session() -> None:
    """Print the ms of a member's session that ends."""
    from ottla.testing import Kafka
    from ottla.wire.messages.classic_group import JoinGroupRequest, JoinGroupRequestProtocol

    took = []
    with Kafka() as kafka:
        for number in range(10):
            group = f"group-{number}"
            joining = JoinGroupRequest(
                group_id=group,
                session_timeout_ms=SESSION_MS,
                rebalance_timeout_ms=SESSION_MS,
                member_id="",
                protocol_type="consumer",
                protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
            )
            kafka.group(group).members  # noqa: B018 - its coordinator is loaded
            began = time.perf_counter()
            joining.member_id = kafka.ask(joining).member_id
            assert not kafka.ask(joining).error_code and kafka.group(group).members
            kafka.clock.advance(seconds=SESSION_MS / 1000 + 1)
            assert not kafka.group(group).members
            took.append(1000 * (time.perf_counter() - began))
    print(f"session       median {statistics.median(took):.1f} ms, least {min(took):.1f} ms")


def seeds() -> None:
    """Print the seconds of a failover test, for many seeds."""
    from ottla.testing import simulate

    began = time.perf_counter()
    result = simulate(failover, seeds=range(SEEDS), brokers=3)
    print(f"seeds         {SEEDS} seeds: {time.perf_counter() - began:.1f} s; {result}")


async def failover(sim: Any) -> None:
    """Kill the leader between two records; both have to be there."""
    client = sim.client()
    await client.create_topic("orders", replicas=3)
    producer = client.producer()
    await producer.send("orders", b"before")
    await sim.broker(await client.leader("orders")).kill()
    await producer.send("orders", b"after")
    sim.check([each.value for each in await client.read_all("orders")] == [b"before", b"after"], "a record is lost")


def throughput() -> None:
    """Print what librdkafka reaches with a broker in this process, and with one of its own."""
    from ottla.testing import Kafka

    rates: dict[str, list[tuple[float, float]]] = {"lab": [], "process": []}
    for _ in range(ROUNDS):
        with Kafka() as kafka:
            rates["lab"].append(_rates(kafka.bootstrap))
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, "-m", "ottla", "start", "--port", "0", "--override", f"log.dirs={folder}"]
            with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
                assert process.stdout is not None
                listening = next(line for line in process.stdout if line.startswith("listening on "))
                rates["process"].append(_rates(listening.split()[-1]))
                process.terminate()
    for index, name in enumerate(("produce", "consume")):
        lab, process = (max(each[index] for each in rates[where]) for where in ("lab", "process"))
        print(f"throughput    {name} {lab:.0f} MB/s, with a process of its own {process:.0f} MB/s: {lab / process:.2f}")


def _rates(bootstrap: str) -> tuple[float, float]:
    """Produce and consume in a process of its own; return MB/s of both."""
    done = subprocess.run([sys.executable, __file__, "client", bootstrap], capture_output=True, text=True, check=True)
    produced, consumed = map(float, done.stdout.split())
    return produced, consumed


def client(bootstrap: str) -> None:
    """Produce records to a new topic and consume them; print MB/s of both."""
    from confluent_kafka import Consumer, Producer, TopicPartition

    settings = {"bootstrap.servers": bootstrap, "batch.size": 1_000_000, "linger.ms": 5, "acks": "1"}
    producer = Producer(settings | {"queue.buffering.max.messages": 1_000_000})
    value, size = b"x" * RECORD_BYTES, RECORDS * RECORD_BYTES / 1e6
    producer.produce("measured", b"first")
    producer.flush()
    began = time.perf_counter()
    for number in range(RECORDS):
        while True:
            try:
                producer.produce("measured", value)
                break
            except BufferError:
                producer.poll(0.01)
        if number % 1000 == 0:
            producer.poll(0)
    producer.flush()
    produced = size / (time.perf_counter() - began)
    with closing(Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "enable.auto.commit": False})) as consumer:
        consumer.assign([TopicPartition("measured", 0, 0)])
        count, began = len(consumer.consume(1, 10)), time.perf_counter()
        while count < RECORDS:
            count += len(consumer.consume(10_000, 5))
        print(produced, size / (time.perf_counter() - began))


ROWS: dict[str, Callable[[], None]] = {
    "first": first,
    "suite": suite,
    "session": session,
    "seeds": seeds,
    "throughput": throughput,
}

if __name__ == "__main__":
    if sys.argv[1:2] == ["client"]:
        client(sys.argv[2])
    else:
        for row in sys.argv[1:] or ROWS:
            ROWS[row]()
