"""One start of several workers, whose processes are killed: one worker, all of them, the tree's holder, the supervisor.

After every other fault all is well again before the next one. Else transactions come to nothing for minutes, since both of
their coordinators are never there for long, and the harness takes that for a client that is stuck.

A worker that ends more than five times within a minute stays down. That is meant for bugs, and not for this harness: a worker that
has had its share is left alone until the minute is over, or its supervisor is started anew.
"""

import random
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import ClassVar

from compat_tests.history.fault_kinds import FaultKind
from compat_tests.history.faults import Fault
from compat_tests.history.members import ALL
from compat_tests.history.replica_logs import Replicas, read_log
from compat_tests.support.brokers import wait_until
from compat_tests.support.workers import TREE, WorkersProcess

RESTARTS_MAX, RESTARTS_S = 5, 61.0
RECOVERY_S = 60.0
KINDS = ("a worker", "a worker", "a worker", "all workers", TREE, "the supervisor")


class SeveralWorkers:
    """A `Cluster` of `run.py`."""

    replication_factor = 1
    configs: ClassVar[dict[str, str]] = {}
    kinds_of_groups = ALL
    addresses: Sequence[tuple[str, int]] = ()  # there is one replica of each partition, and when it is away nobody serves it

    def __init__(self, workers: WorkersProcess) -> None:
        self._workers = workers
        self._ends: dict[str, list[float]] = {}

    @property
    def bootstrap(self) -> str:
        return self._workers.bootstrap

    def start(self) -> None:
        self._workers.start()

    def stop(self) -> None:
        self._workers.wait_until_all_lead()
        self._workers.stop()

    def kill(self) -> None:
        if self._workers.process is not None:
            self._workers.kill()

    def keep(self) -> None:
        """All of it lies in its directory anyway."""

    def discard(self) -> None:
        """Its directory can be removed."""

    def state(self) -> str:
        return self._workers.log[-8000:]

    def is_well(self) -> bool:
        return False

    def replicas(self, topic: str, partition: int) -> Replicas:
        data = self._workers.data_dir
        folders = [data, *(data / "workers").glob("[0-9]*")]
        [found] = [folder for folder in folders if (folder / f"{topic}-{partition}").is_dir()]
        return Replicas(topic, partition, None, {_name(found): read_log(found, topic, partition)})

    # --- faults

    def faults(self, topic: str, chance: random.Random) -> Iterator[Fault]:
        while True:
            kind = chance.choice(KINDS)
            names = [TREE] if kind == TREE else [f"worker {number}" for number in range(self._workers.count)]
            if kind == "a worker":
                names = [chance.choice(names)]
            if kind == "the supervisor" or not all(map(self._may_end, names)):
                kind, begin, end = "the supervisor", self._kill_supervisor, self._start_again
            else:
                begin, end = self._killing(names)
            yield Fault(f"{FaultKind.KILLED} of {kind}", begin, self._mended(end) if chance.random() < 0.5 else end)

    def _mended(self, end: Callable[[], None]) -> Callable[[], None]:
        def mend() -> None:
            end()
            self._workers.wait_until_all_lead()

        return mend

    def _may_end(self, name: str) -> bool:
        """Whether it is started again if it ends."""
        recent = [each for each in self._ends.get(name, []) if time.monotonic() - each < RESTARTS_S]
        self._ends[name] = recent
        return len(recent) < RESTARTS_MAX

    def _killing(self, names: Sequence[str]) -> tuple[Callable[[], str], Callable[[], None]]:
        before: dict[str, int] = {}

        def begin() -> str:
            for name in names:
                before[name] = self._workers.pid(name)
                self._ends.setdefault(name, []).append(time.monotonic())
                self._workers.signal(name, signal.SIGKILL)
            return ", ".join(names)

        def end() -> None:
            for name in names:
                wait_until(lambda name=name: self._is_back(name, before[name]), f"{name} is back", RECOVERY_S)

        return begin, end

    def _is_back(self, name: str, before: int) -> bool:
        if name == TREE:
            return self._workers.pid(name) != before
        _, began, since = self._workers.present_log.rpartition(f"{name} begins as process ")
        return bool(began) and not since.startswith(f"{before}\n") and f"{name} serves again" in since

    def _kill_supervisor(self) -> str:
        self._ends.clear()
        self._workers.kill()
        return "the supervisor, and with it all"

    def _start_again(self) -> None:
        self._workers.restart()


def _name(folder: Path) -> str:
    return "worker 0" if folder.name == "data" else f"worker {folder.name}"
