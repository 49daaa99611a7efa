"""What ShareFetch and ShareAcknowledge have in common: who asks, which partitions are meant, answers that come later."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Generic, Protocol

from ottla.groupcoord.share.partition.sessions import SessionKey, TopicPartition
from ottla.server.fetch.rights import FetchRights
from ottla.server.gate.access import require
from ottla.server.gate.authorized_operations import AclOperation, ResourceType
from ottla.server.ports import HasAuthorizer, HasCluster, HasEnvironment, HasReplicas, HasSettings
from ottla.wire.answers import PendingAnswer, ResponseT
from ottla.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.replication.cluster.metadata_cache import MetadataCache
    from ottla.server.gate.access import Guarded
    from ottla.server.gate.context import RequestContext
    from ottla.server.net.deadlines import Deadlines
    from ottla.server.share.service import ShareGroups

MEMBER_ID_LENGTH_MAX = 36
"""Of a UUID as people write it."""


class HasShareGroups(Protocol):
    @property
    def share_groups(self) -> ShareGroups:
        """Share groups, as far as this broker leads their partitions."""


class Port(HasAuthorizer, HasCluster, HasReplicas, HasSettings, HasShareGroups, HasEnvironment, Protocol):
    """What is needed of the broker to serve share groups."""


def session_key(group_id: str | None, member_id: str | None, context: RequestContext[Guarded]) -> SessionKey:
    """Who asks; KafkaError if that is nobody, or somebody who may not read the group."""
    if group_id is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    require(context, AclOperation.READ, ResourceType.GROUP, group_id)
    if not member_id or len(member_id) > MEMBER_ID_LENGTH_MAX:
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    return SessionKey(group_id, member_id, context.principal)


def rights_of(context: RequestContext[Guarded]) -> FetchRights | None:
    """Which topics the client may read; None: all."""
    authorizer = context.broker.authorizer
    return None if authorizer is None else FetchRights(context, authorizer, is_follower=False)


def named(cluster: MetadataCache, topic_id: bytes, partitions: Iterable[int]) -> list[TopicPartition]:
    """The partitions of a topic that a request names by its id."""
    topic = cluster.topic_by_id.get(topic_id)
    name = None if topic is None else topic.name
    return [TopicPartition(name, topic_id, partition) for partition in partitions]


class WhenReady(PendingAnswer[ResponseT], Generic[ResponseT]):
    """An answer that is made when others have done their part; `parts` says whether they have."""

    __slots__ = ("_abandon", "_make")

    def __init__(self, make: Callable[[], ResponseT], abandon: Callable[[], None]) -> None:
        super().__init__()
        self._make: Callable[[], ResponseT] | None = make
        self._abandon = abandon

    @property
    def is_abandonable(self) -> bool:
        return True

    def response(self) -> ResponseT:
        assert self._make is not None
        make, self._make = self._make, None
        return make()

    def abandon(self) -> None:
        self._make = None
        self._abandon()


class AtLast(PendingAnswer[ResponseT], Generic[ResponseT]):
    """A refusal that is told at the end of the wait, because whoever hears it asks again at once."""

    __slots__ = ("_deadline", "_deadlines", "_response")

    def __init__(self, deadlines: Deadlines, wait_ms: int, response: ResponseT) -> None:
        super().__init__()
        self._deadlines = deadlines
        self._response = response
        self._deadline = deadlines.add(max(0, wait_ms) / 1000, self.become_ready)

    @property
    def is_abandonable(self) -> bool:
        return True

    def response(self) -> ResponseT:
        self.abandon()
        return self._response

    def abandon(self) -> None:
        self._deadlines.cancel(self._deadline)
