"""DescribeConfigs, AlterConfigs and IncrementalAlterConfigs."""

import threading
from pathlib import Path
from typing import Any

import pytest

from ottla.replication.controller.topic_planner import NewTopic
from ottla.server.api.handlers import alter_configs as handlers
from ottla.server.api.handlers.alter_configs import alter_configs, incremental_alter_configs
from ottla.server.api.handlers.describe_configs import describe_configs
from ottla.server.tests.administered import AdministeredBroker, opened
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import alter_configs as wire
from ottla.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

TOPIC, BROKER, LOGGER, METRICS = 2, 4, 8, 16
SET, DELETE, APPEND, SUBTRACT = range(4)


def describe(
    broker: AdministeredBroker, kind: int, name: str, keys: list[str] | None = None, **options: bool
) -> DescribeConfigsResult:
    resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
    request = DescribeConfigsRequest(resources=[resource], **options)
    (result,) = describe_configs(request, broker.context(4)).results
    return result


def entry(broker: AdministeredBroker, kind: int, name: str, key: str, **options: bool) -> Any:
    (found,) = describe(broker, kind, name, [key], **options).configs
    return found


async def change(
    broker: AdministeredBroker, *resources: tuple[int, str, list[tuple[str, int, str | None]]], dry: bool = False
) -> list[tuple[int, str | None]]:
    request = wire.IncrementalAlterConfigsRequest(
        resources=[
            wire.IncrementalConfigsResource(
                resource_type=kind,
                resource_name=name,
                configs=[
                    wire.IncrementalConfig(name=key, config_operation=operation, value=value)
                    for key, operation, value in changes
                ],
            )
            for kind, name, changes in resources
        ],
        validate_only=dry,
    )
    response = await incremental_alter_configs(request, broker.context(1))
    return [(each.error_code, each.error_message) for each in response.responses]


async def broker_with_topic(directory: Path, **settings: str) -> AdministeredBroker:
    broker = await opened(directory, {name.replace("_", "."): text for name, text in settings.items()})
    await broker.administration.create_topics([NewTopic(name="t", configs={"segment.ms": "7"})])
    return broker


async def test_a_topic_is_described_with_the_source_of_each_value(tmp_path: Path) -> None:
    broker = await broker_with_topic(tmp_path, log_retention_bytes="99")
    result = describe(broker, TOPIC, "t", include_synonyms=True, include_documentation=True)
    assert (result.error_code, result.error_message, len(result.configs)) == (0, "", 37)
    found = {each.name: each for each in result.configs}
    assert (found["segment.ms"].value, found["segment.ms"].config_source) == ("7", 1)
    assert found["retention.bytes"].synonyms == [
        DescribeConfigsSynonym(name="log.retention.bytes", value="99", source=4),
        DescribeConfigsSynonym(name="log.retention.bytes", value="-1", source=5),
    ]
    policy = found["cleanup.policy"]
    assert (policy.value, policy.config_source, policy.config_type, policy.read_only) == ("delete", 5, 7, False)
    assert all(each.documentation for each in result.configs)
    plain = entry(broker, TOPIC, "t", "segment.ms")
    assert (plain.synonyms, plain.documentation) == ([], None)


async def test_a_broker_is_described_with_every_public_setting(tmp_path: Path) -> None:
    broker = await broker_with_topic(tmp_path, ssl_keystore_password="s3cret")
    result = describe(broker, BROKER, "1", include_synonyms=True, include_documentation=True)
    found = {each.name: each for each in result.configs}
    assert len(found) == 350
    assert (found["node.id"].value, found["node.id"].read_only) == ("1", True)
    assert (found["log.retention.ms"].value, found["log.retention.ms"].read_only) == (None, False)
    assert found["log.retention.hours"].value == "168"
    secret = found["ssl.keystore.password"]
    assert (secret.value, secret.is_sensitive, secret.config_type, secret.config_source) == (None, True, 9, 4)
    assert [each.value for each in secret.synonyms] == [None]
    assert all(each.documentation for each in result.configs)
    assert "s3cret" not in repr(result)


async def test_a_setting_that_is_given_anew_is_told_again(tmp_path: Path) -> None:
    """The file that it names may have changed."""
    broker = await broker_with_topic(tmp_path)
    heard: list[str | None] = []
    name = "listener.name.external.ssl.keystore.location"
    broker.configs.on_change(lambda _: heard.append(broker.configs.value(name)))
    for location in ("a.pem", "a.pem", "b.pem"):
        assert await change(broker, (BROKER, "1", [(name, SET, location)])) == [(0, None)]
    assert await change(broker, (BROKER, "1", [(name, SET, "b.pem")]), dry=True) == [(0, None)]
    assert heard == ["a.pem", "a.pem", "b.pem"]


async def test_run_time_settings_of_all_brokers_are_a_resource_of_their_own(tmp_path: Path) -> None:
    broker = await broker_with_topic(tmp_path)
    # Kafka's controller sets this one, see below.
    assert [each.name for each in describe(broker, BROKER, "").configs] == ["min.insync.replicas"]
    await change(broker, (BROKER, "", [("log.retention.ms", SET, "5")]), (BROKER, "1", [("max.connections", SET, "6")]))
    found, _ = describe(broker, BROKER, "", include_synonyms=True).configs
    assert (found.name, found.value, found.config_source) == ("log.retention.ms", "5", 3)
    assert [each.source for each in found.synonyms] == [3]
    own = entry(broker, BROKER, "1", "max.connections", include_synonyms=True)
    assert [(each.value, each.source) for each in own.synonyms] == [("6", 2), ("2147483647", 5)]
    assert entry(broker, TOPIC, "t", "retention.ms").config_source == 3


async def test_a_setting_of_one_listener_is_described_as_the_setting_it_is_about(tmp_path: Path) -> None:
    broker = await broker_with_topic(tmp_path)
    auth, jaas = "listener.name.x.ssl.client.auth", "listener.name.x.plain.sasl.jaas.config"
    assert await change(broker, (BROKER, "1", [(auth, SET, "none"), (jaas, SET, "s3cret")])) == [(0, None)]
    found = entry(broker, BROKER, "1", auth, include_synonyms=True)
    assert (found.value, found.config_type, found.read_only, found.is_sensitive) == ("none", 2, True, False)
    assert [(each.name, each.source) for each in found.synonyms] == [(auth, 2), ("ssl.client.auth", 5)]
    secret = entry(broker, BROKER, "1", jaas, include_synonyms=True)
    assert (secret.value, secret.config_type, secret.is_sensitive) == (None, 9, True)
    assert [each.value for each in secret.synonyms] == [None]


@pytest.mark.parametrize(
    ("kind", "name", "code", "message"),
    [
        (TOPIC, "x", 3, ""),
        (TOPIC, "", 17, "Topic name is invalid: the empty string is not allowed"),
        (BROKER, "2", 42, "Unexpected broker id, expected 1 or empty string, but received 2"),
        (BROKER, "x", 42, "Broker id must be an integer, but it is: x"),
        (LOGGER, "2", 42, "Unexpected broker id, expected 1 but received 2"),
        (METRICS, "", 42, "Client metrics subscription name must not be empty"),
    ],
)
async def test_what_cannot_be_described(tmp_path: Path, kind: int, name: str, code: int, message: str) -> None:
    broker = await broker_with_topic(tmp_path)
    result = describe(broker, kind, name)
    assert (result.error_code, result.error_message, result.configs) == (code, message, [])


async def test_a_broker_that_is_named_often_is_described_once_however_it_is_spelled(tmp_path: Path) -> None:
    broker = await broker_with_topic(tmp_path)
    names = [*("0" * zeros + "1" for zeros in range(20)), "+1"]
    resources = [
        DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
        for kind in (BROKER, LOGGER)
        for name in names
    ]
    answer: Any = describe_configs(DescribeConfigsRequest(resources=resources), broker.context(4))
    assert [(each.resource_type, each.error_code) for each in answer.results] == [(BROKER, 0), (LOGGER, 0)]


async def test_an_unknown_resource_type_fails_the_whole_request(tmp_path: Path) -> None:
    broker = await broker_with_topic(tmp_path)
    resources = [
        DescribeConfigsResource(resource_type=kind, resource_name="t", configuration_keys=None) for kind in (TOPIC, 77)
    ]
    results = describe_configs(DescribeConfigsRequest(resources=resources), broker.context(4)).results
    assert [each.error_code for each in results] == [42, 42]


async def test_single_settings_are_changed(tmp_path: Path) -> None:
    broker = await broker_with_topic(tmp_path)
    changes: list[tuple[str, int, str | None]] = [
        ("retention.ms", SET, "5"),
        ("cleanup.policy", APPEND, "compact"),
        ("segment.ms", DELETE, None),
    ]
    assert await change(broker, (TOPIC, "t", changes), dry=True) == [(0, None)]
    assert entry(broker, TOPIC, "t", "segment.ms").value == "7"
    assert await change(broker, (TOPIC, "t", changes)) == [(0, None)]
    assert entry(broker, TOPIC, "t", "retention.ms").value == "5"
    assert entry(broker, TOPIC, "t", "cleanup.policy").value == "delete,compact"
    assert entry(broker, TOPIC, "t", "segment.ms").value == "604800000"
    assert broker.log_config("t").retention_ms == 5


async def test_resources_are_changed_or_refused_one_by_one(tmp_path: Path) -> None:
    broker = await broker_with_topic(tmp_path)
    results = await change(
        broker,
        (TOPIC, "x", [("retention.ms", SET, "5")]),
        (TOPIC, "t", [("retention.ms", SET, "5"), ("foo", SET, "5")]),
        (TOPIC, "", []),
        (TOPIC, "a b", []),
        (BROKER, "2", []),
        (BROKER, "x", []),
        (LOGGER, "1", [("no.such", SET, "INFO")]),
        (BROKER, "", [("max.connections", SET, "6")]),
    )
    assert results == [
        (3, "The topic 'x' does not exist."),
        (40, "Unknown topic config name: foo"),
        (42, "Default topic resources are not allowed."),
        (
            17,
            "Topic name is invalid: 'a b' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'",
        ),
        (42, "Unexpected broker id, expected 1, but received 2"),
        (42, "Node id must be an integer, but it is: x"),
        (40, "Logger no.such does not exist!"),
        (0, None),
    ]
    assert entry(broker, TOPIC, "t", "retention.ms").value == "604800000"
    assert broker.config.server.max_connections == 6


async def test_a_resource_that_comes_twice_is_refused_twice(tmp_path: Path) -> None:
    broker = await broker_with_topic(tmp_path)
    twice = (TOPIC, "t", [("retention.ms", SET, "5")])
    refused = (42, "Each resource must appear at most once.")
    assert await change(broker, twice, twice) == [refused, refused]


async def test_the_older_request_replaces_all_settings(tmp_path: Path) -> None:
    broker = await broker_with_topic(tmp_path)

    async def replace(name: str, texts: dict[str, str | None]) -> tuple[int, str | None]:
        configs = [wire.AlterableConfig(name=key, value=value) for key, value in texts.items()]
        resource = wire.AlterConfigsResource(resource_type=TOPIC, resource_name=name, configs=configs)
        request = wire.AlterConfigsRequest(resources=[resource], validate_only=False)
        (response,) = (await alter_configs(request, broker.context(2))).responses
        return response.error_code, response.error_message

    assert await replace("t", {"retention.ms": "5"}) == (0, None)
    assert entry(broker, TOPIC, "t", "retention.ms").value == "5"
    assert entry(broker, TOPIC, "t", "segment.ms").value == "604800000"
    assert await replace("t", {"foo": "5"}) == (40, "Unknown topic config name: foo")
    assert await replace("t", {"retention.ms": None}) == (42, "Null value not supported for : retention.ms")
    assert await replace("x", {}) == (3, "The topic 'x' does not exist.")


async def test_changed_settings_come_back_after_a_restart(tmp_path: Path) -> None:
    broker = await broker_with_topic(tmp_path)
    await change(
        broker, (TOPIC, "t", [("retention.ms", SET, "5")]), (BROKER, "1", [("log.segment.bytes", SET, "1048576")])
    )
    broker.coordination.close()
    again = await opened(tmp_path)
    assert entry(again, TOPIC, "t", "retention.ms").value == "5"
    assert entry(again, TOPIC, "t", "segment.bytes").value == "1048576"
    assert entry(again, BROKER, "1", "log.segment.bytes").config_source == 2


async def test_operations_are_looked_at_before_the_name_and_values_after_it(tmp_path: Path) -> None:
    broker = await broker_with_topic(tmp_path)
    for name in ("", "a b", "unknown"):
        wrong = (TOPIC, name, [("retention.ms", APPEND, "1")])
        message = "Can't APPEND to key retention.ms because its type is not LIST."
        assert await change(broker, wrong) == [(ErrorCode.INVALID_CONFIG, message)]
    unknown = [("no.such", SET, "1")]
    ((empty, _), (bad, _), (missing, _)) = await change(
        broker, (TOPIC, "", unknown), (TOPIC, "a b", unknown), (TOPIC, "unknown", unknown)
    )
    assert (empty, bad, missing) == (
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.INVALID_CONFIG,
    )


async def test_a_broker_that_is_named_very_often_is_described_once(tmp_path: Path) -> None:
    broker = await broker_with_topic(tmp_path)
    own = DescribeConfigsResource(
        resource_type=BROKER, resource_name=str(broker.config.node_id), configuration_keys=None
    )
    twice = await describe_configs(DescribeConfigsRequest(resources=[own, own, own]), broker.context(4))
    assert len(twice.results) == 3
    topic = DescribeConfigsResource(resource_type=TOPIC, resource_name="t", configuration_keys=None)
    often: Any = describe_configs(DescribeConfigsRequest(resources=[own] * 4_000 + [topic] * 9), broker.context(4))
    assert isinstance(often, DescribeConfigsResponse), "so few are described that it needs no turns"
    assert [each.resource_name for each in often.results] == [own.resource_name, "t"]


async def test_topics_without_settings_of_their_own_share_what_is_told_of_them(tmp_path: Path) -> None:
    broker = await broker_with_topic(tmp_path)
    await broker.administration.create_topics([NewTopic(name=name, configs={}) for name in ("plain", "other")])
    resources = [
        DescribeConfigsResource(resource_type=TOPIC, resource_name=name, configuration_keys=["segment.ms"])
        for name in ("plain", "t", "other")
    ]
    response = await describe_configs(DescribeConfigsRequest(resources=resources), broker.context(4))
    plain, own, other = [each.configs for each in response.results]
    assert plain is other
    assert (own[0].value, own[0].config_source) == ("7", 1)
    assert plain[0].config_source == 5


async def test_very_many_settings_of_one_resource_are_read_in_pieces_and_refused_as_few(tmp_path: Path) -> None:
    broker = await broker_with_topic(tmp_path)
    changes = [(f"x{number}", SET, "5") for number in range(12_000)]
    assert await change(broker, (TOPIC, "t", changes)) == [(40, "Unknown topic config name: x0")]
    repeated = await change(broker, (TOPIC, "t", [*changes, ("x0", SET, None)]))
    assert repeated == [(42, "Error due to duplicate config keys")]
    configs = [wire.AlterableConfig(name=name, value=value) for name, _, value in changes]
    for extra, message in (([], "Unknown topic config name: x0"), (configs[:1], "Error due to duplicate config keys")):
        resource = wire.AlterConfigsResource(resource_type=TOPIC, resource_name="t", configs=configs + extra)
        response = await alter_configs(
            wire.AlterConfigsRequest(resources=[resource], validate_only=True), broker.context(2)
        )
        assert [each.error_message for each in response.responses] == [message]


@pytest.mark.parametrize(("count", "is_in_thread"), [(40, False), (1_500, True)])
async def test_very_many_changes_of_one_resource_are_worked_out_in_a_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int, is_in_thread: bool
) -> None:
    threads: list[bool] = []
    for name in ("check_changes", "changed_topic", "changed_broker"):
        work = getattr(handlers, name)

        def noted(*arguments: Any, work: Any = work) -> Any:
            threads.append(threading.current_thread() is not threading.main_thread())
            return work(*arguments)

        monkeypatch.setattr(handlers, name, noted)
    broker = await broker_with_topic(tmp_path)
    changes = [(f"x{number}", SET, "5") for number in range(count)]
    assert await change(broker, (TOPIC, "t", changes)) == [(40, "Unknown topic config name: x0")]
    assert await change(broker, (BROKER, "", [*changes, ("num.io.threads", APPEND, "5")]), dry=True) == [
        (ErrorCode.INVALID_CONFIG, "Config value append is not allowed for config key: num.io.threads")
    ]
    assert threads == [is_in_thread] * 4


# ---------------------------------------------------------------------- min.insync.replicas, one setting of all brokers (KIP-966)


def min_isr(broker: AdministeredBroker, kind: int, name: str) -> list[tuple[str | None, int]]:
    """Its value and source, and those behind it."""
    (found,) = describe(broker, kind, name, ["min.insync.replicas"], include_synonyms=True).configs
    assert (found.value, found.config_source) == (found.synonyms[0].value, found.synonyms[0].source)
    return [(each.value, each.source) for each in found.synonyms]


async def test_min_insync_replicas_is_a_setting_of_all_brokers(tmp_path: Path) -> None:
    """As Kafka 4.4 tells it, whose controller has written it there."""
    broker = await broker_with_topic(tmp_path)
    for kind, name in ((TOPIC, "t"), (BROKER, "1")):
        assert min_isr(broker, kind, name) == [("1", 3), ("1", 5)]
    assert min_isr(broker, BROKER, "") == [("1", 3)]
    assert [each.name for each in describe(broker, BROKER, "").configs] == ["min.insync.replicas"]
    cannot = 40, "Broker-level min.insync.replicas cannot be altered while ELR is enabled."
    for operation, value in ((SET, "2"), (DELETE, None)):
        assert await change(broker, (BROKER, "1", [("min.insync.replicas", operation, value)])) == [cannot]
    assert await change(broker, (BROKER, "", [("min.insync.replicas", SET, "2")])) == [(0, None)]
    assert min_isr(broker, TOPIC, "t") == [("2", 3), ("1", 5)]
    gone = 40, "Cluster-level min.insync.replicas cannot be removed while ELR is enabled."
    assert await change(broker, (BROKER, "", [("min.insync.replicas", DELETE, None)])) == [gone]
    replacing = wire.AlterConfigsRequest(
        resources=[wire.AlterConfigsResource(resource_type=BROKER, resource_name="", configs=[])],
        validate_only=False,
    )
    (answer,) = (await alter_configs(replacing, broker.context(1))).responses
    assert (answer.error_code, answer.error_message) == gone
    assert min_isr(broker, TOPIC, "t") == [("2", 3), ("1", 5)]


async def test_min_insync_replicas_given_at_start_is_what_all_brokers_have(tmp_path: Path) -> None:
    broker = await broker_with_topic(tmp_path, min_insync_replicas="1")
    assert min_isr(broker, TOPIC, "t") == [("1", 3), ("1", 4), ("1", 5)]


async def test_without_the_feature_min_insync_replicas_is_a_setting_like_others(tmp_path: Path) -> None:
    broker = await broker_with_topic(tmp_path)
    broker.configs.has_eligible_leaders = lambda: False
    assert min_isr(broker, TOPIC, "t") == [("1", 5)]
    assert describe(broker, BROKER, "").configs == []
    assert await change(broker, (BROKER, "1", [("min.insync.replicas", SET, "2")])) == [(0, None)]
    broker.configs.has_eligible_leaders = lambda: True
    assert min_isr(broker, TOPIC, "t") == [("2", 2), ("1", 3), ("1", 5)]
    assert await change(broker, (BROKER, "1", [("min.insync.replicas", DELETE, None)])) == [(0, None)], (
        "it is from before"
    )
    assert min_isr(broker, TOPIC, "t") == [("1", 3), ("1", 5)]
