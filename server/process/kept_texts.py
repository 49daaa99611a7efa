"""What libraries write as text and compile while they are imported is compiled once, and kept for the starts that follow.

`dataclasses`, `collections.namedtuple` and `attrs`, which trio uses, write the methods of each class as text, and `typing` compiles
each annotation of a named tuple. To compile some hundreds of such texts took a fifth of a start. While `keeping_texts` lasts, these
modules find functions of this one where they would find Python's own `exec`, `eval` and `compile`. Whatever text they have is looked
up in a file beside Python's compiled modules: the very text, with its file name, mode and flags. What is not there is compiled, and
written for the next start.

`attrs` writes into each `__hash__` the hash of the class's name, which Python draws anew for each process. No text would ever be the
same again, so it finds a `hash` of this module, too.

A library that does not do so any more, or has changed its texts, is compiled as ever.
"""

from __future__ import annotations

import builtins
import marshal
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import CodeType, ModuleType
from typing import TYPE_CHECKING, Any, Final

from ottla.server.process.finders import put_before, take_away
from ottla.wire.kept_files import read_cached, write_cached

if TYPE_CHECKING:
    from importlib.abc import Loader

TEXTS_MAX: Final = 2_000  # with those of earlier versions; if there are more, only what this process used is kept

Text = tuple[str, str, str, int]
"""The text, its file name, mode and flags."""


class KeptTexts:
    """Compiled texts. `kept` has the code of each as `marshal` writes it."""

    def __init__(self, kept: Mapping[Text, bytes]) -> None:
        self._kept = dict(kept)
        self._used: dict[Text, bytes] = {}
        self.has_news = False

    def code(self, text: str, filename: str, mode: str, flags: int = 0) -> CodeType:
        """Raises what `compile` raises."""
        key = (text, filename, mode, flags)
        kept = self._kept.get(key)
        if kept is not None:
            self._used[key] = kept
            code: CodeType = marshal.loads(kept)
            return code
        code = compile(text, filename, mode, flags, dont_inherit=True)
        self._used[key] = self._kept[key] = marshal.dumps(code)
        self.has_news = True
        return code

    def worth_keeping(self) -> dict[Text, bytes]:
        return self._kept if len(self._kept) <= TEXTS_MAX else self._used

    def functions_for(self, module: Mapping[str, Any]) -> dict[str, Callable[..., Any]]:
        """What stands in for Python's functions in a module with this namespace, by their names."""
        functions: dict[str, Callable[..., Any]] = {
            "compile": partial(self._compile, module),
            "eval": partial(self._run, module, "eval"),
            "exec": partial(self._run, module, "exec"),
        }
        # Nobody else: what has been put into a dictionary meanwhile has to be found there later.
        return {**functions, "hash": _steady_hash} if module.get("__name__") == WRITES_HASHES else functions

    def _run(self, module: Mapping[str, Any], mode: str, source: Any, *namespaces: Any, **named: Any) -> Any:
        if not namespaces and not named:
            # Python's own functions take those of their caller. There is no frame of the partial function between.
            caller = sys._getframe(1)
            namespaces = caller.f_globals, caller.f_locals
        if isinstance(source, str):
            # Python's own `eval` passes over what `compile` would take for an indentation.
            text = source.lstrip(" \t") if mode == "eval" else source
            source = self.code(text, "<string>", mode, _future_of(module))
        return getattr(builtins, mode)(source, *namespaces, **named)

    def _compile(
        self, module: Mapping[str, Any], source: Any, filename: Any, mode: str, *more: Any, **named: Any
    ) -> Any:
        if more or named or not isinstance(source, str) or not isinstance(filename, str):
            return compile(source, filename, mode, *more, **named)
        return self.code(source, filename, mode, _future_of(module))


def _steady_hash(value: object) -> int:
    """The same for the same text in each process."""
    return zlib.crc32(value.encode("utf-8", "surrogatepass")) if isinstance(value, str) else hash(value)


def _future_of(module: Mapping[str, Any]) -> int:
    """The flags of the one future that modules have: Python gives them to texts that such a module compiles, too."""
    return getattr(module.get("annotations"), "compiler_flag", 0)


class _Finder:
    """Gives modules their functions before they run."""

    def __init__(self, names: Sequence[str], give: Callable[[ModuleType], None]) -> None:
        self._names = names
        self._give = give

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in self._names:
            return None
        finders = sys.meta_path
        # Another thread may have taken this one away just now.
        others = finders[finders.index(self) + 1 :] if self in finders else finders
        spec = next((found for each in others if (found := each.find_spec(name, path, target)) is not None), None)
        if spec is not None and spec.loader is not None:
            setattr(spec, "loader", _Loader(spec.loader, self._give))  # noqa: B010 - its class would load many modules
        return spec


class _Loader:
    """Loads one module as `loader` does, which may load others as well: that of a zip file loads all in it."""

    def __init__(self, loader: Loader, give: Callable[[ModuleType], None]) -> None:
        self._loader = loader
        self._give = give

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        # From here on it is as if there had never been another loader.
        assert module.__spec__ is not None
        module.__spec__.loader = module.__loader__ = self._loader
        self._give(module)
        self._loader.exec_module(module)


WRITERS: Final = ("attr._make", "collections", "dataclasses", "typing")
"""The modules that write texts and compile them."""
WRITES_HASHES: Final = "attr._make"


@contextmanager
def keeping_texts(path: Path | None, writers: Sequence[str] = WRITERS) -> Iterator[None]:
    """See the module's docstring. `path`: the file; None: there is none, and nothing is kept."""
    if path is None:
        yield
        return
    key = f"{sys.version} {sys.flags.optimize}".encode()
    known = read_cached(path, key)
    texts = KeptTexts(known if isinstance(known, dict) else {})
    given: list[tuple[dict[str, Any], dict[str, Callable[..., Any]]]] = []

    def give(module: ModuleType) -> None:
        namespace = vars(module)
        functions = texts.functions_for(namespace)
        namespace.update(functions)
        given.append((namespace, functions))

    for name in writers:
        if name in sys.modules:
            give(sys.modules[name])
    finder = _Finder(writers, give)
    put_before(finder)
    try:
        yield
    finally:
        take_away(finder)
        for namespace, functions in given:
            for name, function in functions.items():
                if namespace.get(name) is function:  # unless the module has one of its own by now
                    del namespace[name]
        if texts.has_news:
            write_cached(path, key, texts.worth_keeping())
