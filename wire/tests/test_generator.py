"""Generated code against the plain construct it was generated from: every kind of type, both directions, hostile bytes."""

import functools
import io
import random
import time
from pathlib import Path
from typing import Any, cast

import construct
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ottla.wire.errors import ProtocolViolation
from ottla.wire.generator import generate
from ottla.wire.limits import REQUEST_ELEMENTS_MAX
from ottla.wire.messages.classic_group import HeartbeatRequest
from ottla.wire.messages.describe_configs import DescribeConfigsRequest
from ottla.wire.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from ottla.wire.messages.metadata import MetadataRequest
from ottla.wire.messages.offsets import OffsetFetchRequest, OffsetFetchRequestTopic
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.runtime import encode_varint
from ottla.wire.schema import (
    Array,
    Bool,
    Bytes,
    Float64,
    Int8,
    Int16,
    Int32,
    Int64,
    Records,
    String,
    Struct,
    Uint16,
    Uint32,
    Uuid,
    field,
)
from ottla.wire.tests.effort import examples
from ottla.wire.tests.message_values import messages, values

VERDICTS = (Path(__file__).parent / "golden_verdicts.txt").read_text().splitlines()


class Numbers(Struct, versions="0-3", flexible="2+"):
    """Everything of a fixed size: with its section of tagged fields, arrays of it are unpacked at once."""

    a: int = field(Int8)
    b: int = field(Int16)
    c: int = field(Uint16)
    d: int = field(Int32)
    e: int = field(Uint32)
    f: int = field(Int64)
    g: float = field(Float64)
    h: bool = field(Bool)
    i: bytes = field(Uuid)


class Tagged(Struct, versions="0-3", flexible="2+"):
    """Fixed but for what is tagged."""

    number: int = field(Int32)
    kind: int = field(Int8, versions="1+", default=4)
    text: str = field(String, versions="2+", tag=0, default="none")
    maybe: str | None = field(String, versions="2+", nullable="3+", tag=1, default=None)
    numbers: list[int] = field(Array(Int32), versions="3+", tag=2, default=[])
    maybe_numbers: list[int] | None = field(Array(Int64), versions="2+", nullable="2+", tag=200, default=None)


class Empty(Struct):
    """No bytes at all in classic versions."""

    later: int = field(Int8, versions="3+", default=1)


class Inner(Struct, versions="0-3", flexible="2+"):
    name: str = field(String)
    nothing: list[Empty] = field(Array(Empty))
    tagged: list[Tagged] = field(Array(Tagged))
    numbers: list[int] = field(Array(Int32))


class Part(Struct, versions="0-3", flexible="2+"):
    only: int = field(Int64, default=-1)
    inner: Inner | None = field(Inner, versions="3+", nullable="3+", default=None)


class Everything(Struct, versions="0-3", flexible="2+"):
    numbers: Numbers = field(Numbers)
    number_array: list[Numbers] | None = field(Array(Numbers), nullable="1+")
    text: str = field(String)
    maybe_text: str | None = field(String, nullable="0+", default="")
    blob: bytes = field(Bytes)
    maybe_blob: bytes | None = field(Bytes, nullable="0+", default=None)
    inner: list[Inner] = field(Array(Inner))
    maybe_inner: list[Inner] | None = field(Array(Inner), nullable="0+", default=None)
    texts: list[str] | None = field(Array(String), nullable="0+", default=[])
    blobs: list[bytes] = field(Array(Bytes))
    shorts: list[int] = field(Array(Int16))
    ids: list[bytes] | None = field(Array(Uuid), nullable="1+")
    flags: list[bool] = field(Array(Bool))
    tagged: Tagged = field(Tagged)
    maybe_part: Part | None = field(Part, nullable="1+", default=Part())
    tagged_part: Part = field(Part, versions="2+", tag=0, default=Part())
    maybe_tagged_part: Part | None = field(Part, versions="2+", nullable="2+", tag=1, default=None)
    tagged_array: list[Part] = field(Array(Part), versions="2+", tag=5, default=[])
    gone: int = field(Int32, versions="0-1", default=3)
    records: Any = field(Records, nullable="0+")


VERSIONS = pytest.mark.parametrize("version", range(4))
few_examples = settings(
    max_examples=examples(40), deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow]
)


@functools.cache
def construct_of(cls: type[Struct], version: int) -> construct.Construct:
    return cls.construct(version)


def verdict_of_construct(cls: type[Struct], version: int, raw: bytes) -> tuple[Struct, int] | None:
    stream = io.BytesIO(raw)
    try:
        return cast(Struct, construct_of(cls, version).parse_stream(stream)), stream.tell()
    except construct.ConstructError:
        return None


def verdict(cls: type[Struct], version: int, buffer: bytes | bytearray, start: int, end: int) -> Any:
    try:
        return cls.decode_prefix(buffer, version, start, end)
    except ProtocolViolation:
        return None


def assert_same_verdict(cls: type[Struct], version: int, raw: bytes) -> None:
    """Alone, and within a receive buffer where the bytes of others precede and follow."""
    expected = verdict_of_construct(cls, version, raw)
    found = verdict(cls, version, raw, 0, len(raw))
    assert found == expected or repr(found) == repr(expected)  # where a float is not a number
    shared = bytearray(b"\1" * 3 + raw + b"\1" * 300)
    found = verdict(cls, version, shared, 3, 3 + len(raw))
    if expected is not None:
        expected = expected[0], expected[1] + 3
    assert found == expected or repr(found) == repr(expected)


@VERSIONS
@given(data=st.data())
@few_examples
def test_generated_code_writes_what_the_construct_writes_and_reads_it_back(version: int, data: st.DataObject) -> None:
    value = data.draw(values(Everything, version))
    encoded = value.encode(version)
    assert encoded == construct_of(Everything, version).build(value)
    assert Everything.decode_prefix(encoded, version) == (value, len(encoded))
    assert_same_verdict(Everything, version, encoded)


@VERSIONS
@given(data=st.data(), seed=st.integers(0, 1 << 32))
@few_examples
def test_damaged_bytes_are_refused_by_both_or_mean_the_same(version: int, data: st.DataObject, seed: int) -> None:
    encoded = bytearray(data.draw(values(Everything, version)).encode(version))
    chance = random.Random(seed)
    for _ in range(chance.randint(1, 3)):
        at = chance.randrange(len(encoded) + 1)
        encoded[at : at + chance.choice((0, 1, 1, 4))] = chance.choice(
            (
                b"",
                b"\xff",
                b"\0",
                b"\x80",
                b"\x7f\xff\xff\xff",
                b"\xff\xff\xff\xff\x0f",
                b"\x80\x80\x80\x80\x08",
                b"\2\0\1x",
            )
        )
    assert_same_verdict(Everything, version, bytes(encoded))


@VERSIONS
@given(data=st.data())
@settings(few_examples, max_examples=examples(8))
def test_every_truncation_is_refused_even_where_the_buffer_goes_on(version: int, data: st.DataObject) -> None:
    encoded = data.draw(values(Everything, version)).encode(version)
    shared = bytearray(encoded + encoded)
    for end in range(0, len(encoded), 1 + len(encoded) // 100):
        assert verdict(Everything, version, encoded[:end], 0, end) is None
        assert verdict(Everything, version, shared, 0, end) is None


@VERSIONS
@given(raw=st.binary(max_size=60))
@few_examples
def test_random_bytes_are_refused_by_both_or_mean_the_same(version: int, raw: bytes) -> None:
    assert_same_verdict(Tagged, version, raw)
    assert_same_verdict(Inner, version, raw)
    assert_same_verdict(Part, version, raw)


@pytest.mark.parametrize("line", [line for line in VERDICTS if not line.startswith("#")])
def test_kafkas_own_classes_came_to_the_same_verdict(line: str) -> None:
    name, version, encoded, expected = line.split()
    cls = next(cls for cls in messages() if cls.__name__ == name)
    raw = bytes.fromhex(encoded)
    found = verdict(cls, int(version), raw, 0, len(raw))
    assert ("refused" if found is None else str(found[1])) == expected


@pytest.mark.parametrize(
    "encoded",
    [
        "7fffffff",  # an array of two billion elements of no bytes
        "00000100" + "00" * 255,  # one more than bytes are left
    ],
)
def test_elements_without_bytes_are_bounded_by_the_bytes_that_are_left(encoded: str) -> None:
    raw = bytes.fromhex("0000" + encoded)
    assert verdict(Inner, 0, raw, 0, len(raw)) is None
    assert verdict(Inner, 0, bytearray(raw + bytes(1000)), 0, len(raw)) is None


def test_counts_that_lie_cost_neither_time_nor_memory() -> None:
    billions = b"\xff\xff\xff\xff\x07"
    started = time.process_time()
    for raw in (
        b"\0" * 8 + billions,  # tags of Part v2
        b"\0" * 8 + b"\1\0" + billions,  # the size of a tag
        b"\0" * 8 + billions + b"\0\0" * 50_000,  # tags that are there for a while
    ):
        assert verdict(Part, 2, bytearray(raw + bytes(100)), 0, len(raw)) is None
    for raw in (b"\1" + billions, b"\1\1" + billions, b"\1\1\1" + billions):  # arrays of Inner v2
        assert verdict(Inner, 2, bytearray(raw + bytes(100_000)), 0, len(raw)) is None
    assert time.process_time() - started < 0.25


def test_records_are_views_of_the_receive_buffer_and_everything_else_is_copied() -> None:
    class Batch(Struct):
        blob: bytes = field(Bytes)
        text: str = field(String)
        records: Any = field(Records)

    encoded = Batch(blob=b"blob", text="text", records=b"records").encode(0)
    buffer = bytearray(b"zz" + encoded + b"zz")
    decoded = Batch.decode(buffer, 0, 2, 2 + len(encoded))
    assert type(decoded.blob) is bytes
    buffer[:] = b"\xff" * len(buffer)
    assert (decoded.blob, decoded.text) == (b"blob", "text")
    assert isinstance(decoded.records, memoryview)
    assert decoded.records.obj is buffer
    assert not decoded.records.readonly
    assert bytes(decoded.records) == b"\xff" * 7


class FileRegion:
    """Something sized that is not a buffer."""

    def __len__(self) -> int:
        return 300


@pytest.mark.parametrize("version", [0, 2])
def test_what_is_no_buffer_is_passed_on_between_the_encoded_parts(version: int) -> None:
    class Answer(Struct, versions="0-2", flexible="2+"):
        before: int = field(Int32)
        records: Any = field(Records, nullable="0+")
        after: int = field(Int32)

    region = FileRegion()
    parts = Answer(before=1, records=region, after=2).encode_parts(version)
    assert parts[1] is region
    joined = Answer(before=1, records=b"r" * 300, after=2).encode(version)
    assert b"".join((parts[0], b"r" * 300, *parts[2:])) == joined
    assert len(Answer(before=1, records=None, after=2).encode_parts(version)) == 1
    assert len(Answer(before=1, records=b"", after=2).encode_parts(version)) == 1


@pytest.mark.parametrize("version", [0, 2])
def test_a_string_too_long_for_the_protocol_is_not_written(version: int) -> None:
    class Text(Struct, versions="0-2", flexible="2+"):
        text: str = field(String)

    assert Text.decode(Text(text="x" * 32767).encode(version), version).text == "x" * 32767
    with pytest.raises(Exception, match="32768|format requires"):
        Text(text="x" * 32768).encode(version)


def test_generated_source_is_readable() -> None:
    class Heartbeat(Struct, versions="0-4", flexible="4+"):
        throttle_time_ms: int = field(Int32)
        error_code: int = field(Int16)

    assert generate(Heartbeat, 4, "decode") == (
        "unpack_from_0 = Struct('>ihB').unpack_from\n"
        "def decode(buffer, position, end):\n"
        "    try:\n"
        "        heartbeat_1 = new(Heartbeat)\n"
        "        heartbeat_1.throttle_time_ms, heartbeat_1.error_code, tags_2 = unpack_from_0(buffer, position)\n"
        "        position += 7\n"
        "        if tags_2:\n"
        "            if tags_2 > 127:\n"
        "                tags_2, position = read_tag_count(buffer, position - 1)\n"
        "            position = skip_tags(buffer, position, end, tags_2)\n"
        "    except (IndexError, error):\n"
        "        position = end + 1\n"
        "    if position > end:\n"
        "        raise ProtocolViolation('Heartbeat v4: the end is missing')\n"
        "    return heartbeat_1\n"
    )
    assert generate(Heartbeat, 4, "encode") == (
        "pack_0 = Struct('>ihx').pack\n"
        "def encode(object, append):\n"
        "    parts = []\n"
        "    write = parts.append\n"
        "    write(pack_0(object.throttle_time_ms, object.error_code))\n"
        '    append(b"".join(parts))\n'
    )


def test_a_request_with_records_may_not_hold_very_many_elements_beside_them():
    partitions = [PartitionProduceData(index=0, records=None)] * 9_999
    topic = TopicProduceData(name="t", partition_data=partitions)
    few = ProduceRequest(acks=1, timeout_ms=1, topic_data=[topic]).encode(8)
    assert len(ProduceRequest.decode(few, 8).topic_data[0].partition_data) == 9_999
    many = ProduceRequest(acks=1, timeout_ms=1, topic_data=[topic, topic]).encode(8)
    with pytest.raises(ProtocolViolation, match="too many elements"):
        ProduceRequest.decode(many, 8)


def test_numbers_in_lists_count_among_the_elements_of_a_long_request():
    def encoded(count: int) -> bytes:
        topic = OffsetFetchRequestTopic(name="t", partition_indexes=list(range(count)))
        return OffsetFetchRequest(group_id="g", topics=[topic]).encode(1)

    few, many = encoded(REQUEST_ELEMENTS_MAX - 1_000), encoded(REQUEST_ELEMENTS_MAX + 1_000)
    decode = OffsetFetchRequest.bounded_decoder(1)
    assert len(decode(few, 0, len(few)).topics[0].partition_indexes) == REQUEST_ELEMENTS_MAX - 1_000
    with pytest.raises(ProtocolViolation, match="too many elements"):
        decode(many, 0, len(many))


def test_a_broker_is_answered_for_as_many_partitions_as_it_asked_for():
    partition = PartitionData(partition_index=0, error_code=0, high_watermark=0, records=None)
    answer = FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[partition] * 20_000)])
    assert len(FetchResponse.decode(answer.encode(12), 12).responses[0].partitions) == 20_000


def test_tagged_fields_count_among_the_elements_beside_records() -> None:
    section = encode_varint(900) + b"\x63\x00" * 900
    topic = b"\x02t" + encode_varint(12 + 1) + (bytes(4) + b"\x00" + section) * 12 + b"\x00"
    with pytest.raises(ProtocolViolation, match=r"too many elements, up to topic_data\.partition_data"):
        ProduceRequest.decode(b"\x00" + bytes(6) + b"\x02" + topic + b"\x00", 9)
    topic = b"\x02t" + encode_varint(10 + 1) + (bytes(4) + b"\x00" + section) * 10 + b"\x00"
    assert ProduceRequest.decode(b"\x00" + bytes(6) + b"\x02" + topic + b"\x00", 9).topic_data[0].name == "t"


def test_a_section_holds_a_thousand_tagged_fields_at_most() -> None:
    def encoded(count: int) -> bytes:
        return HeartbeatRequest(group_id="g", generation_id=1, member_id="m").encode(4)[:-1] + (
            encode_varint(count) + b"\x63\x00" * count
        )

    assert HeartbeatRequest.decode(encoded(1_000), 4).group_id == "g"
    assert HeartbeatRequest.construct(4).parse(encoded(1_000)).group_id == "g"
    with pytest.raises(ProtocolViolation, match="1001 tagged fields"):
        HeartbeatRequest.decode(encoded(1_001), 4)
    with pytest.raises(construct.CheckError):
        HeartbeatRequest.construct(4).parse(encoded(1_001))


def test_a_large_request_may_not_hold_very_many_elements() -> None:
    decode = MetadataRequest.bounded_decoder(9)
    body = encode_varint(REQUEST_ELEMENTS_MAX + 1) + b"\x01\x00" * REQUEST_ELEMENTS_MAX + bytes(4)
    with pytest.raises(ProtocolViolation, match="too many elements, up to topics"):
        decode(body, 0, len(body))
    half = REQUEST_ELEMENTS_MAX // 2
    body = encode_varint(half + 1) + b"\x01\x00" * half + bytes(4)
    assert len(decode(body, 0, len(body)).topics) == half


def test_nulls_do_not_earn_room_for_elements() -> None:
    null = b"\x04\x02a" + b"\x80\x80\x80\x80\x08" + b"\x00"  # a resource whose keys count -2^31
    body = encode_varint(100_002) + null * 100_001 + bytes(3)
    with pytest.raises(ProtocolViolation, match="too many elements"):
        DescribeConfigsRequest.bounded_decoder(4)(body, 0, len(body))
