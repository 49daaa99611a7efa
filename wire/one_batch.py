"""The produce request that nearly every client sends, and its answer, without objects for their parts.

One topic, one partition, records, no transactional id, no tagged fields: such a request of v9 to v13 is

    transactional id (null)  acks  timeout  |  one topic  its name, or its id since v13  one partition  its index  |
    size of the records  records  |  three empty sections of tagged fields

The middle part is the same in the answer as in the request. The codecs generated from `messages/produce.py` read and write
the same bytes, and handle requests of any other shape. Tests compare these fast codecs with the generated ones.

`_one_batch.h` has the same decoder in C (`wire/native.py` says when it is used). Change both or neither.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from ottla.wire.native import native

FIRST_VERSION, LAST_VERSION = 9, 13
TOPIC_IDS_SINCE = 13

_ONE = 2  # a compact array says one more than it holds
_NAME_BYTES_MAX = 126  # what a length of one byte can say
_TOPIC_AT = 8
"""Position of a topic that is alone: behind the transactional id, acks, the timeout and the number of topics."""
FRONT_AT = _TOPIC_AT - 1
"""Position in a head from which on the answer repeats it."""
_ID_BYTES = 16

_front = struct.Struct(">BhiBB").unpack_from  # transactional id, acks, timeout, topics, the first byte of the topic
_partition = struct.Struct(">Bi").unpack_from  # partitions, index
_PARTITION_BYTES = 5
_NO_TAGS = bytes(3)  # of the partition, of the topic, of the request
# Error code, base offset, log append time, log start offset, no record errors; then eight zeros: no message, no tagged fields of
# the partition and of the topic, no throttle time, no tagged fields of the response.
_accepted = struct.Struct(">hqqqB8x").pack
_NO_ERROR, _NO_RECORD_ERRORS = 0, 1

OneBatch = tuple[int, bytes, int, bytes, memoryview]
"""An ordinary request: acks, the bytes of the topic's name or id, the partition, the head, which is all before the size of the
records, and the records. A plain tuple, because every request makes one."""


def decode_one_batch_python(buffer: Any, position: int, end: int, has_id: bool) -> OneBatch | None:
    """Decode a Produce request with a single batch from `buffer[position:end]`; None if it has another shape."""
    try:
        transactional_id, acks, _, topics, size = _front(buffer, position)
        topic_end = position + _TOPIC_AT + (_ID_BYTES if has_id else size)
        partitions, index = _partition(buffer, topic_end)
    except struct.error:
        return None
    records = _last_records(buffer, topic_end + _PARTITION_BYTES, end)
    if transactional_id or topics != _ONE or partitions != _ONE or records is None:
        return None
    topic_at = position + _TOPIC_AT
    if not has_id:
        if not 1 <= size <= _NAME_BYTES_MAX + 1:
            return None
        topic_at += 1
    topic, head = bytes(buffer[topic_at:topic_end]), bytes(buffer[position : topic_end + _PARTITION_BYTES])
    return acks, topic, index, head, records


decode_one_batch: Callable[[Any, int, int, bool], OneBatch | None] = native("decode_one_batch", decode_one_batch_python)


def _last_records(buffer: Any, position: int, end: int) -> memoryview | None:
    """Return the records whose size is stored at `position`; None unless they are the last before `end`."""
    try:
        size = buffer[position]
        position += 1
        # A batch of more than a few records has a size of two or three bytes. It is no matter whether there are more than it needs.
        if size > 127:
            second = buffer[position]
            size += (second << 7) - 128
            position += 1
            if second > 127:
                third = buffer[position]
                if third > 127:
                    return None
                size += (third << 14) - (1 << 14)
                position += 1
    except IndexError:
        return None
    records_end = position + size - 1
    # The last three bytes prove that all that was read is before the end: no position ever went back.
    if size < 1 or buffer[records_end:end] != _NO_TAGS:
        return None
    return memoryview(buffer)[position:records_end]


def encode_one_answer(front: bytes, base_offset: int, log_append_time_ms: int, log_start_offset: int) -> list[bytes]:
    """Return the response for an appended batch in pieces. `front` is the request's part before the records."""
    return [front, _accepted(_NO_ERROR, base_offset, log_append_time_ms, log_start_offset, _NO_RECORD_ERRORS)]
