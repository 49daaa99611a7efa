"""InitProducerId: fresh ids, and what is refused."""

import itertools
from typing import Any

from compat_tests.differential.asking_records import new_producer, transactional_id
from compat_tests.differential.conversation import Talk, scenario

from ottla.wire.messages.producer_ids import InitProducerIdRequest

INT16_MAX, INT32_MAX, INT64_MAX = 2**15 - 1, 2**31 - 1, 2**63 - 1


def request(transactional_id: str | None = None, timeout_ms: int = 60_000, **known: int) -> InitProducerIdRequest:
    return InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=timeout_ms, **known)


@scenario(InitProducerIdRequest)
def fresh_ids(talk: Talk) -> None:
    new_producer(talk)
    ids = [talk.ask(request()).producer_id for _ in range(3)]
    talk.note("each is one more", [after - before for before, after in itertools.pairwise(ids)])
    for timeout_ms in (0, -1, INT32_MAX):
        talk.ask(request(timeout_ms=timeout_ms), label=f"timeout {timeout_ms}")


@scenario(InitProducerIdRequest)
def known_producers(talk: Talk) -> None:
    """Before version 3 the request cannot name a producer, and these are the plain question."""
    new_producer(talk)
    known: list[dict[str, Any]] = [
        {"producer_id": 5, "producer_epoch": 0},
        {"producer_id": 5, "producer_epoch": INT16_MAX},
        {"producer_id": INT64_MAX, "producer_epoch": 1},
        {"producer_id": 5, "producer_epoch": -1},
        {"producer_id": -1, "producer_epoch": 0},
        {"producer_id": -2, "producer_epoch": -2},
    ]
    for each in known:
        talk.ask(request(**each), label=f"{each['producer_id']} {each['producer_epoch']}")


@scenario(InitProducerIdRequest)
def an_empty_transactional_id(talk: Talk) -> None:
    talk.ask(request(""), label="alone")
    talk.ask(request("", timeout_ms=0), label="without time")
    talk.ask(request("", producer_id=5, producer_epoch=-1), label="with half a producer")


@scenario(InitProducerIdRequest)
def half_a_transactional_producer(talk: Talk) -> None:
    talk.ask(request(talk.name("id"), producer_id=5, producer_epoch=-1), version=max(talk.version, 3), label="no epoch")
    talk.ask(request(talk.name("id"), producer_id=-1, producer_epoch=5), version=max(talk.version, 3), label="no id")


@scenario(InitProducerIdRequest)
def a_transactional_id(talk: Talk) -> None:
    name = transactional_id(talk)
    talk.ask(request(name), label="a new one")
    talk.ask(request(name, timeout_ms=0), label="without time")
    talk.ask(request(name, timeout_ms=INT32_MAX), label="with too much time")
