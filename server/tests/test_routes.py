"""The table of handlers: what a start reads of it in an index, and what is loaded when an API is first asked for."""

import importlib
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from ottla.server.gate import dispatch, route_index
from ottla.server.gate.dispatch import HANDLERS, Route, all_routes
from ottla.wire.messages.heartbeat import HeartbeatRequest


@pytest.fixture
def index_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "handlers.index"
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.setattr(route_index, "_path", lambda package: path)
    return path


def fresh_routes() -> dict[int, Route]:
    """As a process makes it that has just been started."""
    return all_routes.__wrapped__()


def test_the_index_says_what_the_handlers_declare(index_file: Path) -> None:
    made = fresh_routes()
    assert index_file.exists()
    read = fresh_routes()
    assert {key: route.declared for key, route in read.items()} == {key: route.declared for key, route in made.items()}
    for route in read.values():
        module = sys.modules[route.handler.__module__]
        if hasattr(module, dispatch.ROUTE):  # a handler of a feature is wrapped
            assert getattr(module, dispatch.ROUTE).declared == route.declared


def test_nothing_is_loaded_before_a_route_is_used(index_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fresh_routes()
    imported: list[str] = []

    def import_module(name: str) -> Any:
        imported.append(name)
        return sys.modules[name]

    monkeypatch.setattr(importlib, "import_module", import_module)
    route = fresh_routes()[HeartbeatRequest.api_key]
    assert route.name == "Heartbeat" and str(route.versions) == "0-4"
    assert imported == [HANDLERS], "the folder alone"
    assert route.request_class is HeartbeatRequest and route.handler.__name__ == "heartbeat"
    assert imported == [HANDLERS, f"{HANDLERS}.heartbeat"], "once"


@pytest.mark.parametrize("folder", ["handlers", "messages", "gate"])
def test_an_index_counts_only_for_the_very_files_that_it_was_made_of(
    folder: str, index_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = {"handlers": sys.modules[HANDLERS], "messages": route_index.messages, "gate": route_index.gate}[folder]
    copy = tmp_path / folder
    shutil.copytree(package.__path__[0], copy, ignore=shutil.ignore_patterns("__pycache__"))
    asked: list[str] = []

    def declared_in(module: str) -> str:
        asked.append(module)
        return module

    def was_asked() -> bool:
        asked.clear()
        known = route_index.index(HANDLERS, declared_in)
        assert f"{HANDLERS}.heartbeat" in known
        return bool(asked)

    monkeypatch.setattr(package, "__path__", [str(copy)])
    assert was_asked()
    assert not was_asked()
    changed = next(copy.glob("*.py"))
    os.utime(changed, ns=(1, 1))
    assert was_asked(), "another time"
    before = changed.stat()
    changed.write_text(changed.read_text() + "#\n")
    os.utime(changed, ns=(1, 1))
    assert changed.stat().st_size == before.st_size + 2 and was_asked(), "another size"
    (copy / "more.py").write_text("")
    assert was_asked(), "another file"
    assert not was_asked()


def test_a_damaged_index_is_made_anew(index_file: Path) -> None:
    fresh_routes()
    index_file.write_bytes(index_file.read_bytes()[:-1])
    assert HeartbeatRequest.api_key in fresh_routes()
    assert HeartbeatRequest.api_key in fresh_routes()


def test_a_handler_that_cannot_be_loaded_is_told_and_tried_again(
    index_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fresh_routes()
    route = fresh_routes()[HeartbeatRequest.api_key]
    module = sys.modules[f"{HANDLERS}.heartbeat"]

    def import_module(name: str) -> Any:
        raise ImportError("no such file")

    with monkeypatch.context() as damaged:
        damaged.setattr(importlib, "import_module", import_module)
        for _ in range(2):
            with pytest.raises(ImportError, match="no such file"):
                _ = route.handler
    assert route.handler is module.heartbeat


def test_a_handler_that_has_changed_since_the_start_is_refused(index_file: Path) -> None:
    fresh_routes()
    dispatch._load(f"{HANDLERS}.heartbeat", ("Heartbeat", 12, "0-4", ()))
    with pytest.raises(AssertionError, match="has to be started again"):
        dispatch._load(f"{HANDLERS}.heartbeat", ("Heartbeat", 12, "0-3", ()))


@pytest.mark.parametrize("has_folders", [True, False])
def test_without_files_to_look_at_all_handlers_are_loaded(
    index_file: Path, monkeypatch: pytest.MonkeyPatch, has_folders: bool
) -> None:
    """A package in a zip file has no folders, and a file may go while it is looked at."""

    def scandir(folder: str) -> Any:
        raise NotADirectoryError(folder)

    monkeypatch.setattr(os, "scandir", scandir)
    if not has_folders:
        monkeypatch.setattr(route_index, "_path", lambda package: None)
    monkeypatch.setattr(route_index, "_modules_of", lambda package: iter([f"{HANDLERS}.heartbeat"]))
    declared = route_index.index(HANDLERS, lambda module: (module,))
    assert declared == {f"{HANDLERS}.heartbeat": (f"{HANDLERS}.heartbeat",)}
    assert not index_file.exists()
