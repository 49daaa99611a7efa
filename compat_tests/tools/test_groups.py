"""kafka-consumer-groups: what it lists, describes and deletes, and every refusal. How it resets is in test_resets.py."""

import re

import pytest
from compat_tests.support.brokers import wait_until
from compat_tests.support.groups import ask_coordinator
from confluent_kafka import Consumer, TopicPartition

COMMAND = "consumer.group.ConsumerGroupCommand"


@pytest.fixture
def group(brokers, filled, unique):
    """A group without members that has committed offsets."""
    name = unique("group")
    for servers in brokers:
        consumer = Consumer({"bootstrap.servers": servers, "group.id": name})
        for partition, offset in ((0, 2), (1, 5)):
            ask_coordinator(
                lambda: consumer.commit(offsets=[TopicPartition(filled, partition, offset)], asynchronous=False)  # noqa: B023
            )
        consumer.close()
    return name


@pytest.fixture
def active_group(brokers, filled, unique):
    """A group with one member, which has the whole topic."""
    name, members = unique("active"), []
    for servers in brokers:
        members.append(Consumer({"bootstrap.servers": servers, "group.id": name, "client.id": "member"}))
        members[-1].subscribe([filled])
    # One poll each in turn, so that both stay members while the other joins.
    wait_until(lambda: [each.poll(0.05) for each in members] and all(each.assignment() for each in members), "joined")
    yield name
    for each in members:
        each.close()


def spaced(printed: str) -> str:
    """Without the padding of the columns, which is as wide as random ids."""
    return re.sub(r" +", " ", printed)


def test_a_group_without_members_is_described(beside, group, filled):
    told = beside(COMMAND, "--describe", "--group", group, arrange=spaced, unordered=True)
    assert f"{group} {filled} 0 2 5 3 - - -" in told.out
    for what in ("--offsets", "--members", "--state"):
        beside(COMMAND, "--describe", "--group", group, what, arrange=spaced, unordered=True)
        beside(COMMAND, "--describe", "--group", group, what, "--verbose", arrange=spaced, unordered=True)


def test_a_group_with_a_member_is_described(beside, active_group, filled):
    for what in ("--offsets", "--members", "--state"):
        for verbose in ((), ("--verbose",)):
            told = beside(
                COMMAND, "--describe", "--group", active_group, what, *verbose, arrange=spaced, unordered=True
            )
            assert active_group in told.out


def test_groups_are_listed(beside, group, active_group):
    def ours(printed: str) -> str:
        kept = [line for line in printed.splitlines() if group in line or active_group in line]
        return spaced("\n".join(sorted(kept)))

    assert beside(COMMAND, "--list", arrange=ours).out.splitlines() == sorted([group, active_group])
    assert f"{active_group} Stable" in beside(COMMAND, "--list", "--state", arrange=ours).out
    assert f"{active_group} Classic" in beside(COMMAND, "--list", "--type", arrange=ours).out
    for options in (("--state", "empty"), ("--state", "stable"), ("--type", "classic"), ("--type", "consumer")):
        beside(COMMAND, "--list", *options, arrange=ours)
    beside(COMMAND, "--list", "--state", "asleep")
    beside(COMMAND, "--list", "--type", "peculiar")


def test_offsets_and_groups_are_deleted(beside, group, filled):
    deleted = beside(COMMAND, "--delete-offsets", "--group", group, "--topic", f"{filled}:0", arrange=spaced)
    assert "Successful" in deleted.out
    assert "Successful" in beside(COMMAND, "--delete-offsets", "--group", group, "--topic", filled, arrange=spaced).out
    assert "successful" in beside(COMMAND, "--delete", "--group", group).out


@pytest.mark.parametrize(
    "arguments",
    [
        ("--delete", "--group", "{active}"),
        ("--delete-offsets", "--group", "{active}", "--topic", "{topic}"),
        ("--reset-offsets", "--group", "{active}", "--topic", "{topic}", "--to-earliest", "--execute"),
        ("--delete", "--group", "{new}"),
        ("--describe", "--group", "{new}"),
        ("--describe", "--group", "{new}", "--members"),
        ("--describe", "--group", "{new}", "--state"),
        ("--delete-offsets", "--group", "{new}", "--topic", "{topic}"),
        ("--delete-offsets", "--group", "{group}", "--topic", "{topic}:9"),
        ("--delete-offsets", "--group", "{group}", "--topic", "{new}"),
        ("--reset-offsets", "--group", "{group}", "--topic", "{topic}:9", "--to-earliest", "--execute"),
        ("--reset-offsets", "--group", "{group}", "--topic", "{new}", "--to-earliest", "--execute"),
        ("--reset-offsets", "--group", "{new}", "--topic", "{topic}", "--to-offset", "1", "--execute"),
        ("--reset-offsets", "--group", "{group}", "--to-earliest"),
    ],
    ids=lambda arguments: " ".join(arguments),
)
def test_refusals_and_what_is_not_there(beside, group, active_group, filled, unique, arguments):
    names = {"{active}": active_group, "{group}": group, "{topic}": filled, "{new}": unique("new")}
    given = [re.sub(r"\{\w+\}", lambda found: names[found[0]], argument) for argument in arguments]
    beside(COMMAND, *given, arrange=spaced, unordered=True)
