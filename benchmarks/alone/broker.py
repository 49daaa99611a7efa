"""An Ottla of its own for each part, on any processor or on one."""

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.brokers import Broker, Ottla
from benchmarks.machine import on_cpu

__all__ = ["Broker", "running_broker"]


@contextlib.contextmanager
def running_broker(cpu: int | None = None) -> Iterator[Broker]:
    """A broker for as long as it is needed, on any processor or on this one."""
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as directory:
        broker = Ottla(Path(directory) / "ottla")
        try:
            with on_cpu(cpu) if cpu is not None else contextlib.nullcontext():
                broker.start()
            yield broker
        finally:
            broker.stop()
