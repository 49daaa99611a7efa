"""ssl.principal.mapping.rules: names of users by the names in their certificates. Kafka's SslPrincipalMapper.

    DEFAULT                             the whole distinguished name
    RULE:pattern/replacement/[LU]       what `replacement` makes of it if the whole name matches, L in small, U in capital letters

Rules stand in one line with commas between, and the first that fits counts.

Patterns are RE2's and not Java's: one name takes a time that grows with its length and the pattern's, even if an attacker chose
them. What
Java's have beyond that (looking ahead, back references within the pattern) is refused. A replacement is that of Java's
Matcher.appendReplacement: `$1` is a group, and a backslash makes the next character plain. The rules of Kerberos
(`kerberos/names.py`) have the same patterns.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

PATTERN_MEMORY_MAX = 1024 * 1024
RESULT_CHARACTERS_MAX = 32_767

_DIGITS = frozenset("0123456789")


class InvalidPattern(ValueError):
    """Pattern that RE2 cannot match, or replacement that Java would reject."""


class ResultTooLong(Exception):
    """Replacement that would make a name longer than RESULT_CHARACTERS_MAX."""


def compiled(pattern: str) -> Any:
    """Compile a pattern with RE2. Raises InvalidPattern."""
    import re2  # here, because few listeners have rules

    options = re2.Options()
    options.max_mem = PATTERN_MEMORY_MAX
    options.log_errors = False
    try:
        return re2.compile(pattern, options=options)
    except (re2.error, UnicodeError):
        raise InvalidPattern(f"`{pattern}` is not a regular expression that RE2 can match") from None


def replacement_parts(text: str, groups: int, *, absent_are_plain: bool) -> list[str | int]:
    """Split a replacement into plain texts and group numbers. Raises InvalidPattern.

    `groups`: number of groups in the pattern. `absent_are_plain`: if the pattern has groups, references to others are
    plain text (Kafka's escapeLiteralBackReferences).
    """
    parts: list[str | int] = []
    position = 0
    while position < len(text):
        here, following = text[position], text[position + 1 : position + 2]
        if here == "\\":
            # A backslash at the end is half of an escape.
            if not following:
                raise InvalidPattern(f"`{text}`: character to be escaped is missing")
            parts.append(following)
            position += 2
        elif here != "$":
            parts.append(here)
            position += 1
        elif following not in _DIGITS:
            raise InvalidPattern(f"`{text}`: a $ in a replacement is followed by the number of a group")
        else:
            group, position = _group(text, position + 1, groups, absent_are_plain=absent_are_plain)
            parts.append(group)
    return parts


def _group(text: str, position: int, groups: int, *, absent_are_plain: bool) -> tuple[str | int, int]:
    """Parse a group reference, whose digits begin at `position`. Raises InvalidPattern.

    Return (group number, position behind it), with plain text instead of the number of a missing group. The number is
    the longest one for which a group exists.
    """
    number = int(text[position])
    if number > groups:
        if groups == 0 or not absent_are_plain:
            raise InvalidPattern(f"No group {number}")
        return f"${number}", position + 1
    position += 1
    while position < len(text) and text[position] in _DIGITS and number * 10 + int(text[position]) <= groups:
        number = number * 10 + int(text[position])
        position += 1
    return number, position


def replaced(pattern: Any, parts: Sequence[str | int], text: str, *, only_first: bool = False) -> str:
    """Replace matches like Java: all or `only_first`, and empty ones after others, too. Raises ResultTooLong."""
    result: list[str] = []
    end = size = 0
    for match in pattern.finditer(text):
        result.append(text[end : match.start()])
        result += [(match.group(part) or "") if isinstance(part, int) else part for part in parts]
        end = match.end()
        size += sum(map(len, result[-len(parts) - 1 :]))
        if size > RESULT_CHARACTERS_MAX:
            raise ResultTooLong(f"the name that a rule makes has more than {RESULT_CHARACTERS_MAX} characters")
        if only_first:
            break
    result.append(text[end:])
    return "".join(result)


# ---------------------------------------------------------------------- rules


RULES_CHARACTERS_MAX = 32_767

_SPACES = " \t\n\v\f\r"
# One rule and what follows it. Backslashes and other characters exclude each other, so there is one way to match only.
_RULE = re.compile(r"RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?)", re.DOTALL)


class InvalidRules(ValueError):
    """Mapping rules that Kafka would reject, or that have a pattern that RE2 cannot match."""


class NoRuleFits(Exception):
    """Distinguished name to which no rule applies, so that the user has no name."""


class _Rule(NamedTuple):
    pattern: Any
    """None: the rule DEFAULT."""
    replacement: Sequence[str | int]
    """Texts and numbers of groups."""
    case: str


class PrincipalMapper:
    """Mapping by ssl.principal.mapping.rules from distinguished names to user names. Raises InvalidRules."""

    def __init__(self, text: str) -> None:
        if len(text) > RULES_CHARACTERS_MAX:
            raise InvalidRules(f"the rules have more than {RULES_CHARACTERS_MAX} characters")
        self._rules = _parsed(text)

    def name(self, distinguished_name: str) -> str:
        """Return the user name for a distinguished name. Raises NoRuleFits."""
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
    """Apply a rule to a name: replace every match, as Java's String.replaceAll does. Raises NoRuleFits."""
    try:
        text = replaced(rule.pattern, rule.replacement, name)
    except ResultTooLong as error:
        raise NoRuleFits(str(error)) from None
    return {"L": text.lower, "U": text.upper}.get(rule.case, text.__str__)()
