"""ottla help [COMMAND ...]"""

from __future__ import annotations

import argparse

from ottla.server.cli.cli import parser_for
from ottla.server.cli.command_line import EXIT_OK, EXIT_USAGE, fail, misspelling, walk

DESCRIPTION = """\
Prints the help of a command, as its --help does, or without one the list of all commands.
"""

EXAMPLES = """\
examples:
  ottla help                                     all commands
  ottla help start                               one of them
  ottla help topics create                       an action of one
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `ottla help`: a command and, where it has some, its action."""
    parser.add_argument("words", nargs="*", metavar="COMMAND", help="a command, and an action of it")


def run(options: argparse.Namespace) -> int:
    """Print the help of a command or of all; return the exit code."""
    parser, _ = parser_for(options.words)
    if problem := misspelling(parser, options.words):
        return fail(problem, EXIT_USAGE)
    walk(parser, options.words).parser.print_help()
    return EXIT_OK
