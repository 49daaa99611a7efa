"""What people install: a wheel that holds the four packages under `ottla/`, all of them, and nothing else."""

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("wire", "replication", "groupcoord", "server")


@pytest.fixture(scope="module")
def wheel_names(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    copy = tmp_path_factory.mktemp("source") / "ottla"
    ignored = shutil.ignore_patterns(".venv", ".cache", ".git", "build", "*.so", "*.egg-info", "__pycache__")
    shutil.copytree(ROOT, copy, symlinks=True, ignore=ignored)
    wheels = tmp_path_factory.mktemp("wheels")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(wheels), str(copy)]
    subprocess.run(command, check=True, timeout=240)
    (wheel,) = wheels.glob("*.whl")
    return set(zipfile.ZipFile(wheel).namelist())


def test_the_wheel_holds_every_module_of_the_packages(wheel_names: set[str]):
    expected = {"ottla/__init__.py", "ottla/__main__.py", "ottla/py.typed"}
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            if "tests" not in path.parts:
                expected.add(f"ottla/{path.relative_to(ROOT)}")
    expected |= {f"ottla/{path.relative_to(ROOT)}" for path in (ROOT / "server" / "http" / "dashboards").iterdir()}
    assert expected <= wheel_names


def test_the_wheel_holds_nothing_but_the_package(wheel_names: set[str]):
    foreign = {name for name in wheel_names if not name.startswith("ottla/") and ".dist-info/" not in name}
    assert foreign == set()
    assert not {name for name in wheel_names if "/tests/" in name}
