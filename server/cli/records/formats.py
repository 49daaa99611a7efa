"""Formats of `ottla consume`: kcat's format strings, its JSON envelope, and both made safe for a terminal.

A format string has these fields; `%%` is a percent sign, and \\n \\r \\t \\xNN are characters:

    %s %S  value and its length (-1: null)    %k %K  key and its length    %h  headers, as a=b,c=d
    %t topic   %p partition   %o offset   %T timestamp in ms   %R  length of the value, as 32 bits

`printing.py` compiles a function for a format that prints whole batches.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from typing import Any, NamedTuple

from ottla.server.cli.client.output import RequestFailed, UsageError, shown_bytes, shown_text
from ottla.wire.records import Record

FIELDS = "sSRkKTtpoh"
NULL = b"NULL"
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "0": "\0"}
_HEXADECIMAL = frozenset("0123456789abcdefABCDEF")
_length = struct.Struct(">i")


class Piece(NamedTuple):
    """Piece of an output format: a literal text, or the letter of a field."""

    text: bytes = b""
    field: str = ""


class Place(NamedTuple):
    """Origin of a record: topic, partition and broker."""

    topic: str
    partition: int
    broker: int
    is_append_time: bool


class Format(NamedTuple):
    """Parsed output format. `is_null_shown`: a null key or value is printed as NULL (option -Z)."""

    pieces: tuple[Piece, ...]
    is_null_shown: bool = False

    @property
    def null(self) -> bytes:
        """Text that is printed for a null key or value."""
        return NULL if self.is_null_shown else b""


def unescaped(text: str, option: str) -> bytes:
    """Decode the escape sequences in a delimiter or a format. `option`: name for errors. Raises UsageError."""
    found = bytearray()
    position = 0
    while position < len(text):
        character = text[position]
        if character != "\\" or position + 1 == len(text):
            found += character.encode("utf-8", "surrogateescape")
            position += 1
            continue
        kind, digits = text[position + 1], text[position + 2 : position + 4]
        if kind == "x":
            digits = "".join(digit for digit in digits if digit in _HEXADECIMAL)
            if not digits:
                raise UsageError(f"{option}: \\x is followed by one or two hexadecimal digits")
            found.append(int(digits, 16))
            position += 2 + len(digits)
        else:
            found += _ESCAPES.get(kind, kind).encode("utf-8", "surrogateescape")
            position += 2
    return bytes(found)


def parse_format(text: str, *, is_null_shown: bool = False) -> Format:
    """Parse an output format. Raises UsageError if a field is unknown."""
    pieces: list[Piece] = []
    literal: list[str] = []

    def end_literal() -> None:
        if literal:
            pieces.append(Piece(text=unescaped("".join(literal), "-f")))
            literal.clear()

    characters = iter(text)
    for character in characters:
        if character != "%":
            literal.append(character)
        elif (field := next(characters, "")) == "%":
            literal.append("%")
        elif field and field in FIELDS:
            end_literal()
            pieces.append(Piece(field=field))
        else:
            raise UsageError(
                f"-f: %{field} is not known; fields are {', '.join('%' + each for each in FIELDS)}, and %%"
            )
    end_literal()
    return Format(tuple(pieces), is_null_shown)


def usual_format(delimiter: bytes, key_delimiter: bytes | None, *, is_null_shown: bool = False) -> Format:
    """Make the default format: value and delimiter. With `key_delimiter`, the key and that delimiter come first."""
    key = () if key_delimiter is None else (Piece(field="k"), Piece(text=key_delimiter))
    pieces = (*key, Piece(field="s"), Piece(text=delimiter))
    return Format(tuple(each for each in pieces if each.text or each.field), is_null_shown)


PrintRecord = Callable[[Record, Place], bytes]

# --- keys and values with schemas

SCHEMAS = "ottla.server.rest.schemas.record_values"
"""Module that decodes and encodes by the schemas of a registry. It lies above the commands, and is imported when it is needed."""


class Decoded(NamedTuple):
    """Key or value that was decoded by its schema."""

    value: Any
    """Value as it stands in JSON."""

    @property
    def text(self) -> bytes:
        return _json(self.value)


Decode = Callable[[bytes], Decoded | None]
"""Decode a key or value; None if it has no schema. Raises ValueError with the reason."""


class Undecodable(RequestFailed):
    """Record whose key or value does not fit its schema, or whose schema is not known."""


def decoded_field(decode: Decode, data: bytes | None, name: str, record: Record, place: Place) -> Decoded | None:
    """Decode the field `name` of a record; None if it has no schema or is null. Raises Undecodable."""
    if data is None:
        return None
    try:
        return decode(bytes(data))
    except ValueError as error:
        where = f"{place.topic}-{place.partition} at offset {record.offset}"
        raise Undecodable(f"the {name} of {where} cannot be decoded: {error}") from None


def decoding(print_record: PrintRecord, decode: Decode) -> PrintRecord:
    """Return a printer that shows keys and values with schemas as JSON, and all others as they are."""

    def text(data: bytes | None, name: str, record: Record, place: Place) -> bytes | None:
        found = decoded_field(decode, data, name, record, place)
        return data if found is None else found.text

    def printed(record: Record, place: Place) -> bytes:
        key, value = text(record.key, "key", record, place), text(record.value, "value", record, place)
        return print_record(record._replace(key=key, value=value), place)

    return printed


def _json(value: Any) -> bytes:
    # Half a surrogate pair has no UTF-8; backslashreplace makes an escape of it that JSON has, too.
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "backslashreplace")


# --- one record


def raw_printer(chosen: Format) -> PrintRecord:
    """Return a function that formats records without escapes, for a pipe or a file."""
    null = chosen.null

    def printed(record: Record, place: Place) -> bytes:
        return b"".join(piece.text or _raw_field(piece.field, record, place, null) for piece in chosen.pieces)

    return printed


def shown_printer(chosen: Format) -> PrintRecord:
    """Return a function that formats records for a terminal: it escapes control characters, and cuts long values."""
    null = chosen.null

    def printed(record: Record, place: Place) -> bytes:
        parts = []
        for piece in chosen.pieces:
            if piece.field in ("s", "k", "h", "t"):
                parts.append(shown_bytes(_raw_field(piece.field, record, place, null)).encode())
            elif piece.field == "R":
                parts.append(shown_text(_raw_field("R", record, place, null).decode("latin-1")).encode())
            else:
                parts.append(piece.text or _raw_field(piece.field, record, place, null))
        return b"".join(parts)

    return printed


def json_printer(delimiter: bytes, decode: Decode | None = None) -> PrintRecord:
    """Return a function that formats each record as one line: kcat's JSON envelope in ASCII, safe for terminals.

    `decode`: decodes keys and values with schemas, which become part of the object; None: all are texts.
    """

    def shown(data: bytes | None, name: str, record: Record, place: Place) -> Any:
        found = None if decode is None else decoded_field(decode, data, name, record, place)
        return _text(data) if found is None else found.value

    def printed(record: Record, place: Place) -> bytes:
        headers = [text for key, value in record.headers for text in (_text(key), _text(value))]
        envelope = {
            "topic": place.topic,
            "partition": place.partition,
            "offset": record.offset,
            "tstype": "logappend" if place.is_append_time else "create",
            "ts": record.timestamp,
            "broker": place.broker,
            **({"headers": headers} if headers else {}),
            "key": shown(record.key, "key", record, place),
            "payload": shown(record.value, "value", record, place),
        }
        return json.dumps(envelope, separators=(",", ":")).encode() + delimiter

    return printed


def _text(data: bytes | None) -> str | None:
    # What is no UTF-8 is kept as a lone surrogate each, as Python's readers of JSON take it back.
    return None if data is None else bytes(data).decode("utf-8", "surrogateescape")


def _raw_field(field: str, record: Record, place: Place, null: bytes) -> bytes:
    value = record.key if field in "kK" else record.value
    if field in ("s", "k"):
        return null if value is None else value
    if field == "h":
        return b",".join(b"%b=%b" % (key, NULL if value is None else value) for key, value in record.headers)
    if field == "t":
        return place.topic.encode()
    if field == "R":
        return _length.pack(-1 if value is None else len(value))
    numbers = {"o": record.offset, "T": record.timestamp, "p": place.partition}
    return b"%d" % numbers.get(field, -1 if value is None else len(value))
