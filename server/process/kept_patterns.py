"""Regular expressions are compiled once, and kept for the starts that follow.

Python's own modules, those of libraries and ours compile some forty of them while they are imported, in Python. That took a
twenty-fifth of a start. While `keeping_patterns` lasts, `re` finds a function of this module where it would find its compiler. What the
compiler gives to the matcher, numbers and the names of groups, is kept in a file beside Python's compiled modules, by the pattern and
its flags. The matcher looks at such numbers before it takes them.

A Python whose `re` is put together in another way compiles them as ever.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FunctionType
from typing import Any, Final

from ottla.wire.kept_files import read_cached, write_cached

PATTERNS_MAX: Final = 500  # with those of earlier versions; if there are more, only what this process used is kept
COMPILER: Final = "re._compiler"
"""Python's own module: it has `compile(pattern, flags)`, which gives the outcome to `_sre.compile`."""

_PLAIN: Final = int(re.ASCII | re.IGNORECASE | re.MULTILINE | re.DOTALL | re.UNICODE | re.VERBOSE)
"""The flags with which the outcome depends on nothing else, and nothing is shown."""

Key = tuple[str | bytes, int]
"""A pattern and its flags."""
Outcome = tuple[Any, ...]
"""What the matcher needs beside the pattern."""


class KeptPatterns:
    """Compiled patterns. `kept` has what the matcher needs of each."""

    def __init__(self, compiler: Any, kept: Mapping[Key, Outcome]) -> None:
        """`compiler`: Python's module."""
        self._original, self._matcher = compiler.compile, compiler._sre
        self._kept = dict(kept)
        self._used: dict[Key, Outcome] = {}
        self.has_news = False

    def compile(self, pattern: Any, flags: Any = 0) -> Any:
        """What Python's function returns and raises."""
        if not isinstance(pattern, (str, bytes)) or int(flags) & ~_PLAIN:
            return self._original(pattern, flags)
        key = (pattern, int(flags))
        outcome = self._kept.get(key)
        if outcome is not None:
            # Perhaps another Ottla has kept it in another way. A start that failed of that would fail each time.
            with suppress(TypeError, ValueError, OverflowError, RuntimeError):
                found = self._matcher.compile(pattern, *outcome)
                self._used[key] = outcome
                return found
        return self._compile_anew(key, flags)

    def _compile_anew(self, key: Key, flags: Any) -> Any:
        noted: list[Outcome] = []

        def note(pattern: str | bytes, *outcome: Any) -> Any:
            noted.append(outcome)
            return self._matcher.compile(pattern, *outcome)

        # Python's own function, which finds another matcher than all others do.
        names = {**self._original.__globals__, "_sre": _Overheard(self._matcher, note)}
        made = FunctionType(self._original.__code__, names, "compile", self._original.__defaults__)(key[0], flags)
        for chosen, code, *rest in noted:
            # Plain numbers, because only such can be kept in a file: some of them have names.
            self._used[key] = self._kept[key] = (int(chosen), [*map(int, code)], *rest)
            self.has_news = True
        return made

    def worth_keeping(self) -> dict[Key, Outcome]:
        return self._kept if len(self._kept) <= PATTERNS_MAX else self._used


class _Overheard:
    """Python's matcher with another `compile`."""

    def __init__(self, matcher: Any, compile: Callable[..., Any]) -> None:
        self._matcher = matcher
        self.compile = compile

    def __getattr__(self, name: str) -> Any:
        return getattr(self._matcher, name)


@contextmanager
def keeping_patterns(path: Path | None) -> Iterator[None]:
    """See the module's docstring. `path`: the file; None: there is none, and nothing is kept."""
    compiler: Any = sys.modules.get(COMPILER)
    if (
        path is None
        or not isinstance(getattr(compiler, "compile", None), FunctionType)
        or not hasattr(compiler, "_sre")
    ):
        yield
        return
    key = sys.version.encode()
    known = read_cached(path, key)
    patterns = KeptPatterns(compiler, known if isinstance(known, dict) else {})
    original, ours = compiler.compile, patterns.compile
    compiler.compile = ours
    try:
        yield
    finally:
        if compiler.compile is ours:
            compiler.compile = original
        if patterns.has_news:
            write_cached(path, key, patterns.worth_keeping())
