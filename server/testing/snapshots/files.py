"""`Snapshot`: everything that a world keeps on its disks and in its tree, and the file that holds it.

The file is made to lie beside a test suite for years: a version that later Ottlas know, a checksum, and the same bytes
whenever the same snapshot is saved by the same zstd.

    8 bytes    MAGIC, which a transfer as text would damage
    uint32     version of the format
    uint32     CRC-32C of all that follows
    uint64     length of the content
    zstd       the content: uint32 length of the description, the description as JSON, then the bytes of all files

    {"taken_ms": 1764374400000, "settings": {"log.retention.ms": "-1"},
     "nodes": {"0": {"is_running": true, "directories": ["/data"], "files": [["/data/meta.properties", 1764374400000, 83]]}},
     "tree": null}                      or {"last_id": 7, "nodes": [[path, data as Latin-1, version, creation id, next sequence]]}

Numbers are big-endian. A reader passes over keys that it does not know; what it would misread raises the version. A file from a
stranger costs at most CONTENT_MAX bytes of memory, and either is a snapshot or raises LabError.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeVar

import zstandard

from ottla.server.testing.errors import LabError
from ottla.server.testing.memory.contents import FrozenContents
from ottla.server.testing.memory.coordination_service import FrozenNode, TreeSnapshot
from ottla.server.testing.memory.names import FrozenDirectory, FrozenFile, StorageSnapshot
from ottla.wire.checksum import crc32c

MAGIC = b"\x89Ottla\r\n"
VERSION = 1
CONTENT_MAX = 4 << 30
LEVEL = 3
INT_MAX = 2**63 - 1

T = TypeVar("T")

_head = struct.Struct(">8sIIQ")
_checked = struct.Struct(">Q")
_length = struct.Struct(">I")


class NodeSnapshot(NamedTuple):
    """Disk of one broker. A broker that was down when the snapshot was taken is down after a restore."""

    storage: StorageSnapshot
    is_running: bool = True


@dataclass(frozen=True)
class Snapshot:
    """Everything that the brokers of a `Kafka` keep, at one moment.

    `tree`: coordination tree of a cluster; None for a single broker, which keeps its own on its disk.
    """

    nodes: Mapping[int, NodeSnapshot]
    settings: Mapping[str, str]
    """Settings of the brokers besides ports and directories, by Kafka's names."""
    taken_ms: int
    """Time of day of the lab in ms since 1970."""
    tree: TreeSnapshot | None = None

    def __repr__(self) -> str:
        count = sum(1 for node in self.nodes.values() for _ in node.storage.files())
        return f"<Snapshot of broker {', '.join(map(str, sorted(self.nodes)))} with {count} files>"

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the snapshot to a file; an existing one is replaced. Raises LabError if it cannot be written."""
        place = Path(path)
        unfinished = place.with_name(f"{place.name}.tmp")
        try:
            unfinished.write_bytes(encode(self))
            unfinished.replace(place)
        except OSError as error:
            raise LabError(f"The snapshot cannot be saved as {place}: {error.strerror or error}.") from None

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a snapshot that this version of Ottla or an earlier one has saved. Raises LabError."""
        place = Path(path)
        try:
            data = place.read_bytes()
        except FileNotFoundError:
            raise LabError(f"There is no file {place}; kafka.snapshot().save({str(path)!r}) makes one.") from None
        except OSError as error:
            raise LabError(f"{place} cannot be read: {error.strerror or error}.") from None
        except ValueError as error:
            raise LabError(f"{str(place)!r} is no path of a file: {error}.") from None
        return cls(**decode(data, str(place)))


# ---------------------------------------------------------------------- writing


def encode(snapshot: Snapshot) -> bytes:
    """Return the contents of a snapshot's file."""
    nodes = {node_id: snapshot.nodes[node_id] for node_id in sorted(snapshot.nodes)}
    tree = snapshot.tree
    description = {
        "taken_ms": snapshot.taken_ms,
        "settings": dict(sorted(snapshot.settings.items())),
        "nodes": {str(node_id): _described(node) for node_id, node in nodes.items()},
        "tree": None if tree is None else {"last_id": tree.last_id, "nodes": [_row(node) for node in tree.nodes]},
    }
    head = json.dumps(description, separators=(",", ":")).encode()
    files = [bytes(file.contents) for node in nodes.values() for _, file in node.storage.files()]
    content = b"".join((_length.pack(len(head)), head, *files))
    compressed = zstandard.ZstdCompressor(LEVEL).compress(content)
    checked = _checked.pack(len(content)) + compressed
    return _head.pack(MAGIC, VERSION, crc32c(checked), len(content)) + compressed


def _described(node: NodeSnapshot) -> dict[str, Any]:
    files = [[path, file.modified_ms, file.contents.length] for path, file in node.storage.files()]
    return {
        "is_running": node.is_running,
        "directories": sorted(_directories("", node.storage.root)),
        "files": files,
    }


def _directories(path: str, directory: FrozenDirectory) -> Iterator[str]:
    for name, node in directory.items():
        if not isinstance(node, FrozenFile):
            yield f"{path}/{name}"
            yield from _directories(f"{path}/{name}", node)


def _row(node: FrozenNode) -> list[Any]:
    return [node.path, node.data.decode("latin-1"), *node[2:]]


# ---------------------------------------------------------------------- reading


class _Malformed(Exception):
    pass


def decode(data: bytes, name: str) -> dict[str, Any]:
    """Return the fields of the snapshot in a file's contents. Raises LabError; `name` is the file's for its text."""
    damaged = LabError(f"{name} is damaged; take a copy of it, or make the snapshot again.")
    if len(data) < _head.size:
        raise damaged if data and MAGIC.startswith(data[: len(MAGIC)]) else _foreign(name)
    magic, version, checksum, length = _head.unpack_from(data)
    if magic != MAGIC:
        raise _foreign(name)
    if version > VERSION:
        raise LabError(
            f"{name} was saved by a later Ottla, in version {version} of the format, and this one reads up to {VERSION}; "
            "install that Ottla, or make the snapshot again."
        )
    compressed = data[_head.size :]
    if crc32c(_checked.pack(length) + compressed) != checksum:
        raise damaged
    try:
        return _decoded(_inflated(compressed, length))
    except (_Malformed, zstandard.ZstdError, struct.error, ValueError, RecursionError):
        raise damaged from None


def _foreign(name: str) -> LabError:
    return LabError(f"{name} is no snapshot; kafka.snapshot().save(...) makes one.")


def _inflated(compressed: bytes, length: int) -> bytes:
    if length > CONTENT_MAX:
        raise _Malformed
    # In pieces, because the length may be a lie: memory is taken only for what is there.
    pieces, left = [], length
    with zstandard.ZstdDecompressor().stream_reader(compressed) as reader:
        while piece := reader.read(min(left + 1, 1 << 20)):
            left -= len(piece)
            if left < 0:
                raise _Malformed
            pieces.append(piece)
    if left:
        raise _Malformed
    return b"".join(pieces)


def _decoded(content: bytes) -> dict[str, Any]:
    (head_length,) = _length.unpack_from(content)
    at = _length.size + head_length
    description = _a(dict, json.loads(content[_length.size : at]))
    nodes: dict[int, NodeSnapshot] = {}
    for number, node in _of(description, "nodes", dict).items():
        nodes[int(number)], at = _read_node(_a(dict, node), content, at)
    settings = _of(description, "settings", dict)
    _insist(at == len(content) and min(nodes, default=-1) >= 0)
    _insist(all(isinstance(text, str) for text in settings.values()))
    return {
        "nodes": nodes,
        "settings": settings,
        "taken_ms": _of(description, "taken_ms", int),
        "tree": None if description.get("tree") is None else _read_tree(_of(description, "tree", dict)),
    }


def _read_node(node: dict[str, Any], content: bytes, at: int) -> tuple[NodeSnapshot, int]:
    """Return a broker's disk, whose files begin at `at` of the content, and where they end."""
    root: dict[str, Any] = {}
    directories = {"": root}
    for path in _of(node, "directories", list):
        names: dict[str, Any] = {}
        _put(directories, path, names)
        directories[path] = names
    for file in _of(node, "files", list):
        path, modified_ms, length = _row_of(file, str, int, int)
        _insist(0 <= length <= len(content) - at)
        _put(directories, path, FrozenFile(FrozenContents.of(content[at : at + length]), modified_ms))
        at += length
    return NodeSnapshot(StorageSnapshot(root), _of(node, "is_running", bool)), at


def _put(directories: dict[str, dict[str, Any]], path: object, node: object) -> None:
    parent, _, name = _a(str, path).rpartition("/")
    _insist(name not in ("", ".", "..") and parent in directories and name not in directories[parent])
    directories[parent][name] = node


def _read_tree(tree: dict[str, Any]) -> TreeSnapshot:
    nodes: dict[str, FrozenNode] = {}
    for row in _of(tree, "nodes", list):
        path, data, version, creation_id, next_sequence = _row_of(row, str, str, int, int, int)
        _insist(path not in nodes and (not path or path.rpartition("/")[0] in nodes))
        nodes[path] = FrozenNode(path, data.encode("latin-1"), version, creation_id, next_sequence)
    return TreeSnapshot(tuple(nodes.values()), _of(tree, "last_id", int))


def _of(description: dict[str, Any], key: str, kind: type[T]) -> T:
    return _a(kind, description.get(key))


def _row_of(row: object, *kinds: type) -> list[Any]:
    values = _a(list, row)
    _insist(len(values) >= len(kinds))  # a later Ottla may say more
    return [_a(kind, value) for kind, value in zip(kinds, values, strict=False)]


def _a(kind: type[T], value: object) -> T:
    """Return `value`, which must be of this kind; whole numbers must fit into 64 bits."""
    _insist(type(value) is kind and (kind is not int or -INT_MAX <= value <= INT_MAX))  # type: ignore[operator]
    return value  # type: ignore[return-value]


def _insist(condition: bool) -> None:
    if not condition:
        raise _Malformed
