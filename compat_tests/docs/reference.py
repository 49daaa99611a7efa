"""The page with every call of `ottla.testing`, made from its classes: python -m compat_tests.docs.reference

A test compares docs/testing-reference.md with what this makes.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

from compat_tests.docs.pages import DOCS

import ottla.testing
import ottla.testing.client
from ottla.server.testing.control.operations import OPERATIONS

PAGE = DOCS / "testing-reference.md"
HEAD = """# Every call of `ottla.testing`

This page is made from the code: `python -m compat_tests.docs.reference`. [Kafka inside a test](testing.md) explains how they are used.
"""
MADE_BY_USERS = {"History", "Kafka"}
"""Classes of `ottla.testing` whose constructors users call; others are made by a `Kafka`."""

NOT_FOR_USERS = {
    "Rule": {"acts_on"},
    "Wire": {"acceptor", "note_answer", "note_request"},
    "WireRequest": {"answered", "decode_answer", "decoded_once", "format_of", "kept_bytes", "name_of"}
    | {"offsets", "raw_request", "raw_response"},
}
"""Calls by which parts of the project serve each other, by class."""


def made() -> str:
    """Return the page."""
    parts = [HEAD]
    for name in ottla.testing.__all__:
        parts += _described(name, getattr(ottla.testing, name))
    parts.append("## The client: `ottla.testing.client`\n")
    for name in ottla.testing.client.__all__:
        thing = getattr(ottla.testing.client, name)
        if getattr(thing, "__module__", "").startswith("ottla.server.testing"):  # no constant, and not Kafka's errors
            parts += _described(name, thing, "###")
    parts += ["## The control port\n", "| | path | parameters | |\n|-|-|-|-|"]
    parts.append("\n".join(_row(each) for each in OPERATIONS))
    return "\n".join(parts).rstrip() + "\n"


def _described(name: str, thing: Any, mark: str = "##") -> Iterator[str]:
    yield f"{mark} {name}\n"
    if inspect.isfunction(thing):
        yield f"`{name}{_signature(thing)}`\n"
    yield _text(thing) + "\n"
    if not inspect.isclass(thing):
        return
    if fields := getattr(thing, "_fields", ()):
        yield "Fields: " + ", ".join(f"`{each}`" for each in fields) + "\n"
    elif "__init__" in vars(thing) and (name in MADE_BY_USERS or mark == "###" and vars(thing)["__init__"].__doc__):
        yield f"`{name}{_signature(thing.__init__)}` {_own_text(thing.__init__)}".rstrip() + "\n"
    rows = [_member(each, member) for each, member in _members(thing)]
    if rows:
        yield "| call | |\n|-|-|\n" + "\n".join(rows) + "\n"


def _members(thing: Any) -> Iterator[tuple[str, Any]]:
    """Yield the public calls of a class itself; what it has of others is for the project's own tests."""
    if issubclass(thing, BaseException):
        return
    of_client = [each for each in thing.__mro__[1:] if each.__module__.startswith("ottla.server.testing.client")]
    for name, member in [pair for each in (thing, *of_client) for pair in vars(each).items()]:
        is_call = inspect.isfunction(member) or isinstance(member, property | classmethod | staticmethod)
        if not name.startswith("_") and is_call and name not in NOT_FOR_USERS.get(thing.__name__, ()):
            yield name, member


def _member(name: str, member: Any) -> str:
    if isinstance(member, property):
        return f"| `{name}` | {_cell(member.fget)} |"
    plain = member.__func__ if isinstance(member, classmethod | staticmethod) else member
    return f"| `{name}{_signature(plain)}` | {_cell(plain)} |"


def _signature(function: Any) -> str:
    parameters = list(inspect.signature(function).parameters.values())
    if parameters and parameters[0].name in ("self", "cls"):
        parameters = parameters[1:]
    bare = [each.replace(annotation=inspect.Parameter.empty) for each in parameters]
    return str(inspect.Signature(bare)).replace("|", "\\|")


def _own_text(function: Any) -> str:
    return inspect.cleandoc(function.__doc__ or "")


def _text(thing: Any) -> str:
    return inspect.getdoc(thing) or ""


def _cell(thing: Any) -> str:
    return " ".join(_text(thing).split()).replace("|", "\\|")


def _row(operation: Any) -> str:
    names = list(inspect.signature(operation.run).parameters)[1:]
    parameters = ", ".join(f"`{name}`" for name in names)
    return f"| {operation.method} | `{operation.path}` | {parameters} | {_cell(operation.run)} |"


if __name__ == "__main__":
    PAGE.write_text(made())
