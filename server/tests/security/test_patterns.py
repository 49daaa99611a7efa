"""No regular expression of this program takes time that grows with the square of the text.

`re` tries every way to divide a text between two unbounded repetitions. That is quadratic where both may match the same
characters and nothing between them says where the first one ends.
"""

import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator
from re import _parser  # type: ignore[attr-defined]
from types import ModuleType
from typing import Any

import pytest

import ottla.groupcoord
import ottla.replication
import ottla.server
import ottla.wire

# They read what this broker and its operator wrote, never a client's texts.
NOT_OF_CLIENTS = {
    "ottla.replication.log.names._MARKED_DIRECTORY",
    "ottla.replication.cluster.znodes._ENDPOINT",
    "ottla.server.security.scram_users._PART",
    "ottla.server.config.broker_config._URL_CREDENTIALS",
    "ottla.server.config.properties._OF_KUBERNETES",
    "ottla.server.config.properties._PLACES",
    "ottla.server.cli.places._PART",
    "ottla.server.launch.cluster_children.CONSOLE",  # the first lines of a broker that the command started
}
# Each of their repetitions ends at a comma that it cannot match itself, which the look at a pattern does not see within
# repeated groups. What they are held against is short besides.
DIVIDED_BY_COMMAS = {
    f"ottla.server.security.scram.{name}" for name in ("_CLIENT_FIRST", "_CLIENT_FINAL", "_SERVER_FINAL")
}
# Its alternatives exclude each other, which the look at a pattern does not see. The broker's operator wrote what it reads.
OF_RULES = {"ottla.server.security.principal_mapping._RULE"}
# Without an unbounded repetition, or with one class of characters alone, a search looks at each character a few times. So it does
# with strings of JSON and Protobuf: what begins as one is one, to its end or that of the text.
OF_FEW_CHARACTERS = {
    "ottla.server.cli.client.output._HARMFUL",
    "ottla.server.admin.http.clients.points._OTHERS",
    "ottla.server.admin.http.server._EMPTY_LINE",
    "ottla.server.api.produce.schema_ids._PROTOBUF_TOKENS",
    "ottla.server.rest.bodies._MARK",
    "ottla.server.rest.bodies._TOKEN",
    "ottla.wire.foreign_json._BRACKET",
    "ottla.wire.foreign_json._STRING",
}
# One is compiled and one imports what is; neither has a pattern.
NOT_EVERYWHERE = {"ottla.wire._native", "ottla.server.security.kerberos.library"}
ALPHABET = [chr(code) for code in range(128)]
REPETITIONS = ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT")
UNBOUNDED = _parser.MAXREPEAT


def patterns() -> Iterator[tuple[str, re.Pattern[str]]]:
    for package in (ottla.wire, ottla.replication, ottla.groupcoord, ottla.server):
        for module in modules_of(package):
            for name, value in vars(module).items():
                if isinstance(value, re.Pattern):
                    yield f"{module.__name__}.{name}", value


def modules_of(package: ModuleType) -> Iterator[ModuleType]:
    for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        # What runs in a test has no strangers.
        if not re.search(r"\.tests|^ottla\.server\.testing", found.name) and found.name not in NOT_EVERYWHERE:
            yield importlib.import_module(found.name)


Piece = tuple[bool, frozenset[str]]  # is it repeated without bound, and which characters does it match


def ways(tree: Any) -> list[list[Piece]]:
    """Every way through a pattern, with each option taken or left."""
    found: list[list[Piece]] = [[]]
    for kind, argument in tree:
        found = [before + after for before in found for after in ways_of_one(kind, argument)]
    return found


def ways_of_one(kind: Any, argument: Any) -> list[list[Piece]]:
    if str(kind) in REPETITIONS:
        low, high, inner = argument
        if high is UNBOUNDED:
            return [[(True, characters(inner))]]
        return ways(inner) if low else [[], *ways(inner)]
    if str(kind) == "SUBPATTERN":
        return ways(argument[3])
    if str(kind) == "BRANCH":
        return [way for branch in argument[1] for way in ways(branch)]
    return [[(False, characters([(kind, argument)]))]]


def characters(tree: Any) -> frozenset[str]:
    found: set[str] = set()
    for kind, argument in tree:
        name = str(kind)
        if name in REPETITIONS:
            found |= characters(argument[2])
        elif name == "SUBPATTERN":
            found |= characters(argument[3])
        elif name == "BRANCH":
            for branch in argument[1]:
                found |= characters(branch)
        else:
            found |= {each for each in ALPHABET if matches(kind, argument, each)}
    return frozenset(found)


def matches(kind: Any, argument: Any, character: str) -> bool:
    single = _parser.SubPattern(_parser.State(), [(kind, argument)])
    compiled = re._compiler.compile(single)  # type: ignore[attr-defined]
    return bool(compiled.fullmatch(character))


def is_quadratic(pattern: str) -> bool:
    return any(is_quadratic_way(way) for way in ways(_parser.parse(pattern)))


def is_quadratic_way(way: list[Piece]) -> bool:
    for index, (is_repeated, first) in enumerate(way):
        for is_later_repeated, second in way[index + 1 :] if is_repeated else ():
            if is_later_repeated and first & second:
                return True
            if not is_later_repeated and not first & second:
                break  # here the first one ends, wherever it began
    return False


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        (r"[0-9]+\.?[0-9]*", True),
        (r"[0-9]+(\.[0-9]*)?", False),
        (r"[a-z]+=[a-z]+", False),
        (r"(x|[a-z]+)=?[a-y]*", True),
        (r".*=.*", True),
    ],
)
def test_the_look_at_a_pattern_finds_two_repetitions_that_share_characters(pattern: str, expected: bool) -> None:
    assert is_quadratic(pattern) is expected


@pytest.mark.thorough
def test_no_pattern_divides_a_long_text_in_every_way() -> None:
    known = dict(patterns())
    assert len(known) > 10
    quadratic = {name for name, pattern in known.items() if is_quadratic(pattern.pattern)}
    assert quadratic <= NOT_OF_CLIENTS | DIVIDED_BY_COMMAS | OF_RULES


def test_patterns_are_held_against_whole_texts() -> None:
    """A search begins anew at every character, which is quadratic whenever a pattern begins with a repetition."""
    for package in (ottla.wire, ottla.replication, ottla.groupcoord, ottla.server):
        for module in modules_of(package):
            for name, value in vars(module).items():
                if (
                    isinstance(value, re.Pattern)
                    and f"{module.__name__}.{name}" not in OF_FEW_CHARACTERS | NOT_OF_CLIENTS
                ):
                    assert not re.search(
                        rf"{name}\.(search|split|sub|subn|findall|finditer)\(", inspect.getsource(module)
                    )
