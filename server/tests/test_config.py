import ast
import dataclasses
import gc
from pathlib import Path
from typing import Any

import pytest

import ottla
from ottla.groupcoord.group_settings import GroupSettings, broker_synonym
from ottla.server.config.broker_config import (
    ConfigError,
    GroupConfig,
    LogConfig,
    MemberConfig,
    ReplicationConfig,
    TransactionConfig,
    broker_settings,
    known_names,
    load_config,
    texts_of_listener,
)
from ottla.server.config.endpoint import Endpoint
from ottla.server.config.server_config import ServerConfig
from ottla.wire.settings import parse_value


def endpoint(name: str, host: str, port: int) -> Endpoint:
    return Endpoint(listener=name, host=host, port=port)


def test_without_settings_a_single_broker_listens_on_localhost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", "/data")
    config = load_config({})
    assert config.listeners == (endpoint("PLAINTEXT", "127.0.0.1", 9092),)
    assert config.advertised_endpoint("PLAINTEXT", 9092) == endpoint("PLAINTEXT", "127.0.0.1", 9092)
    assert config.log_dirs == (Path("/data/ottla"),)
    assert config.node_id == 1
    assert config.ignored_settings == ()


def test_data_goes_below_the_home_directory_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    monkeypatch.setenv("HOME", "/home/x")
    assert load_config({}).log_dirs == (Path("/home/x/.local/share/ottla"),)


def test_kafkas_own_server_properties_start_a_broker() -> None:
    config = load_config(
        {
            "process.roles": "broker,controller",
            "node.id": "7",
            "controller.quorum.bootstrap.servers": "localhost:9093",
            "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
            "inter.broker.listener.name": "PLAINTEXT",
            "advertised.listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL",
            "num.network.threads": "3",
            "log.dirs": "/tmp/a,/tmp/b",
            "log.retention.hours": "2",
            "share.coordinator.state.topic.replication.factor": "1",
        }
    )
    assert config.node_id == 7
    assert config.listeners == (endpoint("PLAINTEXT", "", 9092),)
    assert config.advertised == {"PLAINTEXT": endpoint("PLAINTEXT", "localhost", 9092)}
    assert config.log_dirs == (Path("/tmp/a"), Path("/tmp/b"))
    assert config.log.retention_ms == 7_200_000
    assert config.ignored_settings == ("controller.quorum.bootstrap.servers",)
    assert config.share_coordinator.share_coordinator_state_topic_replication_factor == 1


def test_a_free_port_is_advertised_once_it_is_known() -> None:
    config = load_config(
        {
            "listeners": "PLAINTEXT://127.0.0.1:0,OTHER://[::1]:0",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,OTHER:PLAINTEXT",
        }
    )
    assert config.advertised_endpoint("PLAINTEXT", 1234) == endpoint("PLAINTEXT", "127.0.0.1", 1234)
    assert str(config.advertised_endpoint("OTHER", 5)) == "OTHER://[::1]:5"
    assert config.inter_broker_listener_name == "PLAINTEXT"


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, 604_800_000),
        ({"log.retention.hours": "1"}, 3_600_000),
        ({"log.retention.hours": "1", "log.retention.minutes": "2"}, 120_000),
        ({"log.retention.hours": "1", "log.retention.minutes": "2", "log.retention.ms": "3"}, 3),
        ({"log.retention.hours": "-1"}, -1),
    ],
)
def test_of_synonyms_the_most_precise_decides(settings: dict[str, str], expected: int) -> None:
    assert load_config(settings).log.retention_ms == expected


def test_broker_wide_settings_are_the_defaults_of_topics() -> None:
    log = load_config(
        {
            "log.roll.hours": "1",
            "log.roll.jitter.ms": "5",
            "log.flush.scheduler.interval.ms": "7",
            "message.max.bytes": "9",
            "log.cleanup.policy": "compact",
        }
    ).log
    assert (log.segment_ms, log.segment_jitter_ms, log.flush_ms, log.max_message_bytes) == (3_600_000, 5, 7, 9)
    assert log.is_compacted


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"log.retention.hour": "1"}, ("Unknown setting log.retention.hour:", "did you mean log.retention.hours?")),
        ({"foo": "1"}, ("Unknown setting foo:",)),
        ({"num.partitions": "0"}, ("Invalid value 0", "num.partitions", "allowed: int, at least 1")),
        ({"num.partitions": "x"}, ("Invalid value x", "num.partitions", "Not a number of type INT")),
        ({"num.io.threads": "x"}, ("Invalid value x", "num.io.threads", "allowed: int, at least 1")),
        ({"log.cleanup.policy": "x"}, ("log.cleanup.policy", "allowed: a list of compact, delete")),
        ({"ssl.key.password": ""}, ()),
        ({"zookeeper.connect": "zk:2181"}, ("zookeeper.connect=zk:2181", "needs a broker.id")),
        ({"listeners": "SSL://:9093"}, ("security.inter.broker.protocol=PLAINTEXT", "listeners SSL speaks it")),
        ({"listeners": "localhost:9092"}, ("Unable to parse localhost:9092", "NAME://host:port")),
        ({"listeners": "PLAINTEXT://h:70000"}, ("Unable to parse",)),
        ({"listeners": ""}, ("listeners", "empty")),
        ({"listeners": "A://h:1"}, ("No security protocol defined for listener A",)),
        ({"listeners": "PLAINTEXT://h:1,PLAINTEXT://h:2"}, ("different name",)),
        ({"listeners": "PLAINTEXT://0.0.0.0:9092"}, ("0.0.0.0",)),
        ({"advertised.listeners": "OTHER://h:1"}, ("advertised.listeners names OTHER",)),
        (
            {"security.inter.broker.protocol": "SSL"},
            ("security.inter.broker.protocol=SSL", "none of the listeners PLAINTEXT speaks it"),
        ),
        ({"inter.broker.listener.name": "X"}, ("inter.broker.listener.name=X", "PLAINTEXT")),
        ({"node.id": "1", "broker.id": "2"}, ("node.id=1", "broker.id=2")),
        ({"authorizer.class.name": "a.B"}, ("authorizer.class.name=a.B", "no such authorizer", "AclAuthorizer")),
        (
            {"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer", "super.users": "User:a;bob"},
            ("super.users=User:a;bob", "principalType:principalName but got bob"),
        ),
        ({"config.providers": "file"}, ("config.providers=file",)),
        ({"remote.log.storage.system.enable": "true"}, ("remote.log.storage.system.enable=true",)),
        ({"process.roles": "controller"}, ("process.roles=controller",)),
        ({"log.retention.ms": "0"}, ("log.retention.ms must be unlimited (-1)",)),
        ({"max.connections.per.ip.overrides": "a"}, ("max.connections.per.ip.overrides", "address:count")),
        ({"replica.socket.timeout.ms": "499"}, ("replica.socket.timeout.ms", "replica.fetch.wait.max.ms")),
        ({"replica.lag.time.max.ms": "499"}, ("replica.fetch.wait.max.ms", "replica.lag.time.max.ms")),
        ({"log.cleaner.min.compaction.lag.ms": "9", "log.cleaner.max.compaction.lag.ms": "5"}, ("lag.ms (9)",)),
    ],
)
def test_what_is_wrong_is_told_in_one_line(settings: dict[str, str], words: tuple[str, ...]) -> None:
    if not words:
        assert load_config(settings)
        return
    with pytest.raises(ConfigError) as failure:
        load_config(settings)
    message = str(failure.value)
    assert "\n" not in message
    for word in words:
        assert word in message


def test_secrets_are_not_repeated() -> None:
    assert "secret" not in str(ConfigError("x"))
    config = load_config({"sasl.oauthbearer.assertion.private.key.passphrase": "secret"})
    assert config.ignored_settings == ("sasl.oauthbearer.assertion.private.key.passphrase",)


def test_every_setting_of_kafka_is_known_and_has_a_default_it_accepts() -> None:
    known = broker_settings()
    assert sum(not each.internal for each in known.values()) == 350
    for declared in known.values():
        if isinstance(declared.default, str):
            parse_value(declared, declared.default)
    assert "inter.broker.protocol.version" in known_names()


def test_broker_id_is_the_older_name_of_node_id() -> None:
    assert load_config({"broker.id": "5"}).node_id == 5
    assert load_config({"broker.id": "-1", "node.id": "6"}).node_id == 6
    assert load_config({"node.id": "6"}).static["broker.id"] == "6"


def test_settings_of_one_listener_are_accepted() -> None:
    assert load_config({"listener.name.sasl_ssl.scram-sha-256.sasl.jaas.config": "x"})


def test_a_listener_has_the_broker_s_settings_and_its_own_before_them() -> None:
    given = {
        "ssl.client.auth": "none",
        "ssl.keystore.location": "/all.pem",
        "listener.name.outside.ssl.client.auth": "required",
        "listener.name.other.ssl.client.auth": "requested",
    }
    texts = texts_of_listener(given, "OUTSIDE")
    assert texts["ssl.client.auth"] == "required"
    assert texts["ssl.keystore.location"] == "/all.pem"


def test_settings_without_effect_can_be_listed() -> None:
    inert = {name for name, declared in broker_settings().items() if not declared.effective}
    assert "num.io.threads" in inert
    assert "log.flush.scheduler.interval.ms" not in inert
    assert "num.partitions" not in inert


DECLARING = {"config.py", "broker_config.py", "changes.py"}  # they also compare settings with one another


@pytest.fixture(scope="module")
def names_read() -> dict[bool, set[str]]:
    """The attributes that Ottla's code reads: False in all modules, True in those that declare no settings."""
    read: dict[bool, set[str]] = {False: set(), True: set()}
    gc.disable()  # the collector looks through all nodes again and again, and finds none that nobody holds
    for package in ("server", "replication", "groupcoord", "wire"):
        for path in (Path(ottla.__file__).parent / package).rglob("*.py"):
            if "tests" not in path.parts:
                names = {node.attr for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Attribute)}
                read[False] |= names
                read[True] |= set() if path.name in DECLARING else names
    gc.enable()
    # Who reads a group's setting reads the broker's, which is its default.
    for field in dataclasses.fields(GroupSettings):
        default = broker_synonym(field.metadata["setting"])
        for names in read.values():
            if default is not None and field.name in names:
                names.add(default.replace(".", "_"))
    return read


@pytest.mark.parametrize(
    "config", [LogConfig, ServerConfig, ReplicationConfig, GroupConfig, TransactionConfig, MemberConfig]
)
def test_settings_are_declared_without_effect_exactly_if_nothing_reads_them(
    config: Any, names_read: dict[bool, set[str]]
) -> None:
    declared = {field.name: field.metadata["setting"] for field in dataclasses.fields(config) if field.metadata}
    assert declared
    for field, setting in declared.items():
        if setting.effective:
            assert field in names_read[False], f"{field} is declared to have an effect, and nothing reads it"
        else:
            assert field not in names_read[True], f"{field} is declared to have no effect, and is read"
