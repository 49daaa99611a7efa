"""Asks a broker with Ottla's own messages; kafka-python, which `raw.py` uses, has none of those between brokers."""

from typing import Any

from compat_tests.support.raw import Peer, frame, header

from ottla.server.dispatch.dispatch import response_class_of
from ottla.wire.messages.api_versions import ApiVersionsRequest
from ottla.wire.schema import Message


class Asking:
    """A connection to one listener."""

    def __init__(self, port: int) -> None:
        self._peer = Peer(("127.0.0.1", port))

    def ask(self, request: Message, version: int) -> Any:
        """The answer to a request."""
        is_flexible = version in type(request).flexible
        head = header(type(request).api_key, version) + (b"\0" if is_flexible else b"")
        self._peer.send(frame(head + request.encode(version)))
        payload = self._peer.receive()
        assert payload is not None, f"no answer to {request} v{version}"
        start = 5 if is_flexible and type(request) is not ApiVersionsRequest else 4
        return response_class_of(type(request)).decode(payload[start:], version)

    def close(self) -> None:
        self._peer.__exit__()
