"""`ottla groups members` and `delete` beside a broker, with members that speak by single requests."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.server.broker import Broker
from ottla.server.cli.client import group_consumer
from ottla.server.cli.client.assignment import topics_in
from ottla.server.cli.client.cluster import Cluster, Partition, TemporaryFailure
from ottla.server.cli.client.connection import BrokerConnection
from ottla.server.cli.client.group_consumer import GroupConsumer
from ottla.server.cli.client.groups import OffsetsUnstable, commit, committed_of, list_groups, starts_of
from ottla.server.cli.client.membership import ClassicMember
from ottla.server.cli.client.output import RequestFailed
from ottla.server.cli.on_cluster import reach
from ottla.server.tests.cli.commanded import Shell
from ottla.server.tests.console_client import write
from ottla.wire.messages.classic_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from ottla.wire.messages.consumer_group import ConsumerGroupHeartbeatRequest
from ottla.wire.messages.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from ottla.wire.messages.consumer_protocol import TopicPartition as Assigned
from ottla.wire.messages.offsets import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from ottla.wire.messages.producer_ids import InitProducerIdRequest
from ottla.wire.messages.share_group import ShareGroupHeartbeatRequest
from ottla.wire.messages.streams_group import StreamsGroupHeartbeatRequest, Subtopology, Topology
from ottla.wire.messages.transactions import (
    AddOffsetsToTxnRequest,
    EndTxnRequest,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from ottla.wire.records import Record
from ottla.wire.tests.effort import examples

MEMBER = "BAFFKbAzTWCnqcuFWsTXng"
TOPIC = "orders"


@pytest.fixture
def ottla(ottla: Shell) -> Shell:
    assert ottla("topics", "create", TOPIC, "-p", "2", "--if-not-exists").code == 0
    return ottla


def asked(cluster: Cluster, group: str, request: Any, **versions: int) -> Any:
    """The coordinator's answer to a member, once it has no error that passes."""

    def ask() -> Any:
        answer = cluster.coordinator(group).ask(request, **versions)
        cluster.check("the member", answer.error_code, getattr(answer, "error_message", None))
        return answer

    return cluster.patiently(ask)


def until_assigned(cluster: Cluster, group: str, request: Any, part: str) -> Any:
    def ask() -> Any:
        answer = cluster.coordinator(group).ask(request)
        cluster.check("the member", answer.error_code, answer.error_message)
        assignment = getattr(answer, part)
        if not getattr(assignment, "topic_partitions", assignment):
            raise TemporaryFailure("nothing is assigned")
        return answer

    return cluster.patiently(ask)


def as_prefixed(message: Any, version: int) -> bytes:
    return version.to_bytes(2, "big") + message.encode(version)


def joined_classic(cluster: Cluster, group: str, *, instance: str | None = None) -> str:
    """Join a classic group as a consumer of both partitions; return the member id."""
    metadata = as_prefixed(ConsumerProtocolSubscription(topics=[TOPIC], user_data=None, owned_partitions=[]), 1)
    join = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=30_000,
        rebalance_timeout_ms=30_000,
        member_id="",
        group_instance_id=instance,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=metadata)],
    )
    member = asked(cluster, group, join, at_most=3 if instance is None else 5)
    parts = ConsumerProtocolAssignment(assigned_partitions=[Assigned(topic=TOPIC, partitions=[0, 1])], user_data=None)
    assignment = SyncGroupRequestAssignment(member_id=member.member_id, assignment=as_prefixed(parts, 1))
    sync = SyncGroupRequest(
        group_id=group,
        generation_id=member.generation_id,
        member_id=member.member_id,
        group_instance_id=instance,
        assignments=[assignment],
    )
    asked(cluster, group, sync, at_most=3)
    return str(member.member_id)


def test_members_of_a_classic_group(ottla: Shell, cluster: Cluster) -> None:
    member = joined_classic(cluster, "classic", instance="till-1")
    [group] = ottla("groups", "members", "classic", "--json").json
    [found] = group["members"]
    assert (group["kind"].lower(), group["state"], group["assignor"]) == ("classic", "Stable", "range")
    assert found == {
        "member": member,
        "instance": "till-1",
        "client_id": "ottla",
        "host": "/127.0.0.1",
        "subscribed": [TOPIC],
        "assigned": {TOPIC: [0, 1]},
    }
    shown = ottla("groups", "members", "classic").lines
    assert shown[-2].split() == ["MEMBER", "INSTANCE", "CLIENT", "HOST", "SUBSCRIBED", "ASSIGNED"]
    assert shown[-1].split() == [member, "till-1", "ottla", "/127.0.0.1", TOPIC, f"{TOPIC}:0,1"]


def test_a_client_id_is_the_client_of_requests_on_every_connection(ottla: Shell) -> None:
    options = argparse.Namespace(bootstrap_server=ottla.bootstrap, properties=["client.id=till 7"], timeout=60.0)
    named = reach(options)
    try:
        named.drop(named.first)  # the coordinator is asked over another connection than the first
        member = ClassicMember(named, "named", [TOPIC])
        while member.must_join:
            member.join()
        [group] = ottla("groups", "members", "named", "--json").json
        assert [each["client_id"] for each in group["members"]] == ["till 7"]
        member.leave()
    finally:
        named.close()


@pytest.mark.parametrize(("text", "words"), [("a\udcff", "is not UTF-8"), ("a" * 40_000, "is longer than 32767 bytes")])
def test_a_client_id_that_no_request_can_have_is_refused(ottla: Shell, text: str, words: str) -> None:
    assert ottla("topics", "-X", f"client.id={text}").refusal(2) == f"client.id: {words}"


def test_members_of_a_consumer_group(ottla: Shell, cluster: Cluster) -> None:
    beat = ConsumerGroupHeartbeatRequest(
        group_id="modern",
        member_id=MEMBER,
        member_epoch=0,
        rack_id="here",
        rebalance_timeout_ms=30_000,
        subscribed_topic_names=[TOPIC],
        topic_partitions=[],
    )
    until_assigned(cluster, "modern", beat, "assignment")
    [group] = ottla("groups", "members", "modern", "--json").json
    [found] = group["members"]
    assert (group["kind"].lower(), group["assignor"], found["member"]) == ("consumer", "uniform", MEMBER)
    assert (found["rack"], found["subscribed"], found["pattern"]) == ("here", [TOPIC], None)
    assert found["target"] == {TOPIC: [0, 1]} and found["epoch"] > 0
    assert ottla("groups", "members", "modern").lines[-1].split()[0] == MEMBER


def test_a_group_that_committed_nothing_has_no_lag(ottla: Shell, cluster: Cluster) -> None:
    beat = ConsumerGroupHeartbeatRequest(
        group_id="uncommitted",
        member_id=MEMBER,
        member_epoch=0,
        rebalance_timeout_ms=60000,
        subscribed_topic_names=[TOPIC],
        topic_partitions=[],
    )
    until_assigned(cluster, "uncommitted", beat, "assignment")
    [described] = ottla("groups", "describe", "uncommitted", "--json").json
    assert described["offsets"] and described["lag"] is None


def test_members_of_a_share_group(ottla: Shell, cluster: Cluster) -> None:
    beat = ShareGroupHeartbeatRequest(
        group_id="shared", member_id=MEMBER, member_epoch=0, subscribed_topic_names=[TOPIC]
    )
    until_assigned(cluster, "shared", beat, "assignment")
    [group] = ottla("groups", "members", "shared", "--json").json
    assert (group["kind"].lower(), [each["assigned"] for each in group["members"]]) == ("share", [{TOPIC: [0, 1]}])
    assert f"{TOPIC}:0,1" in ottla("groups", "members", "shared").lines[-1].split()


def test_members_of_a_streams_group(ottla: Shell, cluster: Cluster) -> None:
    subtopology = Subtopology(
        subtopology_id="0",
        source_topics=[TOPIC],
        source_topic_regex=[],
        state_changelog_topics=[],
        repartition_sink_topics=[],
        repartition_source_topics=[],
        copartition_groups=[],
    )
    beat = StreamsGroupHeartbeatRequest(
        group_id="streaming",
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
    until_assigned(cluster, "streaming", beat, "active_tasks")
    [group] = ottla("groups", "members", "streaming", "--json").json
    [found] = group["members"]
    assert (group["kind"].lower(), found["process"]) == ("streams", "process")
    assert found["tasks"] == {"active": ["0_0", "0_1"], "standby": [], "warmup": []}
    assert ottla("groups", "members", "streaming").lines[-1].endswith("0_0 0_1")


def test_a_group_that_does_not_exist_has_no_members_and_is_not_deleted(ottla: Shell) -> None:
    for action in ("members", "delete"):
        assert ottla("groups", action, "nobody").refusal() == (
            "group nobody does not exist: `ottla groups` lists those that do"
        )


def groups(cluster: Cluster) -> set[str]:
    return {each.group for each in list_groups(cluster)}


def test_groups_are_deleted_and_their_offsets_committed_again(
    ottla: Shell, cluster: Cluster, serving: tuple[Broker, str]
) -> None:
    offsets = {(TOPIC, 0): 0, (TOPIC, 1): 0}
    for _ in range(2):
        write(serving[0], TOPIC, [Record(0, 0, None, b"x", ())], 1)
    offsets[TOPIC, 1] = 2
    for name in ("billing", "other"):
        commit(cluster, name, offsets)
    dry = ottla("groups", "delete", "billing", "other", "--dry-run")
    assert dry.lines[-3:] == [
        "billing would be deleted",
        "other would be deleted",
        "Nothing is changed: this is a dry run.",
    ]
    assert {"billing", "other"} <= groups(cluster)
    told = ottla("groups", "delete", "billing", "--yes")
    assert told.code == 0 and "billing is deleted" in told.lines
    assert not {"billing"} & groups(cluster) and "other" in groups(cluster)
    ottla.undo(told)
    assert committed_of(cluster, "billing") == offsets
    gone = ottla("groups", "delete", "billing", "other", "--yes", "--json").json
    assert [each["offsets"][1] for each in gone["groups"]] == [{"topic": TOPIC, "partition": 1, "committed": 2}] * 2
    assert len(gone["undo"]) == 4 and not {"billing", "other"} & groups(cluster)


def test_deleting_asks_first(ottla: Shell, cluster: Cluster) -> None:
    commit(cluster, "asked", {(TOPIC, 0): 0})
    assert ottla("groups", "delete", "asked").refusal(2) == (
        "Delete asked (offsets of 1 partition)? There is nobody to ask: give --yes"
    )
    told = ottla("groups", "delete", "asked", answer="no\n")
    assert (told.code, told.err.splitlines()[-1]) == (
        1,
        "Delete asked (offsets of 1 partition)? [y/N] ottla: nothing is changed",
    )
    assert "asked" in groups(cluster)
    assert ottla("groups", "delete", "asked", answer="yes\n").code == 0
    assert "asked" not in groups(cluster)


def test_a_group_with_members_is_not_deleted_and_neither_are_others(ottla: Shell, cluster: Cluster) -> None:
    member = joined_classic(cluster, "living")
    commit(cluster, "idle", {(TOPIC, 0): 0})
    refusal = ottla("groups", "delete", "idle", "living", "--yes").refusal()
    assert refusal == "group living has members (it is Stable): stop them first"
    assert {"idle", "living"} <= groups(cluster)
    leave = LeaveGroupRequest(
        group_id="living", member_id=member, members=[MemberIdentity(member_id=member, group_instance_id=None)]
    )
    asked(cluster, "living", leave)
    assert ottla("groups", "delete", "idle", "living", "--yes").code == 0
    assert not {"idle", "living"} & groups(cluster)


@settings(max_examples=examples(60), deadline=None)
@given(st.binary(max_size=60))
def test_any_subscription_is_read_or_passed_over(blob: bytes) -> None:
    assert len(topics_in(blob)) <= len(blob)


def test_a_subscription_of_a_later_version_is_read() -> None:
    body = ConsumerProtocolSubscription(topics=["a", "b"], user_data=None, owned_partitions=[]).encode(3)
    assert topics_in(b"\0\x09" + body + b"more") == ["a", "b"]


# --- offsets


def test_a_reset_is_taken_back(ottla: Shell, cluster: Cluster, serving: tuple[Broker, str]) -> None:
    """What was committed is committed again, and what was not is deleted."""
    for _ in range(3):
        write(serving[0], TOPIC, [Record(0, 0, None, b"x", ())], 0)
    commit(cluster, "reset", {(TOPIC, 0): 2})
    told = ottla("groups", "reset", "reset", "--topic", TOPIC, "--to-offset", "1", "--execute")
    assert told.code == 0 and committed_of(cluster, "reset").keys() == {(TOPIC, 0), (TOPIC, 1)}
    assert committed_of(cluster, "reset")[TOPIC, 0] == 1
    ottla.undo(told)
    assert committed_of(cluster, "reset") == {(TOPIC, 0): 2}
    same = ottla("groups", "reset", "reset", "--topic", f"{TOPIC}:0", "--to-offset", "2", "--execute", "--json").json
    assert same["undo"] == []


def test_offsets_are_deleted_and_committed_again(ottla: Shell, cluster: Cluster) -> None:
    offsets = {(TOPIC, 0): 1, (TOPIC, 1): 0}
    commit(cluster, "forgetful", offsets)
    words = ("groups", "delete-offsets", "forgetful", "--topic", f"{TOPIC}:0")
    assert ottla(*words).refusal(2) == (
        f"Delete the offsets of forgetful for {TOPIC}:0? There is nobody to ask: give --yes"
    )
    assert ottla(*words, answer="n\n").code == 1
    assert ottla(*words, "--dry-run").lines[-1] == "Nothing is changed: this is a dry run."
    assert committed_of(cluster, "forgetful") == offsets
    told = ottla(*words, "--yes")
    assert committed_of(cluster, "forgetful") == {(TOPIC, 1): 0}
    assert ottla(*words, "--yes").refusal() == "group forgetful has committed nothing of that: nothing is changed"
    ottla.undo(told)
    assert committed_of(cluster, "forgetful") == offsets
    assert ottla("groups", "delete-offsets", "forgetful", "--all-topics", "--yes").code == 0
    assert committed_of(cluster, "forgetful") == {}
    assert "does not exist" in ottla("groups", "delete-offsets", "nobody", "--all-topics", "--yes").refusal()


def test_offsets_that_a_member_reads_stay(ottla: Shell, cluster: Cluster) -> None:
    joined_classic(cluster, "reading")
    member = ottla("groups", "members", "reading", "--json").json[0]["members"][0]["member"]
    request = OffsetCommitRequest(
        group_id="reading",
        member_id=member,
        generation_id_or_member_epoch=1,
        topics=[
            OffsetCommitRequestTopic(
                name=TOPIC,
                partitions=[OffsetCommitRequestPartition(partition_index=0, committed_offset=0, committed_metadata="")],
            )
        ],
    )
    answer = cluster.coordinator("reading").ask(request, at_most=8)
    assert answer.topics[0].partitions[0].error_code == 0
    refusal = ottla("groups", "delete-offsets", "reading", "--topic", TOPIC, "--yes").refusal()
    assert f"group reading has members that read {TOPIC}: stop them first; deleted: nothing" in refusal


def test_the_start_of_a_share_group_is_reset_and_deleted(
    ottla: Shell, cluster: Cluster, serving: tuple[Broker, str]
) -> None:
    name = "share-reset"
    beat = ShareGroupHeartbeatRequest(group_id=name, member_id=MEMBER, member_epoch=0, subscribed_topic_names=[TOPIC])
    until_assigned(cluster, name, beat, "assignment")
    reset = ("groups", "reset", name, "--topic", TOPIC, "--execute")
    assert "has members" in ottla(*reset, "--to-earliest").refusal()
    leave = ShareGroupHeartbeatRequest(group_id=name, member_id=MEMBER, member_epoch=-1, subscribed_topic_names=None)
    asked(cluster, name, leave)
    write(serving[0], TOPIC, [Record(0, 0, None, b"x", ())], 0)
    # Nobody has read anything, so that no start is known.
    assert starts_of(cluster, name) == {}
    first = ottla(*reset, "--to-earliest")
    assert starts_of(cluster, name) == {(TOPIC, 0): 0, (TOPIC, 1): 0}
    second = ottla(*reset, "--to-latest")
    assert starts_of(cluster, name)[TOPIC, 0] > 0
    ottla.undo(second)
    assert starts_of(cluster, name) == {(TOPIC, 0): 0, (TOPIC, 1): 0}
    ottla.undo(first)
    assert starts_of(cluster, name) == {}
    assert ottla(*reset, "--to-earliest").code == 0
    part = ottla("groups", "delete-offsets", name, "--topic", f"{TOPIC}:0", "--yes").refusal()
    assert part == f"a share group's offsets are deleted for whole topics: {TOPIC}-1 has one, too"
    assert ottla("groups", "delete-offsets", name, "--topic", TOPIC, "--yes").code == 0
    assert starts_of(cluster, name) == {}
    assert ottla("groups", "delete", name, "--yes").lines[-1] == (
        "This cannot be undone: a group is made again by its members."
    )
    assert name not in groups(cluster)


def test_a_command_in_the_way_back_cannot_control_the_terminal(ottla: Shell) -> None:
    told = ottla("groups", "reset", "odd\x1b[31mgroup", "--topic", TOPIC, "--to-earliest", "--execute")
    assert told.code == 0 and "\x1b" not in told.out
    assert told.lines[-1].startswith("To undo: ") and "odd\\x1b[31mgroup" in told.lines[-1]


@pytest.fixture
def transaction(cluster: Cluster) -> Iterator[Callable[[str, Partition, int], Callable[[], None]]]:
    """Commit an offset of a group in a new transaction; return a function that commits the transaction."""

    def ask(of: Callable[[], BrokerConnection], request: Any, **versions: int) -> Any:
        def once() -> Any:
            answer = of().ask(request, **versions)
            codes = [part.error_code for topic in getattr(answer, "topics", ()) for part in topic.partitions]
            for code in codes or [answer.error_code]:
                cluster.check("the transaction", code)
            return answer

        return cluster.patiently(once)

    def begin(group: str, place: Partition, offset: int) -> Callable[[], None]:
        name = f"commits-to-{group}"
        coordinator = partial(cluster.coordinator, name, of_transaction=True)
        producer = ask(coordinator, InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000))
        of = {"transactional_id": name, "producer_id": producer.producer_id, "producer_epoch": producer.producer_epoch}
        ask(coordinator, AddOffsetsToTxnRequest(**of, group_id=group))
        part = TxnOffsetCommitRequestPartition(
            partition_index=place[1], committed_offset=offset, committed_metadata=None
        )
        topics = [TxnOffsetCommitRequestTopic(name=place[0], partitions=[part])]
        commit = TxnOffsetCommitRequest(**of, group_id=group, topics=topics)
        ask(partial(cluster.coordinator, group), commit, at_most=3)
        return lambda: ask(coordinator, EndTxnRequest(**of, committed=True), at_most=3) and None

    yield begin


def test_a_consumer_waits_for_offsets_that_a_transaction_commits(
    ottla: Shell,
    cluster: Cluster,
    transaction: Callable[[str, Partition, int], Callable[[], None]],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(group_consumer, "IDLE_S", 0.01)
    end = transaction("exact", (TOPIC, 0), 1)
    assert committed_of(cluster, "exact") == {}
    assert committed_of(cluster, "exact", [(TOPIC, 1)], is_stable=True) == {}
    with pytest.raises(OffsetsUnstable, match="group exact for orders-0 is about to be committed"):
        committed_of(cluster, "exact", [(TOPIC, 0), (TOPIC, 1)], is_stable=True)
    member = ClassicMember(cluster, "exact", [TOPIC])
    consumer = GroupConsumer(cluster, "exact", member, 1, lambda places: dict.fromkeys(places, 0), None)
    capsys.readouterr()
    for _ in range(5):
        assert list(consumer.round()) == [] and consumer.done == {} and not consumer.is_over
    assert capsys.readouterr().err.count("an open transaction; waiting for its end") == 1
    # The member is asked to join again meanwhile.
    member.must_join = True
    assert list(consumer.round()) == [] and consumer.done == {}
    monkeypatch.setattr(group_consumer, "UNSTABLE_S", -1.0)
    with pytest.raises(RequestFailed, match="given up after"):
        list(consumer.round())
    end()
    while not consumer.done:
        consumer.attend()
    assert consumer.done == {(TOPIC, 0): 1, (TOPIC, 1): 0}
    consumer.end()
