"""The settings of topics: defaults, every setting changed and described, and every kind of value that is refused."""

from typing import Any

from compat_tests.differential.asking_administration import (
    APPEND,
    CHANGED_BROKER,
    DELETE,
    SET,
    TOPIC,
    alter,
    by_name,
    create,
    describe,
    new_topic,
    settle,
)
from compat_tests.differential.conversation import Talk, Topic, scenario
from compat_tests.differential.scenarios.describe_configs import arranged

from ottla.wire.messages.alter_configs import IncrementalAlterConfigsRequest
from ottla.wire.messages.create_topics import CreateTopicsRequest
from ottla.wire.messages.describe_configs import DescribeConfigsRequest

TOPIC_CONFIG = 1
# Every setting of a topic, with a value that is allowed and not its default.
CHANGED = {
    "cleanup.policy": "compact,delete",
    "compression.gzip.level": "9",
    "compression.lz4.level": "17",
    "compression.type": "zstd",
    "compression.zstd.level": "-131072",
    "delete.retention.ms": "0",
    "file.delete.delay.ms": "1000",
    "flush.messages": "1000",
    "flush.ms": "0",
    "follower.replication.throttled.replicas": "0:0,1:1",
    "index.interval.bytes": "0",
    "leader.replication.throttled.replicas": "*",
    "local.retention.bytes": "-1",
    "local.retention.ms": "-1",
    "max.compaction.lag.ms": "100000",
    "max.message.bytes": "0",
    "message.timestamp.after.max.ms": "9223372036854775807",
    "message.timestamp.before.max.ms": "0",
    "message.timestamp.type": "LogAppendTime",
    "min.cleanable.dirty.ratio": "0.25",
    "min.compaction.lag.ms": "1",
    "min.insync.replicas": "3",
    "preallocate": "true",
    "remote.log.copy.disable": "false",
    "remote.log.delete.on.disable": "false",
    "remote.storage.enable": "false",
    "retention.bytes": "0",
    "retention.ms": "-1",
    "segment.bytes": "1048576",
    "segment.index.bytes": "1000",
    "segment.jitter.ms": "1",
    "segment.ms": "1",
    "unclean.leader.election.enable": "true",
}
# What Kafka writes otherwise than it was given: spaces, signs, capitals, exponents.
SPELT = {
    "cleanup.policy": " delete , compact ",
    "compression.zstd.level": "+7",
    "preallocate": " TRUE ",
    "unclean.leader.election.enable": "False",
    "min.cleanable.dirty.ratio": "1e-1",
    "retention.ms": " 0005000 ",
    "segment.bytes": "+1048577",
    "flush.ms": "\t7\n",
    "message.timestamp.type": " CreateTime ",
    "leader.replication.throttled.replicas": " * ",
    "follower.replication.throttled.replicas": "",
}
INTS = [
    "",
    " ",
    "x",
    "1.5",
    "1e3",
    "2147483648",
    "-2147483649",
    "--1",
    "+",
    "-",
    "0x10",
    "1_000",
    "1,000",
    "٣",
    "1 0",
    "-0",
]
LONGS = ["", "x", "1.5", "9223372036854775808", "-9223372036854775809", "1L", "0x10", "1_000", "-", "٣"]
DOUBLES = ["", "x", "-0.1", "1.01", "NaN", "nan", "Infinity", "inf", "0,5", "0.5f", "0.5d", "1_0", "0x1p-1", ".5", "1."]
BOOLEANS = ["", "yes", "1", "0", "tru", "true false", "null", "TruE"]
REFUSED = {
    "max.message.bytes": [*INTS, "-1"],
    "segment.bytes": ["1048575", "0", "-1", "x"],
    "segment.index.bytes": ["3", "-1"],
    "index.interval.bytes": ["-1"],
    "min.insync.replicas": ["0", "-1", "2147483648"],
    "compression.gzip.level": ["0", "10", "-2", "x", "-1"],
    "compression.lz4.level": ["0", "18", "-1"],
    "compression.zstd.level": ["23", "-131073", "0"],
    "retention.ms": [*LONGS, "-2"],
    "retention.bytes": ["-2", "-9223372036854775808", "x"],
    "flush.messages": ["0", "-1"],
    "flush.ms": ["-1"],
    "segment.ms": ["0", "-1"],
    "segment.jitter.ms": ["-1"],
    "delete.retention.ms": ["-1"],
    "file.delete.delay.ms": ["-1"],
    "min.compaction.lag.ms": ["-1"],
    "max.compaction.lag.ms": ["0"],
    "message.timestamp.before.max.ms": ["-1"],
    "message.timestamp.after.max.ms": ["-1"],
    "local.retention.ms": ["-3"],
    "local.retention.bytes": ["-3"],
    "min.cleanable.dirty.ratio": DOUBLES,
    "preallocate": BOOLEANS,
    "unclean.leader.election.enable": ["maybe"],
    "compression.type": ["", "GZIP", "none", "gzip2", "gzip,lz4", "producer "],
    "message.timestamp.type": ["", "createtime", "LogAppendTime,CreateTime"],
    "cleanup.policy": [
        "",
        " ",
        "compact,",
        ",compact",
        "compact,,delete",
        "compact,compact",
        "Delete",
        "none",
        "delete;compact",
    ],
    "leader.replication.throttled.replicas": [
        "\xa00:0",
        "0",
        "0:",
        ":0",
        "0:0,",
        "*,*",
        "0:0,*",
        "a:b",
        "0:0:0",
        "-1:0",
        "0:0,0:0",
        " 0:0 , 1:1",
    ],
    "follower.replication.throttled.replicas": ["none", "**"],
    "remote.storage.enable": ["true"],
    "remote.log.copy.disable": ["true", "x"],
    "remote.log.delete.on.disable": ["true"],
}
LONGEST = ("0:0," * 8192)[:-1].ljust(32_767, " ")
UNKNOWN = [
    "no.such",
    "",
    " ",
    "retention",
    "Retention.ms",
    "retention.ms ",
    "log.retention.ms",
    "message.format.version",
]
UNKNOWN += ["message.downconversion.enable", "x" * 300, "a.b_c-d", "ä"]


def told(talk: Talk, topic: Topic, label: str, *keys: str, synonyms: bool = True) -> None:
    request = describe((TOPIC, topic.name), keys=list(keys) or None, synonyms=synonyms, documentation=True)
    talk.ask(request, label=label, arrange=arranged)


@scenario(DescribeConfigsRequest)
def defaults(talk: Talk) -> None:
    topic = talk.topic()
    told(talk, topic, "all")


@scenario(DescribeConfigsRequest)
def of_an_internal_topic(talk: Talk) -> None:
    talk.group()
    request = describe((TOPIC, "__consumer_offsets"), synonyms=True)
    talk.ask(request, label="__consumer_offsets", arrange=changed_only)
    changes = [("retention.ms", SET, "5000"), ("cleanup.policy", SET, "delete")]
    talk.ask(alter(((TOPIC, "__consumer_offsets"), changes), validate_only=True), label="change")
    taken = talk.do(create(new_topic("__consumer_offsets"), validate_only=True)).topics[0]
    talk.note("create", {"error_code": taken.error_code, "error_message": taken.error_message})


def changed_only(answer: Any) -> None:
    """What a topic says of itself; defaults have a scenario of their own."""
    arranged(answer)
    for result in answer.results:
        result.configs = [each for each in result.configs if each.config_source == TOPIC_CONFIG]


@scenario(DescribeConfigsRequest, settings=CHANGED_BROKER)
def defaults_of_the_broker(talk: Talk) -> None:
    """What topics inherit from settings that the broker was started with."""
    topic = talk.topic()
    told(talk, topic, "all", "retention.ms", "segment.ms", "preallocate", "cleanup.policy", "segment.jitter.ms")
    talk.do(alter(((TOPIC, topic.name), [("retention.ms", DELETE, None), ("segment.ms", SET, "60000")])))
    settle(talk, (TOPIC, topic.name), retention_ms="360000000", segment_ms="60000")
    told(talk, topic, "without retention.ms of its own", "retention.ms", "segment.ms")


@scenario(DescribeConfigsRequest)
def every_setting_changed(talk: Talk) -> None:
    for values, kind in ((CHANGED, "changed"), (SPELT, "spelt")):
        made = talk.do(create(new_topic(talk.name(kind), configs=values.items()))).topics[0]
        assert made.error_code == 0, made
        topic = talk.known_topic(kind)
        told(talk, topic, kind, *values, synonyms=False)


@scenario(IncrementalAlterConfigsRequest)
def every_setting_changed_at_run_time(talk: Talk) -> None:
    topic = talk.topic()
    for values, kind in ((CHANGED, "changed"), (SPELT, "spelt")):
        talk.ask(alter(((TOPIC, topic.name), [(name, SET, value) for name, value in values.items()])), label=kind)
        settle(talk, (TOPIC, topic.name), preallocate="true", flush_ms="0" if kind == "changed" else "7")
        told(talk, topic, f"{kind}, described", *values, synonyms=False)
    names = {*CHANGED, *SPELT}
    talk.ask(alter(((TOPIC, topic.name), [(name, DELETE, None) for name in sorted(names)])), label="all deleted")
    settle(talk, (TOPIC, topic.name), preallocate="false", flush_ms="9223372036854775807")
    told(talk, topic, "deleted, described", *sorted(names), synonyms=False)


@scenario(IncrementalAlterConfigsRequest)
def values_that_cannot_be(talk: Talk) -> None:
    topic = talk.topic()
    for name, values in REFUSED.items():
        for value in values:
            request = alter(((TOPIC, topic.name), [(name, SET, value)]), validate_only=True)
            talk.ask(request, label=f"{name}={value!r}")


@scenario(IncrementalAlterConfigsRequest)
def names_that_are_no_settings(talk: Talk) -> None:
    topic = talk.topic()
    for name in UNKNOWN:
        talk.ask(alter(((TOPIC, topic.name), [(name, SET, "1")])), label=repr(name[:20]))
        talk.ask(alter(((TOPIC, topic.name), [(name, DELETE, None)])), label=f"delete {name[:20]!r}")


@scenario(IncrementalAlterConfigsRequest)
def settings_that_contradict(talk: Talk) -> None:
    topic = talk.topic()

    def ask(label: str, **values: str) -> Any:
        changes = [(name.replace("_", "."), SET, value) for name, value in values.items()]
        return talk.ask(alter(((TOPIC, topic.name), changes), validate_only=True), label=label)

    ask("lags", min_compaction_lag_ms="10", max_compaction_lag_ms="9")
    ask("equal lags", min_compaction_lag_ms="10", max_compaction_lag_ms="10")
    ask("local retention above retention", retention_ms="1000", local_retention_ms="2000")
    ask("local bytes above bytes", retention_bytes="1000", local_retention_bytes="2000")
    ask("remote and local", remote_storage_enable="true", retention_ms="1000", local_retention_ms="2000")
    ask("remote and compacted", remote_storage_enable="true", cleanup_policy="compact")
    ask("message larger than a segment", max_message_bytes="2147483647", segment_bytes="1048576")
    ask("jitter above the time", segment_ms="10", segment_jitter_ms="20")


@scenario(CreateTopicsRequest)
def settings_of_new_topics(talk: Talk) -> None:
    name = talk.name("new")

    def ask(label: str, *configs: tuple[str, str | None]) -> Any:
        request = create(new_topic(name, configs=configs), validate_only=True)

        def refused_only(answer: Any) -> None:
            by_name()(answer)
            for topic in answer.topics:
                topic.configs = [each for each in topic.configs or () if each.name in dict(configs)]

        return talk.ask(request, label=label, arrange=refused_only)

    ask("unknown", ("no.such", "1"))
    ask("no number", ("retention.ms", "x"))
    ask("too small", ("segment.bytes", "1"))
    ask("no choice", ("cleanup.policy", "none"))
    ask("no truth", ("preallocate", "yes"))
    ask("no value", ("retention.ms", None))
    ask("two without values", ("retention.ms", None), ("segment.ms", None))
    ask("twice", ("retention.ms", "1000"), ("retention.ms", "2000"))
    ask("twice the same", ("retention.ms", "1000"), ("retention.ms", "1000"))
    ask("twice, once without a value", ("retention.ms", "1000"), ("retention.ms", None))
    ask("twice, wrong at first", ("retention.ms", "x"), ("retention.ms", "1000"))
    ask("lags", ("min.compaction.lag.ms", "10"), ("max.compaction.lag.ms", "9"))
    ask("spelt", *SPELT.items())


@scenario(IncrementalAlterConfigsRequest)
def long_values(talk: Talk) -> None:
    topic = talk.topic()
    for name, value in (
        ("retention.ms", "1" * 32_767),
        ("leader.replication.throttled.replicas", LONGEST),
        ("no.such", "x" * 32_767),
    ):
        talk.ask(alter(((TOPIC, topic.name), [(name, SET, value)])), label=f"{len(value)} characters for {name}")
    added = [("leader.replication.throttled.replicas", APPEND, "0:1")]
    talk.ask(alter(((TOPIC, topic.name), added)), label="appended to the longest")
