"""Answers as plain data (what JSON can hold), in which only what a broker decides is left."""

import re
import time
from typing import Any

from ottla.wire.errors import KafkaError
from ottla.wire.legacy_records import read_message
from ottla.wire.record_decoding import decode_records
from ottla.wire.records import BatchHeader, iter_batches
from ottla.wire.schema import ZERO_UUID, Array, Field, Records, Struct, Uuid, VersionRange

HOUR_MS = 3_600_000
MEMBER_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
SHORT_ID = re.compile(r"[A-Za-z0-9_-]{22}")  # how Kafka writes the ids that it makes for members of consumer groups
TIME = re.compile(r"(?<!\d)\d{13}(?!\d)")  # milliseconds since 1970, in words
# Fields that hold an identity which a broker makes up; the values that stand for "none" are left as they are.
IDENTITIES = {"producer_id": -1, "previous_producer_id": -1, "next_producer_id": -1, "session_id": 0}
# Those of delegation tokens, of which nobody's is empty.
OF_TOKENS = ("token_id", "hmac")
# Fields that say where a broker is and what its disk is like.
PLACES = ("cluster_id", "log_dir", "total_bytes", "usable_bytes")
# Kafka writes down all that its object for a request holds, ports and identities in memory; Ottla the name of the request.
REFUSED = re.compile(r"Request (?:Request\(.*\)|[A-Z]\w+) needs")
REPLACED_IN_RECORDS = ("batch_length", "crc")


class Plain:
    """The data of one telling: equal things get equal stand-ins, numbered as they appear."""

    def __init__(self, run: str, port: int) -> None:
        self._run = run
        self._port = port
        self._address = re.compile(rf":{port}(?!\d)")  # with its colon: other numbers contain the same digits
        self._stand_ins: dict[tuple[str, Any], str] = {}

    def of(self, data: Any, message: type[Struct] | None = None, version: int = 0) -> Any:
        if isinstance(data, Struct):
            return {
                name: self._of_field(name, field, getattr(data, name), version)
                for name, field in data.wire_fields.items()
                if version in VersionRange.parse(field.versions)
            }
        if isinstance(data, dict):
            return {key: self.of(value, message, version) for key, value in data.items()}
        if isinstance(data, list | tuple):
            return [self.of(each, message, version) for each in data]
        if isinstance(data, bytes | bytearray | memoryview):
            return self._text(repr(bytes(data)))
        if isinstance(data, str):
            return self._text(data)
        return self._number(data)

    def _of_field(self, name: str, field: Field, value: Any, version: int) -> Any:
        if value is None:
            return None
        if name in PLACES:
            return f"<{name}>" if value not in (-1, 0) else value
        if name == "port" and value == self._port:
            return "<port>"
        if name == "member_id" and SHORT_ID.fullmatch(value):
            return self._stand_in("id", value)
        if name in OF_TOKENS and value:
            return self._stand_in(name, bytes(value) if name == "hmac" else value)
        if name in IDENTITIES and value != IDENTITIES[name]:
            return self._stand_in("producer_id" if name.endswith("producer_id") else name, value)
        if field.type is Records:
            return self.records(bytes(value))
        if field.type is Uuid or (isinstance(field.type, Array) and field.type.item is Uuid):
            return [self._uuid(each) for each in value] if isinstance(value, list) else self._uuid(value)
        return self.of(value, None, version)

    def _uuid(self, value: bytes) -> str:
        """Two values of the protocol's are none of anybody's: zero, and those that tests make up of one repeated byte."""
        return (
            bytes(value).hex() if value == ZERO_UUID or len(set(value)) == 1 else self._stand_in("uuid", bytes(value))
        )

    def _text(self, text: str) -> str:
        text = MEMBER_ID.sub(lambda found: self._stand_in("id", found[0]), text)
        text = TIME.sub(lambda found: str(self._number(int(found[0]))), text)
        text = REFUSED.sub("Request <request> needs", text)
        return self._address.sub(":<port>", text.replace(f"-{self._run}", ""))

    def _number(self, value: Any) -> Any:
        """The time of day is everybody's own."""
        if isinstance(value, int) and not isinstance(value, bool):
            return "<now>" if abs(value - time.time() * 1000) < HOUR_MS else int(value)
        return value

    def _stand_in(self, kind: str, value: Any) -> str:
        count = sum(known == kind for known, _ in self._stand_ins)
        return self._stand_ins.setdefault((kind, value), f"<{kind} {count + 1}>")

    # --- records

    def records(self, data: bytes) -> list[Any]:
        """Whole batches; Kafka may send the front of one more, which every client skips."""
        return [self._batch(data, header, start) for header, start, _ in iter_batches(data)]

    def _batch(self, data: bytes, header: BatchHeader, start: int) -> dict[str, Any]:
        end = start + header.size_in_bytes
        if header.magic < 2:
            outer = read_message(data, start, end)
            shown = {"magic": outer.magic, "offset": outer.offset, "attributes": outer.attributes}
            shown |= {"timestamp": self._number(outer.timestamp), "crc_is_valid": outer.crc_is_valid}
        else:
            shown = {name: self._number(value) for name, value in header._asdict().items()}
            for name in self._differing(header):
                del shown[name]
            if header.has_producer_id:
                shown["producer_id"] = self._stand_in("producer_id", header.producer_id)
        shown["records"] = self._contents(data[start:end])
        return shown

    def _contents(self, batch: bytes) -> Any:
        try:
            return [self.of(record) for record in decode_records(batch)]
        except KafkaError as error:
            return f"cannot be read: {error.code.name}"

    def _differing(self, header: BatchHeader) -> tuple[str, ...]:
        """What depends on a compressor's taste, or on something that was replaced here."""
        replaced = self._number(header.max_timestamp) == "<now>" or header.has_producer_id
        return REPLACED_IN_RECORDS if header.is_compressed else ("crc",) if replaced else ()
