"""ottla completion bash|zsh|fish

The printed script calls `ottla completion SHELL --line ...` at each press of the key, so that the installed version decides what is
completed, by the parsers of its commands, the declarations of settings, and the topics and groups of the cluster. A line of the answer is
a candidate and, behind a tab, its description. The line `:files` alone means names of files, which the shell completes itself.

A press of Tab must neither wait long nor print an error: after LIMIT_S, or on any failure, there are no names of the cluster. A name with
characters that have a meaning in a shell, such as a space or a dollar sign, is left out: a stranger may have chosen the name of a group.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ottla.server.cli.cli import COMMANDS, parser_for
from ottla.server.cli.command_line import (
    EXIT_OK,
    Place,
    commands_of,
    is_option,
    option_of,
    options_of,
    shown_actions,
    walk,
)

if TYPE_CHECKING:
    from ottla.server.cli.client.cluster import Cluster
    from ottla.wire.settings import Setting

LIMIT_S = 1.0
NAMES_MAX = 2000
_SAFE = re.compile(r"[A-Za-z0-9_.@+/:][A-Za-z0-9_.@+/:-]{0,254}")

DESCRIPTION = """\
Prints a script that makes a shell complete what `ottla` takes: commands, options, names of settings and files, and the topics and groups
of the cluster that the line names, if it answers within a second.
"""

EXAMPLES = """\
examples:
  eval "$(ottla completion bash)"                in ~/.bashrc
  eval "$(ottla completion zsh)"                 in ~/.zshrc, behind compinit
  ottla completion fish >~/.config/fish/completions/ottla.fish
"""

# `default` completes files where this finds nothing. Candidates bring their space, because behind `name=` there is none.
_BASH = r"""_ottla() {
    local IFS=$'\n' line
    COMPREPLY=()
    while read -r line; do
        if [ "$line" != ":files" ]; then COMPREPLY+=("${line%%$'\t'*}"); fi
    done < <(ottla completion bash --line "${COMP_LINE:0:COMP_POINT}" 2>/dev/null)
}
complete -o default -o nospace -F _ottla ottla
"""

_ZSH = r"""_ottla() {
    local line
    local -a candidates shown
    for line in "${(@f)$(ottla completion zsh --line "${(j: :)words[1,CURRENT]}" 2>/dev/null)}"; do
        if [[ $line == :files ]]; then _files; return; fi
        if [[ -z $line ]]; then continue; fi
        candidates+=("${line%%$'\t'*}")
        shown+=("${line/$'\t'/  -- }")
    done
    compadd -Q -S '' -l -d shown -a candidates
}
compdef _ottla ottla
"""

_FISH = r"""function __ottla_complete
    for line in (ottla completion fish --line (commandline -cp | string collect) 2>/dev/null)
        if test "$line" = ":files"
            __fish_complete_path (commandline -ct)
        else
            printf '%s\n' $line
        end
    end
end
complete -c ottla -f -a '(__ottla_complete)'
"""

SCRIPTS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `ottla completion`: the shell and, for its script, the command line up to the cursor."""
    parser.add_argument("shell", choices=SCRIPTS, help="the shell that the script is for")
    parser.add_argument("--line", help=argparse.SUPPRESS)


def run(options: argparse.Namespace) -> int:
    """Print the shell's completion script, or the candidates for a command line; return the exit code."""
    if options.line is None:
        print(SCRIPTS[options.shell], end="")
        return EXIT_OK

    for each in candidates(options.line):
        if each == FILES:
            print(":files")
        elif options.shell == "fish":
            print(f"{each.text}\t{each.what}" if each.what else each.text)
        else:
            text = behind_word_breaks(options.line, each.text) if options.shell == "bash" else each.text
            print(text + ("" if each.goes_on else " ") + (f"\t{each.what}" if each.what else ""))
    return EXIT_OK


_OF_FILES = ("FILE", "FOLDER", "PATH", "DIR", ".properties")
TOPIC_AND_FILES = "TOPIC [FILE ...]"
_BREAKS = "=:"  # where bash begins a new word to complete


class Candidate(NamedTuple):
    """Candidate for the last word of the command line. `goes_on`: the word may be longer than the candidate."""

    text: str
    what: str = ""
    goes_on: bool = False


FILES = Candidate(":files")


def candidates(line: str) -> list[Candidate]:
    """Return the candidates for the last word of `line`, which ends at the cursor. FILES alone means any file name."""
    *before, current = _words(line)
    parser, _ = parser_for(before)
    place = walk(parser, before)
    if place.unknown is not None:
        return []
    option, separator, value = current.partition("=")
    if not place.only_positionals and is_option(current) and separator:
        action = option_of(place.parser, option)
        found = [] if action is None else _values(action, value, Names(parser, before))
        return [_with_option(option, each) for each in found]
    names = Names(parser, before)
    if place.awaiting is not None:
        return list(_values(place.awaiting, current, names))
    if not place.only_positionals and current.startswith("-"):
        return _beginning(current, _options(place.parser))
    if (commands := commands_of(place.parser)) and not place.positional_count:
        return _beginning(current, _commands(place.parser, commands))
    positional = _positional(place.parser, place.positional_count)
    if positional is not None and positional.metavar == TOPIC_AND_FILES:
        return names.topics(current) if place.positional_count == 0 else [FILES]
    return [] if positional is None else list(_values(positional, current, names))


def behind_word_breaks(line: str, candidate: str) -> str:
    """Return the part of a candidate that bash needs: bash replaces only what follows the last word break."""
    current = _words(line)[-1]
    last = max(current.rfind(each) for each in _BREAKS)
    return candidate[last + 1 :]


def _words(line: str) -> list[str]:
    """Split a command line into the words after `ottla`. The last word is empty if the line ends with a space."""
    words = _split(line)
    if not words or line[-1:].isspace():
        words.append("")
    name = next((number for number, each in enumerate(words[:-1]) if os.path.basename(each) == "ottla"), 0)
    return words[name + 1 :] or [""]


def _split(line: str) -> list[str]:
    for end in ("", "'", '"'):  # the last word may have begun with a quotation mark
        try:
            return shlex.split(line + end)
        except ValueError:
            continue
    return line.split()


def _with_option(option: str, candidate: Candidate) -> Candidate:
    return candidate if candidate == FILES else candidate._replace(text=f"{option}={candidate.text}")


def _beginning(current: str, found: Iterable[Candidate]) -> list[Candidate]:
    return [each for each in found if each.text.startswith(current)]


def _options(parser: argparse.ArgumentParser) -> Iterator[Candidate]:
    for name, action in options_of(parser).items():
        yield Candidate(name, _one_line(action.help))


def _commands(parser: argparse.ArgumentParser, names: Iterable[str]) -> Iterator[Candidate]:
    (action,) = (each for each in parser._actions if isinstance(each, argparse._SubParsersAction))
    helps = {each.dest: each.help for each in action._choices_actions}
    for name in names:
        yield Candidate(name, _one_line(helps.get(name)))


def _positional(parser: argparse.ArgumentParser, number: int) -> argparse.Action | None:
    found = [each for each in shown_actions(parser) if not each.option_strings]
    if number < len(found):
        return found[number]
    return found[-1] if found and found[-1].nargs in ("*", "+") else None


class Names(NamedTuple):
    """Names that the cluster of a command line has. `before`: words before the one that is completed."""

    parser: argparse.ArgumentParser
    before: Sequence[str]

    def topics(self, current: str, *, goes_on: bool = False) -> list[Candidate]:
        """Return topics whose names begin with `current`; internal ones only if `current` begins with an underscore."""

        def found(cluster: Cluster) -> list[str]:
            topics = cluster.metadata(None).topics
            return [each.name or "" for each in topics if not each.is_internal or current.startswith("_")]

        return [Candidate(each, goes_on=goes_on) for each in self._asked(found, current)]

    def groups(self, current: str) -> list[Candidate]:
        """Return the groups whose names begin with `current`; none if the cluster does not answer soon."""
        from ottla.server.cli.client.groups import list_groups  # only for these, because it opens connections

        return [
            Candidate(each)
            for each in self._asked(lambda cluster: [each.group for each in list_groups(cluster)], current)
        ]

    def _asked(self, ask: Callable[[Cluster], list[str]], begun: str) -> list[str]:
        """Return the names that `ask` finds and that begin with `begun`; none if the cluster does not answer soon."""
        from ottla.server.cli.on_cluster import reach

        found: list[str] = []
        try:
            with _limited(), closing(reach(connection_options(self.parser, self.before))) as cluster:
                found = ask(cluster)
        except Exception:  # noqa: BLE001 - whatever it is, completion prints no error
            return []
        return sorted(each for each in found if each.startswith(begun) and _SAFE.fullmatch(each))[:NAMES_MAX]


@contextmanager
def _limited() -> Iterator[None]:
    """Raise TimeoutError in this block after LIMIT_S."""

    def on_alarm(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, on_alarm)
    signal.setitimer(signal.ITIMER_REAL, LIMIT_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def connection_options(parser: argparse.ArgumentParser, words: Sequence[str]) -> argparse.Namespace:
    """Return the options of the connection that unfinished words of a command line have."""
    found = argparse.Namespace(timeout=LIMIT_S, properties=[])
    place = Place(parser)
    for word in words:
        action, value = place.awaiting, word
        place.take(word)
        if is_option(word):
            name, separator, value = word.partition("=")
            if not separator and not word.startswith("--"):
                value = word[2:]  # -bHOST:PORT
            action = option_of(place.parser, name) if value else None
        if action is None:
            continue
        if action.dest == "properties":
            found.properties.append(value)
        elif action.dest == "bootstrap_server":
            found.bootstrap_server = value
        elif action.dest == "command_config":
            found.command_config = Path(value)
    return found


def _values(action: argparse.Action, current: str, names: Names) -> Iterable[Candidate]:
    if action.choices is not None:
        return _beginning(current, [Candidate(str(each)) for each in action.choices])
    metavar = action.metavar if isinstance(action.metavar, str) else ""
    if metavar == "GROUP":
        return names.groups(current)
    if metavar.startswith("TOPIC"):
        return names.topics(current, goes_on=metavar != "TOPIC")
    if metavar == "COMMAND":
        return _beginning(current, _of_help([each for each in names.before if not each.startswith("-")]))
    if metavar == "name=value":
        return _settings_with_values(current)
    if metavar in ("NAME=VALUE", "SETTING=VALUE") and "--config" in action.option_strings:
        return _topic_settings(current)
    if metavar == "SETTING":
        from ottla.server.config.reference import all_references

        return _beginning(current, [Candidate(name) for name in sorted({each.name for each in all_references()})])
    return [FILES] if any(each in metavar for each in _OF_FILES) else []


def _of_help(words: Sequence[str]) -> list[Candidate]:
    """Return the commands for `ottla help`, or the actions of the command behind it. `words` begin with help."""
    if len(words) == 1:
        return [Candidate(name, what) for name, what in COMMANDS.items()]
    command = commands_of(parser_for(words[1:2])[0]).get(words[1])
    actions = {} if command is None or len(words) > 2 else commands_of(command)
    return [Candidate(name) for name in actions]


def _settings_with_values(current: str) -> list[Candidate]:
    """Complete the name of a broker setting; after `name=`, complete its value if the setting has few values."""
    from ottla.server.config.broker_config import known_names, settings_of_member

    return _assignments(current, sorted(known_names()), settings_of_member())


def _topic_settings(current: str) -> list[Candidate]:
    """Complete the name of a topic setting; after `name=`, complete its value if the setting has few values."""
    from ottla.replication.config import LogConfig
    from ottla.wire.settings import settings_of

    declared = {name: each for name, each in settings_of(LogConfig).items() if not each.internal}
    return _assignments(current, sorted(declared), declared)


def _assignments(current: str, names: Iterable[str], settings: Mapping[str, Setting]) -> list[Candidate]:
    from ottla.wire.settings import BOOLEAN

    name, separator, value = current.partition("=")
    if not separator:
        return _beginning(current, [Candidate(f"{each}=", goes_on=True) for each in names])
    declared = settings.get(name)
    if declared is None:
        return []
    allowed = ("true", "false") if declared.kind is BOOLEAN else declared.choices
    return [Candidate(f"{name}={each}") for each in allowed if each.startswith(value)]


def _one_line(text: str | None) -> str:
    return " ".join((text or "").split())
