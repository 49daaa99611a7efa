"""CRC-32C, by the `crc32c` package's extension module.

The package's own `__init__` also imports its command line and `importlib.metadata`, which takes a tenth of the time that
a broker may need to start. So the extension is loaded by itself; where that does not work (another version, another
layout), the package is imported as usual.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader, ModuleSpec
from importlib.util import find_spec, module_from_spec
from os.path import exists
from typing import Any

Crc32c = Callable[..., int]


def _from_extension() -> Crc32c | None:
    package = find_spec("crc32c")
    for directory in (package.submodule_search_locations or ()) if package is not None else ():
        for suffix in EXTENSION_SUFFIXES:
            path = f"{directory}/_crc32c{suffix}"
            if exists(path):
                return _load(path)
    return None


def _load(path: str) -> Crc32c | None:
    name = "crc32c._crc32c"
    spec = ModuleSpec(name, ExtensionFileLoader(name, path), origin=path)
    try:
        module: Any = module_from_spec(spec)
        spec.loader.exec_module(module)  # type: ignore[union-attr]
        found: Crc32c = module.crc32c
    except (ImportError, AttributeError):
        return None
    return found


def _from_package() -> Crc32c:
    from crc32c import crc32c

    return crc32c


crc32c: Crc32c = _from_extension() or _from_package()
"""crc32c(data, value=0, gil_release_mode=-1) -> int: the checksum of any buffer, continued from `value`."""
