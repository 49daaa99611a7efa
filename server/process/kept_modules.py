"""What a start imports is found and read in one file, which the start before has left.

For each module Python looks into the folders of `sys.path`, asks for the times of the source and reads the compiled file beside it.
For five hundred modules that is a quarter of a start. While `keeping_modules` lasts, a finder knows from a table where the source of
a module is and where in one file its code. It looks at the source, as Python does: another size or time of the last change, and the
module is imported as ever. So is one that the table does not have, and each that is found as ever is kept for the next start.

A module of a package is taken from the package's folder, if it has only one. One that is in no package is taken only if nothing that
comes earlier in `sys.path` has its name. In its own folder nothing may have come or gone, which could be imported in its place.
Finders that others have put before Python's own are asked first, and where others find files than Python's own nothing is taken.

Whatever is wrong with the file, a start goes on as if there were none, and leaves another one.
"""

from __future__ import annotations

import marshal
import os
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader, all_suffixes
from pathlib import Path
from types import CodeType, ModuleType
from typing import Final, NamedTuple
from zipimport import zipimporter

from ottla.server.process.finders import put_before, take_away
from ottla.wire.kept_files import Pieces, write_pieces

SECOND: Final = 1_000_000_000  # nanoseconds
MODULES_MAX: Final = 2_000  # in the file; if there are more, only what this process used is kept

_HEADER_BYTES: Final = (
    16  # of a compiled file: 4 of Python's magic number, 4 of flags, 4 of time and 4 of size (PEP 552)
)
_BY_TIME: Final = bytes(4)  # flags of one that is good as long as time and size of its source are the same


class Known(NamedTuple):
    """A module of the table: where it is, and when its source and the folder were changed last (nanoseconds since 1970)."""

    source: str
    compiled: str
    mtime: int
    size: int
    is_package: bool
    folder: str
    folder_mtime: int

    def is_as_before(self) -> bool:
        """Whether the source has not changed."""
        try:
            now = os.stat(self.source)
        except OSError:
            return False
        return _is_same_time(now.st_mtime_ns, self.mtime) and now.st_size == self.size


def _is_same_time(now: int, before: int) -> bool:
    # What has gone through an archive, as the files of images have, has lost what was less than a second.
    return now in (before, before - before % SECOND)


def _mtime(folder: str) -> int:
    """That of a folder, or -1."""
    try:
        return os.stat(folder).st_mtime_ns
    except OSError:
        return -1


class KeptModules:
    """A finder of modules; see the docstring above."""

    def __init__(self, pieces: Pieces, search_path: Sequence[str]) -> None:
        self._pieces = pieces
        known = {name: Known(*info) for name, info in pieces.table.items()}
        self._unusable = _hidden({name: each for name, each in known.items() if "." not in name}, search_path)
        """What another file is to be imported for, or the same one with other content."""
        self._known = known
        self._present = {*sys.modules}
        self._folders: dict[str, int] = {}
        """When each was changed last."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        known = self._known.get(name)
        if known is None or name in self._unusable:
            return None
        if not self._is_there(known, path) or (code := self._code(name, known.source)) is None:
            self._unusable.add(name)
            return None
        loader = _KeptLoader(name, known.source, code)
        spec = ModuleSpec(name, loader, origin=known.source, is_package=known.is_package)
        if spec.submodule_search_locations is not None:
            spec.submodule_search_locations.append(os.path.dirname(known.source))
        spec.has_location, spec.cached = True, known.compiled
        return spec

    def _is_there(self, known: Known, path: Sequence[str] | None) -> bool:
        """Whether Python would find it there, as it was. `path`: the folders of its package."""
        # Where a package has several, one that comes earlier may have something of this name by now.
        if path is not None and [*path] != [known.folder]:
            return False
        mtime = self._folders.get(known.folder)
        if mtime is None:
            mtime = self._folders[known.folder] = _mtime(known.folder)
        return _is_same_time(mtime, known.folder_mtime) and known.is_as_before()

    def _code(self, name: str, source: str) -> CodeType | None:
        """None: it is damaged, or was compiled elsewhere: then another path is in it, which Python would replace."""
        piece = self._pieces.read(name)
        if piece is None:
            return None
        try:
            code = marshal.loads(piece)  # as trustworthy as the .pyc files beside it
        except (EOFError, ValueError, TypeError):  # one of these was damaged when it was kept
            return None
        return code if isinstance(code, CodeType) and code.co_filename == source else None

    def write_news(self, path: Path, key: bytes) -> None:
        """Keep what was imported in another way, if that was compiled to a file."""
        names = sys.modules.keys() - self._present - (self._known.keys() - self._unusable)
        found = {name: each for name in names if (each := _compiled(name)) is not None} if names else {}
        # What this start may not take from the file may be in it all the same, for starts that may.
        if all(
            self._known.get(name) == known and self._pieces.read(name) == piece
            for name, (known, piece) in found.items()
        ):
            return
        kept = self._known.keys() - self._unusable
        if len(kept) + len(found) > MODULES_MAX:
            kept &= sys.modules.keys()
        old = {name: (self._known[name], piece) for name in kept if (piece := self._pieces.read(name)) is not None}
        write_pieces(path, key, {**old, **found})


class _KeptLoader(SourceFileLoader):
    """Python's own, which has the code of its module already. Whoever asks again gets it from the usual file."""

    def __init__(self, name: str, path: str, code: CodeType) -> None:
        super().__init__(name, path)
        self._code: CodeType | None = code

    def get_code(self, fullname: str) -> CodeType | None:
        code, self._code = self._code, None
        return super().get_code(fullname) if code is None else code


def _hidden(known: Mapping[str, Known], search_path: Sequence[str]) -> set[str]:
    """Those that something in the path hides, because it comes before their folder and has something of their name."""
    first: dict[str, str] = {}
    endings = ("", *all_suffixes())
    for place in search_path:
        if isinstance(place, str):  # Python passes over others
            for name in _names_in(place, known.keys(), endings):
                first.setdefault(name, place)
    return {name for name, each in known.items() if first.get(name) != each.folder}


def _names_in(folder: str, names: Collection[str], endings: Collection[str]) -> Collection[str]:
    """Which of these modules or packages are in a folder; all, if it may be an archive, or a place in one."""
    try:
        files = os.listdir(folder or os.curdir)
    except (FileNotFoundError, PermissionError):  # Python finds nothing there either
        return ()
    except (OSError, ValueError):
        return names
    parts = (each.partition(".") for each in files)
    return {name for name, dot, ending in parts if name in names and dot + ending in endings}


def _compiled(name: str) -> tuple[Known, bytes] | None:
    """Of a module that Python has compiled to a file; None: it has not, or that says something else than the source."""
    module = sys.modules[name]
    # Of another type are those that run when somebody asks for what is in them, and what is no module at all.
    spec = module.__spec__ if type(module) is ModuleType else None
    if spec is None or spec.name != name or not spec.cached:
        return None
    # Others of this kind may have changed what they have compiled.
    if not isinstance(spec.loader, SourceFileLoader) or type(spec.loader) not in (SourceFileLoader, _KeptLoader):
        return None
    source = spec.loader.path
    try:
        now = os.stat(source)
        with open(spec.cached, "rb") as file:
            content = file.read()
    except OSError:
        return None
    code = content[_HEADER_BYTES:]
    header = b"".join((int(each) & 0xFFFFFFFF).to_bytes(4, "little") for each in (now.st_mtime, now.st_size))
    # A file that was compiled elsewhere has another path in it.
    if content[4:_HEADER_BYTES] != _BY_TIME + header or os.fsencode(source) not in code:
        return None
    is_package = spec.submodule_search_locations is not None
    folder = os.path.dirname(os.path.dirname(source) if is_package else source)
    return Known(source, spec.cached, now.st_mtime_ns, now.st_size, is_package, folder, _mtime(folder)), code


def _are_files_found_as_usual() -> bool:
    """Whether Python's own look for what is in a folder, and nobody else comes first, who would change what is loaded."""
    hooks = sys.path_hooks[:2]
    return hooks[:1] == [zipimporter] and getattr(hooks[-1], "__name__", "") == "path_hook_for_FileFinder"


@contextmanager
def keeping_modules(path: Path | None) -> Iterator[None]:
    """See the module's docstring. `path`: the file; None: there is none, and nothing is kept."""
    if path is None or PathFinder not in sys.meta_path or not _are_files_found_as_usual():
        yield
        return
    # With the names, since an upgrade of Ottla leaves the file of the release before.
    key = f"{sys.version} {sys.flags.optimize} {Known._fields}".encode()
    with Pieces.of(path, key) as pieces:
        modules = KeptModules(pieces, sys.path)
        put_before(modules, PathFinder)
        try:
            yield
        finally:
            take_away(modules)
        if not sys.dont_write_bytecode and os.access(path.parent, os.W_OK):
            modules.write_news(path, key)
