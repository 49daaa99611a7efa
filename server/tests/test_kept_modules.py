"""What a start has imported the next one takes from one file, unless the source says something else by now."""

import importlib
import importlib.util
import os
import py_compile
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack
from importlib.machinery import FileFinder, SourceFileLoader
from pathlib import Path
from types import CodeType
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.server.process import kept_modules
from ottla.server.process.kept_modules import KeptModules, keeping_modules
from ottla.wire.kept_files import Pieces, write_pieces

NAMES = ("kept_alone", "kept_package", "kept_package.inner")


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Of the file; beside it are two folders of the search path, and the second has the modules."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.setattr(sys, "pycache_prefix", None)
    for name in ("later", "earlier"):
        (tmp_path / name).mkdir()
        monkeypatch.syspath_prepend(str(tmp_path / name))
    package = tmp_path / "later" / "kept_package"
    package.mkdir()
    (package / "__init__.py").write_text("what = 'package'\n")
    (package / "inner.py").write_text("what = 'inner'\n")
    (tmp_path / "later" / "kept_alone.py").write_text("what = 'alone'\ndef source():\n    return __file__\n")
    yield tmp_path / "start.modules"
    forget()


def forget() -> None:
    for name in NAMES:
        sys.modules.pop(name, None)
    importlib.invalidate_caches()


def load(path: Path) -> dict[str, bool]:
    """Import them all anew; says which of them came from the file."""
    forget()
    with keeping_modules(path):
        modules = {name: importlib.import_module(name) for name in NAMES}
    return {name: isinstance(module.__loader__, kept_modules._KeptLoader) for name, module in modules.items()}


def test_the_second_time_all_come_from_the_file(path: Path) -> None:
    assert load(path) == dict.fromkeys(NAMES, False)
    written = path.stat().st_ino
    as_ever = {name: attributes(name) for name in NAMES}
    assert load(path) == dict.fromkeys(NAMES, True)
    assert {name: attributes(name) for name in NAMES} == as_ever
    assert path.stat().st_ino == written  # there was nothing to write


def attributes(name: str) -> tuple[object, ...]:
    module = sys.modules[name]
    spec = module.__spec__
    assert spec is not None
    function = getattr(module, "source", None)
    return (
        module.what,
        module.__file__,
        module.__cached__,
        module.__package__,
        getattr(module, "__path__", None),
        (spec.name, spec.origin, spec.cached, spec.has_location, spec.submodule_search_locations, spec.parent),
        function and (function(), function.__code__.co_filename),
    )


def test_another_source_is_imported_as_ever_and_kept(path: Path) -> None:
    load(path)
    (path.parent / "later" / "kept_alone.py").write_text("what = 'changed'\n")
    assert load(path) == {"kept_alone": False, "kept_package": True, "kept_package.inner": True}
    assert sys.modules["kept_alone"].what == "changed"
    assert load(path)["kept_alone"]
    assert sys.modules["kept_alone"].what == "changed"


def test_a_source_of_the_same_size_has_another_time(path: Path) -> None:
    load(path)
    source = path.parent / "later" / "kept_alone.py"
    before = source.stat()
    source.write_text(source.read_text().replace("alone", "other"))
    os.utime(source, (before.st_atime, before.st_mtime + 2))
    assert not load(path)["kept_alone"]
    assert sys.modules["kept_alone"].what == "other"


def test_a_source_that_changes_within_a_second_is_seen_if_python_sees_it(path: Path) -> None:
    """As after `pip install`, which compiles whatever it brings: the file must not know less than the compiled ones."""
    source = path.parent / "later" / "kept_alone.py"
    os.utime(source, ns=(0, 7_000_000_001))
    load(path)
    source.write_text(source.read_text().replace("alone", "other"))
    os.utime(source, ns=(0, 7_000_000_002))
    py_compile.compile(str(source))
    assert not load(path)["kept_alone"]
    assert sys.modules["kept_alone"].what == "other"
    os.utime(source, ns=(0, 7_000_000_000))  # as it comes out of the archive of an image
    assert load(path)["kept_alone"]


@pytest.mark.parametrize(
    "hiding", ["earlier/kept_alone.py", "earlier/kept_alone/__init__.py", "later/kept_alone/__init__.py"]
)
def test_a_module_that_comes_first_hides_it(path: Path, hiding: str) -> None:
    load(path)
    other = path.parent / hiding
    other.parent.mkdir(exist_ok=True)
    other.write_text("what = 'in front'\n")
    assert not load(path)["kept_alone"]
    assert sys.modules["kept_alone"].what == "in front"


def test_a_module_in_an_earlier_archive_hides_it(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load(path)
    archive = path.parent / "earlier" / "archive.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("kept_alone.py", "what = 'in front'")
        file.writestr("folder/kept_alone.py", "what = 'in its folder'")
    for place, what in ((archive, "in front"), (archive / "folder", "in its folder")):
        monkeypatch.syspath_prepend(str(place))
        assert not load(path)["kept_alone"]
        assert sys.modules["kept_alone"].what == what


def test_a_place_that_comes_earlier_in_the_package_hides_it(path: Path) -> None:
    (path.parent / "later" / "kept_package" / "__init__.py").write_text(
        f"what = 'package'\n__path__.insert(0, {str(path.parent / 'earlier')!r})\n"
    )
    load(path)
    assert load(path)["kept_package"]
    (path.parent / "earlier" / "inner.py").write_text("what = 'in front'\n")
    load(path)
    assert sys.modules["kept_package.inner"].what == "in front"


def test_files_beside_the_modules_hide_nothing_and_nothing_is_written_for_them(path: Path) -> None:
    (path.parent / "earlier" / "kept_alone.conf").touch()
    load(path)
    assert all(load(path).values())


def test_what_is_hidden_at_each_start_is_not_written_at_each_start(path: Path) -> None:
    (path.parent / "earlier" / "kept_alone").mkdir()  # no package, so Python goes on to look for one
    load(path)
    written = path.stat().st_ino
    for _ in range(2):
        assert load(path) == {"kept_alone": False, "kept_package": True, "kept_package.inner": True}
        assert path.stat().st_ino == written


def test_what_is_in_no_folder_is_passed_over(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load(path)
    gone = path.parent / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    monkeypatch.setattr(sys, "path", ["", "relative", os.fsencode(path), *sys.path])
    assert all(load(path).values())


def test_code_that_was_compiled_elsewhere_has_the_path_that_it_has_now(path: Path) -> None:
    """As in an image, which has what was installed in another folder."""
    source, elsewhere = path.parent / "later" / "kept_alone.py", path.parent / "before"
    moved = Path(f"{elsewhere}{source}")
    moved.parent.mkdir(parents=True)
    shutil.copy2(source, moved)
    py_compile.compile(str(moved), cfile=importlib.util.cache_from_source(str(source)))
    for _ in range(2):
        load(path)
        assert sys.modules["kept_alone"].source.__code__.co_filename == str(source)


def test_whoever_changes_what_modules_say_is_asked(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Through a hook of `sys.path_hooks`, as tools that check types have one."""

    class Changing(SourceFileLoader):
        def get_code(self, fullname: str) -> CodeType | None:
            return compile("what = 'changed'", self.path, "exec")

    load(path)
    with monkeypatch.context() as patched:
        patched.setattr(sys, "path_hooks", [FileFinder.path_hook((Changing, [".py"])), *sys.path_hooks])
        sys.path_importer_cache.clear()
        assert not load(path)["kept_alone"]
        assert sys.modules["kept_alone"].what == "changed"
    sys.path_importer_cache.clear()
    assert load(path)["kept_alone"]
    assert sys.modules["kept_alone"].what == "alone"


def test_the_file_of_another_release_is_not_used(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An upgrade leaves it where it is."""

    class Fewer(NamedTuple):
        source: str
        compiled: str

    load(path)
    with monkeypatch.context() as patched:
        patched.setattr(kept_modules, "Known", Fewer)
        patched.setattr(kept_modules, "_compiled", lambda name: None)
        assert not any(load(path).values())
    assert all(load(path).values())


@pytest.mark.parametrize("damage", [b"\0", b"\xff"])
def test_after_a_power_cut_a_start_works_and_leaves_another_file(path: Path, damage: bytes) -> None:
    """A file may have its length by then, and the table, but no content."""
    load(path)
    whole = path.read_bytes()
    sizes = [len(py_code(name)) for name in NAMES]
    path.write_bytes(whole[: -sum(sizes)] + damage * sum(sizes))
    assert not any(load(path).values())
    assert all(load(path).values())


def test_a_compiled_file_that_was_damaged_when_it_was_kept_is_not_used(path: Path) -> None:
    load(path)
    with Pieces.of(path, key()) as pieces:
        damaged = {name: (info, bytes(9)) for name, info in pieces.table.items()}
    write_pieces(path, key(), damaged)
    assert not any(load(path).values())
    assert all(load(path).values())


def key() -> bytes:
    return f"{sys.version} {sys.flags.optimize} {kept_modules.Known._fields}".encode()


def py_code(name: str) -> bytes:
    return Path(sys.modules[name].__cached__).read_bytes()[16:]


def test_a_module_whose_package_is_elsewhere_is_not_taken(path: Path) -> None:
    load(path)
    other = path.parent / "earlier" / "kept_package"
    other.mkdir()
    (other / "__init__.py").write_text("what = 'other package'\n")
    (other / "inner.py").write_text("what = 'other inner'\n")
    assert load(path) == {"kept_alone": True, "kept_package": False, "kept_package.inner": False}
    assert (sys.modules["kept_package"].what, sys.modules["kept_package.inner"].what) == (
        "other package",
        "other inner",
    )


def test_a_source_that_is_gone_cannot_be_imported(path: Path) -> None:
    load(path)
    (path.parent / "later" / "kept_alone.py").unlink()
    forget()
    with keeping_modules(path), pytest.raises(ModuleNotFoundError):
        importlib.import_module("kept_alone")


def test_a_module_runs_again_after_the_file_is_closed(path: Path) -> None:
    load(path)
    load(path)
    module = sys.modules["kept_alone"]
    assert importlib.reload(module).what == "alone"
    assert module.__loader__ is not None
    assert "def source" in (module.__loader__.get_source("kept_alone") or "")  # type: ignore[attr-defined]


def test_a_file_that_is_damaged_or_of_another_python_is_not_used(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load(path)
    path.write_bytes(path.read_bytes()[:-1])
    assert not any(load(path).values())
    assert all(load(path).values())  # it was written anew
    monkeypatch.setattr(sys, "version", "another")
    assert not any(load(path).values())


def test_what_was_not_used_is_dropped_when_there_is_too_much(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load(path)
    monkeypatch.setattr(kept_modules, "MODULES_MAX", 3)
    (path.parent / "later" / "kept_more.py").write_text("")
    forget()
    sys.modules.pop("kept_more", None)
    with keeping_modules(path):
        importlib.import_module("kept_more")
        importlib.import_module("kept_alone")
    del sys.modules["kept_more"]
    with Pieces.of(path, key()) as pieces:
        assert set(pieces.table) == {"kept_more", "kept_alone"}


def test_no_file_and_no_way_to_write_one(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = list(sys.meta_path)
    with keeping_modules(None):
        assert sys.meta_path == before
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert not any(load(path).values())
    assert not path.exists()
    with pytest.raises(ZeroDivisionError), keeping_modules(path):
        assert sys.meta_path != before
        raise ZeroDivisionError
    assert sys.meta_path == before


def test_a_module_is_found_although_another_thread_closes_the_file_meanwhile(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A start imports in two threads, and the one that is ready first closes what the start before has kept."""
    load(path)
    forget()
    find = KeptModules.find_spec
    with ExitStack() as kept:
        kept.enter_context(keeping_modules(path))

        def find_late(self: KeptModules, *asked: Any) -> Any:
            kept.close()
            return find(self, *asked)

        monkeypatch.setattr(KeptModules, "find_spec", find_late)
        assert importlib.import_module("kept_alone").what == "alone"


def test_a_whole_start_is_in_the_file(tmp_path: Path) -> None:
    """The second process finds all that Python has compiled for a broker, and writes nothing."""
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(tmp_path)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    program = (
        "import sys; from ottla.server.process.importing import import_broker; import_broker()\n"
        "kept = [name for name, each in sys.modules.items() if type(getattr(each, '__loader__', None)).__name__ == '_KeptLoader']\n"
        "print(len(kept), 'ottla.server.broker' in kept, 'trio._core._run' in kept, 'attr._make' in kept)\n"
    )
    told = []
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", program], check=True, env=environment, capture_output=True, text=True
        )
        [path] = tmp_path.rglob("*.modules")
        told.append((done.stdout.split(), path.stat().st_ino))
    (first, written), (second, still) = told
    assert first == ["0", "False", "False", "False"]
    assert second[1:] == ["True", "True", "True"]
    assert int(second[0]) > 200
    assert still == written


@given(st.binary(max_size=200), st.integers(0, 200), st.integers(0, 255))
def test_any_file_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, garbage: bytes, at: int, value: int
) -> None:
    """Whatever is on the disk: what is read has been kept."""
    path, key = tmp_path_factory.getbasetemp() / "pieces", b"key"
    path.write_bytes(garbage)
    with Pieces.of(path, key) as pieces:
        assert pieces.read("a") is None
    write_pieces(path, key, {"a": ((1, "b"), b"first"), "c": ((), b"")})
    whole = bytearray(path.read_bytes())
    whole[at % len(whole)] = value
    path.write_bytes(whole)
    with Pieces.of(path, key) as pieces:
        assert pieces.table in ({}, {"a": (1, "b"), "c": ()})
        assert pieces.read("nothing") is None
        assert pieces.read("a") in (None, b"first")
    assert pieces.read("a") is None


def test_a_file_that_claims_to_be_long_is_refused_before_memory_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    path, asked, pread = tmp_path / "pieces", list[int](), os.pread
    write_pieces(path, b"key", {"a": ((), b"first")})
    content = path.read_bytes()
    path.write_bytes(b"\xff" * 4 + content[4:])

    def counted(file: int, count: int, position: int) -> bytes:
        asked.append(count)
        return pread(file, count, position)

    monkeypatch.setattr(os, "pread", counted)
    with Pieces.of(path, b"key") as pieces:
        assert pieces.read("a") is None
    assert asked
    assert max(asked) <= len(content)


def test_pieces_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    write_pieces(tmp_path / "pieces", b"key", {"a": ((1, "b"), b"first"), "c": ((), b"")})
    with Pieces.of(tmp_path / "pieces", b"key") as pieces:
        assert (pieces.table, pieces.read("a"), pieces.read("c")) == ({"a": (1, "b"), "c": ()}, b"first", b"")
    with Pieces.of(tmp_path / "pieces", b"another") as pieces:
        assert pieces.table == {}
