"""Records from a file or a pipe, cut by a delimiter: as many at a time as are there, and each as soon as it is there.

What has no delimiter yet is kept, up to RECORD_BYTES_MAX, however little of it comes at a time. Empty records are left out, as
kcat does.
"""

from __future__ import annotations

import os
import select
from collections.abc import Callable, Iterator

from ottla.server.client.encoding import BATCH_BYTES_MAX, BATCH_RECORDS_MAX
from ottla.server.client.failures import AskingFailed

PIECE_BYTES = 512 * 1024
"""Read at once where so much is there."""

LINGER_S = 0.005
"""How long more may come before what is there is written, as librdkafka's linger.ms."""

RECORD_BYTES_MAX = 90 << 20
"""Below what a broker takes in one request."""


def records_in(descriptor: int, delimiter: bytes, before_wait: Callable[[], None]) -> Iterator[list[bytes]]:
    """Lists of records, each list for one batch. `before_wait` is called when nothing is there yet. AskingFailed."""
    rest = bytearray()
    while piece := _piece(descriptor, before_wait):
        # Only in what is new, for the rest has been looked through; a delimiter may begin in it.
        found = piece.find(delimiter) if not rest else -1
        searched = max(0, len(rest) - len(delimiter) + 1)
        rest += piece
        if found < 0 and rest.find(delimiter, searched) < 0:
            if len(rest) > RECORD_BYTES_MAX:
                raise AskingFailed(f"a record of more than {RECORD_BYTES_MAX:,} bytes; is the delimiter (-D) right?")
            continue
        *records, last = bytes(rest).split(delimiter)
        rest = bytearray(last)
        yield from batches(records)
    if rest:
        yield [bytes(rest)]


def batches(records: list[bytes]) -> Iterator[list[bytes]]:
    """The same records in lists that fit one batch each, without empty ones."""
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
    """What is there, and what comes within LINGER_S; empty at the end."""
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
