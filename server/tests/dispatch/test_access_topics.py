"""Topics and settings are made, changed, described and deleted by those who have the right; others do not hear of them."""

import logging
import threading
from pathlib import Path
from typing import Any

import pytest

from ottla.replication.cluster.metadata_cache import CLUSTER_METADATA_TOPIC
from ottla.replication.controller.topic_planner import NewTopic
from ottla.server.api.handlers.describe_configs import ResourceType as Kind
from ottla.server.cluster import settings_administration
from ottla.server.dispatch.access import CLUSTER_NAME, OPERATIONS_NOT_ASKED, AclOperation, ResourceType
from ottla.server.security.acls import Permission
from ottla.server.tests.administered import AdministeredBroker, opened
from ottla.server.tests.clustered import clustered
from ottla.server.tests.dispatch.test_access import with_topics
from ottla.server.tests.rights import Right, ask, guard
from ottla.server.tests.security.test_authorizer import acl, authorizer_with
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import alter_configs
from ottla.wire.messages.create_topics import (
    CreatableTopic,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
)
from ottla.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    ListConfigResourcesRequest,
)
from ottla.wire.messages.describe_topic_partitions import Cursor, DescribeTopicPartitionsRequest, TopicRequest
from ottla.wire.schema import ZERO_UUID
from ottla.wire.settings import InvalidSetting

TOPIC, CLUSTER = ResourceType.TOPIC, ResourceType.CLUSTER
FORBIDDEN = ErrorCode.TOPIC_AUTHORIZATION_FAILED
MISSING = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
INVALID = ErrorCode.INVALID_REQUEST
LATE = ErrorCode.REQUEST_TIMED_OUT


def on(name: str, *operations: AclOperation) -> list[Right]:
    """Rights to a topic."""
    return [(operation, TOPIC, name) for operation in operations]


def on_cluster(operation: AclOperation) -> Right:
    return (operation, CLUSTER, CLUSTER_NAME)


def codes(results: Any) -> dict[str | None, int]:
    return {each.name: each.error_code for each in results}


# ------------------------------------------------------------------ CreateTopics


async def create(broker: AdministeredBroker, *names: str, timeout_ms: int = 1000, version: int = 7) -> list[Any]:
    topics = [
        CreatableTopic(name=name, num_partitions=2, replication_factor=1, assignments=[], configs=[]) for name in names
    ]
    request = CreateTopicsRequest(topics=topics, timeout_ms=timeout_ms)
    return (await ask(broker, request, version)).topics


async def test_topics_that_the_client_may_not_create_are_refused_whether_they_exist_or_not(tmp_path: Path) -> None:
    broker = await with_topics(tmp_path, "there")
    authorizer = guard(broker, *on("mine", AclOperation.CREATE))
    results = await create(broker, "there", "new", "mine", "a/b")
    assert codes(results) == {"there": FORBIDDEN, "new": FORBIDDEN, "mine": 0, "a/b": FORBIDDEN}
    assert {each.error_message for each in results if each.name != "mine"} == {"Authorization failed."}
    assert set(broker.cluster.topics) == {"there", "mine"}
    # That it may not create all topics or hear of settings is no refusal.
    assert sorted(authorizer.refused) == [(AclOperation.CREATE, TOPIC, name) for name in ("a/b", "new", "there")]


async def test_who_may_create_in_the_cluster_may_create_every_topic(tmp_path: Path) -> None:
    broker = await with_topics(tmp_path, "there")
    authorizer = guard(broker, on_cluster(AclOperation.CREATE))
    assert codes(await create(broker, "there", "new")) == {"there": ErrorCode.TOPIC_ALREADY_EXISTS, "new": 0}
    assert not authorizer.refused


async def test_settings_of_a_new_topic_are_told_to_those_who_may_describe_them(tmp_path: Path) -> None:
    broker = await opened(tmp_path)
    guard(broker, on_cluster(AclOperation.CREATE), *on("open", AclOperation.DESCRIBE_CONFIGS))
    shut, told = await create(broker, "shut", "open")
    assert (shut.error_code, shut.topic_config_error_code) == (0, FORBIDDEN)
    assert (shut.num_partitions, shut.replication_factor, shut.configs) == (-1, -1, [])
    assert shut.topic_id == broker.cluster.topics["shut"].topic_id
    assert (told.error_code, told.topic_config_error_code) == (0, 0)
    assert (told.num_partitions, told.replication_factor) == (2, 1)
    assert len(told.configs) > 30


async def test_what_nobody_may_create_is_no_matter_of_rights(tmp_path: Path) -> None:
    broker = await opened(tmp_path)
    authorizer = guard(broker)
    results = await create(broker, CLUSTER_METADATA_TOPIC, "twice", "twice", timeout_ms=0)
    assert codes(results) == {CLUSTER_METADATA_TOPIC: INVALID, "twice": INVALID}
    assert not authorizer.refused


async def test_only_topics_that_would_be_created_are_late(tmp_path: Path) -> None:
    broker = await opened(tmp_path)
    guard(broker)
    assert codes(await create(broker, "t", "u", timeout_ms=0)) == {"t": FORBIDDEN, "u": FORBIDDEN}
    guard(broker, *on("t", AclOperation.CREATE))
    assert codes(await create(broker, "t", "u", timeout_ms=0)) == {"t": LATE, "u": LATE}


# ------------------------------------------------------------------ CreatePartitions


async def extend(broker: AdministeredBroker, *names: str, timeout_ms: int = 1000) -> list[Any]:
    topics = [CreatePartitionsTopic(name=name, count=3, assignments=None) for name in names]
    request = CreatePartitionsRequest(topics=topics, timeout_ms=timeout_ms, validate_only=False)
    return (await ask(broker, request, 3)).results


async def test_topics_that_the_client_may_not_alter_get_no_partitions(tmp_path: Path) -> None:
    broker = await with_topics(tmp_path, "t", "u")
    authorizer = guard(broker, *on("t", AclOperation.ALTER), *on("missing", AclOperation.ALTER))
    results = await extend(broker, "u", "hidden", "twice", "missing", "t", "twice")
    expected = {"u": FORBIDDEN, "hidden": FORBIDDEN, "twice": INVALID, "missing": MISSING, "t": 0}
    assert codes(results) == expected
    assert {each.error_message for each in results if each.error_code == FORBIDDEN} == {None}
    assert [len(broker.cluster.topics[name].partitions) for name in ("t", "u")] == [3, 1]
    assert sorted(authorizer.refused) == [(AclOperation.ALTER, TOPIC, name) for name in ("hidden", "u")]


async def test_only_topics_that_would_be_extended_are_late(tmp_path: Path) -> None:
    broker = await with_topics(tmp_path, "t", "u")
    guard(broker)
    assert codes(await extend(broker, "t", "u", timeout_ms=0)) == {"t": FORBIDDEN, "u": FORBIDDEN}
    guard(broker, *on("t", AclOperation.ALTER))
    assert codes(await extend(broker, "t", "u", timeout_ms=0)) == {"t": LATE, "u": LATE}


# ------------------------------------------------------------------ DeleteTopics


async def delete(broker: AdministeredBroker, *named: str | bytes, timeout_ms: int = 1000) -> list[tuple[Any, ...]]:
    """Delete topics by their names or ids; tells name, id, code."""
    topics = [
        DeleteTopicState(
            name=each if isinstance(each, str) else None, topic_id=each if isinstance(each, bytes) else ZERO_UUID
        )
        for each in named
    ]
    response = await ask(broker, DeleteTopicsRequest(topics=topics, timeout_ms=timeout_ms), 6)
    for each in response.responses:
        if each.error_code == FORBIDDEN:
            assert each.error_message == FORBIDDEN.message
    return [(each.name, each.topic_id, each.error_code) for each in response.responses]


NEITHER: list[AclOperation] = []
ONLY_DESCRIBE, ONLY_DELETE = [AclOperation.DESCRIBE], [AclOperation.DELETE]
BOTH = [AclOperation.DESCRIBE, AclOperation.DELETE]


@pytest.mark.parametrize(
    ("operations", "there", "missing"),
    [
        (NEITHER, FORBIDDEN, FORBIDDEN),
        (ONLY_DESCRIBE, FORBIDDEN, MISSING),
        (ONLY_DELETE, FORBIDDEN, FORBIDDEN),
        (BOTH, 0, MISSING),
    ],
)
async def test_topics_are_deleted_by_name_by_those_who_may_describe_and_delete_them(
    tmp_path: Path, operations: list[AclOperation], there: int, missing: int
) -> None:
    broker = await with_topics(tmp_path, "there")
    topic_id = broker.cluster.topics["there"].topic_id
    guard(broker, *on("there", *operations), *on("missing", *operations))
    told = await delete(broker, "there", "missing")
    assert sorted(told) == [("missing", ZERO_UUID, missing), ("there", topic_id if not there else ZERO_UUID, there)]
    assert ("there" in broker.cluster.topics) == bool(there)


@pytest.mark.parametrize(
    ("operations", "name", "code"),
    [(NEITHER, None, FORBIDDEN), (ONLY_DESCRIBE, "there", FORBIDDEN), (ONLY_DELETE, "there", 0), (BOTH, "there", 0)],
)
async def test_topics_are_deleted_by_id_by_those_who_may_delete_them(
    tmp_path: Path, operations: list[AclOperation], name: str | None, code: int
) -> None:
    broker = await with_topics(tmp_path, "there")
    topic_id = broker.cluster.topics["there"].topic_id
    guard(broker, *on("there", *operations))
    told = await delete(broker, topic_id, b"x" * 16)
    assert set(told) == {(name, topic_id, code), (None, b"x" * 16, ErrorCode.UNKNOWN_TOPIC_ID)}
    assert ("there" in broker.cluster.topics) == bool(code)


async def test_rights_are_asked_for_after_everything_that_the_request_alone_tells(tmp_path: Path) -> None:
    broker = await with_topics(tmp_path, "t")
    authorizer = guard(broker)
    assert await delete(broker, "t", "t") == [("t", ZERO_UUID, INVALID)]
    assert await delete(broker, "t", timeout_ms=0) == [("t", ZERO_UUID, LATE)]
    assert not authorizer.refused


async def test_that_a_name_and_an_id_are_the_same_topic_is_told_to_those_who_may_delete_it(tmp_path: Path) -> None:
    broker = await with_topics(tmp_path, "t")
    topic_id = broker.cluster.topics["t"].topic_id
    guard(broker)
    assert set(await delete(broker, "t", topic_id)) == {("t", ZERO_UUID, FORBIDDEN), (None, topic_id, FORBIDDEN)}
    guard(broker, *on("t", *BOTH))
    assert await delete(broker, "t", topic_id) == [("t", topic_id, INVALID)]


async def test_who_may_do_everything_to_the_cluster_may_delete_every_topic(tmp_path: Path) -> None:
    broker = await with_topics(tmp_path, "t")
    topic_id = broker.cluster.topics["t"].topic_id
    authorizer = guard(broker, on_cluster(AclOperation.DELETE))
    assert set(await delete(broker, "t", "missing")) == {("t", topic_id, 0), ("missing", ZERO_UUID, MISSING)}
    assert not authorizer.refused


# ------------------------------------------------------------------ DescribeTopicPartitions


async def describe(broker: AdministeredBroker, *names: str, limit: int = 2000, cursor: Cursor | None = None) -> Any:
    topics = [TopicRequest(name=name) for name in names]
    request = DescribeTopicPartitionsRequest(topics=topics, response_partition_limit=limit, cursor=cursor)
    return await ask(broker, request, 0)


async def test_named_topics_that_the_client_may_not_describe_come_behind_the_others(tmp_path: Path) -> None:
    broker = await with_topics(tmp_path, "a", "t", "u")
    read_too = on("t", AclOperation.DESCRIBE, AclOperation.READ)
    authorizer = guard(broker, *read_too, *on("missing", AclOperation.DESCRIBE))
    response = await describe(broker, "u", "t", "missing", "hidden", "a", limit=1)
    told = [(each.name, each.error_code) for each in response.topics]
    assert told[:2] == [("missing", MISSING), ("t", 0)]
    assert told[2:] == [("a", FORBIDDEN), ("hidden", FORBIDDEN), ("u", FORBIDDEN)]
    assert response.next_cursor is None
    may_describe, may_read = 1 << AclOperation.DESCRIBE, 1 << AclOperation.READ
    operations = [each.topic_authorized_operations for each in response.topics]
    assert operations == [may_describe, may_describe | may_read, *[OPERATIONS_NOT_ASKED] * 3]
    assert {each.topic_id for each in response.topics[2:]} == {ZERO_UUID}
    assert sorted(authorizer.refused) == [(AclOperation.DESCRIBE, TOPIC, name) for name in ("a", "hidden", "u")]


async def test_of_all_topics_those_are_told_that_the_client_may_describe(tmp_path: Path) -> None:
    broker = await with_topics(tmp_path, "a", "t", "u", "z")
    guard(broker, *on("t", AclOperation.DESCRIBE), *on("z", AclOperation.DESCRIBE))
    first = await describe(broker, limit=1)
    assert codes(first.topics) == {"t": 0}
    assert (first.next_cursor.topic_name, first.next_cursor.partition_index) == ("z", 0)
    assert codes((await describe(broker, cursor=first.next_cursor)).topics) == {"z": 0}
    guard(broker)
    assert (await describe(broker)).topics == []


async def test_names_before_the_cursor_are_not_asked_about(tmp_path: Path) -> None:
    broker = await with_topics(tmp_path, "a", "t", "u")
    authorizer = guard(broker, *on("u", AclOperation.DESCRIBE))
    response = await describe(broker, "a", "t", "u", cursor=Cursor(topic_name="t", partition_index=0))
    assert codes(response.topics) == {"u": 0, "t": FORBIDDEN}
    assert authorizer.refused == on("t", AclOperation.DESCRIBE)
    refused = await describe(broker, "a", cursor=Cursor(topic_name="t", partition_index=0))
    assert codes(refused.topics) == {"a": INVALID}


async def test_an_empty_name_fails_only_for_those_who_may_describe_it(tmp_path: Path) -> None:
    broker = await with_topics(tmp_path, "t")
    guard(broker, *on("t", AclOperation.DESCRIBE))
    assert codes((await describe(broker, "", "t")).topics) == {"": FORBIDDEN, "t": 0}
    guard(broker, *on("", AclOperation.DESCRIBE))
    failed = ErrorCode.UNKNOWN_SERVER_ERROR
    assert codes((await describe(broker, "", "t")).topics) == {"": failed, "t": failed}


# ------------------------------------------------------------------ settings

GROUP = ResourceType.GROUP
NO_GROUP, NO_CLUSTER = ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED
# What has settings: its type and name, and an allowed change.
OF_TOPIC = (Kind.TOPIC, "t", "segment.ms", "7")
OF_GROUP = (Kind.GROUP, "g", "consumer.session.timeout.ms", "46000")
OF_BROKER = (Kind.BROKER, "1", "log.cleaner.backoff.ms", "7")
OF_BROKERS = (Kind.BROKER, "", "log.cleaner.backoff.ms", "7")
OF_LOGGERS = (Kind.BROKER_LOGGER, "1", "ottla.of.an.access.test", "ERROR")
LOGGER = logging.getLogger(OF_LOGGERS[2])  # nobody else has one of that name
OF_METRICS = (Kind.CLIENT_METRICS, "m", "interval.ms", "1000")
Changed = tuple[Kind, str, str, str]
EVERYTHING: list[Changed] = [OF_TOPIC, OF_GROUP, OF_BROKER, OF_BROKERS, OF_LOGGERS, OF_METRICS]


def named(resources: list[Changed]) -> list[tuple[int, str]]:
    return [(kind, name) for kind, name, _, _ in resources]


def outcomes(results: Any) -> dict[tuple[int, str], int]:
    for each in results:
        if each.error_code in (FORBIDDEN, NO_GROUP, NO_CLUSTER):
            is_change = not hasattr(each, "configs")
            is_bare = is_change and each.resource_type in (Kind.BROKER, Kind.BROKER_LOGGER)
            assert each.error_message == (None if is_bare else ErrorCode(each.error_code).message)
    return {(each.resource_type, each.resource_name): each.error_code for each in results}


async def describe_settings(broker: AdministeredBroker, resources: list[tuple[int, str]]) -> list[Any]:
    asked = [
        DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
        for kind, name in resources
    ]
    return (await ask(broker, DescribeConfigsRequest(resources=asked), 4)).results


async def replace_settings(broker: AdministeredBroker, resources: list[Changed]) -> list[Any]:
    asked = [
        alter_configs.AlterConfigsResource(
            resource_type=kind, resource_name=name, configs=[alter_configs.AlterableConfig(name=key, value=value)]
        )
        for kind, name, key, value in resources
    ]
    return (await ask(broker, alter_configs.AlterConfigsRequest(resources=asked, validate_only=False), 2)).responses


async def change_settings(broker: AdministeredBroker, resources: list[Changed]) -> list[Any]:
    asked = [
        alter_configs.IncrementalConfigsResource(
            resource_type=kind,
            resource_name=name,
            configs=[alter_configs.IncrementalConfig(name=key, config_operation=0, value=value)],
        )
        for kind, name, key, value in resources
    ]
    request = alter_configs.IncrementalAlterConfigsRequest(resources=asked, validate_only=False)
    return (await ask(broker, request, 1)).responses


def rights_to_settings(operation: AclOperation) -> list[tuple[Right, list[Changed]]]:
    """Each right, and whose settings it is about."""
    return [
        ((operation, TOPIC, "t"), [OF_TOPIC]),
        ((operation, GROUP, "g"), [OF_GROUP]),
        (on_cluster(operation), [OF_BROKER, OF_BROKERS, OF_LOGGERS, OF_METRICS]),
    ]


def denial(resource: Changed) -> ErrorCode:
    return {Kind.TOPIC: FORBIDDEN, Kind.GROUP: NO_GROUP}.get(resource[0], NO_CLUSTER)


async def test_settings_are_described_to_those_who_have_the_right(tmp_path: Path) -> None:
    broker = await with_topics(tmp_path, "t")
    for right, allowed in rights_to_settings(AclOperation.DESCRIBE_CONFIGS):
        guard(broker, right)
        results = await describe_settings(broker, named(EVERYTHING))
        assert outcomes(results) == {each[:2]: 0 if each in allowed else denial(each) for each in EVERYTHING}
        # What is denied comes last, and without settings.
        assert [bool(each.error_code) for each in results] == [False] * len(allowed) + [True] * (6 - len(allowed))
        assert not any(each.configs for each in results if each.error_code)
    authorizer = guard(broker)
    assert all(outcomes(await describe_settings(broker, named(EVERYTHING))).values())
    assert len(authorizer.refused) == 6


async def test_settings_of_topics_that_are_missing_are_denied_too(tmp_path: Path) -> None:
    broker = await with_topics(tmp_path, "t")
    hidden, open_ = (Kind.TOPIC, "hidden"), (Kind.TOPIC, "open")
    guard(broker, *on("open", AclOperation.DESCRIBE_CONFIGS))
    told = outcomes(await describe_settings(broker, [hidden, open_, (Kind.TOPIC, "a/b")]))
    assert told == {hidden: FORBIDDEN, open_: MISSING, (Kind.TOPIC, "a/b"): FORBIDDEN}
    # A type that does not exist is noticed first.
    results = await describe_settings(broker, [hidden, (3, "x")])
    assert {each.error_code for each in results} == {INVALID}


@pytest.mark.parametrize("change", [replace_settings, change_settings])
async def test_settings_are_changed_by_those_who_have_the_right(tmp_path: Path, change: Any) -> None:
    broker = await with_topics(tmp_path, "t")
    broker.configs.has_eligible_leaders = lambda: False  # else all settings of all brokers cannot be replaced by one
    # Levels of loggers cannot be replaced.
    resources = [each for each in EVERYTHING if each != OF_LOGGERS or change is change_settings]
    guard(broker)
    assert outcomes(await change(broker, resources)) == {each[:2]: denial(each) for each in resources}
    assert not broker.configs.topic_overrides("t").texts
    assert not any(broker.configs.broker_overrides(for_all=for_all).texts for for_all in (False, True))
    assert LOGGER.level == logging.NOTSET
    assert not list(broker.configs.groups) and not list(broker.configs.client_metrics)
    for right, allowed in rights_to_settings(AclOperation.ALTER_CONFIGS):
        guard(broker, right)
        told = outcomes(await change(broker, resources))
        assert told == {each[:2]: 0 if each in allowed else denial(each) for each in resources}
    assert broker.configs.topic_overrides("t").texts == {"segment.ms": "7"}
    assert all(broker.configs.broker_overrides(for_all=for_all).texts for for_all in (False, True))
    assert list(broker.configs.groups) == ["g"] and list(broker.configs.client_metrics) == ["m"]
    if change is change_settings:
        assert LOGGER.level == logging.ERROR
        LOGGER.setLevel(logging.NOTSET)


@pytest.mark.parametrize("change", [replace_settings, change_settings])
async def test_what_a_change_itself_tells_comes_before_the_right(tmp_path: Path, change: Any) -> None:
    broker = await with_topics(tmp_path, "t")
    authorizer = guard(broker)
    assert outcomes(await change(broker, [OF_TOPIC, OF_TOPIC])) == {OF_TOPIC[:2]: INVALID}
    assert outcomes(await change(broker, [(3, "x", "a", "b")])) == {(3, "x"): INVALID}
    assert outcomes(await change(broker, [(Kind.BROKER, "2", "a", "b")])) == {(Kind.BROKER, "2"): INVALID}
    assert not authorizer.refused
    # Kafka's brokers look at all of a change of their own settings, but only its controller at those of topics.
    wrong = (Kind.BROKER, "1", "log.cleaner.backoff.ms", "x")
    assert outcomes(await change(broker, [wrong])) == {wrong[:2]: INVALID}
    wrong = (Kind.TOPIC, "hidden", "segment.ms", "x")
    assert outcomes(await change(broker, [wrong])) == {wrong[:2]: FORBIDDEN}


@pytest.mark.parametrize("change", [replace_settings, change_settings])
async def test_files_and_passwords_that_a_change_names_are_for_those_who_may_change(
    tmp_path: Path, change: Any
) -> None:
    broker = await opened(tmp_path)
    threads: list[int] = []

    def look(texts: object) -> None:
        threads.append(threading.get_ident())
        raise InvalidSetting("ssl.keystore.location", None, "", message="there is no such file")

    broker.configs.on_check(look)
    keystore = (Kind.BROKER, "1", "listener.name.ssl.ssl.keystore.location", "/etc/shadow")
    guard(broker)
    (result,) = await change(broker, [keystore])
    assert (result.error_code, threads) == (NO_CLUSTER, [])
    guard(broker, on_cluster(AclOperation.ALTER_CONFIGS))
    (result,) = await change(broker, [keystore])
    assert (result.error_code, result.error_message) == (INVALID, "there is no such file")
    # A key may take seconds to decrypt.
    assert len(threads) == 1 and threads != [threading.get_ident()]


def alteration(names: list[str]) -> Any:
    configs = [alter_configs.AlterableConfig(name=name, value="1") for name in names]
    resource = alter_configs.AlterConfigsResource(resource_type=Kind.BROKER, resource_name="1", configs=configs)
    return alter_configs.AlterConfigsRequest(resources=[resource], validate_only=False)


def incremental_alteration(names: list[str]) -> Any:
    configs = [alter_configs.IncrementalConfig(name=name, config_operation=0, value="1") for name in names]
    resource = alter_configs.IncrementalConfigsResource(resource_type=Kind.BROKER, resource_name="1", configs=configs)
    return alter_configs.IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)


@pytest.mark.parametrize("is_incremental", [False, True])
async def test_very_many_settings_of_a_broker_are_checked_beside_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_incremental: bool
) -> None:
    threads: list[int] = []
    check = settings_administration.check_broker

    def noted(*given: Any, **named: Any) -> None:
        threads.append(threading.get_ident())
        check(*given, **named)

    monkeypatch.setattr(settings_administration, "check_broker", noted)
    broker = await opened(tmp_path)
    guard(broker)
    for count in (1, 5_000):
        names = [f"x{number}" for number in range(count)]
        request = incremental_alteration(names) if is_incremental else alteration(names)
        response = await ask(broker, request, 1)
        assert response.responses[0].error_code == NO_CLUSTER
    assert [each == threading.get_ident() for each in threads] == [True, False]


async def test_the_right_to_change_loggers_comes_before_their_names(tmp_path: Path) -> None:
    broker = await opened(tmp_path)
    wrong = (Kind.BROKER_LOGGER, "2", "root", "ERROR")
    guard(broker)
    assert outcomes(await change_settings(broker, [wrong])) == {wrong[:2]: NO_CLUSTER}
    guard(broker, on_cluster(AclOperation.ALTER_CONFIGS))
    assert outcomes(await change_settings(broker, [wrong])) == {wrong[:2]: INVALID}


async def test_what_has_settings_is_listed_for_those_who_may_describe_those_of_the_cluster(tmp_path: Path) -> None:
    broker = await with_topics(tmp_path, "t")
    authorizer = guard(broker, *on("t", AclOperation.DESCRIBE_CONFIGS))
    for version, kinds in ((0, []), (1, []), (1, [Kind.TOPIC]), (1, [3])):
        response = await ask(broker, ListConfigResourcesRequest(resource_types=kinds), version)
        assert (response.error_code, response.config_resources) == (NO_CLUSTER, [])
    assert authorizer.refused == [on_cluster(AclOperation.DESCRIBE_CONFIGS)] * 4
    guard(broker, on_cluster(AclOperation.DESCRIBE_CONFIGS))
    response = await ask(broker, ListConfigResourcesRequest(resource_types=[Kind.TOPIC]), 1)
    assert [each.resource_name for each in response.config_resources] == ["t"]
    assert (await ask(broker, ListConfigResourcesRequest(resource_types=[3]), 1)).error_code


async def test_a_member_of_a_cluster_reads_only_the_settings_that_it_may_tell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[list[str]] = []

    async def refresh(topics: list[str], groups: list[str]) -> None:
        read.append([*topics, *groups])

    async with clustered(tmp_path) as cluster:
        broker: Any = cluster[2]
        await cluster[1].administration.create_topics([NewTopic(name=name) for name in ("t", "u")])
        monkeypatch.setattr(broker.administration.settings, "refresh", refresh)
        guard(broker, *on("t", AclOperation.DESCRIBE_CONFIGS), (AclOperation.DESCRIBE_CONFIGS, GROUP, "g"))
        asked = [
            DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=["segment.ms"])
            for kind, name in (
                (Kind.BROKER, "2"),
                (Kind.TOPIC, "u"),
                (Kind.TOPIC, "t"),
                (Kind.GROUP, "h"),
                (Kind.GROUP, "g"),
            )
        ]
        results = (await broker.answer(DescribeConfigsRequest(resources=asked), 4)).results
        assert [each.error_code for each in results] == [0, 0, NO_CLUSTER, FORBIDDEN, NO_GROUP]
        assert read == [["t", "g"]]


# ------------------------------------------------------------------ rules that deny


@pytest.mark.parametrize(
    ("of", "denied", "request_for", "code"),
    [
        (TOPIC, AclOperation.CREATE, lambda broker: create(broker, "x"), FORBIDDEN),
        (TOPIC, AclOperation.ALTER, lambda broker: extend(broker, "x"), FORBIDDEN),
        (TOPIC, AclOperation.DELETE, lambda broker: delete_named(broker, "x"), FORBIDDEN),
        (TOPIC, AclOperation.DESCRIBE, lambda broker: delete_named(broker, "x"), FORBIDDEN),
        (TOPIC, AclOperation.DESCRIBE, lambda broker: describe_named(broker, "x"), FORBIDDEN),
        (
            TOPIC,
            AclOperation.DESCRIBE_CONFIGS,
            lambda broker: describe_settings(broker, [(Kind.TOPIC, "x")]),
            FORBIDDEN,
        ),
        (GROUP, AclOperation.DESCRIBE_CONFIGS, lambda broker: describe_settings(broker, [(Kind.GROUP, "x")]), NO_GROUP),
        (
            CLUSTER,
            AclOperation.DESCRIBE_CONFIGS,
            lambda broker: describe_settings(broker, [(Kind.BROKER, "1")]),
            NO_CLUSTER,
        ),
        (CLUSTER, AclOperation.DESCRIBE_CONFIGS, lambda broker: list_settings(broker), NO_CLUSTER),
        (TOPIC, AclOperation.ALTER_CONFIGS, lambda broker: change_settings(broker, [on_x(OF_TOPIC)]), FORBIDDEN),
        (GROUP, AclOperation.ALTER_CONFIGS, lambda broker: change_settings(broker, [on_x(OF_GROUP)]), NO_GROUP),
        (CLUSTER, AclOperation.ALTER_CONFIGS, lambda broker: change_settings(broker, [OF_BROKER]), NO_CLUSTER),
        (TOPIC, AclOperation.ALTER_CONFIGS, lambda broker: replace_settings(broker, [on_x(OF_TOPIC)]), FORBIDDEN),
        (GROUP, AclOperation.ALTER_CONFIGS, lambda broker: replace_settings(broker, [on_x(OF_GROUP)]), NO_GROUP),
        (CLUSTER, AclOperation.ALTER_CONFIGS, lambda broker: replace_settings(broker, [OF_BROKER]), NO_CLUSTER),
    ],
)
async def test_a_rule_that_denies_one_operation_refuses_it_to_those_who_may_do_everything(
    tmp_path: Path, of: ResourceType, denied: AclOperation, request_for: Any, code: int
) -> None:
    broker: Any = await with_topics(tmp_path, *(["x"] if denied is not AclOperation.CREATE else []))
    name = CLUSTER_NAME if of is CLUSTER else "x"
    everybody = "User:*"
    rules = [acl(each, AclOperation.ALL, who=everybody, of=kind) for kind, each in ((TOPIC, "*"), (GROUP, "*"))]
    if of is CLUSTER:
        rules.append(acl(CLUSTER_NAME, AclOperation.ALL, who=everybody, of=CLUSTER))
    denial_of_it = acl(name, denied, Permission.DENY, who=everybody, of=of)
    broker.authorizer = authorizer_with([*rules, denial_of_it])
    assert [each.error_code for each in await request_for(broker)] == [code]
    broker.authorizer = authorizer_with(rules)
    assert [each.error_code for each in await request_for(broker)] == [0]


def on_x(resource: Changed) -> Changed:
    kind, _, key, value = resource
    return kind, "x", key, value


async def delete_named(broker: AdministeredBroker, name: str) -> list[Any]:
    return (await ask(broker, DeleteTopicsRequest(topic_names=[name], timeout_ms=1000), 5)).responses


async def describe_named(broker: AdministeredBroker, name: str) -> list[Any]:
    return (await describe(broker, name)).topics


async def list_settings(broker: AdministeredBroker) -> list[Any]:
    return [await ask(broker, ListConfigResourcesRequest(resource_types=[]), 1)]


async def test_many_names_are_decided_about_in_slices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.server.dispatch.access.NAMES_AT_ONCE", 1)
    broker = await with_topics(tmp_path, "a", "t")
    guard(
        broker, *on("t", AclOperation.DESCRIBE, AclOperation.ALTER, AclOperation.DELETE), *on("n", AclOperation.CREATE)
    )
    assert codes((await describe(broker, "a", "t")).topics) == {"a": FORBIDDEN, "t": 0}
    assert codes((await describe(broker)).topics) == {"t": 0}
    assert codes(await extend(broker, "a", "t")) == {"a": FORBIDDEN, "t": 0}
    assert codes(await create(broker, "a", "n")) == {"a": FORBIDDEN, "n": 0}
    assert {(name, code) for name, _, code in await delete(broker, "a", "t")} == {("a", FORBIDDEN), ("t", 0)}
