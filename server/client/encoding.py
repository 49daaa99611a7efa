"""Record batches of many records that are written at once, quicker than record by record (`ottla.wire.records` has the layout).

All records of a batch have the time at which they were read. Most of them are small, and the encodings of small numbers are
made once. Key, headers and deltas that are the same for all are joined once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ottla.wire.compression import Compression
from ottla.wire.records import (
    MAGIC_V2,
    NO_PARTITION_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    BatchHeader,
    build_batch,
    encode_varint,
)

BATCH_BYTES_MAX = 900_000
"""Of keys and values, so that a batch stays below Kafka's message.max.bytes; a larger record has a batch of its own."""

BATCH_RECORDS_MAX = 10_000
"""As many as librdkafka has (batch.num.messages)."""

NOBODY = NO_PRODUCER_ID, NO_PRODUCER_EPOCH, NO_SEQUENCE
_SMALL = 1 << 14
_made: list[bytes] = []


def _varints() -> list[bytes]:
    if not _made:
        _made.extend(map(encode_varint, range(_SMALL)))
    return _made


def header_block(headers: Sequence[tuple[bytes, bytes | None]]) -> bytes:
    """The end of a record: its headers."""
    parts = [encode_varint(len(headers))]
    for key, value in headers:
        parts += (encode_varint(len(key)), key, nullable(value))
    return b"".join(parts)


def nullable(data: bytes | None) -> bytes:
    """A key or value with its length before it."""
    return b"\x01" if data is None else encode_varint(len(data)) + data


def values_area(values: Iterable[bytes], key_part: bytes, headers_part: bytes) -> bytes:
    """Records of these values, at most BATCH_RECORDS_MAX, that have one key (`nullable`) and the same headers."""
    varints = _varints()
    parts: list[bytes] = []
    add = parts.append
    # Attributes and the time's delta take a byte each.
    overhead = 2 + len(key_part) + len(headers_part)
    for index, value in enumerate(values):
        size = len(value)
        offset = varints[index]
        size_part = varints[size] if size < _SMALL else encode_varint(size)
        length = overhead + len(offset) + len(size_part) + size
        length_part = varints[length] if length < _SMALL else encode_varint(length)
        add(b"%b\0\0%b%b%b%b%b" % (length_part, offset, key_part, size_part, value, headers_part))
    return b"".join(parts)


def pairs_area(pairs: Iterable[tuple[bytes | None, bytes | None]], headers_part: bytes) -> bytes:
    """Records of these keys and values, at most BATCH_RECORDS_MAX, that have the same headers."""
    varints = _varints()
    parts: list[bytes] = []
    add = parts.append
    for index, (key, value) in enumerate(pairs):
        body = b"\0\0%b%b%b%b" % (varints[index], nullable(key), nullable(value), headers_part)
        length = len(body)
        add(varints[length] if length < _SMALL else encode_varint(length))
        add(body)
    return b"".join(parts)


def batch_of(
    area: bytes, count: int, timestamp_ms: int, codec: Compression, producer: tuple[int, int, int] = NOBODY
) -> bytes:
    """The batch of an area of records. `producer`: its id, its epoch and the sequence of the first record."""
    header = BatchHeader(
        0, 0, NO_PARTITION_LEADER_EPOCH, MAGIC_V2, 0, 0, count - 1, timestamp_ms, timestamp_ms,
        *producer, count,
    )  # fmt: skip
    return build_batch(area, header, codec)
