"""ottla help [COMMAND ...] | --man FOLDER"""

from __future__ import annotations

import argparse
from pathlib import Path

from ottla.server.cli.cli import parser_for
from ottla.server.cli.command_line import EXIT_FAILED, EXIT_OK, EXIT_USAGE, fail, misspelling, walk

DESCRIPTION = """\
Prints the help of a command, as its --help does, or without one the list of all commands. With --man it writes the same as pages for
man: ottla.1, ottla-start.1 and so on.
"""

EXAMPLES = """\
examples:
  ottla help                                     all commands
  ottla help start                               one of them
  ottla help topics create                       an action of one
  ottla help --man ~/.local/share/man/man1       then: man ottla-start
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `ottla help`: a command and, where it has some, its action."""
    parser.add_argument("words", nargs="*", metavar="COMMAND", help="a command, and an action of it")
    parser.add_argument("--man", type=Path, metavar="FOLDER", help="write pages for man of all commands to this folder")


def run(options: argparse.Namespace) -> int:
    """Print the help of a command or of all, or write the pages for man; return the exit code."""
    if options.man is not None:
        return _write_pages(options.man) if not options.words else fail("--man is for all commands", EXIT_USAGE)
    parser, _ = parser_for(options.words)
    if problem := misspelling(parser, options.words):
        return fail(problem, EXIT_USAGE)
    walk(parser, options.words).parser.print_help()
    return EXIT_OK


def _write_pages(folder: Path) -> int:
    from ottla.server.cli.man_pages import write_pages

    try:
        paths = write_pages(folder)
    except OSError as error:
        return fail(f"cannot write {error.filename or folder}: {error.strerror or error}", EXIT_FAILED)
    print(f"{len(paths)} pages are in {folder}")
    return EXIT_OK
