"""Produce of the third version: records one after the other in a body, and their answers in the same order.

A body in chunks is a stream: what has arrived is written and answered before more is read. So a client may go on for hours,
wait for answers in between, and is held back by the cluster. An error of a record is its answer; the status is 200.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator
from datetime import UTC, datetime
from typing import Any, NamedTuple

from ottla.server.admin.http.routes import Response
from ottla.server.rest import formats
from ottla.server.rest.api import JSON, Answer
from ottla.server.rest.bodies import ValueCutter, loads, member, number
from ottla.server.rest.client.producer import Headers, KafkaProducer, Outcome, Outgoing, Written
from ottla.server.rest.errors import Code, KafkaFailure, RestError, bad_request
from ottla.server.rest.times import parse_time
from ottla.server.rest.v3.resources import Json, Scope, Scoped, check_content_type
from ottla.wire.errors import ErrorCode
from ottla.wire.time_slice import TimeSlice

_NAMES = frozenset({"partition_id", "headers", "key", "value", "timestamp", "original_size"})
_DATA_NAMES = frozenset(
    {"type", "data", "subject", "subject_name_strategy", "schema_id", "schema_version", "schema"}
)  # fmt: skip
HEADERS_MAX = 1_000
ENTRIES_MAX, ID_CHARACTERS_MAX = 10, 80
RECORDS_AT_ONCE = 5_000
MULTI_STATUS = 207


class Parsed(NamedTuple):
    """Record of a request, with the declared types of key and value; None: the part is missing."""

    record: Outgoing
    key_type: str | None
    value_type: str | None


class Records:
    """Handlers of /records."""

    def __init__(self, producer: KafkaProducer, value_bytes_max: int) -> None:
        self._producer, self._value_bytes_max = producer, value_bytes_max

    def add_to(self, scoped: Scoped) -> None:
        scoped.add("POST", "/topics/{}/records", self._produce)
        scoped.add("POST", "/topics/{}/records:batch", self._produce_batch)

    async def _produce(self, scope: Scope) -> Any:
        request = scope.call.request
        check_content_type(scope.call)
        if request.pieces is None and not request.body.strip():
            raise RestError(Code.INVALID_PAYLOAD, "Payload error. Request body is empty. Data is required.")
        pieces = request.pieces or _one_piece(request.body)
        return Response(self._answers(scope, scope.parts[0], pieces), content_type=JSON)

    async def _answers(self, scope: Scope, topic: str, pieces: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
        cutter, time_slice = ValueCutter(self._value_bytes_max), TimeSlice()
        try:
            async for piece in pieces:
                cutter.feed(piece)
                texts: list[bytes] = []
                for text in cutter.values():
                    if text is not None:
                        texts.append(text)
                    await time_slice.yield_if_over()
                    if len(texts) == RECORDS_AT_ONCE:
                        yield await self._written(scope, topic, texts)
                        texts = []
                if texts:
                    yield await self._written(scope, topic, texts)
            cutter.end()
        except RestError as error:
            yield _line({"error_code": error.code, "message": str(error)})

    async def _written(self, scope: Scope, topic: str, texts: list[bytes]) -> bytes:
        """Write records, and make their answers."""
        time_slice = TimeSlice()
        parsed: list[Parsed | RestError] = []
        for text in texts:
            parsed.append(_parsed(text))
            await time_slice.yield_if_over()
        answers = await self._write(scope, topic, parsed)
        return b"".join(map(_line, answers))

    async def _write(self, scope: Scope, topic: str, parsed: list[Parsed | RestError]) -> list[Json]:
        good = [each for each in parsed if isinstance(each, Parsed)]
        outcomes: list[Outcome] = []
        if good:
            try:
                outcomes = await self._producer.write(topic, [each.record for each in good])
            except RestError as error:
                outcomes = [error] * len(good)
        left = iter(outcomes)
        return [
            _error_json(each) if isinstance(each, RestError) else _outcome_json(scope, topic, each, next(left))
            for each in parsed
        ]

    async def _produce_batch(self, scope: Scope) -> Any:
        entries = member(scope.body(), "entries", list)
        if entries is None:
            raise _batch_error("Request body is empty. Data is required.")
        if not entries:
            raise _batch_error("Empty batch.")
        if len(entries) > ENTRIES_MAX:
            raise _batch_error("Too many entries in batch.")
        ids = [each.get("id") if isinstance(each, dict) else None for each in entries]
        if not all(isinstance(each, str) and 0 < len(each) <= ID_CHARACTERS_MAX for each in ids):
            raise _batch_error("Batch entry identifier is not a valid string.")
        if len(set(ids)) < len(ids):
            raise _batch_error("Batch entry IDs are not distinct.")
        parsed = [_checked({name: each[name] for name in each if name != "id"}) for each in entries]
        answers = await self._write(scope, scope.parts[0], parsed)
        told = [{"id": name, **each} for name, each in zip(ids, answers, strict=True)]
        successes = [
            {name: value for name, value in each.items() if name != "error_code"}
            for each in told
            if each["error_code"] == Code.OK
        ]
        return Answer(
            {"successes": successes, "failures": [each for each in told if each["error_code"] != Code.OK]},
            MULTI_STATUS,
        )


def _batch_error(message: str) -> RestError:
    return RestError(Code.BATCH, message)


async def _one_piece(body: bytes) -> AsyncGenerator[bytes, None]:
    yield body


def _line(content: Json) -> bytes:
    return json.dumps(content, separators=(",", ":")).encode() + b"\r\n"


def _parsed(text: bytes) -> Parsed | RestError:
    try:
        found = loads(text)
    except RestError as error:
        return error
    return _checked(found)


def _checked(found: Any) -> Parsed | RestError:
    try:
        return parse_record(found)
    except RestError as error:
        return error


def parse_record(found: Any) -> Parsed:
    """Parse a record of a request. Raises RestError."""
    if not isinstance(found, dict):
        raise bad_request("A record is no JSON object")
    _refuse_unknown(found, _NAMES)
    key_type, key = _data(found, "key")
    value_type, value = _data(found, "value")
    time = found.get("timestamp")
    record = Outgoing(
        key,
        value,
        number(found, "partition_id", 32),
        _headers(found),
        None if time is None else parse_time(time),
    )
    return Parsed(record, key_type, value_type)


def _refuse_unknown(found: Json, names: frozenset[str]) -> None:
    if unknown := found.keys() - names:
        raise bad_request(f"Unrecognized field: {min(unknown)[:100]}")


def _data(found: Json, name: str) -> tuple[str | None, bytes | None]:
    data = member(found, name, dict)
    if data is None:
        return None, None
    _refuse_unknown(data, _DATA_NAMES)
    kind = member(data, "type", str)
    if kind is None or kind.lower() in formats.WITH_SCHEMA:
        raise formats.no_registry("serialize")
    if kind.lower() not in (formats.BINARY, formats.JSON, formats.STRING):
        raise bad_request(f"{name}: {kind[:50]!r} is no type of data")
    return kind.upper(), formats.encode(kind.lower(), data.get("data"))


def _headers(found: Json) -> Headers:
    headers = member(found, "headers", list) or []
    if len(headers) > HEADERS_MAX or not all(isinstance(each, dict) for each in headers):
        raise bad_request(f"headers: a list of at most {HEADERS_MAX} objects")
    return tuple((_header_name(each), formats.encode(formats.BINARY, each.get("value"))) for each in headers)


def _header_name(header: Json) -> bytes:
    name: str = member(header, "name", str, is_needed=True)
    try:
        return name.encode()
    except UnicodeEncodeError:
        raise bad_request("The name of a header is no valid string.") from None


def _error_json(error: RestError) -> Json:
    if error.code == Code.TOPIC_NOT_FOUND:
        error = KafkaFailure(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return {"error_code": error.code, "message": str(error)}


def _outcome_json(scope: Scope, topic: str, parsed: Parsed, outcome: Outcome) -> Json:
    if not isinstance(outcome, Written):
        return _error_json(outcome)
    answer: Json = {
        "error_code": int(Code.OK),
        "cluster_id": scope.cluster_id,
        "topic_name": topic,
        "partition_id": outcome.partition,
        "offset": outcome.offset,
        "timestamp": _time_text(outcome.timestamp_ms),
    }
    record = parsed.record
    for name, kind, data in (("key", parsed.key_type, record.key), ("value", parsed.value_type, record.value)):
        if kind is not None:
            answer[name] = {"type": kind, "size": len(data or b"")}
    return answer


def _time_text(timestamp_ms: int) -> str | None:
    try:
        found = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return None
    # As Java prints an Instant.
    return found.isoformat(timespec="milliseconds" if timestamp_ms % 1000 else "seconds").replace("+00:00", "Z")
