"""Replacing all settings of a resource: what is not named goes back to its default."""

from collections.abc import Iterable
from typing import Any

from compat_tests.differential.asking_administration import (
    BROKER,
    BROKER_LOGGER,
    CLIENT_METRICS,
    OWN_ID,
    TOPIC,
    Resource,
    describe,
    settle,
)
from compat_tests.differential.conversation import Talk, Topic, scenario
from compat_tests.differential.scenarios.describe_configs import arranged

from ottla.wire.messages.alter_configs import AlterableConfig, AlterConfigsRequest, AlterConfigsResource

Configs = Iterable[tuple[str, str | None]]


def replace(*changed: tuple[Resource, Configs], validate_only: bool = False) -> AlterConfigsRequest:
    resources = [
        AlterConfigsResource(
            resource_type=kind,
            resource_name=name,
            configs=[AlterableConfig(name=each, value=value) for each, value in configs],
        )
        for (kind, name), configs in changed
    ]
    return AlterConfigsRequest(resources=resources, validate_only=validate_only)


def ask(talk: Talk, topic: Topic, label: str, *configs: tuple[str, str | None], validate_only: bool = False) -> Any:
    return talk.ask(replace(((TOPIC, topic.name), configs), validate_only=validate_only), label=label)


def told(talk: Talk, topic: Topic, *keys: str) -> None:
    request = describe((TOPIC, topic.name), keys=list(keys), synonyms=True)
    talk.ask(request, label="described", arrange=arranged)


@scenario(AlterConfigsRequest)
def all_are_replaced(talk: Talk) -> None:
    topic = talk.topic(retention_ms="1000", segment_ms="2000")
    ask(talk, topic, "another", ("segment.ms", "3000"), ("cleanup.policy", "compact"))
    settle(talk, (TOPIC, topic.name), segment_ms="3000", retention_ms="604800000")
    told(talk, topic, "segment.ms", "retention.ms", "cleanup.policy")
    ask(talk, topic, "the same", ("segment.ms", "3000"), ("cleanup.policy", "compact"))
    ask(talk, topic, "none")
    settle(talk, (TOPIC, topic.name), segment_ms="604800000", cleanup_policy="delete")
    told(talk, topic, "segment.ms", "retention.ms", "cleanup.policy")


@scenario(AlterConfigsRequest)
def only_to_validate(talk: Talk) -> None:
    topic = talk.topic(segment_ms="2000")
    ask(talk, topic, "none", validate_only=True)
    ask(talk, topic, "right", ("retention.ms", "5"), validate_only=True)
    ask(talk, topic, "wrong", ("retention.ms", "x"), validate_only=True)
    told(talk, topic, "segment.ms", "retention.ms")


@scenario(AlterConfigsRequest)
def what_cannot_be(talk: Talk) -> None:
    topic = talk.topic(segment_ms="2000")
    ask(talk, topic, "unknown", ("no.such", "1"), ("retention.ms", "1"))
    ask(talk, topic, "no number", ("retention.ms", "x"))
    ask(talk, topic, "too small", ("segment.bytes", "1"), ("retention.ms", "1"))
    ask(talk, topic, "no choice", ("cleanup.policy", "x"))
    ask(talk, topic, "no truth", ("preallocate", "x"))
    ask(talk, topic, "no value", ("retention.ms", None))
    ask(talk, topic, "no values", ("retention.ms", None), ("segment.ms", "1"), ("no.such", None))
    ask(talk, topic, "twice", ("retention.ms", "1"), ("retention.ms", "1"))
    ask(talk, topic, "lags", ("min.compaction.lag.ms", "2"), ("max.compaction.lag.ms", "1"))
    told(talk, topic, "segment.ms", "retention.ms")


@scenario(AlterConfigsRequest)
def several_resources(talk: Talk) -> None:
    """None of them twice: Kafka never answers that."""
    first, second = talk.topic("first"), talk.topic("second", segment_ms="2000")
    unknown = talk.name("unknown")
    change = [("retention.ms", "5000")]
    asked: list[tuple[Resource, Configs]] = [
        ((TOPIC, first.name), change),
        ((TOPIC, second.name), [("retention.ms", "x")]),
        ((TOPIC, unknown), change),
        ((BROKER, "7"), change),
        ((3, "x"), change),
    ]
    talk.ask(replace(*asked), label="one of five")
    settle(talk, (TOPIC, first.name), retention_ms="5000")
    told(talk, second, "segment.ms", "retention.ms")
    talk.ask(replace(), label="none")


@scenario(AlterConfigsRequest)
def names_that_are_no_topics(talk: Talk) -> None:
    for name in ("", ".", "a b", "x" * 250, "__cluster_metadata"):
        talk.ask(replace(((TOPIC, name), [("retention.ms", "5")])), label=repr(name[:20]))
    talk.ask(replace(((TOPIC, talk.name("unknown")), [])), label="unknown, nothing to set")
    talk.ask(replace(((TOPIC, talk.name("unknown")), [("retention.ms", "x")])), label="unknown, wrong value")


@scenario(AlterConfigsRequest)
def types_that_are_no_resources(talk: Talk) -> None:
    for number in (0, 1, 3, 64, -1, BROKER_LOGGER):
        talk.ask(replace(((number, OWN_ID), [("retention.ms", "5")])), label=f"type {number}")
        talk.ask(replace(((number, OWN_ID), [("retention.ms", None)])), label=f"type {number} without a value")


@scenario(AlterConfigsRequest)
def loggers_and_client_metrics(talk: Talk) -> None:
    for number in (CLIENT_METRICS,):
        for name in ("", "x"):
            request = replace(((number, name), [("no.such", "1")]), validate_only=True)
            talk.ask(request, label=f"type {number} named {name!r}")
