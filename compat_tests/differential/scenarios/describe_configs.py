"""Asking for settings: which resources there are, which settings are wanted, and what each flag adds to the answer."""

from typing import Any

from compat_tests.differential.asking_administration import (
    BROKER,
    BROKER_LOGGER,
    CLIENT_METRICS,
    OWN_ID,
    TOPIC,
    Resource,
    by_setting,
    describe,
)
from compat_tests.differential.conversation import Talk, scenario

from ottla.wire.messages.describe_configs import DescribeConfigsRequest

KEYS = ["retention.ms", "cleanup.policy"]


def ask(talk: Talk, request: DescribeConfigsRequest, label: str) -> Any:
    return talk.ask(request, label=label, arrange=arranged)


def arranged(answer: Any) -> None:
    """Documentation is told or not; its words are everybody's own."""
    by_setting(answer)
    for result in answer.results:
        for each in result.configs:
            each.documentation = each.documentation and "<documentation>"


@scenario(DescribeConfigsRequest)
def names_that_are_no_topics(talk: Talk) -> None:
    for name in ("", ".", "..", "a b", "x" * 250, "__cluster_metadata"):
        ask(talk, describe((TOPIC, name), keys=KEYS), repr(name[:20]))
    ask(talk, describe((TOPIC, talk.name("unknown"))), "unknown")
    ask(talk, describe((TOPIC, talk.name("unknown")), keys=["no.such"]), "unknown topic and setting")


@scenario(DescribeConfigsRequest)
def names_that_are_no_brokers(talk: Talk) -> None:
    keys = ["log.retention.hours"]
    for name in (
        "7",
        "-1",
        "+0",
        "00",
        "x",
        "1.5",
        " 0",
        "0 ",
        "2147483648",
        "٠",
        "99999999999999999999",
        "0x0",
        "1_0",
    ):
        ask(talk, describe((BROKER, name), keys=keys), repr(name))


@scenario(DescribeConfigsRequest)
def types_that_are_no_resources(talk: Talk) -> None:
    topic = talk.topic()
    for number in (0, 1, 3, 5, 64, -1, 127, -128):
        ask(talk, describe((number, topic.name)), f"type {number}")
    ask(talk, describe((TOPIC, topic.name), (3, "x"), (BROKER, "7"), keys=KEYS), "beside others")


@scenario(DescribeConfigsRequest)
def loggers_and_client_metrics(talk: Talk) -> None:
    for number in (BROKER_LOGGER, CLIENT_METRICS):
        for name in ("", "x"):
            ask(talk, describe((number, name), keys=["no.such"]), f"type {number} named {name!r}")


@scenario(DescribeConfigsRequest)
def chosen_settings(talk: Talk) -> None:
    topic = talk.topic()
    for keys in (
        KEYS,
        ["retention.ms"],
        ["no.such"],
        ["retention.ms", "no.such", "retention.ms"],
        ["Retention.ms"],
        [""],
    ):
        ask(talk, describe((TOPIC, topic.name), keys=keys), f"{keys} of a topic")
    for keys in (["log.retention.ms", "log.retention.hours"], ["no.such"], ["retention.ms"], [""]):
        ask(talk, describe((BROKER, OWN_ID), keys=keys), f"{keys} of a broker")
        ask(talk, describe((BROKER, ""), keys=keys), f"{keys} of all brokers")


@scenario(DescribeConfigsRequest)
def none_chosen(talk: Talk) -> None:
    """Null and an empty list: Kafka describes everything."""
    topic = talk.topic()
    resources: list[Resource] = [(TOPIC, topic.name), (BROKER, OWN_ID)]
    for resource in resources:
        counts = []
        for keys in (None, []):
            counts.append(len(talk.do(describe(resource, keys=keys), talk.version).results[0].configs))
        talk.note(f"type {resource[0]}", "all, both times" if counts[0] == counts[1] > 30 else counts)


@scenario(DescribeConfigsRequest)
def several_resources(talk: Talk) -> None:
    first, second = talk.topic("first"), talk.topic("second", retention_ms="5000")
    unknown = talk.name("unknown")
    asked: list[Resource] = [(TOPIC, second.name), (TOPIC, unknown), (BROKER, "7"), (TOPIC, first.name)]
    ask(talk, describe(*asked, keys=KEYS), "four")
    ask(talk, describe((TOPIC, first.name), (TOPIC, first.name), keys=KEYS), "one, twice")
    ask(talk, describe(), "none")


@scenario(DescribeConfigsRequest)
def flags(talk: Talk) -> None:
    topic = talk.topic(retention_ms="5000", cleanup_policy="compact,delete")
    keys = ["retention.ms", "cleanup.policy", "segment.ms", "flush.ms", "remote.storage.enable", "compression.type"]
    for synonyms in (False, True):
        for documentation in (False, True):
            request = describe((TOPIC, topic.name), keys=keys, synonyms=synonyms, documentation=documentation)
            ask(talk, request, f"a topic, synonyms {synonyms}, documentation {documentation}")
    keys = ["log.retention.hours", "log.roll.ms", "num.partitions", "ssl.key.password", "principal.builder.class"]
    for synonyms, documentation in ((False, False), (True, True)):
        request = describe((BROKER, OWN_ID), keys=keys, synonyms=synonyms, documentation=documentation)
        ask(talk, request, f"a broker, synonyms {synonyms}, documentation {documentation}")
