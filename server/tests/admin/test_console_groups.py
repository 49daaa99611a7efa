"""Groups and settings in the console."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio

from ottla.server.admin.console import groups_view, requests
from ottla.server.admin.console.requests import ask as ask_handler
from ottla.server.broker import Broker
from ottla.server.tests.console_client import ask, make_topic, running, write
from ottla.wire.messages.classic_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from ottla.wire.messages.consumer_protocol import ConsumerProtocolAssignment, TopicPartition
from ottla.wire.messages.offsets import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from ottla.wire.records import Record


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    async with running(tmp_path) as broker:
        await broker.ensure_internal_topic("__consumer_offsets")
        # The coordinator loads its partitions first.
        with trio.fail_after(60):
            while (await ask(broker, "/api/groups")).status != 200:
                await trio.sleep(0.01)
        yield broker


async def joined(broker: Broker, group_id: str, assignment: bytes) -> JoinGroupResponse:
    """The only member of a group, which has this assignment."""
    request = JoinGroupRequest(
        group_id=group_id,
        session_timeout_ms=30_000,
        rebalance_timeout_ms=30_000,
        member_id="",
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )
    member: JoinGroupResponse = await ask_handler(broker, request, 3)
    assert member.error_code == 0
    synced = SyncGroupRequest(
        group_id=group_id,
        generation_id=member.generation_id,
        member_id=member.member_id,
        assignments=[SyncGroupRequestAssignment(member_id=member.member_id, assignment=assignment)],
    )
    assert (await ask_handler(broker, synced, 3)).error_code == 0
    return member


async def commit(broker: Broker, group_id: str, member: JoinGroupResponse, topic: str, offset: int) -> None:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")
    request = OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=member.generation_id,
        member_id=member.member_id,
        topics=[OffsetCommitRequestTopic(name=topic, partitions=[partition])],
    )
    assert (await ask_handler(broker, request, 7)).topics[0].partitions[0].error_code == 0


def assignment_of(topic: str, *partitions: int) -> bytes:
    assigned = [TopicPartition(topic=topic, partitions=list(partitions))]
    return b"\0\0" + ConsumerProtocolAssignment(assigned_partitions=assigned).encode(0)


async def test_a_group_has_members_lag_and_a_reason_for_its_last_rebalance(broker: Broker) -> None:
    await make_topic(broker, "t", 2)
    write(broker, "t", [Record(0, 1, None, b"v")] * 10)
    member = await joined(broker, "readers <b>", assignment_of("t", 1, 0))
    await commit(broker, "readers <b>", member, "t", 4)
    [listed] = (await ask(broker, "/api/groups")).json["groups"]
    assert listed == {
        "id": "readers <b>",
        "type": "classic",
        "state": "Stable",
        "protocol": "consumer",
        "lag": 6,
        "isWhole": True,
    }
    group = (await ask(broker, "/api/group?id=readers+%3Cb%3E&type=classic")).json
    assert (group["lag"], group["offsets"][0]["lag"], group["offsets"][0]["end"]) == (6, 6, 10)
    assert group["members"][0]["assigned"] == [["t", [0, 1]]]
    assert "is new" in group["lastRebalance"]["reason"]
    assert abs(group["lastRebalance"]["timestamp"] - broker.now_ms()) < 600_000


async def test_the_lags_of_a_list_are_counted_within_limits_and_kept_for_some_seconds(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def listed() -> list[tuple[int | None, bool]]:
        groups = (await ask(broker, "/api/groups")).json["groups"]
        return [(each["lag"], each["isWhole"]) for each in groups]

    monkeypatch.setattr(groups_view, "KEPT_S", 1e9)
    for topic in ("t", "u"):
        await make_topic(broker, topic)
        write(broker, topic, [Record(0, 1, None, b"v")] * 10)
    member = await joined(broker, "a", b"")
    await commit(broker, "a", member, "t", 4)
    await commit(broker, "a", member, "u", 9)
    await commit(broker, "b", await joined(broker, "b", b""), "u", 10)
    await joined(broker, "c", b"")
    assert await listed() == [(7, True), (0, True), (None, True)]
    write(broker, "t", [Record(0, 1, None, b"v")])
    assert await listed() == [(7, True), (0, True), (None, True)]
    monkeypatch.setattr(groups_view, "KEPT_S", -1.0)
    assert (await listed())[0] == (8, True)
    monkeypatch.setattr(groups_view, "OFFSETS_PER_GROUP_MAX", 1)
    assert await listed() == [(7, False), (0, True), (None, True)]
    monkeypatch.setattr(groups_view, "OFFSETS_PER_PAGE_MAX", 1)
    monkeypatch.setattr(groups_view, "GROUPS_KEPT", 2)
    assert await listed() == [(7, False), (None, False), (None, True)]


@pytest.mark.parametrize("assignment", [b"", b"\0", b"\0\0\xff\xff\xff\xff", b"\0\0" + bytes(100_000)])
async def test_an_assignment_that_cannot_be_read_is_shown_as_none(broker: Broker, assignment: bytes) -> None:
    await joined(broker, "g", assignment)
    group = (await ask(broker, "/api/group?id=g")).json
    assert (group["memberCount"], group["members"][0]["assigned"]) == (1, [])


async def test_names_that_a_member_has_made_up_are_shown_in_bounds(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(groups_view, "ASSIGNED_TEXT_MAX", 1000)
    made_up = [TopicPartition(topic="\u3042" * 9_000, partitions=[])] * 2
    await joined(broker, "long", b"\0\0" + ConsumerProtocolAssignment(assigned_partitions=made_up).encode(0))
    member = (await ask(broker, "/api/group?id=long")).json["members"][0]
    assert member["assigned"] == [["\u3042" * groups_view.TEXT_SHOWN_MAX, []]] * 2
    many = [TopicPartition(topic=f"t{each:03d}", partitions=[]) for each in range(500)]
    await joined(broker, "many", b"\0\0" + ConsumerProtocolAssignment(assigned_partitions=many).encode(0))
    member = (await ask(broker, "/api/group?id=many")).json["members"][0]
    assert len(member["assigned"]) == groups_view.ASSIGNED_SHOWN_MAX
    monkeypatch.setattr(groups_view, "ASSIGNED_TEXT_MAX", 40)
    member = (await ask(broker, "/api/group?id=many")).json["members"][0]
    assert len(member["assigned"]) == 10


async def test_groups_come_in_pages(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups_view, "GROUPS_PER_PAGE", 2)
    monkeypatch.setattr(requests, "SORTED_AT_ONCE", 2)
    for name in ("b", "a", "c", "other"):
        await joined(broker, f"group-{name}", b"")
    first = (await ask(broker, "/api/groups?contains=group")).json
    assert ([each["id"] for each in first["groups"]], first["next"]) == (["group-a", "group-b"], "group-b")
    second = (await ask(broker, f"/api/groups?contains=group&after={first['next']}")).json
    assert [each["id"] for each in second["groups"]] == ["group-c", "group-other"]


@pytest.mark.parametrize("kind", ["classic", "consumer", "share", "streams", "nonsense"])
async def test_an_unknown_group_is_not_found(broker: Broker, kind: str) -> None:
    assert (await ask(broker, f"/api/group?id=none&type={kind}")).status == 404


async def test_settings_come_with_what_they_mean_and_without_secrets(tmp_path: Path) -> None:
    secret = "a-token-of-an-operator"
    async with running(tmp_path, http_console_token=secret, num_partitions="7") as broker:
        await make_topic(broker, "t", 1, retention_ms="5000")
        answer = await ask(broker, "/api/settings", token=secret)
        assert secret.encode() not in answer.body
        settings = {each["name"]: each for each in answer.json["settings"]}
        assert (settings["num.partitions"]["value"], settings["num.partitions"]["source"]) == ("7", "its start")
        assert settings["log.retention.ms"]["documentation"]
        assert settings["num.partitions"]["hasEffect"] and not settings["background.threads"]["hasEffect"]
        of_topic = {
            each["name"]: each
            for each in (await ask(broker, "/api/settings?kind=topic&name=t", token=secret)).json["settings"]
        }
        assert (of_topic["retention.ms"]["value"], of_topic["retention.ms"]["isDefault"]) == ("5000", False)
        assert (await ask(broker, "/api/settings?kind=topic&name=none", token=secret)).status == 404
        assert (await ask(broker, "/api/settings?kind=cluster", token=secret)).status == 400
