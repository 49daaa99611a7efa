"""Ready-made requests with one compressed batch each, sent over and over as in `replays.py`: what the broker takes to check them.

A batch has as many records as librdkafka puts into one by default, a million bytes, compressed as a Java producer does it. The
figures are per byte before compression, as a producer's user counts. Text is of some hundred words, of which a record has a
few dozen; what is incompressible is random.
"""

import random
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from functools import lru_cache

from benchmarks.brokers import Broker, Failed
from benchmarks.clients import new_topic
from benchmarks.programs import Request, compiler
from benchmarks.rows import Metric, Row, at_least, at_most
from benchmarks.session import Session
from benchmarks.wire_client import Client, produce_frame
from benchmarks.workloads.replays import produce_error_offset, replayed
from benchmarks.workloads.throughput import KIB, size_name

from ottla.wire.compression import Compression
from ottla.wire.record_encoding import encode_batch
from ottla.wire.records import Record

BATCH_BYTES = 1_000_000
SIZES = (KIB, 10 * KIB)
TEXT, NOISE = "text", "incompressible"
AMOUNTS = {Compression.GZIP: 250e6, Compression.SNAPPY: 400e6, Compression.LZ4: 400e6, Compression.ZSTD: 400e6}
WORDS, WORDS_SEED = 400, 5


def rows(session: Session) -> Generator[Row]:
    if compiler() is None:
        raise Failed("no C compiler, or no CRC-32C here")
    metrics = (
        Metric("MB/s", "MB/s", at_least(1.0), more_is_better=True, digits=0),
        Metric("s/GB", "s/GB", at_most(0.8), label="broker CPU"),
    )
    for codec, amount in AMOUNTS.items():
        for size, kind in ((size, kind) for size in SIZES for kind in (TEXT, NOISE)):
            name = f"produce {size_name(size)} of {kind}, {codec.name.lower()}, replayed"
            yield Row(name, session.main(), produce(session, codec, size, kind, amount), metrics, session.rounds)


def produce(
    session: Session, codec: Compression, size: int, kind: str, amount: float
) -> Callable[[Broker], Mapping[str, float]]:
    def run(broker: Broker) -> Mapping[str, float]:
        batch, plain = batch_of(codec, size, kind)
        with new_topic(broker) as topic, Client(broker.port) as client:
            request = produce_frame(topic, batch)
            (session.work / "replay").write_bytes(request)
            response = client.produce(request)
            prepared = Request(session.work / "replay", len(response), (produce_error_offset(topic),))
            return replayed(broker, prepared, max(1, int(amount * session.share / plain)), plain)

    return run


@lru_cache(maxsize=1)
def batch_of(codec: Compression, size: int, kind: str) -> tuple[bytes, int]:
    """A batch, and the bytes of its values."""
    count = BATCH_BYTES // size
    now_ms = time.time_ns() // 1_000_000
    records = (Record(offset, now_ms, None, value) for offset, value in enumerate(values(size, kind, count)))
    return encode_batch(records, compression=codec), count * size


def values(size: int, kind: str, count: int) -> Iterator[bytes]:
    dice = random.Random(WORDS_SEED)
    words = [bytes(dice.choices(b"abcdefghijklmnopqrstuvwxyz", k=dice.randint(3, 9))) for _ in range(WORDS)]
    for _ in range(count):
        yield dice.randbytes(size) if kind == NOISE else b" ".join(dice.choices(words, k=size // 3))[:size]
