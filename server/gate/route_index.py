"""The index of the handlers: what each declares, so that a start need not load them all to know it.

Seventy handlers, their messages and what they import took a third of a start. So whoever has loaded all of them leaves what
they declare beside Python's own compiled modules, and the next start reads that. The file is used only if every module of
the folders that it was made of is the very file that it was then, by its size and the time of its last change (as Python
does with its compiled modules). Otherwise, and where no file can be written, all handlers are loaded as the first time.
"""

from __future__ import annotations

import importlib
import os
import pkgutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import ottla
from ottla.server import gate
from ottla.wire import messages, schema
from ottla.wire.kept_files import read_cached, write_cached


def index(package: str, declared_in: Callable[[str], Any]) -> dict[str, Any]:
    """What each module of the package declares: by its name, `declared_in(name)`, which may load it."""
    handlers = importlib.import_module(package)
    path = _path(package)
    try:
        key = None if path is None else _key(handlers)
    except OSError:  # a file has gone meanwhile, or may not be looked at
        key = None
    known = None if path is None or key is None else read_cached(path, key)
    if isinstance(known, dict):
        return known
    found = {name: declared_in(name) for name in _modules_of(handlers)}
    if path is not None and key is not None:
        write_cached(path, key, found)
    return found


def _modules_of(package: ModuleType) -> Iterator[str]:
    return (f"{package.__name__}.{module.name}" for module in pkgutil.iter_modules(package.__path__))


def _path(package: str) -> Path | None:
    """None: nothing is compiled to files here, as in a zip file."""
    compiled_module = __spec__.cached if __spec__ is not None else None
    if compiled_module is None:
        return None
    return Path(compiled_module).with_name(f"{package}.{sys.implementation.cache_tag}.index")


def _key(handlers: ModuleType) -> bytes:
    """All that the index depends on."""
    folders = [folder for package in (handlers, messages, gate) for folder in package.__path__]
    files = sorted(_look(entry) for folder in folders for entry in os.scandir(folder) if entry.is_file())
    return f"{sys.version} {ottla.__version__} {schema.__file__} {files}".encode()


def _look(entry: os.DirEntry[str]) -> tuple[str, int, int]:
    found = entry.stat()
    return entry.path, found.st_mtime_ns, found.st_size
