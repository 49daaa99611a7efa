"""Coordinators whose code cannot be loaded at once."""

from collections.abc import Mapping

from ottla.server.coordinators.coordinators import Coordinators


class Recorded:
    def __init__(self) -> None:
        self.led: list[int] = []

    def on_election(self, partition: int) -> None:
        self.led.append(partition)

    def on_resignation(self, partition: int) -> None:
        self.led.remove(partition)

    async def on_topics_deleted(self, topics: Mapping[str, bytes]) -> None:
        """Nothing is kept here."""


def test_a_coordinator_that_could_not_be_loaded_leads_once_it_is_made() -> None:
    def fail() -> Recorded:
        raise ImportError("too many open files")

    coordinators = Coordinators({"state": fail})
    for partition in (0, 1, 2):
        coordinators.on_election("state", partition)
    coordinators.on_resignation("state", 1)
    made = Recorded()
    coordinators.take_up("state", made)
    assert made.led == [0, 2]
    coordinators.on_election("state", 3)
    coordinators.on_resignation("state", 0)
    assert made.led == [2, 3]
