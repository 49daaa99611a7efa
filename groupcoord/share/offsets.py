"""Alteration and deletion of a share group's offsets, and the internal requests about share groups.

The share coordinator has the offsets. The shard records a request to it before the service sends it, so that the group's
next coordinator knows what may be half done; the service sends it when the record is committed, and reports the outcome by
another internal request. Only the offsets of a group without members are changed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from ottla.groupcoord.share.group import KnownTopic, PartitionsByTopic, ShareGroup, StatePartitions, Topics
from ottla.groupcoord.share.records import ShareGroupStatePartitionMetadataKey
from ottla.groupcoord.topic_images import TopicImage, TopicImages
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages.share_group import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)
from ottla.wire.messages.share_group_state import (
    DeleteShareGroupStateRequest,
    DeleteStateData,
    InitializeShareGroupStateRequest,
    InitializeStateData,
    InitializeStatePartition,
)
from ottla.wire.messages.share_group_state import DeleteStatePartition as DeletedPartition
from ottla.wire.text import uuid_text

NO_TOPIC_ID = bytes(16)
NOTHING_TO_DELETE = "There is no offset information to delete."


class ConfirmPartitions(NamedTuple):
    """Report to a shard: the share coordinator has initialized these partitions of a group."""

    group_id: str
    partitions: PartitionsByTopic


class GiveUpPartitions(NamedTuple):
    """Report to a shard: the share coordinator could not initialize these partitions of a group."""

    group_id: str
    partitions: PartitionsByTopic


class ConfirmDeletion(NamedTuple):
    """Report to a shard: the share coordinator has deleted a group's state of these topics."""

    group_id: str
    topic_ids: Collection[bytes]


class PrepareDeletion(NamedTuple):
    """Internal request to begin a group's deletion. The response is the state that must be deleted first."""

    group_id: str


class ForgetShareTopics(NamedTuple):
    """Internal request to drop deleted topics from some groups.

    The response is the number of groups changed. The request is repeated until that is 0.
    """

    topic_ids: Collection[bytes]


class DescribeShareGroup(NamedTuple):
    """Internal request to describe one group; a ShareGroupDescribe request is split into these."""

    group_id: str


class ReadInitialized(NamedTuple):
    """Internal request for the initialized partitions of a group."""

    group_id: str


class IsShareGroup(NamedTuple):
    """Internal request; the response is True if a share group with this id exists."""

    group_id: str


class AlteredOffsets(NamedTuple):
    """Response to AlterShareGroupOffsets, and the request to the share coordinator that must succeed first, if any."""

    response: AlterShareGroupOffsetsResponse
    to_initialize: InitializeShareGroupStateRequest | None = None


class BegunDeletion(NamedTuple):
    """Response to DeleteShareGroupOffsets, without the topics whose state the share coordinator must delete first."""

    response: DeleteShareGroupOffsetsResponse
    topics: Mapping[bytes, str] = {}
    """Names of the topics to delete, by id."""
    to_delete: DeleteShareGroupStateRequest | None = None


class PreparedDeletion(NamedTuple):
    """Result of `PrepareDeletion`: an error, or the state that must be deleted before the group."""

    error: ErrorCode
    to_delete: DeleteShareGroupStateRequest | None = None


class OffsetAdministration:
    """Handler of requests and reports that change share groups' partitions, such as AlterShareGroupOffsets."""

    def __init__(self, images: TopicImages) -> None:
        self._images = images

    # ------------------------------------------------------------------ alter

    def alter(self, group: ShareGroup, request: AlterShareGroupOffsetsRequest) -> AlteredOffsets:
        """Begin to set partitions' start offsets by initializing them again. The group may be a new one.

        Raises KafkaError if a partition number is negative.
        """
        begun: dict[bytes, KnownTopic] = {}
        responses: dict[str, AlterShareGroupOffsetsResponseTopic] = {}
        data = []
        # Topics that do not exist come first in Kafka's answer.
        for topic in sorted(request.topics, key=lambda each: self._images.image(each.topic_name) is not None):
            image = self._images.image(topic.topic_name)
            offsets = _offsets_of(topic, image)
            if image is not None and offsets:
                begun[image.topic_id] = KnownTopic(image.name, frozenset(offsets))
                data.append(_initialization(image.topic_id, offsets, group.group_epoch))
            # For a topic that does not exist Kafka answers only about its partitions.
            if image is not None or topic.partitions:
                _add_results(responses, topic, image, offsets)
        if begun:
            self._put(group, group.share_partitions.begin(begun))
        self._check_partitions(group, request)
        response = AlterShareGroupOffsetsResponse(error_code=ErrorCode.NONE, responses=list(responses.values()))
        to_initialize = InitializeShareGroupStateRequest(group_id=group.group_id, topics=data) if data else None
        return AlteredOffsets(response, to_initialize)

    def _check_partitions(self, group: ShareGroup, request: AlterShareGroupOffsetsRequest) -> None:
        """Raise KafkaError if a partition number is negative. Kafka checks this last, after the state is recorded."""
        for topic in request.topics:
            image = self._images.image(topic.topic_name)
            for each in [each for each in topic.partitions if each.partition_index < 0]:
                if image is not None:
                    topic_id = uuid_text(image.topic_id)
                    found = f"{group.group_id} {topic_id} {each.partition_index}"
                    problem = f"Initialize share group parameters has invalid partitionId - {found}"
                    raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, problem)

    # ------------------------------------------------------------------ delete

    def delete(self, group: ShareGroup, request: DeleteShareGroupOffsetsRequest) -> BegunDeletion:
        """Begin or repeat the deletion of the group's offsets of the requested topics."""
        if group.state_partitions is None:
            return BegunDeletion(_deletion_response([]))
        known = group.share_partitions
        doomed: dict[bytes, KnownTopic] = {}
        refused = []
        for topic in request.topics:
            image = self._images.image(topic.topic_name)
            if image is None:
                refused.append(_refused(topic.topic_name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.message))
            elif image.topic_id in known.initialized:
                doomed[image.topic_id] = known.initialized[image.topic_id]
            elif image.topic_id in known.deleting:
                doomed[image.topic_id] = _whole(image)
            else:
                refused.append(_refused(topic.topic_name, NOTHING_TO_DELETE))
        self._put(group, known.delete(doomed.keys()))
        names = {topic_id: known.name for topic_id, known in doomed.items()}
        to_delete = deletion_of(group.group_id, doomed) if doomed else None
        return BegunDeletion(_deletion_response(refused), names, to_delete)

    def prepare_end(self, group: ShareGroup) -> DeleteShareGroupStateRequest | None:
        """Mark all topics as deleting. Return the request to delete their state; None if no state is stored."""
        if group.state_partitions is None:
            return None
        images = [self._images.image_by_id(topic_id) for topic_id in group.share_partitions.deleting]
        again = {image.topic_id: _whole(image) for image in images if image is not None}
        deleting, doomed = group.share_partitions.delete_all(again)
        self._put(group, deleting)
        return deletion_of(group.group_id, doomed) if doomed else None

    # ------------------------------------------------------------------ reports of the share coordinator

    def confirm(self, group: ShareGroup, partitions: Mapping[bytes, Iterable[int]]) -> None:
        """Mark partitions as initialized, except partitions of deleted topics."""
        existing = {each: set(indexes) for each, indexes in partitions.items() if self._images.image_by_id(each)}
        self._put(group, group.share_partitions.confirm(existing))

    def give_up(self, group: ShareGroup, partitions: Mapping[bytes, Iterable[int]]) -> None:
        given_up = {each: set(indexes) for each, indexes in partitions.items()}
        self._put(group, group.share_partitions.give_up(given_up))

    def confirm_deletion(self, group: ShareGroup, topic_ids: Iterable[bytes]) -> None:
        self._put(group, group.share_partitions.forget_deleted(set(topic_ids)))

    def forget_topics(self, group: ShareGroup, topic_ids: Collection[bytes]) -> None:
        self._put(group, group.share_partitions.forget_topics(set(topic_ids)))

    def _put(self, group: ShareGroup, after: StatePartitions) -> None:
        if after != group.share_partitions:
            group.put(ShareGroupStatePartitionMetadataKey(group_id=group.group_id), after.record())


def _offsets_of(topic: AlterShareGroupOffsetsRequestTopic, image: TopicImage | None) -> dict[int, int]:
    """Return the requested start offsets of existing partitions, by partition."""
    count = 0 if image is None else image.partition_count
    return {each.partition_index: each.start_offset for each in topic.partitions if 0 <= each.partition_index < count}


def _initialization(topic_id: bytes, offsets: Mapping[int, int], epoch: int) -> InitializeStateData:
    partitions = [
        InitializeStatePartition(partition=partition, state_epoch=epoch, start_offset=offset)
        for partition, offset in offsets.items()
    ]
    return InitializeStateData(topic_id=topic_id, partitions=partitions)


def _add_results(
    responses: dict[str, AlterShareGroupOffsetsResponseTopic],
    topic: AlterShareGroupOffsetsRequestTopic,
    image: TopicImage | None,
    offsets: Mapping[int, int],
) -> None:
    """Add a topic's results to its entry in `responses`. The request may name a topic repeatedly."""
    name = topic.topic_name
    if name not in responses:
        topic_id = NO_TOPIC_ID if image is None else image.topic_id
        responses[name] = AlterShareGroupOffsetsResponseTopic(topic_name=name, topic_id=topic_id, partitions=[])
    missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    responses[name].partitions += [
        AlterShareGroupOffsetsResponsePartition(partition_index=index, error_code=ErrorCode.NONE)
        if index in offsets
        else AlterShareGroupOffsetsResponsePartition(
            partition_index=index, error_code=missing, error_message=missing.message
        )
        for index in [each.partition_index for each in topic.partitions]
    ]


def deletion_of(group_id: str, topics: Topics) -> DeleteShareGroupStateRequest:
    """Return the request to delete the state of these partitions at the share coordinator."""
    data = [
        DeleteStateData(
            topic_id=topic_id, partitions=[DeletedPartition(partition=each) for each in sorted(topic.partitions)]
        )
        for topic_id, topic in topics.items()
    ]
    return DeleteShareGroupStateRequest(group_id=group_id, topics=data)


def _deletion_response(topics: list[DeleteShareGroupOffsetsResponseTopic]) -> DeleteShareGroupOffsetsResponse:
    return DeleteShareGroupOffsetsResponse(error_code=ErrorCode.NONE, responses=topics)


def _refused(name: str, message: str) -> DeleteShareGroupOffsetsResponseTopic:
    return DeleteShareGroupOffsetsResponseTopic(
        topic_name=name,
        topic_id=NO_TOPIC_ID,
        error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        error_message=message,
    )


def _whole(image: TopicImage) -> KnownTopic:
    return KnownTopic(image.name, frozenset(range(image.partition_count)))
