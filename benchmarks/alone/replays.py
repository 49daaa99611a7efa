"""Prebuilt produce and fetch requests, replayed by a C client against the broker and against a C program, in turns.

The share of the C program's rate is what the broker's own work leaves over of what the machine allows: the program
receives the same frames, checks the same CRC and writes the same bytes to a file (or sends the same bytes from a file
with sendfile). Every round measures both, one after the other; the ratio is the median over the rounds of theirs, so that
what else the machine does falls on both alike.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks.alone.broker import Broker, running_broker
from benchmarks.alone.figures import Figure, at_least, at_most, not_measured
from benchmarks.machine import cpu_seconds
from benchmarks.programs import SERVER_CPU, Replay, Request, Sink, compiler, replay, sink
from benchmarks.wire_client import (
    FETCH_VERSION,
    PRODUCE_VERSION,
    Client,
    batch_of,
    fetch_frame,
    parse,
    produce_frame,
)

from ottla.wire.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from ottla.wire.messages.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from ottla.wire.schema import ZERO_UUID

KIB, MIB, GB = 1 << 10, 1 << 20, 1e9

RESPONSE_HEADER_BYTES = 9  # length, correlation id, no tagged fields


@dataclass(frozen=True)
class Size:
    bytes: int
    requests: int
    share: float

    @property
    def name(self) -> str:
        return f"{self.bytes // MIB} MiB" if self.bytes >= MIB else f"{self.bytes // KIB} KiB"


PRODUCE_SIZES = (
    Size(KIB, 20_000, 0.15),
    Size(16 * KIB, 8_000, 0.30),
    Size(64 * KIB, 4_000, 0.45),
    Size(MIB, 500, 0.80),
)
FETCH_SIZES = (Size(64 * KIB, 10_000, 0.25), Size(MIB, 2_000, 0.60))

PRODUCE_CPU_S_PER_GB, FETCH_CPU_S_PER_GB = 1.0, 0.3


@dataclass(frozen=True)
class Measured:
    """One server's side of a round."""

    replay: Replay
    cpu_s: float
    requests: int


@dataclass(frozen=True)
class Round:
    ottla: Measured
    limit: Measured


def figures(work: Path, quick: bool) -> Iterator[Figure]:
    if compiler() is None:
        yield not_measured("produce and fetch replays", "no C compiler, or no CRC-32C here")
        return
    rounds = 2 if quick else 5
    with running_broker(SERVER_CPU) as broker:
        yield from produce_figures(broker, work, rounds)
        yield from fetch_figures(broker, work, rounds)


# --- produce ----------------------------------------------------------------------------------------------------------


def produce_figures(broker: Broker, work: Path, rounds: int) -> Iterator[Figure]:
    for size, connections in itertools.product(PRODUCE_SIZES, (1, 4)):
        batch = batch_of(size.bytes)
        measured = [produce_round(broker, work, batch, size.requests, connections) for _ in range(rounds)]
        name = f"produce {size.name}, {_connections(connections)}"
        yield share(name, measured, size.share)
        if size.bytes == MIB:
            yield cpu_per_gb(name, measured, size.requests * len(batch), PRODUCE_CPU_S_PER_GB)


_topic_numbers = itertools.count()


def produce_round(broker: Broker, work: Path, batch: bytes, requests: int, connections: int) -> Round:
    """Both start with an empty file; the broker's is a new topic."""
    topic = f"produce-{next(_topic_numbers):04}"
    request = produce_frame(topic, batch)
    with Client(broker.port) as client:
        client.create_topics([topic])
        response = client.produce(request)
        prepared = Request(_file(work / "produce", request), len(response), (produce_error_offset(topic),))
        ottla = measure(broker, prepared, requests, connections)
        client.delete_topic(topic)
    log = work / "sink.log"
    with sink("produce_sink", log, _file(work / "response", response), request.index(batch)) as limit:
        round_ = Round(ottla, measure(limit, prepared, requests, connections))
    log.unlink()
    return round_


def produce_error_offset(topic: str) -> int:
    """Where the error code is in a response for one partition: where two responses with different ones differ."""

    def body(error_code: int) -> bytes:
        partition = PartitionProduceResponse(index=0, error_code=error_code, base_offset=0)
        topics = [TopicProduceResponse(name=topic, partition_responses=[partition])]
        return ProduceResponse(responses=topics).encode(PRODUCE_VERSION)

    return RESPONSE_HEADER_BYTES + first_difference(body(0), body(-1))


# --- fetch ------------------------------------------------------------------------------------------------------------


def fetch_figures(broker: Broker, work: Path, rounds: int) -> Iterator[Figure]:
    for size, connections in itertools.product(FETCH_SIZES, (1, 4)):
        batch = batch_of(size.bytes)
        measured = fetch_rounds(broker, work, batch, size.requests, connections, rounds)
        name = f"fetch {size.name}, {_connections(connections)}"
        yield share(name, measured, size.share)
        if size.bytes == MIB:
            yield cpu_per_gb(name, measured, size.requests * len(batch), FETCH_CPU_S_PER_GB)


def fetch_rounds(broker: Broker, work: Path, batch: bytes, requests: int, connections: int, rounds: int) -> list[Round]:
    topic = f"fetch-{next(_topic_numbers):04}"
    with Client(broker.port) as client:
        client.create_topics([topic])
        for _ in range(8):
            client.produce(produce_frame(topic, batch))
        topic_id = client.topic_id(topic)
        request = fetch_frame(topic_id, len(batch))
        response = client.ask_bytes(request)
        prepared = Request(_file(work / "fetch", request), len(response), fetch_error_offsets(topic_id))
        parts = zip(("head", "records", "tail"), cut(response, len(batch)), strict=True)
        with sink("fetch_sink", *(_file(work / name, part) for name, part in parts)) as limit:
            measured = [
                Round(*(measure(server, prepared, requests, connections) for server in (broker, limit)))
                for _ in range(rounds)
            ]
        client.delete_topic(topic)
    return measured


def cut(response: bytes, batch_bytes: int) -> tuple[bytes, bytes, bytes]:
    """The response before, in and after its records, which must be one whole batch."""
    answer = parse(response, FetchResponse, FETCH_VERSION)
    partition = answer.responses[0].partitions[0]
    records = bytes(partition.records)
    if answer.error_code or partition.error_code or len(records) != batch_bytes:
        raise RuntimeError(f"a fetch brought {len(records)} bytes of records, not {batch_bytes}")
    start = response.index(records)
    return response[:start], records, response[start + len(records) :]


def fetch_error_offsets(topic_id: bytes) -> tuple[int, int]:
    """Where the two error codes are: of the whole response, and of its one partition."""

    def body(error_code: int, partition_error_code: int) -> bytes:
        partition = PartitionData(
            partition_index=0, error_code=partition_error_code, high_watermark=0, aborted_transactions=None, records=b""
        )
        topics = [FetchableTopicResponse(topic_id=topic_id or ZERO_UUID, partitions=[partition])]
        return FetchResponse(error_code=error_code, responses=topics).encode(FETCH_VERSION)

    first = first_difference(body(0, 0), body(-1, 0))
    second = first_difference(body(0, 0), body(0, -1))
    return RESPONSE_HEADER_BYTES + first, RESPONSE_HEADER_BYTES + second


# --- both -------------------------------------------------------------------------------------------------------------


def measure(server: Broker | Sink, request: Request, requests: int, connections: int, depth: int = 1) -> Measured:
    before = cpu_seconds(server.pid)
    result = replay(server.port, request, requests, connections, depth)
    return Measured(result, cpu_seconds(server.pid) - before, requests)


def share(name: str, measured: list[Round], target: float) -> Figure:
    ratio = median(each.ottla.replay.per_second / each.limit.replay.per_second for each in measured)
    limit = median(each.limit.replay.per_second for each in measured)
    times = {
        "p50_us": median(each.ottla.replay.p50_us for each in measured),
        "p99_us": median(each.ottla.replay.p99_us for each in measured),
        "ottla_per_second": median(each.ottla.replay.per_second for each in measured),
    }
    return at_least(name, ratio * limit, limit, target, "/s", **times)


def cpu_per_gb(name: str, measured: list[Round], bytes_per_round: int, limit: float) -> Figure:
    """With what the C program needs beside it: the part that no broker can save."""
    gigabytes = bytes_per_round / GB
    ottla = median(each.ottla.cpu_s for each in measured) / gigabytes
    sink_s = median(each.limit.cpu_s for each in measured) / gigabytes
    return at_most(f"{name}: broker CPU", ottla, limit, "s/GB", peer=f"{sink_s:.2f} s/GB", sink_s_per_gb=sink_s)


def _connections(count: int) -> str:
    return "1 connection" if count == 1 else f"{count} connections"


def first_difference(left: bytes, right: bytes) -> int:
    return next(index for index, pair in enumerate(zip(left, right, strict=True)) if pair[0] != pair[1])


def _file(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path
