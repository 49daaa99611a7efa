"""Quotas of users, clients and addresses: what can be set, what is refused with which words, and what a filter finds."""

import math
from collections.abc import Iterable
from typing import Any

from compat_tests.differential.conversation import Talk, scenario

from ottla.wire.messages.client_quotas import (
    AlterClientQuotasRequest,
    ComponentData,
    DescribeClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)

EXACT, DEFAULT, SPECIFIED = range(3)
PRODUCE, CONSUME, REQUEST, MUTATIONS, CONNECT = (
    "producer_byte_rate",
    "consumer_byte_rate",
    "request_percentage",
    "controller_mutation_rate",
    "connection_creation_rate",
)
# A broker of their own for scenarios that set defaults, and see all quotas.
OWN_QUOTAS = {"quota.window.num": "12"}

Named = Iterable[tuple[str, str | None]]


def entry(named: Named, *ops: tuple[str, float | None]) -> EntryData:
    return EntryData(
        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in named],
        ops=[OpData(key=key, value=0.0 if value is None else value, remove=value is None) for key, value in ops],
    )


def alter(*entries: EntryData, validate_only: bool = False) -> AlterClientQuotasRequest:
    return AlterClientQuotasRequest(entries=list(entries), validate_only=validate_only)


def describe(*conditions: tuple[str, int, str | None], strict: bool = False) -> DescribeClientQuotasRequest:
    components = [ComponentData(entity_type=kind, match_type=how, match=name) for kind, how, name in conditions]
    return DescribeClientQuotasRequest(components=components, strict=strict)


def by_entity(answer: Any) -> None:
    """Kafka has entities, their parts and their quotas in hash maps."""
    for each in answer.entries or ():
        each.entity.sort(key=lambda part: part.entity_type)
        if hasattr(each, "values"):
            each.values.sort(key=lambda value: value.key)
    if answer.entries:
        answer.entries.sort(key=lambda each: [(part.entity_type, part.entity_name or "") for part in each.entity])


def change(talk: Talk, label: str, *entries: EntryData, validate_only: bool = False) -> Any:
    return talk.ask(alter(*entries, validate_only=validate_only), label=label, arrange=by_entity)


def settle(talk: Talk, named: Named, **values: float) -> None:
    """Waits until Kafka's broker has heard what its controller has decided."""
    conditions = [(kind, DEFAULT if name is None else EXACT, name) for kind, name in named]
    talk.until(
        describe(*conditions, strict=True),
        lambda answer: {each.key: each.value for found in answer.entries for each in found.values} == values,
    )


def told(talk: Talk, label: str, *conditions: tuple[str, int, str | None], strict: bool = False) -> Any:
    return talk.ask(describe(*conditions, strict=strict), label=label, arrange=by_entity)


@scenario(AlterClientQuotasRequest)
def set_and_removed(talk: Talk) -> None:
    user = [("user", talk.name("user"))]
    change(talk, "set", entry(user, (PRODUCE, 1000.0), (CONSUME, 2000.0), (REQUEST, 12.5), (MUTATIONS, 0.5)))
    settle(
        talk,
        user,
        producer_byte_rate=1000.0,
        consumer_byte_rate=2000.0,
        request_percentage=12.5,
        controller_mutation_rate=0.5,
    )
    told(talk, "all four", ("user", EXACT, user[0][1]))
    change(talk, "changed", entry(user, (PRODUCE, 1001.0), (CONSUME, None), (REQUEST, None)))
    settle(talk, user, producer_byte_rate=1001.0, controller_mutation_rate=0.5)
    told(talk, "two", ("user", EXACT, user[0][1]))
    change(talk, "the same", entry(user, (PRODUCE, 1001.0)))
    change(talk, "nothing", entry(user))
    change(talk, "removed", entry(user, (PRODUCE, None), (MUTATIONS, None), (CONSUME, None), ("no_such", None)))
    settle(talk, user)
    told(talk, "none", ("user", EXACT, user[0][1]))
    talk.ask(alter(), label="no entities")


@scenario(AlterClientQuotasRequest)
def names_of_any_kind(talk: Talk) -> None:
    run = talk.name("n")
    for label, name in {"letters": "Ä字 b", "signs": "a/b*c~d%20+e=,\"'", "default": "<default>", "dots": ".."}.items():
        both = [("user", f"{name}{run}"), ("client-id", f"{run}{name}")]
        change(talk, label, entry(both, (PRODUCE, 1.0)))
        settle(talk, both, producer_byte_rate=1.0)
        told(talk, label, ("user", EXACT, both[0][1]))
        told(talk, f"{label} of the client", ("client-id", EXACT, both[1][1]))
        change(talk, f"{label} gone", entry(both, (PRODUCE, None)))


@scenario(AlterClientQuotasRequest)
def addresses(talk: Talk) -> None:
    for address in ("10.1.2.3", "::1", "2001:db8::7", "localhost"):
        named = [("ip", address)]
        change(talk, address, entry(named, (CONNECT, 7.0)))
        settle(talk, named, connection_creation_rate=7.0)
        told(talk, address, ("ip", EXACT, address))
        change(talk, f"{address} gone", entry(named, (CONNECT, None)))
        settle(talk, named)
    for wrong in ("no.such.host.invalid", "1.2.3.4.5", "10.0.0.0/8"):
        change(talk, wrong, entry([("ip", wrong)], (CONNECT, 7.0)))


@scenario(AlterClientQuotasRequest)
def entities_that_cannot_be(talk: Talk) -> None:
    change(talk, "none", entry([], (PRODUCE, 1.0)))
    change(talk, "unknown", entry([("group", "g")], (PRODUCE, 1.0)))
    change(talk, "without a kind", entry([("", "g")], (PRODUCE, 1.0)))
    change(talk, "empty user", entry([("user", "")], (PRODUCE, 1.0)))
    change(talk, "empty client", entry([("client-id", ""), ("user", "u")], (PRODUCE, 1.0)))
    change(talk, "empty address", entry([("ip", "")], (CONNECT, 1.0)))
    change(talk, "address and user", entry([("ip", "10.0.0.1"), ("user", "u")], (CONNECT, 1.0)))
    change(talk, "address and client", entry([("client-id", None), ("ip", None)], (CONNECT, 1.0)))
    change(talk, "two mistakes", entry([("user", ""), ("group", "g")], (PRODUCE, 1.0)))
    change(talk, "two others", entry([("user", ""), ("client-id", "")], ("x", 1.0)))
    change(talk, "a kind twice", entry([("user", ""), ("user", talk.name("user"))], (PRODUCE, 1.0)), validate_only=True)


@scenario(AlterClientQuotasRequest)
def values_that_cannot_be(talk: Talk) -> None:
    user, address = [("user", talk.name("user"))], [("ip", "10.1.2.4")]
    for key in (PRODUCE, REQUEST, MUTATIONS):
        for value in (0.0, -1.0, -math.inf, 1.5, 0.1, 1e19, math.inf, float(1 << 63), 4.000001, 4.00001):
            change(talk, f"{key} {value}", entry(user, (key, value)), validate_only=True)
    for value in (0.0, 1.5, 2147483647.0, 2147483648.0, math.inf):
        change(talk, f"{CONNECT} {value}", entry(address, (CONNECT, value)), validate_only=True)
    change(talk, "no such key", entry(user, ("no_such", 1.0)))
    change(talk, "a key of addresses", entry(user, (CONNECT, 1.0)))
    change(talk, "a key of users", entry(address, (PRODUCE, 1.0)))
    change(talk, "a credential", entry(user, ("SCRAM-SHA-256", 1.0)))
    change(talk, "one is wrong", entry(user, (PRODUCE, 1.0), (CONSUME, -1.0)))
    change(talk, "two are wrong", entry(user, (CONSUME, -1.0), (PRODUCE, 0.0), ("x", 1.0)))
    told(talk, "nothing", ("user", EXACT, user[0][1]))


@scenario(AlterClientQuotasRequest)
def not_a_number(talk: Talk) -> None:
    user = [("user", talk.name("user"))]
    change(talk, "bytes", entry(user, (PRODUCE, math.nan)), validate_only=True)
    change(talk, "percent", entry(user, (REQUEST, math.nan)), validate_only=True)


@scenario(AlterClientQuotasRequest)
def what_comes_twice(talk: Talk) -> None:
    user, other = [("user", talk.name("user"))], [("user", talk.name("other"))]
    change(talk, "an entity", entry(user, (PRODUCE, 1.0)), entry(user, (PRODUCE, 2.0)), entry(other, (PRODUCE, 3.0)))
    settle(talk, other, producer_byte_rate=3.0)
    told(talk, "the first", ("user", EXACT, user[0][1]))
    change(talk, "a key", entry(other, (CONSUME, 1.0), (CONSUME, 2.0)))
    change(talk, "a wrong entity", entry([("x", "y")]), entry([("x", "y")]))
    both = [("client-id", "c"), ("user", talk.name("user"))]
    change(talk, "a pair", entry(both), entry(reversed(both)))
    told(talk, "only one", ("user", EXACT, other[0][1]))


@scenario(AlterClientQuotasRequest)
def only_to_validate(talk: Talk) -> None:
    user = [("user", talk.name("user"))]
    change(talk, "right", entry(user, (PRODUCE, 1.0)), validate_only=True)
    change(talk, "wrong", entry(user, (PRODUCE, -1.0)), entry([("user", None)], (CONSUME, 1.0)), validate_only=True)
    told(talk, "nothing", ("user", EXACT, user[0][1]))


@scenario(DescribeClientQuotasRequest, settings=OWN_QUOTAS)
def filters(talk: Talk) -> None:
    run = talk.name("x")
    entities: list[Named] = [
        [("user", run)],
        [("user", None)],
        [("client-id", run)],
        [("client-id", None)],
        [("user", run), ("client-id", run)],
        [("user", run), ("client-id", None)],
        [("user", None), ("client-id", run)],
        [("user", None), ("client-id", None)],
    ]
    addresses: list[Named] = [[("ip", "10.0.0.1")], [("ip", None)]]
    talk.do(
        alter(*(entry(each, (PRODUCE, 5.0)) for each in entities), *(entry(each, (CONNECT, 5.0)) for each in addresses))
    )
    settle(talk, addresses[1], connection_creation_rate=5.0)
    settle(talk, entities[-1], producer_byte_rate=5.0)
    for strict in (False, True):
        told(talk, f"all {strict}", strict=strict)
        for kind, name in (("user", run), ("client-id", run), ("ip", "10.0.0.1")):
            told(talk, f"one {kind} {strict}", (kind, EXACT, name), strict=strict)
            told(talk, f"another {kind} {strict}", (kind, EXACT, "nobody"), strict=strict)
            told(talk, f"default {kind} {strict}", (kind, DEFAULT, None), strict=strict)
            told(talk, f"any {kind} {strict}", (kind, SPECIFIED, None), strict=strict)
        for how, name in ((EXACT, run), (DEFAULT, None), (SPECIFIED, None)):
            told(talk, f"pairs {how} {strict}", ("user", how, name), ("client-id", SPECIFIED, None), strict=strict)
            told(talk, f"pairs of one {how} {strict}", ("client-id", how, name), ("user", EXACT, run), strict=strict)
    removed = [entry(each, (PRODUCE, None)) for each in entities] + [entry(each, (CONNECT, None)) for each in addresses]
    talk.do(alter(*removed))
    talk.until(describe(), lambda answer: not answer.entries)


@scenario(DescribeClientQuotasRequest)
def filters_that_cannot_be(talk: Talk) -> None:
    told(talk, "without a kind", ("", EXACT, "x"))
    told(talk, "unknown kind", ("group", EXACT, "x"))
    told(talk, "a kind twice", ("user", EXACT, "x"), ("user", DEFAULT, None))
    told(talk, "no name", ("user", EXACT, None))
    told(talk, "a default with a name", ("user", DEFAULT, "x"))
    told(talk, "any with a name", ("client-id", SPECIFIED, ""))
    told(talk, "unknown match", ("user", 3, None))
    told(talk, "negative match", ("user", -1, "x"))
    told(talk, "address and user", ("ip", SPECIFIED, None), ("user", SPECIFIED, None))
    told(talk, "address and client", ("client-id", EXACT, "x"), ("ip", EXACT, "10.0.0.1"))
    told(talk, "two mistakes", ("user", EXACT, None), ("group", EXACT, "x"))
