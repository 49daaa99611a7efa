"""`ottla groups`, with groups of members that confluent-kafka makes."""

import contextlib

import pytest
from compat_tests.support.brokers import wait_until
from confluent_kafka import Consumer, Producer, TopicPartition

from ottla.server.cli.client.cluster import Cluster, parse_bootstrap
from ottla.server.cli.client.groups import described
from ottla.server.cli.client.security import Security
from ottla.wire.messages.offsets import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from ottla.wire.messages.share_group import ShareGroupHeartbeatRequest
from ottla.wire.messages.streams_group import (
    CopartitionGroup,
    StreamsGroupDescribeRequest,
    StreamsGroupHeartbeatRequest,
    Subtopology,
    Topology,
)


@pytest.fixture
def topic(created, servers):
    """Two partitions with five records each, a minute apart."""
    name = created(2)
    producer = Producer({"bootstrap.servers": servers})
    for index in range(10):
        producer.produce(name, b"x", partition=index % 2, timestamp=1_700_000_000_000 + index // 2 * 60_000)
    assert producer.flush(60) == 0
    return name


@contextlib.contextmanager
def member(servers, group, topic, protocol):
    """A member that has read the topic, and committed three records of each partition."""
    settings = {"bootstrap.servers": servers, "group.id": group, "client.id": "reader", "enable.auto.commit": False}
    consumer = Consumer(settings | {"auto.offset.reset": "earliest", "group.protocol": protocol})
    consumer.subscribe([topic])
    seen = []
    wait_until(lambda: len(seen) == 10 or (seen.extend(consumer.consume(10, 1)) and len(seen) == 10), "all is read", 60)
    consumer.commit(offsets=[TopicPartition(topic, number, 3) for number in (0, 1)], asynchronous=False)
    try:
        yield
    finally:
        consumer.close()


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_groups_life(ottla, topic, servers, unique, protocol):
    group = unique("group")
    with member(servers, group, topic, protocol):
        [described] = ottla("groups", "describe", group, "--json").json
        [only] = described["members"]
        assert (described["kind"].lower(), described["state"], described["lag"]) == (protocol, "Stable", 4)
        assert (only["client_id"], only["partitions"]) == ("reader", 2)
        offset = {"topic": topic, "committed": 3, "end": 5, "lag": 2, "member": only["member"]}
        assert described["offsets"] == [offset | {"partition": number} for number in (0, 1)]
        [listed] = [each for each in ottla("groups", "--json").json if each["group"] == group]
        assert (listed["kind"].lower(), listed["state"], listed["protocol"]) == (protocol, "Stable", "consumer")
        shown = ottla("groups", "describe", group).lines
        assert any(line.split()[:5] == [topic, "1", "3", "5", "2"] for line in shown)
        refused = ottla("groups", "reset", group, "--topic", topic, "--to-earliest", "--execute", status=1).err
        assert f"group {group} has members" in refused
    wait_until(lambda: ottla("groups", "describe", group, "--json").json[0]["state"] == "Empty", "it has left", 60)
    for option, wanted in (
        (("--to-earliest",), 0),
        (("--to-latest",), 5),
        (("--to-offset", "2"), 2),
        (("--to-offset", "99"), 5),
        (("--to-datetime", "2023-11-14T22:15:00"), 2),
        (("--to-datetime", "2023-11-15T00:15:00.500+02:00"), 2),
        (("--to-datetime", "2099-01-01T00:00:00"), 5),
    ):
        before = committed(ottla, group)
        dry = ottla("groups", "reset", group, "--all-topics", *option)
        assert "Nothing is changed; --execute does it." in dry.out
        assert committed(ottla, group) == before
        done = ottla("groups", "reset", group, "--all-topics", *option, "--execute", "--json").json
        assert done["executed"] and [each["new"] for each in done["offsets"]] == [wanted, wanted]
        assert [each["committed"] for each in done["offsets"]] == before
        assert committed(ottla, group) == [wanted, wanted]
    ottla("groups", "reset", group, "--topic", f"{topic}:1", "--to-earliest", "--execute")
    assert committed(ottla, group) == [5, 0]


def committed(ottla, group):
    return [each["committed"] for each in ottla("groups", "describe", group, "--json").json[0]["offsets"]]


def test_a_group_is_begun_by_a_reset(ottla, topic, unique):
    group = unique("group")
    assert "committed nothing" in ottla("groups", "reset", group, "--all-topics", "--to-latest", status=1).err
    ottla("groups", "reset", group, "--topic", topic, "--to-latest", "--execute")
    assert committed(ottla, group) == [5, 5]
    assert group in ottla("groups", "list").out
    assert (
        f"did you mean {group}? `ottla groups`"
        in ottla("groups", "describe", f"{group[:-4]}{group[-3:]}", status=1).err
    )


def test_refusals(ottla, topic, unique, capsysbinary):
    group = unique("group")
    assert f"group {group} does not exist" in ottla("groups", "describe", group, status=1).err
    reset = ("groups", "reset", group, "--topic")
    assert "does not exist" in ottla(*reset, unique("topic"), "--to-latest", status=1).err
    assert "has no partition 7" in ottla(*reset, f"{topic}:0,7", "--to-latest", status=1).err
    for arguments, words in (
        ((f"{topic}:x", "--to-latest"), "must be TOPIC or TOPIC:N,N"),
        ((topic, "--to-offset", "-1"), "must be a number from 0 on"),
        ((topic, "--to-datetime", "yesterday"), "must be a time such as"),
        ((topic, "--to-datetime", "1960-01-01"), "before 1970"),
    ):
        assert words in ottla(*reset, *arguments, status=2).err
    for arguments in ((topic,), (topic, "--to-latest", "--to-earliest"), (topic, "--all-topics", "--to-latest")):
        with pytest.raises(SystemExit) as end:
            ottla(*reset, *arguments)
        assert end.value.code == 2


def test_members_of_share_and_of_streams_groups(ottla, topic, servers, unique):
    """Members that speak by single heartbeats: a row for each, and for each partition that has a start or an offset."""
    share, streams = unique("share"), unique("streams")
    cluster = Cluster.reached(parse_bootstrap(servers), Security(), 60)
    with contextlib.closing(cluster):
        member_id = "BAFFKbAzTWCnqcuFWsTXng"

        def beat_shared():
            request = ShareGroupHeartbeatRequest(
                group_id=share, member_id=member_id, member_epoch=0, subscribed_topic_names=[topic]
            )
            answer = cluster.coordinator(share).ask(request)
            if answer.error_code:
                return None
            [told] = ottla("groups", "describe", share, "--json").json
            shared = [each["partitions"] for each in told["members"]]
            return told if shared == [2] and len(told["offsets"]) == 2 else None

        described = wait_until(beat_shared, "both partitions are shared", 60)
        assert [(each["member"], each["partitions"]) for each in described["members"]] == [(member_id, 2)]
        assert [(each["topic"], each["member"], each["end"]) for each in described["offsets"]] == [
            (topic, member_id, 5)
        ] * 2

        def beat_streams():
            answer = cluster.coordinator(streams).ask(streams_heartbeat(streams, topic))
            return not answer.error_code and answer.active_tasks

        wait_until(beat_streams, "both tasks are given out", 60)
        ottla_offsets = {(topic, 0): 3, (topic, 1): 3}
        cluster.patiently(lambda: commit_as_member(cluster, streams, ottla_offsets))
        [described] = ottla("groups", "describe", streams, "--json").json
        assert [(each["member"], each["tasks"]) for each in described["members"]] == [
            ("streams-member", ["0_0", "0_1"])
        ]
        assert [(each["committed"], each["lag"], each["member"]) for each in described["offsets"]] == [
            (3, 2, "streams-member")
        ] * 2
        shown = ottla("groups", "describe", share, streams).lines
        assert any(line.split() == ["MEMBER", "CLIENT", "HOST", "PARTITIONS", "TASKS"] for line in shown)
        assert any(line.endswith("0_0 0_1") for line in shown)


def streams_heartbeat(group, topic):
    copartitions = [CopartitionGroup(source_topics=[0], source_topic_regex=[], repartition_source_topics=[])]
    subtopology = Subtopology(
        subtopology_id="0",
        source_topics=[topic],
        source_topic_regex=[],
        state_changelog_topics=[],
        repartition_sink_topics=[],
        repartition_source_topics=[],
        copartition_groups=copartitions,
    )
    return StreamsGroupHeartbeatRequest(
        group_id=group,
        member_id="streams-member",
        member_epoch=0,
        endpoint_information_epoch=0,
        rebalance_timeout_ms=60_000,
        topology=Topology(epoch=0, subtopologies=[subtopology]),
        process_id="process",
        client_tags=[],
        active_tasks=[],
        standby_tasks=[],
        warmup_tasks=[],
    )


def commit_as_member(cluster, group, offsets):
    """As the member that the heartbeats are of, whose epoch the group knows."""
    [member] = described(
        cluster, group, StreamsGroupDescribeRequest(group_ids=[group], include_authorized_operations=False)
    ).members
    parts = [
        OffsetCommitRequestPartition(partition_index=number, committed_offset=offset, committed_metadata="")
        for (_, number), offset in offsets.items()
    ]
    request = OffsetCommitRequest(
        group_id=group,
        member_id=member.member_id,
        generation_id_or_member_epoch=member.member_epoch,
        topics=[OffsetCommitRequestTopic(name=next(iter(offsets))[0], partitions=parts)],
    )
    answer = cluster.coordinator(group).ask(request, at_most=9)
    for each in answer.topics[0].partitions:
        cluster.check("the commit", each.error_code)
