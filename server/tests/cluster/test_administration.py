import errno
import os
import secrets
import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from ottla.replication import random_ids
from ottla.replication.cluster.metadata_cache import NO_LEADER
from ottla.replication.config import LogConfig
from ottla.replication.controller.topic_planner import NewTopic, TopicPlan
from ottla.replication.log.partition_log import PartitionLog
from ottla.replication.random_ids import RESERVED_IDS, random_topic_id
from ottla.replication.tests.held_threads import Held
from ottla.server.cluster import administration as administration_module
from ottla.server.tests.administered import AdministeredBroker, at_once, opened
from ottla.wire.errors import ErrorCode, KafkaError


def codes(outcomes: list[TopicPlan | KafkaError]) -> list[ErrorCode]:
    return [outcome.code if isinstance(outcome, KafkaError) else ErrorCode.NONE for outcome in outcomes]


async def test_a_created_topic_is_seen_hosted_and_still_there_after_a_restart(tmp_path: Path) -> None:
    broker = await opened(tmp_path)
    topic = NewTopic(name="t", partition_count=3, configs={"retention.ms": "5"})
    assert codes(await broker.administration.create_topics([topic])) == [ErrorCode.NONE]
    assert broker.hosted() == [("t", 0), ("t", 1), ("t", 2)]
    assert broker.log_config("t").retention_ms == 5
    await broker.stop()
    again = await opened(tmp_path)
    before, after = broker.cluster.topics["t"], again.cluster.topics["t"]
    assert after.topic_id == before.topic_id
    assert [each.leader_epoch for each in after.partitions] == [1, 1, 1]
    assert again.log_config("t").retention_ms == 5
    assert again.cluster.cluster_id == broker.cluster.cluster_id


async def test_nothing_is_seen_before_the_write_lasts(tmp_path: Path) -> None:
    broker = await opened(tmp_path)

    async def looking(function: Callable[..., Any], *arguments: Any) -> Any:
        assert not broker.cluster.topics
        assert not broker.hosted()
        return await at_once(function, *arguments)

    broker.coordination._run_in_thread = looking
    await broker.administration.create_topics([NewTopic(name="t")])
    assert "t" in broker.cluster.topics


async def test_of_two_creations_of_one_name_one_finds_it_taken(tmp_path: Path) -> None:
    broker = await opened(tmp_path)
    found: list[ErrorCode] = []

    async def create() -> None:
        found.extend(codes(await broker.administration.create_topics([NewTopic(name="t"), NewTopic(name="u")])))

    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(create)
    assert sorted(found) == [ErrorCode.NONE] * 2 + [ErrorCode.TOPIC_ALREADY_EXISTS] * 4
    assert len(broker.cluster.topics) == 2
    assert not len(broker.administration._locks)


async def test_colliding_names_at_the_same_time_are_not_both_created(tmp_path: Path) -> None:
    broker = await opened(tmp_path)
    found: list[ErrorCode] = []

    async def create(name: str) -> None:
        found.extend(codes(await broker.administration.create_topics([NewTopic(name=name)])))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(create, "a.b")
        nursery.start_soon(create, "a_b")
    assert sorted(found) == [ErrorCode.NONE, ErrorCode.INVALID_TOPIC_EXCEPTION]


async def test_one_request_may_create_colliding_names_as_in_kafka(tmp_path: Path) -> None:
    broker = await opened(tmp_path)
    outcomes = await broker.administration.create_topics([NewTopic(name="a.b"), NewTopic(name="a_b")])
    assert codes(outcomes) == [ErrorCode.NONE] * 2
    (again,) = await broker.administration.create_topics([NewTopic(name="a_b")])
    assert codes([again]) == [ErrorCode.TOPIC_ALREADY_EXISTS]


async def test_a_request_that_comes_to_too_many_records_creates_nothing(tmp_path: Path) -> None:
    broker = await opened(tmp_path)
    topics = [NewTopic(name="a", partition_count=5000), NewTopic(name="b", partition_count=4999)]
    with pytest.raises(KafkaError) as refused:
        await broker.administration.create_topics(topics)
    assert refused.value.code is ErrorCode.POLICY_VIOLATION
    assert not broker.cluster.topics
    fits = NewTopic(name="b", partition_count=9998, configs={"retention.ms": "1"})
    (outcome,) = await broker.administration.create_topics([fits], validate_only=True)
    assert isinstance(outcome, TopicPlan)


async def test_only_validating_changes_nothing(tmp_path: Path) -> None:
    broker = await opened(tmp_path)
    outcomes = await broker.administration.create_topics([NewTopic(name="t")], validate_only=True)
    assert isinstance(outcomes[0], TopicPlan)
    assert not broker.cluster.topics
    await broker.administration.create_topics([NewTopic(name="t")])
    await broker.administration.create_partitions("t", 5, validate_only=True)
    await broker.administration.settings.alter_topic("t", lambda _: {"retention.ms": "5"}, validate_only=True)
    await broker.administration.settings.alter_broker(
        lambda _: {"log.retention.ms": "5"}, for_all=True, validate_only=True
    )
    assert len(broker.cluster.topics["t"].partitions) == 1
    assert broker.configs.log_config("t").retention_ms != 5


async def test_a_deleted_topic_is_gone_for_everybody_and_its_name_is_free(tmp_path: Path) -> None:
    broker = await opened(tmp_path)
    administration = broker.administration
    await administration.create_topics([NewTopic(name="t", configs={"retention.ms": "5"})])
    first_id = broker.cluster.topics["t"].topic_id
    (missing, gone) = await administration.delete_topics(["x", "t"])
    assert missing is not None
    assert missing.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert gone is None
    await trio.testing.wait_all_tasks_blocked()
    assert broker.deleted == ["t"]
    assert not broker.hosted()
    await administration.create_topics([NewTopic(name="t")])
    assert broker.cluster.topics["t"].topic_id != first_id
    assert broker.configs.log_config("t").retention_ms != 5


async def test_partitions_are_added_to_a_topic_and_kept(tmp_path: Path) -> None:
    broker = await opened(tmp_path)
    await broker.administration.create_topics([NewTopic(name="t", partition_count=1)])
    await broker.administration.create_partitions("t", 3)
    assert broker.hosted() == [("t", 0), ("t", 1), ("t", 2)]
    await broker.stop()
    assert len((await opened(tmp_path)).cluster.topics["t"].partitions) == 3


async def test_an_extension_does_not_wait_for_partitions_that_have_no_leader(tmp_path: Path) -> None:
    broker = await opened(tmp_path)
    await broker.administration.create_topics([NewTopic(name="t")])
    topic = broker.cluster.topics["t"]
    lost = tuple(replace(each, leader=NO_LEADER, leader_epoch=7) for each in topic.partitions)
    broker.cluster.put_topic(replace(topic, partitions=lost))
    await broker.administration.create_partitions("t", 2)
    assert [each.leader for each in broker.cluster.topics["t"].partitions] == [NO_LEADER, 1]


async def test_a_topic_on_a_disk_that_failed_can_be_deleted_and_created_again(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).mkdir()
    broker = await opened(tmp_path, {"log.dirs": f"{tmp_path}/a,{tmp_path}/b"})
    await broker.administration.create_topics([NewTopic(name="t", partition_count=2)])
    broker.replicas.log_directories[1].take_offline(OSError(errno.EIO, "broken"))
    await trio.testing.wait_all_tasks_blocked()
    assert sorted(each.leader for each in broker.cluster.topics["t"].partitions) == [NO_LEADER, 1]
    assert await broker.administration.delete_topics(["t"]) == [None]
    assert codes(await broker.administration.create_topics([NewTopic(name="t", partition_count=2)])) == [ErrorCode.NONE]
    assert len(broker.hosted()) == 2


async def test_changed_settings_reach_the_partitions_and_last(tmp_path: Path) -> None:
    broker = await opened(tmp_path)
    settings = broker.administration.settings
    topics = [NewTopic(name="t"), NewTopic(name="u", configs={"retention.ms": "7"})]
    await broker.administration.create_topics(topics)
    await settings.alter_topic("t", lambda texts: {**texts, "segment.ms": "8"})
    await settings.alter_topic("t", lambda texts: {**texts, "flush.ms": "9"})
    await settings.alter_broker(lambda texts: {"log.retention.ms": "5"}, for_all=True)
    await settings.alter_broker(lambda texts: {"log.segment.delete.delay.ms": "6"}, for_all=False)
    for each in (broker, None):
        if each is None:
            await broker.stop()
            each = await opened(tmp_path)
        config = each.log_config("t")
        found = (config.segment_ms, config.flush_ms, config.retention_ms, config.file_delete_delay_ms)
        assert found == (8, 9, 5, 6)
        assert each.log_config("u").retention_ms == 7


async def test_a_change_of_settings_is_not_for_another_topic_that_has_got_the_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread works the change out while the topic is deleted, and made again with settings of its own."""
    monkeypatch.setattr(administration_module, "DELETION_PATIENCE_S", 60.0)
    broker = await opened(tmp_path)
    administration = broker.administration
    await administration.create_topics([NewTopic(name="t", configs={"retention.ms": "5"})])
    seen: list[dict[str, str]] = []

    async def meanwhile() -> None:
        assert await administration.delete_topics(["t"]) == [None]
        again = NewTopic(name="t", configs={"segment.ms": "7"})
        assert codes(await administration.create_topics([again])) == [ErrorCode.NONE]

    def change(texts: Mapping[str, str]) -> dict[str, str]:
        seen.append(dict(texts))
        if len(seen) == 1:
            trio.from_thread.run(meanwhile)
        return {**texts, "flush.ms": "9"}

    await administration.settings.alter_topic("t", change, in_thread=True)
    assert seen == [{"retention.ms": "5"}, {"segment.ms": "7"}]
    config = broker.log_config("t")
    assert (config.segment_ms, config.flush_ms, config.retention_ms) == (7, 9, LogConfig().retention_ms)


async def test_settings_of_a_missing_topic_cannot_be_changed(tmp_path: Path) -> None:
    broker = await opened(tmp_path)
    with pytest.raises(KafkaError) as failure:
        await broker.administration.settings.alter_topic("t", lambda _: {"retention.ms": "5"})
    assert failure.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert failure.value.message == "The topic 't' does not exist."
    with pytest.raises(KafkaError) as failure:
        await broker.administration.settings.alter_topic("t", lambda _: {"foo": "5"})
    assert failure.value.code is ErrorCode.INVALID_CONFIG


async def test_a_disk_that_will_not_have_the_partitions_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = await opened(tmp_path)

    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "no space")

    with monkeypatch.context() as patch:
        patch.setattr(PartitionLog, "create", full)
        outcomes = await broker.administration.create_topics([NewTopic(name="t")])
        assert codes(outcomes) == [ErrorCode.KAFKA_STORAGE_ERROR]
        assert not broker.cluster.topics
        assert await broker.coordination.children("/brokers/topics") == []
    assert codes(await broker.administration.create_topics([NewTopic(name="t")])) == [ErrorCode.NONE]
    with monkeypatch.context() as patch:
        patch.setattr(PartitionLog, "create", full)
        with pytest.raises(KafkaError) as refused:
            await broker.administration.create_partitions("t", 2)
        assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    await broker.administration.create_partitions("t", 2)
    assert broker.hosted() == [("t", 0), ("t", 1)]


async def test_whoever_asks_for_a_topic_and_goes_away_gets_it_whole(tmp_path: Path) -> None:
    broker = await opened(tmp_path)
    gate = trio.Event()

    async def slow(function: Callable[..., Any], *arguments: Any) -> Any:
        await gate.wait()
        return function(*arguments)

    broker.coordination._run_in_thread = slow
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(broker.administration.create_topics, [NewTopic(name="t", partition_count=3)])
            await trio.testing.wait_all_tasks_blocked()
            scope.cancel()
            gate.set()
    await trio.testing.wait_all_tasks_blocked()
    assert len(broker.cluster.topics["t"].partitions) == len(broker.hosted()) == 3
    gate = trio.Event()
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(broker.administration.delete_topics, ["t"])
            await trio.testing.wait_all_tasks_blocked()
            scope.cancel()
            gate.set()
    await trio.testing.wait_all_tasks_blocked()
    assert not broker.hosted()


async def busy(broker: AdministeredBroker) -> trio.Event:
    """Keep the controller from its requests until the event is set."""
    gate = trio.Event()
    controller: Any = broker.member.controller
    controller._events.put(gate.wait)
    await trio.testing.wait_all_tasks_blocked()
    return gate


def folders(directory: Path) -> list[str]:
    return sorted(each.name for each in directory.iterdir() if each.is_dir())


async def test_what_the_controller_does_not_come_to_in_time_is_never_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = await opened(tmp_path)
    await broker.administration.create_topics([NewTopic(name="old")])
    gate = await busy(broker)
    monkeypatch.setattr(administration_module, "ALONE_PATIENCE_S", 0.01)
    outcomes = await broker.administration.create_topics([NewTopic(name="t")])
    assert codes(outcomes) == [ErrorCode.REQUEST_TIMED_OUT]
    with pytest.raises(KafkaError) as late:
        await broker.administration.create_partitions("old", 2)
    assert late.value.code is ErrorCode.REQUEST_TIMED_OUT
    monkeypatch.undo()
    gate.set()
    await trio.testing.wait_all_tasks_blocked()
    assert (list(broker.cluster.topics), folders(tmp_path)) == (["old"], ["old-0"])
    assert codes(await broker.administration.create_topics([NewTopic(name="t")])) == [ErrorCode.NONE]
    await broker.administration.create_partitions("old", 2)
    assert folders(tmp_path) == ["old-0", "old-1", "t-0"]


async def test_a_topic_whose_logs_are_ordered_late_keeps_its_records(tmp_path: Path, autojump_clock: MockClock) -> None:
    """The controller has written it, and this broker hears of it when its client has lost patience and asks again."""
    broker = await opened(tmp_path)
    async with trio.open_nursery() as nursery:
        async with broker.member.controller_requests._lock:  # the order to lead waits here
            assert codes(await broker.administration.create_topics([NewTopic(name="t")])) == [
                ErrorCode.REQUEST_TIMED_OUT
            ]
            assert await broker.coordination.children("/brokers/topics") == ["t"]
            held = Held(broker.replicas._creation, lambda function, _: function.__name__ == "_make_some", after=True)
            again: list[ErrorCode] = []

            async def ask_again() -> None:
                again.extend(codes(await broker.administration.create_topics([NewTopic(name="t")])))

            nursery.start_soon(ask_again)
            await held.has_arrived.wait()
        await trio.testing.wait_all_tasks_blocked()  # the order goes as far as it can
        held.may_go_on.set()
    await trio.testing.wait_all_tasks_blocked()
    assert again == [ErrorCode.TOPIC_ALREADY_EXISTS]
    assert (broker.hosted(), folders(tmp_path)) == ([("t", 0)], ["t-0"])
    (partition,) = broker.replicas.partitions()
    assert partition.topic_id == broker.cluster.topics["t"].topic_id
    # What it writes is in the file that has the name now.
    file = partition.log.segments[0].log_file
    assert os.path.samestat(os.stat(file.path), os.fstat(file.open().fileno()))


async def test_who_goes_away_before_the_controller_comes_to_it_leaves_nothing(tmp_path: Path) -> None:
    broker = await opened(tmp_path)
    gate = await busy(broker)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(broker.administration.create_topics, [NewTopic(name="t")])
        await trio.testing.wait_all_tasks_blocked()
        assert folders(tmp_path) == ["t-0"]
        nursery.cancel_scope.cancel()
    assert folders(tmp_path) == []
    gate.set()
    await trio.testing.wait_all_tasks_blocked()
    assert not broker.cluster.topics


async def test_a_topic_that_is_deleted_meanwhile_is_not_extended(tmp_path: Path) -> None:
    broker = await opened(tmp_path)
    await broker.administration.create_topics([NewTopic(name="t")])
    make = broker.replicas.prepare_logs

    async def slowly(hosted: Any) -> Any:
        await broker.administration.delete_topics(["t"])
        await trio.testing.wait_all_tasks_blocked()
        return await make(hosted)

    broker.replicas.prepare_logs = slowly  # type: ignore[method-assign]
    with pytest.raises(KafkaError) as refused:
        await broker.administration.create_partitions("t", 2)
    assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert [each for each in folders(tmp_path) if not each.endswith("-delete")] == []


async def test_a_journal_that_cannot_be_written_changes_nothing(tmp_path: Path) -> None:
    broker = await opened(tmp_path)

    async def failing(function: Callable[..., Any], *arguments: Any) -> Any:
        raise OSError("no space")

    broker.coordination._run_in_thread = failing
    outcomes = await broker.administration.create_topics([NewTopic(name="t")])
    assert codes(outcomes) == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert not broker.cluster.topics
    assert not broker.hosted()
    broker.planner.check_name("t")
    assert [each for each in os.listdir(tmp_path) if each.startswith("t-")] == []


async def test_topics_asked_for_are_created_in_the_background(tmp_path: Path) -> None:
    broker = await opened(tmp_path, {"num.partitions": "2"})
    async with trio.open_nursery() as nursery:
        nursery.start_soon(broker.administration.run)
        for _ in range(2):
            broker.administration.request_creation(["t", "bad name", "__consumer_offsets"])
        await trio.testing.wait_all_tasks_blocked()
        broker.administration.request_creation(["t", "u"])
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert sorted(broker.cluster.topics) == ["__consumer_offsets", "t", "u"]
    assert len(broker.cluster.topics["t"].partitions) == 2
    offsets = broker.cluster.topics["__consumer_offsets"]
    assert offsets.is_internal
    assert len(offsets.partitions) == 50
    assert broker.configs.log_config("__consumer_offsets").is_compacted


async def test_an_internal_topic_is_made_once_and_fits_a_single_broker(tmp_path: Path) -> None:
    broker = await opened(tmp_path, {"transaction.state.log.num.partitions": "3"})
    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(broker.administration.ensure_topic, "__transaction_state")
    topic = broker.cluster.topics["__transaction_state"]
    assert [each.replicas for each in topic.partitions] == [(1,)] * 3
    assert broker.configs.log_config("__transaction_state").min_insync_replicas == 1


def test_topic_ids_are_never_the_reserved_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    made = [*RESERVED_IDS, b"x" * 16]
    monkeypatch.setattr(random_ids._topic_ids, "take", lambda: made.pop(0))
    assert random_topic_id() == b"x" * 16


def test_the_system_is_not_asked_for_each_topic_id(monkeypatch: pytest.MonkeyPatch) -> None:
    """While a thread computes, each call may take as long as the thread has its turn."""
    asked: list[int] = []
    monkeypatch.setattr(os, "urandom", lambda count: asked.append(count) or secrets.token_bytes(count))
    ids = {random_topic_id() for _ in range(1000)}
    assert len(ids) == 1000 and len(asked) <= 2
    assert {uuid.UUID(bytes=each).version for each in ids} == {4}
