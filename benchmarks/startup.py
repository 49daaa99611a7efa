"""From the `ottla start` of a new process on an empty folder to the first acknowledged record, and memory at rest.

The client is this process: its modules are loaded and its frames built before the clock starts.
"""

import socket
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from broker import Broker, running_broker, wait_until_quiet
from figures import Figure, at_most
from wire_client import Client, batch_of, produce_frame

START_S, RESIDENT_MB = 0.5, 45.0

TOPIC = "first"


def figures(work: Path, quick: bool) -> Iterator[Figure]:
    request = produce_frame(TOPIC, batch_of(1024))
    runs = [start(work / f"start-{index}", request) for index in range(3 if quick else 9)]
    listening_s, acknowledged_s = (median(run[index] for run in runs) for index in (0, 1))
    name = "start to first acknowledged record"
    yield at_most(name, acknowledged_s, START_S, "s", listening_s=listening_s, worst_s=max(run[1] for run in runs))
    yield at_most("memory at rest (RSS)", idle_mb(), RESIDENT_MB, "MB", digits=1)


def start(directory: Path, request: bytes) -> tuple[float, float]:
    """Seconds to the line that says `listening`, and to the acknowledgement of a record in a topic made for it."""
    directory.mkdir()
    broker = Broker(directory)
    try:
        began = time.perf_counter()
        broker.start()
        listening = time.perf_counter()
        with Client(broker.port) as client:
            client.create_topics([TOPIC])
            client.produce(request)
            acknowledged = time.perf_counter()
    finally:
        broker.stop()
    return listening - began, acknowledged - began


def idle_mb() -> float:
    """With the one client that looked in gone again."""
    with running_broker() as broker:
        socket.create_connection(("127.0.0.1", broker.port)).close()
        wait_until_quiet(broker)
        return broker.resident_mb()
