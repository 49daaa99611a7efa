"""Files of snapshots: the same again after a load, and a sentence for whatever else is in such a file."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.server.testing.errors import LabError
from ottla.server.testing.memory.coordination_service import FrozenNode, TreeSnapshot
from ottla.server.testing.memory.storage import MemoryStorage
from ottla.server.testing.snapshots import files
from ottla.server.testing.snapshots.files import MAGIC, VERSION, NodeSnapshot, Snapshot, decode, encode
from ottla.wire.checksum import crc32c
from ottla.wire.tests.effort import examples

TREE = TreeSnapshot((FrozenNode("", b"", 0, 0, 1), FrozenNode("/brokers", b"\xff\x00", 3, 7, 0)), 9)


def some_snapshot() -> Snapshot:
    storage = MemoryStorage(lambda: 1234)
    storage.make_directory("/data")
    storage.make_directory("/data/orders-0")
    storage.make_directory("/data/empty")
    storage.write("/data/orders-0/0.log", bytes(range(256)) * 4)
    storage.write("/data/meta.properties", b"version=0\n")
    nodes = {2: NodeSnapshot(MemoryStorage().snapshot(), is_running=False), 1: NodeSnapshot(storage.snapshot())}
    return Snapshot(nodes, {"num.partitions": "3"}, taken_ms=1_764_374_400_000, tree=TREE)


def made(description: object, files: bytes = b"", *, version: int = VERSION, length: int | None = None) -> bytes:
    """A file as a foreign program might write it, with a checksum that is right."""
    head = json.dumps(description).encode()
    content = struct.pack(">I", len(head)) + head + files
    told = len(content) if length is None else length
    compressed = zstandard.ZstdCompressor().compress(content)
    return struct.pack(">8sIIQ", MAGIC, version, crc32c(struct.pack(">Q", told) + compressed), told) + compressed


def description(**changed: Any) -> dict[str, Any]:
    node = {"is_running": True, "directories": ["/d"], "files": [["/d/a", 0, 2]]}
    return {"taken_ms": 0, "settings": {}, "nodes": {"0": node}, "tree": None, **changed}


def test_a_snapshot_is_the_same_after_a_save_and_a_load(tmp_path: Path) -> None:
    path = tmp_path / "orders.ottla"
    snapshot = some_snapshot()
    path.write_bytes(b"an older one")
    snapshot.save(path)
    loaded = Snapshot.load(path)
    assert loaded == snapshot
    assert list(loaded.nodes) == [1, 2] and not loaded.nodes[2].is_running
    assert encode(loaded) == path.read_bytes() == encode(some_snapshot())
    assert [each.name for each in tmp_path.iterdir()] == ["orders.ottla"]


def test_what_a_later_ottla_adds_to_the_same_version_is_passed_over() -> None:
    node = {"is_running": True, "directories": [], "files": [["/a", 5, 2, "sha"]], "more": 1}
    fields = decode(made(description(nodes={"0": node}, more=[]), b"xy"), "file")
    ((path, file),) = fields["nodes"][0].storage.files()
    assert (path, bytes(file.contents), file.modified_ms) == ("/a", b"xy", 5)


def test_a_later_version_is_refused_by_its_number() -> None:
    with pytest.raises(LabError, match=rf"^file was saved by a later Ottla, in version {VERSION + 1} of the format"):
        decode(made(description(), b"xy", version=VERSION + 1), "file")


def test_a_byte_that_changed_is_found() -> None:
    data = encode(some_snapshot())
    for position in range(len(MAGIC) + 4, len(data), 7):
        with pytest.raises(LabError, match="^file is damaged; "):
            decode(data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :], "file")
    for size in range(1, len(data), 7):
        with pytest.raises(LabError, match="damaged"):
            decode(data[:size], "file")


@pytest.mark.parametrize("data", [b"", b"PK\x03\x04", b"x" * 100, MAGIC[:-2] + b"\n" + bytes(40)])
def test_another_file_is_no_snapshot(data: bytes) -> None:
    with pytest.raises(LabError, match="^file is no snapshot; "):
        decode(data, "file")


@pytest.mark.parametrize(
    "changed",
    [
        {"nodes": {}},
        {"nodes": {"-1": description()["nodes"]["0"]}},
        {"nodes": {"x": description()["nodes"]["0"]}},
        {"nodes": {"0": {"is_running": 1, "directories": ["/d"], "files": [["/d/a", 0, 2]]}}},
        {"nodes": {"0": {"is_running": True, "directories": ["/d"], "files": [["/d/../a", 0, 2]]}}},
        {"nodes": {"0": {"is_running": True, "directories": ["/d"], "files": [["/e/a", 0, 2]]}}},
        {"nodes": {"0": {"is_running": True, "directories": ["/d", "/d"], "files": [["/d/a", 0, 2]]}}},
        {"nodes": {"0": {"is_running": True, "directories": ["/d"], "files": [["/d/a", 0, 3]]}}},
        {"nodes": {"0": {"is_running": True, "directories": ["/d"], "files": [["/d/a", 0, -2]]}}},
        {"nodes": {"0": {"is_running": True, "directories": ["/d"], "files": [["/d/a", 0, 1]]}}},
        {"nodes": {"0": {"is_running": True, "directories": ["/d"], "files": [["/d", 0, 2]]}}},
        {"nodes": {"0": {"is_running": True, "directories": [["/d"]], "files": []}}},
        {"settings": {"a": 1}},
        {"taken_ms": 2**64},
        {"taken_ms": 1.5},
        {"tree": {"last_id": 1, "nodes": [["/a", "", 0, 0, 0]]}},
        {"tree": {"last_id": 1, "nodes": [["", "\u0100", 0, 0, 0]]}},
        {"tree": []},
    ],
)
def test_a_description_that_makes_no_sense_is_damage(changed: dict[str, Any]) -> None:
    assert decode(made(description(), b"xy"), "file")
    with pytest.raises(LabError, match="damaged"):
        decode(made(description(**changed), b"xy"), "file")


def test_a_length_that_is_a_lie_costs_no_memory() -> None:
    for length in (2**63, 10**9, 1):
        with pytest.raises(LabError, match="damaged"):
            decode(made(description(), b"xy", length=length), "file")
    with pytest.raises(LabError, match="damaged"):
        decode(made(json.loads("[" * 900 + "]" * 900)), "file")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.sampled_from(["/d", "/d/a", ""]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(sorted(description())), inner),
    max_leaves=12,
)


@settings(max_examples=examples(100), deadline=None)
@given(data=st.binary(max_size=80), value=json_values, key=st.sampled_from(sorted(description())), files=st.binary())
def test_foreign_bytes_are_a_snapshot_or_a_lab_error(data: bytes, value: Any, key: str, files: bytes) -> None:
    for each in (data, MAGIC + data, made(value, files), made(description(**{key: value}), files)):
        try:
            fields = decode(each, "file")
        except LabError:
            continue
        assert encode(Snapshot(**fields))


def test_a_file_that_cannot_be_read_or_written_is_told(tmp_path: Path) -> None:
    with pytest.raises(LabError, match=r"^There is no file .*missing\.ottla; kafka\.snapshot\(\)\.save\("):
        Snapshot.load(tmp_path / "missing.ottla")
    with pytest.raises(LabError, match="cannot be read: Is a directory"):
        Snapshot.load(tmp_path)
    with pytest.raises(LabError, match="cannot be saved as .*: No such file or directory"):
        some_snapshot().save(tmp_path / "nowhere" / "orders.ottla")


def test_a_content_above_the_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    data = encode(some_snapshot())
    monkeypatch.setattr(files, "CONTENT_MAX", 100)
    with pytest.raises(LabError, match="damaged"):
        decode(data, "file")
