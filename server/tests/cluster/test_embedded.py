import json
import struct
from pathlib import Path
from typing import Any

import pytest
import trio

from ottla.replication.cluster.coordination import (
    BadVersion,
    Check,
    Create,
    Delete,
    Node,
    NodeExists,
    NoNode,
    NotEmpty,
    SetData,
)
from ottla.server.cluster.coordination.embedded import JOURNAL_NAME, EmbeddedCoordination
from ottla.server.cluster.coordination.journal import VERSION, NewerJournal
from ottla.wire.checksum import crc32c


async def at_once(function: Any, *arguments: Any) -> Any:
    await trio.lowlevel.checkpoint()
    return function(*arguments)


def opened(directory: Path) -> EmbeddedCoordination:
    coordination = EmbeddedCoordination(directory, run_in_thread=at_once)
    coordination.open()
    return coordination


def tree(coordination: EmbeddedCoordination) -> dict[str, tuple[bytes, int, int, int]]:
    nodes = coordination._tree.nodes.items()
    return {path: (each.data, each.version, each.creation_id, each.next_sequence) for path, each in nodes}


async def test_a_multi_does_all_or_nothing(tmp_path: Path) -> None:
    coordination = opened(tmp_path)
    await coordination.multi([Create("/a", b"1"), Create("/b")])
    before = tree(coordination)
    with pytest.raises(BadVersion) as failure:
        await coordination.multi(
            [SetData("/a", b"2"), Delete("/b"), Create("/c"), Create("/c/d"), Check("/a", 0), Create("/e")]
        )
    assert failure.value.path == "/a"
    assert tree(coordination) == before
    assert sorted(await coordination.children("/")) == ["a", "b"]


async def test_versions_guard_writes(tmp_path: Path) -> None:
    coordination = opened(tmp_path)
    await coordination.multi([Create("/a", b"1")])
    assert await coordination.multi([SetData("/a", b"2", 0)]) == [1]
    with pytest.raises(BadVersion):
        await coordination.multi([SetData("/a", b"3", 0)])
    with pytest.raises(BadVersion):
        await coordination.multi([Delete("/a", 0)])
    assert await coordination.get("/a") == Node(b"2", 1, 1)


async def test_impossible_operations_name_the_path(tmp_path: Path) -> None:
    coordination = opened(tmp_path)
    await coordination.multi([Create("/a"), Create("/a/b"), Create("/e", ephemeral=True)])
    for operation, error, path in (
        (Create("/a"), NodeExists, "/a"),
        (Create("/x/y"), NoNode, "/x"),
        (Delete("/a"), NotEmpty, "/a"),
        (SetData("/x", b""), NoNode, "/x"),
        (Create("/e/f"), NotEmpty, "/e"),
    ):
        with pytest.raises(error) as failure:
            await coordination.multi([operation])
        assert failure.value.path == path
    with pytest.raises(NoNode):
        await coordination.get("/x")


async def test_sequential_nodes_are_numbered(tmp_path: Path) -> None:
    coordination = opened(tmp_path)
    await coordination.multi([Create("/q")])
    assert await coordination.multi([Create("/q/n_", sequential=True)] * 2) == ["/q/n_0000000000", "/q/n_0000000001"]


async def test_the_tree_comes_back_after_a_restart_without_ephemeral_nodes(tmp_path: Path) -> None:
    coordination = opened(tmp_path)
    await coordination.multi([Create("/a", bytes(range(256))), Create("/a/b"), Create("/a/n", sequential=True)])
    await coordination.multi([SetData("/a", b"x"), Create("/gone")])
    await coordination.multi([Delete("/gone"), Create("/here", ephemeral=True)])
    await coordination.multi([SetData("/a/b", "ä€".encode())])
    expected = {path: node for path, node in tree(coordination).items() if path != "/here"}
    coordination.close()
    for _ in range(2):  # from changes, then from whole nodes
        coordination = opened(tmp_path)
        found = tree(coordination)
        assert {path: node[:2] for path, node in found.items()} == {path: node[:2] for path, node in expected.items()}
        assert await coordination.multi([Create("/a/n", sequential=True)]) == [f"/a/n{expected['/a'][3]:010d}"]
        expected = tree(coordination)
        coordination.close()


async def test_a_torn_tail_is_dropped_and_what_was_answered_stays(tmp_path: Path) -> None:
    coordination = opened(tmp_path)
    await coordination.multi([Create("/a", b"1")])
    await coordination.multi([Create("/b", b"2")])
    coordination.close()
    journal = tmp_path / JOURNAL_NAME
    whole = journal.read_bytes()
    for cut in (1, 7, 15, 21):
        journal.write_bytes(whole[:-cut])
        coordination = opened(tmp_path)
        assert await coordination.children("/") == ["a"]
        await coordination.multi([Create("/c")])
        coordination.close()
        coordination = opened(tmp_path)
        assert await coordination.children("/") == ["a", "c"]
        coordination.close()
    journal.write_bytes(whole[:-3] + b"xyz")
    coordination = opened(tmp_path)
    assert await coordination.children("/") == ["a"]
    coordination.close()


def entry(changes: list[Any]) -> bytes:
    payload = json.dumps(changes, separators=(",", ":")).encode()
    return struct.pack(">II", len(payload), crc32c(payload)) + payload


@pytest.mark.parametrize("first", [[4, VERSION + 1], [4], [4, "1"], [4, 1, 1]])
async def test_a_journal_of_a_newer_ottla_is_left_as_it_is(tmp_path: Path, first: list[Any]) -> None:
    journal = tmp_path / JOURNAL_NAME
    content = entry([first, [9, "what this one does not know"]])
    journal.write_bytes(content)
    with pytest.raises(
        NewerJournal, match="was written by a newer Ottla, in version .*, and this one reads 1 and earlier"
    ) as told:
        opened(tmp_path)
    assert "\n" not in str(told.value)
    assert journal.read_bytes() == content


async def test_a_journal_without_a_version_is_read_and_gets_one(tmp_path: Path) -> None:
    journal = tmp_path / JOURNAL_NAME
    journal.write_bytes(entry([[0, "/a", "1"], [4], [0, "/b", "2"]]) + entry([[1, "/a", "3"]]))
    coordination = opened(tmp_path)
    expected = tree(coordination)
    assert {path: node[:3] for path, node in expected.items() if path} == {"/a": (b"3", 1, 1), "/b": (b"2", 0, 2)}
    coordination.close()
    assert journal.read_bytes()[8:].startswith(b"[[4,1],[3,")
    coordination = opened(tmp_path)
    assert tree(coordination) == expected
    coordination.close()


async def test_writers_that_wait_share_one_sync(tmp_path: Path) -> None:
    writes = []

    async def counted(function: Any, *arguments: Any) -> Any:
        writes.append(function.__name__)
        await trio.lowlevel.checkpoint()
        return function(*arguments)

    coordination = EmbeddedCoordination(tmp_path, run_in_thread=counted)
    coordination.open()
    async with trio.open_nursery() as nursery:
        for number in range(50):
            nursery.start_soon(coordination.multi, [Create(f"/{number}")])
    assert len(writes) <= 2
    coordination.close()
    assert len(await opened(tmp_path).children("/")) == 50


async def test_the_journal_is_compacted_when_it_is_mostly_garbage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ottla.server.cluster.coordination.embedded.GARBAGE_MIN", 50)
    coordination = opened(tmp_path)
    await coordination.multi([Create("/a")])
    sizes = set()
    for number in range(300):
        await coordination.multi([SetData("/a", str(number).encode() * 20)])
        sizes.add((tmp_path / JOURNAL_NAME).stat().st_size)
    assert max(sizes) < 60 * 120
    coordination.close()
    assert (await opened(tmp_path).get("/a"))[:2] == (b"299" * 20, 300)


async def test_watches_are_called_after_the_change_until_cancelled(tmp_path: Path) -> None:
    coordination = opened(tmp_path)
    seen: list[str] = []
    cancel = coordination.watch_children("", seen.append)
    coordination.watch_node("/a", seen.append)
    await coordination.multi([Create("/a")])
    await coordination.multi([SetData("/a", b"1")])
    await coordination.multi([Create("/a/b")])
    cancel()
    await coordination.multi([Create("/c")])
    assert seen == ["/a", "", "/a"]
