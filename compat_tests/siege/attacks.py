"""The attacks: what one or many hostile peers do to a broker, each bounded in time and bytes.

An attack gets the broker's address and returns when its peers have gone. It expects nothing of the answers: the broker may
answer, refuse or close the connection. What it does to everybody else is measured around it.
"""

import contextlib
import itertools
import random
import socket
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from compat_tests.siege.bombs import bombs
from compat_tests.siege.fillers import filled, framed, fullest, shapes, tag_section
from compat_tests.siege.subjects import SUBJECTS, TOPIC, Subject
from compat_tests.support import raw

from ottla.server.dispatch.dispatch import Route
from ottla.wire.compression import Compression, compress
from ottla.wire.messages.classic_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.delete_topics import DeleteTopicsRequest
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.wire.messages.offsets import OffsetFetchRequest
from ottla.wire.messages.produce import ProduceRequest

Address = tuple[str, int]

ANSWER_WITHIN_S = 20.0
MIB = 1 << 20
TOPICS = 2500  # the broker slices its answers about more than 2,000
LARGE_AT_ONCE = 600
SIZES = (MIB - 4096, 64 << 10)
# Requests that a peer may send in any number and that change the world for all: too slow to undo a hundred times.
ONE_PEER_EACH = ("JoinGroup",)


class Attack(NamedTuple):
    """`run(address)` carries it out. `api` is what it is aimed at."""

    api: str
    name: str
    run: Callable[[Address], None]

    def __str__(self) -> str:
        return f"{self.api}: {self.name}"


# --- peers ------------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def connected(address: Address) -> Iterator[socket.socket]:
    with socket.create_connection(address, timeout=ANSWER_WITHIN_S) as peer:
        yield peer


def exchange(address: Address, frames: Sequence[bytes]) -> None:
    """Send frames on one connection and read until all are answered, the broker closes, or it takes too long."""
    deadline = time.monotonic() + ANSWER_WITHIN_S
    with contextlib.suppress(OSError), connected(address) as peer:
        for frame in frames:
            peer.sendall(frame)
        answered = 0
        while answered < len(frames) and time.monotonic() < deadline:
            if not _skip_answer(peer):
                return
            answered += 1


def _skip_answer(peer: socket.socket) -> bool:
    header = b""
    while len(header) < 4:
        part = peer.recv(4 - len(header))
        if not part:
            return False
        header += part
    left = struct.unpack(">i", header)[0]
    while left:
        part = peer.recv(min(left, MIB))
        if not part:
            return False
        left -= len(part)
    return True


def _many(address: Address, count: int, first: bytes, *, half_close: bool, hold_s: float) -> None:
    """So many connections that each send something and then wait, or send nothing more, until the time is over."""
    with contextlib.ExitStack() as peers:
        opened = []
        for _ in range(count):
            with contextlib.suppress(OSError):
                peer = peers.enter_context(connected(address))
                peer.sendall(first)
                if half_close:
                    peer.shutdown(socket.SHUT_WR)
                opened.append(peer)
        time.sleep(hold_s)


# --- one request, as dear as it gets ----------------------------------------------------------------------------------


def of_route(
    route: Route, versions: Sequence[int], sizes: Sequence[int] = SIZES, subjects: Sequence[Subject] = SUBJECTS
) -> Iterator[Attack]:
    """Everything the declaration of one request suggests, in these versions."""
    for version in versions:
        for size_bytes in sizes:
            for subject in subjects:
                for shape in shapes(route.request_class, version):
                    yield _filled(route, version, subject, shape, size_bytes)
        if version in route.request_class.flexible:
            yield from _tags(route, version)
        yield _mutated(route, version)
        yield _pipelined(route, version)


def _filled(route: Route, version: int, subject: Subject, shape: str, size_bytes: int) -> Attack:
    def run(address: Address) -> None:
        body = filled(route.request_class, version, subject, shape, size_bytes)
        exchange(address, [framed(route.request_class, version, body)])

    return Attack(route.name, f"v{version} {size_bytes >> 10} KiB, {subject.name}, {shape}", run)


def fullest_of_route(route: Route, version: int) -> Iterator[Attack]:
    """As many elements as the broker accepts, of every kind and in every shape."""
    for subject in SUBJECTS:
        for shape in shapes(route.request_class, version):

            def run(address: Address, subject: Subject = subject, shape: str = shape) -> None:
                body = fullest(route.request_class, version, subject, shape)
                exchange(address, [framed(route.request_class, version, body)])

            yield Attack(route.name, f"v{version} as full as it may be, {subject.name}, {shape}", run)


def _tags(route: Route, version: int) -> Iterator[Attack]:
    request = route.request_class
    for place in ("header", "body"):
        for count, bytes_each in ((250_000, 0), (1, MIB - 8192), (1000, 900)):

            def run(address: Address, place: str = place, count: int = count, bytes_each: int = bytes_each) -> None:
                body = filled(request, version, SUBJECTS[0], "wide", 1)
                tags = tag_section(count, bytes_each)
                if place == "header":
                    frame = framed(request, version, body, header_tags=tags)
                else:
                    frame = framed(request, version, body[:-1] + tags)
                exchange(address, [frame])

            yield Attack(route.name, f"v{version} {count} tags of {bytes_each} bytes in the {place}", run)


def _mutated(route: Route, version: int) -> Attack:
    """Bytes overwritten by what counts and lengths must not be; the seed is the version, so that runs repeat."""

    def run(address: Address) -> None:
        dice = random.Random(f"{route.name} {version}")
        body = filled(route.request_class, version, SUBJECTS[0], "square", 2000)
        for _ in range(20):
            mutated = bytearray(framed(route.request_class, version, body))
            for _ in range(dice.randint(1, 4)):
                lie = dice.choice((b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\x80\0\0\0", b"\xff\xff\xff\xff\x07"))
                position = dice.randrange(8, len(mutated))
                mutated[position : position + len(lie)] = lie
            mutated[:4] = struct.pack(">i", len(mutated) - 4)
            _send_and_leave(address, bytes(mutated))

    return Attack(route.name, f"v{version} lengths and counts that lie", run)


def _send_and_leave(address: Address, frame: bytes) -> None:
    """A frame, and the first answer if it comes soon: most are refused, some wait for more."""
    with contextlib.suppress(OSError), connected(address) as peer:
        peer.settimeout(0.2)
        peer.sendall(frame)
        _skip_answer(peer)


def _pipelined(route: Route, version: int) -> Attack:
    def run(address: Address) -> None:
        body = filled(route.request_class, version, SUBJECTS[1], "wide", 1)
        frame = framed(route.request_class, version, body)
        exchange(address, [frame] * (20 if route.name in ONE_PEER_EACH else 1000))

    return Attack(route.name, f"v{version} a thousand at once", run)


# --- many peers -------------------------------------------------------------------------------------------------------


def of_many_peers(
    hold_s: float = 2.0, peers: int = 300, large_peers: int = LARGE_AT_ONCE, topics: int = TOPICS
) -> Iterator[Attack]:
    """What peers do that are not in a hurry: wait, leave half-way, never read. `topics` is how many some ask about."""
    poll = _long_poll()
    join = _join()
    half = struct.pack(">i", 90 * MIB) + bytes(100)
    for name, first in (("a long poll", poll), ("a join", join), ("half a frame", half), ("nothing", b"")):
        for half_close in (False, True):
            ending = "then closes its half" if half_close else "then is silent"

            def run(address: Address, first: bytes = first, half_close: bool = half_close) -> None:
                _many(address, peers, first, half_close=half_close, hold_s=hold_s)

            yield Attack("many peers", f"each sends {name}, {ending}", run)
    yield Attack(
        "many peers", "each asks for everything and never reads", lambda address: _unread(address, 50, hold_s, topics)
    )
    yield Attack("many peers", "each has a session of ten thousand partitions", lambda address: _sessions(address, 20))
    yield Attack("many peers", "each has topics come and go", lambda address: _come_and_go(address, 20, topics))
    yield Attack("many peers", "each pipelines without a pause", lambda address: _pipelines(address, 30, topics))
    for name, frame in _large_frames():

        def push(address: Address, frame: bytes = frame) -> None:
            _all_at_once(address, large_peers, frame)

        yield Attack("many peers", f"each sends {name}", push)
    yield Attack(
        "many peers", "each sends a large frame byte by byte", lambda address: _drip(address, large_peers // 3, hold_s)
    )


def _long_poll() -> bytes:
    partition = FetchPartition(partition=0, fetch_offset=1 << 40, partition_max_bytes=MIB)
    request = FetchRequest(
        max_wait_ms=60_000, min_bytes=MIB, topics=[FetchTopic(topic="bystander", partitions=[partition])],
        max_bytes=MIB, isolation_level=0, session_epoch=-1,
    )  # fmt: skip
    return framed(FetchRequest, 11, request.encode(11))


def _join() -> bytes:
    protocol = JoinGroupRequestProtocol(name="range", metadata=bytes(1000))
    request = JoinGroupRequest(
        group_id="siege-joins", session_timeout_ms=30_000, rebalance_timeout_ms=60_000, member_id="",
        protocol_type="consumer", protocols=[protocol],
    )  # fmt: skip
    return framed(JoinGroupRequest, 3, request.encode(3))


def _make_topics(address: Address, count: int) -> None:
    """Have so many topics that an answer about all of them is long."""
    exchange(address, [_create_topics([f"many-{number}" for number in range(count)])])


def _create_topics(names: Sequence[str]) -> bytes:
    topics = [
        CreatableTopic(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[]) for name in names
    ]
    return framed(CreateTopicsRequest, 4, CreateTopicsRequest(topics=topics, timeout_ms=60_000).encode(4))


def _come_and_go(address: Address, count: int, topics: int) -> None:
    """Each peer has some topics created by asking for them, creates as many others, and deletes them all."""
    with contextlib.ExitStack() as peers:
        opened = [peers.enter_context(connected(address)) for _ in range(count)]
        for number, peer in enumerate(opened):
            names = [f"peer-{number}-{index}" for index in range(topics // count)]
            others = [f"{name}-c" for name in names]
            wanted = MetadataRequest(
                topics=[MetadataRequestTopic(name=name) for name in names], allow_auto_topic_creation=True
            )
            peer.sendall(framed(MetadataRequest, 9, wanted.encode(9)))
            peer.sendall(_create_topics(others))
            deleted = DeleteTopicsRequest(topic_names=[*names, *others], timeout_ms=60_000)
            peer.sendall(framed(DeleteTopicsRequest, 3, deleted.encode(3)))
        for peer in opened:
            with contextlib.suppress(OSError):
                for _ in range(3):
                    _skip_answer(peer)


def _unread(address: Address, count: int, hold_s: float, topics: int) -> None:
    _make_topics(address, topics)
    request = MetadataRequest(topics=None)
    asked = framed(MetadataRequest, 12, request.encode(12)) * 200
    with contextlib.ExitStack() as peers:
        for _ in range(count):
            with contextlib.suppress(OSError):
                peer = peers.enter_context(connected(address))
                peer.setblocking(False)
                peer.send(asked)
                peer.send(raw.fetch("bystander", max_bytes=50 << 20) * 50)
        time.sleep(hold_s)


def _sessions(address: Address, count: int) -> None:
    partitions = [FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1) for index in range(10_000)]
    request = FetchRequest(
        max_wait_ms=0, min_bytes=0, max_bytes=1, isolation_level=0, session_id=0, session_epoch=0,
        topics=[FetchTopic(topic=TOPIC, partitions=partitions)],
    )  # fmt: skip
    frame = framed(FetchRequest, 11, request.encode(11))
    for _ in range(count):
        exchange(address, [frame])


def _pipelines(address: Address, count: int, topics: int) -> None:
    _make_topics(address, topics)
    body = MetadataRequest(topics=None).encode(9)
    frames = framed(MetadataRequest, 9, body) * 500
    with contextlib.ExitStack() as peers:
        opened = [peers.enter_context(connected(address)) for _ in range(count)]
        for peer in opened:
            peer.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                peer.send(frames)
        deadline = time.monotonic() + 3
        while time.monotonic() < deadline:
            for peer in opened:
                with contextlib.suppress(BlockingIOError, ConnectionError):
                    peer.recv(MIB)
            time.sleep(0.001)


def _large_frames() -> Iterator[tuple[str, bytes]]:
    """A MiB that takes the broker longer to look at than to receive."""
    noise = random.Random(1).randbytes(1000 * 1000)
    batch = raw.batch(raw.record(noise), compress=partial(compress, Compression.GZIP), codec=int(Compression.GZIP))
    yield "a compressed batch of a MiB", raw.produce(TOPIC, batch)
    request = OffsetFetchRequest
    body = filled(request, request.versions.last, SUBJECTS[-1], "wide", SIZES[0])
    yield "a large OffsetFetch", framed(request, request.versions.last, body)


def _all_at_once(address: Address, count: int, frame: bytes) -> None:
    """Send as fast as it is taken; the answers are not waited for long."""
    rest: dict[socket.socket, memoryview] = {}
    with contextlib.ExitStack() as peers:
        for _ in range(count):
            peer = peers.enter_context(connected(address))
            peer.setblocking(False)
            rest[peer] = memoryview(frame)
        deadline = time.monotonic() + ANSWER_WITHIN_S
        while rest and time.monotonic() < deadline:
            for peer in list(rest):
                try:
                    rest[peer] = rest[peer][peer.send(rest[peer]) :]
                except BlockingIOError:
                    continue
                except OSError:
                    rest[peer] = memoryview(b"")
                if not rest[peer]:
                    del rest[peer]
            time.sleep(0.001)


def _drip(address: Address, count: int, hold_s: float) -> None:
    """The beginnings of very large frames, all together more than there is room for, and then a byte now and then."""
    with contextlib.ExitStack() as peers:
        opened = [peers.enter_context(connected(address)) for _ in range(count)]
        for peer in opened:
            peer.setblocking(False)
            peer.send(struct.pack(">ihh", 90 * MIB, 0, 8))
        deadline = time.monotonic() + hold_s
        for turn in itertools.count():
            for peer in opened:
                with contextlib.suppress(OSError):
                    peer.send(bytes(MIB // 4 if turn < 6 else 1))
            if time.monotonic() > deadline:
                return
            time.sleep(0.05)


# --- records ----------------------------------------------------------------------------------------------------------


def of_records() -> Iterator[Attack]:
    """Produce requests whose records are dear to look at."""
    for bomb in bombs():

        def run(address: Address, batch: bytes = bomb.batch, copies: int = bomb.copies) -> None:
            exchange(address, [raw.produce(TOPIC, batch)] * copies)

        yield Attack(ProduceRequest.__name__.removesuffix("Request"), bomb.name, run)
