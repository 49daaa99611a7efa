"""Frames put together by hand, for what no declaration can spell."""

import struct
from collections.abc import Callable
from typing import Any

from compat_tests.differential.conversation import CLOSED, Link, Talk

from ottla.server.dispatch.dispatch import response_class_of
from ottla.wire.headers import decode_response_header, response_header_version
from ottla.wire.schema import Message

Arrange = Callable[[Any], Any] | None  # as of `Link.receive`
CLIENT_ID = b"teller"
NO_TAGS = b"\x00"


def head(
    api_key: int,
    version: int,
    correlation_id: int = 1,
    client_id: bytes | None = CLIENT_ID,
    client_id_length: int | None = None,
    tags: bytes = b"",
) -> bytes:
    """A request header; `tags` is what a flexible version ends it with."""
    length = (-1 if client_id is None else len(client_id)) if client_id_length is None else client_id_length
    return struct.pack(">hhih", api_key, version, correlation_id, length) + (client_id or b"") + tags


def body_of(request: Message, version: int) -> bytes:
    return b"".join(bytes(part) for part in request.encode_parts(version))


def tags_of(request: Message | type[Message], version: int) -> bytes:
    """The end of this request's header if nothing is in it."""
    return NO_TAGS if version in request.flexible else b""


def frame(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


def whole(request: Message, version: int, *, body: bytes | None = None, **header: Any) -> bytes:
    """The frame of a request, whose body and header may be replaced."""
    header = {"tags": tags_of(request, version)} | header
    payload = body_of(request, version) if body is None else body
    return frame(head(request.api_key, version, **header) + payload)


def hear(talk: Talk, link: Link, label: str, request: type[Message], version: int, arrange: Arrange = None) -> bool:
    """Writes down the next frame of a link on which only bytes were sent; whether there was one."""
    data = link.receive_bytes()
    if data is None:
        talk.note(label, CLOSED)
        return False
    answer = response_class_of(request)
    correlation_id, position = decode_response_header(data, 0, len(data), response_header_version(answer, version))
    talk.note(f"{label}, correlation id", correlation_id)
    response = answer.decode(data, version, position, len(data))
    if arrange is not None:
        arrange(response)
    talk.note(label, response, answer, version)
    return True


def tell(talk: Talk, label: str, data: bytes, request: type[Message], version: int, arrange: Arrange = None) -> bool:
    """Sends bytes on a connection of their own and writes down what comes; whether it was an answer."""
    link = Link(talk, label)
    try:
        link.send_bytes(data)
        return hear(talk, link, label, request, version, arrange)
    finally:
        link.close()


def tagged(*fields: tuple[int, bytes]) -> bytes:
    """A tag section with these fields, as they come; numbers and sizes are below 128."""
    return bytes([len(fields)]) + b"".join(bytes([tag, len(data)]) + data for tag, data in fields)
