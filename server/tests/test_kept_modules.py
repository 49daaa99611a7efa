"""What a start has imported the next one takes from one file, unless the source says something else by now."""

import importlib
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.machinery import SourceFileLoader
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.server.process import kept_modules
from ottla.server.process.kept_modules import keeping_modules
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
    return {name: type(module.__loader__) is not SourceFileLoader for name, module in modules.items()}


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


@pytest.mark.parametrize("hiding", ["kept_alone.py", "kept_alone/__init__.py"])
def test_a_module_in_an_earlier_folder_hides_it(path: Path, hiding: str) -> None:
    load(path)
    other = path.parent / "earlier" / hiding
    other.parent.mkdir(exist_ok=True)
    other.write_text("what = 'in front'\n")
    assert not load(path)["kept_alone"]
    assert sys.modules["kept_alone"].what == "in front"


def test_a_module_whose_package_is_elsewhere_is_not_taken(path: Path) -> None:
    load(path)
    other = path.parent / "earlier" / "kept_package"
    other.mkdir()
    (other / "__init__.py").write_text("what = 'other package'\n")
    (other / "inner.py").write_text("what = 'other inner'\n")
    assert load(path) == {"kept_alone": True, "kept_package": False, "kept_package.inner": False}
    assert (sys.modules["kept_package"].what, sys.modules["kept_package.inner"].what) == ("other package", "other inner")


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
    with Pieces.of(path, f"{sys.version} {sys.flags.optimize}".encode()) as pieces:
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
        done = subprocess.run([sys.executable, "-c", program], check=True, env=environment, capture_output=True, text=True)
        [path] = tmp_path.rglob("*.modules")
        told.append((done.stdout.split(), path.stat().st_ino))
    (first, written), (second, still) = told
    assert first == ["0", "False", "False", "False"]
    assert second[1:] == ["True", "True", "True"]
    assert int(second[0]) > 200
    assert still == written


@given(st.binary(max_size=200), st.integers(0, 200), st.integers(0, 255))
def test_any_file_is_read_or_refused(tmp_path_factory: pytest.TempPathFactory, garbage: bytes, at: int, value: int) -> None:
    """Whatever is on the disk: what is read has been kept, as far as the table in front goes."""
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
        assert len(pieces.read("a") or b"     ") == 5
    assert pieces.read("a") is None


def test_pieces_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    write_pieces(tmp_path / "pieces", b"key", {"a": ((1, "b"), b"first"), "c": ((), b"")})
    with Pieces.of(tmp_path / "pieces", b"key") as pieces:
        assert (pieces.table, pieces.read("a"), pieces.read("c")) == ({"a": (1, "b"), "c": ()}, b"first", b"")
    with Pieces.of(tmp_path / "pieces", b"another") as pieces:
        assert pieces.table == {}
