"""The coordinators of this broker, by the internal topic that each of them lives in."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from types import MappingProxyType
from typing import Protocol

logger = logging.getLogger("ottla.broker")


class Coordinator(Protocol):
    """Coordinator that lives in the partitions of an internal topic."""

    def on_election(self, partition: int) -> None:
        """Load a partition that this broker leads from now on."""

    def on_resignation(self, partition: int) -> None:
        """Unload a partition that this broker does not lead any more."""

    async def on_topics_deleted(self, topics: Mapping[str, bytes]) -> None:
        """Forget deleted topics: name -> topic id."""


class Coordinators:
    """Registry of the coordinators. It ignores partitions of other topics."""

    def __init__(
        self,
        coordinators: Mapping[str, Callable[[], Coordinator]],
        code: Mapping[str, Sequence[str]] = MappingProxyType({}),
    ) -> None:
        """`coordinators`: how to have each, by its topic. It is asked for when this broker first leads a partition of that.

        `code`: the modules that are loaded for each then, unless somebody has had them loaded before.
        """
        self._coordinators = coordinators
        self._code = code
        self._loaded: set[str] = (
            set()
        )  # modules; noted here, because Python knows those already that a thread is still loading
        self._needed: dict[str, Coordinator] = {}
        self._led: dict[str, set[int]] = {topic: set() for topic in coordinators}

    def not_loaded(self, topics: Iterable[str]) -> Sequence[str]:
        """The modules that coordinators of these topics lack: `load_code` is to be called, before one is needed."""
        return [each for topic in topics for each in self._code.get(topic, ()) if each not in self._loaded]

    def load_code(self, modules: Iterable[str]) -> None:
        """Import modules. Call it in a thread, because it takes longer than others should wait."""
        with suppress(ImportError, OSError):  # it is tried again when it is needed
            for each in modules:
                import_module(each)
                self._loaded.add(each)

    def on_election(self, topic: str, partition: int) -> None:
        """Load a partition that this broker leads from now on."""
        if topic not in self._led:
            return
        self._led[topic].add(partition)
        if topic in self._needed:
            self._needed[topic].on_election(partition)
            return
        try:
            self.take_up(topic, self._coordinators[topic]())
        except (ImportError, OSError):  # its code cannot be read now, as when too many files are open
            logger.exception("%s has no coordinator before a request asks for it", topic)

    def take_up(self, topic: str, coordinator: Coordinator) -> None:
        """Register a new coordinator, and tell it of all partitions that are led."""
        if topic not in self._needed:
            self._needed[topic] = coordinator
            for partition in sorted(self._led[topic]):
                coordinator.on_election(partition)

    def on_resignation(self, topic: str, partition: int) -> None:
        """Unload a partition that this broker does not lead any more."""
        self._led.get(topic, set()).discard(partition)
        if (coordinator := self._needed.get(topic)) is not None:
            coordinator.on_resignation(partition)

    async def on_topics_deleted(self, topics: Mapping[str, bytes]) -> None:
        """Forget deleted topics: name -> topic id."""
        for coordinator in tuple(self._needed.values()):
            await coordinator.on_topics_deleted(topics)
