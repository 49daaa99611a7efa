"""The client's protocol, without sockets: requests out, responses in, and whatever a stranger may send in their place."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.server.testing.client.conversation import Conversation, UnsupportedVersion
from ottla.wire.errors import ErrorCode, ProtocolViolation
from ottla.wire.headers import decode_request_header, encode_response_header
from ottla.wire.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from ottla.wire.messages.fetch import FetchRequest
from ottla.wire.messages.metadata import MetadataRequest, MetadataResponse


def frame(correlation_id: int, response: object, version: int, header_version: int) -> bytes:
    body = encode_response_header(correlation_id, header_version) + b"".join(map(bytes, response.encode_parts(version)))  # type: ignore[attr-defined]
    return struct.pack(">i", len(body)) + body


def metadata(correlation_id: int) -> bytes:
    response = MetadataResponse(brokers=[], controller_id=correlation_id, topics=[])
    return frame(correlation_id, response, 12, 1)


@given(st.lists(st.integers(1, 40), max_size=20))
def test_responses_are_cut_from_any_pieces(sizes: list[int]) -> None:
    conversation = Conversation("me")
    for name in ("first", "second"):
        sent = conversation.ask(MetadataRequest(topics=None), 12, name)
    header, _ = decode_request_header(sent, 4, len(sent), 2)
    assert header == (3, 12, 2, "me")
    data, found = metadata(1) + metadata(2), []
    for size in [*sizes, len(data)]:
        found += list(conversation.receive(data[:size]))
        data = data[size:]
    assert [(name, response.controller_id) for name, response in found] == [("first", 1), ("second", 2)]
    assert len(conversation) == 0


@given(st.binary(max_size=200))
def test_anything_else_is_a_violation_or_waited_for(data: bytes) -> None:
    conversation = Conversation(None)
    conversation.ask(MetadataRequest(topics=None), 12)
    conversation.ask(ApiVersionsRequest(), 3)
    try:
        list(conversation.receive(data))
        list(conversation.receive(struct.pack(">i", 12) + b"\0\0\0\1" + data[:8].ljust(8, b"\xff")))
    except ProtocolViolation:
        pass


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"HTTP/1.1 400 Bad Request", "is not the begin of a response"),
        (metadata(7), "a response to request 7, not to 1"),
    ],
)
def test_what_is_wrong_is_named(data: bytes, words: str) -> None:
    conversation = Conversation("me")
    conversation.ask(MetadataRequest(topics=None), 12)
    with pytest.raises(ProtocolViolation, match=words):
        list(conversation.receive(data))
    with pytest.raises(ProtocolViolation, match="a response to nothing"):
        list(Conversation("me").receive(metadata(1)))


def test_versions_are_negotiated() -> None:
    conversation = Conversation("me")
    with pytest.raises(UnsupportedVersion, match="no version of Fetch that is wanted: none, not 0-18"):
        conversation.version_of(FetchRequest)
    conversation.ask(ApiVersionsRequest(), 3)
    served = ApiVersionsResponse(error_code=0, api_keys=[ApiVersion(api_key=1, min_version=4, max_version=30)])
    list(conversation.receive(frame(1, served, 3, 0)))
    assert conversation.version_of(FetchRequest) == 18
    assert conversation.version_of(FetchRequest, at_most=12) == 12
    with pytest.raises(UnsupportedVersion, match="4-30, not 0-3"):
        conversation.version_of(FetchRequest, at_most=3)


def test_a_broker_that_does_not_know_the_version_is_understood() -> None:
    conversation = Conversation("me")
    conversation.ask(ApiVersionsRequest(), 3, "asked")
    old = ApiVersionsResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[ApiVersion(api_key=18, min_version=0, max_version=2)]
    )
    [(name, response)] = conversation.receive(frame(1, old, 0, 0))
    assert (name, response.error_code) == ("asked", ErrorCode.UNSUPPORTED_VERSION)
    assert conversation.version_of(ApiVersionsRequest) == 2
