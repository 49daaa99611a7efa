"""Runs the published code of testcontainers' modules on a stand-in for a container, which records how the module starts it.

The packages come from the registries of their languages, in the versions below, and are kept in `.cache/containers`.
"""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
DRIVERS = Path(__file__).parent / "drivers"
FETCHED = ROOT / ".cache" / "containers"
PYTHON, NODE, JAVA, GO = "4.15.0", "12.2.0", "2.0.5", "v0.40.0"
COMPARE_VERSIONS = "6.1.1"
_POM = """<project><modelVersion>4.0.0</modelVersion><groupId>t</groupId><artifactId>t</artifactId><version>1</version>
<packaging>pom</packaging><dependencies><dependency><groupId>org.testcontainers</groupId>
<artifactId>testcontainers-kafka</artifactId><version>{}</version></dependency></dependencies></project>"""


@dataclass(kw_only=True)
class Start:
    """Arguments with which a module creates and starts a container."""

    variables: dict[str, str]
    entrypoint: list[str] | None
    """Entry point; None for the image's own."""

    command: list[str]
    files: dict[str, tuple[str, int]]
    """Text and mode of the files that the module copies into the running container, by path."""

    pattern: str | None
    """Regular expression that the module looks for in the log; None if it waits for ports."""

    port: int
    """Port at which the module's users reach the broker."""

    given: dict[str, str] = field(default_factory=dict)
    """Contents, in base64, of the files that the module copies before the start, by path."""

    name: str = ""
    """Class and mode of Java's module; empty for modules of other languages."""


class Missing(Exception):
    """A program that a module needs is not on this machine."""


def python(kind: str) -> Start:
    """Return the start by Python's module; `kind` is kraft or zookeeper."""
    folder = _fetched(f"python-{PYTHON}", _fetch_python)
    return _start(_run([sys.executable, "-P", str(DRIVERS / "testcontainers_python.py"), str(folder), kind]))


def node(kind: str, *more: str) -> Start:
    """Return the start by Node's module; `kind` is kraft, zookeeper or scram, the last with the path of a keystore."""
    _need("node", "npm")
    folder = _fetched(f"node-{NODE}", _fetch_node)
    return _start(_run(["node", str(DRIVERS / "testcontainers_node.js"), str(folder), kind, *more]))


def java() -> list[Start]:
    """Return the starts by Java's three classes in all their modes, from one run of a JVM."""
    _need("java", "mvn")
    classes = (_fetched(f"java-{JAVA}", _fetch_java) / "classpath").read_text()
    told = _run(["java", "-XX:TieredStopAtLevel=1", "-cp", classes, str(DRIVERS / "TestcontainersJava.java")])
    return [_start(line) for line in told.splitlines()]


def go() -> Start:
    """Return the start by Go's module, read from the constants of its source: the module itself cannot run without an engine."""
    _need("go")
    source = (_fetched(f"go-{GO}", _fetch_go) / "kafka.go").read_text()
    [script] = re.findall(r"starterScriptContent = `(.*?)`", source, re.DOTALL)
    [path] = re.findall(r'starterScript = "(.*?)"', source)
    pairs = re.findall(r'^\s*"(KAFKA_\w+)":\s*(".*?"|strconv\.Itoa\(math\.MaxInt\)),$', source, re.MULTILINE)
    variables = {name: text[1:-1] if text[0] == '"' else str(2**63 - 1) for name, text in pairs}
    [entrypoint] = re.findall(r'WithEntrypoint\("(.*?)"\)', source)
    [words] = re.findall(r"WithCmd\((.*?)\),\n", source)
    command = [
        ast.literal_eval(each)
        for each in words.replace('"+starterScript+"', path).replace(' "+starterScript', f' {path}"').split(", ")
    ]
    [pattern] = re.findall(r'wait\.ForLog\("(.*?)"\)\.AsRegexp', source)
    variables["KAFKA_CONTROLLER_QUORUM_VOTERS"] = "1@localhost:9094"
    filled = script.replace("%s", "PLAINTEXT://localhost:9093", 1).replace("%s", "broker", 1)
    return Start(
        variables=variables,
        entrypoint=[entrypoint],
        command=command,
        files={path: (filled, 0o755)},
        pattern=pattern,
        port=9093,
    )


def _start(told: str) -> Start:
    content: dict[str, Any] = json.loads(told)
    files = {path: (text, mode) for path, (text, mode) in content.pop("files").items()}
    return Start(**content, files=files)


def _run(command: list[str]) -> str:
    done = subprocess.run(command, text=True, capture_output=True, check=False, timeout=120)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"
    return done.stdout


# Go's official archive is unpacked there.
os.environ["PATH"] += f"{os.pathsep}/usr/local/go/bin"


def _need(*programs: str) -> None:
    for each in programs:
        if shutil.which(each) is None:
            raise Missing(f"{each} is not on this machine")


def _fetched(name: str, fetch: Any) -> Path:
    folder = FETCHED / name
    if not (folder / ".ready").exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        fetch(folder)
        (folder / ".ready").touch()
    return folder


def _fetch_python(folder: Path) -> None:
    pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:", "-d", str(folder)]
    _run([*pip, f"testcontainers=={PYTHON}"])
    [wheel] = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as opened:
        opened.extractall(folder)


def _fetch_node(folder: Path) -> None:
    for name, version in (("@testcontainers/kafka", NODE), ("compare-versions", COMPARE_VERSIONS)):
        packed = _run(["npm", "pack", "--silent", f"--pack-destination={folder}", f"{name}@{version}"]).split()[-1]
        target = folder / "node_modules" / name
        target.mkdir(parents=True)
        _run(["tar", "-xzf", str(folder / packed), "--strip-components=1", "-C", str(target)])


def _fetch_java(folder: Path) -> None:
    (folder / "pom.xml").write_text(_POM.format(JAVA))
    goal = ["dependency:build-classpath", f"-Dmdep.outputFile={folder}/classpath"]
    _run(["mvn", "-q", "-B", "-f", str(folder / "pom.xml"), *goal])


def _fetch_go(folder: Path) -> None:
    module = f"github.com/testcontainers/testcontainers-go/modules/kafka@{GO}"
    told = json.loads(
        _run(["env", f"GOFLAGS={os.environ.get('GOFLAGS', '')}", "go", "mod", "download", "-json", module])
    )
    shutil.copy(Path(told["Dir"]) / "kafka.go", folder / "kafka.go")
    (folder / "kafka.go").chmod(0o644)
