"""`make release VERSION=x.y.z`: makes the files of a release and its tag, or says why not. It publishes nothing.

It refuses if something in the work tree is not committed, if not everything was tested on this very commit (`tested.py`), if
pyproject.toml and `ottla.__version__` have another version, if CHANGELOG.md has no section for it, or still has something that
is not released, if upgrades were tested from another release than the one before, and if the tag exists. Then `dist.py` makes the sdist and the wheels and runs them, and the commit gets an
annotated tag with the section of the changelog. What a person does next is in docs/releasing.md.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # when a test has loaded this file by its path

import tested

ROOT = Path(__file__).resolve().parent.parent
VERSION = re.compile(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)")
CHECKSUMS = "SHA256SUMS"
RELEASE_BEFORE = Path("compat_tests") / "upgrades" / "release_before.toml"
NEXT = "made dist/ and the tag {tag}. Nothing is published; docs/releasing.md says what to do next."


class Refused(Exception):
    """Why there is no release; one line for the developer."""


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="make release", description="Makes dist/ and the tag of a release.")
    parser.add_argument("version", nargs="?", default="", help="x.y.z")
    try:
        tag = release(ROOT, parser.parse_args(arguments).version, make_dist)
    except Refused as refused:
        print(f"make release: {refused}", file=sys.stderr)
        return 1
    print(NEXT.format(tag=tag))
    return 0


def release(root: Path, version: str, make_files: Callable[[], Sequence[Path]]) -> str:
    """The tag that was made. Raises Refused."""
    commit = check(root, version)
    notes = changes_of(root, version)
    for path in make_files():
        if f"ottla-{version}" not in path.name and path.name != CHECKSUMS:
            raise Refused(f"{path.name} is not of version {version}")
    if tested.clean_commit(root) != commit:
        raise Refused("the work tree has changed meanwhile")
    tag = f"v{version}"
    # Lines that begin with # belong to the notes.
    command = [
        "git",
        "tag",
        "--annotate",
        "--cleanup=whitespace",
        "--message",
        f"Ottla {version}\n\n{notes}",
        tag,
        commit,
    ]
    done = subprocess.run(command, check=False, text=True, capture_output=True, cwd=root)
    if done.returncode != 0:
        raise Refused(f"git makes no tag: {' '.join(done.stderr.split())}")
    return tag


def check(root: Path, version: str) -> str:
    """The commit to release. Raises Refused."""
    if VERSION.fullmatch(version) is None:
        raise Refused(f"VERSION={version} must be of the form x.y.z")
    for place, found in versions_in(root).items():
        if found != version:
            raise Refused(f"{place} has version {found}, and not {version}")
    changes_of(root, version)
    commit = tested.clean_commit(root)
    if commit is None:
        raise Refused("something in the work tree is not committed (git status)")
    if tested.git(root, "tag", "--list", f"v{version}"):
        raise Refused(f"there is a tag v{version} already")
    check_release_before(root, commit)
    if not tested.is_tested(root, commit):
        raise Refused(f"not all tests have passed on {commit[:12]}: run .ci/run")
    return commit


def check_release_before(root: Path, commit: str) -> None:
    """Refused if the tests of upgrades began with something else than the newest tag below this commit."""
    try:
        named = tomllib.loads((root / RELEASE_BEFORE).read_text())
        found = str(named["version"]), str(named["commit"])
    except (OSError, ValueError, KeyError) as error:
        raise Refused(f"{RELEASE_BEFORE} does not name the release before: {error}") from None
    tags = tested.git(root, "tag", "--list", "v*", "--merged", commit, "--sort=-version:refname").splitlines()
    newest = next((tag for tag in tags if VERSION.fullmatch(tag[1:])), None)
    # Before the first release it may be any commit.
    if newest is not None and found != (newest[1:], newest):
        raise Refused(f"{RELEASE_BEFORE} names {found[1]}, version {found[0]}, and the release before is {newest}")
    command = ["git", "merge-base", "--is-ancestor", "--", found[1], commit]
    if found[1] == commit or subprocess.run(command, check=False, capture_output=True, cwd=root).returncode != 0:
        raise Refused(f"{RELEASE_BEFORE} names {found[1]}, which is no earlier commit here: upgrades were not tested")


def versions_in(root: Path) -> dict[str, str]:
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    module = root / "src" / "ottla" / "__init__.py"
    declared = re.search(r'^__version__ = "(.*)"$', module.read_text(), re.MULTILINE)
    return {"pyproject.toml": project["version"], "src/ottla/__init__.py": declared[1] if declared else "none"}


def changes_of(root: Path, version: str) -> str:
    """The section of the changelog. Raises Refused if there is none, or another one is not released."""
    # What is before the first heading is no section.
    _, *sections = re.split(r"^## ", (root / "CHANGELOG.md").read_text(), flags=re.MULTILINE)
    texts: dict[str, str] = {}
    for section in sections:
        heading, _, text = section.partition("\n")
        name = heading.split()[0].strip("[]:").casefold() if heading.split() else ""
        if name in texts and texts[name] and text.strip():
            raise Refused(f"CHANGELOG.md has two sections ## {heading}, and one of them would not be told")
        texts[name] = texts.get(name) or text.strip()
    if texts.get("unreleased"):
        raise Refused(f"CHANGELOG.md has changes under Unreleased: move them to a section ## {version}")
    if not texts.get(version):
        raise Refused(f"CHANGELOG.md has no section ## {version} that says what has changed")
    return texts[version]


def make_dist() -> Sequence[Path]:
    import dist

    if dist.main([]) != 0:
        raise Refused("what `make dist` made cannot be released")
    return sorted((ROOT / "dist").iterdir())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
