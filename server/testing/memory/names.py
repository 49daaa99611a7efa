"""Names of files in memory: the tree of a storage, changes of it that reach the disk later, and its snapshots."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from ottla.server.testing.memory.contents import EMPTY, Contents, FrozenContents


class FrozenFile(NamedTuple):
    """A file in a snapshot."""

    contents: FrozenContents
    modified_ms: int


FrozenDirectory = Mapping[str, "FrozenFile | FrozenDirectory"]


class StorageSnapshot(NamedTuple):
    """All files of a `MemoryStorage` at one moment, by names below the root."""

    root: FrozenDirectory

    def files(self) -> Iterator[tuple[str, FrozenFile]]:
        """Yield the path of each file and the file, in the order of the paths."""
        yield from _frozen_files("", self.root)

    def with_files(self, files: Mapping[str, bytes], modified_ms: int) -> StorageSnapshot:
        """Return a snapshot that also has `files`, by their paths; their directories must be there."""
        root = dict(self.root)
        copies: dict[str, dict[str, FrozenFile | FrozenDirectory]] = {"": root}
        for path, data in files.items():
            directory, _, name = path.rpartition("/")
            _copied_directory(directory, copies)[name] = FrozenFile(FrozenContents.of(data), modified_ms)
        return StorageSnapshot(root)


def _copied_directory(
    path: str, copies: dict[str, dict[str, FrozenFile | FrozenDirectory]]
) -> dict[str, FrozenFile | FrozenDirectory]:
    """Return the directory at `path` of `copies`, which are the directories of a snapshot that may be changed."""
    if (copy := copies.get(path)) is None:
        above, _, name = path.rpartition("/")
        parent = _copied_directory(above, copies)
        found = parent[name]
        assert not isinstance(found, FrozenFile), path
        copy = copies[path] = dict(found)
        parent[name] = copy
    return copy


def _frozen_files(path: str, directory: FrozenDirectory) -> Iterator[tuple[str, FrozenFile]]:
    for name, node in sorted(directory.items()):
        if isinstance(node, FrozenFile):
            yield f"{path}/{name}", node
        else:
            yield from _frozen_files(f"{path}/{name}", node)


class File:
    """A file, as the process sees it and as the disk has it."""

    __slots__ = ("cold_pages", "data", "has_lost_writes", "modified_ms", "path", "synced")

    def __init__(self, path: str, contents: FrozenContents = EMPTY, modified_ms: int = 0) -> None:
        self.path = path  # that the process knows, or has known last
        self.data = Contents(contents)
        self.synced = contents  # what a power cut leaves for certain
        self.has_lost_writes = False
        self.modified_ms = modified_ms
        self.cold_pages: frozenset[int] = frozenset()

    def copy(self) -> File:
        copy = File(self.path, self.data.freeze(), self.modified_ms)
        copy.synced, copy.has_lost_writes = self.synced, self.has_lost_writes
        return copy

    def set(self, data: bytes | bytearray) -> None:
        """Let the process and the disk see these contents."""
        self.synced = FrozenContents.of(bytes(data))
        self.data = Contents(self.synced)


Names = dict[str, "File | Names"]  # in a directory; a directory in it is another such dictionary


# Changes of names are objects, so that they can be made twice: at once for the process, and for the disk at a sync. A
# parent that is missing is on another volume, which is there after any power cut.
class Put(NamedTuple):
    """A new file, or a new directory if `file` is None: the process and the disk have dictionaries of their own."""

    path: str
    file: File | None

    def apply(self, root: Names) -> None:
        names, name = _place(root, self.path)
        names[name] = {} if self.file is None else self.file


class Rename(NamedTuple):
    """Another name, or another directory, of a file or directory."""

    path: str
    new_path: str

    def apply(self, root: Names) -> None:
        names, name = _place(root, self.path)
        if (node := names.pop(name, None)) is not None:
            names, name = _place(root, self.new_path)
            names[name] = node


class Remove(NamedTuple):
    """The end of a name."""

    path: str

    def apply(self, root: Names) -> None:
        names, name = _place(root, self.path)
        names.pop(name, None)


Change = Put | Rename | Remove


def _place(root: Names, path: str) -> tuple[Names, str]:
    """Return the names in the parent of `path`, which is made if it is missing, and the last name of `path`."""
    *parents, last = path.strip("/").split("/")
    for name in parents:
        below = root.setdefault(name, {})
        root = below if isinstance(below, dict) else {}
    return root, last


def node_at(root: Names, path: str) -> File | Names | None:
    """Return the file, or the names in the directory, at `path`; None if nothing is there."""
    node: Any = root
    try:
        for name in path.strip("/").split("/"):
            node = node[name]
    except (KeyError, TypeError):  # nothing has this name, or a file is in the place of a directory
        return None if path != "/" else root
    found: File | Names = node
    return found


def files_in(path: str, names: Names) -> Iterator[tuple[str, File]]:
    """Yield the path of each file below the directory at `path`, and the file."""
    for name, node in list(names.items()):
        if isinstance(node, dict):
            yield from files_in(f"{path}/{name}", node)
        else:
            yield f"{path}/{name}", node


def copied_names(names: Names, of_file: Callable[[File], File] = lambda file: file) -> Names:
    """Return dictionaries of their own with the same names, and the files that `of_file` returns."""
    return {
        name: copied_names(node, of_file) if isinstance(node, dict) else of_file(node) for name, node in names.items()
    }


def frozen_names(names: Names) -> FrozenDirectory:
    """Return a snapshot of a directory, without a copy of bytes."""
    return {
        name: frozen_names(node) if isinstance(node, dict) else FrozenFile(node.data.freeze(), node.modified_ms)
        for name, node in list(names.items())
    }


def thawed_names(path: str, directory: FrozenDirectory) -> Names:
    """Return the names and files of a directory at `path` that is as in a snapshot."""
    return {
        name: File(f"{path}/{name}", *node) if isinstance(node, FrozenFile) else thawed_names(f"{path}/{name}", node)
        for name, node in directory.items()
    }
