"""The lines that the code can log, read from its syntax: the level and the constant part of each message."""

import ast
import functools
import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from compat_tests.docs.pages import ROOT

PACKAGES = ("wire", "replication", "groupcoord", "server")
LEVELS = ("warning", "error", "exception", "critical", "log")
"""Methods of a logger whose lines are looked at. `log` is given its level, which may be a warning."""
BUG = "bug: "
PLACE = "…"
"""What stands for each part that differs from line to line."""

Function = ast.FunctionDef | ast.AsyncFunctionDef

_CONVERSION = re.compile(r"%[-+ #0]*(?:\d+|\*)?(?:\.\d+)?[sdrifgxc]")


@dataclass(frozen=True, slots=True)
class LogLine:
    path: Path
    number: int
    level: str
    message: str

    @property
    def place(self) -> str:
        return f"{self.path.relative_to(ROOT)}:{self.number}"


@functools.cache
def log_lines() -> tuple[LogLine, ...]:
    paths = [
        path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py")) if "tests" not in path.parts
    ]
    return tuple(line for path in paths for line in lines_of(path))


def lines_of(path: Path, levels: Sequence[str] = LEVELS) -> Iterator[LogLine]:
    source = path.read_text()
    tree = ast.parse(source if "logger" in source else "")
    for function in [each for each in ast.walk(tree) if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]:
        for call in _own_calls(function):
            level, text = _logged(call, levels)
            if text is not None:
                messages = _messages(text, function, tree)
                assert messages, f"{path}:{call.lineno}: the text of this log line is not found"
                for message in messages:
                    yield LogLine(path, call.lineno, level, message)


def _own_calls(function: Function) -> Iterator[ast.Call]:
    """The calls in a function, without those in functions inside it."""
    unread: list[ast.AST] = list(ast.iter_child_nodes(function))
    while unread:
        node = unread.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if isinstance(node, ast.Call):
            yield node
        unread += ast.iter_child_nodes(node)


def _logged(call: ast.Call, levels: Sequence[str]) -> tuple[str, ast.expr | None]:
    """The level and the text of the line that a call logs; None: it logs none.

    It is a method of a logger, or a function that is given one: `reminder.tell(name, logger.warning, text, ...)`.
    """
    level = _level(call.func, levels)
    if level:
        return level, call.args[1 if level == "log" else 0]
    for argument, text in itertools.pairwise(call.args):
        level = _level(argument, levels)
        if level:
            return level, text
    return "", None


def _level(node: ast.expr, levels: Sequence[str]) -> str:
    """Of a logger's method, or of `partial` of one; "": it is something else."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "partial":
        return _level(node.args[0], levels)
    is_logger = (
        isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id.endswith("logger")
    )
    return node.attr if isinstance(node, ast.Attribute) and is_logger and node.attr in levels else ""


def _messages(node: ast.expr, function: Function, tree: ast.Module) -> list[str]:
    """The messages that an expression in a function can be, with PLACE for each part that differs."""
    if isinstance(node, ast.Constant):
        return [shortened(str(node.value))]
    if isinstance(node, ast.JoinedStr):
        parts = [str(part.value) if isinstance(part, ast.Constant) else PLACE for part in node.values]
        return [shortened("".join(parts))]
    if isinstance(node, ast.IfExp):
        return [*_messages(node.body, function, tree), *_messages(node.orelse, function, tree)]
    if isinstance(node, ast.Name):
        return [message for value in _values(node.id, function, tree) for message in _messages(value, function, tree)]
    return []


def _values(name: str, function: Function, tree: ast.Module) -> Iterator[ast.expr]:
    """What a name is in a function: what is assigned to it there, or what its callers in this file give."""
    for each in ast.walk(function):
        if isinstance(each, ast.Assign) and any(isinstance(to, ast.Name) and to.id == name for to in each.targets):
            yield each.value
    parameters = [each.arg for each in function.args.args if each.arg != "self"]
    if name in parameters:
        for call in [each for each in ast.walk(tree) if isinstance(each, ast.Call)]:
            if isinstance(call.func, ast.Attribute | ast.Name) and _name_of(call.func) == function.name:
                yield call.args[parameters.index(name)]


def _name_of(function: ast.Attribute | ast.Name) -> str:
    return function.attr if isinstance(function, ast.Attribute) else function.id


def shortened(message: str) -> str:
    """The constant part: conversions of `%` are PLACE."""
    return _CONVERSION.sub(PLACE, message)
