"""Coordination in process: the whole tree in memory, every change in a journal, for a broker that is alone.

Journal: a file of entries `length, CRC-32C, JSON list of changes`. One multi is one entry, so a torn tail loses only
writes that nobody was told of; what follows the first bad entry is cut off at start. A change is `[0, path, data]`
(create), `[1, path, data]` (set), `[2, path]` (delete) or, in a compacted journal, `[3, path, data, version,
creation id, next sequence number]` (a whole node). Data is kept as Latin-1 text. Ephemeral nodes are not written, as
they could not outlive the process.

A multi is applied to memory at once and answered when it is on disk; the writers that wait share one fsync in a
thread. A later write can rest on an earlier one that is not yet on disk, because the journal keeps their order. When
writing fails the tree can no longer be trusted to be durable, so that every later write raises
`CoordinationUnavailable`.

The journal is compacted (rewritten as whole nodes, then renamed into place) at start and whenever what was overwritten
since outweighs the tree.
"""

from __future__ import annotations

import json
import math
import os
import struct
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import trio

from ottla.replication.coordination import (
    ANY_VERSION,
    BadVersion,
    Check,
    CoordinationUnavailable,
    Create,
    Delete,
    Node,
    NodeExists,
    NoNode,
    NotEmpty,
    OnChange,
    OnSessionChange,
    Operation,
    SetData,
)
from ottla.wire.checksum import crc32c

JOURNAL_NAME = "coordination.journal"
NODES_PER_ENTRY = 500
GARBAGE_MIN = 10_000
SESSION_ID = 1

_entry_header = struct.Struct(">II")
RunInThread = Callable[..., Awaitable[Any]]


class _TreeNode:
    """One node of the tree in memory."""

    __slots__ = ("children", "creation_id", "data", "ephemeral", "next_sequence", "version")

    def __init__(self, data: bytes, creation_id: int, *, ephemeral: bool = False, version: int = 0) -> None:
        self.data = data
        self.version = version
        self.creation_id = creation_id
        self.ephemeral = ephemeral
        self.next_sequence = 0
        self.children: dict[str, None] | None = None  # most nodes are leaves

    def seen(self) -> Node:
        return Node(self.data, self.version, self.creation_id, SESSION_ID if self.ephemeral else 0)


class EmbeddedCoordination:
    """The `Coordination` port for a single broker; see the module's docstring. Its session is that of the process."""

    session_id = SESSION_ID
    session_sure_until = math.inf

    def __init__(self, directory: Path, *, run_in_thread: RunInThread = trio.to_thread.run_sync) -> None:
        self._path = directory / JOURNAL_NAME
        self._run_in_thread = run_in_thread
        self._nodes: dict[str, _TreeNode] = {"": _TreeNode(b"", 0)}
        self._last_id = 0
        self._journal: int | None = None
        self._pending: list[bytes] = []
        self._applied = self._durable = 0
        self._garbage = 0
        self._failed = False
        self._flushing = trio.Lock()
        self._watches: dict[tuple[str, str], dict[object, OnChange]] = {}

    def open(self) -> None:
        """Read the journal and compact it. Blocks: call it before serving, or in a thread."""
        temporary = self._path.with_suffix(".tmp")
        temporary.unlink(missing_ok=True)
        if self._path.exists():
            self._replay(self._path.read_bytes())
        self._replace_journal(self._snapshot())

    def close(self) -> None:
        """Write what is pending and let go of the file."""
        if self._journal is not None:
            if self._pending and not self._failed:
                self._append(self._take_pending())
            os.close(self._journal)
            self._journal = None

    # ------------------------------------------------------------------ the port

    async def get(self, path: str) -> Node:
        return self._node(path).seen()

    async def get_all(self, paths: Sequence[str]) -> list[Node | None]:
        found = (self._nodes.get(_key(path)) for path in paths)
        return [None if each is None else each.seen() for each in found]

    async def children(self, path: str) -> list[str]:
        return list(self._node(path).children or ())

    async def children_data(self, path: str) -> Mapping[str, Node]:
        nodes = self._nodes
        return {name: nodes[f"{_key(path)}/{name}"].seen() for name in self._node(path).children or ()}

    async def multi(self, operations: Sequence[Operation]) -> list[str | int | None]:
        if self._failed or self._journal is None:
            raise CoordinationUnavailable(str(self._path))
        results, changes = self._apply(operations)
        if changes:
            self._pending.append(_entry(changes))
            self._applied += 1
            await self._until_durable(self._applied)
        return results

    def watch_node(self, path: str, on_change: OnChange) -> Callable[[], None]:
        return self._watch(("node", _key(path)), on_change)

    def watch_children(self, path: str, on_change: OnChange) -> Callable[[], None]:
        return self._watch(("children", _key(path)), on_change)

    def watch_session(self, on_change: OnSessionChange) -> Callable[[], None]:
        return lambda: None  # never called: nothing can end this session but the end of the process

    async def until_available(self) -> None:
        await trio.lowlevel.checkpoint()
        if self._failed or self._journal is None:
            raise CoordinationUnavailable(str(self._path))

    # ------------------------------------------------------------------ the tree

    def _node(self, path: str) -> _TreeNode:
        node = self._nodes.get(_key(path))
        if node is None:
            raise NoNode(path)
        return node

    def _apply(self, operations: Sequence[Operation]) -> tuple[list[str | int | None], list[list[Any]]]:
        """Do all operations, or undo those done and raise; returns the results and what the journal must hold."""
        undo: list[Callable[[], None]] = []
        results: list[str | int | None] = []
        changes: list[list[Any]] = []
        touched: list[tuple[str, str]] = []
        self._last_id += 1
        try:
            for operation in operations:
                results.append(self._apply_one(operation, undo, changes, touched))
        except Exception:
            for step in reversed(undo):
                step()
            self._last_id -= 1
            raise
        self._notify(touched)
        return results, changes

    def _apply_one(
        self,
        operation: Operation,
        undo: list[Callable[[], None]],
        changes: list[list[Any]],
        touched: list[tuple[str, str]],
    ) -> str | int | None:
        match operation:
            case Create():
                path = self._create(operation, undo)
                if not operation.ephemeral:
                    changes.append([0, path, operation.data.decode("latin-1")])
                touched += (("node", path), ("children", path.rpartition("/")[0]))
                return path
            case SetData(path, data, version):
                node = self._expect(path, version)
                undo.append(_restorer(node))
                node.data, node.version = data, node.version + 1
                if not node.ephemeral:
                    changes.append([1, path, data.decode("latin-1")])
                touched.append(("node", path))
                return node.version
            case Delete(path, version):
                node = self._expect(path, version)
                undo.append(self._delete(path, node))
                if not node.ephemeral:
                    changes.append([2, path])
                touched += (("node", path), ("children", path.rpartition("/")[0]))
            case Check(path, version):
                self._expect(path, version)
        return None

    def _expect(self, path: str, version: int) -> _TreeNode:
        node = self._node(path)
        if version not in (ANY_VERSION, node.version):
            raise BadVersion(path)
        return node

    def _create(self, operation: Create, undo: list[Callable[[], None]]) -> str:
        parent_path, _, name = operation.path.rpartition("/")
        parent = self._node(parent_path)
        if parent.ephemeral:
            raise NotEmpty(parent_path)
        if operation.sequential:
            name = f"{name}{parent.next_sequence:010d}"
        path = f"{parent_path}/{name}"
        if path in self._nodes:
            raise NodeExists(path)
        self._insert(path, _TreeNode(operation.data, self._last_id, ephemeral=operation.ephemeral))
        undo.append(lambda: self._uncreate(path))
        return path

    def _uncreate(self, path: str) -> None:
        self._remove(path)
        self._nodes[path.rpartition("/")[0]].next_sequence -= 1

    def _insert(self, path: str, node: _TreeNode) -> None:
        parent_path, _, name = path.rpartition("/")
        parent = self._nodes[parent_path]
        _add_child(parent, name)
        parent.next_sequence += 1
        self._nodes[path] = node  # after its parent, which keeps `_nodes` in an order that a journal can replay

    def _delete(self, path: str, node: _TreeNode) -> Callable[[], None]:
        if node.children:
            raise NotEmpty(path)
        self._remove(path)
        parent_path, _, name = path.rpartition("/")

        def restore() -> None:
            self._nodes[path] = node
            _add_child(self._nodes[parent_path], name)

        return restore

    def _remove(self, path: str) -> None:
        parent_path, _, name = path.rpartition("/")
        del self._nodes[path]
        siblings = self._nodes[parent_path].children
        assert siblings is not None
        del siblings[name]

    # ------------------------------------------------------------------ watches

    def _watch(self, key: tuple[str, str], on_change: OnChange) -> Callable[[], None]:
        token = object()
        self._watches.setdefault(key, {})[token] = on_change

        def cancel() -> None:
            watching = self._watches.get(key, {})
            watching.pop(token, None)
            if not watching:
                self._watches.pop(key, None)

        return cancel

    def _notify(self, touched: list[tuple[str, str]]) -> None:
        for key in dict.fromkeys(touched) if self._watches else ():
            for on_change in list(self._watches.get(key, {}).values()):
                on_change(key[1])

    # ------------------------------------------------------------------ the journal

    async def _until_durable(self, ticket: int) -> None:
        """Return once everything up to `ticket` is on disk; whoever comes first writes for all that wait."""
        async with self._flushing:
            if self._durable >= ticket:
                return
            if self._failed:
                raise CoordinationUnavailable(str(self._path))
            reached = self._applied
            try:
                if self._garbage > max(GARBAGE_MIN, len(self._nodes)):
                    self._pending.clear()
                    await self._run_in_thread(self._replace_journal, self._snapshot())
                else:
                    await self._run_in_thread(self._append, self._take_pending())
            except OSError:
                self._failed = True
                raise CoordinationUnavailable(str(self._path)) from None
            self._durable = reached

    def _take_pending(self) -> list[bytes]:
        batch, self._pending = self._pending, []
        self._garbage += len(batch)
        return batch

    def _append(self, entries: list[bytes]) -> None:
        assert self._journal is not None
        _write_all(self._journal, b"".join(entries))
        os.fdatasync(self._journal)

    def _replace_journal(self, nodes: list[list[Any]]) -> None:
        """Write the tree as a new journal and put it in the old one's place."""
        temporary = self._path.with_suffix(".tmp")
        journal = os.open(temporary, os.O_CREAT | os.O_TRUNC | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC, 0o644)
        try:
            for start in range(0, len(nodes), NODES_PER_ENTRY):
                batch = nodes[start : start + NODES_PER_ENTRY]
                _write_all(journal, _entry([[3, node[0], node[1].decode("latin-1"), *node[2:]] for node in batch]))
            os.fsync(journal)
            os.rename(temporary, self._path)
            _sync_directory(self._path.parent)
        except OSError:
            os.close(journal)
            raise
        if self._journal is not None:
            os.close(self._journal)
        self._journal, self._garbage = journal, 0

    def _snapshot(self) -> list[list[Any]]:
        """What a compacted journal holds of every node that outlives the process, parents first."""
        return [
            [path, node.data, node.version, node.creation_id, node.next_sequence]
            for path, node in self._nodes.items()
            if not node.ephemeral
        ]

    def _replay(self, content: bytes) -> None:
        position = 0
        while (end := position + _entry_header.size) <= len(content):
            length, checksum = _entry_header.unpack_from(content, position)
            payload = content[end : end + length]
            if len(payload) < length or crc32c(payload) != checksum:
                return
            self._last_id += 1
            for change in json.loads(payload):
                self._redo(*change)
            position = end + length

    def _redo(self, kind: int, path: str, data: str = "", *whole: int) -> None:
        if kind == 0:
            self._insert(path, _TreeNode(data.encode("latin-1"), self._last_id))
        elif kind == 1:
            node = self._nodes[path]
            node.data, node.version = data.encode("latin-1"), node.version + 1
        elif kind == 2:
            self._remove(path)
        else:
            self._restore(path, data.encode("latin-1"), *whole)

    def _restore(self, path: str, data: bytes, version: int, creation_id: int, next_sequence: int) -> None:
        node = _TreeNode(data, creation_id, version=version)
        node.next_sequence = next_sequence
        self._nodes[path] = node
        if path:
            parent_path, _, name = path.rpartition("/")
            _add_child(self._nodes[parent_path], name)
        self._last_id = max(self._last_id, creation_id)


def _key(path: str) -> str:
    """The root is called "/" or "", as in ZooKeeper, and kept as ""."""
    return "" if path == "/" else path


def _add_child(parent: _TreeNode, name: str) -> None:
    if parent.children is None:
        parent.children = {}
    parent.children[name] = None


def _restorer(node: _TreeNode) -> Callable[[], None]:
    data, version = node.data, node.version

    def restore() -> None:
        node.data, node.version = data, version

    return restore


def _entry(changes: list[list[Any]]) -> bytes:
    payload = json.dumps(changes, separators=(",", ":")).encode()
    return _entry_header.pack(len(payload), crc32c(payload)) + payload


def _write_all(descriptor: int, content: bytes) -> None:
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
