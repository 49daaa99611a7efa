"""Produce of the third version: records one after the other in a body, and their answers in the same order.

A body in chunks is a stream: what has arrived is written and answered before more is read. So a client may go on for hours,
wait for answers in between, and is held back by the cluster. An error of a record is its answer; the status is 200.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.server.admin.http.routes import Response
from ottla.server.rest import formats
from ottla.server.rest.api import JSON, Answer
from ottla.server.rest.bodies import ValueCutter, loads, member, number, refuse_unknown
from ottla.server.rest.client.producer import Headers, KafkaProducer, Outcome, Outgoing, Written
from ottla.server.rest.errors import Code, KafkaFailure, RestError, bad_request
from ottla.server.rest.times import parse_time
from ottla.server.rest.v3.resources import Json, Scope, Scoped, check_content_type
from ottla.wire.errors import ErrorCode
from ottla.wire.time_slice import TimeSlice, paced

if TYPE_CHECKING:
    from ottla.server.rest.schemas.schemas import Registered, Schemas, Wanted

_NAMES = frozenset({"partition_id", "headers", "key", "value", "timestamp", "original_size"})
_DATA_NAMES = frozenset(
    {"type", "data", "subject", "subject_name_strategy", "schema_id", "schema_version", "schema"}
)  # fmt: skip
HEADERS_MAX = 1_000
ENTRIES_MAX, ID_CHARACTERS_MAX = 10, 80
RECORDS_AT_ONCE = 5_000
MULTI_STATUS = 207


class Part(NamedTuple):
    """Key or value of a record. `wanted`: the schema by which to encode `data`; None: `data` is encoded already."""

    kind: str | None
    data: Any
    wanted: Wanted | None = None
    registered: Registered | None = None


NO_PART = Part(None, None)


class Parsed(NamedTuple):
    """Record parsed from a request. A `key` or `value` whose `kind` is None was missing."""

    key: Part
    value: Part
    partition: int | None
    headers: Headers
    timestamp_ms: int | None

    @property
    def record(self) -> Outgoing:
        return Outgoing(self.key.data, self.value.data, self.partition, self.headers, self.timestamp_ms)


class Records:
    """Handlers of /records."""

    def __init__(self, producer: KafkaProducer, value_bytes_max: int, schemas: Schemas | None = None) -> None:
        self._producer, self._value_bytes_max, self._schemas = producer, value_bytes_max, schemas

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
        """Write records; return the lines of the response."""
        time_slice = TimeSlice()
        parsed: list[Parsed | RestError] = []
        for text in texts:
            parsed.append(_parsed(text, topic))
            await time_slice.yield_if_over()
        answers = await self._write(scope, topic, parsed)
        return b"".join(map(_line, answers))

    async def _write(self, scope: Scope, topic: str, parsed: list[Parsed | RestError]) -> list[Json]:
        if any(isinstance(each, Parsed) and (each.key.wanted or each.value.wanted) for each in parsed):
            parsed = await self._encoded(parsed)
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

    async def _encoded(self, parsed: list[Parsed | RestError]) -> list[Parsed | RestError]:
        """Encode the keys and values that have schemas; a record that fails is replaced by its error."""
        schemas = self._schemas
        if schemas is None:
            return [_refused(each) for each in parsed]
        found: dict[Wanted, Registered | RestError] = {}
        for record in parsed:
            for part in (record.key, record.value) if isinstance(record, Parsed) else ():
                if part.wanted is not None and part.wanted not in found:
                    try:
                        found[part.wanted] = await schemas.wanted(part.wanted)
                    except RestError as error:
                        found[part.wanted] = error

        def work() -> list[Parsed | RestError]:
            give_way = paced()
            coded = []
            for record in parsed:
                give_way()
                coded.append(_with_schemas(record, found))
            return coded

        return await schemas.code(work)

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
        topic = scope.parts[0]
        parsed = [_checked({name: each[name] for name in each if name != "id"}, topic) for each in entries]
        answers = await self._write(scope, topic, parsed)
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


def _parsed(text: bytes, topic: str) -> Parsed | RestError:
    try:
        found = loads(text)
    except RestError as error:
        return error
    return _checked(found, topic)


def _checked(found: Any, topic: str) -> Parsed | RestError:
    try:
        return parse_record(found, topic)
    except RestError as error:
        return error


def parse_record(found: Any, topic: str) -> Parsed:
    """Parse a record in a request. Raises RestError."""
    if not isinstance(found, dict):
        raise bad_request("A record is no JSON object")
    refuse_unknown(found, _NAMES, bad_request)
    key, value = _part(found, "key", topic), _part(found, "value", topic)
    time = found.get("timestamp")
    return Parsed(
        key, value, number(found, "partition_id", 32), _headers(found), None if time is None else parse_time(time)
    )


def _part(found: Json, name: str, topic: str) -> Part:
    part = member(found, name, dict)
    if part is None:
        return NO_PART
    refuse_unknown(part, _DATA_NAMES, bad_request)
    kind = member(part, "type", str)
    kind = None if kind is None else kind.lower()
    if kind is not None and kind not in (formats.BINARY, formats.JSON, formats.STRING, *formats.WITH_SCHEMA):
        raise bad_request(f"{name}: {kind[:50]!r} is no type of data")
    wanted = _wanted(part, kind, topic, is_key=name == "key")
    if wanted is not None:
        return Part(None if kind is None else kind.upper(), part.get("data"), wanted)
    assert kind is not None
    return Part(kind.upper(), formats.encode(kind, part.get("data")))


def _wanted(part: Json, kind: str | None, topic: str, *, is_key: bool) -> Wanted | None:
    """Return the schema that a key or value names; None if its type has no schemas. Raises RestError."""
    text, subject = member(part, "schema", str), member(part, "subject", str)
    schema_id, version = number(part, "schema_id", 32), number(part, "schema_version", 32)
    strategy = member(part, "subject_name_strategy", str)
    _check_names(part, kind)
    if kind is not None and kind not in formats.WITH_SCHEMA:
        return None
    from ottla.server.rest.schemas.schemas import STRATEGIES, Wanted

    if strategy is not None and strategy not in STRATEGIES:
        raise bad_request(f"subject_name_strategy: {strategy[:50]!r} is none of {', '.join(STRATEGIES)}")
    return Wanted(topic, is_key, kind, text, schema_id, version, subject, strategy)


def _check_names(part: Json, kind: str | None) -> None:
    """Raise RestError if members of a key or value exclude each other."""
    given = {name for name in _DATA_NAMES if part.get(name) is not None}
    if {"subject", "subject_name_strategy"} <= given:
        raise bad_request("Only one of 'subject_name_strategy' or 'subject' can be used.")
    named = given & {"schema_id", "schema_version", "schema"}
    if len(named) > 1:
        raise bad_request("Only one of 'schema_id', 'schema_version' or 'schema' can be used.")
    if kind is None:
        if "schema" in named:
            raise bad_request("'schema' needs a 'type'.")
        return
    if kind not in formats.WITH_SCHEMA:
        if unfit := sorted(named | given & {"subject", "subject_name_strategy"}):
            raise bad_request(f"'type={kind.upper()}' cannot be used with '{unfit[0]}'.")
    elif named != {"schema"}:
        unfit = sorted(named) or ["schema_version=latest"]
        raise bad_request(f"'{unfit[0]}' cannot be used with 'type={kind.upper()}', which needs a 'schema'.")


def _refused(parsed: Parsed | RestError) -> Parsed | RestError:
    """Return an error if a record needs a schema, because no registry is configured. Otherwise return `parsed`."""
    if isinstance(parsed, RestError):
        return parsed
    return formats.no_schemas() if parsed.key.wanted or parsed.value.wanted else parsed


def _with_schemas(parsed: Parsed | RestError, found: Mapping[Wanted, Registered | RestError]) -> Parsed | RestError:
    """Encode a record's key and value by their schemas; return an error if that fails. Runs in a thread."""
    if isinstance(parsed, RestError):
        return parsed
    try:
        return parsed._replace(key=_encoded(parsed.key, found), value=_encoded(parsed.value, found))
    except RestError as error:
        return error


def _encoded(part: Part, found: Mapping[Wanted, Registered | RestError]) -> Part:
    if part.wanted is None:
        return part
    registered = found[part.wanted]
    if isinstance(registered, RestError):
        raise registered
    return Part(registered.schema.kind.upper(), registered.encode(part.data), registered=registered)


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
    for name, part in (("key", parsed.key), ("value", parsed.value)):
        if part.kind is not None:
            answer[name] = _part_json(part)
    return answer


def _part_json(part: Part) -> Json:
    told: Json = {"type": part.kind}
    if part.registered is not None:
        schema_id, version = part.registered.place
        told |= {"subject": part.registered.subject, "schema_id": schema_id, "schema_version": version}
    return {**told, "size": len(part.data or b"")}


def _time_text(timestamp_ms: int) -> str | None:
    try:
        found = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return None
    # As Java prints an Instant.
    return found.isoformat(timespec="milliseconds" if timestamp_ms % 1000 else "seconds").replace("+00:00", "Z")
