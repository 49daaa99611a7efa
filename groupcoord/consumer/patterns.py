"""Resolution of the regular expressions of a consumer group to topics. Members' heartbeats set it off.

All patterns of a group are resolved together, in a thread, at most once in ten seconds: when one is new, when the topics of
the cluster have changed, and now and then anyhow. The matched topics are written, so that they survive the broker. They
include no topic that the member whose request sets this off may not describe, as in Kafka.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from functools import partial
from typing import NamedTuple

from ottla.groupcoord.consumer import records
from ottla.groupcoord.consumer.group import ConsumerGroup
from ottla.groupcoord.consumer.rebalancing import Rebalancing
from ottla.groupcoord.manager import ShardContext
from ottla.groupcoord.modern.group import NEVER
from ottla.groupcoord.patterns import Pattern
from ottla.groupcoord.runtime.answers import Caller, HiddenTopics
from ottla.wire.errors import KafkaError

logger = logging.getLogger("ottla.groupcoord")

COST_MAX = 500_000_000
"""Greatest cost of all patterns of a group together, in the worst case. Ordinary patterns cost a hundredth of it."""

CHARACTERS_MAX = 1_000_000
"""Greatest total length of the names that match the patterns of a group. The names are written in one batch, which has no room
for more."""
NAME_OVERHEAD = 8


def resolve(patterns: Iterable[str], names: Iterable[str]) -> Mapping[str, list[str] | None]:
    """Return the topics whose whole name matches, by pattern; None if matching is too slow or matches too many."""
    topics, left, room = list(names), COST_MAX, CHARACTERS_MAX
    resolved: dict[str, list[str] | None] = {}
    for text in patterns:
        pattern = Pattern(text)
        cost = pattern.cost("") * (len(topics) + sum(map(len, topics)))
        if cost > left:
            logger.warning("a regular expression of %d characters takes too long to be resolved", len(text))
            resolved[text] = None
        else:
            left -= cost
            matched = [each for each in topics if pattern.matches(each)]
            size = sum([NAME_OVERHEAD + len(each) for each in matched])
            # One alone may stand for all topics there are.
            if size > room and room < CHARACTERS_MAX:
                logger.warning("a regular expression of %d characters stands for too many topics", len(text))
                resolved[text] = None
            else:
                room -= min(size, room)
                resolved[text] = matched
    return resolved


REFRESH_INTERVAL_MIN_MS = 10_000


class PatternsResolved(NamedTuple):
    """Internal request with the matching topics of a group's patterns; None if a bug ended the matching."""

    group_id: str
    topics_version: int
    timestamp_ms: int
    resolved: Mapping[str, list[str] | None] | None


class PatternRefresh:
    """Resolver of groups' patterns to the names of matching topics."""

    def __init__(self, context: ShardContext, rebalancing: Rebalancing) -> None:
        self._config = context.config
        self._effects = context.effects
        self._topics = context.topics
        self._rebalancing = rebalancing
        self._resolving: set[str] = set()

    def check(self, group: ConsumerGroup | None, pattern: str | None) -> None:
        """Raise KafkaError if `pattern` is invalid; patterns that the group knows are not checked again."""
        if not pattern or (group is not None and group.subscriptions.patterns.of(pattern)):
            return
        try:
            Pattern(pattern)
        except KafkaError as error:
            raise KafkaError(error.code, f"SubscribedTopicRegex {error.message}") from error

    def take_change(self, group: ConsumerGroup, old: str, new: str) -> bool:
        """Handle a member's change of pattern. Return True if the member reads other topics immediately."""
        self.forget_unused(group, (old,))
        # An unknown pattern changes nothing yet: the group's epoch rises when it is resolved.
        return new in group.resolved if new else True

    def forget_unused(self, group: ConsumerGroup, patterns: tuple[str, ...]) -> None:
        """Write a tombstone for each of `patterns` that is no longer used by a member."""
        for pattern in dict.fromkeys(patterns):
            if pattern in group.resolved and not group.subscriptions.patterns.of(pattern):
                self._rebalancing.put(records.regex_record(group.group_id, pattern, None))

    def refresh(self, group: ConsumerGroup, caller: Caller) -> None:
        """Begin to resolve the group's patterns, if that is due, to topics that the caller may see."""
        patterns = group.subscriptions.patterns.by_key
        if not patterns or group.group_id in self._resolving or not self._is_due(group):
            return
        self._resolving.add(group.group_id)
        compute = partial(resolve, tuple(patterns), tuple(self._topics.topic_names()))
        version, timestamp_ms = self._topics.version, self._effects.timestamp_ms
        narrow = None if caller.hidden_topics is None else partial(_without_hidden, caller.hidden_topics)
        self._effects.compute(compute, partial(PatternsResolved, group.group_id, version, timestamp_ms), narrow)

    def _is_due(self, group: ConsumerGroup) -> bool:
        if not group.resolved:
            return True
        now_ms = self._effects.timestamp_ms
        last_ms = next(iter(group.resolved.values())).timestamp
        if now_ms <= last_ms + REFRESH_INTERVAL_MIN_MS:
            return False
        return (
            len(group.subscriptions.patterns.by_key) != len(group.resolved)
            or group.patterns_seen_topics != self._topics.version
            or now_ms > last_ms + self._config.group_consumer_regex_refresh_interval_ms
        )

    def take_resolved(self, group: ConsumerGroup | None, result: PatternsResolved) -> None:
        """Write the topics that each pattern matches; raise the group's epoch if the topics have changed."""
        group_id = result.group_id
        self._resolving.discard(group_id)
        if group is None or result.resolved is None:
            return
        group.patterns_seen_topics = result.topics_version
        has_changed = False
        for pattern, topics in result.resolved.items():
            # Members may have left meanwhile.
            if group.subscriptions.patterns.of(pattern):
                has_changed = self._write(group, pattern, topics, result) or has_changed
                # If the log refuses this, the patterns have to be held against the topics again.
                self._effects.undo_if_refused(partial(setattr, group, "patterns_seen_topics", NEVER))
        self._rebalancing.look_at_topics(group, "a regular expression stands for other topics" if has_changed else "")

    def _write(self, group: ConsumerGroup, pattern: str, topics: list[str] | None, result: PatternsResolved) -> bool:
        """Write the topics that one pattern matches. Return True if the topics have changed."""
        known = group.resolved.get(pattern)
        before = [] if known is None else known.topics
        # If there was not enough time it stands for the same topics, until the next look.
        after = before if topics is None else sorted(topics)
        value = records.ConsumerGroupRegularExpressionValue(
            topics=after, version=result.topics_version, timestamp=result.timestamp_ms
        )
        self._rebalancing.put(records.regex_record(group.group_id, pattern, value))
        return set(before) != set(after)


async def _without_hidden(
    hidden_topics: HiddenTopics, resolved: Mapping[str, list[str] | None]
) -> Mapping[str, list[str] | None]:
    different = dict.fromkeys(name for names in resolved.values() for name in names or ())
    hidden = set(await hidden_topics(different))
    if not hidden:
        return resolved
    return {
        pattern: None if names is None else [name for name in names if name not in hidden]
        for pattern, names in resolved.items()
    }
