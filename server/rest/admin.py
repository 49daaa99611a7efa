"""Questions to a cluster that both versions ask: offsets, settings, committed offsets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ottla.server.cli.client.cluster import LIST_OFFSETS_MAX_VERSION, list_offsets_request
from ottla.server.rest.client.cluster import MOVED, KafkaCluster, Partition, retried
from ottla.server.rest.errors import Code, KafkaFailure, RestError, check
from ottla.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
)

LATEST, EARLIEST = -1, -2
TOPIC, BROKER = 2, 4
"""Kinds of resources that have settings."""

MOVES_S = 5.0


async def describe_configs(
    cluster: KafkaCluster, kind: int, name: str, keys: Sequence[str] | None = None
) -> list[DescribeConfigsResourceResult]:
    """Return the settings of a topic or broker. `keys` None: all settings. Raises RestError."""
    resource = DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=None if keys is None else list(keys)
    )
    request = DescribeConfigsRequest(resources=[resource], include_synonyms=True)

    def take(answer: Any) -> list[DescribeConfigsResourceResult]:
        if len(answer.results) != 1:
            raise RestError(Code.KAFKA, "The broker does not describe what was asked for.")
        [found] = answer.results
        check(found.error_code, found.error_message)
        return sorted(found.configs, key=lambda each: each.name)

    # A broker's own settings are asked of itself.
    if kind == BROKER and name:
        return await cluster.ask(int(name), request, take)
    return await cluster.ask_any(request, take)


async def offsets_at(
    cluster: KafkaCluster, partitions: Sequence[Partition], timestamp: int, *, isolation: int = 0
) -> dict[Partition, int]:
    """Return each partition's offset at `timestamp` (ms, EARLIEST, LATEST). Raises RestError.

    The offset is -1 if all records are older than `timestamp`.
    """
    return await offsets_at_times(cluster, dict.fromkeys(partitions, timestamp), isolation=isolation)


async def offsets_at_times(
    cluster: KafkaCluster, times: Mapping[Partition, int], *, isolation: int = 0
) -> dict[Partition, int]:
    """Return the offset of each partition at its time in `times`: ms, EARLIEST or LATEST. Raises RestError.

    The offset is -1 if all records are older than that time.
    """
    found: dict[Partition, int] = {}

    async def ask() -> None:
        left = [each for each in times if each not in found]
        try:
            for leader, places in (await cluster.leaders(left)).items():
                request = list_offsets_request({each: times[each] for each in places}, isolation)
                await cluster.ask(
                    leader, request, lambda answer: _take(answer, found), at_most=LIST_OFFSETS_MAX_VERSION
                )
        except KafkaFailure:
            for topic in {topic for topic, _ in left}:
                cluster.forget_topic(topic)
            raise

    await retried(ask, MOVED, MOVES_S)
    if missing := times.keys() - found.keys():
        raise RestError(Code.KAFKA, f"The broker does not tell the offset of {min(missing)}.")
    return found


def _take(answer: Any, found: dict[Partition, int]) -> None:
    for topic in answer.topics:
        for each in topic.partitions:
            check(each.error_code)
            found[topic.name, each.partition_index] = each.offset
