"""What people install: the files of `make dist` hold the four packages under `ottla/`, all of them, and nothing else."""

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
TOOLS = ROOT / ".cache" / "dist_tools" / "bin" / "python"
PACKAGES = ("wire", "replication", "groupcoord", "server")
MAKE = """
import os, pathlib, sys
sys.path.insert(0, sys.argv[1])
import dist
os.umask(int(sys.argv[3]))
dist.make(pathlib.Path(sys.argv[2]), sys.argv[4:])
"""


def make(output: Path, kinds: tuple[str, ...], umask: int = 0o022) -> Path:
    """What `make dist` makes, without installing it."""
    if not TOOLS.exists():
        pytest.skip("what makes wheels is not on this machine (`make setup` brings it)")
    subprocess.run([TOOLS, "-c", MAKE, ROOT / ".ci", output, str(umask), *kinds], check=True, timeout=240)
    return output


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("dist") / "files", ("pure", "native"))


def one(folder: Path, pattern: str) -> Path:
    (found,) = folder.glob(pattern)
    return found


def names_in(wheel: Path) -> set[str]:
    return set(zipfile.ZipFile(wheel).namelist())


@pytest.mark.parametrize("kind", ["*-py3-none-any.whl", "*-cp311-abi3-manylinux_*_x86_64.whl"])
def test_a_wheel_holds_every_module_of_the_packages_and_nothing_else(made: Path, kind: str):
    names = names_in(one(made, kind))
    expected = {"ottla/__init__.py", "ottla/__main__.py", "ottla/py.typed"}
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            if "tests" not in path.parts:
                expected.add(f"ottla/{path.relative_to(ROOT)}")
    expected |= {
        f"ottla/{path.relative_to(ROOT)}" for path in (ROOT / "server" / "admin" / "http" / "dashboards").iterdir()
    }
    expected |= {f"ottla/{path.relative_to(ROOT)}" for path in (ROOT / "server/admin/console/static").iterdir()}
    for run in (ROOT / "spark_examples").glob("*/run.sh"):
        files = (path for path in run.parent.iterdir() if path.is_file())
        expected |= {f"ottla/{path.relative_to(ROOT)}" for path in files}
    assert expected <= names
    assert {name for name in names if name.startswith("ottla/spark_examples/")} <= expected
    assert {name for name in names if not name.startswith("ottla/") and ".dist-info/" not in name} == set()
    assert not {name for name in names if "/tests/" in name}
    native = {name for name in names if name.endswith(".so")}
    assert native == ({"ottla/wire/_native.abi3.so"} if "abi3" in kind else set())


def test_the_sdist_has_what_both_kinds_of_wheels_need_and_no_tests(made: Path):
    with tarfile.open(one(made, "*.tar.gz")) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    headers = {path.relative_to(ROOT).as_posix() for path in (ROOT / "wire").glob("_*.h")}
    assert headers
    assert {"setup.py", "pyproject.toml", "wire/_native.c", "LICENSE", "README.md"} | headers <= names
    assert not {name for name in names if "tests/" in name or name.startswith((".", "benchmarks"))}


def test_the_same_sources_give_the_same_bytes(made: Path, tmp_path: Path):
    again = make(tmp_path / "again", ("native",), 0o077)
    for each in again.iterdir():
        assert each.read_bytes() == (made / each.name).read_bytes(), f"{each.name} differs"
    assert {each.suffix for each in again.iterdir()} == {".gz", ".whl"}


@pytest.mark.parametrize(("kind", "is_native"), [("*-abi3-*", True), ("*-none-any*", False)])
def test_a_wheel_checks_records_in_c_if_it_has_the_module(made: Path, tmp_path: Path, kind: str, is_native: bool):
    shutil.unpack_archive(one(made, f"{kind}.whl"), tmp_path, "zip")
    program = "import ottla.wire.record_walk as it; print(it.__file__, it.IS_NATIVE)"
    command = ["env", f"PYTHONPATH={tmp_path}", sys.executable, "-c", program]
    shown = subprocess.run(command, check=True, text=True, capture_output=True, cwd=tmp_path)
    assert shown.stdout.split() == [f"{tmp_path}/ottla/wire/record_walk.py", str(is_native)]


def test_a_broker_runs_from_the_wheel(made: Path, tmp_path: Path):
    """As `make dist` does in fresh environments, here with the packages of the tests."""
    shutil.unpack_archive(one(made, "*-abi3-*.whl"), tmp_path / "site", "zip")
    ottla = tmp_path / "ottla"
    ottla.write_text(f"#!/bin/sh\nPYTHONPATH='{tmp_path}/site' exec {sys.executable} -m ottla \"$@\"\n")
    ottla.chmod(0o755)
    command = [sys.executable, ROOT / ".ci" / "one_record.py", ottla]
    done = subprocess.run(command, check=True, text=True, capture_output=True, timeout=200, cwd=tmp_path)
    assert "one record written and read" in done.stdout


def bill() -> dict[str, Any]:
    command = [sys.executable, ROOT / ".ci" / "sbom.py", "ottla"]
    done = subprocess.run(
        command, check=True, text=True, capture_output=True, env=os.environ | {"SOURCE_DATE_EPOCH": "1700000000"}
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_the_bill_of_materials_has_what_ottla_needs_and_no_more():
    """As it is installed here. Whatever is under a licence that asks for more than notices is not needed by everybody."""
    made = bill()
    assert (made["bomFormat"], made["specVersion"]) == ("CycloneDX", "1.5")
    assert made["metadata"]["timestamp"] == "2023-11-14T22:13:20Z"
    assert made["metadata"]["component"]["licenses"] == [{"expression": "Apache-2.0"}]
    components = {each["name"]: each for each in made["components"]}
    needed = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    assert {re.split("[^a-z0-9-]", each)[0] for each in needed} <= components.keys()
    assert not components.keys() & {"kafka-python", "pytest", "pyspark", "cryptography"}, "only of tests and extras"
    for each in components.values():
        assert each["purl"] == each["bom-ref"] == f"pkg:pypi/{each['name']}@{each['version']}"
        assert each["licenses"] and "GPL" not in str(each["licenses"]) and "GNU" not in str(each["licenses"]), each
    assert {each["ref"] for each in made["dependencies"]} == {each["bom-ref"] for each in components.values()} | {
        made["metadata"]["component"]["bom-ref"]
    }
    assert bill() == made


def test_a_release_has_checksums_of_all_its_files(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "path", [*sys.path])  # it puts its folder there
    files = [
        Path(shutil.copy(each, tmp_path)) for each in sorted(made.iterdir(), key=lambda each: each.suffix != ".gz")
    ]
    loaded("dist").describe(tmp_path, files, "{}")
    listed = (tmp_path / "SHA256SUMS").read_text()
    assert {line.split("  ")[1] for line in listed.splitlines()} == {each.name for each in tmp_path.iterdir()} - {
        "SHA256SUMS"
    }
    assert one(tmp_path, "*.cdx.json").name == one(tmp_path, "*.tar.gz").name.replace(".tar.gz", ".cdx.json")
    subprocess.run(["sha256sum", "--check", "--strict", "SHA256SUMS"], check=True, cwd=tmp_path)
    files[0].write_bytes(b"another file")
    assert subprocess.run(["sha256sum", "--check", "--status", "SHA256SUMS"], check=False, cwd=tmp_path).returncode == 1


def loaded(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, ROOT / ".ci" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def native_wheel():
    return loaded("native_wheel")


ELF = "  Machine:  {}\n{}"


@pytest.mark.parametrize(
    ("machine", "text", "tag"),
    [
        ("Advanced Micro Devices X86-64", "", "manylinux_2_17_x86_64"),
        ("AArch64", " 0x1 (NEEDED)  Shared library: [libc.so.6]\n  Name: GLIBC_2.17  Flags: none", "manylinux_2_17_aarch64"),
        ("AArch64", "  Name: GLIBC_2.4  Flags: none\n  Name: GLIBC_2.34  Flags: none\n", "manylinux_2_34_aarch64"),
    ],
)  # fmt: skip
def test_the_tag_names_the_oldest_c_library_that_has_all_symbols(native_wheel, machine: str, text: str, tag: str):
    assert native_wheel.platform_tag(ELF.format(machine, text)) == tag


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (" 0x1 (NEEDED)  Shared library: [libpython3.11.so.1.0]", "libpython3.11"),
        ("  Name: GLIBC_ABI_DT_RELR  Flags: none", "GLIBC_ABI_DT_RELR"),
        ("  Name: GLIBCXX_3.4  Flags: none", "GLIBCXX_3.4"),
    ],
)
def test_a_module_that_not_every_linux_can_load_gets_no_tag(native_wheel, text: str, why: str):
    with pytest.raises(native_wheel.NotPortable, match=why):
        native_wheel.platform_tag(ELF.format("AArch64", text))
