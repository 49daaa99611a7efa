"""confluent-kafka, which is librdkafka in C, against the broker on the same processors.

Throughput: does the broker need less of the processors than its own client? Latency: how far is it from librdkafka's mock
broker, which is C, stores nothing and lives in the client's process? The client is a process of its own each time
(librdkafka_load.py), so that what it costs can be told from what measuring costs.
"""

import itertools
import json
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from statistics import median

from broker import Broker, running_broker, wait_until_quiet
from figures import Figure, not_measured
from wire_client import Client

LOAD = Path(__file__).resolve().parent / "librdkafka_load.py"

PARTITIONS = 4
RECORD_BYTES = 1024
LATENCY_FACTOR = 2.5

_topic_numbers = itertools.count()


def figures(work: Path, quick: bool) -> Iterator[Figure]:
    if find_spec("confluent_kafka") is None:
        yield not_measured("confluent-kafka", "not installed")
        return
    with running_broker() as broker:
        yield from throughput(broker, rounds=1 if quick else 3, records=200_000 if quick else 400_000)
        yield latency(broker, rounds=2 if quick else 5, seconds=2 if quick else 4)


def throughput(broker: Broker, rounds: int, records: int) -> Iterator[Figure]:
    measured: dict[str, list[dict[str, float]]] = {"produce": [], "consume": []}
    for _ in range(rounds):
        topic = f"throughput-{next(_topic_numbers):04}"
        with Client(broker.port) as client:
            client.create_topics([topic], PARTITIONS)
            for direction, results in measured.items():
                results.append(load(broker, direction, topic, records))
            client.delete_topic(topic)
    for direction, results in measured.items():
        yield costs_less_than_client(direction, results, records * RECORD_BYTES / 1e9)


def load(broker: Broker, direction: str, topic: str, records: int) -> dict[str, float]:
    wait_until_quiet(broker)
    before = broker.cpu_seconds()
    result = run(direction, "--bootstrap", broker.bootstrap, "--topic", topic, "--records", records)
    return result | {"broker_cpu_s": broker.cpu_seconds() - before}


def costs_less_than_client(direction: str, results: list[dict[str, float]], gigabytes: float) -> Figure:
    broker, client, seconds = (
        median(result[name] for result in results) for name in ("broker_cpu_s", "client_cpu_s", "seconds")
    )
    numbers = {"broker_cpu_s_per_gb": broker / gigabytes, "client_cpu_s_per_gb": client / gigabytes}
    numbers["mb_per_s"] = gigabytes * 1000 / seconds
    return Figure(
        f"confluent-kafka {direction}, 1 KiB, {numbers['mb_per_s']:,.0f} MB/s: CPU",
        f"{broker / gigabytes:.2f} s/GB broker",
        f"{client / gigabytes:.2f} s/GB client",
        broker / client,
        "less than the client",
        broker < client,
        numbers,
    )


def latency(broker: Broker, rounds: int, seconds: int) -> Figure:
    ottla, mock = [], []
    for _ in range(rounds):
        topic = f"latency-{next(_topic_numbers):04}"
        with Client(broker.port) as client:
            client.create_topics([topic])
        ottla.append(run("latency", "--bootstrap", broker.bootstrap, "--topic", topic, "--seconds", seconds))
        mock.append(run("latency", "--topic", topic, "--seconds", seconds))
    ratio = median(one["p50_us"] / other["p50_us"] for one, other in zip(ottla, mock, strict=True))
    (ours, ours99), (theirs, theirs99) = (
        [median(result[name] for result in results) for name in ("p50_us", "p99_us")] for results in (ottla, mock)
    )
    return Figure(
        "1,000 records/s, acks=all: p50 (p99)",
        f"{ours:,.0f} ({ours99:,.0f}) us",
        f"{theirs:,.0f} ({theirs99:,.0f}) us mock",
        ratio,
        f"p50 at most {LATENCY_FACTOR} times",
        ratio <= LATENCY_FACTOR,
        {"p50_us": ours, "p99_us": ours99, "mock_p50_us": theirs, "mock_p99_us": theirs99},
    )


def run(*arguments: object) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, LOAD, *map(str, arguments)], stdout=subprocess.PIPE, text=True, timeout=180, check=True
    )
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result
