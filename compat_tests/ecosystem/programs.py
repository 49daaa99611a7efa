"""Programs made of other people's software, as processes, and what goes into them and comes out.

A Python package has an environment of its own, because its requirements would not fit beside everybody else's: `make ecosystem`
makes it of <name>/requirements.txt in .cache/ecosystem/<name>/.
"""

import functools
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from pathlib import Path

import pytest
from compat_tests.apache.brokers import FAST_START
from compat_tests.applications.streams import take
from compat_tests.support.brokers import BrokerProcess, wait_until
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as Where
from confluent_kafka.admin import AdminClient, OffsetSpec

FOLDER = Path(__file__).resolve().parent
ENVIRONMENTS = FOLDER.parents[1] / ".cache" / "ecosystem"
JARS = FOLDER.parents[1] / ".cache" / "jars" / "compat_tests" / "ecosystem"
STOP_S = 60


def python_of(name: str) -> str:
    """The interpreter of an environment."""
    if not (ENVIRONMENTS / name / ".ready").exists():
        pytest.skip(f"{name} is not on this machine (`make ecosystem` brings it)")
    return str(ENVIRONMENTS / name / "bin" / "python")


def jars_of(name: str) -> Path:
    """The folder of the jars that <name>/pom.xml names."""
    if not (JARS / name / ".ready").exists() or shutil.which("javac") is None:
        pytest.skip(f"{name} is not on this machine (`make ecosystem` brings it)")
    return JARS / name


def java_command(name: str, main: str, folder: Path, *options: str) -> list[str]:
    """Compile <name>/<main>.java, and return the command that runs it, up to its arguments."""
    class_path = f"{jars_of(name)}/*"
    source = FOLDER / name / f"{main}.java"
    subprocess.run(["javac", "-cp", class_path, "-d", folder / "classes", source], check=True, timeout=240)
    return ["java", *FAST_START, "-Xmx512m", *options, "-cp", f"{folder / 'classes'}:{class_path}", main]


class Program:
    """A process that reads and writes topics. Its log and its files are in a folder, and outlive it."""

    def __init__(self, command: Sequence[str], folder: Path, **environment: str) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)
        self._command, self._environment = command, environment
        self._log = folder / "log.txt"
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def start(self) -> "Program":
        """Its standard input goes on until it is closed, or until nobody is there to do so."""
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
                env=os.environ | self._environment,
            )
        return self

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()

    def close(self, how: signal.Signals = signal.SIGTERM) -> None:
        """Ask it to end. One that does not is killed: when a program ends is no concern of a broker."""
        if self.process is None or self.process.poll() is not None:
            return
        self.process.send_signal(how)
        try:
            self.process.communicate(timeout=STOP_S)
        except subprocess.TimeoutExpired:
            self.kill()


def feeder(bootstrap: str) -> Producer:
    """A producer that repeats nothing, also while a broker is away."""
    return Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5, "log_level": 0})


def feed(producer: Producer, topic: str, values: Sequence[int]) -> None:
    """Give each number to the producer, with itself as the key."""
    for value in values:
        producer.produce(topic, key=str(value), value=str(value))
        producer.poll(0)


def feed_by_parity(producer: Producer, topic: str, numbers: Iterable[int]) -> None:
    """Give each number to the producer, with its parity as the key: even ones stay in their order, and so do odd ones."""
    for number in numbers:
        producer.produce(topic, key=str(number % 2), value=str(number))
        producer.poll(0)


@functools.cache
def admin_of(bootstrap: str) -> AdminClient:
    """One for all looks at a broker, which may be many."""
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})


def size(bootstrap: str, topic: str) -> int:
    """How many offsets the partitions of a topic have given; 0 if there is no such topic."""
    admin = admin_of(bootstrap)
    if (known := admin.list_topics(timeout=60).topics.get(topic)) is None:
        return 0
    asked = {Where(topic, number): OffsetSpec.latest() for number in known.partitions}
    return sum(found.result(60).offset for found in admin.list_offsets(asked).values())


def feed_through_a_kill(broker: BrokerProcess, source: str, count: int, has_begun: Callable[[], bool]) -> None:
    """Feed the numbers below `count`. In the middle, when the program has done something, the broker is killed and comes back."""
    producer = feeder(broker.bootstrap)
    feed(producer, source, range(count // 2))
    assert producer.flush(120) == 0
    wait_until(has_begun, "the program has begun", 180)
    feed(producer, source, range(count // 2, count))
    broker.kill()
    broker.restart()
    assert producer.flush(120) == 0


def values(bootstrap: str, topic: str, is_enough: Callable[[list[str]], bool], timeout_s: float = 240) -> list[str]:
    """The committed values of a topic once they are enough, sorted as numbers are."""
    found = take(bootstrap, topic, lambda pairs: is_enough([value.decode() for _, value in pairs]), timeout_s)
    return sorted((value.decode() for _, value in found), key=float)


def squares(count: int) -> list[str]:
    return [str(number * number) for number in range(count)]


def sums(count: int) -> list[str]:
    """Every sum on the way from 0 to `count`, of the even numbers and of the odd ones."""
    both = [*accumulate(range(0, count, 2)), *accumulate(range(1, count, 2))]
    return [str(each) for each in sorted(both)]
