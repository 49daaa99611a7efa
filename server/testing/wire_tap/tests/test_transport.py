"""A tapped transport carries the bytes of a plain one, and regions of files on the disk and in memory."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.replication.log.storage import FileRegion, OsStorage, only_cached
from ottla.server.network.transport import PageMissing
from ottla.server.testing.memory.storage import MemoryStorage
from ottla.server.testing.wire_tap.frames import WHOLE_BYTES_MAX
from ottla.server.testing.wire_tap.tests.wire_talk import answer, fetch, fetched, produce, request
from ottla.server.testing.wire_tap.wire import Wire

LARGE = b"0123456789abcdef" * (WHOLE_BYTES_MAX // 16 + 64)
ADDRESS = ("127.0.0.1", 0)


class Pair:
    """A tapped connection and its client, over TCP."""

    def __init__(self) -> None:
        self.wire = Wire()
        with socket.create_server(ADDRESS) as listening:
            self.client = socket.create_connection(listening.getsockname())
            accepted, _ = listening.accept()
        accepted.setblocking(False)
        self.transport = self.wire.acceptor(3)(accepted)

    def read(self, count: int) -> bytes:
        self.client.settimeout(60)
        data = b""
        while len(data) < count:
            data += self.client.recv(count - len(data))
        return data

    def send_region(self, region: FileRegion) -> None:
        """Send a whole region, while the client reads."""
        sent = 0
        while sent < region.length:
            count = self.transport.send_region(region, region.position + sent, region.length - sent)
            assert count > 0
            assert self.read(count) == LARGE[sent : sent + count]
            sent += count


@pytest.fixture
def pair() -> Iterator[Pair]:
    made = Pair()
    yield made
    made.client.close()
    made.transport.close()


def receive(transport: Any, size: int) -> bytes:
    buffer, count = bytearray(size), 0
    transport.socket.settimeout(60)
    while count < size:
        with memoryview(buffer) as view:
            count += transport.receive_into(view[count:])
    transport.socket.setblocking(False)
    return bytes(buffer)


def test_requests_and_answers_pass_and_are_seen(pair: Pair) -> None:
    asked = request(produce(("orders", 0), records=LARGE), 9)
    pair.client.sendall(asked)
    assert receive(pair.transport, len(asked)) == asked
    (seen,) = pair.wire.requests("Produce", topic="orders", node=3)
    assert seen.peer == "{}:{}".format(*pair.client.getsockname())


@pytest.mark.parametrize("kind", ["disk", "memory", "small"])
def test_regions_of_files_are_sent(pair: Pair, kind: str, tmp_path: Path) -> None:
    storage: Any = MemoryStorage() if kind == "memory" else OsStorage()
    folder = "/data" if kind == "memory" else str(tmp_path)
    if kind == "memory":
        storage.make_directory(folder)
    file = storage.open(f"{folder}/log", create=True)
    records = LARGE[:1000] if kind == "small" else LARGE
    file.append(records)
    region = FileRegion(file, 0, len(records))
    asked, told = request(fetch(("orders", 0)), 12), answer(fetched(("orders", 0), records=records), 12)
    pair.client.sendall(asked)
    receive(pair.transport, len(asked))
    start = told.index(records)
    pair.transport.send(told[:start])
    assert pair.read(start) == told[:start]
    assert pair.transport.is_in_memory(region, 0, region.length)
    assert pair.transport.read_in_memory(region) in (records, None)
    pair.send_region(region)
    pair.transport.send(told[start + len(records) :])
    (seen,) = pair.wire.requests()
    assert seen.is_answered
    assert seen.response == fetched(("orders", 0), records=records if kind == "small" else b"")


def test_a_page_that_is_not_in_memory_is_left_to_a_thread(pair: Pair) -> None:
    storage = MemoryStorage()
    storage.make_directory("/data")
    file = storage.open("/data/log", create=True)
    file.append(LARGE)
    storage.evict()
    region = FileRegion(file, 0, len(LARGE))  # type: ignore[arg-type]
    with only_cached:
        assert pair.transport.read_in_memory(region) is None
        with pytest.raises(PageMissing):
            pair.transport.send_region(region, 0, 100)


def test_sockets_without_addresses_can_be_tapped() -> None:
    one, other = socket.socketpair()
    with one, other:
        transport = Wire().acceptor(0)(one)
        assert transport.conversation.connection.peer == "0.0.0.0:0"
