"""Events that members of share groups and of groups that rebalance write down; a part of `ottla.server.testing.history.history`.

Members of share groups tell of the offsets that they were given, not of values: gaps and control records are among them.

`leader_epoch` is that of the partition's leader in which records were acquired, and None if it is not sure. Locks are forgotten
with a leader, and one that was cut off may go on for a while, so that only what happened in known epochs can be compared.

A session is one of a member with a broker. It ends at the broker when its connection does, which a member may hear of late; so
what a member still held is known only after a later answer in the same session.
"""

from typing import NamedTuple


class ShareBegan(NamedTuple):
    """A share group is to read every record of a topic."""

    at: float
    group: str
    topic: str
    delivery_count_limit: int


class ShareAcquired(NamedTuple):
    """A member was given the records from `first` to `last`, and holds them for `lock_s` from when that was done."""

    at: float
    group: str
    session: str
    topic: str
    partition: int
    first: int
    last: int
    delivery_count: int
    leader_epoch: int | None
    asked: float
    """When it asked: records were acquired then at the earliest."""
    lock_s: float


class ShareSaid(NamedTuple):
    """A member tells what became of records: "accept", "release", "reject", or "renew" if it wants to hold them longer."""

    at: float
    group: str
    session: str
    topic: str
    partition: int
    first: int
    last: int
    what: str


class ShareTold(NamedTuple):
    """The answer to `ShareSaid`. Nothing is written down if there is none."""

    at: float
    group: str
    session: str
    topic: str
    partition: int
    first: int
    last: int
    what: str
    delivery_count: int
    leader_epoch: int | None
    """In which the records had been acquired."""
    asked: float
    error: str
    """Empty if it is done."""
    may_count: bool
    """False only if the broker refused it and stored nothing."""


class ShareAnswered(NamedTuple):
    """A session answered well what was asked at `asked`: it had not ended until then."""

    at: float
    group: str
    session: str
    asked: float


class ShareSessionLost(NamedTuple):
    """The session has ended, or may have; of each partition of it."""

    at: float
    group: str
    session: str
    topic: str
    partition: int
    unanswered: float | None
    """When the fetch was asked for that has no answer and may have acquired records. None: every fetch had its answer."""


class Owned(NamedTuple):
    """A member believes from now on that a partition is its own. `epoch` is the member's or the generation; -1 if it does not know.

    It is written down again for every epoch in which the member has the partition.
    """

    at: float
    group: str
    member: str
    epoch: int
    topic: str
    partition: int


class Disowned(NamedTuple):
    """A member gives up a partition, before it says so, or is told that it has lost it."""

    at: float
    group: str
    member: str
    topic: str
    partition: int
    was_member: float
    """When it asked last what was answered as to a member: until then nobody can have put it out."""


GroupEvent = ShareBegan | ShareAcquired | ShareSaid | ShareTold | ShareAnswered | ShareSessionLost | Owned | Disowned
