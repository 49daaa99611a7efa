"""What is asked of a share group beside the requests of the wire, and answers that say what is to be done elsewhere.

The share coordinator is asked by the service, when what the machine has written down is committed. What comes of it the
machine hears by another request.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from ottla.groupcoord.share.initialization import PartitionsByTopic
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.alter_share_group_offsets import AlterShareGroupOffsetsResponse
from ottla.wire.messages.delete_share_group_offsets import DeleteShareGroupOffsetsResponse
from ottla.wire.messages.delete_share_group_state import DeleteShareGroupStateRequest
from ottla.wire.messages.initialize_share_group_state import InitializeShareGroupStateRequest


class ConfirmPartitions(NamedTuple):
    """The share coordinator knows these partitions now."""

    group_id: str
    partitions: PartitionsByTopic


class GiveUpPartitions(NamedTuple):
    """The share coordinator could not take up these partitions."""

    group_id: str
    partitions: PartitionsByTopic


class ConfirmDeletion(NamedTuple):
    """The share coordinator has forgotten these topics of the group."""

    group_id: str
    topic_ids: Collection[bytes]


class PrepareDeletion(NamedTuple):
    """The group is to be deleted: what has the share coordinator to forget before?"""

    group_id: str


class ForgetShareTopics(NamedTuple):
    """Forget deleted topics in some groups; answered with how many these were."""

    topic_ids: Collection[bytes]


class DescribeShareGroup(NamedTuple):
    """The question about one group: a ShareGroupDescribe request is split into these."""

    group_id: str


class AskInitialized(NamedTuple):
    """The question which partitions of a group the share coordinator knows."""

    group_id: str


class IsShareGroup(NamedTuple):
    """The question whether there is a share group of this id."""

    group_id: str


class AlteredOffsets(NamedTuple):
    """The answer to AlterShareGroupOffsets, if the share coordinator has nothing against it."""

    response: AlterShareGroupOffsetsResponse
    to_initialize: InitializeShareGroupStateRequest | None = None


class BegunDeletion(NamedTuple):
    """The answer to DeleteShareGroupOffsets as far as it is known, and what has to be forgotten first."""

    response: DeleteShareGroupOffsetsResponse
    topics: Mapping[bytes, str] = {}
    """Those that are to be forgotten: their names by their ids."""
    to_delete: DeleteShareGroupStateRequest | None = None


class PreparedDeletion(NamedTuple):
    """Whether a group may be deleted, and what has to be forgotten first."""

    error: ErrorCode
    to_delete: DeleteShareGroupStateRequest | None = None
