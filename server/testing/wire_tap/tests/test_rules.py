"""Each rule does to requests and answers what it says, in the order of the requests, however the bytes are cut."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.server.testing.errors import LabError
from ottla.server.testing.wire_tap.ruled_conversation import RuledConversation
from ottla.server.testing.wire_tap.rules import Rule, RuleMaker
from ottla.server.testing.wire_tap.tests.wire_talk import (
    Clock,
    answer,
    connection,
    fetch,
    fetched,
    framed,
    produce,
    produced,
    request,
)
from ottla.server.testing.wire_tap.wire import Wire
from ottla.wire.messages.classic_group import HeartbeatRequest, HeartbeatResponse
from ottla.wire.messages.fetch import FetchResponse
from ottla.wire.messages.produce import ProduceResponse
from ottla.wire.schema import Message

NOT_LEADER = 6
ORDERS = ("orders", 0)
HEARTBEAT = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
ALIVE = HeartbeatResponse(error_code=0)
AT_ONCE: tuple[int, ...] = ()


class Ruled:
    """A tap with one connection between a client and a broker, whose bytes the test carries."""

    def __init__(self) -> None:
        self.wire = Wire(Clock())
        self.talk = RuledConversation(connection(), self.wire, self.wire.rules)
        self.now = 100.0

    def on(self, api: str | None = None, **conditions: Any) -> RuleMaker:
        return self.wire.on(api, **conditions)

    def hear(self, data: bytes, *cuts: int) -> bytes:
        """Let the client say something; return what reaches the broker."""
        reached = b""
        for piece in pieces(data, cuts):
            self.talk.received(piece, self.now)
            reached += bytes(self.talk.to_broker)
            self.talk.to_broker.clear()
        return reached

    def say(self, data: bytes, *cuts: int) -> bytes:
        """Let the broker say something; return what reaches the client."""
        reached = self.sent()
        for piece in pieces(data, cuts):
            view = memoryview(piece)
            while view:
                passes, count = self.talk.next_piece(view)
                assert count > 0
                if passes:
                    reached += bytes(view[:count])
                    self.talk.said(view, count)
                else:
                    self.talk.take(view[:count], self.now)
                view = view[count:]
                reached += self.sent()
        return reached

    def sent(self) -> bytes:
        """Return what the tap itself sends to the client."""
        sent = bytes(self.talk.to_client)
        self.talk.to_client.clear()
        return sent

    def later(self, seconds: float) -> None:
        self.now += seconds
        self.talk.tick(self.now)


def pieces(data: bytes, cuts: tuple[int, ...]) -> Iterator[bytes]:
    ends = sorted({min(each, len(data)) for each in cuts} | {len(data)})
    for start, end in zip([0, *ends], ends, strict=False):
        if end > start:
            yield data[start:end]


def body(cls: type[Message], version: int, frame: bytes, *, flexible: bool = True) -> Any:
    """Decode an answer with its size field."""
    return cls.decode(frame, version, 9 if flexible else 8)


def errors_of(response: ProduceResponse) -> dict[tuple[str, int], int]:
    return {(topic.name, each.index): each.error_code for topic in response.responses for each in topic.partition_responses}  # fmt: skip


# ---------------------------------------------------------------------- each action


def test_a_failed_request_never_reaches_the_broker() -> None:
    tap = Ruled()
    rule = tap.on("Produce", topic="orders").fail("NOT_LEADER_OR_FOLLOWER", times=2)
    for number in (1, 2):
        assert tap.hear(request(produce(ORDERS), 9, number)) == b""
        assert errors_of(body(ProduceResponse, 9, tap.sent())) == {ORDERS: NOT_LEADER}
    assert (rule.hits, rule.is_done) == (2, True)
    third = request(produce(ORDERS), 9, 3)
    assert tap.hear(third) == third
    told = answer(produced(ORDERS), 9, 3)
    assert tap.say(told) == told and tap.talk.is_idle
    assert [each.errors for each in tap.wire.requests()] == [("NOT_LEADER_OR_FOLLOWER",)] * 2 + [()]
    assert [each.rule for each in tap.wire.requests()] == ["fail NOT_LEADER_OR_FOLLOWER"] * 2 + [""]


def test_only_the_partitions_that_are_meant_fail() -> None:
    tap = Ruled()
    tap.on("Produce", topic="orders", partition=1).fail("NOT_LEADER_OR_FOLLOWER")
    asked = request(produce(("orders", 0), ("orders", 1), ("audit", 1)), 9, 5)
    assert tap.hear(asked) == request(produce(("orders", 0), ("audit", 1)), 9, 5)
    heard = body(ProduceResponse, 9, tap.say(answer(produced(("orders", 0), ("audit", 1)), 9, 5)))
    assert errors_of(heard) == {("orders", 0): 0, ("orders", 1): NOT_LEADER, ("audit", 1): 0}
    assert tap.wire.requests()[0].request == produce(("orders", 0), ("orders", 1), ("audit", 1))


def test_an_applied_request_is_carried_out_and_its_client_hears_an_error() -> None:
    tap = Ruled()
    tap.on("Produce", topic="orders").fail("REQUEST_TIMED_OUT", applied=True)
    asked = request(produce(ORDERS, ("audit", 1)), 9)
    assert tap.hear(asked) == asked
    heard = body(ProduceResponse, 9, tap.say(answer(produced(ORDERS, ("audit", 1)), 9)))
    assert errors_of(heard) == {ORDERS: 7, ("audit", 1): 0}
    tap.on("Heartbeat").fail("UNKNOWN_MEMBER_ID", applied=True)
    assert tap.hear(request(HEARTBEAT, 4)) == request(HEARTBEAT, 4)
    assert tap.say(answer(ALIVE, 4)) == answer(HeartbeatResponse(error_code=25), 4)


def test_a_failed_produce_without_acks_ends_the_connection() -> None:
    for applied in (False, True):
        tap = Ruled()
        tap.on("Produce").fail("NOT_LEADER_OR_FOLLOWER", applied=applied)
        asked = request(produce(ORDERS, acks=0), 9)
        assert tap.hear(asked) == (asked if applied else b"")
        assert tap.talk.is_closing and not tap.talk.to_client


def test_an_answer_made_here_waits_for_those_before_it() -> None:
    tap = Ruled()
    tap.on("Produce", topic="orders").fail("NOT_LEADER_OR_FOLLOWER")
    first, last = request(produce(("audit", 0)), 9, 1), request(HEARTBEAT, 4, 3)
    assert tap.hear(first + request(produce(ORDERS), 9, 2) + last) == first + last
    assert tap.sent() == b""
    one, three = answer(produced(("audit", 0)), 9, 1), answer(ALIVE, 4, 3)
    heard = tap.say(one + three)
    assert heard.startswith(one) and heard.endswith(three)
    assert errors_of(body(ProduceResponse, 9, heard[len(one) :])) == {ORDERS: NOT_LEADER}
    assert [each.is_answered for each in tap.wire.requests()] == [True] * 3


def test_a_late_answer_keeps_those_behind_it() -> None:
    tap = Ruled()
    rule = tap.on("Heartbeat").delay(30)
    asked = request(HEARTBEAT, 4, 1) + request(produce(ORDERS), 9, 2)
    assert tap.hear(asked) == asked
    rule.remove()  # what is late stays late
    told = answer(ALIVE, 4, 1) + answer(produced(ORDERS), 9, 2)
    assert tap.say(told) == b"" and tap.talk.next_due == 130.0
    tap.later(29.9)
    assert tap.sent() == b""
    tap.later(0.1)
    assert tap.sent() == told and tap.talk.is_idle and tap.talk.next_due is None


def test_a_late_request_keeps_those_behind_it() -> None:
    tap = Ruled()
    tap.on("Heartbeat").delay(30, before=True)
    asked = request(HEARTBEAT, 4, 1) + request(produce(ORDERS), 9, 2)
    assert tap.hear(asked) == b"" and tap.talk.next_due == 130.0
    tap.later(30)
    assert bytes(tap.talk.to_broker) == asked


def test_a_late_request_goes_at_once_when_its_client_leaves() -> None:
    tap = Ruled()
    tap.on("Heartbeat").delay(30, before=True)
    assert tap.hear(request(HEARTBEAT, 4)) == b""
    assert tap.talk.end_of_input(tap.now) and bytes(tap.talk.to_broker) == request(HEARTBEAT, 4)
    tap.talk.to_broker.clear()
    assert not tap.talk.end_of_input(tap.now)


def test_half_an_answer_ends_the_connection() -> None:
    tap = Ruled()
    tap.on("Heartbeat").half()
    assert tap.hear(request(HEARTBEAT, 4)) == request(HEARTBEAT, 4)
    told = answer(ALIVE, 4)
    assert tap.say(told) == told[: len(told) // 2] and tap.talk.is_closing
    assert not tap.wire.requests()[0].is_answered


def test_a_request_given_twice_is_answered_by_the_second_answer() -> None:
    tap = Ruled()
    tap.on("Heartbeat").twice()
    asked = request(HEARTBEAT, 4, 1)
    assert tap.hear(asked + request(HEARTBEAT, 4, 2)) == asked + asked + request(HEARTBEAT, 4, 2)
    first, second, other = answer(HeartbeatResponse(error_code=27), 4, 1), answer(ALIVE, 4, 1), answer(ALIVE, 4, 2)
    assert tap.say(first + second + other) == second + other and tap.talk.is_idle
    assert [each.errors for each in tap.wire.requests()] == [(), ()]


def test_a_produce_without_acks_may_be_given_twice() -> None:
    tap = Ruled()
    tap.on("Produce").twice()
    asked = request(produce(ORDERS, acks=0), 9)
    assert tap.hear(asked) == asked + asked and tap.talk.is_idle


@pytest.mark.parametrize("applied", [True, False])
def test_nothing_behind_a_dropped_request_is_answered(applied: bool) -> None:
    tap = Ruled()
    tap.on("Heartbeat").drop(applied=applied)
    before, dropped, behind = request(produce(ORDERS), 9, 1), request(HEARTBEAT, 4, 2), request(HEARTBEAT, 4, 3)
    assert tap.hear(before + dropped + behind) == before + (dropped if applied else b"")
    told = answer(produced(ORDERS), 9, 1)
    assert tap.say(told + (answer(ALIVE, 4, 2) if applied else b"")) == told
    assert [each.is_answered for each in tap.wire.requests()] == [True, False, False]
    assert tap.talk.next_due is None and not tap.talk.is_closing


def test_a_connection_is_closed_before_or_after_the_request_is_applied() -> None:
    tap = Ruled()
    tap.on("Heartbeat").disconnect()
    assert tap.hear(request(HEARTBEAT, 4)) == b"" and tap.talk.is_closing
    tap = Ruled()
    tap.on("Heartbeat").disconnect(before=False)
    assert tap.hear(request(HEARTBEAT, 4)) == request(HEARTBEAT, 4) and not tap.talk.is_closing
    assert tap.say(answer(ALIVE, 4)) == b"" and tap.talk.is_closing


# ---------------------------------------------------------------------- rules among themselves


def test_rules_act_in_order_and_as_often_as_asked() -> None:
    tap = Ruled()
    first = tap.on("Heartbeat").fail("NOT_COORDINATOR", after=1, times=1)
    second = tap.on("Heartbeat").fail("UNKNOWN_MEMBER_ID", times=None)
    codes = []
    for number in range(4):
        tap.hear(request(HEARTBEAT, 4, number))
        codes.append(body(HeartbeatResponse, 4, tap.sent()).error_code)
    assert codes == [25, 16, 25, 25]
    assert (first.hits, first.is_done, second.hits, second.is_done) == (1, True, 3, False)
    with tap.on("Metadata").drop():
        assert len(tap.wire.rules.active) == 2
    second.remove()
    second.remove()
    assert tap.wire.rules.active == ()


def test_a_request_is_decoded_once_for_all_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    tap, decoded = Ruled(), []
    decode = HeartbeatRequest.decode
    monkeypatch.setattr(HeartbeatRequest, "decode", lambda *given: decoded.append(given) or decode(*given))
    rules = [tap.on("Heartbeat", group=f"group-{each}").drop() for each in range(50)]
    asked = request(HEARTBEAT, 4)
    assert tap.hear(asked) == asked
    assert len(decoded) == 1 and not any(each.hits for each in rules)


def test_rules_are_for_clients_unless_they_are_for_brokers() -> None:
    tap = Ruled()
    tap.on("Fetch").disconnect()
    asked = request(fetch(ORDERS), 12, client_id="broker-2-fetcher-0")
    assert tap.hear(asked) == asked
    tap.on("Fetch", of_brokers=True).disconnect()
    assert tap.hear(asked) == b""


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        (lambda on: on("Heartbeat").fail("NOT_COORDINATR"), "did you mean 'NOT_COORDINATOR'?"),
        (lambda on: on("Heartbeat").fail("NONE"), "NONE is no error"),
        (lambda on: on("Heartbeat").fail("NOT_COORDINATOR", times=0), "never acts"),
        (lambda on: on("Heartbeat").drop(after=-1), "after=-1 is no number"),
        (lambda on: on("Heartbeat").delay(-1), "A delay of -1 s is none"),
        (lambda on: on("Heartbeat").delay(float("nan")), "A delay of nan s is none"),
        (lambda on: on("Hartbeat"), "did you mean 'Heartbeat'?"),
        (lambda on: on("Heartbeat", member="m"), "did you mean 'member_id'?"),
        (lambda on: on("Heartbeat", error="NOT_COORDINATOR"), "leave error= and since= out"),
    ],
)
def test_wrong_rules_are_told(wrong: Callable[[Any], Rule], problem: str) -> None:
    tap = Ruled()
    with pytest.raises(LabError) as error:
        wrong(tap.on)
    assert problem in str(error.value) and not tap.wire.rules.active


# ---------------------------------------------------------------------- fetch sessions


def test_fetch_sessions_end_while_a_rule_has_to_know_the_partitions() -> None:
    tap = Ruled()
    rule = tap.on("Fetch", topic="orders").fail("NOT_LEADER_OR_FOLLOWER")
    assert tap.hear(request(fetch(session_id=7, session_epoch=3), 12, 1)) == b""
    assert body(FetchResponse, 12, tap.sent()).error_code == 70
    tap.hear(request(fetch(("audit", 0), session_epoch=0), 12, 2))
    heard = body(FetchResponse, 12, tap.say(answer(fetched(("audit", 0), session_id=8), 12, 2)))
    assert (heard.session_id, heard.error_code, rule.hits) == (0, 0, 0)
    assert tap.hear(request(fetch(ORDERS, session_epoch=0), 12, 3)) == b""
    heard = body(FetchResponse, 12, tap.sent())
    assert [each.error_code for topic in heard.responses for each in topic.partitions] == [NOT_LEADER]
    assert heard.error_code == 0 and rule.is_done
    asked = request(fetch(session_id=9, session_epoch=1), 12, 4)
    assert tap.hear(asked) == asked


# ---------------------------------------------------------------------- any cut, any bytes

cuts = st.lists(st.integers(1, 400), max_size=8).map(tuple)
makers: list[Callable[[RuleMaker], Rule]] = [
    lambda on: on.fail("NOT_LEADER_OR_FOLLOWER", times=None),
    lambda on: on.fail("NOT_LEADER_OR_FOLLOWER", applied=True),
    lambda on: on.delay(0),
    lambda on: on.delay(0, before=True),
    lambda on: on.half(),
    lambda on: on.twice(times=None),
    lambda on: on.drop(),
    lambda on: on.disconnect(after=1),
]


@given(st.sampled_from(makers), st.sampled_from(["Produce", "Heartbeat", None]), cuts, cuts)
def test_no_cut_changes_what_a_rule_does(make: Any, api: str | None, heard: Any, said: Any) -> None:
    outcomes = []
    asked = b"".join(
        (
            request(produce(ORDERS, ("audit", 3)), 9, 1),
            request(produce(ORDERS, acks=0), 9, 2),
            request(HEARTBEAT, 4, 3),
            request(produce(("audit", 4), records=b"r" * 90_000), 9, 4),
        )
    )
    for cut_heard, cut_said in ((AT_ONCE, AT_ONCE), (heard, said)):
        tap = Ruled()
        make(tap.on(api))
        broker = tap.hear(asked, *cut_heard)
        tap.later(0)
        broker += bytes(tap.talk.to_broker)
        told = _answers_to(broker)
        outcomes.append(
            (broker, tap.say(told, *cut_said), tap.talk.is_closing, [each.errors for each in tap.wire.requests()])
        )
    assert outcomes[0] == outcomes[1]


def _answers_to(asked: bytes) -> bytes:
    told = b""
    while asked:
        size, key, correlation_id = int.from_bytes(asked[:4]), asked[5], int.from_bytes(asked[8:12])
        if correlation_id != 2:
            told += answer(produced(ORDERS) if key == 0 else ALIVE, 9 if key == 0 else 4, correlation_id)
        asked = asked[4 + size :]
    return told


@given(st.binary(max_size=100), st.binary(max_size=100), cuts)
def test_bytes_of_strangers_pass_untouched(heard: bytes, said: bytes, where: Any) -> None:
    tap = Ruled()
    tap.on().fail("UNKNOWN_SERVER_ERROR", times=None)
    # Sizes that no frame has, so that nothing waits for more bytes.
    stranger = b"\xff" + heard
    assert tap.hear(stranger + bytes(5), *where)[: len(stranger)] == stranger
    assert tap.say(said, *where) == said
    assert not tap.wire.requests()


def test_answers_that_do_not_fit_pass_untouched_from_there_on() -> None:
    tap = Ruled()
    tap.on("Heartbeat").delay(30)
    tap.hear(request(HEARTBEAT, 4, 1))
    told = answer(ALIVE, 4, 99) + b"anything"
    assert tap.say(told) == told and tap.talk.is_foreign
    assert tap.hear(b"more" + framed(b"x")) == b"more" + framed(b"x")
