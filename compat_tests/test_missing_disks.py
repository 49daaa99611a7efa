"""A log directory whose disk is not mounted, or is another one: the broker refuses to start and says how to go on."""

import re
from pathlib import Path

import pytest
from compat_tests.support.brokers import OttlaProcess
from compat_tests.support.feed import read_all
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

TOPIC = "t"
RECORDS = [b"%d" % number for number in range(10)]


class TwoDisks:
    """A broker with its log directories one level below two mount points, the first of which has its journal."""

    def __init__(self, directory: Path) -> None:
        self.mounts = {name: directory / name for name in ("one", "two", "three")}
        for mount in self.mounts.values():
            mount.mkdir()
        self.broker = OttlaProcess(directory, {"num.partitions": "1"})
        self.configure("one", "two")

    def configure(self, *names: str) -> None:
        self.broker.settings["log.dirs"] = ",".join(str(self.mounts[name] / "ottla") for name in names)

    def path(self, name: str) -> str:
        return str(self.mounts[name] / "ottla")

    def unmount(self, name: str) -> None:
        """What is below a mount point without its disk: an empty directory of the root file system."""
        self.mounts[name].rename(self.mounts[name].with_suffix(".away"))
        self.mounts[name].mkdir()

    def mount(self, name: str) -> None:
        self.mounts[name].rename(self.mounts[name].with_suffix(f".root{len(list(self.mounts[name].parent.iterdir()))}"))
        self.mounts[name].with_suffix(".away").rename(self.mounts[name])

    def fill(self) -> None:
        self.broker.start()
        admin = AdminClient({"bootstrap.servers": self.broker.bootstrap})
        admin.create_topics([NewTopic(TOPIC, 4)])[TOPIC].result(60)
        producer = Producer({"bootstrap.servers": self.broker.bootstrap})
        for partition in range(4):
            for value in RECORDS:
                producer.produce(TOPIC, value, partition=partition)
        assert producer.flush(60) == 0
        self.broker.stop()

    def counts(self) -> list[int]:
        return [len(read_all(self.broker.bootstrap, TOPIC, partition)) for partition in range(4)]

    def refusal(self, *arguments: str) -> str:
        """The one line in which the broker says why it does not start."""
        before = len(self.broker.log)
        self.broker.port = 0
        self.launch(*arguments)
        assert self.broker.process.wait(timeout=60) == 1
        lines = [line for line in self.broker.log[before:].splitlines() if line.startswith("ottla: ")]
        assert len(lines) == 1 and "Traceback" not in self.broker.log[before:]
        return lines[0]

    def launch(self, *arguments: str) -> None:
        command = self.broker.command
        self.broker.command = lambda: [*command(), *arguments]
        self.broker.launch()
        self.broker.command = command


@pytest.fixture
def disks(tmp_path: Path):
    found = TwoDisks(tmp_path)
    yield found
    if found.broker.process is not None and not found.broker.died():
        found.broker.kill()


@pytest.mark.parametrize("name", ["one", "two"])
def test_a_disk_that_is_not_mounted_begins_nothing_anew(disks: TwoDisks, name: str) -> None:
    disks.fill()
    disks.unmount(name)
    for _ in range(2):  # the refusal itself leaves nothing that the next start takes for the directory
        line = disks.refusal()
        assert f"Log directory {disks.path(name)}" in line and "is empty" in line
        assert line.endswith(f"--accept-empty-log-dir {disks.path(name)}")
    disks.mount(name)
    disks.broker.start()
    assert disks.counts() == [10] * 4
    disks.broker.stop()


def test_a_disk_that_is_gone_for_good_can_be_given_up(disks: TwoDisks) -> None:
    disks.fill()
    disks.unmount("two")
    disks.launch("--accept-empty-log-dir", disks.path("two"))
    disks.broker.wait_until_serving()
    assert sorted(disks.counts()) == [0, 0, 10, 10]
    disks.broker.stop()
    disks.broker.start()  # accepted once is enough
    disks.broker.stop()
    disks.mount("two")
    assert "which this broker does not know" in disks.refusal()


def test_a_disk_may_be_mounted_elsewhere_but_not_be_forgotten(disks: TwoDisks) -> None:
    disks.fill()
    disks.mounts["three"].rmdir()
    disks.mounts["two"].rename(disks.mounts["three"])
    disks.mounts["two"].mkdir()
    disks.configure("one", "three")
    disks.broker.start()
    assert disks.counts() == [10] * 4
    disks.broker.stop()
    disks.configure("one")
    line = disks.refusal()
    assert f"Log directory {disks.path('three')}" in line and "is not among log.dirs any more" in line
    disks.configure("three", "one")
    assert re.search(r"journal is in \S+/one/ottla, which has to be the first of log.dirs", disks.refusal())
    disks.configure("one", "three", "two")
    disks.broker.start()
    assert disks.counts() == [10] * 4
    disks.broker.stop()


def test_a_disk_that_cannot_be_read_is_offline_and_the_others_go_on(disks: TwoDisks) -> None:
    disks.fill()
    disks.unmount("two")
    Path(disks.path("two")).write_text("no directory")
    disks.broker.start()
    assert f"Log directory {disks.path('two')} is offline" in disks.broker.log
    there = [partition for partition in range(4) if (Path(disks.path("one")) / f"{TOPIC}-{partition}").exists()]
    assert [len(read_all(disks.broker.bootstrap, TOPIC, partition)) for partition in there] == [10] * len(there)
    disks.broker.stop()
    disks.mount("two")
    disks.broker.start()
    assert disks.counts() == [10] * 4
    disks.broker.stop()
