"""ssl.principal.mapping.rules, by the examples of Kafka's SslPrincipalMapperTest and by what Java's replaceAll does."""

import contextlib
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.server.security.principal_mapping import InvalidRules, NoRuleFits, PrincipalMapper

THREE = (
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L, "
    "RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L, "
    "RULE:^cn=(.*?),ou=(.*?),dc=(.*?),dc=(.*?)$/$1@$2/U, "
    "RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/U"
)


@pytest.mark.parametrize(
    ("name", "user"),
    [
        ("CN=Duke,OU=ServiceUsers,O=Org,C=US", "duke"),
        ("CN=Duke,OU=SME,O=mycp,L=Fulton,ST=MD,C=US", "duke@sme"),
        ("cn=duke,ou=sme,dc=mycp,dc=com", "DUKE@SME"),
        ("DN=duke,CN=duke2,x", "DUKE2"),
    ],
)
def test_the_first_rule_that_fits_counts(name, user):
    assert PrincipalMapper(THREE).name(name) == user


@pytest.mark.parametrize(
    ("rules", "name", "user"),
    [
        ("DEFAULT", "CN=a,O=b", "CN=a,O=b"),
        (" DEFAULT , ", "CN=a", "CN=a"),
        (",,RULE:^CN=x$/y/,, DEFAULT", "CN=a", "CN=a"),
        (r"RULE:^CN=(\w+)\/(\w+)$/\/$2\$$1/", "CN=a/b", "/b$a"),
        ("RULE:.*/X/", "abc", "XX"),  # an empty match is left behind the whole one
        ("RULE:^.*$/X/", "abc", "X"),
        ("RULE:^(.)(.)?$/[$2]/", "a", "[]"),
        ("RULE:^(.)$/$12/", "a", "a2"),
        ("RULE:^(.)$/$1@$4/", "a", "a@$4"),
        ("RULE:^(.)$/$0$0/", "a", "aa"),
        ("RULE:^(.)$//", "a", ""),
        ("RULE:^(.*)$/$1/U", "äß", "ÄSS"),
    ],
)
def test_replacements_are_javas(rules, name, user):
    assert PrincipalMapper(rules).name(name) == user


@pytest.mark.parametrize("rules", ["", "RULE:^CN=x$/y/", "RULE:a/b/, RULE:CN/z/"])
def test_a_name_that_no_rule_fits_is_nobody(rules):
    with pytest.raises(NoRuleFits, match="CN=other"):
        PrincipalMapper(rules).name("CN=other")


@pytest.mark.parametrize(
    "rules",
    [
        "RULE:^CN=x$",
        "RULE:a/b",
        "RULE:a/b/X",
        "RULE:a/b/LU",
        "DEFAULT RULE:a/b/",
        "default",
        "RULE:(/b/",
        "RULE:(?=a)a/b/",
        "RULE:a/$x/",
        "RULE:a/$1/",
        "RULE:a/b/L//",
        "x" * 40_000,
    ],
)
def test_what_is_no_rule_is_refused(rules):
    with pytest.raises(InvalidRules):
        PrincipalMapper(rules)


def test_no_name_takes_long():
    """With Java's kind of matching the second pattern would try every way to divide the name."""
    mapper = PrincipalMapper("RULE:^(a|a|aa)*(a|aa)+$/x/, RULE:^(([a-z])+.)+[A-Z]([a-z])+$/y/, DEFAULT")
    name = "a" * 20_000 + "!"
    began = time.process_time()
    assert mapper.name(name) == name
    assert time.process_time() - began < 5


def test_a_rule_cannot_make_a_name_without_end():
    with pytest.raises(NoRuleFits, match="characters"):
        PrincipalMapper("RULE:(.*)/" + "$1" * 1000 + "/").name("a" * 1000)


@given(st.text(alphabet="RULE:DEFAULT/\\$1()[]*.,^ aé", max_size=80), st.text(max_size=40))
def test_any_text_is_rules_or_none(rules, name):
    with contextlib.suppress(InvalidRules, NoRuleFits):
        PrincipalMapper(f"RULE:{rules}" if len(rules) % 2 else rules).name(name)
