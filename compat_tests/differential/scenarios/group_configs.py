"""The settings of groups: what is told of them, what may be set within which bounds, and which resources are listed."""

from typing import Any

from compat_tests.differential.asking_administration import (
    APPEND,
    BROKER,
    BROKER_LOGGER,
    CLIENT_METRICS,
    DELETE,
    GROUP,
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
from ottla.wire.messages.describe_configs import DescribeConfigsRequest, ListConfigResourcesRequest

# What an operator may have said of all groups.
BOUNDED_GROUPS = {
    "group.consumer.session.timeout.ms": "50000",
    "group.share.min.record.lock.duration.ms": "20000",
    "group.share.delivery.count.limit": "7",
    "group.streams.num.warmup.replicas": "3",
    "group.streams.max.standby.replicas": "0",
    "group.streams.rack.aware.assignment.tags": "zone",
}
SESSION, HEARTBEAT = "session.timeout.ms", "heartbeat.interval.ms"


def of_group(talk: Talk) -> Resource:
    return GROUP, talk.name("group")


def ask(talk: Talk, resource: Resource, changes: Changes, label: str, *, validate_only: bool = True) -> Any:
    return talk.ask(alter((resource, changes), validate_only=validate_only), label=label)


def told(talk: Talk, resource: Resource, label: str, *keys: str, documentation: bool = False) -> None:
    request = describe(resource, keys=list(keys), synonyms=True, documentation=documentation)
    talk.ask(request, label=label, arrange=arranged)


# --- describing


@scenario(DescribeConfigsRequest)
def every_setting(talk: Talk) -> None:
    told(talk, of_group(talk), "of a group that nobody knows")
    talk.ask(describe(of_group(talk)), label="without synonyms", arrange=arranged)
    talk.ask(describe(of_group(talk), documentation=True), label="with documentation", arrange=arranged)


@scenario(DescribeConfigsRequest, settings=BOUNDED_GROUPS)
def where_values_come_from(talk: Talk) -> None:
    group = of_group(talk)
    told(talk, group, "settings of the broker")
    changes = [
        ("consumer.session.timeout.ms", SET, " 55000 "),
        ("streams.acceptable.recovery.lag", SET, "7"),
        ("streams.rack.aware.assignment.tags", SET, "zone, rack"),
        ("share.auto.offset.reset", SET, "by_duration:PT1H"),
    ]
    talk.do(alter((group, changes)))
    settle(talk, group, consumer_session_timeout_ms="55000")
    told(talk, group, "settings of the group")


@scenario(DescribeConfigsRequest)
def chosen_settings(talk: Talk) -> None:
    for keys in (["share.isolation.level"], ["no.such"], ["streams.num.warmup.replicas"], [""]):
        told(talk, of_group(talk), str(keys), *keys)


@scenario(DescribeConfigsRequest)
def names_of_groups(talk: Talk) -> None:
    for name in ("", ".", "..", "<default>", "a b/c%2F", "ä"):
        told(talk, (GROUP, name), repr(name), "consumer.session.timeout.ms")
    asked = describe((GROUP, "a"), (GROUP, "a"), (GROUP, ""), keys=["consumer.session.timeout.ms"])
    talk.ask(asked, label="twice", arrange=arranged)


# --- changing


@scenario(IncrementalAlterConfigsRequest)
def set_and_delete(talk: Talk) -> None:
    group = of_group(talk)
    changes = [("consumer.session.timeout.ms", SET, "50000"), ("share.isolation.level", SET, "read_committed")]
    ask(talk, group, changes, "set two", validate_only=False)
    settle(talk, group, consumer_session_timeout_ms="50000", share_isolation_level="read_committed")
    told(talk, group, "two", "consumer.session.timeout.ms", "share.isolation.level")
    ask(talk, group, [("consumer.session.timeout.ms", DELETE, None)], "delete one", validate_only=False)
    settle(talk, group, consumer_session_timeout_ms="45000")
    told(talk, group, "one", "consumer.session.timeout.ms", "share.isolation.level")
    ask(talk, group, [("streams.num.standby.replicas", DELETE, None)], "delete what is not set", validate_only=False)
    ask(talk, group, [("no.such", DELETE, None)], "delete what is not known", validate_only=False)
    ask(talk, group, [], "nothing", validate_only=False)
    ask(talk, group, [("share.isolation.level", DELETE, "x")], "delete the other", validate_only=False)
    settle(talk, group, share_isolation_level="read_uncommitted")
    told(talk, group, "none", "consumer.session.timeout.ms", "share.isolation.level")


@scenario(IncrementalAlterConfigsRequest)
def lists(talk: Talk) -> None:
    group, name = of_group(talk), "streams.rack.aware.assignment.tags"
    for operation in (APPEND, SUBTRACT):
        ask(talk, group, [(name, operation, "zone")], f"operation {operation}")
        ask(talk, group, [("consumer.session.timeout.ms", operation, "1")], f"operation {operation} of a number")
        ask(talk, group, [("no.such", operation, "1")], f"operation {operation} of nothing")
    for value in ("", " ", ",", "zone,", ",zone", "zone,zone", "zone , zone", "zone,,rack", "zone, rack", "a,b,,"):
        ask(talk, group, [(name, SET, value)], f"tags {value!r}")


@scenario(IncrementalAlterConfigsRequest)
def values_within_bounds(talk: Talk) -> None:
    group = of_group(talk)
    for kind in ("consumer", "share", "streams"):
        for value in ("44999", "45000", "60000", "60001", "0", "x", ""):
            ask(talk, group, [(f"{kind}.{SESSION}", SET, value)], f"{kind} session {value!r}")
        for value in ("4999", "5000", "15000", "15001", "0", "-1"):
            ask(talk, group, [(f"{kind}.{HEARTBEAT}", SET, value)], f"{kind} heartbeat {value!r}")
        for value in ("-1", "0", "15000", "15001"):
            ask(talk, group, [(f"{kind}.assignment.interval.ms", SET, value)], f"{kind} assignment {value!r}")


@scenario(IncrementalAlterConfigsRequest)
def other_values(talk: Talk) -> None:
    group = of_group(talk)
    for name, values in {
        "share.record.lock.duration.ms": ("999", "14999", "15000", "60000", "60001"),
        "share.delivery.count.limit": ("1", "2", "10", "11"),
        "share.partition.max.record.locks": ("99", "100", "4000", "4001"),
        "share.isolation.level": ("read_committed", "READ_COMMITTED", ""),
        "share.renew.acknowledge.enable": ("true", "FALSE", "1"),
        "streams.num.standby.replicas": ("-1", "0", "2", "3"),
        "streams.num.warmup.replicas": ("-1", "0", "20", "21"),
        "streams.initial.rebalance.delay.ms": ("-1", "0", "2147483647", "2147483648"),
        "streams.task.offset.interval.ms": ("0", "14999", "15000", "2147483647"),
        "streams.acceptable.recovery.lag": ("-1", "0", "9223372036854775807"),
        "streams.assignor.name": ("sticky", "Sticky", "", "none"),
        "consumer.assignor.offload.enable": ("false", "no"),
        "errors.deadletterqueue.topic.name": ("dead", "", "__dead", "a b", "x" * 300),
        "errors.deadletterqueue.copy.record.enable": ("true", "yes"),
        "group.consumer.session.timeout.ms": ("50000",),
        "retention.ms": ("1",),
    }.items():
        for value in values:
            ask(talk, group, [(name, SET, value)], f"{name}={value[:40]!r}")


@scenario(IncrementalAlterConfigsRequest)
def where_share_groups_begin(talk: Talk) -> None:
    group = of_group(talk)
    for value in (
        "earliest",
        "latest",
        "none",
        "Earliest",
        "by_duration",
        "by_duration:",
        "by_duration:PT1H",
        "by_duration:P1D",
        "by_duration:P1DT",
        "by_duration:pt1.5s",
        "by_duration:PT1,5S",
        "by_duration:PT.5S",
        "by_duration:PT-1S",
        "by_duration:-PT-1S",
        "by_duration:PT1M-59S",
        "by_duration:P1M",
        "by_duration:PT1S1M",
        "by_duration:P999999999999999D",
        "BY_DURATION:PT1H",
        "by_duration: PT1H",
    ):
        ask(talk, group, [("share.auto.offset.reset", SET, value)], repr(value.replace(":", ";")))


@scenario(IncrementalAlterConfigsRequest)
def sessions_and_heartbeats(talk: Talk) -> None:
    """A group's own values are looked at together with what is set already."""
    group = of_group(talk)
    both = [(f"share.{SESSION}", SET, "45000"), (f"share.{HEARTBEAT}", SET, "15000")]
    ask(talk, group, both, "both", validate_only=False)
    settle(talk, group, share_session_timeout_ms="45000", share_heartbeat_interval_ms="15000")
    ask(talk, group, [(f"share.{SESSION}", SET, "15000")], "as short as its heartbeats")
    ask(talk, group, [(f"consumer.{SESSION}", SET, "50000"), (f"consumer.{SESSION}", SET, "51000")], "twice")
    ask(talk, group, [(f"consumer.{SESSION}", SET, "1"), ("no.such", SET, "1")], "two reasons")
    ask(talk, group, [(f"consumer.{SESSION}", SET, None)], "null")


WIDE_HEARTBEATS = {
    "group.consumer.max.heartbeat.interval.ms": "90000",
    "group.consumer.max.session.timeout.ms": "90000",
}


@scenario(IncrementalAlterConfigsRequest, settings=WIDE_HEARTBEATS)
def heartbeats_longer_than_sessions(talk: Talk) -> None:
    group = of_group(talk)
    for heartbeat in ("44999", "45000", "90000"):
        ask(talk, group, [(f"consumer.{HEARTBEAT}", SET, heartbeat)], f"heartbeat {heartbeat}")
        changes = [(f"consumer.{HEARTBEAT}", SET, heartbeat), (f"consumer.{SESSION}", SET, "60000")]
        ask(talk, group, changes, f"heartbeat {heartbeat} in sessions of 60000")


@scenario(IncrementalAlterConfigsRequest, settings=BOUNDED_GROUPS)
def bounds_of_an_operator(talk: Talk) -> None:
    group = of_group(talk)
    ask(talk, group, [("streams.num.standby.replicas", SET, "1")], "no standby")
    ask(talk, group, [("share.record.lock.duration.ms", SET, "19999")], "a short lock")
    ask(talk, group, [("share.record.lock.duration.ms", SET, "20000")], "a longer lock")


CHANGED_INTERVALS = {"group.share.max.size": "203"}


@scenario(IncrementalAlterConfigsRequest, settings=CHANGED_INTERVALS)
def intervals_of_all_groups(talk: Talk) -> None:
    """What of all this an operator changes while the broker runs, on a broker of its own."""
    group = of_group(talk)
    for kind in ("consumer", "share", "streams"):
        name, brokers = f"group.{kind}.assignment.interval.ms", (BROKER, "")
        for value in ("-1", "15001", "x"):
            ask(talk, brokers, [(name, SET, value)], f"{name} {value!r}")
        ask(talk, brokers, [(f"group.{kind}.max.assignment.interval.ms", SET, "20000")], f"longest {kind}")
        ask(talk, brokers, [(name, SET, "7000")], f"{name} changed", validate_only=False)
        settle(talk, group, **{f"{kind}_assignment_interval_ms": "7000"})
        told(talk, group, f"{kind} of a group", f"{kind}.assignment.interval.ms")
        ask(talk, brokers, [(name, DELETE, None)], f"{name} as before", validate_only=False)
        settle(talk, group, **{f"{kind}_assignment_interval_ms": "1000"})


@scenario(IncrementalAlterConfigsRequest)
def names_and_operations(talk: Talk) -> None:
    for name in ("", ".", "<default>", "a b/c"):
        ask(talk, (GROUP, name), [("consumer.session.timeout.ms", SET, "50000")], f"group {name!r}")
        ask(talk, (GROUP, name), [("no.such", SET, "1")], f"group {name!r}, unknown setting")
        ask(talk, (GROUP, name), [], f"group {name!r}, nothing")
    group = of_group(talk)
    twice = alter((group, [("no.such", SET, "1")]), (group, []), validate_only=True)
    talk.ask(twice, label="a group twice")


@scenario(AlterConfigsRequest)
def replaced(talk: Talk) -> None:
    group = of_group(talk)
    talk.ask(replace((group, [("consumer.session.timeout.ms", "50000")])), label="one")
    settle(talk, group, consumer_session_timeout_ms="50000")
    talk.ask(replace((group, [("share.isolation.level", "read_committed")])), label="another")
    settle(talk, group, consumer_session_timeout_ms="45000", share_isolation_level="read_committed")
    told(talk, group, "one is set", "consumer.session.timeout.ms", "share.isolation.level")
    talk.ask(replace((group, [("consumer.session.timeout.ms", "1")])), label="too short")
    talk.ask(replace((group, [("consumer.session.timeout.ms", None)])), label="null")
    talk.ask(replace((group, [("no.such", "1")])), label="unknown")
    talk.ask(replace(((GROUP, ""), [])), label="of no group")
    talk.ask(replace((group, [])), label="none")
    settle(talk, group, share_isolation_level="read_uncommitted")


# --- listing

LISTED_BROKER = {"group.share.max.size": "201"}


def by_type_and_name(answer: Any) -> None:
    answer.config_resources.sort(key=lambda each: (getattr(each, "resource_type", 0), each.resource_name))


@scenario(ListConfigResourcesRequest, settings=LISTED_BROKER)
def listed(talk: Talk) -> None:
    """On a broker of its own, where nobody else has groups with settings."""
    group = of_group(talk)
    talk.do(alter((group, [("consumer.session.timeout.ms", SET, "50000")])))
    settle(talk, group, consumer_session_timeout_ms="50000")

    def ask_for(kinds: list[int], label: str) -> None:
        request = ListConfigResourcesRequest(resource_types=kinds if talk.version else [])
        talk.ask(request, label=label, arrange=by_type_and_name)

    for kinds in ([GROUP], [CLIENT_METRICS], [BROKER], [BROKER_LOGGER], [BROKER, BROKER_LOGGER, GROUP], [GROUP, GROUP]):
        ask_for(kinds, f"types {kinds}")
    for kind in (0, 1, 3, 64, -1, 127):
        ask_for([kind], f"type {kind}")
        ask_for([GROUP, kind], f"groups and type {kind}")
    talk.do(alter((group, [("consumer.session.timeout.ms", DELETE, None)])))
    settle(talk, group, consumer_session_timeout_ms="45000")
    ask_for([GROUP], "no groups any more")


@scenario(ListConfigResourcesRequest, "1+", settings=LISTED_BROKER)
def listed_with_topics(talk: Talk) -> None:
    topic = talk.topic()

    def own(answer: Any) -> None:
        by_type_and_name(answer)
        answer.config_resources = [
            each for each in answer.config_resources if each.resource_type != TOPIC or each.resource_name == topic.name
        ]

    for kinds in ([TOPIC], []):
        talk.ask(ListConfigResourcesRequest(resource_types=kinds), label=f"types {kinds}", arrange=own)
