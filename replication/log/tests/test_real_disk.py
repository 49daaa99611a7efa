"""A log on real files while the process has no descriptors left, and on a small disk that fills up."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

COMMAND = (sys.executable, "-m", "ottla.replication.log.tests.real_disk")


def failures(*command: str) -> int:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return int(done.stdout.split("failures ")[1])


def test_a_process_without_descriptors_loses_and_doubles_nothing(tmp_path: Path) -> None:
    assert failures(*COMMAND, "descriptors", str(tmp_path)) > 5


def test_a_disk_that_fills_up_loses_and_doubles_nothing(tmp_path: Path) -> None:
    mount = f"mount -t tmpfs -o size=256k none {tmp_path}"
    unshare = shutil.which("unshare")
    if (
        unshare is None
        or subprocess.run([unshare, "-m", "sh", "-c", mount], capture_output=True, check=False).returncode
    ):
        pytest.skip("this machine lets nobody mount a file system of their own")
    script = f'{mount} && exec "$@"'
    assert failures(unshare, "-m", "sh", "-c", script, "sh", *COMMAND, "room", str(tmp_path)) > 5
