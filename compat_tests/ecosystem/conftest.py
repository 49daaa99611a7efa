"""Programs that end with their test."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from compat_tests.ecosystem.programs import FOLDER, Program, python_of


@pytest.fixture
def start_program(tmp_path: Path) -> Iterator[Callable[..., Program]]:
    """Starts <name>/program.py in its environment: `start_program("faust", bootstrap, ...)`."""
    started: list[Program] = []

    def start(name: str, *arguments: str, **environment: str) -> Program:
        command = [python_of(name), str(FOLDER / name / "program.py"), *arguments]
        started.append(Program(command, tmp_path / f"{name}-{len(started)}", **environment))
        return started[-1].start()

    yield start
    for program in started:
        program.close()
