"""From the start of a process on an empty folder to the first acknowledged record, and what memory it holds at rest and at work.

The client of the cold start is this process: its modules are loaded and its frames built before the clock starts. Apache Kafka's
folder has to be formatted by a command of its own; the time for that is counted in the row that says so.
"""

import contextlib
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Mapping

from benchmarks import machine
from benchmarks.brokers import Broker, Failed
from benchmarks.rows import Metric, Row, at_most
from benchmarks.session import Session
from benchmarks.wire_client import Client, batch_of, produce_frame

TOPIC = "first"
SETTLED_S = 1.0
A_MOMENT = at_most(0.12)


def rows(session: Session) -> Generator[Row]:
    templates = [session.new(kind) for kind in session.kinds()]
    metrics = (
        Metric("from_nothing_s", "s", A_MOMENT, label="empty folder, formatting counted"),
        Metric("started_s", "s", A_MOMENT, label="folder formatted before"),
    )
    name = "cold start to first acknowledged record"
    yield Row(
        name,
        templates,
        cold_start(session),
        metrics,
        2 if session.quick else 4,
        f"python -c pass: {bare_python_s():.3f} s",
    )
    idle = (Metric("mb", "MB", at_most(1 / 8), digits=0),)
    yield Row(
        "idle RSS", templates, idle_memory(session), idle, session.rounds, f"bare Python: {bare_python_mb():.0f} MB"
    )


def cold_start(session: Session) -> Callable[[Broker], Mapping[str, float]]:
    request = produce_frame(TOPIC, batch_of(1024))

    def run(template: Broker) -> Mapping[str, float]:
        broker = session.new(type(template))
        began = time.perf_counter()
        command = broker.command()
        formatted = time.perf_counter()
        try:
            broker.start_as(command)
            first_record(broker, request)
            acknowledged = time.perf_counter()
        finally:
            broker.stop()
        return {"from_nothing_s": acknowledged - began, "started_s": acknowledged - formatted}

    return run


def first_record(broker: Broker, request: bytes, patience_s: float = 60.0) -> None:
    """A broker that has just opened its listener may refuse for a while."""
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError, RuntimeError), Client(broker.port) as client:
            client.create_topics([TOPIC])
            break
        time.sleep(0.002)
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError, RuntimeError), Client(broker.port) as client:
            client.produce(request)
            return
        time.sleep(0.002)
    raise Failed(f"no record is accepted within {patience_s:.0f} s")


def idle_memory(session: Session) -> Callable[[Broker], Mapping[str, float]]:
    request = produce_frame(TOPIC, batch_of(1024))

    def run(template: Broker) -> Mapping[str, float]:
        """With one topic and one record, the client gone again."""
        broker = session.new(type(template))
        try:
            broker.start()
            first_record(broker, request)
            machine.wait_until_quiet(broker.pid, seconds=SETTLED_S)
            return {"mb": machine.resident_mb(broker.pid)}
        finally:
            broker.stop()

    return run


def loaded_memory_rows(session: Session) -> Generator[Row]:
    """The most they ever had, after the warm-up and all the rows so far that loaded them."""
    metric = Metric("mb", "MB", at_most(1 / 5), digits=0)
    name = "RSS under load, the greatest since the start"
    yield Row(name, session.main(), lambda broker: {"mb": machine.resident_mb(broker.pid, "VmHWM")}, [metric], 1)


def bare_python_s() -> float:
    times = []
    for _ in range(5):
        began = time.perf_counter()
        subprocess.run([sys.executable, "-c", "pass"], check=True)
        times.append(time.perf_counter() - began)
    return min(times)


def bare_python_mb() -> float:
    code = "import re; print(re.search(r'VmRSS:\\s+(\\d+)', open('/proc/self/status').read())[1])"
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return int(found.stdout) * 1024 / 1e6
