"""Offsets committed in transactions: verified, pending until the marker, fenced by member and group as Kafka does."""

from __future__ import annotations

from inspect import isawaitable
from typing import Any

import pytest
import trio
import trio.testing

from ottla.groupcoord.offsets import transactional
from ottla.groupcoord.runtime.answers import finished
from ottla.groupcoord.runtime.coordinator_shard import Transaction, TransactionEnd
from ottla.groupcoord.tests.fakes import Coordination
from ottla.groupcoord.tests.runtime.test_runtime import committed, offset_of
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.transactions import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from ottla.wire.record_decoding import decode_records
from ottla.wire.record_encoding import encode_batch
from ottla.wire.records import Record, crc_is_valid, iter_batches, read_header
from ottla.wire.schema import ZERO_UUID

PRODUCER, EPOCH = 9, 4
NEWEST = 6


@pytest.fixture
async def talk(nursery: trio.Nursery, autojump_clock: trio.abc.Clock) -> Coordination:
    talk = Coordination(group_initial_rebalance_delay_ms=0)
    await talk.start(nursery)
    return talk


def partition(index: int, offset: int, metadata: str | None = "") -> TxnOffsetCommitRequestPartition:
    return TxnOffsetCommitRequestPartition(
        partition_index=index, committed_offset=offset, committed_leader_epoch=3, committed_metadata=metadata
    )


def ask(
    talk: Coordination,
    offset: int = 5,
    *,
    topics: list[TxnOffsetCommitRequestTopic] | None = None,
    group: str = "group",
    producer_id: int = PRODUCER,
    epoch: int = EPOCH,
    version: int = 5,
    **details: Any,
) -> Any:
    asked = topics
    if asked is None:
        named = {"topic_id": topic_id(talk, "topic")} if version >= NEWEST else {"name": "topic"}
        asked = [TxnOffsetCommitRequestTopic(partitions=[partition(0, offset)], **named)]
    request = TxnOffsetCommitRequest(
        transactional_id="tx", group_id=group, producer_id=producer_id, producer_epoch=epoch, topics=asked, **details
    )
    return talk.groups.transactional_offsets.txn_offset_commit(request, api_version=version)


def topic_id(talk: Coordination, name: str) -> bytes:
    topic = talk.topics.topics.get(name)
    assert topic is not None
    return topic.topic_id


def codes(response: Any) -> dict[Any, list[ErrorCode]]:
    return {
        (each.name or each.topic_id): [ErrorCode(partition.error_code) for partition in each.partitions]
        for each in response.topics
    }


async def told(answer: Any) -> Any:
    if isawaitable(answer):
        answer = await answer
    return await finished(answer)


async def code_of(answer: Any) -> ErrorCode:
    [[code]] = codes(await told(answer)).values()
    return code


def end(talk: Coordination, *, commit: bool = True, epoch: int = EPOCH, group: str = "group") -> Any:
    how = TransactionEnd(PRODUCER, epoch, 7, committed=commit, transaction_version=2)
    return talk.groups.end_transaction(talk.groups.partition_for(group), how)


async def is_unstable(talk: Coordination) -> bool:
    answer = await finished(committed(talk, require_stable=True))
    return bool(answer.topics[0].partitions[0].error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT)


# --- the transaction --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("commit", "offset"), [(True, 5), (False, -1)])
async def test_offsets_count_when_the_transaction_is_committed(talk: Coordination, commit: bool, offset: int) -> None:
    assert await code_of(ask(talk)) is ErrorCode.NONE
    assert offset_of(committed(talk)) == -1
    assert await is_unstable(talk)
    assert await finished(end(talk, commit=commit)) is ErrorCode.NONE
    assert not await is_unstable(talk)
    assert offset_of(committed(talk)) == offset


async def test_the_batch_is_part_of_the_transaction_and_shown_with_its_guard(talk: Coordination) -> None:
    await told(ask(talk))
    index = talk.groups.partition_for("group")
    assert talk.verifier.asked == [(index, "tx", PRODUCER, EPOCH, 5)]
    [data] = talk.log.batches[index]
    [(header, start, end_of_it)] = iter_batches(data)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (PRODUCER, EPOCH, -1)
    assert header.is_transactional and not header.is_control
    assert crc_is_valid(data, start, end_of_it)
    assert talk.log.guards[-1] == "guard 1"


async def test_offsets_are_pending_after_a_load(talk: Coordination, nursery: trio.Nursery) -> None:
    talk.commit(3)
    await told(ask(talk, 5))
    again = talk.new_coordinator()
    await nursery.start(again.run)
    again.on_election(again.partition_for("group"))
    await trio.testing.wait_all_tasks_blocked()
    talk.groups = again
    assert offset_of(committed(talk)) == 3
    assert await is_unstable(talk)
    await finished(end(talk))
    assert offset_of(committed(talk)) == 5


async def test_the_end_of_a_transaction_with_a_raised_epoch_ends_its_offsets(talk: Coordination) -> None:
    await told(ask(talk, 5))
    await told(ask(talk, 6, epoch=EPOCH + 1))
    await finished(end(talk, epoch=EPOCH + 1))
    assert offset_of(committed(talk)) == 6
    assert not await is_unstable(talk)


@pytest.mark.parametrize("takes_time", [False, True])
@pytest.mark.parametrize(
    ("code", "version", "expected"),
    [
        (ErrorCode.INVALID_TXN_STATE, 3, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.TRANSACTION_ABORTABLE, 4, ErrorCode.TRANSACTION_ABORTABLE),
        (ErrorCode.CONCURRENT_TRANSACTIONS, 5, ErrorCode.CONCURRENT_TRANSACTIONS),
        (ErrorCode.INVALID_PRODUCER_EPOCH, 5, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.NETWORK_EXCEPTION, 5, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (ErrorCode.NETWORK_EXCEPTION, 1, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 2, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 0, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, 5, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 5, ErrorCode.COORDINATOR_NOT_AVAILABLE),
    ],
)
async def test_what_is_not_verified_is_not_written(
    talk: Coordination, code: ErrorCode, version: int, expected: ErrorCode, takes_time: bool
) -> None:
    talk.verifier.error = code
    talk.verifier.takes_time = takes_time
    assert await code_of(ask(talk, version=version)) is expected
    assert talk.log.records() == []


async def test_a_verification_that_takes_time_is_awaited(talk: Coordination) -> None:
    talk.verifier.takes_time = True
    assert await code_of(ask(talk)) is ErrorCode.NONE
    await finished(end(talk))
    assert offset_of(committed(talk)) == 5


async def test_a_log_that_refuses_the_batch_leaves_nothing_pending(talk: Coordination) -> None:
    talk.log.refusal = ErrorCode.INVALID_TXN_STATE
    assert await code_of(ask(talk)) is ErrorCode.INVALID_TXN_STATE
    talk.log.refusal = None
    assert not await is_unstable(talk)


# --- beside other commits ---------------------------------------------------------------------------------------------


async def test_commits_stand_in_the_log_in_the_order_in_which_they_came(talk: Coordination) -> None:
    talk.log.commit_seconds = 2
    talk.commit(1)
    gathered = talk.commit(2)
    own = ask(talk, 3)
    assert not own.is_ready
    await told(own)
    assert gathered.is_ready
    index = talk.groups.partition_for("group")
    headers = [header for data in talk.log.batches[index] for header, _, _ in iter_batches(data)]
    assert [header.is_transactional for header in headers] == [False, False, True]
    assert await is_unstable(talk)
    await finished(end(talk))
    assert offset_of(committed(talk)) == 3


async def test_a_plain_commit_behind_it_wins(talk: Coordination) -> None:
    await told(ask(talk, 5))
    talk.commit(2)
    await finished(end(talk))
    assert offset_of(committed(talk)) == 2


async def test_two_transactions_of_one_group_do_not_mix(talk: Coordination) -> None:
    await told(ask(talk, 5))
    await told(ask(talk, 6, producer_id=PRODUCER + 1))
    await finished(end(talk, commit=False))
    assert await is_unstable(talk)
    how = TransactionEnd(PRODUCER + 1, EPOCH, 7, committed=True, transaction_version=2)
    await finished(talk.groups.end_transaction(talk.groups.partition_for("group"), how))
    assert offset_of(committed(talk)) == 6


# --- who may ----------------------------------------------------------------------------------------------------------


async def joined(talk: Coordination) -> Any:
    answer = await finished(talk.join())
    return answer


async def test_a_member_is_fenced_by_generation_member_and_instance(talk: Coordination) -> None:
    member = await joined(talk)
    generation = member.generation_id

    async def code(**details: Any) -> ErrorCode:
        return await code_of(ask(talk, version=3, **details))

    # The state of the group does not matter: its leader has not given out partitions yet.
    assert await code(member_id=member.member_id, generation_id_or_member_epoch=generation) is ErrorCode.NONE
    await finished(talk.sync(member, assignment=b"all"))
    assert await code(member_id=member.member_id, generation_id_or_member_epoch=generation) is ErrorCode.NONE
    wrong = await code(member_id=member.member_id, generation_id_or_member_epoch=generation + 1)
    assert wrong is ErrorCode.ILLEGAL_GENERATION
    assert await code(member_id="other", generation_id_or_member_epoch=generation) is ErrorCode.UNKNOWN_MEMBER_ID
    instance = {"member_id": member.member_id, "group_instance_id": "nobody's"}
    assert await code(generation_id_or_member_epoch=generation, **instance) is ErrorCode.UNKNOWN_MEMBER_ID
    # Producers before version 3 name no member.
    assert await code_of(ask(talk, version=2)) is ErrorCode.NONE


@pytest.mark.parametrize(
    ("version", "expected"),
    [(3, ErrorCode.ILLEGAL_GENERATION), (5, ErrorCode.ILLEGAL_GENERATION), (6, ErrorCode.GROUP_ID_NOT_FOUND)],
)
async def test_a_group_that_does_not_exist_has_no_members(
    talk: Coordination, version: int, expected: ErrorCode
) -> None:
    assert await code_of(ask(talk, version=version, member_id="m", generation_id_or_member_epoch=1)) is expected
    assert await code_of(ask(talk, version=version)) is ErrorCode.NONE


async def test_a_group_has_a_name(talk: Coordination) -> None:
    assert await code_of(ask(talk, group="")) is ErrorCode.INVALID_GROUP_ID
    assert talk.verifier.asked == []


# --- topics -----------------------------------------------------------------------------------------------------------


async def test_what_does_not_exist_is_refused_and_the_rest_kept(talk: Coordination) -> None:
    topics = [
        TxnOffsetCommitRequestTopic(
            name="topic", partitions=[partition(0, 5), partition(7, 5), partition(1, 6, "x" * 5000)]
        ),
        TxnOffsetCommitRequestTopic(name="nowhere", partitions=[partition(0, 5)]),
    ]
    missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert codes(await told(ask(talk, topics=topics))) == {
        "topic": [missing, ErrorCode.NONE, ErrorCode.OFFSET_METADATA_TOO_LARGE],
        "nowhere": [missing],
    }
    assert codes(await told(ask(talk, topics=topics[1:]))) == {"nowhere": [missing]}
    assert len(talk.verifier.asked) == 1


async def test_topics_have_ids_since_version_6(talk: Coordination) -> None:
    known = topic_id(talk, "topic")
    topics = [
        TxnOffsetCommitRequestTopic(topic_id=known, partitions=[partition(0, 5), partition(9, 5)]),
        TxnOffsetCommitRequestTopic(topic_id=b"?" * 16, partitions=[partition(0, 5)]),
        TxnOffsetCommitRequestTopic(topic_id=ZERO_UUID, partitions=[partition(0, 5)]),
    ]
    response = await told(ask(talk, topics=topics, version=6))
    assert {each.topic_id: [partition.error_code for partition in each.partitions] for each in response.topics} == {
        known: [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NONE],
        b"?" * 16: [ErrorCode.UNKNOWN_TOPIC_ID],
        ZERO_UUID: [ErrorCode.UNKNOWN_TOPIC_ID],
    }
    await finished(end(talk))
    assert offset_of(committed(talk)) == 5


@pytest.mark.parametrize("code", [ErrorCode.NONE, ErrorCode.CONCURRENT_TRANSACTIONS])
async def test_a_large_commit_is_verified_once_and_taken_in_parts(
    talk: Coordination, monkeypatch: pytest.MonkeyPatch, code: ErrorCode
) -> None:
    monkeypatch.setattr(transactional, "ELEMENTS_PER_SLICE", 2)
    talk.verifier.error = code
    topics = [
        TxnOffsetCommitRequestTopic(name="topic", partitions=[partition(0, 5), partition(1, 6)]),
        TxnOffsetCommitRequestTopic(name="other", partitions=[partition(0, 7), partition(4, 7)]),
    ]
    assert codes(await told(ask(talk, topics=topics))) == {
        "topic": [code, code],
        "other": [code, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION],
    }
    assert len(talk.verifier.asked) == 1
    assert len(talk.log.records()) == (0 if code else 3)


# --- what must not happen meanwhile -----------------------------------------------------------------------------------


async def test_pending_offsets_keep_their_group_and_what_it_has_committed(
    nursery: trio.Nursery, autojump_clock: trio.abc.Clock
) -> None:
    talk = Coordination(offsets_retention_minutes=1, offsets_retention_check_interval_ms=1000)
    await talk.start(nursery)
    for group in ("group", "idle"):
        talk.commit(3, group=group)
    await told(ask(talk, 5))
    await trio.sleep(300)
    assert offset_of(committed(talk, "idle")) == -1
    assert offset_of(committed(talk)) == 3
    await finished(end(talk, commit=False))
    await trio.sleep(2)
    assert offset_of(committed(talk)) == -1


def test_a_stamped_batch_differs_in_its_header_alone() -> None:
    records = [Record(0, 1, b"k", b"v")]
    plain = encode_batch(records)
    stamped = Transaction(PRODUCER, EPOCH, None).stamped(plain)
    assert stamped == encode_batch(records, producer_id=PRODUCER, producer_epoch=EPOCH, is_transactional=True)
    assert read_header(stamped).is_transactional
    assert [record.value for record in decode_records(stamped)] == [b"v"]
