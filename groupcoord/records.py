"""The records of `__consumer_offsets`, in Kafka's own format.

A key starts with two bytes naming its type, a value with two bytes naming its version; the rest is declared as Kafka's
JSON declares it, by the modules that keep such records. A null value deletes what its key names. `RecordFormats` writes and reads
all the types that it is given. Records of other types are left alone, and compaction keeps them.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Protocol

from ottla.wire.codecs import Codec, codec
from ottla.wire.errors import ProtocolViolation
from ottla.wire.record_encoding import encode_pairs
from ottla.wire.schema import Struct

_prefix = struct.Struct(">h").pack
_read_prefix = struct.Struct(">h").unpack_from


class GroupRecord(Protocol):
    """Record of a group, of any type. The key's class gives the record's type; value None is a tombstone."""

    @property
    def key(self) -> Any: ...

    @property
    def value(self) -> Any: ...


class KeyedRecord(NamedTuple):
    """Record whose type has no record class of its own."""

    key: Any
    value: Any


class RecordFormat:
    """Format of one record type: the classes of its keys and values. Keys have only version 0."""

    def __init__(
        self,
        key_type: int,
        key: type[Struct],
        value: type[Struct],
        *,
        written: tuple[int, ...] = (0,),
        version_of: Callable[[Any], int] | None = None,
        make: Callable[[Any, Any], GroupRecord] = KeyedRecord,
        former_key_types: tuple[int, ...] = (),
        is_superseding: bool = False,
    ) -> None:
        """`written`: the value versions that this broker writes; `version_of` chooses among several.

        `is_superseding`: a value replaces all earlier values of the record's key (`ShardKind.superseding`).
        """
        self.key_types = (key_type, *former_key_types)
        self.key = key
        self.value = value
        self.written = written
        self.make = make
        self.is_superseding = is_superseding
        self._prefix = _prefix(key_type)
        self._known = range(value.versions.first, value.versions.last + 1)
        self._version_of = version_of
        self._decode_key: Codec | None = None
        self._decode_value: dict[bytes, Codec] = {}  # by the bytes of the version
        self._encode_key: Codec | None = None
        self._encode_value: dict[int, Codec] = {}

    # The codecs are asked for once, and called without `Struct.encode` and `Struct.decode`: each commit of an offset encodes
    # a record, and a load decodes a million.

    def encode(self, key: Any, value: Any) -> tuple[bytes, bytes | None]:
        if self._encode_key is None:
            self._encode_key = codec(self.key, 0, "encode")
        key_parts = [self._prefix]
        self._encode_key(key, key_parts.append)
        encoded_key = b"".join(key_parts)
        if value is None:
            return encoded_key, None
        version = self.written[0] if self._version_of is None else self._version_of(value)
        encode_value = self._encode_value.get(version)
        if encode_value is None:
            encode_value = self._encode_value[version] = codec(self.value, version, "encode")
        value_parts = [_prefix(version)]
        encode_value(value, value_parts.append)
        return encoded_key, b"".join(value_parts)

    def decode(self, key: bytes, value: bytes | None) -> GroupRecord:
        decode_key = self._decode_key or self._load_key_codec()
        if value is None:
            return self.make(decode_key(key, 2, len(key)), None)
        decode_value = self._decode_value.get(value[:2]) or self._load_value_codec(value)
        return self.make(decode_key(key, 2, len(key)), decode_value(value, 2, len(value)))

    def _load_key_codec(self) -> Codec:
        decode_key = self._decode_key = codec(self.key, 0, "decode")
        return decode_key

    def _load_value_codec(self, value: bytes) -> Codec:
        version = _leading_number(value)
        # The runtime passes over this record with a warning. A value that is read wrongly would do silent harm.
        if version is None or version not in self._known:
            known = self.value.versions.last
            raise ProtocolViolation(f"a coordinator record of value version {version}, newest known {known}")
        decode_value = self._decode_value[value[:2]] = codec(self.value, version, "decode")
        return decode_value


class RecordFormats:
    """Formats of all record types that this broker's groups use."""

    def __init__(self, formats: Iterable[RecordFormat]) -> None:
        self._by_key_class: dict[type, RecordFormat] = {}
        self._by_prefix: dict[bytes, RecordFormat] = {}
        """By the bytes of the type, with which a key begins."""
        for each in formats:
            assert each.key not in self._by_key_class, f"{each.key.__name__} is registered twice"
            self._by_key_class[each.key] = each
            for key_type in each.key_types:
                prefix = _prefix(key_type)
                assert prefix not in self._by_prefix, f"key type {key_type} is registered twice"
                self._by_prefix[prefix] = each

    @property
    def superseding(self) -> frozenset[bytes]:
        """First two key bytes of each record type whose values replace all earlier values of their key."""
        return frozenset(prefix for prefix, each in self._by_prefix.items() if each.is_superseding)

    def load_codecs(self) -> None:
        """Load the codecs of written records. Call this in a thread, because it reads files or generates code."""
        for each in self._by_key_class.values():
            for kind in ("encode", "decode"):
                codec(each.key, 0, kind)
                for version in each.written:
                    codec(each.value, version, kind)

    def encode_record(self, record: GroupRecord) -> tuple[bytes, bytes | None]:
        """Encode a record as key and value for the log; the value of a tombstone is None."""
        return self._by_key_class[type(record.key)].encode(record.key, record.value)

    def decode_record(self, key: bytes | None, value: bytes | None) -> GroupRecord | None:
        """Decode key and value to a record; None if the record type is unknown."""
        # The runtime passes over a record whose key is not one of Kafka's.
        known = None if key is None else self._by_prefix.get(key[:2])
        return None if key is None or known is None else known.decode(key, value)

    def encode_records(self, records: Iterable[GroupRecord], timestamp_ms: int) -> bytes:
        """Encode records as one uncompressed batch."""
        return encode_pairs(map(self.encode_record, records), timestamp_ms)


def _leading_number(data: bytes | None) -> int | None:
    if data is None or len(data) < 2:
        return None
    number: int = _read_prefix(data)[0]
    return number
