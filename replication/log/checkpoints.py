"""Checkpoints and other small text files of a log directory, to the byte as Kafka writes them.

Checkpoints are `version`, `count`, then one entry a line: leader epochs per partition, offsets per log directory. The
functions here turn values into bytes and back; who writes them, when, and what an unreadable one means is for the caller.
Foreign or damaged contents raise `CorruptCheckpoint`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ottla.wire.text import parse_uuid, uuid_text

_VERSION = "0"
# `int` takes blanks, underscores and the digits of any script as well. No checkpoint has those.
_NUMBER = re.compile("-?[0-9]{1,19}")


class CorruptCheckpoint(Exception):
    """Error raised if a checkpoint or another small file of a log directory is unreadable."""


class MetaProperties(NamedTuple):
    """Contents of `meta.properties`, which names a log directory's owner; version 0 calls the node id `broker.id`."""

    version: int
    node_id: int | None
    cluster_id: str | None
    directory_id: bytes | None


def decode_uuid(text: str) -> bytes:
    """Parse Kafka's text for a UUID. Raises CorruptCheckpoint."""
    try:
        return parse_uuid(text)
    except ValueError as error:
        raise CorruptCheckpoint(f"{text!r} is no uuid") from error


def _encode(lines: list[str]) -> bytes:
    return "\n".join((_VERSION, str(len(lines)), *lines, "")).encode()


def _decode(data: bytes) -> list[list[str]]:
    try:
        lines = data.decode().split("\n")
    except UnicodeDecodeError as error:
        raise CorruptCheckpoint("not text") from error
    if lines in ([""], ["0", ""]):
        return []  # Kafka makes the file before it has anything to write
    if len(lines) < 2 or lines[0] != _VERSION:
        raise CorruptCheckpoint(f"unknown version {lines[0]!r}")
    entries = [line.split() for line in lines[2:] if line]
    # A file that was torn off at the end of a line shows only here.
    if _number(lines[1]) != len(entries):
        raise CorruptCheckpoint(f"{lines[1]} entries expected, {len(entries)} found")
    return entries


def _number(text: str) -> int:
    if not _NUMBER.fullmatch(text):
        raise CorruptCheckpoint(f"{text!r} is no number")
    return int(text)


def encode_offsets(offsets: Mapping[tuple[str, int], int]) -> bytes:
    """Encode an offset checkpoint from {(topic, partition): offset}."""
    return _encode([f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items()])


def decode_offsets(data: bytes) -> dict[tuple[str, int], int]:
    """Decode an offset checkpoint to {(topic, partition): offset}. Raises CorruptCheckpoint."""
    offsets = {}
    for entry in _decode(data):
        if len(entry) != 3:
            raise CorruptCheckpoint(f"malformed line {' '.join(entry)!r}")
        offsets[entry[0], _number(entry[1])] = _number(entry[2])
    return offsets


def encode_epochs(entries: Iterable[tuple[int, int]]) -> bytes:
    """Encode a leader-epoch-checkpoint from (epoch, start offset) pairs, in order."""
    return _encode([f"{epoch} {start_offset}" for epoch, start_offset in entries])


def decode_epochs(data: bytes) -> list[tuple[int, int]]:
    """Decode a leader-epoch-checkpoint to (epoch, start offset) pairs. Raises CorruptCheckpoint."""
    epochs = []
    for entry in _decode(data):
        if len(entry) != 2 or _number(entry[0]) < 0 or _number(entry[1]) < 0:
            raise CorruptCheckpoint(f"malformed line {' '.join(entry)!r}")
        epochs.append((_number(entry[0]), _number(entry[1])))
    return epochs


def encode_partition_metadata(topic_id: bytes) -> bytes:
    """Encode `partition.metadata`, which holds the topic id; without a line end, as Kafka writes it."""
    return f"version: 0\ntopic_id: {uuid_text(topic_id)}".encode()


def decode_partition_metadata(data: bytes) -> bytes:
    """Decode the topic id in `partition.metadata`. Raises CorruptCheckpoint."""
    fields = _pairs(data, ":")
    if fields.get("version") != "0":
        raise CorruptCheckpoint(f"unknown version {fields.get('version')!r}")
    return decode_uuid(fields.get("topic_id", ""))


def encode_meta_properties(properties: MetaProperties) -> bytes:
    """Encode `meta.properties`."""
    # Java begins a properties file with a comment.
    lines = ["#"]
    if properties.cluster_id is not None:
        lines.append(f"cluster.id={properties.cluster_id}")
    if properties.directory_id is not None:
        lines.append(f"directory.id={uuid_text(properties.directory_id)}")
    if properties.node_id is not None:
        lines.append(f"{'broker.id' if properties.version == 0 else 'node.id'}={properties.node_id}")
    return "\n".join((*lines, f"version={properties.version}", "")).encode()


def decode_meta_properties(data: bytes) -> MetaProperties:
    """Decode `meta.properties` of a ZooKeeper-mode (version 0) or KRaft (version 1) broker."""
    fields = _pairs(data, "=")
    version = _number(fields.get("version", "0"))
    if version not in (0, 1):
        raise CorruptCheckpoint(f"unknown version {version}")
    node_id = fields.get("broker.id" if version == 0 else "node.id")
    cluster_id, directory_id = fields.get("cluster.id"), fields.get("directory.id")
    if version == 1 and (node_id is None or cluster_id is None):
        raise CorruptCheckpoint("node.id or cluster.id is missing")
    return MetaProperties(
        version,
        None if node_id is None else _number(node_id),
        cluster_id,
        None if directory_id is None else decode_uuid(directory_id),
    )


def _pairs(data: bytes, separator: str) -> dict[str, str]:
    try:
        lines = data.decode().splitlines()
    except UnicodeDecodeError as error:
        raise CorruptCheckpoint("not text") from error
    pairs = {}
    for line in lines:
        # Both begin a comment in Java's properties.
        if line.strip() and line.lstrip()[0] not in "#!":
            name, found, value = line.partition(separator)
            if not found:
                raise CorruptCheckpoint(f"malformed line {line!r}")
            pairs[name.strip()] = value.strip()
    return pairs


def encode_clean_shutdown(broker_epoch: int) -> bytes:
    """Encode `.kafka_cleanshutdown`, of which only the existence matters."""
    return json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":")).encode()
