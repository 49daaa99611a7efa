"""Record batches that are small on the wire and dear to check."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from compat_tests.support import raw

from ottla.wire.compression import Compression, compress

MIB = 1 << 20


class Bomb(NamedTuple):
    name: str
    batch: bytes
    copies: int


def _codecs() -> Iterator[tuple[str, int, Callable[[bytes], bytes]]]:
    for codec in Compression:
        if codec is not Compression.NONE:
            yield codec.name.lower(), int(codec), lambda data, codec=codec: compress(codec, data)


def bombs() -> Iterator[Bomb]:
    """Of every codec: much that comes out, many records, records that are wrong at the very end."""
    large = raw.record(bytes(90 * MIB))
    tiny = b"".join(raw.record(b"", number) for number in range(200_000))
    for name, number, squeeze in _codecs():
        yield Bomb(f"{name}: one record of 90 MiB of zeros", _batch(large, 1, squeeze, number), 8)
        yield Bomb(f"{name}: 200,000 empty records", _batch(tiny, 200_000, squeeze, number), 4)
        yield Bomb(f"{name}: 200,000 records and one that is cut", _batch(tiny[:-3], 200_000, squeeze, number), 4)
    some = b"".join(raw.record(b"", number) for number in range(100_000))
    yield Bomb("100,000 empty records", _batch(some, 100_000, bytes, 0), 10)
    yield Bomb("100,000 records of which the last is cut", _batch(some[:-3], 100_000, bytes, 0), 10)
    yield Bomb("two thousand million records by their header", _batch(some, 2**31 - 1, bytes, 0), 10)


def _batch(area: bytes, count: int, squeeze: Callable[[bytes], bytes], codec: int) -> bytes:
    return raw.batch(area, compress=squeeze, codec=codec, count=count, last_offset_delta=count - 1)
