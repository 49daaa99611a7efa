"""Logs of new partitions, created before the partitions are written to the coordination tree."""

from __future__ import annotations

import logging
from itertools import islice
from typing import TYPE_CHECKING

import trio

from ottla.replication.replica_manager.loading import HostedPartition

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ottla.replication.controller.topic_planner import TopicPlan
    from ottla.replication.replica_manager.manager import ReplicaManager
    from ottla.server.config.repository import ConfigRepository
    from ottla.wire.errors import KafkaError

logger = logging.getLogger("ottla.administration")


class PreparedLogs:
    """Creator of logs for a lone broker's new topics. It creates them before the topic is in the tree.

    The logs are hidden until this broker leads them.
    """

    def __init__(self, replicas: ReplicaManager, configs: ConfigRepository) -> None:
        self._replicas, self._configs = replicas, configs

    async def make(self, plans: Sequence[TopicPlan]) -> Mapping[str, OSError | KafkaError]:
        """Create logs of new partitions; return the errors by topic. A topic with an error keeps no new logs."""
        # A client that leaves must not leave unknown logs behind.
        with trio.CancelScope(shield=True):
            failures = await self._replicas.prepare_logs([each for plan in plans for each in self._added(plan)])
        for name, failure in islice(failures.items(), 1):  # one line, however many topics a client asked for
            logger.error("logs of %d new topics cannot be made, such as %s: %s", len(failures), name, failure)
        await self.discard([plan for plan in plans if plan.name in failures])
        return failures

    async def discard(self, plans: Sequence[TopicPlan]) -> None:
        """Delete the logs of `plans`, because the plans failed after the logs were created."""
        if not plans:
            return
        with trio.CancelScope(shield=True):
            await self._replicas.discard_prepared([each for plan in plans for each in self._added(plan)])

    def _added(self, plan: TopicPlan) -> list[HostedPartition]:
        """Return the partitions that a plan adds, with their initial settings."""
        if plan.before is None:
            config = self._configs.log_config_with(plan.name, plan.configs or {})
        else:
            config = self._configs.log_config(plan.name)
        topic_id = plan.after.topic_id
        return [
            HostedPartition(plan.name, index, topic_id, config)
            for index in range(plan.first_new, len(plan.after.partitions))
        ]
