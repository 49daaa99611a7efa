"""What a start imports beside its own work: a thread has it loaded, and leaves nothing behind."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import builtins, gc, re, sys, threading
from ottla.server.process.importing import import_beside, importing

finders, compiler = [*sys.meta_path], sys.modules["re._compiler"].compile
with importing() as kept:
    import_beside(sys.argv[1:], kept.pop_all())
for each in threading.enumerate():
    if each is not threading.current_thread():
        each.join()
assert gc.isenabled()
assert sys.meta_path == finders
assert sys.modules["re._compiler"].compile is compiler
print(*(name for name in sys.argv[1:] if name in sys.modules))
"""


def run(compiled: Path, *names: str) -> list[str]:
    search_path = os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), str(compiled))))
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(compiled), "PYTHONPATH": search_path}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM, *names],
        check=True,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.parametrize("missing", [[], ["ottla.no_such_module"], ["damaged_module"]])
def test_a_thread_imports_and_what_it_found_is_kept(tmp_path: Path, missing: list[str]) -> None:
    (tmp_path / "damaged_module.py").write_text("raise EOFError('marshal data too short')")
    names = ["ottla.wire.messages.heartbeat", *missing, "ottla.wire.messages.leave_group"]
    expected = names[:1] if missing else names
    for _ in range(2):
        assert run(tmp_path, *names) == expected
        [kept] = tmp_path.rglob("start.*.modules")
        assert b"ottla.wire.messages.heartbeat" in kept.read_bytes()
