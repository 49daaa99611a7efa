"""Attacks that build something up by many cheap requests, and then ask for what is dear about it."""

import contextlib
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

from compat_tests.siege.attacks import ANSWER_WITHIN_S, Address, Attack
from compat_tests.support import raw
from compat_tests.support.wire_client import WireClient

from ottla.wire.messages.classic_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from ottla.wire.messages.consumer_group import ConsumerGroupDescribeRequest, ConsumerGroupHeartbeatRequest
from ottla.wire.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
)
from ottla.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest
from ottla.wire.messages.groups import DeleteGroupsRequest
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.wire.messages.offsets import OffsetFetchRequest, OffsetFetchRequestGroup
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.messages.producer_ids import InitProducerIdRequest
from ottla.wire.messages.share_fetch import FetchPartition, FetchTopic, ShareFetchRequest
from ottla.wire.messages.share_group import ShareGroupHeartbeatRequest
from ottla.wire.messages.transactions import (
    AddOffsetsToTxnRequest,
    EndTxnRequest,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

BUILT, PARTITIONS = "siege-state", 500
TIMES = 20
MEMBERS, CLASSIC_MEMBERS = 1_000, 150
TRIES = 50
GROUP, TRANSACTION = 0, 1  # kinds of coordinators
MIB = 1 << 20


def of_states() -> Iterator[Attack]:
    """See the module's docstring."""
    count = PARTITIONS * TIMES
    for commits in (True, False):
        yield Attack("EndTxn", f"a transaction with {count} offsets, {commits=}", _ends_transaction(commits))
    yield Attack("ConsumerGroupHeartbeat", f"{MEMBERS} members come, are described and leave at once", _large_group)
    yield Attack(
        "JoinGroup",
        f"a group of {CLASSIC_MEMBERS} becomes one of the newer protocol, and a classic one again",
        _migrates,
    )
    for wait_ms in (0, 300):
        yield Attack("ShareFetch", f"{PARTITIONS} partitions with news, {wait_ms=}", _fetches_news(wait_ms))


def _connected(address: Address) -> WireClient:
    return WireClient(address, client_id="siege", timeout_s=ANSWER_WITHIN_S)


def _until(ask: Callable[[], Any], is_right: Callable[[Any], bool]) -> Any:
    """The first answer that is right, or the last one."""
    for _ in range(TRIES):
        answer = ask()
        if is_right(answer):
            break
        time.sleep(0.1)
    return answer


def _is_committed(answer: Any) -> bool:
    return not any(partition.error_code for topic in answer.topics for partition in topic.partitions)


def _is_loaded(answer: Any) -> bool:
    return not any(partition.error_code for topic in answer.responses for partition in topic.partitions)


def _make_topic(client: WireClient) -> bytes:
    """Have a topic of many partitions; returns its id."""
    topic = CreatableTopic(name=BUILT, num_partitions=PARTITIONS, replication_factor=1, assignments=[], configs=[])
    client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=20_000), 4)
    (found,) = client.ask(MetadataRequest(topics=[MetadataRequestTopic(name=BUILT)]), 12).topics
    return bytes(found.topic_id)


def _ends_transaction(commits: bool) -> Callable[[Address], None]:
    def run(address: Address) -> None:
        with contextlib.suppress(OSError), _connected(address) as client:
            _make_topic(client)
            name = f"siege-{uuid.uuid4()}"
            for key_type in (GROUP, TRANSACTION):  # which makes the internal topics
                client.ask(FindCoordinatorRequest(coordinator_keys=[name], key_type=key_type), 4)
            init = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)
            producer = _until(lambda: client.ask(init, 4), lambda answer: not answer.error_code)
            known = {"producer_id": producer.producer_id, "producer_epoch": producer.producer_epoch}
            groups = [f"{name}-{number}" for number in range(TIMES)]
            for group in groups:
                client.ask(AddOffsetsToTxnRequest(transactional_id=name, group_id=group, **known), 3)
                committed = [
                    TxnOffsetCommitRequestPartition(partition_index=index, committed_offset=1, committed_metadata="")
                    for index in range(PARTITIONS)
                ]
                topics = [TxnOffsetCommitRequestTopic(name=BUILT, partitions=committed)]
                commit = TxnOffsetCommitRequest(transactional_id=name, group_id=group, topics=topics, **known)
                _until(lambda commit=commit: client.ask(commit, 3), _is_committed)
            client.ask(EndTxnRequest(transactional_id=name, committed=commits, **known), 3)
            client.ask(init, 4)
            asked = [OffsetFetchRequestGroup(group_id=group, topics=None) for group in groups]
            client.ask(OffsetFetchRequest(groups=asked, require_stable=True), 8)
            client.ask(DeleteGroupsRequest(groups_names=groups), 2)

    return run


def _large_group(address: Address) -> None:
    with contextlib.suppress(OSError), _connected(address) as client:
        _make_topic(client)
        group = f"siege-{uuid.uuid4()}"
        client.ask(FindCoordinatorRequest(coordinator_keys=[group], key_type=GROUP), 4)
        ids = [f"m{number}" for number in range(MEMBERS)]
        for member_id in ids:
            _until(
                lambda member_id=member_id: client.ask(_newcomer(group, member_id), 1),
                lambda answer: not answer.error_code,
            )
        client.ask(ConsumerGroupDescribeRequest(group_ids=[group], include_authorized_operations=False), 0)
        client.ask(LeaveGroupRequest(group_id=group, members=[MemberIdentity(member_id=each) for each in ids]), 5)
        client.ask(DeleteGroupsRequest(groups_names=[group]), 2)


def _newcomer(group: str, member_id: str) -> ConsumerGroupHeartbeatRequest:
    return ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id=member_id,
        member_epoch=0,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=[BUILT],
        topic_partitions=[],
    )


def _migrates(address: Address) -> None:
    with contextlib.suppress(OSError), contextlib.ExitStack() as peers:
        one = peers.enter_context(_connected(address))
        _make_topic(one)
        group = f"siege-{uuid.uuid4()}"
        coordinator = FindCoordinatorRequest(coordinator_keys=[group], key_type=GROUP)
        _until(lambda: one.ask(coordinator, 4), lambda answer: not answer.coordinators[0].error_code)
        # Only now, because the broker closes connections that idle.
        clients = [one, *(peers.enter_context(_connected(address)) for _ in range(CLASSIC_MEMBERS - 1))]
        subscription = b"\0\1" + ConsumerProtocolSubscription(topics=[BUILT]).encode(1)
        join = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=45_000,
            rebalance_timeout_ms=60_000,
            member_id="",
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=subscription)],
        )
        # The first is a group of its own at once, and joins once more when the others are on their way.
        first = one.ask(join, 3)
        for client in clients[1:]:
            client.send(join, 3)
        time.sleep(1)
        join.member_id = first.member_id
        one.send(join, 3)
        joined = [client.receive() for client in clients]
        if None in joined:
            return
        given = []
        for number, answer in enumerate(joined):
            shares = [TopicPartition(topic=BUILT, partitions=[number])]
            blob = b"\0\1" + ConsumerProtocolAssignment(assigned_partitions=shares).encode(1)
            given.append(SyncGroupRequestAssignment(member_id=answer.member_id, assignment=blob))
        for client, answer in zip(clients, joined, strict=True):
            leads = answer.member_id == answer.leader
            sync = SyncGroupRequest(
                group_id=group,
                generation_id=answer.generation_id,
                member_id=answer.member_id,
                assignments=given if leads else [],
            )
            client.send(sync, 3)
        for client in clients:
            client.receive()
        one.ask(_newcomer(group, "new"), 1)
        one.ask(ConsumerGroupHeartbeatRequest(group_id=group, member_id="new", member_epoch=-1), 1)
        leaving = [MemberIdentity(member_id=answer.member_id) for answer in joined]
        one.ask(LeaveGroupRequest(group_id=group, members=leaving), 5)
        one.ask(DeleteGroupsRequest(groups_names=[group]), 2)


def _fetches_news(wait_ms: int) -> Callable[[Address], None]:
    def run(address: Address) -> None:
        with contextlib.suppress(OSError), _connected(address) as client:
            topic_id = _make_topic(client)
            member = {"group_id": f"siege-{uuid.uuid4()}", "member_id": str(uuid.uuid4())}
            client.ask(FindCoordinatorRequest(coordinator_keys=[member["group_id"]], key_type=GROUP), 4)
            join = ShareGroupHeartbeatRequest(**member, member_epoch=0, subscribed_topic_names=[BUILT])
            _until(
                lambda: client.ask(join, 1),
                lambda answer: bool(answer.assignment and answer.assignment.topic_partitions),
            )
            fetch = ShareFetchRequest(
                **member, share_session_epoch=0,
                max_wait_ms=wait_ms, min_bytes=50 * MIB, max_bytes=50 * MIB, max_records=1 << 30, batch_size=1 << 30,
                topics=[FetchTopic(topic_id=topic_id, partitions=[
                    FetchPartition(partition_index=index, acknowledgement_batches=[]) for index in range(PARTITIONS)
                ])],
                forgotten_topics_data=[],
            )  # fmt: skip
            _until(lambda: client.ask(fetch, 1), _is_loaded)
            _produce(client)
            fetch.share_session_epoch, fetch.topics = 1, []
            client.ask(fetch, 1)

    return run


def _produce(client: WireClient) -> None:
    """A record for each partition."""
    batch = raw.batch(raw.record(b"v"))
    partitions = [PartitionProduceData(index=index, records=batch) for index in range(PARTITIONS)]
    topics = [TopicProduceData(name=BUILT, partition_data=partitions)]
    client.ask(ProduceRequest(acks=1, timeout_ms=10_000, topic_data=topics), 8)
