"""Faults of a seed on the wire towards clients: requests that are answered with an error, late, half, or not at all.

Each is a rule of the wire tap for the next requests of one API. It stays in force until it has acted, because most APIs are
asked seldom; a later fault for the same API takes its place.

Only errors are answered that Kafka itself answers there and its clients retry. An answer that clients cannot tell from a success
or that ends them is no fault of the wire, such as a fenced producer. Nothing is given to the broker twice, because Kafka does not.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from ottla.server.testing.wire_tap.rules import Rule
    from ottla.server.testing.wire_tap.wire import Wire

ERROR, LATE, HALF, NEVER, CUT = "error_answer", "late_answer", "half_answer", "no_answer", "cut_answer"
ON_THE_WIRE: Final = (ERROR, LATE, HALF, NEVER, CUT)
TIMES_MAX = 3
SILENCE_FACTOR = 5
"""How many times as long as other faults a connection is silent, in which nothing is answered."""

ALL_ACKS = -1


class _Answer(NamedTuple):
    error: str
    is_applied: bool = False
    """True for an error that tells of records that are in the leader's log."""
    acks: int | None = None
    """For Produce requests with these acks only; None for all."""


def _answers(*errors: str) -> tuple[_Answer, ...]:
    return tuple(map(_Answer, errors))


_OF_COORDINATOR = _answers("COORDINATOR_LOAD_IN_PROGRESS", "NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE")
_OF_TRANSACTION = _answers("COORDINATOR_LOAD_IN_PROGRESS", "NOT_COORDINATOR", "CONCURRENT_TRANSACTIONS")

# Nothing for Metadata: Kafka answers it with errors of single topics, beside the brokers that a client needs.
# Heartbeat: Kafka tells no error while a coordinator loads. OffsetFetch: librdkafka 2.16 asks no more after NOT_COORDINATOR.
ERRORS: Final[dict[str, tuple[_Answer, ...]]] = {
    "Produce": (
        _Answer("NOT_LEADER_OR_FOLLOWER"),
        _Answer("KAFKA_STORAGE_ERROR"),
        _Answer("NOT_ENOUGH_REPLICAS", acks=ALL_ACKS),
        _Answer("NOT_ENOUGH_REPLICAS_AFTER_APPEND", is_applied=True, acks=ALL_ACKS),
        _Answer("REQUEST_TIMED_OUT", is_applied=True, acks=ALL_ACKS),
    ),
    "Fetch": _answers("NOT_LEADER_OR_FOLLOWER", "KAFKA_STORAGE_ERROR"),
    "ListOffsets": _answers("NOT_LEADER_OR_FOLLOWER", "KAFKA_STORAGE_ERROR"),
    "FindCoordinator": _answers("COORDINATOR_NOT_AVAILABLE"),
    "JoinGroup": _OF_COORDINATOR,
    "SyncGroup": (*_OF_COORDINATOR, _Answer("REBALANCE_IN_PROGRESS")),
    "Heartbeat": _answers("REBALANCE_IN_PROGRESS", "NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE"),
    "ConsumerGroupHeartbeat": _OF_COORDINATOR,
    "OffsetCommit": _OF_COORDINATOR,
    "OffsetFetch": _answers("COORDINATOR_LOAD_IN_PROGRESS"),
    "InitProducerId": _answers("COORDINATOR_LOAD_IN_PROGRESS"),
    "AddPartitionsToTxn": _OF_TRANSACTION,
    "AddOffsetsToTxn": _OF_TRANSACTION,
    "TxnOffsetCommit": _OF_COORDINATOR,
    "EndTxn": _OF_TRANSACTION,
}
"""Errors that clients retry, by API."""

_WEIGHTS: Final = {"Produce": 5, "Fetch": 5, "Metadata": 3, "FindCoordinator": 2, "Heartbeat": 2, "OffsetCommit": 2}
"""How often faults of an API are drawn; 1 for those that only some clients ask."""


def _weighted(apis: Iterable[str]) -> tuple[str, ...]:
    return tuple(each for each in apis for _ in range(_WEIGHTS.get(each, 1)))


_APIS_WITH_ERRORS: Final = _weighted(ERRORS)
_APIS: Final = _weighted([*ERRORS, "Metadata"])


class WireFault(NamedTuple):
    """Fault of `times` requests of an API; `choice` is a number by which its details are chosen."""

    kind: str
    api: str
    times: int
    seconds: float
    """How late answers are, or how long a connection is silent."""
    choice: int

    @property
    def _answer(self) -> _Answer:
        known = ERRORS[self.api]
        return known[self.choice % len(known)]

    @property
    def _is_before(self) -> bool:
        """True if the broker does not see a request whose connection is cut, or that is never answered."""
        return self.choice % 2 == 0

    def begin(self, wire: Wire) -> Rule:
        """Put the fault in force."""
        if self.kind == ERROR:
            answer = self._answer
            conditions: dict[str, Any] = {} if answer.acks is None else {"acks": answer.acks}
            return wire.on(self.api, **conditions).fail(answer.error, times=self.times, applied=answer.is_applied)
        maker = wire.on(self.api)
        match self.kind:
            case "late_answer":
                return maker.delay(self.seconds, times=self.times)
            case "half_answer":
                return maker.half(times=self.times)
            case "cut_answer":
                return maker.disconnect(times=self.times, before=self._is_before)
        return maker.drop(times=self.times, applied=not self._is_before, seconds=self.seconds)

    def __str__(self) -> str:
        is_one = self.times == 1
        asked = f"the next {self.api} request is" if is_one else f"the next {self.times} {self.api} requests are"
        its = "its connection is" if is_one else "their connections are"
        match self.kind:
            case "error_answer":
                answer = self._answer
                after = ", although carried out" if answer.is_applied else ""
                return f"{asked} answered {answer.error}{after}"
            case "late_answer":
                return f"{asked} answered {self.seconds:.3f} s late"
            case "half_answer":
                return f"{asked} half answered, and {its} cut"
            case "cut_answer":
                return f"{asked} {'not carried out' if self._is_before else 'carried out'}, and {its} cut"
        return f"{asked} not answered, and {its} cut after {self.seconds:.3f} s"


def drawn(kind: str, draw: int, duration_s: float) -> WireFault:
    """Return the fault of a kind that a number of a seed stands for."""
    apis = _APIS_WITH_ERRORS if kind == ERROR else _APIS
    draw, api = divmod(draw, len(apis))
    choice, times = divmod(draw, TIMES_MAX)
    return WireFault(kind, apis[api], 1 + times, duration_s * (SILENCE_FACTOR if kind == NEVER else 1), choice)


class WireFaults:
    """Faults of one schedule that are in force, at most one for each API."""

    def __init__(self) -> None:
        self._rules: dict[str, Rule] = {}

    def begin(self, wire: Wire, fault: WireFault) -> Rule:
        """Put a fault in force, in place of an earlier one for its API."""
        if (before := self._rules.get(fault.api)) is not None:
            before.remove()
        rule = self._rules[fault.api] = fault.begin(wire)
        return rule

    def end(self) -> None:
        """End all faults. Answers that are late already come late."""
        for rule in self._rules.values():
            rule.remove()
        self._rules.clear()
