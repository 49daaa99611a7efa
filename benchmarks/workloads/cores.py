"""Several workers: what a machine's other processors add, beside Apache Kafka, which uses all of them by itself.

The figures of this group hold for the number of processors that the head of the table names, and for WORKERS workers. Replayed
requests go to a partition for each worker, which it leads, by a client process each; one broker gets both.
"""

import contextlib
import re
import threading
import time
from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from statistics import median
from typing import Self

from benchmarks import machine
from benchmarks.alone.replays import fetch_error_offsets, produce_error_offset
from benchmarks.brokers import START_TIMEOUT_S, YARDSTICK, Broker, Failed, Ottla, stop_all
from benchmarks.clients import new_topic
from benchmarks.programs import Request, compiler, replay
from benchmarks.rows import Metric, Row, Target, at_least, within
from benchmarks.session import Session, warm_up
from benchmarks.wire_client import Client, batch_of, fetch_frame, produce_frame
from benchmarks.workloads.throughput import Produce, by_librdkafka, records_of, size_name
from compat_tests.support.brokers import free_ports_in_a_row

KIB, MIB, MB, GB = 1 << 10, 1 << 20, 1e6, 1e9
WORKERS = 2
CONNECTIONS, DEPTH = 2, 5
"""Of each of the WORKERS client processes."""

PRODUCE = {KIB: (30e6, 1.0), 64 * KIB: (400e6, 1.3), MIB: (600e6, 1.2)}
FETCH = {64 * KIB: (1e9, 1.0), MIB: (2e9, 1.0)}
"""Size of a batch -> bytes, and how many times Apache Kafka's rate is wanted."""

LIBRDKAFKA_BYTES = 300e6
TIMES_ONE_WORKER, SHARE_OF_WHAT_FITS = 1.5, 0.9
"""A row wants 1.5 times the rate of one worker. Its clients share the processors, so there may be no room for that. Then it wants this
share of what there is room for."""

IDLE_MB, IDLE_MB_EACH = 34.0, 28.0
SETTLED_S = 2.0


class Workers(Ottla):
    """`count` workers of one start."""

    count = WORKERS

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.port = free_ports_in_a_row(1 + self.count)

    def settings(self) -> dict[str, str]:
        return super().settings() | {"num.workers": str(self.count), "node.id": "1"}

    @property
    def pids(self) -> list[int]:
        """Of the supervisor and of all that it has forked."""
        found = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        return [self.pid, *map(int, found)]

    @property
    def admin_port(self) -> int:
        """The controller's."""
        with Client(self.port) as client:
            found = client.metadata([])
        ports = {each.node_id: each.port for each in found.brokers}
        if len(ports) < self.count or found.controller_id not in ports:
            raise Failed(f"of {self.count} workers {len(ports)} are there, and the controller is {found.controller_id}")
        return ports[found.controller_id]

    def start(self) -> Self:
        """Returns when all workers are there."""
        super().start()
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            try:
                assert self.admin_port
                return self
            except (Failed, OSError):
                if time.monotonic() > deadline:
                    self.stop()
                    raise
            time.sleep(0.02)

    def cpu_seconds(self) -> float:
        return sum(map(machine.cpu_seconds, self.pids))


class OneWorker(Ottla):
    """The same broker as in all other groups."""

    name = "1 worker"


class FourWorkers(Workers):
    name = "4 workers"
    count = 4


def rows(session: Session) -> Generator[Row]:
    if compiler() is None:
        raise Failed("no C compiler, or no CRC-32C here")
    kinds = [each for each in (Workers, YARDSTICK, OneWorker) if not each.missing()]
    brokers = [session.new(kind) for kind in kinds]
    try:
        for broker in brokers:
            broker.start()
            warm_up(broker, session.warm_up_passes)
        for size, (amount, wanted) in PRODUCE.items():
            yield from _rows(
                f"produce, batches of {size_name(size)}", brokers, _produce(session, size, amount), wanted, session
            )
        for size, (amount, wanted) in FETCH.items():
            yield from _rows(f"fetch of {size_name(size)}", brokers, _fetch(session, size, amount), wanted, session)
        ours = [each for each in brokers if isinstance(each, Ottla)]
        for acks in ("all", "1"):
            workload = Produce("librdkafka", KIB, 64 * KIB, acks, 10)
            metrics = (
                Metric("MB/s", "MB/s", more_is_better=True, digits=0),
                Metric("s/GB", "s/GB", label="broker CPU"),
            )
            yield Row(
                f"{workload.name}, {WORKERS} workers", ours, _librdkafka(session, workload), metrics, session.rounds
            )
    finally:
        stop_all(brokers)
    yield from _idle_rows(session)


def _rows(
    what: str, brokers: list[Broker], run: Callable[[Broker], Mapping[str, float]], wanted: float, session: Session
) -> Generator[Row]:
    """The workload beside Apache Kafka, and then what the workers have added to one."""
    name = f"{what}, replayed, {WORKERS} clients of {CONNECTIONS} connections, {WORKERS} workers"
    metrics = (Metric("MB/s", "MB/s", at_least(wanted), True, 0), Metric("s/GB", "s/GB", label="broker CPU"))
    beside = (Metric("client s/GB", "s/GB", label="client CPU"), Metric("busy", "processors", label="busy"))
    told: dict[str, list[Mapping[str, float]]] = {}

    def remembered(broker: Broker) -> Mapping[str, float]:
        numbers = run(broker)
        told.setdefault(broker.name, []).append(numbers)
        return numbers

    yield Row(name, brokers, remembered, metrics, session.rounds, beside=beside)
    if all(kind.name in told for kind in (Workers, OneWorker)):
        yield _times_one_worker(name, brokers, told[Workers.name], told[OneWorker.name])


def _times_one_worker(
    name: str, brokers: list[Broker], several: list[Mapping[str, float]], one: list[Mapping[str, float]]
) -> Row:
    """A row of what has been measured already."""
    rates = [ours["MB/s"] / alone["MB/s"] for ours, alone in zip(several, one, strict=False)]
    fits = machine.processors() / median(each["busy"] for each in one)
    target = Target(round(min(TIMES_ONE_WORKER, SHARE_OF_WHAT_FITS * fits), 2), at_least=True, unit="times")
    return Row(
        f"{name}: times the rate of 1 worker",
        [each for each in brokers if isinstance(each, Workers)],
        lambda broker: {"times": median(rates), "fits": fits},
        (Metric("times", "times", target, more_is_better=True),),
        rounds=1,
        beside=(Metric("fits", "times", label="as many as the processors allow"),),
    )


# --- replays, one for each worker


def _leaders(broker: Broker, topic: str) -> list[tuple[int, int]]:
    """(port, partition) for as many clients as there are workers, once each partition has a leader."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        with Client(broker.port) as client:
            found = client.metadata([topic])
        ports = {each.node_id: each.port for each in found.brokers}
        led = [(ports.get(each.leader_id), each.partition_index) for part in found.topics for each in part.partitions]
        led_by = sorted((port, partition) for port, partition in led if port is not None)
        if len(led_by) == WORKERS:
            return led_by
        time.sleep(0.05)
    raise Failed(f"not every partition of {topic} has a leader")


def _produce(session: Session, size: int, amount: float) -> Callable[[Broker], Mapping[str, float]]:
    batch = batch_of(size)

    def run(broker: Broker) -> Mapping[str, float]:
        with new_topic(broker, WORKERS) as topic:
            prepared = []
            for port, partition in _leaders(broker, topic):
                request = produce_frame(topic, batch, index=partition)
                frame = session.work / f"replay-{partition}"
                frame.write_bytes(request)
                with Client(port) as client:
                    response = client.produce(request)
                prepared.append((port, Request(frame, len(response), (produce_error_offset(topic),))))
            return _replayed(broker, prepared, int(amount * session.share / len(batch)), len(batch))

    return run


def _fetch(session: Session, size: int, amount: float) -> Callable[[Broker], Mapping[str, float]]:
    batch = batch_of(size)

    def run(broker: Broker) -> Mapping[str, float]:
        with new_topic(broker, WORKERS) as topic:
            prepared = []
            for port, partition in _leaders(broker, topic):
                frame = session.work / f"replay-{partition}"
                with Client(port) as client:
                    client.produce(produce_frame(topic, batch, index=partition))
                    topic_id = client.topic_id(topic)
                    request = fetch_frame(topic_id, len(batch), partition)
                    response = client.ask_bytes(request)
                if len(response) < len(batch):
                    raise Failed(f"a fetch brought {len(response)} bytes, less than a batch")
                frame.write_bytes(request)
                prepared.append((port, Request(frame, len(response), fetch_error_offsets(topic_id))))
            return _replayed(broker, prepared, int(amount * session.share / len(batch)), len(batch))

    return run


def _replayed(
    broker: Broker, prepared: list[tuple[int, Request]], requests: int, bytes_each: int
) -> Mapping[str, float]:
    """All clients at the same time; the rate is what they have done together until the last one is ready."""
    machine.wait_until_quiet(*broker.pids)
    each, seconds, failures = max(1, requests // len(prepared)), [0.0] * len(prepared), list[Exception]()

    def play(number: int, port: int, request: Request) -> None:
        try:
            seconds[number] = replay(port, request, each, CONNECTIONS, DEPTH, pinned=False).seconds
        except Exception as error:  # noqa: BLE001 - of a thread nobody else would hear
            failures.append(error)

    before, clients_before = broker.cpu_seconds(), machine.ended_children_cpu_seconds()
    threads = [threading.Thread(target=play, args=(number, *given)) for number, given in enumerate(prepared)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise Failed(str(failures[0]))
    used, by_clients = broker.cpu_seconds() - before, machine.ended_children_cpu_seconds() - clients_before
    played, longest = each * len(prepared) * bytes_each, max(seconds)
    return {
        "MB/s": played / longest / MB,
        "s/GB": used / (played / GB),
        "client s/GB": by_clients / (played / GB),
        "busy": (used + by_clients) / longest,
    }


# --- clients as people have them, and memory


def _librdkafka(session: Session, workload: Produce) -> Callable[[Broker], Mapping[str, float]]:
    def run(broker: Broker) -> Mapping[str, float]:
        records = records_of(session, LIBRDKAFKA_BYTES, workload.size)
        with new_topic(broker, workload.partitions) as topic:
            return by_librdkafka(broker, topic, workload, records)

    return run


def _idle_rows(session: Session) -> Generator[Row]:
    for kind in (Workers, FourWorkers):
        limit = IDLE_MB + IDLE_MB_EACH * (kind.count - 1)
        template = session.new(type(f"{kind.__name__}AtRest", (kind,), {"name": Ottla.name}))
        metric = Metric("mb", "MB", within(limit, "MB"), digits=0)
        yield Row(
            f"idle memory of {kind.count} workers (PSS of all processes)", [template], _idle(session), [metric], 1
        )


def _idle(session: Session) -> Callable[[Broker], Mapping[str, float]]:
    def run(template: Broker) -> Mapping[str, float]:
        broker = session.new(type(template))
        with contextlib.ExitStack() as ends:
            broker.start()
            ends.callback(broker.stop)
            time.sleep(SETTLED_S)
            return {"mb": sum(map(_pss_mb, broker.pids))}

    return run


def _pss_mb(pid: int) -> float:
    found = re.search(r"^Pss:\s+(\d+) kB", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1]) * 1024 / MB
