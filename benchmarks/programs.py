"""The C programs: compiled on first use into .cache/benchmarks, read in benchmarks/c/.

`load` is the client of most rows, on the librdkafka that comes with confluent-kafka. `produce_sink` and `fetch_sink` do what
no broker can leave out, and nothing else; `replay` is the client that costs next to nothing. Where `replay` measures, server
programs run on the first processor and it on the second.
"""

import contextlib
import functools
import importlib.util
import json
import platform
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.machine import on_cpu

HERE = Path(__file__).resolve().parent
BUILT = HERE.parent / ".cache" / "benchmarks"

SERVER_CPU, CLIENT_CPU = 0, 1

MACHINE_FLAGS = {"x86_64": "-msse4.2", "aarch64": "-march=armv8-a+crc"}


def compiler() -> str | None:
    """The C compiler, if this machine has one and its processor a CRC-32C instruction that the programs know."""
    return (shutil.which("gcc") or shutil.which("cc")) if platform.machine() in MACHINE_FLAGS else None


@functools.cache
def built(name: str) -> Path:
    program, command = BUILT / name, compiler()
    assert command is not None
    BUILT.mkdir(parents=True, exist_ok=True)
    flags = ["-std=gnu11", "-O2", "-Wall", "-Wextra", MACHINE_FLAGS[platform.machine()]]
    libraries = linked_with_librdkafka() if name == "load" else []
    subprocess.run([command, *flags, "-o", program, HERE / "c" / f"{name}.c", *libraries], check=True)
    return program


def linked_with_librdkafka() -> list[str]:
    """The library inside confluent-kafka's wheel: the newest, and no Debian package is needed for it."""
    spec = importlib.util.find_spec("confluent_kafka")
    if spec is None or spec.origin is None:
        raise RuntimeError("confluent-kafka is not installed")
    folder = Path(spec.origin).parents[1] / "confluent_kafka.libs"
    library = next(folder.glob("librdkafka*.so*"), None)
    if library is None:
        raise RuntimeError(f"no librdkafka in {folder}")
    return [str(library), "-lpthread", f"-Wl,-rpath,{folder}", "-Wl,--allow-shlib-undefined"]


@dataclass(frozen=True)
class Request:
    """A frame to send over and over, and what its response has to look like."""

    frame: Path
    response_bytes: int
    error_code_offsets: tuple[int, ...]


@dataclass(frozen=True)
class Replay:
    requests: int
    seconds: float
    per_second: float
    p50_us: float
    p99_us: float


def replay(
    port: int, request: Request, requests: int, connections: int = 1, depth: int = 1, pinned: bool = True
) -> Replay:
    sizes = [request.response_bytes, *request.error_code_offsets]
    arguments = map(str, [port, request.frame, connections, depth, requests, *sizes])
    with on_cpu(CLIENT_CPU) if pinned else contextlib.nullcontext():
        done = subprocess.run([built("replay"), *arguments], check=False, capture_output=True, text=True, timeout=120)
    if done.returncode != 0:
        raise RuntimeError(f"replaying {request.frame.name} failed: {done.stderr.strip()}")
    return Replay(**json.loads(done.stdout))


@dataclass(frozen=True)
class Sink:
    port: int
    pid: int


@contextlib.contextmanager
def sink(name: str, *arguments: object) -> Iterator[Sink]:
    """Runs produce_sink or fetch_sink."""
    with on_cpu(SERVER_CPU):
        process = subprocess.Popen([built(name), *map(str, arguments)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield Sink(int(process.stdout.readline().rpartition(":")[2]), process.pid)
        if process.poll() is not None:
            raise RuntimeError(f"{name} ended with status {process.returncode}")
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()
