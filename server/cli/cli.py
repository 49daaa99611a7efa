"""The `ottla` command.

`COMMANDS` lists the commands. Each is a module of this package with the command's name, or one of `MODULES`:

    DESCRIPTION, EXAMPLES    text of `ottla <command> --help` before and after the options
    add_arguments(parser)    adds its options
    run(options) -> int      runs it, and returns the exit code
    run_words(words) -> int  instead of it, in a module that hands all words behind the command on to another program

Only the module of the given command is imported. Shell completion is derived from its parser: a metavar with FILE, FOLDER or PATH
in it stands for files, `name=value` for a setting of brokers with a value, SETTING for any setting, TOPIC and GROUP for names of a cluster.

Exit codes: 0 done, or stopped cleanly; 1 it failed, could not start or had to stop (port taken, data directory in use or
not writable, nothing can be written to stdout); 2 wrong use or bad configuration; 130 interrupted by Ctrl-C. Each failure
is one line on stderr. If the reader of stdout ends first, such as `head`, a command ends silently with the exit code set so
far, or 0.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Iterable, Sequence
from types import ModuleType

from ottla import __version__
from ottla.server.cli.command_line import (
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_OK,
    EXIT_USAGE,
    OneLineParser,
    PlainFormatter,
    fail,
    misspelling,
)
from ottla.server.standard_streams import OutputFailed, OutputUnread, give_up_output

VERSION = "version"
"""The one command without a module."""

COMMANDS = {
    "start": "run a broker in the foreground",
    "stop": "stop the broker of a data directory",
    "cluster": "run several brokers and their ZooKeeper on this machine",
    "status": "tell how a running cluster is, of any make of Kafka",
    "topics": "list, create, change, trim, delete and describe topics",
    "groups": "list and describe groups and their members, reset their offsets, delete some",
    "acls": "list, add and remove rules of who may do what",
    "users": "list, add, change and delete users that log in by SCRAM",
    "quotas": "list, set and remove quotas of users, client ids and addresses",
    "tokens": "make, list, renew and expire delegation tokens",
    "configs": "tell which settings are in force and where from, and change them",
    "transactions": "list and describe transactions, find those that hang, abort some",
    "why": "tell why members were removed, writes refused, connections closed; what became of an offset",
    "spread": "move partitions evenly over the brokers",
    "dirs": "tell how full log directories are, and move replicas between them",
    "reassign": "plan moves of partitions, carry them out, verify and cancel them",
    "elect": "elect leaders of partitions, preferred or unclean",
    "features": "list and change levels of features, such as transaction.version",
    "produce": "write records",
    "consume": "read records",
    "generate": "write seeded test data, and the result that a job has to find",
    "registry": "run a schema registry with Confluent's HTTP API",
    "rest": "run a REST proxy with Confluent's HTTP API",
    "test": "run a command beside a broker in memory",
    "bench": "measure a running cluster by a small load",
    "spark": "show the installed Spark and its connector for Kafka",
    "spark-submit": "run spark-submit with that connector",
    "example": "write an example of a Spark pipeline to a folder",
    "certificates": "make certificates for TLS",
    "settings": "show what can be set, and what it does",
    "logs": "show what is in the files of a log",
    "check": "look for damage without a broker, and say what a start would do",
    "completion": "print what makes a shell complete commands and options",
    "ping": "ask whether a broker answers",
    "help": "print the help of a command",
    VERSION: "print the version",
}
"""Summary of each command, in the order of the help."""

_ROOMS = {
    "administration": ("configs", "features", "groups", "status", "topics", "transactions"),
    "generation": ("generate",),
    "inspection": ("check", "logs", "why"),
    "records": ("bench", "consume", "produce"),
    "replicas": ("dirs", "elect", "reassign", "spread"),
    "security": ("acls", "certificates", "quotas", "tokens", "users"),
}
MODULES = {name: f"ottla.server.cli.{room}.{name}" for room, names in _ROOMS.items() for name in names} | {
    "registry": "ottla.server.registry.command",
    "rest": "ottla.server.rest.command",
    "test": "ottla.server.testing.command",
}
"""Modules of commands that lie in a room of this package, or belong to a package above it."""

_DESCRIPTION = """\
A broker that Apache Kafka's clients, tools and Spark talk to as if it were Apache Kafka.
"""

_HELP_END = """\
A command says more with --help: ottla start --help
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    parser, command = parser_for(given)
    hands_on = hasattr(command, "run_words") and given[0] in COMMANDS and given[1:] not in (["-h"], ["--help"])
    if not hands_on and (problem := misspelling(parser, given)):
        return fail(problem, EXIT_USAGE)
    code = EXIT_OK
    try:
        try:
            if command is not None and hands_on:
                return int(command.run_words(given[1:]))
            options = parser.parse_args(given)
            code = _done(parser, command, options)
        finally:
            sys.stdout.flush()
    except OutputUnread:
        give_up_output()
    except OutputFailed as failed:
        give_up_output()
        return fail(str(failed), EXIT_FAILED)
    except KeyboardInterrupt:  # those that run until then have their own way to end
        return EXIT_INTERRUPTED
    return code


def _done(parser: argparse.ArgumentParser, command: ModuleType | None, options: argparse.Namespace) -> int:
    if options.command == VERSION:
        print(f"ottla {__version__}")
        return EXIT_OK
    if command is None:
        parser.print_help()
        return EXIT_USAGE
    code: int = command.run(options)
    return code


def parser_for(words: Sequence[str]) -> tuple[argparse.ArgumentParser, ModuleType | None]:
    """Return the parser for a command line, and the module of its command; None if there is no command or module."""
    name = next((each for each in words if not each.startswith("-")), None)
    has_module = name in COMMANDS and name != VERSION
    module = MODULES.get(str(name), f"ottla.server.cli.{str(name).replace('-', '_')}")
    command = importlib.import_module(module) if has_module else None
    # Where the command stands first nobody asks for the others, and a parser for each would take longer than all that is parsed.
    return _parser([name] if name in COMMANDS and words[0] == name else COMMANDS, name, command), command


def _parser(names: Iterable[str], chosen: str | None, command: ModuleType | None) -> argparse.ArgumentParser:
    parser = OneLineParser(prog="ottla", description=_DESCRIPTION, epilog=_HELP_END, formatter_class=PlainFormatter)
    parser.add_argument("-V", "--version", action="version", version=f"ottla {__version__}")
    # With a name argparse need not make one, for which it would measure the terminal.
    commands = parser.add_subparsers(dest="command", metavar="command", prog="ottla")
    for name in names:
        each = commands.add_parser(name, help=COMMANDS[name], formatter_class=PlainFormatter)
        if name == chosen and command is not None:
            each.description, each.epilog = command.DESCRIPTION, command.EXAMPLES
            command.add_arguments(each)
    return parser
