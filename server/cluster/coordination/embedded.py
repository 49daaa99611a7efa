"""Coordination in process: the whole tree in memory, every change in a journal, for a broker that is alone.

Theory: plan, write, then change. The tree in memory always equals the tree on disk; readers see only durable changes.

* Multis queue up. One writer at a time takes what waits, rehearses it on the tree (each multi on top of those before it) and
  takes all of that back, within one step of the event loop. So the tree stays as it was, and it is known what each multi
  would change and answer.
* All these changes become one entry of the journal, written and synced by a thread. Only then are they made in the tree, are
  watches called and writers answered. Meanwhile readers see the tree without them, as clients of ZooKeeper would.
* An entry that cannot be written therefore leaves nothing to take back: no reader saw it, no watch was called for it, and
  whatever rests on it stands in the same entry or behind it in the queue. All writers of that entry get `WriteRefused`.
  Callers whose multi failed in the rehearsal wait, too: an earlier change that then fails may be the reason. The next multi
  tries again, so that the journal serves again when there is room.
* A writer that is cancelled before its multi is being written leaves the queue, and nothing has happened. After that point
  a cancelled caller still gets the outcome, and is cancelled at its next wait, so that every writer learns the result.
* After a failed sync, or another failure of the disk, the contents of the disk are unknown. Then every later write
  raises `CoordinationUnavailable`, `until_available` raises `SessionExpired`, and `until_broken` returns: the broker stops,
  as Kafka halts without its metadata log.

A tree that is *served* (`tree_server.py`) has other sessions beside the one that this object is. They ask by `ask_for`, and
`end_session` takes what is theirs out of the tree, behind all that they have asked for. That needs no write, so it works on
a full disk; it never shares an entry, whose refusal would be its own.

Ephemeral nodes are not written, as they could not outlive the process. The journal is rewritten as whole nodes at start and
whenever what was overwritten since outweighs the tree; `journal.py` has the file.

A starting broker makes a dozen changes in sequence, which no other client sees before the broker serves. So it may
`write_later`: the tree shows them at once, and what `keep` finds becomes one entry, or the rewritten file. Whatever is to
rest on them outside of the tree waits for `keep`. A start that is cut short before that has changed nothing.
"""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import trio

from ottla.replication.cluster.coordination import (
    CoordinationError,
    CoordinationUnavailable,
    Node,
    OnChange,
    OnSessionChange,
    Operation,
    SessionExpired,
    WriteRefused,
)
from ottla.replication.log.storage import OsStorage, Storage
from ottla.replication.replica_manager.directories import LogDirectoryProblem
from ottla.server.cluster.coordination.journal import JOURNAL_NAME, NEXT_MULTI, Journal, JournalChange
from ottla.server.cluster.coordination.tree import (
    EndSession,
    Kind,
    NodeChange,
    Rehearsed,
    Result,
    Tree,
    TreeNode,
    TreeOperation,
    Watches,
    concerned_by,
)

__all__ = ["JOURNAL_NAME", "EmbeddedCoordination"]

logger = logging.getLogger("ottla.coordination")

OPERATIONS_PER_ENTRY = 500  # rehearsed in one step of the event loop, unless a single multi has more
GARBAGE_MIN = 10_000  # changes, below which a rewriting would gain little
RETRY_S = 1.0
SESSION_ID = 1
WHOLE_NODE = 3

RunInThread = Callable[..., Awaitable[Any]]


class Writer:
    """Queued multi (an atomic write). `outcome`: None until the multi is done, then its results or its error."""

    __slots__ = ("is_end", "operations", "outcome", "session_id")

    def __init__(self, operations: Sequence[TreeOperation], session_id: int, *, is_end: bool = False) -> None:
        self.operations, self.session_id, self.is_end = operations, session_id, is_end
        self.outcome: list[Result] | CoordinationError | None = None

    def take_outcome(self) -> list[Result]:
        """Return the multi's results, or raise its error."""
        outcome, self.outcome = self.outcome, []
        assert outcome is not None
        if not isinstance(outcome, CoordinationError):
            return outcome
        try:
            raise outcome
        finally:
            # An error holds the frames that it has passed. If they held it as well, all of it, the tree of a holder among it, would
            # stay until somebody looks for cycles.
            del outcome


class EmbeddedCoordination:
    """Coordination tree of a lone broker, in a journal on disk. As a `Session`, it lasts as long as the process."""

    session_sure_until = math.inf

    def session_now(self) -> float:
        return trio.current_time()

    def __init__(
        self,
        directory: Path,
        *,
        run_in_thread: RunInThread = trio.to_thread.run_sync,
        storage: Storage | None = None,
        is_served: bool = False,
        last_incarnation: int = 0,
    ) -> None:
        """Create the tree for the journal in `directory`. `is_served`: others use the tree, so ids never repeat.

        `last_incarnation`: lowest incarnation that the journal may have; 0 if perhaps no broker has used it yet.
        """
        self.session_id = self._last_session_id = SESSION_ID
        self.is_served, self._last_incarnation = is_served, last_incarnation
        self._journal = Journal(OsStorage() if storage is None else storage, os.path.abspath(directory))
        self._run_in_thread = run_in_thread
        self._tree = Tree()
        self._is_open = False
        self.is_patient = True
        """Whether somebody who waits for room can wait; a broker that starts would not come to its end."""

        self._is_refusing = False
        self._unwritten: list[JournalChange] | None = None
        """The changes that `keep` is to write; None: each multi writes its own."""

        self._is_rewritten = False
        self._queue: list[Writer] = []
        self._lock = trio.Lock()
        self._broken = trio.Event()
        self._watches = Watches()

    @property
    def path(self) -> str:
        """Path of the journal."""
        return self._journal.path

    @property
    def incarnation(self) -> int:
        """Incarnation number of the tree; it is raised each time the tree is opened."""
        return self._tree.incarnation

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Open the tree; close it when cancelled."""
        await self._run_in_thread(self.open)
        task_status.started()
        try:
            await trio.sleep_forever()
        finally:
            self.close()

    def open(self) -> None:
        """Read and rewrite the journal. Blocks. Raises OSError, or LogDirectoryProblem if it must not be used."""
        # Step 1: the tree as the journal tells it.
        for changes in self._journal.read():
            self._redo_entry(changes)
        # Before anything is written: below a mount point without its disk a new tree would begin, in which nothing exists.
        if self._tree.incarnation < self._last_incarnation:
            raise LogDirectoryProblem(
                f"The coordination journal {self.path} is gone, or an older one is in its place. Is its disk mounted?"
            )
        if self.is_served or self._tree.was_served:
            self._tree.begin_incarnation()
        if self.is_served:
            self.session_id = self._last_session_id = self._tree.last_id
        self._journal.resume()
        self._is_rewritten = False
        if self._unwritten is None:
            self._rewrite_old()
        self._is_open = True

    def _rewrite_old(self) -> None:
        """Rewrite the journal at a start, to bound its size. Raises OSError if no usable file is left."""
        try:
            self._journal.rewrite(self._snapshot())
            self._is_rewritten = True
        except OSError as error:
            # A full disk need not keep a broker from starting, as the old file says
            # the same. But there may be no old file to go on with, or nothing in it,
            # and that another incarnation has begun is not in the old file.
            is_worthless = not self._journal.is_there or len(self._tree.nodes) == 1
            if self._journal.failure is not None or is_worthless or self.is_served:
                raise
            logger.warning("%s is not rewritten: %s", self.path, error)

    def close(self) -> None:
        """Close the journal. A multi without an acknowledgement was not applied."""
        self._is_open = False
        self._journal.close()

    def write_later(self) -> None:
        """Delay journal writes until `keep` or `write_at_once`. Call this before `open`."""
        self._unwritten = []

    async def keep(self) -> None:
        """Wait until all changes are on the disk. Raises CoordinationUnavailable if they cannot be written."""
        async with self._lock:
            with trio.CancelScope(shield=True):
                try:
                    self._check_open()
                    if self._unwritten or not self._journal.is_name_synced:
                        await self._run_in_thread(self._write_unwritten)
                except OSError as error:
                    self._notify_watches(error)
                    raise CoordinationUnavailable(self.path) from None

    def _write_unwritten(self) -> None:
        """Write the delayed changes. Runs in a thread, while no task changes the tree. Raises OSError if this fails."""
        if self._unwritten:
            was_rewritten = self._is_rewritten
            if not was_rewritten:
                self._rewrite_old()  # from the tree, which has the changes
            # If there is no room for another file, there may be some for them in the old one.
            if was_rewritten or not self._is_rewritten:
                self._journal.append(self._unwritten)
            self._unwritten = []
        # A file that was rewritten is in force before its name is sure to stay.
        self._journal.sync_name()

    async def write_at_once(self) -> None:
        """Write the delayed changes. From now on write each multi before its reply. Raises CoordinationUnavailable."""
        await self.keep()
        self._unwritten = None

    async def until_broken(self) -> OSError:
        """Wait until the journal cannot be written any more; return the error."""
        await self._broken.wait()
        assert self._journal.failure is not None
        return self._journal.failure

    # ------------------------------------------------------------------ the port

    async def get(self, path: str) -> Node:
        return self._tree.get(path)

    async def get_all(self, paths: Sequence[str]) -> list[Node | None]:
        return self._tree.get_all(paths)

    def nodes_now(self, paths: Sequence[str]) -> list[Node | None]:
        return self._tree.get_all(paths)

    async def children(self, path: str) -> list[str]:
        return self._tree.children(path)

    async def children_data(self, path: str) -> Mapping[str, Node]:
        return self._tree.children_data(path)

    async def multi(self, operations: Sequence[Operation]) -> list[Result]:
        # Queued before the first await, so multis are carried out in the order in which they were asked for.
        return await self.outcome_of(self.ask_for(self.session_id, operations))

    def ask_for(self, session_id: int, operations: Sequence[Operation]) -> Writer:
        """Queue a multi of session `session_id`; the caller must await `outcome_of` with the returned `Writer`."""
        writer = Writer(operations, session_id)
        self._queue.append(writer)
        return writer

    async def outcome_of(self, writer: Writer) -> list[Result]:
        """Wait for a queued multi; return its results or raise its error (see `multi`)."""
        try:
            await self._until_decided(writer)
        except trio.Cancelled:
            # Nobody has looked at it yet, and nobody will.
            if writer in self._queue:
                self._queue.remove(writer)
                raise
            # It is being written. Who may have changed the tree must get to know it.
            with trio.CancelScope(shield=True):
                await self._until_decided(writer)
        return writer.take_outcome()

    def new_session(self) -> int:
        """Return a session id that was never used before."""
        assert self.is_served
        self._last_session_id += 1
        return self._last_session_id

    def end_session(self, session_id: int) -> Writer:
        """Queue the deletion of a session's ephemeral nodes, after the multis that the session has queued already.

        The caller must await `outcome_of` with the returned `Writer`.
        """
        assert session_id
        writer = Writer([EndSession()], session_id, is_end=True)
        self._queue.append(writer)
        return writer

    async def _until_decided(self, writer: Writer) -> None:
        async with self._lock:
            # Whoever has the turn writes for all who wait, so most writers find their outcome when they get it.
            while writer.outcome is None:
                await self._write_some()

    def watch_node(self, path: str, on_change: OnChange) -> Callable[[], None]:
        return self._watches.watch("node", path, on_change)

    def watch_children(self, path: str, on_change: OnChange) -> Callable[[], None]:
        return self._watches.watch("children", path, on_change)

    def watch_session(self, on_change: OnSessionChange) -> Callable[[], None]:
        return lambda: None  # never called: nothing can end this session but the end of the process

    async def until_available(self) -> None:
        await trio.lowlevel.checkpoint()
        if self._broken.is_set():
            raise SessionExpired(self.path)  # for good: `until_broken` ends the broker
        if self._is_refusing:
            if not self.is_patient:
                raise CoordinationUnavailable(self.path)
            await trio.sleep(RETRY_S)
        self._check_open()

    def _check_open(self) -> None:
        if not self._is_open or self._journal.failure is not None:
            raise CoordinationUnavailable(self.path)

    # ------------------------------------------------------------------ plan, write, change

    async def _write_some(self) -> None:
        """Write queued multis to the journal, as many as one entry holds. The caller holds the lock."""
        # The thread cannot be called back. Its outcome has to reach
        # the tree, or the tree would not be what is on the disk.
        with trio.CancelScope(shield=True):
            writers = self._take_from_queue()
            try:
                self._check_open()
                # Plan: in one step of the event loop, so that no reader sees it.
                rehearsed = self._tree.rehearse((writer.operations, writer.session_id) for writer in writers)
                # Write: one entry for all, so that one sync pays for many multis.
                if changes := _journalled(rehearsed):
                    await self._write(changes)
            except (OSError, CoordinationError) as error:
                self._refuse(writers)
                self._notify_watches(error)
                return
            # A bug: those who wait must not wait forever.
            except BaseException:
                self._refuse(writers)
                raise
            # Change: only now do readers see it.
            self._carry_out(writers, rehearsed)
            # What is to be written later would be in the new file already, and then once more.
            is_all_written = not self._unwritten
            if is_all_written and self._journal.appended > max(GARBAGE_MIN, len(self._tree.nodes)):
                await self._rewrite()

    async def _write(self, changes: list[JournalChange]) -> None:
        if self._unwritten is None:
            await self._run_in_thread(self._journal.append, changes)
        else:
            self._unwritten += [[NEXT_MULTI], *changes] if self._unwritten else changes

    def _take_from_queue(self) -> list[Writer]:
        taken, count = 0, 0
        for writer in self._queue:
            count += len(writer.operations)
            if taken and count > OPERATIONS_PER_ENTRY:  # at least one goes, however long it is
                break
            if taken and (writer.is_end or self._queue[0].is_end):
                break
            taken += 1
        writers, self._queue = self._queue[:taken], self._queue[taken:]
        return writers

    def _refuse(self, writers: Sequence[Writer]) -> None:
        # The content of a broken journal is unknown.
        refusal = CoordinationUnavailable if self._journal.failure is not None else WriteRefused
        for writer in writers:
            writer.outcome = refusal(self.path)

    def _notify_watches(self, error: Exception) -> None:
        if self._journal.failure is not None:
            if not self._broken.is_set():
                logger.critical("%s is broken, nothing can be changed any more: %s", self.path, error)
            self._broken.set()
        # Once, not with every write: a full disk refuses many.
        elif isinstance(error, OSError) and not self._is_refusing:
            self._is_refusing = True
            logger.error("%s cannot be written. Changes are refused until it can: %s", self.path, error)

    def _carry_out(self, writers: Sequence[Writer], rehearsed: Sequence[Rehearsed]) -> None:
        """Apply multis to the tree after they were written to the journal, and call the watches."""
        if self._is_refusing:
            self._is_refusing = False
            logger.info("%s can be written again", self.path)
        # All changes come before any watch is called: a listener that reads sees the whole entry.
        happened: list[NodeChange] = []
        for writer, planned in zip(writers, rehearsed, strict=True):
            if isinstance(planned, CoordinationError):
                writer.outcome = planned
            else:
                writer.outcome, changes = self._tree.apply(writer.operations, writer.session_id)
                happened += changes
        self._watches.call(concerned_by(happened))

    # ------------------------------------------------------------------ the journal's contents

    async def _rewrite(self) -> None:
        """Rewrite the journal while the server runs. Writers of the tree wait meanwhile."""
        try:
            await self._run_in_thread(lambda: self._journal.rewrite(self._snapshot()))
        except OSError as error:
            logger.warning("%s is not rewritten: %s", self.path, error)
            self._journal.appended = 0  # as much again before the next attempt
            if self._journal.failure is not None:
                self._notify_watches(error)

    def _snapshot(self) -> Iterator[JournalChange]:
        """Yield all nodes that are not ephemeral, in the journal's format, parents first."""
        for path, node in self._tree.nodes.items():
            if not node.owner:
                data = node.data.decode("latin-1")
                yield [WHOLE_NODE, path, data, node.version, node.creation_id, node.next_sequence]

    def _redo_entry(self, changes: Sequence[JournalChange]) -> None:
        # Counted as in `Tree.apply`, or nodes would have other creation ids after a restart.
        self._tree.last_id += 1
        for change in changes:
            if change[0] == NEXT_MULTI:
                self._tree.last_id += 1
            else:
                self._redo(*change)

    def _redo(self, kind: int, path: str, data: str = "", *whole: int) -> None:
        content = data.encode("latin-1")
        if kind == WHOLE_NODE:  # first, because that is what nearly all of a journal is
            version, creation_id, next_sequence = whole
            node = TreeNode(content, creation_id, version=version)
            node.next_sequence = next_sequence
            self._tree.restore(path, node)
        elif kind == Kind.CREATED:
            self._tree.insert(path, TreeNode(content, self._tree.last_id))
        elif kind == Kind.SET:
            node = self._tree.nodes[path]
            node.data, node.version = content, node.version + 1
        else:
            self._tree.remove(path)


def _journalled(rehearsed: Sequence[Rehearsed]) -> list[JournalChange]:
    """Return the changes of `rehearsed` multis that must be persisted, in the journal's format."""
    entry: list[JournalChange] = []
    for each in rehearsed:
        changes = [] if isinstance(each, CoordinationError) else [one for one in each if not one.ephemeral]
        # Marks where a multi begins, because each has a transaction id of its own.
        if changes and entry:
            entry.append([NEXT_MULTI])
        entry += map(_journal_change, changes)
    return entry


def _journal_change(change: NodeChange) -> JournalChange:
    if change.kind is Kind.DELETED:
        return [int(change.kind), change.path]
    return [int(change.kind), change.path, change.data.decode("latin-1")]
