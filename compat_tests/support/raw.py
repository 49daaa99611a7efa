"""Bytes on a socket, for what no client would send.

Well-formed requests and answers are coded by kafka-python's message classes, so that nothing here shares code with the
broker under test; record batches are put together by hand, because they have to be wrong in every way.
"""

import contextlib
import importlib
import socket
import struct
from collections.abc import Callable
from functools import cache
from typing import Any, Self

from ottla.wire.checksum import crc32c

CLIENT_ID = "peer"
NO_TIMESTAMP = -1
PIECE_BYTES = 1 << 20


@cache
def message_class(name: str) -> Any:
    """kafka-python's class of that name, such as `ProduceRequest`."""
    for package in ("producer", "consumer", "metadata", "admin"):
        module = importlib.import_module(f"kafka.protocol.{package}")
        if hasattr(module, name):
            return getattr(module, name)
    raise LookupError(name)


def request(name: str, version: int, correlation_id: int = 1, **fields: Any) -> bytes:
    """A whole frame: `request("Metadata", 9, topics=None)`. Fields that are left out take their defaults."""
    message = message_class(f"{name}Request")(version=version, **fields)
    message.with_header(correlation_id=correlation_id, client_id=CLIENT_ID)
    return bytes(message.encode(header=True, framed=True))


def response(name: str, version: int, payload: bytes) -> Any:
    return message_class(f"{name}Response").decode(payload, version=version, header=True)


def frame(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


def header(api_key: int, api_version: int, correlation_id: int = 1) -> bytes:
    """A request header of the versions without tagged fields."""
    return struct.pack(">hhih", api_key, api_version, correlation_id, len(CLIENT_ID)) + CLIENT_ID.encode()


def string(text: bytes) -> bytes:
    return struct.pack(">h", len(text)) + text


def receive_frame(sock: socket.socket) -> bytes | None:
    """The next frame without its length, or None if the other end has closed the connection."""
    start = _read(sock, 4)
    return None if start is None else _read(sock, struct.unpack(">i", start)[0])


def _read(sock: socket.socket, count: int) -> bytes | None:
    # Not all at once: the first word of another protocol's answer announces more than a gigabyte.
    data = bytearray()
    while len(data) < count:
        try:
            piece = sock.recv(min(count - len(data), PIECE_BYTES))
        except ConnectionError:
            return None
        if not piece:
            return None
        data += piece
    return bytes(data)


class Peer:
    """One connection to a broker."""

    def __init__(self, address: tuple[str, int], timeout_s: float = 60, receive_buffer: int | None = None) -> None:
        self.socket = socket.socket()
        if receive_buffer is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(timeout_s)
        self.socket.connect(address)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        """Sends what the broker will take; it may close while we are sending."""
        with contextlib.suppress(ConnectionError):
            self.socket.sendall(data)

    def receive(self) -> bytes | None:
        """The next answer without its length, or None if the broker has closed the connection."""
        return receive_frame(self.socket)

    def call(self, name: str, version: int, **fields: Any) -> Any:
        """Sends a well-formed request and decodes its answer."""
        self.send(request(name, version, **fields))
        payload = self.receive()
        assert payload is not None, f"the broker closed the connection on {name} v{version}"
        return response(name, version, payload)

    def is_closed(self) -> bool:
        """Waits for the broker's next word, which has to be goodbye."""
        return self.receive() is None

    def reset(self) -> None:
        """Closes with RST instead of FIN."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()


# --- record batches ---------------------------------------------------------------------------------------------------


def varint(number: int) -> bytes:
    """Zigzag, as records have them."""
    number = (number << 1) ^ (number >> 63)
    encoded = bytearray()
    while number > 127:
        encoded.append(number & 127 | 128)
        number >>= 7
    return bytes([*encoded, number])


def record(value: bytes, offset_delta: int = 0, timestamp_delta: int = 0, key: bytes | None = None) -> bytes:
    coded_key = varint(-1) if key is None else varint(len(key)) + key
    body = b"\0" + varint(timestamp_delta) + varint(offset_delta) + coded_key + varint(len(value)) + value + varint(0)
    return varint(len(body)) + body


def batch(
    records: bytes | list[bytes],
    *,
    compress: Callable[[bytes], bytes] = bytes,
    codec: int = 0,
    **tampered: int,
) -> bytes:
    """A record batch of magic 2; `tampered` replaces header fields by name before the checksum is made.

    `crc`, `magic`, `length` and `base_offset` lie outside what the checksum covers.
    """
    area = records if isinstance(records, bytes) else b"".join(record(value, i) for i, value in enumerate(records))
    count = 1 if isinstance(records, bytes) else len(records)
    fields = {
        "attributes": codec,
        "last_offset_delta": count - 1,
        "base_timestamp": NO_TIMESTAMP,
        "max_timestamp": NO_TIMESTAMP,
        "producer_id": -1,
        "producer_epoch": -1,
        "base_sequence": -1,
        "count": count,
    } | {name: value for name, value in tampered.items() if name not in ("crc", "magic", "length", "base_offset")}
    covered = struct.pack(">hiqqqhii", *fields.values()) + compress(area)
    length = tampered.get("length", len(covered) + 9)
    outside = struct.pack(">qiib", tampered.get("base_offset", 0), length, 0, tampered.get("magic", 2))
    return outside + struct.pack(">I", tampered.get("crc", crc32c(covered))) + covered


def produce(
    topic: str, records: bytes | None, *, acks: int = -1, version: int = 7, partition: int = 0, **options: Any
) -> bytes:
    """A Produce request, framed."""
    classes = message_class("ProduceRequest")
    data = classes.TopicProduceData
    part = data.PartitionProduceData(version=version, index=partition, records=records)
    named = data(version=version, name=topic, partition_data=[part])
    fields = {"transactional_id": None, "acks": acks, "timeout_ms": 10_000, "topic_data": [named]} | options
    return request("Produce", version, **fields)


def fetch(topic: str, offset: int = 0, *, version: int = 11, topic_id: Any = None, **options: Any) -> bytes:
    """A Fetch request for partition 0 without a session, framed. From version 13 on topics go by `topic_id`."""
    classes = message_class("FetchRequest").FetchTopic
    partition = {
        "partition": 0,
        "current_leader_epoch": -1,
        "fetch_offset": offset,
        "last_fetched_epoch": -1,
        "log_start_offset": -1,
        "partition_max_bytes": 1 << 20,
    }
    partition |= {name: options.pop(name) for name in partition.keys() & options.keys()}
    partitions = [classes.FetchPartition(version=version, **partition)]
    named = classes(version=version, topic=topic, topic_id=topic_id, partitions=partitions)
    fields = {
        "replica_id": -1,
        "max_wait_ms": 0,
        "min_bytes": 0,
        "max_bytes": 50 << 20,
        "isolation_level": 0,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [named],
        "forgotten_topics_data": [],
        "rack_id": "",
    }
    return request("Fetch", version, **(fields | options))
