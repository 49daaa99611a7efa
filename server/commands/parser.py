"""The parser of a command line: what goes wrong is one line, and what is misspelt is answered with the nearest.

`walk` reads a command line as argparse does, as far as is needed to say where in it one is. Completion asks the same.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from ottla.server.commands.outcome import EXIT_USAGE, fail

_MANY = ("*", "+", argparse.REMAINDER)


class OneLineParser(argparse.ArgumentParser):
    """Says what is wrong in one line on stderr, and where help is. Its subcommands do so too."""

    def error(self, message: str) -> NoReturn:
        raise SystemExit(fail(f"{message} ({self.prog} --help)", EXIT_USAGE))


class PlainFormatter(argparse.RawDescriptionHelpFormatter):
    """Asks how wide the terminal is when it writes help. argparse makes a formatter for each option, only to look at its metavar."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=80)

    def format_help(self) -> str:
        # For None argparse loads `shutil`, and with that all that compresses.
        as_wide = argparse.HelpFormatter(self._prog)
        self._width, self._max_help_position = as_wide._width, as_wide._max_help_position
        return super().format_help()


@dataclass(slots=True)
class Place:
    """Where a command line has come to."""

    parser: argparse.ArgumentParser
    """Of the command, or of the command's command."""
    awaiting: argparse.Action | None = None
    """The option whose value comes next."""
    positional_count: int = 0
    """Arguments that were given to this parser and are no options."""
    only_positionals: bool = False
    """Whether `--` was given."""
    unknown: str | None = None
    """The first word that is neither an option nor a command of this parser."""

    def take(self, word: str) -> None:
        """Go on behind the next word."""
        if not self.only_positionals and is_option(word):
            self._take_option(word)
        elif self.awaiting is not None:
            if self.awaiting.nargs not in _MANY:
                self.awaiting = None
        elif (commands := commands_of(self.parser)) and not self.positional_count:
            if word in commands:
                self.parser = commands[word]
            else:
                self.unknown = word
        else:
            self.positional_count += 1

    def _take_option(self, word: str) -> None:
        self.awaiting = None
        if word == "--":
            self.only_positionals = True
            return
        name, has_value, _ = word.partition("=")
        action = option_of(self.parser, name)
        if action is None:
            self.unknown = name
        # -n5 has its value with it.
        elif not has_value and action.nargs != 0 and (name.startswith("--") or len(name) == 2):
            self.awaiting = action


def walk(parser: argparse.ArgumentParser, words: Sequence[str]) -> Place:
    """Where these words lead, or the first of them that is unknown."""
    place = Place(parser)
    for word in words:
        place.take(word)
        if place.unknown is not None:
            break
    return place


def is_option(word: str) -> bool:
    """Whether argparse takes a word for an option."""
    return len(word) > 1 and word.startswith("-") and " " not in word and not word[1].isdigit()


def options_of(parser: argparse.ArgumentParser) -> Mapping[str, argparse.Action]:
    """The options of a parser by their names, without those that help does not show."""
    return {name: each for each in shown_actions(parser) for name in each.option_strings}


def shown_actions(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    """Options and other arguments that help shows."""
    return [each for each in parser._actions if each.help is not argparse.SUPPRESS]


def option_of(parser: argparse.ArgumentParser, name: str) -> argparse.Action | None:
    """The option of this name, or the only one that begins like this."""
    options = {each: action for action in parser._actions for each in action.option_strings}
    if name in options:
        return options[name]
    if not name.startswith("--"):
        return options.get(name[:2])  # -n5, -vq
    begun = {id(action): action for each, action in options.items() if each.startswith(name)}
    return next(iter(begun.values())) if len(begun) == 1 else None


def commands_of(parser: argparse.ArgumentParser) -> Mapping[str, argparse.ArgumentParser]:
    """The parsers of a parser's commands by their names; empty if it has none."""
    found: Any = next((each for each in parser._actions if isinstance(each, argparse._SubParsersAction)), None)
    return {} if found is None else found.choices


def misspelling(parser: argparse.ArgumentParser, words: Sequence[str]) -> str | None:
    """What to say about the first option or command that there is none of, if another one is near; else None."""
    place = walk(parser, words)
    if place.unknown is None:
        return None
    is_of_options = is_option(place.unknown)
    if is_of_options and any(each.startswith(place.unknown) for each in options_of(place.parser)):
        return None  # it is ambiguous, and argparse says between what
    known = options_of(place.parser) if is_of_options else commands_of(place.parser)
    import difflib  # only for a message that ends the process

    close = difflib.get_close_matches(place.unknown, known, n=1, cutoff=0.6)
    hint = f"; did you mean {close[0]}?" if close else f" ({place.parser.prog} --help)"
    return f"{place.parser.prog} has no {'option' if is_of_options else 'command'} {place.unknown}{hint}"
