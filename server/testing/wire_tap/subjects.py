"""Topics, partitions and groups that a message is about, found by its declaration at any depth.

topic       a field `topic` or `topic_name`; a `name` or a `topic_id` inside a list of topics; a list of names of topics
partition   `partition`, `partition_index` or `index` below a topic, or a list of numbers there
group       `group_id`, or what a list of groups or a request for a coordinator names
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ottla.wire.schema import ZERO_UUID, Struct

FIND_COORDINATOR_KEY = 10
GROUP_KEY_TYPE, TOPIC_RESOURCE = 0, 2
_TOPIC_NAMES = ("topic", "topic_name", "name")
_PARTITION_NAMES = ("partition", "partition_index", "index")

Place = tuple[str, int | None]
"""Topic, and partition; None for the topic as a whole."""

NameOf = Callable[[bytes], str | None]
"""Returns the name of a topic id; None if it is unknown."""

IsMeant = Callable[[str, int | None], bool]
"""Tells whether a partition of a topic is meant; the partition is None for a topic as a whole."""


def groups_in(api_key: int, message: Struct) -> tuple[str, ...]:
    """Return the groups that a request names, each once."""
    if api_key == FIND_COORDINATOR_KEY:
        is_group = getattr(message, "key_type") == GROUP_KEY_TYPE  # noqa: B009 - a field of one message
        keys = [getattr(message, "key"), *getattr(message, "coordinator_keys")]  # noqa: B009
        return tuple(dict.fromkeys(each for each in keys if each)) if is_group else ()
    return tuple(dict.fromkeys(_groups_in(message)))


def _groups_in(message: Struct) -> Iterator[str]:
    for name in message.wire_fields:
        value = getattr(message, name)
        if name == "group_id" and value:
            yield value
        elif isinstance(value, list):
            for each in value:
                if isinstance(each, Struct):
                    yield from _groups_in(each)
                elif isinstance(each, str) and "group" in name:
                    yield each


def places_in(message: Struct, name_of: NameOf, *, is_topic: bool = False) -> Iterator[Place]:
    """Yield the topics and partitions that a message names. A topic id without a name is told in hexadecimal.

    `is_topic`: the message is an element of a list of topics.
    """
    topic = topic_in(message, name_of, is_topic=is_topic)
    if topic is not None:
        numbers = list(partitions_in(message))
        yield from ((topic, each) for each in numbers)
        if not numbers:
            yield topic, None
        return
    for name in message.wire_fields:
        value = getattr(message, name)
        of_topics = is_list_of_topics(name)
        for each in value if isinstance(value, list) else (value,):
            if isinstance(each, Struct):
                yield from places_in(each, name_of, is_topic=of_topics)
            elif isinstance(each, str) and of_topics and isinstance(value, list):
                yield each, None


def is_list_of_topics(name: str) -> bool:
    """True if elements of a list field with this name are topics."""
    return "topic" in name or name == "responses"


def topic_in(message: Struct, name_of: NameOf, *, is_topic: bool) -> str | None:
    """Return the topic that a struct itself names; None if it names none. `is_topic`: it is in a list of topics."""
    fields = message.wire_fields
    for name in _TOPIC_NAMES if is_topic else _TOPIC_NAMES[:2]:
        if name in fields and (value := getattr(message, name)):
            return str(value)
    if is_topic and (topic_id := getattr(message, "topic_id", ZERO_UUID)) != ZERO_UUID:
        return name_of(topic_id) or topic_id.hex()
    if getattr(message, "resource_type", None) == TOPIC_RESOURCE:
        return str(getattr(message, "resource_name", ""))
    return None


def partitions_in(topic: Struct) -> Iterator[int]:
    """Yield the partitions that an element of a list of topics names."""
    for name in topic.wire_fields:
        value = getattr(topic, name)
        if name in _PARTITION_NAMES:
            yield value
        elif isinstance(value, list) and "partition" in name:
            for each in value:
                if (number := partition_of(each)) is not None:
                    yield number


def partition_of(element: int | Struct) -> int | None:
    """Return the partition that an element of a list of partitions is or names; None if it names none."""
    if isinstance(element, int):
        return element
    names = [name for name in _PARTITION_NAMES if name in element.wire_fields]
    return getattr(element, names[0]) if names else None
