"""Spark reads a gigabyte from a topic in one batch query. One Spark session asks both brokers in turns."""

import contextlib
import importlib.util
import json
import subprocess
import sys
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Self

from benchmarks import machine
from benchmarks.brokers import Broker, Failed, environment
from benchmarks.clients import load, new_topic
from benchmarks.limits import Limits
from benchmarks.rows import Metric, Row
from benchmarks.session import Session

PARTITIONS, RECORD_BYTES = 4, 1024
GB = 1e9
ROOT = Path(__file__).resolve().parents[2]


def rows(session: Session) -> Generator[Row]:
    if importlib.util.find_spec("pyspark") is None:
        raise Failed("pyspark is not installed")
    size_gb = 0.3 if session.quick else 1.0
    records = int(size_gb * GB / RECORD_BYTES)
    brokers = session.main()
    with contextlib.ExitStack() as kept:
        topics = {broker.name: kept.enter_context(new_topic(broker, PARTITIONS)) for broker in brokers}
        for broker in brokers:
            load(broker, "produce", topics[broker.name], 1, records, RECORD_BYTES, linger_ms=5, batch_size=65536)
        spark = kept.enter_context(Spark(session.work / "spark.log"))
        spark.count(brokers[0], topics[brokers[0].name])  # its own first steps count for nobody

        def read(broker: Broker) -> Mapping[str, float]:
            machine.wait_until_quiet(broker.pid)
            before = broker.cpu_seconds()
            seconds, count = spark.count(broker, topics[broker.name])
            if count != records:
                raise Failed(f"Spark read {count:,} records of {records:,}")
            return {"seconds": seconds, "s/GB": (broker.cpu_seconds() - before) / size_gb}

        metrics = [Metric("seconds", "s"), Metric("s/GB", "s/GB", label="broker CPU")]
        name = f"Spark batch read of {size_gb:g} GB, 1 KiB, {PARTITIONS} partitions"
        yield Row(name, brokers, read, metrics, session.rounds, Limits(session).fetch())


class Spark:
    """spark_load.py in a process of its own: a line with bootstrap servers and topic goes in, one with the result comes out."""

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

    def count(self, broker: Broker, topic: str) -> tuple[float, int]:
        """Seconds, and how many records there were."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(f"{broker.bootstrap} {topic}\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            if line.startswith("{"):
                result = json.loads(line)
                return float(result["seconds"]), int(result["records"])
        raise Failed(f"Spark ended: {self._log.read_text(errors='replace')[-300:]}")
