"""A tap knows each request and its answer, however the bytes are cut, and leaves peers alone that speak something else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.server.testing.errors import LabError
from ottla.server.testing.wire_tap.frames import WHOLE_BYTES_MAX
from ottla.server.testing.wire_tap.tests.wire_talk import (
    Listening,
    answer,
    fetch,
    fetched,
    framed,
    produce,
    produced,
    request,
)
from ottla.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.wire.messages.classic_group import HeartbeatRequest, HeartbeatResponse
from ottla.wire.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseTopic,
)
from ottla.wire.messages.sasl import SaslHandshakeRequest, SaslHandshakeResponse

HEARTBEAT = HeartbeatRequest(group_id="payments", generation_id=1, member_id="m-1")
LARGE = b"r" * (WHOLE_BYTES_MAX + 1)
cuts = st.lists(st.integers(1, 300), max_size=20)


def test_a_request_and_its_answer_have_what_a_test_asks_for() -> None:
    tap = Listening()
    tap.hear(request(HEARTBEAT, 4, 9))
    (seen,) = tap.wire.requests()
    assert (seen.is_answered, seen.duration, seen.response, seen.errors) == (False, None, None, ())
    tap.clock.now_ms += 2.5
    tap.say(answer(HeartbeatResponse(error_code=27), 4, 9))
    assert (seen.api, seen.version, seen.correlation_id, seen.client_id) == ("Heartbeat", 4, 9, "billing")
    assert (seen.time, seen.duration, seen.errors) == (1000.0, 0.0025, ("REBALANCE_IN_PROGRESS",))
    assert (seen.request, seen.response) == (HEARTBEAT, HeartbeatResponse(error_code=27))
    assert (seen.node_id, seen.peer, seen.number, seen.size) == (
        0,
        "127.0.0.1:50001",
        1,
        len(request(HEARTBEAT, 4)) - 4,
    )
    told = (
        "broker 0 #1 billing@127.0.0.1:50001 Heartbeat v4 group payments: 37 B -> 12 B in 2.5 ms REBALANCE_IN_PROGRESS"
    )
    assert seen.line().partition(" ")[2] == told


def test_names_of_strangers_do_not_control_a_terminal() -> None:
    tap = Listening()
    tap.hear(
        request(
            HeartbeatRequest(group_id="\x1b[2J" + "g" * 5000, generation_id=1, member_id="m"), 4, client_id="a\r\nb"
        )
    )
    (line,) = tap.wire.lines()
    assert line.isprintable() and "a\\r\\nb@" in line and "group \\x1b[2Jg" in line and len(line) < 700


@given(cuts, cuts, st.sampled_from([b"r", LARGE]), st.sampled_from([7, 12, 13]))
def test_any_cut_is_the_same_conversation(asked: list[int], told: list[int], records: bytes, version: int) -> None:
    tap = Listening()
    places = (("orders", 0), ("orders", 1), ("audit", 200))
    requests = [produce(*places, records=records), HEARTBEAT, fetch(*places)]
    answers = [produced(*places), HeartbeatResponse(error_code=0), fetched(*places, records=records)]
    versions = [min(version, 12), 3, min(version, 12)]
    tap.hear(b"".join(request(each, v, n) for n, (each, v) in enumerate(zip(requests, versions, strict=True))), *asked)
    tap.say(b"".join(answer(each, v, n) for n, (each, v) in enumerate(zip(answers, versions, strict=True))), *told)
    seen = tap.wire.requests()
    assert [each.api for each in seen] == ["Produce", "Heartbeat", "Fetch"]
    assert [len(each.request.encode(each.version)) > 0 and each.is_answered for each in seen] == [True] * 3
    sizes = [len(request(each, v)) - 4 for each, v in zip(requests, versions, strict=True)]
    assert [each.size for each in seen] == sizes
    if records == LARGE:
        assert [seen[0].left_out, seen[2].left_out] == [3 * len(LARGE)] * 2
        assert seen[0].request == produce(*places, records=b"")
        assert seen[2].response == fetched(*places, records=b"")
    else:
        assert (seen[0].request, seen[2].response) == (requests[0], answers[2])
    assert tap.wire.saw("Produce", topic="audit", partition=200, acks=-1)
    assert not tap.wire.saw("Produce", topic="audit", partition=1)
    offsets = [0, 4 + sizes[0], 8 + sizes[0] + sizes[1]]
    assert [each.offsets[0] for each in seen] == offsets


def test_records_of_large_frames_are_kept_if_asked() -> None:
    tap = Listening()
    tap.wire.keeps_records = True
    message = produce(("orders", 0), records=LARGE)
    tap.hear(request(message, 9))
    (seen,) = tap.wire.requests()
    assert (seen.request, seen.left_out) == (message, 0)


def test_a_produce_without_acks_has_no_answer() -> None:
    for version in (2, 3, 9):
        for records in (b"r", LARGE):
            tap = Listening()
            tap.hear(request(produce(("orders", 0), records=records, acks=0), version, 1))
            tap.hear(request(HEARTBEAT, 4, 2))
            tap.say(answer(HeartbeatResponse(error_code=0), 4, 2))
            assert [each.is_answered for each in tap.wire.requests()] == [False, True]
            assert tap.wire.saw("Produce", acks=0)


def test_a_request_for_versions_that_the_broker_does_not_know_is_answered_in_the_first_format() -> None:
    tap = Listening()
    tap.hear(request(ApiVersionsRequest(), 0).replace(b"\0\x12\0\0", b"\0\x12\0\x63", 1))
    tap.say(answer(ApiVersionsResponse(error_code=35, api_keys=[]), 0))
    (seen,) = tap.wire.requests()
    assert (seen.version, seen.errors) == (99, ("UNSUPPORTED_VERSION",))


def test_tokens_of_a_mechanism_are_frames_without_a_header() -> None:
    tap = Listening()
    tap.hear(request(SaslHandshakeRequest(mechanism="PLAIN"), 0))
    tap.say(answer(SaslHandshakeResponse(error_code=0, mechanisms=["PLAIN"]), 0))
    tap.hear(framed(b"\0alice\0secret") + framed(b""))
    tap.say(framed(b"") + framed(b"ok"))
    tap.hear(request(HEARTBEAT, 4, 7))
    tap.say(answer(HeartbeatResponse(error_code=0), 4, 7))
    seen = tap.wire.requests()
    assert [each.api for each in seen] == ["SaslHandshake", "SaslToken", "SaslToken", "Heartbeat"]
    assert all(each.is_answered for each in seen)
    with pytest.raises(LabError, match="SaslToken has no messages"):
        _ = seen[1].request


@given(st.binary(max_size=80), st.binary(max_size=80), cuts)
def test_bytes_of_strangers_are_let_go(heard: bytes, said: bytes, where: list[int]) -> None:
    tap = Listening()
    tap.hear(heard, *where)
    tap.say(said, *where)
    assert tap.wire.lines() == [each.line() for each in tap.wire.requests()]


@pytest.mark.parametrize(
    "hello", [b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\0\1\0\1\xfc\3\3", b"\xff" * 20, framed(b"")]
)
def test_a_peer_that_speaks_something_else_is_not_looked_at(hello: bytes) -> None:
    tap = Listening()
    tap.hear(hello)
    tap.say(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    assert tap.conversation.is_foreign or not tap.wire.requests()
    assert not tap.wire.requests() and not tap.conversation.needs_bytes


def test_an_answer_to_something_else_ends_the_listening() -> None:
    tap = Listening()
    tap.hear(request(HEARTBEAT, 4, 1))
    tap.say(answer(HeartbeatResponse(error_code=0), 4, 2))
    assert tap.conversation.is_foreign and not tap.wire.requests()[0].is_answered


def test_topic_ids_have_the_names_that_metadata_told() -> None:
    tap = Listening(topic_name={b"b" * 16: "known"}.get)
    topic = MetadataResponseTopic(error_code=0, name="orders", topic_id=b"o" * 16, partitions=[])
    tap.hear(request(MetadataRequest(topics=None), 12))
    tap.say(answer(MetadataResponse(brokers=[], topics=[topic]), 12))
    for number, topic_id in enumerate((b"o" * 16, b"b" * 16, b"\x01" * 16)):
        message = produce(("", 0))
        message.topic_data[0].topic_id = topic_id
        tap.hear(request(message, 13, number))
    for name in ("orders", "known", "01" * 16):
        assert len(tap.wire.requests("Produce", topic=name)) == 1


def test_records_that_the_system_sends_are_counted_unseen() -> None:
    tap = Listening()
    tap.hear(request(fetch(("orders", 0)), 12, 3))
    whole = answer(fetched(("orders", 0), records=LARGE), 12, 3)
    start = whole.index(LARGE)
    tap.say(whole[:start])
    assert not tap.conversation.needs_bytes
    tap.conversation.said_unseen(len(LARGE))
    tap.say(whole[start + len(LARGE) :])
    (seen,) = tap.wire.requests("Fetch", topic="orders")
    assert (seen.answer_size, seen.left_out, seen.response) == (len(whole) - 4, len(LARGE), fetched(("orders", 0), records=b""))  # fmt: skip


def test_the_log_is_bounded_in_number_and_bytes() -> None:
    tap = Listening(requests_max=3)
    for number in range(5):
        tap.hear(request(HEARTBEAT, 4, number))
    assert ([each.correlation_id for each in tap.wire.requests()], tap.wire.dropped) == ([2, 3, 4], 2)
    assert tap.wire.lines()[0] == "... 2 earlier requests"
    tap.say(answer(HeartbeatResponse(error_code=0), 4, 0))  # of one that is gone

    tap = Listening(bytes_max=10_000)
    for number in range(50):
        tap.hear(request(HeartbeatRequest(group_id="g" * 1000, generation_id=1, member_id="m"), 4, number))
    assert tap.wire.dropped == 50 - len(tap.wire.requests()) > 40
    tap.wire.clear()
    assert not tap.wire.requests()


def test_requests_of_other_brokers_are_kept_apart() -> None:
    tap = Listening()
    tap.hear(request(fetch(("orders", 0)), 12, 1, client_id="broker-2-fetcher-0"))
    assert not tap.wire.requests() and len(tap.wire.requests(of_brokers=True)) == 1
