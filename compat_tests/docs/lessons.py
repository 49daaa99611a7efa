"""Runs the lessons of docs/course as a student would: types their commands in several terminals and compares what comes out.

A lesson is a page with blocks of code. A block `sh` is typed, and the block `text` right behind it is what it prints. A block `python` is
a file, named by the comment in its first line. Comments of HTML before a block say more, several with semicolons between them:

    <!-- terminal: NAME -->    it goes on in a terminal of its own; before `text`: what has been printed there since the last such block
    <!-- fails -->             the command has to end with an error
    <!-- again -->             it is typed until the output is as shown, for what takes a moment
    <!-- any order -->         the lines may come in another order
    <!-- long -->              left out of the short run of the lesson, with its output
    <!-- not run: REASON -->   it is only shown

`<!-- Ctrl-C: NAME -->` and `<!-- kill: NAME -->`, which stand alone, end what runs in a terminal.

In what is shown `<time>`, `<n>` and other words in angle brackets stand for what differs each time, and `<1,2>` for these numbers in any
order. A line `...` stands for any lines, and `...` at the end of a line for any end. Runs of blanks count as one, since columns are as
wide as what is in them. Ports and process ids on the page are others than those of the test: each stands for what came in its place when
it was first shown.
"""

import itertools
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from compat_tests.docs.pages import ROOT, parsed
from compat_tests.docs.snippets import PORT, Reader
from compat_tests.support.brokers import free_port, wait_until

PATIENCE_S = 60.0
"""For what a lesson waits for on a busy machine."""

PAUSE_S = 0.7
"""Between two tries of a command that is typed again."""

PORTS = (PORT, 9093, 9099, 9644, 8081, 8082)
"""Ports that lessons name in their commands and files."""

_MARKS = re.compile(r"<!-- (.*?) -->", re.DOTALL)
_KNOWN = {"terminal", "fails", "again", "any order", "long", "not run", "Ctrl-C", "kill"}
_FILE = re.compile(r"# ([\w.-]+)\n")
_PLACEHOLDERS = {
    "time": r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?",
    "n": r"-?\d[\d,.]*",
}
_VARIABLE = re.compile(
    r"<(\w+|\d+(?:,\d+)+)>|(?<=127\.0\.0\.1:)(\d{4,5})\b|(?<=pid )(\d+)\b|\b(" + "|".join(map(str, PORTS)) + r")\b"
)
_EXPORT = re.compile(r"^export (\w+)=(\S+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Step:
    """Something that a student does, or looks at."""

    kind: Literal["type", "see", "file", "end"]
    place: str
    text: str = ""
    """A command, an output or the content of a file; of an end the name of its signal."""

    terminal: str = ""
    """Empty: the one in which commands are typed one after the other."""

    shown: str | None = None
    """What a command prints; None if the page does not show it."""

    fails: bool = False
    again: bool = False
    any_order: bool = False
    long: bool = False


def steps(page: Path) -> list[Step]:
    """Return what a lesson has a student do. Raises AssertionError if a mark is unknown, or an output has no command."""
    found: list[Step] = []
    for language, text, marks, line in _blocks(page):
        place = f"{page.relative_to(ROOT)}:{line}"
        assert set(marks) <= _KNOWN, f"{place}: unknown marks {set(marks) - _KNOWN}"
        if "not run" in marks:
            assert len(marks["not run"]) > 10, f"{place}: say why it is not run"
            continue
        terminal, long = marks.get("terminal", ""), "long" in marks
        if language == "":
            name = "Ctrl-C" if "Ctrl-C" in marks else "kill"
            found.append(Step("end", place, text=name, terminal=marks[name]))
        elif language == "python":
            found.append(Step("file", place, text=text, long=long))
        elif language == "sh":
            found.append(Step("type", place, text, terminal, fails="fails" in marks, again="again" in marks, long=long))
        elif language == "text" and terminal:
            found.append(Step("see", place, text, terminal, any_order="any order" in marks, long=long))
        elif language == "text":
            last = found.pop()
            assert last.kind == "type" and last.shown is None and not last.terminal, f"{place}: whose output is this?"
            found.append(
                Step("type", last.place, last.text, shown=text, fails=last.fails, again=last.again,
                     any_order="any order" in marks, long=last.long)
            )  # fmt: skip
        else:
            raise AssertionError(f"{place}: a lesson has no blocks of {language!r}")
    return found


def _blocks(page: Path) -> Iterator[tuple[str, str, dict[str, str], int]]:
    """Yield (language, text, marks, line) of blocks of code, and of marks that stand alone: these have no language."""
    marks: dict[str, str] = {}
    for token in parsed(page):
        line = token.map[0] + 1 if token.map else 0
        if token.type == "fence":
            yield token.info.strip(), token.content, marks, line
            marks = {}
        elif token.type == "html_block":
            comment = _MARKS.search(token.content)
            marks = {}
            text = comment[1] if comment else ""
            for part in [text] if text.startswith("not run") else text.split("; ") if text else []:
                name, _, value = part.partition(": ")
                marks[name] = value
            if {"Ctrl-C", "kill"} & set(marks):
                yield "", "", marks, line
                marks = {}


class Differs(AssertionError):
    """What came out is not what the page shows."""


class Terminal:
    """One in which something goes on while the student types elsewhere."""

    def __init__(self, command: str, folder: Path, environment: dict[str, str], log: Path) -> None:
        self._log = log
        self.seen = 0
        """Characters that the page has shown already."""

        with log.open("wb") as output:
            self._process = subprocess.Popen(
                ["bash", "-euo", "pipefail", "-c", command],
                cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip

    @property
    def said(self) -> str:
        return self._log.read_text(errors="replace")

    def end(self, name: str) -> None:
        self._signal(signal.SIGINT if name == "Ctrl-C" else signal.SIGKILL)
        self._process.wait(PATIENCE_S)

    def close(self) -> None:
        """End it, if it still runs."""
        self._signal(signal.SIGTERM)
        try:
            self._process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._signal(signal.SIGKILL)
            self._process.wait()

    def _signal(self, number: int) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, number)


class Student(Reader):
    """Somebody who takes a lesson."""

    def __init__(self, folder: Path, port: int) -> None:
        """`port` is what stands on the page as 9092; the others of PORTS are any that are free."""
        super().__init__(folder, f"127.0.0.1:{port}")
        self._terminals: dict[str, Terminal] = {}
        self._closed: list[Terminal] = []
        self._variables: dict[str, str] = {}
        self._numbers = {str(each): str(free_port()) for each in PORTS} | {str(PORT): str(port)}
        """What stands on the page for ports and process ids, and what they are here."""

    def take(self, step: Step) -> None:
        """Do one step. Raises Differs if the page shows something else than what comes out."""
        if step.kind == "file":
            name = _FILE.match(step.text)
            assert name is not None, f"{step.place}: the first line names no file"
            (self.folder / name[1]).write_text(self.here(step.text))
        elif step.kind == "end":
            self._terminals[step.terminal].end(step.text)
        elif step.kind == "see":
            self._wait_for(step, self._terminals[step.terminal])
        elif step.terminal:
            if step.terminal in self._terminals:
                self._terminals[step.terminal].close()
                self._closed.append(self._terminals[step.terminal])
            log = self.folder.parent / f"{self.folder.name}-{step.terminal}-{len(self._closed)}.txt"
            command = self._remembering(self.here(step.text))
            self._terminals[step.terminal] = Terminal(command, self.folder, self.surroundings(), log)
        else:
            self._type(step)

    def close(self) -> None:
        """End what runs in the terminals, the last one first. Raises AssertionError if any showed a traceback."""
        while self._terminals:
            terminal = self._terminals.pop(list(self._terminals)[-1])
            terminal.close()
            self._closed.append(terminal)
        said = [each.said for each in self._closed]
        assert not any("Traceback" in each for each in said), said

    def here(self, command: str) -> str:
        """Replace the page's ports and process ids by those of this run. Raises AssertionError if it would kill a stranger."""
        unknown = [each for each in re.findall(r"\b\d{3,}\b", command) if each not in self._numbers]
        assert not (unknown and re.search(r"\bkill\b", command)), f"nothing that was shown has {unknown}: {command}"
        own = re.sub(r"\b\d+\b", lambda found: self._numbers.get(found[0], found[0]), command)
        if "listeners=" not in own:
            address = f"--override listeners=PLAINTEXT://{self.bootstrap}"
            own = re.sub(r"\bottla start\b", f"ottla start {address}", own)
        return own

    def surroundings(self) -> dict[str, str]:
        return self.environment() | self._variables | {"COLUMNS": "120", "NO_COLOR": "1", "PYTHONUNBUFFERED": "1"}

    def _remembering(self, command: str) -> str:
        self._variables |= {name: value.strip("'\"") for name, value in _EXPORT.findall(command)}
        return command

    def _type(self, step: Step) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            output = self.output_of(step)
            try:
                return self._compare(step, step.shown, output)
            except Differs:
                if not step.again or time.monotonic() > deadline:
                    raise
            time.sleep(PAUSE_S)  # each try is a process, and what it waits for takes a moment

    def output_of(self, step: Step) -> str:
        """Run a command and return what a terminal would show. Raises AssertionError if its exit status is not as it should be."""
        command = self._remembering(self.here(step.text))
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", command],
            cwd=self.folder, env=self.surroundings(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, errors="replace", timeout=240, check=False,
        )  # fmt: skip
        if not step.again:
            told = f"{step.place}: exit status {done.returncode}\n{step.text}\n{done.stdout}"
            assert (done.returncode != 0) == step.fails, told
        return done.stdout

    def _wait_for(self, step: Step, terminal: Terminal) -> None:
        def is_there() -> bool:
            try:
                self._compare(step, step.text, terminal.said[terminal.seen :])
            except Differs:
                return False
            return True

        try:
            wait_until(is_there, step.place, PATIENCE_S)
        except AssertionError:
            self._compare(step, step.text, terminal.said[terminal.seen :])
        terminal.seen = len(terminal.said)

    def _compare(self, step: Step, shown: str | None, output: str) -> None:
        if shown is None:
            return
        expected, came = plain(shown), plain(output)
        if step.any_order:
            came = self._in_order_of(expected, came)
        pattern, names = self._pattern(expected)
        found = re.fullmatch(pattern, "".join(f"{line}\n" for line in came))
        if found is None:
            raise Differs(f"{step.place}\n{step.text}\n--- the page shows:\n{shown}\n--- what came out:\n{output}")
        self._numbers |= {page: found[name] for name, page in names.items()}

    def _in_order_of(self, expected: list[str], came: list[str]) -> list[str]:
        """Sort lines so that each stands where the page has one like it; others go to the end."""
        rest = list(came)
        ordered: list[str] = []
        for line in expected:
            pattern = self._pattern([line])[0]
            like = next((each for each in rest if re.fullmatch(pattern, each + "\n")), None)
            if like is not None:
                rest.remove(like)
                ordered.append(like)
        return ordered + rest

    def _pattern(self, lines: list[str]) -> tuple[str, dict[str, str]]:
        """Return a regular expression of lines, and which of its groups stand for which numbers of the page."""
        names: dict[str, str] = {}

        def part(found: re.Match[str]) -> str:
            if found[1]:
                return _PLACEHOLDERS.get(found[1], r"\S+") if "," not in found[1] else _any_order(found[1].split(","))
            number = found[2] or found[3] or found[4]
            if number in self._numbers:
                return self._numbers[number]
            group = f"number_{number}"
            if group in names:
                return f"(?P={group})"
            names[group] = number
            return rf"(?P<{group}>\d+)"

        return "".join(r"(?:.*\n)*?" if line == "..." else _escaped(line, part) + r"\n" for line in lines), names


def _escaped(line: str, part: object) -> str:
    pieces, at = [], 0
    for found in _VARIABLE.finditer(line):
        pieces += [re.escape(line[at : found.start()]), part(found)]  # type: ignore[operator]
        at = found.end()
    rest, _, more = line[at:].partition("...") if line.endswith("...") else (line[at:], "", None)
    return "".join(pieces) + re.escape(rest) + (r".*" if more is not None else "")


def _any_order(numbers: list[str]) -> str:
    return "(?:" + "|".join(",".join(each) for each in itertools.permutations(numbers)) + ")"


def plain(text: str) -> list[str]:
    """Return lines with single blanks."""
    return [" ".join(line.split()) for line in text.splitlines()]
