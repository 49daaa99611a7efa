"""Protobuf messages as JSON, by the descriptors of their files. The REST proxy decodes with this module, too.

The descriptors come from a schema registry, and the bytes from whoever may write a record. So the fields of a message are counted before it
becomes JSON, and imports are followed IMPORTS_MAX deep.
"""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Mapping
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from google.protobuf import descriptor_pb2 as pb
from google.protobuf import descriptor_pool, json_format, message_factory
from google.protobuf.message import DecodeError, Message

from ottla.server.admin.console.avro.schemas import AvroProblem
from ottla.wire.time_slice import paced

if TYPE_CHECKING:
    from ottla.server.admin.console.avro.schemas import Data

INDEXES_MAX, IMPORTS_MAX = 64, 200
SHOWN_FIELDS_MAX = 20_000
PACKED_MAX = 16
ANY = "google.protobuf.Any"
_VARINT_BYTES_MAX = 5
_BUILT_IN = {
    f"google/protobuf/{name}.proto": f"google.protobuf.{name}_pb2"
    for name in (
        "any", "api", "descriptor", "duration", "empty", "field_mask", "source_context", "struct", "timestamp", "type", "wrappers",
    )
}  # fmt: skip
"""Files that Protobuf itself has."""


class BadMessage(ValueError):
    """Error: bytes are no message of the schema, or one that is too large to be shown."""


@lru_cache(maxsize=32)
def built_in(name: str) -> Any:
    """Return the descriptor of a file that Protobuf itself has; None if it has no such file."""
    module = _BUILT_IN.get(name)
    if module is None:
        return None
    found = pb.FileDescriptorProto()
    import_module(module).DESCRIPTOR.CopyToProto(found)
    return found


class BadImports(Exception):
    """Error: an import is missing (its name is `missing`), or the imports are circular or too many (`missing` is None)."""

    def __init__(self, missing: str | None) -> None:
        super().__init__("its imports lead in a circle, or are too many" if missing is None else missing)
        self.missing = missing


def imported_files(file: Any, known: Mapping[str, Any], waiting_max: int) -> list[Any]:
    """Return the descriptors of all files that `file` imports, dependencies first. Raises BadImports.

    `known`: descriptors by name. `waiting_max`: most imports to follow at a time.
    """
    found: dict[str, Any] = {}
    waiting = [(each, False) for each in reversed(file.dependency)]
    while waiting:
        name, is_ready = waiting.pop()
        if name in found:
            continue
        each = known.get(name) or built_in(name)
        if each is None:
            raise BadImports(name)
        if is_ready or not each.dependency:
            found[name] = each
        elif len(waiting) > waiting_max:
            raise BadImports(None)
        else:
            waiting.append((name, True))
            waiting += [(of, False) for of in each.dependency if of not in found]
    return list(found.values())


class Messages:
    """Message types of one Protobuf file. `files`: descriptors of the imported files, then the file itself."""

    def __init__(self, files: list[Any]) -> None:
        self.pool = descriptor_pool.DescriptorPool()
        for each in files:
            self.pool.Add(each)
        self.file = self.pool.FindFileByName(files[-1].name)
        # Protobuf keeps the order in which a file defines its messages.
        self._types = list(self.file.message_types_by_name.values())
        self.first = self._types[0] if self._types else None

    def decode(self, data: memoryview, fields_max: int) -> Any:
        """Convert the bytes that follow the schema id to JSON. Raises BadMessage."""
        path, body = message_path(data)
        try:
            message = message_factory.GetMessageClass(self._found(path))()
            message.ParseFromString(bytes(body))
            _Budget(fields_max, self.pool).spend(message)
            return json_format.MessageToDict(
                message, always_print_fields_with_no_presence=True, descriptor_pool=self.pool
            )
        except BadMessage:
            raise
        except (DecodeError, json_format.Error, TypeError, ValueError, RecursionError) as error:
            raise BadMessage(str(error)[:500] or type(error).__name__) from None

    def _found(self, path: list[int]) -> Any:
        types, found = self._types, None
        for index in path:
            if not 0 <= index < len(types):
                raise BadMessage(f"The schema has no message at the path {path}")
            found = types[index]
            types = list(found.nested_types)
        return found


def message_path(data: memoryview) -> tuple[list[int], memoryview]:
    """Split Protobuf data into the index path of the message's type and the message itself. Raises BadMessage."""
    count, position = _zigzag(data, 0)
    if count == 0:
        return [0], data[position:]
    if not 0 < count <= INDEXES_MAX:
        raise BadMessage(f"The path of the message has {count} parts")
    path = []
    for _ in range(count):
        index, position = _zigzag(data, position)
        path.append(index)
    return path, data[position:]


def _zigzag(data: memoryview, position: int) -> tuple[int, int]:
    found = 0
    for shift in range(_VARINT_BYTES_MAX):
        if position + shift >= len(data):
            break
        byte = data[position + shift]
        found |= (byte & 0x7F) << (7 * shift)
        if byte < 0x80:
            return (found >> 1) ^ -(found & 1), position + shift + 1
    raise BadMessage("The path of the message is cut off")


class _Budget:
    """Limit of the number of fields in a decoded message, whose `Any` fields hold messages of the types in `pool`."""

    def __init__(self, left: int, pool: Any) -> None:
        self._left, self._pool, self._give_way = left, pool, paced()
        self._packed = 0
        """Number of messages in `Any` fields around the current one."""

    def spend(self, message: Message) -> None:
        """Count the fields of a message, nested messages included. Raises BadMessage if the limit is exceeded."""
        self._give_way()
        self._take(1 + len(message.DESCRIPTOR.fields))
        if message.DESCRIPTOR.full_name == ANY:
            self._spend_packed(message)
            return
        for field, value in message.ListFields():
            if not field.is_repeated:
                if field.message_type is not None:
                    self.spend(value)
                continue
            self._take(len(value))
            kind = field.message_type
            if kind is None:
                continue
            if kind.GetOptions().map_entry:
                if kind.fields_by_name["value"].message_type is not None:
                    for name in value:
                        self.spend(value[name])
            else:
                for each in value:
                    self.spend(each)

    def _spend_packed(self, holder: Any) -> None:
        """Count the message in an `Any`, whose fields become JSON, too. Raises BadMessage, DecodeError."""
        if not holder.ListFields():
            return
        try:
            found = self._pool.FindMessageTypeByName(holder.type_url.rpartition("/")[2])
        except KeyError:
            raise BadMessage(f"The schema does not know the type {holder.type_url[:100]!r}") from None
        if self._packed >= PACKED_MAX:
            raise BadMessage(f"The message has more than {PACKED_MAX} messages of type Any within one another")
        inner = message_factory.GetMessageClass(found)()
        inner.ParseFromString(holder.value)
        self._packed += 1
        self.spend(inner)
        self._packed -= 1

    def _take(self, count: int) -> None:
        self._left -= count
        if self._left < 0:
            raise BadMessage("The message has too many fields for its size")


class ProtobufSchema:
    """Protobuf schema of a registry, which shows values as JSON text. It is made, and decodes, in a thread."""

    def __init__(self, encoded: str, references: Mapping[str, str]) -> None:
        """`encoded`: the file's descriptor in base64. `references`: those of imported files by name. Raises AvroProblem."""
        known = {name: _descriptor(name, text) for name, text in references.items()}
        file = _descriptor("the schema.proto", encoded)
        try:
            self._messages = Messages([*imported_files(file, known, IMPORTS_MAX), file])
        except BadImports as error:
            if error.missing is None:
                raise AvroProblem(str(error)) from None
            raise AvroProblem(f"it imports {error.missing[:100]}, which the registry does not name") from None
        except (TypeError, ValueError, KeyError) as error:
            raise AvroProblem(f"Protobuf refuses it: {str(error)[:200]}") from None
        first = self._messages.first
        self.name = "" if first is None else str(first.full_name)

    def decode(self, data: Data) -> str:
        """Convert the bytes that follow the schema id to JSON text. Raises AvroProblem."""
        try:
            found = self._messages.decode(memoryview(data.rest), SHOWN_FIELDS_MAX)
        except BadMessage as problem:
            raise AvroProblem(f"its bytes do not fit the schema: {str(problem)[:200]}") from None
        text = json.dumps(found, separators=(",", ":"), ensure_ascii=False)
        data.charge(len(text))
        return text


def _descriptor(name: str, encoded: str) -> Any:
    file = pb.FileDescriptorProto()
    try:
        file.ParseFromString(b64decode(encoded, validate=True))
    except (DecodeError, ValueError):
        raise AvroProblem("the registry tells no descriptor of it (format=serialized)") from None
    file.name = name
    file.ClearField("source_code_info")
    return file
