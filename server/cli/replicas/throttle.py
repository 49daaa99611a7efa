"""Limit of the replication traffic of a reassignment (KIP-73), with the settings that kafka-reassign-partitions.sh uses.

The rates are settings of brokers. Settings of topics name the replicas that are throttled: the present ones as leaders, the added
ones as followers. At the end all these settings get their former values again.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ottla.server.cli.changes import setting_words, undo_command
from ottla.server.cli.client.cluster import by_topic
from ottla.server.cli.client.configs import BROKER, TOPIC, Resource, alter_settings, settings_of
from ottla.server.cli.client.output import ConnectionLost, RequestFailed

if TYPE_CHECKING:
    from ottla.server.cli.client.cluster import Cluster, Partition

RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
LEADERS, FOLLOWERS = "leader.replication.throttled.replicas", "follower.replication.throttled.replicas"


class Throttle:
    """Throttle of the moves from `before` to `after`, each with the replicas of partitions; `rate`: bytes a second."""

    def __init__(
        self,
        cluster: Cluster,
        rate: int,
        before: Mapping[Partition, Sequence[int]],
        after: Mapping[Partition, Sequence[int]],
    ) -> None:
        self._cluster = cluster
        self._wanted = settings_for(rate, before, after)
        self._former: dict[Resource, dict[str, str | None]] = {}

    def set(self) -> None:
        """Set the throttle; if a part fails, what was set is removed again. Raises RequestFailed."""
        try:
            for resource, changes in self._wanted.items():
                former = self._own(resource, changes)
                self._former[resource] = former
                alter_settings(self._cluster, resource, changes, only_checks=False)
        except (RequestFailed, ConnectionLost):
            self.remove()
            raise

    def _own(self, resource: Resource, names: Mapping[str, str]) -> dict[str, str | None]:
        """Return the values that the resource itself has; None for those that it has not."""
        own = {
            each.name: each.value
            for each in settings_of(self._cluster, resource)
            if each.source == resource.own_source and each.value
        }
        return {name: own.get(name) for name in names}

    def remove(self) -> None:
        """Set the settings as they were. Raises RequestFailed."""
        while self._former:
            resource, changes = next(reversed(self._former.items()))
            alter_settings(self._cluster, resource, changes, only_checks=False)
            del self._former[resource]

    def commands(self, options: argparse.Namespace) -> list[str]:
        """Return the commands that remove what is still set."""
        return [
            undo_command(
                options,
                "configs",
                "topic" if resource.kind == TOPIC else "broker",
                *setting_words(changes.items()),
                names=[resource.name],
            )
            for resource, changes in self._former.items()
        ]


def settings_for(
    rate: int, before: Mapping[Partition, Sequence[int]], after: Mapping[Partition, Sequence[int]]
) -> dict[Resource, dict[str, str]]:
    """Return the settings of topics and brokers that throttle the moves: the replicas first, then the rates."""
    found: dict[Resource, dict[str, str]] = {}
    for topic, numbers in by_topic(sorted(after)).items():
        leaders, followers = [], []
        for number in numbers:
            present, planned = before[topic, number], after[topic, number]
            leaders += [f"{number}:{broker}" for broker in present]
            followers += [f"{number}:{broker}" for broker in planned if broker not in present]
        found[Resource(TOPIC, topic)] = {LEADERS: ",".join(leaders), FOLLOWERS: ",".join(followers)}
    brokers = {broker for each in (before, after) for place in after for broker in each[place]}
    found |= {Resource(BROKER, str(each)): dict.fromkeys(RATES, str(rate)) for each in sorted(brokers)}
    return found
