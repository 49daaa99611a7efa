"""ottla version"""

from __future__ import annotations

import argparse

from ottla import __version__
from ottla.server.cli.command_line import EXIT_OK

DESCRIPTION = "Prints the version.\n"
EXAMPLES = ""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add nothing: there are no options."""


def run(options: argparse.Namespace) -> int:
    """Print the version."""
    print(f"ottla {__version__}")
    return EXIT_OK
