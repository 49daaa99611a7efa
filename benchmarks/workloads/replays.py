"""Ready-made requests, sent over and over by a C client that costs next to nothing: here the broker is what is measured.

The same client and the same frames as for the limit, so that Ottla, Apache Kafka and the C program stand in one line. Records
are of 1 KiB; four connections with five requests each under way.
"""

import contextlib
from collections.abc import Callable, Generator, Mapping

from benchmarks import machine
from benchmarks.alone.replays import fetch_error_offsets, produce_error_offset
from benchmarks.brokers import Broker, Failed
from benchmarks.clients import new_topic
from benchmarks.limits import CONNECTIONS, DEPTH, Limits
from benchmarks.programs import Request, compiler, replay
from benchmarks.rows import Metric, Row, at_least, at_most
from benchmarks.session import Session
from benchmarks.wire_client import Client, batch_of, fetch_frame, produce_frame
from benchmarks.workloads.throughput import size_name

KIB, MIB, MB, GB = 1 << 10, 1 << 20, 1e6, 1e9
PRODUCE_BYTES = {KIB: 30e6, 64 * KIB: 400e6, MIB: 600e6}
FETCH_BYTES = {64 * KIB: 1e9, MIB: 2e9}


def rows(session: Session) -> Generator[Row]:
    if compiler() is None:
        raise Failed("no C compiler, or no CRC-32C here")
    limits = Limits(session)
    for size, amount in PRODUCE_BYTES.items():
        name = f"produce, batches of {size_name(size)}, replayed, {CONNECTIONS} connections"
        more, less = (at_least(1.0), None) if size == KIB else (at_least(1.3), at_most(0.5))
        metrics = (Metric("MB/s", "MB/s", more, True, 0), Metric("s/GB", "s/GB", less, label="broker CPU"))
        yield Row(name, session.main(), produce(session, size, amount), metrics, session.rounds, limits.produce(size))
    for size, amount in FETCH_BYTES.items():
        name = f"fetch of {size_name(size)}, replayed, {CONNECTIONS} connections"
        with contextlib.ExitStack() as kept:
            brokers = session.main()
            topics = {broker.name: kept.enter_context(new_topic(broker)) for broker in brokers}
            run = fetch(session, size, amount, topics)
            metrics = (
                Metric("MB/s", "MB/s", at_least(1.3), True, 0),
                Metric("s/GB", "s/GB", at_most(0.5), label="broker CPU"),
            )
            yield Row(name, brokers, run, metrics, session.rounds, limits.fetch(size))


def produce(session: Session, size: int, amount: float) -> Callable[[Broker], Mapping[str, float]]:
    batch = batch_of(size)

    def run(broker: Broker) -> Mapping[str, float]:
        with new_topic(broker) as topic, Client(broker.port) as client:
            request = produce_frame(topic, batch)
            (session.work / "replay").write_bytes(request)
            response = client.produce(request)
            prepared = Request(session.work / "replay", len(response), (produce_error_offset(topic),))
            return replayed(broker, prepared, int(amount * session.share / len(batch)), len(batch))

    return run


def fetch(
    session: Session, size: int, amount: float, topics: Mapping[str, str]
) -> Callable[[Broker], Mapping[str, float]]:
    batch = batch_of(size)

    def run(broker: Broker) -> Mapping[str, float]:
        with Client(broker.port) as client:
            client.produce(produce_frame(topics[broker.name], batch))
            topic_id = client.topic_id(topics[broker.name])
            request = fetch_frame(topic_id, len(batch))
            response = client.ask_bytes(request)
        if len(response) < len(batch):
            raise Failed(f"a fetch brought {len(response)} bytes, less than a batch")
        (session.work / "replay").write_bytes(request)
        prepared = Request(session.work / "replay", len(response), fetch_error_offsets(topic_id))
        return replayed(broker, prepared, int(amount * session.share / len(batch)), len(batch))

    return run


def replayed(broker: Broker, request: Request, requests: int, bytes_each: int) -> Mapping[str, float]:
    machine.wait_until_quiet(broker.pid)
    before = broker.cpu_seconds()
    result = replay(broker.port, request, requests, CONNECTIONS, DEPTH, pinned=False)
    used = broker.cpu_seconds() - before
    return {"MB/s": result.per_second * bytes_each / MB, "s/GB": used / (requests * bytes_each / GB)}
