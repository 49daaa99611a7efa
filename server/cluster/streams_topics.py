"""The topics that streams applications need for themselves: created when a member's heartbeat finds them missing.

A heartbeat does not wait for them. The members hear that topics are missing with every heartbeat, until these are there. If
one cannot be created they hear why, and it is tried again after two of their heartbeats.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from ottla.replication.controller.topic_planner import NewTopic
from ottla.server.cluster.administration import Administration
from ottla.server.config.changes import creation_texts
from ottla.wire.errors import KafkaError
from ottla.wire.messages.create_topics import CreatableTopic

FAILURES_KEPT_MAX = 1_000
CREATIONS_MAX = 10_000
"""Topics in creation: any client can send any number of topologies."""


class StreamsTopics:
    def __init__(self, administration: Administration, clock_ms: Callable[[], int]) -> None:
        self._administration, self._clock_ms = administration, clock_ms
        self._in_creation: set[str] = set()
        self._failures: dict[str, tuple[str, int]] = {}  # why, and until when it is told

    def create(self, topics: Sequence[CreatableTopic], *, pause_ms: int) -> dict[str, str]:
        """Request the creation of missing topics; return recent errors by topic.

        After an error, a topic is not requested again for `pause_ms` ms.
        """
        failures = self._failures_of(topics)
        note_outcome = partial(self._note_outcome, pause_ms)
        new = []
        for topic in topics:
            if topic.name in failures or topic.name in self._in_creation or len(self._in_creation) >= CREATIONS_MAX:
                continue
            self._in_creation.add(topic.name)
            try:
                new.append(_new_topic(topic))
            except KafkaError as error:
                note_outcome(topic.name, error)
        if new:
            self._administration.request_topics(new, note_outcome)
        return failures

    def _failures_of(self, topics: Sequence[CreatableTopic]) -> dict[str, str]:
        now_ms = self._clock_ms()
        found = {}
        for topic in topics:
            message, until_ms = self._failures.get(topic.name, ("", now_ms))
            if until_ms > now_ms:
                found[topic.name] = message
        return found

    def _note_outcome(self, pause_ms: int, name: str, error: KafkaError | None) -> None:
        self._in_creation.discard(name)
        self._failures.pop(name, None)
        if error is None:
            return
        if len(self._failures) >= FAILURES_KEPT_MAX:
            # The oldest one goes.
            del self._failures[next(iter(self._failures))]
        self._failures[name] = (error.message or error.code.message, self._clock_ms() + pause_ms)


def _new_topic(topic: CreatableTopic) -> NewTopic:
    return NewTopic(
        name=topic.name,
        partition_count=topic.num_partitions,
        replication_factor=topic.replication_factor,
        configs=creation_texts((each.name, each.value) for each in topic.configs),
    )
