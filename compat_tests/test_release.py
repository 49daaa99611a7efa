"""`make release` refuses each thing that would make a bad release, and otherwise makes a tag and publishes nothing."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
BEFORE = "compat_tests/upgrades/release_before.toml"
CHANGES = "# Changelog\n\nNewest first.\n\n## 1.2.3 (2026-11-25)\n\n### Added\n- A thing.\n\n## 1.2.2\n\n- Before.\n"


def load(name: str):
    spec = importlib.util.spec_from_file_location(name, ROOT / ".ci" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def loaded():
    before = list(sys.path)
    yield load("tested"), load("release")
    sys.path[:] = before
    del sys.modules["tested"], sys.modules["release"]


class Project:
    """A repository with all that a release looks at, where everything was tested."""

    def __init__(self, root: Path, loaded) -> None:
        self.root = root
        self.tested, self.module = loaded
        self.git("init", "--quiet", "--initial-branch=main")
        self.git("config", "user.name", "Nobody")
        self.git("config", "user.email", "nobody@example.invalid")
        self.write(".gitignore", ".cache\ndist\n")
        self.write("pyproject.toml", '[project]\nname = "ottla"\nversion = "1.2.3"\n')
        self.write("src/ottla/__init__.py", '"""Ottla."""\n\n__version__ = "1.2.3"\n')
        self.write("CHANGELOG.md", CHANGES)
        self.commit()
        self.first = self.git("rev-parse", "HEAD").strip()
        self.change(BEFORE, f'version = "1.2.2"\ncommit = "{self.first}"\n')
        self.made: list[Path] = []

    def git(self, *arguments: str) -> str:
        return subprocess.run(["git", *arguments], check=True, text=True, capture_output=True, cwd=self.root).stdout

    def write(self, name: str, text: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def commit(self) -> None:
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", "A commit")

    def change(self, name: str, text: str) -> None:
        """Committed and tested."""
        self.write(name, text)
        self.commit()
        self.test()

    def test(self, **options: bool) -> bool:
        self.tested.begin(self.root)
        return self.tested.end(self.root, **{"has_no_skips": True, **options})

    def make(self) -> list[Path]:
        self.made = [self.root / "dist" / name for name in ("SHA256SUMS", "ottla-1.2.3.cdx.json", "ottla-1.2.3.tar.gz")]
        return self.made

    def release(self, version: str = "1.2.3") -> str:
        return self.module.release(self.root, version, self.make)

    def refusal(self, version: str = "1.2.3") -> str:
        said = self.refusal_beside_tags(version)
        assert self.git("tag", "--list") == ""
        return said

    def refusal_beside_tags(self, version: str = "1.2.3") -> str:
        with pytest.raises(self.module.Refused) as refused:
            self.release(version)
        assert "\n" not in str(refused.value)
        return str(refused.value)


@pytest.fixture
def project(tmp_path, loaded):
    return Project(tmp_path, loaded)


def test_a_release_is_dist_and_an_annotated_tag(project):
    assert project.release() == "v1.2.3"
    assert project.made
    assert project.git("cat-file", "-t", "v1.2.3") == "tag\n"
    assert project.git("rev-parse", "v1.2.3^{commit}") == project.git("rev-parse", "HEAD")
    told = project.git("tag", "--list", "--format=%(contents)", "v1.2.3").strip()
    assert told == "Ottla 1.2.3\n\n### Added\n- A thing."


@pytest.mark.parametrize("version", ["", "1.2", "v1.2.3", "1.2.3rc1", "01.2.3"])
def test_a_version_has_three_numbers(project, version):
    assert "must be of the form x.y.z" in project.refusal(version)
    assert not project.made


@pytest.mark.parametrize("name", ["new.py", "CHANGELOG.md"])
def test_what_is_not_committed_is_refused(project, name):
    project.write(name, f"{CHANGES}more\n")
    assert "not committed" in project.refusal()
    assert not project.made


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("pyproject.toml", '[project]\nname = "ottla"\nversion = "1.2.4"\n'),
        ("src/ottla/__init__.py", '__version__ = "1.2.2"\n'),
        ("src/ottla/__init__.py", "\n"),
    ],
)
def test_versions_that_disagree_are_refused(project, name, text):
    project.change(name, text)
    assert f"{name} has version" in project.refusal()
    assert not project.made


@pytest.mark.parametrize(
    "text",
    [
        "# Changelog\n\n## 1.2.2\n\n- Before 1.2.3.\n",
        "# Changelog\n\n## 1.2.3\n\n## 1.2.2\n\n- Before.\n",
        "# Changelog\n\n## 1.2.30\n\n- Later.\n",
        "# Changelog\n",
        "",
    ],
)
def test_a_changelog_without_a_section_is_refused(project, text):
    project.change("CHANGELOG.md", text)
    assert "no section ## 1.2.3" in project.refusal()
    assert not project.made


def test_changes_that_would_not_be_told_are_refused(project):
    project.change("CHANGELOG.md", CHANGES.replace("## 1.2.3", "## Unreleased\n\n- Forgotten.\n\n## 1.2.3"))
    assert "under Unreleased" in project.refusal()
    project.change("CHANGELOG.md", CHANGES.replace("## 1.2.3", "## Unreleased\n\n## 1.2.3"))
    project.release()


@pytest.mark.parametrize(
    "heading", ["## unreleased", "## [Unreleased]", "## Unreleased: soon", "## Unreleased\n\n## Unreleased"]
)
def test_changes_are_unreleased_however_that_is_written(project, heading):
    project.change(
        "CHANGELOG.md", CHANGES.replace("## 1.2.3", f"{heading}\n\n- Forgotten.\n\n## 1.2.3") + "\n## Unreleased\n"
    )
    assert "under Unreleased" in project.refusal()


def test_two_sections_of_one_version_are_refused(project):
    project.change("CHANGELOG.md", CHANGES + "\n## 1.2.3\n\n- Forgotten.\n")
    assert "two sections" in project.refusal()


def test_what_git_is_told_not_to_show_is_refused(project):
    project.git("config", "status.showUntrackedFiles", "no")
    project.write("new.py", "")  # `make dist` would take it
    assert "not committed" in project.refusal()
    (project.root / "new.py").unlink()
    for mark in ("assume-unchanged", "skip-worktree"):
        project.git("update-index", f"--{mark}", "CHANGELOG.md")
        project.write("CHANGELOG.md", f"{CHANGES}more\n")
        assert "not committed" in project.refusal()
        project.write("CHANGELOG.md", CHANGES)
        project.git("update-index", f"--no-{mark}", "CHANGELOG.md")
    assert project.release()


def test_another_index_in_the_environment_does_not_count(project, monkeypatch, tmp_path):
    project.write("new.py", "")
    monkeypatch.setenv("GIT_INDEX_FILE", str(tmp_path / "no index"))
    monkeypatch.setenv("GIT_WORK_TREE", str(tmp_path / ".git"))
    assert project.tested.clean_commit(project.root) is None
    (project.root / "new.py").unlink()
    assert project.tested.clean_commit(project.root) is not None


@pytest.mark.parametrize(
    ("environment", "counts"),
    [
        ({"CI": "true"}, True),
        ({"CI": "true", "MAKEFLAGS": ""}, True),
        ({"CI": "true", "MAKEFLAGS": "k -j2 -- VERSION=i"}, True),
        ({"CI": "true", "MAKEFLAGS": " -- VERSION=i"}, True),
        ({"CI": "true", "MAKEFLAGS": "--include-dir=x"}, True),
        ({}, False),
        ({"CI": "1"}, False),
        ({"CI": "true", "MAKEFLAGS": "ik"}, False),
        ({"CI": "true", "PYTEST_ADDOPTS": "-k one"}, False),
    ],
)
def test_what_may_leave_tests_out_does_not_count(loaded, environment, counts):
    assert loaded[0].counts_all(environment) is counts


def test_another_commit_than_the_tested_one_is_refused(project):
    project.write("new.py", "")
    project.commit()
    assert "not all tests have passed" in project.refusal()
    assert not project.made


def test_tests_that_fail_after_they_have_passed_count(project):
    project.tested.begin(project.root)  # and no end
    assert "not all tests have passed" in project.refusal()


def test_skipped_tests_do_not_count(project):
    assert not project.test(has_no_skips=False)
    assert "not all tests have passed" in project.refusal()


def test_tests_of_something_else_than_the_commit_do_not_count(project):
    project.write("new.py", "")
    project.tested.begin(project.root)
    project.commit()
    assert not project.tested.end(project.root, has_no_skips=True)
    assert "not all tests have passed" in project.refusal()
    project.tested.begin(project.root)
    project.write("new.py", "changed while the tests ran")
    assert not project.tested.end(project.root, has_no_skips=True)


def test_a_tag_that_exists_is_refused(project):
    project.git("tag", "v1.2.3")
    with pytest.raises(project.module.Refused, match="there is a tag"):
        project.release()
    assert not project.made


def test_upgrades_are_tested_from_the_release_before(project):
    project.git("tag", "v1.2.2", project.first)
    project.git("tag", "v1.2.x", project.first)  # no release
    assert f"names {project.first}, version 1.2.2, and the release before is v1.2.2" in project.refusal_beside_tags()
    project.change(BEFORE, 'version = "1.2.1"\ncommit = "v1.2.2"\n')
    assert "the release before is v1.2.2" in project.refusal_beside_tags()
    project.git("tag", "v1.2.10", project.first)
    project.change(BEFORE, 'version = "1.2.2"\ncommit = "v1.2.2"\n')
    assert "the release before is v1.2.10" in project.refusal_beside_tags()
    project.git("tag", "--delete", "v1.2.10")
    assert project.release() == "v1.2.3"


@pytest.mark.parametrize(
    "text", ["", "version =", 'version = "1.2.2"\n', 'version = "1.2.2"\ncommit = "abcdef"\n', None]
)
def test_a_release_before_that_was_not_there_is_refused(project, text):
    if text is None:
        (project.root / BEFORE).unlink()
        project.commit()
        project.test()
    else:
        project.change(BEFORE, text)
    assert BEFORE in project.refusal()
    assert not project.made


def test_files_of_another_version_are_refused(project):
    project.make = lambda: [project.root / "dist" / "ottla-1.2.2.tar.gz"]
    assert "is not of version" in project.refusal()


def test_files_that_fail_their_check_are_refused(project):
    def fail():
        raise project.module.Refused("what `make dist` made cannot be released")

    project.make = fail
    assert "cannot be released" in project.refusal()


def test_a_work_tree_that_changes_meanwhile_is_refused(project):
    def change():
        project.write("CHANGELOG.md", "")
        return project.made

    project.make = change
    assert "has changed meanwhile" in project.refusal()


def test_the_versions_of_this_project_agree(loaded):
    _, release = loaded
    assert len(set(release.versions_in(ROOT).values())) == 1


def test_the_end_of_a_run_says_what_was_left_out_and_why(tmp_path):
    """Without CI=true a test that lacks something is skipped, and the release with it is not marked as tested."""
    skips = "import pytest\n\n\n@pytest.mark.parametrize('number', range(3))\ndef test(number):\n    pytest.skip('no jars,\\nno Java')\n"
    (tmp_path / "test_skips.py").write_text(skips)
    (tmp_path / "test_lacks.py").write_text("import pytest\n\npytest.skip('no client', allow_module_level=True)\n")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "conftest", "."]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_ADDOPTS": ""}
    run = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=240, check=False
    )
    assert "4 skipped: 3 of test_skips.py (no jars, no Java); 1 of test_lacks.py (no client)" in run.stdout.splitlines()
