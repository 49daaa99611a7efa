"""The form of a post, and dead letters for what has another form. The producer and the indexer use it."""

import json
from datetime import datetime
from typing import Any

MAX_RECORD_BYTES = 128 * 1024
"""Limit of the topic of posts, `max.message.bytes`, and of the producer, `max_request_size`."""


class NoPost(ValueError):
    """A value that is no post; the message says why."""


def post_of(value: bytes | None) -> dict[str, Any]:
    """Decode a post. Raises NoPost for everything else."""
    if value is None:
        raise NoPost("no value")
    try:
        post = json.loads(value)
    except (ValueError, RecursionError):
        raise NoPost("no JSON") from None
    if not isinstance(post, dict):
        raise NoPost("no JSON object")
    if not all(isinstance(post.get(name), str) for name in ("id", "author", "lang", "time")):
        raise NoPost("a field is missing")
    tags = post.get("tags")
    if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
        raise NoPost("tags are no texts")
    try:
        has_zone = datetime.fromisoformat(post["time"]).tzinfo is not None
    except ValueError:
        has_zone = False
    if not has_zone:
        raise NoPost("no time with a zone")
    return post


def dead_letter(topic: str, source: str, value: bytes | None, problem: str) -> dict[str, Any]:
    """Arguments of `KafkaProducer.send` for a dead letter. Its key names the source, so that a second copy is known as one."""
    return {
        "topic": f"{topic}-dead",
        "key": source.encode(),
        "value": value,
        "headers": [("problem", problem.encode())],
    }
