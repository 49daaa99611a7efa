"""Frames and the asking end of a connection."""

import pytest

from ottla.wire.connection import ClientConnection, FrameReader
from ottla.wire.errors import ProtocolViolation
from ottla.wire.headers import decode_request_header, encode_response_header, request_header_version
from ottla.wire.schema import Int32, Message, Records, String, field


class EchoRequest(Message, key=900, versions="0-1", flexible="1+"):
    text: str = field(String)
    records: bytes | memoryview | None = field(Records, nullable="0+", default=None)


class EchoResponse(Message, key=900, versions="0-1", flexible="1+"):
    text: str = field(String)
    count: int = field(Int32, default=0)


def frame(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


def frames_of(reader: FrameReader) -> list[bytes]:
    found = []
    while (position := reader.next_frame()) is not None:
        found.append(reader.buffer[position[0] : position[1]])
    return found


@pytest.mark.parametrize("step", [1, 2, 3, 7, 1000])
def test_frames_come_out_whole_however_they_arrive(step: int) -> None:
    bodies = [b"", b"one", b"x" * 300, b"", b"last"]
    stream = b"".join(map(frame, bodies))
    reader = FrameReader()
    found = []
    for start in range(0, len(stream), step):
        reader.receive(stream[start : start + step])
        found += frames_of(reader)
    assert found == bodies
    assert reader.next_frame() is None


def test_views_of_a_frame_survive_later_frames() -> None:
    reader = FrameReader()
    reader.receive(frame(b"first") + b"\0")
    start, end = reader.next_frame() or (0, 0)
    view = memoryview(reader.buffer)[start:end]
    reader.receive(frame(b"second")[1:])
    assert frames_of(reader) == [b"second"]
    assert view == b"first"


@pytest.mark.parametrize("size", [-1, -(1 << 31), 101, (1 << 31) - 1])
def test_frame_of_an_impossible_size_is_refused_at_once(size: int) -> None:
    reader = FrameReader(frame_bytes_max=100)
    reader.receive(size.to_bytes(4, "big", signed=True))
    with pytest.raises(ProtocolViolation):
        reader.next_frame()


def answer(parts: list[bytes], *, correlation_id: int | None = None) -> bytes:
    """What a server says to one request: the text again."""
    reader = FrameReader()
    reader.receive(b"".join(parts))
    (request,) = frames_of(reader)
    version = int.from_bytes(request[2:4], "big")
    header, body = decode_request_header(request, 0, len(request), request_header_version(EchoRequest, version))
    assert header.client_id == "tester"
    text = EchoRequest.decode(request, version, body).text
    answered_id = header.correlation_id if correlation_id is None else correlation_id
    return frame(encode_response_header(answered_id, version) + EchoResponse(text=text).encode(version))


def test_responses_belong_to_requests_in_order() -> None:
    client = ClientConnection(client_id="tester")
    sent = [client.send(EchoRequest(text=f"request {version}"), version, EchoResponse) for version in (0, 1, 0)]
    assert client.expected_count == 3
    client.receive(b"".join(map(answer, sent)))
    assert [client.next_response() for _ in range(4)] == [
        EchoResponse(text="request 0"),
        EchoResponse(text="request 1"),
        EchoResponse(text="request 0"),
        None,
    ]
    assert client.expected_count == 0


def test_records_are_sent_without_a_copy() -> None:
    records = memoryview(b"batch")
    parts = ClientConnection().send(EchoRequest(text="", records=records), 0, None)
    assert any(part is records for part in parts)


def test_request_without_answer_expects_none() -> None:
    client = ClientConnection(client_id="tester")
    unanswered = client.send(EchoRequest(text="a"), 0, None)
    client.receive(answer(client.send(EchoRequest(text="b"), 0, EchoResponse)))
    assert client.next_response() == EchoResponse(text="b")
    client.receive(answer(unanswered))
    with pytest.raises(ProtocolViolation):
        client.next_response()


def test_wrong_correlation_id_is_refused() -> None:
    client = ClientConnection(client_id="tester")
    client.receive(answer(client.send(EchoRequest(text="b"), 0, EchoResponse), correlation_id=77))
    with pytest.raises(ProtocolViolation):
        client.next_response()
