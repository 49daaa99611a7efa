"""Frames and messages between a member and the holder of a served tree, over a Unix socket.

    frame      length of the rest, uint32 | kind, uint8 | number, uint32 | body
    text       length, uint32 | UTF-8               bytes: the same without a meaning       list: count, uint32 | each

The member asks; `number` is of its choice, and every answer has the number of its question. An answer may come in several
frames, all of which are PART but the last. Changed nodes are sent in a separate frame with number 0. Both sides are the
same version of the same program on the same machine, so that `VERSION` only has to keep others away.

| question        | body                                              | body of the answer (one frame or more)           |
|-----------------|---------------------------------------------------|--------------------------------------------------|
| HELLO           | version, session timeout in ms, last session's id | GREETED: session id, timeout in ms               |
| PROBE           |                                                   | DONE: nothing                                    |
| NODES           | list of paths                                     | for each a node, or that there is none           |
| CHILDREN        | path                                              | names, to the end of each frame                  |
| CHILDREN_DATA   | path                                              | names and nodes, to the end of each frame        |
| MULTI           | list of operations                                | for each its result                              |
| WATCH, UNWATCH  | "node" or "children", path                        | (none; CHANGED comes when it changes)            |

FAILED is the answer when there is none: what kind of error, and its path. Whatever does not fit raises `Malformed`, after
which the two can only part. `OPERATIONS_MAX` and the sizes bound what one question costs the holder.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple, TypeVar

from ottla.replication.cluster.coordination import (
    AccessDenied,
    BadVersion,
    Check,
    CoordinationError,
    CoordinationUnavailable,
    Create,
    Delete,
    Node,
    NodeExists,
    NoNode,
    NotEmpty,
    Operation,
    SessionExpired,
    SetData,
    TooLarge,
    WriteRefused,
)
from ottla.server.cluster.coordination.tree import Result, Watched

VERSION: Final = 1
HELLO, PROBE, NODES, CHILDREN, CHILDREN_DATA, MULTI, WATCH, UNWATCH = range(1, 9)
GREETED, PART, DONE, FAILED, CHANGED = range(101, 106)

REQUEST_BYTES_MAX: Final = 1 << 20  # as ZooKeeper takes; what is larger is refused by the member's own side
ANSWER_BYTES_MAX: Final = 64 << 20  # one frame of an answer; a node that a lone broker has written may be large
PART_BYTES: Final = 64 << 10  # of an answer, after which others get their turn
OPERATIONS_MAX: Final = 2_500  # in one multi, which is carried out in one step of the event loop
PATHS_MAX: Final = 500  # in one question for nodes

_SIZE: Final = struct.Struct(">I")
_HEAD: Final = struct.Struct(">IBI")
_REST: Final = struct.Struct(">BI")  # of the head, without the length
_BYTE: Final = struct.Struct(">B")
_LONG: Final = struct.Struct(">q")
_NODE: Final = struct.Struct(">qqqq")  # version, creation id, owner, created_ms
_HELLO: Final = struct.Struct(">Iqq")
_GREETED: Final = struct.Struct(">qq")

_CREATE, _SET, _DELETE, _CHECK = range(4)
_EPHEMERAL, _SEQUENTIAL = 1, 2
_NOTHING, _PATH, _VERSION = range(3)
_ERRORS: Final[tuple[type[CoordinationError], ...]] = (
    CoordinationUnavailable,
    NoNode,
    NodeExists,
    BadVersion,
    NotEmpty,
    SessionExpired,
    WriteRefused,
    AccessDenied,
    TooLarge,
)
_WATCHED: Final = ("node", "children")


class Malformed(Exception):
    """A frame or body violates this module's format."""


class Frame(NamedTuple):
    kind: int
    number: int
    body: bytes


class Frames:
    """Parser that splits received bytes into frames of at most `limit` bytes."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._rest = bytearray()

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Add received bytes and yield the frames that are complete. Raises Malformed."""
        rest, start = self._rest, 0
        rest += data
        try:
            while start + _SIZE.size <= len(rest):
                (size,) = _SIZE.unpack_from(rest, start)
                if not _REST.size <= size <= self._limit:
                    raise Malformed(f"a frame of {size} bytes")
                end = start + _SIZE.size + size
                if end > len(rest):
                    break
                kind, number = _REST.unpack_from(rest, start + _SIZE.size)
                yield Frame(kind, number, bytes(rest[start + _HEAD.size : end]))
                start = end
        finally:
            del rest[:start]


def frame(kind: int, number: int, body: bytes | bytearray = b"") -> bytes:
    """Encode a frame. `kind`: type of message; `number`: number of the request."""
    return _HEAD.pack(_REST.size + len(body), kind, number) + body


class Body:
    """Decoder of a frame's body. All methods raise Malformed."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._at = 0

    @property
    def is_at_end(self) -> bool:
        return self._at == len(self._content)

    def numbers(self, form: struct.Struct) -> tuple[int, ...]:
        if self._at + form.size > len(self._content):
            raise Malformed("it ends too early")
        found = form.unpack_from(self._content, self._at)
        self._at += form.size
        return found

    def byte(self) -> int:
        return self.numbers(_BYTE)[0]

    def long(self) -> int:
        return self.numbers(_LONG)[0]

    def count(self, limit: int) -> int:
        (count,) = self.numbers(_SIZE)
        if count > limit:
            raise Malformed(f"a list of {count}")
        return count

    def bytes(self) -> bytes:
        (size,) = self.numbers(_SIZE)
        start, self._at = self._at, self._at + size
        if self._at > len(self._content):
            raise Malformed("it ends too early")
        return self._content[start : self._at]

    def text(self) -> str:
        try:
            return self.bytes().decode()
        except UnicodeDecodeError:
            raise Malformed("no UTF-8") from None

    def path(self, *, may_be_root: bool) -> str:
        """Decode the path of a node. Raises Malformed if it is not a path that the tree accepts."""
        path = self.text()
        if path in ("", "/"):
            if may_be_root:
                return path
        elif path[0] == "/" and path[-1] != "/" and "//" not in path and "\0" not in path:
            return path
        raise Malformed("no path of a node")


def put(body: bytearray, content: bytes) -> None:
    """Append `content`, preceded by its length, to `body`."""
    body += _SIZE.pack(len(content))
    body += content


def texts(*several: str) -> bytes:
    """Encode texts, each preceded by its length."""
    body = bytearray()
    for text in several:
        put(body, text.encode())
    return bytes(body)


T = TypeVar("T")


def _whole(body: bytes, read: Callable[[Body], T]) -> T:
    """Decode a body that holds exactly one item, with `read`. Raises Malformed."""
    reader = Body(body)
    found = read(reader)
    if not reader.is_at_end:
        raise Malformed("something follows")
    return found


def _each(body: bytes, read: Callable[[Body], T]) -> list[T]:
    """Decode a body that holds any number of items, each with `read`. Raises Malformed."""
    reader, found = Body(body), list[T]()
    while not reader.is_at_end:
        found.append(read(reader))
    return found


def read_texts(body: bytes) -> list[str]:
    return _each(body, Body.text)


# --- questions --------------------------------------------------------------------------------------------------------


class Hello(NamedTuple):
    """First message of a client. `last_session`: its former session, which the server then ends; 0 for none."""

    timeout_ms: int
    last_session: int


def hello(asked: Hello) -> bytes:
    return _HELLO.pack(VERSION, *asked)


def read_hello(body: bytes) -> Hello:
    version, timeout_ms, last_session = _whole(body, lambda reader: reader.numbers(_HELLO))
    if version != VERSION or timeout_ms < 1:
        raise Malformed(f"version {version}, timeout {timeout_ms} ms")
    return Hello(timeout_ms, last_session)


def paths(several: Sequence[str]) -> bytes:
    return _SIZE.pack(len(several)) + texts(*several)


def read_paths(body: bytes) -> list[str]:
    return _whole(body, lambda reader: [reader.path(may_be_root=True) for _ in range(reader.count(PATHS_MAX))])


def read_path(body: bytes) -> str:
    return _whole(body, lambda reader: reader.path(may_be_root=True))


def watched(asked: Watched) -> bytes:
    what, path = asked
    return bytes([_WATCHED.index(what)]) + texts(path)


def read_watched(body: bytes) -> Watched:
    what, path = _whole(body, lambda reader: (reader.byte(), reader.path(may_be_root=True)))
    if what >= len(_WATCHED):
        raise Malformed(f"a watch of kind {what}")
    return _WATCHED[what], path


def operations(several: Sequence[Operation]) -> bytes:
    """Encode the body of a multi. Raises TooLarge if the body exceeds the server's limit."""
    body = bytearray(_SIZE.pack(len(several)))
    largest, largest_bytes = "", 0
    for each in several:
        before = len(body)
        _put_operation(body, each)
        if len(body) - before > largest_bytes:
            largest, largest_bytes = each.path, len(body) - before
    if len(body) + _REST.size > REQUEST_BYTES_MAX or len(several) > OPERATIONS_MAX:
        raise TooLarge(largest)
    return bytes(body)


def _put_operation(body: bytearray, operation: Operation) -> None:
    path = operation.path.encode()
    match operation:
        case Create(_, data, ephemeral, sequential):
            body += bytes([_CREATE, _EPHEMERAL * ephemeral | _SEQUENTIAL * sequential])
            put(body, path)
            put(body, data)
            return
        case SetData(_, data, _):
            body.append(_SET)
            put(body, path)
            put(body, data)
        case Delete() | Check():
            body.append(_DELETE if isinstance(operation, Delete) else _CHECK)
            put(body, path)
    body += _LONG.pack(operation.version)


def read_operations(body: bytes) -> list[Operation]:
    return _whole(body, lambda reader: [_read_operation(reader) for _ in range(reader.count(OPERATIONS_MAX))])


def _read_operation(reader: Body) -> Operation:
    match reader.byte():
        case 0:
            flags = reader.byte()
            if flags > _EPHEMERAL | _SEQUENTIAL:
                raise Malformed(f"flags {flags}")
            path, data = reader.path(may_be_root=False), reader.bytes()
            return Create(path, data, bool(flags & _EPHEMERAL), bool(flags & _SEQUENTIAL))
        case 1:
            return SetData(reader.path(may_be_root=False), reader.bytes(), reader.long())
        case 2:
            return Delete(reader.path(may_be_root=False), reader.long())
        case 3:
            return Check(reader.path(may_be_root=True), reader.long())
        case kind:
            raise Malformed(f"an operation of kind {kind}")


# --- answers ----------------------------------------------------------------------------------------------------------


class Greeted(NamedTuple):
    session_id: int
    timeout_ms: int


def greeted(answer: Greeted) -> bytes:
    return _GREETED.pack(*answer)


def read_greeted(body: bytes) -> Greeted:
    found = Greeted(*_whole(body, lambda reader: reader.numbers(_GREETED)))
    if found.session_id < 1 or found.timeout_ms < 1:
        raise Malformed(f"{found}")
    return found


def in_parts(items: Iterable[bytes]) -> Iterator[bytes]:
    """Group encoded items into frame bodies. If `items` is empty, yield one empty body."""
    part = bytearray()
    for item in items:
        if part and len(part) + len(item) > PART_BYTES:
            yield bytes(part)
            part.clear()
        part += item
    yield bytes(part)


def node(found: Node | None) -> bytes:
    if found is None:
        return b"\0"
    body = bytearray(b"\1")
    body += _NODE.pack(found.version, found.creation_id, found.owner, found.created_ms)
    put(body, found.data)
    return bytes(body)


def read_node(reader: Body) -> Node | None:
    match reader.byte():
        case 0:
            return None
        case 1:
            version, creation_id, owner, created_ms = reader.numbers(_NODE)
            return Node(reader.bytes(), version, creation_id, owner, created_ms)
        case flag:
            raise Malformed(f"flag {flag}")


def read_nodes(body: bytes) -> list[Node | None]:
    return _each(body, read_node)


def read_named_nodes(body: bytes) -> list[tuple[str, Node | None]]:
    return _each(body, lambda reader: (reader.text(), read_node(reader)))


def result(found: Result) -> bytes:
    match found:
        case str():
            return bytes([_PATH]) + texts(found)
        case int():
            return bytes([_VERSION]) + _LONG.pack(found)
    return bytes([_NOTHING])


def read_results(body: bytes) -> list[Result]:
    return _each(body, _read_result)


def _read_result(reader: Body) -> Result:
    match reader.byte():
        case 0:
            return None
        case 1:
            return reader.text()
        case 2:
            return reader.long()
        case kind:
            raise Malformed(f"a result of kind {kind}")


def failure(error: CoordinationError) -> bytes:
    return bytes([_ERRORS.index(type(error))]) + texts(error.path)


def read_failure(body: bytes) -> CoordinationError:
    kind, path = _whole(body, lambda reader: (reader.byte(), reader.text()))
    if kind >= len(_ERRORS):
        raise Malformed(f"an error of kind {kind}")
    return _ERRORS[kind](path)
