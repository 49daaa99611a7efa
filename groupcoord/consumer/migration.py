"""Migration of a living group between the classic and the consumer protocol, one member after the other.

    classic group   --a member of the consumer protocol joins-->       consumer group, the others stay as classic members
    consumer group  --the last member of that protocol leaves-->       classic group, which rebalances
    consumer group  --a classic member takes its place (static)-->     classic group
    empty group     --a member of the other protocol joins-->          the other kind

Offsets stay, because they belong to the group's id. The old group's tombstones and the new group's records are one append,
and if the log refuses it the old group goes on. Of a large group the new one is made in steps. Until it is whole everybody
sees the old one, which does not change meanwhile, because all requests of the shard wait.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Generator, Iterable, Mapping, Sequence
from typing import NamedTuple

from ottla.groupcoord.classic import members as classic_members
from ottla.groupcoord.classic.group import CONSUMER_PROTOCOL_TYPE
from ottla.groupcoord.classic.rebalancing import ClassicGroup
from ottla.groupcoord.consumer import records
from ottla.groupcoord.consumer.group import ConsumerGroup
from ottla.groupcoord.consumer.member import Member, Progress
from ottla.groupcoord.consumer.rebalancing import Rebalancing
from ottla.groupcoord.effects import Steps, in_pieces
from ottla.groupcoord.manager import ShardContext
from ottla.groupcoord.modern.assignor import Assignment, with_epoch
from ottla.groupcoord.records import GroupRecord, KeyedRecord
from ottla.wire.errors import ErrorCode, KafkaError, ProtocolViolation
from ottla.wire.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
    decode_subscription,
)

logger = logging.getLogger("ottla.groupcoord")

UPGRADING = ("bidirectional", "upgrade")
DOWNGRADING = ("bidirectional", "downgrade")
DISABLED = "disabled"
"""Values of group.consumer.migration.policy."""


class _Converted(NamedTuple):
    """Member of a classic group, with its subscription and assignment parsed for the consumer group."""

    member: classic_members.Member
    subscription: ConsumerProtocolSubscription
    assigned: Assignment


class Migration:
    """Converter of classic groups to consumer groups and back."""

    def __init__(self, context: ShardContext, rebalancing: Rebalancing) -> None:
        self._config = context.config
        self._effects = context.effects
        self._groups = context.groups
        self._topics = context.topics
        self._rebalancing = rebalancing

    # ------------------------------------------------------------------ to the consumer protocol

    def check_upgrade(self, classic: ClassicGroup) -> Generator[None, None, list[_Converted]]:
        """Return a classic group's members, parsed. Raises KafkaError if it cannot become a consumer group."""
        if self._config.group_consumer_migration_policy not in UPGRADING:
            raise _no_upgrade(classic, "because online upgrade is disabled")
        if not classic.uses_consumer_protocol:
            raise _no_upgrade(classic, "because the group does not use the consumer embedded protocol")
        if len(classic.members) > self._config.group_consumer_max_size:
            raise _no_upgrade(classic, "because the group size exceeds the consumer group maximum size")
        understood: list[_Converted] = []
        try:
            yield from in_pieces(list(classic.members), lambda each: understood.append(self._understood(classic, each)))
        except ProtocolViolation as error:
            raise _no_upgrade(classic, "because the embedded consumer protocol is malformed") from error
        return understood

    def _understood(self, classic: ClassicGroup, member: classic_members.Member) -> _Converted:
        metadata = member.protocols.get(classic.protocol_name or "")
        if metadata is None:
            # The group has not agreed on a protocol yet.
            metadata = next(iter(member.protocols.values()))
        assigned: dict[bytes, frozenset[int]] = {}
        # A member that has never asked for its assignment has none.
        if member.assignment:
            assignment = _decode_assignment(member.assignment)
            if assignment.user_data:
                raise _no_upgrade(classic, "because an unsupported custom assignor is in use")
            for topic in assignment.assigned_partitions:
                image = self._topics.image(topic.topic)
                # A topic of that name that was made again may have fewer.
                count = 0 if image is None else image.partition_count
                partitions = frozenset(each for each in topic.partitions if 0 <= each < count)
                if image is not None and partitions:
                    assigned[image.topic_id] = partitions
        return _Converted(member, decode_subscription(metadata), assigned)

    def upgrade(self, classic: ClassicGroup, members: Sequence[_Converted], group: ConsumerGroup) -> Steps:
        """Convert a classic group and its members to a consumer group, which then replaces the classic group."""
        group_id, epoch = classic.group_id, classic.generation_id
        written: list[KeyedRecord] = []

        def put(record: KeyedRecord) -> None:
            # Nobody sees the new group before it is whole.
            group.replay(record)
            written.append(record)

        def put_words(each: _Converted) -> None:
            put(records.member_record(group_id, each.member.member_id, _words_of(each.member, each.subscription)))

        def put_target(each: _Converted) -> None:
            put(records.target_record(group_id, each.member.member_id, each.assigned))

        def put_progress(each: _Converted) -> None:
            progress = Progress(epoch, epoch, assigned=with_epoch(each.assigned, epoch))
            put(records.current_record(group_id, each.member.member_id, progress.written()))

        yield from in_pieces(members, put_words)
        put(records.group_record(group_id, epoch, group.hash_of(self._topics)))
        yield from in_pieces(members, put_target)
        put(records.target_epoch_record(group_id, epoch, 0))
        yield from in_pieces(members, put_progress)
        yield from group.start_sessions()
        self.replace(classic, group)
        self._effects.records += written
        logger.info("classic group %r becomes a consumer group", group_id)

    def replace(self, classic: ClassicGroup, group: ConsumerGroup) -> None:
        """Put `group` in the place of a classic group, and answer REBALANCE_IN_PROGRESS to requests parked there."""
        group_id = classic.group_id

        def restore() -> None:
            self._groups[group_id] = classic

        def send_away(error: ErrorCode) -> None:
            if error:
                deque(classic.send_away(error), maxlen=0)

        def settle(error: ErrorCode) -> None:
            if not error:
                self._effects.carry_on(classic.end_deadlines())
                self._effects.carry_on(classic.send_away(ErrorCode.REBALANCE_IN_PROGRESS))
                # Whoever still waits if the shard is unloaded before. Nobody else knows them.
                self._effects.then(send_away)

        self._effects.undo_if_refused(restore)
        self._effects.append(classic.tombstone(), settle)
        self._groups[group_id] = group

    # ------------------------------------------------------------------ to the classic protocol

    def may_downgrade(self, group: ConsumerGroup, leaving: Sequence[Member], joining: int = 0) -> bool:
        """Tell whether the broker may turn the group into a classic group when the members in `leaving` are gone.

        All other members must use the classic protocol. `joining`: number of classic members that join in their place.
        """
        left = len(group.members) - len(leaving)
        classic_left = group.classic_count - sum(each.uses_classic_protocol for each in leaving)
        if classic_left != left or not left + joining:
            return False
        if self._config.group_consumer_migration_policy not in DOWNGRADING:
            return False
        return left + joining <= self._config.group_max_size

    def downgrade(self, group: ConsumerGroup, leaving: Sequence[Member], *, must_rebalance: bool) -> Steps:
        """Replace a consumer group by a classic group; all members except `leaving` must use the classic protocol."""
        gone = {each.member_id for each in leaving}
        classic = ClassicGroup.stable(group.group_id, group.group_epoch, self._effects)
        written: list[GroupRecord] = []

        def keep(member: Member) -> None:
            if member.member_id not in gone:
                classic.members.add(self._classic_member(member), CONSUMER_PROTOCOL_TYPE)

        def assign(member: classic_members.Member) -> None:
            blob = member.protocols[classic.protocol_name or ""]
            member.assignment = self.encode_assignment(group.target_of(member.member_id), blob)

        yield from in_pieces(group.members.values(), keep)
        yield from classic.choose_protocol()
        yield from in_pieces(classic.members, assign)
        yield from in_pieces(group.tombstones(), written.append)
        written.append((yield from classic.written()))
        yield from classic.start_sessions()
        self._install(classic, group, leaving)
        self._effects.records += written
        if must_rebalance:
            classic.prepare_rebalance("members of the consumer protocol have left")
        logger.info("consumer group %r becomes a classic group", group.group_id)

    def _install(self, classic: ClassicGroup, group: ConsumerGroup, leaving: Sequence[Member]) -> None:
        """Replace the consumer group by `classic` in memory.

        If the log refuses the records, undo this and restart the deadlines of `leaving`.
        """
        group_id = group.group_id

        def restore() -> None:
            self._groups[group_id] = group
            self._effects.carry_on(classic.end_deadlines())
            self._effects.carry_on(in_pieces(leaving, group.start_deadlines))

        def settle(error: ErrorCode) -> None:
            if not error:
                self._effects.carry_on(group.end_deadlines())

        self._groups[group_id] = classic
        self._effects.undo_if_refused(restore)
        self._effects.settlements.append(settle)

    def end(self, group: ConsumerGroup) -> None:
        """Write the tombstones of a consumer group without members, and cancel its deadlines."""
        group.cancel_timers()
        self._rebalancing.restart_if_refused(group.group_id)
        for record in group.tombstones():
            self._rebalancing.put(record)

    def _classic_member(self, member: Member) -> classic_members.Member:
        words = member.words
        assert words.classic_member_metadata is not None
        return classic_members.Member(
            member.member_id,
            group_instance_id=words.instance_id,
            client_id=words.client_id,
            client_host=words.client_host,
            rebalance_timeout_ms=words.rebalance_timeout_ms,
            session_timeout_ms=words.classic_member_metadata.session_timeout_ms,
            protocols={each.name: each.metadata for each in words.classic_member_metadata.supported_protocols},
        )

    def encode_assignment(self, assignment: Mapping[bytes, Iterable[int]], subscription: bytes) -> bytes:
        """Encode an assignment for a classic member, in the version of the member's `subscription`."""
        topics = []
        for topic_id in sorted(assignment):
            image = self._topics.image_by_id(topic_id)
            if image is not None:
                topics.append(TopicPartition(topic=image.name, partitions=sorted(assignment[topic_id])))
        version = min(int.from_bytes(subscription[:2], "big"), ConsumerProtocolAssignment.versions.last)
        body = ConsumerProtocolAssignment(assigned_partitions=topics).encode(version)
        return version.to_bytes(2, "big") + body


def _no_upgrade(classic: ClassicGroup, reason: str) -> KafkaError:
    problem = f"Cannot upgrade classic group {classic.group_id} to consumer group {reason}."
    logger.info("%s", problem)
    return KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, problem)


def _decode_assignment(blob: bytes) -> ConsumerProtocolAssignment:
    version = int.from_bytes(blob[:2], "big", signed=True)
    if len(blob) < 2 or version < 0:
        raise ProtocolViolation(f"not a consumer assignment: {len(blob)} bytes, version {version}")
    return ConsumerProtocolAssignment.decode(blob, min(version, ConsumerProtocolAssignment.versions.last), start=2)


def _words_of(
    member: classic_members.Member, subscription: ConsumerProtocolSubscription
) -> records.ConsumerGroupMemberMetadataValue:
    protocols = [records.ClassicProtocol(name=name, metadata=data) for name, data in member.protocols.items()]
    return records.ConsumerGroupMemberMetadataValue(
        instance_id=member.group_instance_id,
        rack_id=subscription.rack_id or None,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(set(subscription.topics)),
        subscribed_topic_regex="",
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        classic_member_metadata=records.ClassicMemberMetadata(
            session_timeout_ms=member.session_timeout_ms, supported_protocols=protocols
        ),
    )
