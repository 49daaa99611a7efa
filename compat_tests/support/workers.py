"""A start of several workers, and its processes by name.

workers = WorkersProcess(directory, {"num.workers": "2"})
workers.start()
os.kill(workers.pid("worker 1"), signal.SIGKILL)
workers.wait_until_serving_again("worker 1")
"""

import itertools
import os
import re
import signal
import sys
from functools import partial
from pathlib import Path

from compat_tests.support.brokers import OttlaProcess, exists, free_ports_in_a_row, wait_until
from confluent_kafka.admin import AdminClient

ROOT = Path(__file__).resolve().parents[2]
TREE = "the coordination tree"
ROOM = 4  # workers that a test may come to have


class WorkersProcess(OttlaProcess):
    """Worker k has the node id `FIRST_ID` + k."""

    FIRST_ID = 1

    def __init__(self, directory: Path, settings: dict[str, str]) -> None:
        super().__init__(directory, {"node.id": str(self.FIRST_ID), "num.workers": "2"} | settings)
        # Named, or a restart would move the workers: the first port would be the same, and theirs would follow it.
        self.port = free_ports_in_a_row(1 + ROOM)

    @property
    def count(self) -> int:
        return int(self.settings["num.workers"])

    @property
    def present_log(self) -> str:
        """Of this start alone."""
        return self.log[self._already_logged :]

    def pid(self, name: str) -> int:
        """The process that has this name now, or had it last."""
        return int(re.findall(rf"{name} begins as process (\d+)", self.present_log)[-1])

    def pids(self) -> list[int]:
        """Of all processes beside the supervisor that this start has ever had."""
        return [int(each) for each in re.findall(r" begins as process (\d+)", self.present_log)]

    def signal(self, name: str, number: signal.Signals) -> None:
        os.kill(self.pid(name), number)

    def times_served_again(self, name: str) -> int:
        return self.present_log.count(f"{name} serves again")

    def kill_worker(self, name: str) -> None:
        """SIGKILL, and return when it serves again."""
        before = self.times_served_again(name)
        self.signal(name, signal.SIGKILL)
        wait_until(lambda: self.times_served_again(name) > before, f"{name} serves again", 60)

    @property
    def own_addresses(self) -> list[str]:
        """Of the workers, by their numbers."""
        return re.findall(r"  worker \d+ +PLAINTEXT://(\S+)", self.present_log)

    def wait_until_all_lead(self, topic: str | None = None) -> None:
        """Every partition, of this topic among them, has a leader, and every worker knows it."""
        for address in self.own_addresses or [self.bootstrap]:
            admin = AdminClient({"bootstrap.servers": address})
            wait_until(partial(self._all_lead, admin, topic), f"every partition has a leader, says {address}", 60)

    def _all_lead(self, admin: AdminClient, topic: str | None) -> bool:
        found = admin.list_topics(timeout=60)
        led = [each.leader in found.brokers for known in found.topics.values() for each in known.partitions.values()]
        return len(found.brokers) == self.count and all(led) and (topic is None or topic in found.topics)

    def wait_until_all_have_ended(self) -> None:
        """After a SIGKILL of the supervisor: the kernel ends the others."""
        wait_until(lambda: not any(map(exists, self.pids())), "the workers have ended")


class FillingWorkers(WorkersProcess):
    """The disk of worker 1 is full as long as there is a file `full`, and that of the tree as long as there is `journal_full`."""

    def command(self) -> list[str]:
        python, _, _, *arguments = super().command()
        paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
        return [
            "env",
            f"PYTHONPATH={paths}",
            python,
            "-m",
            "compat_tests.support.full_disk",
            str(self.full),
            *arguments,
        ]

    @property
    def full(self) -> Path:
        return self.directory / "full"

    @property
    def journal_full(self) -> Path:
        return self.directory / "full.journal"


def start_command(directory: Path, settings: dict[str, str]) -> list[str]:
    """The command of a start that need not come to serve."""
    overrides = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(directory / "data")} | settings
    pairs = [("--override", f"{name}={value}") for name, value in overrides.items()]
    return [sys.executable, "-m", "ottla", "start", *itertools.chain.from_iterable(pairs)]
