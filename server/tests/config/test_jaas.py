"""JAAS lines are read as Kafka reads them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.server.config.jaas import FLAGS, JaasEntry, MalformedJaas, format_jaas, parse_jaas, parse_jaas_file

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"


def options(text: str) -> dict[str, str]:
    (entry,) = parse_jaas(f"M required {text};")
    return dict(entry.options)


def test_an_entry_has_a_module_a_flag_and_options():
    text = f'{MODULE} required\n  username="admin"\n  user_alice=\'a "b" c\' debug=true;'
    expected = {"username": "admin", "user_alice": 'a "b" c', "debug": "true"}
    assert parse_jaas(text) == [JaasEntry(MODULE, "required", expected)]
    assert parse_jaas("A Optional; B SUFFICIENT x=y;") == [
        JaasEntry("A", "optional", {}),
        JaasEntry("B", "sufficient", {"x": "y"}),
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('a="b=c;d"', {"a": "b=c;d"}),
        (r'a="q\"q\\ \t \101 \7 \400"', {"a": 'q"q\\ \t A \a  0'}),
        ("a=b/comment\n c=d", {"a": "b", "c": "d"}),
        ("a=b /* ; */ c=d // e=f\n", {"a": "b", "c": "d"}),
        ("a='it\n b=c", {"a": "it", "b": "c"}),
        ("'a b'=c a=x a='2'", {"a b": "c", "a": "2"}),
        ("ключ=пароль", {"ключ": "пароль"}),
        ("a=''", {"a": ""}),
        ("a=b /\n c=d\n e=f", {"a": "b", "e": "f"}),
        ("$a_1.b-2=x", {"$a_1.b-2": "x"}),
        ("a=\xa0", {"a": "\xa0"}),
    ],
)
def test_quotes_escapes_and_comments(text: str, expected: dict[str, str]):
    assert options(text) == expected


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "Login module not specified"),
        ("// nothing", "Login module not specified"),
        ("M", "control flag not specified"),
        ("M ;", "control flag is not available"),
        ("M sometimes;", "Invalid login module control flag"),
        ("; required;", "Login module not specified"),
        ("M required a=b", "not terminated by semi-colon"),
        ("M required a;", "Value not specified"),
        ("M required a=;", "Value not specified"),
        ("M required a b;", "Value not specified"),
        ("M required =b;", "Key not specified"),
        ("M required a=b /* ;", "not terminated by semi-colon"),
        ("M required a=1234;", "Value not specified"),
        ("M required a=-1.5.5;", "Value not specified"),
        ("M required a=-x;", "Value not specified"),
        ("M required a=x%y;", "Key not specified"),
        ("M required a=x\\y;", "Key not specified"),
        ("M required 1=x;", "Key not specified"),
        ("# required;", "Login module not specified"),
    ],
)
def test_what_is_malformed_is_refused(text: str, problem: str):
    with pytest.raises(MalformedJaas, match=problem):
        parse_jaas(text)


def test_a_problem_tells_no_secret():
    for text in ('M required password="hunter2"', 'M hunter2 a="hunter2";', 'M required "hunter2" "hunter2";'):
        with pytest.raises(MalformedJaas) as raised:
            parse_jaas(text)
        assert "hunter2" not in str(raised.value)


@given(st.text(alphabet=st.sampled_from("ab\"'\\/*;= \n\r01\x85é"), max_size=60) | st.text(max_size=60))
def test_any_text_is_read_or_refused(text: str):
    try:
        entries = parse_jaas(text)
    except MalformedJaas:
        return
    assert entries and all(entry.flag in FLAGS and entry.module for entry in entries)


@given(
    st.dictionaries(
        st.text(st.characters(codec="utf-8", exclude_characters="\n\r"), min_size=1),
        st.text(st.characters(codec="utf-8", exclude_characters="\n\r")),
    )
)
def test_what_is_quoted_comes_back(values: dict[str, str]):
    def quoted(text: str) -> str:
        return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'

    assert options(" ".join(f"{quoted(key)}={quoted(value)}" for key, value in values.items())) == values


# ---------------------------------------------------------------------- files


def test_a_file_has_sections():
    text = f"""
        // of the broker
        KafkaServer {{ {MODULE} required user_a="x"; org.example.Other optional; }};
        "client.KafkaServer" {{ A required; }}; /* again: */ KafkaServer {{ B required; }};
    """
    assert parse_jaas_file(text) == {
        "KafkaServer": [JaasEntry(MODULE, "required", {"user_a": "x"}), JaasEntry("org.example.Other", "optional", {})],
        "client.KafkaServer": [JaasEntry("A", "required", {})],
    }
    assert parse_jaas_file("") == {}


@given(st.text("ab {};=\"'/*\\\n1", max_size=40))
def test_any_text_is_a_file_or_refused(text):
    try:
        sections = parse_jaas_file(text)
    except MalformedJaas:
        return
    assert all(entry.flag in FLAGS for entries in sections.values() for entry in entries)


@given(st.dictionaries(st.from_regex(r"[a-z][a-z0-9_.]{0,9}", fullmatch=True), st.text(max_size=20)))
def test_an_entry_survives_its_text(options):
    entry = JaasEntry(MODULE, "required", options)
    assert parse_jaas(format_jaas(entry)) == [entry]
