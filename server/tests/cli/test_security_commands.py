"""`ottla acls`, `users`, `quotas` and `tokens` beside a broker that asks for logins at one of its listeners."""

from __future__ import annotations

import argparse
import contextlib
import getpass
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.server.broker import Broker
from ottla.server.cli.client.output import RequestFailed
from ottla.server.cli.command_line import period_ms
from ottla.server.cli.security import tokens
from ottla.server.cli.security.acl_requests import word_of
from ottla.server.dispatch.access import AclOperation, ResourceType
from ottla.server.tests.cli.commanded import Shell, Told
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.delegation_tokens import DescribeDelegationTokenResponse

SETTINGS = {
    "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
    "sasl_enabled_mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "listener_name_sasl__plaintext_plain_sasl_jaas_config": (
        'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="a" user_root="r" user_nobody="n";'
    ),
    "authorizer_class_name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super_users": "User:ANONYMOUS;User:root",
    "delegation_token_secret_key": "a secret",
}


@pytest.fixture
def as_user(ottla: Shell, broker: Broker) -> Callable[..., Told]:
    """Runs a command as a user who logs in."""

    def run(user: str, password: str, *words: str, mechanism: str = "PLAIN", answer: str | None = None) -> Told:
        login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism}
        login |= {"sasl.username": user, "sasl.password": password}
        options = [word for name, text in login.items() for word in ("-X", f"{name}={text}")]
        return ottla(*words, "-b", f"127.0.0.1:{broker.listeners[1].port}", *options, answer=answer)

    return run


# --- acls


def may(broker: Broker, operation: AclOperation, topic: str, host: str = "127.0.0.1", user: str = "alice") -> bool:
    assert broker.authorizer is not None
    return broker.authorizer.allows(f"User:{user}", host, operation, ResourceType.TOPIC, topic, True)


@pytest.fixture
def no_rules(ottla: Shell) -> Iterator[None]:
    yield
    ottla("acls", "remove", "--all", "--yes")


@pytest.mark.usefixtures("no_rules")
def test_rules_are_added_listed_and_taken_back(ottla: Shell, broker: Broker) -> None:
    assert ottla("acls").out == "no rules\n"
    read, write = AclOperation.READ, AclOperation.WRITE
    words = ("acls", "add", "--allow", "alice", "--operation", "read,Describe", "--topic", "orders")
    dry = ottla(*words, "--dry-run")
    assert dry.code == 0 and dry.lines[-2:] == ["2 rules would be added", "Nothing is changed: this is a dry run."]
    assert not may(broker, read, "orders")
    told = ottla(*words)
    assert may(broker, read, "orders") and not may(broker, write, "orders") and not may(broker, read, "orders2")
    assert ottla("acls", "list", "--json").json == [
        {
            "principal": "User:alice",
            "permission": "allow",
            "operation": operation,
            "resource": "topic",
            "name": "orders",
            "pattern": "literal",
            "host": "*",
        }
        for operation in ("read", "describe")
    ]
    assert ottla(*words).lines == ["0 rules added"]
    ottla.undo(told)
    assert not may(broker, read, "orders") and ottla("acls").out == "no rules\n"


@pytest.mark.usefixtures("no_rules")
def test_prefixes_hosts_roles_and_denials(ottla: Shell, broker: Broker) -> None:
    assert ottla("acls", "add", "--allow", "alice", "--producer", "--topic", "logs-", "--pattern", "prefixed").code == 0
    assert may(broker, AclOperation.WRITE, "logs-1") and not may(broker, AclOperation.READ, "logs-1")
    denied = ("--deny", "alice", "--operation", "write", "--topic", "logs-7", "--host", "10.0.0.0/8")
    assert ottla("acls", "add", *denied).code == 0
    assert may(broker, AclOperation.WRITE, "logs-7", "11.0.0.1")
    assert not may(broker, AclOperation.WRITE, "logs-7", "10.1.2.3")
    assert ottla("acls", "add", "--allow", "User:bob", "--consumer", "--topic", "*", "--group", "g", "--cluster",
                 "--operation", "describe").code == 0  # fmt: skip
    assert may(broker, AclOperation.READ, "anything", user="bob")
    shown = ottla("acls", "list", "--topic", "logs-7", "--json").json
    assert {(each["name"], each["pattern"]) for each in shown} == {
        ("logs-", "prefixed"), ("logs-7", "literal"), ("*", "literal")
    }  # fmt: skip
    only = ottla("acls", "list", "--pattern", "prefixed", "--json").json
    assert {each["name"] for each in only} == {"logs-"}
    assert {each["resource"] for each in ottla("acls", "list", "--principal", "bob", "--json").json} == {
        "topic", "group", "cluster"
    }  # fmt: skip


@pytest.mark.usefixtures("no_rules")
def test_removing_shows_and_asks_and_removes_no_more_than_that(ottla: Shell, broker: Broker) -> None:
    ottla("acls", "add", "--allow", "alice", "--allow", "bob", "--operation", "read", "--topic", "a", "--topic", "b")
    before = ottla("acls", "--json").json
    question = "Remove 2 rules: allow User:alice read topic a from *; allow User:alice read topic b from *?"
    assert (
        ottla("acls", "remove", "--principal", "alice").refusal(2) == f"{question} There is nobody to ask: give --yes"
    )
    assert ottla("acls", "remove", "--principal", "alice", answer="n\n").code == 1
    dry = ottla("acls", "remove", "--principal", "alice", "--dry-run", "--json").json
    assert len(dry["rules"]) == 2 and ottla("acls", "--json").json == before
    told = ottla("acls", "remove", "--principal", "alice", answer="y\n")
    assert not may(broker, AclOperation.READ, "a") and may(broker, AclOperation.READ, "a", user="bob")
    ottla.undo(told)
    assert ottla("acls", "--json").json == before
    # Without --pattern a name is meant as it is.
    assert ottla("acls", "remove", "--topic", "aa", "--yes").refusal() == "no rule matches: nothing is changed"


@pytest.mark.usefixtures("no_rules")
@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("add", "--operation", "read", "--topic", "t"), "whom do the rules concern?"),
        (("add", "--allow", "a", "--operation", "read"), "what do the rules concern?"),
        (("add", "--allow", "a", "--topic", "t"), "what is allowed or denied?"),
        (("add", "--allow", "a", "--operation", "eat", "--topic", "t"), "--operation eat: must be one of all, read"),
        (("add", "--allow", "a", "--operation", "", "--topic", "t"), "--operation : must be one of"),
        (("add", "--allow", ":a", "--operation", "read", "--topic", "t"), "is no principal"),
        (("add", "--allow", "", "--operation", "read", "--topic", "t"), "is no principal"),
        (("add", "--allow", "a", "--operation", "read", "--topic", ""), "Invalid empty resource name"),
        (("add", "--allow", "a", "--operation", "read", "--topic", "t", "--host", "1/2"), "Invalid CIDR notation"),
        (
            ("add", "--allow", "a", "--operation", "write", "--group", "g"),
            "there is no write of a group; there are read",
        ),
        (("add", "--allow", "a", "--producer", "--group", "g"), "--producer says nothing of a group"),
        (("remove", "--yes"), "which rules?"),
        (("remove", "--yes", "--consumer"), "--consumer of what? Give --topic"),
        (("remove", "--yes", "--all", "--topic", "t"), "which rules?"),
    ],
)
def test_rules_that_cannot_be(ottla: Shell, words: tuple[str, ...], reason: str) -> None:
    assert reason in ottla("acls", *words).refusal(2)
    assert ottla("acls").out == "no rules\n"


@pytest.mark.usefixtures("no_rules")
def test_a_role_is_removed_as_it_was_added(ottla: Shell) -> None:
    role = ("--allow", "alice", "--consumer", "--topic", "orders", "--group", "billing")
    ottla("acls", "add", "--allow", "alice", "--operation", "read", "--group", "billing-2")
    ottla("acls", "add", "--allow", "alice", "--operation", "write", "--topic", "orders")
    kept = ottla("acls", "--json").json
    assert "3 rules added" in ottla("acls", "add", *role).lines
    told = ottla("acls", "remove", *role, "--yes", "--json")
    assert {(each["operation"], each["resource"], each["name"]) for each in told.json["rules"]} == {
        ("read", "topic", "orders"), ("describe", "topic", "orders"), ("read", "group", "billing")
    }  # fmt: skip
    assert ottla("acls", "--json").json == kept


def test_a_name_that_the_broker_cannot_keep_is_refused_with_what_was_added(ottla: Shell) -> None:
    words = ("add", "--allow", "a", "--operation", "read", "--group", "fine", "--group", "a/b")
    refusal = ottla("acls", *words).refusal()
    assert (
        "ACL binding contains invalid resource name: a/b (INVALID_REQUEST); added: allow User:a read group fine from *"
        in refusal
    )
    assert [each["name"] for each in ottla("acls", "--json").json] == ["fine"]
    assert ottla("acls", "remove", "--all", "--yes").code == 0


def test_every_operation_has_a_word() -> None:
    assert word_of(AclOperation.DESCRIBE_CONFIGS) == "describe-configs"
    assert word_of(ResourceType.TRANSACTIONAL_ID) == "transactional-id"


def test_whoever_may_not_is_told_so(as_user: Callable[..., Told]) -> None:
    for words in (("acls",), ("users",), ("quotas",)):
        assert "CLUSTER_AUTHORIZATION_FAILED" in as_user("nobody", "n", *words).refusal()
    add = ("acls", "add", "--allow", "nobody", "--operation", "all", "--cluster")
    assert "CLUSTER_AUTHORIZATION_FAILED" in as_user("nobody", "n", *add).refusal()


# --- users


def logs_in(as_user: Callable[..., Told], user: str, password: str, mechanism: str = "SCRAM-SHA-512") -> bool:
    return as_user(user, password, "topics", mechanism=mechanism).code == 0


@pytest.mark.parametrize("password", ["secret", "pass word \u00fc=,\"'", "x" * 4096])
def test_a_user_with_a_password_from_a_file(
    ottla: Shell, as_user: Callable[..., Told], tmp_path: Path, password: str
) -> None:
    file = tmp_path / "password"
    file.write_text(password + "\n")
    assert ottla("users", "add", "carol", "--password-file", str(file), "--dry-run").code == 0
    assert not logs_in(as_user, "carol", password)
    told = ottla("users", "add", "carol", "--password-file", str(file))
    assert told.lines[0] == "carol is added for SCRAM-SHA-512" and password not in told.out + told.err
    assert logs_in(as_user, "carol", password) and not logs_in(as_user, "carol", "other")
    assert ottla("users", "list", "carol", "--json").json == [
        {"user": "carol", "mechanism": "SCRAM-SHA-512", "iterations": 4096}
    ]
    ottla.undo(told)
    assert not logs_in(as_user, "carol", password)


def test_a_password_is_changed_from_stdin_and_deleted(ottla: Shell, as_user: Callable[..., Told]) -> None:
    options = ("--mechanism", "scram-sha-256", "--iterations", "8192", "--password-file", "-")
    assert "has no password for SCRAM-SHA-256" in ottla("users", "alter", "dora", *options, stdin="one").refusal()
    assert ottla("users", "add", "dora", *options, stdin="one\r\n").code == 0
    assert "has a password for SCRAM-SHA-256 already" in ottla("users", "add", "dora", *options, stdin="two").refusal()
    assert logs_in(as_user, "dora", "one", "SCRAM-SHA-256")
    told = ottla("users", "alter", "dora", *options, stdin="two")
    assert told.lines[-1] == "This cannot be undone: nobody keeps the former password."
    assert logs_in(as_user, "dora", "two", "SCRAM-SHA-256") and not logs_in(as_user, "dora", "one", "SCRAM-SHA-256")
    assert ["dora", "SCRAM-SHA-256", "8192"] in [line.split() for line in ottla("users").lines]
    assert "There is nobody to ask: give --yes" in ottla("users", "delete", "dora").refusal(2)
    assert ottla("users", "delete", "dora", answer="\n").code == 1
    assert ottla("users", "delete", "dora", "--dry-run").code == 0
    assert "user doar does not exist: did you mean dora? `ottla users`" in ottla("users", "delete", "doar").refusal()
    assert logs_in(as_user, "dora", "two", "SCRAM-SHA-256")
    assert ottla("users", "delete", "dora", answer="y\n").code == 0
    assert not logs_in(as_user, "dora", "two", "SCRAM-SHA-256")
    assert "user dora does not exist" in ottla("users", "delete", "dora", "--yes").refusal()
    assert "user dora does not exist" in ottla("users", "list", "dora").refusal()


def test_a_name_with_braces_is_added_as_it_is(ottla: Shell) -> None:
    name = "{0} and {name}"
    told = ottla("users", "add", name, "--password-file", "-", stdin="x")
    assert told.lines[0] == f"{name} is added for SCRAM-SHA-512"
    ottla.undo(told)
    assert ottla("users").out == "no users\n"


def test_a_user_of_both_mechanisms_is_deleted_for_one_or_for_both(ottla: Shell) -> None:
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        assert ottla("users", "add", "both", "--mechanism", mechanism, "--password-file", "-", stdin="x").code == 0
    assert ottla("users", "delete", "both", "--yes", "--mechanism", "SCRAM-SHA-256").code == 0
    assert [each["mechanism"] for each in ottla("users", "list", "both", "--json").json] == ["SCRAM-SHA-512"]
    assert (
        "no password for SCRAM-SHA-256"
        in ottla("users", "delete", "both", "--yes", "--mechanism", "SCRAM-SHA-256").refusal()
    )
    assert ottla("users", "add", "both", "--mechanism", "SCRAM-SHA-256", "--password-file", "-", stdin="x").code == 0
    told = ottla("users", "delete", "both", "--yes", "--json").json
    assert len(told["users"]) == 2 and told["undo"] == []
    assert ottla("users").out == "no users\n"


def test_a_password_is_asked_for_twice(
    ottla: Shell, as_user: Callable[..., Told], monkeypatch: pytest.MonkeyPatch
) -> None:
    typed: list[str] = []

    def type_one(prompt: str) -> str:
        if not typed:
            raise EOFError
        return typed.pop(0)

    monkeypatch.setattr(getpass, "getpass", type_one)
    assert ottla("users", "add", "eve", answer="").refusal() == "nothing is changed"
    typed += ["one", "two"]
    assert ottla("users", "add", "eve", answer="").refusal(2) == "these are two passwords: nothing is changed"
    typed += ["", ""]
    assert ottla("users", "add", "eve", answer="").refusal(2) == "the password: is empty"
    typed += ["one", "one"]
    assert ottla("users", "add", "eve", answer="").code == 0
    assert logs_in(as_user, "eve", "one")
    assert ottla("users", "delete", "eve", "--yes").code == 0


def test_a_password_in_the_command_line_is_warned_of(ottla: Shell, as_user: Callable[..., Told]) -> None:
    told = ottla("users", "add", "fay", "--password", "visible")
    assert told.code == 0 and "is seen by others on this machine" in told.err and "visible" not in told.out + told.err
    assert logs_in(as_user, "fay", "visible")
    assert ottla("users", "delete", "fay", "--yes").code == 0


@pytest.mark.parametrize(
    ("words", "stdin", "reason"),
    [
        ((), "", "there is nobody to ask for the password"),
        (("--password-file", "-"), "", "--password-file -: is empty"),
        (("--password-file", "-"), "\n", "--password-file -: is empty"),
        (("--password-file", "-"), "a\nb\n", "--password-file -: has more than one line"),
        (("--password-file", "-"), "a" * 4097, "--password-file -: is longer than 4096 bytes"),
        (("--password-file", "-"), "a" * 40_000, "--password-file -: is longer than 4096 bytes"),
        (("--password-file", "-"), "\udcff", "--password-file -: is not UTF-8"),
        (("--password-file", "/nowhere/at/all"), "", "cannot read /nowhere/at/all: No such file"),
        (("--password-file", "a\0b"), "", "is no name of a file"),
        (("--password-file", "/"), "", "cannot read /: Is a directory"),
        (("--iterations", "4095", "--password-file", "-"), "x", "must be from 4096 to 16384"),
        (("--iterations", "16385", "--password-file", "-"), "x", "must be from 4096 to 16384"),
    ],
)
def test_passwords_that_cannot_be(ottla: Shell, words: tuple[str, ...], stdin: str, reason: str) -> None:
    assert reason in ottla("users", "add", "gil", *words, stdin=stdin).refusal(2)
    assert ottla("users", "add", "", "--password-file", "-", stdin="x").refusal(2)
    assert ottla("users").out == "no users\n"


# --- quotas


def quota(broker: Broker, *entity: tuple[str, str | None]) -> dict[str, float]:
    return dict(broker.quotas.by_entity.get(tuple(entity), {}))


def test_quotas_are_set_changed_removed_and_taken_back(ottla: Shell, broker: Broker) -> None:
    words = ("quotas", "set", "--user", "alice", "producer_byte_rate=1024", "request-percentage=12.5")
    assert ottla(*words, "--dry-run").lines[-1] == "Nothing is changed: this is a dry run."
    assert quota(broker, ("user", "alice")) == {}
    first = ottla(*words)
    assert quota(broker, ("user", "alice")) == {"producer_byte_rate": 1024, "request_percentage": 12.5}
    second = ottla("quotas", "set", "--user", "alice", "producer_byte_rate=2048", "consumer_byte_rate=1")
    assert [line.split() for line in second.lines[1:3]] == [
        ["alice", "-", "-", "producer_byte_rate", "1024", "2048"],
        ["alice", "-", "-", "consumer_byte_rate", "-", "1"],
    ]
    assert [line.split() for line in ottla("quotas").lines] == [
        ["USER", "CLIENT", "ID", "IP", "QUOTA", "VALUE"],
        ["alice", "-", "-", "consumer_byte_rate", "1"],
        ["alice", "-", "-", "producer_byte_rate", "2048"],
        ["alice", "-", "-", "request_percentage", "12.5"],
    ]
    ottla.undo(second)
    assert quota(broker, ("user", "alice")) == {"producer_byte_rate": 1024, "request_percentage": 12.5}
    assert "There is nobody to ask: give --yes" in ottla("quotas", "remove", "--user", "alice").refusal(2)
    removed = ottla("quotas", "remove", "--user", "alice", answer="y\n")
    assert quota(broker, ("user", "alice")) == {}
    ottla.undo(removed)
    assert quota(broker, ("user", "alice")) == {"producer_byte_rate": 1024, "request_percentage": 12.5}
    ottla.undo(first)
    assert ottla("quotas").out == "no quotas\n"


def test_quotas_of_pairs_of_defaults_and_of_addresses(ottla: Shell, broker: Broker) -> None:
    entities: dict[tuple[str, ...], tuple[tuple[str, str | None], ...]] = {
        ("--user", "a", "--client-id", "c"): (("user", "a"), ("client-id", "c")),
        ("--user-defaults",): (("user", None),),
        ("--client-defaults",): (("client-id", None),),
        ("--user-defaults", "--client-id", "c"): (("user", None), ("client-id", "c")),
    }
    for words, entity in entities.items():
        assert ottla("quotas", "set", *words, "request_percentage=1").code == 0
        assert quota(broker, *entity) == {"request_percentage": 1}
    assert ottla("quotas", "set", "--ip-defaults", "connection_creation_rate=9").code == 0
    assert quota(broker, ("ip", None)) == {"connection_creation_rate": 9}
    listed = ottla("quotas", "list", "--client-id", "c", "--json").json
    assert [each["entity"] for each in listed] == [
        {"user": None, "client-id": "c"},
        {"user": "a", "client-id": "c"},
    ]
    for words in (*entities, ("--ip-defaults",)):
        assert ottla("quotas", "remove", *words, "--yes").code == 0
    assert ottla("quotas").out == "no quotas\n"


@pytest.mark.parametrize(
    ("words", "code", "reason"),
    [
        (("set", "producer_byte_rate=1"), 2, "whose quotas?"),
        (("set", "--user", "a", "producer_byte_rate"), 2, "must be NAME=VALUE"),
        (("set", "--user", "a", "producer_byte_rate=much"), 2, "must be a number"),
        (
            ("set", "--user", "a", "producer_byterate=1MiB"),
            2,
            "there is no quota producer_byterate; there are producer_",
        ),
        (("set", "--user", "a", "x=1", "x=2"), 2, "quota x is named twice"),
        (("set", "--user", "a", "x=1"), 1, "Invalid configuration key x (INVALID_REQUEST)"),
        (("set", "--user", "a", "producer_byte_rate=0"), 1, "must be greater than 0"),
        (("set", "--user", "a", "producer_byte_rate=nan"), 1, "must be"),
        (("set", "--user", "a", "producer_byte_rate=inf"), 1, "must be"),
        (("set", "--user", "a", "--ip", "10.0.0.1", "producer_byte_rate=1"), 2, "--ip goes with no other option"),
        (("set", "--user", "", "producer_byte_rate=1"), 2, "cannot be empty"),
        (("set", "--ip", "no.such.host.invalid", "connection_creation_rate=1"), 1, "not a valid IP or resolvable host"),
        (("remove", "--user", "a", "--yes"), 1, "user a has no quotas of its own"),
        (("remove", "--user", "a", "producer_byte_rate", "--yes"), 1, "has no quota producer_byte_rate; it has none"),
        (("remove", "--yes"), 2, "whose quotas?"),
    ],
)
def test_quotas_that_cannot_be(ottla: Shell, words: tuple[str, ...], code: int, reason: str) -> None:
    assert reason in ottla("quotas", *words).refusal(code)
    assert ottla("quotas").out == "no quotas\n"


# --- tokens


def test_brokers_without_a_secret_for_tokens_are_told_what_they_lack() -> None:
    answer = DescribeDelegationTokenResponse(error_code=ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED, tokens=[])
    cluster: Any = SimpleNamespace(ask_any=lambda ask: answer, patiently=lambda ask: ask())
    with pytest.raises(RequestFailed, match=r"no delegation\.token\.secret\.key"):
        tokens._tokens(cluster)


def test_a_token_is_made_renewed_used_and_expired(as_user: Callable[..., Told]) -> None:
    def run(*words: str, **more: Any) -> Told:
        return as_user("alice", "a", "tokens", *words, **more)

    assert run().out == "no tokens\n"
    assert run("create", "--dry-run").lines == ["a token could be made", "Nothing is changed: this is a dry run."]
    assert run().out == "no tokens\n"
    made = run("create", "--renewer", "bob", "--max-lifetime", "2d", "--json").json
    token, secret = made["token"], made["secret"]
    assert made["owner"] == "User:alice"
    [listed] = run("list", "--json").json
    assert (listed["token"], listed["renewers"]) == (token, ["User:bob"]) and "secret" not in listed
    assert listed["max_ms"] - listed["issued_ms"] == 2 * 86_400_000
    assert secret not in run().out and run("list", "--secrets", "--json").json[0]["secret"] == secret
    # Whoever has the secret is alice, and is given no tokens.
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    jaas = f'sasl.jaas.config={module} required username="{token}" password="{secret}" tokenauth="true";'
    by_token = partial(as_user, "", "", mechanism="SCRAM-SHA-256")
    assert by_token("topics", "-X", jaas).code == 0
    assert "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED" in by_token("tokens", "-X", jaas).refusal()
    assert "refuses the login" in by_token("topics", "-X", jaas.replace("tokenauth", "other")).refusal()
    run("renew", token, "--for", "1h", "--dry-run")
    assert run("list", "--json").json == [listed]
    renewed = run("renew", token, "--for", "1h", "--json").json["tokens"]
    assert renewed[0]["expires_ms_before"] == listed["expires_ms"]
    assert run("list", "--json").json[0]["expires_ms"] == renewed[0]["expires_ms"] < listed["expires_ms"]
    assert run("expire", token, "--in", "10m").code == 0
    assert run("list", "--json").json[0]["expires_ms"] < renewed[0]["expires_ms"]
    assert run("expire", token).refusal(2).endswith("There is nobody to ask: give --yes")
    gone = run("expire", token, answer="y\n")
    assert gone.lines[-1] == "This cannot be undone: a token that has expired is gone."
    assert run().out == "no tokens\n"
    assert f"there is no token {token}" in run("expire", token, "--yes").refusal()


def test_tokens_that_are_refused(ottla: Shell, as_user: Callable[..., Told]) -> None:
    assert "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED" in ottla("tokens").refusal()
    assert "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED" in ottla("tokens", "create").refusal()
    assert (
        "DELEGATION_TOKEN_AUTHORIZATION_FAILED"
        in as_user("alice", "a", "tokens", "create", "--owner", "root").refusal()
    )
    for wrong in (":x", "x:", ""):
        assert "is no principal" in as_user("alice", "a", "tokens", "create", "--renewer", wrong).refusal(2)
    assert "INVALID_PRINCIPAL_TYPE" in as_user("alice", "a", "tokens", "create", "--renewer", "Robot:x").refusal()
    for wrong in ("0", "-1", "7y", "d", "", "1e3", "10MiB"):
        assert as_user("alice", "a", "tokens", "create", f"--max-lifetime={wrong}").code == 2
    assert as_user("alice", "a", "tokens").out == "no tokens\n"


def test_a_token_for_another_user(as_user: Callable[..., Told]) -> None:
    made = as_user("root", "r", "tokens", "create", "--owner", "nobody", "--json").json
    assert made["owner"] == "User:nobody"
    shown = as_user("nobody", "n", "tokens", "list", "--owner", "nobody", "--json").json
    assert [(each["token"], each["requester"]) for each in shown] == [(made["token"], "User:root")]
    assert as_user("nobody", "n", "tokens", "expire", made["token"], "--yes").code == 0


@given(st.text(max_size=10))
def test_any_period_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(argparse.ArgumentTypeError):
        assert period_ms(text) > 0
