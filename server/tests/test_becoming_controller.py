from pathlib import Path

import pytest

from ottla.replication.cluster import znodes
from ottla.replication.cluster.coordination import CoordinationError, Create, Delete
from ottla.replication.control import topics as controller_module
from ottla.replication.control.topics import NewTopic
from ottla.server.start.becoming_controller import settle_cluster_id
from ottla.server.tests.administered import opened


async def test_the_nodes_that_kafka_expects_are_made(tmp_path: Path) -> None:
    broker = await opened(tmp_path)
    assert None not in await broker.coordination.get_all(znodes.PERSISTENT_PATHS)
    assert (await broker.coordination.get("/controller_epoch")).data == b"1"


async def test_every_start_raises_the_controller_epoch(tmp_path: Path) -> None:
    for epoch in (1, 2, 3):
        broker = await opened(tmp_path)
        assert broker.controller.epoch == epoch
        assert (await broker.coordination.get("/controller_epoch")).version == broker.controller.epoch_version
        broker.coordination.close()


async def test_the_cluster_id_is_chosen_once(tmp_path: Path) -> None:
    broker = await opened(tmp_path)
    assert await settle_cluster_id(broker.coordination, lambda: "another") == "cluster"


async def test_a_creation_cut_short_by_a_crash_is_completed(tmp_path: Path) -> None:
    broker = await opened(tmp_path)
    await broker.administration.create_topics([NewTopic(name="t", partition_count=2)])
    lost = ("partitions/1/state", "partitions/1", "partitions/0/state", "partitions/0", "partitions")
    await broker.coordination.multi([Delete(f"/brokers/topics/t/{path}") for path in lost])
    await broker.coordination.multi([Delete("/config/topics/t")])
    broker.coordination.close()
    again = await opened(tmp_path)
    assert [each.leader for each in again.cluster.topics["t"].partitions] == [1, 1]
    assert None not in await again.coordination.get_all([f"/brokers/topics/t/{path}" for path in lost])
    await again.administration.delete_topics(["t"])
    assert await again.coordination.children("/brokers/topics") == []
    assert await again.coordination.children("/config/topics") == []


async def test_a_deletion_cut_short_by_a_crash_is_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller_module, "PARTITIONS_PER_MULTI", 2)
    broker = await opened(tmp_path)
    await broker.administration.create_topics([NewTopic(name="t", partition_count=7)])
    deletion = broker.controller.writes(broker.controller.plan_deletion("t"))
    for _ in range(2):
        await broker.coordination.multi(next(deletion))
    broker.coordination.close()
    again = await opened(tmp_path)
    assert not again.cluster.topics
    for path in ("/brokers/topics", "/config/topics", "/admin/delete_topics"):
        assert await again.coordination.children(path) == []


async def test_a_large_topic_comes_and_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller_module, "PARTITIONS_PER_MULTI", 2)
    broker = await opened(tmp_path)
    await broker.administration.create_topics([NewTopic(name="t", partition_count=7)])
    broker.coordination.close()
    again = await opened(tmp_path)
    assert len(again.cluster.topics["t"].partitions) == 7
    assert await again.administration.delete_topics(["t"]) == [None]
    with pytest.raises(CoordinationError):
        await again.coordination.get("/brokers/topics/t")
    assert await again.coordination.children("/admin/delete_topics") == []


async def test_broker_settings_that_cannot_be_taken_do_not_keep_a_broker_from_starting(tmp_path: Path) -> None:
    broker = await opened(tmp_path)
    texts = {"log.retention.ms": "often", "log.flush.interval.ms": "6"}
    await broker.coordination.multi([Create(znodes.broker_config_path(None), znodes.encode_config(texts))])
    broker.coordination.close()
    again = await opened(tmp_path)
    assert again.configs.for_all_brokers.texts == {"log.flush.interval.ms": "6"}
    assert again.config.log.flush_ms == 6
