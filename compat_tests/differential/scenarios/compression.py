"""Codecs: what the topic makes of what the producer chose, both framings of snappy, and what does not decompress."""

import zlib

import snappy
from compat_tests.differential.asking_records import (
    GZIP,
    LZ4,
    ONE,
    SNAPPY,
    ZSTD,
    batch,
    offer,
    one,
    read_back,
    record,
)
from compat_tests.differential.conversation import Talk, scenario

from ottla.wire.compression import Compression, compress
from ottla.wire.messages.produce import ProduceRequest

CODECS = list(Compression)
# A codec of the topic beside those of batches.
TOPIC_CODECS = ("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd")
AREA = b"".join(record(offset_delta=index, time_delta=index, value=b"value" * 20) for index in range(3))
THREE = {"count": 3, "last_offset_delta": 2, "max_timestamp": 1_000_002}


def bare_snappy(area: bytes) -> bytes:
    """As librdkafka writes it; Java clients write it in xerial's frame."""
    return bytes(snappy.compress(area))


def compressed(codec: int, **fields: int) -> bytes:
    return batch(AREA, lambda area: compress(Compression(codec), area), **(THREE | {"attributes": codec} | fields))


# zstd is refused before version 7; message sets, which came before 3, are in `legacy_records`.
@scenario(ProduceRequest, versions="7-8")
def records_that_are_large_when_decompressed(talk: Talk) -> None:
    """The limit is for single records, without the length that stands before them."""
    size = len(AREA) // 3 - 2
    for limit in (size - 1, size, 1):
        for wanted in ("producer", "uncompressed", "lz4"):
            topic = talk.topic(f"{wanted}-{limit}", compression_type=wanted, max_decompressed_message_bytes=str(limit))
            for codec in CODECS:
                offer(talk, topic, compressed(codec), f"{codec.name} to {wanted}, {limit - size} from the size")
            read_back(talk, topic)


@scenario(ProduceRequest, versions="3-13")
def codecs_of_topics(talk: Talk) -> None:
    for wanted in TOPIC_CODECS:
        topic = talk.topic(wanted, compression_type=wanted)
        for codec in CODECS:
            offer(talk, topic, compressed(codec), f"{codec.name} to {wanted}")
        read_back(talk, topic)


# What becomes of compressed records does not depend on the version from 7 on.
@scenario(ProduceRequest, versions="7-8")
def framings_of_snappy(talk: Talk) -> None:
    xerial = compress(Compression.SNAPPY, AREA)
    framings = {
        "bare": bare_snappy(AREA),
        "xerial": xerial,
        "xerial twice": xerial + xerial,
        "xerial of a newer version": xerial[:8] + b"\0\0\0\2\0\0\0\1" + xerial[16:],
        "xerial of two blocks": xerial[:16] + b"".join(framed(AREA[i : i + 50]) for i in range(0, len(AREA), 50)),
        "xerial without blocks": xerial[:16],
        "xerial cut short": xerial[:-3],
        "xerial with a block too long": xerial[:16] + b"\0\0\0\x7f" + xerial[20:],
        "bare and cut short": bare_snappy(AREA)[:-3],
        "bare and more": bare_snappy(AREA) + b"more",
    }
    for wanted in ("producer", "uncompressed"):
        topic = talk.topic(wanted, compression_type=wanted)
        for name, data in framings.items():
            offer(talk, topic, batch(AREA, lambda _, data=data: data, **(THREE | {"attributes": SNAPPY})), name)
        read_back(talk, topic)


def framed(block: bytes) -> bytes:
    data = bare_snappy(block)
    return len(data).to_bytes(4, "big") + data


@scenario(ProduceRequest, versions="7-8")
def what_does_not_decompress(talk: Talk) -> None:
    for wanted in ("producer", "gzip", "uncompressed"):
        topic = talk.topic(wanted, compression_type=wanted)
        for codec in (GZIP, SNAPPY, LZ4, ZSTD):
            name = Compression(codec).name
            good = compress(Compression(codec), AREA)
            damaged = {
                "cut in half": good[: len(good) // 2],
                "nothing": b"",
                "plain records": AREA,
                "zeros": bytes(50),
                "a damaged front": b"\xff" + good[1:],
            }
            for what, data in damaged.items():
                made = batch(AREA, lambda _, data=data: data, **(THREE | {"attributes": codec}))
                offer(talk, topic, made, f"{name} {what} for {wanted}")
        read_back(talk, topic)


@scenario(ProduceRequest, versions="7-8")
def what_gzip_forgives(talk: Talk) -> None:
    topic = talk.topic()
    good = compress(Compression.GZIP, AREA)
    half = len(AREA) // 2
    members = compress(Compression.GZIP, AREA[:half]) + compress(Compression.GZIP, AREA[half:])
    packed = {
        "two members": members,
        "no check sum": good[:-8],
        "a wrong check sum": good[:-8] + b"\0" * 4 + good[-4:],
        "a wrong length": good[:-4] + b"\0" * 4,
        "more behind it": good + b"more",
        "a zlib stream": zlib.compress(AREA),
    }
    for name, data in packed.items():
        offer(talk, topic, batch(AREA, lambda _, data=data: data, **(THREE | {"attributes": GZIP})), name)
    read_back(talk, topic)


@scenario(ProduceRequest, versions="7-8")
def sizes(talk: Talk) -> None:
    largest = len(one(record(value=b"x" * 1000)))
    kept = talk.topic("kept", max_message_bytes=str(largest))
    grown = talk.topic("unpacked", max_message_bytes=str(largest), compression_type="uncompressed")
    shrunk = talk.topic("packed", max_message_bytes=str(largest), compression_type="gzip")
    for topic, what in ((kept, "kept"), (grown, "unpacked"), (shrunk, "packed")):
        for size in (1000, 1001, 5000):
            area = record(value=b"x" * size)
            offer(talk, topic, one(area), f"{size} bytes to be {what}")
            zipped = batch(area, lambda data: compress(Compression.GZIP, data), **(ONE | {"attributes": GZIP}))
            offer(talk, topic, zipped, f"{size} zipped bytes to be {what}")
        read_back(talk, topic)


@scenario(ProduceRequest, versions="7-8")
def a_batch_beyond_its_segment(talk: Talk) -> None:
    topic = talk.topic(segment_bytes="1048576", max_message_bytes="3000000")
    offer(talk, topic, one(record(value=b"x" * 1_048_000)), "almost a segment")
    offer(talk, topic, one(record(value=b"x" * 1_048_600)), "more than a segment")
    offer(talk, topic, batch(), "and on")
