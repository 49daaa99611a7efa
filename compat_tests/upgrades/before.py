"""The release before this one, as its source: taken out of git once, and run beside this one by another PYTHONPATH.

`release_before.toml` names it. What is taken has no compiled module, so that release runs in pure Python.
"""

import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from pathlib import Path
from typing import NamedTuple

from compat_tests.support.brokers import OttlaProcess

ROOT = Path(__file__).resolve().parents[2]
NAMED = Path(__file__).parent / "release_before.toml"
SOURCES = ("src", "wire", "server", "replication", "groupcoord")


class NotHere(Exception):
    """This repository, or whatever the tests were copied from, does not have that release; one line that says why."""


class Release(NamedTuple):
    """`path` is what PYTHONPATH begins with to run it."""

    version: str
    path: Path

    @property
    def inside(self) -> list[str]:
        """What a broker's command begins with, so that this release runs (`BrokerProcess.inside`)."""
        paths = [str(self.path), *filter(None, [os.environ.get("PYTHONPATH")])]
        return ["env", f"PYTHONPATH={os.pathsep.join(paths)}"]

    def runs(self, broker: OttlaProcess) -> None:
        """The broker's next start is of this release."""
        broker.inside = self.inside


def this_release() -> Release:
    return Release("this", ROOT / "src")


def release_before(cache: Path) -> Release:
    """The release that `release_before.toml` names, below `cache`. Raises NotHere."""
    named = tomllib.loads(NAMED.read_text())
    commit = _commit(named["commit"])
    folder = cache / "release_before" / commit
    if not folder.exists():
        _take_out(commit, folder)
    release = Release(named["version"], folder / "src")
    # Else both would be the same one, and every test would pass.
    asked = [*release.inside, sys.executable, "-c", "import ottla.wire; print(ottla.__version__, ottla.__file__)"]
    said = subprocess.run(asked, check=True, capture_output=True, text=True).stdout.split()
    assert said == [named["version"], str(folder / "src" / "ottla" / "__init__.py")]
    return release


def _commit(name: str) -> str:
    if shutil.which("git") is None:
        raise NotHere("git is not on this machine, and it has the release before")
    try:
        top = Path(_git("rev-parse", "--show-toplevel").decode().strip()).resolve()
        if top != ROOT:
            raise NotHere(
                f"{ROOT} is no git repository, as in the archive of a release: nothing here has the release before"
            )
        return _git("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}").decode().strip()
    except subprocess.CalledProcessError:
        raise NotHere(
            f"{name} is not in this git repository, as in a shallow clone, and it is the release before"
        ) from None


def _take_out(commit: str, folder: Path) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as temporary:
        unfinished = Path(temporary) / "release"
        with tarfile.open(fileobj=io.BytesIO(_git("archive", "--format=tar", commit, *SOURCES))) as archive:
            archive.extractall(unfinished, filter="data")
        # As a whole or not at all: a test may end at any moment.
        unfinished.rename(folder)


def _git(*arguments: str) -> bytes:
    # Of this repository, whatever hook or script has called.
    own = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    return subprocess.run(["git", *arguments], check=True, capture_output=True, cwd=ROOT, env=own).stdout
