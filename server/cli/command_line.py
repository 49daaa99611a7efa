"""Exit codes, the argument parser of all commands, and settings given on the command line.

An error is one line on stderr, and a misspelt option or command is answered with the nearest one. `walk` reads a command line as
argparse does, as far as needed to find the place of its last word; completion uses it too.
"""

from __future__ import annotations

import argparse
import math
import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from ottla.server.standard_streams import RED, styled

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130  # as shells have it


def fail(message: str, code: int) -> int:
    """Print a failure as one line on stderr; return `code`, the exit code."""
    line = " ".join(message.split())
    # A name from the file may hold characters that stderr cannot write.
    name = styled("ottla:", RED, sys.stderr)
    print(f"{name} {line}".encode("utf-8", "backslashreplace").decode(), file=sys.stderr)
    return code


_MANY = ("*", "+", argparse.REMAINDER)


class OneLineParser(argparse.ArgumentParser):
    """Parser that reports an error as one line on stderr, which names --help. Its subcommands' parsers do so, too."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        # A word that begins with a minus sign and a digit is a value, not an option: -1h, a while ago, as well as -10.
        self._negative_number_matcher = re.compile(r"-[0-9]")

    def error(self, message: str) -> NoReturn:
        raise SystemExit(fail(f"{message} ({self.prog} --help)", EXIT_USAGE))

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Refuse a value that is none of the action's choices; argparse calls this for each value."""
        if action.choices is None or value in action.choices or isinstance(action, argparse._SubParsersAction):
            super()._check_value(action, value)
            return
        known = [str(each) for each in action.choices]
        name = "/".join([*action.option_strings, ""])[:-1]
        self.error(f"{name} {value}: must be {' or '.join(filter(None, (', '.join(known[:-1]), known[-1])))}".lstrip())

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        options, rest = self.parse_known_args(args, namespace)
        if rest:
            words = sys.argv[1:] if args is None else args
            # Reported by the parser of the command, since its help says what it takes.
            walk(self, words).parser.error(f"unrecognized arguments: {' '.join(rest)}")
        return options

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        # kcat's users write -K= for an equals sign, which argparse takes for an empty value.
        words = sys.argv[1:] if args is None else args
        return super().parse_known_args([part for word in words for part in _with_equals_sign(word)], namespace)


def _with_equals_sign(word: str) -> Sequence[str]:
    is_it = len(word) == 3 and word[0] == "-" and word[1].isalpha() and word[2] == "="
    return (word[:2], "=") if is_it else (word,)


class PlainFormatter(argparse.RawDescriptionHelpFormatter):
    """Help formatter that measures the terminal only when it prints help. argparse makes one for each option."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=80)

    def format_help(self) -> str:
        # For None argparse loads `shutil`, and with that all that compresses.
        as_wide = argparse.HelpFormatter(self._prog)
        self._width, self._max_help_position = as_wide._width, as_wide._max_help_position
        return super().format_help()

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return "\n\n".join(_filled(paragraph, width) for paragraph in text.strip("\n").split("\n\n"))


def _filled(paragraph: str, width: int) -> str:
    """Fit a paragraph of a description into a width. Indented lines stay lines, and what continues one is indented further."""
    import textwrap  # argparse has loaded it for the help of the options

    lines = paragraph.splitlines()
    if not any(line.startswith(" ") for line in lines):
        return textwrap.fill(paragraph, width)
    found = []
    for line in lines:
        words = line.rstrip()
        begin = len(words) - len(words.lstrip())
        # An explanation begins behind two spaces, and is continued in its own column.
        gap = words.rfind("  ", begin) + 2
        column = gap if 1 < gap <= width // 2 + 12 else begin if begin > width // 4 else begin + 4
        found += textwrap.wrap(
            words.lstrip(),
            width,
            initial_indent=" " * begin,
            subsequent_indent=" " * column,
            replace_whitespace=False,
            break_long_words=False,
            break_on_hyphens=False,
        ) or [""]
    return "\n".join(found)


@dataclass(slots=True)
class Place:
    """Parser state at a position in a command line."""

    parser: argparse.ArgumentParser
    """Parser of the command, or of its subcommand."""
    awaiting: argparse.Action | None = None
    """Option whose value comes next."""
    positional_count: int = 0
    """Number of positional arguments given to this parser."""
    only_positionals: bool = False
    """True behind `--`."""
    unknown: str | None = None
    """First word that is neither an option nor a command of this parser."""

    def take(self, word: str) -> None:
        """Advance past `word`."""
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
    """Return the parser's state after `words`, or after the first unknown word among them."""
    place = Place(parser)
    for word in words:
        place.take(word)
        if place.unknown is not None:
            break
    return place


def is_option(word: str) -> bool:
    """Tell whether argparse treats a word as an option."""
    return len(word) > 1 and word.startswith("-") and " " not in word and not word[1].isdigit()


def options_of(parser: argparse.ArgumentParser) -> Mapping[str, argparse.Action]:
    """Return the options of a parser by name, without hidden options."""
    return {name: each for each in shown_actions(parser) for name in each.option_strings}


def shown_actions(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    """Return the arguments of a parser that its help shows."""
    return [each for each in parser._actions if each.help is not argparse.SUPPRESS]


def option_of(parser: argparse.ArgumentParser, name: str) -> argparse.Action | None:
    """Return the option `name`, or the only option whose name begins with `name`; None if there is none."""
    options = {each: action for action in parser._actions for each in action.option_strings}
    if name in options:
        return options[name]
    if not name.startswith("--"):
        return options.get(name[:2])  # -n5, -vq
    begun = {id(action): action for each, action in options.items() if each.startswith(name)}
    return next(iter(begun.values())) if len(begun) == 1 else None


def commands_of(parser: argparse.ArgumentParser) -> Mapping[str, argparse.ArgumentParser]:
    """Return the parsers of subcommands by name; empty if there are none."""
    found: Any = next((each for each in parser._actions if isinstance(each, argparse._SubParsersAction)), None)
    return {} if found is None else found.choices


def misspelling(parser: argparse.ArgumentParser, words: Sequence[str]) -> str | None:
    """Return an error text for the first unknown option or command; None if all are known. It suggests the nearest."""
    place = walk(parser, words)
    if place.unknown is None:
        return None
    is_of_options = is_option(place.unknown)
    if is_of_options and any(each.startswith(place.unknown) for each in options_of(place.parser)):
        return None  # it is ambiguous, and argparse says between what
    known = options_of(place.parser) if is_of_options else commands_of(place.parser)
    if is_of_options and (command := next((each for each in words if each in commands_of(place.parser)), None)):
        return f"options follow the command: {place.parser.prog} {command} {place.unknown} ..."
    import difflib  # only for a message that ends the process

    begun = [each for each in known if each.startswith(place.unknown)]
    close = begun if len(begun) == 1 else difflib.get_close_matches(place.unknown, known, n=1, cutoff=0.6)
    hint = f"; did you mean {close[0]}?" if close else f" ({place.parser.prog} --help)"
    return f"{place.parser.prog} has no {'option' if is_of_options else 'command'} {place.unknown}{hint}"


TIMEOUT_S_MAX = 3600.0


def seconds(text: str) -> float:
    """Parse a duration in seconds, as argparse's `type` of an option."""
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not 0 < found <= TIMEOUT_S_MAX:
        raise argparse.ArgumentTypeError(f"{text} is not a number of seconds from 0 to {TIMEOUT_S_MAX:g}")
    return found


def is_number(text: str, digits_max: int = 9) -> bool:
    """Return True if `text` consists of 1 to `digits_max` ASCII digits, such as a broker id."""
    return text.isascii() and text.isdecimal() and len(text) <= digits_max


def broker_ids(text: str) -> list[int]:
    """Parse ids of brokers such as 1,2, as argparse's `type` of an option; return them sorted."""
    parts = text.split(",")
    if not all(is_number(each) for each in parts):
        raise argparse.ArgumentTypeError(f"{text} is not a list of ids such as 1,2")
    return sorted({int(each) for each in parts})


def count(text: str) -> int:
    """Parse an integer of at least 1, as argparse's `type` of an option."""
    if not (is_number(text, 18) and int(text) > 0):
        raise argparse.ArgumentTypeError(f"{text} is not a number from 1 on")
    return int(text)


PORT_MAX = 65535


def port_number(text: str, port_max: int = PORT_MAX) -> int:
    """Parse a port from 0 to `port_max`, as argparse's `type` of an option."""
    if not is_number(text, 5) or int(text) > port_max:
        raise argparse.ArgumentTypeError(f"{text} is not a port from 0 to {port_max}")
    return int(text)


def period_ms(text: str) -> int:
    """Parse a period such as 12h, 7d, or a number of milliseconds, as argparse's `type` of an option."""
    from ottla.server.config.quantities import InvalidQuantity, as_number

    try:
        found = as_number("period.ms", text)
    except InvalidQuantity:
        found = ""
    if not is_number(found, 15) or not int(found):
        raise argparse.ArgumentTypeError(f"{text} is not a period such as 30m, 12h or 7d")
    return int(found)


ONE_ADDRESS = "HOST:PORT and -b are the same: give one of them"


def add_address(parser: argparse.ArgumentParser, what: str) -> None:
    """Add HOST:PORT as an argument without an option: a broker's address, which -b takes, too."""
    parser.add_argument("address", nargs="?", metavar="HOST:PORT", help=what)


def add_overrides(command: argparse.ArgumentParser, what: str) -> None:
    """Add --override, which overrides a setting of the broker."""
    command.add_argument("--override", action="append", default=[], metavar="name=value", help=what)


LOG_LEVELS = ("trace", "debug", "info", "warn", "error", "fatal")


def add_logs(command: argparse.ArgumentParser) -> None:
    """Add --accept-empty-log-dir, which accepts an empty or exchanged log directory, and --log-level."""
    path = "start although this log directory is empty or another one than it was; repeatable"
    option = "--accept-empty-log-dir"
    command.add_argument(option, action="append", default=[], type=os.path.abspath, metavar="PATH", help=path)
    level = "from what level on lines are logged, by Apache Kafka's names (default: info)"
    command.add_argument("--log-level", choices=LOG_LEVELS, default="info", help=level)


def given_texts(
    file: Path | None, overrides: Sequence[str], environment: Mapping[str, str] | None = None, port: int | None = None
) -> dict[str, str]:
    """Collect settings from `file`, `environment` (None: nothing) and `overrides`; later ones win. Raises ConfigError.

    `environment` has settings by name. `port` is --port, the port of the one listener; None: it is not given.
    """
    from ottla.server.config.broker_config import ConfigError

    texts: dict[str, str] = {}
    if file is not None:
        from ottla.server.config.properties import MalformedProperties, parse_properties

        try:
            texts = parse_properties(file.read_text(encoding="utf-8", errors="surrogateescape"))
        except OSError as error:
            raise ConfigError(f"cannot read {file}: {error.strerror}") from None
        except MalformedProperties as error:
            raise ConfigError(f"cannot read {file}: {error}") from None
    texts |= environment or {}
    for override in overrides:
        name, separator, text = override.partition("=")
        if not separator or not name.strip():
            raise ConfigError(f"--override {override}: must be name=value")
        texts[name.strip()] = text.strip()
    if port is not None:
        if "listeners" in texts:
            raise ConfigError(f"--port {port}: listeners={texts['listeners']} is given, too; change the port there")
        texts["listeners"] = f"PLAINTEXT://127.0.0.1:{port}"
    return texts
