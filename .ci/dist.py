"""`make dist`: makes what people install, and installs each of it once.

    dist/ottla-<version>.tar.gz                                  the sdist: sources, from which all wheels are made
    dist/ottla-<version>-cp311-abi3-manylinux_*_x86_64.whl       with the native module, for CPython since 3.11 on Linux
    dist/ottla-<version>-cp311-abi3-manylinux_*_aarch64.whl      the same for arm64, where Debian's cross compiler is
    dist/ottla-<version>-py3-none-any.whl                        without it, for every system
    dist/ottla-<version>.cdx.json                                what a wheel brought with it, with versions and licences (`sbom.py`)
    dist/SHA256SUMS                                              of all these, for sha256sum --check

The same commit gives the same bytes, by the same tools: every time in the files is SOURCE_DATE_EPOCH, which is the time of the
commit if it is not set. Only files that git knows, or would add, are in them.

What this machine can run is then installed into a fresh virtual environment, started, given a record, asked for it, and
stopped (`one_record.py`). Nothing is published.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # when a test has loaded this file by its path

from native_wheel import CROSS_COMPILER, NotPortable, tag_by_symbols
from source_archive import normalize, unpack

ROOT = Path(__file__).resolve().parent.parent
CHECKSUMS = "SHA256SUMS"
CLIENT = "kafka-python>=3.0.12"
# Paths and the compiler's own notes would differ from machine to machine.
FLAGS = {"CFLAGS": "-O2 -g0", "LDFLAGS": "-Wl,--strip-all"}
# PYTHONPATH may lead to the work tree, and what is installed would not be what runs.
CLEARED = ("PYTHONPATH", "OTTLA_PURE_WHEEL", "OTTLA_PURE_PYTHON", "PYTHONDONTWRITEBYTECODE")


class DistFailed(Exception):
    """One line for the developer."""


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="make dist", description="Makes the sdist and the wheels, and checks them.")
    parser.add_argument("--output", type=Path, default=ROOT / "dist", help="the folder; what it holds is removed")
    options = parser.parse_args(arguments)
    try:
        made = make(options.output)
        bill = ""
        for path in made:
            if "aarch64" in path.name and platform.machine() != "aarch64":
                print(f"{path.name}: made, and not run, because this machine is no arm64")
            else:
                bill = check(path)
                print(f"{path.name}: installed, started, one record written and read, stopped")
        describe(options.output, made, bill)
    except (DistFailed, NotPortable) as error:
        print(f"make dist: {error}", file=sys.stderr)
        return 1
    return 0


def make(output: Path, kinds: Sequence[str] = ("pure", "native", "arm64")) -> list[Path]:
    """The sdist, and of it wheels of these kinds, so it is known to suffice; what this machine cannot make is left out."""
    os.umask(0o022)  # modes are in the archives
    environment = {"SOURCE_DATE_EPOCH": source_date(), **FLAGS}
    shutil.rmtree(output, ignore_errors=True)
    output.mkdir(parents=True)
    with tempfile.TemporaryDirectory(prefix="ottla-dist-") as folder:
        sources = Path(folder) / "sources"
        copy_sources(sources)
        sdist = make_sdist(sources, output, environment)
        unpacked = unpack(sdist, Path(folder) / "unpacked")
        made = [sdist]
        for kind, more in variants(kinds).items():
            wheel = make_wheel(unpacked, output, environment | more)
            made.append(wheel if kind == "pure" else tag_by_symbols(wheel, environment))
    return made


def variants(kinds: Sequence[str]) -> dict[str, dict[str, str]]:
    """The environments that give wheels of these kinds here."""
    found = {"pure": {"OTTLA_PURE_WHEEL": "1"}}
    if sys.platform == "linux":
        found["native"] = {}
        if platform.machine() == "x86_64" and shutil.which(CROSS_COMPILER):
            found["arm64"] = _cross()
    for kind in kinds:
        if kind not in found:
            print(f"no wheel of kind {kind}: this machine cannot make it, and the sdist serves there")
    return {kind: found[kind] for kind in kinds if kind in found}


def _cross() -> dict[str, str]:
    # The headers are those of this machine's Python. Sizes of C's types, which is what the stable ABI takes from
    # pyconfig.h, are the same on both: LP64.
    return {
        "CC": CROSS_COMPILER,
        "LDSHARED": f"{CROSS_COMPILER} -shared",
        "_PYTHON_HOST_PLATFORM": "linux-aarch64",
    }


def source_date() -> str:
    """SOURCE_DATE_EPOCH, or the time of the commit, in seconds since 1970."""
    if date := os.environ.get("SOURCE_DATE_EPOCH"):
        return date
    return run(["git", "log", "-1", "--format=%ct"]).strip()


def copy_sources(folder: Path) -> None:
    """What is in the work tree, without what was built there."""
    listed = run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"])
    for name in filter(None, listed.split("\0")):
        source, target = ROOT / name, folder / name
        if source.is_symlink() or source.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target, follow_symlinks=False)


def make_sdist(sources: Path, output: Path, environment: Mapping[str, str]) -> Path:
    build("sdist", sources, output, environment)
    (sdist,) = output.glob("*.tar.gz")
    normalize(sdist, int(environment["SOURCE_DATE_EPOCH"]))
    return sdist


def make_wheel(sources: Path, output: Path, environment: Mapping[str, str]) -> Path:
    """One more wheel in the folder."""
    before = set(output.glob("*.whl"))
    shutil.rmtree(sources / "build", ignore_errors=True)  # else the native module of the wheel before gets in
    build("wheel", sources, output, environment)
    (wheel,) = set(output.glob("*.whl")) - before
    return wheel


def build(kind: str, sources: Path, output: Path, environment: Mapping[str, str]) -> None:
    """`kind` is sdist or wheel. pyproject.toml's backend is called as pip does (PEP 517), here without an environment of its own."""
    program = f"import sys, setuptools.build_meta as backend; backend.build_{kind}(sys.argv[1])"
    run([sys.executable, "-c", program, str(output.absolute())], environment, sources)


def describe(output: Path, made: Sequence[Path], bill: str) -> None:
    """Write the bill of materials and the checksums beside what was made."""
    version = made[0].name.removeprefix("ottla-").removesuffix(".tar.gz")
    materials = output / f"ottla-{version}.cdx.json"
    materials.write_text(bill)
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in sorted([*made, materials])]
    (output / CHECKSUMS).write_text("".join(lines))


def check(path: Path) -> str:
    """Install it into a fresh virtual environment, as a user would, and have one record go through it; its bill of materials."""
    with tempfile.TemporaryDirectory(prefix="ottla-check-") as folder:
        run([sys.executable, "-m", "venv", folder])
        python = f"{folder}/bin/python"
        run([python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", str(path), CLIENT])
        run([python, str(ROOT / ".ci" / "one_record.py"), f"{folder}/bin/ottla"])
        return run([python, str(ROOT / ".ci" / "sbom.py"), "ottla"], {"SOURCE_DATE_EPOCH": source_date()})


def run(command: Sequence[str], environment: Mapping[str, str] | None = None, folder: Path = ROOT) -> str:
    """What it prints; DistFailed with its last words if it fails."""
    own = {name: value for name, value in os.environ.items() if name not in CLEARED}
    done = subprocess.run(
        command,
        check=False,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=own | dict(environment or {}),
        cwd=folder,
    )
    if done.returncode != 0:
        raise DistFailed(f"{' '.join(command)} failed:\n{done.stdout[-4000:]}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
