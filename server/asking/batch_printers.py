"""Prints all records of a batch in one go: a function that is written for one format string, and walks the records' bytes.

A record that nobody looks at in full need not become an object: what the format does not name is stepped over. That is four
times as fast as to print record by record, and the reason why a command in Python keeps up with kcat.

The function that `batch_printer` makes takes

    area             bytes; the records of one batch, uncompressed, and found good by `check_records`
    count            of records
    base_offset, base_timestamp      of the batch's header
    append_time      None, or the time that all records have
    topic, partition as bytes
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ottla.server.asking.formats import Format
from ottla.wire.record_walk import read_varint, read_varlong
from ottla.wire.records import wrap_int64

PrintBatch = Callable[[bytes, int, int, int, int | None, bytes, bytes], bytes]

_FUNCTION = """\
def print_batch(area, count, base_offset, base_timestamp, append_time, topic, partition):
    parts = []
    add = parts.append
    position = 0
    for _ in range(count):
        {length}
        end = position + length
        position += 1
        {timestamp}
        {offset}
        {key}
        {value}
        add({record})
        position = end
    return {joined}
"""

# Nearly all of these numbers take one byte or two, and a call for each of them would take longer than all the rest.
_NUMBER = """\
if (low := area[position]) < 128:
            {name} = {one}
            position += 1
        elif (high := area[position + 1]) < 128:
            low = low & 127 | high << 7
            {name} = {one}
            position += 2
        else:
            {name}, position = {read}(area, position)"""
_SKIPPED = """\
while area[position] > 127:
            position += 1
        position += 1"""
_UNSIGNED, _SIGNED = "low >> 1", "(low >> 1) ^ -(low & 1)"
_LENGTH = _NUMBER.format(name="length", one=_UNSIGNED, read="read_varint")
_BYTES = (
    _NUMBER.format(name="size", one=_SIGNED, read="read_varint")
    + """
        {name} = {null} if size < 0 else area[position:position + size]
        {name}_size = size
        if size > 0:
            position += size"""
)
_SKIPPED_BYTES = (
    _NUMBER.format(name="size", one=_SIGNED, read="read_varint")
    + """
        if size > 0:
            position += size"""
)
_TIMESTAMP = (
    _NUMBER.format(name="timestamp", one=_SIGNED, read="read_varlong")
    + """
        timestamp = wrap_int64(base_timestamp + timestamp) if append_time is None else append_time"""
)
_OFFSET = (
    _NUMBER.format(name="offset", one=_SIGNED, read="read_varint")
    + """
        offset = wrap_int64(base_offset + offset)"""
)
_EXPRESSIONS = {
    "s": ("%b", "value"),
    "S": ("%d", "value_size"),
    "R": ("%b", "value_size.to_bytes(4, 'big', signed=True)"),
    "k": ("%b", "key"),
    "K": ("%d", "key_size"),
    "T": ("%d", "timestamp"),
    "o": ("%d", "offset"),
    "t": ("%b", "topic"),
    "p": ("%b", "partition"),
}


def batch_printer(chosen: Format) -> PrintBatch | None:
    """The function for a format; None where the format needs what only whole records have, their headers."""
    fields = [piece.field for piece in chosen.pieces if piece.field]
    if "h" in fields:
        return None
    named = "".join(fields)
    value_is_wanted = any(each in named for each in "sSR")
    record, joined = _record_and_join(chosen)
    source = _FUNCTION.format(
        length=_LENGTH,
        timestamp=_TIMESTAMP if "T" in named else _SKIPPED,
        offset=_OFFSET if "o" in named else _SKIPPED,
        key=_bytes_of("key", chosen) if "k" in named or "K" in named else _SKIPPED_BYTES if value_is_wanted else "pass",
        value=_bytes_of("value", chosen) if value_is_wanted else "pass",
        record=record,
        joined=joined,
    )
    namespace: dict[str, Any] = {"read_varint": read_varint, "read_varlong": read_varlong, "wrap_int64": wrap_int64}
    exec(source, namespace)  # noqa: S102 - of the user's format only literals made by repr() are in it
    function: PrintBatch = namespace["print_batch"]
    return function


def _bytes_of(name: str, chosen: Format) -> str:
    return _BYTES.format(name=name, null=repr(chosen.null))


def _record_and_join(chosen: Format) -> tuple[str, str]:
    """What is made of one record, and how all of these become one text."""
    pieces = chosen.pieces
    # Values and a delimiter are what mostly is asked for, and need no new bytes for each record.
    if len(pieces) == 2 and pieces[0].field in ("s", "k") and not pieces[1].field:
        end = repr(pieces[1].text)
        return _EXPRESSIONS[pieces[0].field][1], f"{end}.join(parts) + {end}"
    template = b"".join(
        _EXPRESSIONS[piece.field][0].encode() if piece.field else piece.text.replace(b"%", b"%%") for piece in pieces
    )
    values = "".join(f"{_EXPRESSIONS[piece.field][1]}, " for piece in pieces if piece.field)
    return f"{template!r} % ({values})", "b''.join(parts)"
