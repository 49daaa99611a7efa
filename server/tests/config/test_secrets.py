"""Nothing that is secret is told: not by answers, not by the log, not by errors, not by what prints a configuration.

Every setting of type PASSWORD gets a marker, in every way in which it can be given.
"""

import logging
import stat
from pathlib import Path
from typing import Any

import pytest

from ottla.groupcoord.group_settings import group_settings
from ottla.replication.cluster import znodes
from ottla.replication.cluster.coordination import Create
from ottla.server.api.handlers.describe_configs import describe_configs, list_config_resources
from ottla.server.cluster.coordination.embedded import JOURNAL_NAME, EmbeddedCoordination
from ottla.server.cluster.start.member_trees import fill_from_journal
from ottla.server.config.broker_config import (
    BrokerConfig,
    ConfigError,
    broker_settings,
    known_names,
    load_config,
    settings_of_member,
)
from ottla.server.config.coordination_config import ZooKeeperConfig
from ottla.server.config.passwords import KeptPasswords
from ottla.server.config.repository import Overrides, topic_settings
from ottla.server.tests.administered import AdministeredBroker, opened
from ottla.server.tests.api.test_config_handlers import APPEND, BROKER, DELETE, SET, SUBTRACT, change
from ottla.server.tests.clustered import clustered
from ottla.wire.errors import KafkaError
from ottla.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    ListConfigResourcesRequest,
)
from ottla.wire.settings import PASSWORD, setting

MARKER = "hunter2-the-marker"
PASSWORDS = sorted(name for name, declared in settings_of_member().items() if declared.kind is PASSWORD)
OF_BROKERS = sorted(set(PASSWORDS) & set(broker_settings()))
CHANGEABLE = [name for name in OF_BROKERS if not broker_settings()[name].is_read_only]
# Each alone, for one listener, and for one mechanism of one.
PREFIXES = ("", "listener.name.external.", "listener.name.external.scram-sha-256.")
UNKNOWN = ("plugin.key", "ssl.keystore.pasword", "listener.name.external.no.such")
KEY_OF_MECHANISM = "listener.name.external.scram-sha-256.sasl.jaas.config"
KEY = "listener.name.x.ssl.key.password"
USERS = ("http.console.schema.registry.user.info", "confluent.basic.auth.user.info", "http.console.users")
"""Settings with a name and a password each."""


def given_at_start() -> dict[str, str]:
    names = [prefix + name for prefix in PREFIXES for name in PASSWORDS if prefix or name in known_names()]
    return dict.fromkeys(names, MARKER) | dict.fromkeys(USERS, f"user:{MARKER}")


def everything_told(broker: AdministeredBroker) -> str:
    answers: list[Any] = []
    for kind, name in ((BROKER, "1"), (BROKER, ""), (8, "1"), (16, "x"), (32, "g")):
        resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
        request = DescribeConfigsRequest(resources=[resource], include_synonyms=True, include_documentation=True)
        answer: Any = describe_configs(request, broker.context(4))
        assert answer.results[0].error_code == 0
        answers.append(answer)
    answers.append(list_config_resources(ListConfigResourcesRequest(resource_types=[]), broker.context(1)))
    return repr(answers)


def test_there_are_passwords_to_hide() -> None:
    assert len(OF_BROKERS) > 8 and "sasl.jaas.config" in CHANGEABLE and "password.encoder.secret" in PASSWORDS
    # No topic and no group has any. One that comes will need a place in the tests here.
    for declared in (*topic_settings().values(), *group_settings().values()):
        assert declared.kind is not PASSWORD


async def test_no_password_is_told_or_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    broker = await opened(tmp_path, given_at_start())
    assert MARKER not in everything_told(broker)
    for name in (prefix + each for prefix in PREFIXES for each in [*CHANGEABLE, *UNKNOWN]):
        for resource in ("1", ""):
            for operation in (SET, APPEND, SUBTRACT, 9):
                told = await change(broker, (BROKER, resource, [(name, operation, MARKER)]))
                assert MARKER not in repr(told)
    told_now = everything_told(broker)
    assert all(name in told_now for name in UNKNOWN) and f"'{KEY_OF_MECHANISM}'" in told_now
    assert MARKER not in told_now
    assert broker.configs.texts_of_listener("EXTERNAL")["ssl.key.password"] == MARKER
    assert MARKER not in caplog.text
    await broker.stop()
    broker = await opened(tmp_path, given_at_start())
    assert MARKER not in everything_told(broker) + caplog.text
    await broker.stop()


def test_a_configuration_does_not_print_its_passwords(tmp_path: Path) -> None:
    texts = given_at_start() | {"zookeeper.connect": "127.0.0.1:1", "node.id": "1"}
    config = load_config(texts)
    assert config.static["ssl.key.password"] == MARKER
    assert MARKER not in repr(config) and MARKER not in repr(config.zookeeper)
    assert not any(MARKER in each for each in config.ignored_settings)


@pytest.mark.parametrize("name", [*PASSWORDS, *UNKNOWN[:2], "ssl.key.password ", "SSL.KEY.PASSWORD"])
def test_no_error_at_start_tells_a_value(name: str) -> None:
    try:
        load_config({name: MARKER, "zookeeper.connect": "127.0.0.1:1"})  # which lacks a node.id
    except ConfigError as error:
        assert MARKER not in str(error)


def test_every_setting_that_can_hold_a_secret_is_a_password() -> None:
    """A setting whose name says so, and that DescribeConfigs would tell, is a mistake."""
    telling = ("password", "secret", "passphrase", "jaas", "credential", "token", "key")
    not_secret = {
        "confluent.basic.auth.credentials.source",
        "delegation.token.expiry.check.interval.ms",
        "delegation.token.expiry.time.ms",
        "delegation.token.max.lifetime.ms",
        "password.encoder.cipher.algorithm",
        "password.encoder.iterations",
        "password.encoder.key.length",
        "password.encoder.keyfactory.algorithm",
        "sasl.oauthbearer.assertion.private.key.file",
        "sasl.oauthbearer.client.credentials.client.id",
        "sasl.oauthbearer.token.endpoint.url",
        "ssl.keymanager.algorithm",
        "ssl.keystore.location",
        "ssl.keystore.type",
        "zookeeper.ssl.keystore.location",
        "zookeeper.ssl.keystore.type",
    }
    found = {
        name
        for name, declared in settings_of_member().items()
        if declared.kind is not PASSWORD and any(each in name for each in telling)
    }
    assert found <= not_secret


def test_the_language_of_settings_hides_passwords() -> None:
    assert setting(None, kind=PASSWORD).repr is False and setting(1).repr is True
    assert BrokerConfig.__dataclass_fields__["static"].repr is False


async def test_the_journal_is_its_owners_alone(tmp_path: Path) -> None:
    broker = await opened(tmp_path)
    assert await change(broker, (BROKER, "1", [(KEY, SET, MARKER)])) == [(0, None)]
    (journal,) = tmp_path.rglob(JOURNAL_NAME)
    assert stat.S_IMODE(journal.stat().st_mode) == 0o600
    assert MARKER.encode() in journal.read_bytes()  # as KRaft keeps it
    await broker.stop()
    journal.chmod(0o644)  # as an earlier version left it
    broker = await opened(tmp_path)
    assert await change(broker, (BROKER, "1", [(KEY, DELETE, None)])) == [(0, None)]
    assert stat.S_IMODE(journal.stat().st_mode) == 0o600
    await broker.stop()


async def test_a_member_keeps_passwords_encrypted(tmp_path: Path) -> None:
    settings = {
        "zookeeper.connect": "127.0.0.1:1",
        "password.encoder.secret": "encoder",
        "password.encoder.iterations": "1024",
    }
    async with clustered(tmp_path, settings=settings) as cluster:
        member = cluster[2]
        await member.administration.settings.alter_broker(lambda texts: {**texts, KEY: MARKER}, for_all=False)
        (node,) = await cluster.tree.get_all([znodes.broker_config_path(2)])
        assert node is not None and MARKER.encode() not in node.data
        assert member.configs.texts_of_listener("X")["ssl.key.password"] == MARKER
        # As after a restart: what is in the tree is read by somebody who knows nothing yet.
        member.configs.put_broker(Overrides({}, None), for_all=False)
        await member.administration.settings.read_all()
        assert member.configs.texts_of_listener("X")["ssl.key.password"] == MARKER


async def test_a_member_encrypts_anew_what_the_old_secret_kept(tmp_path: Path) -> None:
    old = KeptPasswords.of(ZooKeeperConfig(zookeeper_connect="x", password_encoder_secret="old"))
    settings = {
        "zookeeper.connect": "127.0.0.1:1",
        "password.encoder.secret": "new",
        "password.encoder.old.secret": "old",
    }
    async with clustered(tmp_path, settings=settings) as cluster:
        member = cluster[2]
        before = znodes.encode_config(old.to_keep({KEY: MARKER}, 2))
        await cluster.tree.multi([Create(znodes.broker_config_path(2), before)])
        await member.administration.settings.read_all()
        assert member.configs.texts_of_listener("X")["ssl.key.password"] == MARKER
        (node,) = await cluster.tree.get_all([znodes.broker_config_path(2)])
        assert node is not None
        new = KeptPasswords.of(ZooKeeperConfig(zookeeper_connect="x", password_encoder_secret="new"))
        assert new.read(znodes.decode_config(node.data)) == ({KEY: MARKER}, False)
        await member.administration.settings.read_all()
        assert member.configs.texts_of_listener("X")["ssl.key.password"] == MARKER


async def test_passwords_go_into_a_cluster_encrypted_or_not_at_all(tmp_path: Path) -> None:
    broker = await opened(tmp_path / "alone")
    assert await change(broker, (BROKER, "1", [(KEY, SET, MARKER)])) == [(0, None)]
    await broker.stop()
    (journal,) = tmp_path.rglob(JOURNAL_NAME)
    (tmp_path / "shared").mkdir()
    tree = EmbeddedCoordination(tmp_path / "shared")
    tree.open()
    with pytest.raises(KafkaError, match="Password encoder secret not configured"):
        await fill_from_journal(tree, journal.parent, KeptPasswords(None))
    assert await tree.children("/") == []
    kept = KeptPasswords.of(ZooKeeperConfig(zookeeper_connect="x", password_encoder_secret="encoder"))
    await fill_from_journal(tree, journal.parent, kept)
    (node,) = await tree.get_all([znodes.broker_config_path(1)])
    assert node is not None and MARKER.encode() not in node.data
    assert kept.read(znodes.decode_config(node.data)).texts == {KEY: MARKER}
    tree.close()
