"""The sizes of single records in batches that are in a log already (max.decompressed.message.bytes)."""

from ottla.wire.record_walk import Buffer, read_varint
from ottla.wire.records import MAGIC_V2, decode_records, invalid, iter_records, read_header, records_area

_MESSAGE_FRONTS = (14, 22)  # bytes of a message of magic 0 and 1 behind its size, without key and value


def check_sizes_until(batch: Buffer, offset: int, limit: int) -> None:
    """Raise INVALID_RECORD if a record up to this offset is longer than `limit`, in a good batch that is compressed."""
    header = read_header(batch)
    if not header.is_compressed:
        return
    if header.magic != MAGIC_V2:
        # Kafka looks at all messages of a wrapper before it looks at one.
        front = _MESSAGE_FRONTS[header.magic]
        for record in decode_records(batch):
            _check_size(front + len(record.key or b"") + len(record.value or b""), limit)
        return
    area, position = records_area(batch, header), 0
    for record in iter_records(area, header, headers_max=0):
        length, position = read_varint(area, position)
        _check_size(length, limit)
        if record.offset >= offset:
            return
        position += length


def _check_size(length: int, limit: int) -> None:
    if length > limit:
        raise invalid(f"A record of {length} bytes exceeds the maximum of {limit}")
