"""Loggers and subscriptions to metrics of clients, which are resources with settings like others."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from ottla.replication.cluster import znodes
from ottla.server.cluster.settings_administration import SettingsChange
from ottla.server.config.client_metrics import NAME_LENGTH_MAX, PATTERNS_LENGTH_MAX, check_client_metrics
from ottla.server.config.loggers import LEVELS, WITHHELD, level_name, logger_levels
from ottla.server.config.repository import NO_OVERRIDES, Overrides
from ottla.server.tests.administered import AdministeredBroker, opened
from ottla.server.tests.api.test_config_handlers import DELETE, SET, change, describe
from ottla.server.tests.api.test_group_config_handlers import listed
from ottla.server.tests.cluster.test_config_notifications import Listeners
from ottla.server.tests.clustered import clustered
from ottla.wire.errors import ErrorCode, KafkaError

LOGGER, METRICS = 8, 16
NAME = "ottla.of.a.test"


@pytest.fixture(autouse=True)
def levels_as_before() -> Iterator[None]:
    names = ("", "ottla", NAME)
    before = {name: logging.getLogger(name).level for name in names}
    yield
    for name, level in before.items():
        logging.getLogger(name).setLevel(level)


def told(broker: AdministeredBroker, name: str = NAME) -> str | None:
    (entry,) = describe(broker, LOGGER, "1", [name]).configs
    return entry.value


async def test_a_level_is_in_force_at_once_and_for_the_loggers_below(tmp_path: Path) -> None:
    broker = await opened(tmp_path)
    below = logging.getLogger(NAME)
    assert await change(broker, (LOGGER, "1", [("ottla", SET, "ERROR")]), dry=True) == [(0, None)]
    assert logging.getLogger("ottla").level == logging.NOTSET
    assert await change(broker, (LOGGER, "1", [("ottla", SET, "ERROR")])) == [(0, None)]
    assert (below.isEnabledFor(logging.WARNING), told(broker)) == (False, "ERROR")
    assert await change(broker, (LOGGER, "1", [(NAME, SET, "TRACE")])) == [(0, None)]
    assert (below.isEnabledFor(logging.DEBUG), told(broker), told(broker, "ottla")) == (True, "TRACE", "ERROR")
    assert await change(broker, (LOGGER, "1", [(NAME, DELETE, None), ("ottla", SET, "FATAL")])) == [(0, None)]
    assert told(broker) == "FATAL"
    await broker.stop()


async def test_a_change_of_loggers_is_whole_or_not_at_all(tmp_path: Path) -> None:
    broker = await opened(tmp_path)
    logging.getLogger(NAME)
    before = told(broker)
    assert await change(broker, (LOGGER, "1", [(NAME, SET, "FATAL"), ("root", DELETE, None)])) == [
        (42, "Removing the log level of the root logger is not allowed")
    ]
    assert told(broker) == before
    await broker.stop()


def test_loggers_are_told_with_kafkas_levels() -> None:
    for name in WITHHELD:
        logging.getLogger(name)
    logging.getLogger("kazoo.client")
    found = logger_levels()
    assert {"root", "ottla", "ottla.configs"} <= set(found)
    assert not set(found) & (WITHHELD | {"kazoo.client"})
    assert [level_name(number) for number in LEVELS.values()] == list(LEVELS)
    assert [level_name(number) for number in (0, 1, 7, 25, 99)] == ["TRACE", "TRACE", "TRACE", "INFO", "FATAL"]


async def test_a_subscription_outlives_a_restart(tmp_path: Path) -> None:
    broker = await opened(tmp_path)
    name = "all/of .. %"
    assert await change(broker, (METRICS, name, [("interval.ms", SET, "500")])) == [(0, None)]
    assert await change(broker, (METRICS, "..", [("metrics", SET, "*")])) == [(0, None)]
    await broker.stop()
    broker = await opened(tmp_path)
    code, names = await listed(broker, METRICS, version=0)
    assert (code, sorted(names)) == (0, [(METRICS, ".."), (METRICS, name)])
    (entry,) = describe(broker, METRICS, name, ["interval.ms"]).configs
    assert (entry.value, entry.config_source) == ("500", 7)
    assert await change(broker, (METRICS, name, [("interval.ms", DELETE, None)])) == [(0, None)]
    assert await listed(broker, METRICS) == (0, [(METRICS, "..")])
    await broker.stop()


async def test_subscriptions_reach_other_brokers_without_a_notice_that_kafka_would_read(tmp_path: Path) -> None:
    async with clustered(tmp_path, also=Listeners().of) as cluster:

        async def alter(node: int, change: SettingsChange) -> list[dict[str, str]]:
            """Returns what each member knows then."""
            await cluster[node].administration.settings.alter_client_metrics("all/of", change)
            await trio.testing.wait_all_tasks_blocked()
            members = cluster.members.values()
            return [dict(each.configs.client_metrics.get("all/of", NO_OVERRIDES).texts) for each in members]

        assert await alter(1, lambda _: {"metrics": "*"}) == [{"metrics": "*"}] * 3
        both = {"metrics": "*", "match": "client_id=x"}
        assert await alter(2, lambda texts: {**texts, "match": "client_id=x"}) == [both] * 3
        assert await alter(3, lambda _: {}) == [{}] * 3
        assert [list(each.configs.client_metrics) for each in cluster.members.values()] == [[], [], []]
        assert await cluster.tree.children(znodes.CONFIG_CHANGES) == []
        assert await cluster.tree.children(znodes.CLIENT_METRICS_CONFIGS) == []


def test_subscriptions_are_limited() -> None:
    full = {str(number): Overrides({"metrics": "*"}, 0) for number in range(1000)}
    check_client_metrics("999", {"metrics": "a"}, full)
    check_client_metrics("new", {}, full)
    for name, texts, present, code in (
        ("new", {"metrics": "a"}, full, ErrorCode.POLICY_VIOLATION),
        ("x" * (NAME_LENGTH_MAX + 1), {"metrics": "a"}, {}, ErrorCode.INVALID_REQUEST),
        ("x", {"match": "client_id=" + "x" * PATTERNS_LENGTH_MAX}, {}, ErrorCode.INVALID_CONFIG),
        ("x", {"match": "client_id=" + "(" * 3000}, {}, ErrorCode.INVALID_CONFIG),
    ):
        with pytest.raises(KafkaError) as refused:
            check_client_metrics(name, texts, present)
        assert refused.value.code == code


@given(st.text(alphabet="client_d=[]()*+?{}|^$\\,. 0a&~-", max_size=60))
def test_any_pattern_is_taken_or_refused(text: str) -> None:
    try:
        check_client_metrics("x", {"match": f"client_id={text}"}, {})
    except KafkaError as error:
        assert error.code == ErrorCode.INVALID_CONFIG
