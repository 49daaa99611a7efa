"""Batches whose codec has stored the records, walked in C: never another answer than decompressing them and walking afterwards."""

import operator
import random
import zlib

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ottla.wire.compressed_walk import walk_in_pieces, walk_plain, walk_stored
from ottla.wire.compression import XERIAL_HEADER, Compression, compress, lz4_header_checksum
from ottla.wire.decompression import decompress, stored_gzip_is_intact
from ottla.wire.errors import KafkaError
from ottla.wire.record_walk import walk_records
from ottla.wire.records import encode_record

native = pytest.importorskip("ottla.wire._native", reason="installed without a compiler")
if not hasattr(native, "walk_stored_records"):
    pytest.skip("built before it had the walk", allow_module_level=True)

LIMIT = 1 << 22
NOISE = random.Random(11).randbytes(200_000)


def lz4(area: bytes, block_size: int = 4, **options: bool) -> bytes:
    from lz4 import frame

    return bytes(frame.compress(area, block_size=block_size, block_linked=False, **({"store_size": False} | options)))


def bare_snappy(area: bytes) -> bytes:
    from cramjam import snappy

    return bytes(snappy.compress_raw(area))


def two_zstd_frames(area: bytes) -> bytes:
    return compress(Compression.ZSTD, area[:9]) + compress(Compression.ZSTD, area[9:])


def streamed_zstd(area: bytes) -> bytes:
    from zstandard import ZstdCompressor

    stream = ZstdCompressor().compressobj()
    return stream.compress(area) + stream.flush()


FORMS = {
    "snappy": (Compression.SNAPPY, lambda area: compress(Compression.SNAPPY, area)),
    "bare snappy": (Compression.SNAPPY, bare_snappy),
    "two snappy streams": (Compression.SNAPPY, lambda area: 2 * compress(Compression.SNAPPY, area[: len(area) // 2])),
    "lz4": (Compression.LZ4, lambda area: compress(Compression.LZ4, area)),
    "lz4 of its size": (Compression.LZ4, lambda area: lz4(area, store_size=True)),
    "lz4 in large blocks": (Compression.LZ4, lambda area: lz4(area, 6)),
    "lz4 with checksums": (Compression.LZ4, lambda area: lz4(area, content_checksum=True, block_checksum=True)),
    "zstd": (Compression.ZSTD, lambda area: compress(Compression.ZSTD, area)),
    "streamed zstd": (Compression.ZSTD, streamed_zstd),
    "two zstd frames": (Compression.ZSTD, two_zstd_frames),
}


def afterwards(codec: Compression, data: bytes, count: int, limit: int = LIMIT) -> object:
    try:
        area = bytes(decompress(codec, data, limit))
        return walk_records(area, 0, len(area), count)
    except (ValueError, KafkaError):
        return None


def value(size: int, period: int) -> bytes:
    """Noise, or noise of a few bytes over and over: copies from every distance."""
    return NOISE[:size] if not period else (NOISE[:period] * (size // period + 1))[:size]


sizes = st.sampled_from([0, 1, 5, 60, 63, 64, 127, 128, 1000, 8191, 8192, 40_000, 70_000])
records = st.lists(
    st.builds(
        encode_record,
        st.integers(-(2**31), 2**31 - 1) | st.integers(0, 3),
        st.integers(-(2**63), 2**63 - 1) | st.integers(-100, 100),
        st.none() | st.binary(max_size=5),
        st.none() | st.builds(value, sizes, st.integers(0, 20) | st.just(0)),
    ),
    min_size=1,
    max_size=8,
)


@pytest.mark.parametrize("form", FORMS)
@given(parts=records, more=st.sampled_from([0, 0, 1, -1]))
@settings(max_examples=20, deadline=None)
def test_good_records_in_every_form(form: str, parts: list[bytes], more: int) -> None:
    codec, compressed = FORMS[form]
    data, count = compressed(b"".join(parts)), len(parts) + more
    found = walk_plain(codec, data, LIMIT, count)
    if found is not None:
        assert found == afterwards(codec, data, count)


def text(size: int) -> bytes:
    """Of words: short literals and short copies from everywhere."""
    dice = random.Random(size)
    return b" ".join(dice.choices([NOISE[at : at + 3 + at % 7] for at in range(300)], k=size // 3))[:size]


lz4_contents = st.lists(
    st.one_of(
        st.builds(value, sizes, st.integers(0, 20)),
        st.builds(text, sizes),
        st.binary(max_size=40),
        st.builds(operator.mul, st.binary(min_size=1, max_size=30), st.integers(0, 3000)),
    ),
    min_size=1,
    max_size=6,
)


@given(
    values=lz4_contents,
    block_size=st.sampled_from([4, 5, 6, 7]),
    level=st.sampled_from([0, 3, 9, -5]),
    store_size=st.booleans(),
    limit=st.sampled_from([LIMIT, 1000]),
)
@settings(max_examples=60, deadline=None)
def test_what_lz4_has_compressed_is_decompressed_in_c(
    values: list[bytes], block_size: int, level: int, store_size: bool, limit: int
) -> None:
    area = b"".join(encode_record(index, 0, None, each) for index, each in enumerate(values))
    data = lz4(area, block_size, store_size=store_size, compression_level=level)
    memory = bytearray(8 << 20)
    _, found = native.walk_stored_records(Compression.LZ4, data, limit, len(values), memoryview(memory))
    assert found == (walk_records(area, 0, len(area), len(values)) if len(area) <= limit else None)


def extended(length: int) -> bytes:
    """What of a length does not fit into four bits of a token."""
    return b"" if length < 15 else b"\xff" * ((length - 15) // 255) + bytes([(length - 15) % 255])


def lz4_block(sequences: list[tuple[bytes, int, int]], last: bytes) -> bytes:
    """Of sequences: literals, distance and length of a match."""
    parts = []
    for literals, distance, size in sequences:
        parts.append(bytes([min(15, len(literals)) << 4 | min(15, size - 4)]) + extended(len(literals)) + literals)
        parts.append(distance.to_bytes(2, "little") + extended(size - 4))
    return b"".join(parts) + bytes([min(15, len(last)) << 4]) + extended(len(last)) + last


def decoded_without_rules(sequences: list[tuple[bytes, int, int]], last: bytes) -> bytes:
    """What the block would be, were there no rules for its end; and zeros from before its beginning."""
    out = bytearray()
    for literals, distance, size in sequences:
        out += literals
        for _ in range(size):
            out.append(out[-distance] if 0 < distance <= len(out) else 0)
    return bytes(out + last)


literals = st.binary(max_size=12) | st.builds(value, st.sampled_from([13, 14, 15, 16, 40, 270, 600]), st.just(0))
matches = st.integers(4, 24) | st.sampled_from([273, 274, 500, 3000])
distances = st.integers(1, 20) | st.integers(0, 300)


def keeps_the_rules_of_the_end(sequences: list[tuple[bytes, int, int]], last: bytes) -> bool:
    """The last 5 bytes of a block are literals, and its last match begins 12 bytes before the end or earlier."""
    return not sequences or (len(last) >= 5 and sequences[-1][2] + len(last) >= 12)


ONLY_LIBLZ4_TAKES_IT = [(b"\0\0\0", 1, 4), *[(b"", 1, 4)] * 6, (b"\r" + bytes(12), 8, 16)], bytes(3)
"""Only the last 3 bytes are literals. liblz4's shortcut for short sequences does not look at that; its decoder in Java refuses it."""


@given(
    sequences=st.lists(st.tuples(literals, distances, matches), max_size=8),
    last=st.binary(max_size=20) | st.builds(value, st.integers(60, 120), st.just(0)),
    fills=st.booleans(),
)
@example(sequences=ONLY_LIBLZ4_TAKES_IT[0], last=ONLY_LIBLZ4_TAKES_IT[1], fills=True)
@settings(max_examples=250, deadline=None)
def test_any_block_of_lz4(sequences: list[tuple[bytes, int, int]], last: bytes, fills: bool) -> None:
    """A block is taken only if liblz4 takes it, and becomes the same bytes; every block that keeps LZ4's rules is taken."""
    if fills:  # up to the end of the largest block
        before = 65536 - len(decoded_without_rules(sequences, last))
        sequences = [(bytes([7]) * 5, 1, before - 5), *sequences] if before > 9 else sequences
    area = decoded_without_rules(sequences, last)
    # One record, whose value are the bytes of the block: its front and its end are stored.
    record = encode_record(0, 0, None, area)
    front, block = record[: -1 - len(area)], lz4_block(sequences, last)
    parts = [(len(front) | 1 << 31, front), (len(block), block), (1 | 1 << 31, record[-1:])]
    head = b"\x04\x22\x4d\x18\x60\x40" + bytes([lz4_header_checksum(b"\x60\x40")])
    frame = head + b"".join(size.to_bytes(4, "little") + data for size, data in parts) + bytes(4)
    memory = bytearray(b"\xa5" * (1 << 18))
    written, found = native.walk_stored_records(Compression.LZ4, frame, LIMIT, 1, memoryview(memory))
    assert not memory[written:].strip(b"\xa5")
    try:
        is_good = len(block) <= 65536 and bytes(decompress(Compression.LZ4, frame, LIMIT)) == record
    except KafkaError:
        is_good = False
    begins = [len(decoded_without_rules(sequences[:index], each[0])) for index, each in enumerate(sequences)]
    reaches = all(0 < each[1] <= begin for each, begin in zip(sequences, begins, strict=True))
    if found is not None:
        assert is_good and reaches
        assert memory[: len(record)] == record
    elif is_good and reaches:  # it is walked over piece by piece, and its producer sees no difference
        assert not keeps_the_rules_of_the_end(sequences, last)
        assert walk_in_pieces(Compression.LZ4, frame, LIMIT, 1) == afterwards(Compression.LZ4, frame, 1)


def test_what_zstd_cannot_compress_is_plain() -> None:
    dice = random.Random(12)
    area = b"".join(encode_record(index, 0, None, dice.randbytes(10_000)) for index in range(90))
    for compressed in (compress(Compression.ZSTD, area), streamed_zstd(area)):
        assert walk_plain(Compression.ZSTD, compressed, LIMIT, 90) == (0, 0, 0, True, True)
        assert walk_plain(Compression.ZSTD, compressed, len(area), 90) is not None
        assert walk_plain(Compression.ZSTD, compressed, len(area) - 1, 90) is None
        assert walk_plain(Compression.ZSTD, compressed + b"\0", LIMIT, 90) is None


@pytest.mark.parametrize("form", FORMS)
@given(data=st.data())
@settings(max_examples=25, deadline=None)
def test_damaged_bytes(form: str, data: st.DataObject) -> None:
    codec, compress_ = FORMS[form]
    parts = data.draw(records)
    compressed = bytearray(compress_(b"".join(parts)))
    for _ in range(data.draw(st.integers(1, 3))):
        position = data.draw(st.integers(0, min(40, len(compressed) - 1)) | st.integers(0, len(compressed) - 1))
        compressed[position] = data.draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]) | st.integers(0, 255))
    if data.draw(st.booleans()):
        del compressed[data.draw(st.integers(0, len(compressed))) :]
    assert_nothing_else_is_said(codec, bytes(compressed), len(parts))


def assert_nothing_else_is_said(codec: Compression, data: bytes, count: int) -> None:
    memory = bytearray(b"\xa5" * (1 << 18))
    written, found = native.walk_stored_records(codec, data, 1 << 20, count, memoryview(memory))
    # Nothing is written where it does not say so.
    assert not memory[written:].strip(b"\xa5")
    if found is not None:
        assert found == afterwards(codec, data, count)


def lz4_frame(blocks: list[bytes]) -> bytes:
    """Of stored blocks of at most 4 MiB."""
    descriptor = b"\x60\x70"
    head = b"\x04\x22\x4d\x18" + descriptor + bytes([lz4_header_checksum(descriptor)])
    return head + b"".join((len(block) | 1 << 31).to_bytes(4, "little") + block for block in blocks if block) + bytes(4)


def zstd_frame(blocks: list[bytes]) -> bytes:
    """Of stored blocks of at most 128 KiB."""
    parts = [block[start : start + 100_000] for block in blocks for start in range(0, len(block), 100_000)] or [b""]
    heads = [(len(part) << 3 | (index == len(parts) - 1)).to_bytes(3, "little") for index, part in enumerate(parts)]
    return b"\x28\xb5\x2f\xfd\x00\x58" + b"".join(head + part for head, part in zip(heads, parts, strict=True))


def snappy_stream(blocks: list[bytes]) -> bytes:
    """Of blocks that are one literal each."""
    return XERIAL_HEADER + b"".join(framed(snappy_literal(block)) for block in blocks if block)


def framed(block: bytes) -> bytes:
    return len(block).to_bytes(4, "big") + block


def snappy_literal(data: bytes, more: int = 0) -> bytes:
    """`more`: bytes by which the length in the tag takes more room than it needs."""
    length, size = b"", len(data)
    while size > 127:
        length, size = length + bytes([size & 127 | 128]), size >> 7
    less_one, count = len(data) - 1, ((len(data) - 1).bit_length() + 7) // 8 + more
    is_short = less_one < 60 and not more
    tag = bytes([less_one << 2]) if is_short else bytes([59 + count << 2]) + less_one.to_bytes(count, "little")
    return length + bytes([size]) + tag + data


def gzip_member(blocks: list[bytes]) -> bytes:
    """Of stored blocks of at most 64 KiB."""
    parts = [block[start : start + 65_535] for block in blocks for start in range(0, len(block), 65_535)] or [b""]
    heads = [
        bytes([index == len(parts) - 1]) + len(part).to_bytes(2, "little") + (len(part) ^ 0xFFFF).to_bytes(2, "little")
        for index, part in enumerate(parts)
    ]
    area = b"".join(blocks)
    trailer = zlib.crc32(area).to_bytes(4, "little") + len(area).to_bytes(4, "little")
    return b"\x1f\x8b\x08" + bytes(7) + b"".join(map(operator.add, heads, parts)) + trailer


STORED = {
    Compression.GZIP: gzip_member,
    Compression.SNAPPY: snappy_stream,
    Compression.LZ4: lz4_frame,
    Compression.ZSTD: zstd_frame,
}


@given(
    parts=records,
    cuts=st.lists(st.integers(0, 200_000), max_size=8),
    codec=st.sampled_from(list(STORED)),
    more=st.sampled_from([0, 0, 1, -1]),
    room=st.sampled_from([0, 1, 100, 1 << 18]),
)
@settings(max_examples=100, deadline=None)
def test_stored_blocks_may_end_anywhere(
    parts: list[bytes], cuts: list[int], codec: Compression, more: int, room: int
) -> None:
    area, count = b"".join(parts), len(parts) + more
    ends = sorted({each % (len(area) + 1) for each in cuts} | {len(area)})
    frame = STORED[codec]
    data = frame([area[start:end] for start, end in zip([0, *ends], ends, strict=False)])
    memory = memoryview(bytearray(b"\xa5" * room))
    written, found = native.walk_stored_records(codec, data, LIMIT, count, memory)
    assert written <= room
    assert codec != Compression.GZIP or stored_gzip_is_intact(memoryview(data))
    assert found in (None, afterwards(codec, data, count))
    if room == 1 << 18 and max(map(len, parts)) < 60_000:
        assert found == afterwards(codec, data, count)


@pytest.mark.parametrize("codec", STORED)
def test_no_more_than_the_limit(codec: Compression) -> None:
    area = encode_record(0, 0, None, NOISE[:900]) * 300
    data = STORED[codec]([area[:50_000], area[50_000:120_000], area[120_000:200_000], area[200_000:]])
    assert walk_plain(codec, data, len(area), 300) is not None
    assert walk_plain(codec, data, len(area) - 1, 300) is None


def test_what_snappy_cannot_compress_is_plain() -> None:
    dice = random.Random(13)
    parts = [encode_record(index, 0, None, dice.randbytes(10_000)) for index in range(90)]
    for compressed, count in ((compress(Compression.SNAPPY, b"".join(parts)), 90), (bare_snappy(parts[0]), 1)):
        assert walk_plain(Compression.SNAPPY, compressed, LIMIT, count) == (0, 0, 0, True, True)
        assert walk_plain(Compression.SNAPPY, compressed, LIMIT, count + 1) is None
        assert walk_plain(Compression.SNAPPY, compressed + b"\0", LIMIT, count) is None
        assert walk_plain(Compression.SNAPPY, compressed[:-1], LIMIT, count) is None


@given(
    size=st.integers(1, 70) | st.sampled_from([256, 257, 16_384, 65_536, 65_537]),
    more=st.integers(0, 2),
    is_framed=st.booleans(),
    data=st.data(),
)
@settings(max_examples=60, deadline=None)
def test_lengths_of_literals_are_those_of_the_library(
    size: int, more: int, is_framed: bool, data: st.DataObject
) -> None:
    """As snappy writes them, and longer than they need be, and with a wrong byte in them."""
    block = bytearray(snappy_literal(encode_record(0, 0, None, NOISE[:size]), min(more, 1) if size > 60_000 else more))
    if data.draw(st.booleans()):
        block[data.draw(st.integers(0, 8))] ^= 1 << data.draw(st.integers(0, 7))
    stream = XERIAL_HEADER + framed(bytes(block)) if is_framed else bytes(block)
    found = walk_plain(Compression.SNAPPY, stream, LIMIT, 1)
    assert found in (None, afterwards(Compression.SNAPPY, stream, 1))
    if bytes(block) == snappy_literal(encode_record(0, 0, None, NOISE[:size])):
        assert found is not None


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("length_bytes", [1, 2, 3, 4])
def test_a_short_literal_with_a_long_length_is_read_if_the_library_reads_it(size: int, length_bytes: int) -> None:
    """It wants four bytes behind the tag, however few of them hold the length."""
    record = encode_record(0, 0, None, NOISE[:53])
    assert len(record) == 60  # whole blocks only
    head = bytes([size, 59 + length_bytes << 2]) + (size - 1).to_bytes(length_bytes, "little")
    stream = XERIAL_HEADER + b"".join(framed(head + record[at : at + size]) for at in range(0, len(record), size))
    found = walk_plain(Compression.SNAPPY, stream, LIMIT, 1)
    assert found == afterwards(Compression.SNAPPY, stream, 1)
    assert (found is not None) == (length_bytes + size >= 4)


def test_very_many_empty_blocks_are_left_to_the_other_way() -> None:
    """They count for nothing, and whoever sends them could hold the event loop with them."""
    plain = zstd_frame([encode_record(0, 0, None, b"v")])
    assert walk_plain(Compression.ZSTD, plain, LIMIT, 1) is not None
    for empty in (1000, 10_000):
        data = plain[:6] + bytes(3) * empty + plain[6:]
        assert (walk_plain(Compression.ZSTD, data, 20_000, 1) is not None) == (empty == 1000)


# --- gzip, which libdeflate inflates ----------------------------------------------------------------------------------


def member(area: bytes, level: int = 6) -> bytes:
    return compress(Compression.GZIP, area, level)


def walked_gzip(data: bytes, count: int, limit: int = LIMIT) -> object:
    pytest.importorskip("deflate")
    return walk_plain(Compression.GZIP, data, limit, count)


@given(parts=records, level=st.integers(0, 9), more=st.sampled_from([0, 0, 1, -1]))
@settings(max_examples=30, deadline=None)
def test_good_gzip_members(parts: list[bytes], level: int, more: int) -> None:
    data, count = member(b"".join(parts), level), len(parts) + more
    assert walked_gzip(data, count) in (None, afterwards(Compression.GZIP, data, count))


def test_records_in_gzip_are_walked() -> None:
    area = encode_record(0, 0, None, NOISE[:5000]) + encode_record(1, 7, b"k", bytes(9000))
    for level in (0, 6):
        assert walked_gzip(member(area, level), 2) == (0, 7, 1, True, True)
    assert walked_gzip(member(area), 1) is None
    assert walked_gzip(member(area), 2, len(area)) is not None
    assert walked_gzip(member(area), 2, len(area) - 1) is None


def test_more_gzip_members_are_left_to_the_other_way() -> None:
    """libdeflate ends with the first one: the end of the last says what the first may say, too."""
    record = encode_record(0, 0, None, b"v")
    assert walked_gzip(member(record), 1) == (0, 0, 0, True, True)
    assert walked_gzip(member(record) * 2, 1) is None
    assert walked_gzip(member(record) + b"\x1f\x8b\x08", 1) is None
    assert walked_gzip(member(record) + b"\x1f\x8b", 1) is None
    assert walked_gzip(member(record)[:-1], 1) is None
    assert walked_gzip(b"", 1) is walked_gzip(b"\x1f", 1) is None


@given(data=st.binary(max_size=40), start=st.integers(-1, 45), cut=st.integers(0, 40))
def test_the_look_for_a_header_is_a_search(data: bytes, start: int, cut: int) -> None:
    data = data[:cut] + b"\x1f\x8b\x08" + data[cut:] if start % 2 else data
    assert native.has_gzip_header(data, start) == (start >= 0 and data.find(b"\x1f\x8b\x08", start) >= 0)


@given(data=st.data())
@settings(max_examples=50, deadline=None)
def test_damaged_gzip(data: st.DataObject) -> None:
    parts = data.draw(records)
    compressed = bytearray(member(b"".join(parts)))
    for _ in range(data.draw(st.integers(1, 3))):
        compressed[data.draw(st.integers(0, len(compressed) - 1))] = data.draw(st.integers(0, 255))
    damaged = bytes(compressed)
    assert walked_gzip(damaged, len(parts)) in (None, afterwards(Compression.GZIP, damaged, len(parts)))


@given(data=st.data(), parts=records)
@settings(max_examples=80, deadline=None)
def test_damaged_gzip_that_is_only_stored(data: st.DataObject, parts: list[bytes]) -> None:
    """Any byte may be wrong: of the header, the sizes, the records, the checksum."""
    damaged, cut = bytearray(gzip_member(parts)), data.draw(st.sampled_from([0, 0, 0, 1, 8]))
    near_an_end = st.integers(0, min(40, len(damaged) - 1)) | st.integers(max(0, len(damaged) - 10), len(damaged) - 1)
    for _ in range(data.draw(st.integers(0, 2))):
        damaged[data.draw(near_an_end | st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    sent = bytes(damaged[: len(damaged) - cut])
    found = walk_stored(Compression.GZIP, sent, LIMIT, len(parts))
    assert found in (None, afterwards(Compression.GZIP, sent, len(parts)))


def test_a_wrong_checksum_of_stored_gzip_is_no_verdict() -> None:
    area = encode_record(0, 0, None, NOISE[:100_000])
    sent = bytearray(gzip_member([area]))
    assert walk_stored(Compression.GZIP, sent, LIMIT, 1) == (0, 0, 0, True, True)
    assert walk_stored(Compression.GZIP, sent + b"\0", LIMIT, 1) is None
    sent[5_000] ^= 1
    assert walk_stored(Compression.GZIP, sent, LIMIT, 1) is walk_plain(Compression.GZIP, sent, LIMIT, 1) is None


def test_very_many_stored_blocks_of_gzip_are_left_to_the_other_way() -> None:
    area = encode_record(0, 0, None, NOISE[:900])
    for blocks in (500, 501):
        sent = gzip_member([area[at : at + 1] for at in range(blocks - 1)] + [area[blocks - 1 :]])
        assert (walk_stored(Compression.GZIP, sent, LIMIT, 1) is not None) == (blocks == 500)
