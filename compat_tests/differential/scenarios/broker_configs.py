"""The settings of brokers: all of them described, and those that can be changed while the broker runs.

Each scenario that changes settings leaves them as they were: the brokers are shared.
"""

from typing import Any

from compat_tests.differential.asking import produce
from compat_tests.differential.asking_administration import (
    APPEND,
    BROKER,
    CHANGED_BROKER,
    DELETE,
    OWN_ID,
    SET,
    SUBTRACT,
    TOPIC,
    Changes,
    Resource,
    alter,
    describe,
    settle,
)
from compat_tests.differential.conversation import Talk, scenario
from compat_tests.differential.scenarios.alter_configs import replace
from compat_tests.differential.scenarios.describe_configs import arranged

from ottla.wire.messages.alter_configs import AlterConfigsRequest, IncrementalAlterConfigsRequest
from ottla.wire.messages.describe_configs import DescribeConfigsRequest
from ottla.wire.record_encoding import encode_batch
from ottla.wire.records import Record

OWN: Resource = (BROKER, OWN_ID)
ALL: Resource = (BROKER, "")
# What the two brokers are told by the tests, and what says what kind of broker it is.
OF_THIS_PROCESS = {
    "advertised.listeners",
    "broker.id",
    "controller.listener.names",
    "controller.quorum.voters",
    "listener.security.protocol.map",
    "listeners",
    "log.dir",
    "log.dirs",
    "process.roles",
    "share.coordinator.state.topic.min.isr",
    "share.coordinator.state.topic.replication.factor",
    "transaction.state.log.min.isr",
    "transaction.state.log.replication.factor",
}
# Settings that can be changed, with a value that is allowed and not the default.
CHANGED = {
    "background.threads": "12",
    "compression.gzip.level": "5",
    "compression.lz4.level": "5",
    "compression.type": "lz4",
    "compression.zstd.level": "5",
    "log.cleaner.backoff.ms": "1000",
    "log.cleaner.dedupe.buffer.size": "13421772",
    "log.cleaner.delete.retention.ms": "1000",
    "log.cleaner.io.buffer.load.factor": "0.5",
    "log.cleaner.io.buffer.size": "100000",
    "log.cleaner.io.max.bytes.per.second": "1e9",
    "log.cleaner.max.compaction.lag.ms": "100000",
    "log.cleaner.min.cleanable.ratio": "0.25",
    "log.cleaner.min.compaction.lag.ms": "5",
    "log.cleaner.threads": "2",
    "log.cleanup.policy": "compact,delete",
    "log.flush.interval.messages": "100",
    "log.flush.interval.ms": "100",
    "log.index.interval.bytes": "100",
    "log.index.size.max.bytes": "1000",
    "log.message.timestamp.after.max.ms": "100",
    "log.message.timestamp.before.max.ms": "100",
    "log.message.timestamp.type": "LogAppendTime",
    "log.preallocate": "true",
    "log.retention.bytes": "1000",
    "log.retention.ms": "1000",
    "log.roll.jitter.ms": "1000",
    "log.roll.ms": "1000",
    "log.segment.bytes": "2000000",
    "log.segment.delete.delay.ms": "10",
    "max.connection.creation.rate": "1000",
    "max.connections": "1000",
    "max.connections.per.ip": "1000",
    "max.connections.per.ip.overrides": "10.0.0.1:5",
    "message.max.bytes": "1000",
    "num.io.threads": "10",
    "num.network.threads": "4",
    "num.recovery.threads.per.data.dir": "3",
    "num.replica.fetchers": "2",
    "producer.id.expiration.ms": "1000",
    "remote.log.reader.threads": "12",
    "transaction.partition.verification.enable": "false",
    "unclean.leader.election.enable": "true",
}
READ_ONLY = ["auto.create.topics.enable", "broker.id", "delete.topic.enable", "fetch.max.bytes", "log.dirs"]
READ_ONLY += ["log.retention.hours", "log.retention.minutes", "log.roll.hours", "node.id", "num.partitions"]
READ_ONLY += ["group.initial.rebalance.delay.ms", "offsets.topic.num.partitions", "socket.request.max.bytes"]
UNKNOWN = ["no.such", "retention.ms", "", "Log.retention.ms", "listener.name.plaintext.no.such", "x.y.z", " "]
OF_ONE_LISTENER = [
    ("listener.name.plaintext.max.connections", "100"),
    ("listener.name.plaintext.max.connections", "x"),
    ("listener.name.plaintext.max.connections", "0"),
    ("listener.name.plaintext.max.connections", "-1"),
    ("listener.name.plaintext.max.connection.creation.rate", "0"),
    ("listener.name.x.max.connections", "0"),
    ("listener.name.plaintext.num.network.threads", "4"),
    ("listener.name.x.connections.max.reauth.ms", "100"),
    ("listener.name.plaintext.log.retention.ms", "x"),
    ("listener.name.plaintext.ssl.client.auth", "maybe"),
    ("listener.name.", "x"),
    ("listener.name.plaintext", "x"),
]
REFUSED = [
    ("log.retention.ms", "x"),
    ("log.retention.ms", "0"),
    ("log.retention.ms", "-2"),
    ("log.retention.ms", ""),
    ("log.segment.bytes", "1"),
    ("log.cleanup.policy", "none"),
    ("log.cleanup.policy", ""),
    ("log.preallocate", "yes"),
    ("log.cleaner.min.cleanable.ratio", "2"),
    ("log.cleaner.io.buffer.load.factor", "x"),
    ("compression.type", "GZIP"),
    ("compression.gzip.level", "0"),
    ("log.message.timestamp.type", "x"),
    ("log.roll.ms", "0"),
    ("log.roll.jitter.ms", "-1"),
    ("message.max.bytes", "-1"),
    ("max.connections", "-1"),
    ("max.connections", "0"),
    ("max.connections.per.ip", "0"),
    ("max.connection.creation.rate", "0"),
    ("max.connections.per.ip.overrides", "x"),
    ("num.io.threads", "0"),
    ("num.io.threads", "3"),
    ("num.io.threads", "17"),
    ("num.network.threads", "7"),
    ("background.threads", "21"),
    ("background.threads", "4"),
    ("num.replica.fetchers", "3"),
    ("num.recovery.threads.per.data.dir", "5"),
    ("log.cleaner.threads", "0"),
    ("log.cleaner.threads", "3"),
    ("log.cleaner.threads", "1000"),
    ("remote.log.reader.threads", "4"),
    ("remote.log.manager.follower.thread.pool.size", "5"),
    ("log.cleaner.dedupe.buffer.size", "1000"),
    ("log.cleaner.io.buffer.size", "1000"),
    ("log.cleaner.io.buffer.size", "-1"),
    ("producer.id.expiration.ms", "0"),
    ("min.insync.replicas", "0"),
    ("log.local.retention.ms", "-1"),
    ("log.local.retention.ms", "9223372036854775807"),
    ("log.local.retention.bytes", "-3"),
]


def ask(talk: Talk, resource: Resource, changes: Changes, label: str, *, validate_only: bool = False) -> Any:
    return talk.ask(alter((resource, changes), validate_only=validate_only), label=label)


def told(talk: Talk, resource: Resource, *keys: str, label: str = "described") -> None:
    talk.ask(describe(resource, keys=list(keys) or None, synonyms=True), label=label, arrange=arranged)


def without_own(answer: Any) -> None:
    arranged(answer)
    for result in answer.results:
        result.configs = [each for each in result.configs if each.name not in OF_THIS_PROCESS]


@scenario(DescribeConfigsRequest)
def every_setting(talk: Talk) -> None:
    request = describe(OWN, synonyms=True, documentation=True)
    talk.ask(request, label="this broker", arrange=without_own)


@scenario(DescribeConfigsRequest, settings=CHANGED_BROKER)
def given_at_start(talk: Talk) -> None:
    keys = ("log.retention.hours", "log.retention.minutes", "log.retention.ms", "log.roll.ms", "log.roll.hours")
    told(talk, OWN, *keys, "log.preallocate", "num.partitions")


@scenario(IncrementalAlterConfigsRequest)
def settings_that_can_change(talk: Talk) -> None:
    for name, value in CHANGED.items():
        for resource, kind in ((OWN, "this"), (ALL, "all")):
            ask(talk, resource, [(name, SET, value)], f"{name} of {kind}", validate_only=True)


@scenario(IncrementalAlterConfigsRequest)
def settings_that_cannot_change(talk: Talk) -> None:
    for resource, kind in ((OWN, "this"), (ALL, "all")):
        for name in READ_ONLY:
            ask(talk, resource, [(name, SET, "1")], f"{name} of {kind}", validate_only=True)
        ask(talk, resource, [("num.partitions", DELETE, None)], f"delete, of {kind}", validate_only=True)
        ask(talk, resource, [("log.dirs", APPEND, "/x")], f"append, of {kind}", validate_only=True)
        ask(talk, resource, [("num.partitions", APPEND, "1")], f"append to no list, of {kind}", validate_only=True)
        changes = [("log.retention.ms", SET, "5"), ("node.id", SET, "1")]
        ask(talk, resource, changes, f"with one that can, of {kind}", validate_only=True)


@scenario(IncrementalAlterConfigsRequest)
def settings_of_one_broker_only(talk: Talk) -> None:
    for name in ("listeners", "listener.security.protocol.map", "ssl.keystore.location", "sasl.jaas.config"):
        ask(talk, ALL, [(name, SET, "x")], f"{name} of all", validate_only=True)
    for name in ("ssl.keystore.location", "ssl.truststore.password", "listeners"):
        ask(talk, ALL, [(name, DELETE, None)], f"delete {name} of all", validate_only=True)
    for name in ("ssl.keystore.location", "ssl.keystore.password", "ssl.key.password"):
        ask(talk, OWN, [(name, SET, "x")], f"{name} of this", validate_only=True)


@scenario(IncrementalAlterConfigsRequest)
def names_that_are_no_settings(talk: Talk) -> None:
    for resource, kind in ((OWN, "this"), (ALL, "all")):
        for name in UNKNOWN:
            ask(talk, resource, [(name, SET, "1")], f"{name!r} of {kind}", validate_only=True)
            ask(talk, resource, [(name, DELETE, None)], f"delete {name!r} of {kind}", validate_only=True)
            ask(talk, resource, [(name, APPEND, "1")], f"append to {name!r} of {kind}", validate_only=True)


@scenario(IncrementalAlterConfigsRequest)
def settings_of_one_listener(talk: Talk) -> None:
    for name, value in OF_ONE_LISTENER:
        for resource, kind in ((OWN, "this"), (ALL, "all")):
            ask(talk, resource, [(name, SET, value)], f"{name}={value} of {kind}", validate_only=True)


@scenario(IncrementalAlterConfigsRequest)
def replicas_in_sync(talk: Talk) -> None:
    for resource, kind in ((OWN, "this"), (ALL, "all")):
        ask(talk, resource, [("min.insync.replicas", SET, "2")], f"set for {kind}", validate_only=True)
        ask(talk, resource, [("min.insync.replicas", DELETE, None)], f"delete for {kind}", validate_only=True)


@scenario(IncrementalAlterConfigsRequest)
def values_that_cannot_be(talk: Talk) -> None:
    for name, value in REFUSED:
        for resource, kind in ((OWN, "this"), (ALL, "all")):
            ask(talk, resource, [(name, SET, value)], f"{name}={value!r} of {kind}", validate_only=True)


@scenario(IncrementalAlterConfigsRequest)
def names_that_are_no_brokers(talk: Talk) -> None:
    for name in ("7", "-1", "x", "+0", "00", " 0", "0 ", "2147483648", "99999999999999999999", "1_0"):
        request = alter(((BROKER, name), [("log.retention.ms", SET, "5000")]), validate_only=True)
        talk.ask(request, label=repr(name))


@scenario(IncrementalAlterConfigsRequest, settings=CHANGED_BROKER)
def layers(talk: Talk) -> None:
    """A value for all brokers, one for this broker above it, and topics that inherit it."""
    topic = talk.topic()
    talk.do(alter(((TOPIC, topic.name), [("retention.ms", DELETE, None)])))
    keys = ("log.retention.ms", "log.retention.hours", "log.retention.minutes")
    told(talk, ALL, *keys)
    ask(talk, ALL, [("log.retention.ms", SET, "5000")], "for all")
    settle(talk, OWN, log_retention_ms="5000")
    told(talk, OWN, *keys)
    told(talk, ALL, *keys)
    told(talk, (TOPIC, topic.name), "retention.ms")
    ask(talk, OWN, [("log.retention.ms", SET, "6000")], "for this")
    settle(talk, OWN, log_retention_ms="6000")
    told(talk, OWN, *keys)
    told(talk, (TOPIC, topic.name), "retention.ms")
    ask(talk, OWN, [("log.retention.ms", SET, "6000")], "the same")
    ask(talk, ALL, [("log.retention.ms", DELETE, None)], "no longer for all")
    settle(talk, OWN, log_retention_ms="6000")
    ask(talk, OWN, [("log.retention.ms", DELETE, None)], "no longer for this")
    settle(talk, OWN, log_retention_ms=None)
    settle(talk, (TOPIC, topic.name), retention_ms="360000000")
    told(talk, OWN, *keys)
    told(talk, (TOPIC, topic.name), "retention.ms")


@scenario(IncrementalAlterConfigsRequest, settings=CHANGED_BROKER)
def lists(talk: Talk) -> None:
    for resource in (OWN, ALL):
        ask(talk, resource, [("log.cleanup.policy", APPEND, "compact")], "append")
        settle(talk, OWN, log_cleanup_policy="delete,compact")
        told(talk, OWN, "log.cleanup.policy")
        ask(talk, resource, [("log.cleanup.policy", SUBTRACT, "delete")], "subtract")
        settle(talk, OWN, log_cleanup_policy="compact")
        ask(talk, resource, [("log.cleanup.policy", APPEND, "none")], "append what cannot be")
        ask(talk, resource, [("log.retention.ms", SUBTRACT, "1")], "subtract from no list")
        ask(talk, resource, [("log.cleanup.policy", DELETE, None)], "delete")
        settle(talk, OWN, log_cleanup_policy="delete")


@scenario(IncrementalAlterConfigsRequest, settings=CHANGED_BROKER)
def changed_and_described(talk: Talk) -> None:
    names = [name for name in CHANGED if name not in ("message.max.bytes", "log.flush.interval.messages")]
    for resource, kind in ((ALL, "all"), (OWN, "this")):
        ask(talk, resource, [(name, SET, CHANGED[name]) for name in names], f"set for {kind}")
        settle(talk, OWN, num_io_threads="10", log_segment_delete_delay_ms="10")
        told(talk, OWN, *names, label=f"described, set for {kind}")
        ask(talk, resource, [(name, DELETE, None) for name in names], f"deleted for {kind}")
        settle(talk, OWN, num_io_threads="8", log_segment_delete_delay_ms="60000")
    told(talk, OWN, *names, label="as it was")


@scenario(IncrementalAlterConfigsRequest, settings=CHANGED_BROKER)
def unknown_and_secret(talk: Talk) -> None:
    """A name that the broker does not know may be a plugin's, and secret."""
    names = ["no.such", "listener.name.x.ssl.key.password", "listener.name.x.ssl.client.auth"]
    values = ["plain", "secret", "none"]
    ask(talk, OWN, [(name, SET, value) for name, value in zip(names, values, strict=True)], "set for this")
    talk.until(describe(OWN, keys=names), lambda answer: len(answer.results[0].configs) == len(names))
    told(talk, OWN, *names)
    ask(talk, OWN, [(name, DELETE, None) for name in names], "deleted for this")
    talk.until(describe(OWN, keys=names), lambda answer: not answer.results[0].configs)
    ask(talk, ALL, [("no.such", SET, "plain")], "set for all")
    talk.until(describe(ALL, keys=names), lambda answer: len(answer.results[0].configs) == 1)
    told(talk, ALL, *names)
    told(talk, OWN, *names)
    ask(talk, ALL, [("no.such", DELETE, None)], "deleted for all")
    talk.until(describe(ALL, keys=names), lambda answer: not answer.results[0].configs)


@scenario(IncrementalAlterConfigsRequest, settings=CHANGED_BROKER)
def a_produce_sees_the_largest_batch(talk: Talk) -> None:
    topic = talk.topic()
    request = produce(topic, encode_batch([Record(0, 1000, None, b"x" * 1000)]))

    def error(answer: Any) -> int:
        return answer.responses[0].partition_responses[0].error_code

    for resource in (ALL, OWN):
        ask(talk, resource, [("message.max.bytes", SET, "500")], "lower")
        talk.until(request, lambda answer: error(answer) != 0)
        talk.note("error", error(talk.do(request)))
        ask(talk, resource, [("message.max.bytes", DELETE, None)], "default")
        talk.until(request, lambda answer: error(answer) == 0)


@scenario(AlterConfigsRequest, settings=CHANGED_BROKER)
def all_are_replaced(talk: Talk) -> None:
    talk.ask(replace((OWN, [("log.retention.ms", "5000"), ("log.segment.delete.delay.ms", "7")])), label="two")
    settle(talk, OWN, log_retention_ms="5000", log_segment_delete_delay_ms="7")
    talk.ask(replace((OWN, [("log.segment.delete.delay.ms", "8")])), label="one")
    settle(talk, OWN, log_retention_ms=None, log_segment_delete_delay_ms="8")
    told(talk, OWN, "log.retention.ms", "log.segment.delete.delay.ms")
    talk.ask(replace((OWN, [("num.partitions", "8")])), label="cannot change")
    talk.ask(replace((OWN, [("log.retention.ms", "x")])), label="cannot be")
    talk.ask(replace((OWN, [("no.such", "x")]), validate_only=True), label="unknown")
    talk.ask(replace((OWN, []), validate_only=True), label="none, validate only")
    talk.ask(replace((OWN, [])), label="none")
    settle(talk, OWN, log_segment_delete_delay_ms="60000")
    told(talk, OWN, "log.segment.delete.delay.ms")


@scenario(AlterConfigsRequest)
def names_that_are_no_brokers_to_replace(talk: Talk) -> None:
    for name in ("7", "-1", "x", " 0"):
        talk.ask(replace(((BROKER, name), []), validate_only=True), label=repr(name))
