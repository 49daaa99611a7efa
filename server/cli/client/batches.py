"""Record batches from a file or a pipe: input cut by a delimiter, and encoded batch by batch (`ottla.wire.records` has the layout).

Input is processed as soon as it arrives. A piece without a delimiter is kept, up to RECORD_BYTES_MAX. Empty records are
left out, as kcat does. Writing many records at once is quicker than one by one: the encodings of small numbers are made
once, and key, headers and deltas that all records share are joined once. All records of a batch have the time at which they
were read.
"""

from __future__ import annotations

import os
import select
from collections.abc import Callable, Iterable, Iterator, Sequence

from ottla.server.cli.client.output import RequestFailed
from ottla.wire.compression import Compression
from ottla.wire.record_encoding import build_batch, encode_varint
from ottla.wire.records import (
    MAGIC_V2,
    NO_PARTITION_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    BatchHeader,
)

BATCH_BYTES_MAX = 900_000
"""Limit of keys and values, so that a batch stays below Kafka's message.max.bytes; a larger record has a batch of its own."""

BATCH_RECORDS_MAX = 10_000
"""Limit of records in a batch, that of librdkafka (batch.num.messages)."""

NOBODY = NO_PRODUCER_ID, NO_PRODUCER_EPOCH, NO_SEQUENCE
_SMALL = 1 << 14
_made: list[bytes] = []


def _varints() -> list[bytes]:
    if not _made:
        _made.extend(map(encode_varint, range(_SMALL)))
    return _made


def header_block(headers: Sequence[tuple[bytes, bytes | None]]) -> bytes:
    """Encode a record's headers; they are the last part of an encoded record."""
    parts = [encode_varint(len(headers))]
    for key, value in headers:
        parts += (encode_varint(len(key)), key, nullable(value))
    return b"".join(parts)


def nullable(data: bytes | None) -> bytes:
    """Encode a key or value, with its length as a varint before it. None has the length -1."""
    return b"\x01" if data is None else encode_varint(len(data)) + data


def values_area(values: Iterable[bytes], key_part: bytes, headers_part: bytes) -> bytes:
    """Encode up to BATCH_RECORDS_MAX records, one for each value. All have the same encoded key and headers.

    `key_part` comes from `nullable`, `headers_part` from `header_block`.
    """
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
    """Encode up to BATCH_RECORDS_MAX records, one for each pair of key and value. `headers_part`: the same for all."""
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
    """Build a batch of `count` encoded records. `producer`: producer id, epoch and sequence of the first record."""
    header = BatchHeader(
        0, 0, NO_PARTITION_LEADER_EPOCH, MAGIC_V2, 0, 0, count - 1, timestamp_ms, timestamp_ms,
        *producer, count,
    )  # fmt: skip
    return build_batch(area, header, codec)


PIECE_BYTES = 512 * 1024
"""Read at once where so much is there."""

LINGER_S = 0.005
"""Time to wait for more input before a batch is written, as librdkafka's linger.ms."""

RECORD_BYTES_MAX = 90 << 20
"""Below what a broker takes in one request."""


def records_in(descriptor: int, delimiter: bytes, before_wait: Callable[[], None]) -> Iterator[list[bytes]]:
    """Yield the input's records, in one list for each batch. `before_wait` is called if no input is ready.

    Raises RequestFailed if a record is too long.
    """
    rest = bytearray()
    while piece := _piece(descriptor, before_wait):
        # Only in what is new, for the rest has been looked through; a delimiter may begin in it.
        found = piece.find(delimiter) if not rest else -1
        searched = max(0, len(rest) - len(delimiter) + 1)
        rest += piece
        if found < 0 and rest.find(delimiter, searched) < 0:
            if len(rest) > RECORD_BYTES_MAX:
                raise RequestFailed(f"a record of more than {RECORD_BYTES_MAX:,} bytes; is the delimiter (-D) right?")
            continue
        *records, last = bytes(rest).split(delimiter)
        rest = bytearray(last)
        yield from batches(records)
    if rest:
        yield [bytes(rest)]


def batches(records: list[bytes]) -> Iterator[list[bytes]]:
    """Split records into lists that fit one batch each; empty records are omitted."""
    records = [each for each in records if each]
    if sum(map(len, records)) <= BATCH_BYTES_MAX:
        for start in range(0, len(records), BATCH_RECORDS_MAX):
            yield records[start : start + BATCH_RECORDS_MAX]
        return
    batch: list[bytes] = []
    size = 0
    for each in records:
        if batch and (size + len(each) > BATCH_BYTES_MAX or len(batch) == BATCH_RECORDS_MAX):
            yield batch
            batch, size = [], 0
        batch.append(each)
        size += len(each)
    yield batch


def _piece(descriptor: int, before_wait: Callable[[], None]) -> bytes:
    """Read a piece of input; wait at most LINGER_S seconds for more. Return b"" at the end of the input."""
    if not select.select([descriptor], [], [], 0)[0]:
        before_wait()
    piece = os.read(descriptor, PIECE_BYTES)
    if not piece or len(piece) == PIECE_BYTES:
        return piece
    parts = [piece]
    size = len(piece)
    while size < PIECE_BYTES and select.select([descriptor], [], [], LINGER_S)[0]:
        piece = os.read(descriptor, PIECE_BYTES - size)
        if not piece:
            break
        parts.append(piece)
        size += len(piece)
    return b"".join(parts)
