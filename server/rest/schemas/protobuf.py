"""Values of Protobuf: from their JSON mapping to the binary form and back, by Protobuf's own library.

A value that is written is of the first message of the schema's file; a reader finds the message by the path in front of it. As
Confluent's converter does, fields without presence are shown with their defaults.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from google.protobuf import descriptor_pool, json_format, message_factory
from google.protobuf.message import DecodeError, EncodeError, Message

from ottla.server.registry.schemas.format import InvalidText
from ottla.server.rest.schemas.codec import BadData
from ottla.server.rest.schemas.framing import FIRST_MESSAGE, BadFrame, message_path
from ottla.wire.time_slice import paced

if TYPE_CHECKING:
    from ottla.server.registry.schemas.protobuf import ProtobufSchema

FIELDS_FREE, FIELDS_PER_BYTE = 100_000, 8
"""Fields that a value may become: an empty message of two bytes is shown with all its defaults."""

_OWN_FORMS = "google.protobuf."
"""Package of the messages that are no objects in JSON, such as a time."""


class ProtobufCodec:
    """Codec of the messages in one Protobuf file."""

    def __init__(self, files: list[Any]) -> None:
        """`files`: the imported files, then the schema itself."""
        self._pool = descriptor_pool.DescriptorPool()
        for each in files:
            self._pool.Add(each)
        self._file = self._pool.FindFileByName(files[-1].name)
        self._first = next(iter(self._file.message_types_by_name.values()), None)
        self.name = None if self._first is None else str(self._first.full_name)
        # Protobuf keeps the order in which a file defines its messages.
        self._messages = list(self._file.message_types_by_name.values())

    def encode(self, data: Any) -> bytes:
        if self._first is None:
            raise BadData("The schema defines no message")
        if not isinstance(data, dict) and not str(self.name).startswith(_OWN_FORMS):
            raise BadData(f"Expect message object but got: {str(data)[:100]}")
        message = message_factory.GetMessageClass(self._first)()
        try:
            json_format.ParseDict(data, message, descriptor_pool=self._pool)
            body: bytes = message.SerializeToString(deterministic=True)
        except (json_format.Error, EncodeError, TypeError, ValueError, AttributeError, RecursionError) as error:
            raise BadData(str(error)[:500] or type(error).__name__) from None
        return FIRST_MESSAGE + body

    def decode(self, data: memoryview) -> Any:
        try:
            path, body = message_path(data)
            message = message_factory.GetMessageClass(self._found(path))()
            message.ParseFromString(bytes(body))
            _Budget(FIELDS_FREE + FIELDS_PER_BYTE * len(body)).spend(message)
            return json_format.MessageToDict(
                message, always_print_fields_with_no_presence=True, descriptor_pool=self._pool
            )
        except BadData:
            raise
        except (BadFrame, DecodeError, json_format.Error, TypeError, ValueError, RecursionError) as error:
            raise BadData(str(error)[:500] or type(error).__name__) from None

    def _found(self, path: list[int]) -> Any:
        messages, found = self._messages, None
        for index in path:
            if not 0 <= index < len(messages):
                raise BadData(f"The schema has no message at the path {path}")
            found = messages[index]
            messages = list(found.nested_types)
        return found


def codec_of(parsed: ProtobufSchema) -> ProtobufCodec:
    """Make the codec of a parsed schema. Raises InvalidText."""
    try:
        return ProtobufCodec([*parsed.imported, parsed.file])
    except (TypeError, ValueError, KeyError) as error:
        raise InvalidText(str(error)[:500]) from None


class _Budget:
    """Limit of the number of fields in a decoded message."""

    def __init__(self, left: int) -> None:
        self._left, self._give_way = left, paced()

    def spend(self, message: Message) -> None:
        """Count the fields of a message, nested messages included. Raises BadData if the limit is exceeded."""
        self._give_way()
        self._take(1 + len(message.DESCRIPTOR.fields))
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

    def _take(self, count: int) -> None:
        self._left -= count
        if self._left < 0:
            raise BadData("The message has too many fields for its size")
