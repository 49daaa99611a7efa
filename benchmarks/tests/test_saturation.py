"""The clients of the row about saturation: all are answered, and what they send is carried out."""

from pathlib import Path

import pytest
from benchmarks.brokers import Ottla
from benchmarks.clients import create_topic
from benchmarks.programs import compiler
from benchmarks.wire_client import Client, fetch_frame
from benchmarks.workloads.saturation import (
    FETCHED_BYTES_MAX,
    PARTITIONS,
    mixed_frames,
    records_of,
    saturate,
    single_frames,
)


@pytest.mark.skipif(compiler() is None, reason="no C compiler")
def test_every_answer_is_of_a_request_that_was_carried_out(tmp_path: Path) -> None:
    broker = Ottla(tmp_path / "broker").start()
    try:
        create_topic(broker, "t", PARTITIONS)
        with Client(broker.port) as client:
            topic_id, produced = client.topic_id("t"), mixed_frames("t")
            fetched = [fetch_frame(topic_id, FETCHED_BYTES_MAX, index) for index in range(PARTITIONS)]
            numbers = saturate(tmp_path, broker.port, 0.5, topic_id, fetched, produced)
            assert records_of(client, topic_id) >= numbers["answers"] > 0
    finally:
        broker.stop()
    assert numbers["p50_us"] <= numbers["p99_us"] <= numbers["p999_us"] <= numbers["max_us"]
    assert numbers["fetches"] > 0


def test_half_of_the_requests_are_for_one_partition() -> None:
    frames = mixed_frames("t")
    assert [len(each) for each in frames[::2]] == [len(each) for each in single_frames("t")]
    assert len(set(frames[::2])) == PARTITIONS and len(set(frames[1::2])) == 1
