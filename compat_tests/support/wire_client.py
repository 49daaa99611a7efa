"""A blocking connection that speaks in Ottla's own message classes: for conversations with both brokers, and for benchmarks.

Whoever wants to share no code with the broker under test talks through `raw.Peer`.
"""

import socket
import struct
from collections import deque
from typing import Any, Self

from compat_tests.support import secrecy
from compat_tests.support.raw import receive_frame

from ottla.server.dispatch.dispatch import response_class_of
from ottla.wire.errors import ProtocolViolation
from ottla.wire.headers import (
    RequestHeader,
    decode_response_header,
    encode_request_header,
    request_header_version,
    response_header_version,
)
from ottla.wire.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from ottla.wire.schema import Message


def encode_frame(request: Message, version: int, correlation_id: int, client_id: str | None) -> bytes:
    """A whole request, with its length in front."""
    header = RequestHeader(request.api_key, version, correlation_id, client_id)
    body = encode_request_header(header, request_header_version(type(request), version)) + request.encode(version)
    return struct.pack(">i", len(body)) + body


def decode_response(buffer: bytes, answer_class: type[Message], version: int, start: int = 0) -> tuple[int, Message]:
    """The correlation id and the message of a response that begins at `start`, behind its length."""
    header_version = response_header_version(answer_class, version)
    correlation_id, body = decode_response_header(buffer, start, len(buffer), header_version)
    return correlation_id, answer_class.decode(buffer, version, body, len(buffer))


class WireClient:
    """One connection. Several requests may be on their way; their answers come in order."""

    def __init__(self, address: tuple[str, int], *, client_id: str, timeout_s: float = 60) -> None:
        self.client_id = client_id
        self.socket = socket.create_connection(address, timeout=timeout_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._last_correlation_id = 0
        self._expected: deque[tuple[int, type[Message], int]] = deque()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    def log_in(self, user: str, password: str) -> None:
        """By SASL/PLAIN, on a listener that speaks it."""
        answer = self.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        assert not answer.error_code, answer
        answer = self.ask(SaslAuthenticateRequest(auth_bytes=f"\0{user}\0{password}".encode()), 2)
        assert not answer.error_code, answer

    def send(self, request: Message, version: int, *, answered: bool = True) -> None:
        """`answered` is False where the protocol has no answer (Produce with acks=0)."""
        self._last_correlation_id += 1
        self.socket.sendall(encode_frame(request, version, self._last_correlation_id, self.client_id))
        if answered:
            self._expected.append((self._last_correlation_id, response_class_of(type(request)), version))

    def receive(self) -> Any:
        """The answer to the oldest request that waits for one; None if the broker closes the connection instead."""
        payload = receive_frame(self.socket)
        if payload is None:
            return None
        assert not (told := secrecy.told(payload)), f"the broker tells {told}"
        expected_id, answer_class, version = self._expected.popleft()
        correlation_id, response = decode_response(payload, answer_class, version)
        if correlation_id != expected_id:
            raise ProtocolViolation(f"a response to request {correlation_id}, where {expected_id} was expected")
        return response

    def ask(self, request: Message, version: int) -> Any:
        """Send a request and wait for its answer."""
        self.send(request, version)
        response = self.receive()
        if response is None:
            raise ConnectionError(f"the broker closed the connection on {type(request).__name__} v{version}")
        return response
