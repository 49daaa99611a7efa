"""ottla settings [name or part of it] [--json | --markdown]"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from ottla.server.cli.client.output import terminal_width
from ottla.server.cli.command_line import EXIT_OK, EXIT_USAGE, fail

if TYPE_CHECKING:
    from ottla.server.config.reference import Reference

DESCRIPTION = """\
Shows the settings that Ottla knows, by Apache Kafka's names: type, default, allowed values, where each can be changed and
what a change does, whether it has an effect here, and what it is for. No broker is asked: `ottla configs` tells what is in
force on one.

CHANGE says who can change a setting while a broker runs: nobody (read-only: server.properties or --override, at the start),
somebody for one broker (per-broker) or for all of them (cluster-wide), and for single topics, groups or subscriptions.
"""

EXAMPLES = """\
examples:
  ottla settings                                 all of them
  ottla settings retention                       those with `retention` in their names
  ottla settings log.retention.ms                all about one
  ottla settings --json                          for programs
  ottla settings --markdown >settings.md         the reference page
"""

_WHAT_WIDTH_MIN = 40
_CELL_WIDTH_MAX = 24
_INDENT = "    "
_HEADS = ("NAME", "TYPE", "DEFAULT", "CHANGE")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `ottla settings`: the choice of settings and the output format."""
    parser.add_argument("name", nargs="?", default="", metavar="SETTING", help="a setting, or a part of its name")
    forms = parser.add_mutually_exclusive_group()
    forms.add_argument("--json", action="store_true", help="a list of objects, one for each setting")
    forms.add_argument("--markdown", action="store_true", help="a page with a block for each setting")


def run(options: argparse.Namespace) -> int:
    """Print the chosen settings; return the exit code."""
    from ottla.server.config.reference import matching

    found = matching(options.name)
    if not found:
        return fail(_nothing_found(options.name), EXIT_USAGE)
    if options.json:
        import json

        print(json.dumps([each._asdict() for each in found], indent=2))
    elif options.markdown:
        from ottla.server.config.reference import reference_page

        print(reference_page(found), end="")
    elif len({each.name for each in found}) == 1:
        width = terminal_width()
        print("\n\n".join("\n".join(described(each, width)) for each in found))
    else:
        print("\n".join(table(found, shutil.get_terminal_size((120, 24)).columns)))
    return EXIT_OK


def _nothing_found(name: str) -> str:
    from ottla.server.config.broker_config import nearest_name
    from ottla.server.config.reference import all_references

    nearest = nearest_name(name, [each.name for each in all_references()])
    return f"no setting has {name!r} in its name" + (f"; did you mean {nearest}?" if nearest else "")


def described(setting: Reference, width: int | None = None) -> list[str]:
    """Return a full description of one setting: a line for each property. `width`: of a line, None: any."""
    from ottla.server.config.reference import BROKER

    notes = [
        (setting.per_listener, f"a listener may have its own, as listener.name.<listener>.{setting.name}"),
        (setting.cluster_only, "described by members of a cluster with ZooKeeper only"),
        (setting.internal, "not described to clients, as in Apache Kafka"),
    ]
    parts = [
        ("of", "brokers" if setting.scope == BROKER else setting.scope),
        ("type", setting.type),
        ("default", shown_default(setting)),
        ("default from", _first_set(setting.defaults_from)),
        ("wins", _precedence(setting)),
        ("allowed", setting.allowed),
        ("change", setting.change),
        ("at run time", setting.on_change),
        ("effect", "" if setting.has_effect else "none here: it is accepted, checked and described"),
        ("note", "; ".join(note for holds, note in notes if holds)),
    ]
    lines = [setting.name, *_indented("  ", setting.what, width)]
    for head, text in parts:
        lines += _indented(f"  {head:13} ", text, width) if text else ()
    return lines


def _indented(head: str, text: str, width: int | None) -> list[str]:
    texts = [text] if width is None else wrapped(text, max(width - len(head), _WHAT_WIDTH_MIN))
    return [f"{head if index == 0 else ' ' * len(head)}{each}" for index, each in enumerate(texts)]


def shown_default(setting: Reference) -> str:
    """Return the default as text for display: "none" without a default, "empty" for an empty text."""
    if setting.default is None:
        return "none"
    from ottla.server.config.quantities import shown

    return shown(setting.name, setting.default) or "empty"


def _first_set(names: Sequence[str]) -> str:
    return ", ".join(names) + (": the first that is set" if len(names) > 1 else "")


def _precedence(setting: Reference) -> str:
    """Say which of several settings with the same meaning counts, such as log.retention.ms; empty if there is one."""
    from ottla.server.config.reference import BROKER, TOPIC, all_references

    for each in all_references() if setting.scope == BROKER else ():
        if each.scope == TOPIC and setting.name in each.defaults_from[:-1] + each.defaults_from[1:]:
            return f"{' over '.join(each.defaults_from)}, for topics without a {each.name} of their own"
    return ""


def table(settings: Sequence[Reference], width: int) -> list[str]:
    """Format settings as a table, at most `width` characters wide.

    A description is beside its setting's name, or below.
    """
    rows = [_cells(each) for each in settings]
    widths = [max(len(row[column]) for row in [_HEADS, *rows]) for column in range(len(_HEADS))]
    left = width - sum(widths) - 2 * len(widths)
    is_beside = left >= _WHAT_WIDTH_MIN
    # Where even the names are too long for that, each has a line of its own.
    split = 1 if left + 2 < 0 else 0
    lines = [_joined([*_HEADS, "WHAT IT DOES"], widths)] if is_beside else _block(_HEADS, widths, split)
    for setting, row in zip(settings, rows, strict=True):
        what = wrapped(
            setting.what if setting.has_effect else f"{setting.what} (no effect here)",
            left if is_beside else max(width - 4, _WHAT_WIDTH_MIN),
        )
        if is_beside:
            lines.append(_joined([*row, what[0]], widths))
            lines += [" " * (width - left) + each for each in what[1:]]
        else:
            lines += _block(row, widths, split)
            lines += [f"{_INDENT}{each}" for each in what]
    return lines


def _cells(setting: Reference) -> tuple[str, ...]:
    cells = (setting.type, shown_default(setting), setting.change)
    return (
        setting.name,
        *(each if len(each) <= _CELL_WIDTH_MAX else each[: _CELL_WIDTH_MAX - 1] + "…" for each in cells),
    )


def _block(cells: Sequence[str], widths: Sequence[int], split: int) -> list[str]:
    """Return the lines of a row without a description; the first `split` cells have a line each."""
    return [*cells[:split], _INDENT * split + _joined(cells[split:], widths[split:])]


def _joined(cells: Iterable[str], widths: Sequence[int]) -> str:
    padded = [cell.ljust(width) for cell, width in zip(cells, [*widths, 0], strict=False)]
    return "  ".join(padded).rstrip()


def wrapped(text: str, width: int) -> list[str]:
    """Wrap a text at `width` characters; a longer word is not split."""
    import textwrap

    return textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False) or [""]
