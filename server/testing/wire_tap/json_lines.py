"""Requests as JSON lines: one object for each request with its answer, messages decoded, bytes as text or base64.

    {"number": 1, "time": "2026-01-02T03:04:05.678Z", "api": "Produce", "version": 9, ..., "request": {...}, "response": {...}}

Topic ids have Kafka's text. Record batches are lists of their records. Secrets are hidden.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ottla.server.testing.errors import LabError
from ottla.server.testing.wire_tap.kafka_names import messages_of
from ottla.server.testing.wire_tap.redaction import without_secrets
from ottla.server.testing.wire_tap.wire_request import WireRequest
from ottla.wire.errors import KafkaError, ProtocolViolation
from ottla.wire.record_decoding import decode_records
from ottla.wire.records import iter_batches
from ottla.wire.schema import Array, Records, Struct, Uuid
from ottla.wire.text import JAVA_REPLACE, uuid_text

HIDDEN = "(hidden)"


def save_json_lines(path: str | Path, requests: Iterable[WireRequest], *, hide_records: bool = False) -> int:
    """Write requests to a file, one a line; return their number. Raises LabError if the file cannot be written.

    `hide_records`: hide keys, values and headers of records.
    """
    count = 0
    try:
        with open(path, "w", encoding="utf-8") as file:
            for request in requests:
                file.write(json.dumps(described(request, hide_records=hide_records), ensure_ascii=False) + "\n")
                count += 1
    except OSError as error:
        raise LabError(f"{path} cannot be written: {error.strerror or error}.") from None
    return count


def described(request: WireRequest, *, hide_records: bool = False) -> dict[str, Any]:
    """Return everything about a request as plain values."""
    duration = request.duration
    told: dict[str, Any] = {
        "number": request.number,
        "time": datetime.fromtimestamp(request.time, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "node": request.node_id,
        "connection": request.connection.number,
        "peer": request.peer,
        "client_id": request.client_id,
        "api": request.api,
        "version": request.version,
        "correlation_id": request.correlation_id,
        "size": request.size,
        "answer_size": request.answer_size if request.is_answered else None,
        "duration_ms": None if duration is None else round(duration * 1000, 3),
        "errors": list(request.errors),
        "rule": request.rule or None,
        "records_left_out_bytes": request.left_out,
    }
    if messages_of(request.api_key) is None:
        return told
    for name in ("request", "response"):
        try:
            message = getattr(request, name)
        except LabError as problem:
            told[name], told[f"{name}_problem"] = None, str(problem)
        else:
            told[name] = None if message is None else plain(message, hide_records=hide_records)
    return told


def plain(message: Struct, *, hide_records: bool = False) -> dict[str, Any]:
    """Return a message as plain values, without secrets."""
    return _plain_struct(without_secrets(message, lambda secret: HIDDEN), hide_records=hide_records)


def _plain_struct(struct: Struct, *, hide_records: bool) -> dict[str, Any]:
    told = {}
    for name, field in struct.wire_fields.items():
        value = getattr(struct, name)
        kind = field.type.item if isinstance(field.type, Array) else field.type
        if kind is Records and value is not None:
            told[name] = _plain_records(value, hide_records=hide_records)
        elif isinstance(value, list):
            told[name] = [_plain_value(each, kind, hide_records=hide_records) for each in value]
        else:
            told[name] = _plain_value(value, kind, hide_records=hide_records)
    return told


def _plain_value(value: Any, kind: Any, *, hide_records: bool) -> Any:
    if isinstance(value, Struct):
        return _plain_struct(value, hide_records=hide_records)
    if kind is Uuid and isinstance(value, bytes):
        return uuid_text(value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return text_or_base64(bytes(value))
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)  # JSON has no such number
    return int(value) if isinstance(value, int) and not isinstance(value, bool) else value


def text_or_base64(data: bytes) -> Any:
    """Return bytes as a text if they are one, else as an object with their base64."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = "\0"
    if all(each.isprintable() or each in "\t\r\n" for each in text):
        return text
    return {"base64": base64.b64encode(data).decode()}


def _plain_records(records: Any, *, hide_records: bool) -> Any:
    data = bytes(records)
    try:
        batches = [_batch(data, header, start, hide_records=hide_records) for header, start, _ in iter_batches(data)]
        return [record for batch in batches for record in batch]
    except (KafkaError, ProtocolViolation, ValueError):  # damaged, or cut off
        return HIDDEN if hide_records else {"base64": base64.b64encode(data).decode()}


def _batch(data: bytes, header: Any, start: int, *, hide_records: bool) -> Iterator[dict[str, Any]]:
    for record in decode_records(data, start):
        told: dict[str, Any] = {"offset": record.offset, "timestamp": record.timestamp}
        if header.producer_id >= 0:
            told |= {"producer_id": header.producer_id, "producer_epoch": header.producer_epoch}
        hidden = HIDDEN if hide_records else None
        told["key"] = None if record.key is None else hidden or text_or_base64(bytes(record.key))
        told["value"] = None if record.value is None else hidden or text_or_base64(bytes(record.value))
        told["headers"] = [
            [
                bytes(name).decode("utf-8", JAVA_REPLACE),
                None if value is None else hidden or text_or_base64(bytes(value)),
            ]
            for name, value in record.headers
        ]
        yield told
