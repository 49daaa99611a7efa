import pytest

from ottla.server.config.broker_config import load_config
from ottla.server.config.changes import (
    changed_broker,
    changed_topic,
    check_broker,
    check_changes,
    check_topic,
    creation_texts,
)
from ottla.server.config.repository import ConfigChange, ConfigRepository, Overrides
from ottla.wire.errors import ErrorCode, KafkaError

SET, DELETE, APPEND, SUBTRACT = range(4)
NESTED = (
    "Invalid value org.apache.kafka.common.config.ConfigException: {} for configuration Invalid dynamic configuration"
)


@pytest.fixture
def configs() -> ConfigRepository:
    return ConfigRepository(load_config({}))


@pytest.mark.parametrize(
    ("texts", "changes", "result"),
    [
        ({}, [("retention.ms", SET, "5")], {"retention.ms": "5"}),
        ({"retention.ms": "5"}, [("retention.ms", DELETE, None)], {}),
        ({}, [("foo", DELETE, None)], {}),
        ({}, [("cleanup.policy", APPEND, "compact")], {"cleanup.policy": "delete,compact"}),
        (
            {"cleanup.policy": "compact"},
            [("cleanup.policy", APPEND, "delete,compact")],
            {"cleanup.policy": "compact,delete"},
        ),
        ({}, [("cleanup.policy", SUBTRACT, "delete")], {"cleanup.policy": ""}),
        (
            {"cleanup.policy": "compact,delete"},
            [("cleanup.policy", SUBTRACT, "compact,x")],
            {"cleanup.policy": "delete"},
        ),
        (
            {"cleanup.policy": "compact,delete,compact"},
            [("cleanup.policy", SUBTRACT, "compact")],
            {"cleanup.policy": "delete,compact"},
        ),
    ],
)
def test_incremental_changes_of_a_topic(
    texts: dict[str, str], changes: list[tuple[str, int, str | None]], result: dict[str, str]
) -> None:
    assert changed_topic(texts, [ConfigChange(*change) for change in changes]) == result


@pytest.mark.parametrize(
    ("change", "code", "message"),
    [
        (("retention.ms", APPEND, "5"), 40, "Can't APPEND to key retention.ms because its type is not LIST."),
        (("foo", SUBTRACT, "5"), 40, "Can't SUBTRACT to key foo because its type is not LIST."),
        (("retention.ms", 9, "5"), 42, "Unknown operations type 9"),
    ],
)
def test_changes_that_a_topic_setting_does_not_know(change: tuple[str, int, str], code: int, message: str) -> None:
    with pytest.raises(KafkaError) as failure:
        changed_topic({}, [ConfigChange(*change)])
    assert (failure.value.code, failure.value.message) == (code, message)


def test_requests_must_not_contradict_themselves() -> None:
    with pytest.raises(KafkaError, match="Error due to duplicate config keys"):
        check_changes([ConfigChange("a", SET, "1"), ConfigChange("a", DELETE, None)])
    with pytest.raises(KafkaError, match="Null value not supported for : a, b"):
        check_changes([ConfigChange("a", SET, None), ConfigChange("b", APPEND, None), ConfigChange("c", DELETE, None)])
    with pytest.raises(KafkaError, match="Null value not supported for topic configs: a,c"):
        creation_texts([("a", None), ("b", "1"), ("c", None)])


def test_topic_settings_are_checked_as_a_whole(configs: ConfigRepository) -> None:
    check_topic(configs, {"retention.ms": "5"})
    for texts in ({"foo": "1"}, {"retention.ms": "x"}, {"retention.ms": "1" * 40_000}):
        with pytest.raises(KafkaError) as failure:
            check_topic(configs, texts)
        assert failure.value.code is ErrorCode.INVALID_CONFIG


@pytest.mark.parametrize(
    ("change", "code", "message"),
    [
        (("foo", APPEND, "2"), 40, "Unknown config name: foo"),
        (("log.retention.ms", APPEND, "2"), 40, "Config value append is not allowed for config key: log.retention.ms"),
        (("log.retention.ms", 9, "1"), 42, "Unknown operations type 9"),
    ],
)
def test_changes_that_a_broker_setting_does_not_know(change: tuple[str, int, str], code: int, message: str) -> None:
    with pytest.raises(KafkaError) as failure:
        changed_broker({}, [ConfigChange(*change)])
    assert (failure.value.code, failure.value.message) == (code, message)


@pytest.mark.parametrize(
    "texts",
    [
        {"log.cleaner.threads": "2"},
        {"plugin.setting": "x"},
        {"log.cleanup.policy": ""},
        {"leader.replication.throttled.rate": "1"},
        {"listener.name.plaintext.ssl.keystore.location": "/x"},
        {"log.cleaner.max.compaction.lag.ms": "5", "log.cleaner.min.compaction.lag.ms": "9"},
        {"listeners": "PLAINTEXT://127.0.0.1:9092"},
        {"config.providers": ""},
        {},
    ],
)
def test_what_a_broker_takes_at_run_time(configs: ConfigRepository, texts: dict[str, str]) -> None:
    check_broker(configs, texts, for_all=False)


def test_providers_that_an_earlier_release_has_kept_stand_in_nobodys_way(configs: ConfigRepository) -> None:
    configs.put_broker(Overrides({"config.providers": "file"}, 0), for_all=True)
    check_broker(configs, {"config.providers": "file", "log.cleaner.threads": "2"}, for_all=True)
    check_broker(configs, {}, for_all=True)
    with pytest.raises(KafkaError, match="not served"):
        check_broker(configs, {"config.providers": "file,directory"}, for_all=True)


@pytest.mark.parametrize(
    ("texts", "for_all", "message"),
    [
        ({"log.dirs": "/x"}, False, "Cannot update these configs dynamically: [log.dirs]"),
        ({"log.retention.hours": "5"}, True, "Cannot update these configs dynamically: [log.retention.hours]"),
        (
            {"ssl.keystore.location": "/x"},
            True,
            (
                "These security configs can be dynamically updated only per-listener using the listener prefix: "
                "[ssl.keystore.location]"
            ),
        ),
        (
            {"listeners": "PLAINTEXT://:1"},
            True,
            "Cannot update these configs at default cluster level, broker id must be specified: [listeners]",
        ),
        ({"listeners": "PLAINTEXT://:1"}, False, "listeners cannot be changed while the broker runs"),
        ({"config.providers": "file"}, True, "config.providers: configuration providers are not served"),
        (
            {"log.cleaner.threads": "x"},
            False,
            "Invalid value x for configuration log.cleaner.threads: Not a number of type INT",
        ),
        ({"num.io.threads": "0"}, False, "Invalid value 0 for configuration num.io.threads: Value must be at least 1"),
        (
            {"num.io.threads": "100"},
            False,
            NESTED.format(
                "Dynamic thread count update validation failed for num.io.threads=100, value should not be greater than "
                "double the current value 8"
            ),
        ),
        (
            {"num.io.threads": "3"},
            False,
            NESTED.format(
                "Dynamic thread count update validation failed for num.io.threads=3, value should be at least half the "
                "current value 8"
            ),
        ),
        (
            {"log.cleaner.threads": "3"},
            False,
            NESTED.format("Log cleaner threads cannot be increased to more than double the current value 1"),
        ),
        (
            {"log.retention.ms": "0"},
            False,
            "requirement failed: log.retention.ms must be unlimited (-1) or, greater than or equal to 1",
        ),
        ({"log.roll.ms": "0"}, True, "requirement failed: log.roll.ms must be greater than or equal to 1"),
        (
            {"log.cleaner.dedupe.buffer.size": "1048576"},
            False,
            "requirement failed: log.cleaner.dedupe.buffer.size must be at least 1MB per cleaner thread.",
        ),
        (
            {"num.network.threads": "7"},
            True,
            NESTED.format(
                "Dynamic thread count update validation failed for num.network.threads=7, value should not be greater "
                "than double the current value 3"
            ),
        ),
        ({"max.connections": "0"}, True, NESTED.format("Invalid max.connections 0")),
        (
            {"max.connections.per.ip": "0"},
            True,
            (
                "requirement failed: max.connections.per.ip can be set to zero only if"
                " max.connections.per.ip.overrides property is set."
            ),
        ),
        (
            {"log.local.retention.ms": "-1"},
            False,
            NESTED.format(
                "Invalid value -1 for configuration log.local.retention.ms: Value must not be -1 as log.retention.ms "
                "value is set as 604800000."
            ),
        ),
        (
            {"log.retention.bytes": "5", "log.local.retention.bytes": "6"},
            False,
            NESTED.format(
                "Invalid value 6 for configuration log.local.retention.bytes: Value must not be more than "
                "log.retention.bytes property value: 5"
            ),
        ),
        (
            {"listener.name.x.ssl.client.auth": "none"},
            True,
            (
                "Cannot update these configs at default cluster level, broker id must be specified: "
                "[listener.name.x.ssl.client.auth]"
            ),
        ),
        (
            {"listener.name.x.ssl.client.auth": "maybe"},
            False,
            "Invalid value maybe for configuration ssl.client.auth: String must be one of: required, requested, none",
        ),
    ],
)
def test_what_a_broker_does_not_take_at_run_time(
    configs: ConfigRepository, texts: dict[str, str], for_all: bool, message: str
) -> None:
    with pytest.raises(KafkaError) as failure:
        check_broker(configs, texts, for_all=for_all)
    assert failure.value.code is ErrorCode.INVALID_REQUEST
    assert failure.value.message == message
