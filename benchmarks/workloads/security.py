"""What security costs: records over TLS, handshakes, logins, and rules.

Both makes serve the same keys, users and rules (`secured.py`). What connects is the same program for both (`logins.py`), one
process of eight threads; it shares the processors with the broker, so what the broker itself needs stands beside.
"""

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterator, Mapping

from benchmarks import machine
from benchmarks.brokers import Broker, Failed, Ottla, stop_all
from benchmarks.clients import load, new_topic
from benchmarks.clients import run as run_program
from benchmarks.rows import Metric, Row, at_least, at_most, within
from benchmarks.secured import RULED, SECURED, Secured, add_quotas, add_rules, add_user, kinds, properties
from benchmarks.session import Session, warm_up
from benchmarks.wire_client import Client, batch_of, produce_frame
from benchmarks.workloads.startup import TOPIC, cold_start, first_record, idle_memory
from benchmarks.workloads.throughput import (
    CONSUMED_BYTES,
    EAGER,
    FULL_BYTES,
    KIB,
    LIBRDKAFKA,
    metered,
    records_of,
    throughput_row,
)

from ottla.server.config.security_config import AuthorizerConfig
from ottla.server.dispatch.access import AclOperation, ResourceType
from ottla.server.security.acls import Entry, Pattern, PatternType, Permission
from ottla.server.security.authorizer import VERDICTS_PER_HALF, AclAuthorizer

THREADS = 8
SECONDS = 5.0
BYSTANDERS_RATE, HANDSHAKES_PER_SECOND = 1000, 500
LATENCY_RATE = 1000
Numbers = Mapping[str, float]


def rows(session: Session) -> Generator[Row]:
    with started(session, SECURED) as brokers:
        yield from tls_rows(session, brokers)
        yield from connection_rows(session, brokers)
        with started(session, RULED) as ruled:
            yield from rules_rows(session, brokers, ruled)
    templates: list[Broker] = [session.new(kind) for kind in kinds(RULED)]
    metrics = (Metric("started_s", "s", within(0.25, "s"), label="folder formatted before"),)
    yield Row("cold start with TLS, SCRAM and an authorizer", templates, cold_start(session), metrics, session.rounds)
    idle = (Metric("mb", "MB", within(45, "MB"), digits=0),)
    yield Row("idle RSS with TLS, SCRAM and an authorizer", templates, idle_memory(session), idle, session.rounds)
    yield decisions_row(session)


@contextlib.contextmanager
def started(session: Session, of: dict[type[Broker], type[Secured]]) -> Iterator[list[Secured]]:
    """One of each make, warmed up, with its user; with rules and quotas if it has an authorizer."""
    brokers: list[Secured] = []
    try:
        for kind in kinds(of):
            broker = session.new(kind)
            assert isinstance(broker, Secured)
            brokers.append(broker)
            broker.start()
            add_user(broker)
            if broker.authorizer:
                add_rules(broker)
                add_quotas(broker)
            warm_up(broker, 2)
        yield brokers
    finally:
        stop_all(brokers)


# --- records over TLS --------------------------------------------------------------------------------------------------


def tls_rows(session: Session, brokers: list[Secured]) -> Generator[Row]:
    main: list[Broker] = list(brokers)
    more, less = at_least(1.2), at_most(0.7)
    for size in (64 * KIB,) if session.quick else (64 * KIB, KIB * KIB):
        name = f"produce 1 KiB over TLS, librdkafka, linger 5 ms, {size // KIB} KiB batches, acks=all"
        yield throughput_row(session, name, main, produce(session, size), more, less, "")
    with contextlib.ExitStack() as kept:
        topics = {broker.name: kept.enter_context(new_topic(broker)) for broker in brokers}
        records = records_of(session, CONSUMED_BYTES, KIB)
        for broker in brokers:
            settings = {"linger_ms": 5, "batch_size": 64 * KIB, "acks": "all"}
            load(broker, "produce", topics[broker.name], 1, records, KIB, **settings)

        def consume(broker: Broker) -> Numbers:
            assert isinstance(broker, Secured)
            own = properties(broker, "ECDSA") | EAGER
            return metered(broker, KIB, lambda: load(broker, "consume", topics[broker.name], 1, records, **own))

        yield throughput_row(session, "consume 1 KiB over TLS, librdkafka", main, consume, more, less, "")


def produce(session: Session, batch: int) -> Callable[[Broker], Numbers]:
    def run(broker: Broker) -> Numbers:
        assert isinstance(broker, Secured)
        settings = {"linger_ms": 5, "batch_size": batch, "acks": "all", "message_max_bytes": 2 << 20}
        records = records_of(session, FULL_BYTES[LIBRDKAFKA], KIB)
        with new_topic(broker) as topic:
            own = properties(broker, "ECDSA") | settings
            return metered(broker, KIB, lambda: load(broker, "produce", topic, 1, records, KIB, **own))

    return run


# --- connections -------------------------------------------------------------------------------------------------------


def connection_rows(session: Session, brokers: list[Secured]) -> Generator[Row]:
    cases = {
        "TLS handshakes, ECDSA P-256": ("tls", "ECDSA", at_least(0.8)),
        "TLS handshakes, RSA 2048": ("tls", "RSA", at_least(0.8)),
        "SCRAM-SHA-256 logins": ("scram", "SCRAM", at_least(1.0)),
    }
    for name, (what, listener, target) in cases.items():
        metrics = (
            Metric("per_s", "/s", target, more_is_better=True, digits=0),
            Metric("cpu_us", "us", digits=0, label="broker CPU each"),
        )
        beside = [Metric("client_us", "us", digits=0, label="client CPU each")]
        yield Row(name, brokers, connections(what, listener), metrics, session.rounds, "", beside)
    for listener in ("ECDSA", "RSA"):
        bystander = (
            Metric("p50_us", "us", digits=0, label="p50"),
            Metric("p99_us", "us", within(10_000, "us"), digits=0, label="p99"),
        )
        name = (
            f"bystander at {BYSTANDERS_RATE:,} records/s beside {HANDSHAKES_PER_SECOND} handshakes a second, {listener}"
        )
        beside = [Metric("per_s", "/s", digits=0, label="handshakes")]
        yield Row(name, brokers, beside_handshakes(listener), bystander, session.rounds, "", beside)


def client_command(what: str, port: int, seconds: float, rate: float) -> list[str]:
    return [sys.executable, "-m", "benchmarks.logins", what, str(port), str(seconds), str(THREADS), str(rate)]


def connections(what: str, listener: str) -> Callable[[Broker], Numbers]:
    def run(broker: Broker) -> Numbers:
        assert isinstance(broker, Secured)
        machine.wait_until_quiet(*broker.pids)
        before = broker.cpu_seconds()
        result = json.loads(run_program(client_command(what, broker.ports[listener], SECONDS, 0)))
        count = result["connections"]
        return {
            "per_s": count / result["seconds"],
            "cpu_us": (broker.cpu_seconds() - before) / count * 1e6,
            "client_us": result["client_cpu_s"] / count * 1e6,
        }

    return run


def beside_handshakes(listener: str) -> Callable[[Broker], Numbers]:
    def run(broker: Broker) -> Numbers:
        assert isinstance(broker, Secured)
        command = client_command("tls", broker.ports[listener], SECONDS, HANDSHAKES_PER_SECOND)
        with new_topic(broker) as topic:
            machine.wait_until_quiet(*broker.pids)
            with subprocess.Popen(command, stdout=subprocess.PIPE) as handshakes:
                time.sleep(1.0)  # until it is at work
                found = load(broker, "latency", topic, BYSTANDERS_RATE, 3, KIB, linger_ms=0, acks="all")
                output, _ = handshakes.communicate()
        if handshakes.returncode:
            raise Failed("the client that shakes hands has failed")
        result = json.loads(output)
        return found | {"per_s": result["connections"] / result["seconds"]}

    return run


# --- rules -------------------------------------------------------------------------------------------------------------


def rules_rows(session: Session, brokers: list[Secured], ruled: list[Secured]) -> Generator[Row]:
    without = {broker.name: broker for broker in brokers}

    def p50(broker: Broker) -> Numbers:
        """Of the same user on the same kind of listener, in turns."""
        numbers = {"off": p50_us(without[broker.name]), "on": p50_us(broker)}
        return numbers | {"ratio": numbers["on"] / numbers["off"]}

    metrics = (
        Metric("ratio", "times", within(1.05, "times"), label="p50 with rules / p50 without"),
        Metric("on", "us", digits=0, label="p50 with rules"),
    )
    yield Row(f"latency at {LATENCY_RATE:,} records/s beside 10,000 rules", ruled, p50, metrics, session.rounds)
    starts = (Metric("started_s", "s", within(0.5, "s")),)
    yield Row("start with 10,000 rules and 1,000 quotas", ruled, start_again, starts, session.rounds)


def p50_us(broker: Secured) -> float:
    with new_topic(broker) as topic:
        machine.wait_until_quiet(*broker.pids)
        own = properties(broker, "SCRAM") | {"linger_ms": 0, "acks": "all"}
        return load(broker, "latency", topic, LATENCY_RATE, 4, KIB, **own)["p50_us"]


def start_again(broker: Broker) -> Numbers:
    """From the start of the process to the first acknowledged record."""
    request = produce_frame(TOPIC, batch_of(1024))
    broker.stop()
    command = broker.command()
    began = time.perf_counter()
    broker.start_as(command)
    first_record(broker, request)
    needed_s = time.perf_counter() - began
    with Client(broker.port) as client:
        client.delete_topic(TOPIC)  # the next start makes it again
    return {"started_s": needed_s}


def decisions_row(session: Session) -> Row:
    """In this process: what one decision needs that is not remembered, with 10,000 rules."""

    def run(broker: Broker) -> Numbers:
        authorizer = AclAuthorizer(AuthorizerConfig(), time.monotonic)
        rule = Entry("User:bench", "*", AclOperation.READ, Permission.ALLOW)
        for number in range(10_000):
            pattern = Pattern(ResourceType.TOPIC, PatternType.LITERAL, f"topic-{number}")
            authorizer.put(pattern, frozenset({rule}))
        names = [f"topic-{number}" for number in range(VERDICTS_PER_HALF)]
        began = time.perf_counter()
        for name in names:
            authorizer.allows("User:bench", "127.0.0.1", AclOperation.READ, ResourceType.TOPIC, name, False)
        return {"us": (time.perf_counter() - began) / len(names) * 1e6}

    metrics = (Metric("us", "us", within(10, "us"), digits=1),)
    brokers: list[Broker] = [Ottla(session.work / "decisions")]
    return Row("a decision among 10,000 rules", brokers, run, metrics, session.rounds)
