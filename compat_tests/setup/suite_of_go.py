"""Brings a module of Go with its tests, and builds them: python suite_of_go.py GO SUITE.TOML TARGET

Modules and what is built are kept beside TARGET, in the folder `go`.
"""

import os
import subprocess
import sys
import tomllib
from pathlib import Path


def main(go: str, description: Path, target: Path) -> None:
    suite = tomllib.loads(description.read_text())
    target.mkdir(parents=True, exist_ok=True)
    caches = target.absolute().parent / "go"
    environment = os.environ | {
        "GOMODCACHE": str(caches / "modules"),
        "GOCACHE": str(caches / "cache"),
        "GOFLAGS": "-modcacherw",  # so that the folder can be removed
    }

    def run(*arguments: str) -> None:
        subprocess.run([go, *arguments], cwd=target, env=environment, check=True)

    (target / "go.mod").unlink(missing_ok=True)
    (target / "go.sum").unlink(missing_ok=True)
    run("mod", "init", "strangers")
    run("get", "-t", *(f"{each}@{suite['version']}" for each in suite["tests"]))
    run("test", "-run", "^$", *suite["tests"])


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
