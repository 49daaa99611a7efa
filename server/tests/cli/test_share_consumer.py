"""Answers that a consumer in a share group reads, and acknowledgements that it sends."""

import socket
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.server.cli.client import consumer as consumer_module
from ottla.server.cli.client.connection import Address, BrokerConnection
from ottla.server.cli.client.output import RequestFailed
from ottla.server.cli.client.share_consumer import ACQUIRED_MAX, ShareConsumer, _acquired, _runs, _Session
from ottla.wire.messages.share_fetch import AcquiredRecords
from ottla.wire.record_encoding import encode_batch
from ottla.wire.records import Record

PLACE = ("topic", 0)


@given(st.dictionaries(st.integers(0, 30), st.integers(0, 3)))
def test_each_offset_is_acknowledged_once_with_its_type(types):
    runs = _runs(types)
    found = [
        (offset, run.acknowledge_types[0]) for run in runs for offset in range(run.first_offset, run.last_offset + 1)
    ]
    assert found == sorted(types.items())
    assert all(len(run.acknowledge_types) == 1 for run in runs)
    assert all(before.last_offset < after.first_offset for before, after in pairwise(runs))


def part(*ranges, records=b""):
    acquired = [AcquiredRecords(first_offset=first, last_offset=last, delivery_count=1) for first, last in ranges]
    return SimpleNamespace(acquired_records=acquired, records=records)


def test_what_is_acquired_is_bounded():
    assert _acquired(PLACE, 1, part((5, 7), (9, 9)), 0.0).offsets == {5, 6, 7, 9}
    for ranges in (
        [(0, 1 << 62)],
        [(0, 1 << 62), (1 << 62, 0)],
        [(0, ACQUIRED_MAX // 2), (10**6, 10**6 + ACQUIRED_MAX // 2)],
    ):
        with pytest.raises(RequestFailed, match="is it a Kafka broker"):
            _acquired(PLACE, 1, part(*ranges), 0.0)
    # A last offset before the first one has no records.
    assert _acquired(PLACE, 1, part((9, 5)), 0.0).offsets == frozenset()


def test_damaged_records_are_refused():
    batch = bytearray(encode_batch([Record(0, 0, None, b"value")]))
    assert len(_acquired(PLACE, 1, part((0, 0), records=bytes(batch)), 0.0).batches) == 1
    batch[-1] ^= 1
    with pytest.raises(RequestFailed, match="records of topic-0"):
        _acquired(PLACE, 1, part((0, 0), records=bytes(batch)), 0.0)
    with pytest.raises(RequestFailed, match="records of topic-0"):
        _acquired(PLACE, 1, part((0, 0), records=b"nonsense" * 10), 0.0)


def test_leaders_that_do_not_answer_end_it(monkeypatch):
    """Otherwise -e would take them for leaders without records."""
    monkeypatch.setattr(consumer_module, "ANSWER_TIMEOUT_S", 0.0)
    consumer: Any = ShareConsumer(None, "group", ["topic"])  # type: ignore[arg-type]
    monkeypatch.setattr(consumer, "beat", lambda: None)
    consumer._assigned = (("topic", 0), ("topic", 1))
    consumer._leaders = {("topic", 0): 1, ("topic", 1): 2}
    ours, theirs = socket.socketpair()
    with ours, theirs:
        for leader, sock in ((1, ours), (2, theirs)):
            connection = BrokerConnection(sock, Address("127.0.0.1", leader))
            consumer._sessions[leader] = _Session(connection, is_asked=True)
        with pytest.raises(RequestFailed, match="none of brokers 1, 2 answers"):
            list(consumer.round(10))
    assert not consumer.is_idle
