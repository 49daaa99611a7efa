"""One connection of a client, without input or output: bytes of requests out, responses from the bytes that come in.

    conversation = Conversation("billing")
    sock.sendall(conversation.ask(MetadataRequest(topics=None), version=12, context="mine"))
    for context, response in conversation.receive(sock.recv(65536)): ...

A broker answers in the order of the requests. Anything else that it sends raises ProtocolViolation, and the connection is of
no use then.
"""

import struct
from collections import deque
from collections.abc import Iterator
from typing import Any, NamedTuple

from ottla.server.peers.connection import Exchange, exchange_of
from ottla.wire.errors import ErrorCode, KafkaError, ProtocolViolation
from ottla.wire.headers import RequestHeader, decode_response_header, encode_request_header
from ottla.wire.limits import FRAME_BYTES_MAX
from ottla.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.wire.schema import Message, VersionRange

API_VERSIONS_VERSION = 3  # every broker since Kafka 2.4 understands it
_size = struct.Struct(">i")
_code = struct.Struct(">h")


class _Asked(NamedTuple):
    correlation_id: int
    exchange: Exchange
    request_class: type[Message]
    context: Any


class UnsupportedVersion(Exception):
    """Raised if the broker serves no version of a request that is wanted."""


class Conversation:
    """Requests of one connection and their responses. `client_id`: as in the headers of its requests."""

    def __init__(self, client_id: str | None) -> None:
        self.versions: dict[int, VersionRange] = {}
        """Versions that the broker serves, by api key; empty until it has answered ApiVersions."""

        self._client_id = client_id
        self._asked: deque[_Asked] = deque()
        self._received = bytearray()
        self._last_id = 0

    def __len__(self) -> int:
        """Number of requests that have no response yet."""
        return len(self._asked)

    def ask(self, request: Message, version: int, context: Any = None, *, has_answer: bool = True) -> bytes:
        """Return the bytes of a request. `context` comes back with its response; a Produce with acks=0 has none."""
        exchange = exchange_of(type(request), version)
        self._last_id = (self._last_id + 1) & 0x7FFFFFFF
        header = RequestHeader(exchange.api_key, version, self._last_id, self._client_id)
        parts: list[Any] = [b"", encode_request_header(header, exchange.request_header_version)]
        exchange.encode(request, parts.append)
        parts[0] = _size.pack(sum(map(len, parts)))
        if has_answer:
            self._asked.append(_Asked(self._last_id, exchange, type(request), context))
        return b"".join(parts)

    def receive(self, data: bytes | bytearray | memoryview) -> Iterator[tuple[Any, Any]]:
        """Take bytes that have arrived; yield the context and the response of each request that is answered by now."""
        received = self._received
        received += data
        while len(received) >= _size.size:
            (size,) = _size.unpack_from(received)
            if not 4 <= size <= FRAME_BYTES_MAX:
                raise ProtocolViolation(f"{bytes(received[:8])!r} is not the begin of a response")
            end = _size.size + size
            if len(received) < end:
                return
            frame = bytes(memoryview(received)[_size.size : end])
            del received[:end]
            yield self._answered(frame)

    def version_of(self, request_class: type[Message], at_most: int = 1000) -> int:
        """Return the newest version of a request, up to `at_most`, that the broker serves. Raises UnsupportedVersion."""
        ours, theirs = request_class.versions, self.versions.get(request_class.api_key)
        newest = ours.newest_common(theirs, at_most)
        if newest is not None:
            return newest
        name = request_class.__name__.removesuffix("Request")
        served = "none" if theirs is None else f"{theirs.first}-{theirs.last}"
        raise UnsupportedVersion(
            f"the broker serves no version of {name} that is wanted: {served}, not {ours.first}-{min(ours.last, at_most)}"
        )

    def _answered(self, frame: bytes) -> tuple[Any, Any]:
        if not self._asked:
            raise ProtocolViolation("a response to nothing")
        asked = self._asked.popleft()
        exchange = asked.exchange
        try:
            correlation_id, body = decode_response_header(frame, 0, len(frame), exchange.response_header_version)
            if correlation_id != asked.correlation_id:
                raise ProtocolViolation(f"a response to request {correlation_id}, not to {asked.correlation_id}")
            if asked.request_class is ApiVersionsRequest:
                return asked.context, self._take_versions(frame, body, exchange)
            return asked.context, exchange.decode(frame, body, len(frame))
        except (ValueError, IndexError, struct.error, KafkaError) as error:
            raise ProtocolViolation(f"a response that cannot be read: {error}") from None

    def _take_versions(self, frame: bytes, body: int, exchange: Exchange) -> ApiVersionsResponse:
        (code,) = _code.unpack_from(frame, body)
        if code == ErrorCode.UNSUPPORTED_VERSION:  # in the layout of the first version, whatever was asked
            response = ApiVersionsResponse.decode(frame, 0, body, len(frame))
        else:
            response = exchange.decode(frame, body, len(frame))
        self.versions = {each.api_key: VersionRange(each.min_version, each.max_version) for each in response.api_keys}
        return response
