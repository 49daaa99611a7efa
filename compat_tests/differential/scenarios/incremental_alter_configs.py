"""Changing single settings of topics: what each operation does, what is refused, and what takes effect."""

from typing import Any

from compat_tests.differential.asking import fill, produce
from compat_tests.differential.asking_administration import (
    APPEND,
    BROKER,
    BROKER_LOGGER,
    CLIENT_METRICS,
    DELETE,
    OWN_ID,
    SET,
    SUBTRACT,
    TOPIC,
    Changes,
    alter,
    describe,
    settle,
)
from compat_tests.differential.asking_reading import fetch, read
from compat_tests.differential.conversation import Talk, Topic, scenario
from compat_tests.differential.scenarios.describe_configs import arranged
from compat_tests.support.brokers import wait_until

from ottla.wire.messages.alter_configs import IncrementalAlterConfigsRequest
from ottla.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.wire.record_encoding import encode_batch
from ottla.wire.records import Record, iter_batches

CODEC_BITS = 7
# A broker that looks for old segments all the time.
TIDY_BROKER = {"log.retention.check.interval.ms": "100", "log.initial.task.delay.ms": "0"}
THROTTLED = "leader.replication.throttled.replicas"


def told(talk: Talk, topic: Topic, *keys: str, label: str = "described") -> None:
    request = describe((TOPIC, topic.name), keys=list(keys), synonyms=True)
    talk.ask(request, label=label, arrange=arranged)


def ask(talk: Talk, topic: Topic, changes: Changes, label: str, *, validate_only: bool = False) -> Any:
    return talk.ask(alter(((TOPIC, topic.name), changes), validate_only=validate_only), label=label)


@scenario(IncrementalAlterConfigsRequest)
def set_and_delete(talk: Talk) -> None:
    topic = talk.topic()
    ask(talk, topic, [("retention.ms", SET, "5000"), ("segment.ms", SET, "6000")], "set two")
    settle(talk, (TOPIC, topic.name), retention_ms="5000", segment_ms="6000")
    told(talk, topic, "retention.ms", "segment.ms")
    ask(talk, topic, [("retention.ms", SET, "5000")], "set the same")
    ask(talk, topic, [("retention.ms", DELETE, None), ("cleanup.policy", DELETE, None)], "delete one of two")
    settle(talk, (TOPIC, topic.name), retention_ms="604800000")
    told(talk, topic, "retention.ms", "segment.ms", "cleanup.policy")
    ask(talk, topic, [("segment.ms", DELETE, "with a value")], "delete with a value")
    ask(talk, topic, [], "nothing")
    settle(talk, (TOPIC, topic.name), segment_ms="604800000")
    told(talk, topic, "segment.ms")


@scenario(IncrementalAlterConfigsRequest)
def append_and_subtract(talk: Talk) -> None:
    topic = talk.topic()
    ask(talk, topic, [("cleanup.policy", APPEND, "compact")], "append to the default")
    settle(talk, (TOPIC, topic.name), cleanup_policy="delete,compact")
    told(talk, topic, "cleanup.policy")
    ask(talk, topic, [("cleanup.policy", APPEND, "compact")], "append what is there")
    ask(talk, topic, [("cleanup.policy", SUBTRACT, "delete")], "subtract")
    settle(talk, (TOPIC, topic.name), cleanup_policy="compact")
    told(talk, topic, "cleanup.policy")
    ask(talk, topic, [("cleanup.policy", SUBTRACT, "delete")], "subtract what is not there")
    ask(talk, topic, [("cleanup.policy", APPEND, "none")], "append what cannot be")
    ask(talk, topic, [("cleanup.policy", SUBTRACT, "none")], "subtract what cannot be")
    ask(talk, topic, [("cleanup.policy", APPEND, " delete ")], "append with spaces")
    settle(talk, (TOPIC, topic.name), cleanup_policy="compact,delete")
    told(talk, topic, "cleanup.policy")
    ask(talk, topic, [("cleanup.policy", SUBTRACT, "delete")], "subtract without them")
    ask(talk, topic, [("cleanup.policy", APPEND, "")], "append nothing")
    ask(talk, topic, [("cleanup.policy", SUBTRACT, "compact, delete,delete")], "subtract several")
    told(talk, topic, "retention.ms")


@scenario(IncrementalAlterConfigsRequest)
def lists(talk: Talk) -> None:
    topic = talk.topic()
    for number, (operation, value, result) in enumerate(
        (
            (APPEND, "0:0", "0:0"),
            (APPEND, "1:0,0:0,2:0", "0:0,1:0,2:0"),
            (SUBTRACT, "1:0,9:9", "0:0,2:0"),
            (APPEND, "3:0,3:0", "0:0,2:0,3:0"),
            (SUBTRACT, "0:0,0:0", "2:0,3:0"),
            (SUBTRACT, "2:0,3:0", ""),
            (APPEND, "*", "*"),
            (SET, "5:0,5:0", "5:0,5:0"),
            (SUBTRACT, "5:0", "5:0"),
        )
    ):
        ask(talk, topic, [(THROTTLED, operation, value)], f"step {number}")
        settle(talk, (TOPIC, topic.name), leader_replication_throttled_replicas=result)
    ask(talk, topic, [(THROTTLED, APPEND, "bad")], "append what cannot be")
    ask(talk, topic, [("follower.replication.throttled.replicas", SUBTRACT, "0:0")], "subtract from nothing")
    told(talk, topic, THROTTLED, "follower.replication.throttled.replicas")


@scenario(IncrementalAlterConfigsRequest)
def operations_that_cannot_be(talk: Talk) -> None:
    topic = talk.topic()
    for name in ("retention.ms", "compression.type", "no.such", "preallocate"):
        for operation in (APPEND, SUBTRACT):
            ask(talk, topic, [(name, operation, "1")], f"operation {operation} on {name}")
    ask(talk, topic, [("retention.ms", SET, "77"), ("segment.ms", APPEND, "1")], "after one that can")
    told(talk, topic, "retention.ms")


@scenario(IncrementalAlterConfigsRequest)
def operations_that_are_none(talk: Talk) -> None:
    topic = talk.topic()
    for operation in (4, -1, 127):
        ask(talk, topic, [("retention.ms", operation, "5")], f"operation {operation}")
        ask(talk, topic, [("no.such", operation, None)], f"operation {operation} without a value")
        request = alter(((BROKER, OWN_ID), [("log.retention.ms", operation, "5")]))
        talk.ask(request, label=f"operation {operation} on a broker")


@scenario(IncrementalAlterConfigsRequest)
def values_that_are_missing(talk: Talk) -> None:
    topic = talk.topic()
    for operation in (SET, APPEND, SUBTRACT):
        ask(talk, topic, [("cleanup.policy", operation, None)], f"operation {operation}")
    ask(talk, topic, [("retention.ms", SET, None), ("no.such", SET, None), ("segment.ms", SET, "1")], "two of three")
    ask(talk, topic, [("retention.ms", SET, "5"), ("segment.ms", DELETE, None)], "none")


@scenario(IncrementalAlterConfigsRequest)
def names_given_twice(talk: Talk) -> None:
    topic = talk.topic()
    ask(talk, topic, [("retention.ms", SET, "5"), ("retention.ms", SET, "5")], "the same")
    ask(talk, topic, [("retention.ms", SET, "5"), ("retention.ms", DELETE, None)], "set and delete")
    ask(talk, topic, [("retention.ms", SET, None), ("retention.ms", SET, None)], "without values")
    ask(talk, topic, [("no.such", SET, "1"), ("no.such", SET, "1")], "unknown")
    told(talk, topic, "retention.ms")


@scenario(IncrementalAlterConfigsRequest)
def one_wrong_value_changes_nothing(talk: Talk) -> None:
    topic = talk.topic(segment_ms="1000")
    for wrong in (("segment.ms", SET, "-1"), ("no.such", SET, "1"), ("cleanup.policy", APPEND, "x")):
        ask(talk, topic, [("retention.ms", SET, "5000"), ("flush.ms", DELETE, None), wrong], f"with {wrong[0]}")
    told(talk, topic, "retention.ms", "segment.ms", "flush.ms")


@scenario(IncrementalAlterConfigsRequest)
def several_resources(talk: Talk) -> None:
    first, second, third = (talk.topic(kind) for kind in ("first", "second", "third"))
    unknown = talk.name("unknown")
    change = [("retention.ms", SET, "5000")]
    wrong = [("retention.ms", SET, "x")]
    asked = (
        ((TOPIC, first.name), change),
        ((TOPIC, second.name), wrong),
        ((TOPIC, unknown), change),
        ((BROKER, "7"), change),
        ((3, third.name), change),
        ((TOPIC, third.name), change),
    )
    talk.ask(alter(*asked, validate_only=True), label="validate only")
    told(talk, first, "retention.ms")
    talk.ask(alter(*asked), label="two of six")
    settle(talk, (TOPIC, first.name), retention_ms="5000")
    settle(talk, (TOPIC, third.name), retention_ms="5000")
    told(talk, second, "retention.ms")
    talk.ask(alter(), label="none")


@scenario(IncrementalAlterConfigsRequest)
def resources_given_twice(talk: Talk) -> None:
    topic, other = talk.topic(), talk.topic("other")
    change = [("retention.ms", SET, "5000")]
    asked = (((TOPIC, topic.name), change), ((TOPIC, other.name), change), ((TOPIC, topic.name), []))
    talk.ask(alter(*asked), label="twice and once")
    talk.ask(alter(*[((TOPIC, topic.name), change)] * 3), label="three times")
    talk.ask(alter(*[((3, "x"), change)] * 2), label="of no type")
    talk.ask(alter(*[((BROKER, "7"), change)] * 2), label="unknown")
    told(talk, topic, "retention.ms")


@scenario(IncrementalAlterConfigsRequest)
def names_that_are_no_topics(talk: Talk) -> None:
    change = [("retention.ms", SET, "5000")]
    for name in ("", ".", "a b", "x" * 250, "__cluster_metadata"):
        talk.ask(alter(((TOPIC, name), change)), label=repr(name[:20]))
    unknown = talk.name("unknown")
    talk.ask(alter(((TOPIC, unknown), change)), label="unknown")
    talk.ask(alter(((TOPIC, unknown), []), validate_only=True), label="unknown, no change")
    talk.ask(alter(((TOPIC, unknown), [("retention.ms", SET, "x")])), label="unknown, wrong value")
    talk.ask(alter(((TOPIC, ""), [("retention.ms", SET, "x")])), label="no name, wrong value")
    for name, kind in ((unknown, "unknown"), ("", "no name"), ("a b", "bad name")):
        talk.ask(alter(((TOPIC, name), [("retention.ms", APPEND, "1")])), label=f"{kind}, wrong operation")
        talk.ask(alter(((TOPIC, name), [("no.such", SET, "1")])), label=f"{kind}, unknown setting")


@scenario(IncrementalAlterConfigsRequest)
def types_that_are_no_resources(talk: Talk) -> None:
    for number in (0, 1, 3, 5, 64, -1):
        talk.ask(alter(((number, "x"), [("retention.ms", SET, "5")])), label=f"type {number}")
        talk.ask(alter(((number, "x"), [("retention.ms", SET, None)])), label=f"type {number} without a value")


@scenario(IncrementalAlterConfigsRequest)
def loggers_and_client_metrics(talk: Talk) -> None:
    for number in (BROKER_LOGGER, CLIENT_METRICS):
        for name in ("", "x"):
            request = alter(((number, name), [("no.such", SET, "1")]), validate_only=True)
            talk.ask(request, label=f"type {number} named {name!r}")


@scenario(IncrementalAlterConfigsRequest)
def only_to_validate(talk: Talk) -> None:
    topic = talk.topic()
    ask(talk, topic, [("retention.ms", SET, "5000")], "right", validate_only=True)
    ask(talk, topic, [("retention.ms", SET, "-5")], "wrong", validate_only=True)
    ask(talk, topic, [("cleanup.policy", APPEND, "compact")], "append", validate_only=True)
    told(talk, topic, "retention.ms", "cleanup.policy")


# --- what takes effect


def records(*values: tuple[bytes | None, bytes | None], timestamp: int = 1000) -> bytes:
    return encode_batch(Record(offset, timestamp, key, value) for offset, (key, value) in enumerate(values))


def is_refused(answer: Any) -> bool:
    return answer.responses[0].partition_responses[0].error_code != 0


@scenario(IncrementalAlterConfigsRequest)
def a_produce_sees_the_largest_batch(talk: Talk) -> None:
    topic = talk.topic()
    request = produce(topic, records((None, b"x" * 1000)))
    talk.ask(request)
    ask(talk, topic, [("max.message.bytes", SET, "500")], "lower")
    talk.until(request, is_refused)
    talk.ask(request)
    ask(talk, topic, [("max.message.bytes", DELETE, None)], "default")
    talk.until(request, lambda answer: not is_refused(answer))


@scenario(IncrementalAlterConfigsRequest)
def a_produce_sees_compaction(talk: Talk) -> None:
    topic = talk.topic()
    request = produce(topic, records((b"key", b"value"), (None, b"value")))
    talk.ask(request)
    ask(talk, topic, [("cleanup.policy", APPEND, "compact")], "compact")
    talk.until(request, is_refused)
    talk.ask(request)
    talk.note("with keys", is_refused(talk.do(produce(topic, records((b"key", b"value"))))))


@scenario(IncrementalAlterConfigsRequest)
def a_produce_sees_the_timestamps(talk: Talk) -> None:
    topic = talk.topic()
    request = produce(topic, records((None, b"value")))
    talk.ask(request)
    ask(talk, topic, [("message.timestamp.before.max.ms", SET, "1800000")], "half an hour")
    talk.until(request, is_refused)
    talk.ask(request)
    ask(talk, topic, [("message.timestamp.type", SET, "LogAppendTime")], "of the append")
    talk.until(request, lambda answer: not is_refused(answer))
    found = talk.do(request).responses[0].partition_responses[0].log_append_time_ms
    talk.note("time of the append", found)


def stored_codec(talk: Talk, topic: Topic) -> int:
    """Of one more batch, which is sent without compression."""
    written = talk.do(produce(topic, records((None, b"value")))).responses[0].partition_responses[0]
    read_back = talk.do(fetch(read(topic, written.base_offset))).responses[0].partitions[0].records
    header, _, _ = next(iter_batches(bytes(read_back)))
    return header.attributes & CODEC_BITS


@scenario(IncrementalAlterConfigsRequest)
def a_produce_sees_the_compression(talk: Talk) -> None:
    topic = talk.topic()
    for codec, number in (("gzip", 1), ("lz4", 3), ("zstd", 4), ("uncompressed", 0), ("snappy", 2), ("producer", 0)):
        ask(talk, topic, [("compression.type", SET, codec)], codec)
        wait_until(lambda number=number: stored_codec(talk, topic) == number, codec)


@scenario(IncrementalAlterConfigsRequest, settings=TIDY_BROKER)
def old_records_go(talk: Talk) -> None:
    topic = talk.topic()
    fill(talk, topic, [1000, 2000, 3000])
    asked = [ListOffsetsPartition(partition_index=0, timestamp=-2)]
    earliest = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic.name, partitions=asked)])
    talk.ask(earliest)
    ask(talk, topic, [("retention.ms", SET, "5000")], "five seconds")
    talk.until(earliest, lambda answer: answer.topics[0].partitions[0].offset > 0)
    talk.ask(earliest)


@scenario(IncrementalAlterConfigsRequest)
def a_produce_sees_the_replicas_in_sync(talk: Talk) -> None:
    topic = talk.topic()
    ask(talk, topic, [("min.insync.replicas", SET, "2")], "two")
    settle(talk, (TOPIC, topic.name), min_insync_replicas="2")
    talk.ask(produce(topic, records((None, b"value"))), label="all")
    talk.ask(produce(topic, records((None, b"value")), acks=1), label="leader")
