from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from ottla.replication.cluster import znodes
from ottla.replication.cluster.coordination import (
    CoordinationUnavailable,
    Create,
    Delete,
    Node,
    SessionExpired,
    SetData,
)
from ottla.replication.cluster.metadata_cache import PartitionState, TopicState
from ottla.replication.controller.topic_planner import NewTopic
from ottla.server.cluster.config_notifications import EXPIRATION_MS, ConfigNotifications
from ottla.server.tests.clustered import Cluster, MemberBroker, clustered
from ottla.wire.errors import ErrorCode, KafkaError

NOW_MS = 1_700_000_000_000


class Listeners:
    """The notifications of every member, and for which topics unclean elections were said to be allowed."""

    def __init__(self) -> None:
        self.by_broker: dict[int, ConfigNotifications] = {}
        self.unclean: dict[int, list[list[str] | None]] = {}

    def of(self, cluster: Cluster) -> Iterable[Callable[..., Any]]:
        for node_id, member in cluster.members.items():
            self.unclean[node_id] = []
            yield self.listener(cluster, node_id, member).run

    def listener(self, cluster: Cluster, node_id: int, member: MemberBroker) -> ConfigNotifications:
        def note(topics: Iterable[str] | None) -> None:
            self.unclean[node_id].append(None if topics is None else list(topics))

        self.by_broker[node_id] = ConfigNotifications(
            coordination=cluster.tree,
            cluster=member.cluster,
            settings=member.administration.settings,
            on_unclean_allowed=note,
            clock_ms=lambda: NOW_MS,
        )
        return self.by_broker[node_id]


async def settled() -> None:
    await trio.testing.wait_all_tasks_blocked()


async def test_settings_changed_at_one_broker_are_in_force_at_all(tmp_path: Path) -> None:
    async with clustered(tmp_path, also=Listeners().of) as cluster:
        await cluster[1].administration.create_topics([NewTopic(name="a.b", configs={"segment.ms": "8"})])
        await cluster[3].administration.settings.alter_topic("a.b", lambda texts: {**texts, "retention.ms": "5"})
        await cluster[2].administration.settings.alter_broker(lambda _: {"log.flush.interval.ms": "6"}, for_all=True)
        await cluster[2].administration.settings.alter_broker(
            lambda _: {"log.segment.delete.delay.ms": "7"}, for_all=False
        )
        await settled()
        for node_id, member in cluster.members.items():
            config = member.configs.log_config("a.b")
            assert (config.segment_ms, config.retention_ms, config.flush_ms) == (8, 5, 6)
            assert member.partitions.configs["a.b"] == config
            assert (config.file_delete_delay_ms == 7) == (node_id == 2)
        entities = [znodes.decode_config_change(node.data) for node in (await notices(cluster)).values()]
        assert entities == ["topics/a.b", "brokers/<default>", "brokers/2"]


async def notices(cluster: Cluster) -> dict[str, Node]:
    return dict(sorted((await cluster.tree.children_data(znodes.CONFIG_CHANGES)).items()))


async def test_a_change_builds_on_what_is_written_not_on_what_this_broker_knows(tmp_path: Path) -> None:
    async with clustered(tmp_path) as cluster:
        await cluster[1].administration.create_topics([NewTopic(name="t", configs={"segment.ms": "8"})])
        await cluster[3].administration.settings.alter_topic("t", lambda texts: {**texts, "retention.ms": "5"})
        await cluster[2].administration.settings.alter_topic("t", lambda texts: {**texts, "flush.ms": "6"})
        written = znodes.decode_config((await cluster.tree.get("/config/topics/t")).data)
        assert written == {"segment.ms": "8", "retention.ms": "5", "flush.ms": "6"}


def with_setting(name: str, texts: Mapping[str, str]) -> Mapping[str, str]:
    return {**texts, name: "9"}


async def test_of_several_changes_at_a_time_none_is_lost(tmp_path: Path) -> None:
    async with clustered(tmp_path) as cluster:
        await cluster[1].administration.create_topics([NewTopic(name="t")])
        async with trio.open_nursery() as nursery:
            for node_id, name in ((1, "segment.ms"), (2, "retention.ms"), (3, "flush.ms")):
                change = partial(with_setting, name)
                nursery.start_soon(cluster[node_id].administration.settings.alter_topic, "t", change)
        written = znodes.decode_config((await cluster.tree.get("/config/topics/t")).data)
        assert written == {"segment.ms": "9", "retention.ms": "9", "flush.ms": "9"}


async def test_a_change_waits_for_a_faster_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with clustered(tmp_path) as cluster:
        multi, is_first = cluster.tree.multi, [True]

        async def overtaken(operations: Any) -> Any:
            if is_first.pop() if is_first else False:
                await multi([Create("/config/brokers/<default>", znodes.encode_config({"log.retention.ms": "5"}))])
            return await multi(operations)

        monkeypatch.setattr(cluster.tree, "multi", overtaken)
        await cluster[1].administration.settings.alter_broker(
            lambda texts: {**texts, "log.flush.interval.ms": "6"}, for_all=True
        )
        written = znodes.decode_config((await cluster.tree.get("/config/brokers/<default>")).data)
        assert written == {"log.retention.ms": "5", "log.flush.interval.ms": "6"}


async def test_everything_is_read_anew_with_every_session(tmp_path: Path) -> None:
    listeners = Listeners()
    async with clustered(tmp_path) as cluster:
        await cluster[1].administration.create_topics([NewTopic(name="t"), NewTopic(name="u")])
        await cluster.tree.multi([SetData("/config/topics/t", znodes.encode_config({"retention.ms": "5"}))])
        await cluster.tree.multi([Create("/config/brokers/2", znodes.encode_config({"log.flush.interval.ms": "6"}))])
        list(listeners.of(cluster))
        for retention_ms in (5, 7):
            async with trio.open_nursery() as session:
                await session.start(listeners.by_broker[2].run)
                configs = cluster[2].configs
                assert configs.log_config("t").retention_ms == retention_ms
                assert (configs.current.log.flush_ms, cluster[1].configs.current.log.flush_ms != 6) == (6, True)
                session.cancel_scope.cancel()
            await cluster.tree.multi([SetData("/config/topics/t", znodes.encode_config({"retention.ms": "7"}))])
            await cluster.tree.multi([Delete("/config/topics/u")] if retention_ms == 5 else [])
        assert configs.topic_overrides("u").version is None


async def test_settings_of_a_topic_are_known_when_it_shows_and_forgotten_with_it(tmp_path: Path) -> None:
    async with clustered(tmp_path, also=Listeners().of) as cluster:
        for retention_ms in ("5", "6"):
            await cluster[1].administration.create_topics([NewTopic(name="t", configs={"retention.ms": retention_ms})])
            await settled()
            assert cluster[3].configs.log_config("t").retention_ms == int(retention_ms)
            await cluster[1].administration.delete_topics(["t"])
            assert "t" not in cluster[3].configs.topics


async def test_unclean_elections_that_are_allowed_now_are_told_to_the_controller(tmp_path: Path) -> None:
    listeners = Listeners()
    async with clustered(tmp_path, also=listeners.of) as cluster:
        settings = cluster[2].administration.settings
        await cluster[1].administration.create_topics([NewTopic(name="t"), NewTopic(name="u")])
        await settled()
        assert listeners.unclean[1] == [None]
        await settings.alter_topic("t", lambda _: {"unclean.leader.election.enable": "true"})
        await settings.alter_topic("u", lambda _: {"retention.ms": "5"})
        await settled()
        assert listeners.unclean[1] == [None, ["t"]]
        await settings.alter_broker(lambda _: {"unclean.leader.election.enable": "true"}, for_all=True)
        await settled()
        await settings.alter_broker(lambda _: {"unclean.leader.election.enable": "false"}, for_all=True)
        await settled()
        assert listeners.unclean[1] == [None, ["t"], None]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"not JSON",
        b'{"version":3,"entity_path":"topics/t"}',
        b'{"version":2}',
        znodes.encode_config_change("users/alice"),
        znodes.encode_config_change("clients/<default>"),
        znodes.encode_config_change("brokers/77"),
    ],
)
async def test_notices_that_are_not_for_this_broker(tmp_path: Path, data: bytes) -> None:
    async with clustered(tmp_path, also=Listeners().of) as cluster:
        await cluster[1].administration.create_topics([NewTopic(name="t")])
        await cluster.tree.multi([Create("/config/changes/config_change_", data, sequential=True)])
        await cluster.tree.multi([Create("/config/changes/something_else", b"")])
        await settled()
        await cluster[1].administration.settings.alter_topic("t", lambda _: {"retention.ms": "5"})
        await settled()
        assert cluster[2].configs.log_config("t").retention_ms == 5


async def test_no_settings_are_left_for_the_next_topic_of_a_name(tmp_path: Path) -> None:
    """The topic is deleted, which this broker has not heard of yet."""
    async with clustered(tmp_path, also=Listeners().of) as cluster:
        await cluster[1].administration.create_topics([NewTopic(name="t")])
        cluster.controller.is_lazy = True
        await cluster.tree.multi([Delete(znodes.topic_config_path("t")), Delete(znodes.topic_path("t"))])
        with pytest.raises(KafkaError) as refused:
            await cluster[2].administration.settings.alter_topic("t", lambda _: {"retention.ms": "5"})
        assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert "t" in cluster[2].cluster.topics
        assert await cluster.tree.children(znodes.TOPIC_CONFIGS) == []


async def test_notices_of_kafka_before_0_10(tmp_path: Path) -> None:
    async with clustered(tmp_path, also=Listeners().of) as cluster:
        await cluster[1].administration.create_topics([NewTopic(name="t")])
        await cluster.tree.multi([SetData("/config/topics/t", znodes.encode_config({"retention.ms": "5"}))])
        notice = b'{"version":1,"entity_type":"topics","entity_name":"t"}'
        await cluster.tree.multi([Create("/config/changes/config_change_", notice, sequential=True)])
        await settled()
        assert cluster[2].configs.log_config("t").retention_ms == 5


async def test_what_ottla_does_not_take_is_left_aside(tmp_path: Path) -> None:
    async with clustered(tmp_path, also=Listeners().of) as cluster:
        await cluster[1].administration.create_topics([NewTopic(name="t")])
        for path, texts in (
            ("topics/t", {"message.format.version": "2.8", "retention.ms": "5", "segment.ms": "soon"}),
            ("brokers/2", {"log.retention.ms": "often", "log.flush.interval.ms": "6", "com.example.x": "y"}),
        ):
            exists = await cluster.tree.get_all([f"/config/{path}"])
            data = znodes.encode_config(texts)
            write = Create(f"/config/{path}", data) if exists == [None] else SetData(f"/config/{path}", data)
            notice = Create("/config/changes/config_change_", znodes.encode_config_change(path), sequential=True)
            await cluster.tree.multi([write, notice])
        await settled()
        assert cluster[2].configs.log_config("t").retention_ms == 5
        assert cluster[2].configs.current.log.flush_ms == 6
        await cluster.tree.multi([SetData("/config/topics/t", b"no JSON")])
        await cluster[2].administration.settings.read_topics(["t"])
        assert cluster[2].configs.topic_overrides("t").texts == {}


async def test_old_notices_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with clustered(tmp_path, also=Listeners().of) as cluster:
        ages_ms = [EXPIRATION_MS + 1, EXPIRATION_MS - 1, None, 0]
        get_all = cluster.tree.get_all

        async def dated(paths: Any) -> Any:
            found = []
            for path, node in zip(paths, await get_all(paths), strict=True):
                number = int(path[-10:]) if path.startswith("/config/changes/config_change_") else None
                age_ms = None if number is None else ages_ms[number]
                created_ms = 0 if age_ms is None else NOW_MS - age_ms
                found.append(None if node is None else node._replace(created_ms=created_ms))
            return found

        monkeypatch.setattr(cluster.tree, "get_all", dated)
        notice = Create("/config/changes/config_change_", znodes.encode_config_change("users/a"), sequential=True)
        await cluster.tree.multi([notice] * 3)
        await settled()
        assert [name[-1] for name in await notices(cluster)] == ["1", "2"]
        ages_ms[1] = EXPIRATION_MS + 1  # what is known of a notice is not read again
        await cluster.tree.multi([notice])
        await settled()
        assert [name[-1] for name in await notices(cluster)] == ["1", "2", "3"]


async def test_settings_that_cannot_be_read_when_their_notice_comes_are_read_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with clustered(tmp_path, also=Listeners().of) as cluster:
        await settled()
        available, outage = trio.Event(), [True]
        get_all = cluster.tree.get_all

        async def interrupted(paths: Sequence[str]) -> list[Node | None]:
            if outage and paths == [znodes.broker_config_path(None)]:
                raise CoordinationUnavailable(paths[0])
            return await get_all(paths)

        monkeypatch.setattr(cluster.tree, "until_available", lambda: available.wait())
        texts = znodes.encode_config({"log.retention.ms": "5"})
        notice = znodes.encode_config_change("brokers/<default>")
        path = f"{znodes.CONFIG_CHANGES}/config_change_"
        monkeypatch.setattr(cluster.tree, "get_all", interrupted)
        await cluster.tree.multi(
            [Create(znodes.broker_config_path(None), texts), Create(path, notice, sequential=True)]
        )
        await settled()
        outage.clear()
        available.set()
        await settled()
        assert [member.configs.current.log.retention_ms for member in cluster.members.values()] == [5, 5, 5]


async def test_reading_is_tried_again_until_the_session_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listeners = Listeners()
    async with clustered(tmp_path) as cluster:
        list(listeners.of(cluster))
        available, outage = trio.Event(), [True]
        children = cluster.tree.children

        async def interrupted(path: str) -> list[str]:
            if outage:
                raise CoordinationUnavailable(path)
            return await children(path)

        monkeypatch.setattr(cluster.tree, "children", interrupted)
        monkeypatch.setattr(cluster.tree, "until_available", lambda: available.wait())
        async with trio.open_nursery() as nursery:
            nursery.start_soon(nursery.start, listeners.by_broker[2].run)
            await settled()
            outage.clear()
            available.set()
            await settled()
            await cluster[1].administration.settings.alter_broker(lambda _: {"log.retention.ms": "5"}, for_all=True)
            await settled()
            assert cluster[2].configs.current.log.retention_ms == 5
            nursery.cancel_scope.cancel()

        async def expired(path: str) -> list[str]:
            raise SessionExpired(path)

        monkeypatch.setattr(cluster.tree, "children", expired)
        with pytest.RaisesGroup(SessionExpired):
            async with trio.open_nursery() as nursery:
                await nursery.start(listeners.by_broker[2].run)
        cluster[2].cluster.put_topic(TopicState("t", b"t" * 16, (PartitionState(1, 0, (1,), (1,)),)))
        assert "t" not in listeners.by_broker[2]._unread
