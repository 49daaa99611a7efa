"""Names of users by their Kerberos principals (Kafka's KerberosName, KerberosShortNamer, KerberosRule).

    principal   user@REALM or service/host@REALM
    rule        DEFAULT                                         the first part, if the realm is this broker's own
                RULE:[n:format](match)s/pattern/replacement/g/L all behind the brackets may be left out, or /U be at the end

A rule counts for names of n parts. `$0` in its format is the realm, `$1` and `$2` are the parts. What the format makes has to
fit `match`; then the first match of `pattern` is replaced, with `g` each of them, `/L` makes small letters of it,
and `/U` capital ones. The first rule that fits counts.

Kafka reads a replacement when it is first needed; here one that could not be used is refused with the rules. Texts of errors
are Kafka's.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from ottla.server.security.principal_mapping import InvalidPattern, ResultTooLong, compiled, replaced, replacement_parts
from ottla.wire.settings import parse_integer

NAME_CHARACTERS_MAX = 1_000
RULES_CHARACTERS_MAX = 32_767

_NAME = re.compile(r"([^/@]*)(?:/([^/@]*))?@([^/@]*)")
_RULE = re.compile(r"(DEFAULT)|RULE:\[([0-9]*):([^\]]*)\](?:\(([^)]*)\))?(?:s/([^/]*)/([^/]*)/(g)?)?/?(L|U)?")
_PARAMETER = re.compile(r"([^$]*)(\$([0-9]*))?")


class InvalidRules(ValueError):
    """Mapping rules that Kafka would reject, or that have a pattern that RE2 cannot match."""


class NoShortName(Exception):
    """Kerberos principal without a user name, because it is malformed or no rule applies to it."""


class KerberosName(NamedTuple):
    """Parsed principal: service_name/host_name@realm. Without a host, `service_name` is the user's name."""

    service_name: str
    host_name: str | None
    realm: str | None

    def __str__(self) -> str:
        host = "" if self.host_name is None else f"/{self.host_name}"
        return self.service_name + host + ("" if self.realm is None else f"@{self.realm}")


def parse_name(text: str) -> KerberosName:
    """Parse a principal. Raises NoShortName if it is malformed."""
    found = _NAME.fullmatch(text)
    if found is not None:
        return KerberosName(found[1], found[2], found[3])
    if "@" in text:
        raise NoShortName(f"Malformed Kerberos name: {text}")
    return KerberosName(text, None, None)


class _Rule(NamedTuple):
    """Parsed rule of sasl.kerberos.principal.to.local.rules. `components`: number of name parts; None: DEFAULT."""

    text: str
    components: int | None
    format: str = ""
    match: Any = None
    pattern: Any = None
    replacement: Sequence[str | int] = ()
    repeats: bool = False
    letters: str | None = None
    """L: all become small; U: capital."""

    def __str__(self) -> str:
        return self.text


class ShortNamer:
    """Mapping from Kerberos principals to user names by rules. The constructor raises InvalidRules."""

    def __init__(self, rules: Sequence[str]) -> None:
        if sum(map(len, rules)) > RULES_CHARACTERS_MAX:
            raise InvalidRules(f"the rules have more than {RULES_CHARACTERS_MAX} characters")
        self._rules = [_parsed(each) for each in rules]

    def short_name(self, name: KerberosName, default_realm: str) -> str:
        """Return the user name of a principal. `default_realm`: this machine's realm, or "". Raises NoShortName."""
        if name.realm is None and name.host_name is None:
            return name.service_name
        parts = [name.realm or "", name.service_name, *([] if name.host_name is None else [name.host_name])]
        for rule in self._rules:
            if (found := _applied(rule, parts, default_realm)) is not None:
                return found
        rules = ", ".join(map(str, self._rules))
        raise NoShortName(f"No rules apply to {name}, rules [{rules[:NAME_CHARACTERS_MAX]}]")


def _applied(rule: _Rule, parts: Sequence[str], default_realm: str) -> str | None:
    if rule.components is None:
        found = parts[1] if parts[0] == default_realm else None
    else:
        found = _made(rule, parts) if len(parts) - 1 == rule.components else None
    if found is None:
        return None
    if "/" in found or "@" in found:
        raise NoShortName(f"Non-simple name {found} after auth_to_local rule {rule}")
    if rule.letters is None:
        return found
    return found.lower() if rule.letters == "L" else found.upper()


def _parsed(text: str) -> _Rule:
    found = _RULE.match(text)
    if found is None:
        raise InvalidRules(f"Invalid rule: {text}")
    if found.end() != len(text):
        raise InvalidRules(f"Invalid rule: `{text}`, unmatched substring: `{text[found.end() :]}`")
    default, number, form, match, pattern, replacement, repeats, letters = found.groups()
    if default is not None:
        return _Rule(text, None)
    components = parse_integer(number)
    if components is None:
        raise InvalidRules(f'Invalid rule: `{text}`: For input string: "{number}"')
    try:
        compiled_pattern = None if pattern is None else compiled(pattern)
        parts: list[str | int] = []
        if compiled_pattern is not None:
            parts = replacement_parts(replacement, compiled_pattern.groups, absent_are_plain=False)
        compiled_match = None if match is None else compiled(match)
    except InvalidPattern as invalid:
        raise InvalidRules(f"Invalid rule: `{text}`: {invalid}") from None
    return _Rule(text, components, form, compiled_match, compiled_pattern, parts, repeats == "g", letters)


def _made(rule: _Rule, parts: Sequence[str]) -> str | None:
    base = _filled_in(rule.format, parts)
    if rule.match is not None and rule.match.fullmatch(base) is None:
        return None
    if rule.pattern is None:
        return base
    try:
        return replaced(rule.pattern, rule.replacement, base, only_first=not rule.repeats)
    except ResultTooLong as error:
        raise NoShortName(str(error)) from None


def _filled_in(form: str, parts: Sequence[str]) -> str:
    """Replace `$0` in `form` by the realm, and `$1` and so on by the name's parts. Raises NoShortName."""
    result: list[str] = []
    position = size = 0
    while position < len(form):
        found = _PARAMETER.match(form, position)
        assert found is not None  # it fits everything
        result.append(found[1])
        if found[2] is not None:
            number = parse_integer(found[3])
            if number is None:
                raise NoShortName(f"bad format in username mapping in {found[3]}")
            if number >= len(parts):
                raise NoShortName(f"index {number} from {form} is outside of the valid range 0 to {len(parts) - 1}")
            result.append(parts[number])
            size += len(parts[number])
            if size > RULES_CHARACTERS_MAX:
                raise NoShortName(f"the name that a rule makes has more than {RULES_CHARACTERS_MAX} characters")
        position = found.end()
    return "".join(result)
