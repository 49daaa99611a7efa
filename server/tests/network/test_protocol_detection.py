"""What is said of peers that speak something else, or what this listener does not: in the log, and to browsers."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from ottla.server.api.handlers.sasl import sasl_authenticate, sasl_handshake
from ottla.server.dispatch.context import RequestContext
from ottla.server.dispatch.dispatch import all_routes, api_name
from ottla.server.network.calls import Calls
from ottla.server.network.inbox import Inbox, ReceiveBuffers
from ottla.server.network.listener_context import Complaints
from ottla.server.network.protocol_detection import HTTP_ANSWER, WrongProtocol
from ottla.server.network.readiness import Readiness
from ottla.server.tests.network.test_authentication import Client, Served
from ottla.server.tests.network.test_connection import Peer, calls, heartbeat, peer, scripted  # noqa: F401 - fixtures
from ottla.wire.errors import ErrorCode, ProtocolViolation
from ottla.wire.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

GET = b"GET / HTTP/1.1\r\nHost: localhost:9092\r\n\r\n"
HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"


async def all_from(end: Peer) -> bytes:
    received = b""
    while data := await end.stream.receive_some(65536):
        received += data
    return received


async def test_a_browser_is_told_what_this_is(peer: Peer, caplog: pytest.LogCaptureFixture) -> None:  # noqa: F811
    await peer.send(GET)
    assert await all_from(peer) == HTTP_ANSWER
    assert (
        "closing the connection of 127.0.0.1 (client id '') to listener PLAINTEXT: the peer speaks HTTP" in caplog.text
    )
    head, _, body = HTTP_ANSWER.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ") and f"Content-Length: {len(body)}".encode() in head
    assert b"bootstrap.servers" in body


async def test_requests_before_it_are_answered(peer: Peer) -> None:  # noqa: F811
    await peer.send(heartbeat(1, 0) + b"HEAD / HTTP/1.1\r\n\r\n")
    assert await peer.frame() == b"\0\0\0\1\0\0\0\0\0\0"
    assert peer.received + await all_from(peer) == HTTP_ANSWER


async def test_tls_on_a_listener_without_is_named(peer: Peer, caplog: pytest.LogCaptureFixture) -> None:  # noqa: F811
    await peer.send(HELLO)
    assert await all_from(peer) == b""
    assert "the peer speaks TLS, and this listener speaks Kafka's protocol without TLS" in caplog.text


@pytest.fixture
async def stranger(nursery: trio.Nursery) -> AsyncIterator[Client]:
    client = Served({}).connect(nursery, Readiness())
    yield client
    await client.stream.aclose()


async def test_a_browser_at_a_listener_with_sasl_is_told_too(
    stranger: Client, caplog: pytest.LogCaptureFixture
) -> None:
    await stranger.send(GET)
    assert await all_from(stranger) == HTTP_ANSWER
    assert "failed authentication of 10.0.0.1: the peer speaks HTTP" in caplog.text


def test_the_same_is_told_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    complaints = Complaints("PLAINTEXT")
    for _ in range(3):
        complaints.close("10.0.0.1", "", str(WrongProtocol("TLS")))
        complaints.close("10.0.0.2", "", str(WrongProtocol("TLS")))
        complaints.close("10.0.0.2", "", str(WrongProtocol("HTTP")))
    assert len(caplog.records) == 3


@pytest.mark.parametrize(
    ("security_protocol", "is_misplaced"), [("PLAINTEXT", True), ("SSL", True), ("SASL_SSL", False)]
)
def test_sasl_on_a_listener_without_is_named(
    security_protocol: str, is_misplaced: bool, caplog: pytest.LogCaptureFixture
) -> None:
    context: RequestContext[Any] = RequestContext(
        None,
        client_id="shop",
        client_host="/10.0.0.1",
        security_protocol=security_protocol,
        complaints=Complaints("INSIDE"),
    )
    for _ in range(2):
        assert (
            sasl_handshake(SaslHandshakeRequest(mechanism="PLAIN"), context).error_code == ErrorCode.ILLEGAL_SASL_STATE
        )
        assert (
            sasl_authenticate(SaslAuthenticateRequest(auth_bytes=b""), context).error_code
            == ErrorCode.ILLEGAL_SASL_STATE
        )
    told = ["10.0.0.1 (client id 'shop') at listener INSIDE: it speaks SASL, and this listener does not"]
    assert [each.partition(";")[0] for each in caplog.messages] == (told if is_misplaced else [])


@given(st.binary(min_size=4, max_size=64))
def test_any_beginning_is_a_frame_or_refused(beginning: bytes) -> None:
    inbox = Inbox(ReceiveBuffers(), 1 << 23)
    inbox.buffer[: len(beginning)] = beginning
    inbox.end = len(beginning)
    try:
        frame = inbox.next_frame()
    except WrongProtocol as wrong:
        assert beginning[:2] == b"\x16\x03" or beginning[:4].isupper() or beginning[:4] in (b"GET ", b"PUT ", b"PRI ")
        assert wrong.protocol in str(wrong)
    except ProtocolViolation as violation:
        assert "a frame of" in str(violation)
    else:
        assert frame is None or frame[1] <= len(beginning)


def test_requests_are_named() -> None:
    assert (api_name(3), api_name(63), api_name(12345)) == ("Metadata", "BrokerHeartbeat", "of the unknown type 12345")
    served = Calls(all_routes())
    for api_key, words in ((63, "the request BrokerHeartbeat"), (-1, "of the unknown type -1")):
        with pytest.raises(ProtocolViolation, match=words):
            served.find(api_key, 0)
