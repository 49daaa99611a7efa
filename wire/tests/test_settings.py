import math
from dataclasses import dataclass

import pytest

from ottla.wire.settings import (
    BOOLEAN,
    DOUBLE,
    INT,
    LIST,
    LONG,
    SHORT,
    STRING,
    InvalidSetting,
    Setting,
    Synonym,
    allowed_text,
    format_value,
    parse_integer,
    parse_value,
    setting,
    settings_of,
    synonym_setting,
)


@dataclass(frozen=True)
class Example:
    some_name_ms: int = setting(5, kind=LONG, minimum=-1, doc="A time.", synonyms=("log.some.name.ms",))
    policy: tuple[str, ...] = setting(("delete",), choices=("compact", "delete"))
    plain: int = 7


def test_a_dataclass_declares_its_settings_by_kafkas_names() -> None:
    known = settings_of(Example)
    assert list(known) == ["some.name.ms", "policy"]
    assert known["some.name.ms"].kind is LONG
    assert known["some.name.ms"].synonyms == (Synonym(name="log.some.name.ms"),)
    assert known["policy"].kind is LIST
    assert Example() == Example(some_name_ms=5, policy=("delete",))


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (BOOLEAN, " TRUE ", True),
        (BOOLEAN, "false", False),
        (INT, "+12", 12),
        (INT, "-2147483648", -(2**31)),
        (SHORT, "32767", 32767),
        (LONG, "9223372036854775807", 2**63 - 1),
        (DOUBLE, "1e-3", 0.001),
        (STRING, " a b ", "a b"),
        (LIST, " a , b,c ", ("a", "b", "c")),
        (LIST, "  ", ()),
    ],
)
def test_texts_are_read_as_java_reads_them(kind: object, text: str, value: object) -> None:
    assert parse_value(Setting(name="s", kind=kind, default=None), text) == value  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("declared", "text", "message"),
    [
        (Setting(name="s", kind=BOOLEAN, default=None), "yes", "Expected value to be either true or false"),
        (Setting(name="s", kind=INT, default=None), "1.5", "Not a number of type INT"),
        (Setting(name="s", kind=INT, default=None), "2147483648", "Not a number of type INT"),
        (Setting(name="s", kind=INT, default=None), "1_000", "Not a number of type INT"),
        (Setting(name="s", kind=INT, default=None), "9" * 200, "Not a number of type INT"),
        (Setting(name="s", kind=SHORT, default=None), "40000", "Not a number of type SHORT"),
        (Setting(name="s", kind=DOUBLE, default=None), "x", "Not a number of type DOUBLE"),
        (Setting(name="s", kind=INT, default=None, minimum=1), "0", "Value must be at least 1"),
        (Setting(name="s", kind=INT, default=None, maximum=17), "18", "Value must be no more than 17"),
        (Setting(name="s", kind=STRING, default=None, choices=("a", "b")), "c", "String must be one of: a, b"),
        (
            Setting(name="s", kind=STRING, default=None, choices=("a", "b"), ignore_case=True),
            "c",
            "String must be one of (case insensitive): a, b",
        ),
    ],
)
def test_errors_are_kafkas_sentences(declared: Setting, text: str, message: str) -> None:
    with pytest.raises(InvalidSetting) as failure:
        parse_value(declared, text)
    assert str(failure.value) == f"Invalid value {text} for configuration s: {message}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("delete,", "Configuration 's' values must not be empty."),
        ("", "Configuration 's' must not be empty. Valid values include: [compact, delete]"),
        ("foo", "Invalid value foo for configuration s: String must be one of: compact, delete"),
    ],
)
def test_lists_have_their_own_sentences(text: str, message: str) -> None:
    declared = Setting(name="s", kind=LIST, default=(), choices=("compact", "delete"), empty_allowed=False)
    with pytest.raises(InvalidSetting) as failure:
        parse_value(declared, text)
    assert str(failure.value) == message


def test_what_comes_twice_in_a_list_is_dropped() -> None:
    declared = Setting(name="s", kind=LIST, default=(), choices=("compact", "delete"))
    assert parse_value(declared, "delete , compact,delete") == ("delete", "compact")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (" .5 ", 0.5),
        ("1.", 1.0),
        ("0.5f", 0.5),
        ("5e-1D", 0.5),
        ("0x1p-1", 0.5),
        ("-0x1p99999", -math.inf),
        ("1e999", math.inf),
        ("-Infinity", -math.inf),
    ],
)
def test_doubles_are_written_as_java_writes_them(text: str, value: float) -> None:
    assert parse_value(Setting(name="s", kind=DOUBLE, default=0.0), text) == value


@pytest.mark.parametrize("text", ["", "nan", "inf", "infinity", "1_0", "0x1", "1e", "0.5ff", "\u0663", "\xa01"])
def test_what_only_python_reads_is_no_double(text: str) -> None:
    with pytest.raises(InvalidSetting, match="Not a number of type DOUBLE"):
        parse_value(Setting(name="s", kind=DOUBLE, default=0.0), text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("+07", 7),
        ("-0", 0),
        ("\u0663", 3),
        ("2147483647", 2**31 - 1),
        ("2147483648", None),
        ("1_0", None),
        (" 1", None),
    ],
)
def test_integers_are_read_as_java_reads_them(text: str, value: int | None) -> None:
    assert parse_integer(text) == value


def test_null_is_for_settings_that_allow_it() -> None:
    assert parse_value(Setting(name="s", kind=LONG, default=None, nullable=True), None) is None
    for kind, message in (
        (LONG, "Invalid value null for configuration s: Value must be non-null"),
        (LIST, "Configuration 's' values must not be null."),
    ):
        with pytest.raises(InvalidSetting) as failure:
            parse_value(Setting(name="s", kind=kind, default=None), None)
        assert str(failure.value) == message


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        (BOOLEAN, False, "false"),
        (LIST, ("a", "b"), "a,b"),
        (LIST, (), ""),
        (LONG, None, None),
        (DOUBLE, 0.5, "0.5"),
        (DOUBLE, 1.7976931348623157e308, "1.7976931348623157E308"),
        (DOUBLE, 1e-5, "1.0E-5"),
        (DOUBLE, 12345678.9, "1.23456789E7"),
        (DOUBLE, 1e7, "1.0E7"),
        (DOUBLE, 9999999.0, "9999999.0"),
    ],
)
def test_values_are_shown_as_java_shows_them(kind: object, value: object, text: str | None) -> None:
    assert format_value(kind, value) == text  # type: ignore[arg-type]


def test_a_synonym_is_a_setting_of_its_own() -> None:
    declared = Setting(name="retention.ms", kind=LONG, default=168, minimum=-1)
    assert synonym_setting(declared, Synonym(name="a")) == Setting(
        name="a", kind=LONG, default=168, minimum=-1, dynamic="cluster-wide"
    )
    hours = synonym_setting(declared, Synonym(name="b", kind=INT, default=None, factor=3, dynamic="read-only"))
    assert hours == Setting(name="b", kind=INT, default=None, nullable=True)
    assert parse_value(hours, "-7") == -7


def test_what_is_allowed_is_told_in_words() -> None:
    assert allowed_text(Setting(name="s", kind=INT, default=1, minimum=1)) == "int, at least 1"
    assert allowed_text(Setting(name="s", kind=INT, default=1, minimum=1, maximum=9)) == "int from 1 to 9"
    assert allowed_text(Setting(name="s", kind=BOOLEAN, default=True)) == "true or false"
    assert allowed_text(Setting(name="s", kind=STRING, default="a", choices=("a", "b"))) == "one of a, b"
    assert allowed_text(Setting(name="s", kind=LIST, default=(), choices=("a", "b"))) == "a list of a, b"
