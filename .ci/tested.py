"""Remembers the commit on which everything was tested: `tested.py begin` before, `tested.py end` after the tests have passed.

The mark is made only if the work tree held that commit and nothing else, before and after, if CI=true made every skip a
failure (`.ci/run`), and if neither PYTEST_ADDOPTS nor `make -i` may have left out tests or their failures. It is a file named
after the commit in .cache/tested/.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def main(arguments: list[str]) -> None:
    if arguments == ["begin"]:
        begin(ROOT)
    elif arguments == ["end"]:
        end(ROOT, has_no_skips=counts_all(os.environ))
    else:
        sys.exit("tested.py: say begin or end")


def counts_all(environment: Mapping[str, str]) -> bool:
    """Whether `make` would not have come so far, had a test failed or been left out."""
    # Letters of options without arguments are the first word (GNU make, "Communicating Options to a Sub-make").
    flags = environment.get("MAKEFLAGS", "").split(" ")[0]
    ignores_failures = "i" in flags and not flags.startswith("-") and "=" not in flags
    return environment.get("CI") == "true" and not environment.get("PYTEST_ADDOPTS") and not ignores_failures


def begin(root: Path) -> None:
    if (commit := clean_commit(root)) is not None:
        mark(root, commit).unlink(missing_ok=True)  # it may fail this time
    begun = folder(root) / "begun"
    begun.parent.mkdir(parents=True, exist_ok=True)
    begun.write_text(commit or "")


def end(root: Path, *, has_no_skips: bool) -> bool:
    """Whether the commit is marked as tested."""
    begun = folder(root) / "begun"
    commit = begun.read_text() if begun.exists() else ""
    begun.unlink(missing_ok=True)
    is_whole = bool(commit) and commit == clean_commit(root) and has_no_skips
    if is_whole:
        mark(root, commit).touch()
    return is_whole


def is_tested(root: Path, commit: str) -> bool:
    return mark(root, commit).exists()


def clean_commit(root: Path) -> str | None:
    """The commit that the work tree holds; None if something in it differs or is not in git, or git does not say."""
    try:
        # Settings of the user and marks in the index may hide what differs.
        is_dirty = git(root, "status", "--porcelain", "--untracked-files=all", "--ignore-submodules=none")
        is_hidden = any(not line.startswith("H ") for line in git(root, "ls-files", "-v").splitlines())
        return None if is_dirty or is_hidden else git(root, "rev-parse", "HEAD")
    except (OSError, subprocess.CalledProcessError):
        return None


def folder(root: Path) -> Path:
    return root / ".cache" / "tested"


def mark(root: Path, commit: str) -> Path:
    return folder(root) / commit


def git(root: Path, *arguments: str) -> str:
    # Of this repository, whatever hook or script has called: its variables may lead to another index or work tree.
    own = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    done = subprocess.run(["git", *arguments], check=True, text=True, capture_output=True, cwd=root, env=own)
    return done.stdout.strip()


if __name__ == "__main__":
    main(sys.argv[1:])
