"""The code of newer kinds of groups is loaded when there is such a group, and shards that are there already take it up."""

import logging
from typing import Any

import pytest
import trio
import trio.testing

from ottla.groupcoord.config import GroupConfig
from ottla.groupcoord.consumer.records import ConsumerGroupMetadataKey
from ottla.groupcoord.group_settings import GroupSettings
from ottla.groupcoord.group_types import CONSUMER, LATE, SHARE, STREAMS, Kinds, LateKind, every_kind
from ottla.groupcoord.records import KeyedRecord
from ottla.groupcoord.runtime.answers import finished
from ottla.groupcoord.runtime.ports import NotLoaded
from ottla.groupcoord.runtime.replaying import replay_batches
from ottla.groupcoord.service import shard_kind
from ottla.groupcoord.shard import Shard
from ottla.groupcoord.tests.fakes import PARTITION_COUNT, Coordination, FakeImages
from ottla.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.wire.messages.share_group_describe import ShareGroupDescribeRequest


@pytest.fixture
async def talk(nursery: trio.Nursery, autojump_clock: trio.abc.Clock) -> Coordination:
    talk = Coordination()
    await talk.start(nursery)
    return talk


def join(talk: Coordination, member_id: str = "a") -> Any:
    request = ConsumerGroupHeartbeatRequest(
        group_id="group",
        member_id=member_id,
        member_epoch=0,
        rebalance_timeout_ms=30_000,
        subscribed_topic_names=["topic"],
        topic_partitions=[],
    )
    return talk.groups.consumer.heartbeat(request, api_version=1, client_id="client", client_host="/127.0.0.1")


def loaded(talk: Coordination) -> list[LateKind]:
    return [late for late in LATE if talk.groups._kinds.has(late)]


async def test_shards_that_are_loaded_take_up_a_kind_with_its_first_request(talk: Coordination) -> None:
    assert loaded(talk) == []
    assert (await finished(join(talk))).error_code == 0
    assert loaded(talk) == [CONSUMER]
    assert (await finished(talk.join(group="other"))).error_code == 0, "a classic group beside it"
    asked = ShareGroupDescribeRequest(group_ids=["group"], include_authorized_operations=False)
    described = await finished(talk.groups.share.describe(asked, operations=lambda group_id: 0))
    assert described.groups[0].error_code != 0
    assert loaded(talk) == [CONSUMER, SHARE]


async def start_anew(talk: Coordination, nursery: trio.Nursery) -> None:
    talk.groups = talk.new_coordinator()
    await talk.start(nursery)


async def test_a_restart_loads_the_kinds_that_its_records_are_of(talk: Coordination, nursery: trio.Nursery) -> None:
    await finished(join(talk))
    await start_anew(talk, nursery)
    while not all(talk.groups._runtime.partition(each).absent == 0 for each in range(PARTITION_COUNT)):
        await trio.sleep(0.01)
    assert loaded(talk) == [CONSUMER]
    assert (await finished(join(talk, "b"))).member_epoch == 2


async def test_code_that_cannot_be_loaded_is_told_and_tried_again(
    talk: Coordination, nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    await finished(join(talk))
    kind, failures = LateKind.kind, [ImportError("the file is damaged")]

    def failing_once(late: LateKind) -> Any:
        if failures:
            raise failures.pop()
        return kind(late)

    monkeypatch.setattr(LateKind, "kind", failing_once)
    await start_anew(talk, nursery)
    while not all(talk.groups._runtime.partition(each).absent == 0 for each in range(PARTITION_COUNT)):
        await trio.sleep(0.01)
    assert (await finished(join(talk, "b"))).member_epoch == 2
    told = [each for each in caplog.records if each.levelno >= logging.ERROR and each.exc_info]
    assert len(told) == 1 and "the file is damaged" in str(told[0].exc_info[1])


@pytest.mark.parametrize("late", LATE, ids=lambda late: late.folder)
def test_each_kind_has_the_types_of_records_that_it_is_listed_with(late: LateKind) -> None:
    kinds = Kinds()
    kinds.need(late)
    kinds.need(late)
    assert len(kinds.loaded) == 3
    assert late.key_types <= kinds.formats.key_types


def test_a_record_of_a_kind_that_is_not_loaded_asks_for_it_once() -> None:
    record = KeyedRecord(ConsumerGroupMetadataKey(group_id="group"), None)
    batch = Kinds(every_kind()).formats.encode_records([record, record], 1)
    kinds = Kinds()
    shard = Shard(kinds.loaded, GroupConfig(), FakeImages(), lambda group_id: GroupSettings(), make_uuid=str)
    steps = list(replay_batches(shard_kind(kinds, lambda: shard), shard, batch))
    assert [type(each) for each in steps if each is not None] == [NotLoaded]
    assert not kinds.has(STREAMS)
