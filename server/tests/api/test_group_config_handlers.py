"""Settings of groups as clients change, describe and list them, and as other brokers hear of them."""

from pathlib import Path
from typing import Any

import pytest
import trio.testing

from ottla.replication.cluster import znodes
from ottla.replication.cluster.coordination import SetData
from ottla.replication.controller.topic_planner import NewTopic
from ottla.server.api.handlers import describe_configs as describe_handler
from ottla.server.api.handlers.alter_configs import alter_configs
from ottla.server.api.handlers.describe_configs import list_config_resources
from ottla.server.config import changes
from ottla.server.tests.administered import AdministeredBroker, opened
from ottla.server.tests.api.test_config_handlers import DELETE, SET, change, describe
from ottla.server.tests.cluster.test_config_notifications import Listeners
from ottla.server.tests.clustered import clustered
from ottla.wire.messages import alter_configs as alter
from ottla.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsSynonym,
    ListConfigResourcesRequest,
)

GROUP, LOGGER, BROKER, TOPIC, CLIENT_METRICS = 32, 8, 4, 2, 16
SESSION = "consumer.session.timeout.ms"


async def set_one(broker: AdministeredBroker, group_id: str, name: str, value: str | None) -> tuple[int, str | None]:
    operation = DELETE if value is None else SET
    (answer,) = await change(broker, (GROUP, group_id, [(name, operation, value)]))
    return answer


def values(broker: AdministeredBroker, group_id: str, **options: bool) -> dict[str, Any]:
    result = describe(broker, GROUP, group_id, **options)
    assert result.error_code == 0
    return {each.name: each for each in result.configs}


async def listed(broker: AdministeredBroker, *kinds: int, version: int = 1) -> tuple[int, list[tuple[int, str]]]:
    answer: Any = list_config_resources(ListConfigResourcesRequest(resource_types=list(kinds)), broker.context(version))
    return answer.error_code, [(each.resource_type, each.resource_name) for each in answer.config_resources]


async def test_a_setting_of_a_group_is_in_force_at_once_and_after_a_restart(tmp_path: Path) -> None:
    broker = await opened(tmp_path)
    assert await set_one(broker, "g/1 .", SESSION, "50000") == (0, None)
    assert broker.configs.groups.in_force("g/1 .").consumer_session_timeout_ms == 50_000
    assert broker.configs.groups.in_force("other").consumer_session_timeout_ms == 45_000
    await broker.stop()
    broker = await opened(tmp_path)
    assert broker.configs.groups.in_force("g/1 .").consumer_session_timeout_ms == 50_000
    assert broker.configs.groups.own_values("g/1 .") == {SESSION: 50_000}
    assert await set_one(broker, "g/1 .", SESSION, None) == (0, None)
    assert broker.configs.groups.in_force("g/1 .").consumer_session_timeout_ms == 45_000
    assert await broker.coordination.children(znodes.GROUP_CONFIGS) == []
    await broker.stop()


@pytest.mark.parametrize("group_id", [".", "..", "<default>", "%2E", "ä\0"])
async def test_a_group_may_have_any_name(tmp_path: Path, group_id: str) -> None:
    broker = await opened(tmp_path)
    assert await set_one(broker, group_id, SESSION, "50000") == (0, None)
    await broker.stop()
    broker = await opened(tmp_path)
    assert list(broker.configs.groups) == [group_id]
    await broker.stop()


async def test_a_group_is_described_with_the_source_of_each_value(tmp_path: Path) -> None:
    broker = await opened(tmp_path, {"group.share.session.timeout.ms": "46000"})
    await set_one(broker, "g", SESSION, "50000")
    found = values(broker, "g", include_synonyms=True, include_documentation=True)
    assert len(found) == 21
    assert (found[SESSION].value, found[SESSION].config_source, found[SESSION].read_only) == ("50000", 8, False)
    assert found[SESSION].synonyms == [
        DescribeConfigsSynonym(name=SESSION, value="50000", source=8),
        DescribeConfigsSynonym(name=f"group.{SESSION}", value="45000", source=5),
    ]
    share = found["share.session.timeout.ms"]
    assert (share.value, share.config_source, share.synonyms[0].name) == ("46000", 4, "group.share.session.timeout.ms")
    reset = found["share.auto.offset.reset"]
    assert reset.synonyms == [DescribeConfigsSynonym(name="share.auto.offset.reset", value="latest", source=5)]
    assert (found["streams.assignor.name"].value, found["streams.assignor.name"].config_type) == ("sticky", 2)
    assert all(each.documentation for each in found.values())


async def test_internal_settings_of_groups_are_told_where_they_are_set(tmp_path: Path) -> None:
    broker = await opened(tmp_path, {"group.streams.num.warmup.replicas": "3"})
    await set_one(broker, "g", "streams.acceptable.recovery.lag", "7")
    internal = {"streams.acceptable.recovery.lag": "7", "streams.num.warmup.replicas": "3"}
    found = values(broker, "g")
    assert {name: found[name].value for name in internal} == internal
    assert set(found) - set(values(broker, "other")) == {"streams.acceptable.recovery.lag"}


async def test_defaults_follow_the_broker_while_it_runs(tmp_path: Path) -> None:
    broker = await opened(tmp_path)
    heard: list[str | None] = []
    broker.configs.groups.on_change(heard.append)
    await set_one(broker, "g", SESSION, "50000")
    interval = "group.consumer.assignment.interval.ms"
    assert await change(broker, (BROKER, "", [(interval, SET, "7")])) == [(0, None)]
    assert broker.configs.groups.in_force("g").consumer_assignment_interval_ms == 7
    assert heard == ["g", None]
    ((code, message),) = await change(broker, (BROKER, "", [(interval, SET, "15001")]))
    longest = "group.consumer.max.assignment.interval.ms"
    assert (code, message) == (42, f"{interval} must be less than or equal to {longest}")


async def test_what_groups_are_refused(tmp_path: Path) -> None:
    broker = await opened(tmp_path)
    assert await set_one(broker, "", SESSION, "50000") == (42, "Default group resources are not allowed.")
    too_short = f"{SESSION} must be in the range 45000 to 60000 inclusive."
    assert await set_one(broker, "g", SESSION, "1") == (40, too_short)
    assert await set_one(broker, "g", "no.such", "1") == (40, "Unknown group config name: no.such")
    code, message = await set_one(broker, "g" * 1001, SESSION, "50000")
    assert (code, message) == (42, "A group with settings has an id of no more than 1000 characters.")
    assert describe(broker, GROUP, "").error_message == "Group name must not be empty"
    assert list(broker.configs.groups) == []


async def test_no_more_groups_than_allowed_have_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = await opened(tmp_path)
    monkeypatch.setattr(changes, "GROUPS_MAX", 2)
    codes = [(await set_one(broker, name, SESSION, "50000"))[0] for name in ("a", "b", "c")]
    assert codes == [0, 0, 44]
    assert (await set_one(broker, "a", SESSION, "51000"))[0] == 0


async def test_groups_without_settings_are_described_up_to_a_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = await opened(tmp_path)
    await set_one(broker, "own", SESSION, "50000")
    monkeypatch.setattr(describe_handler, "GROUPS_WITHOUT_SETTINGS_MAX", 1)
    resources = [
        DescribeConfigsResource(resource_type=GROUP, resource_name=name, configuration_keys=None)
        for name in ("a", "own")
    ]
    answered = describe_handler.describe_configs(DescribeConfigsRequest(resources=resources), broker.context(4))
    assert [each.error_code for each in answered.results] == [0, 0]  # type: ignore[union-attr]
    resources.insert(1, DescribeConfigsResource(resource_type=GROUP, resource_name="b", configuration_keys=None))
    answered = await describe_handler.describe_configs(DescribeConfigsRequest(resources=resources), broker.context(4))  # type: ignore[misc]
    assert [each.error_code for each in answered.results] == [0, 42, 0]


async def test_the_older_request_replaces_all_settings_of_a_group(tmp_path: Path) -> None:
    broker = await opened(tmp_path)
    await set_one(broker, "g", SESSION, "50000")
    configs = [alter.AlterableConfig(name="share.auto.offset.reset", value="earliest")]
    resource = alter.AlterConfigsResource(resource_type=GROUP, resource_name="g", configs=configs)
    answer = await alter_configs(
        alter.AlterConfigsRequest(resources=[resource], validate_only=False), broker.context(2)
    )
    assert answer.responses[0].error_code == 0
    assert broker.configs.groups.own_values("g") == {"share.auto.offset.reset": "earliest"}


async def test_resources_are_listed(tmp_path: Path) -> None:
    broker = await opened(tmp_path)
    await broker.administration.create_topics([NewTopic(name="t")])
    await set_one(broker, "g", SESSION, "50000")
    everything = [(GROUP, "g"), (LOGGER, "1"), (BROKER, "1"), (TOPIC, "t")]
    assert await listed(broker) == (0, everything)
    for each in everything:
        assert await listed(broker, each[0]) == (0, [each])
    assert await listed(broker, CLIENT_METRICS) == (0, [])
    assert await listed(broker, GROUP, 7) == (35, [])
    assert await listed(broker, version=0) == (0, [])


async def test_settings_of_groups_reach_other_brokers_without_a_notice_that_kafka_would_read(tmp_path: Path) -> None:
    async with clustered(tmp_path, also=Listeners().of) as cluster:
        await cluster[1].administration.settings.alter_group("g", lambda _: {SESSION: "50000"})
        await trio.testing.wait_all_tasks_blocked()
        for member in cluster.members.values():
            assert member.configs.groups.in_force("g").consumer_session_timeout_ms == 50_000
        await cluster[2].administration.settings.alter_group(
            "g", lambda texts: {**texts, "share.auto.offset.reset": "earliest"}
        )
        await cluster[3].administration.settings.alter_group("g", lambda texts: {SESSION: texts[SESSION]})
        await trio.testing.wait_all_tasks_blocked()
        for member in cluster.members.values():
            assert member.configs.groups.own_values("g") == {SESSION: 50_000}
        await cluster[1].administration.settings.alter_group("g", lambda _: {})
        await trio.testing.wait_all_tasks_blocked()
        assert [list(member.configs.groups) for member in cluster.members.values()] == [[], [], []]
        assert await cluster.tree.children(znodes.CONFIG_CHANGES) == []
        assert await cluster.tree.children(znodes.GROUP_CONFIGS) == []


async def test_settings_of_a_group_that_cannot_be_read_can_be_replaced(tmp_path: Path) -> None:
    broker = await opened(tmp_path)
    await set_one(broker, "g", SESSION, "50000")
    await broker.coordination.multi([SetData(znodes.group_config_path("g"), b"{")])
    assert await set_one(broker, "g", SESSION, "51000") == (0, None)
    assert broker.configs.groups.own_values("g") == {SESSION: 51_000}
