"""Runs the blocks of code of the documentation, as a reader would: one after the other, in an empty folder, beside a broker.

Only ports are others than on the page. A block whose first line is a comment with a file's name becomes that file.
"""

import ast
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

from compat_tests.docs.pages import Snippet
from compat_tests.support.brokers import wait_until

PORT = 9092
"""On the pages; `kcat` and `ottla` take it by default, too."""

PATIENCE_S = 240

_FILE = re.compile(r"# ([\w.-]+\.\w+)(?: on .*)?\n")


class Reader:
    """Somebody who types what is on a page."""

    def __init__(self, folder: Path, bootstrap: str) -> None:
        self.folder, self.bootstrap = folder, bootstrap
        self._commands = folder / ".bin"
        self._commands.mkdir(parents=True)
        for name in ("ottla", "pytest", "python3"):
            program = "" if name == "python3" else f"-m {name}"
            path = self._commands / name
            path.write_text(f'#!/bin/sh\nexec {sys.executable} {program} "$@"\n')
            path.chmod(0o755)

    def environment(self) -> dict[str, str]:
        own = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("PYTEST", "OTTLA", "KAFKA", "XDG"))
        }
        return own | {
            "PATH": f"{self._commands}:{os.environ['PATH']}",
            "HOME": str(self.folder),
            "PYTHONFAULTHANDLER": "1",
            "OTTLA_BOOTSTRAP_SERVERS": self.bootstrap,
        }

    def translated(self, snippet: Snippet) -> str:
        port = self.bootstrap.rpartition(":")[2]
        return re.sub(rf"(127\.0\.0\.1|localhost):{PORT}\b", rf"\1:{port}", snippet.text)

    def run(self, snippet: Snippet) -> str:
        """What it prints; it has to succeed."""
        file = _FILE.match(snippet.text)
        if file is not None:
            (self.folder / file[1]).write_text(self.translated(snippet))
            return ""
        command = [sys.executable, "-c"] if snippet.language == "python" else ["bash", "-euo", "pipefail", "-c"]
        process = subprocess.Popen(
            [*command, self.translated(snippet)],
            cwd=self.folder, env=self.environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip
        try:
            output, errors = process.communicate(timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGABRT)  # Python then tells where each of its threads is
            output, errors = process.communicate()
        assert process.returncode == 0, f"{snippet.place}\n{snippet.text}\n{output}\n{errors}"
        return output

    def serve(self, snippet: Snippet, port: int) -> None:
        """Run a snippet whose last command is a broker; check that the broker serves at `port` and ends cleanly on a signal."""
        text = re.sub(rf"(:|--port ){PORT}\b", rf"\g<1>{port}", snippet.text)
        log = self.folder / "served.txt"
        with log.open("wb") as output:
            process = subprocess.Popen(
                ["bash", "-euo", "pipefail", "-c", text],
                cwd=self.folder, env=self.environment(), stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
        try:
            serving = f"listening on 127.0.0.1:{port}"
            wait_until(lambda: serving in log.read_text() or process.poll() is not None, f"{snippet.place} serves", 60)
            assert serving in log.read_text(), f"{snippet.place}\n{text}\n{log.read_text()}"
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(60)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        assert "Traceback" not in log.read_text(), log.read_text()


def check_syntax(snippet: Snippet) -> None:
    """What can be said of a block that is not run."""
    if snippet.language == "python":
        ast.parse(snippet.text)
    elif snippet.language == "sh":
        done = subprocess.run(
            ["bash", "-n", "-c", snippet.text], capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, f"{snippet.place}: {done.stderr}"
