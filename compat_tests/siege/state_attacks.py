"""Attacks that build something up by many cheap requests, and then ask for what is dear about it."""

import contextlib
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

from compat_tests.siege.attacks import ANSWER_WITHIN_S, Address, Attack
from compat_tests.support import raw
from compat_tests.support.wire_client import WireClient

from ottla.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from ottla.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.end_txn import EndTxnRequest
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest
from ottla.wire.messages.init_producer_id import InitProducerIdRequest
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.messages.share_fetch import FetchPartition, FetchTopic, ShareFetchRequest
from ottla.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from ottla.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

BUILT, PARTITIONS = "siege-state", 500
TIMES = 20
TRIES = 50
GROUP, TRANSACTION = 0, 1  # kinds of coordinators
MIB = 1 << 20


def of_states() -> Iterator[Attack]:
    """See the module's docstring."""
    count = PARTITIONS * TIMES
    for commits in (True, False):
        yield Attack("EndTxn", f"a transaction with {count} offsets, {commits=}", _ends_transaction(commits))
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

    return run


def _fetches_news(wait_ms: int) -> Callable[[Address], None]:
    def run(address: Address) -> None:
        with contextlib.suppress(OSError), _connected(address) as client:
            topic_id = _make_topic(client)
            member = {"group_id": f"siege-{uuid.uuid4()}", "member_id": str(uuid.uuid4())}
            client.ask(FindCoordinatorRequest(coordinator_keys=[member["group_id"]], key_type=GROUP), 4)
            join = ShareGroupHeartbeatRequest(**member, member_epoch=0, subscribed_topic_names=[BUILT])
            _until(lambda: client.ask(join, 1), lambda answer: bool(answer.assignment and answer.assignment.topic_partitions))
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
