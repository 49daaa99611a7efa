"""The text files beside the logs, compared with what Apache Kafka 4 writes."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ottla.replication.log import checkpoints
from ottla.replication.log.checkpoints import CorruptCheckpoint, MetaProperties
from ottla.wire.tests.effort import examples
from ottla.wire.text import uuid_text


def test_offsets_are_written_as_kafka_does() -> None:
    offsets = {("__consumer_offsets", 42): 0, ("a.b", 0): 123}
    data = checkpoints.encode_offsets(offsets)
    assert data == b"0\n2\n__consumer_offsets 42 0\na.b 0 123\n"
    assert checkpoints.decode_offsets(data) == offsets


def test_epochs_are_written_as_kafka_does() -> None:
    data = checkpoints.encode_epochs([(0, 0), (3, 17)])
    assert data == b"0\n2\n0 0\n3 17\n"
    assert checkpoints.decode_epochs(data) == [(0, 0), (3, 17)]


def test_a_checkpoint_nobody_has_written_to_is_empty() -> None:
    assert checkpoints.decode_offsets(b"") == {}
    assert checkpoints.decode_epochs(b"0\n") == []
    assert checkpoints.decode_epochs(checkpoints.encode_epochs([])) == []


@pytest.mark.parametrize(
    "data",
    [b"1\n0\n", b"0\n2\na 0 1\n", b"0\n1\na 0\n", b"0\n1\na 0 x\n", b"0\nx\n", b"\xff\n0\n", b"0\n1\n" + bytes(9)],
)
def test_a_damaged_checkpoint_is_refused(data: bytes) -> None:
    with pytest.raises(CorruptCheckpoint):
        checkpoints.decode_offsets(data)


def test_partition_metadata_of_kafka() -> None:
    data = b"version: 0\ntopic_id: iHmZDEETSqOkYTUjST8oEw"
    topic_id = checkpoints.decode_partition_metadata(data)
    assert len(topic_id) == 16
    assert checkpoints.encode_partition_metadata(topic_id) == data


def test_meta_properties_of_kraft_and_of_zookeeper_mode() -> None:
    kraft = (
        b"#\n#Sat Nov 21 03:33:01 UTC 2026\nnode.id=1\ndirectory.id=iTw60ViczkWSpovXGqzw5g\nversion=1\n"
        b"cluster.id=AAAAAAAAAAAAAAAAAAAAAQ\n"
    )
    properties = checkpoints.decode_meta_properties(kraft)
    assert properties[:3] == (1, 1, "AAAAAAAAAAAAAAAAAAAAAQ")
    assert checkpoints.decode_meta_properties(checkpoints.encode_meta_properties(properties)) == properties
    zookeeper = MetaProperties(0, 3, "c", None)
    assert checkpoints.decode_meta_properties(b"broker.id=3\nversion=0\ncluster.id=c\n") == zookeeper
    assert checkpoints.decode_meta_properties(checkpoints.encode_meta_properties(zookeeper)) == zookeeper
    assert checkpoints.decode_meta_properties(b"version=0\n") == MetaProperties(0, None, None, None)


@pytest.mark.parametrize(
    "data",
    [b"version=2\nnode.id=1\ncluster.id=c\n", b"version=1\nnode.id=1\n", b"nonsense\n", b"version=1\nnode.id=x\n"],
)
def test_foreign_meta_properties_are_refused(data: bytes) -> None:
    with pytest.raises(CorruptCheckpoint):
        checkpoints.decode_meta_properties(data)


def test_the_mark_of_a_clean_shutdown() -> None:
    assert checkpoints.encode_clean_shutdown(-1) == b'{"version":0,"brokerEpoch":-1}'


@settings(max_examples=examples(100))
@given(st.binary(max_size=60))
def test_anything_else_is_refused_in_order(data: bytes) -> None:
    for decode in (
        checkpoints.decode_offsets,
        checkpoints.decode_epochs,
        checkpoints.decode_partition_metadata,
        checkpoints.decode_meta_properties,
    ):
        with contextlib.suppress(CorruptCheckpoint):
            decode(data)


@settings(max_examples=examples(50))
@given(st.binary(min_size=16, max_size=16))
def test_uuids_survive_their_text_form(uuid: bytes) -> None:
    text = uuid_text(uuid)
    assert len(text) == 22 and checkpoints.decode_uuid(text) == checkpoints.decode_uuid(f"{text}==") == uuid


@settings(max_examples=examples(50))
@example("\u00e9" * 22)
@example("A" * 21 + "*")
@given(st.text(max_size=30))
def test_any_text_is_a_uuid_or_refused(text: str) -> None:
    with contextlib.suppress(CorruptCheckpoint):
        assert len(checkpoints.decode_uuid(text)) == 16
