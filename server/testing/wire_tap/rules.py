"""Rules that change what clients and brokers hear: fail, delay, half, twice, drop, disconnect.

    rule = wire.on("Produce", topic="orders").fail("NOT_LEADER_OR_FOLLOWER", times=3)
    ...
    assert rule.hits == 3

Of the rules that mean a request the first one acts that has times left; a rule of N times is removed after its last. In a `with`
statement a rule is removed at the end.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

from ottla.server.testing.errors import LabError
from ottla.server.testing.wire_tap.filters import Filter
from ottla.server.testing.wire_tap.kafka_names import FETCH_KEY, error_of
from ottla.server.testing.wire_tap.wire_request import WireRequest
from ottla.wire.errors import ErrorCode


@dataclass(frozen=True)
class Fail:
    """Answer with an error; `applied`: the broker carries the request out all the same."""

    error: ErrorCode
    applied: bool

    def __str__(self) -> str:
        return f"fail {self.error.name}{' after it was applied' if self.applied else ''}"


@dataclass(frozen=True)
class Delay:
    """Hold the answer back by the broker's clock, or with `before` the request."""

    seconds: float
    before: bool

    def __str__(self) -> str:
        return f"delay {'request' if self.before else 'answer'} by {self.seconds:g} s"


@dataclass(frozen=True)
class Half:
    """Send half of the answer, then close the connection."""

    def __str__(self) -> str:
        return "half an answer"


@dataclass(frozen=True)
class Twice:
    """Give the request to the broker twice; the client hears the second answer."""

    def __str__(self) -> str:
        return "request given twice"


@dataclass(frozen=True)
class Drop:
    """Never answer this request, nor any later one of the connection; `applied`: the broker carries this one out.

    `seconds`: of the broker's clock until the connection is closed; None: it is left to the client.
    """

    applied: bool
    seconds: float | None

    def __str__(self) -> str:
        return f"answer dropped{' after it was applied' if self.applied else ''}"


@dataclass(frozen=True)
class Disconnect:
    """Close the connection in place of the answer; `before`: the broker never sees the request."""

    before: bool

    def __str__(self) -> str:
        return f"disconnected {'before' if self.before else 'after'} it was applied"


Action = Fail | Delay | Half | Twice | Drop | Disconnect


class Rule:
    """A rule for requests, in force until it has acted `times` times or is removed. `hits`: how often it has acted."""

    def __init__(
        self, wanted: Filter, action: Action, *, times: int | None, after: int, remove: Callable[[Rule], None]
    ) -> None:
        if times is not None and times < 1:
            raise LabError(f"A rule for {times} requests never acts; give times=1 or more, or None for all.")
        if after < 0:
            raise LabError(f"after={after} is no number of requests; give 0 or more.")
        self.wanted, self.action, self.times = wanted, action, times
        self.hits = 0
        """Number of requests on which the rule has acted."""
        self._left_alone = after
        self._remove = remove

    @property
    def is_done(self) -> bool:
        """True if the rule has acted `times` times."""
        return self.times is not None and self.hits >= self.times

    def remove(self) -> None:
        """End the rule. Answers that it already holds back still come late. A second call does nothing."""
        self._remove(self)

    def acts_on(self, request: WireRequest) -> bool:
        """Decide whether to act on a request, and count it."""
        if self.is_done or not self.wanted.matches(request):
            return False
        if self._left_alone:
            self._left_alone -= 1
            return False
        self.hits += 1
        if self.is_done:
            self.remove()
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self.remove()

    def __repr__(self) -> str:
        times = "" if self.times is None else f" of {self.times}"
        return f"<on {self.wanted}: {self.action}; {self.hits}{times} hits>"


class Rules:
    """Rules in force, in order. Any thread may add and remove; connections look in their own."""

    __slots__ = ("_lock", "active")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.active: tuple[Rule, ...] = ()

    def add(self, wanted: Filter, action: Action, *, times: int | None, after: int) -> Rule:
        """Put a new rule behind the others."""
        rule = Rule(wanted, action, times=times, after=after, remove=self._remove)
        with self._lock:
            self.active = (*self.active, rule)
        return rule

    def _remove(self, rule: Rule) -> None:
        with self._lock:
            self.active = tuple(each for each in self.active if each is not rule)

    def clear(self) -> None:
        """Remove all rules."""
        with self._lock:
            self.active = ()

    def concern(self, api_key: int) -> bool:
        """True if a rule may mean requests of this API."""
        return any(each.wanted.api_key in (None, api_key) for each in self.active)

    def acting_on(self, request: WireRequest) -> Rule | None:
        """Return the first rule that acts on a request, and count this; None if none does."""
        with request.decoded_once():
            for rule in self.active:
                if rule.wanted.of_brokers == request.is_of_broker and rule.acts_on(request):
                    return rule
        return None

    def name_partitions_of_fetches(self, *, is_of_broker: bool) -> bool:
        """True if a rule has to know the partitions of each Fetch, which a fetch session names only once."""
        return any(
            each.wanted.api_key == FETCH_KEY
            and each.wanted.of_brokers == is_of_broker
            and (each.wanted.has_places or isinstance(each.action, Fail))
            for each in self.active
        )


class RuleMaker:
    """Maker of rules for the requests that `kafka.on` selects; each method makes a rule.

    `times`: number of requests on which the rule acts; None for all. `after`: number of requests to pass before the first.
    """

    def __init__(self, rules: Rules, wanted: Filter) -> None:
        self._rules, self._wanted = rules, wanted

    def fail(self, error: str, *, times: int | None = 1, after: int = 0, applied: bool = False) -> Rule:
        """Answer with an error, given by Kafka's name. The broker does not see the request, unless `applied`.

        If `kafka.on` names a topic or partition, only its partitions fail and the broker serves the others, where Kafka's
        answer has an error for each partition; else the whole request fails. A Produce with acks=0 has no answer, so its
        connection is closed. Fetch sessions end, so that each Fetch names its partitions.
        """
        return self._add(Fail(_checked_error(error), applied), times, after)

    def delay(self, seconds: float, *, times: int | None = 1, after: int = 0, before: bool = False) -> Rule:
        """Send the answer `seconds` after its request, by the brokers' clock; `before`: hold the request itself back.

        Later requests and answers of the connection wait, too. If the client disconnects, the broker gets a held request.
        """
        if not seconds >= 0:
            raise LabError(f"A delay of {seconds} s is none; give 0 or more.")
        return self._add(Delay(seconds, before), times, after)

    def half(self, *, times: int | None = 1, after: int = 0) -> Rule:
        """Send half of the answer's bytes, and close the connection. The broker carries the request out."""
        return self._add(Half(), times, after)

    def twice(self, *, times: int | None = 1, after: int = 0) -> Rule:
        """Give the request to the broker twice, as after a lost answer and a retry; the client gets the second answer."""
        return self._add(Twice(), times, after)

    def drop(
        self, *, times: int | None = 1, after: int = 0, applied: bool = False, seconds: float | None = None
    ) -> Rule:
        """Never answer. The broker does not see the request, unless `applied`.

        Kafka answers in order, so later requests of the connection are not carried out either: the client has to reconnect,
        or the connection is closed after `seconds` of the brokers' clock.
        """
        if seconds is not None and not seconds >= 0:
            raise LabError(f"A silence of {seconds} s is none; give 0 or more, or None for one without end.")
        return self._add(Drop(applied, seconds), times, after)

    def disconnect(self, *, times: int | None = 1, after: int = 0, before: bool = True) -> Rule:
        """Close the connection: before the broker sees the request, or, with `before=False`, instead of the answer."""
        return self._add(Disconnect(before), times, after)

    def _add(self, action: Action, times: int | None, after: int) -> Rule:
        return self._rules.add(self._wanted, action, times=times, after=after)


def _checked_error(name: Any) -> ErrorCode:
    error = error_of(name)
    if error is ErrorCode.NONE:
        raise LabError("NONE is no error; name one, such as NOT_LEADER_OR_FOLLOWER.")
    return error
