"""From `pip install` of the built wheel to the first record that is acknowledged: `python -m benchmarks.first_record`.

    python -m benchmarks.first_record [--rounds 5] [--wheel dist/ottla-....whl]

Without --wheel one is built of this work tree first, which does not count, and neither does the environment that it is installed
into. The first installation fills pip's cache; what is printed is each of the others: what passed, and the processor's time of
pip, which does not depend on what else the machine does, of Python's first start, which compiles what it imports, and of the rest.
The record is librdkafka's, with acks=all, to a topic that the broker makes for it.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import Producer

ROOT = Path(__file__).resolve().parent.parent
DEADLINE_S = 120.0
LISTENING = "listening on "
# PYTHONPATH may lead to the work tree, and what is installed would not be what runs.
CLEARED = ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE")


class Round(NamedTuple):
    """Seconds from the beginning of pip: until it has ended, and until the acknowledgement; `*_cpu_s`: of the processor."""

    installed_s: float
    acknowledged_s: float
    pip_cpu_s: float
    broker_cpu_s: float

    def __str__(self) -> str:
        return (
            f"pip {self.installed_s:.2f} s ({self.pip_cpu_s:.2f} s of CPU), first record acknowledged after "
            f"{self.acknowledged_s:.2f} s (broker {self.broker_cpu_s:.2f} s of CPU until it had stopped)"
        )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.first_record", description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5, help="how many, after one that fills pip's cache")
    parser.add_argument("--wheel", type=Path, help="one that is built already")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ottla-first-record-") as name:
        folder = Path(name)
        wheel = options.wheel or build(folder / "wheels")
        measured(wheel, folder / "warming")
        rounds = []
        for number in range(options.rounds):
            rounds.append(measured(wheel, folder / str(number)))
            print(rounds[-1], flush=True)
    print(f"{wheel.name}: median {sorted(each.acknowledged_s for each in rounds)[len(rounds) // 2]:.2f} s")


def build(folder: Path) -> Path:
    command = [sys.executable, "-m", "pip", "--quiet", "wheel", "--no-deps", "--wheel-dir", str(folder), str(ROOT)]
    subprocess.run(command, check=True)
    [wheel] = folder.iterdir()
    return wheel


def measured(wheel: Path, folder: Path) -> Round:
    """Install it into a new environment in this folder, and have one record acknowledged."""
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    environment = {name: value for name, value in os.environ.items() if name not in CLEARED}
    installing = [folder / "bin" / "python", "-m", "pip", "--disable-pip-version-check", "--quiet", "install", wheel]
    cpu, begun = _cpu_of_children(), time.perf_counter()
    subprocess.run(installing, check=True, env=environment, cwd=folder)
    installed, pip_cpu = time.perf_counter() - begun, _cpu_of_children() - cpu
    with _broker(folder, environment) as address:
        _produce(address)
        acknowledged = time.perf_counter() - begun
    return Round(installed, acknowledged, pip_cpu, _cpu_of_children() - cpu - pip_cpu)


@contextmanager
def _broker(folder: Path, environment: dict[str, str]) -> Iterator[str]:
    """The address of `ottla start`, until the end."""
    settings = ["listeners=PLAINTEXT://127.0.0.1:0", f"log.dirs={folder / 'data'}"]
    overrides = [word for setting in settings for word in ("--override", setting)]
    command = [folder / "bin" / "ottla", "start", *overrides]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
    ) as broker:
        try:
            assert broker.stdout is not None
            line = next((line for line in broker.stdout if line.startswith(LISTENING)), None)
            if line is None:
                raise SystemExit("the broker ended before it listened")
            yield line.removeprefix(LISTENING).strip()
        finally:
            broker.terminate()


def _produce(address: str) -> None:
    failures: list[object] = []
    # A topic that is being made is asked for again at once, and not after librdkafka's usual pause.
    producer = Producer({"bootstrap.servers": address, "acks": "all", "topic.metadata.refresh.fast.interval.ms": 10})
    producer.produce("first", b"record", on_delivery=lambda error, _: failures.append(error))
    left = producer.flush(DEADLINE_S)
    if left or failures != [None]:
        raise SystemExit(f"the record was not acknowledged: {failures}")


def _cpu_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
