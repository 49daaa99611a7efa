"""Subscriptions to metrics of clients, which a broker keeps although it has no plug-in that takes the metrics."""

from typing import Any

from compat_tests.differential.asking_administration import (
    APPEND,
    CLIENT_METRICS,
    DELETE,
    SET,
    SUBTRACT,
    Changes,
    Resource,
    alter,
    describe,
)
from compat_tests.differential.conversation import Talk, scenario
from compat_tests.differential.scenarios.alter_configs import replace
from compat_tests.differential.scenarios.describe_configs import arranged

from ottla.wire.messages.alter_configs import AlterConfigsRequest, IncrementalAlterConfigsRequest
from ottla.wire.messages.describe_configs import DescribeConfigsRequest, ListConfigResourcesRequest

VALUES = [
    ("metrics", ["", "*", "org.apache.kafka.", "a,b", "a, b ,c", "a,a", ",", "a,,b", " "]),
    ("interval.ms", ["100", "99", "3600000", "3600001", "0", "-1", "x", "", " 500 ", "1.5", "2147483648"]),
    (
        "match",
        [
            "",
            "client_id=a.*",
            "client_software_name=Java, client_software_version=11.1.*",
            "client_instance_id=x",
            "client_source_address=10.0.0.1",
            "client_source_port=1",
            " client_id = a ",
            "client_id=a=b",
            "client_id=a==",
            "client_id==",
            "client_id==a",
            "client_id=",
            "client_id",
            "=a",
            "=",
            "client=a",
            "CLIENT_ID=a",
            "client_id=[",
            "client_id=(",
            "client_id=a*+",
            "client_id=a,client_id=b",
            "client_id=a,client_id=a",
            "client_id=a,,client_id=b",
        ],
    ),
]


def subscription(talk: Talk) -> Resource:
    return CLIENT_METRICS, talk.name("subscription")


def ask(talk: Talk, resource: Resource, changes: Changes, label: str, *, validate_only: bool = True) -> Any:
    return talk.ask(alter((resource, changes), validate_only=validate_only), label=label)


def told(talk: Talk, resource: Resource, label: str, *keys: str, documentation: bool = False) -> None:
    request = describe(resource, keys=list(keys), synonyms=True, documentation=documentation)
    talk.ask(request, label=label, arrange=arranged)


def keeps(talk: Talk, resource: Resource, **values: str) -> None:
    """Waits until a subscription has these values of its own."""
    wanted = {name.replace("_", "."): value for name, value in values.items()}

    def is_known(answer: Any) -> bool:
        # Where a value comes from: the subscription has no other number.
        return {each.name: each.value for each in answer.results[0].configs if each.config_source != 5} == wanted

    talk.until(describe(resource), is_known)


@scenario(DescribeConfigsRequest)
def every_setting(talk: Talk) -> None:
    told(talk, subscription(talk), "of a subscription that nobody made")
    told(talk, subscription(talk), "with documentation", documentation=True)
    told(talk, subscription(talk), "some of it", "match", "no.such")
    told(talk, (CLIENT_METRICS, ""), "without a name")


@scenario(IncrementalAlterConfigsRequest)
def values(talk: Talk) -> None:
    for name, texts in VALUES:
        for text in texts:
            ask(talk, subscription(talk), [(name, SET, text)], f"{name}={text!r}")


@scenario(IncrementalAlterConfigsRequest)
def names(talk: Talk) -> None:
    for name in ("", " ", ".", "a b", "a/b", "%", "ü"):
        ask(talk, (CLIENT_METRICS, name), [("interval.ms", SET, "500")], f"subscription {name!r}")
    for name in ("no.such", "", "Metrics", "retention.ms"):
        ask(talk, subscription(talk), [(name, SET, "1")], f"set {name!r}")
        ask(talk, subscription(talk), [(name, DELETE, None)], f"delete {name!r}")
    ask(talk, (CLIENT_METRICS, ""), [("no.such", SET, "1")], "neither name")


@scenario(IncrementalAlterConfigsRequest)
def operations(talk: Talk) -> None:
    for operation in (APPEND, SUBTRACT):
        for name in ("metrics", "interval.ms", "no.such"):
            ask(talk, subscription(talk), [(name, operation, "1000")], f"operation {operation} on {name}")
    ask(talk, subscription(talk), [("metrics", SET, None)], "set without a value")
    ask(talk, subscription(talk), [("metrics", SET, "a"), ("metrics", SET, "b")], "twice")


@scenario(IncrementalAlterConfigsRequest)
def its_life(talk: Talk) -> None:
    made = subscription(talk)
    changes = [("metrics", SET, "a, b"), ("interval.ms", SET, " 1000 "), ("match", SET, "client_id=x")]
    ask(talk, made, changes, "made", validate_only=False)
    keeps(talk, made, metrics="a,b", interval_ms="1000", match="client_id=x")
    told(talk, made, "made")
    ask(talk, made, [("metrics", SET, "*"), ("match", DELETE, None)], "changed", validate_only=False)
    keeps(talk, made, metrics="*", interval_ms="1000")
    told(talk, made, "changed")
    ask(talk, made, [("interval.ms", SET, "1")], "refused", validate_only=False)
    told(talk, made, "unchanged")
    names = ("metrics", "interval.ms")
    ask(talk, made, [(name, DELETE, None) for name in names], "unmade", validate_only=False)
    keeps(talk, made)
    told(talk, made, "unmade")


@scenario(AlterConfigsRequest)
def replaced(talk: Talk) -> None:
    made = subscription(talk)
    talk.ask(replace((made, [("interval.ms", "500"), ("metrics", "*")])), label="made")
    keeps(talk, made, metrics="*", interval_ms="500")
    talk.ask(replace((made, [("match", "client_id=x")])), label="replaced")
    keeps(talk, made, match="client_id=x")
    talk.ask(replace((made, [("match", "x")])), label="refused")
    talk.ask(replace(((CLIENT_METRICS, ""), [("metrics", "*")])), label="without a name")
    talk.ask(replace((made, [])), label="unmade")
    keeps(talk, made)


@scenario(ListConfigResourcesRequest)
def listed(talk: Talk) -> None:
    made = subscription(talk)

    def names() -> list[str]:
        answer = talk.do(ListConfigResourcesRequest(resource_types=[] if talk.version == 0 else [16]), talk.version)
        return [each.resource_name for each in answer.config_resources if each.resource_name == made[1]]

    talk.note("not made yet", len(names()))
    for operation, count in ((SET, 1), (DELETE, 0)):
        talk.do(alter((made, [("interval.ms", operation, "500")])))
        keeps(talk, made, **({"interval_ms": "500"} if count else {}))
        talk.note(f"after operation {operation}", len(names()))
