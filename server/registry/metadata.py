"""Metadata and rule sets of schemas: parsed, merged with those of the settings, and hashed.

Sources: `Metadata.java`, `RuleSet.java`, `Rule.java`, and `maybeSetMetadataRuleSet` in `AbstractSchemaRegistry.java`. Both are kept as
the JSON that Confluent's registry writes: sorted, and without empty members.

A registration that names version -1 gets the property `confluent:version`, which says the version that it became. From then on each
version of the subject has it. Equal schemas are found with and without it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

Json = Mapping[str, Any]
VERSION = "confluent:version"
METADATA_SETTINGS = ("defaultMetadata", "overrideMetadata")
RULE_SET_SETTINGS = ("defaultRuleSet", "overrideRuleSet")
"""Settings that schemas of a subject are merged with when they are registered."""

PHASES = {
    "migrationRules": ("Migration", ("UPGRADE", "DOWNGRADE", "UPDOWN")),
    "domainRules": ("Domain", ("WRITE", "READ", "WRITEREAD")),
    "encodingRules": ("Encoding", ("WRITE", "READ", "WRITEREAD")),
}
"""Lists of a rule set: the name in messages, and the modes that its rules may have."""

_KINDS = ("TRANSFORM", "CONDITION")
_MODES = ("UPGRADE", "DOWNGRADE", "UPDOWN", "WRITE", "READ", "WRITEREAD")
_ENVIRONMENTS = ("ALL", "CLIENT", "GATEWAY", "SERVER", "NONE")
_SEVERAL_ACTIONS = ("WRITEREAD", "UPDOWN")
_NAME_LENGTH_MAX = 256
_RULE_TEXTS = ("name", "doc", "type", "expr", "onSuccess", "onFailure")


class InvalidRuleSet(Exception):
    """Rule set that must not be registered, because one of its rules is invalid."""


# --- parsing


def parse_metadata(value: Json | None) -> Json | None:
    """Normalize metadata: sort members and remove empty ones. Raises ValueError for wrong types."""
    if value is None:
        return None
    tags = {name: _texts(each, "tags") for name, each in sorted(_object(value.get("tags"), "tags").items())}
    properties = {
        name: _text(each, "properties") for name, each in sorted(_object(value.get("properties"), "properties").items())
    }
    return _filled({"tags": tags, "properties": properties, "sensitive": _texts(value.get("sensitive"), "sensitive")})


def parse_rule_set(value: Json | None) -> Json | None:
    """Normalize a rule set: add default values to its rules. Raises ValueError for wrong types."""
    if value is None:
        return None
    found: dict[str, Any] = {phase: [_rule(each) for each in _list(value.get(phase), phase)] for phase in PHASES}
    return _filled({**found, "enableAt": _choice(value.get("enableAt"), _ENVIRONMENTS, None)})


def check_rule_set(rule_set: Json) -> None:
    """Check names, types and modes of new rules, like Confluent's `RuleSet.validate`. Raises InvalidRuleSet."""
    names: set[str] = set()
    for phase, (title, modes) in PHASES.items():
        for rule in rule_set.get(phase, ()):
            if rule.get("name") in names:
                raise InvalidRuleSet(f"Found rule with duplicate name '{rule['name']}'")
            _check_rule(rule)
            names.add(rule["name"])
            if rule["mode"] not in modes:
                raise InvalidRuleSet(f"{title} rules can only be {', '.join(modes)}")


def _rule(value: object) -> dict[str, Any]:
    given = _object(value, "a rule")
    params = _object(given.get("params"), "params")
    rule: dict[str, Any] = {name: _text(given[name], name) for name in _RULE_TEXTS if given.get(name) is not None}
    rule["kind"] = _choice(given.get("kind"), _KINDS, "TRANSFORM")
    rule["mode"] = _choice(given.get("mode"), _MODES, "WRITEREAD")
    rule["tags"] = _texts(given.get("tags"), "tags")
    rule["params"] = {name: _text(each, "params") for name, each in sorted(params.items())}
    if not isinstance(disabled := given.get("disabled", False), bool):
        raise ValueError("disabled: not true or false")  # noqa: TRY004 - as all that is wrong in a body
    return {**_filled(rule), "disabled": disabled}


def _check_rule(rule: Json) -> None:
    name = rule.get("name", "")
    if not name:
        raise InvalidRuleSet("Missing rule name")
    if len(name) > _NAME_LENGTH_MAX:
        raise InvalidRuleSet("Rule name too long")
    if not (name[0].isalpha() or name[0] == "_"):
        raise InvalidRuleSet(f"Illegal initial character in rule name: {name}")
    if not all(each.isalnum() or each in "_-" for each in name):
        raise InvalidRuleSet(f"Illegal character in rule name: {name}")
    if "type" not in rule:
        raise InvalidRuleSet("Missing rule type")
    actions = rule.get("onSuccess", "") + rule.get("onFailure", "")
    if rule["mode"] not in _SEVERAL_ACTIONS and "," in actions:
        raise InvalidRuleSet("Multiple actions only valid with WRITEREAD and UPDOWN")


def _filled(members: Json) -> dict[str, Any]:
    return {name: each for name, each in members.items() if each}


def _object(value: object, name: str) -> Json:
    if value is not None and not isinstance(value, dict):
        raise ValueError(f"{name}: not an object")
    return value or {}


def _list(value: object, name: str) -> list[Any]:
    if value is not None and not isinstance(value, list):
        raise ValueError(f"{name}: not a list")
    return value or []


def _text(value: object, name: str) -> str:
    # Jackson takes numbers and truth values for texts.
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, (str, int, float)):
        raise ValueError(f"{name}: not a text")  # noqa: TRY004
    return str(value)


def _texts(value: object, name: str) -> list[str]:
    return sorted({_text(each, name) for each in _list(value, name)})


def _choice(value: object, choices: tuple[str, ...], default: str | None) -> str | None:
    if value is not None and value not in choices:
        raise ValueError(f"{str(value)[:100]!r}: not one of {', '.join(choices)}")
    return default if value is None else str(value)


# --- merging

T = TypeVar("T")


def _merged(old: T | None, new: T | None, merge: Callable[[T, T], T]) -> T | None:
    if old is None or new is None:
        return new if old is None else old
    return merge(old, new)


def in_force(given: Json | None, config: Json, kind: str) -> Json | None:
    """Merge metadata or rules: `config`'s overrides win over `given`, and `given` over `config`'s defaults.

    `kind`: Metadata or RuleSet.
    """
    merge = _merged_metadata if kind == "Metadata" else _merged_rule_sets
    return _merged(_merged(config.get(f"default{kind}"), given, merge), config.get(f"override{kind}"), merge)


def _merged_metadata(old: Json, new: Json) -> Json:
    merged = {name: {**old.get(name, {}), **new.get(name, {})} for name in ("tags", "properties")}
    merged = {name: dict(sorted(each.items())) for name, each in merged.items()}
    return _filled({**merged, "sensitive": sorted({*old.get("sensitive", ()), *new.get("sensitive", ())})})


def _merged_rule_sets(old: Json, new: Json) -> Json:
    merged: dict[str, Any] = {}
    for phase in PHASES:
        names = {each.get("name") for each in new.get(phase, ())}
        merged[phase] = [each for each in old.get(phase, ()) if each.get("name") not in names] + list(
            new.get(phase, ())
        )
    return _filled({**merged, "enableAt": new.get("enableAt") or old.get("enableAt")})


# --- the version as a property


def properties_of(metadata: Json | None) -> Mapping[str, str]:
    """Return the properties in metadata; empty if there are no metadata."""
    found: Mapping[str, str] = (metadata or {}).get("properties") or {}
    return found


def version_of(metadata: Json | None) -> str | None:
    """Return the text of the property `confluent:version`; None if it is missing."""
    return properties_of(metadata).get(VERSION)


def with_version(metadata: Json | None, version: int) -> Json:
    """Return the metadata with the property `confluent:version` set."""
    properties = {**properties_of(metadata), VERSION: str(version)}
    return {**(metadata or {}), "properties": dict(sorted(properties.items()))}


def alike(new: Json | None, known: Json | None, known_version: int) -> bool:
    """Tell whether metadata are equal. A `confluent:version` that only one side has is ignored.

    But if only `new` has it, it must equal `known_version`.
    """
    new_version, old_version = _number_of(new), _number_of(known)
    if (new_version is None) == (old_version is None):
        return new == known
    if new_version not in (None, known_version):
        return False
    return _without_version(new) == _without_version(known)


def _number_of(metadata: Json | None) -> int | None:
    text = version_of(metadata)
    is_number = text is not None and text.isascii() and text.isdecimal() and len(text) <= 10
    return int(text) if text is not None and is_number else None


def _without_version(metadata: Json | None) -> Json:
    properties = {name: each for name, each in properties_of(metadata).items() if name != VERSION}
    return _filled({**(metadata or {}), "properties": properties})


# --- hashing


def metadata_texts(metadata: Json) -> Iterable[str]:
    """Yield the texts of metadata that enter a schema's digest, as in Confluent's `Metadata.updateHash`."""
    tags, properties = metadata.get("tags") or {}, properties_of(metadata)
    for name in sorted(tags):
        yield from (name, *sorted(map(str, tags[name])))
    for name, each in sorted(properties.items()):
        yield from (name, str(each))
    yield from sorted(map(str, metadata.get("sensitive") or ()))


def rule_set_texts(rule_set: Json) -> Iterable[str]:
    """Yield the texts of a rule set that enter a schema's digest, as in Confluent's `RuleSet.updateHash`."""
    for phase in PHASES:
        for rule in rule_set.get(phase) or ():
            yield from (str(rule[name]) for name in ("name", "doc", "kind", "mode", "type") if rule.get(name))
            yield from map(str, rule.get("tags") or ())
            yield from (part for pair in sorted((rule.get("params") or {}).items()) for part in map(str, pair))
            yield from (str(rule[name]) for name in ("expr", "onSuccess", "onFailure") if rule.get(name))
            if rule.get("disabled") is True:
                yield "\1"
    yield str(rule_set.get("enableAt") or "")
