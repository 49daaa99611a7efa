"""Spark reads ten gigabytes in one batch query, and two as a stream, from one broker and from three.

One Spark session asks all brokers in turns. The stream is read in micro-batches of 100 MB up to its end (trigger AvailableNow), with a
checkpoint, into a sink that throws records away: Spark asks for offsets, plans, fetches and commits as in any pipeline.
"""

import contextlib
import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from typing import NamedTuple, Self

from benchmarks import machine
from benchmarks.brokers import Broker, Failed, environment, stop_all
from benchmarks.clients import load, new_topic
from benchmarks.clusters import KINDS
from benchmarks.limits import Limits
from benchmarks.rows import Metric, Row, at_most
from benchmarks.session import Session, warm_up

PARTITIONS, RECORD_BYTES = 8, 1024
GB = 1e9
QUICK_SHARE = 0.03
ROUNDS_MAX = 3
"""A read of ten gigabytes takes most of a minute."""
ROOT = Path(__file__).resolve().parents[2]


class Read(NamedTuple):
    """A row's query: `batch` or `stream`, and how much it reads."""

    how: str
    size_gb: float

    @property
    def name(self) -> str:
        what = "batch read" if self.how == "batch" else "streaming ingestion"
        return f"Spark {what} of {self.size_gb:g} GB, 1 KiB, {PARTITIONS} partitions"


ALONE = (Read("batch", 10.0), Read("stream", 2.0))
THREE_BROKERS = (Read("batch", 2.0), Read("stream", 1.0))
WARM_UP_PASSES = 3


def rows(session: Session) -> Generator[Row]:
    if importlib.util.find_spec("pyspark") is None:
        raise Failed("pyspark is not installed")
    with Spark(session.work / "spark.log") as spark:
        for read in ALONE:
            yield from row(session, spark, session.main(), read, "")
        clusters = [session.new(kind) for kind in KINDS if not kind.missing()]
        try:
            for cluster in clusters:
                cluster.start()
                warm_up(cluster, WARM_UP_PASSES)
            for read in THREE_BROKERS:
                yield from row(session, spark, clusters, read, "three brokers, replication 3, ")
        finally:
            stop_all(clusters)


def row(session: Session, spark: "Spark", brokers: list[Broker], read: Read, where: str) -> Generator[Row]:
    read = read._replace(size_gb=read.size_gb * (QUICK_SHARE if session.quick else 1))
    records = int(read.size_gb * GB / RECORD_BYTES)
    with contextlib.ExitStack() as kept:
        topics = {broker.name: kept.enter_context(new_topic(broker, PARTITIONS)) for broker in brokers}
        for broker in brokers:
            load(broker, "produce", topics[broker.name], 1, records, RECORD_BYTES, linger_ms=5, batch_size=65536)
        # Its own first steps count for nobody.
        spark.take(brokers[0], topics[brokers[0].name], read.how)
        metrics = [
            Metric("seconds", "s", at_most(1.0)),
            Metric("s/GB", "s/GB", at_most(0.6), label="broker CPU"),
        ]
        limit = "" if where else Limits(session).fetch()
        run = reading(spark, topics, read, records)
        yield Row(where + read.name, brokers, run, metrics, min(session.rounds, ROUNDS_MAX), limit)


def reading(
    spark: "Spark", topics: Mapping[str, str], read: Read, records: int
) -> Callable[[Broker], Mapping[str, float]]:
    def run(broker: Broker) -> Mapping[str, float]:
        for pid in broker.pids:
            machine.wait_until_quiet(pid)
        before = broker.cpu_seconds()
        seconds, count = spark.take(broker, topics[broker.name], read.how)
        if count != records:
            raise Failed(f"Spark read {count:,} records of {records:,}")
        return {"seconds": seconds, "s/GB": (broker.cpu_seconds() - before) / read.size_gb}

    return run


class Spark:
    """spark_load.py in a process of its own: a line with bootstrap servers, topic and way goes in, one with the result comes out."""

    def __init__(self, log: Path) -> None:
        command = [sys.executable, "-m", f"{__package__}.spark_load"]
        with log.open("wb") as errors:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                cwd=ROOT,
                env=environment(),
            )
        self._log = log

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def take(self, broker: Broker, topic: str, how: str) -> tuple[float, int]:
        """Seconds, and how many records there were; `how`: batch or stream."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(f"{broker.bootstrap} {topic} {how}\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            if line.startswith("{"):
                result = json.loads(line)
                return float(result["seconds"]), int(result["records"])
        raise Failed(f"Spark ended: {self._log.read_text(errors='replace')[-300:]}")
