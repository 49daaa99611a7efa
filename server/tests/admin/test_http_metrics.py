"""/metrics: the text is what Prometheus' own parsers read, and the numbers are those of the broker."""

from __future__ import annotations

import math
import tracemalloc
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics import parser as open_metrics
from prometheus_client.parser import text_string_to_metric_families

from ottla.replication.partition.traffic import Traffic
from ottla.server.admin.http.metrics.cluster import AT_ONCE, PartitionLabels, groups, partitions, topics
from ottla.server.admin.http.metrics.exposition import COUNTER, GAUGE, Exposition, Family, wanted
from ottla.server.admin.http.metrics.page import PIECE_BYTES, Meters, MetricsPage
from ottla.server.admin.http.metrics.process import (
    BOUNDS,
    LOOK_S,
    MEMORY_S,
    Figures,
    LoopLag,
    RecentTimes,
    figures,
    loop_lag,
    process,
    requests,
)
from ottla.server.admin.http.metrics.upkeep import DiskRoom
from ottla.server.admin.http.routes import Pace, Request
from ottla.server.dispatch.apis import Api
from ottla.server.dispatch.dispatch import Route, all_routes, no_times
from ottla.server.serving_state import Stop
from ottla.server.tests.admin.test_http_health import config_for, get, running
from ottla.server.tests.config.test_serving import HEARTBEAT_V0
from ottla.wire.errors import ErrorCode
from ottla.wire.schema import VersionRange

BOTH = pytest.mark.parametrize("is_open_metrics", [False, True], ids=["prometheus", "openmetrics"])
HEARTBEAT_KEY, HEARTBEAT_ANSWER_BYTES = 12, 10
PROMETHEUS = "application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4"


def parsed(text: str, *, is_open_metrics: bool) -> dict[str, Metric]:
    """Families by name, as Prometheus' own library reads them. Each comes once."""
    parse = open_metrics.text_string_to_metric_families if is_open_metrics else text_string_to_metric_families
    found = list(parse(text))
    names = [family.name for family in found]
    assert len(names) == len(set(names))
    for family in found:
        samples = [(each.name, tuple(sorted(each.labels.items()))) for each in family.samples]
        assert len(samples) == len(set(samples)), family.name
    return {family.name: family for family in found}


def both(pieces: Any) -> dict[str, Metric]:
    """What both formats say, which is the same."""
    found = []
    for is_open_metrics in (False, True):
        exposition = Exposition(is_open_metrics=is_open_metrics)
        found.append(parsed("".join(pieces(exposition)) + exposition.end, is_open_metrics=is_open_metrics))
    first, second = ({name: family.samples for name, family in each.items() if "cpu" not in name} for each in found)
    assert first == second
    return found[0]


def values(family: Metric) -> dict[tuple[str, ...], float]:
    return {tuple(each.labels.values()): each.value for each in family.samples}


# ---------------------------------------------------------------------- the formats


@BOTH
@given(label=st.text(st.characters(codec="utf-8")), value=st.floats(allow_nan=False) | st.integers(0, 2**60))
def test_whatever_a_client_calls_something_comes_back_from_the_parser(
    is_open_metrics: bool, label: str, value: float
) -> None:
    exposition = Exposition(is_open_metrics=is_open_metrics)
    text = exposition.family(Family("name", GAUGE, "Said."), [({"label": label}, value)]) + exposition.end
    (sample,) = parsed(text, is_open_metrics=is_open_metrics)["name"].samples
    assert sample.labels == {"label": label}
    assert sample.value == value


def test_a_lone_surrogate_is_sent_as_something_else() -> None:
    exposition = Exposition(is_open_metrics=False)
    assert exposition.family(Family("name", GAUGE, "Said."), [({"label": "\ud800"}, 1)]).encode()


@pytest.mark.parametrize(
    ("accept", "is_open_metrics"),
    [
        ("", False),
        ("*/*", False),
        ("text/html,application/xhtml+xml", False),
        ("application/openmetrics-text", True),
        (f"{PROMETHEUS},text/plain;version=0.0.4;q=0.3,*/*;q=0.2", True),
        ("text/plain;version=0.0.4;q=0.9,application/openmetrics-text;version=1.0.0;q=0.5", False),
        ("application/openmetrics-text;version=0.0.1", False),
        ("application/openmetrics-text;q=0", False),
        ('APPLICATION/OpenMetrics-Text; version="1.0.0"; charset=utf-8', True),
    ],
)
def test_the_format_is_the_one_that_is_preferred(accept: str, is_open_metrics: bool) -> None:
    assert wanted(accept).content_type.startswith("application/openmetrics-text" if is_open_metrics else "text/plain")


@given(st.text(max_size=200) | st.text("application/openmetrics-text;q=0.1,*", max_size=200))
def test_any_accept_header_chooses_one_of_the_two(accept: str) -> None:
    assert wanted(accept).content_type


def test_of_an_accept_header_only_the_beginning_counts() -> None:
    wanted_at_the_end = "application/openmetrics-text"
    assert wanted("text/csv," * 49 + wanted_at_the_end).content_type.startswith("application/openmetrics-text")
    assert wanted("text/csv," * 50 + wanted_at_the_end).content_type.startswith("text/plain")
    assert wanted(wanted_at_the_end + ";a=b" * 8 + ";q=0").content_type.startswith("text/plain")
    assert wanted(wanted_at_the_end + ";a=b" * 9 + ";q=0").content_type.startswith("application/openmetrics-text")


# ---------------------------------------------------------------------- parts


def test_topics_are_told_one_by_one_and_together_and_what_is_gone_still_counts() -> None:
    traffic = Traffic()
    traffic.of("a").bytes_in = 3
    traffic.of("b").bytes_in = 4
    traffic.of("gone").bytes_in = 5
    traffic.forget("gone")
    family = both(lambda exposition: topics(traffic, exposition))["kafka_server_brokertopicmetrics_bytesin"]
    assert {each.labels.get("topic"): each.value for each in family.samples} == {None: 12, "a": 3, "b": 4}


DIRECTORIES = [SimpleNamespace(path="/a", is_online=True), SimpleNamespace(path="/b", is_online=True)]


class Replicas:
    """So many partitions of one topic, of which every third is not like the others."""

    def __init__(self, count: int) -> None:
        self._partitions = [_partition(index) for index in range(count)]
        self.log_directories = DIRECTORIES

    def partitions(self) -> Iterator[Any]:
        return iter(self._partitions)

    def partition(self, topic: str, index: int) -> Any:
        return self._partitions[index] if topic == "topic" and index < len(self._partitions) else None


def _partition(index: int) -> Any:
    log = SimpleNamespace(
        size_in_bytes=index * 10,
        segments=[1] * (1 + index % 2),
        log_start_offset=0,
        log_end_offset=index,
        log_directory=DIRECTORIES[index % 2],
        first_unstable_offset=index - 1 if index % 3 == 0 and index else None,
    )
    isr = (1,) if index % 3 == 0 else (1, 2)
    return SimpleNamespace(
        topic="topic",
        index=index,
        log=log,
        isr=isr,
        replicas=(1, 2),
        min_isr=2,
        is_leader=index % 2 == 0,
        high_watermark=index,
        last_stable_offset=index - 1 if index % 3 == 0 and index else index,
    )


@pytest.mark.parametrize("count", [0, 1, AT_ONCE, 3 * AT_ONCE + 1])
def test_each_partition_is_told_whether_it_is_like_its_neighbours_or_not(count: int) -> None:
    replicas, labels = Replicas(count), PartitionLabels()
    for _ in range(2):  # the second time with labels that are known
        found = both(lambda exposition: partitions(replicas, labels, exposition))  # type: ignore[arg-type]
    told = {name: values(family) for name, family in found.items()}
    sizes = {("/a",): sum(range(0, count, 2)) * 10, ("/b",): sum(range(1, count, 2)) * 10}
    assert told.pop("ottla_log_directory_size_bytes") == sizes
    expected = {
        "kafka_log_log_size": [index * 10 for index in range(count)],
        "kafka_log_log_numlogsegments": [1 + index % 2 for index in range(count)],
        "kafka_log_log_logstartoffset": [0] * count,
        "kafka_log_log_logendoffset": list(range(count)),
        "kafka_cluster_partition_replicascount": [2] * count,
        "kafka_cluster_partition_insyncreplicascount": [1 if index % 3 == 0 else 2 for index in range(count)],
        "kafka_cluster_partition_underreplicated": [int(index % 6 == 0) for index in range(count)],
        "kafka_cluster_partition_underminisr": [int(index % 6 == 0) for index in range(count)],
        "kafka_cluster_partition_atminisr": [int(index % 2 == 0 and index % 3 != 0) for index in range(count)],
        "kafka_cluster_partition_laststableoffsetlag": [int(index % 6 == 0 and index > 0) for index in range(count)],
    }
    assert told == {
        name: {("topic", str(index)): value for index, value in enumerate(of_partitions)}
        for name, of_partitions in expected.items()
    }


def test_requests_of_one_api_are_told_together_whatever_listener_they_came_to() -> None:
    def route(name: str, count: int) -> Route:
        made = Route(Api(name, 0, VersionRange(0, 0), ""), lambda: None)  # type: ignore[arg-type,return-value]
        made.request_count, made.request_bytes, made.response_bytes, made.seconds = (
            count,
            count * 10,
            count * 20,
            count / 8,
        )
        made.errors = {ErrorCode.NOT_CONTROLLER: count}
        made.times = no_times()
        return made

    shared, idle = route("Fetch", 4), route("Heartbeat", 0)
    listeners: Any = [
        SimpleNamespace(name=name, connections=[1] * 3, calls=SimpleNamespace(routes=[shared, idle, own]))
        for name, own in (("INSIDE", route("StopReplica", 1)), ("OUTSIDE", route("StopReplica", 2)))
    ]
    found = both(lambda exposition: requests(listeners, RecentTimes(0.0), 1.0, exposition))
    assert values(found["kafka_network_requestmetrics_requests"]) == {("Fetch",): 4, ("StopReplica",): 3}
    assert values(found["ottla_response_bytes"]) == {("Fetch",): 80, ("StopReplica",): 60}
    seconds = {(each.name, each.labels["request"]): each.value for each in found["ottla_request_seconds"].samples}
    assert seconds[("ottla_request_seconds_sum", "Fetch")] == 0.5
    assert values(found["kafka_network_requestmetrics_errors"])[("Fetch", "NOT_CONTROLLER")] == 4
    assert sum(values(found["kafka_server_socket_server_metrics_connection_count"]).values()) == 6


def _coordinator(committed: dict[str, dict[str, dict[int, int]]]) -> Any:
    offsets = [
        (
            group,
            {
                topic: {index: SimpleNamespace(offset=offset) for index, offset in each.items()}
                for topic, each in of.items()
            },
        )
        for group, of in committed.items()
    ]
    return SimpleNamespace(group_count=len(offsets), all_committed=lambda: iter(offsets))


def test_the_lag_of_groups_is_told_where_there_is_a_replica() -> None:
    broker: Any = SimpleNamespace(
        replicas=Replicas(8), begun_groups=_coordinator({"g": {"topic": {5: 2, 7: 9}, "else": {0: 1}}})
    )
    found = both(lambda exposition: groups(broker, exposition))
    assert values(found["kafka_consumergroup_current_offset"]) == {
        ("g", "topic", "5"): 2,
        ("g", "topic", "7"): 9,
        ("g", "else", "0"): 1,
    }
    # What is committed may be ahead of what a replica knows to be committed in the log.
    assert values(found["kafka_consumergroup_lag"]) == {("g", "topic", "5"): 3, ("g", "topic", "7"): 0}
    assert values(found["ottla_group_offsets_left_out"]) == {(): 0}


@pytest.mark.parametrize(("limit", "size"), [("OFFSETS_MAX", 10), ("BYTES_MAX", 500)])
def test_what_clients_commit_has_an_end(limit: str, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"ottla.server.admin.http.metrics.cluster.{limit}", size)
    many = {f"group-{number}": {"topic": dict.fromkeys(range(3), 1)} for number in range(20)}
    broker: Any = SimpleNamespace(replicas=Replicas(3), begun_groups=_coordinator(many))
    found = both(lambda exposition: groups(broker, exposition))
    told = values(found["kafka_consumergroup_current_offset"])
    assert 0 < len(told) <= 10
    assert values(found["ottla_group_offsets_left_out"])[()] == 20 - len(told) // 3


def test_what_groups_have_committed_is_not_kept_for_slow_readers() -> None:
    many = {f"group-{number}-{'x' * 200}": {"topic": dict.fromkeys(range(50), 1)} for number in range(200)}
    broker: Any = SimpleNamespace(replicas=Replicas(50), begun_groups=_coordinator(many))
    tracemalloc.start()
    try:
        size = sum(map(len, groups(broker, Exposition(is_open_metrics=False))))
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert size > 5_000_000
    assert most < 1_000_000


async def test_the_lag_of_the_loop_is_counted_in_buckets(autojump_clock: trio.abc.Clock) -> None:
    lag = LoopLag()
    lag.note_work(0.3, 0.3)
    assert lag.idle_share == pytest.approx(1 - 0.3 / MEMORY_S)
    lag.note_work(5 * MEMORY_S, 10 * MEMORY_S)
    assert lag.idle_share == 0.5
    with trio.move_on_after(10 * LOOK_S + LOOK_S / 2):
        await lag.run()
    assert lag.buckets[0] == sum(lag.buckets) == 10
    for late in (0.001, 0.06, 5.0):
        lag.note(late)
    family = both(lambda exposition: loop_lag(lag, exposition))["ottla_event_loop_lag_seconds"]
    counted = {each.labels.get("le", each.name): each.value for each in family.samples}
    assert counted["0.001"] == 11
    assert counted["0.05"] == 11
    assert counted["0.1"] == 12
    assert counted["+Inf"] == counted["ottla_event_loop_lag_seconds_count"] == 13
    assert len(family.samples) == len(BOUNDS) + 3


def test_what_the_system_does_not_say_of_the_process_is_left_out() -> None:
    descriptors: Any = SimpleNamespace(connections=1, connections_max=2)
    found = both(lambda exposition: process(Figures(-1, -1, -1, -1, -1, -1), descriptors, [], 1, exposition))
    assert "process_resident_memory_bytes" not in found
    assert values(found["ottla_connections"]) == {(): 1}
    assert figures().open_files > 2


# ---------------------------------------------------------------------- a whole broker


async def test_a_broker_tells_everything_in_both_formats(tmp_path: Path) -> None:
    async with running(config_for(tmp_path)) as broker:
        status, text = await get(broker, "/metrics")
    assert status == 200
    found = parsed(text, is_open_metrics=False)
    assert values(found["kafka_controller_kafkacontroller_activecontrollercount"]) == {(): 1}
    assert values(found["kafka_server_kafkaserver_brokerstate"]) == {(): 3}
    assert values(found["process_resident_memory_bytes"])[()] > 2**20


async def test_a_request_counts_with_its_bytes_and_its_answer(tmp_path: Path) -> None:
    route = all_routes()[HEARTBEAT_KEY]
    before = route.request_count, route.request_bytes, route.response_bytes, route.seconds
    answers = b""
    async with (
        running(config_for(tmp_path)) as broker,
        await trio.open_tcp_stream("127.0.0.1", broker.listeners[0].port) as stream,
    ):
        await stream.send_all(HEARTBEAT_V0 * 2)
        while len(answers) < 2 * HEARTBEAT_ANSWER_BYTES:
            answers += bytes(await stream.receive_some())
    count, bytes_in, bytes_out, seconds = (
        getattr(route, name) - known
        for name, known in zip(("request_count", "request_bytes", "response_bytes", "seconds"), before, strict=True)
    )
    assert len(answers) == 2 * HEARTBEAT_ANSWER_BYTES
    # Both without the four bytes that say how long a frame is.
    assert (count, bytes_in, bytes_out) == (2, 2 * (len(HEARTBEAT_V0) - 4), 2 * (HEARTBEAT_ANSWER_BYTES - 4))
    assert seconds > 0


async def test_a_long_answer_comes_in_pieces_and_is_whole() -> None:
    nobody: Any = None
    metrics = MetricsPage(nobody, nobody, Pace(), Meters(LoopLag(), DiskRoom(nobody)), nobody)
    replicas: Any = Replicas(3_000)
    exposition = Exposition(is_open_metrics=True)
    text = chain(partitions(replicas, PartitionLabels(), exposition), [exposition.end])
    pieces = [piece async for piece in metrics._pieces(text)]
    assert len(pieces) > 4
    assert max(map(len, pieces)) < 2 * PIECE_BYTES
    found = parsed(b"".join(pieces).decode(), is_open_metrics=True)
    assert len(found["kafka_log_log_logendoffset"].samples) == 3_000


async def test_a_scrape_asks_for_its_format_by_a_header(tmp_path: Path) -> None:
    async with running(config_for(tmp_path)) as broker:
        server: Any = SimpleNamespace(connection_count=0)
        metrics = MetricsPage(broker, Stop(), Pace(), Meters(LoopLag(), DiskRoom(broker)), server)
        response = await metrics.scrape(Request(method="GET", path="/metrics", headers={"accept": PROMETHEUS}))
        assert not isinstance(response.body, bytes)
        text = b"".join([piece async for piece in response.body]).decode()
    assert response.content_type.startswith("application/openmetrics-text")
    assert all(
        math.isfinite(each.value) for family in parsed(text, is_open_metrics=True).values() for each in family.samples
    )


def test_a_counter_is_called_a_total() -> None:
    with pytest.raises(AssertionError):
        Exposition(is_open_metrics=False).single("count", COUNTER, "Said.", 1)
