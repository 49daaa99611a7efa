"""A request that a client sent, with its answer. Messages are decoded when they are asked for."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from ottla.server.testing.errors import LabError, shown
from ottla.server.testing.wire_tap.kafka_names import FETCH_KEY, api_name, error_name, messages_of
from ottla.server.testing.wire_tap.skeletons import Kept
from ottla.server.testing.wire_tap.subjects import NameOf, Place, groups_in, places_in
from ottla.wire.errors import KafkaError, ProtocolViolation
from ottla.wire.headers import (
    decode_request_header,
    decode_response_header,
    request_header_version,
    response_header_version,
)
from ottla.wire.schema import Message, Struct

API_VERSIONS_KEY = 18
SASL_TOKEN_KEY = -1
"""In place of an api key: bytes of a SASL mechanism after SaslHandshake version 0, which have no header."""

_ERROR_FIELDS = ("error_code", "partition_error_code")
PLACES_SHOWN = 3


class WireConnection:
    """A client's connection to a broker."""

    __slots__ = ("address", "closed_ms", "is_of_broker", "node_id", "number", "opened_ms", "port")

    def __init__(self, number: int, node_id: int, address: tuple[str, int], port: int, opened_ms: float) -> None:
        self.number, self.node_id = number, node_id
        self.address = address
        """Host and port of the client."""
        self.port = port
        """Port of the broker."""
        self.opened_ms = opened_ms
        self.closed_ms: float | None = None
        """Time of the end by the broker's clock, ms since 1970; None while it is open."""
        self.is_of_broker = False
        """True if another broker of the cluster has opened it."""

    @property
    def peer(self) -> str:
        """Client's address, HOST:PORT."""
        return f"{self.address[0]}:{self.address[1]}"

    def __repr__(self) -> str:
        return f"connection {self.number} of {self.peer} to broker {self.node_id}"


class WireRequest:
    """A request of a client, and its answer.

    `request` and `response` are messages with Kafka's fields in snake_case. A message beyond 128 KiB has empty records;
    `left_out` tells how many bytes of records it had. It also has `version`, `client_id`, `correlation_id`, `size` and
    `answer_size` in bytes, and `rule`: what a rule did to it, "" if none acted.
    """

    __slots__ = (
        "_answer",
        "_answer_offset",
        "_answered_ms",
        "_began_ms",
        "_decoded",
        "_frame",
        "_offset",
        "_topic_name",
        "answer_size",
        "api_key",
        "client_id",
        "connection",
        "correlation_id",
        "is_in_log",
        "number",
        "rule",
        "size",
        "version",
    )

    def __init__(
        self,
        connection: WireConnection,
        header: tuple[int, int, int, str | None],
        size: int,
        frame: bytes | Kept,
        began_ms: float,
        offset: int,
        topic_name: NameOf,
    ) -> None:
        """`topic_name` returns the name of a topic id, or None."""
        self.connection = connection
        self.api_key, self.version, self.correlation_id, self.client_id = header
        self.size = size
        """Bytes of the request, without the size field."""
        self._frame, self._began_ms, self._offset, self._topic_name = frame, began_ms, offset, topic_name
        self._answer: bytes | Kept | None = None
        self._answered_ms = 0.0
        self._decoded: Any = None  # the request, while many conditions look at it
        self.answer_size = 0
        """Bytes of the answer, without the size field; 0 while there is none."""
        self._answer_offset = 0
        self.number = 0
        """Position among all requests of this tap, from 1."""
        self.is_in_log = False
        self.rule = ""
        """Text of the rule that changed what happened; empty if none did."""

    def answered(self, size: int, answer: bytes | Kept, at_ms: float, offset: int) -> None:
        """Add the answer, as the client gets it."""
        self.answer_size, self._answer, self._answered_ms, self._answer_offset = size, answer, at_ms, offset

    # ------------------------------------------------------------------ what is known without decoding

    @property
    def api(self) -> str:
        """Kafka's name of the API, such as `Produce`."""
        return "SaslToken" if self.api_key == SASL_TOKEN_KEY else api_name(self.api_key)

    @property
    def time(self) -> float:
        """Arrival by the broker's clock, in seconds since 1970."""
        return self._began_ms / 1000

    @property
    def answer_time(self) -> float | None:
        """Departure of the answer in seconds since 1970; None while there is none."""
        return None if self._answer is None else self._answered_ms / 1000

    @property
    def duration(self) -> float | None:
        """Time from arrival to answer in seconds, by the brokers' clock; None while there is no answer."""
        return None if self._answer is None else (self._answered_ms - self._began_ms) / 1000

    @property
    def is_answered(self) -> bool:
        """True if the client got an answer."""
        return self._answer is not None

    @property
    def peer(self) -> str:
        """Client's address as HOST:PORT."""
        return self.connection.peer

    @property
    def node_id(self) -> int:
        """Id of the broker that got the request."""
        return self.connection.node_id

    @property
    def is_of_broker(self) -> bool:
        """True if another broker of the cluster sent it."""
        return self.connection.is_of_broker

    @property
    def kept_bytes(self) -> int:
        """Bytes of memory that the kept frames take."""
        return sum(len(_bytes_of(each)) for each in (self._frame, self._answer) if each is not None)

    @property
    def left_out(self) -> int:
        """Number of bytes of records that were not kept, of request and answer."""
        return sum(cut.skipped for each in (self._frame, self._answer) if isinstance(each, Kept) for cut in each.cuts)

    @property
    def raw_request(self) -> bytes | Kept:
        """Bytes that were kept of the request."""
        return self._frame

    @property
    def raw_response(self) -> bytes | Kept | None:
        """Bytes that were kept of the answer; None while there is none."""
        return self._answer

    @property
    def offsets(self) -> tuple[int, int]:
        """Positions of the request and of the answer in the connection's two streams of bytes."""
        return self._offset, self._answer_offset

    # ------------------------------------------------------------------ decoded

    @property
    def request(self) -> Any:
        """Decoded request. Raises LabError if it cannot be decoded."""
        if self._decoded is not None:
            return self._decoded
        cls = self._messages()[0]
        version = self.format_of(cls)
        frame = self._decodable(self._frame, "request")
        try:
            _, start = decode_request_header(frame, 0, len(frame), request_header_version(cls, version))
            return cls.decode(frame, version, start)
        except (ProtocolViolation, KafkaError) as error:
            raise LabError(f"The request {self.api} v{self.version} cannot be decoded: {error}.") from None

    @property
    def response(self) -> Any:
        """Decoded answer; None while there is none. Raises LabError if it cannot be decoded."""
        return None if self._answer is None else self.decode_answer(self._decodable(self._answer, "answer"))

    @contextlib.contextmanager
    def decoded_once(self) -> Iterator[None]:
        """Decode the request once for all who ask within this block."""
        with contextlib.suppress(LabError):
            self._decoded = self.request
        try:
            yield
        finally:
            self._decoded = None

    def decode_answer(self, frame: bytes) -> Any:
        """Decode an answer to this request, given without its size field. Raises LabError if that is impossible."""
        cls = self._messages()[1]
        version = self.format_of(cls)
        try:
            _, start = decode_response_header(frame, 0, len(frame), response_header_version(cls, version))
            return cls.decode(frame, version, start)
        except (ProtocolViolation, KafkaError) as error:
            raise LabError(f"The answer to {self.api} v{self.version} cannot be decoded: {error}.") from None

    @property
    def errors(self) -> tuple[str, ...]:
        """Errors in the answer by Kafka's names, each once."""
        try:
            response = self.response
        except LabError:
            return ()
        return () if response is None else tuple(dict.fromkeys(map(error_name, _error_codes(response))))

    @property
    def name_of(self) -> NameOf:
        """Function that returns the name of a topic id, None if the tap does not know it."""
        return self._topic_name

    @property
    def places(self) -> tuple[Place, ...]:
        """Partitions that the request is about, as (topic, partition), each once; None in place of a partition: the whole topic.

        Those of a Fetch include those of its answer, because a fetch session names each partition only once.
        """
        places: dict[Place, None] = {}
        with contextlib.suppress(LabError):
            places = dict.fromkeys(places_in(self.request, self._topic_name))
            if self.api_key == FETCH_KEY and self.is_answered:
                places |= dict.fromkeys(places_in(self.response, self._topic_name))
        return tuple(places)

    @property
    def groups(self) -> tuple[str, ...]:
        """Groups that the request is about, each once."""
        try:
            return groups_in(self.api_key, self.request)
        except LabError:
            return ()

    def _messages(self) -> tuple[type[Message], type[Message]]:
        messages = messages_of(self.api_key)
        if messages is None:
            raise LabError(f"{self.api} has no messages that could be decoded.")
        return messages.request, messages.response

    def format_of(self, cls: type[Message]) -> int:
        """Return the version in which a request or an answer of this class is encoded."""
        # A version of ApiVersions that the broker does not know is answered in the first format.
        return 0 if self.api_key == API_VERSIONS_KEY and self.version not in cls.versions else self.version

    def _decodable(self, kept: bytes | Kept, which: str) -> bytes:
        if isinstance(kept, bytes):
            return kept
        if not kept.is_complete:
            size = self.size if which == "request" else self.answer_size
            raise LabError(
                f"The {which} {self.api} of {size:,} bytes was too long to be kept; set wire.keeps_records before it."
            )
        return kept.without_records()

    # ------------------------------------------------------------------ as a line

    def line(self) -> str:
        """Return the request and its outcome as a line of text."""
        clock = datetime.fromtimestamp(self.time).strftime("%H:%M:%S.%f")[:-3]
        who = f"{self.client_id or '-'}@{self.peer}"
        texts = [f"{topic}-{partition}" if partition is not None else topic for topic, partition in self.places]
        more = f" and {len(texts) - PLACES_SHOWN} more" if len(texts) > PLACES_SHOWN else ""
        about = [", ".join(texts[:PLACES_SHOWN]) + more, *(f"group {each}" for each in self.groups)]
        what = " ".join(each for each in (f"{self.api} v{self.version}", *about) if each)
        rule = f" [{self.rule}]" if self.rule else ""
        told = f"{clock} broker {self.node_id} #{self.connection.number} {who} {what}: {self.size} B {self._outcome()}"
        return shown(told + rule)

    def _outcome(self) -> str:
        if self._answer is None:
            return "-> no answer"
        duration_ms = self._answered_ms - self._began_ms
        errors = f" {', '.join(self.errors)}" if self.errors else ""
        return f"-> {self.answer_size} B in {duration_ms:.1f} ms{errors}"

    def __repr__(self) -> str:
        return f"<{self.line()}>"


def _bytes_of(kept: bytes | Kept) -> bytes:
    return kept if isinstance(kept, bytes) else kept.data


def _error_codes(message: Struct) -> Iterator[int]:
    for name in message.wire_fields:
        value = getattr(message, name)
        if name in _ERROR_FIELDS and value:
            yield value
        for each in value if isinstance(value, list) else (value,):
            if isinstance(each, Struct):
                yield from _error_codes(each)
