"""Connections: frames and headers good and bad, bodies that cannot be read, and the order of answers."""

import struct
from typing import Any

from compat_tests.differential.asking import produce
from compat_tests.differential.asking_raw import NO_TAGS, body_of, frame, head, hear, tagged, tags_of, tell, whole
from compat_tests.differential.asking_reading import a_batch, fetch, nowhere, read
from compat_tests.differential.conversation import Link, Talk, scenario, served_versions
from compat_tests.differential.random_world import REQUESTS

from ottla.wire.messages.api_versions import ApiVersionsRequest
from ottla.wire.messages.cluster import DescribeClusterRequest
from ottla.wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from ottla.wire.messages.fetch import FetchRequest
from ottla.wire.messages.list_offsets import ListOffsetsRequest
from ottla.wire.messages.log_dirs import DescribeLogDirsRequest
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.wire.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from ottla.wire.messages.produce import ProduceRequest
from ottla.wire.schema import ZERO_UUID, Message

# One version without tagged fields and one with them.
BOTH_HEADERS = "5-6"
FLEXIBLE = "6"
NOTHING = ListOffsetsRequest(replica_id=-1, topics=[])
LIST_OFFSETS = ListOffsetsRequest.api_key
REMOVED_KEYS = 4, 5, 6, 7
FRAME_BYTES_MAX = 100 * 1024 * 1024


@scenario(ListOffsetsRequest, BOTH_HEADERS)
def short_and_long_frames(talk: Talk) -> None:
    v = talk.version
    good = whole(NOTHING, v)
    for size in (0, 1, 2, 4, 8, 9, 10, 11):
        tell(talk, f"a frame of {size}", frame(good[4 : 4 + size]), ListOffsetsRequest, v)
    for size in (-1, -(1 << 31), FRAME_BYTES_MAX + 1, 0x7FFFFFFF):
        tell(talk, f"a size of {size}", struct.pack(">i", size) + good[4:], ListOffsetsRequest, v)
    link = Link(talk, "main")
    link.send_bytes(frame(b"") + good)
    hear(talk, link, "an empty frame before a good one", ListOffsetsRequest, v)
    link.close()


@scenario(ListOffsetsRequest, BOTH_HEADERS)
def pieces_of_frames(talk: Talk) -> None:
    v = talk.version
    good = whole(NOTHING, v)
    link = Link(talk, "main")
    for index in range(len(good)):
        link.send_bytes(good[index : index + 1])
    hear(talk, link, "byte by byte", ListOffsetsRequest, v)
    link.send_bytes(good + good + good[:7])
    hear(talk, link, "first", ListOffsetsRequest, v)
    hear(talk, link, "second", ListOffsetsRequest, v)
    link.send_bytes(good[7:])
    hear(talk, link, "third", ListOffsetsRequest, v)
    link.send_bytes(good + frame(b"x") + good)
    hear(talk, link, "before a bad one", ListOffsetsRequest, v)
    hear(talk, link, "the bad one", ListOffsetsRequest, v)
    link.close()


@scenario(ListOffsetsRequest, BOTH_HEADERS)
def client_ids(talk: Talk) -> None:
    v = talk.version
    for label, client_id in (
        ("null", None),
        ("empty", b""),
        ("UTF-8", "\u00e4\u20ac".encode()),
        ("not UTF-8", b"\xff\xfe"),
        ("long", b"x" * 3000),
    ):
        tell(talk, label, whole(NOTHING, v, client_id=client_id), ListOffsetsRequest, v)
    for length in (-2, -32768, 7, 500, 32767):
        tell(talk, f"length {length}", whole(NOTHING, v, client_id_length=length), ListOffsetsRequest, v)
    tell(talk, "length -2 of none", whole(NOTHING, v, client_id=None, client_id_length=-2), ListOffsetsRequest, v)


@scenario(ListOffsetsRequest, FLEXIBLE)
def tags_in_the_header(talk: Talk) -> None:
    for label, tags in (
        ("one", tagged((0, b"x"))),
        ("empty", tagged((9, b""))),
        ("two", tagged((1, b"abc"), (100, b"x" * 100))),
        ("in the wrong order", tagged((5, b"a"), (1, b"b"))),
        ("twice", tagged((5, b"a"), (5, b"b"))),
        ("more than there are", b"\x7f"),
        ("size beyond the end", b"\x01\x00\x7f"),
        ("count beyond all bounds", b"\xff\xff\xff\xff\x07"),
        ("count of six bytes", b"\xff\xff\xff\xff\xff\x01"),
        ("missing", b""),
    ):
        tell(talk, label, whole(NOTHING, talk.version, tags=tags), ListOffsetsRequest, talk.version)


@scenario(ListOffsetsRequest, BOTH_HEADERS)
def correlation_ids(talk: Talk) -> None:
    v = talk.version
    link = Link(talk, "main")
    numbers = 0, 7, 7, -1, -(1 << 31), 0x7FFFFFFF
    link.send_bytes(b"".join(whole(NOTHING, v, correlation_id=number) for number in numbers))
    for number in numbers:
        hear(talk, link, f"{number}", ListOffsetsRequest, v)
    link.close()


@scenario(ListOffsetsRequest, "11")
def keys_and_versions_that_are_not_served(talk: Talk) -> None:
    for key in (-1, -32768, *REMOVED_KEYS, 500, 32767):
        for version in (0, 1):
            tell(talk, f"key {key}, v{version}", frame(head(key, version) + bytes(20)), ListOffsetsRequest, 0)
    for request in sorted(REQUESTS.values(), key=lambda each: each.api_key):
        if request is ApiVersionsRequest:
            continue  # it answers all versions: scenarios/api_versions.py
        served = served_versions(request)
        for version in (-1, served.first - 1, served.last + 1, 32767):
            data = frame(head(request.api_key, version, tags=tags_of(request, version)) + bytes(40))
            tell(talk, f"{request.__name__} v{version}", data, ListOffsetsRequest, 0)


@scenario(MetadataRequest)
def bodies_cut_short_or_too_long(talk: Talk) -> None:
    v = talk.version
    request = MetadataRequest(
        topics=[MetadataRequestTopic(topic_id=ZERO_UUID, name="a b")], allow_auto_topic_creation=False
    )
    body = body_of(request, v)
    for size in sorted({0, 1, 3, len(body) // 2, len(body) - 1}):
        tell(
            talk,
            f"cut to {'half' if size == len(body) // 2 else size}",
            whole(request, v, body=body[:size]),
            MetadataRequest,
            v,
        )
    for more in (b"\x00", b"garbage"):
        tell(talk, f"with {more!r} behind it", whole(request, v, body=body + more), MetadataRequest, v)
    tell(talk, "whole", whole(request, v), MetadataRequest, v)


def without_others(answer: Any) -> None:
    """What means null means all topics here; only those that were asked for and cannot be are looked at."""
    answer.topics = [each for each in answer.topics if each.error_code]


@scenario(MetadataRequest, versions="8")
def fields_that_cannot_be(talk: Talk) -> None:
    """In the encoding without tagged fields."""
    v = talk.version
    flags = b"\x00\x00\x00"
    one = struct.pack(">i", 1)
    for label, topics in (
        ("a null list", struct.pack(">i", -1)),
        ("a list of -2", struct.pack(">i", -2)),
        ("a list of very many", struct.pack(">i", 0x7FFFFFFF)),
        ("one more than there are", struct.pack(">ih", 2, 3) + b"a b"),
        ("a null name", one + struct.pack(">h", -1)),
        ("a name of -2", one + struct.pack(">h", -2)),
        ("a name beyond the end", one + struct.pack(">h", 30) + b"a b"),
        ("a name that is not UTF-8", one + struct.pack(">h", 4) + b"a \xff\xfe"),
        ("a name with a surrogate", one + struct.pack(">h", 5) + b"a \xed\xa0\x80"),
    ):
        data = whole(MetadataRequest(topics=[]), v, body=topics + flags)
        tell(talk, label, data, MetadataRequest, v, without_others)
    for value in (2, 0x80, 0xFF):
        body = struct.pack(">i", 0) + bytes([1, value, 0])
        tell(talk, f"a flag of {value}", whole(MetadataRequest(topics=[]), v, body=body), MetadataRequest, v)


@scenario(MetadataRequest, versions="9")
def compact_fields_that_cannot_be(talk: Talk) -> None:
    """In the encoding with tagged fields."""
    v = talk.version
    flags = b"\x00\x00\x00" + NO_TAGS
    for label, topics in (
        ("a list of very many", b"\xff\xff\xff\xff\x0f"),
        ("a list of many", b"\xff\xff\x7f"),
        ("a count of six bytes", b"\xff\xff\xff\xff\xff\x01"),
        ("an overlong count", b"\x81\x00"),
        ("one more than there are", b"\x03\x04a b\x00"),
        ("a null name", b"\x02\x00\x00"),
        ("a name beyond the end", b"\x02\x7fa b\x00"),
        ("a name that is not UTF-8", b"\x02\x05a \xff\xfe\x00"),
        ("a name of an overlong size", b"\x02\x84\x00a b\x00"),
        ("tags of the topic", b"\x02\x04a b" + tagged((3, b"new"), (9, b""))),
        ("tags of the topic that do not end", b"\x02\x04a b\x02\x00\x01x"),
    ):
        data = whole(MetadataRequest(topics=[]), v, body=topics + flags)
        tell(talk, label, data, MetadataRequest, v, without_others)


@scenario(ListOffsetsRequest, BOTH_HEADERS)
def nulls_where_none_may_be(talk: Talk) -> None:
    v = talk.version
    flexible = v in ListOffsetsRequest.flexible
    start, one, end = struct.pack(">ib", -1, 0), struct.pack(">i", 1), b""
    null_list, null_name, name = struct.pack(">i", -1), struct.pack(">h", -1), struct.pack(">h", 3) + b"a b"
    if flexible:
        one, end = b"\x02", NO_TAGS
        null_list, null_name, name = b"\x00", b"\x00", b"\x04a b"
    for label, topics in (
        ("a null list of topics", null_list),
        ("a null name", one + null_name + null_list + end),
        ("a null list of partitions", one + name + null_list + end),
        ("an empty list of partitions", one + name + (b"\x01" if flexible else bytes(4)) + end),
    ):
        tell(talk, label, whole(NOTHING, v, body=start + topics + end), ListOffsetsRequest, v)


@scenario(MetadataRequest, versions="13")
def fields_of_the_future(talk: Talk) -> None:
    """Tagged fields that nobody knows yet are skipped, in every request."""
    requests: tuple[Message, ...] = (
        MetadataRequest(topics=[]),
        NOTHING,
        OffsetForLeaderEpochRequest(topics=[]),
        DescribeClusterRequest(include_cluster_authorized_operations=False),
        DescribeTopicPartitionsRequest(topics=[], cursor=None),
        DescribeLogDirsRequest(topics=[]),
        fetch(),
    )
    for request in requests:
        if isinstance(request, DescribeTopicPartitionsRequest):
            continue  # no names mean all topics: `cluster.pages_of_all_topics`
        version = type(request).versions.last
        body = body_of(request, version)
        assert body.endswith(NO_TAGS)
        for label, tags in (
            ("one", tagged((50, b"new"))),
            ("several", tagged((50, b""), (51, b"x"), (100, b"y" * 100))),
            ("in the wrong order", tagged((60, b"a"), (50, b"b"))),
            ("twice", tagged((50, b"a"), (50, b"b"))),
            ("beyond the end", b"\x01\x50\x09x"),
        ):
            name = f"{type(request).__name__} {label}"
            tell(talk, name, whole(request, version, body=body[:-1] + tags), type(request), version)


@scenario(FetchRequest, versions="18")
def known_tagged_fields(talk: Talk) -> None:
    """A fetch's cluster id (tag 0) and replica state (tag 1)."""
    v = talk.version
    body = body_of(fetch(), v)
    replica = struct.pack(">iq", 5, -1) + NO_TAGS
    for label, tags in (
        ("the cluster id", tagged((0, b"\x04abc"))),
        ("a null cluster id", tagged((0, b"\x00"))),
        ("both", tagged((0, b"\x04abc"), (1, replica))),
        ("both, in the wrong order", tagged((1, replica), (0, b"\x04abc"))),
        ("the cluster id twice", tagged((0, b"\x04abc"), (0, b"\x02x"))),
        ("the cluster id, too short", tagged((0, b"\x04ab"))),
        ("the cluster id, too long", tagged((0, b"\x04abcd"))),
        ("the replica state, too short", tagged((1, replica[:-1]))),
        ("the replica state with a field of the future", tagged((1, replica[:-1] + tagged((9, b"new"))))),
    ):
        tell(talk, label, whole(fetch(), v, body=body[:-1] + tags), FetchRequest, v)


@scenario(ProduceRequest)
def an_error_that_nobody_awaits(talk: Talk) -> None:
    """A producer that wants no acknowledgement learns of an error by the end of its connection."""
    topic = talk.topic()
    link = talk.link()
    link.send(produce(topic, a_batch(), acks=0), answered=False)
    link.send(MetadataRequest(topics=[]), label="asked after a good one")
    link.receive()
    link.send(produce(nowhere(talk), a_batch(), acks=0), answered=False)
    link.send(MetadataRequest(topics=[]), label="asked after a bad one")
    link.receive()
    talk.until(fetch(read(topic)), lambda answer: bool(answer.responses[0].partitions[0].records))


@scenario(MetadataRequest)
def answers_in_order(talk: Talk) -> None:
    """Of many requests on their way at once."""
    topic = talk.topic()
    named = MetadataRequest(topics=[MetadataRequestTopic(topic_id=ZERO_UUID, name=topic.name)])
    link = talk.link()
    for turn in range(3):
        link.send(named, label=f"metadata {turn}")
        link.send(fetch(read(topic), max_wait_ms=20), label=f"fetch {turn}")
        link.send(OffsetForLeaderEpochRequest(topics=[]), label=f"epochs {turn}")
        link.send(produce(topic, a_batch()), label=f"produce {turn}")
        link.send(NOTHING, label=f"offsets {turn}")
    for _ in range(15):
        link.receive()
