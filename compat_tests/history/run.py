"""Runs a broker under load and faults, writes down what happens and has it checked.

    make chaos MINUTES=10                                    SIGKILLs of one broker at random instants
    python -m compat_tests.history.run --minutes 1 --seed 7

A `Cluster` says what can be done to the brokers (`faults`) and where their logs are in the end (`replicas`); `run` needs to
know nothing else of them, so that it is the same for one broker and for three.

The order of things: clients begin; faults follow one another, each after a random number of further acknowledgements, so
that it hits a broker at work; the faults end and acknowledgements have to go on coming; producers finish, so that every record
is acknowledged or has failed; fresh readers read everything; the brokers stop, and their logs are read from the disk.
"""

import argparse
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple, Protocol

from compat_tests.history.checker import check
from compat_tests.history.clients import (
    Client,
    RecordedGroup,
    RecordedProducer,
    RecordedReader,
    RecordedViewer,
    read_to_end,
)
from compat_tests.history.history import FaultBegan, FaultEnded, HistoryFile, Recorder, TopicBegan
from compat_tests.history.replica_logs import Replicas, read_log
from compat_tests.history.rules import Proof
from compat_tests.support.brokers import BrokerProcess, OttlaProcess, wait_until
from confluent_kafka.admin import AdminClient, NewTopic

TOPIC = "chaos"
CONFIGS = {"retention.ms": "-1", "segment.bytes": str(2 << 20)}  # so small that segments are rolled as well
RECOVERY_S = 60.0


class Fault(NamedTuple):
    """`begin` breaks something, `end` mends it; both return when it is done."""

    name: str
    target: str
    begin: Callable[[], None]
    end: Callable[[], None]


class Cluster(Protocol):
    replication_factor: int

    @property
    def bootstrap(self) -> str: ...

    def faults(self, chance: random.Random) -> Iterator[Fault]:
        """Faults without end, one after the other."""

    def stop(self) -> None: ...

    def replicas(self, topic: str, partition: int) -> Replicas:
        """Read from the disks of the stopped brokers."""


class OneBroker:
    """A single broker, which is killed with SIGKILL and started again."""

    replication_factor = 1

    def __init__(self, broker: BrokerProcess) -> None:
        self._broker = broker

    @property
    def bootstrap(self) -> str:
        return self._broker.bootstrap

    def faults(self, chance: random.Random) -> Iterator[Fault]:
        while True:
            yield Fault("SIGKILL", "the broker", self._broker.kill, self._broker.restart)

    def stop(self) -> None:
        self._broker.stop()

    def replicas(self, topic: str, partition: int) -> Replicas:
        log = read_log(self._broker.data_dir, topic, partition)
        return Replicas(topic, partition, None, {"the broker": log})


class Plan(NamedTuple):
    seed: int
    partitions: int = 4
    producers: int = 3
    rate: float = 300.0
    """Records a second of each producer."""

    value_bytes: int = 2000
    between_faults: tuple[int, ...] = (0, 1, 30, 300, 1000)
    """How many acknowledgements at most may come between two faults; one of these is chosen each time."""


class Outcome(NamedTuple):
    faults: int
    acknowledged: int
    failed: int
    read: int
    committed_offsets: int
    ends_seen: int
    proofs: list[Proof]

    def __str__(self) -> str:
        counts = ", ".join(f"{value} {name}" for name, value in self._asdict().items() if isinstance(value, int))
        return "\n".join([counts, f"{len(self.proofs)} violations", *map(str, self.proofs)]).replace("_", " ")


class Load:
    """All the clients of a run."""

    def __init__(self, plan: Plan, bootstrap: str, record: Recorder) -> None:
        where = (record, bootstrap, TOPIC, plan.partitions)
        self.producers = [
            RecordedProducer(f"producer {plan.seed}.{number}", *where, plan.rate, plan.value_bytes)
            for number in range(plan.producers)
        ]
        self.readers = [RecordedReader("reader", *where, False), RecordedReader("committed reader", *where, True)]
        self.group = RecordedGroup("group", *where)
        self.viewer = RecordedViewer("viewer", *where)
        self._all: list[Client] = [*self.producers, *self.readers, self.group, self.viewer]

    def start(self) -> None:
        for client in self._all:
            client.start()

    @property
    def acknowledged(self) -> int:
        return sum(producer.acknowledged for producer in self.producers)

    def wait_for_more(self, count: int) -> None:
        """Until so many more records are acknowledged, which has to happen within RECOVERY_S."""
        wanted = self.acknowledged + count
        wait_until(lambda: self._counts() >= wanted, f"{count} more acknowledgements", RECOVERY_S)

    def _counts(self) -> int:
        for client in self._all:
            if client.failure is not None:
                raise client.failure
        return self.acknowledged

    def finish(self) -> None:
        for client in self._all:
            client.is_over.set()
        for client in self._all:
            client.finish()


def run(cluster: Cluster, plan: Plan, history: HistoryFile, is_enough: Callable[[int], bool]) -> Outcome:
    """`is_enough(faults)` is asked after every fault."""
    record = Recorder(history.append)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    new = NewTopic(TOPIC, plan.partitions, cluster.replication_factor, config=CONFIGS)
    admin.create_topics([new])[TOPIC].result(30)
    record.add(TopicBegan, TOPIC, plan.partitions)
    load = Load(plan, cluster.bootstrap, record)
    load.start()
    count = _do_harm(cluster, plan, load, record, is_enough)
    load.wait_for_more(100)
    load.finish()
    for reader, committed_only in (("final reader", False), ("final committed reader", True)):
        read_to_end(reader, record, cluster.bootstrap, TOPIC, plan.partitions, committed_only)
    cluster.stop()
    history.close()
    logs = [cluster.replicas(TOPIC, partition) for partition in range(plan.partitions)]
    return Outcome(
        count,
        load.acknowledged,
        sum(producer.failed for producer in load.producers),
        sum(reader.read for reader in load.readers),
        load.group.committed,
        load.viewer.seen,
        check(history, logs),
    )


def _do_harm(cluster: Cluster, plan: Plan, load: Load, record: Recorder, is_enough: Callable[[int], bool]) -> int:
    chance = random.Random(plan.seed)
    for count, fault in enumerate(cluster.faults(chance)):
        if is_enough(count):
            return count
        load.wait_for_more(chance.randint(0, chance.choice(plan.between_faults)))
        record.add(FaultBegan, fault.name, fault.target)
        fault.begin()
        fault.end()
        record.add(FaultEnded, fault.name, fault.target)
    return count


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m compat_tests.history.run", description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument(
        "--seed", type=int, default=None, help="of the choices made here; the processes keep their own time"
    )
    parser.add_argument(
        "--rate", type=float, default=Plan._field_defaults["rate"], help="records a second of each producer"
    )
    parser.add_argument("--directory", type=Path, help="where data and history are left (default: only if needed)")
    chosen = parser.parse_args(arguments)
    seed = random.randrange(1 << 31) if chosen.seed is None else chosen.seed
    directory = chosen.directory or Path(tempfile.mkdtemp(prefix="ottla-chaos-"))
    directory.mkdir(parents=True, exist_ok=True)
    print(f"seed {seed}, in {directory}", flush=True)
    broker = OttlaProcess(directory, {})
    broker.start()
    end = time.monotonic() + chosen.minutes * 60
    try:
        plan, history = Plan(seed, rate=chosen.rate), HistoryFile(directory / "history.jsonl")
        outcome = run(OneBroker(broker), plan, history, lambda faults: time.monotonic() > end)
    finally:
        if not broker.died():
            broker.kill()
    print(outcome)
    if not outcome.proofs and chosen.directory is None:
        shutil.rmtree(directory)
    return 1 if outcome.proofs else 0


if __name__ == "__main__":
    sys.exit(main())
