"""Offsets in a transaction through a whole broker: verified or added by its coordinator, in force with the marker."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio

from ottla.groupcoord.runtime.answers import finished
from ottla.replication.cluster.metadata_cache import GROUP_METADATA_TOPIC
from ottla.server.api.handlers.offsets import offset_fetch
from ottla.server.api.handlers.transactions import add_offsets_to_txn, txn_offset_commit
from ottla.server.config.repository import Overrides
from ottla.server.tests.administered import AdministeredBroker
from ottla.server.tests.api.test_produce_transactions import end, initialized, with_coordinator
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.offsets import OffsetFetchRequest, OffsetFetchRequestTopic
from ottla.wire.messages.transactions import (
    AddOffsetsToTxnRequest,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)


async def with_both_coordinators(tmp_path: Path) -> AdministeredBroker:
    broker = await with_coordinator(tmp_path)
    await broker.ensure_internal_topic(GROUP_METADATA_TOPIC)
    await trio.testing.wait_all_tasks_blocked()
    return broker


async def commit(broker: AdministeredBroker, offset: int, producer: tuple[int, int], version: int = 5) -> ErrorCode:
    partitions = [TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")]
    request = TxnOffsetCommitRequest(
        transactional_id="tx",
        group_id="g",
        producer_id=producer[0],
        producer_epoch=producer[1],
        topics=[TxnOffsetCommitRequestTopic(name="t", partitions=partitions)],
    )
    answer: Any = txn_offset_commit(request, broker.context(version))
    response: Any = await finished(answer)
    return ErrorCode(response.topics[0].partitions[0].error_code)


async def fetched(broker: AdministeredBroker) -> tuple[int, ErrorCode]:
    topics = [OffsetFetchRequestTopic(name="t", partition_indexes=[0])]
    request = OffsetFetchRequest(group_id="g", topics=topics, require_stable=True)
    answer: Any = offset_fetch(request, broker.context(7))
    response: Any = await finished(answer)
    [partition] = response.topics[0].partitions
    return partition.committed_offset, ErrorCode(partition.error_code)


async def test_the_first_commit_adds_the_partition_of_the_group(tmp_path: Path) -> None:
    broker = await with_both_coordinators(tmp_path)
    producer = await initialized(broker)
    for offset in (5, 6):
        assert await commit(broker, offset, producer) is ErrorCode.NONE
        assert await commit(broker, offset + 10, producer) is ErrorCode.NONE
        assert await fetched(broker) == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
        producer = await end(broker, *producer)
        await trio.testing.wait_all_tasks_blocked()
        assert await fetched(broker) == (offset + 10, ErrorCode.NONE)


@pytest.mark.parametrize(
    ("version", "refused"), [(3, ErrorCode.INVALID_TXN_STATE), (4, ErrorCode.TRANSACTION_ABORTABLE)]
)
async def test_older_clients_have_to_add_the_group_before(tmp_path: Path, version: int, refused: ErrorCode) -> None:
    broker = await with_both_coordinators(tmp_path)
    producer = await initialized(broker)
    request = AddOffsetsToTxnRequest(
        transactional_id="tx", producer_id=producer[0], producer_epoch=producer[1], group_id="g"
    )
    # There is a transaction, but in another partition.
    own = broker.groups.partition_for("g")
    request.group_id = next(name for name in map(str, range(99)) if broker.groups.partition_for(name) != own)
    await finished(add_offsets_to_txn(request, broker.context(3)))
    assert await commit(broker, 5, producer, version) is refused
    request.group_id = "g"
    await finished(add_offsets_to_txn(request, broker.context(3)))
    assert await commit(broker, 5, producer, version) is ErrorCode.NONE
    await end(broker, *producer, version=4)
    await trio.testing.wait_all_tasks_blocked()
    assert await fetched(broker) == (5, ErrorCode.NONE)
    # The transaction is over, and the next one has not begun.
    assert await commit(broker, 6, producer, version) is refused


async def test_a_producer_that_was_replaced_commits_nothing(tmp_path: Path) -> None:
    broker = await with_both_coordinators(tmp_path)
    producer = await initialized(broker)
    await initialized(broker)
    assert await commit(broker, 5, producer) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert await commit(broker, 5, (producer[0] + 1, 0)) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert await fetched(broker) == (-1, ErrorCode.NONE)


async def test_where_verification_is_off_only_new_clients_ask(tmp_path: Path) -> None:
    broker = await with_both_coordinators(tmp_path)
    producer = await initialized(broker)
    broker.configs.put_broker(Overrides({"transaction.partition.verification.enable": "false"}, 1), for_all=True)
    assert await commit(broker, 5, producer, 4) is ErrorCode.NONE
    assert await commit(broker, 5, (producer[0] + 1, 0), 5) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
