"""Who owns which partition of a group, as its members see it: never two in one epoch, nor two at a time.

Whom a group has put out may hear of it late, and believe all the while to own what others have been given. So a second owner
is a fault only if the first one was still told later that it is a member: `Disowned.was_member`.
"""

from typing import NamedTuple

from ottla.server.testing.history.group_events import Disowned, Owned
from ottla.server.testing.history.rules import Report, Rule

Place = tuple[str, str, int]
"""A group, a topic and a partition."""


class _Owner(NamedTuple):
    epoch: int
    event: int


class _Doubt(NamedTuple):
    """Suspicion: a member got a partition while another one owned it."""

    at: float
    other: str
    events: tuple[int, int]


class Owners:
    def __init__(self, report: Report) -> None:
        self._report = report
        self._owners: dict[Place, dict[str, _Owner]] = {}
        self._of_epochs: dict[tuple[Place, int], tuple[str, int]] = {}
        self._doubts: dict[tuple[Place, str], list[_Doubt]] = {}

    def owned(self, event: Owned, number: int) -> None:
        place = (event.group, event.topic, event.partition)
        owners = self._owners.setdefault(place, {})
        if event.epoch >= 0:
            first, before = self._of_epochs.setdefault((place, event.epoch), (event.member, number))
            if first != event.member:
                words = f"{event.group}: {first} and {event.member} in epoch {event.epoch}"
                self._report.add(Rule.TWO_OWNERS, place[1:], words, before, number)
                return
        if event.member not in owners:
            for other, owner in owners.items():
                doubt = _Doubt(event.at, event.member, (owner.event, number))
                self._doubts.setdefault((place, other), []).append(doubt)
        owners[event.member] = _Owner(event.epoch, number)

    def disowned(self, event: Disowned, number: int) -> None:
        place = (event.group, event.topic, event.partition)
        self._owners.get(place, {}).pop(event.member, None)
        for doubt in self._doubts.pop((place, event.member), ()):
            if doubt.at < event.was_member:
                words = f"{event.group}: {doubt.other} before {event.member} had given it up"
                self._report.add(Rule.TWO_OWNERS, place[1:], words, *doubt.events, number)
