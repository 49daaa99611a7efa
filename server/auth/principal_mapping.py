"""ssl.principal.mapping.rules: what a user is called whose certificate has a certain name. Kafka's SslPrincipalMapper.

    DEFAULT                             the whole distinguished name
    RULE:pattern/replacement/[LU]       what `replacement` makes of it if the whole name matches, L in small, U in capital letters

Rules stand in one line with commas between, and the first that fits counts. `java_patterns.py` says what a pattern may be.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from ottla.server.auth.java_patterns import InvalidPattern, ResultTooLong, compiled, replaced, replacement_parts

RULES_CHARACTERS_MAX = 32_767

_SPACES = " \t\n\v\f\r"
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
    try:
        made = compiled(pattern)
        return _Rule(made, replacement_parts(replacement, made.groups, absent_are_plain=True), case)
    except InvalidPattern as invalid:
        raise InvalidRules(str(invalid)) from None


def _applied(rule: _Rule, name: str) -> str:
    """Every match is replaced, not only the first: Java's String.replaceAll."""
    try:
        text = replaced(rule.pattern, rule.replacement, name)
    except ResultTooLong as error:
        raise NoRuleFits(str(error)) from None
    return {"L": text.lower, "U": text.upper}.get(rule.case, text.__str__)()
