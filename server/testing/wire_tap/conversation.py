"""Machine of one connection that listens: cuts both streams into frames and matches answers to requests.

Kafka answers a connection's requests in their order, and a Produce with acks=0 not at all. Bytes of a peer that does not speak
Kafka, or whose answers do not fit its requests, are not looked at any more (`is_foreign`); they pass as they are.

After SaslHandshake version 0 the tokens of the mechanism have no header. They are frames all the same, each with an answer.
"""

from __future__ import annotations

import struct
from collections import deque
from typing import Any, Protocol

from ottla.server.testing.wire_tap.frames import WHOLE_BYTES_MAX, FrameCutter, NotKafka
from ottla.server.testing.wire_tap.kafka_names import BETWEEN_BROKERS, is_known, messages_of
from ottla.server.testing.wire_tap.skeletons import FrameHead, Kept, Sink, Skeleton, WholeFrame, plan_of
from ottla.server.testing.wire_tap.topic_names import METADATA_KEY, TopicNames
from ottla.server.testing.wire_tap.wire_request import SASL_TOKEN_KEY, WireConnection, WireRequest
from ottla.wire.errors import ProtocolViolation
from ottla.wire.headers import CONTROLLED_SHUTDOWN_KEY, skip_tagged_fields
from ottla.wire.runtime import read_varint
from ottla.wire.text import JAVA_REPLACE

PRODUCE_KEY, SASL_HANDSHAKE_KEY = 0, 17
KEPT_BYTES_MAX = 1024 * 1024
"""Frames without records up to this size are kept."""

OPEN_MAX = 100_000
"""Unanswered requests that are matched; a peer that sends more is not looked at any more."""

_HEAD_BYTES, _ANSWER_HEAD_BYTES = 8, 4
_FLEXIBLE_PRODUCE, _PRODUCE_WITH_TRANSACTIONS = 9, 3
_BROKER_CLIENTS = ("share-state", "share-state-sender", "end-offsets")
_fixed_header = struct.Struct(">hhi").unpack_from
_int16, _int32 = struct.Struct(">h").unpack_from, struct.Struct(">i").unpack_from


class Tap(Protocol):
    """Interface of the tap to its connections."""

    keeps_records: bool
    """True if frames are kept with their records, whatever their size."""
    topics: TopicNames

    def clock_ms(self) -> float:
        """Return the broker's time in milliseconds since 1970."""

    def note_request(self, request: WireRequest, kept_bytes: int) -> None:
        """Add a request to the log."""

    def note_answer(self, request: WireRequest, kept_bytes: int) -> None:
        """Count the answer of a request that is in the log."""


class Conversation:
    """Both directions of one connection, as they pass by."""

    def __init__(self, connection: WireConnection, tap: Tap) -> None:
        self.connection = connection
        self.is_foreign = False
        """True if the peer does not speak Kafka: nothing is looked at any more."""
        self._tap = tap
        self._now_ms = connection.opened_ms
        self._from_client = FrameCutter(_HEAD_BYTES, self._on_request, self._begin_request, self._end_request)
        self._from_broker = FrameCutter(_ANSWER_HEAD_BYTES, self._on_answer, self._begin_answer, self._end_answer)
        self._awaited: deque[WireRequest] = deque()  # by the broker's answers, in their order
        self._takes_tokens = False
        self._last_client: tuple[bytes, str] = (b"", "")

    # ------------------------------------------------------------------ bytes that pass by

    def heard(self, data: Any, count: int) -> None:
        """Look at the first `count` bytes of a buffer, which go from the client to the broker."""
        if not self.is_foreign:
            self._now_ms = self._tap.clock_ms()
            try:
                self._from_client.feed(data, count)
            except NotKafka:
                self.is_foreign = True

    def said(self, data: Any, count: int) -> None:
        """Look at the first `count` bytes of a buffer, which go from the broker to the client."""
        if not self.is_foreign:
            self._now_ms = self._tap.clock_ms()
            try:
                self._from_broker.feed(data, count)
            except NotKafka:
                self.is_foreign = True

    def said_unseen(self, count: int) -> None:
        """Count bytes of the current answer that go from a file to the client; ask `needs_bytes` before."""
        if not self.is_foreign:
            self._now_ms = self._tap.clock_ms()
            self._from_broker.skip(count)

    def end(self) -> None:
        """Note that the connection is closed."""
        self.connection.closed_ms = self._tap.clock_ms()

    @property
    def needs_bytes(self) -> bool:
        """True if the next bytes of the broker have to be given to `said`."""
        return not self.is_foreign and self._from_broker.needs_bytes

    # ------------------------------------------------------------------ requests

    def _on_request(self, frame: bytes) -> None:
        self._expect(self._note(len(frame), frame, self._from_client.offset))

    def _begin_request(self, size: int, head: bytes) -> Sink:
        if len(head) < _HEAD_BYTES:
            if not self._takes_tokens:
                raise NotKafka(f"a request of {size} bytes")
            return WholeFrame()
        api_key, version, _ = _fixed_header(head)
        if not is_known(api_key) and not self._takes_tokens:
            raise NotKafka(f"a request of type {api_key}")
        return self._sink(size, api_key, version, is_request=True)

    def _end_request(self, size: int, sink: Sink) -> None:
        self._expect(self._note(size, sink.kept(), self._from_client.offset))

    def _note(self, size: int, kept: bytes | Kept, offset: int) -> WireRequest:
        """Add a request to the log. Raises NotKafka if it is none."""
        known = kept if isinstance(kept, bytes) else kept.prefix
        header = self._header(known)
        request = WireRequest(self.connection, header, size, kept, self._now_ms, offset, self._tap.topics.name)
        self._tap.note_request(request, len(known))
        return request

    def _header(self, frame: bytes) -> tuple[int, int, int, str | None]:
        api_key, version, correlation_id = _fixed_header(frame) if len(frame) >= _HEAD_BYTES else (SASL_TOKEN_KEY, 0, 0)
        if not is_known(api_key):
            if not self._takes_tokens:
                raise NotKafka(f"a request of type {api_key}")
            return SASL_TOKEN_KEY, 0, 0, None
        if api_key == CONTROLLED_SHUTDOWN_KEY and version == 0:
            return api_key, version, correlation_id, None
        self._takes_tokens = api_key == SASL_HANDSHAKE_KEY and version == 0
        if api_key in BETWEEN_BROKERS:
            self.connection.is_of_broker = True
        return api_key, version, correlation_id, self._client_id(frame)

    def _client_id(self, frame: bytes) -> str | None:
        if len(frame) < _HEAD_BYTES + 2:
            raise NotKafka("a request without a client id")
        (length,) = _int16(frame, _HEAD_BYTES)
        if length < 0:
            return None
        raw = frame[_HEAD_BYTES + 2 : _HEAD_BYTES + 2 + length]
        if raw != self._last_client[0]:
            self._last_client = raw, raw.decode("utf-8", JAVA_REPLACE)
            self.connection.is_of_broker |= _is_client_of_broker(self._last_client[1])
        return self._last_client[1]

    def _expect(self, request: WireRequest) -> None:
        if expects_answer(request):
            if len(self._awaited) >= OPEN_MAX:
                raise NotKafka("too many requests without answers")
            self._awaited.append(request)

    def _sink(self, size: int, api_key: int, version: int, *, is_request: bool) -> Sink:
        messages = messages_of(api_key)
        has_records = messages is not None and (
            messages.records_in_request if is_request else messages.records_in_response
        )
        if self._tap.keeps_records or size <= (WHOLE_BYTES_MAX if has_records else KEPT_BYTES_MAX):
            return WholeFrame()
        if messages is None or not has_records:
            return FrameHead()
        cls = messages.request if is_request else messages.response
        try:
            return Skeleton(plan_of(cls, version, is_request=is_request), size, is_compact=version in cls.flexible)
        except ValueError:  # a version that Kafka does not have
            return FrameHead()

    # ------------------------------------------------------------------ answers

    def _on_answer(self, frame: bytes) -> None:
        self._check(frame)
        self._answered(self._awaited.popleft(), len(frame), frame, self._from_broker.offset)

    def _begin_answer(self, size: int, head: bytes) -> Sink:
        self._check(head)
        request = self._awaited[0]
        return self._sink(size, request.api_key, request.version, is_request=False)

    def _end_answer(self, size: int, sink: Sink) -> None:
        self._answered(self._awaited.popleft(), size, sink.kept(), self._from_broker.offset)

    def _check(self, head: bytes) -> None:
        if not self._awaited:
            raise NotKafka("an answer without a request")
        request = self._awaited[0]
        if request.api_key != SASL_TOKEN_KEY and (
            len(head) < _ANSWER_HEAD_BYTES or _int32(head)[0] != request.correlation_id
        ):
            raise NotKafka("an answer to another request")

    def _answered(self, request: WireRequest, size: int, kept: bytes | Kept, offset: int) -> None:
        request.answered(size, kept, self._now_ms, offset)
        if request.api_key == METADATA_KEY:
            self._tap.topics.note(request)
        self._tap.note_answer(request, len(kept if isinstance(kept, bytes) else kept.data))


def _is_client_of_broker(client_id: str) -> bool:
    """True for the client ids that brokers use for each other, such as broker-2-fetcher-0."""
    first, _, rest = client_id.partition("-")
    return client_id in _BROKER_CLIENTS or (first == "broker" and rest.partition("-")[0].isdigit() and "-" in rest)


def expects_answer(request: WireRequest) -> bool:
    """False for a Produce with acks=0, which gets no answer."""
    if request.api_key != PRODUCE_KEY:
        return True
    kept = request.raw_request
    frame, version = kept if isinstance(kept, bytes) else kept.prefix, request.version
    try:
        position = _HEAD_BYTES + 2 + max(0, _int16(frame, _HEAD_BYTES)[0])
        if version >= _FLEXIBLE_PRODUCE:
            position = skip_tagged_fields(frame, position, len(frame))
            length, position = read_varint(frame, position)
            position += max(0, length - 1)
        elif version >= _PRODUCE_WITH_TRANSACTIONS:
            position += 2 + max(0, _int16(frame, position)[0])
        return bool(_int16(frame, position)[0] != 0)
    except (struct.error, IndexError, ProtocolViolation):
        return True  # the broker closes the connection, or the frame is too long to tell
