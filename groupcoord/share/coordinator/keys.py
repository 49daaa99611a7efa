"""What names a share partition: a group and a partition of a topic, which the group reads together."""

from __future__ import annotations

import base64
import re
from typing import NamedTuple

from ottla.wire.settings import parse_integer, trimmed

# The length of 16 bytes in Base64, without padding or with all of it.
_TOPIC_ID = re.compile(r"[A-Za-z0-9_-]{22}(==)?")


class SharePartitionKey(NamedTuple):
    """A share partition, as the share coordinator knows it."""

    group_id: str
    topic_id: bytes
    partition: int

    def coordinator_key_end(self) -> str:
        """What stands behind the group in the text by which a coordinator is looked up.

        The hash of that text chooses the partition of the state topic.
        """
        topic_id = base64.urlsafe_b64encode(self.topic_id).decode().rstrip("=")
        return f":{topic_id}:{self.partition}"


def parse_coordinator_key(text: str) -> SharePartitionKey | None:
    """The share partition that a text means, or None. A group's id may hold colons, so the text is read from its end."""
    # As Java's split: empty parts at the end do not count.
    parts = text.rstrip(":").rsplit(":", 2)
    if len(parts) < 3:
        return None
    group_id, topic_id, digits = parts
    partition = parse_integer(digits)
    if partition is None or _TOPIC_ID.fullmatch(topic_id) is None or not trimmed(group_id):
        return None
    return SharePartitionKey(group_id, base64.urlsafe_b64decode(topic_id[:22] + "=="), partition)
