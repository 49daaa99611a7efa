"""Runs a lesson and fills in the output of its commands: `python -m compat_tests.docs.fill_lesson docs/course/13-command-line.md`.

A block `text` that contains only `(output)` is filled; the output in all other blocks must already be right. The tool writes `<time>` for
times, `<id>` for ids, and the page's own numbers for ports. Check the result by hand: process ids and other numbers that differ from run to
run are still those of this run.
"""

import re
import sys
import tempfile
import time
from pathlib import Path

from compat_tests.docs.lessons import Step, Student, Terminal, steps
from compat_tests.support.brokers import free_port

PLACEHOLDER = "(output)"
QUIET_S = 3.0
"""Time without new output after which a terminal's output is taken as complete."""

_TIME = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d+)?Z?")
_ID = re.compile(r"(?<![\w-])[\w-]{22}(?![\w-])")


class Author(Student):
    """A student who collects the output of commands for blocks that contain only the placeholder."""

    def __init__(self, folder: Path, port: int) -> None:
        super().__init__(folder, port)
        self.outputs: list[str] = []
        """Outputs for the blocks with the placeholder, in the order of the page."""

    def _compare(self, step: Step, shown: str | None, output: str) -> None:
        if shown is not None and shown.strip() == PLACEHOLDER:
            self.outputs.append(self._as_shown(output))
        else:
            super()._compare(step, shown, output)

    def _wait_for(self, step: Step, terminal: Terminal) -> None:
        if step.text.strip() == PLACEHOLDER:
            before, since = "", time.monotonic()
            while not before or time.monotonic() < since + QUIET_S:
                time.sleep(0.1)
                if terminal.said != before:
                    before, since = terminal.said, time.monotonic()
        super()._wait_for(step, terminal)

    def _as_shown(self, output: str) -> str:
        pages = {here: page for page, here in self._numbers.items()}
        text = re.sub(r"\b\d{3,7}\b", lambda found: pages.get(found[0], found[0]), output)
        text = _TIME.sub("<time>", _ID.sub("<id>", text))
        return "\n".join(line.rstrip() for line in text.rstrip("\n").split("\n"))


def fill(page: Path, folder: Path) -> int:
    """Replace each placeholder of a page by the output; return the number of replaced ones. Raises Differs if another block is wrong."""
    author = Author(folder, free_port())
    try:
        for step in steps(page):
            author.take(step)
    finally:
        author.close()
        text = page.read_text()
        for output in author.outputs:
            text = text.replace(f"```text\n{PLACEHOLDER}\n", f"```text\n{output}\n", 1)
        page.write_text(text)
    return len(author.outputs)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as desk:
        print(fill(Path(sys.argv[1]).resolve(), Path(desk) / "desk"), "blocks filled")
