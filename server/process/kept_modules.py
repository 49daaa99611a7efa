"""What a start imports is found and read in one file, which the start before has left.

For each module Python looks into the folders of `sys.path`, asks for the times of the source and reads the compiled file beside it.
For five hundred modules that is a quarter of a start. While `keeping_modules` lasts, a finder knows from a table where the source of
a module is and where in one file its code. It looks at the source, as Python does: another size or time of the last change, and the
module is imported as ever. So is one that the table does not have, and each that is found as ever is kept for the next start.

A module of a package is taken from the package's folder. One that is in no package is taken only if no folder that comes earlier in
`sys.path` has a file of its name. Finders that others have put before Python's own are asked first.
"""

from __future__ import annotations

import marshal
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Final, NamedTuple

from ottla.wire.kept_files import Pieces, write_pieces

MODULES_MAX: Final = 2_000  # in the file; if there are more, only what this process used is kept

_HEADER_BYTES: Final = 16  # of a compiled file: 4 of Python's magic number, 4 of flags, 4 of time and 4 of size (PEP 552)
_BY_TIME: Final = bytes(4)  # flags of one that is good as long as time and size of its source are the same


class Known(NamedTuple):
    """A module of the table. The source's time (seconds) and size (bytes) are those of its compiled file: 32 bits each."""

    source: str
    compiled: str
    mtime: int
    size: int
    is_package: bool

    @property
    def folder(self) -> str:
        """That in which it was found."""
        folder = os.path.dirname(self.source)
        return os.path.dirname(folder) if self.is_package else folder

    def is_as_before(self) -> bool:
        """Whether the source has not changed."""
        try:
            now = os.stat(self.source)
        except OSError:
            return False
        return int(now.st_mtime) & 0xFFFFFFFF == self.mtime and now.st_size & 0xFFFFFFFF == self.size


class KeptModules:
    """A finder of modules; see the docstring above."""

    def __init__(self, pieces: Pieces, search_path: Sequence[str]) -> None:
        self._pieces = pieces
        known = {name: Known(*info) for name, info in pieces.table.items()}
        self._unusable = _hidden({name: each for name, each in known.items() if "." not in name}, search_path)
        """What another file is to be imported for, or the same one with other content."""
        self._known = known
        self._present = {*sys.modules}

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        known = self._known.get(name)
        if known is None or name in self._unusable:
            return None
        if (path is not None and known.folder not in path) or not known.is_as_before():
            self._unusable.add(name)
            return None
        loader = _KeptLoader(name, known.source, self._pieces)
        spec = ModuleSpec(name, loader, origin=known.source, is_package=known.is_package)
        if spec.submodule_search_locations is not None:
            spec.submodule_search_locations.append(os.path.dirname(known.source))
        spec.has_location, spec.cached = True, known.compiled
        return spec

    def write_news(self, path: Path, key: bytes) -> None:
        """Keep what was imported in another way, if that was compiled to a file."""
        names = sys.modules.keys() - self._present - (self._known.keys() - self._unusable)
        found = {name: each for name in names if (each := _compiled(name)) is not None} if names else {}
        if not found:
            return
        kept = self._known.keys() - self._unusable
        if len(kept) + len(found) > MODULES_MAX:
            kept &= sys.modules.keys()
        old = {name: (self._known[name], piece) for name in kept if (piece := self._pieces.read(name)) is not None}
        write_pieces(path, key, {**old, **found})


class _KeptLoader(SourceFileLoader):
    """Python's own, which has the code of its module already. Whoever asks again gets it from the usual file."""

    def __init__(self, name: str, path: str, pieces: Pieces) -> None:
        super().__init__(name, path)
        self._pieces: Pieces | None = pieces

    def get_code(self, fullname: str) -> CodeType | None:
        pieces, self._pieces = self._pieces, None
        piece = None if pieces is None else pieces.read(fullname)
        if piece is None:
            return super().get_code(fullname)
        code: CodeType = marshal.loads(piece)  # as trustworthy as the .pyc files beside it
        return code


def _hidden(known: Mapping[str, Known], search_path: Sequence[str]) -> set[str]:
    """Those that a folder of the path hides, because it comes before theirs and has something of their name."""
    first: dict[str, str] = {}
    for folder in map(os.path.abspath, search_path):
        for name in {each.partition(".")[0] for each in _files_in(folder)} & known.keys():
            first.setdefault(name, folder)
    return {name for name, each in known.items() if first.get(name) != each.folder}


def _files_in(folder: str) -> Iterable[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return ()


def _compiled(name: str) -> tuple[Known, bytes] | None:
    """Of a module that Python has compiled to a file; None: it has not, or that says something else than the source."""
    module = sys.modules[name]
    # Of another type are those that run when somebody asks for what is in them, and what is no module at all.
    spec = module.__spec__ if type(module) is ModuleType else None
    if spec is None or spec.name != name or not isinstance(spec.loader, SourceFileLoader) or not spec.cached:
        return None
    source = spec.loader.path
    try:
        with open(spec.cached, "rb") as file:
            content = file.read()
    except OSError:
        return None
    code = content[_HEADER_BYTES:]
    mtime, size = (int.from_bytes(content[start : start + 4], "little") for start in (8, 12))
    known = Known(source, spec.cached, mtime, size, spec.submodule_search_locations is not None)
    # A file that was compiled elsewhere has another path in it, which Python would replace.
    if content[4:8] != _BY_TIME or os.fsencode(source) not in code or not known.is_as_before():
        return None
    return known, code


@contextmanager
def keeping_modules(path: Path | None) -> Iterator[None]:
    """See the module's docstring. `path`: the file; None: there is none, and nothing is kept."""
    if path is None or PathFinder not in sys.meta_path:
        yield
        return
    key = f"{sys.version} {sys.flags.optimize}".encode()
    with Pieces.of(path, key) as pieces:
        modules = KeptModules(pieces, sys.path)
        sys.meta_path.insert(sys.meta_path.index(PathFinder), modules)
        try:
            yield
        finally:
            sys.meta_path.remove(modules)
        if not sys.dont_write_bytecode and os.access(path.parent, os.W_OK):
            modules.write_news(path, key)
