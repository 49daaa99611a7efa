"""The short codec of the ordinary produce request and its answer against the codecs that are generated from the declarations."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.wire.errors import ProtocolViolation
from ottla.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from ottla.wire.one_batch import (
    FIRST_VERSION,
    FRONT_AT,
    LAST_VERSION,
    TOPIC_IDS_SINCE,
    OneBatch,
    decode_one_batch,
    decode_one_batch_python,
    encode_one_answer,
)
from ottla.wire.tests.effort import examples
from ottla.wire.tests.message_values import values
from ottla.wire.tests.test_messages_fuzz import damaged

VERSIONS = st.integers(FIRST_VERSION, LAST_VERSION)
INT32, INT64 = st.integers(-(1 << 31), (1 << 31) - 1), st.integers(-(1 << 63), (1 << 63) - 1)
NAMES = st.text("abc._-09ü", max_size=130) | st.just("n" * 126) | st.just("n" * 127)
SIZES = st.integers(0, 300) | st.sampled_from([126, 127, 16_382, 16_383, 16_384])
LARGEST = (1 << 21) - 2  # what a size of three bytes can say


@st.composite
def ordinary(draw: st.DrawFn, version: int) -> ProduceRequest:
    data = PartitionProduceData(index=draw(INT32), records=memoryview(bytes(draw(SIZES))))
    topic = TopicProduceData(partition_data=[data])
    if version < TOPIC_IDS_SINCE:
        topic.name = draw(NAMES)
    else:
        topic.topic_id = draw(st.binary(min_size=16, max_size=16))
    return ProduceRequest(acks=draw(st.integers(-2, 2)), timeout_ms=draw(INT32), topic_data=[topic])


def short(body: bytes, version: int, before: bytes = b"", behind: bytes = b"") -> tuple[int, bytes, int, bytes] | None:
    """What the short codec reads of a body in the middle of a receive buffer."""
    buffer = bytearray(before + body + behind)
    found = decoded(buffer, len(before), len(before) + len(body), version)
    return None if found is None else (found[0], found[1], found[2], bytes(found[4]))


def decoded(buffer: bytes | bytearray, position: int, end: int, version: int) -> OneBatch | None:
    """What both twins read."""
    has_id = version >= TOPIC_IDS_SINCE
    found = decode_one_batch(buffer, position, end, has_id)
    assert found == decode_one_batch_python(buffer, position, end, has_id)
    return found


def general(body: bytes, version: int) -> tuple[int, bytes, int, bytes] | None:
    """The same of the general codec; None if the request is of another shape."""
    request = ProduceRequest.decode(body, version)
    if request.transactional_id is not None or len(request.topic_data) != 1:
        return None
    [topic] = request.topic_data
    if len(topic.partition_data) != 1 or topic.partition_data[0].records is None:
        return None
    [data] = topic.partition_data
    name = topic.topic_id if version >= TOPIC_IDS_SINCE else topic.name.encode()
    assert data.records is not None
    return request.acks, name, data.index, bytes(data.records)


@given(st.data(), VERSIONS, st.binary(max_size=5), st.binary(max_size=5))
def test_ordinary_requests_are_read_as_the_general_codec_reads_them(
    data: st.DataObject, version: int, before: bytes, behind: bytes
) -> None:
    request = data.draw(ordinary(version))
    body = request.encode(version)
    is_short = len(request.topic_data[0].name.encode()) <= 126
    assert short(body, version, before, behind) == (general(body, version) if is_short else None)


@pytest.mark.parametrize(("size", "is_short"), [(LARGEST, True), (LARGEST + 1, False)])
def test_a_size_of_records_has_three_bytes_at_most(size: int, is_short: bool) -> None:
    data = PartitionProduceData(index=1, records=memoryview(bytes(size)))
    request = ProduceRequest(acks=-1, timeout_ms=1, topic_data=[TopicProduceData(name="t", partition_data=[data])])
    body = request.encode(FIRST_VERSION)
    assert short(body, FIRST_VERSION) == (general(body, FIRST_VERSION) if is_short else None)


@settings(max_examples=examples(50))
@given(st.data(), VERSIONS)
def test_requests_of_any_shape_are_read_alike_or_left_alone(data: st.DataObject, version: int) -> None:
    body = data.draw(values(ProduceRequest, version)).encode(version)
    found = short(body, version)
    assert found is None or found == general(body, version)


@settings(max_examples=examples(150))
@given(st.data(), VERSIONS, st.randoms(use_true_random=False))
def test_of_damaged_requests_none_is_read_that_the_general_codec_refuses(
    data: st.DataObject, version: int, chance: random.Random
) -> None:
    body = damaged(data.draw(ordinary(version)).encode(version), chance)
    found = short(body, version, behind=b"\0" * 20)
    try:
        expected = general(body, version)
    except ProtocolViolation:
        expected = None
    if found is not None and expected is not None and not found[1].isascii() and version < TOPIC_IDS_SINCE:
        # Damaged names are repaired by the general codec. No topic has such a name.
        found, expected = found[:1] + found[2:], expected[:1] + expected[2:]  # type: ignore[assignment]
    assert found is None or found == expected


@pytest.mark.parametrize("has_id", [False, True])
@given(st.binary(max_size=60))
def test_random_bytes_are_no_request_or_one(has_id: bool, body: bytes) -> None:
    version = LAST_VERSION if has_id else FIRST_VERSION
    found = short(body, version)
    assert found is None or ProduceRequest.decode(body, version) is not None


@given(st.data(), VERSIONS, INT64, INT64, INT64)
def test_the_answer_is_that_of_the_general_codec(
    data: st.DataObject, version: int, base_offset: int, append_time_ms: int, start: int
) -> None:
    request = data.draw(ordinary(version))
    found = decoded(body := request.encode(version), 0, len(body), version)
    if found is None:
        return
    [topic] = request.topic_data
    partition = PartitionProduceResponse(
        index=topic.partition_data[0].index,
        error_code=0,
        base_offset=base_offset,
        log_append_time_ms=append_time_ms,
        log_start_offset=start,
    )
    answered = TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=[partition])
    expected = ProduceResponse(responses=[answered]).encode(version)
    assert b"".join(encode_one_answer(found[3][FRONT_AT:], base_offset, append_time_ms, start)) == expected
