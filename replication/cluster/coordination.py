"""The port to the coordination service: a tree of small versioned nodes, as ZooKeeper's.

Adapters are `server/cluster/coordination/embedded.py` (one broker, in process, a durable journal),
`server/cluster/coordination/zookeeper.py` (Apache ZooKeeper) and `server/testing/memory/coordination.py` (many brokers in one
process, for tests). What every adapter promises:

* A write is a `multi`: all of its operations happen or none does, and it is durable when the call returns. The first
  operation that cannot be done names the error; nothing is changed then.
* A node has a version, 0 when created and one more with every `SetData`. `SetData`, `Delete` and `Check` succeed only
  on the version they name; `ANY_VERSION` matches all. Every controller write checks the version of /controller_epoch,
  so that a controller that was replaced cannot write.
* One object is one session. Ephemeral nodes live as long as the session. When it ends, every call raises
  `SessionExpired`, for good: the owner makes a new object, and everybody starts again from what they read there.
* A session can end without this broker hearing of it, while it is cut off or was stopped. `session_sure_until` is the
  time before which that cannot have happened; a broker serves nothing that rests on its ephemeral nodes later than that.
* `CoordinationUnavailable` leaves open whether a write happened: read before writing again. Such a write is never
  done after a later read was answered, and never after the session.
* A watch is called on the event loop after a change that it concerns, until it is cancelled. It may be called once for
  several changes, and without one, so it says only where to look, never what happened. A change not yet visible to a read
  begun after the watch was set or called causes another call, which comes before any read that shows the change.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

ANY_VERSION = -1


class CoordinationError(Exception):
    """Error of the coordination service; its text names the node's path."""

    def __init__(self, path: str = "") -> None:
        super().__init__(path)
        self.path = path


class NoNode(CoordinationError):
    """Error raised if a node, or the parent of a node to create, does not exist."""


class NodeExists(CoordinationError):
    """Error raised if a node to create exists already."""


class BadVersion(CoordinationError):
    """Error raised if a node's version differs from the version that the operation requires."""


class NotEmpty(CoordinationError):
    """Error raised if a node with children is to be deleted, or an ephemeral node is to get a child."""


class SessionExpired(CoordinationError):
    """Error raised after the end of the session; the service deletes this broker's ephemeral nodes."""


class CoordinationUnavailable(CoordinationError):
    """Error raised if the service is unreachable or cannot store; a write may or may not have been applied."""


class WriteRefused(CoordinationUnavailable):
    """Error raised if the service has no room for a write, which was not applied and will not be."""


class AccessDenied(CoordinationError):
    """Error raised if the service denies this broker access, or cannot authenticate it."""


class TooLarge(CoordinationError):
    """Error raised if a multi exceeds the service's size limit (ZooKeeper: 1 MB with its default jute.maxbuffer)."""


class Node(NamedTuple):
    """A node's data, its version and the transaction that created the node.

    `owner` is the id of the session that owns an ephemeral node, else 0; it shows a client whether a creation with an
    unknown outcome was its own. `created_ms` is the creation time by the service's clock, 0 if it is not recorded.
    """

    data: bytes
    version: int
    creation_id: int
    owner: int = 0
    created_ms: int = 0


@dataclass(frozen=True, slots=True)
class Create:
    """Operation that creates a node below an existing node; a sequential node gets ten digits appended to its name."""

    path: str
    data: bytes = b""
    ephemeral: bool = False
    sequential: bool = False


@dataclass(frozen=True, slots=True)
class SetData:
    """Operation that replaces a node's data."""

    path: str
    data: bytes
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Delete:
    """Operation that deletes a node without children."""

    path: str
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Check:
    """Version check in a multi: the multi fails unless the node has this version."""

    path: str
    version: int


Operation = Create | SetData | Delete | Check

# ZooKeeper by default takes no request of more than about a megabyte, and a served tree no more than 2,500 operations.
BYTES_PER_MULTI = 256 * 1024
OPERATIONS_PER_MULTI = 1_000


def multis(operations: Iterable[Operation]) -> Iterator[list[Operation]]:
    """Split independent operations into multis small enough for every coordination service."""
    part: list[Operation] = []
    size = 0
    for operation in operations:
        more = 100 + len(operation.path) + len(getattr(operation, "data", b""))
        if part and (size + more > BYTES_PER_MULTI or len(part) == OPERATIONS_PER_MULTI):
            yield part
            part, size = [], 0
        part.append(operation)
        size += more
    if part:
        yield part


OnChange = Callable[[str], None]
OnSessionChange = Callable[[], None]


class Coordination(Protocol):
    """Coordination service of the controller and the brokers; the module's docstring lists its guarantees."""

    async def get(self, path: str) -> Node: ...

    async def get_all(self, paths: Sequence[str]) -> list[Node | None]:
        """Get many nodes in one call; the result is None for each missing node."""

    async def children(self, path: str) -> list[str]: ...

    async def children_data(self, path: str) -> Mapping[str, Node]:
        """Return all children of a node as nodes by name."""

    async def multi(self, operations: Sequence[Operation]) -> list[str | int | None]:
        """Apply all operations or none; return one result for each: a created path, a new version, or else None."""

    def watch_node(self, path: str, on_change: OnChange) -> Callable[[], None]:
        """Call `on_change` when the node is created, changed or deleted. Return a function that cancels the watch."""

    def watch_children(self, path: str, on_change: OnChange) -> Callable[[], None]:
        """Call `on_change` when a child of the node is created or deleted. Return a function that cancels the watch."""

    @property
    def session_id(self) -> int:
        """Id of this session; ephemeral nodes of the session have it as `Node.owner`."""

    @property
    def session_sure_until(self) -> float:
        """Time until which the session surely lasts, in s of `session_now`; each contact with the service extends it.

        A broker stops at this time, before the service can delete its ephemeral nodes.
        After the session's end the time is past.
        """

    def session_now(self) -> float:
        """Session clock in seconds: `trio.current_time()` plus the time that the machine was suspended."""

    def watch_session(self, on_change: OnSessionChange) -> Callable[[], None]:
        """Call `on_change` when the session becomes uncertain or certain again, or ends. Return a cancel function."""

    async def until_available(self) -> None:
        """Wait until the service answers calls. Raises SessionExpired, or CoordinationUnavailable if it never will."""
