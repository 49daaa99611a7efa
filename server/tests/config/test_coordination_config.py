"""Settings of the coordination tree: in ZooKeeper, or in another process of this machine."""

import importlib.util
import ssl
from pathlib import Path

import pytest

from ottla.server.config.broker_config import ConfigError, load_config
from ottla.server.config.coordination_config import ZooKeeperConfig, parse_connect, sasl_options, tls_context
from ottla.server.config.repository import ConfigRepository
from ottla.wire.settings import InvalidSetting, settings_of


def test_a_broker_with_a_socket_is_a_member_of_a_cluster() -> None:
    config = load_config(
        {"coordination.socket": "/run/tree", "node.id": "4", "coordination.session.timeout.ms": "9000"}
    )
    assert config.is_member
    assert config.zookeeper is None
    assert config.coordination.session_timeout_s == 9
    assert not load_config({}).is_member
    assert not load_config({"coordination.socket": ""}).is_member
    assert load_config({"zookeeper.connect": "here:2181", "node.id": "4"}).is_member
    # Kafka's clients are not told of settings that Kafka does not document.
    assert ConfigRepository(config).known["coordination.socket"].internal


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (
            {"coordination.socket": "somewhere:2181", "node.id": "1"},
            "brokers of several machines share a tree by zookeeper",
        ),
        ({"coordination.socket": "tree", "node.id": "1"}, "must be the absolute path of a Unix socket"),
        ({"coordination.socket": "/run/tree"}, "a member of a cluster needs a broker.id"),
        (
            {"coordination.socket": "/t", "node.id": "1", "zookeeper.connect": "a:1"},
            "a cluster has one coordination tree",
        ),
        ({"coordination.socket": "/t", "node.id": "1", "coordination.session.timeout.ms": "10"}, "1000"),
    ],
)
def test_what_cannot_be_is_refused(settings: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        load_config(settings)


# ---------------------------------------------------------------------- ZooKeeper


def zookeeper(**settings: object) -> ZooKeeperConfig:
    return ZooKeeperConfig(zookeeper_connect="zk", **settings)


@pytest.mark.parametrize(
    ("text", "servers", "root"),
    [
        ("zk:2182", ["zk:2182"], ""),
        ("zk", ["zk:2181"], ""),
        (" a:1, b:2,c/kafka/east ", ["a:1", "b:2", "c:2181"], "/kafka/east"),
        ("a:1/", ["a:1"], ""),
        ("[::1]:2181,10.0.0.1:1/k", ["[::1]:2181", "10.0.0.1:1"], "/k"),
    ],
)
def test_servers_and_root(text: str, servers: list[str], root: str) -> None:
    assert parse_connect(text) == (servers, root)


@pytest.mark.parametrize(
    "text", ["", "/kafka", "zk:x", "zk:99999", "zk://a:1", "zk/a//b", "zk/a/", "zk/../b", "u@zk:1"]
)
def test_what_names_no_servers_is_refused(text: str) -> None:
    with pytest.raises(InvalidSetting) as failure:
        parse_connect(text)
    assert "zookeeper.connect" in str(failure.value)


def test_the_first_connection_may_take_as_long_as_a_session() -> None:
    assert zookeeper(zookeeper_session_timeout_ms=7_000).connection_timeout_s == 7
    assert zookeeper(zookeeper_connection_timeout_ms=500).connection_timeout_s == 0.5


def test_the_settings_are_named_as_kafka_names_them() -> None:
    names = set(settings_of(ZooKeeperConfig))
    assert {"zookeeper.connect", "zookeeper.session.timeout.ms", "zookeeper.ssl.client.enable"} <= names


def test_tls_checks_the_name_of_the_server_unless_told_not_to() -> None:
    assert tls_context(zookeeper()) is None
    strict = tls_context(zookeeper(zookeeper_ssl_client_enable=True))
    assert strict is not None and strict.check_hostname and strict.verify_mode is ssl.CERT_REQUIRED
    lax = tls_context(zookeeper(zookeeper_ssl_client_enable=True, zookeeper_ssl_endpoint_identification_algorithm=""))
    assert lax is not None and not lax.check_hostname and lax.verify_mode is ssl.CERT_REQUIRED


@pytest.mark.parametrize("store", ["keystore", "truststore"])
def test_stores_that_cannot_be_read_are_named(store: str, tmp_path: Path) -> None:
    nonsense = tmp_path / "nonsense.pem"
    nonsense.write_text("nonsense")
    for path, words in (
        ("/etc/kafka.jks", "only PEM"),
        (str(tmp_path / "none.pem"), "it cannot be used"),
        (str(nonsense), "it cannot be used"),
    ):
        with pytest.raises(InvalidSetting) as failure:
            tls_context(zookeeper(zookeeper_ssl_client_enable=True, **{f"zookeeper_ssl_{store}_location": path}))
        assert f"zookeeper.ssl.{store}.location" in str(failure.value)
        assert words in str(failure.value)


def test_sasl_needs_a_password_and_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    assert sasl_options(zookeeper()) is None
    with pytest.raises(InvalidSetting, match=r"zookeeper\.sasl\.password"):
        sasl_options(zookeeper(zookeeper_sasl_username="ottla"))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(InvalidSetting, match="pure-sasl"):
        sasl_options(zookeeper(zookeeper_sasl_username="ottla", zookeeper_sasl_password="secret"))
