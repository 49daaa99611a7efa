"""Compiled codecs are kept in files, which are trusted only when they are right, and never needed."""

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from types import CodeType

import pytest

from ottla.wire import codecs
from ottla.wire.codecs import read_cached, write_cached
from ottla.wire.messages.classic_group import HeartbeatRequest
from ottla.wire.schema import Struct

CODE = compile("answer = 42", "<test>", "exec")
PROGRAM = """
import sys
from ottla.wire.messages.classic_group import HeartbeatRequest
encoded = HeartbeatRequest(group_id="g", generation_id=1, member_id="m").encode(4)
assert HeartbeatRequest.decode(encoded, 4).member_id == "m"
print("construct" in sys.modules)
"""


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    return tmp_path / "folder" / "one.codec"


def answer_of(code: CodeType | None) -> object:
    namespace: dict[str, object] = {}
    if code is not None:
        exec(code, namespace)  # noqa: S102 - compiled above
    return namespace.get("answer")


def test_what_was_written_is_read_under_the_same_key_only(path: Path) -> None:
    assert read_cached(path, b"key") is None
    write_cached(path, b"key", CODE)
    assert answer_of(read_cached(path, b"key")) == 42
    assert read_cached(path, b"other key") is None
    assert read_cached(path, b"") is None
    assert [file.name for file in path.parent.iterdir()] == ["one.codec"]


def test_damaged_file_is_not_read(path: Path) -> None:
    write_cached(path, b"key", CODE)
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        assert read_cached(path, b"key") is None
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        assert read_cached(path, b"key") is None


def test_nothing_is_written_where_python_writes_no_compiled_code(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    write_cached(path, b"key", CODE)
    assert not path.exists()


@pytest.mark.parametrize("problem", [OSError, KeyboardInterrupt])
def test_an_unfinished_file_is_not_left(
    path: Path, monkeypatch: pytest.MonkeyPatch, problem: type[BaseException]
) -> None:
    def replace(*_: object) -> None:
        raise problem

    monkeypatch.setattr(Path, "replace", replace)
    with suppress(KeyboardInterrupt):
        write_cached(path, b"key", CODE)
    assert [*path.parent.iterdir()] == []


def test_folder_that_cannot_be_written_is_no_error(path: Path) -> None:
    path.parent.write_text("a file in the place of the folder")
    write_cached(path, b"key", CODE)
    assert read_cached(path, b"key") is None


def run(compiled: Path) -> bool:
    """Whether a new process had to generate its codecs."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPYCACHEPREFIX"] = str(compiled)
    process = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=True
    )
    return process.stdout.strip() == "True"


def test_second_process_needs_no_generator_until_the_files_are_damaged(tmp_path: Path) -> None:
    assert run(tmp_path)
    files = sorted(tmp_path.rglob("*.codec"))
    assert [file.name.split("-v4-")[0] for file in files] == ["wire.messages.classic_group.HeartbeatRequest"] * 2
    assert not run(tmp_path)
    files[0].write_bytes(b"")
    assert run(tmp_path)
    assert not run(tmp_path)


@pytest.mark.parametrize("option", ["-O", "-OO"])
def test_an_interpreter_without_asserts_has_the_same_codecs(option: str) -> None:
    program = (
        "from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic\n"
        "encoded = MetadataRequest(topics=[MetadataRequestTopic(name='t')]).encode(12)\n"
        "print(MetadataRequest.decode(encoded, 12).topics[0].name)"
    )
    process = subprocess.run([sys.executable, option, "-c", program], capture_output=True, text=True, check=False)
    assert (process.stdout, process.stderr) == ("t\n", "")


def test_declaration_and_generator_are_part_of_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    key = codecs.cache_key(HeartbeatRequest, 4, "decode")
    assert HeartbeatRequest.declaration() in key.decode()
    assert sys.version in key.decode()
    assert codecs.cache_key(HeartbeatRequest, 3, "decode") != key
    assert codecs.cache_key(HeartbeatRequest, 4, "encode") != key
    monkeypatch.setattr(codecs, "_generator_checksums", lambda: [1, 2, 3])
    assert codecs.cache_key(HeartbeatRequest, 4, "decode") != key


def test_only_classes_of_the_package_are_kept() -> None:
    assert codecs.cache_path(HeartbeatRequest, 4, "decode") is not None

    class Local(Struct):
        pass

    assert codecs.cache_path(Local, 4, "decode") is None
