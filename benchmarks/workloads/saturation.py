"""Many small clients at saturation: how long Produce waits with 100 producers and 40 consumers, from sending it to its answer.

Each producer sends its next request when the last one is answered: one record of 1 KiB, or, in the second row, half of them a small
snappy batch for each of twelve partitions. That row says whether long requests hold up short ones, and the other way round. Consumers
ask for what comes behind the end of a partition, and let the broker wait for it. `c/saturate.c` is all of them, and costs next to nothing.
"""

import json
import subprocess
from collections.abc import Callable, Generator, Mapping
from pathlib import Path

from benchmarks import machine
from benchmarks.alone.replays import RESPONSE_HEADER_BYTES, first_difference
from benchmarks.brokers import Broker, Failed
from benchmarks.clients import new_topic
from benchmarks.programs import built, compiler
from benchmarks.rows import Metric, Row, at_most
from benchmarks.session import Session
from benchmarks.wire_client import (
    FETCH_VERSION,
    PRODUCE_VERSION,
    Client,
    batch_of,
    fetch_frame,
    frame,
    parse,
    produce_frame,
)

from ottla.wire.compression import Compression
from ottla.wire.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.record_encoding import encode_batch
from ottla.wire.records import Record

PRODUCERS, CONSUMERS, PARTITIONS = 100, 40, 12
SECONDS, LEAST_SECONDS = 10, 4
FETCHED_BYTES_MAX = 64 * 1024
TEXT = b'{"id":1729,"name":"user-42","amount":99.95,"city":"Prague","note":"as small as most are"},'
METRICS = (
    Metric("p50_us", "us", digits=0, label="p50"),
    Metric("p99_us", "us", digits=0, label="p99"),
    Metric("p999_us", "us", at_most(1.0), digits=0, label="p99.9"),
    Metric("max_us", "us", at_most(1.0), digits=0, label="maximum"),
)
BESIDE = (Metric("per_second", "/s", digits=0, label="answers"),)


def rows(session: Session) -> Generator[Row]:
    if compiler() is None:
        raise Failed("no C compiler here")
    for frames, sent in (
        (single_frames, "one record a request"),
        (mixed_frames, f"half of them {PARTITIONS} small snappy batches a request"),
    ):
        name = f"Produce with {PRODUCERS} producers and {CONSUMERS} consumers at saturation, {sent}"
        yield Row(name, session.main(), saturation(session, frames), METRICS, session.rounds, beside=BESIDE)


def saturation(session: Session, frames: Callable[[str], list[bytes]]) -> Callable[[Broker], Mapping[str, float]]:
    seconds = max(LEAST_SECONDS, SECONDS * session.share)

    def run(broker: Broker) -> Mapping[str, float]:
        with new_topic(broker, PARTITIONS) as topic, Client(broker.port) as client:
            produced = frames(topic)
            for request in produced:
                client.produce(request)
            topic_id = client.topic_id(topic)
            fetched = [fetch_frame(topic_id, FETCHED_BYTES_MAX, index) for index in range(PARTITIONS)]
            machine.wait_until_quiet(*broker.pids)
            before = records_of(client, topic_id)
            numbers = saturate(session.work, broker.port, seconds, topic_id, fetched, produced)
            # One that was refused would have been answered in no time.
            if records_of(client, topic_id) - before < numbers["answers"]:
                raise Failed("not every request was carried out")
            return numbers

    return run


def single_frames(topic: str) -> list[bytes]:
    """One record for each partition in turn."""
    return [produce_frame(topic, batch_of(1024), index=index) for index in range(PARTITIONS)]


def mixed_frames(topic: str) -> list[bytes]:
    """The same, with batches for all of them after each."""
    small = encode_batch([Record(0, 1, None, TEXT)] * 4, compression=Compression.SNAPPY)
    batches = [PartitionProduceData(index=index, records=memoryview(small)) for index in range(PARTITIONS)]
    data = TopicProduceData(name=topic, partition_data=batches)
    for_all = frame(ProduceRequest(acks=-1, timeout_ms=30000, topic_data=[data]), PRODUCE_VERSION)
    return [each for one in single_frames(topic) for each in (one, for_all)]


def records_of(client: Client, topic_id: bytes) -> int:
    answers = [client.ask_bytes(fetch_frame(topic_id, 1, index)) for index in range(PARTITIONS)]
    found = [parse(answer, FetchResponse, FETCH_VERSION).responses[0].partitions[0] for answer in answers]
    return sum(partition.high_watermark for partition in found)


def saturate(
    work: Path, port: int, seconds: float, topic_id: bytes, fetched: list[bytes], produced: list[bytes]
) -> Mapping[str, float]:
    """Run saturate.c."""

    def body(high_watermark: int) -> bytes:
        partition = PartitionData(
            partition_index=0, error_code=0, high_watermark=high_watermark, aborted_transactions=None, records=b""
        )
        return FetchResponse(responses=[FetchableTopicResponse(topic_id=topic_id, partitions=[partition])]).encode(
            FETCH_VERSION
        )

    offset_at = first_difference(
        fetch_frame(topic_id, FETCHED_BYTES_MAX), fetch_frame(topic_id, FETCHED_BYTES_MAX, offset=-1)
    )
    places = offset_at, RESPONSE_HEADER_BYTES + first_difference(body(0), body(-1))
    files = [work / f"saturation-{number}" for number in range(len(fetched) + len(produced))]
    for file, request in zip(files, [*fetched, *produced], strict=True):
        file.write_bytes(request)
    sides = (CONSUMERS, len(fetched), *files[: len(fetched)]), (PRODUCERS, len(produced), *files[len(fetched) :])
    command = [built("saturate"), *map(str, (port, seconds, *places, *sides[0], *sides[1]))]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=180)
    if done.returncode:
        raise Failed(f"saturate: {done.stderr.strip()}")
    numbers: Mapping[str, float] = json.loads(done.stdout)
    return numbers
