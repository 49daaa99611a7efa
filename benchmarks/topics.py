"""10,000 topics: making them, the Metadata answer that names them all, and a restart with them."""

import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from broker import Broker, running_broker
from figures import Figure, at_most
from wire_client import METADATA_VERSION, Client, metadata_frame, parse

from ottla.wire.messages.metadata import MetadataResponse

TOPICS, TOPICS_PER_REQUEST = 10_000, 500
METADATA_S, RESTART_S = 1.0, 10.0


def figures(work: Path, quick: bool) -> Iterator[Figure]:
    with running_broker() as broker:
        yield creation(broker)
        with Client(broker.port) as client:
            yield metadata(client, rounds=3 if quick else 9)
        yield restart(broker)


def creation(broker: Broker) -> Figure:
    began = time.perf_counter()
    with Client(broker.port) as client:
        for first in range(0, TOPICS, TOPICS_PER_REQUEST):
            client.create_topics([f"topic-{number:05}" for number in range(first, first + TOPICS_PER_REQUEST)])
    seconds = time.perf_counter() - began
    return Figure(f"creating {TOPICS:,} topics", f"{seconds:.1f} s", numbers={"seconds": seconds})


def metadata(client: Client, rounds: int) -> Figure:
    """The time to the last byte of the answer."""
    request, times, answer = metadata_frame(), [], b""
    for _ in range(rounds):
        began = time.perf_counter()
        answer = client.ask_bytes(request)
        times.append(time.perf_counter() - began)
    must_name_all(answer)
    return at_most(f"Metadata of {TOPICS:,} topics", median(times), METADATA_S, "s", answer_bytes=len(answer))


def restart(broker: Broker) -> Figure:
    """After a clean stop: from the start of the process to an answer that names all topics."""
    resident_mb = broker.resident_mb()
    began = time.perf_counter()
    broker.stop()
    stopped = time.perf_counter()
    broker.start()
    with Client(broker.port) as client:
        answer = client.ask_bytes(metadata_frame())
    seconds = time.perf_counter() - stopped
    must_name_all(answer)
    name, stop_s = f"restart with {TOPICS:,} topics", stopped - began
    return at_most(name, seconds, RESTART_S, "s", stop_s=stop_s, resident_mb=resident_mb)


def must_name_all(answer: bytes) -> None:
    topics = parse(answer, MetadataResponse, METADATA_VERSION).topics
    led = sum(partition.leader_id >= 0 for topic in topics for partition in topic.partitions)
    if len(topics) < TOPICS or led < TOPICS:
        raise RuntimeError(f"the answer names {len(topics)} topics and {led} leaders")
