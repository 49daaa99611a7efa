from collections import Counter
from collections.abc import Mapping

import pytest

from ottla.server.config.broker_config import BrokerConfig, broker_settings, load_config, texts_of_listener
from ottla.server.config.changes import check_broker, check_with_listeners
from ottla.server.config.repository import (
    DEFAULT_CONFIG,
    DYNAMIC_BROKER_CONFIG,
    DYNAMIC_DEFAULT_BROKER_CONFIG,
    DYNAMIC_TOPIC_CONFIG,
    STATIC_BROKER_CONFIG,
    ConfigRepository,
    Overrides,
    SynonymValue,
    effective_topic_value,
    synonym_values,
    topic_settings,
)
from ottla.server.config.without_effect import inert_settings
from ottla.wire.errors import KafkaError
from ottla.wire.settings import WITHOUT_EFFECT, InvalidSetting


def repository(**static: str) -> ConfigRepository:
    return ConfigRepository(load_config({name.replace("_", "."): text for name, text in static.items()}))


def test_layers_are_looked_at_from_the_top() -> None:
    configs = repository(log_segment_delete_delay_ms="1")
    assert configs.log_config("t").file_delete_delay_ms == 1
    configs.put_broker(Overrides({"log.segment.delete.delay.ms": "2"}, 0), for_all=True)
    assert configs.log_config("t").file_delete_delay_ms == 2
    configs.put_broker(Overrides({"log.segment.delete.delay.ms": "3"}, 0), for_all=False)
    assert configs.log_config("t").file_delete_delay_ms == 3
    configs.put_topic("t", Overrides({"file.delete.delay.ms": "4"}, 0))
    assert configs.log_config("t").file_delete_delay_ms == 4
    assert configs.log_config("u").file_delete_delay_ms == 3
    configs.remove_topic("t")
    assert configs.log_config("t").file_delete_delay_ms == 3
    assert [each.source for each in synonym_values(configs, "log.segment.delete.delay.ms")] == [
        DYNAMIC_BROKER_CONFIG,
        DYNAMIC_DEFAULT_BROKER_CONFIG,
        STATIC_BROKER_CONFIG,
        DEFAULT_CONFIG,
    ]


def test_a_topic_follows_its_brokers_defaults_when_they_change() -> None:
    configs = repository()
    configs.put_topic("t", Overrides({"segment.ms": "7"}, 0))
    assert configs.log_config("t").retention_ms == 604_800_000
    configs.put_broker(Overrides({"log.retention.ms": "5"}, 0), for_all=True)
    assert (configs.log_config("t").retention_ms, configs.log_config("t").segment_ms) == (5, 7)


def test_a_changed_setting_displaces_its_synonyms_below() -> None:
    configs = repository(log_retention_hours="1", log_retention_minutes="2")
    assert configs.current.log.retention_ms == 120_000
    configs.put_broker(Overrides({"log.retention.ms": "5"}, 0), for_all=True)
    assert configs.current.log.retention_ms == 5
    assert configs.value("log.retention.hours") == "168"
    assert configs.value("log.retention.minutes") is None


def test_listeners_hear_of_changes_that_matter() -> None:
    configs = repository(log_retention_ms="5")
    heard: list[BrokerConfig] = []
    configs.on_change(heard.append)
    configs.put_broker(Overrides({"log.retention.ms": "5"}, 0), for_all=True)
    assert not heard
    configs.put_broker(Overrides({"max.connections": "7"}, 1), for_all=True)
    assert [each.server.max_connections for each in heard] == [7]
    assert configs.current is heard[0]
    assert configs.started_with.server.max_connections != 7


def test_listeners_hear_of_the_settings_of_one_listener() -> None:
    configs = repository(ssl_client_auth="none")
    heard: list[tuple[str | None, str | None]] = []

    def on_change(_: BrokerConfig) -> None:
        heard.append((configs.texts_of_listener("EXTERNAL").get("ssl.client.auth"), configs.value("ssl.client.auth")))

    configs.on_change(on_change)
    name = "listener.name.external.ssl.client.auth"
    configs.put_broker(Overrides({name: "required"}, 0), for_all=False)
    configs.put_broker(Overrides({}, 1), for_all=False)
    configs.announce()
    assert heard == [("required", "none"), ("none", "none"), ("none", "none")]


def test_a_change_is_shown_to_those_who_check_it() -> None:
    configs = repository(ssl_client_auth="none")
    name = "listener.name.external.ssl.client.auth"

    def refuse_required(texts: Mapping[str, str]) -> None:
        if texts_of_listener(texts, "EXTERNAL").get("ssl.client.auth") == "required":
            raise InvalidSetting(name, "required", "nobody has a certificate")

    configs.on_check(refuse_required)
    check_with_listeners(configs, {name: "requested"}, for_all=False)
    check_broker(configs, {name: "required"}, for_all=False)  # its words are right
    with pytest.raises(KafkaError, match="nobody has a certificate"):
        check_with_listeners(configs, {name: "required"}, for_all=False)


def test_synonyms_are_listed_from_the_name_asked_for() -> None:
    configs = repository(log_retention_hours="1")
    assert synonym_values(configs, "log.retention.ms") == []
    assert synonym_values(configs, "log.retention.hours") == [
        SynonymValue("log.retention.hours", "1", STATIC_BROKER_CONFIG),
        SynonymValue("log.retention.hours", "168", DEFAULT_CONFIG),
    ]
    configs.put_broker(Overrides({"log.retention.ms": "5"}, 0), for_all=False)
    assert synonym_values(configs, "log.retention.ms") == [
        SynonymValue("log.retention.ms", "5", DYNAMIC_BROKER_CONFIG),
        SynonymValue("log.retention.hours", "1", STATIC_BROKER_CONFIG),
        SynonymValue("log.retention.hours", "168", DEFAULT_CONFIG),
    ]


def test_secrets_and_unknown_settings_are_never_shown() -> None:
    configs = repository(ssl_keystore_password="secret")
    configs.put_broker(Overrides({"plugin.key": "secret"}, 0), for_all=True)
    for name in ("ssl.keystore.password", "plugin.key"):
        assert [each.value for each in synonym_values(configs, name)] == [None]


def test_effective_values_are_in_the_topics_unit() -> None:
    configs = repository(log_retention_hours="1")
    declared = topic_settings()["retention.ms"]
    assert effective_topic_value(configs, declared, {}) == ("retention.ms", "3600000", STATIC_BROKER_CONFIG)
    assert effective_topic_value(configs, declared, {"retention.ms": "5"}) == (
        "retention.ms",
        "5",
        DYNAMIC_TOPIC_CONFIG,
    )
    segment = topic_settings()["segment.bytes"]
    assert effective_topic_value(configs, segment, {}) == ("segment.bytes", "1073741824", DEFAULT_CONFIG)


def test_values_are_shown_as_they_are_understood() -> None:
    configs = repository(auto_create_topics_enable="FALSE", log_dirs=" /a , /b ")
    assert configs.value("auto.create.topics.enable") == "false"
    assert configs.value("log.dirs") == "/a,/b"
    assert configs.value("log.cleaner.io.max.bytes.per.second") == "1.7976931348623157E308"
    assert configs.value("no.such.setting") is None


def test_a_change_that_cannot_be_is_refused_without_a_trace() -> None:
    configs = repository()
    with pytest.raises(InvalidSetting):
        configs.configuration({"log.retention.ms": "0"}, {})
    assert configs.current.log.retention_ms == 604_800_000


def test_what_has_no_effect_says_so_and_what_it_is_for() -> None:
    without_effect = [each for each in broker_settings().values() if not each.effective]
    sentences = [each.documentation for each in without_effect]
    assert all(sentence.endswith(f". {WITHOUT_EFFECT}") for sentence in sentences)
    assert max(Counter(inert.documentation for inert in inert_settings().values()).values()) == 1
    assert all(each.documentation for each in broker_settings().values())
