"""Delegation tokens: who may ask for them, when they end, what is told of them, and who logs in by one.

Clients log in by PLAIN as alice, bob and admin, who may do everything. Kafka's controller has to know them by more than a
plain connection, too, because the broker hands on what it is asked.
"""

import time
from typing import Any

from compat_tests.differential.conversation import Link, Talk, scenario
from compat_tests.support.logging_in import by_plain, by_token

from ottla.server.dispatch.access import AclOperation, ResourceType
from ottla.wire.messages.acls import AclCreation, CreateAclsRequest
from ottla.wire.messages.delegation_tokens import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
    ExpireDelegationTokenRequest,
    RenewDelegationTokenRequest,
)
from ottla.wire.messages.metadata import MetadataRequest

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule required"
USERS = 'username="broker" password="word" user_broker="word" user_admin="word" user_alice="word" user_bob="word"'
LOGIN = {
    "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "sasl.mechanism.controller.protocol": "PLAIN",
    "listener.name.plaintext.plain.sasl.jaas.config": f"{MODULE} {USERS};",
    "listener.name.plaintext.scram-sha-256.sasl.jaas.config": f"{SCRAM_MODULE};",
    "listener.name.plaintext.scram-sha-512.sasl.jaas.config": f"{SCRAM_MODULE};",
    "listener.name.controller.sasl.enabled.mechanisms": "PLAIN",
    "listener.name.controller.plain.sasl.jaas.config": f"{MODULE} {USERS};",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:broker;User:admin",
}
KEY = {"delegation.token.secret.key": "a key of tokens"}
TOKENS = LOGIN | KEY
HOUR_MS, NOT_FOUND = 3_600_000, 62
LONG_MAX = (1 << 63) - 1
TIMES = (
    "issue_timestamp_ms",
    "expiry_timestamp_ms",
    "max_timestamp_ms",
    "issue_timestamp",
    "expiry_timestamp",
    "max_timestamp",
)


def log_in(talk: Talk, name: str, link: str = "") -> Link:
    """A link of that user's."""
    made = talk.link(link or name)
    by_plain(made.client, name, "word")
    return made


def everybody(talk: Talk) -> None:
    for name in ("alice", "bob", "admin"):
        log_in(talk, name)
    log_in(talk, "admin", "stage hand")


def creation(*renewers: str, owner: str | None = None, lifetime_ms: int = -1) -> CreateDelegationTokenRequest:
    kind, _, name = (owner or "").partition(":")
    wanted = [each.partition(":") for each in renewers]
    return CreateDelegationTokenRequest(
        owner_principal_type=kind or None,
        owner_principal_name=name or None,
        renewers=[CreatableRenewers(principal_type=kind, principal_name=name) for kind, _, name in wanted],
        max_lifetime_ms=lifetime_ms,
    )


def owned_by(*owners: str) -> DescribeDelegationTokenRequest:
    wanted = [each.partition(":") for each in owners]
    return DescribeDelegationTokenRequest(
        owners=[DescribeDelegationTokenOwner(principal_type=kind, principal_name=name) for kind, _, name in wanted]
    )


def from_now(answer: Any) -> None:
    """Times by the hours from now, and tokens in the order of their owners and ends."""
    for each in (answer, *getattr(answer, "tokens", ())):
        for name in TIMES:
            value = getattr(each, name, 0)
            if 0 < value < LONG_MAX:
                setattr(each, name, round((value - time.time() * 1000) / HOUR_MS))
    if hasattr(answer, "tokens"):
        answer.tokens.sort(key=lambda each: (each.principal_name, each.max_timestamp))


def ask(talk: Talk, who: str, label: str, request: Any) -> Any:
    return talk.ask(request, of=who, label=label, arrange=from_now)


def made(talk: Talk, *renewers: str, owner: str, lifetime_ms: int = -1) -> Any:
    """A token that whoever asks next hears of."""
    answer = talk.do(creation(*renewers, owner=owner, lifetime_ms=lifetime_ms))
    assert answer.error_code == 0, answer
    settle(talk, answer.hmac)
    return answer


def settle(talk: Talk, hmac: bytes) -> None:
    """Waits until Kafka's broker, and its controller, have heard of a token."""
    talk.until(
        DescribeDelegationTokenRequest(owners=None), lambda answer: any(each.hmac == hmac for each in answer.tokens)
    )
    talk.until(
        RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=HOUR_MS), lambda answer: answer.error_code != NOT_FOUND
    )


def renewal(hmac: bytes, period_ms: int) -> RenewDelegationTokenRequest:
    return RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=period_ms)


def expiry(hmac: bytes, period_ms: int) -> ExpireDelegationTokenRequest:
    return ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=period_ms)


@scenario(CreateDelegationTokenRequest, settings=TOKENS)
def tokens_are_made(talk: Talk) -> None:
    everybody(talk)
    for label, request in {
        "one": creation(),
        "with renewers": creation("User:bob", "User:nobody", "User:bob"),
        "for two hours": creation(lifetime_ms=2 * HOUR_MS),
        "for no time": creation(lifetime_ms=0),
        "for ever": creation(lifetime_ms=LONG_MAX),
        "a renewer of another type": creation("User:bob", "Group:g"),
        "a renewer without a name": creation("User:"),
        "a renewer without a type": creation(":bob"),
        "letters": creation("User:Ä字 b,=%"),
    }.items():
        ask(talk, "alice", label, request)


@scenario(CreateDelegationTokenRequest, "3", settings=TOKENS)
def tokens_for_somebody_else(talk: Talk) -> None:
    everybody(talk)
    ask(talk, "alice", "for herself", creation(owner="User:alice"))
    ask(talk, "alice", "for bob, without the right", creation("Group:g", owner="User:bob"))
    ask(talk, "admin", "for bob", creation("User:alice", owner="User:bob"))
    ask(talk, "admin", "for a group", creation(owner="Group:g"))
    unnamed = creation()
    unnamed.owner_principal_type, unnamed.owner_principal_name = "User", ""
    ask(talk, "alice", "of a type without a name", unnamed)
    untyped = creation()
    untyped.owner_principal_name = "bob"
    ask(talk, "alice", "of a name without a type", untyped)
    rule = AclCreation(
        resource_type=ResourceType.USER,
        resource_name="User:carol",
        resource_pattern_type=3,
        principal="User:alice",
        host="*",
        operation=AclOperation.CREATE_TOKENS,
        permission_type=3,
    )
    talk.do(CreateAclsRequest(creations=[rule]))
    for_carol = creation(owner="User:carol")
    # Unrecorded, on a link of her own, until the broker has heard of the rule.
    while log_in(talk, "alice", "probe").client.ask(for_carol, talk.version).error_code:
        talk.hang_up("probe")
    ask(talk, "alice", "for carol, with the right", for_carol)


@scenario(RenewDelegationTokenRequest, settings=TOKENS)
def tokens_are_renewed(talk: Talk) -> None:
    everybody(talk)
    token = made(talk, "User:bob", owner="User:alice", lifetime_ms=30 * HOUR_MS)
    for label, hmac, period_ms in (
        ("by the default", token.hmac, -1),
        ("by nothing", token.hmac, 0),
        ("by two hours", token.hmac, 2 * HOUR_MS),
        ("by more than the default", token.hmac, 26 * HOUR_MS),
        ("for ever", token.hmac, LONG_MAX),
        ("by less than nothing", token.hmac, -LONG_MAX),
        ("another", b"x" * 64, HOUR_MS),
        ("none", b"", HOUR_MS),
    ):
        ask(talk, "bob", label, renewal(hmac, period_ms))
    ask(talk, "alice", "by its owner", renewal(token.hmac, 3 * HOUR_MS))
    ask(talk, "admin", "by who has asked for it", renewal(token.hmac, 3 * HOUR_MS))
    young = made(talk, owner="User:alice", lifetime_ms=4 * HOUR_MS)
    ask(talk, "alice", "up to its greatest age", renewal(young.hmac, 9 * HOUR_MS))
    talk.do(expiry(young.hmac, -1))


@scenario(ExpireDelegationTokenRequest, settings=TOKENS)
def tokens_expire(talk: Talk) -> None:
    everybody(talk)
    token = made(talk, "User:bob", owner="User:alice", lifetime_ms=30 * HOUR_MS)
    ask(talk, "bob", "in two hours", expiry(token.hmac, 2 * HOUR_MS))
    ask(talk, "bob", "in a day and more", expiry(token.hmac, 28 * HOUR_MS))
    ask(talk, "alice", "never", expiry(token.hmac, LONG_MAX))
    ask(talk, "alice", "another", expiry(b"x" * 64, -1))
    ask(talk, "admin", "by who has asked for it", expiry(token.hmac, -1))
    ask(talk, "admin", "by who has asked for it, later", expiry(token.hmac, 5))
    ask(talk, "alice", "now", expiry(token.hmac, 0))
    # On Kafka's controller, and everywhere.
    talk.until(renewal(token.hmac, 1), lambda answer: answer.error_code == 66)
    ask(talk, "alice", "after its end", expiry(token.hmac, HOUR_MS))
    ask(talk, "alice", "renewed after its end", renewal(token.hmac, HOUR_MS))
    ask(talk, "admin", "renewed after its end by somebody else", renewal(token.hmac, HOUR_MS))
    ask(talk, "bob", "removed after its end", expiry(token.hmac, -5))
    talk.until(renewal(token.hmac, 1), lambda answer: answer.error_code == NOT_FOUND)
    ask(talk, "alice", "when it is gone", expiry(token.hmac, -1))
    ask(talk, "alice", "renewed when it is gone", renewal(token.hmac, HOUR_MS))


@scenario(DescribeDelegationTokenRequest, settings=TOKENS)
def tokens_are_told(talk: Talk) -> None:
    everybody(talk)
    one, other, third = talk.name("one"), talk.name("other"), talk.name("third")
    tokens = [
        made(talk, "User:bob", owner=f"User:{one}", lifetime_ms=3 * HOUR_MS),
        made(talk, f"User:{one}", "User:bob", owner=f"User:{other}", lifetime_ms=5 * HOUR_MS),
        made(talk, owner=f"User:{third}", lifetime_ms=7 * HOUR_MS),
    ]
    for who in ("bob", "admin", "alice"):
        ask(talk, who, "of one", owned_by(f"User:{one}"))
        ask(talk, who, "of all three", owned_by(f"User:{one}", f"User:{other}", f"User:{third}"))
        ask(talk, who, "of a group", owned_by(f"Group:{one}"))
        ask(talk, who, "of nobody", owned_by())
    ask(talk, "admin", "of a user without tokens", owned_by(f"User:{talk.name('nobody')}"))
    for each in tokens:
        talk.do(expiry(each.hmac, -1))


def refused(talk: Talk, who: str) -> None:
    ask(talk, who, "make one", creation("Group:g"))
    ask(talk, who, "make another", creation())
    ask(talk, who, "renew one", renewal(b"x", 1))
    ask(talk, who, "expire one", expiry(b"x", 1))
    ask(talk, who, "tell of all", DescribeDelegationTokenRequest(owners=None))
    ask(talk, who, "tell of none", owned_by())


@scenario(CreateDelegationTokenRequest, settings=KEY)
def nobody_is_known(talk: Talk) -> None:
    refused(talk, "somebody")


@scenario(CreateDelegationTokenRequest, settings=LOGIN)
def there_is_no_key(talk: Talk) -> None:
    log_in(talk, "alice")
    refused(talk, "alice")


@scenario(CreateDelegationTokenRequest, settings=TOKENS)
def who_logs_in_by_a_token(talk: Talk) -> None:
    everybody(talk)
    token = made(talk, owner="User:alice")
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        client = talk.link(mechanism).client
        answers = by_token(client, mechanism, token.token_id, token.hmac)
        talk.note(mechanism, [[each.error_code, each.error_message] for each in answers])
        # The session ends with the token.
        talk.note("the session's hours", round(answers[-1].session_lifetime_ms / HOUR_MS))
        talk.note("is served", client.ask(MetadataRequest(topics=[]), 12).controller_id >= 0)
        refused(talk, mechanism)
    talk.do(expiry(token.hmac, -1))
