"""Timestamps: LogAppendTime, the limits of what a producer may claim, and topics that need keys."""

import time

from compat_tests.differential.asking_records import GZIP, ONE, TIME, batch, offer, one, read_back, record, zipped
from compat_tests.differential.conversation import Talk, Topic, scenario

from ottla.wire.messages.produce import ProduceRequest

LOG_APPEND_TIME = 8
MINUTE_MS = 60_000
TEN = 10 * MINUTE_MS
LIMITS = {"message_timestamp_before_max_ms": str(MINUTE_MS), "message_timestamp_after_max_ms": str(MINUTE_MS)}


def offer_times(talk: Talk, topic: Topic, compress: bool) -> None:
    now = int(time.time() * 1000)
    offered = {
        "now": (now, 0),
        "long ago": (now - TEN, 0),
        "much later": (now + TEN, 0),
        "without time": (-1, 0),
        "before there was time": (-2, 0),
        "now, then long ago": (now, -TEN),
        "now, then much later": (now, TEN),
        "long ago, then now": (now - TEN, TEN),
        "long ago, then much later": (now - TEN, 2 * TEN),
    }
    for name, (base, delta) in offered.items():
        area = record() + record(offset_delta=1, time_delta=delta)
        times = {"base_timestamp": base, "max_timestamp": max(base, base + delta)}
        codec = {"attributes": GZIP, "compress": zipped} if compress else {}
        offer(talk, topic, batch(area, **times, **codec), name)


@scenario(ProduceRequest, versions="3-13")  # message sets are in `legacy_records`
def limits_of_create_time(talk: Talk) -> None:
    topic = talk.topic(**LIMITS)
    offer_times(talk, topic, compress=False)
    read_back(talk, topic)


@scenario(ProduceRequest, versions="7-8")  # compressed records are no different in others
def limits_of_create_time_of_compressed_records(talk: Talk) -> None:
    for codec in ("producer", "lz4"):
        topic = talk.topic(codec, compression_type=codec, **LIMITS)
        offer_times(talk, topic, compress=True)
        read_back(talk, topic)


@scenario(ProduceRequest, versions="3-13")
def log_append_time(talk: Talk) -> None:
    topic = talk.topic(message_timestamp_type="LogAppendTime")
    offer_times(talk, topic, compress=False)
    claimed = {"attributes": LOG_APPEND_TIME, "base_timestamp": TIME, "max_timestamp": TIME + 1}
    offer(talk, topic, batch(**claimed), "said to have it already")
    zip_claimed = claimed | {"attributes": LOG_APPEND_TIME | GZIP, "compress": zipped}
    offer(talk, topic, batch(**zip_claimed), "said to have it already, zipped")
    read_back(talk, topic)


@scenario(ProduceRequest, versions="7-8")
def log_append_time_of_compressed_records(talk: Talk) -> None:
    for codec in ("producer", "lz4"):
        topic = talk.topic(codec, compression_type=codec, message_timestamp_type="LogAppendTime")
        offer_times(talk, topic, compress=True)
        offer(talk, topic, batch(attributes=LOG_APPEND_TIME | GZIP, compress=zipped), "said to have it already")
        read_back(talk, topic)


@scenario(ProduceRequest, versions="3-13")
def a_claim_of_log_append_time(talk: Talk) -> None:
    topic = talk.topic(**LIMITS)
    now = int(time.time() * 1000)
    for name, when in (("now", now), ("long ago", now - TEN), ("at no time", -1)):
        times = {"base_timestamp": now, "max_timestamp": when}
        offer(talk, topic, batch(attributes=LOG_APPEND_TIME, **times), name)
        offer(talk, topic, batch(attributes=LOG_APPEND_TIME | GZIP, compress=zipped, **times), f"{name}, zipped")
    read_back(talk, topic)


@scenario(ProduceRequest, versions="3-13")
def keys_of_compacted_topics(talk: Talk) -> None:
    keyless = record(key=None)
    four = keyless + record(offset_delta=1) + record(offset_delta=2, key=None) + record(offset_delta=3, key=None)
    many = {"count": 4, "last_offset_delta": 3, "max_timestamp": TIME}
    for policy in ("compact", "compact,delete"):
        for codec in ("producer", "lz4"):
            name = f"{policy} {codec}".replace(",", "-").replace(" ", "-")
            topic = talk.topic(name, cleanup_policy=policy, compression_type=codec)
            offer(talk, topic, one(record()), f"a key for {name}")
            offer(talk, topic, one(record(key=b"")), f"an empty key for {name}")
            offer(talk, topic, one(record(value=None)), f"no value for {name}")
            offer(talk, topic, one(keyless), f"no key for {name}")
            offer(talk, topic, batch(keyless, zipped, **(ONE | {"attributes": GZIP})), f"no key, zipped, for {name}")
            offer(talk, topic, batch(four, **many), f"one key of four for {name}")
            offer(talk, topic, batch(four, zipped, **(many | {"attributes": GZIP})), f"one of four, zipped, for {name}")


@scenario(ProduceRequest, versions="7-8")
def no_key_and_no_time(talk: Talk) -> None:
    now = int(time.time() * 1000)
    area = (
        record(key=None) + record(offset_delta=1, time_delta=-TEN) + record(offset_delta=2, key=None, time_delta=-TEN)
    )
    fields = {"count": 3, "last_offset_delta": 2, "base_timestamp": now, "max_timestamp": now}
    for codec in ("producer", "lz4"):
        topic = talk.topic(codec, cleanup_policy="compact", compression_type=codec, **LIMITS)
        offer(talk, topic, batch(area, **fields), f"for {codec}")
        offer(talk, topic, batch(area, zipped, **(fields | {"attributes": GZIP})), f"zipped for {codec}")
