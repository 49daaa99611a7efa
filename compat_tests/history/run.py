"""Runs a broker under load and faults, writes down what happens and has it checked.

    make chaos MINUTES=10                                    SIGKILLs of one broker at random instants
    make chaos MINUTES=10 BROKERS=3                          three brokers, and whatever can happen to them
    python -m compat_tests.history.run --brokers 3 --faults SIGKILL --count 200
    python -m compat_tests.history.run --brokers 3 --faults partition --count 100
    python -m compat_tests.history.run --brokers 3 --served  the same without ZooKeeper: a process holds the tree
    make chaos ARGS="--workers 4"                            workers, their tree's holder and their supervisor are killed and stopped
    make chaos ARGS="--workers 4 --kills 200 --supervisor-kills 50"     until so many were killed, however long that takes
    make chaos MINUTES=5 BROKERS=3 ARGS="--make kafka"       the proof of this harness: all are Apache Kafka 3.9
    make chaos MINUTES=5 ARGS="--make kafka"                 the same with one broker of Apache Kafka 4, which has share groups

Something else takes all processors meanwhile, unless it is told `--quiet`: what is wrong shows when turns come late.

A `Cluster` says what can be done to the brokers (`faults`) and where their logs are in the end (`replicas`); `run` needs to
know nothing else of them, so that it is the same for one broker and for three.

The order of things: clients begin; faults follow one another, each after a random number of further acknowledgements, so
that it hits a broker at work; the faults end, acknowledgements have to go on coming and readers to go on reading; producers
finish, so that every record is acknowledged or has failed; fresh readers read everything; the brokers stop, and their logs
are read from the disk.
"""

import argparse
import contextlib
import itertools
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import ClassVar, NamedTuple, Protocol

from compat_tests.apache.brokers import ApacheKafka3, ApacheKafka4
from compat_tests.history.clients import (
    Client,
    RecordedGroup,
    RecordedProducer,
    RecordedReader,
    RecordedViewer,
    read_to_end,
)
from compat_tests.history.faults import Fault
from compat_tests.history.members import ALL, CONSUMER, SHARE, SHARED_TOPIC, Members, RecordedMember, brokers_of
from compat_tests.history.members import SETTINGS as MEMBERS_SETTINGS
from compat_tests.history.probes import AWAY_MAX_S, Trouble, is_bearable, probes
from compat_tests.history.probes import PARTITIONS as PROBED_PARTITIONS
from compat_tests.history.probes import TOPIC as PROBED_TOPIC
from compat_tests.history.processors import Processor
from compat_tests.history.several_workers import SESSION_TIMEOUT_MS, SeveralWorkers, Wanted
from compat_tests.history.three_brokers import TRANSACTIONAL_TOPIC, ThreeBrokers
from compat_tests.support.brokers import BrokerProcess, OttlaProcess, wait_until
from compat_tests.support.busy import busy
from compat_tests.support.network import enter_namespaces, has_namespaces
from compat_tests.support.workers import WorkersProcess
from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from ottla.server.testing.history.checker import check
from ottla.server.testing.history.fault_kinds import FaultKind
from ottla.server.testing.history.history import FaultBegan, FaultEnded, HistoryFile, Merged, Recorder, TopicBegan
from ottla.server.testing.history.replica_logs import Replicas, read_log
from ottla.server.testing.history.rules import Proof

TOPIC = "chaos"
TOPICS = (TOPIC, TRANSACTIONAL_TOPIC, SHARED_TOPIC)
SHARED_RATE = 40.0  # records a second
CONFIGS = {"retention.ms": "-1", "segment.bytes": str(2 << 20)}  # so small that segments are rolled as well
RECOVERY_S = 60.0


class Cluster(Protocol):
    replication_factor: int
    configs: dict[str, str]
    """Of the topic, beside those of every run."""

    kinds_of_groups: Sequence[str]
    """That are served."""

    @property
    def bootstrap(self) -> str: ...

    @property
    def addresses(self) -> Sequence[tuple[str, int]]:
        """Of the brokers by id, if it is to be probed whether they serve."""

    def is_well(self) -> bool:
        """Whether every broker says that all brokers are there and all replicas in sync."""

    def faults(self, topic: str, chance: random.Random) -> Iterator[Fault]:
        """Faults, one after the other; they end if as many were done as were wanted."""

    def stop(self) -> None:
        """When nothing is written any more and all has been read."""

    def replicas(self, topic: str, partition: int) -> Replicas:
        """Read from the disks of the stopped brokers."""


class OneBroker:
    """A single broker, which is killed with SIGKILL and started again."""

    replication_factor = 1
    configs: ClassVar[dict[str, str]] = {}
    kinds_of_groups = ALL
    addresses: Sequence[tuple[str, int]] = ()  # a broker that is killed serves nothing

    def __init__(self, broker: BrokerProcess) -> None:
        self._broker = broker

    def is_well(self) -> bool:
        return False

    @property
    def bootstrap(self) -> str:
        return self._broker.bootstrap

    def faults(self, topic: str, chance: random.Random) -> Iterator[Fault]:
        while True:
            yield Fault(FaultKind.KILLED, self._kill, self._broker.restart)

    def _kill(self) -> str:
        self._broker.kill()
        return "the broker"

    def start(self) -> None:
        self._broker.start()

    def stop(self) -> None:
        self._broker.stop()

    def kill(self) -> None:
        if self._broker.process is not None:
            self._broker.kill()

    def keep(self) -> None:
        """All of it lies in its directory anyway."""

    def discard(self) -> None:
        """Its directory can be removed."""

    def state(self) -> str:
        return self._broker.log[-4000:]

    def replicas(self, topic: str, partition: int) -> Replicas:
        log = read_log(self._broker.data_dir, topic, partition)
        return Replicas(topic, partition, None, {"the broker": log})


class Plan(NamedTuple):
    seed: int
    partitions: int = 4
    producers: int = 3
    """The last one sends in bursts."""

    processors: int = 3
    """With a transactional id each."""

    members: int = 3
    """Of a group of each kind."""

    rate: float = 300.0
    """Records a second of each producer."""

    value_bytes: int = 2000
    away_max_s: float = AWAY_MAX_S
    between_faults: tuple[int, ...] = (0, 1, 30, 300, 1000)
    """How many acknowledgements at most may come between two faults; one of these is chosen each time."""


class Outcome(NamedTuple):
    faults: int
    acknowledged: int
    failed: int
    epochs_raised: int
    read: int
    committed_offsets: int
    transactions_committed: int
    transactions_aborted: int
    transactions_in_doubt: int
    producers_fenced: int
    share_acceptances: int
    times_owned: int
    ends_seen: int
    probes_served: int
    proofs: list[Proof]

    def __str__(self) -> str:
        counts = ", ".join(f"{value} {name}" for name, value in self._asdict().items() if isinstance(value, int))
        return "\n".join([counts, f"{len(self.proofs)} violations", *map(str, self.proofs)]).replace("_", " ")


class Load:
    """All the clients of a run."""

    def __init__(self, plan: Plan, cluster: Cluster, record: Recorder, directory: Path) -> None:
        """Processors leave their histories in the directory."""
        bootstrap = cluster.bootstrap
        where = (record, bootstrap, TOPIC, plan.partitions)
        self.producers = [
            RecordedProducer(
                f"producer {plan.seed}.{number}",
                *where,
                plan.rate,
                plan.value_bytes,
                in_bursts=number == plan.producers - 1,
            )
            for number in range(plan.producers)
        ]
        self.readers = [RecordedReader("reader", *where, False), RecordedReader("committed reader", *where, True)]
        transactional = (bootstrap, TRANSACTIONAL_TOPIC, plan.partitions)
        self.processors = [
            Processor(
                f"processor {plan.seed}.{number}",
                directory / f"processor-{number}.jsonl",
                *transactional,
                # Brokers of Apache Kafka 3.9 do not know the newest protocol, nor groups of KIP-848.
                is_newest=bool(number % 2) and CONSUMER in cluster.kinds_of_groups,
            )
            for number in range(plan.processors)
        ]
        self.readers += [
            RecordedReader("reader of transactions", record, *transactional, False),
            RecordedReader("committed reader of transactions", record, *transactional, True),
        ]
        self.group = RecordedGroup("group", *where)
        self.viewer = RecordedViewer("viewer", *where)
        self.members = Members(
            record, brokers_of(bootstrap), SHARED_TOPIC, plan.partitions, cluster.kinds_of_groups, plan.members
        )
        self.rebalancing = [
            RecordedMember(f"member {plan.seed}.{number}", record, bootstrap, SHARED_TOPIC)
            for number in range(plan.members if CONSUMER in cluster.kinds_of_groups else 0)
        ]
        shared = (record, bootstrap, SHARED_TOPIC, plan.partitions, SHARED_RATE, 100)
        self.sharing = RecordedProducer(f"producer {plan.seed}.shared", *shared)
        self.probes = probes(record, cluster.addresses, plan.away_max_s) if cluster.addresses else []
        self.trouble = Trouble(record.add)
        self._all: list[Client | Processor] = [
            *self.producers,
            self.sharing,
            *self.processors,
            *self.readers,
            self.group,
        ]
        self._all += [self.viewer, *self.rebalancing, *self.probes]
        if self.probes:
            self._all.append(Watch("watch", record, cluster, self.trouble))

    def start(self) -> None:
        for client in (*self._all, self.members):
            client.start()

    @property
    def acknowledged(self) -> int:
        return sum(producer.acknowledged for producer in self.producers)

    def wait_for_more(self, count: int) -> None:
        """Until so many more records are acknowledged, which has to happen within RECOVERY_S."""
        wanted = self.acknowledged + count
        wait_until(lambda: self._counts() >= wanted, f"{count} more acknowledgements", RECOVERY_S)

    def wait_for_readers(self) -> None:
        """Until each has read on. A client that met every fault may pause for seconds before it asks for leaders again."""
        before = [reader.read for reader in self.readers]

        def have_read() -> bool:
            self._counts()  # raises what a client failed with
            return all(reader.read > count for reader, count in zip(self.readers, before, strict=True))

        wait_until(have_read, "records for every reader", RECOVERY_S)

    def wait_for_witnesses(self) -> None:
        """Until clients of every kind have something to tell. A run of few faults may be over before a group has formed."""
        counts: dict[str, Callable[[], int]] = {
            "a committed offset": lambda: self.group.committed,
            "an end of a partition": lambda: self.viewer.seen,
        }
        if SHARE in self.members.kinds:
            counts["an accepted record of a share group"] = lambda: self.members.accepted
        if self.rebalancing:
            counts["a member that owns a partition"] = lambda: sum(each.owned for each in self.rebalancing)
        for what, count in counts.items():
            wait_until(lambda count=count: self._counts() >= 0 and count() > 0, what, RECOVERY_S)

    def watch(self, seconds: float) -> None:
        """For so long, but not on after a client has failed."""
        end = time.monotonic() + seconds
        while self._counts() >= 0 and (left := end - time.monotonic()) > 0:
            time.sleep(min(left, 0.05))

    def _counts(self) -> int:
        for client in (*self._all, self.members):
            if client.failure is not None:
                raise client.failure
        return self.acknowledged

    def finish(self) -> None:
        for client in self._all:
            client.is_over.set()
        for client in self._all:
            client.finish()
        self.members.finish()  # now that all is written


class Watch(Client):
    """Looks whether the cluster has recovered from its faults."""

    def __init__(self, name: str, record: Recorder, cluster: Cluster, trouble: Trouble) -> None:
        super().__init__(name, record)
        self._cluster, self._trouble = cluster, trouble
        trouble.before_fault(is_well=False, is_bearable=False)  # nobody leads anything yet
        trouble.after_fault()

    def turn(self) -> None:
        if self._trouble.is_there:
            self._trouble.look(is_well=self._cluster.is_well())
        self.is_over.wait(0.5)


def run(
    cluster: Cluster,
    plan: Plan,
    history: HistoryFile,
    is_enough: Callable[[int], bool],
    tell: Callable[[str], None] = lambda words: None,
) -> Outcome:
    """`is_enough(faults)` is asked after every fault, and each fault is told in a line."""
    record = Recorder(history.append)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    _create_topic(admin, cluster, plan)
    record.add(TopicBegan, TOPIC, plan.partitions)
    record.add(TopicBegan, TRANSACTIONAL_TOPIC, plan.partitions, False, True)
    record.add(TopicBegan, SHARED_TOPIC, plan.partitions)
    load = Load(plan, cluster, record, history.path.parent)
    load.start()
    count = _do_harm(cluster, plan, load, record, is_enough, tell)
    load.wait_for_more(101)
    load.wait_for_readers()
    load.wait_for_witnesses()
    load.finish()
    for reader, committed_only in (("final reader", False), ("final committed reader", True)):
        for topic in TOPICS:
            read_to_end(reader, record, cluster.bootstrap, topic, plan.partitions, committed_only)
    cluster.stop()
    history.close()
    logs = [cluster.replicas(topic, partition) for topic in TOPICS for partition in range(plan.partitions)]
    return Outcome(
        count,
        load.acknowledged,
        sum(producer.failed for producer in load.producers),
        sum(producer.epochs_raised for producer in load.producers),
        sum(reader.read for reader in load.readers),
        load.group.committed,
        sum(each.committed for each in load.processors),
        sum(each.aborted for each in load.processors),
        sum(each.in_doubt for each in load.processors),
        sum(each.fenced for each in load.processors),
        load.members.accepted,
        sum(each.owned for each in load.rebalancing),
        load.viewer.seen,
        sum(probe.served for probe in load.probes),
        check(Merged([history, *(each.history for each in load.processors)]), logs),
    )


def _create_topic(admin: AdminClient, cluster: Cluster, plan: Plan) -> None:
    """Returns when all leaders know that they lead.

    Else the first of several batches on their way may be refused and a later one taken, which a leader that knows nothing of the
    producer does whatever its sequence; and librdkafka takes that for an acknowledgement of all before it, with Apache Kafka too.
    """
    config, copies = CONFIGS | cluster.configs, cluster.replication_factor
    new = [NewTopic(topic, plan.partitions, copies, config=config) for topic in TOPICS]
    if cluster.addresses:
        new.append(NewTopic(PROBED_TOPIC, PROBED_PARTITIONS, copies, config=config))
    for made in admin.create_topics(new).values():
        made.result(30)
    asked = {TopicPartition(*where): OffsetSpec.latest() for where in itertools.product(TOPICS, range(plan.partitions))}

    def all_answer() -> bool:
        with contextlib.suppress(KafkaException):
            return all(future.result() for future in admin.list_offsets(asked, request_timeout=5).values())
        return False

    wait_until(all_answer, "all partitions are led", RECOVERY_S)


def _do_harm(
    cluster: Cluster,
    plan: Plan,
    load: Load,
    record: Recorder,
    is_enough: Callable[[int], bool],
    tell: Callable[[str], None],
) -> int:
    chance = random.Random(plan.seed)
    count, faults = 0, cluster.faults(TOPIC, chance)
    while not is_enough(count):
        load.wait_for_more(chance.randint(0, chance.choice(plan.between_faults)))
        if (fault := next(faults, None)) is None:
            break
        began = time.monotonic()
        load.trouble.before_fault(is_well=cluster.is_well(), is_bearable=is_bearable(fault.name))
        target = fault.begin()
        record.add(FaultBegan, fault.name, target)
        load.watch(fault.hold_s)
        fault.end()
        load.trouble.after_fault()
        record.add(FaultEnded, fault.name, target)
        count += 1
        tell(f"{count}: {fault.name} ({target}), {time.monotonic() - began:.1f} s")
    return count


def main(arguments: list[str] | None = None) -> int:
    given = sys.argv[1:] if arguments is None else arguments
    chosen = _parser().parse_args(given)
    if chosen.apache_kafka is None:
        chosen.apache_kafka = chosen.brokers if chosen.make == "kafka" and chosen.brokers > 1 else 0
    if chosen.brokers > 1 and not chosen.proxies:
        enter_namespaces("compat_tests.history.run", given)
    seed = random.randrange(1 << 31) if chosen.seed is None else chosen.seed
    directory = chosen.directory or Path(tempfile.mkdtemp(prefix="ottla-chaos-"))
    directory.mkdir(parents=True, exist_ok=True)
    print(f"seed {seed}, in {directory}", flush=True)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the first process of a namespace would not hear it
    cluster = _cluster(chosen, directory)
    try:
        with contextlib.nullcontext() if chosen.quiet else busy():
            cluster.start()
            plan, history = (
                Plan(seed, rate=chosen.rate, away_max_s=chosen.away_max),
                HistoryFile(directory / "history.jsonl"),
            )
            outcome = run(cluster, plan, history, _limit(chosen), tell=lambda words: print(words, flush=True))
    except BaseException:
        print(cluster.state(), flush=True)
        cluster.keep()
        raise
    finally:
        cluster.kill()
    print(outcome)
    if isinstance(cluster, SeveralWorkers):
        print(", ".join(f"{count} {what}" for what, count in sorted(cluster.done.items())))
    if outcome.proofs:
        cluster.keep()
    elif chosen.directory is None:
        cluster.discard()
        shutil.rmtree(directory)
    return 1 if outcome.proofs else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m compat_tests.history.run", description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--count", type=int, default=None, help="end after so many faults, and not by the clock")
    parser.add_argument("--brokers", type=int, default=1, choices=(1, 3))
    parser.add_argument("--workers", type=int, default=1, help="of one start, if it is not one broker alone")
    parser.add_argument(
        "--kills", type=int, default=0, help="of workers: end after so many SIGKILLs of them, and not by the clock"
    )
    parser.add_argument(
        "--supervisor-kills", type=int, default=0, help="the same of their supervisor; the run does both"
    )
    parser.add_argument(
        "--make", default="ottla", choices=("ottla", "kafka"), help="of the brokers; Kafka is 3.9, or 4 if it is alone"
    )
    parser.add_argument(
        "--apache-kafka", type=int, choices=range(4), help="how many of three brokers are Apache Kafka 3.9"
    )
    parser.add_argument(
        "--served", action="store_true", help="three brokers share a tree that another process holds, no ZooKeeper"
    )
    load = parser.add_mutually_exclusive_group()
    load.add_argument("--busy", action="store_true", help="take all processors beside it; so it is by default")
    load.add_argument("--quiet", action="store_true", help="leave the processors to the brokers and their clients")
    parser.add_argument(
        "--faults", nargs="+", default=(), help="of three brokers: only those whose names begin so, such as SIGKILL"
    )
    parser.add_argument(
        "--seed", type=int, default=None, help="of the choices made here; the processes keep their own time"
    )
    parser.add_argument(
        "--rate", type=float, default=Plan._field_defaults["rate"], help="records a second of each producer"
    )
    parser.add_argument(
        "--away-max",
        type=float,
        default=AWAY_MAX_S,
        help="seconds in which what somebody leads is served again; a busy machine takes more",
    )
    parser.add_argument(
        "--proxies", action="store_true", help="cut networks by proxies, as where no namespaces are allowed"
    )
    parser.add_argument("--directory", type=Path, help="where data and history are left (default: only if needed)")
    return parser


def _cluster(chosen: argparse.Namespace, directory: Path) -> OneBroker | SeveralWorkers | ThreeBrokers:
    if chosen.workers > 1:
        assert chosen.brokers == 1 and chosen.make == "ottla", "--workers is for one start of Ottla"
        wanted = Wanted(chosen.kills, chosen.supervisor_kills) if _has_wanted(chosen) else None
        return SeveralWorkers(WorkersProcess(directory, workers_settings(chosen.workers)), wanted)
    assert not _has_wanted(chosen), "--kills and --supervisor-kills are for --workers"
    if chosen.brokers == 1:
        assert not chosen.apache_kafka, "only three brokers can be Apache Kafka"
        kind = ApacheKafka4 if chosen.make == "kafka" else OttlaProcess
        return OneBroker(kind(directory, dict(MEMBERS_SETTINGS)))
    if not has_namespaces():
        print("this machine allows no namespaces: networks are cut by proxies, and disks are not filled", flush=True)
    ours = chosen.brokers - int(chosen.apache_kafka)
    assert ours == chosen.brokers or not chosen.served, "Apache Kafka needs ZooKeeper"
    kinds = [OttlaProcess] * ours + [ApacheKafka3] * chosen.apache_kafka
    return ThreeBrokers(directory, kinds, chosen.faults, is_served=chosen.served)


def workers_settings(count: int) -> dict[str, str]:
    """Of so many workers under chaos."""
    few = {"transaction.state.log.num.partitions": "8", "coordination.session.timeout.ms": str(SESSION_TIMEOUT_MS)}
    return MEMBERS_SETTINGS | few | {"num.workers": str(count)}


def _has_wanted(chosen: argparse.Namespace) -> bool:
    return chosen.kills + chosen.supervisor_kills > 0


def _limit(chosen: argparse.Namespace) -> Callable[[int], bool]:
    """Whether so many faults are enough."""
    if _has_wanted(chosen):
        return lambda faults: False  # they end by themselves
    end = time.monotonic() + chosen.minutes * 60
    return lambda faults: faults >= chosen.count if chosen.count is not None else time.monotonic() > end


if __name__ == "__main__":
    sys.exit(main())
