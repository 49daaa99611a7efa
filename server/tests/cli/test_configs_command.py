"""`ottla configs` beside a broker with settings from its file, of its own, for all brokers, and of a topic."""

from __future__ import annotations

import re

import pytest

from ottla.server.broker import Broker
from ottla.server.cli.client.cluster import Cluster
from ottla.server.tests.cli.commanded import Shell, Told
from ottla.wire.messages.metadata import MetadataResponse

TOPIC = "orders"
SETTINGS = {"log_retention_ms": "1000", "broker_id": "7", "ssl_keystore_password": "kept secret"}


@pytest.fixture
def ottla(ottla: Shell) -> Shell:
    assert ottla("topics", "create", TOPIC, "--if-not-exists").code == 0
    return ottla


def rows(told: Told) -> list[list[str]]:
    assert told.code == 0, told
    return [re.split(" {2,}", line.strip()) for line in told.lines[1:]]


def test_a_value_and_those_that_it_hides(ottla: Shell, broker: Broker) -> None:
    """The topic's before the broker's, before that of all brokers, before the file's, before the default."""
    look = ("configs", "topic", TOPIC, "retention.ms")
    assert rows(ottla(*look))[0] == ["retention.ms", "1000", "start"]
    changes = [
        ottla("configs", "cluster", "--set", "log.retention.ms=2s"),
        ottla("configs", "broker", "7", "--set", "log.retention.ms=3000"),
        ottla("configs", "topic", TOPIC, "--set", "retention.ms=4000"),
    ]
    assert all(each.code == 0 for each in changes)
    assert broker.partition(TOPIC, 0).log.config.retention_ms == 4000
    assert rows(ottla(*look)) == [
        ["retention.ms", "4000", "topic"],
        ["log.retention.ms", "3000", "broker"],
        ["log.retention.ms", "2000", "cluster default"],
        ["log.retention.ms", "1000", "start"],
        ["log.retention.hours", "168 (7 days)", "default"],
    ]
    [told] = ottla(*look, "--json").json[0]["settings"]
    assert (told["source"], [each["value"] for each in told["synonyms"]]) == (
        "topic", ["4000", "3000", "2000", "1000", "168"]
    )  # fmt: skip
    for change in reversed(changes):
        ottla.undo(change)
    assert rows(ottla(*look)) == [["retention.ms", "1000", "start"], ["log.retention.hours", "168 (7 days)", "default"]]
    assert broker.partition(TOPIC, 0).log.config.retention_ms == 1000


@pytest.mark.parametrize(
    "words",
    [
        ("configs",),
        ("configs", "cluster", "--set", "log.retention.ms=5"),
        ("transactions", "hanging"),
    ],
)
def test_a_broker_that_knows_of_no_broker_is_told_of(
    ottla: Shell, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    learn = Cluster._learn

    def learn_nothing(cluster: Cluster, answer: MetadataResponse) -> None:
        answer.brokers.clear()
        learn(cluster, answer)

    monkeypatch.setattr(Cluster, "_learn", learn_nothing)
    assert ottla(*words).refusal() == "the broker knows of no broker; it may just be starting"


def test_a_dry_run_has_it_checked(ottla: Shell, broker: Broker) -> None:
    told = ottla("configs", "cluster", "--set", "log.retention.ms=5", "--dry-run")
    assert told.lines[-1] == "Nothing is changed: this is a dry run."
    assert rows(ottla("configs", "topic", TOPIC, "retention.ms"))[0] == ["retention.ms", "1000", "start"]
    assert "(INVALID_REQUEST)" in ottla("configs", "cluster", "--set", "log.retention.ms=x", "--dry-run").refusal()


def test_brokers_are_meant_without_a_word(ottla: Shell) -> None:
    plain = ottla("configs")
    assert ["log.retention.ms", "1000", "start"] in rows(plain)
    assert plain.out == ottla("configs", "broker").out == ottla("configs", "broker", "7").out
    assert rows(ottla("configs", "broker", "log.retention.ms"))[0] == ["log.retention.ms", "1000", "start"]
    assert len(ottla("configs", "broker", "--all").lines) > 2 * len(plain.lines)


def test_passwords_are_hidden(ottla: Shell) -> None:
    told = ottla("configs", "broker", "7", "ssl.keystore.password")
    assert rows(told)[0] == ["ssl.keystore.password", "(hidden)", "start"]
    change = ottla("configs", "broker", "7", "--set", "ssl.truststore.password=another")
    assert "another" not in change.out + change.err
    if change.code == 0:
        assert change.lines[-1].endswith("--delete ssl.truststore.password")
        ottla.undo(change)


def test_groups_loggers_and_client_metrics(ottla: Shell, broker: Broker) -> None:
    told = ottla("configs", "group", "billing", "--set", "consumer.session.timeout.ms=50000")
    assert rows(ottla("configs", "group", "billing"))[0] == ["consumer.session.timeout.ms", "50000", "group"]
    ottla.undo(told)
    assert ottla("configs", "group", "billing").out == "all settings have their defaults; --all shows them\n"
    level = rows(ottla("configs", "loggers", "7", "root"))[0][1]
    told = ottla("configs", "loggers", "7", "--set", "root=FATAL")
    assert rows(ottla("configs", "loggers", "root"))[0][:2] == ["root", "FATAL"]
    ottla.undo(told)
    assert rows(ottla("configs", "loggers", "7", "root"))[0][1] == level
    told = ottla("configs", "client-metrics", "all", "--set", "interval.ms=30000")
    assert rows(ottla("configs", "client-metrics", "all", "interval.ms"))[0][:2] == ["interval.ms", "30000"]
    assert told.lines[-1].startswith("To undo: ottla configs client-metrics all --")
    ottla.undo(told)


@pytest.mark.parametrize(
    ("words", "code", "reason"),
    [
        (("topic", "nowhere"), 1, "topic nowhere does not exist"),
        (("topic", ""), 2, "cannot be empty"),
        (("topic", TOPIC, "retention.m"), 1, "has no setting retention.m; did you mean retention.ms?"),
        (("topic", TOPIC, "--set", "retention.m=1"), 1, "has no setting retention.m; did you mean retention.ms?"),
        (("topic", TOPIC, "--set", "retention.ms=7MiB"), 2, "--set retention.ms=7MiB: it is a size; the setting takes"),
        (("topic", TOPIC, "--set", "retention.ms"), 2, "--set retention.ms: must be NAME=VALUE"),
        (("topic", TOPIC, "--set", "retention.ms=1", "--delete", "retention.ms"), 2, "is named twice"),
        (("topic", TOPIC, "--dry-run"), 2, "what is to be changed?"),
        (("topic", TOPIC, "--all", "--set", "retention.ms=1"), 2, "are for a look"),
        (("broker", "8"), 1, "there is no broker 8; the cluster has 7"),
        (("broker", "7", "--set", "log.dirs=/x"), 1, "("),
        (("cluster", "--set", "no.such.setting.at.all=1"), 1, "all brokers has no setting no.such.setting.at.all"),
        (("loggers", "7", "--set", "root=LOUD"), 1, "("),
    ],
)
def test_what_cannot_be(ottla: Shell, words: tuple[str, ...], code: int, reason: str) -> None:
    before = ottla("configs", "--json").json, ottla("configs", "topic", TOPIC, "--json").json
    assert reason in ottla("configs", *words).refusal(code)
    assert (ottla("configs", "--json").json, ottla("configs", "topic", TOPIC, "--json").json) == before
