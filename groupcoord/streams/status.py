"""What a heartbeat's answer may say of the whole group beside the member's own state."""

from enum import IntEnum


class Status(IntEnum):
    """The codes of the answer."""

    STALE_TOPOLOGY = 0
    MISSING_SOURCE_TOPICS = 1
    INCORRECTLY_PARTITIONED_TOPICS = 2
    MISSING_INTERNAL_TOPICS = 3
    SHUTDOWN_APPLICATION = 4
    ASSIGNMENT_DELAYED = 5
    MISSING_CLIENT_TAGS = 6


class TopicsNotReady(Exception):
    """The topics are not as the topology needs them, so there are no tasks yet. Members are told, and stay."""

    def __init__(self, status: Status, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
