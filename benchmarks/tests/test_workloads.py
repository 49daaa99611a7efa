"""What the rows are made of: every value of every factor is covered, names tell rows apart, segments are Kafka's own."""

import itertools

from benchmarks.clients import dotted, payload_file
from benchmarks.picture import target_of
from benchmarks.rows import Line, Metric, at_least, at_most, within
from benchmarks.workloads import stored
from benchmarks.workloads.throughput import CONSUME, DEFAULTS, OTHERS, QUICK, TUNED, size_name

from ottla.wire.records import crc_is_valid, iter_batches

PRODUCE = [*TUNED, *DEFAULTS, *OTHERS]


def test_every_value_of_every_factor_is_in_a_row():
    assert {row.size for row in PRODUCE} == {row.size for row in CONSUME} == {100, 1024, 10_240}
    assert {row.batch for row in PRODUCE} == {0, 65_536, 1 << 20}
    assert {row.acks for row in PRODUCE} == {"1", "all"}
    assert {row.partitions for row in PRODUCE} == {1, 10}
    assert {row.producers for row in PRODUCE} == {1, 10}
    assert {row.compression for row in PRODUCE} == {"none", "lz4"}
    assert {row.client for row in PRODUCE} == {row.client for row in CONSUME} == {"librdkafka", "Java"}
    tuned = {(row.client, row.batch, row.acks) for row in TUNED}
    assert tuned == set(itertools.product(("librdkafka", "Java"), (65_536, 1 << 20), ("1", "all")))


def test_no_two_rows_have_one_name():
    names = [row.name for row in [*PRODUCE, *CONSUME]]
    assert len(set(names)) == len(names)
    assert set(QUICK) <= set(PRODUCE)


def test_sizes_are_named_as_people_say_them():
    assert [size_name(size) for size in (100, 1024, 10_240, 65_536, 1 << 20)] == [
        "100 B",
        "1 KiB",
        "10 KiB",
        "64 KiB",
        "1 MiB",
    ]


def test_properties_are_kafkas():
    assert dotted({"linger_ms": 5, "producer:acks": "all"}) == {"linger.ms": 5, "producer:acks": "all"}


def test_payloads_are_lines_of_the_size(tmp_path):
    lines = payload_file(tmp_path, 100).read_text().splitlines()
    assert {len(line) for line in lines} == {100}
    assert len(set(lines)) == len(lines) == 500


def test_a_targets_tick_is_where_better_is_right():
    more = Metric("a", "MB/s", at_least(1.3), more_is_better=True)
    less = Metric("b", "s", at_most(0.5))
    assert [target_of(Line("g", "r", metric, "", {})) for metric in (more, less, Metric("c", "s"))] == [1.3, 2.0, None]
    assert target_of(Line("g", "r", Metric("d", "s", within(10, "s")), "", {})) is None


def test_a_stored_segment_is_whole_batches_with_an_index(tmp_path, monkeypatch):
    monkeypatch.setattr(stored, "BATCHES_PER_SEGMENT", 3)
    (tmp_path / "00000000000000000009.log").write_bytes(b"old")
    stored.store(tmp_path, 2)
    assert sorted(path.name for path in tmp_path.glob("*.log")) == [f"{offset:020}.log" for offset in (0, 3, 6)]
    data = (tmp_path / f"{3:020}.log").read_bytes()
    batches = list(iter_batches(data))
    assert [(header.base_offset, header.partition_leader_epoch) for header, _, _ in batches] == [(3, 0), (4, 0), (5, 0)]
    assert all(crc_is_valid(data, start, end) for _, start, end in batches)
    index = (tmp_path / f"{3:020}.index").read_bytes()
    assert index == b"".join(number.to_bytes(4) + (number * len(data) // 3).to_bytes(4) for number in (1, 2))
