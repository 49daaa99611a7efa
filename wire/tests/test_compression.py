import gzip
import json
import random
import resource
import struct
import subprocess
import sys
import tracemalloc
import zlib
from contextlib import suppress

import cramjam
import lz4.frame
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.wire import decompression
from ottla.wire.compression import (
    XERIAL_HEADER,
    Compressing,
    Compression,
    compress,
)
from ottla.wire.decompression import decompress, decompressed_bound, unstored_gzip_bytes
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.tests.effort import examples

LIMIT = 1 << 24
CODECS = [codec for codec in Compression if codec != Compression.NONE]
TEXT = json.dumps([{"id": index, "name": f"record {index}", "tags": ["a", "b"]} for index in range(2000)]).encode()
NOISE = random.Random(1).randbytes(200_000)
payloads = st.sampled_from([b"", b"x", TEXT, NOISE, bytes(300_000), TEXT + NOISE]) | st.binary(max_size=200)


def xerial(*blocks: bytes) -> bytes:
    compressed = [bytes(cramjam.snappy.compress_raw(block)) for block in blocks]
    return XERIAL_HEADER + b"".join(struct.pack(">i", len(block)) + block for block in compressed)


def bare_snappy(data: bytes) -> bytes:
    return bytes(cramjam.snappy.compress_raw(data))


def lz4_frame(data: bytes, **options: object) -> bytes:
    return lz4.frame.compress(data, **{"block_linked": False, **options})


# --- round trips ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", list(Compression))
@given(data=payloads)
@settings(max_examples=examples(25))
def test_round_trip(codec, data):
    for kind in (bytes, bytearray, memoryview):
        assert decompress(codec, memoryview(compress(codec, kind(data))), LIMIT) == data


@pytest.mark.parametrize(
    ("codec", "levels"),
    [
        (Compression.GZIP, [-1, 1, 9]),
        (Compression.LZ4, [1, 2, 9, 12, 17]),
        (Compression.ZSTD, [-131072, -1, 0, 1, 3, 22]),
    ],
)
def test_every_level_kafka_allows(codec, levels):
    data = TEXT[:20_000]
    for level in levels:
        assert decompress(codec, compress(codec, data, level), LIMIT) == data


def test_levels_are_used():
    fastest, best = (compress(Compression.GZIP, TEXT, level) for level in (1, 9))
    assert (fastest[8], best[8]) == (4, 2)  # RFC 1952: what the compressor says of itself
    assert len(compress(Compression.ZSTD, TEXT, 19)) < len(compress(Compression.ZSTD, TEXT, -100))
    assert len(compress(Compression.LZ4, TEXT, 12)) < len(compress(Compression.LZ4, TEXT))


# --- what Java can read -----------------------------------------------------------------------------------------------


def test_lz4_frames_have_independent_blocks_of_64_kib_and_no_size():
    frame = compress(Compression.LZ4, TEXT)
    information = lz4.frame.get_frame_info(frame)
    assert not information["block_linked"]
    assert information["block_size"] == 64 * 1024
    assert information["content_size"] == 0


def test_snappy_is_written_as_xerial_blocks_of_32_kib():
    compressed = compress(Compression.SNAPPY, bytes(70_000))
    assert compressed.startswith(b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01")
    position, lengths = 16, []
    while position < len(compressed):
        (size,) = struct.unpack_from(">i", compressed, position)
        lengths.append(len(bytes(cramjam.snappy.decompress_raw(compressed[position + 4 : position + 4 + size]))))
        position += 4 + size
    assert lengths == [32768, 32768, 4464]


@pytest.mark.parametrize("size", [0, 127, 128, 16_384, 32_767, 32_768, 32_769, 65_536, 4_194_304])
def test_a_snappy_block_says_how_long_it_gets(size: int) -> None:
    assert decompressed_bound(Compression.SNAPPY, bare_snappy(bytes(size))) == size


# --- what others write ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("codec", "data", "expected"),
    [
        (Compression.GZIP, gzip.compress(b"one") + gzip.compress(b"two"), b"onetwo"),
        (Compression.GZIP, gzip.compress(b"one") + b"\0", b"one"),
        (Compression.GZIP, gzip.compress(b"one") + b"\x1f\x8bgarbage", b"one"),
        (Compression.SNAPPY, bare_snappy(b"one"), b"one"),
        (Compression.SNAPPY, bare_snappy(b""), b""),
        (Compression.SNAPPY, xerial(b"one", b"two"), b"onetwo"),
        (Compression.SNAPPY, xerial(b"one") + xerial(b"two"), b"onetwo"),
        (Compression.SNAPPY, xerial(), b""),
        (Compression.SNAPPY, xerial(b"one") + b"ab", b"one"),
        (Compression.SNAPPY, xerial(b"one").replace(b"\0\0\0\1\0\0\0\1", b"\0\0\0\7\0\0\0\7"), b"one"),
        (Compression.LZ4, lz4_frame(b"one", store_size=True), b"one"),
        (Compression.LZ4, lz4_frame(b"one", content_checksum=True, block_checksum=True), b"one"),
        (Compression.LZ4, lz4_frame(b"one", block_size=lz4.frame.BLOCKSIZE_MAX4MB), b"one"),
        (Compression.LZ4, lz4_frame(b"one") + b"whatever follows", b"one"),
        (Compression.ZSTD, b"", b""),
        (Compression.ZSTD, compress(Compression.ZSTD, b"one") + compress(Compression.ZSTD, b"two"), b"onetwo"),
        (Compression.ZSTD, zstandard.ZstdCompressor(write_checksum=True).compress(b"one"), b"one"),
        (Compression.ZSTD, zstandard.ZstdCompressor(write_content_size=False).compress(TEXT), TEXT),
    ],
)
def test_foreign_framings_decompress(codec, data, expected):
    assert decompress(codec, data, LIMIT) == expected
    assert decompressed_bound(codec, data) >= len(expected)


@pytest.mark.parametrize("codec", CODECS)
def test_garbage_is_an_unknown_server_error_as_in_kafka(codec):
    for garbage in (b"garbage bytes here", b"\0" * 30, b"\xff" * 30):
        with pytest.raises(KafkaError, match=f"Failed to decompress {codec.name.lower()}") as caught:
            decompress(codec, garbage, LIMIT)
        assert caught.value.code == ErrorCode.UNKNOWN_SERVER_ERROR


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("data", [b"short", TEXT], ids=["short", "long"])
def test_truncated_data_is_refused(codec, data):
    compressed = compress(codec, data)
    for cut in {1, 2, 4, 5, len(compressed) // 2, len(compressed) - 1}:
        with pytest.raises(KafkaError):
            decompress(codec, compressed[:-cut], LIMIT)


BROKEN_ZSTD_CHECKSUM = bytearray(zstandard.ZstdCompressor(write_checksum=True).compress(b"one"))
BROKEN_ZSTD_CHECKSUM[-1] ^= 1
BROKEN_LZ4_HEADER_CHECKSUM = bytearray(lz4_frame(b"one", store_size=False))
BROKEN_LZ4_HEADER_CHECKSUM[6] ^= 1


@pytest.mark.parametrize(
    ("codec", "data"),
    [
        (Compression.GZIP, b""),
        (Compression.GZIP, zlib.compress(b"one")),
        (Compression.GZIP, gzip.compress(b"one")[:-8] + bytes(8)),
        (Compression.SNAPPY, b""),
        (Compression.SNAPPY, bare_snappy(b"one") + b"\0"),
        (Compression.SNAPPY, bare_snappy(b"one") + bare_snappy(b"two")),
        (Compression.SNAPPY, xerial(b"one") + b"\0\0\0\0"),
        (Compression.SNAPPY, xerial(b"one") + b"\xff\xff\xff\xff"),
        (Compression.SNAPPY, xerial(b"one") + b"\0\0\0\5"),
        (Compression.SNAPPY, xerial(b"one") + b"\x82SNAPPX\0" + bytes(8)),
        (Compression.LZ4, b""),
        (Compression.LZ4, bytes(BROKEN_LZ4_HEADER_CHECKSUM)),
        (Compression.LZ4, lz4_frame(TEXT, block_linked=True)),
        (Compression.LZ4, lz4.frame.compress(TEXT)),
        (Compression.ZSTD, compress(Compression.ZSTD, b"one") + b"\0"),
        (Compression.ZSTD, compress(Compression.ZSTD, b"one") + b"junk and more junk"),
        (Compression.ZSTD, bytes(BROKEN_ZSTD_CHECKSUM)),
    ],
)
def test_what_the_java_client_could_not_read_is_refused(codec, data):
    with pytest.raises(KafkaError) as caught:
        decompress(codec, data, LIMIT)
    assert caught.value.code == ErrorCode.UNKNOWN_SERVER_ERROR


@pytest.mark.parametrize("codec", CODECS)
@given(data=st.data())
@settings(max_examples=examples(60))
def test_damaged_data_decompresses_or_raises_a_kafka_error(codec, data):
    damaged = bytearray(compress(codec, TEXT[: data.draw(st.sampled_from([10, 500, 5000]))]))
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    with suppress(KafkaError):
        result = decompress(codec, damaged, LIMIT)
        assert len(result) <= decompressed_bound(codec, damaged)


@pytest.mark.parametrize("codec", CODECS)
@given(data=st.binary(max_size=80))
@settings(max_examples=examples(60))
def test_random_bytes_raise_a_kafka_error_at_most(codec, data):
    front = {
        Compression.GZIP: b"\x1f\x8b\x08\x00",
        Compression.SNAPPY: XERIAL_HEADER,
        Compression.LZ4: b"\x04\x22\x4d\x18\x60\x40\x82",
        Compression.ZSTD: b"\x28\xb5\x2f\xfd",
    }[codec]
    for area in (data, front + data):
        assert decompressed_bound(codec, area) >= 0
        with suppress(KafkaError):
            decompress(codec, area, 1 << 16)


# --- limits -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("size", [0, 1, 1000, 300_000, 600_000])
def test_the_limit_is_exact(codec, size):
    compressed = compress(codec, bytes(size))
    assert decompress(codec, compressed, size) == bytes(size)
    if size:
        with pytest.raises(KafkaError) as caught:
            decompress(codec, compressed, size - 1)
        assert caught.value.code == ErrorCode.MESSAGE_TOO_LARGE


def test_the_limit_holds_for_all_streams_together():
    for codec, stream in (
        (Compression.GZIP, gzip.compress(bytes(1000))),
        (Compression.SNAPPY, xerial(bytes(1000))),
        (Compression.ZSTD, compress(Compression.ZSTD, bytes(1000))),
    ):
        assert len(decompress(codec, stream * 3, 3000)) == 3000
        with pytest.raises(KafkaError):
            decompress(codec, stream * 3, 2999)


def test_a_snappy_block_that_lies_about_its_length_allocates_nothing():
    with pytest.raises(KafkaError) as caught:
        decompress(Compression.SNAPPY, b"\xff\xff\xff\xff\x0f" + b"abc", LIMIT)
    assert caught.value.code == ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("codec", CODECS)
@given(data=payloads)
@settings(max_examples=examples(20))
def test_the_bound_is_never_too_low(codec, data):
    compressed = compress(codec, data)
    assert decompressed_bound(codec, compressed) >= len(data)
    if codec == Compression.SNAPPY:
        assert decompressed_bound(codec, compressed) == len(data)


def test_the_bound_of_common_batches_is_close():
    for codec in (Compression.LZ4, Compression.ZSTD):
        assert decompressed_bound(codec, compress(codec, TEXT)) <= len(TEXT) + 128 * 1024


BOMB = """
import resource, sys
from ottla.wire.compression import Compression, compress
from ottla.wire.decompression import decompress
from ottla.wire.errors import KafkaError
bomb = sys.stdin.buffer.read()
codec = Compression(int(sys.argv[1]))
decompress(codec, compress(codec, bytes(300_000)), 300_000)  # what the codec takes anyway
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    decompress(codec, bomb, 1 << 20)
except KafkaError as error:
    print(error.code.name, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.skipif(not hasattr(resource, "RUSAGE_SELF"), reason="no memory figures")
@pytest.mark.parametrize("codec", [Compression.ZSTD, Compression.GZIP, Compression.LZ4])
def test_a_bomb_is_refused_before_it_takes_memory(codec):
    if codec == Compression.ZSTD:
        compressor = zstandard.ZstdCompressor().compressobj()
        bomb = b"".join(compressor.compress(bytes(1 << 20)) for _ in range(200)) + compressor.flush()
        assert len(bomb) < 20_000
    else:
        bomb = compress(codec, bytes(40 << 20), 1)
    done = subprocess.run([sys.executable, "-c", BOMB, str(int(codec))], input=bomb, capture_output=True, check=True)
    name, kilobytes = done.stdout.split()
    assert name == b"MESSAGE_TOO_LARGE"
    assert int(kilobytes) < 8 * 1024


# --- KAFKA-3160 -------------------------------------------------------------------------------------------------------


def test_the_broken_lz4_header_checksum_is_overlooked_on_request_only():
    frame = compress(Compression.LZ4, TEXT, broken_lz4_checksum=True)
    assert frame != compress(Compression.LZ4, TEXT)
    assert decompress(Compression.LZ4, frame, LIMIT, broken_lz4_checksum=True) == TEXT
    with pytest.raises(KafkaError):
        decompress(Compression.LZ4, frame, LIMIT)
    with_size = lz4_frame(TEXT, store_size=True)
    assert decompress(Compression.LZ4, with_size, LIMIT, broken_lz4_checksum=True) == TEXT


def test_the_broken_lz4_header_checksum_is_the_one_java_writes():
    frame = compress(Compression.LZ4, b"whatever", broken_lz4_checksum=True)
    assert frame[:7].hex() == "04224d1860401a"  # Java: Lz4BlockOutputStream with useBrokenFlagDescriptorChecksum


# --- lazy imports -----------------------------------------------------------------------------------------------------


def test_no_codec_is_imported_before_it_is_needed():
    code = "import sys, ottla.wire.records; print([m for m in ('lz4', 'zstandard', 'cramjam', 'isal') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("codec", [codec for codec in Compression if codec])
def test_a_large_result_takes_its_size_in_memory_and_not_twice_that(codec: Compression) -> None:
    size = 32 << 20
    compressed = compress(codec, bytes(size))
    decompress(codec, compress(codec, b"warm"), 100)
    tracemalloc.start()
    try:
        result = decompress(codec, compressed, size)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(result) == size
    assert peak < 1.4 * size


@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.LZ4, Compression.ZSTD])
def test_other_threads_run_while_a_large_result_is_made(codec: Compression, monkeypatch: pytest.MonkeyPatch) -> None:
    rests: list[None] = []
    monkeypatch.setattr("ottla.wire.decompression.let_others_run", lambda: rests.append(None))
    decompress(codec, compress(codec, bytes(32 << 20)), 32 << 20)
    assert len(rests) >= 20


@pytest.mark.parametrize("store_size", [False, True])
@pytest.mark.parametrize("position", range(15))
def test_any_byte_in_an_lz4_header_decompresses_or_is_refused(position: int, store_size: bool) -> None:
    frame = bytearray(lz4_frame(TEXT, store_size=store_size))
    for byte in range(256):
        frame[position] = byte
        with suppress(KafkaError):
            decompress(Compression.LZ4, bytes(frame), LIMIT, broken_lz4_checksum=True)


def test_lz4_takes_its_input_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """The codec copies with every chunk of output what it has not used of its input: 90 MiB took 9 s."""
    given: list[int] = []

    class Noted(lz4.frame.LZ4FrameDecompressor):  # type: ignore[misc]
        def decompress(self, data: bytes | memoryview, max_length: int = -1) -> bytes:
            given.append(len(data))
            return super().decompress(data, max_length)  # type: ignore[no-any-return]

    monkeypatch.setattr(lz4.frame, "LZ4FrameDecompressor", Noted)
    data = random.Random(1).randbytes(3 << 20)
    frame = lz4_frame(data, block_checksum=True)  # which are left to the codec
    for broken_checksum in (False, True):
        assert decompress(Compression.LZ4, frame, len(data), broken_lz4_checksum=broken_checksum) == data
    assert len(given) > 20 and max(given) <= 256 * 1024


def test_a_block_of_snappy_is_not_copied_as_a_whole() -> None:
    """A copy of 90 MiB is one step, in which no other thread runs."""
    size = 32 << 20
    block = bytes(cramjam.snappy.compress_raw(bytes(size)))
    tracemalloc.start()
    try:
        result = decompress(Compression.SNAPPY, block, size)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(result) == size
    assert peak < size


@pytest.mark.parametrize("codec", list(Compression))
@pytest.mark.parametrize("sizes", [[], [5], [10, 3 << 20, 0, 1 << 20, 7], [70_000] * 40])
def test_what_is_compressed_piece_by_piece_is_whole(codec: Compression, sizes: list[int]) -> None:
    dice = random.Random(3)
    parts = [dice.randbytes(size // 2) + bytes(size - size // 2) for size in sizes]
    whole = Compressing(codec)
    for start in range(0, len(parts), 2):
        whole.add(parts[start : start + 2])
    compressed = whole.finish()
    assert bytes(decompress(codec, compressed, sum(sizes))) == b"".join(parts)


def test_thousands_of_tiny_gzip_members_are_read_without_copying_the_rest_for_each() -> None:
    member = gzip.compress(b"x")
    data = member * 30_000
    assert decompress(Compression.GZIP, data, 30_000) == b"x" * 30_000
    tracemalloc.start()
    try:
        decompress(Compression.GZIP, data, 30_000)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < len(data) // 2


@pytest.mark.parametrize(
    ("codec", "data"),
    [
        (Compression.SNAPPY, XERIAL_HEADER + b"\0\0\0\1\0" * 3_000),
        (Compression.LZ4, compress(Compression.LZ4, b"")[:7] + b"\1\0\0\x80x" * 3_000),
        (Compression.ZSTD, compress(Compression.ZSTD, b"")[:6] + b"\0\0\0" * 3_000),
    ],
)
def test_data_in_very_many_blocks_is_beyond_any_bound(codec: Compression, data: bytes) -> None:
    assert decompressed_bound(codec, data) == sys.maxsize


@pytest.mark.parametrize("size", [8_000, 100_000, 1_000_000])
@pytest.mark.parametrize("at_once_bytes", [0, 2 << 20])
def test_a_zstd_window_that_consumers_refuse_is_refused(
    size: int, at_once_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A window of more than 128 MiB is no matter only where the contents fit into a consumer's 16 KiB."""
    monkeypatch.setattr(decompression, "_ZSTD_AT_ONCE_BYTES", at_once_bytes)
    data = random.Random(size).randbytes(size // 2) + bytes(size - size // 2)
    frame = zstandard.ZstdCompressor(write_content_size=False).compress(data)
    assert not frame[4] & 0b11100000  # a byte for the window, and no size
    blocks = frame[6:]

    def framed(exponent: int, mantissa: int) -> bytes:
        return frame[:4] + bytes((0b11000000, exponent << 3 | mantissa)) + struct.pack("<Q", size) + blocks

    assert decompress(Compression.ZSTD, framed(17, 0), 2 * size) == data
    for window in (framed(17, 1), framed(18, 0), framed(21, 7)):
        assert decompressed_bound(Compression.ZSTD, window) >= sys.maxsize
        if size <= 16 * 1024:
            assert decompress(Compression.ZSTD, window, 2 * size) == data
        else:
            with pytest.raises(KafkaError, match="zstd"):
                decompress(Compression.ZSTD, window, 2 * size)


@given(
    data=st.binary(max_size=60)
    | st.lists(st.sampled_from([b"\0", b"\1", b"\xff", b"\x1f\x8b", bytes(4)])).map(b"".join),
    cut=st.integers(0, 80),
)
def test_what_is_not_stored_in_gzip_is_found_in_any_bytes(data, cut):
    member = compress(Compression.GZIP, b"")[:10]
    assert 0 <= unstored_gzip_bytes(data) <= len(data)
    assert 0 <= unstored_gzip_bytes((member + data)[:cut]) <= cut


def test_what_is_not_stored_in_gzip():
    assert unstored_gzip_bytes(compress(Compression.GZIP, NOISE, 0)) == 8
    # The trailer, and whatever comes behind it.
    assert unstored_gzip_bytes(compress(Compression.GZIP, NOISE, 0) + b"more") == 12
    packed = compress(Compression.GZIP, TEXT)
    assert unstored_gzip_bytes(packed) == len(packed) - 10
