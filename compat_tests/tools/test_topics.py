"""kafka-topics: what it does, what it shows, and every refusal."""

import pytest

COMMAND = "TopicCommand"


def test_a_topics_life(beside, unique):
    name = unique("topic").replace("_", "-")  # or it would be warned of
    create = ("--create", "--topic", name, "--partitions", "2", "--replication-factor", "1")
    configs = ("--config", "retention.ms=5000", "--config", "cleanup.policy=compact,delete")
    assert beside(COMMAND, *create, *configs).out == f"Created topic {name}.\n"
    described = beside(COMMAND, "--describe", "--topic", name).out
    assert "PartitionCount: 2" in described and "retention.ms=5000" in described
    assert name in beside(COMMAND, "--list", "--topic", name).out
    assert beside(COMMAND, "--alter", "--topic", name, "--partitions", "4").status == 0
    for only in ("--topics-with-overrides", "--under-replicated-partitions", "--unavailable-partitions"):
        beside(COMMAND, "--describe", "--topic", name, only)
    for only in ("--under-min-isr-partitions", "--at-min-isr-partitions"):
        beside(COMMAND, "--describe", "--topic", name, only)
    assert beside(COMMAND, "--delete", "--topic", name).status == 0
    assert beside(COMMAND, "--list", "--topic", name).out == "\n"


def test_topics_made_with_replicas_of_ones_own(beside, unique):
    name = unique("topic")
    beside(COMMAND, "--create", "--topic", name, "--replica-assignment", "0,0,0")
    assert "PartitionCount: 3" in beside(COMMAND, "--describe", "--topic", name).out


def test_defaults_of_the_broker_and_a_pattern_of_names(beside, unique):
    name = unique("topic")
    beside(COMMAND, "--create", "--topic", name)
    beside(COMMAND, "--create", "--topic", f"{name}.two")
    assert (
        "collide"
        in beside(COMMAND, "--create", "--topic", f"{name}_one.two").out
        + beside(COMMAND, "--create", "--topic", f"{name}_two").err
    )
    assert beside(COMMAND, "--describe", "--topic", f"{name}.*", unordered=True).out.count("PartitionCount: 4") >= 2
    assert beside(COMMAND, "--create", "--if-not-exists", "--topic", name).status == 0
    assert beside(COMMAND, "--delete", "--topic", f"{name}.*").status == 0
    assert beside(COMMAND, "--delete", "--if-exists", "--topic", name).status == 0


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--create", "--topic", "{topic}"), "already exists"),
        (("--create", "--topic", "{new}", "--partitions", "0"), "greater than 0"),
        (("--create", "--topic", "{new}", "--replication-factor", "2"), "only 1 broker(s) are registered"),
        (("--create", "--topic", "{new}", "--replica-assignment", "7"), "no such broker is registered"),
        (("--create", "--topic", "{new}", "--replica-assignment", "0:0"), "duplicate"),
        (("--create", "--topic", "{new}", "--config", "retention.ms=soon"), "Not a number of type LONG"),
        (("--create", "--topic", "{new}", "--config", "retention.ms=-2"), "Value must be at least -1"),
        (("--create", "--topic", "{new}", "--config", "no.such.setting=1"), "Unknown topic config name"),
        (("--create", "--topic", "a/b"), "one or more characters other than"),
        (("--create", "--topic", "x" * 250), "longer than the max allowed length"),
        (("--describe", "--topic", "{new}"), "does not exist as expected"),
        (("--alter", "--topic", "{new}", "--partitions", "3"), "does not exist as expected"),
        (("--alter", "--topic", "{topic}", "--partitions", "2"), "already has 2 partition(s)"),
        (("--alter", "--topic", "{topic}", "--partitions", "1"), "would not be an increase"),
        (
            ("--alter", "--topic", "{topic}", "--partitions", "3", "--replica-assignment", "0,0,9"),
            "no such broker is registered",
        ),
        (("--delete", "--topic", "{new}"), "does not exist as expected"),
        (("--delete", "--topic", "__consumer_offsets_"), "does not exist as expected"),
        (("--describe", "--topic-id", "AAAAAAAAAAAAAAAAAAAAAw"), "TopicId"),
        (("--list", "--create"), "Command must include exactly one action"),
    ],
    ids=lambda value: " ".join(value)[:60] if isinstance(value, tuple) else "",
)
def test_refusals(beside, both_topic, unique, arguments, complaint):
    names = {"{topic}": both_topic(partitions=2), "{new}": unique("new")}
    said = beside(COMMAND, *(names.get(argument, argument) for argument in arguments))
    assert said.status != 0
    assert complaint in said.out + said.err
