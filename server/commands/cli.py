"""The `ottla` command.

`COMMANDS` lists what it can do. Each command is a module of this package with the command's name:

    DESCRIPTION, EXAMPLES    what `ottla <command> --help` says before and after the options
    add_arguments(parser)    its options
    run(options) -> int      does it, and returns the exit code

Only the module of the command that was given is imported.

Exit codes: 0 done, or stopped cleanly; 1 it failed, could not start or had to stop (port taken, data directory in use or
not writable); 2 wrong use or bad configuration. Whatever goes wrong is one line on stderr.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence
from types import ModuleType

from ottla import __version__
from ottla.server.commands.outcome import EXIT_USAGE

COMMANDS = {
    "start": "run a broker in the foreground",
    "cluster": "run several brokers and their ZooKeeper on this machine",
    "status": "tell how a running cluster is, of any make of Kafka",
    "topics": "list, create, delete and describe topics",
    "groups": "list and describe groups, and reset their offsets",
    "produce": "write records",
    "consume": "read records",
    "bench": "measure a running cluster by a small load",
    "certificates": "make certificates for TLS",
    "settings": "show what can be set, and what it does",
    "version": "print the version",
}
"""What each command does, in the order of the help."""

_DESCRIPTION = """\
A broker that Apache Kafka's clients, tools and Spark talk to as if it were Apache Kafka.
"""

_HELP_END = """\
A command says more with --help: ottla start --help
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    name = next((each for each in given if not each.startswith("-")), None)
    command = _module(name) if name in COMMANDS else None
    parser = _parser(name, command)
    options = parser.parse_args(given)
    if command is None:
        parser.print_help()
        return EXIT_USAGE
    code: int = command.run(options)
    return code


def _module(name: str) -> ModuleType:
    return importlib.import_module(f"ottla.server.commands.{name}")


def _parser(chosen: str | None, command: ModuleType | None) -> argparse.ArgumentParser:
    plain = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="ottla", description=_DESCRIPTION, epilog=_HELP_END, formatter_class=plain)
    parser.add_argument("--version", action="version", version=f"ottla {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="command")
    for name, what in COMMANDS.items():
        each = commands.add_parser(name, help=what, formatter_class=plain)
        if name == chosen and command is not None:
            each.description, each.epilog = command.DESCRIPTION, command.EXAMPLES
            command.add_arguments(each)
    return parser
