"""What clients push comes out on /metrics: read, named, added up, bounded, and forgotten in time."""

from __future__ import annotations

import math
import sys
from contextlib import suppress
from typing import Any

import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from ottla.server.admin.http.clients import points, store
from ottla.server.admin.http.clients.points import (
    FIELDS_MAX,
    METRIC_BYTES_MAX,
    NAME_LENGTH_MAX,
    Cut,
    Decoded,
    Malformed,
    decoded,
    family_name,
    label_name,
)
from ottla.server.admin.http.clients.receiver import PIECE_CHARACTERS, ClientMetrics, clients
from ottla.server.admin.http.clients.store import FAMILIES, ClientNumbers, Pusher
from ottla.server.admin.http.metrics.exposition import COUNTER, GAUGE, SUMMARY, Exposition
from ottla.server.admin.telemetry.subscriptions import BadMetrics, Client, Push
from ottla.server.tests.admin.test_http_metrics import both, parsed
from ottla.wire.compression import Compression, compress
from ottla.wire.tests.effort import examples

OWN = {"client_instance_id": "i", "client_id": "c"}
DELTA, CUMULATIVE = 1, 2
SOMEBODY = Client("an\nid", "java", "4.4.0", "10.0.0.1", "4711")


class Nothing:
    """What a broker counts whom nobody asks."""

    instances: tuple[()] = ()
    unknown_subscriptions = throttled = taken = refused = 0


def pushed(
    name: str,
    value: float = 0,
    *,
    kind: str = "gauge",
    monotonic: bool = False,
    temporality: int = DELTA,
    resource: dict[str, Any] | None = None,
    **attributes: Any,
) -> bytes:
    """A push of one number, as the library writes it."""
    data = MetricsData()
    of = data.resource_metrics.add()
    of.resource.attributes.extend(_attributes(resource or {}))
    metric = of.scope_metrics.add().metrics.add(name=name)
    told = getattr(metric, kind)
    if kind == "sum":
        told.is_monotonic = monotonic
    if kind in ("sum", "histogram", "exponential_histogram"):
        told.aggregation_temporality = temporality
    point = told.data_points.add()
    point.attributes.extend(_attributes(attributes))
    if kind in ("gauge", "sum"):
        setattr(point, "as_int" if isinstance(value, int) else "as_double", value)
    else:
        point.count, point.sum = 2, value
    return data.SerializeToString()


def _attributes(values: dict[str, Any]) -> list[KeyValue]:
    made = []
    for key, value in values.items():
        if isinstance(value, list):
            any_value = AnyValue(array_value=ArrayValue())
        else:
            field = {str: "string_value", bool: "bool_value", int: "int_value", float: "double_value"}[type(value)]
            any_value = AnyValue(**{field: value})
        made.append(KeyValue(key=key, value=any_value))
    return made


def read(data: bytes, *wanted: str) -> Decoded:
    return decoded(memoryview(data), wanted or ("*",), OWN)


def told(kept: ClientNumbers) -> dict[tuple[str, str], float]:
    """(sample, value of label `about`) -> value, of what both of Prometheus' formats say."""
    receiver: Any = ClientMetrics()
    receiver.kept = kept
    nothing: Any = Nothing()
    families = both(lambda exposition: clients(receiver, nothing, exposition))
    return {
        (sample.name, sample.labels.get("about", "")): sample.value
        for family in families.values()
        for sample in family.samples
        if sample.name.startswith(("org_apache_kafka_", "client_telemetry_"))
    }


def keep(
    kept: ClientNumbers, instance: str, data: bytes, now_s: float = 0, interval_s: float = 1, owner: str = "somebody"
) -> None:
    own = {"client_instance_id": instance, "client_id": "c"}
    pusher = Pusher(instance, owner, f'client_instance_id="{instance}"', interval_s)
    kept.take(pusher, decoded(memoryview(data), ("*",), own).numbers, now_s)


# ---------------------------------------------------------------------- names


def test_names_are_those_of_kafka_or_cannot_be_taken_for_ours() -> None:
    assert family_name("org.apache.kafka.producer.record.send.total") == "org_apache_kafka_producer_record_send_total"
    assert (
        family_name("kafka_server_replicamanager_leadercount")
        == "client_telemetry_kafka_server_replicamanager_leadercount"
    )
    assert family_name("x" * (NAME_LENGTH_MAX + 1)) is family_name("") is None
    assert label_name("node.id") == "node_id"
    assert label_name("__name__") == "_name__"
    assert label_name("0") == "_0"
    assert label_name("client.id") is label_name("client_instance_id") is label_name("le") is label_name("") is None


@given(st.text(max_size=300))
def test_any_name_is_made_valid_or_left_out(name: str) -> None:
    for made in (family_name(name), label_name(name)):
        assert made is None or (made.isascii() and made.isidentifier())


# ---------------------------------------------------------------------- reading


def test_kinds_of_metrics() -> None:
    for kind, monotonic, expected in (
        ("gauge", False, [("org_apache_kafka_x", GAUGE, "", 7, False)]),
        ("sum", False, [("org_apache_kafka_x", GAUGE, "", 7, True)]),
        ("sum", True, [("org_apache_kafka_x_total", COUNTER, "", 7, True)]),
        (
            "histogram",
            False,
            [("org_apache_kafka_x", SUMMARY, "_count", 2, True), ("org_apache_kafka_x", SUMMARY, "_sum", 7, True)],
        ),
        (
            "summary",
            False,
            [("org_apache_kafka_x", SUMMARY, "_count", 2, False), ("org_apache_kafka_x", SUMMARY, "_sum", 7, False)],
        ),
    ):
        numbers = read(pushed("org.apache.kafka.x", 7, kind=kind, monotonic=monotonic)).numbers
        assert [(each.family, each.kind, each.ending, each.value, each.is_delta) for each in numbers] == expected
    assert not read(pushed("x", 7, kind="sum", temporality=CUMULATIVE)).numbers[0].is_delta
    assert read(pushed("x.total", 7, kind="sum", monotonic=True)).numbers[0].family == "client_telemetry_x_total"


def test_what_a_point_is_about_becomes_labels() -> None:
    data = pushed(
        "x", 1, resource={"client.rack": "r", "client_id": "forged"}, topic='a"b', partition=3, ok=True, list=[1]
    )
    (number,) = read(data).numbers
    assert number.labels == 'client_rack="r",client_instance_id="i",client_id="c",topic="a\\"b",partition="3",ok="true"'


def test_only_what_was_asked_for_is_kept() -> None:
    data = pushed("org.a.b", 1)
    assert len(read(data, "org.b", "org.a").numbers) == len(read(data, "*").numbers) == 1
    assert read(data, "org.b") == Decoded([], 0)
    assert decoded(memoryview(data), (), OWN) == Decoded([], 0)


@pytest.mark.parametrize("value", [-1.0, float("nan"), float("inf")])
def test_what_only_grows_is_a_number_that_is_not_negative(value: float) -> None:
    assert read(pushed("x", value, kind="sum", monotonic=True)).numbers == []
    assert len(read(pushed("x", value)).numbers) == 1


def test_a_push_has_its_limits() -> None:
    data = MetricsData()
    metrics = data.resource_metrics.add().scope_metrics.add().metrics
    for number in range(points.POINTS_MAX + 1):
        metrics.add(name=f"m{number}").gauge.data_points.add(as_int=1)
    found = read(data.SerializeToString())
    assert (len(found.numbers), found.left_out) == (points.POINTS_MAX, 1)
    # A metric alone may be too long.
    long = pushed("y", 1, topic="x" * METRIC_BYTES_MAX)
    found = read(long + pushed("x", 1))
    assert (len(found.numbers), found.left_out) == (1, 1)
    # Very many empty ones are not looked at.
    cut = Cut(memoryview(b"\x0a\x00" * (FIELDS_MAX + 1)))
    assert list(cut.pieces()) == [] and cut.left_out == 1


def test_a_long_resource_before_many_metrics_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    metric_class, resource_class, error = points.library()
    read_resources = []

    class Counting:
        @staticmethod
        def FromString(data: memoryview) -> Any:
            read_resources.append(len(data))
            return resource_class.FromString(data)

    monkeypatch.setattr(points, "library", lambda: (metric_class, Counting, error))
    data = MetricsData()
    for _ in range(2):
        of = data.resource_metrics.add()
        for _ in range(5_000):
            of.resource.attributes.add()
        for _ in range(3_000):
            of.scope_metrics.add().metrics.add(name="x")
    assert read(data.SerializeToString()) == Decoded([], 6_000)
    assert len(read_resources) == 2


def many_long_labels(first: int) -> bytes:
    """A push of some ten kilobytes that would become megabytes of labels."""
    data = MetricsData()
    of = data.resource_metrics.add()
    for number in range(points.LABELS_MAX):
        of.resource.attributes.extend(_attributes({f"k{number}": "\U0001f600" * points.TEXT_LENGTH_MAX}))
    told = of.scope_metrics.add().metrics.add(name="org.apache.kafka.a").gauge
    for number in range(first, first + 1_000):
        told.data_points.add(as_int=1).attributes.extend(_attributes({"about": number}))
    return data.SerializeToString()


def test_long_labels_take_little_memory_and_come_out_in_short_pieces() -> None:
    kept = ClientNumbers()
    for push_number in range(12):
        keep(kept, "i", many_long_labels(1_000 * push_number))
    sizes = [sys.getsizeof(labels) for numbers in kept.families()[0][1] for _, labels in numbers]
    assert kept.text_bytes == sum(sizes) <= store.TEXT_BYTES_MAX and kept.left_out > 0
    receiver: Any = ClientMetrics()
    receiver.kept = kept
    nothing: Any = Nothing()
    pieces = list(clients(receiver, nothing, Exposition(is_open_metrics=False)))
    assert sum(piece.count("about=") for piece in pieces) == kept.numbers
    assert max(map(len, pieces)) < PIECE_CHARACTERS + max(sizes)


def test_a_push_becomes_no_more_text_than_its_limit() -> None:
    numbers = read(many_long_labels(0)).numbers
    assert 1 < len(numbers) < 1_000
    assert sum(sys.getsizeof(each.labels) for each in numbers[:-1]) < points.TEXT_BYTES_MAX


@pytest.mark.parametrize(
    "data", [b"\x0a", b"\x0a\x05", b"\xff" * 11, b"\x0b", b"\x0f", b"\x0d\0", b"\x09\0", b"\x0a\x02\x12\x05", b"\x80"]
)
def test_bytes_that_are_no_message_are_refused(data: bytes) -> None:
    with pytest.raises(Malformed):
        list(Cut(memoryview(data)).pieces())
    with pytest.raises(BadMetrics):
        read(data)


@given(st.binary(max_size=400))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    try:
        found = read(data)
    except BadMetrics:
        return
    assert len(found.numbers) <= points.NUMBERS_MAX


@given(st.lists(st.binary(max_size=60), max_size=3), st.integers(0, 3))
def test_any_bytes_within_the_outer_layers_are_read_or_refused(inner: list[bytes], layers: int) -> None:
    data = b"".join(inner)
    for tag in (b"\x12", b"\x12", b"\x0a")[3 - layers :]:
        data = tag + len(data).to_bytes(1, "big") + data if len(data) < 128 else tag + b"\x00"
    with suppress(BadMetrics):
        read(data)


@given(st.binary(max_size=200), st.integers(0, 200), st.integers(0, 255))
def test_one_wrong_byte_is_read_or_refused(name: bytes, at: int, byte: int) -> None:
    data = bytearray(pushed(name.decode("latin-1"), 1.5, kind="sum", monotonic=True, topic="t", partition=1))
    data[at % len(data)] = byte
    kept = ClientNumbers()
    with suppress(BadMetrics):
        keep(kept, "i", bytes(data))
    told(kept)


# ---------------------------------------------------------------------- keeping


def test_deltas_are_added_up_and_others_replaced() -> None:
    kept = ClientNumbers()
    for value in (3, 4):
        keep(kept, "i", pushed("org.apache.kafka.a", value, kind="sum", monotonic=True, about="x"))
        keep(kept, "i", pushed("org.apache.kafka.b", value, about="x"))
        keep(kept, "i", pushed("org.apache.kafka.c", value, kind="histogram", about="x"))
        keep(kept, "i", pushed("d", float(value), kind="sum", monotonic=True, temporality=CUMULATIVE))
    assert told(kept) == {
        ("org_apache_kafka_a_total", "x"): 7,
        ("org_apache_kafka_b", "x"): 4,
        ("org_apache_kafka_c_count", "x"): 4,
        ("org_apache_kafka_c_sum", "x"): 7,
        ("client_telemetry_d_total", ""): 4,
    }


def test_a_name_means_one_thing() -> None:
    kept = ClientNumbers()
    keep(kept, "i", pushed("a", 1, kind="sum", monotonic=True))
    keep(kept, "j", pushed("a", 2))  # a gauge of that name, which OpenMetrics would take for the same
    keep(kept, "j", pushed("a_total", 1, kind="sum", monotonic=True))  # the same counter
    keep(kept, "j", pushed("a.total", 3))  # a gauge
    keep(kept, "j", pushed("b", 1, kind="summary"))
    keep(kept, "j", pushed("b.sum", 1))
    expected = {"a_total", "a_total_value", "b_count", "b_sum"}
    assert set(told(kept)) == {(f"client_telemetry_{name}", "") for name in expected}
    assert kept.left_out == 2
    # Free again when nobody pushes it any more.
    kept.forget("i")
    kept.forget("j")
    keep(kept, "j", pushed("a", 2))
    assert told(kept) == {("client_telemetry_a", ""): 2}


def test_an_instance_that_pushes_no_more_is_forgotten() -> None:
    kept = ClientNumbers()
    keep(kept, "i", pushed("a", 1, about="i"), now_s=0, interval_s=1)
    keep(kept, "j", pushed("a", 1, about="j"), now_s=0, interval_s=100)
    kept.expire(59.9)
    assert len(told(kept)) == kept.instance_count == 2
    kept.expire(60)
    assert set(told(kept)) == {("client_telemetry_a", "j")}
    kept.expire(300)
    assert told(kept) == {} and kept.instance_count == kept.numbers == kept.text_bytes == 0


@pytest.mark.parametrize("limit", ["INSTANCES_MAX", "FAMILIES_MAX", "NUMBERS_MAX", "OF_INSTANCE_MAX", "TEXT_BYTES_MAX"])
def test_what_finds_no_room_is_left_out(monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    kept = ClientNumbers()
    keep(kept, "i", pushed("a", 1))
    monkeypatch.setattr(store, limit, kept.text_bytes if limit == "TEXT_BYTES_MAX" else 1)
    keep(kept, "j" if limit == "INSTANCES_MAX" else "i", pushed("b", 1))
    assert (len(told(kept)), kept.left_out) == (1, 1)
    keep(kept, "i", pushed("a", 2))  # what is there goes on
    assert told(kept)["client_telemetry_a", ""] == 2


def test_of_what_finds_no_room_nothing_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = ClientNumbers()
    keep(kept, "i", pushed("a", 1))
    monkeypatch.setattr(store, "NUMBERS_MAX", 1)
    # Each instance may name each family, and some that there are not.
    for name in ("a", "b"):
        keep(kept, "j", pushed(name, 1))
    assert [(family.name, len(numbers)) for family, numbers in kept.families()] == [("client_telemetry_a", 1)]
    kept.forget("j")
    kept.forget("i")
    assert kept.families() == [] and kept.numbers == 0


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["a", "a.total", "a_total", "a.sum", "a.count", "a.created", "a_created.total", "b"]),
            st.sampled_from(["gauge", "sum", "histogram", "summary", "exponential_histogram"]),
            st.booleans(),
            st.floats(allow_nan=False) | st.integers(-(2**63), 2**63 - 1),
            st.sampled_from(["i", "j"]),
            st.text(max_size=3),
        ),
        max_size=8,
    )
)
def test_whatever_clients_push_prometheus_reads_it(many: list[tuple[str, str, bool, float, str, str]]) -> None:
    kept = ClientNumbers()
    for name, kind, monotonic, value, instance, about in many:
        of_kind = value if kind in ("gauge", "sum") else float(value)
        keep(kept, instance, pushed(name, of_kind, kind=kind, monotonic=monotonic, about=about))
    told(kept)


def test_numbers_of_a_point_stand_together_although_one_of_them_came_later() -> None:
    kept = ClientNumbers()
    for about, value in (("0", -1.0), ("1", 1.0), ("0", 1.0)):  # a negative sum is left out
        keep(kept, "i", pushed("a", value, kind="summary", about=about))
    told(kept)


def test_a_gauge_may_be_no_number() -> None:
    kept = ClientNumbers()
    keep(kept, "i", pushed("a", math.nan))
    receiver, nothing, exposition = ClientMetrics(), Nothing(), Exposition(is_open_metrics=True)
    receiver.kept = kept
    families = parsed("".join(clients(receiver, nothing, exposition)) + exposition.end, is_open_metrics=True)  # type: ignore[arg-type]
    assert math.isnan(families["client_telemetry_a"].samples[0].value)


# ---------------------------------------------------------------------- who makes room for whom


def gauges(*names: str) -> bytes:
    return b"".join(pushed(name, 1) for name in names)


def held(kept: ClientNumbers) -> set[str]:
    """Who has numbers."""
    return {labels.split('"')[1] for labels in kept.known()}


@pytest.mark.parametrize(
    ("limit", "value"), [("INSTANCES_MAX", 20), ("NUMBERS_MAX", 40), ("FAMILIES_MAX", 40), ("TEXT_BYTES_MAX", 4_000)]
)
def test_a_crowd_of_one_owner_does_not_keep_others_out(monkeypatch: pytest.MonkeyPatch, limit: str, value: int) -> None:
    monkeypatch.setattr(store, limit, value)
    kept = ClientNumbers()
    for number in range(60):
        keep(kept, f"crowd-{number}", gauges(f"x{number}", f"y{number}"), owner="crowd")
    assert kept.left_out > 0 == kept.evicted
    keep(kept, "honest", gauges("a", "b"), owner="somebody")
    # The crowd comes again and again. It has no room but its own.
    for number in range(120):
        keep(kept, f"crowd-{number}", gauges(f"x{number}", f"y{number}"), owner="crowd")
    assert {("client_telemetry_a", ""), ("client_telemetry_b", "")} <= told(kept).keys()
    assert held(kept) > {"honest"} and kept.evicted > 0


def test_nobody_writes_over_the_numbers_of_another_owner() -> None:
    kept = ClientNumbers()
    keep(kept, "i", gauges("x"), owner="somebody", interval_s=20)
    before = told(kept)
    keep(kept, "i", gauges("y"), owner="eve", now_s=1)
    assert told(kept) == before and kept.left_out == 1
    kept.expire(61)
    keep(kept, "i", gauges("y"), owner="eve", now_s=62)
    assert ("client_telemetry_y", "") in told(kept), "when they have expired the id is free"


def test_owners_of_the_same_size_leave_each_other_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "NUMBERS_MAX", 10)
    kept = ClientNumbers()
    for _ in range(3):
        for owner in ("one", "two"):
            for number in range(9):
                keep(kept, f"{owner}-{number}", gauges("a"), owner=owner)
    assert kept.evicted == 4 and kept.numbers == 10
    assert sorted(each[:3] for each in held(kept)).count("two") >= 5


def test_whoever_has_missed_its_push_makes_room_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "INSTANCES_MAX", 3)
    kept = ClientNumbers()
    for instance, owner in (("gone", "a"), ("i", "a"), ("j", "b")):
        keep(kept, instance, gauges("x"), owner=owner, interval_s=20)
    keep(kept, "new", gauges("x"), owner="b", now_s=49, interval_s=20)
    assert held(kept) == {"gone", "i", "j"} and kept.left_out == 1
    keep(kept, "i", gauges("x"), owner="a", now_s=49, interval_s=20)
    keep(kept, "new", gauges("x"), owner="b", now_s=51, interval_s=20)
    assert held(kept) == {"i", "j", "new"} and kept.evicted == 1


def test_one_push_makes_others_give_up_only_so_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "NUMBERS_MAX", 100)
    monkeypatch.setattr(store, "EVICTION_WORK_MAX", 5 * store.EVICTION_WORK)
    kept = ClientNumbers()
    for number in range(100):
        keep(kept, f"crowd-{number}", gauges("x"), owner="crowd")
    names = [f"m{number}" for number in range(30)]
    for push_number in range(1, 7):
        keep(kept, "honest", gauges(*names), owner="somebody")
        assert kept.evicted == 5 * push_number
    assert kept.numbers == 100 and len(told(kept)) == 31


pushes_of_anybody = st.tuples(
    st.sampled_from("abcdef"),  # instance
    st.sampled_from("xyz"),  # owner
    st.lists(st.sampled_from(["p", "q", "r", "s", "t.total", "t_total"]), max_size=4),
    st.sampled_from(["gauge", "sum"]),
    st.sampled_from([0.0, 1.0, 40.0]),  # seconds later
)


@settings(max_examples=examples(40))
@given(st.lists(pushes_of_anybody, max_size=20), st.integers(1, 4), st.integers(1, 8), st.integers(1, 4))
def test_whoever_pushes_what_the_books_are_right_and_the_limits_hold(
    pushes: list[tuple[str, str, list[str], str, float]], instances_max: int, numbers_max: int, families_max: int
) -> None:
    kept, now_s = ClientNumbers(), 0.0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "INSTANCES_MAX", instances_max)
        patch.setattr(store, "NUMBERS_MAX", numbers_max)
        patch.setattr(store, "FAMILIES_MAX", families_max)
        patch.setattr(store, "TEXT_BYTES_MAX", 700)
        for instance, owner, names, kind, later_s in pushes:
            now_s += later_s
            kept.expire(now_s)
            data = b"".join(pushed(name, 1, kind=kind, monotonic=True) for name in names)
            keep(kept, instance, data, now_s=now_s, interval_s=10, owner=owner)
            families = kept.families()
            numbers = [labels for _, by_instance in families for each in by_instance for _, labels in each]
            assert kept.instance_count == len(kept.known()) <= instances_max
            assert kept.numbers == len(numbers) <= numbers_max
            assert kept.text_bytes == sum(map(sys.getsizeof, numbers)) <= 700
            assert kept._shares.used[FAMILIES] == len(families) <= families_max
        told(kept)
        kept.expire(now_s + 1000)
    assert kept.families() == kept.known() == [] and not any(kept._shares.used) and not kept._shares._owners


# ---------------------------------------------------------------------- the receiver


def push(data: bytes, codec: Compression = Compression.NONE, **changed: Any) -> Push:
    return Push("i", "/10.0.0.1", SOMEBODY, data, codec, 1 << 20, ("*",), 1000)._replace(**changed)


@pytest.mark.parametrize("codec", list(Compression))
async def test_a_push_is_decompressed_and_kept(autojump_clock: trio.testing.MockClock, codec: Compression) -> None:
    receiver = ClientMetrics()
    data = pushed("a", 1)
    await receiver.take(push(data if codec is Compression.NONE else compress(codec, data), codec))
    assert told(receiver.kept) == {("client_telemetry_a", ""): 1}
    (labels,) = receiver.kept.known()
    assert 'client_id="an\\nid"' in labels and 'client_software_name="java"' in labels
    async with trio.open_nursery() as nursery:
        nursery.start_soon(receiver.sweep)
        await trio.sleep(100)
        nursery.cancel_scope.cancel()
    assert told(receiver.kept) == {}


@pytest.mark.parametrize("codec", [each for each in Compression if each])
async def test_what_is_no_codec_or_becomes_too_large_is_refused(codec: Compression) -> None:
    receiver = ClientMetrics()
    with pytest.raises(BadMetrics):
        await receiver.take(push(b"\x0a\x00garbage", codec))
    with pytest.raises(BadMetrics, match="1000 bytes"):
        await receiver.take(push(compress(codec, bytes(100_000)), codec, bytes_max=1000))
    assert told(receiver.kept) == {}


def test_among_very_many_owners_one_push_makes_less_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each search for the one who has most looks at all of them."""
    evicted = []
    for owners in (10, 400):
        kept = ClientNumbers()
        monkeypatch.setattr(store, "NUMBERS_MAX", owners + 100)
        monkeypatch.setattr(store, "EVICTION_WORK_MAX", 10 * store.EVICTION_WORK)
        number = points.Number("x", GAUGE, "", "", 1.0, is_delta=False)
        for who in range(owners):
            kept.take(Pusher(f"small {who}", f"owner {who}", "", 300.0), [number], 0.0)
        for who in range(100):
            kept.take(Pusher(f"large {who}", "large", "", 300.0), [number], 0.0)
        kept.take(Pusher("new", "new", "", 300.0), [number._replace(labels=f'n="{each}"') for each in range(30)], 1.0)
        evicted.append(kept.evicted)
    assert evicted[0] >= 9
    assert 0 < evicted[1] <= 8
