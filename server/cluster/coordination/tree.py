"""A tree of versioned nodes in memory, and who watches it: what the adapters in process are made of.

Paths are as in ZooKeeper; the root is called "/" or "" and kept as "". A multi either happens whole, and then the tree
tells what changed, or raises and changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from ottla.replication.cluster.coordination import (
    ANY_VERSION,
    BadVersion,
    Check,
    CoordinationError,
    Create,
    Delete,
    Node,
    NodeExists,
    NoNode,
    NotEmpty,
    OnChange,
    Operation,
    SetData,
)
from ottla.wire.errors import bare

Result = str | int | None
Watched = tuple[str, str]  # "node" or "children", and the path


class Kind(IntEnum):
    CREATED = 0
    SET = 1
    DELETED = 2


class NodeChange(NamedTuple):
    """Change of one node by an applied operation. A `Check` operation makes a `NodeChange` that changes nothing."""

    kind: Kind
    path: str
    data: bytes
    ephemeral: bool


Rehearsed = list[NodeChange] | CoordinationError  # what a multi would change, or why it cannot be done


class EndSession:
    """Operation that deletes all ephemeral nodes of the requesting session. It always succeeds."""

    __slots__ = ()


TreeOperation = Operation | EndSession
Multi = tuple[Sequence[TreeOperation], int]
"""Operations, and the session that requests them."""


class TreeNode:
    """Node of the coordination tree. `owner`: session id of an ephemeral node, 0 for all other nodes."""

    __slots__ = ("children", "creation_id", "data", "next_sequence", "owner", "version")

    def __init__(self, data: bytes, creation_id: int, *, owner: int = 0, version: int = 0) -> None:
        self.data, self.version = data, version
        self.creation_id, self.owner = creation_id, owner
        self.next_sequence = 0
        self.children: dict[str, None] | None = None  # most nodes are leaves

    def seen(self) -> Node:
        return Node(self.data, self.version, self.creation_id, self.owner)

    def add_child(self, name: str) -> None:
        if self.children is None:
            self.children = {}
        self.children[name] = None


INCARNATION_BITS = 32  # of a transaction's number, below the number of its incarnation


class Tree:
    """Coordination tree in memory: the nodes by path, parents before children, and the last transaction's number.

    If other processes use the tree, each opening begins an *incarnation*, with numbers above all earlier ones.
    Otherwise numbers, which serve as broker epochs, could repeat: the journal omits transactions of ephemeral nodes.
    """

    def __init__(self) -> None:
        self.nodes: dict[str, TreeNode] = {"": TreeNode(b"", 0)}
        self.last_id = 0

    def begin_incarnation(self) -> None:
        """Begin an incarnation with higher transaction numbers. The caller must then write its number to the root."""
        # Kept with the root, which has no other use for it: so the journal's format stays, and no node has to be added.
        self.last_id = self.nodes[""].creation_id = ((self.last_id >> INCARNATION_BITS) + 1) << INCARNATION_BITS

    @property
    def incarnation(self) -> int:
        """Number of the last recorded incarnation; 0 if other processes have never used the tree."""
        return self.nodes[""].creation_id >> INCARNATION_BITS

    @property
    def was_served(self) -> bool:
        return self.last_id >> INCARNATION_BITS > 0

    # ------------------------------------------------------------------ reads

    def node(self, path: str) -> TreeNode:
        node = self.nodes.get(key_of(path))
        if node is None:
            raise NoNode(path)
        return node

    def get(self, path: str) -> Node:
        return self.node(path).seen()

    def get_all(self, paths: Sequence[str]) -> list[Node | None]:
        found = (self.nodes.get(key_of(path)) for path in paths)
        return [None if each is None else each.seen() for each in found]

    def children(self, path: str) -> list[str]:
        return list(self.node(path).children or ())

    def children_data(self, path: str) -> Mapping[str, Node]:
        parent = key_of(path)
        return {name: self.nodes[f"{parent}/{name}"].seen() for name in self.node(path).children or ()}

    def owned_by(self, session_id: int) -> list[str]:
        """Return the paths of a session's ephemeral nodes."""
        return [path for path, node in self.nodes.items() if node.owner == session_id]

    # ------------------------------------------------------------------ writes

    def apply(self, operations: Sequence[TreeOperation], session_id: int) -> tuple[list[Result], list[NodeChange]]:
        """Apply all operations of a session and return the results and the changes. On an error nothing is applied."""
        return self._apply(operations, session_id, [])

    def rehearse(self, multis: Iterable[Multi]) -> list[Rehearsed]:
        """Compute the changes or the error of each multi in sequence, without changing the tree."""
        undo: list[Callable[[], None]] = []
        last_id = self.last_id
        rehearsed: list[Rehearsed] = []
        try:
            for operations, session_id in multis:
                try:
                    rehearsed.append(self._apply(operations, session_id, undo)[1])
                except CoordinationError as error:
                    rehearsed.append(bare(error))
        # Whatever happens, readers must find the tree as it was.
        finally:
            _take_back(undo, 0)
            self.last_id = last_id
        return rehearsed

    def _apply(
        self, operations: Sequence[TreeOperation], session_id: int, undo: list[Callable[[], None]]
    ) -> tuple[list[Result], list[NodeChange]]:
        changes: list[NodeChange] = []
        already = len(undo)  # what earlier multis of a rehearsal did stays
        # One id for the whole multi, as in ZooKeeper. A multi that fails uses none up.
        self.last_id += 1
        try:
            results = [self._apply_one(operation, session_id, undo, changes) for operation in operations]
        except Exception:
            _take_back(undo, already)
            self.last_id -= 1
            raise
        return results, changes

    def _apply_one(
        self, operation: TreeOperation, session_id: int, undo: list[Callable[[], None]], changes: list[NodeChange]
    ) -> Result:
        match operation:
            case Create():
                path = self._create(operation, session_id, undo)
                changes.append(NodeChange(Kind.CREATED, path, operation.data, operation.ephemeral))
                return path
            case SetData(path, data, version):
                node = self._expect(path, version)
                undo.append(_restorer(node))
                node.data, node.version = data, node.version + 1
                changes.append(NodeChange(Kind.SET, path, data, node.owner != 0))
                return node.version
            case Delete(path, version):
                node = self._expect(path, version)
                undo.append(self._delete(path, node))
                changes.append(NodeChange(Kind.DELETED, path, b"", node.owner != 0))
            case Check(path, version):
                self._expect(path, version)
            case EndSession():
                for path in self.owned_by(session_id):
                    undo.append(self._delete(path, self.nodes[path]))
                    changes.append(NodeChange(Kind.DELETED, path, b"", True))
        return None

    def _expect(self, path: str, version: int) -> TreeNode:
        node = self.node(path)
        if version not in (ANY_VERSION, node.version):
            raise BadVersion(path)
        return node

    def _create(self, operation: Create, session_id: int, undo: list[Callable[[], None]]) -> str:
        parent_path, _, name = operation.path.rpartition("/")
        parent = self.node(parent_path)
        if parent.owner:  # ephemeral nodes have no children, as in ZooKeeper
            raise NotEmpty(parent_path)
        if operation.sequential:
            # ZooKeeper's ten digits: so names sort in the order in which their nodes were made.
            name = f"{name}{parent.next_sequence:010d}"
        path = f"{parent_path}/{name}"
        if path in self.nodes:
            raise NodeExists(path)
        self.insert(path, TreeNode(operation.data, self.last_id, owner=session_id if operation.ephemeral else 0))
        undo.append(lambda: self._uncreate(path))
        return path

    def _uncreate(self, path: str) -> None:
        self.remove(path)
        self.nodes[path.rpartition("/")[0]].next_sequence -= 1

    def insert(self, path: str, node: TreeNode) -> None:
        parent_path, _, name = path.rpartition("/")
        parent = self.nodes[parent_path]
        parent.add_child(name)
        parent.next_sequence += 1
        self.nodes[path] = node  # after its parent, which keeps `nodes` in an order that a journal can replay

    def restore(self, path: str, node: TreeNode) -> None:
        """Insert a node read from a rewritten journal."""
        self.nodes[path] = node
        if path:
            parent_path, _, name = path.rpartition("/")
            self.nodes[parent_path].add_child(name)
        # The next transaction needs an id that no node has.
        self.last_id = max(self.last_id, node.creation_id)

    def _delete(self, path: str, node: TreeNode) -> Callable[[], None]:
        if node.children:
            raise NotEmpty(path)
        self.remove(path)
        parent_path, _, name = path.rpartition("/")

        # It comes back as the last of `nodes`. That is still after
        # its parent, and it has no children that have to follow it.
        def undo() -> None:
            self.nodes[path] = node
            self.nodes[parent_path].add_child(name)

        return undo

    def remove(self, path: str) -> None:
        parent_path, _, name = path.rpartition("/")
        del self.nodes[path]
        siblings = self.nodes[parent_path].children
        assert siblings is not None
        del siblings[name]


class Watches:
    """Listeners for changes, by the watched node or by the node whose children are watched."""

    def __init__(self) -> None:
        self._listeners: dict[Watched, dict[object, OnChange]] = {}

    def __contains__(self, watched: Watched) -> bool:
        return watched in self._listeners

    def __iter__(self) -> Iterator[Watched]:
        return iter(list(self._listeners))

    def watch(self, kind: str, path: str, on_change: OnChange) -> Callable[[], None]:
        """Add a listener; return a function that removes it."""
        watched = (kind, key_of(path))
        token = object()
        self._listeners.setdefault(watched, {})[token] = on_change

        def cancel() -> None:
            listeners = self._listeners.get(watched, {})
            listeners.pop(token, None)
            if not listeners:
                self._listeners.pop(watched, None)

        return cancel

    def call(self, concerned: Iterable[Watched]) -> None:
        # Without any listener there is nothing to look up, however much has changed.
        for watched in concerned if self._listeners else ():
            listeners = self._listeners.get(watched, {})
            for token, on_change in list(listeners.items()):
                if token in listeners:  # not if another listener has just cancelled it
                    on_change(watched[1])


def concerned_by(changes: Iterable[NodeChange]) -> Iterable[Watched]:
    """Return the watches that `changes` affect, each watch once."""
    found: dict[Watched, None] = {}
    for change in changes:
        found["node", change.path] = None
        if change.kind is not Kind.SET:
            found["children", change.path.rpartition("/")[0]] = None
    return found


def key_of(path: str) -> str:
    return "" if path == "/" else path


def _take_back(undo: list[Callable[[], None]], down_to: int) -> None:
    # Backwards, because each step rests on those before it.
    while len(undo) > down_to:
        undo.pop()()


def _restorer(node: TreeNode) -> Callable[[], None]:
    data, version = node.data, node.version

    def restore() -> None:
        node.data, node.version = data, version

    return restore
