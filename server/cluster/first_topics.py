"""Topics that a start creates, as KAFKA_CREATE_TOPICS names them for containers."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import trio

from ottla.replication.controller.topic_planner import NewTopic
from ottla.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.server.cluster.administration import Administration
    from ottla.server.config.environment import FirstTopic

logger = logging.getLogger("ottla.administration")

RETRY_S = 1.0
TOO_FEW_BROKERS = ErrorCode.INVALID_REPLICATION_FACTOR


async def create_first_topics(
    administration: Administration, topics: Sequence[FirstTopic], *, patience_s: float = 0.0
) -> None:
    """Create those of `topics` that are missing; log those that cannot be created.

    `patience_s`: how long to try again while there are too few brokers, or none is the controller.
    """
    deadline = trio.current_time() + patience_s
    # Of two topics of one name the first counts.
    wanted = {each.name: each for each in reversed(topics)}
    while missing := [each for name, each in wanted.items() if name not in administration.planner.cluster.topics]:
        refused = await _refusals(administration, [_new_topic(each) for each in missing])
        early = {name for name, error in refused.items() if error.code is TOO_FEW_BROKERS or error.code.retriable}
        if not early or trio.current_time() >= deadline:
            early = set()
        for name, error in refused.items():
            if name not in early:
                reason = error.message or error.code.name
                logger.warning("Topic %s of KAFKA_CREATE_TOPICS cannot be created: %s", name, reason)
        wanted = {name: each for name, each in wanted.items() if name in early}
        if wanted:
            await trio.sleep(RETRY_S)


async def _refusals(administration: Administration, topics: Sequence[NewTopic]) -> Mapping[str, KafkaError]:
    """Create topics; return the errors of those that do not exist afterwards."""
    outcomes: dict[str, KafkaError | None] = {}
    is_done = trio.Event()

    def take(name: str, error: KafkaError | None) -> None:
        outcomes[name] = error
        if len(outcomes) == len(topics):
            is_done.set()

    administration.request_topics(topics, take)
    await is_done.wait()
    return {
        name: error
        for name, error in outcomes.items()
        if error is not None and error.code is not ErrorCode.TOPIC_ALREADY_EXISTS
    }


def _new_topic(topic: FirstTopic) -> NewTopic:
    return NewTopic(
        name=topic.name,
        partition_count=topic.partitions,
        replication_factor=topic.replicas,
        configs={"cleanup.policy": topic.cleanup_policy} if topic.cleanup_policy else {},
    )
