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
    CoordinationUnavailable,
    Node,
    OnChange,
    OnSessionChange,
    Operation,
)
from ottla.server.coordination.tree import Change, Kind, Tree, TreeNode, Watches, concerned_by
from ottla.wire.checksum import crc32c

JOURNAL_NAME = "coordination.journal"
NODES_PER_ENTRY = 500
GARBAGE_MIN = 10_000
SESSION_ID = 1

_entry_header = struct.Struct(">II")
RunInThread = Callable[..., Awaitable[Any]]


class EmbeddedCoordination:
    """The `Coordination` port for a single broker; see the module's docstring. Its session is that of the process."""

    session_id = SESSION_ID
    session_sure_until = math.inf

    def __init__(self, directory: Path, *, run_in_thread: RunInThread = trio.to_thread.run_sync) -> None:
        self._path = directory / JOURNAL_NAME
        self._run_in_thread = run_in_thread
        self._tree = Tree()
        self._journal: int | None = None
        self._pending: list[bytes] = []
        self._applied = self._durable = 0
        self._garbage = 0
        self._failed = False
        self._flushing = trio.Lock()
        self._watches = Watches()

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
        return self._tree.get(path)

    async def get_all(self, paths: Sequence[str]) -> list[Node | None]:
        return self._tree.get_all(paths)

    async def children(self, path: str) -> list[str]:
        return self._tree.children(path)

    async def children_data(self, path: str) -> Mapping[str, Node]:
        return self._tree.children_data(path)

    async def multi(self, operations: Sequence[Operation]) -> list[str | int | None]:
        if self._failed or self._journal is None:
            raise CoordinationUnavailable(str(self._path))
        results, changes = self._tree.apply(operations, SESSION_ID)
        self._watches.call(concerned_by(changes))
        if entry := [_journalled(change) for change in changes if not change.ephemeral]:
            self._pending.append(_entry(entry))
            self._applied += 1
            await self._until_durable(self._applied)
        return results

    def watch_node(self, path: str, on_change: OnChange) -> Callable[[], None]:
        return self._watches.watch("node", path, on_change)

    def watch_children(self, path: str, on_change: OnChange) -> Callable[[], None]:
        return self._watches.watch("children", path, on_change)

    def watch_session(self, on_change: OnSessionChange) -> Callable[[], None]:
        return lambda: None  # never called: nothing can end this session but the end of the process

    async def until_available(self) -> None:
        await trio.lowlevel.checkpoint()
        if self._failed or self._journal is None:
            raise CoordinationUnavailable(str(self._path))

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
                if self._garbage > max(GARBAGE_MIN, len(self._tree.nodes)):
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
            for path, node in self._tree.nodes.items()
            if not node.owner
        ]

    def _replay(self, content: bytes) -> None:
        position = 0
        while (end := position + _entry_header.size) <= len(content):
            length, checksum = _entry_header.unpack_from(content, position)
            payload = content[end : end + length]
            if len(payload) < length or crc32c(payload) != checksum:
                return
            self._tree.last_id += 1
            for change in json.loads(payload):
                self._redo(*change)
            position = end + length

    def _redo(self, kind: int, path: str, data: str = "", *whole: int) -> None:
        content = data.encode("latin-1")
        if kind == Kind.CREATED:
            self._tree.insert(path, TreeNode(content, self._tree.last_id))
        elif kind == Kind.SET:
            node = self._tree.nodes[path]
            node.data, node.version = content, node.version + 1
        elif kind == Kind.DELETED:
            self._tree.remove(path)
        else:
            version, creation_id, next_sequence = whole
            node = TreeNode(content, creation_id, version=version)
            node.next_sequence = next_sequence
            self._tree.restore(path, node)


def _journalled(change: Change) -> list[Any]:
    if change.kind is Kind.DELETED:
        return [int(change.kind), change.path]
    return [int(change.kind), change.path, change.data.decode("latin-1")]


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
