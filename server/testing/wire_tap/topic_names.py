"""Names of topic ids: the broker's, or else those that Metadata answers have told clients."""

from __future__ import annotations

from collections import deque

from ottla.server.testing.errors import LabError
from ottla.server.testing.wire_tap.subjects import NameOf
from ottla.server.testing.wire_tap.wire_request import WireRequest
from ottla.wire.schema import ZERO_UUID

NAMES_MAX = 100_000
UNREAD_MAX = 64
METADATA_KEY, VERSION_WITH_IDS = 3, 10


class TopicNames:
    """Topic names by id. Metadata answers are decoded only when a name is looked for that nobody else knows."""

    __slots__ = ("_broker_name", "_known", "_unread")

    def __init__(self, broker_name: NameOf) -> None:
        """`broker_name` returns the broker's name of a topic id; None if it knows none."""
        self._broker_name = broker_name
        self._known: dict[bytes, str] = {}
        self._unread: deque[WireRequest] = deque(maxlen=UNREAD_MAX)

    def note(self, metadata: WireRequest) -> None:
        """Remember an answered Metadata request, to be decoded if need be."""
        if metadata.version >= VERSION_WITH_IDS:
            self._unread.append(metadata)

    def name(self, topic_id: bytes) -> str | None:
        """Return the name of a topic, which may be deleted by now; None if nobody has told it."""
        name = self._known.get(topic_id) or self._broker_name(topic_id)
        while name is None and self._unread:
            self._learn(self._unread.popleft())
            name = self._known.get(topic_id)
        return name

    def _learn(self, metadata: WireRequest) -> None:
        try:
            topics = metadata.response.topics
        except LabError:
            return
        for topic in topics:
            if topic.name and topic.topic_id != ZERO_UUID and len(self._known) < NAMES_MAX:
                self._known[topic.topic_id] = topic.name
