"""The walk while records are decompressed: the same answers as the walk afterwards, wherever the pieces begin and end."""

import random
import subprocess
import sys
from contextlib import nullcontext
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.wire.compressed_walk import walk_compressed
from ottla.wire.compression import Compression, compress
from ottla.wire.decompression import TooLargeDecompressed, decompress
from ottla.wire.errors import KafkaError
from ottla.wire.record_encoding import encode_record
from ottla.wire.record_walk import continue_walk_python, walk_records
from ottla.wire.tests.effort import examples

CODECS = [codec for codec in Compression if codec != Compression.NONE]
LIMIT = 1 << 24


def noise(size: int) -> bytes:
    """Bytes that no codec makes shorter, the same for each size: what hypothesis draws again has to be the same again."""
    return random.Random(size).randbytes(size)


def afterwards(codec: Compression, data: bytes, count: int, limit: int = LIMIT) -> object:
    area = bytes(decompress(codec, data, limit))
    try:
        return walk_records(area, 0, len(area), count)
    except ValueError:
        return None


def meanwhile(
    codec: Compression, data: bytes, count: int, piece: int, limit: int = LIMIT, *, python: bool = False
) -> object:
    twin = patch("ottla.wire.compressed_walk.continue_walk", continue_walk_python) if python else nullcontext()
    with (
        twin,
        patch("ottla.wire.compressed_walk.PIECE_BYTES", piece),
        patch("ottla.wire.decompression._CHUNK_BYTES", piece),
        patch("ottla.wire.decompression._ZSTD_AT_ONCE_BYTES", 0),
    ):
        return walk_compressed(codec, data, limit, count)


sizes = st.sampled_from([0, 1, 60, 63, 64, 127, 128, 1000, 8191, 8192, 40_000, 200_000])
records = st.lists(
    st.builds(
        encode_record,
        st.integers(-(2**31), 2**31 - 1) | st.integers(0, 3),
        st.integers(-(2**63), 2**63 - 1) | st.integers(-100, 100),
        st.none() | st.binary(max_size=5),
        st.none() | sizes.map(noise),
    ),
    max_size=8,
)


@pytest.mark.parametrize("python", [False, True])
@pytest.mark.parametrize("codec", CODECS)
@given(parts=records, piece=st.integers(1, 300) | st.integers(300, 300_000), more=st.sampled_from([0, 0, 0, 1, -1]))
@settings(max_examples=examples(25), deadline=None)
def test_records_across_the_borders_of_pieces(
    codec: Compression, python: bool, parts: list[bytes], piece: int, more: int
) -> None:
    data, count = compress(codec, b"".join(parts)), max(0, len(parts) + more)
    assert meanwhile(codec, data, count, max(piece, 1), python=python) == afterwards(codec, data, count)


@pytest.mark.parametrize("codec", CODECS)
@given(data=st.data(), piece=st.integers(1, 5000))
@settings(max_examples=examples(30), deadline=None)
def test_damaged_records(codec: Compression, data: st.DataObject, piece: int) -> None:
    parts = data.draw(records.filter(bool))
    area = bytearray(b"".join(parts))
    for _ in range(data.draw(st.integers(1, 3))):
        position = data.draw(st.integers(0, min(40, len(area) - 1)) | st.integers(0, len(area) - 1))
        area[position] = data.draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]) | st.integers(0, 255))
    compressed = compress(codec, area)
    assert meanwhile(codec, compressed, len(parts), piece) == afterwards(codec, compressed, len(parts))


@pytest.mark.parametrize("codec", CODECS)
@given(data=st.data(), piece=st.integers(1, 5000))
@settings(max_examples=examples(30), deadline=None)
def test_damaged_compression(codec: Compression, data: st.DataObject, piece: int) -> None:
    """None means that the other way has the word; whatever else is said has to be what the other says."""
    parts = data.draw(records.filter(bool))
    compressed = bytearray(compress(codec, b"".join(parts)))
    position = data.draw(st.integers(0, min(40, len(compressed) - 1)) | st.integers(0, len(compressed) - 1))
    compressed[position] = data.draw(st.integers(0, 255))
    damaged = bytes(compressed)
    try:
        said = meanwhile(codec, damaged, len(parts), piece)
    except KafkaError as error:
        with pytest.raises(KafkaError) as caught:
            afterwards(codec, damaged, len(parts))
        assert caught.value.code == error.code
        return
    if said is not None:
        assert said == afterwards(codec, damaged, len(parts))


@pytest.mark.parametrize("codec", CODECS)
def test_a_record_longer_than_the_memory_is_left_to_the_other_way(codec: Compression) -> None:
    data = compress(codec, encode_record(0, 0, None, bytes(9 << 20)))
    assert walk_compressed(codec, data, LIMIT, 1) is None


@pytest.mark.parametrize("codec", CODECS)
def test_too_large_is_said_at_once(codec: Compression) -> None:
    area = encode_record(0, 0, None, bytes(100_000)) * 50
    with pytest.raises(TooLargeDecompressed):
        walk_compressed(codec, compress(codec, area), len(area) - 1, 50)


BOMB = """
import resource, sys
from ottla.wire.compressed_walk import walk_compressed
from ottla.wire.compression import Compression, compress
from ottla.wire.record_encoding import encode_record
codec = Compression(int(sys.argv[1]))
record = encode_record(0, 0, None, bytes(1000))
walk_compressed(codec, compress(codec, record * 1000), 1 << 30, 1000)
data = sys.stdin.buffer.read()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(walk_compressed(codec, data, 1 << 30, 60_000) is not None)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.thorough
@pytest.mark.parametrize("codec", CODECS)
def test_sixty_megabytes_of_records_take_two(codec: Compression) -> None:
    data = compress(codec, encode_record(0, 0, None, bytes(1000)) * 60_000)
    done = subprocess.run([sys.executable, "-c", BOMB, str(int(codec))], input=data, capture_output=True, check=True)
    is_good, kilobytes = done.stdout.split()
    assert is_good == b"True"
    assert int(kilobytes) < 4 * 1024


# --- gzip that libdeflate inflates as a whole -------------------------------------------------------------------------


def walked_at_once(data: bytes, count: int, limit: int = LIMIT) -> object:
    pytest.importorskip("deflate")
    return walk_compressed(Compression.GZIP, data, limit, count, is_once=True)


def or_none(data: bytes, count: int) -> tuple[object, object]:
    try:
        return None, afterwards(Compression.GZIP, data, count)
    except KafkaError:
        return None, None


@given(parts=records.filter(bool), level=st.integers(0, 9), more=st.sampled_from([0, 0, 1, -1]))
@settings(max_examples=examples(30), deadline=None)
def test_good_gzip_members(parts: list[bytes], level: int, more: int) -> None:
    data, count = compress(Compression.GZIP, b"".join(parts), level), len(parts) + more
    assert walked_at_once(data, count) in or_none(data, count)


def test_records_in_gzip_are_walked_at_once() -> None:
    area = encode_record(0, 0, None, noise(5000)) + encode_record(1, 7, b"k", bytes(9000))
    for level in (0, 6):
        assert walked_at_once(compress(Compression.GZIP, area, level), 2) == (0, 7, 1, True, True)
    data = compress(Compression.GZIP, area)
    assert walked_at_once(data, 1) is None
    assert walked_at_once(data, 2, len(area)) is not None
    assert walked_at_once(data, 2, len(area) - 1) is None


@pytest.mark.parametrize("before", [0, 100, 65_500, 65_520, 200_000])
def test_more_gzip_members_are_left_to_the_other_way(before: int) -> None:
    """libdeflate ends with the first one: the end of the last says what the first may say, too."""
    # Of its own: by chance the bytes would hold the head of a member, depending on what other tests have drawn.
    value = random.Random(before).randbytes(before)
    member = compress(Compression.GZIP, encode_record(0, 0, None, value))
    assert walked_at_once(member, 1) == (0, 0, 0, True, True)
    for more in (member, b"\x1f\x8b\x08", b"\x1f\x8b"):
        assert walked_at_once(member + more, 1) is None
    assert walked_at_once(member[:-1], 1) is None
    assert walked_at_once(b"", 1) is walked_at_once(b"\x1f", 1) is None


@given(data=st.data())
@settings(max_examples=examples(50), deadline=None)
def test_damaged_gzip(data: st.DataObject) -> None:
    parts = data.draw(records.filter(bool))
    compressed = bytearray(compress(Compression.GZIP, b"".join(parts)))
    for _ in range(data.draw(st.integers(1, 3))):
        compressed[data.draw(st.integers(0, len(compressed) - 1))] = data.draw(st.integers(0, 255))
    damaged = bytes(compressed)
    assert walked_at_once(damaged, len(parts)) in or_none(damaged, len(parts))
