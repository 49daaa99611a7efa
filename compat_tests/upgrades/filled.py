"""What a release leaves in a data directory, turn after turn, and all that any release then has to tell of it."""

from collections.abc import Sequence
from typing import Any

from compat_tests.files.filling import produce
from compat_tests.files.portrait import Asker, portrait
from compat_tests.support.brokers import BrokerProcess, wait_until
from compat_tests.support.groups import wait_for_groups
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from ottla.wire.messages.client_quotas import (
    AlterClientQuotasRequest,
    ComponentData,
    DescribeClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from ottla.wire.messages.share_group import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    ShareGroupHeartbeatRequest,
)

SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
CODECS = ("gzip", "lz4", "zstd", "snappy")
SHARED, FINISHED, OPEN = "shared", "finished", "open"
"""Topics: records of every turn; transactions that end in the turn they began in; those that end after it."""
GROUPS = {"old": "classic", "new": "consumer"}
SHARE_GROUP, MEMBER = "share", "AAAAAAAAAAAAAAAAAAAAAQ"
PER_TURN = 30


class Filled:
    """One data directory in the course of its turns. Its producers outlive them, as those of applications do."""

    def __init__(self, broker: BrokerProcess, address: str) -> None:
        """`address`: host:port, where the broker will be in every turn."""
        self.broker, self.bootstrap = broker, address
        self.turns = 0
        soon = {"bootstrap.servers": address, "reconnect.backoff.max.ms": 200, "retry.backoff.ms": 50, "log_level": 2}
        self._steady = Producer({**soon, "enable.idempotence": True})
        self._sent: list[int] = []
        self._open = Producer({**soon, "transactional.id": "open"})
        self._committed: list[bytes] = []

    def write(self) -> None:
        """One turn, of whatever release runs."""
        turn, admin = self.turns, AdminClient({"bootstrap.servers": self.bootstrap})
        self._make_topics(admin, turn)
        self._send_steadily()
        of_codec = {"compression.type": CODECS[turn % 4], "batch.num.messages": 10, "linger.ms": 60_000}
        produce(
            self.bootstrap, [(f"turn-{turn}", b"%d" % i, b"v%d " % i * 50, 1_000 + i) for i in range(30)], **of_codec
        )
        self._set(admin, ResourceType.TOPIC, SHARED, "max.message.bytes", str(1_000_000 + turn))
        self._set(admin, ResourceType.BROKER, "0", "log.cleaner.backoff.ms", str(15_000 + turn))
        self._let_in(admin, turn)
        self._finish_transactions(turn)
        self._consume()
        with Asker((self.broker.host, self.broker.port)) as asker:
            self._limit(asker, turn)
            self._share(asker, turn)
        self._begin_transaction(turn)
        self.turns += 1

    def go_on(self) -> None:
        """After another release has started: whoever was there before the turn goes on."""
        wait_for_groups(self.bootstrap)
        self._end_transaction(self.turns - 1)
        self._send_steadily()

    # ------------------------------------------------------------------ what is written

    def _make_topics(self, admin: AdminClient, turn: int) -> None:
        new = [NewTopic(f"turn-{turn}", 1, 1, config={"retention.ms": "-1"}), NewTopic(f"gone-{turn}", 2, 1)]
        if turn == 0:
            new += [NewTopic(name, 1, 1) for name in (SHARED, FINISHED, OPEN)]
        for created in admin.create_topics(new).values():
            created.result(60)
        names = {each.topic for each in new}
        wait_until(lambda: names <= admin.list_topics(timeout=60).topics.keys(), "the topics are known")
        # The other release has made it.
        if turn:
            admin.delete_topics([f"gone-{turn - 1}"])[f"gone-{turn - 1}"].result(60)

    def _send_steadily(self) -> None:
        first = len(self._sent)
        for number in range(first, first + PER_TURN):
            self._steady.produce(SHARED, b"%d" % number, partition=0, on_delivery=self._note)
        assert self._steady.flush(60) == 0
        # Its sequence numbers go on, and the broker gives each record the next offset: none twice, none left out.
        assert self._sent == [*range(first + PER_TURN)]

    def _note(self, error: object, message: Any) -> None:
        assert error is None, error
        assert int(message.value()) == message.offset()
        self._sent.append(message.offset())

    @staticmethod
    def _set(admin: AdminClient, kind: ResourceType, name: str, setting: str, value: str) -> None:
        entry = ConfigEntry(setting, value, incremental_operation=AlterConfigOpType.SET)
        [done] = admin.incremental_alter_configs([ConfigResource(kind, name, incremental_configs=[entry])]).values()
        done.result(60)

    def _let_in(self, admin: AdminClient, turn: int) -> None:
        """A rule, and a user with a password, which may be a user of the turn before."""
        rule = AclBinding(
            ResourceType.TOPIC,
            f"turn-{turn}",
            ResourcePatternType.PREFIXED,
            f"User:user-{turn}",
            "*",
            AclOperation.READ,
            AclPermissionType.ALLOW,
        )
        [made] = admin.create_acls([rule]).values()
        made.result(60)
        for name in {f"user-{turn}", f"user-{max(0, turn - 1)}"}:
            credential = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096 + turn)
            change = UserScramCredentialUpsertion(name, credential, b"known", salt=b"salt")
            [changed] = admin.alter_user_scram_credentials([change]).values()
            changed.result(60)

    def _finish_transactions(self, turn: int) -> None:
        """One that is committed and one that is aborted. The id was another process' in the turn before."""
        producer = Producer({"bootstrap.servers": self.bootstrap, "transactional.id": "finished"})
        producer.init_transactions(60)
        for value, end in ((b"c%d" % turn, producer.commit_transaction), (b"a%d" % turn, producer.abort_transaction)):
            producer.begin_transaction()
            producer.produce(FINISHED, value, partition=0)
            producer.flush(60)
            end(30)

    def _consume(self) -> None:
        """Each group goes on where the other release has left it: what it gets are the records since then."""
        end = len(self._sent)
        expected = [*range(max(0, end - 2 * PER_TURN) if self.turns else 0, end)]
        for group, protocol in GROUPS.items():
            settings = {"group.id": group, "group.protocol": protocol, "auto.offset.reset": "earliest"}
            consumer = Consumer({"bootstrap.servers": self.bootstrap, "enable.auto.commit": False, **settings})
            consumer.subscribe([SHARED])
            got: list[Any] = []
            wait_until(
                lambda: got.extend(consumer.consume(len(expected) - len(got), 1)) or len(got) == len(expected),  # noqa: B023
                group,  # noqa: B023, RUF100
            )
            assert [message.offset() for message in got] == expected
            consumer.commit(asynchronous=False)
            consumer.close()

    @staticmethod
    def _limit(asker: Asker, turn: int) -> None:
        entity = EntityData(entity_type="client-id", entity_name=f"client-{turn}")
        op = OpData(key="producer_byte_rate", value=1e6 + turn, remove=False)
        answer = asker.ask(
            AlterClientQuotasRequest(entries=[EntryData(entity=[entity], ops=[op])], validate_only=False), 1
        )
        assert [each.error_code for each in answer.entries] == [0]

    @staticmethod
    def _share(asker: Asker, turn: int) -> None:
        """The state of a share partition; a group has to exist for that, and must have no members."""
        for epoch in (0, -1):
            beat = ShareGroupHeartbeatRequest(
                group_id=SHARE_GROUP, member_id=MEMBER, member_epoch=epoch, subscribed_topic_names=[SHARED]
            )
            wait_until(lambda: asker.ask(beat, 1).error_code == 0, "the share group takes a member, and lets it go")  # noqa: B023
            # Its coordinator begins the state by itself, and would fail if the offsets were altered meanwhile.
            wait_until(lambda: _shared(asker), "the share group has begun the partition")
        part = AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=5 + turn)
        topics = [AlterShareGroupOffsetsRequestTopic(topic_name=SHARED, partitions=[part])]
        asked = AlterShareGroupOffsetsRequest(group_id=SHARE_GROUP, topics=topics)

        def is_done() -> bool:
            answer = asker.ask(asked, 0)
            return not answer.error_code and [p.error_code for t in answer.responses for p in t.partitions] == [0]

        wait_until(is_done, "the share group begins elsewhere")

    def _begin_transaction(self, turn: int) -> None:
        if turn == 0:
            self._open.init_transactions(60)
        self._open.begin_transaction()
        self._open.produce(OPEN, b"o%d" % turn, partition=0)
        self._open.flush(60)

    def _end_transaction(self, turn: int) -> None:
        if turn % 3 == 1:
            self._open.abort_transaction(60)
        else:
            self._open.commit_transaction(60)
            self._committed.append(b"o%d" % turn)

    # ------------------------------------------------------------------ what is told

    def told(self) -> dict[str, Any]:
        """Everything; the same of whoever has started on the directory."""
        wait_for_groups(self.bootstrap)
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        topics = {SHARED: 1, FINISHED: 1, OPEN: 1} | {f"turn-{turn}": 1 for turn in range(self.turns)}
        answers = portrait((self.broker.host, self.broker.port), topics, ["old"], ["new"])
        with Asker((self.broker.host, self.broker.port)) as asker:
            answers["quotas"] = _quotas(asker)
            answers["shared"] = wait_until(lambda: _shared(asker), "the share group tells its offsets")
        answers["names"] = sorted(admin.list_topics(timeout=60).topics)
        answers["broker's settings"] = _broker_settings(admin)
        answers["rules"] = sorted(map(str, admin.describe_acls(_ANY_RULE).result(60)))
        found = admin.describe_user_scram_credentials().result(60)
        answers["users"] = sorted(
            (name, str([vars(i) for i in each.scram_credential_infos])) for name, each in found.items()
        )
        return answers

    def committed(self, topic: str) -> Sequence[bytes]:
        settings = {"group.id": "unused", "isolation.level": "read_committed", "enable.partition.eof": True}
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "auto.offset.reset": "earliest", **settings})
        consumer.subscribe([topic])
        found = []
        while (message := wait_until(lambda: consumer.poll(1), "there is more, or an end")).error() is None:
            found.append(message.value())
        consumer.close()
        return found

    def check_transactions(self) -> None:
        assert self.committed(FINISHED) == [b"c%d" % turn for turn in range(self.turns)]
        assert self.committed(OPEN) == self._committed


_ANY_RULE = AclBindingFilter(
    ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
)


def _quotas(asker: Asker) -> Any:
    component = ComponentData(entity_type="client-id", match_type=2, match=None)
    answer = asker.ask(DescribeClientQuotasRequest(components=[component], strict=True), 1)
    assert answer.error_code == 0
    return sorted((e.entity[0].entity_name, [(v.key, v.value) for v in e.values]) for e in answer.entries)


def _shared(asker: Asker) -> Any:
    groups = [DescribeShareGroupOffsetsRequestGroup(group_id=SHARE_GROUP, topics=None)]
    [found] = asker.ask(DescribeShareGroupOffsetsRequest(groups=groups), 0).groups
    parts = [
        (t.topic_name, p.partition_index, p.start_offset, p.error_code) for t in found.topics for p in t.partitions
    ]
    return parts if not found.error_code and parts and not any(error for *_, error in parts) else None


def _broker_settings(admin: AdminClient) -> dict[str, str]:
    """What somebody has set. The release before says of min.insync.replicas that it is the default, later ones as Kafka 4.4."""
    [told] = admin.describe_configs([ConfigResource(ResourceType.BROKER, "0")]).values()
    return {
        name: each.value
        for name, each in told.result(60).items()
        if not each.is_default and name != "min.insync.replicas"
    }
