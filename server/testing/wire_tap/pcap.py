"""Requests as a capture file that Wireshark and tshark read: synthetic Ethernet, IP and TCP around the frames.

Times, clients' addresses and positions in the streams are the real ones. The brokers' port is written as 9092, by which Wireshark
knows Kafka; brokers are told apart by their address (127.0.0.1, 127.0.0.2, ... in the order of their ids).

Bytes that were not kept are cut off, as in a capture with a limit for each packet. Secrets are zeros.
"""

from __future__ import annotations

import ipaddress
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from ottla.server.testing.errors import LabError
from ottla.server.testing.wire_tap.redaction import (
    may_have_secrets,
    of_same_length,
    records_of_same_length,
    without_secrets,
)
from ottla.server.testing.wire_tap.skeletons import Kept
from ottla.server.testing.wire_tap.wire_request import SASL_TOKEN_KEY, WireConnection, WireRequest
from ottla.wire.errors import KafkaError
from ottla.wire.schema import Message

KAFKA_PORT = 9092
SEGMENT_BYTES_MAX = 65_000
HEADER_BYTES = 10
"""Bytes of a frame that are shown, if nothing else may be."""

_FIN, _SYN, _PUSH, _ACK = 1, 2, 8, 16
_ETHERNET, _TCP = 1, 6
_FIRST_SEQUENCE = 1000
_WINDOW = 65_535
_IP = ipaddress.IPv4Address | ipaddress.IPv6Address


class _Frame(NamedTuple):
    """A frame in one direction of a connection, as far as it is known."""

    at_ms: float
    is_answer: bool
    offset: int
    size: int  # with its size field
    data: bytes  # the first bytes, or all
    request: WireRequest


def save_pcap(
    path: str | Path, requests: Iterable[WireRequest], *, port: int | None = KAFKA_PORT, hide_records: bool = False
) -> int:
    """Write requests and answers to a capture file; return the number of packets. Raises LabError if that fails.

    `port`: written in place of the brokers' ports; None for the real ones. `hide_records`: write zeros for records.
    """
    count = 0
    try:
        with open(path, "wb") as file:
            file.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 1 << 18, _ETHERNET))
            for at_ms, packet, length in packets(list(requests), port, hide_records=hide_records):
                micros = int(at_ms * 1000)
                file.write(struct.pack("<IIII", micros // 1_000_000, micros % 1_000_000, len(packet), length))
                file.write(packet)
                count += 1
    except OSError as error:
        raise LabError(f"{path} cannot be written: {error.strerror or error}.") from None
    return count


def packets(requests: list[WireRequest], port: int | None, *, hide_records: bool) -> Iterator[tuple[float, bytes, int]]:
    """Yield time in ms, bytes and full length of each packet."""
    nodes = sorted({each.node_id for each in requests})
    streams: dict[WireConnection, _Stream] = {}
    for frame in _frames(requests, hide_records=hide_records):
        connection = frame.request.connection
        stream = streams.get(connection)
        if stream is None:
            stream = streams[connection] = _Stream(connection, port, nodes.index(connection.node_id))
            yield from stream.opened(min(connection.opened_ms, frame.at_ms))
        yield from stream.sent(frame)
    for connection, stream in streams.items():
        if connection.closed_ms is not None:
            yield from stream.closed(connection.closed_ms)


def _frames(requests: list[WireRequest], *, hide_records: bool) -> list[_Frame]:
    frames = []
    for each in requests:
        asked = _shown(each, each.raw_request, each.size, is_answer=False, hide_records=hide_records)
        frames.append(_Frame(each.time * 1000, False, each.offsets[0], each.size + 4, asked, each))
        if (kept := each.raw_response) is not None and each.answer_time is not None:
            told = _shown(each, kept, each.answer_size, is_answer=True, hide_records=hide_records)
            frames.append(_Frame(each.answer_time * 1000, True, each.offsets[1], each.answer_size + 4, told, each))
    return sorted(frames, key=lambda frame: (frame.at_ms, frame.is_answer, frame.offset))


def _shown(request: WireRequest, kept: bytes | Kept, size: int, *, is_answer: bool, hide_records: bool) -> bytes:
    """Return the bytes of a frame that may be written, with its size field."""
    data = kept if isinstance(kept, bytes) else kept.prefix
    head = struct.pack(">i", size)
    if request.api_key == SASL_TOKEN_KEY:
        return head
    if not may_have_secrets(request.api_key) and not (hide_records and isinstance(kept, bytes)):
        return head + data
    try:
        message: Message = request.response if is_answer else request.request
        cls, version = type(message), request.format_of(type(message))
        body = message.encode(version)
        hidden = without_secrets(message, of_same_length, records_of_same_length if hide_records else None)
        shown = cls.encode(hidden, version)
    except (LabError, KafkaError):
        return head + data[:HEADER_BYTES]
    # The message may have been encoded in another way than ours; then its secrets may lie elsewhere.
    if not isinstance(kept, bytes) or len(shown) != len(body) or not data.endswith(body):
        return head + data[:HEADER_BYTES]
    return head + data[: len(data) - len(body)] + shown


class _Stream:
    """Packets of one TCP connection, with their sequence numbers."""

    def __init__(self, connection: WireConnection, port: int | None, rank: int) -> None:
        client = ipaddress.ip_address(connection.address[0])
        loopback = ipaddress.ip_address("127.0.0.1" if client.version == 4 else "::1")
        self._client = (client, connection.address[1])
        self._broker = (loopback + rank, connection.port if port is None else port)
        self._first: dict[bool, int] = {}  # offset of the first frame of a direction
        self._sent = {False: 0, True: 0}  # bytes of each direction, up to the last frame

    def opened(self, at_ms: float) -> Iterator[tuple[float, bytes, int]]:
        for is_answer, flags in ((False, _SYN), (True, _SYN | _ACK), (False, _ACK)):
            yield self._packet(at_ms, is_answer, flags, 0 if flags == _ACK else -1, b"", 0)

    def sent(self, frame: _Frame) -> Iterator[tuple[float, bytes, int]]:
        # Frames before the first one are not known.
        start = frame.offset - self._first.setdefault(frame.is_answer, frame.offset)
        for at in range(0, frame.size, SEGMENT_BYTES_MAX):
            length = min(SEGMENT_BYTES_MAX, frame.size - at)
            data = frame.data[at : at + length]
            self._sent[frame.is_answer] = max(self._sent[frame.is_answer], start + at + length)
            yield self._packet(frame.at_ms, frame.is_answer, _PUSH | _ACK, start + at, data, length)

    def closed(self, at_ms: float) -> Iterator[tuple[float, bytes, int]]:
        yield self._packet(at_ms, True, _FIN | _ACK, self._sent[True], b"", 0)
        self._sent[True] += 1
        yield self._packet(at_ms, False, _FIN | _ACK, self._sent[False], b"", 0)
        self._sent[False] += 1
        yield self._packet(at_ms, True, _ACK, self._sent[True], b"", 0)

    def _packet(
        self, at_ms: float, is_answer: bool, flags: int, position: int, data: bytes, length: int
    ) -> tuple[float, bytes, int]:
        """Return a packet of `length` bytes at a position of its stream, of which `data` are known. SYN is at -1."""
        source, target = (self._broker, self._client) if is_answer else (self._client, self._broker)
        sequence = (_FIRST_SEQUENCE + 1 + position) & 0xFFFFFFFF
        acknowledged = (_FIRST_SEQUENCE + 1 + self._sent[not is_answer]) & 0xFFFFFFFF if flags & _ACK else 0
        tcp = struct.pack(">HHIIBBHHH", source[1], target[1], sequence, acknowledged, 5 << 4, flags, _WINDOW, 0, 0)
        missing = bytes(length - len(data))
        checksum = _checksum(_pseudo_header(source[0], target[0], len(tcp) + length) + tcp + data + missing)
        tcp = tcp[:16] + struct.pack(">H", checksum) + tcp[18:]
        head = _link_header(source[0], is_answer) + _ip_header(source[0], target[0], len(tcp) + length) + tcp
        return at_ms, head + data, len(head) + length


def _link_header(source: _IP, is_answer: bool) -> bytes:
    client, broker = b"\x02\0\0\0\0\1", b"\x02\0\0\0\0\2"
    ends = client + broker if is_answer else broker + client  # to, from
    return ends + (b"\x08\0" if source.version == 4 else b"\x86\xdd")


def _ip_header(source: _IP, target: _IP, length: int) -> bytes:
    if source.version == 6:
        return struct.pack(">IHBB", 6 << 28, length, _TCP, 64) + source.packed + target.packed
    head = struct.pack(">BBHHHBBH", 0x45, 0, 20 + length, 0, 0x4000, 64, _TCP, 0) + source.packed + target.packed
    return head[:10] + struct.pack(">H", _checksum(head)) + head[12:]


def _pseudo_header(source: _IP, target: _IP, length: int) -> bytes:
    if source.version == 6:
        return source.packed + target.packed + struct.pack(">II", length, _TCP)
    return source.packed + target.packed + struct.pack(">BBH", 0, _TCP, length)


def _checksum(data: bytes) -> int:
    if len(data) % 2:
        data += b"\0"
    # Sixteen bits at a time with carries, as the remainder by 65,535 of the whole as one number.
    total = int.from_bytes(data) % 0xFFFF
    return ~total & 0xFFFF
