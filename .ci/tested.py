"""Remembers the commit on which everything was tested: `tested.py begin` before, `tested.py end` after the tests have passed.

The mark is made only if the work tree held that commit and nothing else, before and after, and if CI=true made every skip a
failure (`.ci/run`). It is a file named after the commit in .cache/tested/.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def main(arguments: list[str]) -> None:
    if arguments == ["begin"]:
        begin(ROOT)
    elif arguments == ["end"]:
        end(ROOT, has_no_skips=os.environ.get("CI") == "true")
    else:
        sys.exit("tested.py: say begin or end")


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
        return None if git(root, "status", "--porcelain") else git(root, "rev-parse", "HEAD")
    except (OSError, subprocess.CalledProcessError):
        return None


def folder(root: Path) -> Path:
    return root / ".cache" / "tested"


def mark(root: Path, commit: str) -> Path:
    return folder(root) / commit


def git(root: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], check=True, text=True, capture_output=True, cwd=root)
    return done.stdout.strip()


if __name__ == "__main__":
    main(sys.argv[1:])
