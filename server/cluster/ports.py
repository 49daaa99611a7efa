"""What handlers and the administration need of a member of a cluster, and of the active controller on it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from ottla.replication.cluster.coordination import Coordination
    from ottla.replication.cluster.metadata_cache import PartitionState, TopicState
    from ottla.replication.cluster.peers import Peer
    from ottla.replication.controller.control_batch import TopicPartition
    from ottla.replication.controller.elect_leaders import ElectionType
    from ottla.replication.controller.partition_states import PartitionStates
    from ottla.replication.controller.topic_planner import TopicPlan
    from ottla.replication.replica_manager.isr_changes import IsrChanges
    from ottla.replication.replica_manager.replica_control import ReplicaControl
    from ottla.server.cluster.acl_store import AclStore
    from ottla.server.cluster.features import Features, Update
    from ottla.server.cluster.forwarding import ForwardingManager
    from ottla.server.cluster.token_store import TokenStore
    from ottla.wire.errors import KafkaError
    from ottla.wire.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
    from ottla.wire.schema import Message


class ActiveController(Protocol):
    """The controller while it is here. Every method raises KafkaError NOT_CONTROLLER if it resigns before it is done."""

    @property
    def epoch(self) -> int: ...

    @property
    def elections(self) -> tuple[int, int]:
        """How many leaders this controller has chosen instead of others, and how many of them were not in sync (unclean)."""

    @property
    def epoch_version(self) -> int:
        """The version of /controller_epoch that fences this controller's writes."""

    @property
    def states(self) -> PartitionStates:
        """What the controller has decided, which brokers may not have heard of yet."""

    async def create_topics(self, plans: Sequence[TopicPlan]) -> Mapping[str, KafkaError | None]:
        """Create topics; by name None, or why it was not created."""

    async def add_partitions(
        self, name: str, plan: Callable[[TopicState | None], TopicPlan], *, validate_only: bool = False
    ) -> TopicPlan:
        """Extend a topic as `plan` says, which gets the topic as it was decided last."""

    async def alter_partition(self, request: AlterPartitionRequest, version: int) -> AlterPartitionResponse: ...

    async def controlled_shutdown(self, broker_id: int, broker_epoch: int) -> Sequence[TopicPartition]:
        """Move leaderships away from a broker; answers what it still leads."""

    async def elect_leaders(
        self, election_type: ElectionType, partitions: Iterable[TopicPartition] | None
    ) -> Mapping[TopicPartition, KafkaError | None]: ...

    async def reassign(
        self,
        targets: Mapping[TopicPartition, Sequence[int] | None],
        *,
        allow_replication_factor_change: bool = True,
    ) -> Mapping[TopicPartition, KafkaError | None]: ...

    async def reassignments(self) -> Mapping[TopicPartition, PartitionState]: ...

    async def update_features(self, updates: Sequence[Update], *, validate_only: bool) -> None:
        """Set levels of features, all or none."""


class Member(Protocol):
    """This broker as a member of a cluster."""

    @property
    def controller(self) -> ActiveController | None:
        """None while another broker is the controller, or nobody."""

    @property
    def session(self) -> Coordination: ...

    @property
    def features(self) -> Features:
        """The features that have levels, and the levels in use."""

    @property
    def acls(self) -> AclStore | None:
        """The rules of the authorizer; None without one."""

    @property
    def tokens(self) -> TokenStore | None:
        """The delegation tokens; None if there is no key for them."""

    @property
    def forwarding(self) -> ForwardingManager:
        """What hands requests on that only the controller carries out. For members of a cluster."""

    @property
    def is_fenced(self) -> bool:
        """Whether this broker may have been replaced."""

    @property
    def control(self) -> ReplicaControl:
        """What obeys the controller."""

    @property
    def isr_changes(self) -> IsrChanges: ...

    async def until_told(self) -> None:
        """Return when a controller has sent this broker the live brokers, itself among them, and the topics."""

    def peer(self, broker_id: int, *, purpose: str) -> Peer:
        """A new way to a broker. PeerUnavailable: the controller has not named such a broker."""

    async def ask_controller(self, request: Message, version: int, *, timeout_s: float) -> Any:
        """Ask whoever is the controller, once. Raises PeerUnavailable."""
