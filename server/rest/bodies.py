"""Bodies of requests: JSON of strangers, taken apart within limits and in slices of time.

A long body, such as many records, is cut into its values by a walk over strings, brackets and commas, and each value is
parsed by itself. So neither a body of many megabytes nor one of a million empty lists holds up the event loop. Python's
parser calls itself for each nested list, so the walk also bounds the depth.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Generator
from typing import Any, NamedTuple, NoReturn

from ottla.server.rest.errors import RestError, bad_request, unprocessable
from ottla.wire.foreign_json import DEPTH_MAX, parse_json

SHORT_BYTES = 32 * 1024
"""A body that is parsed at once, whatever is in it."""

TOKENS_MAX = 1_000_000
"""Strings, brackets and commas of a body."""

VALUE_TOKENS_MAX = 100_000
"""Of one value, which is parsed at once."""

STEP_TOKENS = 2_000
# A string, or a character that structures. A string without an end is one to the end of the text: a search would
# begin again at each of its quotation marks.
_TOKEN = re.compile(r'"(?:[^"\\]++|\\.)*+"?|[][{},]', re.DOTALL)
_RECORDS = '"records"'


def loads(text: str | bytes) -> Any:
    """Parse JSON whose size and depth were checked before. Raises RestError."""
    try:
        return json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise malformed(error) from None


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def malformed(error: Exception) -> RestError:
    """Make the error for a body that is not JSON."""
    return bad_request(f"The body is no JSON that can be read: {error}")


def parse_object(body: bytes) -> dict[str, Any]:
    """Parse a short body that must be a JSON object; an empty body is an empty object. Raises RestError."""
    if not body:
        return {}
    try:
        found = parse_json(body, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise malformed(error) from None
    if not isinstance(found, dict):
        raise bad_request("The body is no JSON object")
    return found


def member(found: dict[str, Any], name: str, kind: type, *, is_needed: bool = False) -> Any:
    """Return member `name` of `found`; None if absent or null. Raises RestError for another type.

    `is_needed`: raise RestError instead of returning None.
    """
    value = found.get(name)
    if value is None:
        if is_needed:
            raise unprocessable(f"{name} must not be null")
        return None
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise bad_request(f"{name}: {str(value)[:100]!r} is no {kind.__name__}")
    return value


def number(found: dict[str, Any], name: str, bits: int, *, is_needed: bool = False, least: int = 0) -> Any:
    """Return integer `name`; None if absent. Raises RestError if it has more than `bits` bits or is below `least`."""
    value = member(found, name, int, is_needed=is_needed)
    if value is not None and not -(1 << (bits - 1)) <= value < 1 << (bits - 1):
        raise bad_request(f"{name}: {str(value)[:40]} has more than {bits} bits")
    if value is not None and value < least:
        raise unprocessable(f"{name} must be greater than or equal to {least}")
    return value


def refuse_unknown(
    found: dict[str, Any], names: frozenset[str], error: Callable[[str], RestError] = unprocessable
) -> None:
    """Raise RestError if `found` has a member whose name is not in `names`, as Confluent's proxy does."""
    if unknown := found.keys() - names:
        raise error(f"Unrecognized field: {min(unknown)[:100]}")


class RecordsBody(NamedTuple):
    """Body of a produce request: the records and the other members."""

    records: list[Any]
    others: dict[str, Any]


def parse_records(body: bytes) -> Generator[None, None, RecordsBody]:
    """Parse a body `{"records": [...]}`. The generator yields between small steps and returns the result.

    Raises RestError.
    """
    if len(body) <= SHORT_BYTES:
        found = parse_object(body)
        records = member(found, "records", list)
    else:
        try:
            text = body.decode()
        except UnicodeDecodeError as error:
            raise malformed(error) from None
        outer, pieces = yield from _cut(text)
        found = loads(outer)
        records = []
        for piece in pieces:
            records.append(loads(piece))
            yield
    if not isinstance(found, dict):
        raise bad_request("The body is no JSON object")
    others = {name: value for name, value in found.items() if name != "records"}
    if not records:
        raise unprocessable("records must not be empty")
    return RecordsBody(records, others)


class _Cut(NamedTuple):
    """Produce request's body, cut apart. `outer`: the text without the records; `pieces`: the text of each record."""

    outer: str
    pieces: list[str]


def _cut(text: str) -> Generator[None, None, _Cut]:
    pieces: list[str] = []
    last_string, depth, piece_count = "", 0, 0
    begin = piece_begin = end = -1
    for count, found in enumerate(_TOKEN.finditer(text), 1):
        token = found[0]
        if count % STEP_TOKENS == 0:
            yield
        piece_count += 1
        _check_counts(depth, count, piece_count)
        if token[0] == '"':
            last_string = token if depth == 1 else last_string
        elif token in "[{":
            depth += 1
            if depth == 2 and token == "[" and last_string == _RECORDS and begin < 0:
                begin = piece_begin = found.end()
                piece_count = 0
        elif token == ",":
            if depth == 2 and begin >= 0 > end:
                pieces.append(text[piece_begin : found.start()])
                piece_begin, piece_count = found.end(), 0
        else:
            if depth == 2 and begin >= 0 > end:
                end = found.start()
            depth -= 1
    if begin < 0 or end < 0:
        return _Cut(text, [])
    last = text[piece_begin:end]
    if pieces or last.strip():
        pieces.append(last)
    return _Cut(text[:begin] + text[end:], pieces)


def _check_counts(depth: int, count: int, piece_count: int) -> None:
    if depth > DEPTH_MAX:
        raise bad_request(f"The body is nested more than {DEPTH_MAX} deep")
    if count > TOKENS_MAX or piece_count > VALUE_TOKENS_MAX:
        raise bad_request(
            f"The body has more than {TOKENS_MAX:,} elements, or one record more than {VALUE_TOKENS_MAX:,}"
        )


_MARK = re.compile(rb'["{}\[\]]')
_STRING_REST = re.compile(rb'(?:[^"\\]++|\\.)*+', re.DOTALL)
_QUOTE, _OPENING = ord('"'), b"{["


class ValueCutter:
    """Splitter of a byte stream into consecutive JSON objects.

    `feed` adds bytes. `values` yields complete objects, and None where its caller may pause. `end` checks that no bytes
    remain.
    """

    def __init__(self, value_bytes_max: int) -> None:
        self._value_bytes_max = value_bytes_max
        self._buffer = bytearray()
        self._position = 0
        """Where the scan goes on."""
        self._begin = 0
        """Where the value begins, or the space before it."""
        self._depth = self._tokens = 0
        self._is_in_string = False

    def feed(self, piece: bytes) -> None:
        """Add bytes. Raises RestError if a value is too long."""
        del self._buffer[: self._begin]
        self._position -= self._begin
        self._begin = 0
        if len(self._buffer) > self._value_bytes_max:
            raise bad_request(f"A record has more than {self._value_bytes_max:,} bytes")
        self._buffer += piece

    def values(self) -> Generator[bytes | None, None, None]:
        """Yield each complete object as bytes. Between two steps yield None. Raises RestError for malformed input."""
        steps = 0
        while self._position < len(self._buffer):
            steps += 1
            if steps % STEP_TOKENS == 0:
                yield None
            if self._is_in_string:
                self._position = _end(_STRING_REST.match(self._buffer, self._position))
                if self._position == len(self._buffer) or self._buffer[self._position] != _QUOTE:
                    return  # it goes on in the next piece
                self._is_in_string = False
                self._position += 1
                continue
            found = _MARK.search(self._buffer, self._position)
            if found is None:
                self._position = len(self._buffer)
                return
            if (value := self._mark(found.start())) is not None:
                yield value

    def _mark(self, at: int) -> bytes | None:
        """Process the structural character at `at`; return the value that this character completes, else None."""
        token = self._buffer[at]
        self._position = at + 1
        self._tokens += 1
        if self._depth == 0 and (token != ord("{") or self._buffer[self._begin : at].strip()):
            raise bad_request("The body is no sequence of JSON objects")
        if token == _QUOTE:
            self._is_in_string = True
        elif token in _OPENING:
            self._depth += 1
        else:
            self._depth -= 1
        _check_counts(self._depth, 0, self._tokens)
        if self._depth or self._is_in_string:
            return None
        value = bytes(self._buffer[self._begin : at + 1])
        self._begin, self._tokens = at + 1, 0
        return value

    def end(self) -> None:
        """Raise RestError if the last value is incomplete."""
        if self._buffer[self._begin :].strip():
            raise bad_request("The body ends within a record")


def _end(found: re.Match[bytes] | None) -> int:
    assert found is not None, "it matches nothing, too"
    return found.end()
