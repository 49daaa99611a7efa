"""Messages and message sets of magic 0 and 1, of which one thing can be wrong."""

import struct
import zlib

from ottla.wire.compression import Compression, compress

TIME = 1_000_000


def message(
    magic: int = 1,
    *,
    offset: int = 0,
    attributes: int = 0,
    timestamp: int = TIME,
    key: bytes | None = b"key",
    value: bytes | None = b"value",
    key_length: int | None = None,
    value_length: int | None = None,
    size: int | None = None,
    crc: int | None = None,
    rest: bytes = b"",
) -> bytes:
    """One message; sizes and the checksum are right unless given."""
    body = struct.pack(">bb", magic, attributes) + (b"" if magic == 0 else struct.pack(">q", timestamp))
    body += _bytes(key, key_length) + _bytes(value, value_length) + rest
    checksum = zlib.crc32(body) if crc is None else crc
    return struct.pack(">qiI", offset, len(body) + 4 if size is None else size, checksum) + body


def _bytes(data: bytes | None, length: int | None) -> bytes:
    natural = -1 if data is None else len(data)
    return struct.pack(">i", natural if length is None else length) + (data or b"")


def three(magic: int, first: int = 0, **fields: int) -> bytes:
    """Three messages with offsets from `first` on."""
    messages = []
    for index in range(3):
        given = {"offset": first + index, "timestamp": TIME + index} | fields
        messages.append(message(magic, value=b"value %d " % index * 10, **given))
    return b"".join(messages)


def wrapped(codec: int, inner: bytes, magic: int = 1, *, attributes: int | None = None, **fields: int) -> bytes:
    """A message whose value is a compressed set; its offset should be that of its last message."""
    value = compress(Compression(codec), inner, broken_lz4_checksum=magic == 0)
    given = {"offset": 2, "timestamp": TIME + 2} | fields
    return message(magic, key=None, value=value, attributes=codec if attributes is None else attributes, **given)
