"""The clients of the control port in docs/testing-languages.md are run as their first lines say."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from compat_tests.docs.pages import DOCS, snippets

PAGE = DOCS / "testing-languages.md"
_FIRST_LINE = re.compile(r"// (?P<file>\S+): (?P<command>ottla test .*)\n")
_GO = "/usr/local/go/bin"


@pytest.mark.parametrize("snippet", list(snippets(PAGE)), ids=lambda each: each.language)
def test_a_client_of_the_control_port_works(snippet, tmp_path: Path) -> None:
    found = _FIRST_LINE.match(snippet.text)
    assert found is not None, f"{snippet.place} says neither its file nor its command"
    words = found["command"].split()
    program = words[words.index("--") + 1]
    path = os.pathsep.join([os.environ["PATH"], _GO])
    if shutil.which(program, path=path) is None:
        pytest.skip(f"there is no {program} here")
    (tmp_path / found["file"]).write_text(snippet.text)
    if program == "go":
        (tmp_path / "go.mod").write_text("module orders\n\ngo 1.21\n")
    environment = os.environ | {"PATH": path, "GOFLAGS": "-count=1"}
    done = subprocess.run(
        [sys.executable, "-m", *words],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, f"{snippet.place}\n{done.stdout}\n{done.stderr}"
