"""Decompression in the plainest way: by each codec's own reader, chunk by chunk into one `bytes`. Tests hold the real one to it."""

import struct
import zlib
from collections.abc import Callable

from cramjam import DecompressionError, snappy
from lz4.frame import LZ4FrameDecompressor
from zstandard import ZstdDecompressor, ZstdError

from ottla.wire.compression import Compression

CHUNK_BYTES = 256 * 1024
XERIAL = b"\x82SNAPPY\x00"
GARBAGE, TOO_LARGE = "garbage", "too large"


class _TooLarge(Exception):
    pass


def decompress_whole(codec: Compression, data: bytes, limit: int) -> bytes | str:
    """The result, or which of the two refusals it is."""
    readers = {
        Compression.GZIP: _gunzip,
        Compression.SNAPPY: _unsnap,
        Compression.LZ4: _unlz4,
        Compression.ZSTD: _unzstd,
    }
    try:
        return readers[codec](data, limit)
    except _TooLarge:
        return TOO_LARGE
    except (zlib.error, DecompressionError, RuntimeError, ZstdError, ValueError):
        return GARBAGE


def _read(read: Callable[[int], bytes], limit: int) -> bytes:
    result = b""
    while chunk := read(CHUNK_BYTES):
        result += chunk
        if len(result) > limit:
            raise _TooLarge
    return result


def _gunzip(data: bytes, limit: int) -> bytes:
    result, rest = _member(data, limit)
    while rest[:2] == b"\x1f\x8b":
        try:
            more, rest = _member(rest, limit - len(result))
        except (zlib.error, ValueError):
            break
        result += more
    return result


def _member(data: bytes, limit: int) -> tuple[bytes, bytes]:
    member = zlib.decompressobj(31)
    pending = data

    def read(size: int) -> bytes:
        nonlocal pending
        chunk = b"" if member.eof else member.decompress(pending, size)
        pending = member.unconsumed_tail
        return chunk

    result = _read(read, limit)
    if not member.eof:
        raise ValueError("cut off")
    return result, member.unused_data


def _unsnap(data: bytes, limit: int) -> bytes:
    blocks, position = [data], 16
    if data[:8] == XERIAL and len(data) >= 16:
        blocks = []
        while position + 4 <= len(data):
            (length,) = struct.unpack_from(">i", data, position)
            if data[position : position + 8] == XERIAL:
                position += 16
                continue
            position += 4
            if not 0 < length <= len(data) - position:
                raise ValueError("block length")
            blocks.append(data[position : position + length])
            position += length
    if sum(_told(block) for block in blocks) > limit:
        raise _TooLarge
    return b"".join(bytes(snappy.decompress_raw(block)) for block in blocks)


def _told(block: bytes) -> int:
    length = 0
    for index, byte in enumerate(block[:5]):
        length |= (byte & 127) << 7 * index
        if byte < 128:
            return length
    return 0


def _unlz4(data: bytes, limit: int) -> bytes:
    if (
        len(data) < 7
        or data[:4] != b"\x04\x22\x4d\x18"
        or data[4] >> 6 != 1
        or data[4] & 3
        or data[5] & 0x8F
        or data[5] < 0x40
    ):
        raise ValueError("header")
    if not data[4] & 0x20 or len(data) <= (14 if data[4] & 8 else 6):
        raise ValueError("dependent blocks, or cut off")
    decompressor, pending = LZ4FrameDecompressor(), data

    def read(size: int) -> bytes:
        nonlocal pending
        if decompressor.eof:
            return b""
        given, pending = pending, b""
        return decompressor.decompress(given, max_length=size)  # type: ignore[no-any-return]

    result = _read(read, limit)
    if not decompressor.eof:
        raise ValueError("cut off")
    return result


def _unzstd(data: bytes, limit: int) -> bytes:
    result = b""
    while data:
        if data[:4] != b"\x28\xb5\x2f\xfd":
            raise ValueError("no frame")
        frame = ZstdDecompressor().decompressobj(write_size=CHUNK_BYTES)
        for start in range(0, len(data), 1024):
            result += frame.decompress(data[start : start + 1024])
            if len(result) > limit:
                raise _TooLarge
            if frame.eof:
                break
        if not frame.eof:
            raise ValueError("cut off")
        data = frame.unused_data + data[start + 1024 :]
    return result
