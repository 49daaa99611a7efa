"""Operations of the control port on the wire tap: seen requests, and rules that change answers."""

from __future__ import annotations

from typing import Any

from ottla.server.testing.errors import LabError
from ottla.server.testing.kafka import Kafka
from ottla.server.testing.wire_tap.json_lines import described

REQUESTS_SHOWN = 100
ACTIONS = ("fail", "delay", "half", "twice", "drop", "disconnect")


def wire_requests(
    kafka: Kafka,
    api: str | None = None,
    client_id: str | None = None,
    topic: str | None = None,
    partition: int | None = None,
    group: str | None = None,
    error: str | None = None,
    last: int = REQUESTS_SHOWN,
) -> Any:
    """Return the last requests of clients that meet all conditions, with their answers."""
    found = kafka.wire.requests(api, client_id=client_id, topic=topic, partition=partition, group=group, error=error)
    return [described(each) for each in found[-last:] if last > 0]


def wire_rules(kafka: Kafka) -> Any:
    """Return the rules in force, with the number of requests on which each has acted."""
    rules = kafka.wire.rules.active
    return [
        {"on": str(each.wanted), "action": str(each.action), "hits": each.hits, "times": each.times} for each in rules
    ]


def add_wire_rule(
    kafka: Kafka,
    action: str,
    api: str | None = None,
    error: str | None = None,
    seconds: float | None = None,
    client_id: str | None = None,
    topic: str | None = None,
    partition: int | None = None,
    group: str | None = None,
    times: int | None = 1,
    after: int = 0,
    applied: bool = False,
    before: bool | None = None,
) -> Any:
    """Make a rule for requests. `action`: fail, delay, half, twice, drop or disconnect. `times`: null for all requests."""
    on = kafka.on(api, client_id=client_id, topic=topic, partition=partition, group=group)
    if action == "fail":
        if error is None:
            raise LabError("The action fail needs an error, such as NOT_LEADER_OR_FOLLOWER.")
        on.fail(error, times=times, after=after, applied=applied)
    elif action == "delay":
        if seconds is None:
            raise LabError("The action delay needs seconds.")
        on.delay(seconds, times=times, after=after, before=bool(before))
    elif action == "half":
        on.half(times=times, after=after)
    elif action == "twice":
        on.twice(times=times, after=after)
    elif action == "drop":
        on.drop(times=times, after=after, applied=applied)
    elif action == "disconnect":
        on.disconnect(times=times, after=after, before=before is not False)
    else:
        raise LabError(f"There is no action {action!r}; the actions are {', '.join(ACTIONS)}.")
    return wire_rules(kafka)


def clear_wire_rules(kafka: Kafka) -> Any:
    """Remove all rules. Answers that they hold back already still come late."""
    kafka.wire.rules.clear()
    return wire_rules(kafka)
