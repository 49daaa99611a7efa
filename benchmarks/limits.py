"""What the machine allows: the C programs that do what no broker can leave out, measured once in a run.

`produce_sink` reads frames, checks their CRC, writes the batches to a file and answers; `fetch_sink` sends a file. Their
client is `replay`, which costs next to nothing; so no broker with a real client can reach these numbers, only come near.
"""

import functools
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from benchmarks.alone.replays import Measured, cut, fetch_error_offsets, measure, produce_error_offset
from benchmarks.brokers import Ottla
from benchmarks.programs import Request, compiler, sink
from benchmarks.session import Session
from benchmarks.wire_client import Client, batch_of, fetch_frame, produce_frame

MB, GB = 1e6, 1e9
MIB = 1 << 20
# As many connections as for the replayed requests of both brokers, and requests under way on each.
CONNECTIONS, DEPTH = 4, 5
TOPIC = "limit"
PRODUCED_BYTES, FETCHED_BYTES, REQUESTS_MAX = 300e6, 1.5e9, 10_000


ROUNDS = 3


class Limits:
    """The text of each limit; the first to ask for one waits until it is measured.

    A limit is the best of some rounds: other work on the machine only ever adds. Without a C compiler there are none.
    """

    def __init__(self, session: Session) -> None:
        self.session = session

    def produce(self, batch_bytes: int) -> str:
        size = f"{batch_bytes / MIB:.0f} MiB" if batch_bytes >= 1_000_000 else f"{batch_bytes // 1024} KiB"
        return self._text(f"C sink, {size} batches: ", lambda: _rate(*_produce(self.session.work, batch_bytes)))

    def round_trip(self) -> str:
        def measured() -> str:
            best, _ = _produce(self.session.work, 1024, connections=1, depth=1)
            return f"p50 {best.replay.p50_us:.0f}, p99 {best.replay.p99_us:.0f} us"

        return self._text("C sink, one request: ", measured)

    def fetch(self, size: int = MIB) -> str:
        shown = f"{size // MIB} MiB" if size >= MIB else f"{size // 1024} KiB"
        return self._text(f"C sendfile, {shown}: ", lambda: _rate(*_fetch(self.session.work, size)))

    def _text(self, what: str, measured: Callable[[], str]) -> str:
        if compiler() is None:
            return ""
        try:
            return what + measured()
        except (OSError, RuntimeError, subprocess.SubprocessError) as error:
            return f"{what}not measured ({type(error).__name__})"


def _rate(measured: Measured, bytes_each: int) -> str:
    mb_per_s = measured.replay.per_second * bytes_each / MB
    cpu = measured.cpu_s / (measured.requests * bytes_each / GB)
    return f"{mb_per_s:,.0f} MB/s, {cpu:.2f} s/GB"


@functools.cache
def _produce(work: Path, batch_bytes: int, connections: int = CONNECTIONS, depth: int = DEPTH) -> tuple[Measured, int]:
    batch = batch_of(batch_bytes)
    request, response = produce_frame(TOPIC, batch), _answers(work, batch)[0]
    requests = min(int(PRODUCED_BYTES / len(batch)), REQUESTS_MAX)
    files = {name: work / f"limit-{name}" for name in ("request", "response", "log")}
    files["request"].write_bytes(request)
    files["response"].write_bytes(response)
    prepared = Request(files["request"], len(response), (produce_error_offset(TOPIC),))
    with sink("produce_sink", files["log"], files["response"], request.index(batch)) as limit:
        rounds = []
        for _ in range(ROUNDS):
            rounds.append(measure(limit, prepared, requests, connections, depth))
            files["log"].write_bytes(b"")
    files["log"].unlink()
    return best_of(rounds), len(batch)


@functools.cache
def _fetch(work: Path, size: int) -> tuple[Measured, int]:
    batch = batch_of(size)
    _, topic_id, response = _answers(work, batch)
    parts = dict(zip(("head", "records", "tail"), cut(response, len(batch)), strict=True))
    for name, content in parts.items():
        (work / name).write_bytes(content)
    (work / "limit-request").write_bytes(fetch_frame(topic_id, len(batch)))
    prepared = Request(work / "limit-request", len(response), fetch_error_offsets(topic_id))
    with sink("fetch_sink", *(work / name for name in parts)) as limit:
        requests = min(int(FETCHED_BYTES / len(batch)), REQUESTS_MAX)
        rounds = [measure(limit, prepared, requests, CONNECTIONS, DEPTH) for _ in range(ROUNDS)]
    return best_of(rounds), len(batch)


def best_of(rounds: list[Measured]) -> Measured:
    return max(rounds, key=lambda one: one.replay.per_second)


def _answers(work: Path, batch: bytes) -> tuple[bytes, bytes, bytes]:
    """What a broker answers to a produce request with this batch, the topic's id, and its answer to the fetch of it."""
    broker = Ottla(Path(tempfile.mkdtemp(dir=work)) / "answers")
    try:
        broker.start()
        with Client(broker.port) as client:
            client.create_topics([TOPIC])
            produced = client.produce(produce_frame(TOPIC, batch))
            topic_id = client.topic_id(TOPIC)
            return produced, topic_id, client.ask_bytes(fetch_frame(topic_id, len(batch)))
    finally:
        broker.stop()
