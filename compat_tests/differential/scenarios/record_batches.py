"""Batches of which one thing is wrong: each field of the header, each field of a record; plain, compressed, recompressed.

What a batch has to be depends on the version of Produce only at 3 (one batch of magic 2), 7 (zstd) and 8 (the answer has
words), so the tables are offered in 3 to 8; `legacy_records` is about the versions before.
"""

from collections.abc import Callable

from compat_tests.differential.asking_records import (
    GZIP,
    NO_LIMIT,
    ONE,
    TIME,
    TWO_RECORDS,
    batch,
    header,
    offer,
    read_back,
    record,
    zipped,
)
from compat_tests.differential.conversation import Talk, Topic, scenario
from compat_tests.support.raw import varint

from ottla.wire.messages.produce import ProduceRequest

Build = Callable[..., bytes]
INT16_MAX, INT32_MAX, INT64_MAX = 2**15 - 1, 2**31 - 1, 2**63 - 1
INT32_MIN, INT64_MIN = -(2**31), -(2**63)
SIZE = len(batch()) - 12

HEADERS: dict[str, tuple[int, ...]] = {
    "base_offset": (1, -1, INT64_MAX, INT64_MIN),
    "length": (-1, 0, 13, 14, 48, 49, SIZE - 1, SIZE + 1, INT32_MAX, INT32_MIN),
    "leader_epoch": (0, 7, INT32_MAX, INT32_MIN),
    "magic": (-1, -128, 3, 127),
    "crc": (0, 2**32 - 1),
    "last_offset_delta": (-1, 0, 2, INT32_MAX, INT32_MIN),
    "base_timestamp": (0, -1, -2, TIME + 1, INT64_MAX, INT64_MIN),
    "max_timestamp": (0, -1, -2, TIME, TIME + 2, INT64_MAX, INT64_MIN),
    "producer_id": (0, -2, 7, INT64_MAX, INT64_MIN),
    "producer_epoch": (0, -2, INT16_MAX),
    "base_sequence": (0, -2, INT32_MAX),
    "count": (0, 1, 3, -1, INT32_MAX, INT32_MIN),
}
# Together, since these three belong together. Each id is used once.
PRODUCERS = (
    (20, 0, 0),
    (21, -1, 0),
    (22, 0, -1),
    (23, -1, -1),
    (24, -2, 0),
    (25, 0, -2),
    (26, INT16_MAX, INT32_MAX),
    (27, 0, INT32_MAX),
    (28, 3, 17),
    (-1, 0, 0),
    (-2, 0, 0),
)
CODECS = range(8)
FLAGS = {
    "log append time": 8,
    "control": 0x20,
    "delete horizon": 0x40,
    "the lowest unused bit": 0x80,
    "the highest but one": 0x4000,
    "the sign": -0x8000,
}

# Wrong lengths of whole records, at most of which Apache Kafka does not look in a compressed batch that it leaves as it is.
LENGTHS: dict[str, bytes] = {
    "length 0": record(length=0),
    "length -1": record(length=-1),
    "length one too short": record(length=len(record()) - 2),
    "length one too long": record(length=len(record())),
    "length far too long": record(length=100_000),
}
RECORDS: dict[str, bytes] = {
    "as it should be": record(),
    "attributes 1": record(attributes=1),
    "attributes 255": record(attributes=255),
    "length in ten bytes": b"\xff" * 9 + b"\x01" + record()[1:],
    "time delta -1": record(time_delta=-1),
    "time delta below all times": record(time_delta=-TIME - 2),
    "time delta that overflows": record(time_delta=INT64_MAX),
    "offset delta 1": record(offset_delta=1),
    "offset delta -1": record(offset_delta=-1),
    "offset delta of the largest": record(offset_delta=INT32_MAX),
    "offset delta in ten bytes": b"\x1e" + b"\0\0" + b"\xff" * 9 + b"\x01" + record()[4:],
    "null key": record(key=None),
    "empty key": record(key=b""),
    "key length -2": record(key=None, key_length=-2),
    "key length one too short": record(key_length=2),
    "key length one too long": record(key_length=4),
    "key length beyond the record": record(key_length=100),
    "key length of the largest": record(key_length=INT32_MAX),
    "null value": record(value=None),
    "empty value": record(value=b""),
    "value length -2": record(value=None, value_length=-2),
    "value length one too short": record(value_length=4),
    "value length one too long": record(value_length=6),
    "value length of the largest": record(value_length=INT32_MAX),
    "a header": record(headers=header(b"h", b"v"), header_count=1),
    "two headers of one name": record(headers=header(b"h", b"v") * 2, header_count=2),
    "header with null value": record(headers=header(b"h", None), header_count=1),
    "header with empty key": record(headers=header(b"", b"v"), header_count=1),
    "header with a key that is no text": record(headers=header(b"\xff\xfe", b"v"), header_count=1),
    "header with null key": record(headers=header(None, b"v"), header_count=1),
    "header key length -2": record(headers=header(None, b"v", key_length=-2), header_count=1),
    "header key length too long": record(headers=header(b"h", b"v", key_length=50), header_count=1),
    "header value length -2": record(headers=header(b"h", None, value_length=-2), header_count=1),
    "header value length too long": record(headers=header(b"h", b"v", value_length=50), header_count=1),
    "header count -1": record(header_count=-1),
    "header count one too many": record(headers=header(b"h", b"v"), header_count=2),
    "header count one too few": record(headers=header(b"h", b"v") * 2, header_count=1),
    "header count of the largest": record(header_count=INT32_MAX),
    "bytes after its headers": record(rest=b"\0\0"),
    "no value and no headers": varint(7) + b"\0\0\0" + varint(3) + b"key",
    "nothing but a length": varint(9),
    "nothing at all": b"",
    "half of it": record()[:6],
    "a second one": TWO_RECORDS,
    "a byte after it": record() + b"\0",
}


def plain(area: bytes = TWO_RECORDS, **fields: int) -> bytes:
    return batch(area, **fields)


def compressed(area: bytes = TWO_RECORDS, **fields: int) -> bytes:
    return batch(area, zipped, **({"attributes": GZIP} | fields))


def kept(talk: Talk, kind: str = "topic", **configs: str) -> Topic:
    """A topic that takes records of any time. (Before 4.0 that was so unless configured.)"""
    return talk.topic(kind, message_timestamp_after_max_ms=NO_LIMIT, **configs)


def offer_headers(talk: Talk, topic: Topic, build: Build) -> None:
    for field, values in HEADERS.items():
        for value in values:
            offer(talk, topic, build(**{field: value}), f"{field} {value}")
    for producer_id, epoch, sequence in PRODUCERS:
        made = build(producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
        offer(talk, topic, made, f"producer {producer_id} {epoch} {sequence}")


def offer_records(talk: Talk, topic: Topic, build: Build, areas: dict[str, bytes] = LENGTHS | RECORDS) -> None:
    for name, area in areas.items():
        offer(talk, topic, build(area, **ONE), name)


@scenario(ProduceRequest, versions="3-8")
def header_of_a_plain_batch(talk: Talk) -> None:
    topic = kept(talk)
    offer_headers(talk, topic, plain)
    read_back(talk, topic)


@scenario(ProduceRequest, versions="3-8")
def header_of_a_compressed_batch(talk: Talk) -> None:
    topic = kept(talk)
    offer_headers(talk, topic, compressed)
    read_back(talk, topic)


@scenario(ProduceRequest, versions="3-8")
def header_of_a_recompressed_batch(talk: Talk) -> None:
    topic = kept(talk, compression_type="lz4")
    offer_headers(talk, topic, compressed)
    read_back(talk, topic)


@scenario(ProduceRequest, versions="3-8")
def attributes(talk: Talk) -> None:
    topic = kept(talk)
    for codec in CODECS:
        offer(talk, topic, plain(attributes=codec), f"codec {codec} of plain records")
        offer(talk, topic, compressed(attributes=codec), f"codec {codec} of zipped records")
    for name, flag in FLAGS.items():
        offer(talk, topic, plain(attributes=flag), name)
        offer(talk, topic, compressed(attributes=GZIP | flag), f"{name}, zipped")
    read_back(talk, topic)


@scenario(ProduceRequest, versions="3-8")
def attributes_of_a_recompressed_batch(talk: Talk) -> None:
    topic = kept(talk, compression_type="lz4")
    for name, flag in FLAGS.items():
        offer(talk, topic, plain(attributes=flag), name)
        offer(talk, topic, compressed(attributes=GZIP | flag), f"{name}, zipped")
    read_back(talk, topic)


@scenario(ProduceRequest, versions="3-8")
def records_of_a_plain_batch(talk: Talk) -> None:
    topic = kept(talk)
    offer_records(talk, topic, plain)
    read_back(talk, topic)


@scenario(ProduceRequest, versions="3-8")
def records_of_a_compressed_batch(talk: Talk) -> None:
    topic = kept(talk)
    offer_records(talk, topic, compressed, RECORDS)
    read_back(talk, topic)


@scenario(ProduceRequest, versions="3-8")
def lengths_of_compressed_records(talk: Talk) -> None:
    for name, area in LENGTHS.items():
        offer(talk, kept(talk, name.replace(" ", "-")), compressed(area, **ONE), name)


@scenario(ProduceRequest, versions="3-8")
def records_of_a_recompressed_batch(talk: Talk) -> None:
    topic = kept(talk, compression_type="lz4")
    offer_records(talk, topic, compressed)
    read_back(talk, topic)


@scenario(ProduceRequest, versions="3-8")
def records_of_a_batch_to_be_compressed(talk: Talk) -> None:
    topic = kept(talk, compression_type="zstd")
    offer_records(talk, topic, plain)
    read_back(talk, topic)
