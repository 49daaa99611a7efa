"""Which clients are asked for which metrics, and what is refused: as Kafka's ClientMetricsManager does it."""

from __future__ import annotations

import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from ottla.server.admin.telemetry import telemetry
from ottla.server.admin.telemetry.subscriptions import (
    ATTRIBUTE_CHARACTERS_MAX,
    EXPIRY_MIN_MS,
    BadMetrics,
    Client,
    Instances,
    Push,
    Subscription,
    Wanted,
    is_dear,
    subscription_id,
    wanted_of,
)
from ottla.server.admin.telemetry.telemetry import BYTES_MAX, ONE_UUID, FairLock, Telemetry
from ottla.server.api.handlers.api_versions import served_api_versions
from ottla.server.config.client_metrics import ClientMetricsConfig, check_client_metrics
from ottla.server.config.repository import NO_OVERRIDES, ConfigRepository, Overrides
from ottla.server.dispatch.context import RequestContext
from ottla.server.dispatch.dispatch import served_routes
from ottla.server.network.large_requests import check_large
from ottla.server.tests.admin.test_http_health import config_for
from ottla.wire.errors import ErrorCode, KafkaError, ProtocolViolation
from ottla.wire.limits import REQUEST_WITH_LONG_BYTES_MAX
from ottla.wire.messages.telemetry import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
    PushTelemetryRequest,
)
from ottla.wire.schema import ZERO_UUID

KNOWN_ID = bytes(range(15)) + b"\xff"
SOMEBODY = Client("an-id", "apache-kafka-java", "4.4.0", "10.0.0.1", "4711")
LONG = (
    "org.apache.kafka.producer.record.queue.time.",
    "org.apache.kafka.consumer.fetch.latency.",
    "org.apache.kafka.consumer.coordinator.",
    "org.apache.kafka.producer.node.",
)


class Taken:
    """A receiver that reads nothing."""

    def __init__(self) -> None:
        self.pushes: list[Push] = []
        self.may_go_on = trio.Event()
        self.may_go_on.set()

    async def take(self, push: Push) -> None:
        await self.may_go_on.wait()
        if push.data == b"bad":
            raise BadMetrics("it is bad")
        self.pushes.append(push)


class Asked:
    """A client on one connection, at a time that the test sets."""

    def __init__(self, folder: Path) -> None:
        self.configs = ConfigRepository(config_for(folder))
        self.receiver = Taken()
        self.telemetry = Telemetry(self.configs, self.receiver, random.Random(1).randbytes, lambda: 0)
        self.context = self.connection()

    def connection(self, **changed: str) -> RequestContext[Any]:
        who = {"client_host": "/10.0.0.1"} | changed
        return RequestContext(None, client_id="an-id", now_ms=1_000_000, **who)

    def subscribe(self, name: str, **texts: str) -> None:
        named = {key.replace("_", "."): text for key, text in texts.items()}
        check_client_metrics(name, named, self.configs.client_metrics)
        self.configs.put_client_metrics(name, Overrides(named, 0) if named else NO_OVERRIDES)

    async def get(self, instance_id: bytes = ZERO_UUID) -> GetTelemetrySubscriptionsResponse | ErrorCode:
        try:
            answer = self.telemetry.get(GetTelemetrySubscriptionsRequest(client_instance_id=instance_id), self.context)
            return answer if isinstance(answer, GetTelemetrySubscriptionsResponse) else await answer
        except KafkaError as error:
            return error.code

    async def got(self, instance_id: bytes = ZERO_UUID) -> GetTelemetrySubscriptionsResponse:
        answer = await self.get(instance_id)
        assert isinstance(answer, GetTelemetrySubscriptionsResponse), answer
        return answer

    async def push(self, told: GetTelemetrySubscriptionsResponse, **changed: Any) -> ErrorCode:
        """What becomes of a push, as told; `changed` are fields of the request."""
        fields = {
            "client_instance_id": told.client_instance_id,
            "subscription_id": told.subscription_id,
            "terminating": False,
            "compression_type": 0,
            "metrics": b"data",
        }
        try:
            answer = await self.telemetry.push(PushTelemetryRequest(**(fields | changed)), self.context)
        except KafkaError as error:
            return error.code
        return ErrorCode(answer.error_code)

    def pass_time(self, ms: int) -> None:
        self.context.now_ms += ms


@pytest.fixture
def asked(tmp_path: Path) -> Asked:
    return Asked(tmp_path)


# ---------------------------------------------------------------------- subscriptions


@pytest.mark.parametrize(
    ("metrics", "in_order", "expected"),
    [
        ((), (), 297137867),
        (("*",), ("*",), 1235846074),
        (tuple("ponmlkjihgfedcba"), tuple("abcdefghijklmnop"), -421723487),
        (LONG, (LONG[2], LONG[3], LONG[0], LONG[1]), -1161777927),
    ],
)
def test_the_id_of_a_subscription_is_the_one_that_java_computes(
    metrics: tuple[str, ...], in_order: tuple[str, ...], expected: int
) -> None:
    subscription = Subscription("x", ClientMetricsConfig(metrics=metrics, interval_ms=5000))
    wanted = wanted_of([subscription], SOMEBODY, "")
    assert wanted == (in_order, 5000)
    assert subscription_id(wanted, KNOWN_ID) == expected


def test_a_client_is_asked_for_all_that_matching_subscriptions_name() -> None:
    def wanted(*each: tuple[str, int, str]) -> Wanted:
        configs = [
            ClientMetricsConfig(metrics=(name,), interval_ms=ms, match=(match,) if match else ())
            for name, ms, match in each
        ]
        return wanted_of([Subscription("x", config) for config in configs], SOMEBODY, "an-instance")

    assert wanted() == ((), 300_000)
    assert wanted(("a", 700, "client_id=an-.*"), ("b", 900, "client_id=an"), ("c", 800, "")) == (("a", "c"), 700)
    assert wanted(("a", 700, "client_source_port=4711"), ("*", 900, "client_instance_id=an-instance")) == (("*",), 700)
    for name, value in (
        ("client_software_name", "apache.*java"),
        ("client_software_version", "4[.].*"),
        ("client_source_address", "10[.]0[.]0[.]1"),
    ):
        assert wanted(("a", 700, f"{name}={value}")).metrics == ("a",)
        assert wanted(("a", 700, f"{name}={value}x")).metrics == ()
    # A longer interval than the default does not make it longer, as in Kafka.
    assert wanted(("a", 3_600_000, "")).interval_ms == 300_000


def test_all_patterns_of_a_subscription_have_to_match() -> None:
    config = ClientMetricsConfig(metrics=("a",), match=("client_id=an-id", "client_source_port=1"))
    assert wanted_of([Subscription("x", config)], SOMEBODY, "").metrics == ()
    assert wanted_of([Subscription("x", config)], SOMEBODY._replace(source_port="1"), "").metrics == ("a",)


def test_an_attribute_that_is_very_long_is_matched_by_no_pattern() -> None:
    any_id = Subscription("x", ClientMetricsConfig(metrics=("a",), match=("client_id=.*",)))
    longest = "x" * ATTRIBUTE_CHARACTERS_MAX
    assert any_id.matches(SOMEBODY._replace(client_id=longest), "")
    assert not any_id.matches(SOMEBODY._replace(client_id=longest + "x"), "")


def test_patterns_that_another_broker_has_stored_and_re2_does_not_know_match_nobody() -> None:
    strange = Subscription("x", ClientMetricsConfig(metrics=("a",), match=("client_id=(?=a).*",)))
    assert is_dear([strange])  # to compile it
    assert not strange.matches(SOMEBODY, "")
    assert not is_dear([strange])


@given(st.text("()[]|*+?.ab{}0,1\\", max_size=40), st.text("ab", max_size=300))
def test_any_pattern_matches_or_does_not(pattern: str, client_id: str) -> None:
    subscription = Subscription("x", ClientMetricsConfig(metrics=("a",), match=(f"client_id={pattern}",)))
    assert subscription.matches(SOMEBODY._replace(client_id=client_id), "") in (True, False)


# ---------------------------------------------------------------------- the two requests


async def test_a_client_gets_an_id_and_what_it_is_asked_for(asked: Asked) -> None:
    asked.subscribe("s", metrics="org.apache.", interval_ms="1000")
    told = await asked.got()
    assert told.requested_metrics == ["org.apache."]
    assert (told.push_interval_ms, told.telemetry_max_bytes, told.delta_temporality) == (1000, BYTES_MAX, True)
    assert told.accepted_compression_types == [4, 3, 1, 2]
    assert told.client_instance_id not in (ZERO_UUID, ONE_UUID)
    assert told.subscription_id == subscription_id(Wanted(("org.apache.",), 1000), told.client_instance_id)
    assert (await asked.got()).client_instance_id != told.client_instance_id  # a new client each time
    assert (await asked.got(KNOWN_ID)).client_instance_id == KNOWN_ID


async def test_what_is_pushed_goes_to_the_receiver(asked: Asked) -> None:
    asked.subscribe("s", metrics="*", interval_ms="1000")
    told = await asked.got()
    assert await asked.push(told, compression_type=4) == ErrorCode.NONE
    (push,) = asked.receiver.pushes
    assert (push.data, push.compression, push.metrics, push.interval_ms) == (b"data", 4, ("*",), 1000)
    assert push.client == Client("an-id", "unknown", "unknown", "10.0.0.1", "")
    asked.pass_time(1000)
    assert await asked.push(told, metrics=b"") == ErrorCode.NONE
    assert len(asked.receiver.pushes) == 1


async def test_who_comes_too_early_is_told_so(asked: Asked) -> None:
    asked.subscribe("s", metrics="*", interval_ms="1000")
    told = await asked.got()
    assert await asked.get(told.client_instance_id) == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    asked.pass_time(1)
    assert await asked.push(told) == ErrorCode.NONE  # at once after a get
    asked.pass_time(999)
    assert await asked.push(told) == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert await asked.get(told.client_instance_id) == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    asked.pass_time(1)
    assert await asked.push(told) == ErrorCode.NONE
    assert asked.telemetry.throttled == 3


async def test_after_its_last_push_nothing_more_is_taken(asked: Asked) -> None:
    asked.subscribe("s", metrics="*", interval_ms="1000")
    told = await asked.got()
    assert await asked.push(told) == ErrorCode.NONE
    assert await asked.push(told, terminating=True) == ErrorCode.NONE  # before its time
    asked.pass_time(5000)
    assert await asked.push(told, terminating=True) == ErrorCode.INVALID_REQUEST
    # As in Kafka the one that was refused counts.
    assert await asked.push(told) == ErrorCode.INVALID_REQUEST
    assert await asked.push(told) == ErrorCode.NONE


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"client_instance_id": ZERO_UUID}, ErrorCode.INVALID_REQUEST),
        ({"client_instance_id": ONE_UUID}, ErrorCode.INVALID_REQUEST),
        ({"subscription_id": 0}, ErrorCode.UNKNOWN_SUBSCRIPTION_ID),
        ({"subscription_id": 0, "compression_type": 9}, ErrorCode.UNKNOWN_SUBSCRIPTION_ID),
        ({"compression_type": 5}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        ({"compression_type": -1}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        ({"metrics": bytes(BYTES_MAX + 1), "compression_type": 5}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        ({"metrics": bytes(BYTES_MAX + 1)}, ErrorCode.TELEMETRY_TOO_LARGE),
        ({"metrics": b"bad"}, ErrorCode.INVALID_RECORD),
    ],
)
async def test_what_is_wrong_is_refused(asked: Asked, changed: dict[str, Any], code: ErrorCode) -> None:
    asked.subscribe("s", metrics="*", interval_ms="1000")
    told = await asked.got()
    assert await asked.push(told, **changed) == code
    assert asked.receiver.pushes == []
    again = await asked.get(told.client_instance_id)
    # These two the client can put right, and so it may ask before its time.
    may_ask = code in (ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
    assert isinstance(again, GetTelemetrySubscriptionsResponse) == may_ask


async def test_changed_subscriptions_hold_from_the_next_request_on(asked: Asked) -> None:
    asked.subscribe("s", metrics="a", interval_ms="1000")
    told = await asked.got()
    asked.subscribe("t", metrics="b", interval_ms="500")
    assert await asked.push(told) == ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    anew = await asked.got(told.client_instance_id)
    assert (anew.requested_metrics, anew.push_interval_ms) == (["a", "b"], 500)
    assert await asked.push(anew) == ErrorCode.THROTTLING_QUOTA_EXCEEDED  # the refused push counts, as in Kafka
    asked.pass_time(500)
    assert await asked.push(anew) == ErrorCode.NONE
    asked.subscribe("s")
    asked.subscribe("t")
    none = await asked.got(told.client_instance_id)
    assert (none.requested_metrics, none.push_interval_ms) == ([], 300_000)
    # What changes nothing changes nothing.
    asked.configs.put_client_metrics("u", NO_OVERRIDES)
    assert await asked.get(told.client_instance_id) == ErrorCode.THROTTLING_QUOTA_EXCEEDED


async def test_many_dear_patterns_are_matched_in_a_thread(asked: Asked) -> None:
    for number in range(50):
        asked.subscribe(str(number), metrics=f"m{number}", match="client_id=" + "(a|an-|id|x.)*" * 20)
    told = await asked.got()
    assert len(told.requested_metrics) == 50
    assert await asked.push(told) == ErrorCode.NONE


@pytest.mark.parametrize(("limit", "value"), [("WAITING_MAX", 8), ("WAITING_BYTES_MAX", 8 * len(b"data"))])
async def test_only_so_many_pushes_wait_and_nobody_takes_all_places(
    asked: Asked, monkeypatch: pytest.MonkeyPatch, limit: str, value: int
) -> None:
    monkeypatch.setattr(telemetry, limit, value)
    asked.receiver.may_go_on = trio.Event()

    async def pushes(count: int, **who: str) -> int:
        """How many of them wait."""
        asked.context = asked.connection(**who)
        codes: list[ErrorCode] = []

        async def push() -> None:
            codes.append(await asked.push(await asked.got()))

        for _ in range(count):
            nursery.start_soon(push)
            await trio.testing.wait_all_tasks_blocked()
        assert set(codes) <= {ErrorCode.THROTTLING_QUOTA_EXCEEDED}
        return count - len(codes)

    async with trio.open_nursery() as nursery:
        # As many as are free, each time.
        assert await pushes(20) == 4
        assert await pushes(20, principal="User:mallory") == 2
        assert await pushes(1, principal="User:alice", client_host="/10.0.0.2") == 1
        assert await pushes(20, principal="User:mallory", client_host="/10.0.0.3") == 0  # it is the same
        assert asked.telemetry.throttled == 16 + 18 + 20
        asked.receiver.may_go_on.set()
    assert await asked.push(await asked.got()) == ErrorCode.NONE
    assert len(asked.receiver.pushes) == 4 + 2 + 1 + 1


async def test_owners_take_turns_however_much_one_has() -> None:
    turns, done = FairLock(), list[str]()
    may_go_on = trio.Event()

    async def work(owner: str) -> None:
        async with turns.hold(owner):
            await may_go_on.wait()
            done.append(owner)

    async with trio.open_nursery() as nursery:
        for owner in "aaaabbc":
            nursery.start_soon(work, owner)
            await trio.testing.wait_all_tasks_blocked()
        assert len(turns) == 3
        may_go_on.set()
    assert done == list("abcabaa")
    assert len(turns) == 0


async def test_who_gives_up_leaves_no_turn_behind() -> None:
    turns = FairLock()
    async with turns.hold("a"):
        for owner in ("a", "b"):
            with trio.move_on_after(0):
                async with turns.hold(owner):
                    raise AssertionError("it is not its turn")
        assert len(turns) == 1
    assert len(turns) == 0


async def test_of_very_long_names_of_clients_only_the_beginning_is_remembered(asked: Asked) -> None:
    asked.subscribe("short", metrics="a", match="client_id=x+")
    for length, metrics in ((30_000, []), (ATTRIBUTE_CHARACTERS_MAX, ["a"])):
        asked.context.client_id = "x" * length
        told = await asked.got()
        assert told.requested_metrics == metrics
        await asked.push(told)
        assert len(asked.receiver.pushes[-1].client.client_id) <= ATTRIBUTE_CHARACTERS_MAX + 1


@pytest.mark.parametrize("request_class", [GetTelemetrySubscriptionsRequest, PushTelemetryRequest])
def test_neither_request_stands_in_the_line_of_requests_with_long_answers(request_class: Any) -> None:
    assert not served_routes(is_in_cluster=False, has_receiver=True)[request_class.api_key].few_at_once


def test_a_push_that_is_far_too_long_is_not_copied() -> None:
    call: Any = SimpleNamespace(
        route=served_routes(is_in_cluster=False, has_receiver=True)[PushTelemetryRequest.api_key]
    )
    check_large(call, BYTES_MAX + 100_000)
    with pytest.raises(ProtocolViolation):
        check_large(call, REQUEST_WITH_LONG_BYTES_MAX + 1)


async def test_an_instance_ends_with_its_connection(asked: Asked) -> None:
    asked.subscribe("s", metrics="a", interval_ms="1000")
    told = await asked.got()
    assert len(asked.telemetry.instances) == 1
    asked.context.close()
    assert len(asked.telemetry.instances) == 0
    asked.context = asked.connection()
    # It is known again as soon as it pushes, under the same id.
    assert await asked.push(told) == ErrorCode.NONE
    assert len(asked.telemetry.instances) == 1


async def test_an_instance_expires(asked: Asked) -> None:
    asked.subscribe("s", metrics="a", interval_ms="1000")
    told = await asked.got()
    assert await asked.push(told, terminating=True) == ErrorCode.NONE
    asked.pass_time(EXPIRY_MIN_MS)
    assert await asked.push(told) == ErrorCode.NONE
    asked.telemetry.instances.expire(asked.context.now_ms + EXPIRY_MIN_MS - 1)
    assert len(asked.telemetry.instances) == 1
    asked.telemetry.instances.expire(asked.context.now_ms + EXPIRY_MIN_MS)
    assert len(asked.telemetry.instances) == 0


async def test_only_so_many_instances_are_known(asked: Asked) -> None:
    asked.telemetry.instances = Instances(3)

    async def got_elsewhere() -> GetTelemetrySubscriptionsResponse:
        asked.context = asked.connection()
        return await asked.got()

    first = await got_elsewhere()
    others = [await got_elsewhere() for _ in range(2)]
    assert await asked.push(first) == ErrorCode.NONE
    await got_elsewhere()
    # The one that did nothing for longest has gone: it may get at once.
    assert await asked.get(others[1].client_instance_id) == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert isinstance(await asked.get(others[0].client_instance_id), GetTelemetrySubscriptionsResponse)
    assert len(asked.telemetry.instances) == 3


async def test_a_connection_brings_one_instance_at_a_time(asked: Asked) -> None:
    asked.subscribe("s", metrics="a", interval_ms="1000")
    first, second = await asked.got(), await asked.got()
    assert len(asked.telemetry.instances) == 1
    # The first one is found out anew, in the other's place.
    assert await asked.push(first) == await asked.push(second) == ErrorCode.NONE
    assert len(asked.telemetry.instances) == 1
    asked.context.close()
    assert len(asked.telemetry.instances) == 0


@pytest.mark.parametrize("is_in_cluster", [False, True])
def test_the_requests_are_served_only_where_somebody_takes_metrics(is_in_cluster: bool) -> None:
    for has_receiver in (False, True):
        keys = served_routes(is_in_cluster=is_in_cluster, has_receiver=has_receiver).keys()
        told = {each.api_key for each in served_api_versions(is_in_cluster=is_in_cluster, has_receiver=has_receiver)}
        assert {71, 72} & keys == {71, 72} & told == ({71, 72} if has_receiver else set())


async def test_an_instance_is_its_principals_alone(asked: Asked) -> None:
    """Another principal neither pushes as it nor takes its turns; asking with its id gives another id."""
    asked.subscribe("s", metrics="*", interval_ms="1000")
    told = await asked.got()
    owners = asked.context
    asked.context = asked.connection(principal="User:eve")
    assert await asked.push(told) is ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    assert await asked.push(told, terminating=True) is ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    given = await asked.got(told.client_instance_id)
    assert given.client_instance_id not in (told.client_instance_id, ZERO_UUID)
    asked.context.close()
    asked.context = owners
    assert await asked.push(told) is ErrorCode.NONE


async def test_an_id_that_has_expired_is_another_ones_whoever_had_it_before(asked: Asked) -> None:
    asked.subscribe("s", metrics="*", interval_ms="1000")
    told = await asked.got()
    before = asked.context
    asked.context = asked.connection(principal="User:eve")
    asked.context.now_ms = before.now_ms + EXPIRY_MIN_MS
    assert (await asked.got(told.client_instance_id)).client_instance_id == told.client_instance_id
    before.close()
    assert told.client_instance_id in asked.telemetry.instances
    asked.context.close()
    assert len(asked.telemetry.instances) == 0
