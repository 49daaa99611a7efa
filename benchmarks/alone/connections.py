"""Many connections that say nothing, and one that says a lot at once.

While 10,000 connections are held, a bystander produces 1 KiB records one after the other; its p99 is compared with the
same before and after. Of several rounds the best counts on both sides: other work on the machine only ever adds, and harm
done by the crowd would be in every round. And one client sends 1,000 requests of several kinds without reading: all are answered, in order.
"""

import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from resource import RLIMIT_NOFILE, getrlimit

from benchmarks.alone.broker import Broker, running_broker
from benchmarks.alone.figures import Figure, not_measured
from benchmarks.alone.replays import produce_error_offset
from benchmarks.machine import resident_mb as resident_mb_of
from benchmarks.machine import wait_until_quiet
from benchmarks.programs import Replay, Request, compiler, replay
from benchmarks.wire_client import Client, batch_of, frame, metadata_frame, produce_frame, read_frame

from ottla.wire.messages.api_versions import ApiVersionsRequest
from ottla.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

CONNECTIONS, OTHER_FILES = 10_000, 500
PIPELINED = 1_000
TOPIC = "bystander"
REQUESTS = 2_000
UNHARMED = 1.5  # times the p99 without the crowd


def figures(work: Path, quick: bool) -> Iterator[Figure]:
    with running_broker() as broker:
        yield pipelined(broker)
    with running_broker() as broker:
        if compiler() is None:
            yield not_measured("idle connections", "no C compiler, or no CRC-32C here")
        else:
            yield idle_connections(broker, work, rounds=3 if quick else 7)


# --- idle connections -------------------------------------------------------------------------------------------------


def idle_connections(broker: Broker, work: Path, rounds: int) -> Figure:
    with Client(broker.port) as client:
        client.create_topics([TOPIC])
        frame_bytes = produce_frame(TOPIC, batch_of(1024))
        response = client.produce(frame_bytes)
    (work / "bystander").write_bytes(frame_bytes)
    request = Request(work / "bystander", len(response), (produce_error_offset(TOPIC),))
    alone = bystander(broker, request, rounds)
    count = min(CONNECTIONS, getrlimit(RLIMIT_NOFILE)[0] - OTHER_FILES)
    crowd = [Client(broker.port) for _ in range(count)]
    try:
        wait_until_quiet(broker.pid, seconds=0.5)
        resident_mb = resident_mb_of(broker.pid)
        crowded = bystander(broker, request, rounds)
        for client in crowd[:: max(1, count // 100)]:
            client.api_versions()
    finally:
        for client in crowd:
            client.socket.close()
    wait_until_quiet(broker.pid, seconds=0.5)
    alone += bystander(broker, request, rounds)
    return beside_the_crowd(count, resident_mb, alone, crowded)


def bystander(broker: Broker, request: Request, rounds: int) -> list[Replay]:
    return [replay(broker.port, request, REQUESTS) for _ in range(rounds)]


def beside_the_crowd(count: int, resident_mb: float, alone: list[Replay], crowded: list[Replay]) -> Figure:
    before, beside = (min(each.p99_us for each in measured) for measured in (alone, crowded))
    return Figure(
        f"produce p99 beside {count:,} idle connections",
        f"{beside:,.0f} us ({resident_mb:.0f} MB)",
        f"{before:,.0f} us alone",
        beside / before,
        f"{CONNECTIONS:,} held, p99 {UNHARMED} times" if count == CONNECTIONS else f"ulimit -n allows {count:,}",
        (beside <= UNHARMED * before) if count == CONNECTIONS else None,
        {"connections": count, "p99_us": beside, "alone_p99_us": before, "resident_mb": resident_mb},
    )


# --- pipelined requests -----------------------------------------------------------------------------------------------


def pipelined(broker: Broker) -> Figure:
    with Client(broker.port) as client:
        client.create_topics([TOPIC])
        sender = threading.Thread(target=client.socket.sendall, args=(b"".join(requests()),))
        sender.start()
        answered = [correlation_id(read_frame(client.socket)) for _ in range(PIPELINED)]
        sender.join()
    in_order = sum(got == wanted for wanted, got in enumerate(answered))
    return Figure(
        f"{PIPELINED:,} pipelined requests", f"{in_order:,} answered in order", target="all", ok=in_order == PIPELINED
    )


def requests() -> Iterator[bytes]:
    batch = batch_of(1024)
    for number in range(PIPELINED):
        kind = number % 4
        if kind == 0:
            yield produce_frame(TOPIC, batch, correlation_id=number)
        elif kind == 1:
            yield with_correlation_id(metadata_frame(), number)
        elif kind == 2:
            yield frame(latest_offset(), 7, number)
        else:
            yield frame(ApiVersionsRequest(client_software_name="bench", client_software_version="1"), 3, number)


def latest_offset() -> ListOffsetsRequest:
    partition = ListOffsetsPartition(partition_index=0, timestamp=-1)
    return ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=TOPIC, partitions=[partition])])


def with_correlation_id(request: bytes, number: int) -> bytes:
    return request[:8] + struct.pack(">i", number) + request[12:]


def correlation_id(response: bytes) -> int:
    return int(struct.unpack_from(">i", response, 4)[0])
