"""ottla example NAME: a Spark pipeline as a folder of small programs, to run and to change"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

from ottla.server.cli.client.output import print_table
from ottla.server.cli.command_line import EXIT_FAILED, EXIT_OK, EXIT_USAGE, fail

EXAMPLES_FOLDER = Path(__file__).resolve().parents[2] / "spark_examples"
"""Folder of the examples: at the top of the repository, or in the wheel beside the packages."""

OWN_BROKER = "broker.py"
"""Program of an example that starts secured brokers itself."""

KINDS = frozenset((".py", ".md", ".sh", ".xml", ".json", ".java", ".txt"))

DESCRIPTION = """\
Writes an example of a pipeline to a folder of its own and says how it is run. Each has a program for the data, the job for Spark, the
result as plain Python finds it, and a program that compares both. Without a name it lists the examples.
"""

EXAMPLES = """\
examples:
  ottla example
  ottla example payments
  ottla example flights --output /tmp/flights
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `ottla example`: the name of the example and the target folder."""
    parser.add_argument("name", nargs="?", metavar="NAME", help="the example (default: list them)")
    parser.add_argument("--output", type=Path, metavar="FOLDER", help="where it is written to (default: ./NAME)")


def run(options: argparse.Namespace) -> int:
    """List the examples, or copy one of them to a folder; return the exit code."""
    found = examples()
    if not found:
        return fail(f"the examples are not installed: {EXAMPLES_FOLDER} is not there", EXIT_FAILED)
    if options.name is None:
        print_table(("EXAMPLE", "SHOWS"), [(name, summary(folder)) for name, folder in found.items()])
        return EXIT_OK
    if options.name not in found:
        return fail(f"there is no example {options.name}; there are {', '.join(found)}", EXIT_USAGE)
    target: Path = options.output or Path(options.name)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        return fail(f"{target} is there already, and not empty", EXIT_FAILED)
    try:
        count = _write(found[options.name], target)
    except OSError as error:
        return fail(f"cannot write {target}: {error.strerror}", EXIT_FAILED)
    has_broker = (found[options.name] / OWN_BROKER).exists()
    has_registry = (found[options.name] / "registry.py").exists()
    extras = "spark,security" if has_broker else "spark,registry" if has_registry else "spark"
    print(f"{target}: {count} files, of which README.md explains the others. It needs Java 17 or newer, and")
    print(f"  pip install 'ottla[{extras}]'")
    print("Next:" if has_broker else "Next, the first of these in another terminal:")
    if not has_broker:
        print(f"  ottla start{' --registry 8081' if has_registry else ''}")
    print(f"  sh {target / 'run.sh'}")
    return EXIT_OK


def examples() -> dict[str, Path]:
    """Return the folders of the examples by name."""
    return {path.parent.name: path.parent for path in sorted(EXAMPLES_FOLDER.glob("*/run.sh"))}


def summary(folder: Path) -> str:
    """Return the summary of an example: the heading of its README, without the name."""
    return (folder / "README.md").read_text(encoding="utf-8").partition("\n")[0].partition(": ")[2]


def _write(folder: Path, target: Path) -> int:
    """Copy the files of an example to `target`; return the number of files."""
    target.mkdir(parents=True, exist_ok=True)
    names = [path for path in sorted(folder.iterdir()) if path.suffix in KINDS]
    for path in names:
        shutil.copyfile(path, target / path.name)
    return len(names)
