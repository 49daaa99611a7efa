"""The authorizer, held against a model that walks all rules; then what it keeps, what it logs, and its settings."""

import logging
import sys
from collections.abc import Iterable

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ottla.server.config.security_config import AuthorizerConfig
from ottla.server.dispatch.access import OPERATIONS, AclOperation, ResourceType
from ottla.server.security import authorizer as module
from ottla.server.security.acls import (
    Acl,
    Entry,
    InvalidNetwork,
    Network,
    Pattern,
    PatternType,
    Permission,
    client_address,
    problem_with,
)
from ottla.server.security.authorizer import AclAuthorizer, AclIndex, Requester

TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
READ, WRITE, DESCRIBE, ALL = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.ALL
ALLOW, DENY = Permission.ALLOW, Permission.DENY
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
HERE = "/10.0.0.1"


def acl(
    name: str,
    operation: AclOperation = READ,
    permission: Permission = ALLOW,
    *,
    who: str = "User:a",
    host: str = "*",
    kind: PatternType = LITERAL,
    of: ResourceType = TOPIC,
) -> Acl:
    return Acl(Pattern(of, kind, name), Entry(who, host, operation, permission))


def authorizer_with(acls: Iterable[Acl], config: AuthorizerConfig | None = None) -> AclAuthorizer:
    made = AclAuthorizer(config or AuthorizerConfig(), lambda: 0.0)
    found: dict[Pattern, set[Entry]] = {}
    for each in acls:
        found.setdefault(each.pattern, set()).add(each.entry)
    for pattern, entries in found.items():
        made.put(pattern, frozenset(entries))
    return made


def may(made: AclAuthorizer, operation: AclOperation, name: str, who: str = "User:a", host: str = HERE) -> bool:
    return made.allows(who, host, operation, TOPIC, name, quietly=True)


# ------------------------------------------------------------------ the model


def model_allows(
    acls: Iterable[Acl], who: str, host: str, operation: AclOperation, of: ResourceType, name: str, *, everyone: bool
) -> bool:
    """Kafka's StandardAuthorizerData.authorize without any index."""
    is_concerned = allowed = False
    for each in acls:
        kind = each.pattern.pattern_type
        if each.pattern.resource_type is not of:
            continue
        if not (each.pattern.name in (name, "*") if kind is LITERAL else name.startswith(each.pattern.name)):
            continue
        is_concerned = True
        if each.entry.principal not in (who, "User:*") or not host_matches(each.entry.host, host):
            continue
        wanted = {operation, ALL}
        if each.entry.permission is ALLOW:
            if operation is DESCRIBE:
                wanted |= {READ, WRITE, AclOperation.DELETE, AclOperation.ALTER}
            if operation is AclOperation.DESCRIBE_CONFIGS:
                wanted |= {AclOperation.ALTER_CONFIGS}
        if each.entry.operation in wanted:
            if each.entry.permission is DENY:
                return False
            allowed = True
    return allowed or (everyone and not is_concerned)


def host_matches(rule: str, host: str) -> bool:
    if "/" in rule:
        try:
            return Network.parse(rule).holds(client_address(host))
        except InvalidNetwork:
            return False
    return rule in ("*", client_address(host).text)


NAMES = st.text("ab*", min_size=1, max_size=4)
WHO = st.sampled_from(["User:a", "User:b", "User:*", "Team:a"])
HOSTS = st.sampled_from(
    ["*", "10.0.0.1", "10.0.0.2", "10.0.0.0/30", "0.0.0.0/0", "0:0:0:0:0:0:0:1", "::/0", "x/y", "::1"]
)
OPERATION = st.sampled_from([each for each in AclOperation if each > AclOperation.ANY])
ACLS = st.lists(
    st.builds(
        Acl,
        st.builds(Pattern, st.sampled_from([TOPIC, GROUP]), st.sampled_from([LITERAL, PREFIXED]), NAMES),
        st.builds(Entry, WHO, HOSTS, OPERATION, st.sampled_from([ALLOW, ALLOW, DENY])),
    ),
    max_size=12,
)
CLIENTS = st.tuples(
    st.sampled_from(["User:a", "User:c", "Team:a"]),
    st.sampled_from([HERE, "/10.0.0.9", "/::1", "/::ffff:10.0.0.1", ""]),
)


@settings(deadline=None)
@given(ACLS, st.lists(st.tuples(CLIENTS, OPERATION, NAMES), max_size=8), st.booleans())
@example(
    [acl("*", ALL), acl("a", READ, DENY)], [(("User:a", HERE), READ, "a"), (("User:a", HERE), DESCRIBE, "a")], False
)
@example([acl("a", WRITE, kind=PREFIXED)], [(("User:a", HERE), DESCRIBE, "ab")], True)
def test_decisions_are_those_of_a_walk_over_all_rules(acls, questions, everyone):
    made = authorizer_with(acls, AuthorizerConfig(allow_everyone=everyone))
    for (who, host), operation, name in questions:
        expected = model_allows(acls, who, host, operation, TOPIC, name, everyone=everyone)
        assert may(made, operation, name, who, host) == expected
        assert may(made, operation, name, who, host) == expected  # from what is kept
        candidates = OPERATIONS[TOPIC].operations
        bits = made.operations(who, host, candidates, TOPIC, name)
        assert bits == sum(
            1 << each for each in candidates if model_allows(acls, who, host, each, TOPIC, name, everyone=everyone)
        )


@settings(deadline=None)
@given(ACLS, ACLS, st.tuples(CLIENTS, OPERATION, NAMES))
def test_rules_that_are_taken_back_leave_nothing(acls, others, question):
    made = authorizer_with([*acls, *others])
    (who, host), operation, name = question
    may(made, operation, name, who, host)
    for pattern in {each.pattern for each in others}:
        made.put(pattern, frozenset(each.entry for each in acls if each.pattern == pattern))
    expected = model_allows(acls, who, host, operation, TOPIC, name, everyone=False)
    assert may(made, operation, name, who, host) == expected
    assert made.index.count == len(set(acls))
    assert made.index.entries == authorizer_with(acls).index.entries


def model_allows_on_any(acls: Iterable[Acl], who: str, host: str, operation: AclOperation) -> bool:
    """Kafka's Authorizer.authorizeByResourceType: is there a name that the patterns leave to the client?"""
    if model_allows(acls, who, host, operation, TOPIC, "hardcode", everyone=False):
        return True
    heard = [
        each
        for each in acls
        if each.pattern.resource_type is TOPIC
        and each.entry.principal in (who, "User:*")
        and host_matches(each.entry.host, host)
        and each.entry.operation in (operation, ALL)
    ]
    denied = {each.pattern for each in heard if each.entry.permission is DENY}
    allowed = {each.pattern for each in heard if each.entry.permission is ALLOW}
    wildcard = Pattern(TOPIC, LITERAL, "*")
    if wildcard in denied:
        return False
    return wildcard in allowed or any(
        each not in denied
        and not any(other.pattern_type is PREFIXED and each.name.startswith(other.name) for other in denied)
        for each in allowed
    )


@settings(deadline=None)
@given(ACLS, CLIENTS, OPERATION)
def test_a_right_to_some_resource_is_found_as_kafka_finds_it(acls, client, operation):
    made = authorizer_with(acls)
    for _ in range(2):
        assert made.allows_on_any(*client, operation, TOPIC) == model_allows_on_any(acls, *client, operation)


# ------------------------------------------------------------------ addresses


@pytest.mark.parametrize(
    ("host", "text"),
    [
        ("/10.0.0.1", "10.0.0.1"),
        ("/::1", "0:0:0:0:0:0:0:1"),
        ("/2001:db8::ff%eth0", "2001:db8:0:0:0:0:0:ff"),
        ("/::ffff:10.0.0.1", "10.0.0.1"),
        ("/nonsense:x", "nonsense:x"),
    ],
)
def test_addresses_are_written_as_java_writes_them(host, text):
    assert client_address(host).text == text


@pytest.mark.parametrize(
    ("network", "inside", "outside"),
    [
        ("10.1.2.3/8", "10.0.0.0", "11.0.0.0"),
        ("10.0.0.0/32", "10.0.0.0", "10.0.0.1"),
        ("0.0.0.0/0", "255.255.255.255", "0.0.0.0"),
        ("010.0.0.0/8", "10.9.9.9", "8.0.0.1"),
        ("2001:db8::/32", "2001:db8:ffff::1", "2001:db9::"),
        ("::/0", "::", "10.0.0.1"),
    ],
)
def test_networks_hold_their_addresses(network, inside, outside):
    parsed = Network.parse(network)
    assert parsed.holds(client_address(inside)) and not parsed.holds(client_address(outside))


@settings(deadline=None)
@given(st.one_of(st.text(max_size=30), st.text("0123456789./:%", max_size=20)))
def test_any_text_is_a_network_or_invalid(text):
    try:
        network = Network.parse(text)
    except InvalidNetwork:
        return
    assert not network.holds(client_address("no address"))


@settings(deadline=None)
@given(st.text(max_size=30))
def test_any_text_is_some_address(text):
    assert isinstance(client_address(text).text, str)


# ------------------------------------------------------------------ super users, memory, log


def test_super_users_may_do_everything_whatever_is_denied():
    made = authorizer_with([acl("*", ALL, DENY, who="User:*")], AuthorizerConfig(super_users=frozenset({"User:root"})))
    assert may(made, WRITE, "t", "User:root") and made.allows_on_any("User:root", HERE, WRITE, TOPIC)
    assert not may(made, WRITE, "t") and not made.allows_on_any("User:a", HERE, WRITE, TOPIC)


def test_verdicts_are_forgotten_when_a_rule_changes_and_when_they_are_many(monkeypatch):
    monkeypatch.setattr(module, "VERDICTS_PER_HALF", 3)
    made = authorizer_with([acl("t")])
    for number in range(50):
        assert may(made, READ, "t") and not may(made, READ, f"other-{number}")
    assert len(made._young) + len(made._old) <= 6
    assert len(made._young.keys() | made._old.keys()) > 3
    version = made.version
    made.put(Pattern(TOPIC, LITERAL, "t"), frozenset())
    assert not may(made, READ, "t") and made.version != version


def test_long_names_are_not_kept():
    made = authorizer_with([])
    assert not may(made, READ, "x" * 10_000)
    assert not made._young


def test_refusals_are_logged_quoted_and_never_in_a_flood(caplog, monkeypatch):
    monkeypatch.setattr(module, "LINES_MAX", 3)
    now = [0.0]
    made = AclAuthorizer(AuthorizerConfig(), lambda: now[0])

    def refuse(name: str) -> None:
        made.allows("User:a\nb", HERE, WRITE, TOPIC, name, quietly=False)

    with caplog.at_level(logging.INFO, "ottla.authorizer"):
        for _ in range(5):
            refuse("t\r\n2026 INFO forged")
        assert caplog.messages[0].startswith(
            r"Principal = 'User:a\nb' is Denied operation = WRITE from host = 10.0.0.1 on "
        )
        assert caplog.messages[0].endswith(r"resource = TOPIC:LITERAL:'t\r\n2026 INFO forged'")
        assert len(caplog.messages) == 1
        for number in range(10):
            refuse(f"{number}" * 1_000)
        assert len(caplog.messages) == 4  # the fourth stands for all that are too many
        assert max(map(len, caplog.messages)) < 1_000
        now[0] += 60.0
        refuse("t\r\n2026 INFO forged")
    assert caplog.messages[4].endswith("(4 more like this since the last line)")
    assert len(caplog.messages) == 5


def test_quiet_questions_are_not_logged(caplog):
    with caplog.at_level(logging.INFO, "ottla.authorizer"):
        made = authorizer_with([])
        assert not may(made, READ, "t") and not made.operations("User:a", HERE, [READ], TOPIC, "t")
        assert not made.allows_on_any("User:a", HERE, WRITE, TOPIC)
    assert caplog.messages == []


# ------------------------------------------------------------------ rules that are not taken


@pytest.mark.parametrize(
    ("bad", "problem"),
    [
        (acl("x", of=ResourceType.CLUSTER), "The only valid name for the CLUSTER resource is kafka-cluster"),
        (acl(""), "Invalid empty resource name"),
        (acl("t", of=ResourceType.ANY), "Invalid resourceType ANY"),
        (acl("t", of=ResourceType.UNKNOWN), "Invalid resourceType UNKNOWN"),
        (acl("t", kind=PatternType.MATCH), "Invalid patternType MATCH"),
        (acl("t", AclOperation.ANY), "Invalid operation ANY"),
        (acl("t", permission=Permission.ANY), "Invalid permissionType ANY"),
        (acl("t", who="a"), "Could not parse principal from `a` (no colon"),
        (acl("t", host=""), "Host pattern cannot be null or empty"),
        (acl("t", host="10.0.0.0/33"), "Invalid CIDR notation '10.0.0.0/33': "),
        (acl("t" * 5_000), "longer than"),
        (acl("t", who="User:" + "a" * 5_000), "longer than"),
    ],
)
def test_rules_that_make_no_sense_are_not_taken(bad, problem):
    assert problem in (problem_with(bad) or "")


def test_rules_of_every_script_are_taken():
    for name in ("t", "топик", "トピック", "*", "a b"):
        assert problem_with(acl(name, who=f"User:{name}")) is None


# ------------------------------------------------------------------ settings


@pytest.mark.parametrize(
    "name", ["kafka.security.authorizer.AclAuthorizer", " org.apache.kafka.metadata.authorizer.StandardAuthorizer "]
)
def test_kafkas_own_authorizers_are_known(name):
    texts = {
        "super.users": " User:admin ;; User:CN=a, O=b;",
        "allow.everyone.if.no.acl.found": " TRUE ",
    }
    config = AuthorizerConfig(super_users=frozenset({"User:admin", "User:CN=a, O=b"}), allow_everyone=True)
    assert AuthorizerConfig.of(name, texts) == config
    assert AuthorizerConfig.of(name, {**texts, "allow.everyone.if.no.acl.found": "yes"}) == AuthorizerConfig(
        super_users=config.super_users
    )
    assert AuthorizerConfig.of("", texts) is None


def test_a_question_about_any_topic_costs_what_there_are_rules() -> None:
    index = AclIndex()
    for number in range(300):
        name = f"{number:03}" + "x" * 200
        allow = Entry("User:a", "*", WRITE, Permission.ALLOW)
        index.put(Pattern(TOPIC, PatternType.LITERAL, name), frozenset([allow]))
        deny = allow._replace(permission=Permission.DENY)
        index.put(Pattern(TOPIC, PatternType.PREFIXED, name[:-1]), frozenset([deny]))
    calls = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        may_on_any = index.allows_on_any(Requester("User:a", client_address(HERE)), WRITE, TOPIC)
    finally:
        sys.setprofile(None)
    assert not may_on_any
    assert calls < 300 * 20


def test_patterns_with_the_same_rules_are_changed_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the same rules give is kept once, as far as it is not too many rules or sets of them."""
    monkeypatch.setattr(module, "SHARED_RIGHTS_MAX", 2)
    monkeypatch.setattr(module, "SHARED_ENTRIES_MAX", 2)
    sets = [[READ], [WRITE], [READ, WRITE], [DESCRIBE], [READ, WRITE, DESCRIBE]]
    made = authorizer_with(
        acl(f"{number}-{copy}", each) for number, some in enumerate(sets) for each in some for copy in "ab"
    )
    assert len(made.index._rights) <= 2
    made.put(acl("0-a").pattern, frozenset([acl("", WRITE, DENY).entry]))
    made.put(acl("2-a").pattern, frozenset())
    for number, some in enumerate(sets):
        for each in (READ, WRITE):
            assert may(made, each, f"{number}-b") == (each in some)
    assert not may(made, READ, "0-a")
    assert not may(made, READ, "2-a")
