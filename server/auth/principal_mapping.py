"""ssl.principal.mapping.rules: what a user is called whose certificate has a certain name. Kafka's SslPrincipalMapper.

    DEFAULT                             the whole distinguished name
    RULE:pattern/replacement/[LU]       what `replacement` makes of it if the whole name matches, L in small, U in capital letters

Rules stand in one line with commas between, and the first that fits counts. Patterns are RE2's and not Java's: one name
takes a time that grows with its length and the pattern's, whoever wrote them. What Java's have beyond that (looking ahead,
back references within the pattern) is refused at start.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

RULES_CHARACTERS_MAX = 32_767
PATTERN_MEMORY_MAX = 1024 * 1024
RESULT_CHARACTERS_MAX = 32_767

_SPACES = " \t\n\v\f\r"
_DIGITS = frozenset("0123456789")
# One rule and what follows it. Backslashes and other characters exclude each other, so there is one way to match only.
_RULE = re.compile(r"RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?)", re.DOTALL)


class InvalidRules(ValueError):
    """Rules that Kafka would not take, or patterns that RE2 cannot match."""


class NoRuleFits(Exception):
    """No rule says what a user is called."""


class _Rule(NamedTuple):
    pattern: Any
    """None: the rule DEFAULT."""
    replacement: Sequence[str | int]
    """Texts, and numbers of groups."""
    case: str


class PrincipalMapper:
    """See the module's docstring. InvalidRules if the text is none of that."""

    def __init__(self, text: str) -> None:
        if len(text) > RULES_CHARACTERS_MAX:
            raise InvalidRules(f"the rules have more than {RULES_CHARACTERS_MAX} characters")
        self._rules = _parsed(text)

    def name(self, distinguished_name: str) -> str:
        """What a user is called; NoRuleFits."""
        for rule in self._rules:
            if rule.pattern is None:
                return distinguished_name
            if rule.pattern.fullmatch(distinguished_name) is not None:
                return _applied(rule, distinguished_name)
        raise NoRuleFits(f"no rule of ssl.principal.mapping.rules applies to {distinguished_name}")


def _parsed(text: str) -> list[_Rule]:
    rules: list[_Rule] = []
    position, text = 0, text.strip(_SPACES)
    while position < len(text):
        if text[position] in _SPACES or text[position] == ",":
            position += 1  # empty rules are left out, as in Kafka
        elif text.startswith("DEFAULT", position):
            rules.append(_Rule(None, (), ""))
            position = _end_of_rule(text, position, position + len("DEFAULT"))
        elif found := _RULE.match(text, position):
            rules.append(_rule(*found.groups()))
            position = _end_of_rule(text, position, found.end())
        else:
            raise InvalidRules(f"Invalid rule: {text[position : position + 100]}")
    return rules


def _end_of_rule(text: str, start: int, end: int) -> int:
    """Behind the comma after a rule."""
    rest = text[end:].lstrip(_SPACES)
    if rest and not rest.startswith(","):
        unmatched = text[end : end + 100]
        raise InvalidRules(f"Invalid rule: `{text[start : end + 100]}`, unmatched substring: `{unmatched}`")
    return len(text) - len(rest) + 1


def _rule(pattern: str, replacement: str, case: str) -> _Rule:
    import re2  # here, because few listeners have rules

    options = re2.Options()
    options.max_mem = PATTERN_MEMORY_MAX
    options.log_errors = False
    try:
        compiled = re2.compile(pattern, options=options)
    except (re2.error, UnicodeError):
        raise InvalidRules(f"`{pattern}` is not a regular expression that RE2 can match") from None
    return _Rule(compiled, _replacement(replacement, compiled.groups), case)


def _replacement(text: str, groups: int) -> list[str | int]:
    """The parts of a replacement, as Java's Matcher.appendReplacement reads it after Kafka's escapeLiteralBackReferences."""
    parts: list[str | int] = []
    position = 0
    while position < len(text):
        here, following = text[position], text[position + 1 : position + 2]
        if here == "\\":
            # A backslash at the end is half of an escape.
            if not following:
                raise InvalidRules(f"`{text}`: character to be escaped is missing")
            parts.append(following)
            position += 2
        elif here != "$":
            parts.append(here)
            position += 1
        elif following not in _DIGITS:
            raise InvalidRules(f"`{text}`: a $ in a replacement is followed by the number of a group")
        else:
            group, position = _group(text, position + 1, groups)
            parts.append(group)
    return parts


def _group(text: str, position: int, groups: int) -> tuple[str | int, int]:
    """The group that a number means: as many of its digits as are a group that there is. A text if there is none."""
    number = int(text[position])
    if number > groups:
        # Kafka takes a group that there is not for plain text, unless there are none at all: then Java refuses.
        if groups == 0:
            raise InvalidRules(f"No group {number}")
        return f"${number}", position + 1
    position += 1
    while position < len(text) and text[position] in _DIGITS and number * 10 + int(text[position]) <= groups:
        number = number * 10 + int(text[position])
        position += 1
    return number, position


def _applied(rule: _Rule, name: str) -> str:
    """Every match is replaced, not only the first, and an empty one behind another, too: Java's String.replaceAll."""
    result: list[str] = []
    end = size = 0
    for match in rule.pattern.finditer(name):
        result.append(name[end : match.start()])
        result += [(match.group(part) or "") if isinstance(part, int) else part for part in rule.replacement]
        end = match.end()
        size += sum(map(len, result[-len(rule.replacement) - 1 :]))
        if size > RESULT_CHARACTERS_MAX:
            raise NoRuleFits(f"the name that a rule makes has more than {RESULT_CHARACTERS_MAX} characters")
    result.append(name[end:])
    text = "".join(result)
    return {"L": text.lower, "U": text.upper}.get(rule.case, text.__str__)()
