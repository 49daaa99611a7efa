"""The offsets of groups of all kinds are reset by every method of Kafka's tools: tried, done, exported and described."""

import re
from typing import Any

import pytest
from compat_tests.support.brokers import serve_until, wait_until
from compat_tests.support.groups import ask_coordinator
from compat_tests.support.wire_client import WireClient
from confluent_kafka import Consumer, TopicPartition

from ottla.wire.messages.streams_group import StreamsGroupHeartbeatRequest, Subtopology, TopicInfo, Topology

CONSUMER, STREAMS = "consumer.group.ConsumerGroupCommand", "streams.StreamsGroupCommand"
METHODS = (
    ("--to-earliest",),
    ("--to-latest",),
    ("--shift-by", "-2"),
    ("--shift-by", "-9"),
    ("--shift-by", "3"),
    ("--shift-by", "99"),
    ("--to-current",),
    ("--to-offset", "3"),
    ("--to-offset", "99"),
    ("--to-datetime", "2023-11-14T22:16:20.000"),
    ("--to-datetime", "2023-11-14T22:16:20.000+02:00"),
    ("--to-datetime", "once"),
    ("--by-duration", "P1D"),
    ("--by-duration", "P36500D"),
    ("--by-duration", "long"),
)


def commit(servers: str, group: str, *topics: str, protocol: str = "") -> None:
    """As a member that has got these topics and leaves the group then, or as somebody who is no member."""
    settings = {"group.protocol": protocol} if protocol else {}
    consumer = Consumer({"bootstrap.servers": servers, "group.id": group, "auto.offset.reset": "latest"} | settings)
    if protocol:
        consumer.subscribe(list(topics))
        serve_until(consumer, lambda: len(consumer.assignment()) == 4, "it has its partitions")
    for topic in topics:
        for index, offset in ((0, 2), (1, 5)):
            where = [TopicPartition(topic, index, offset)]
            assert ask_coordinator(lambda: consumer.commit(offsets=where, asynchronous=False)) == offset  # noqa: B023
    consumer.close()


@pytest.fixture(params=["classic", "consumer"])
def group(request, brokers, unique, topics):
    """A group whose member has gone, with offsets of two topics."""
    name = unique("group")
    for servers in brokers:
        commit(servers, name, *topics, protocol=request.param)
    return name


@pytest.fixture
def topics(new_filled):
    return sorted((new_filled(), new_filled()))


def spaced(printed: str) -> str:
    """Without the padding of the columns, and without what each broker says in its words."""
    return re.sub(r" +", " ", printed)


@pytest.fixture
def tool(beside):
    """Runs a tool for a group: `tool(STREAMS, group, ...)`."""
    return lambda command, group, *rest: beside(command, "--group", group, *rest, arrange=spaced, unordered=True)


def plan_of(printed: str) -> list[str]:
    """The lines for a file, without what is said of offsets that are out of range."""
    return [line for line in printed.splitlines() if line.startswith('"')]


def test_offsets_of_consumer_groups(tool, group, topics):
    for method in METHODS:
        reset = ("--reset-offsets", "--topic", topics[0], *method)
        dry = tool(CONSUMER, group, *reset, "--dry-run")
        exported = tool(CONSUMER, group, *reset, "--export")
        done = tool(CONSUMER, group, *reset, "--execute")
        assert (done.status, done.out) == (dry.status, dry.out)
        if "Error" not in dry.out:
            # What was said of the offsets has come true.
            current = tool(CONSUMER, group, "--reset-offsets", "--topic", topics[0], "--to-current", "--export")
            assert plan_of(current.out) == plan_of(exported.out)
    described = tool(CONSUMER, group, "--describe", "--offsets")
    assert f"{group} {topics[1]} 0 2 5 3 - - -" in described.out


def test_which_offsets_of_consumer_groups(tool, brokers, group, topics, unique, tmp_path):
    one, two = topics
    for scope in (("--all-topics",), ("--topic", one, "--topic", f"{two}:1"), ("--topic", f"{one}:0,1"), ()):
        for how in ("--dry-run", "--export", "--execute"):
            tool(CONSUMER, group, "--reset-offsets", *scope, "--shift-by", "-1", how)
    # Nobody has said whether to do it, or both.
    tool(CONSUMER, group, "--reset-offsets", "--all-topics", "--to-earliest")
    tool(CONSUMER, group, "--reset-offsets", "--all-topics", "--to-earliest", "--dry-run", "--execute")
    tool(CONSUMER, group, "--reset-offsets", "--all-topics", "--to-earliest", "--to-latest", "--execute")
    plan, other = tmp_path / "plan.csv", unique("other")
    from_file = ("--reset-offsets", "--from-file", str(plan), "--execute")
    plan.write_text(f"{one},0,1\n{one},1,4\n{two},1,77\n")
    told = tool(CONSUMER, group, *from_file)
    assert f"{group} {one} 1 4" in told.out and f"{group} {two} 1 5" in told.out
    for servers in brokers:
        commit(servers, other, two)
    plan.write_text(f"{group},{one},0,2\n{other},{two},1,3\n")
    told = tool(CONSUMER, group, "--group", other, *from_file)
    assert f"{group} {one} 0 2" in told.out and f"{other} {two} 1 3" in told.out
    for text in ("no,csv\n", ""):
        plan.write_text(text)
        tool(CONSUMER, group, *from_file)
    tool(CONSUMER, group, "--describe", "--offsets")


def test_offsets_of_a_group_with_a_member_stay(tool, brokers, topics, unique):
    name = unique("active")
    for protocol in ("classic", "consumer"):
        group, members = f"{name}-{protocol}", []
        for servers in brokers:
            members.append(Consumer({"bootstrap.servers": servers, "group.id": group, "group.protocol": protocol}))
            members[-1].subscribe(topics)
        wait_until(lambda: have_joined(*members), "both have joined")  # noqa: B023
        for how in ("--dry-run", "--execute"):
            assert "Stable" in tool(CONSUMER, group, "--reset-offsets", "--all-topics", "--to-earliest", how).out
        for each in members:
            each.close()


def have_joined(*members: Consumer) -> bool:
    # One poll each in turn, so that both stay members while the other joins.
    return bool([each.poll(0.05) for each in members]) and all(each.assignment() for each in members)


# --- streams groups ---------------------------------------------------------------------------------------------------


def beat(servers: str, **said: Any) -> Any:
    """What the coordinator answers to a member, once it is there."""
    host, _, port = servers.rpartition(":")
    answers: list[Any] = []

    def ask() -> bool:
        with WireClient((host, int(port)), client_id="member") as client:
            answers[:] = [client.ask(StreamsGroupHeartbeatRequest(member_id="member", **said), 0)]
        return answers[0].error_code not in (14, 15, 16)

    wait_until(ask, "the coordinator is there")
    assert answers[0].error_code == 0, answers[0]
    return answers[0]


@pytest.fixture
def streams_group(brokers, unique, topics, both_topic):
    """A streams group whose member has gone, with its internal topics and with offsets of what it has read."""
    name = unique("streams")
    made = TopicInfo(name=f"{name}-store-changelog", partitions=0, replication_factor=1, topic_configs=[])
    through = TopicInfo(name=f"{name}-by-word-repartition", partitions=2, replication_factor=1, topic_configs=[])
    none: Any = {"source_topic_regex": [], "copartition_groups": []}
    parts = [
        Subtopology(
            subtopology_id="0", source_topics=topics, state_changelog_topics=[],
            repartition_sink_topics=[through.name], repartition_source_topics=[], **none,
        ),
        Subtopology(
            subtopology_id="1", source_topics=[], state_changelog_topics=[made],
            repartition_sink_topics=[], repartition_source_topics=[through], **none,
        ),
    ]  # fmt: skip
    tasks: Any = {"active_tasks": [], "standby_tasks": [], "warmup_tasks": []}
    for servers in brokers:
        beat(
            servers, group_id=name, member_epoch=0, endpoint_information_epoch=0, rebalance_timeout_ms=60_000,
            topology=Topology(epoch=0, subtopologies=parts), process_id="process", client_tags=[], **tasks,
        )  # fmt: skip
        beat(servers, group_id=name, member_epoch=-1, endpoint_information_epoch=0)
        is_there = Consumer({"bootstrap.servers": servers, "group.id": name}).list_topics
        wait_until(lambda: through.name in is_there(timeout=60).topics, "the internal topics are there")  # noqa: B023
        commit(servers, name, *topics)
    return name


def test_offsets_of_streams_groups(tool, streams_group, topics):
    for method in METHODS:
        reset = ("--reset-offsets", "--input-topic", topics[0], *method)
        dry = tool(STREAMS, streams_group, *reset, "--dry-run")
        exported = tool(STREAMS, streams_group, *reset, "--export", "--dry-run")
        done = tool(STREAMS, streams_group, *reset, "--execute")
        assert done.status == dry.status == exported.status
        tool(STREAMS, streams_group, "--describe", "--offsets")


def test_which_offsets_of_streams_groups(tool, streams_group, topics, tmp_path):
    one, two = topics
    two_of_them = ("--input-topic", one, "--input-topic", f"{two}:1")
    for scope in (("--all-input-topics",), two_of_them, ("--input-topic", "none"), ()):
        for how in (("--dry-run",), ("--execute",), ()):
            tool(STREAMS, streams_group, "--reset-offsets", *scope, "--shift-by", "-1", *how)
    plan = tmp_path / "plan.csv"
    for text in (f"{one},0,1\n{one},1,4\n", f"{streams_group},{two},0,1\n", "no,csv\n"):
        plan.write_text(text)
        tool(STREAMS, streams_group, "--reset-offsets", "--from-file", str(plan), "--execute")
        tool(STREAMS, streams_group, "--describe", "--offsets", "--verbose")
    reset = ("--reset-offsets", "--all-input-topics", "--to-earliest", "--execute")
    through, changelog = f"{streams_group}-by-word-repartition", f"{streams_group}-store-changelog"
    tool(STREAMS, streams_group, *reset, "--delete-internal-topic", through)
    tool(STREAMS, streams_group, *reset, "--delete-all-internal-topics")
    tool(STREAMS, streams_group, *reset, "--delete-internal-topic", changelog)


def test_streams_groups_are_described_and_deleted(tool, streams_group, topics):
    for what in ("--offsets", "--members", "--state"):
        for verbose in ((), ("--verbose",)):
            tool(STREAMS, streams_group, "--describe", what, *verbose)
    tool(STREAMS, streams_group, "--delete-offsets", "--input-topic", f"{topics[0]}:0")
    tool(STREAMS, streams_group, "--delete-offsets", "--input-topic", topics[0])
    tool(STREAMS, streams_group, "--delete-offsets", "--all-input-topics")
    tool(STREAMS, streams_group, "--describe", "--offsets")
    for command in (("--delete", "--delete-all-internal-topics"), ("--delete",), ("--describe",)):
        tool(STREAMS, streams_group, *command)
    tool(CONSUMER, streams_group, "--describe")
