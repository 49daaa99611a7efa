"""Message sets of magic 0 and 1: converted up when they are produced, and converted down for old versions of Fetch."""

import time

from compat_tests.differential.asking import produce
from compat_tests.differential.asking_legacy import message, three, wrapped
from compat_tests.differential.asking_records import (
    GZIP,
    LZ4,
    NO_LIMIT,
    SNAPPY,
    TWO_RECORDS,
    ZSTD,
    batch,
    fetch,
    header,
    new_producer,
    offer,
    one,
    read_back,
    record,
    zipped,
)
from compat_tests.differential.conversation import Talk, Topic, scenario

from ottla.wire.compression import Compression, compress
from ottla.wire.messages.fetch import FetchRequest
from ottla.wire.messages.produce import ProduceRequest

LEGACY_CODECS = (GZIP, SNAPPY, LZ4)
LOG_APPEND_TIME = 8
MINUTE_MS = 60_000
INT32_MAX, INT64_MAX = 2**31 - 1, 2**63 - 1
OLD_FETCHES = (0, 2, 4)  # magic 0, magic 1 and magic 2


def read_in_every_magic(talk: Talk, topic: Topic, offset: int = 0) -> None:
    for version in OLD_FETCHES:
        read_back(talk, topic, version=version, offset=offset)


# From version 3 on there are no message sets in Produce.


@scenario(ProduceRequest, versions="0-2")
def plain_sets(talk: Talk) -> None:
    for magic in (0, 1):
        topic = talk.topic(f"magic-{magic}")
        offer(talk, topic, three(magic), f"three of magic {magic}")
        offer(talk, topic, three(magic, first=17), f"three of magic {magic} with other offsets")
        offer(talk, topic, message(magic, offset=-1) + message(magic, offset=5), f"offsets -1 and 5 of magic {magic}")
        offer(talk, topic, message(magic, key=None, value=None), f"nothing in magic {magic}")
        read_in_every_magic(talk, topic)


@scenario(ProduceRequest, versions="0-2")
def compressed_sets(talk: Talk) -> None:
    for magic in (0, 1):
        for codec in LEGACY_CODECS:
            # One set in each topic: Kafka cuts off what conversion makes longer than it was, and how long that is depends
            # on the compressor.
            for offset, first in ((2, "numbered"), (0, "unnumbered")):
                topic = talk.topic(f"{first}-{magic}-codec-{codec}")
                records = wrapped(codec, three(magic), magic, offset=offset)
                offer(talk, topic, records, f"codec {codec} of magic {magic}, {first}")
                read_in_every_magic(talk, topic)
                read_in_every_magic(talk, topic, offset=1)


@scenario(ProduceRequest, versions="0-2")
def codecs_of_topics(talk: Talk) -> None:
    sets = {"plain": three(1), "gzip": wrapped(GZIP, three(1)), "lz4 of magic 0": wrapped(LZ4, three(0), 0)}
    for wanted in ("uncompressed", "gzip", "snappy", "lz4", "zstd"):
        topic = talk.topic(wanted, compression_type=wanted)
        for name, data in sets.items():
            offer(talk, topic, data, f"{name} to {wanted}")
        read_back(talk, topic)


@scenario(ProduceRequest, versions="0-2")
def wrong_fields_of_a_message(talk: Talk) -> None:
    for magic in (0, 1):
        topic = talk.topic(f"magic-{magic}")
        natural = len(message(magic)) - 12
        wrong = {
            "crc 0": message(magic, crc=0),
            "size 13": message(magic, size=13),
            "size 0": message(magic, size=0),
            "size -1": message(magic, size=-1),
            "size one too small": message(magic, size=natural - 1),
            "size one too large": message(magic, size=natural + 1),
            "key length -2": message(magic, key=None, key_length=-2),
            "key length one too long": message(magic, key_length=4),
            "key length of the largest": message(magic, key_length=INT32_MAX),
            "value length -2": message(magic, value=None, value_length=-2),
            "value length one too short": message(magic, value_length=4),
            "value length one too long": message(magic, value_length=6),
            "bytes behind its value": message(magic, rest=b"more"),
            "attributes 4": message(magic, attributes=4),
            "attributes 5": message(magic, attributes=5),
            "attributes 7": message(magic, attributes=7),
            "attributes 16": message(magic, attributes=16),
            "attributes -128": message(magic, attributes=-128),
            "log append time": message(magic, attributes=LOG_APPEND_TIME),
            "gzip that is none": message(magic, attributes=GZIP),
            "snappy that is none": message(magic, attributes=SNAPPY),
            "lz4 that is none": message(magic, attributes=LZ4),
            "offset of the largest": message(magic, offset=INT64_MAX),
        }
        for name, data in wrong.items():
            offer(talk, topic, data, f"{name} in magic {magic}")
            offer(talk, topic, message(magic) + data, f"{name} behind a good one in magic {magic}")
        read_back(talk, topic)


@scenario(ProduceRequest, versions="0-2")
def wrong_fields_of_a_wrapper(talk: Talk) -> None:
    for magic in (0, 1):
        topic = talk.topic(f"magic-{magic}")
        inner, other = three(magic), three(1 - magic)
        wrong = {
            "crc 0": wrapped(GZIP, inner, magic, crc=0),
            "an inner crc 0": wrapped(GZIP, message(magic) + message(magic, offset=1, crc=0), magic, offset=1),
            "inner messages of the other magic": wrapped(GZIP, other, magic),
            "inner batches": wrapped(GZIP, batch(), magic),
            "inner wrappers": wrapped(GZIP, wrapped(GZIP, inner, magic), magic),
            "no inner messages": wrapped(GZIP, b"", magic),
            "half an inner message": wrapped(GZIP, inner[:-5], magic),
            "null value": message(magic, attributes=GZIP, key=None, value=None),
            "a key of its own": message(magic, attributes=GZIP, value=compress(Compression.GZIP, inner)),
            "two wrappers": wrapped(GZIP, inner, magic) + wrapped(GZIP, inner, magic),
            "a message behind it": wrapped(GZIP, inner, magic) + message(magic),
            "a message before it": message(magic) + wrapped(GZIP, inner, magic),
            "two codecs": wrapped(GZIP, inner, magic) + wrapped(SNAPPY, inner, magic),
            "zstd": wrapped(ZSTD, inner, magic),
            "log append time": wrapped(GZIP, inner, magic, attributes=GZIP | LOG_APPEND_TIME),
            "another codec than it says": wrapped(GZIP, inner, magic, attributes=SNAPPY),
        }
        for name, data in wrong.items():
            offer(talk, topic, data, f"{name} in magic {magic}")
        read_back(talk, topic)


@scenario(ProduceRequest, versions="0-2")
def offsets_of_a_wrapper(talk: Talk) -> None:
    for magic in (0, 1):
        topic = talk.topic(f"magic-{magic}")
        for offset in (0, 1, 2, 3, 100, -1, INT64_MAX):
            offer(
                talk, topic, wrapped(GZIP, three(magic), magic, offset=offset), f"wrapper at {offset} in magic {magic}"
            )
        for first in (7, -1):
            inner = three(magic, first=first)
            for offset in (0, first + 2, 50):
                label = f"inner from {first}, wrapper at {offset} in magic {magic}"
                offer(talk, topic, wrapped(GZIP, inner, magic, offset=offset), label)
        gap = message(magic, offset=0) + message(magic, offset=5)
        offer(talk, topic, wrapped(GZIP, gap, magic, offset=5), f"a gap inside in magic {magic}")
        back = message(magic, offset=5) + message(magic, offset=0)
        offer(talk, topic, wrapped(GZIP, back, magic, offset=5), f"backwards inside in magic {magic}")
        read_in_every_magic(talk, topic)


@scenario(ProduceRequest, versions="0-2")
def timestamps(talk: Talk) -> None:
    limits = {"message_timestamp_before_max_ms": str(MINUTE_MS), "message_timestamp_after_max_ms": str(MINUTE_MS)}
    now = int(time.time() * 1000)
    times = {"now": now, "long ago": now - 10 * MINUTE_MS, "much later": now + 10 * MINUTE_MS, "none": -1, "below": -2}
    topics = {
        "kept": talk.topic("kept"),
        "limited": talk.topic("limited", **limits),
        "at-append": talk.topic("at-append", message_timestamp_type="LogAppendTime"),
    }
    for kind, topic in topics.items():
        for name, when in times.items():
            offer(talk, topic, message(timestamp=when), f"{name} for {kind}")
            inner = message(timestamp=when) + message(timestamp=when, offset=1)
            offer(talk, topic, wrapped(GZIP, inner, offset=1, timestamp=when), f"{name}, wrapped, for {kind}")
        claimed = wrapped(GZIP, three(1), attributes=GZIP | LOG_APPEND_TIME, timestamp=now)
        offer(talk, topic, claimed, f"log append time for {kind}")
        read_in_every_magic(talk, topic)


@scenario(ProduceRequest, versions="0-2")
def limits_of_topics(talk: Talk) -> None:
    size = len(message(1))
    for magic in (0, 1):
        compacted = talk.topic(f"compacted-{magic}", cleanup_policy="compact")
        offer(talk, compacted, message(magic), f"a key in magic {magic}")
        offer(talk, compacted, message(magic, key=None), f"no key in magic {magic}")
        offer(talk, compacted, three(magic) + message(magic, key=None), f"one without key in magic {magic}")
        keyless = message(magic, key=None) + message(magic, offset=1)
        offer(talk, compacted, wrapped(GZIP, keyless, magic, offset=1), f"one without key, wrapped, in magic {magic}")
        small = talk.topic(f"small-{magic}", max_message_bytes=str(2 * size + 60))
        for count in (1, 3, 10):
            offer(talk, small, message(magic) * count, f"{count} messages in magic {magic}")
        offer(talk, small, message(magic, value=b"x" * 500), f"a large one in magic {magic}")


@scenario(FetchRequest, versions="0-4")  # from 4 on records come as they are, which `scenarios/fetch*.py` see to
def batches_for_old_readers(talk: Talk) -> None:
    producer = {"producer_id": new_producer(talk), "producer_epoch": 0, "base_sequence": 0}
    sources = {
        "plain": batch(),
        "gzip": batch(TWO_RECORDS, zipped, attributes=GZIP),
        "snappy": batch(TWO_RECORDS, lambda area: compress(Compression.SNAPPY, area), attributes=SNAPPY),
        "lz4": batch(TWO_RECORDS, lambda area: compress(Compression.LZ4, area), attributes=LZ4),
        "with headers": one(record(headers=header(b"h", b"v"), header_count=1)),
        "of a producer": batch(**producer),
        "null": one(record(key=None, value=None)),
        "without time": one(record(), base_timestamp=-1, max_timestamp=-1),
    }
    for name, data in sources.items():
        topic = talk.topic(name.replace(" ", "-"), message_timestamp_after_max_ms=NO_LIMIT)
        talk.note(f"{name} produced", talk.do(produce(topic, data)).responses[0].partition_responses[0].error_code)
        for offset in (0, 1, 2):
            talk.ask(fetch(topic, offset), label=f"{name} from {offset}")


@scenario(FetchRequest, versions="0-10")  # zstd is known since 10
def zstd_for_old_readers(talk: Talk) -> None:
    packed = batch(TWO_RECORDS, lambda area: compress(Compression.ZSTD, area), attributes=ZSTD)
    for wanted in ("producer", "zstd"):
        topic = talk.topic(wanted, compression_type=wanted)
        talk.do(produce(topic, batch()))
        talk.do(produce(topic, packed))
        for offset in (0, 2):
            talk.ask(fetch(topic, offset), label=f"{wanted} from {offset}")


@scenario(FetchRequest, versions="0-4")
def log_append_time_for_old_readers(talk: Talk) -> None:
    topic = talk.topic(message_timestamp_type="LogAppendTime")
    talk.do(produce(topic, batch()))
    talk.do(produce(topic, batch(TWO_RECORDS, zipped, attributes=GZIP)))
    talk.ask(fetch(topic))


@scenario(FetchRequest, versions="0-4")
def limits_of_bytes_for_old_readers(talk: Talk) -> None:
    topic = talk.topic()
    for _ in range(4):
        talk.do(produce(topic, batch()))
    for max_bytes in (0, 1, 40, 100, 150, 1000):
        talk.ask(fetch(topic, max_bytes=max_bytes), label=f"{max_bytes} bytes")
        talk.ask(fetch(topic, 1, max_bytes=max_bytes), label=f"{max_bytes} bytes from 1")
