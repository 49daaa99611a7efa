"""The codec of a (class, version): made once, when it is first asked for."""

from __future__ import annotations

import io
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ottla.wire.errors import ErrorCode, KafkaError, ProtocolViolation

if TYPE_CHECKING:
    from ottla.wire.schema import Struct


def decoder(cls: type[Struct], version: int) -> Callable[..., Any]:
    read = prefix_decoder(cls, version)
    return lambda buffer, start, end: read(buffer, start, end)[0]


def prefix_decoder(cls: type[Struct], version: int) -> Callable[..., Any]:
    import construct

    if version not in cls.versions:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"{cls.__name__} has no version {version}")
    plain = cls.construct(version)

    def read(buffer: bytes | bytearray, start: int, end: int) -> tuple[Any, int]:
        stream = io.BytesIO(bytes(buffer[start:end]))
        try:
            return plain.parse_stream(stream), start + stream.tell()
        except (construct.ConstructError, struct.error) as error:
            raise ProtocolViolation(f"{cls.__name__} v{version}: {error}") from None

    return read


def encoder(cls: type[Struct], version: int) -> Callable[..., Any]:
    if version not in cls.versions:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"{cls.__name__} has no version {version}")
    plain = cls.construct(version)
    return lambda obj, append: append(plain.build(obj))
