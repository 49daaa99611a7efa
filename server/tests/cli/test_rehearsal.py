"""The overlay behaves as a disk does, and the disk stays as it was."""

import os
import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.replication.log.storage import OsStorage, Storage
from ottla.server.cli.inspection.rehearsal import Change, OverlayStorage
from ottla.wire.tests.effort import examples

NAMES = st.sampled_from(["a", "b", "c", "d/a", "d/b", "e"])
DATA = st.binary(max_size=12)
OPERATIONS = st.one_of(
    st.tuples(st.just("write"), NAMES, DATA),
    st.tuples(st.just("replace"), NAMES, DATA),
    st.tuples(st.just("append"), NAMES, DATA),
    st.tuples(st.just("truncate"), NAMES, st.integers(0, 12)),
    st.tuples(st.just("remove"), NAMES),
    st.tuples(st.just("remove_tree"), st.sampled_from(["d", "e"])),
    st.tuples(st.just("make_directory"), st.sampled_from(["d", "e"])),
    st.tuples(st.just("rename"), st.sampled_from(["a", "b", "d/a"]), st.sampled_from(["b", "c", "d/b"])),
    st.tuples(st.just("rename"), st.just("d"), st.just("e")),
)


def filled(folder: Path) -> Path:
    (folder / "d").mkdir(parents=True)
    for name, data in (("a", b"of a"), ("b", b"of b, longer"), ("d/a", b"of d/a")):
        (folder / name).write_bytes(data)
    return folder


def apply(storage: Storage, folder: str, operation: tuple) -> str | None:
    """Do it; the name of the error that comes of it."""
    what, name, *rest = operation
    path = f"{folder}/{name}"
    try:
        if what == "append":
            storage.open(path, create=True).append(rest[0])
        elif what == "truncate":
            file = storage.open(path)
            if rest[0] <= file.size():
                file.truncate(rest[0])
        elif what == "rename":
            # What a start never does, and what systems differ in.
            if storage.is_directory(path) and storage.exists(f"{folder}/{rest[0]}"):
                return None
            storage.rename(path, f"{folder}/{rest[0]}")
        elif what in ("write", "replace", "remove") and storage.is_directory(path):
            return None
        else:
            getattr(storage, what)(path, *rest)
    except OSError as error:
        return type(error).__name__
    return None


def contents(storage: Storage, folder: str) -> dict[str, bytes | None]:
    found: dict[str, bytes | None] = {}
    for name in storage.names(folder):
        path = f"{folder}/{name}"
        if storage.is_directory(path):
            found[name] = None
            found |= {f"{name}/{inner}": data for inner, data in contents(storage, path).items()}
        else:
            assert storage.size(path) == len(storage.read(path))
            found[name] = storage.read(path)
    return found


@settings(max_examples=examples(40), deadline=None)
@given(st.lists(OPERATIONS, max_size=12))
def test_it_does_what_a_disk_does(tmp_path_factory, operations):
    base = tmp_path_factory.mktemp("both", numbered=True)
    real, looked_at = filled(base / "real"), filled(base / "looked_at")
    disk, overlay = OsStorage(), OverlayStorage()
    before = contents(disk, str(looked_at))
    for operation in operations:
        assert apply(disk, str(real), operation) == apply(overlay, str(looked_at), operation), operation
    after = contents(disk, str(real))
    assert contents(overlay, str(looked_at)) == after
    assert contents(disk, str(looked_at)) == before
    assert {os.path.relpath(path, looked_at) for path, _ in overlay.walk(str(looked_at))} == set(after)
    if after == before:
        assert {each.kind for each in overlay.changes()} <= {"renamed", "removed"}  # there and back again
    shutil.rmtree(base)


def test_changes_say_what_is_different(tmp_path: Path) -> None:
    folder, storage = str(filled(tmp_path)), OverlayStorage()
    storage.open(f"{folder}/a").truncate(2)
    storage.write(f"{folder}/b", b"other")
    storage.rename(f"{folder}/d", f"{folder}/e")
    storage.write(f"{folder}/c", b"new")
    assert storage.changes() == [
        Change("created", f"{folder}/c", None, 3),
        Change("cut", f"{folder}/a", 4, 2),
        Change("renamed", f"{folder}/e", source=f"{folder}/d"),
        Change("rewritten", f"{folder}/b", 12, 5),
    ]
    again = OverlayStorage()
    again.write(f"{folder}/b", b"of b, longer")
    again.open(f"{folder}/a").append(b"")
    assert again.changes() == []


def test_large_writes_take_no_memory_and_read_back(tmp_path: Path) -> None:
    storage = OverlayStorage()
    first, second = (storage.open(f"{tmp_path}/{name}", create=True) for name in "ab")
    for number in range(200):
        first.append(bytes([number]) * 5000)
        second.append(bytes([255 - number]) * 3000)
    assert first.read_at(4999, 2) == b"\0\1"
    assert first.read_at(0, 10**9) == b"".join(bytes([each]) * 5000 for each in range(200))
    second.truncate(3001)
    second.append(b"!")
    assert second.read_at(2999, 10) == b"\xff\xfe!"
    with pytest.raises(OSError, match="looked at"):
        first.fileno()
