"""What a throttled flooder costs a bystander, on an Ottla of its own: python -m benchmarks.throttled

The bystander sends one small batch after another, with 2 ms between, and takes the time until each answer. Meanwhile four
connections of another client send batches of 20 kB as fast as their sockets take them, whatever pause they are told.
"""

import multiprocessing
import socket
import tempfile
import threading
import time
from pathlib import Path

from compat_tests.differential.scenarios.client_quotas import alter, entry
from compat_tests.support.brokers import OttlaProcess
from compat_tests.support.wire_client import WireClient, encode_frame

from ottla.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.record_encoding import encode_batch
from ottla.wire.records import Record
from ottla.wire.schema import ZERO_UUID

SECONDS = 8.0
CONNECTIONS = 4
BYTES_PER_SECOND = 100_000.0
VERSION = 8  # of Produce
CASES = ("alone", "beside a throttled client", "beside one without a quota")

Address = tuple[str, int]


def produce(topic: str, size: int) -> ProduceRequest:
    data = PartitionProduceData(index=0, records=encode_batch([Record(0, 1, None, b"x" * size)]))
    named = TopicProduceData(name=topic, topic_id=ZERO_UUID, partition_data=[data])
    return ProduceRequest(acks=1, timeout_ms=30_000, topic_data=[named])


def flood(address: Address) -> None:
    """Until this process is killed."""
    frame = encode_frame(produce("flooded", 20_000), VERSION, 1, "flooder")
    peer = socket.create_connection(address)

    def read() -> None:
        while peer.recv(1 << 16):
            pass

    threading.Thread(target=read, daemon=True).start()
    while True:
        peer.sendall(frame)


def waits_ms(client: WireClient, seconds: float) -> list[float]:
    """How long each answer took, the shortest first."""
    request, waits = produce("calm", 100), []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        began = time.perf_counter()
        client.ask(request, VERSION)
        waits.append((time.perf_counter() - began) * 1000)
        time.sleep(0.002)
    return sorted(waits)


def measure(case: str, directory: Path, seconds: float = SECONDS) -> tuple[float, float]:
    """The median and the 99th percentile of the bystander, in ms."""
    broker = OttlaProcess(directory, {}).start()
    flooders = []
    try:
        address = broker.host, broker.port
        with WireClient(address, client_id="bystander") as client:
            topics = [
                CreatableTopic(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[])
                for name in ("calm", "flooded")
            ]
            client.ask(CreateTopicsRequest(topics=topics, timeout_ms=9_000, validate_only=False), 5)
            if case == CASES[1]:
                client.ask(alter(entry([("client-id", "flooder")], ("producer_byte_rate", BYTES_PER_SECOND))), 1)
            waits_ms(client, seconds / 4)
            if case != CASES[0]:
                context = multiprocessing.get_context("spawn")
                flooders = [context.Process(target=flood, args=(address,), daemon=True) for _ in range(CONNECTIONS)]
                for each in flooders:
                    each.start()
            waits_ms(client, seconds / 4)  # until what the quota lets through at once is used up
            waits = waits_ms(client, seconds)
    finally:
        for each in flooders:
            each.kill()
            each.join()
        broker.stop()
    return waits[len(waits) // 2], waits[len(waits) * 99 // 100]


def main() -> None:
    for case in CASES:
        with tempfile.TemporaryDirectory(prefix="ottla-bench-") as directory:
            p50, p99 = measure(case, Path(directory))
        print(f"{case}: p50 {p50:.2f} ms, p99 {p99:.2f} ms")


if __name__ == "__main__":
    main()
