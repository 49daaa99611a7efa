"""Texts of classes are compiled once: what is kept is used, and whoever has another text gets what that text says."""

import collections
import dataclasses
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from types import CodeType

import pytest

from ottla.server.process import kept_texts
from ottla.server.process.kept_texts import KeptTexts, keeping_texts

TEXT = "answer = 42"


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    return tmp_path / "start.texts"


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What had to be compiled."""
    texts: list[str] = []

    def noting(text: str, filename: str, mode: str, flags: int = 0, *, dont_inherit: bool = False) -> CodeType:
        texts.append(text)
        made: CodeType = compile(text, filename, mode, flags, dont_inherit)
        return made

    monkeypatch.setattr(kept_texts, "compile", noting, raising=False)
    return texts


def declare(field: str) -> tuple[type, type]:
    return dataclasses.make_dataclass("Made", [field]), collections.namedtuple("Pair", [field, "other"])


def works(made: type, pair: type, field: str) -> bool:
    return (
        getattr(made(3), field) == 3 and made(3) == made(3) and pair(1, 2) == (1, 2) and getattr(pair(1, 2), field) == 1
    )


def test_the_second_time_nothing_is_compiled(path: Path, compiled: list[str]) -> None:
    with keeping_texts(path):
        assert works(*declare("name"), "name")
    assert compiled
    compiled.clear()
    with keeping_texts(path):
        assert works(*declare("name"), "name")
        assert compiled == []
        assert works(*declare("another"), "another")
        assert compiled


def test_damaged_file_is_not_used(path: Path, compiled: list[str]) -> None:
    with keeping_texts(path):
        declare("name")
    path.write_bytes(path.read_bytes()[:-1])
    compiled.clear()
    with keeping_texts(path):
        assert works(*declare("name"), "name")
    assert compiled
    compiled.clear()
    with keeping_texts(path):  # it was written anew
        declare("name")
    assert compiled == []


def test_afterwards_the_libraries_are_as_before(path: Path) -> None:
    before = dict(vars(dataclasses)), dict(vars(collections)), list(sys.meta_path)
    with pytest.raises(ZeroDivisionError), keeping_texts(path):
        assert "exec" in vars(dataclasses)
        assert "eval" in vars(collections)
        raise ZeroDivisionError
    assert (vars(dataclasses), vars(collections), sys.meta_path) == before


def test_a_module_that_is_imported_meanwhile_has_them_too(
    path: Path, compiled: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = path.parent / "writer_of_texts.py"
    writer.write_text(
        "from __future__ import annotations\n"
        "names = {}\n"
        "eval(compile('def f(a: Missing): pass', '<f>', 'exec'), names)\n"
        "six = eval('2 * 3', {})\n"
    )
    monkeypatch.syspath_prepend(str(path.parent))
    for _ in range(2):
        compiled.clear()
        monkeypatch.delitem(sys.modules, "writer_of_texts", raising=False)
        with keeping_texts(path, ["writer_of_texts"]):
            import writer_of_texts  # type: ignore[import-not-found]
        assert writer_of_texts.six == 6
        # The future of the module that calls holds for its texts: nobody looks for what `Missing` is.
        assert writer_of_texts.names["f"].__annotations__ == {"a": "Missing"}
        assert "compile" not in vars(writer_of_texts)
    assert compiled == []


def test_texts_mean_what_they_mean_to_python(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the future of their module, with the names of whoever runs them, and with what stands in front of them."""
    (path.parent / "plain_writer.py").write_text(
        "from __future__ import annotations\n"
        "names = {}\n"
        "exec('def f(a: Missing): pass', names)\n"
        "exec('six = 6')\n"
        "def nine():\n"
        "    three = 3\n"
        "    return eval(' three * 3')\n"
    )
    monkeypatch.syspath_prepend(str(path.parent))
    for _ in range(2):
        monkeypatch.delitem(sys.modules, "plain_writer", raising=False)
        with keeping_texts(path, ["plain_writer"]):
            import plain_writer  # type: ignore[import-not-found]

            assert plain_writer.names["f"].__annotations__ == {"a": "Missing"}
            assert (plain_writer.six, plain_writer.nine()) == (6, 9)
        assert plain_writer.nine() == 9


def test_other_modules_of_a_zip_file_are_loaded_as_ever(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with zipfile.ZipFile(path.parent / "libraries.zip", "w") as libraries:
        libraries.writestr("zipped_writer.py", "six = eval('2 * 3', {})\n")
        for name in ("zipped_meanwhile", "zipped_later"):
            libraries.writestr(f"{name}.py", "has_eval_of_its_own = 'eval' in globals()\n")
    monkeypatch.syspath_prepend(str(path.parent / "libraries.zip"))
    with keeping_texts(path, ["zipped_writer"]):
        import zipped_meanwhile  # type: ignore[import-not-found]
        import zipped_writer  # type: ignore[import-not-found]

        assert "eval" in vars(zipped_writer)
    import zipped_later  # type: ignore[import-not-found]

    assert zipped_writer.six == 6
    assert "eval" not in vars(zipped_writer)
    assert zipped_writer.__spec__.loader is zipped_writer.__loader__ is zipped_later.__loader__
    assert not zipped_meanwhile.has_eval_of_its_own
    assert not zipped_later.has_eval_of_its_own


def test_nobody_else_may_write_to_what_is_kept(path: Path) -> None:
    leftover = path.with_name(f"{path.name}.{os.getpid()}")
    leftover.write_bytes(b"")
    leftover.chmod(0o666)
    before = os.umask(0)
    try:
        with keeping_texts(path):
            declare("name")
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o644
    assert not leftover.exists()


def test_no_file_nothing_kept() -> None:
    with keeping_texts(None):
        assert "exec" not in vars(dataclasses)


def test_mode_name_and_flags_belong_to_a_text(compiled: list[str]) -> None:
    texts = KeptTexts({})
    texts.code("42", "a", "eval")
    for filename, mode, flags in (("b", "eval", 0), ("a", "exec", 0), ("a", "eval", 0x1000000)):
        texts.code("42", filename, mode, flags)
    assert texts.code("42", "a", "eval").co_filename == "a"
    assert len(compiled) == 4


def test_what_was_not_used_is_dropped_when_there_is_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    old = KeptTexts({})
    for number in range(3):
        old.code(f"{number}", "", "eval")
    monkeypatch.setattr(kept_texts, "TEXTS_MAX", 3)
    texts = KeptTexts(old.worth_keeping())
    texts.code("1", "", "eval")
    assert len(texts.worth_keeping()) == 3
    assert not texts.has_news
    texts.code("3", "", "eval")
    assert {text for text, *_ in texts.worth_keeping()} == {"1", "3"}


def test_a_text_that_cannot_be_compiled_is_refused_as_ever() -> None:
    texts = KeptTexts({})
    with pytest.raises(SyntaxError):
        texts.code("no text of Python", "", "exec")
    assert texts.worth_keeping() == {}
    assert not texts.has_news


def test_the_next_process_has_the_same_texts(tmp_path: Path) -> None:
    """Whatever number Python draws there for its hashes: attrs writes one into the methods that it makes."""
    path = tmp_path / "start.texts"
    program = (
        "import sys; from pathlib import Path; from ottla.server.process.kept_texts import keeping_texts\n"
        "with keeping_texts(Path(sys.argv[1])):\n"
        "    import attr\n"
        "    @attr.frozen\n"
        "    class Made:\n"
        "        name: str\n"
        "    assert hash(Made('a')) == hash(Made('a'))\n"
        "assert 'hash' not in vars(attr._make)\n"
    )
    written = []
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        subprocess.run([sys.executable, "-c", program, str(path)], check=True, env=environment)
        written.append(path.stat().st_ino)  # whoever writes it makes another file
    assert written[0] == written[1]
