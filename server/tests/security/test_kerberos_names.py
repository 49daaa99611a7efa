"""sasl.kerberos.principal.to.local.rules: what Kerberos principals are called, with Kafka's own answers."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.server.security.kerberos.names import InvalidRules, KerberosName, NoShortName, ShortNamer, parse_name


def short(principal: str, *rules: str, realm: str = "REALM.COM") -> str:
    return ShortNamer(rules or ("DEFAULT",)).short_name(parse_name(principal), realm)


def test_a_principal_is_taken_apart():
    assert parse_name("App.service/host.name@REALM.COM") == KerberosName("App.service", "host.name", "REALM.COM")
    assert parse_name("user@REALM.COM") == KerberosName("user", None, "REALM.COM")
    assert parse_name("user/host") == KerberosName("user/host", None, None)
    assert str(parse_name("a/b@C")) == "a/b@C"


@pytest.mark.parametrize("principal", ["a/b/c@R", "a@b@R", "a/b@R/d"])
def test_a_principal_of_other_parts_is_malformed(principal: str):
    with pytest.raises(NoShortName, match=f"Malformed Kerberos name: {principal}"):
        parse_name(principal)


# Those of Kafka's KerberosNameTest and KerberosRuleTest, and what Java's Pattern and Matcher do with them.
@pytest.mark.parametrize(
    ("principal", "rules", "name"),
    [
        ("user@REALM.COM", ["DEFAULT"], "user"),
        ("kafka/host@REALM.COM", ["DEFAULT"], "kafka"),
        ("App.service/host@REALM.COM", [r"RULE:[1:$1](App\..*)s/App\.(.*)/$1/g", "DEFAULT"], "App.service"),
        ("App.service@REALM.COM", [r"RULE:[1:$1](App\..*)s/App\.(.*)/$1/g", "DEFAULT"], "service"),
        ("ABC@REALM.COM", ["RULE:[1:$1]/L"], "abc"),
        ("ABC/host@REALM.COM", ["RULE:[2:$1]/L"], "abc"),
        ("abc@REALM.COM", ["RULE:[1:$1]/U"], "ABC"),
        ("a.b/host@REALM.COM", [r"RULE:[2:$1](a.*)s/\././g/U"], "A.B"),
        ("abc@REALM.COM", ["RULE:[1:$1]U"], "ABC"),
        ("user@OTHER", ["RULE:[1:$1@$0](.*@OTHER)s/@.*//", "DEFAULT"], "user"),
        ("a.a.a@R", [r"RULE:[1:$1]s/\./-/"], "a-a.a"),
        ("a.a.a@R", [r"RULE:[1:$1]s/\./-/g"], "a-a-a"),
        ("a.b@R", [r"RULE:[1:$1]s/(.*)\.(.*)/$2-$1/"], "b-a"),
        ("ab@R", [r"RULE:[1:$1]s/x*/\$/g"], "$a$b$"),
        ("user/h@R", ["RULE:[1:$1]", "RULE:[2:$1.$2]"], "user.h"),
        ("user", ["RULE:[3:$1]"], "user"),
        ("user@R", ["RULE:[1:x$]"], None),
        ("user@R", ["RULE:[1:$2]"], None),
        ("user@OTHER", ["DEFAULT"], None),
        ("user@R", ["RULE:[1:$1@$0]"], None),
        ("user@R", [], "user"),
    ],
)
def test_rules_make_names(principal: str, rules: list[str], name: str | None):
    if rules == []:
        with pytest.raises(NoShortName, match=r"No rules apply to user@R, rules \[\]"):
            ShortNamer([]).short_name(parse_name(principal), "R")
    elif name is None:
        with pytest.raises(NoShortName):
            short(principal, *rules)
    else:
        assert short(principal, *rules) == name


@pytest.mark.parametrize(
    ("principal", "rule", "words"),
    [
        ("user@R", "DEFAULT", "No rules apply to user@R, rules [DEFAULT]"),
        ("user@R", "RULE:[1:$1@$0]", "Non-simple name user@R after auth_to_local rule RULE:[1:$1@$0]"),
        ("user@R", "RULE:[1:$2]", "index 2 from $2 is outside of the valid range 0 to 1"),
        ("user@R", "RULE:[1:a$]", "bad format in username mapping in "),
        ("user@R", "RULE:[1:$99999999999]", "bad format in username mapping in 99999999999"),
    ],
)
def test_why_there_is_no_name(principal: str, rule: str, words: str):
    with pytest.raises(NoShortName) as refused:
        short(principal, rule)
    assert str(refused.value) == words


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ("default", "Invalid rule: default"),
        ("DEFAUL", "Invalid rule: DEFAUL"),
        ("DEFAULT/l", "Invalid rule: `DEFAULT/l`, unmatched substring: `/l`"),
        ("DEFAULT/L", "Invalid rule: `DEFAULT/L`, unmatched substring: `/L`"),
        ("RULE:[1:$1](x", "unmatched substring: `(x`"),
        ("RULE:[1:$1]s/a/b", "unmatched substring: `s/a/b`"),
        ("RULE:[:$1]", 'For input string: ""'),
        ("RULE:[99999999999:$1]", 'For input string: "99999999999"'),
        ("RULE:[1:$1]([)s/a/b/", "not a regular expression that RE2 can match"),
        ("RULE:[1:$1]s/(?=a)/b/", "not a regular expression that RE2 can match"),
        ("RULE:[1:$1]s/a/$1/", "No group 1"),
        ("RULE:[1:$1]s/(a)/$2/", "No group 2"),
        ("RULE:[1:$1]s/(a)/${x}/", "number of a group"),
        (f"RULE:[1:{'x' * 40_000}]", "the rules have more than"),
    ],
)
def test_what_is_no_rule_is_refused(rule: str, words: str):
    with pytest.raises(InvalidRules) as refused:
        ShortNamer([rule])
    assert words in str(refused.value)


def test_a_name_does_not_grow_beyond_measure():
    with pytest.raises(NoShortName, match="more than"):
        short(f"{'a' * 1000}@R", f"RULE:[1:{'$1' * 10_000}]")
    with pytest.raises(NoShortName, match="more than"):
        short(f"{'a' * 1000}@R", f"RULE:[1:$1]s/a/{'b' * 1000}/g")


@given(
    st.lists(st.text("RULE:DEFAULT[]()12$/\\sgL.*+ab@^|", max_size=40), max_size=3),
    st.text("ab/@\\.R", max_size=20) | st.text(max_size=20),
)
def test_any_text_is_rules_or_none(rules: list[str], principal: str):
    with contextlib.suppress(InvalidRules, NoShortName):
        ShortNamer(rules).short_name(parse_name(principal), "R")


@given(st.text("[]()12$/\\sgL.*+ab^|", max_size=40), st.text("abc", max_size=20))
def test_any_text_is_a_rule_or_none(rest: str, user: str):
    with contextlib.suppress(InvalidRules, NoShortName):
        ShortNamer([f"RULE:[1:$1]{rest}"]).short_name(parse_name(f"{user}@R"), "R")
