"""SCRAM credentials of users: what can be given and taken, what is refused with which words, and what is told of them."""

from collections.abc import Sequence
from typing import Any

from compat_tests.differential.conversation import Talk, scenario

from ottla.wire.messages.scram_credentials import (
    AlterUserScramCredentialsRequest,
    DescribeUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
    UserName,
)

SHA_256, SHA_512 = 1, 2
# A broker of their own for scenarios that see all users.
OWN_USERS = {"quota.window.num": "13"}


def given(
    name: str, mechanism: int = SHA_256, iterations: int = 4096, salted: bytes = b"p" * 32
) -> ScramCredentialUpsertion:
    return ScramCredentialUpsertion(
        name=name, mechanism=mechanism, iterations=iterations, salt=b"salt", salted_password=salted
    )


def taken(name: str, mechanism: int = SHA_256) -> ScramCredentialDeletion:
    return ScramCredentialDeletion(name=name, mechanism=mechanism)


def by_user(answer: Any) -> None:
    """Kafka has users and mechanisms in hash maps."""
    answer.results.sort(key=lambda each: each.user)
    for each in answer.results:
        if hasattr(each, "credential_infos"):
            each.credential_infos.sort(key=lambda info: info.mechanism)


def change(talk: Talk, label: str, *changes: ScramCredentialUpsertion | ScramCredentialDeletion) -> Any:
    request = AlterUserScramCredentialsRequest(
        deletions=[each for each in changes if isinstance(each, ScramCredentialDeletion)],
        upsertions=[each for each in changes if isinstance(each, ScramCredentialUpsertion)],
    )
    return talk.ask(request, label=label, arrange=by_user)


def describe(users: Sequence[str] | None) -> DescribeUserScramCredentialsRequest:
    named = None if users is None else [UserName(name=each) for each in users]
    return DescribeUserScramCredentialsRequest(users=named)


def settle(talk: Talk, user: str, *infos: tuple[int, int]) -> None:
    """Waits until Kafka's broker has heard what its controller has decided."""
    talk.until(
        describe([user]),
        lambda answer: (
            sorted((each.mechanism, each.iterations) for each in answer.results[0].credential_infos) == list(infos)
        ),
    )


def told(talk: Talk, label: str, users: Sequence[str] | None) -> Any:
    return talk.ask(describe(users), label=label, arrange=by_user)


@scenario(AlterUserScramCredentialsRequest)
def given_and_taken(talk: Talk) -> None:
    user = talk.name("user")
    change(talk, "one", given(user))
    settle(talk, user, (SHA_256, 4096))
    told(talk, "one is told", [user])
    change(talk, "changed", given(user, iterations=8192))
    change(talk, "another", given(user, SHA_512, 16384, b"q" * 64))
    settle(talk, user, (SHA_256, 8192), (SHA_512, 16384))
    told(talk, "two are told", [user])
    change(talk, "first taken", taken(user))
    change(talk, "taken again", taken(user))
    settle(talk, user, (SHA_512, 16384))
    change(talk, "second taken", taken(user, SHA_512))
    settle(talk, user)
    told(talk, "none is told", [user])
    change(talk, "nothing")


@scenario(AlterUserScramCredentialsRequest)
def what_is_refused(talk: Talk) -> None:
    user = talk.name("user")
    change(talk, "too few", given(user, iterations=4095))
    change(talk, "too many", given(user, iterations=16385))
    change(talk, "no name", given(""))
    change(talk, "no name to take", taken(""))
    change(talk, "no such mechanism", given(user, 3), taken(talk.name("other"), 0))
    change(talk, "unknown user", taken(user))
    change(talk, "no password", given(user, salted=b""))
    change(
        talk,
        "no salt and a short password",
        ScramCredentialUpsertion(name=user, mechanism=1, iterations=4096, salt=b"", salted_password=b"x"),
    )


@scenario(AlterUserScramCredentialsRequest)
def a_user_twice(talk: Talk) -> None:
    user, other = talk.name("user"), talk.name("other")
    change(talk, "given twice", given(user), given(other), given(user, SHA_512))
    settle(talk, other, (SHA_256, 4096))
    change(talk, "taken and given", taken(other), given(other))
    change(talk, "wrong, then right", given(user, iterations=1), given(user))
    change(talk, "right, then wrong", given(user), given(user, iterations=1))
    change(talk, "unknown, then given", taken(user), given(user))
    change(talk, "three times", given(user), given(user), given(user))


@scenario(DescribeUserScramCredentialsRequest)
def whoever_is_asked_for(talk: Talk) -> None:
    users = [talk.name("a"), talk.name("b")]
    for each in users:
        change(talk, "given", given(each))
        settle(talk, each, (SHA_256, 4096))
    told(talk, "both", users)
    told(talk, "one twice", [users[0], users[1], users[0]])
    told(talk, "unknown", [talk.name("c")])
    told(talk, "unknown twice", [talk.name("c"), talk.name("c")])
    told(talk, "no name", [""])


@scenario(DescribeUserScramCredentialsRequest, settings=OWN_USERS)
def all_users(talk: Talk) -> None:
    told(talk, "nobody", None)
    names = {"letters": "Ä字 b", "signs": "a/b*c~d%20+e=,\"'", "default": "<default>", "dots": ".."}
    for label, name in names.items():
        change(talk, label, given(name))
        settle(talk, name, (SHA_256, 4096))
    told(talk, "null", None)
    told(talk, "empty", [])
    for name in names.values():
        change(talk, "taken", taken(name))
