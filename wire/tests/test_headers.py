"""Request and response headers, their versions, and the exceptions."""

import pytest

from ottla.wire.errors import ProtocolViolation
from ottla.wire.headers import (
    RequestHeader,
    decode_request_header,
    decode_response_header,
    encode_request_header,
    encode_response_header,
    request_header_version,
    response_header_version,
)
from ottla.wire.schema import Message


class ListThingsRequest(Message, key=901, versions="0-3", flexible="2+"):
    pass


class ControlledShutdownRequest(Message, key=7, versions="0-3", flexible="3+"):
    pass


class ApiVersionsResponse(Message, key=18, versions="0-4", flexible="3+"):
    pass


def test_flexible_versions_have_tagged_headers() -> None:
    assert [request_header_version(ListThingsRequest, version) for version in range(4)] == [1, 1, 2, 2]
    assert [response_header_version(ListThingsRequest, version) for version in range(4)] == [0, 0, 1, 1]


def test_controlled_shutdown_v0_has_no_client_id() -> None:
    assert [request_header_version(ControlledShutdownRequest, version) for version in range(4)] == [0, 1, 1, 2]


def test_api_versions_response_never_has_a_tagged_header() -> None:
    assert {response_header_version(ApiVersionsResponse, version) for version in range(5)} == {0}


@pytest.mark.parametrize("client_id", [None, "", "kühn", "x" * 32767])
@pytest.mark.parametrize("header_version", [1, 2])
def test_request_header_round_trip_within_a_longer_buffer(client_id: str | None, header_version: int) -> None:
    header = RequestHeader(18, 3, -7, client_id)
    encoded = encode_request_header(header, header_version)
    buffer = bytearray(b"zz" + encoded + b"body")
    assert decode_request_header(buffer, 2, len(buffer), header_version) == (header, 2 + len(encoded))


def test_request_header_v2_keeps_the_classic_client_id() -> None:
    assert encode_request_header(RequestHeader(1, 12, 5, "ab"), 2) == bytes.fromhex("0001000c0000000500026162" + "00")


def test_request_header_v0_ends_after_the_correlation_id() -> None:
    header = RequestHeader(7, 0, 9)
    assert decode_request_header(encode_request_header(header, 0) + b"\0\5", 0, 10, 0) == (header, 8)


def test_unknown_tagged_fields_of_a_header_are_skipped() -> None:
    encoded = encode_request_header(RequestHeader(1, 12, 5, "ab"), 1) + bytes([2, 0, 1, 65, 200, 1, 0])
    assert decode_request_header(encoded, 0, len(encoded), 2)[1] == len(encoded)


@pytest.mark.parametrize("header_version", [0, 1, 2])
def test_truncated_request_header_is_refused_even_if_the_buffer_goes_on(header_version: int) -> None:
    encoded = encode_request_header(RequestHeader(1, 12, 5, "ab"), header_version)
    for end in range(len(encoded)):
        with pytest.raises(ProtocolViolation):
            decode_request_header(encoded + bytes(50), 0, end, header_version)
        with pytest.raises(ProtocolViolation):
            decode_request_header(encoded[:end], 0, end, header_version)


@pytest.mark.parametrize(
    "tagged_fields",
    [
        b"\x01\x00\x05abc",  # longer than what is left
        b"\x01\x00\xff\xff\xff\xff\x0f",  # of negative size
        b"\x80\x80\x80\x80\x80\x00",  # a varint of six bytes
        b"\xff\xff\xff\xff\x07" + b"\0" * 100,  # two billion fields
    ],
)
def test_lying_tagged_fields_are_refused(tagged_fields: bytes) -> None:
    encoded = encode_request_header(RequestHeader(1, 12, 5, "ab"), 1) + tagged_fields
    with pytest.raises(ProtocolViolation):
        decode_request_header(encoded, 0, len(encoded), 2)


def test_negative_number_of_tagged_fields_is_none_as_in_java() -> None:
    encoded = encode_request_header(RequestHeader(1, 12, 5, "ab"), 1) + b"\xff\xff\xff\xff\x0f"
    assert decode_request_header(encoded, 0, len(encoded), 2)[1] == len(encoded)


@pytest.mark.parametrize("header_version", [0, 1])
def test_response_header_round_trip(header_version: int) -> None:
    encoded = encode_response_header(123456, header_version)
    assert decode_response_header(b"z" + encoded + b"body", 1, 99, header_version) == (123456, 1 + len(encoded))
    with pytest.raises(ProtocolViolation):
        decode_response_header(encoded + b"body", 0, len(encoded) - 1, header_version)
