"""Runs the lessons of docs/course as a student would: types their commands in several terminals and compares the output with the page.

A lesson is a page with blocks of code. A block `sh` is a command, and the block `text` right behind it shows the command's output. A block
`python` is a file; the comment in its first line is the file's name. An HTML comment before a block marks the block. Semicolons separate
several marks in one comment:

    <!-- terminal: NAME -->    before `sh`: run the command in a terminal of its own, and go on with the lesson meanwhile;
                               before `text`: the terminal has printed this since the last such block
    <!-- fails -->             the command must end with an error
    <!-- again -->             repeat the command until it prints the output on the page
    <!-- any order -->         the lines of the output may come in another order
    <!-- long -->              the short run of the lesson leaves out this command and its output
    <!-- not run: REASON -->   the block is never run

`<!-- Ctrl-C: NAME -->` and `<!-- kill: NAME -->` belong to no block: they end the command that runs in that terminal.

In a block of output `<time>`, `<n>` and other words in angle brackets match values that differ from run to run; `<1,2>` matches these
numbers in any order. A line `...` matches any lines, and `...` at the end of a line matches the rest of it. Several blanks count as one,
because columns are as wide as their values. The test has other ports and process ids than the page: when the page first shows one, the
runner remembers which number of the test it stands for.
"""

import itertools
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from compat_tests.docs.pages import ROOT, parsed
from compat_tests.docs.snippets import PORT, Reader
from compat_tests.support.brokers import free_port, wait_until

PATIENCE_S = 60.0
"""Longest wait for an expected output, or for the end of a process, on a busy machine."""

PAUSE_S = 0.7
"""Pause before a command with the mark `again` is repeated."""

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
    """Command, file or Ctrl-C of a student, or output of a terminal to look at."""

    kind: Literal["type", "see", "file", "end"]
    place: str
    text: str = ""
    """Command, output or content of the file; of an "end" `Ctrl-C` or `kill`."""

    terminal: str = ""
    """Name of the terminal; empty for the first one, where each command must end before the next is typed."""

    shown: str | None = None
    """Output of the command; None if the page does not show it."""

    fails: bool = False
    again: bool = False
    any_order: bool = False
    long: bool = False


def steps(page: Path) -> list[Step]:
    """Return the steps of a lesson. Raises AssertionError if a mark is unknown, or an output has no command."""
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
    """Yield (language, text, marks, line) of blocks of code, and of `Ctrl-C` and `kill` with an empty language."""
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
    """The output is not the one on the page."""


class Terminal:
    """A terminal whose command runs while the student types in another one."""

    def __init__(self, command: str, folder: Path, environment: dict[str, str], log: Path) -> None:
        self._log = log
        self.seen = 0
        """Number of characters that earlier blocks of the page have shown."""

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
        """End the command if it still runs."""
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
    """Runner that does the steps of a lesson as a student would."""

    def __init__(self, folder: Path, port: int) -> None:
        """Use `port` for 9092 on the page, and free ports for the other PORTS."""
        super().__init__(folder, f"127.0.0.1:{port}")
        self._terminals: dict[str, Terminal] = {}
        self._closed: list[Terminal] = []
        self._variables: dict[str, str] = {}
        self._numbers = {str(each): str(free_port()) for each in PORTS} | {str(PORT): str(port)}
        """Ports and process ids of this run, by those of the page."""

    def take(self, step: Step) -> None:
        """Do one step. Raises Differs if the output is not the one on the page."""
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
        """End the commands in the terminals, the last one first. Raises AssertionError if a terminal shows a traceback."""
        while self._terminals:
            terminal = self._terminals.pop(list(self._terminals)[-1])
            terminal.close()
            self._closed.append(terminal)
        said = [each.said for each in self._closed]
        assert not any("Traceback" in each for each in said), said

    def here(self, command: str) -> str:
        """Replace the page's ports and process ids by those of this run.

        Raises AssertionError if the command kills a process id that no output has shown: it could be any process of this machine.
        """
        unknown = [each for each in re.findall(r"\b\d{3,}\b", command) if each not in self._numbers]
        assert not (unknown and re.search(r"\bkill\b", command)), f"no output has shown {unknown}: {command}"
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
            time.sleep(PAUSE_S)  # each try starts a process, so do not try at once

    def output_of(self, step: Step) -> str:
        """Run a command and return its stdout and stderr. Raises AssertionError if it fails, or if a step marked `fails` succeeds."""
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
            raise Differs(f"{step.place}\n{step.text}\n--- the page shows:\n{shown}\n--- the output is:\n{output}")
        self._numbers |= {page: found[name] for name, page in names.items()}

    def _in_order_of(self, expected: list[str], came: list[str]) -> list[str]:
        """Bring the lines that `came` into the order of the `expected` lines they match; put the others at the end."""
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
        """Return a regular expression that matches the lines, and the page's numbers by the names of its groups."""
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


def _escaped(line: str, part: Callable[[re.Match[str]], str]) -> str:
    pieces, at = [], 0
    for found in _VARIABLE.finditer(line):
        pieces += [re.escape(line[at : found.start()]), part(found)]
        at = found.end()
    rest, _, more = line[at:].partition("...") if line.endswith("...") else (line[at:], "", None)
    return "".join(pieces) + re.escape(rest) + (r".*" if more is not None else "")


def _any_order(numbers: list[str]) -> str:
    return "(?:" + "|".join(",".join(each) for each in itertools.permutations(numbers)) + ")"


def plain(text: str) -> list[str]:
    """Return the lines with each run of blanks replaced by one."""
    return [" ".join(line.split()) for line in text.splitlines()]
