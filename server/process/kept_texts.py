"""What libraries write as text and compile while they are imported is compiled once, and kept for the starts that follow.

`dataclasses`, `collections.namedtuple` and `attrs`, which trio uses, write the methods of each class as text. To compile some
four hundred such texts took a fifth of a start. While `keeping_texts` lasts, these modules find functions of this one where they
would find Python's own `exec`, `eval` and `compile`. Whatever text they have is looked up in a file beside Python's compiled
modules: the very text, with its file name, mode and flags. What is not there is compiled, and written for the next start.

A library that does not do so any more, or has changed its texts, is compiled as ever.
"""

from __future__ import annotations

import builtins
import marshal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, Final

from ottla.wire.kept_files import read_cached, write_cached

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
        return {
            "compile": partial(self._compile, module),
            "eval": partial(self._run, "eval"),
            "exec": partial(self._run, "exec"),
        }

    def _run(self, mode: str, source: Any, *namespaces: Any) -> Any:
        # Python's own functions take the namespace of their caller if they are given none.
        assert namespaces, f"{mode} without a namespace"
        code = self.code(source, "<string>", mode) if isinstance(source, str) else source
        return getattr(builtins, mode)(code, *namespaces)

    def _compile(self, module: Mapping[str, Any], source: Any, filename: Any, mode: str, *more: Any, **named: Any) -> Any:
        if more or named or not isinstance(source, str) or not isinstance(filename, str):
            return compile(source, filename, mode, *more, **named)
        # As Python does it for a caller with this future.
        flags = getattr(module.get("annotations"), "compiler_flag", 0)
        return self.code(source, filename, mode, flags)


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
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            # Of this one loader, which has this one module.
            setattr(spec.loader, "exec_module", partial(self._run, spec.loader.exec_module))  # noqa: B010
        return spec

    def _run(self, run: Callable[[ModuleType], None], module: ModuleType) -> None:
        self._give(module)
        run(module)


WRITERS: Final = ("attr._make", "collections", "dataclasses")
"""The modules that write texts and compile them."""


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
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        for namespace, functions in given:
            for name, function in functions.items():
                if namespace.get(name) is function:  # unless the module has one of its own by now
                    del namespace[name]
        if texts.has_news:
            write_cached(path, key, texts.worth_keeping())


def path_of_texts() -> Path | None:
    """Where a start keeps them; None: nothing is compiled to files here, as in a zip file."""
    compiled = __spec__.cached if __spec__ is not None else None
    return None if compiled is None else Path(compiled).with_name(f"start.{sys.implementation.cache_tag}.texts")
