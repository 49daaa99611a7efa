"""Changes by commands: --dry-run, the question before a deletion, steps of which one may fail, and results with the way back.

A command checks everything before its first change. If a later step fails all the same, its one line of error says which
steps were done before.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from ottla.server.cli.client.output import (
    ConnectionLost,
    RequestFailed,
    UsageError,
    print_json,
    print_line,
    say,
    shown_command,
    shown_text,
)
from ottla.server.cli.on_cluster import wants_json

DRY_RUN = "Nothing is changed: this is a dry run."


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, such as "1 partition" or "1,024 partitions"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def add_dry_run(parser: argparse.ArgumentParser) -> None:
    """Add --dry-run, which lets a command validate and show its change without making it."""
    parser.add_argument(
        "--dry-run", action="store_true", help="have it checked, tell what would change, change nothing"
    )


def add_yes(parser: argparse.ArgumentParser) -> None:
    """Add --yes, which skips the confirmation question."""
    parser.add_argument("-y", "--yes", action="store_true", help="do not ask")


def agree(options: argparse.Namespace, question: str) -> None:
    """Ask the user `question`, unless --yes is given. Raises RequestFailed for a no, UsageError without a terminal."""
    if options.yes:
        return
    if sys.stdin is None or not sys.stdin.isatty():
        raise UsageError(f"{question}? There is nobody to ask: give --yes")
    line = " ".join(shown_text(question).split())
    print(f"{line}? [y/N] ".encode("utf-8", "backslashreplace").decode(), end="", file=sys.stderr, flush=True)
    answer = ""
    try:
        answer = sys.stdin.readline()
    finally:
        # Ctrl-D and Ctrl-C leave the cursor behind the question.
        if not answer.endswith("\n"):
            print(file=sys.stderr)
    if answer.strip().lower() not in ("y", "yes"):
        raise RequestFailed("nothing is changed")


class Step(NamedTuple):
    """Step of a change. `done`: text about the result of the step, such as "orders has 6 partitions"."""

    done: str
    act: Callable[[], object]


def carry_out(steps: Sequence[Step]) -> None:
    """Run steps in order. After a failure, raise RequestFailed with the steps done. Raises KeyboardInterrupt."""
    done: list[str] = []
    for step in steps:
        try:
            step.act()
        except ConnectionLost as error:
            raise RequestFailed(f"{error}; it is not known whether {step.done}; {_done_before(done)}") from None
        except (RequestFailed, UsageError) as error:
            raise RequestFailed(f"{error}; {_done_before(done)}") from None
        except KeyboardInterrupt:
            say(f"interrupted; it is not known whether {step.done}; {_done_before(done)}")
            raise
        done.append(step.done)


def _done_before(done: Sequence[str]) -> str:
    return f"done before that: {', '.join(done)}" if done else "nothing else was changed"


def option_words(name: str, value: str) -> list[str]:
    """Return the words of an option with its value, which may begin with a hyphen."""
    return [f"{name}={value}"] if value.startswith("-") else [name, value]


def setting_words(changes: Iterable[tuple[str, str | None]]) -> list[str]:
    """Return the options of `ottla configs` that change settings; None as a value: the setting is deleted."""
    return [
        word
        for name, value in changes
        for word in (option_words("--delete", name) if value is None else ("--set", f"{name}={value}"))
    ]


def undo_command(options: argparse.Namespace, command: str, action: str, *words: str, names: Sequence[str] = ()) -> str:
    """Return a command line that undoes a change, with this command's address of the cluster and settings file.

    `names`: positional arguments, such as topics; `words`: everything else.
    """
    cluster = []
    if address := getattr(options, "bootstrap_server", None):
        cluster += ["-b", address]
    if file := getattr(options, "command_config", None):
        cluster += ["--command-config", str(file)]
    # argparse takes names that begin with a hyphen for options, unless they stand behind two of them.
    if any(each.startswith("-") for each in names):
        return shlex.join(["ottla", command, action, *words, *cluster, "--", *names])
    return shlex.join(["ottla", command, action, *names, *words, *cluster])


def print_undo(commands: Iterable[str]) -> None:
    """Print command lines that undo a change, one a line."""
    for each in commands:
        print_line(f"To undo: {shown_command(each)}")


def done_word(options: argparse.Namespace, number: int = 1) -> str:
    """Return "is" or "are" for a change of `number` things, or "would be" in a dry run."""
    return "would be" if options.dry_run else "is" if number == 1 else "are"


def report(
    options: argparse.Namespace, value: dict[str, Any], show: Callable[[], None], undo: Sequence[str], never: str = ""
) -> None:
    """Print a change: as JSON if --json is given, otherwise by `show` and with its undo commands.

    `undo`: command lines made by `undo_command`; a dry run prints none. `never`: reason why the change cannot be
    undone.
    """
    undo = [] if options.dry_run else undo
    if wants_json(options):
        print_json(value | {"dry_run": options.dry_run, "undo": list(undo)})
        return
    show()
    if options.dry_run:
        print_line(DRY_RUN)
        return
    print_undo(undo)
    if never and not undo:
        print_line(f"This cannot be undone: {never}.")
