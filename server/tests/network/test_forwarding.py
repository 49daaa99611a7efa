"""Requests for the controller at any broker: what hands them on while the controller moves, and what takes them there."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
import trio
import trio.testing
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ottla.replication.cluster.metadata_cache import NO_CONTROLLER
from ottla.replication.cluster.peers import PeerUnavailable
from ottla.server.api.handlers import envelope as envelope_handler
from ottla.server.api.handlers.envelope import envelope
from ottla.server.cluster import forwarding
from ottla.server.cluster.controller_channel import MOVE_GRACE_S
from ottla.server.cluster.forwarding import ForwardingManager
from ottla.server.dispatch.access import AclOperation, ResourceType
from ottla.server.dispatch.context import THIS_BROKER, RequestContext
from ottla.server.dispatch.dispatch import Route, all_routes
from ottla.server.network.calls import Call
from ottla.server.network.large_requests import LARGE_FRAME_BYTES, check_large
from ottla.server.network.listener_context import Complaints
from ottla.server.network.throttling import Throttling
from ottla.server.security.quotas.client_quotas import ClientQuotas
from ottla.server.tests.clustered import Cluster, MemberBroker, clustered
from ottla.server.tests.rights import guard
from ottla.wire.answers import EncodedAnswer
from ottla.wire.errors import ErrorCode, KafkaError, ProtocolViolation
from ottla.wire.headers import RequestHeader, encode_request_header, request_header_version
from ottla.wire.messages.cluster import UpdateFeaturesRequest
from ottla.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from ottla.wire.messages.delete_topics import DeleteTopicsRequest
from ottla.wire.messages.envelope import (
    EnvelopeRequest,
    EnvelopeResponse,
    ForwardedPrincipalData,
    decode_principal,
    encode_principal,
)
from ottla.wire.messages.metadata import MetadataRequest
from ottla.wire.messages.partition_reassignments import ListPartitionReassignmentsRequest
from ottla.wire.schema import Message
from ottla.wire.tests.effort import examples

FORWARDED = [route for route in all_routes().values() if route.forwarded]
VERSIONS = [(route, version) for route in FORWARDED for version in range(route.versions.first, route.versions.last + 1)]
ALICE = ForwardedPrincipalData(type="User", name="alice", token_authenticated=False)
Answer = Callable[[EnvelopeRequest], Awaitable[Any]]


def create(*names: str, timeout_ms: int = 30_000) -> CreateTopicsRequest:
    topics = [
        CreatableTopic(name=name, num_partitions=2, replication_factor=1, assignments=[], configs=[]) for name in names
    ]
    return CreateTopicsRequest(topics=topics, timeout_ms=timeout_ms)


def route_of(request: Message) -> Route:
    return all_routes()[request.api_key]


def wrapped(
    request: Message,
    version: int,
    *,
    client_id: str = "c",
    principal: bytes | None = encode_principal(ALICE),
    host: bytes = b"\x7f\0\0\1",
) -> EnvelopeRequest:
    header = RequestHeader(request.api_key, version, 7, client_id)
    data = encode_request_header(header, request_header_version(type(request), version)) + request.encode(version)
    return EnvelopeRequest(request_data=data, request_principal=principal, client_host_address=host)


def unwrapped(answer: EnvelopeResponse, request: Message, version: int) -> Any:
    assert (answer.error_code, answer.response_data is None) == (ErrorCode.NONE, False)
    assert answer.response_data is not None and answer.response_data[:4] == bytes([0, 0, 0, 7])
    response_class = route_of(request).response_class
    is_flexible = version in response_class.flexible
    return response_class.decode(answer.response_data, version, start=5 if is_flexible else 4)


class OverTheWire:
    """A way to whichever member is the controller, which gets what was encoded and decoded."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.asked = 0

    async def ask(self, controller_id: int, request: Any, version: int, *, timeout_s: float) -> Any:
        self.asked += 1
        sent = EnvelopeRequest.decode(request.encode(version), version)
        try:
            return await envelope(sent, cast(Any, self._cluster[controller_id].context(version)))
        except KafkaError as error:
            return EnvelopeResponse(error_code=error.code)

    async def aclose(self) -> None: ...


class FakeElection:
    def __init__(self, controller_id: int = 1) -> None:
        self.active: Any = None
        self.controller_id = controller_id
        self.takes_envelopes = True
        self.moved = trio.Event()

    def move(self, controller_id: int, active: Any = None) -> None:
        self.controller_id, self.active = controller_id, active
        self.moved.set()
        self.moved = trio.Event()


class Scripted:
    """Ways that answer one after the other as it is said; what they were asked is in `asked`."""

    def __init__(self, *answers: Answer) -> None:
        self.answers: Iterator[Answer] = iter(answers)
        self.asked: list[tuple[int, Any]] = []
        self.made = self.closed = 0

    def make(self) -> Scripted:
        self.made += 1
        return self

    async def ask(self, controller_id: int, request: Any, version: int, *, timeout_s: float) -> Any:
        route = all_routes()[int.from_bytes(request.request_data[:2])]
        sent = route.request_class.decode(request.request_data, 7, start=11 + 1)  # with client id "c"
        self.asked.append((controller_id, sent))
        return await next(self.answers)(request)

    async def aclose(self) -> None:
        self.closed += 1


async def not_there(request: EnvelopeRequest) -> Any:
    await trio.lowlevel.checkpoint()
    raise PeerUnavailable("gone")


async def not_controller(request: EnvelopeRequest) -> Any:
    await trio.lowlevel.checkpoint()
    return EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER)


async def hangs(request: EnvelopeRequest) -> Any:
    await trio.sleep_forever()


def answers_with(response: Message, version: int = 7) -> Answer:
    async def answer(request: EnvelopeRequest) -> EnvelopeResponse:
        await trio.lowlevel.checkpoint()
        head = bytes(5 if version in type(response).flexible else 4)
        return EnvelopeResponse(response_data=head + response.encode(version), error_code=0)

    return answer


MADE = CreateTopicsResponse(throttle_time_ms=40, topics=[])


async def manager(election: FakeElection, ways: Scripted) -> ForwardingManager:
    made = ForwardingManager(election, ways.make, lambda: 30_000)
    # Here, because a clock that jumps does not wait for threads.
    await made._exchanges.get(CreateTopicsRequest, 7)
    return made


async def forwarded(made: ForwardingManager, request: Any = None, **client: Any) -> Any:
    """What is answered to a client of a broker that is not the controller, unless the election says otherwise."""

    async def handler(request: Any, context: RequestContext) -> Any:
        await trio.lowlevel.checkpoint()
        return MADE if made._election.active is not None else "refused"

    context: RequestContext = RequestContext(
        cast(Any, None), api_version=7, **{"client_id": "c", "client_host": "/1.2.3.4"} | client
    )
    answer: Any = made.answer(handler, request or create("t"), context)
    return await answer


# ---------------------------------------------------------------------- at the controller


@pytest.mark.parametrize(
    ("route", "version"), VERSIONS, ids=lambda each: each.name if isinstance(each, Route) else str(each)
)
async def test_any_broker_answers_as_the_controller_does(route: Route, version: int, tmp_path: Path) -> None:
    async with clustered(tmp_path) as cluster:
        cluster.controller.answers |= {"reassign": {("t", 0): None}, "reassignments": {}, "elect_leaders": {}}
        request: Any = route.request_class.zero()
        if isinstance(request, CreateTopicsRequest):
            request = create("t")
            request.validate_only = True
        call = Call(route, version)
        election = FakeElection()
        way = OverTheWire(cluster)
        manager = ForwardingManager(election, lambda: way, lambda: 30_000)
        cluster[2].forwarding = manager
        context: RequestContext = RequestContext(cast(Any, cluster[2]), api_version=version, client_host="/::1")
        elsewhere: Any = await cast(Any, route.handler(request, context))
        cluster[1]._ids = itertools.count(2)  # the same ids of topics
        here = await cluster[1].answer(request, version)
        assert isinstance(elsewhere, EncodedAnswer)
        assert route.response_class.decode(elsewhere.body, version) == route.response_class.decode(
            b"".join(call.encoded(here)), version
        )
        assert way.asked == 1
        assert call.starts_with_throttle_time, "the first broker reads it there"
        assert not route.few_at_once, "of which two that wait for the controller would keep all others waiting"


async def test_topics_come_and_go_by_way_of_any_broker(tmp_path: Path) -> None:
    async with clustered(tmp_path) as cluster:
        way = OverTheWire(cluster)
        cluster[3].forwarding = ForwardingManager(FakeElection(), lambda: way, lambda: 30_000)
        context: RequestContext = RequestContext(cast(Any, cluster[3]), api_version=6, client_host="/127.0.0.1")
        await cast(Any, route_of(create()).handler(create("t"), context))
        assert set(cluster[2].cluster.topics) == {"t"}
        deletion = DeleteTopicsRequest(topics=[], topic_names=[], timeout_ms=30_000)
        context.api_version, deletion.topic_names = 5, ["t"]
        await cast(Any, route_of(deletion).handler(deletion, context))
        assert set(cluster[2].cluster.topics) == set()


async def test_the_controller_asks_for_the_rights_of_the_client_and_of_the_broker(tmp_path: Path) -> None:
    async with clustered(tmp_path) as cluster:
        controller = cluster[1]
        rights = guard(controller)
        with pytest.raises(KafkaError) as refusal:
            await envelope(wrapped(create("t"), 7), cast(Any, controller.context(0)))
        assert refusal.value.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        seen: list[tuple[str, str]] = []

        def allows(principal: str, host: str, operation: AclOperation, *_: Any) -> bool:
            if operation is not AclOperation.CLUSTER_ACTION:
                seen.append((principal, host))
            return operation is AclOperation.CLUSTER_ACTION

        rights.allows = allows  # type: ignore[assignment]
        answer = await envelope(wrapped(create("t"), 7, host=bytes(15) + b"\1"), cast(Any, controller.context(0)))
        assert [each.error_code for each in unwrapped(answer, create(), 7).topics] == [
            ErrorCode.TOPIC_AUTHORIZATION_FAILED
        ]
        assert set(seen) == {("User:alice", "/::1")}


async def test_the_controller_charges_the_client_and_the_first_broker_passes_the_pause_on(tmp_path: Path) -> None:
    async with clustered(tmp_path) as cluster:
        controller = cluster[1]
        controller.quotas.take("users/alice", {"controller_mutation_rate": "1"})
        way = OverTheWire(cluster)
        manager = ForwardingManager(FakeElection(), lambda: way, lambda: 30_000)
        cluster[2].forwarding = manager
        context: RequestContext = RequestContext(
            cast(Any, cluster[2]), api_version=7, client_id="c", client_host="/127.0.0.1", principal="User:alice"
        )
        quotas = ClientQuotas()
        quotas.take("users/alice", {"controller_mutation_rate": "1"})
        codes, pauses = [], []
        for number in range(8):
            throttling = Throttling(quotas)
            call = Call(route_of(create()), 7)
            charge = throttling.begin(call, context, 100)
            answer = await cast(Any, route_of(create()).handler(create(f"t{number}"), context))
            told = throttling.settle(call, answer, charge)
            response = CreateTopicsResponse.decode(told.body, 7)
            codes.append(response.topics[0].error_code)
            pauses.append(response.throttle_time_ms)
            assert throttling.is_muted == (response.throttle_time_ms > 0)
        first = codes.index(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        assert set(codes[first:]) == {ErrorCode.THROTTLING_QUOTA_EXCEEDED} and set(codes[:first]) == {ErrorCode.NONE}
        assert not any(pauses[:first]) and all(pauses[first:])
        # Two partitions a topic, of which twelve may come at once: charged once, and nothing on the first broker.
        assert first == 6
        assert quotas.mutations.try_to_record("alice", "c", 1, 0) == 0


async def test_the_clients_listener_and_token_come_along(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with clustered(tmp_path) as cluster:
        seen: list[RequestContext] = []

        async def answered(call: Call, data: bytes, start: int, client: RequestContext) -> Any:
            await trio.lowlevel.checkpoint()
            seen.append(client)
            return call.response_class.zero()

        monkeypatch.setattr(envelope_handler, "_answered", answered)
        way = OverTheWire(cluster)
        manager = ForwardingManager(FakeElection(), lambda: way, lambda: 30_000)
        context: RequestContext = RequestContext(
            cast(Any, None),
            api_version=7,
            client_id="größer" * 10_000,
            client_host="/fe80::1%eth0",
            principal="User:CN=a:b",
            listener_name="OUTSIDE",
            security_protocol="SASL_SSL",
        )
        context.is_token_authenticated = True
        await cast(Any, manager.answer(cast(Any, None), create("t"), context))
        (client,) = seen
        assert (client.principal, client.client_host) == ("User:CN=a:b", "/fe80::1")
        assert (client.listener_name, client.security_protocol) == ("OUTSIDE", "SASL_SSL")
        assert client.is_token_authenticated and client.is_forwarded
        assert client.client_id == ("größer" * 10_000)[: len(client.client_id)] and len(client.client_id) > 20_000
        # Kafka's own brokers say nothing of listeners.
        kafkas = wrapped(create("t"), 7, principal=bytes(2) + b"\x05User\x06alice\0\0")
        await envelope(kafkas, cast(Any, cluster[1].context(0)))
        assert (seen[1].listener_name, seen[1].principal) == ("PLAINTEXT", "User:alice")


async def test_what_is_no_clients_request_for_the_controller_is_refused(tmp_path: Path) -> None:
    async with clustered(tmp_path) as cluster:
        good = wrapped(create("t"), 7)
        data = good.request_data
        cases = {
            ErrorCode.INVALID_REQUEST: [
                wrapped(good, 0),
                wrapped(MetadataRequest(topics=None), 12),
                wrapped(create("t"), 7, host=b""),
                wrapped(create("t"), 7, host=bytes(5)),
            ],
            ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE: [
                wrapped(create("t"), 7, principal=each)
                for each in (None, b"", b"\0", bytes(2), b"\0\1" + encode_principal(ALICE)[2:])
            ],
            ErrorCode.UNSUPPORTED_VERSION: [
                EnvelopeRequest(
                    request_data=each, request_principal=encode_principal(ALICE), client_host_address=bytes(4)
                )
                for each in (
                    b"",
                    data[:3],
                    data[:9],
                    data[:-1],
                    b"\x03\xe7" + data[2:],
                    data[:3] + b"\x63" + data[4:],
                    data[:8] + b"\x7f" + data[9:],
                )
            ],
        }
        for code, requests in cases.items():
            for request in requests:
                with pytest.raises(KafkaError) as refusal:
                    await envelope(request, cast(Any, cluster[1].context(0)))
                assert refusal.value.code is code
        with pytest.raises(KafkaError) as refusal:
            await envelope(good, cast(Any, cluster[2].context(0)))
        assert refusal.value.code is ErrorCode.NOT_CONTROLLER
        assert not cluster[2].cluster.topics


async def test_a_controller_that_resigns_meanwhile_says_so_for_the_whole(tmp_path: Path) -> None:
    async with clustered(tmp_path) as cluster:
        cluster.controller.epoch_version += 1  # another one was elected
        with pytest.raises(KafkaError) as refusal:
            await envelope(wrapped(create("t"), 7), cast(Any, cluster[1].context(0)))
        assert refusal.value.code is ErrorCode.NOT_CONTROLLER
        cluster.controller.answers["reassignments"] = KafkaError(ErrorCode.NOT_CONTROLLER)
        with pytest.raises(KafkaError) as refusal:
            await envelope(wrapped(ListPartitionReassignmentsRequest(topics=None), 0), cast(Any, cluster[1].context(0)))
        assert refusal.value.code is ErrorCode.NOT_CONTROLLER


async def test_a_bug_is_an_answer_and_no_end_of_the_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with clustered(tmp_path) as cluster:

        async def fails(*_: Any, **__: Any) -> Any:
            raise ZeroDivisionError

        monkeypatch.setattr(cluster[1].administration, "create_topics", fails)
        context = cluster[1].context(0)
        context._complaints = Complaints("INSIDE")
        for _ in range(2):
            with pytest.raises(KafkaError) as refusal:
                await envelope(wrapped(create("t"), 7), cast(Any, context))
            assert refusal.value.code is ErrorCode.UNKNOWN_SERVER_ERROR
        (line,) = [record for record in caplog.records if record.levelno == logging.ERROR]
        assert line.getMessage() == "bug: no answer to a request of 127.0.0.1 (client id 'c')"
        assert line.exc_info is not None and line.exc_info[0] is ZeroDivisionError


async def test_errors_for_the_whole_request_are_in_the_clients_answer(tmp_path: Path) -> None:
    async with clustered(tmp_path) as cluster:
        guard(cluster[1], (AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER, "kafka-cluster"))
        request = UpdateFeaturesRequest(feature_updates=[])
        answer = unwrapped(await envelope(wrapped(request, 1), cast(Any, cluster[1].context(0))), request, 1)
        assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


async def test_a_large_request_and_its_answer_go_by_way_of_threads(tmp_path: Path) -> None:
    async with clustered(tmp_path) as cluster:
        request = create(*[f"{number:06}" + "x" * 40 for number in range(2_000)])
        request.validate_only = True
        sent = wrapped(request, 7)
        assert len(sent.request_data) > LARGE_FRAME_BYTES
        answer = unwrapped(await envelope(sent, cast(Any, cluster[1].context(0))), request, 7)
        assert len(answer.topics) == 2_000 and {each.error_code for each in answer.topics} == {0}
        too_long = EnvelopeRequest(
            request_data=sent.request_data + bytes(1 << 20),
            request_principal=encode_principal(ALICE),
            client_host_address=bytes(4),
        )
        with pytest.raises(KafkaError) as refusal:
            await envelope(too_long, cast(Any, cluster[1].context(0)))
        assert refusal.value.code is ErrorCode.UNSUPPORTED_VERSION


def test_a_very_large_envelope_is_refused_before_it_is_read() -> None:
    with pytest.raises(ProtocolViolation, match="Envelope"):
        check_large(cast(Any, Call(all_routes()[EnvelopeRequest.api_key], 0)), 5 << 20)


MUTATED = wrapped(create("t", "u"), 7).request_data


@given(
    data=st.lists(
        st.binary(max_size=80)
        | st.builds(
            lambda key, rest: key.to_bytes(2) + rest,
            st.sampled_from([r.api_key for r in FORWARDED]),
            st.binary(max_size=60),
        )
        | st.builds(
            lambda at, put: MUTATED[:at] + put + MUTATED[at + len(put) :],
            st.integers(0, len(MUTATED)),
            st.binary(max_size=3),
        ),
        min_size=20,
        max_size=40,
    ),
    principal=st.none() | st.binary(max_size=20),
    host=st.binary(max_size=17),
)
@settings(
    max_examples=examples(15),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_any_bytes_in_an_envelope_are_answered_or_refused(
    data: list[bytes], principal: bytes | None, host: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    async def ask() -> None:
        async with clustered(tmp_path_factory.mktemp("cluster")) as cluster:
            cluster.controller.answers |= {"reassign": {}, "reassignments": {}, "elect_leaders": {}}
            for number, each in enumerate(data):
                is_whole = number % 4 != 0
                request = EnvelopeRequest(
                    request_data=each,
                    request_principal=encode_principal(ALICE) if is_whole else principal,
                    client_host_address=bytes(4) if is_whole else host,
                )
                with trio.fail_after(60):
                    try:
                        await envelope(request, cast(Any, cluster[1].context(0)))
                    except KafkaError as error:
                        assert error.code in (
                            ErrorCode.INVALID_REQUEST,
                            ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE,
                            ErrorCode.UNSUPPORTED_VERSION,
                        )

    trio.run(ask)


@given(st.binary(max_size=60))
def test_any_bytes_are_a_principal_or_refused(blob: bytes) -> None:
    try:
        found = decode_principal(blob)
    except ProtocolViolation:
        return
    assert decode_principal(encode_principal(found)) == found


# ---------------------------------------------------------------------- at the first broker


async def test_it_is_tried_again_while_the_controller_moves(autojump_clock: trio.testing.MockClock) -> None:
    election, ways = FakeElection(), Scripted(not_there, not_controller, answers_with(MADE))
    answer = await forwarded(await manager(election, ways))
    assert CreateTopicsResponse.decode(answer.body, 7) == MADE
    assert [controller_id for controller_id, _ in ways.asked] == [1, 1, 1]
    times = [sent.timeout_ms for _, sent in ways.asked]
    assert times[0] == 30_000 and times == sorted(times, reverse=True) and 29_000 < times[2] < 30_000
    assert ways.made == 1, "the connection is used again"


async def test_a_large_request_does_not_wait_for_a_controller() -> None:
    """It keeps memory from others meanwhile."""
    large = create(*[f"{number:06}" + "x" * 40 for number in range(2_000)])
    ways = Scripted(not_there)
    for controller_id in (NO_CONTROLLER, 1):
        assert await forwarded(await manager(FakeElection(controller_id), ways), large) == "refused"
    assert len(ways.asked) == 1


@pytest.mark.parametrize("timeout_ms", [0, -1, 700])
async def test_after_its_time_a_request_is_refused_as_by_any_other_broker(
    timeout_ms: int, autojump_clock: trio.testing.MockClock
) -> None:
    ways = Scripted(*[not_controller] * 100)
    began = trio.current_time()
    assert await forwarded(await manager(FakeElection(), ways), create("t", timeout_ms=timeout_ms)) == "refused"
    assert trio.current_time() - began == pytest.approx(max(timeout_ms, 0) / 1000)
    assert (len(ways.asked) == 1) == (timeout_ms <= 0)


async def test_no_client_keeps_a_place_for_as_long_as_it_likes(autojump_clock: trio.testing.MockClock) -> None:
    longest, ever = forwarding.TIMEOUT_MAX_MS, (1 << 31) - 1
    ways, began = Scripted(hangs), trio.current_time()
    assert await forwarded(await manager(FakeElection(), ways), create("t", timeout_ms=ever)) == "refused"
    assert [sent.timeout_ms for _, sent in ways.asked] == [longest]
    assert trio.current_time() - began == pytest.approx(longest / 1000 + forwarding.GRACE_S)
    began = trio.current_time()
    assert (
        await forwarded(await manager(FakeElection(NO_CONTROLLER), Scripted()), create("t", timeout_ms=ever))
        == "refused"
    )
    assert trio.current_time() - began == pytest.approx(longest / 1000)


async def test_the_time_that_a_request_waits_for_a_place_is_its_own(autojump_clock: trio.testing.MockClock) -> None:
    """Otherwise the controller would answer when nobody waits any more."""

    async def takes_long(request: EnvelopeRequest) -> Any:
        await trio.sleep(20)
        return await answers_with(MADE)(request)

    most = forwarding.IN_FLIGHT_OF_ADDRESS_MAX
    ways = Scripted(*[takes_long] * most, answers_with(MADE))
    made = await manager(FakeElection(), ways)
    async with trio.open_nursery() as nursery:
        for _ in range(most + 1):
            nursery.start_soon(forwarded, made, create("t"))
    assert [sent.timeout_ms for _, sent in ways.asked] == [30_000] * most + [10_000]


async def test_without_a_controller_it_waits_for_one(autojump_clock: trio.testing.MockClock) -> None:
    election, ways = FakeElection(NO_CONTROLLER), Scripted(answers_with(MADE))
    made = await manager(election, ways)
    assert await forwarded(made, create("t", timeout_ms=500)) == "refused"
    async with trio.open_nursery() as nursery:
        nursery.start_soon(forwarded, made)
        await trio.testing.wait_all_tasks_blocked()
        election.move(NO_CONTROLLER)
        await trio.testing.wait_all_tasks_blocked()
        assert ways.asked == []
        election.move(3)
    assert [controller_id for controller_id, _ in ways.asked] == [3]


async def test_a_controller_that_hangs_is_given_up_when_another_one_is_elected(
    autojump_clock: trio.testing.MockClock,
) -> None:
    election, ways = FakeElection(), Scripted(hangs, answers_with(MADE))
    made = await manager(election, ways)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(forwarded, made)
        await trio.testing.wait_all_tasks_blocked()
        election.move(1)
        await trio.testing.wait_all_tasks_blocked()
        assert len(ways.asked) == 1
        election.move(2)
    assert [controller_id for controller_id, _ in ways.asked] == [1, 2]


async def test_the_last_answers_of_a_controller_that_was_replaced_count(autojump_clock: trio.testing.MockClock) -> None:
    async def late(request: EnvelopeRequest) -> Any:
        election.move(2)
        await trio.sleep(MOVE_GRACE_S / 2)
        return await answers_with(MADE)(request)

    election, ways = FakeElection(), Scripted(late)
    answer = await forwarded(await manager(election, ways))
    assert CreateTopicsResponse.decode(answer.body, 7) == MADE


async def test_a_controller_that_never_answers_is_waited_for_a_little_longer_than_the_request_says(
    autojump_clock: trio.testing.MockClock,
) -> None:
    ways, began = Scripted(hangs), trio.current_time()
    assert await forwarded(await manager(FakeElection(), ways), create("t", timeout_ms=1000)) == "refused"
    assert trio.current_time() - began == pytest.approx(1 + forwarding.GRACE_S)


async def test_a_broker_that_becomes_the_controller_meanwhile_answers_itself(
    autojump_clock: trio.testing.MockClock,
) -> None:
    election = FakeElection()

    async def moves_here(request: EnvelopeRequest) -> Any:
        election.move(2, active=object())
        return await not_controller(request)

    assert await forwarded(await manager(election, Scripted(moves_here))) is MADE


async def test_the_controller_takes_as_long_as_its_own_clients_say() -> None:
    election, request = FakeElection(), create("t", timeout_ms=2 * forwarding.TIMEOUT_MAX_MS)
    election.move(2, active=object())
    assert await forwarded(await manager(election, Scripted()), request) is MADE
    assert request.timeout_ms == 2 * forwarding.TIMEOUT_MAX_MS


async def test_a_controller_of_kafka_is_asked_nothing() -> None:
    election, ways = FakeElection(), Scripted()
    election.takes_envelopes = False
    assert await forwarded(await manager(election, ways)) == "refused"


async def test_when_a_controller_of_kafka_takes_over_nobody_waits(autojump_clock: trio.testing.MockClock) -> None:
    election = FakeElection()

    async def kafka_takes_over(request: EnvelopeRequest) -> Any:
        election.takes_envelopes = False
        election.move(2)
        return await not_controller(request)

    began = trio.current_time()
    assert await forwarded(await manager(election, Scripted(kafka_takes_over))) == "refused"
    assert trio.current_time() == began


async def test_what_this_broker_asks_itself_goes_nowhere() -> None:
    assert await forwarded(await manager(FakeElection(), Scripted()), principal=THIS_BROKER) == "refused"


@pytest.mark.parametrize("data", [None, b"", b"\0\0\0"])
async def test_an_answer_that_cannot_be_read_is_a_refusal(data: bytes | None, caplog: pytest.LogCaptureFixture) -> None:
    async def answer(request: EnvelopeRequest) -> EnvelopeResponse:
        await trio.lowlevel.checkpoint()
        return EnvelopeResponse(response_data=data, error_code=0)

    assert await forwarded(await manager(FakeElection(), Scripted(answer))) == "refused"
    assert "too few for a response header" in caplog.text


async def test_a_request_that_meets_a_bug_is_not_tried_again() -> None:
    async def fails(request: EnvelopeRequest) -> Any:
        await trio.lowlevel.checkpoint()
        return EnvelopeResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR)

    with pytest.raises(KafkaError) as refusal:
        await forwarded(await manager(FakeElection(), Scripted(fails)))
    assert refusal.value.code is ErrorCode.UNKNOWN_SERVER_ERROR


async def test_a_refusal_is_logged_and_not_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    async def refuses(request: EnvelopeRequest) -> Any:
        await trio.lowlevel.checkpoint()
        return EnvelopeResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)

    made = await manager(FakeElection(), Scripted(refuses, refuses))
    assert [await forwarded(made) for _ in range(2)] == ["refused"] * 2
    (line,) = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert "CLUSTER_AUTHORIZATION_FAILED" in line.getMessage()


async def test_a_principal_that_no_string_holds_is_a_refusal(caplog: pytest.LogCaptureFixture) -> None:
    ways = Scripted()
    assert await forwarded(await manager(FakeElection(), ways), principal="User:" + "ß" * 20_000) == "refused"
    assert ways.asked == [] and "principal is too long: User:ß" in caplog.text


async def test_the_requests_of_one_address_leave_room_for_others(autojump_clock: trio.testing.MockClock) -> None:
    most = forwarding.IN_FLIGHT_OF_ADDRESS_MAX
    ways = Scripted(*[hangs] * most, answers_with(MADE), *[not_there] * 1000)
    made = await manager(FakeElection(), ways)
    async with trio.open_nursery() as nursery:
        for _ in range(most + 5):
            nursery.start_soon(forwarded, made, create("t"))
        await trio.testing.wait_all_tasks_blocked()
        assert len(ways.asked) == most
        answer = await forwarded(made, client_host="/5.6.7.8")
        assert CreateTopicsResponse.decode(answer.body, 7) == MADE
        nursery.cancel_scope.cancel()
    assert made._of_address == {}
    assert ways.made - ways.closed == forwarding.IDLE_CHANNELS_MAX, "a rush leaves few connections"


@pytest.mark.parametrize("member", [1, 2])
async def test_between_brokers_a_request_is_handed_on_once(member: int, tmp_path: Path) -> None:
    """Two brokers that take each other for the controller do not hand it to and fro."""
    async with clustered(tmp_path) as cluster:
        broker: MemberBroker = cluster[member]
        cluster[1].controller = None
        broker.controller = cluster.controller
        way = OverTheWire(cluster)
        broker.forwarding = ForwardingManager(FakeElection(3), lambda: way, lambda: 30_000)
        answer = unwrapped(await envelope(wrapped(create("t"), 7), cast(Any, broker.context(0))), create(), 7)
        assert [each.error_code for each in answer.topics] == [0]
        assert way.asked == 0
