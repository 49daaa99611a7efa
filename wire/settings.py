"""Declarations of settings, read from text and written back: Kafka's types, ranges and error sentences."""

import math
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass, field, fields, replace
from enum import IntEnum
from typing import Any, Literal, TypeVar

ConfigT = TypeVar("ConfigT")
Dynamic = Literal["read-only", "per-broker", "cluster-wide"]

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1
DOUBLE_MAX = sys.float_info.max


class SettingType(IntEnum):
    """Kafka's type of a setting, with its number in DescribeConfigs."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


BOOLEAN, STRING, INT, SHORT, LONG, DOUBLE, LIST, CLASS, PASSWORD = SettingType

_KNOWN: "dict[type, dict[str, Setting]]" = {}
WITHOUT_EFFECT = "It has no effect here."
SAME: Any = object()  # a synonym whose default is its topic setting's
_BITS = {INT: 32, SHORT: 16, LONG: 64}
_TRIMMED = "".join(map(chr, range(33)))
_SPACES = " \t\n\v\f\r"  # what Java's \s matches
# Two repetitions that may share characters would try every way to divide a long text between them: here none can.
_DECIMAL = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?[fFdD]?")
_HEXADECIMAL = re.compile(r"[+-]?0[xX]([0-9a-fA-F]+(\.[0-9a-fA-F]*)?|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+[fFdD]?")
_NO_NUMBER = re.compile(r"[+-]?(NaN|Infinity)")


class InvalidSetting(ValueError):
    """Error raised if a value is not allowed for its setting. The message has Kafka's text."""

    def __init__(self, name: str, value: object, reason: str, *, message: str | None = None) -> None:
        super().__init__(message or f"Invalid value {_as_java(value)} for configuration {name}: {reason}")
        self.name, self.value, self.reason = name, value, reason

    @classmethod
    def of_text(cls, name: str, text: str, reason: str) -> "InvalidSetting":
        """Return an error whose message quotes the setting's text."""
        return cls(name, text, reason, message=f"{name}={text}: {reason}")

    @classmethod
    def without_value(cls, name: str, reason: str) -> "InvalidSetting":
        """Return an error whose message does not quote the setting's value, because it may be secret."""
        return cls(name, "[hidden]", reason, message=f"{name}: {reason}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Synonym:
    """Broker setting that provides a topic setting's default. Attributes not given are those of the topic setting."""

    name: str
    kind: SettingType | None = None
    default: Any = SAME
    factor: int = 1
    minimum: float | None = None
    dynamic: Dynamic = "cluster-wide"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Declaration of a setting, without a value."""

    name: str = ""
    kind: SettingType
    default: Any
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = ()
    ignore_case: bool = False
    nullable: bool = False
    empty_allowed: bool = True
    check: Callable[[Any], str | None] | None = None
    doc: str = ""
    dynamic: Dynamic = "read-only"
    synonyms: tuple[Synonym, ...] = ()
    effective: bool = True
    internal: bool = False
    on_change: str = ""
    """Effect of a change at run time, for people; empty if it cannot be changed then, or has no effect."""

    @property
    def documentation(self) -> str:
        """Description for clients: purpose of the setting, and a note if it has no effect here."""
        return self.doc if self.effective else f"{self.doc} {WITHOUT_EFFECT}".strip()

    @property
    def is_sensitive(self) -> bool:
        return self.kind is PASSWORD

    @property
    def is_read_only(self) -> bool:
        return self.dynamic == "read-only"


def setting(
    default: Any, *, kind: SettingType | None = None, synonyms: tuple[Synonym | str, ...] = (), **details: Any
) -> Any:
    """Declare a dataclass field that is a setting. `kind` defaults to the type of `default`.

    Details: minimum, maximum, choices, ignore_case, nullable, empty_allowed, check (value -> reason or None), doc,
    dynamic ("read-only", "per-broker", "cluster-wide"), on_change (effect of a change at run time), effective (False:
    accepted and described, but without effect) and internal (True: accepted, not described).
    """
    declared = Setting(
        kind=kind or _kind_of(default),
        default=default,
        synonyms=tuple(Synonym(name=each) if isinstance(each, str) else each for each in synonyms),
        nullable=details.pop("nullable", default is None),
        **details,
    )
    # No password is printed with the configuration that it is part of.
    return field(default=default, repr=declared.kind is not PASSWORD, metadata={"setting": declared})


def settings_of(config_class: type) -> Mapping[str, Setting]:
    """Return the settings that a configuration class declares, by their names in Kafka."""
    known = _KNOWN.get(config_class)
    if known is None:
        named = map(_named, fields(config_class))
        known = _KNOWN[config_class] = {name: declared for name, declared in named if declared is not None}
    return known


def read_settings(config_class: type[ConfigT], texts: Mapping[str, str]) -> ConfigT:
    """Create a configuration from texts. Settings without a text get their defaults. Raises InvalidSetting."""
    known = settings_of(config_class)
    return config_class(**{field_name(name): parse_value(known[name], texts[name]) for name in known if name in texts})


def field_name(name: str) -> str:
    return name.replace(".", "_")


def parse_value(declared: Setting, text: str | None) -> Any:
    """Return the value of a setting's text. Raises InvalidSetting with Kafka's message."""
    value = None if text is None else _converted(declared, text)
    validate(declared, value)
    return value


def parse_integer(text: str, bits: int = 32) -> int | None:
    """Parse a number as Java's Integer.parseInt does: an optional sign and digits; None if invalid or out of range."""
    digits = text[1:] if text[:1] in ("+", "-") else text
    # Python's int() takes long for very many digits and refuses thousands of them.
    if not digits.isdecimal() or len(digits) >= 100:
        return None
    value = int(text)
    return value if -(1 << (bits - 1)) <= value < 1 << (bits - 1) else None


def format_value(kind: SettingType, value: Any) -> str | None:
    """Return the text of a value as Kafka writes it."""
    if value is None:
        return None
    if kind is BOOLEAN:
        return "true" if value else "false"
    if kind is LIST:
        return ",".join(value)
    return _double_text(value) if kind is DOUBLE else str(value)


def validate(declared: Setting, value: Any) -> None:
    """Check a value as Kafka's validators do: range, choices, no empty list members. Raises InvalidSetting."""
    name = declared.name
    if value is None:
        if declared.nullable:
            return
        if declared.kind is LIST:
            raise InvalidSetting(name, None, "null", message=f"Configuration '{name}' values must not be null.")
        raise InvalidSetting(name, None, "Value must be non-null")
    if declared.minimum is not None and value < declared.minimum:
        raise InvalidSetting(name, value, f"Value must be at least {declared.minimum}")
    if declared.maximum is not None and value > declared.maximum:
        raise InvalidSetting(name, value, f"Value must be no more than {declared.maximum}")
    if declared.check is not None and (reason := declared.check(value)):
        # Kafka's Password is shown so, too.
        raise InvalidSetting(name, "[hidden]" if declared.is_sensitive else value, reason)
    if declared.kind is LIST:
        _validate_list(declared, value)
    elif declared.choices:
        _validate_choice(declared, value)


def synonym_setting(declared: Setting, synonym: Synonym) -> Setting:
    """Return the declaration of the broker setting that a synonym names."""
    own_default = synonym.default is not SAME
    on_change = f"For topics without a {declared.name} of their own. {declared.on_change}" if declared.on_change else ""
    return replace(
        declared,
        name=synonym.name,
        kind=synonym.kind or declared.kind,
        default=synonym.default if own_default else declared.default,
        minimum=synonym.minimum if own_default else declared.minimum,
        nullable=declared.nullable or (own_default and synonym.default is None),
        dynamic=synonym.dynamic,
        on_change="" if synonym.dynamic == "read-only" else on_change,
        synonyms=(),
    )


def allowed_text(declared: Setting) -> str:
    """Return a human-readable description of the values that a setting allows."""
    kind = {BOOLEAN: "true or false", LIST: "a comma-separated list"}.get(declared.kind, declared.kind.name.lower())
    if declared.choices:
        chosen = ", ".join(declared.choices)
        return f"a list of {chosen}" if declared.kind is LIST else f"one of {chosen}"
    if declared.minimum is not None and declared.maximum is not None:
        return f"{kind} from {declared.minimum} to {declared.maximum}"
    return f"{kind}, at least {declared.minimum}" if declared.minimum is not None else kind


def _named(each: "Field[Any]") -> tuple[str, Setting | None]:
    declared = each.metadata.get("setting")
    name = each.name.replace("_", ".")
    if declared is not None and not declared.name:
        # The declaration does not know the field. A start has four hundred of them, and as many new ones would take it longer.
        object.__setattr__(declared, "name", name)
    return name, declared


def _kind_of(default: object) -> SettingType:
    for python_type, kind in ((bool, BOOLEAN), (int, INT), (float, DOUBLE), (tuple, LIST)):
        if isinstance(default, python_type):
            return kind
    return STRING


def trimmed(text: str) -> str:
    """Trim a text as Java does: remove spaces and characters with lower codes at both ends."""
    return text.strip(_TRIMMED)


def _converted(declared: Setting, given: str) -> Any:
    kind, text = declared.kind, trimmed(given)
    if kind is BOOLEAN:
        if text.lower() not in ("true", "false"):
            raise InvalidSetting(declared.name, given, "Expected value to be either true or false")
        return text.lower() == "true"
    if kind in _BITS or kind is DOUBLE:
        number = _double(text) if kind is DOUBLE else parse_integer(text, _BITS[kind])
        if number is None:
            raise InvalidSetting(declared.name, given, f"Not a number of type {kind.name}")
        return number
    if kind is LIST:
        parts = [part.strip(_SPACES) for part in text.split(",")] if text else []
        return tuple(parts if declared.check is not None else dict.fromkeys(parts))  # Kafka drops what comes again
    return text


def _double(text: str) -> float | None:
    """Parse a number as Java's Double.parseDouble does, unlike Python's float; None if invalid."""
    if _HEXADECIMAL.fullmatch(text):
        try:
            return float.fromhex(text.rstrip("fFdD"))
        except OverflowError:
            return -math.inf if text.startswith("-") else math.inf
    if _DECIMAL.fullmatch(text):
        return float(text.rstrip("fFdD"))
    return float(text) if _NO_NUMBER.fullmatch(text) else None


def _validate_list(declared: Setting, values: tuple[str, ...]) -> None:
    name = declared.name
    if not values and not declared.empty_allowed:
        choices = f"[{', '.join(declared.choices)}]" if declared.choices else "any non-empty value"
        message = f"Configuration '{name}' must not be empty. Valid values include: {choices}"
        raise InvalidSetting(name, values, "empty", message=message)
    if declared.check is not None:
        return
    for value in values:
        if not value:
            raise InvalidSetting(name, values, "empty", message=f"Configuration '{name}' values must not be empty.")
        if declared.choices:
            _validate_choice(declared, value)


def _validate_choice(declared: Setting, value: str) -> None:
    wanted = value.lower() if declared.ignore_case else value
    known = [choice.lower() for choice in declared.choices] if declared.ignore_case else declared.choices
    if wanted not in known:
        manner = " (case insensitive)" if declared.ignore_case else ""
        raise InvalidSetting(declared.name, value, f"String must be one of{manner}: {', '.join(declared.choices)}")


def _as_java(value: object) -> str:
    """Return the text of a value inside a sentence as Java prints it."""
    if isinstance(value, tuple):
        return f"[{', '.join(value)}]"
    if isinstance(value, bool):
        return str(value).lower()
    return "null" if value is None else _double_text(value) if isinstance(value, float) else str(value)


def _double_text(value: float) -> str:
    """Return the text of a number as Java's Double.toString does: plain from 0.001 to 10^7, else with exponent E."""
    magnitude = abs(value)
    if magnitude == 0 or 1e-3 <= magnitude < 1e7 or magnitude in (float("inf"), float("nan")):
        return {"inf": "Infinity", "-inf": "-Infinity", "nan": "NaN"}.get(str(value), str(value))
    mantissa, _, exponent = f"{value!r}".partition("e") if "e" in repr(value) else _scientific(value)
    return f"{mantissa if '.' in mantissa else mantissa + '.0'}E{int(exponent)}"


def _scientific(value: float) -> tuple[str, str, str]:
    digits = len(repr(abs(value)).replace(".", "").strip("0"))
    return f"{value:.{max(digits - 1, 1)}e}".partition("e")
