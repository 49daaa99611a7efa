"""The coordinators of this broker, by the internal topic that each of them lives in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol


class Coordinator(Protocol):
    """What lives in the partitions of an internal topic."""

    def on_election(self, partition: int) -> None:
        """This broker leads a partition from now on."""

    def on_resignation(self, partition: int) -> None:
        """This broker does not lead a partition any more."""

    async def on_topics_deleted(self, topics: Mapping[str, bytes]) -> None:
        """Topics are gone: name -> topic id."""


class Coordinators:
    """See the module's docstring. What happens to partitions of other topics is nothing to them."""

    def __init__(self, coordinators: Mapping[str, Coordinator]) -> None:
        self._coordinators = coordinators

    def on_election(self, topic: str, partition: int) -> None:
        """This broker leads a partition from now on."""
        if (coordinator := self._coordinators.get(topic)) is not None:
            coordinator.on_election(partition)

    def on_resignation(self, topic: str, partition: int) -> None:
        """This broker does not lead a partition any more."""
        if (coordinator := self._coordinators.get(topic)) is not None:
            coordinator.on_resignation(partition)

    async def on_topics_deleted(self, topics: Mapping[str, bytes]) -> None:
        """Topics are gone: name -> topic id."""
        for coordinator in self._coordinators.values():
            await coordinator.on_topics_deleted(topics)
