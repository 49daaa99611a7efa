"""Who is the primary, and what the others do with writes."""

import json
import socket
from collections.abc import Iterator
from typing import Any, cast

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from ottla.server.admin.http.routes import Request, Response
from ottla.server.registry import election as election_module
from ottla.server.registry.election import (
    DUPLICATE_URLS,
    Assignment,
    Election,
    Identity,
    elect,
    parse_assignment,
    parse_identity,
)
from ottla.server.registry.errors import ApiError, Code
from ottla.server.registry.forwarding import Others
from ottla.server.registry.topic import SchemasTopic
from ottla.server.tests.registry.registry import MemoryRegistry, record


def told(*identities: Identity) -> dict[str, bytes]:
    return {f"member-{index}": json.dumps(each.json()).encode() for index, each in enumerate(identities)}


A, B, C = (Identity(name, 8081) for name in "abc")


def test_what_is_told_is_what_other_registries_tell() -> None:
    assert A.json() == {
        "version": 1,
        "host": "a",
        "port": 8081,
        "master_eligibility": True,
        "scheme": "http",
        "leader": False,
    }
    assert parse_identity(A.json()) == A
    assert parse_identity({"version": 1, "host": "a", "port": 8081, "master_eligibility": True}) == A
    assignment = json.loads(Assignment("m", A).encoded())
    assert assignment == {"version": 1, "error": 0, "master": "m", "master_identity": A.json()}
    assert parse_assignment(json.dumps(assignment).encode()) == Assignment("m", A)


def test_the_lowest_address_is_elected() -> None:
    assert elect(told(C, A, B)) == Assignment("member-1", A)


def test_who_is_primary_already_stays_it() -> None:
    primary = Identity("b", 8081, is_primary=True)
    assert elect(told(C, A, primary)) == Assignment("member-2", primary)
    # Two that were cut off from each other are told apart by their addresses.
    assert elect(told(C, Identity("c", 8081, is_primary=True), primary)).member_id == "member-2"


def test_who_is_not_eligible_is_never_elected() -> None:
    never = Identity("a", 8081, is_eligible=False)
    assert elect(told(never, B)).member_id == "member-1"
    assert elect(told(never)) == Assignment(None, None)
    assert parse_assignment(elect(told(never)).encoded()) == Assignment(None, None)


def test_two_instances_of_one_address_are_told_of() -> None:
    assert elect(told(A, A)).error == DUPLICATE_URLS


@given(
    st.binary(max_size=60)
    | st.recursive(st.none() | st.text(max_size=3) | st.integers(), st.lists, max_leaves=4).map(
        lambda value: json.dumps({"master_identity": value, "host": value, "port": value}).encode()
    )
)
def test_what_members_say_may_be_anything(data: bytes) -> None:
    assert parse_assignment(data).primary is None
    assert elect({"m": data, **told(B)}).primary == B


class Unsure:
    def __init__(self) -> None:
        self.times = 0

    def become_unsure(self) -> None:
        self.times += 1


def election() -> tuple[Election, Unsure]:
    topic = Unsure()
    return Election(cast(Any, None), "group", A, cast(SchemasTopic, topic)), topic


async def test_a_new_primary_reads_what_others_have_written_first(autojump_clock: trio.abc.Clock) -> None:
    state, topic = election()
    assert not state.is_primary
    state.told(Assignment("m", B))
    assert not state.is_primary and topic.times == 0
    state.told(None)
    state.told(Assignment("m", A))
    await state.settled()
    assert state.is_primary and state.identity.is_primary and topic.times == 1
    state.told(None)
    assert not state.is_primary
    state.told(Assignment("m", A))
    assert topic.times == 2


async def test_a_write_without_a_primary_is_refused_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(election_module, "KNOWN_S", 0.01)
    state, _ = election()
    registry = MemoryRegistry(Others(state))
    assert await registry.register("s", record("a")) == (50004, "Leader not known.")


async def test_a_write_waits_for_a_primary(autojump_clock: trio.abc.Clock) -> None:
    state, _ = election()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(state.settled)
        await trio.sleep(5)
        state.told(Assignment("m", A))
    assert trio.current_time() < election_module.KNOWN_S and state.is_primary


class OtherPrimary:
    """Others of an instance that is not the primary."""

    is_primary = False

    def __init__(self) -> None:
        self.forwarded: list[Request] = []

    async def settled(self) -> None:
        await trio.lowlevel.checkpoint()

    async def forward(self, request: Request) -> Response:
        await trio.lowlevel.checkpoint()
        self.forwarded.append(request)
        return Response(b'{"id": 77}')


async def test_writes_are_handed_on_and_questions_are_not() -> None:
    others = OtherPrimary()
    registry = MemoryRegistry(others)
    assert await registry.register("a%2Fb", record("a")) == 77
    for method, target in (
        ("DELETE", "/subjects/s?permanent=true"),
        ("DELETE", "/subjects/s/versions/1"),
        ("PUT", "/config"),
        ("DELETE", "/config/s"),
        ("PUT", "/mode/s"),
        ("DELETE", "/contexts/.c"),
    ):
        assert await registry.ask(method, target, {}) == {"id": 77}
    assert len(others.forwarded) == 7
    assert others.forwarded[0].raw_path == "/subjects/a%2Fb/versions"
    assert await registry.ask("GET", "/subjects") == []
    assert not registry.topic.records


async def test_a_known_schema_needs_no_primary() -> None:
    registry = MemoryRegistry()
    await registry.register("s", record("a"))
    registry.api._others = others = OtherPrimary()
    assert await registry.register("s", record("a")) == 1
    assert not others.forwarded


async def test_a_request_is_handed_on_once() -> None:
    state, _ = election()
    state.told(Assignment("m", B))
    request = Request(method="POST", path="/x", headers={"x-forward": "true"})
    with pytest.raises(ApiError) as refused:
        await Others(state).forward(request)
    assert refused.value.code == Code.UNKNOWN_LEADER


@pytest.fixture
def port_of_nobody() -> Iterator[int]:
    """Port on which nobody listens, and that nobody else is given meanwhile."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


async def test_a_write_that_a_gone_primary_cannot_take_waits_for_the_next_one(port_of_nobody: int) -> None:
    state, _ = election()
    state.told(Assignment("m", Identity("127.0.0.1", port_of_nobody)))
    registry = MemoryRegistry(Others(state))
    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def take_over() -> None:
            await trio.testing.wait_all_tasks_blocked(0.05)
            state.told(None)
            state.told(Assignment("m", A))

        assert await registry.register("s", record("a")) == 1


async def test_a_primary_that_does_not_answer_is_told_of(monkeypatch: pytest.MonkeyPatch, port_of_nobody: int) -> None:
    monkeypatch.setattr(election_module, "KNOWN_S", 0.01)
    state, _ = election()
    state.told(Assignment("m", Identity("127.0.0.1", port_of_nobody)))
    registry = MemoryRegistry(Others(state))
    code, message = await registry.register("s", record("a"))
    assert code == 50003 and f"http://127.0.0.1:{port_of_nobody}" in message


async def test_a_primary_that_was_stopped_for_longer_than_its_session_writes_nothing(
    autojump_clock: trio.abc.Clock,
) -> None:
    state, _ = election()
    state.told(Assignment("m", A))
    await trio.sleep(9)
    assert state.is_primary
    state.confirmed()
    await trio.sleep(9)
    assert state.is_primary
    await trio.sleep(2)
    assert not state.is_primary
    with pytest.raises(ApiError) as refused:
        await Others(state).forward(Request(method="POST", path="/x"))
    assert refused.value.code == Code.UNKNOWN_LEADER
    state.confirmed()
    assert state.is_primary
