"""ottla help [COMMAND ...] | --man FOLDER

Pages for `man` are made from the help of the commands: ottla(1), ottla-start(1) and so on.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from ottla import __version__
from ottla.server.cli.cli import COMMANDS, parser_for
from ottla.server.cli.command_line import (
    EXIT_FAILED,
    EXIT_OK,
    EXIT_USAGE,
    commands_of,
    fail,
    misspelling,
    shown_actions,
    walk,
)

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


_EXIT_STATUS: Final = (
    ("0", "It is done, or was stopped in order."),
    ("1", "It failed, could not start or had to stop."),
    ("2", "It was used in a wrong way, or a setting is wrong."),
    ("130", "Ctrl-C has interrupted it."),
)


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
    try:
        paths = write_pages(folder)
    except OSError as error:
        return fail(f"cannot write {error.filename or folder}: {error.strerror or error}", EXIT_FAILED)
    print(f"{len(paths)} pages are in {folder}")
    return EXIT_OK


# --- pages for man


def write_pages(folder: Path) -> list[Path]:
    """Write the pages of all commands to `folder`, which is made; return their paths. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    pages = {"ottla": overview()} | {f"ottla-{name}": command_page(name) for name in COMMANDS}
    paths = []
    for name, text in pages.items():
        paths.append(folder / f"{name}.1")
        paths[-1].write_text(text, encoding="ascii", errors="backslashreplace")
    return paths


def overview() -> str:
    """Return the page ottla(1), which lists the commands."""
    parser, _ = parser_for([])
    lines = [*_head("ottla", "an Apache Kafka broker and its commands"), ".SH SYNOPSIS", _bold("ottla"), *_synopsis()]
    lines += [".SH DESCRIPTION", *_paragraphs(parser.description), ".SH COMMANDS"]
    for name, summary in COMMANDS.items():
        lines += [".TP", f".BR {escaped(f'ottla-{name}')} (1)", _text(summary)]
    return _page([*lines, *_exit_status()])


def command_page(name: str) -> str:
    """Return the page of one command."""
    parser = commands_of(parser_for([name])[0])[name]
    first, *others = parser.format_usage().removeprefix("usage: ").splitlines()
    usage = "\n".join([first, *(f"    {each.strip()}" for each in others)])
    lines = [*_head(f"ottla-{name}", COMMANDS[name]), ".SH SYNOPSIS", *_verbatim(usage)]
    if parser.description:
        lines += [".SH DESCRIPTION", *_paragraphs(parser.description)]
    lines += [".SH OPTIONS", *_options(parser)]
    for action, each in commands_of(parser).items():
        lines += [f'.SH "{escaped(f"ottla {name} {action}").upper()}"', *_paragraphs(each.description), *_options(each)]
    if parser.epilog:
        lines += [".SH EXAMPLES", *_examples(parser.epilog.removeprefix("examples:\n"))]
    return _page([*lines, *_exit_status(), ".SH SEE ALSO", ".BR ottla (1)"])


def _head(name: str, summary: str) -> list[str]:
    title = f'.TH "{escaped(name.upper())}" "1" "" "ottla {escaped(__version__)}" "Ottla"'
    return [title, ".SH NAME", f"{escaped(name)} \\- {escaped(summary)}"]


def _synopsis() -> list[str]:
    return [f"{_italic('command')} [{_italic('options')}]"]


def _options(parser: argparse.ArgumentParser) -> Iterator[str]:
    expand = parser._get_formatter()._expand_help
    for action in shown_actions(parser):
        if isinstance(action, argparse._SubParsersAction):
            continue
        yield ".TP"
        yield _term(action)
        yield _text(expand(action) if action.help else "")


def _term(action: argparse.Action) -> str:
    value = "" if action.nargs == 0 else _value(action)
    if not action.option_strings:
        return _italic(value)
    return ", ".join(_bold(each) for each in action.option_strings) + (f" {_italic(value)}" if value else "")


def _value(action: argparse.Action) -> str:
    if isinstance(action.metavar, str):
        return action.metavar
    if action.choices is not None:
        return "|".join(map(str, action.choices))
    return action.dest.upper() if action.option_strings else action.dest


def _exit_status() -> Iterator[str]:
    yield ".SH EXIT STATUS"
    for code, what in _EXIT_STATUS:
        yield from (".TP", _bold(code), _text(what))


def _paragraphs(text: str | None) -> Iterator[str]:
    for index, paragraph in enumerate((text or "").strip().split("\n\n")):
        if index:
            yield ".PP"
        # An indented line is a table or an example.
        if any(line.startswith("  ") for line in paragraph.splitlines()):
            yield from _verbatim(paragraph)
        elif paragraph:
            yield _text(paragraph)


def _examples(text: str) -> Iterator[str]:
    """Yield commands with what each does, from lines that have two columns or, for a long command, two lines."""
    for line in text.rstrip().splitlines():
        command, _, what = line.removeprefix("  ").partition("  ")
        if command:
            yield from (".TP", _bold(command))
        if what:
            yield _text(what)


def _verbatim(text: str) -> list[str]:
    return [".nf", *(_line(each) for each in text.rstrip().splitlines()), ".fi"]


def _text(text: str) -> str:
    return _line(" ".join(text.split()))


def _line(text: str) -> str:
    # A period or a quote would begin a request of roff; an empty line ends a paragraph everywhere.
    return f"\\&{escaped(text)}" if text[:1] in ("", ".", "'") else escaped(text)


def escaped(text: str) -> str:
    """Escape the characters of a text that roff would take for its own."""
    return (
        text.replace("\\", "\\e").replace("-", "\\-").replace('"', "\\(dq").replace("'", "\\(aq").replace("`", "\\(ga")
    )


def _bold(text: str) -> str:
    return f"\\fB{escaped(text)}\\fR"


def _italic(text: str) -> str:
    return f"\\fI{escaped(text)}\\fR"


def _page(lines: Sequence[str]) -> str:
    return "\n".join(lines) + "\n"
