"""The messages of a served tree: what is written is read again, and whatever else comes is refused."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.replication.cluster.coordination import (
    BadVersion,
    Check,
    Create,
    Delete,
    Node,
    Operation,
    SetData,
    WriteRefused,
)
from ottla.server.cluster.coordination import messages
from ottla.server.cluster.coordination.messages import Body, Frames, Greeted, Hello, Malformed

LONGS = st.integers(-(2**63), 2**63 - 1)
NAMES = st.text(st.characters(exclude_characters="/\0", exclude_categories=("Cs",)), min_size=1)
PATHS = st.lists(NAMES, min_size=1, max_size=4).map(lambda names: "/" + "/".join(names))
OPERATIONS: st.SearchStrategy[Operation] = st.one_of(
    st.builds(Create, PATHS, st.binary(), st.booleans(), st.booleans()),
    st.builds(SetData, PATHS, st.binary(), LONGS),
    st.builds(Delete, PATHS, LONGS),
    st.builds(Check, PATHS, LONGS),
)
NODES = st.none() | st.builds(Node, st.binary(), LONGS, LONGS, LONGS, LONGS)
TEXTS = st.text(st.characters(exclude_categories=("Cs",)))
READERS: tuple[Callable[[bytes], Any], ...] = (
    messages.read_hello,
    messages.read_greeted,
    messages.read_paths,
    messages.read_path,
    messages.read_watched,
    messages.read_operations,
    messages.read_texts,
    messages.read_nodes,
    messages.read_named_nodes,
    messages.read_results,
    messages.read_failure,
)


@given(st.lists(OPERATIONS))
def test_operations_are_read_as_they_were_written(operations: list[Operation]) -> None:
    assert messages.read_operations(messages.operations(operations)) == operations


@given(st.lists(st.tuples(TEXTS, NODES)))
def test_nodes_are_read_as_they_were_written(nodes: list[tuple[str, Node | None]]) -> None:
    assert messages.read_nodes(b"".join(messages.node(node) for _, node in nodes)) == [node for _, node in nodes]
    named = b"".join(messages.texts(name) + messages.node(node) for name, node in nodes)
    assert messages.read_named_nodes(named) == nodes
    assert messages.read_texts(messages.texts(*[name for name, _ in nodes])) == [name for name, _ in nodes]


@given(st.lists(st.none() | TEXTS | LONGS))
def test_results_are_read_as_they_were_written(results: list[str | int | None]) -> None:
    assert messages.read_results(b"".join(map(messages.result, results))) == results


@given(st.lists(PATHS), LONGS, st.integers(1, 2**32 - 1))
def test_the_rest_is_read_as_it_was_written(paths: list[str], long: int, timeout_ms: int) -> None:
    assert messages.read_paths(messages.paths(paths)) == paths
    assert messages.read_watched(messages.watched(("children", "/a"))) == ("children", "/a")
    assert messages.read_hello(messages.hello(Hello(timeout_ms, long))) == Hello(timeout_ms, long)
    greeted = Greeted(abs(long) % 2**62 + 1, timeout_ms)
    assert messages.read_greeted(messages.greeted(greeted)) == greeted
    for error in (BadVersion("/a"), WriteRefused()):
        found = messages.read_failure(messages.failure(error))
        assert (type(found), found.path) == (type(error), error.path)


@pytest.mark.parametrize("read", READERS, ids=lambda read: read.__name__)
@given(st.binary(max_size=200) | st.lists(OPERATIONS, max_size=3).map(messages.operations))
def test_whatever_comes_is_read_or_refused(read: Callable[[bytes], Any], body: bytes) -> None:
    with contextlib.suppress(Malformed):
        read(body)


@given(st.lists(OPERATIONS, min_size=1, max_size=3), st.data())
def test_what_is_cut_short_or_goes_on_is_refused(operations: list[Operation], data: st.DataObject) -> None:
    body = messages.operations(operations)
    for other in (body[: data.draw(st.integers(0, len(body) - 1))], body + b"\0"):
        with pytest.raises(Malformed):
            messages.read_operations(other)


@pytest.mark.parametrize("path", ["", "/", "a", "a/b", "/a/", "//", "/a//b", "/a\0b"])
def test_what_no_node_can_be_called_is_refused(path: str) -> None:
    with pytest.raises(Malformed):
        messages.read_operations(messages.operations([SetData(path, b"")]))
    if path not in ("", "/"):
        with pytest.raises(Malformed):
            messages.read_path(messages.texts(path))


@given(st.lists(st.tuples(st.integers(0, 255), st.integers(0, 2**32 - 1), st.binary(max_size=50))), st.data())
def test_frames_arrive_in_any_pieces(sent: list[tuple[int, int, bytes]], data: st.DataObject) -> None:
    content, frames, found = b"".join(messages.frame(*each) for each in sent), Frames(100), []
    while content:
        size = data.draw(st.integers(1, len(content)))
        found += frames.feed(content[:size])
        content = content[size:]
    assert found == sent


@given(st.lists(st.binary(max_size=40)))
def test_any_stream_is_cut_or_refused_and_little_is_kept(pieces: list[bytes]) -> None:
    frames, limit = Frames(64), 64
    try:
        for piece in pieces:
            assert all(5 + len(frame.body) <= limit for frame in frames.feed(piece))
            assert len(frames._rest) < limit + 4
    except Malformed:
        pass


def test_an_answer_of_nothing_has_one_part() -> None:
    assert list(messages.in_parts([])) == [b""]
    assert list(messages.in_parts([b"a" * messages.PART_BYTES, b"b"])) == [b"a" * messages.PART_BYTES, b"b"]
    assert Body(b"").is_at_end
