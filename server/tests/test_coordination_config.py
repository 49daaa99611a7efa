"""coordination.socket: what it may be, and what it makes of a broker."""

import pytest

from ottla.server.settings.broker_config import ConfigError, load_config
from ottla.server.settings.repository import ConfigRepository


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
