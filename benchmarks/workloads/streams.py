"""Kafka Streams counts words: a million records of one word each, from the start of the application to its last output.

The application is that of compat_tests/applications, with its store and its repartition topic. It caches nothing, so that every
record has its output, and commits ten times a second. A consumer with read_committed counts what comes out.
"""

import contextlib
import itertools
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from pathlib import Path

from benchmarks import machine
from benchmarks.brokers import Broker, Failed
from benchmarks.clients import create_topic, load
from benchmarks.rows import Metric, Row, at_most
from benchmarks.session import Session
from benchmarks.wire_client import Client
from compat_tests.apache.brokers import JARS
from compat_tests.applications.streams import StreamsApplication, class_path

GUARANTEES = ("at_least_once", "exactly_once_v2")
RELEASE = "streams_4"
PARTITIONS, RECORD_BYTES = 4, 20
RECORDS, QUICK_RECORDS = 1_000_000, 50_000
JVM = ("-server", "-Xmx512m", "-XX:+UseG1GC")
START_S = 90.0
METRICS = (Metric("seconds", "s", at_most(1.0)), Metric("cpu_us", "us", label="broker CPU of each record"))

_applications = itertools.count()


def rows(session: Session) -> Generator[Row]:
    if not (JARS / RELEASE / ".ready").exists():
        raise Failed("the jars of Kafka Streams are not in .cache (`make bench` fetches them)")
    path = class_path(RELEASE, session.work)
    brokers, records = session.main(), QUICK_RECORDS if session.quick else RECORDS
    for guarantee in GUARANTEES:
        name = f"Kafka Streams counts {records:,} words, {guarantee}"
        run = count_words(session.work, path, guarantee, records)
        yield Row(name, brokers, run, METRICS, 1 if session.quick else 2)


def count_words(work: Path, path: str, guarantee: str, records: int) -> Callable[[Broker], Mapping[str, float]]:
    def run(broker: Broker) -> Mapping[str, float]:
        with topics(broker) as name:
            load(broker, "produce", f"{name}-lines", 1, records, RECORD_BYTES, linger_ms=5)
            machine.wait_until_quiet(*broker.pids)
            application = StreamsApplication(
                path, work / name, broker.bootstrap, "words", name, jvm=JVM, processing_guarantee=guarantee
            )
            before, began = broker.cpu_seconds(), time.perf_counter()
            with contextlib.closing(application):
                application.start()
                application.wait_until_running(START_S)
                load(broker, "consume", f"{name}-counts", PARTITIONS, records)
                seconds, used = time.perf_counter() - began, broker.cpu_seconds() - before
        return {"seconds": seconds, "cpu_us": used / records * 1e6}

    return run


@contextlib.contextmanager
def topics(broker: Broker) -> Iterator[str]:
    """The name of an application whose topics are there. With them go those that it makes for itself."""
    name = f"bench-words-{next(_applications):03}"
    for each in ("lines", "counts"):
        create_topic(broker, f"{name}-{each}", PARTITIONS)
    try:
        yield name
    finally:
        with contextlib.suppress(OSError, RuntimeError), Client(broker.admin_port) as client:
            for topic in client.metadata().topics:
                if topic.name is not None and topic.name.startswith(name):
                    client.delete_topic(topic.name)
