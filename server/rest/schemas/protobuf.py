"""Values of Protobuf: from their JSON mapping to the binary form and back, by Protobuf's own library.

A value that is written is of the first message of the schema's file; a reader finds the message by the path in front of it. As
Confluent's converter does, fields without presence are shown with their defaults.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from google.protobuf import json_format, message_factory
from google.protobuf.message import EncodeError

from ottla.server.admin.console.protobuf_values import BadMessage, Messages
from ottla.server.registry.schemas.format import InvalidText
from ottla.server.rest.schemas.codec import BadData
from ottla.server.rest.schemas.framing import FIRST_MESSAGE

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
        self._messages = Messages(files)
        self._first = self._messages.first
        self.name = None if self._first is None else str(self._first.full_name)

    def encode(self, data: Any) -> bytes:
        if self._first is None:
            raise BadData("The schema defines no message")
        if not isinstance(data, dict) and not str(self.name).startswith(_OWN_FORMS):
            raise BadData(f"Expect message object but got: {str(data)[:100]}")
        message = message_factory.GetMessageClass(self._first)()
        try:
            json_format.ParseDict(data, message, descriptor_pool=self._messages.pool)
            body: bytes = message.SerializeToString(deterministic=True)
        except (json_format.Error, EncodeError, TypeError, ValueError, AttributeError, RecursionError) as error:
            raise BadData(str(error)[:500] or type(error).__name__) from None
        return FIRST_MESSAGE + body

    def decode(self, data: memoryview) -> Any:
        try:
            return self._messages.decode(data, FIELDS_FREE + FIELDS_PER_BYTE * len(data))
        except BadMessage as error:
            raise BadData(str(error)) from None


def codec_of(parsed: ProtobufSchema) -> ProtobufCodec:
    """Make the codec of a parsed schema. Raises InvalidText."""
    try:
        return ProtobufCodec([*parsed.imported, parsed.file])
    except (TypeError, ValueError, KeyError) as error:
        raise InvalidText(str(error)[:500]) from None
