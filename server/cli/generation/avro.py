"""Generated values as Avro, framed as Confluent's serializers frame them: a zero, the id of the schema, and the value.

The schemas are written here, registered with a schema registry before the first record, and encoded without a library: they are records of
strings, longs, arrays of strings, times, and of records that may be null.
"""

from __future__ import annotations

import base64
import json
import struct
import urllib.error
import urllib.parse
import urllib.request
from datetime import datetime
from typing import Any

from ottla.server.cli.client.output import RequestFailed, UsageError
from ottla.server.cli.generation.arrival import Encoding, Row
from ottla.wire.record_encoding import encode_varint

TIMEOUT_S = 10
ANSWER_BYTES_MAX = 1 << 20
UNKNOWN_ID = 0x7FFFFFFF

TIME = {"type": "long", "logicalType": "timestamp-millis"}
Schema = Any
"""Schema as it stands in JSON."""


def _record(name: str, /, **fields: Schema) -> Schema:
    return {
        "type": "record",
        "name": name,
        "namespace": "ottla.generated",
        "fields": [{"name": each, "type": schema} for each, schema in fields.items()],
    }


_ACCOUNT = _record("Account", id="long", name="string", balance="long")
_SOURCE = _record("Source", connector="string", db="string", schema="string", table="string", lsn="long")

SCHEMAS: dict[str, Schema] = {
    "clicks": _record("Click", id="string", user="string", page="string", device="string", time=TIME),
    "posts": _record(
        "Post",
        id="string",
        author="string",
        text="string",
        tags={"type": "array", "items": "string"},
        lang="string",
        time=TIME,
    ),
    "metrics": _record("Reading", id="string", host="string", metric="string", value="long", time=TIME),
    "changes": _record(
        "Change",
        before=["null", _ACCOUNT],
        after=["null", "ottla.generated.Account"],
        source=_SOURCE,
        op="string",
        ts_ms="long",
    ),
}
"""Schema of each kind."""


class Avro(Encoding):
    """Avro encoding of values, framed with the id of a registered schema."""

    poison = ("cut", "not_framed", "unknown_schema")

    def __init__(self, schema: Schema, schema_id: int) -> None:
        self._schema = schema
        self._named: dict[str, Schema] = {}
        self._learn(schema)
        self._frame = struct.pack(">bI", 0, schema_id)

    def encode(self, value: Row) -> bytes:
        parts = [self._frame]
        self._add(self._schema, value, parts)
        return b"".join(parts)

    def poisonous(self, name: str, number: int, time_ms: int) -> bytes:
        match name:
            case "cut":
                return self._frame + encode_varint(100) + b"poison"  # a text of 100 bytes that has six
            case "not_framed":
                return json.dumps({"id": f"poison-{number}", "time": time_ms}).encode()
        return struct.pack(">bI", 0, UNKNOWN_ID) + b"\x02"

    def _learn(self, schema: Schema) -> None:
        """Store all record schemas by full name, because other schemas may refer to records by name."""
        if isinstance(schema, list):
            for each in schema:
                self._learn(each)
        elif isinstance(schema, dict) and schema["type"] == "record":
            self._named[f"{schema['namespace']}.{schema['name']}"] = schema
            for field in schema["fields"]:
                self._learn(field["type"])

    def _add(self, schema: Schema, value: Any, parts: list[bytes]) -> None:
        if isinstance(schema, list):  # null or something else
            parts.append(encode_varint(value is not None))
            if value is not None:
                self._add(schema[1], value, parts)
        elif schema == "string":
            data = value.encode()
            parts += encode_varint(len(data)), data
        elif schema == "long":
            parts.append(encode_varint(value))
        elif schema is TIME:
            parts.append(encode_varint(milliseconds(value)))
        elif isinstance(schema, str):
            self._add(self._named[schema], value, parts)
        elif schema["type"] == "array":
            if value:
                parts.append(encode_varint(len(value)))
                for each in value:
                    self._add(schema["items"], each, parts)
            parts.append(b"\0")
        else:
            for field in schema["fields"]:
                self._add(field["type"], value[field["name"]], parts)


def milliseconds(text: str) -> int:
    """Convert a time that `arrival.iso` has formatted to ms since 1970."""
    moment = datetime.fromisoformat(text)
    return int(moment.replace(microsecond=0).timestamp()) * 1000 + moment.microsecond // 1000


def registered(url: str, subject: str, schema: Schema) -> int:
    """Register a schema and return its id. Raises UsageError, RequestFailed."""
    request = _request(url, subject, {"schema": json.dumps(schema), "schemaType": "AVRO"})
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
            found = json.loads(answer.read(ANSWER_BYTES_MAX))
            schema_id: int = found["id"]
            if not isinstance(schema_id, int) or not 0 <= schema_id <= UNKNOWN_ID:
                raise ValueError(schema_id)
    except urllib.error.HTTPError as error:
        reason = error.read(ANSWER_BYTES_MAX).decode(errors="replace")
        raise RequestFailed(f"the registry refuses the schema of {subject}: {error.code}, {reason}") from None
    except (urllib.error.URLError, TimeoutError, ConnectionError) as error:
        reason = str(getattr(error, "reason", error))
        raise RequestFailed(f"no registry at {request.host}: {reason}; `ottla registry` starts one") from None
    except (ValueError, TypeError, KeyError):
        raise RequestFailed(f"what answers at {request.host} is no schema registry") from None
    return schema_id


def _request(url: str, subject: str, body: Row) -> urllib.request.Request:
    """Make the HTTP request that registers a schema. It has Basic authentication if `url` has a name and password."""
    try:
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0:
            raise ValueError(url)
    except ValueError:
        raise UsageError(f"--registry {url}: must be http://HOST:PORT or https://HOST:PORT") from None
    path = f"{parts.path.rstrip('/')}/subjects/{urllib.parse.quote(subject, safe='')}/versions"
    place = parts.netloc.rpartition("@")[2]
    headers = {"Content-Type": "application/vnd.schemaregistry.v1+json"}
    if parts.username is not None:
        login = f"{urllib.parse.unquote(parts.username)}:{urllib.parse.unquote(parts.password or '')}"
        headers["Authorization"] = "Basic " + base64.b64encode(login.encode()).decode()
    address = urllib.parse.urlunsplit((parts.scheme, place, path, "", ""))
    return urllib.request.Request(address, json.dumps(body).encode(), headers, method="POST")
