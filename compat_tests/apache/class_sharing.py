"""Class data sharing: a JVM that maps a file of its classes starts with half of the work.

    python -m compat_tests.apache.class_sharing        makes what is missing, as `make setup` does

Each file holds the classes that one kind of program had loaded when it ended. The JVM takes it only for the same Java and the
same folder of jars. Without these files all programs run as well; they only start later.
"""

import contextlib
import hashlib
import importlib.util
import shutil
from collections.abc import Iterator
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[2] / ".cache" / "classes"
# Why a file is not used is no part of what a tool says.
SILENT = "-Xlog:cds*=off"

_recorded: set[Path] = set()
"""Files that are being made: who starts such a program now writes its file."""


def shared(program: str, jars: Path) -> list[str]:
    """The options for a JVM that runs this kind of program with exactly `jars`/* at the beginning of its class path."""
    archive = archive_of(program, jars)
    if archive in _recorded:
        return [f"-XX:ArchiveClassesAtExit={_unfinished(archive)}", SILENT]
    return [f"-XX:SharedArchiveFile={archive}", SILENT] if archive.exists() else []


@contextlib.contextmanager
def recorded(program: str, jars: Path) -> Iterator[None]:
    """The program runs and ends within; its file is there afterwards."""
    archive = archive_of(program, jars)
    FOLDER.mkdir(parents=True, exist_ok=True)
    _recorded.add(archive)
    try:
        yield
    finally:
        _recorded.remove(archive)
    _unfinished(archive).replace(archive)


def archive_of(program: str, jars: Path) -> Path:
    """Named after all that has to be the same for the JVM to take it."""
    java = Path(shutil.which("java") or "java").resolve()
    files = [java, *sorted(jars.resolve().glob("*.jar"))]
    found = [(str(path), *_size_and_time(path)) for path in files]
    return FOLDER / f"{jars.name}-{program}-{hashlib.sha256(repr(found).encode()).hexdigest()[:16]}.jsa"


def spark_jars() -> Path | None:
    """The folder of pyspark's jars; None if it is not installed."""
    spec = importlib.util.find_spec("pyspark")
    return None if spec is None or spec.origin is None else Path(spec.origin).parent / "jars"


def _size_and_time(path: Path) -> tuple[int, int]:
    try:
        status = path.stat()
    except FileNotFoundError:
        return 0, 0
    return status.st_size, status.st_mtime_ns


def _unfinished(archive: Path) -> Path:
    return archive.with_suffix(".unfinished")


def main() -> None:
    # What is recorded imports this module.
    from compat_tests.apache.recording import record_all

    record_all()


if __name__ == "__main__":
    main()
