"""What decompresses piece by piece into memory that is used again is what each codec's own reader makes of the same bytes."""

import gzip
import json
import random
import subprocess
import sys
import zlib
from unittest.mock import patch

import lz4.frame
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.wire import decompression
from ottla.wire.compression import Compression, compress
from ottla.wire.decompression import decompress
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.record_encoding import encode_record
from ottla.wire.tests.effort import examples
from ottla.wire.tests.whole_decompression import GARBAGE, TOO_LARGE, decompress_whole

CODECS = [codec for codec in Compression if codec != Compression.NONE]
LIMIT = 1 << 20
TEXT = json.dumps([{"id": index, "name": f"record {index}"} for index in range(4000)]).encode()
NOISE = random.Random(1).randbytes(400_000)
plain = st.sampled_from([b"", b"x", TEXT, NOISE, bytes(300_000), TEXT + NOISE[:100_000]]) | st.binary(max_size=300)
LZ4_OPTIONS = st.fixed_dictionaries(
    {
        "store_size": st.booleans(),
        "content_checksum": st.booleans(),
        "block_checksum": st.booleans(),
        "block_linked": st.sampled_from([False, False, False, True]),
        "block_size": st.integers(4, 7),
    }
)


def ours(codec: Compression, data: bytes, limit: int) -> bytes | str:
    """The result, or which of the two refusals it is."""
    try:
        return bytes(decompress(codec, data, limit))
    except KafkaError as error:
        return {ErrorCode.MESSAGE_TOO_LARGE: TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR: GARBAGE}[error.code]


@st.composite
def compressed(draw: st.DrawFn, codec: Compression) -> bytes:
    """As we write it, and as others may."""
    data = draw(plain)
    if codec is Compression.LZ4 and draw(st.booleans()):
        return lz4.frame.compress(data, **draw(LZ4_OPTIONS))  # type: ignore[no-any-return]
    if codec is Compression.ZSTD and draw(st.booleans()):
        options = {"write_content_size": draw(st.booleans()), "write_checksum": draw(st.booleans())}
        return zstandard.ZstdCompressor(**options).compress(data)
    if codec is Compression.GZIP and draw(st.booleans()):
        return gzip.compress(data, draw(st.integers(0, 9)))
    return compress(codec, data)


@pytest.mark.parametrize("codec", CODECS)
@given(data=st.data(), limit=st.sampled_from([LIMIT, 1000, 300_000]))
@settings(max_examples=examples(40))
def test_valid_data(codec: Compression, data: st.DataObject, limit: int) -> None:
    given = data.draw(compressed(codec))
    assert ours(codec, given, limit) == decompress_whole(codec, given, limit)


@pytest.mark.parametrize("codec", CODECS)
@given(data=st.data())
@settings(max_examples=examples(40))
def test_torn_data(codec: Compression, data: st.DataObject) -> None:
    given = data.draw(compressed(codec))
    given = given[: data.draw(st.integers(0, len(given)))]
    assert ours(codec, given, LIMIT) == decompress_whole(codec, given, LIMIT)


@pytest.mark.parametrize("codec", CODECS)
@given(data=st.data())
@settings(max_examples=examples(40))
def test_concatenated_data(codec: Compression, data: st.DataObject) -> None:
    parts = data.draw(st.lists(compressed(codec) | st.binary(max_size=20), min_size=2, max_size=3))
    given = b"".join(parts)
    assert ours(codec, given, LIMIT) == decompress_whole(codec, given, LIMIT)


@pytest.mark.parametrize("codec", CODECS)
@given(data=st.data())
@settings(max_examples=examples(50))
def test_damaged_data(codec: Compression, data: st.DataObject) -> None:
    given = bytearray(data.draw(compressed(codec)))
    for _ in range(data.draw(st.integers(1, 3))):
        if given:
            # The front of a frame has most to say.
            position = data.draw(st.integers(0, min(30, len(given) - 1)) | st.integers(0, len(given) - 1))
            given[position] = data.draw(st.integers(0, 255))
    assert ours(codec, bytes(given), LIMIT) == decompress_whole(codec, bytes(given), LIMIT)


@pytest.mark.parametrize("codec", CODECS)
def test_bombs(codec: Compression) -> None:
    bomb = compress(codec, bytes(8 << 20))
    assert ours(codec, bomb, LIMIT) == decompress_whole(codec, bomb, LIMIT) == TOO_LARGE
    assert ours(codec, bomb[:-1], LIMIT) in (TOO_LARGE, GARBAGE)  # the framing may tell that it is cut off


def test_very_many_tiny_blocks_of_lz4_are_left_to_the_codec() -> None:
    """A call for each would take a microsecond for a byte."""
    front = lz4.frame.compress(b"", block_linked=False, store_size=False)[:7]
    data = front + b"\1\0\0\x80x" * 30_000 + bytes(4)
    with patch(
        "ottla.wire.decompression._decompress_lz4_frame", wraps=decompression._decompress_lz4_frame
    ) as by_the_codec:
        assert ours(Compression.LZ4, data, LIMIT) == b"x" * 30_000
    assert by_the_codec.call_count == 1


@pytest.mark.parametrize(
    "checksums", [{}, {"content_checksum": True}, {"block_checksum": True}], ids=["none", "contents", "blocks"]
)
def test_an_empty_block_of_lz4_is_refused(checksums: dict[str, bool]) -> None:
    """To Java's reader it is the end of the frame (Lz4BlockInputStream): consumers would miss whatever is behind it."""
    record = encode_record(0, 0, None, NOISE[:900])
    frame = lz4.frame.compress(record, block_linked=False, store_size=False, **checksums)
    # With XXH32 of nothing, where blocks have checksums.
    empty = b"\0\0\0\x80" + (b"\x05\x5d\xcc\x02" if "block_checksum" in checksums else b"")
    damaged = frame[:7] + empty + frame[7:]
    assert lz4.frame.decompress(damaged) == ours(Compression.LZ4, frame, LIMIT) == record
    assert ours(Compression.LZ4, damaged, LIMIT) == GARBAGE


def test_an_empty_block_of_lz4_among_tiny_ones_is_refused() -> None:
    front, tiny = lz4.frame.compress(b"", block_linked=False, store_size=False)[:7], b"\1\0\0\x80x"
    assert ours(Compression.LZ4, front + tiny * 300 + bytes(4), LIMIT) == b"x" * 300
    for before in (0, 100, 300):
        data = front + tiny * before + b"\0\0\0\x80" + tiny * (300 - before) + bytes(4)
        assert ours(Compression.LZ4, data, LIMIT) == GARBAGE


@pytest.mark.parametrize("has_igzip", [True, False])
def test_gzip_is_inflated_by_zlib_where_igzip_is_missing(has_igzip: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not has_igzip:
        monkeypatch.setitem(sys.modules, "isal", None)
    decompression._gzip_codec.cache_clear()
    try:
        assert (decompression._gzip_codec() is zlib) is not has_igzip
        for data in (b"", TEXT, NOISE, TEXT * 5):
            assert decompress(Compression.GZIP, gzip.compress(data), len(data)) == data
        with pytest.raises(KafkaError):
            decompress(Compression.GZIP, gzip.compress(TEXT)[:-8] + bytes(8), len(TEXT))
    finally:
        decompression._gzip_codec.cache_clear()


MANY_BATCHES = """
import resource
from ottla.wire.compression import Compression, compress
from ottla.wire.decompression import decompress, decompressed
from ottla.wire.compressed_walk import walk_compressed
from ottla.wire.record_encoding import encode_record
area = b"".join(encode_record(index, 0, None, bytes(1000)) for index in range(1500))
batches = {codec: compress(codec, area) for codec in Compression if codec}
def pass_over(times):
    for codec, batch in batches.items():
        for _ in range(times):
            with decompressed(codec, batch, len(area)) as view:
                assert len(view) == len(area)
            assert decompress(codec, batch, len(area)) is not None
            assert walk_compressed(codec, batch, len(area), 1500)
pass_over(10)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
pass_over(84)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_a_thousand_batches_take_the_memory_of_one() -> None:
    done = subprocess.run([sys.executable, "-c", MANY_BATCHES], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 4 * 1024
