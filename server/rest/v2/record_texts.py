"""Texts of records in the answer of a read: JSON, with key and value in the format of the instance.

Records with schemas are decoded in a thread, some at a time. One that cannot be decoded does not hide those before it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ottla.server.rest import formats
from ottla.server.rest.client.cluster import Partition
from ottla.server.rest.client.reading import Step
from ottla.server.rest.errors import Code, RestError
from ottla.wire.records import Record
from ottla.wire.time_slice import paced

if TYPE_CHECKING:
    from ottla.server.rest.schemas.codec import Codec
    from ottla.server.rest.schemas.schemas import Schemas

CHUNK_RECORDS_MAX, CHUNK_BYTES_MAX = 500, 256 * 1024
CHUNK_TEXT_MAX = 4 << 20
"""Records, and text of them, that are decoded before any of them is added to the answer."""


def plain_text(kind: str, place: Partition, record: Record) -> str:
    """Return a record as JSON text, in an embedded format without schemas. Raises RestError."""
    key, value = formats.decode(kind, record.key), formats.decode(kind, record.value)
    content = {"topic": place[0], "key": key, "value": value, "partition": place[1], "offset": record.offset}
    return json.dumps(content, separators=(",", ":"))


def next_chunk(steps: Iterator[Step], bytes_max: int) -> list[Step]:
    """Take about `bytes_max` bytes of records from `steps`. Runs in a thread. Raises RestError for a damaged batch."""
    chunk: list[Step] = []
    left = min(bytes_max, CHUNK_BYTES_MAX)
    for step in steps:
        chunk.append(step)
        if step.record is not None:
            left -= len(step.record.key or b"") + len(step.record.value or b"")
        if left < 0 or len(chunk) == CHUNK_RECORDS_MAX:
            break
    return chunk


async def texts_of(schemas: Schemas, kind: str, place: Partition, chunk: Sequence[Step]) -> list[str | RestError]:
    """Decode the records in `chunk` to JSON texts, until there is enough text.

    A record that cannot be decoded has a RestError as its entry, which is the last one.
    """
    from ottla.server.rest.schemas.framing import BadFrame, unframed

    ids: set[int] = set()
    for record, _ in chunk:
        for data in () if record is None else (record.key, record.value):
            if data is not None:
                try:
                    ids.add(unframed(data).schema_id)
                except BadFrame:
                    continue
    codecs = await schemas.codecs(kind, sorted(ids))

    def work() -> list[str | RestError]:
        give_way, left = paced(), CHUNK_TEXT_MAX
        texts: list[str | RestError] = []
        for record, _ in chunk:
            give_way()
            try:
                text = "" if record is None else _text(place, record, codecs)
            except RestError as error:
                texts.append(error)
                break
            texts.append(text)
            left -= len(text)
            if left < 0:
                break
        return texts

    return await schemas.code(work)


def _text(place: Partition, record: Record, codecs: Mapping[int, Codec | str]) -> str:
    from ottla.server.rest.schemas.codec import BadData, dumped

    parts = {}
    for name, data in (("key", record.key), ("value", record.value)):
        try:
            parts[name] = dumped(_decoded(data, codecs))
        except (BadData, ValueError) as error:
            raise RestError(
                Code.SERIALIZATION,
                f"Error deserializing {name.upper()} for partition {place[0]}-{place[1]} at offset {record.offset}. "
                f"If needed, please seek past the record to continue consumption. {error}",
            ) from None
    topic = json.dumps(place[0])
    return (
        f'{{"topic":{topic},"key":{parts["key"]},"value":{parts["value"]},'
        f'"partition":{place[1]},"offset":{record.offset}}}'
    )


def _decoded(data: bytes | None, codecs: Mapping[int, Codec | str]) -> Any:
    """Decode a key or value by the codec of its schema id; return None for None. Raises BadData, BadFrame."""
    from ottla.server.rest.schemas.codec import BadData
    from ottla.server.rest.schemas.framing import unframed

    if data is None:
        return None
    schema_id, body = unframed(data)
    codec = codecs[schema_id]
    if isinstance(codec, str):
        raise BadData(codec)
    return codec.decode(body)
