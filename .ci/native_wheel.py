"""Wheels with the native module: which systems they really run on.

PEP 600: a wheel tagged manylinux_2_17 runs on every Linux whose glibc is 2.17 or later. That is true if its module asks for no
younger symbol versions, and for no libraries but those of the C library itself. Both are read from the module.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

CROSS_COMPILER = "aarch64-linux-gnu-gcc"
OLDEST = (2, 17)
"""Distributions with an older one are long gone, and arm64 begins with it."""

LIBRARIES = frozenset(("libc.so.6", "libpthread.so.0", "libm.so.6", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"))
MACHINES = {"Advanced Micro Devices X86-64": "x86_64", "AArch64": "aarch64"}
_NEEDED = re.compile(r"\(NEEDED\).*\[(.+)\]")
_VERSION = re.compile(r"Name: (\w+?)_(\S+)")
_MACHINE = re.compile(r"Machine:\s+(.+)")


class NotPortable(Exception):
    """The module needs what not every Linux has."""


def tag_by_symbols(wheel: Path, environment: Mapping[str, str]) -> Path:
    """Rename it, and correct what it says of itself; times are those of the environment. Raises NotPortable."""
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(wheel) as archive:
        modules = [name for name in archive.namelist() if name.endswith(".so")]
        if modules != ["ottla/wire/_native.abi3.so"]:
            raise NotPortable(f"{wheel.name} should hold the native module, and holds {modules or 'none'}")
        tag = platform_tag(read_elf(Path(archive.extract(modules[0], folder))))
    command = [sys.executable, "-m", "wheel", "tags", "--remove", "--platform-tag", tag, str(wheel)]
    done = subprocess.run(command, check=True, text=True, capture_output=True, env=os.environ | dict(environment))
    return wheel.with_name(done.stdout.strip().splitlines()[-1])


def platform_tag(text: str) -> str:
    """Of a module, from what readelf says of it. Raises NotPortable."""
    machine = _MACHINE.search(text)
    if machine is None or machine[1].strip() not in MACHINES:
        raise NotPortable(f"the module is for {machine[1] if machine else 'no machine'}")
    if foreign := set(_NEEDED.findall(text)) - LIBRARIES:
        raise NotPortable(f"the module needs {', '.join(sorted(foreign))}")
    versions = [OLDEST]
    for kind, version in _VERSION.findall(text):
        # GLIBC_PRIVATE, GLIBC_ABI_DT_RELR and others are promised by nobody.
        if kind != "GLIBC" or not re.fullmatch(r"\d+(\.\d+)+", version):
            raise NotPortable(f"the module needs {kind}_{version}")
        versions.append(tuple(map(int, version.split(".")))[:2])
    major, minor = max(versions)
    return f"manylinux_{major}_{minor}_{MACHINES[machine[1].strip()]}"


def read_elf(module: Path) -> str:
    command = ["readelf", "--wide", "--file-header", "--dynamic", "--version-info", str(module)]
    done = subprocess.run(command, check=True, text=True, capture_output=True, env=os.environ | {"LC_ALL": "C"})
    return done.stdout
