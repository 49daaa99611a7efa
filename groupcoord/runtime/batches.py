"""Batches of an outcome's records: one that is appended whole, or several where each beginning may stand alone.

A crash, or a new leader, cuts a log between two batches and never inside one. So what has to be in the log as a whole is one
batch, as in Kafka. A large batch is compressed, which every reader of the topic understands. When 10,000 members go over to
another protocol their batch shrinks to an eighth, and fits into the megabyte that `max.message.bytes` allows by default.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ottla.groupcoord.runtime.outcome import Outcome
from ottla.wire.compression import Compression
from ottla.wire.records import RECORDS_OFFSET, build_batch, read_header

RECORDS_PER_BATCH = 500
COMPRESSED_FROM = 64 * 1024
"""Bytes of a long outcome's batch. Nearly all outcomes are much smaller, and stand in the log as Kafka's do."""
COMPRESSED_TO = 64 * 1024 * 1024
"""Bytes of the longest batch that is compressed, so that every load can decompress it: readers of batches refuse 100 MiB. A longer
one stays as it is, and the log refuses it for its size. Long names of very many members compress to nearly nothing."""
COMPRESSION_LEVEL = 9
"""The lowest level of Zstandard that looks back 4 MiB. The records of one member stand far apart in a long batch."""

Encode = Callable[[list[Any], int], bytes]
Pieces = Iterator[tuple[list[Any], bytes]]
"""Batches of an outcome, each with its records."""


def is_long(outcome: Outcome[Any]) -> bool:
    """Whether its records take more than a moment."""
    return len(outcome.records) > RECORDS_PER_BATCH


def must_be_whole(outcome: Outcome[Any]) -> bool:
    """Whether its records have to be one batch."""
    return not is_long(outcome) or (outcome.is_atomic and not outcome.is_cuttable)


def pieces_of(outcome: Outcome[Any], encode: Encode, timestamp_ms: int) -> Pieces:
    """Several batches, each encoded when its turn comes."""
    for start in range(0, len(outcome.records), RECORDS_PER_BATCH):
        piece = outcome.records[start : start + RECORDS_PER_BATCH]
        yield piece, encode(piece, timestamp_ms)


def whole_batch(outcome: Outcome[Any], encode: Encode, timestamp_ms: int) -> bytes:
    """One batch, compressed if it is large. Call it in a thread."""
    batch = encode(outcome.records, timestamp_ms)
    if not COMPRESSED_FROM <= len(batch) <= COMPRESSED_TO:
        return batch
    return build_batch(memoryview(batch)[RECORDS_OFFSET:], read_header(batch), Compression.ZSTD, COMPRESSION_LEVEL)
