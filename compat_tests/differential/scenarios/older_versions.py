"""Versions that Kafka 3.9 served and Kafka 4 does not, with `older.api.versions.enable`: conversations of the other files in those.

Error messages are compared by whether there is one: 3.9 has other words than 4.
"""

from collections.abc import Callable
from typing import Any

from compat_tests.differential.asking import fill
from compat_tests.differential.asking_administration import BROKER, BROKER_LOGGER, OWN_ID, TOPIC, describe
from compat_tests.differential.asking_offsets import (
    commit,
    commit_partition,
    commit_topic,
    fetch,
    fetch_group,
    offsets_of,
)
from compat_tests.differential.conversation import OLDER, Talk, Topic, scenario
from compat_tests.differential.scenarios import (
    acls,
    describe_configs,
    leader_epochs,
    log_dirs,
    offset_commit,
    tokens,
    transactional_records,
)
from compat_tests.differential.scenarios.offset_commit import nowhere

from ottla.wire.messages.acls import CreateAclsRequest, DeleteAclsRequest, DescribeAclsRequest
from ottla.wire.messages.delegation_tokens import (
    CreateDelegationTokenRequest,
    DescribeDelegationTokenRequest,
)
from ottla.wire.messages.describe_configs import DescribeConfigsRequest
from ottla.wire.messages.log_dirs import AlterReplicaLogDirsRequest, DescribableLogDirTopic, DescribeLogDirsRequest
from ottla.wire.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from ottla.wire.messages.offsets import OffsetCommitRequest, OffsetCommitRequestTopic, OffsetFetchRequest
from ottla.wire.messages.transactions import WriteTxnMarkersRequest

ZOOKEEPERS_RULES = OLDER | {
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:ANONYMOUS",
}
LONGEST_METADATA = 4096


def words(answer: Any) -> None:
    """Error messages by whether there is one."""
    for each in (answer, *getattr(answer, "results", ()), *getattr(answer, "filter_results", ())):
        if getattr(each, "error_message", None):
            each.error_message = "<words>"


def in_order(answer: Any) -> None:
    """Kafka gives the partitions as its hash maps hold them."""
    for group in (answer, *getattr(answer, "groups", ())):
        for topic in getattr(group, "topics", ()):
            topic.partitions.sort(key=lambda each: each.partition_index)
        if hasattr(group, "topics"):
            group.topics.sort(key=lambda each: each.name)


def with_words_hidden(talk: Talk, play: Callable[[Talk], Any]) -> None:
    """Play another file's conversation; error messages are replaced in what is written down."""
    _arranged(talk, play, words)


def with_order(talk: Talk, play: Callable[[Talk], Any]) -> None:
    """Play another file's conversation; topics and partitions are sorted in what is written down."""
    _arranged(talk, play, in_order)


def _arranged(talk: Talk, play: Callable[[Talk], Any], first: Callable[[Any], None]) -> None:
    asked = talk.ask

    def ask(request: Any, *arguments: Any, arrange: Callable[[Any], Any] | None = None, **options: Any) -> Any:
        def arranged(answer: Any) -> None:
            first(answer)
            if arrange is not None:
                arrange(answer)

        return asked(request, *arguments, arrange=arranged, **options)

    talk.ask = ask  # type: ignore[method-assign]
    play(talk)


# ------------------------------------------------------------------ offsets in ZooKeeper


def asked_of(group: str, *asked: tuple[Topic, list[int]]) -> OffsetFetchRequest:
    return fetch(fetch_group(group, *asked))


@scenario(OffsetCommitRequest, "0", settings=OLDER)
def commits_to_zookeeper(talk: Talk) -> None:
    group, topic, other, unknown = talk.group(), talk.topic(partitions=2), talk.topic("other"), nowhere(talk)

    def show(label: str) -> None:
        talk.ask(asked_of(group, (topic, [0, 1]), (other, [0])), 0, label=f"{label}, fetched", arrange=in_order)

    show("nothing yet")
    talk.ask(commit(group, topic, {0: 5}), label="one")
    show("one")
    talk.ask(commit(group, topic, {0: 6, 1: -7, 2: 1, -1: 1}), label="some that are not there")
    show("some that are not there")
    talk.ask(commit(group, unknown, {0: 1}), label="an unknown topic")
    talk.ask(commit(group, topic, {}), label="no partitions")
    talk.ask(commit(group, topic, {}, topics=[]), label="no topics")
    twice = OffsetCommitRequestTopic(
        name=topic.name, topic_id=topic.id, partitions=[commit_partition(0, at) for at in (8, 9)]
    )
    talk.ask(commit(group, topic, {}, topics=[twice, commit_topic(other, {0: 3})]), label="one twice")
    show("one twice")
    for length in (LONGEST_METADATA, LONGEST_METADATA + 1):
        long = OffsetCommitRequestTopic(
            name=topic.name,
            topic_id=topic.id,
            partitions=[commit_partition(1, length, committed_metadata="x" * length)],
        )
        talk.ask(commit(group, topic, {}, topics=[long]), label=f"{length} characters of metadata")
    show("metadata")
    for offset in (0, (1 << 63) - 1, -(1 << 63)):
        talk.ask(commit(group, topic, {0: offset}), label=f"offset {offset}")
        show(f"offset {offset}")
    offsets_of(talk, group, topic, label="of the coordinator, which knows nothing of them")


@scenario(OffsetCommitRequest, "0", settings=OLDER)
def groups_whose_names_are_paths(talk: Talk) -> None:
    topic = talk.topic()
    names = {
        "a slash": "a/b",
        "an empty part": "a//b",
        "a dot": ".",
        "two dots": "a/..",
        "nothing": "",
        "a zero": "a\0b",
    }
    names |= {
        "a slash in front": "/a",
        "a slash behind": "a/",
        "a percent sign": "a%b",
        "other letters": "ä 漢",
        "private": "\ue000",
    }
    for label, name in names.items():
        group = name and f"{name}-{talk.run}" if label not in ("a dot", "two dots", "a slash behind") else name
        talk.ask(commit(group, topic, {0: 5}), label=f"{label}, committed")
        talk.ask(asked_of(group, (topic, [0])), 0, label=f"{label}, fetched")


@scenario(OffsetFetchRequest, "0", settings=OLDER)
def offsets_from_zookeeper(talk: Talk) -> None:
    group, topic, other, unknown = talk.group(), talk.topic(partitions=3), talk.topic("other"), nowhere(talk)
    talk.do(commit(group, topic, {0: 5, 2: 7}), 0)
    talk.ask(asked_of(group, (topic, [0, 1, 2, 3, -1])), arrange=in_order, label="some")
    talk.ask(
        asked_of(group, (other, [0]), (topic, [2, 0]), (unknown, [0, 1])), arrange=in_order, label="of several topics"
    )
    talk.ask(asked_of(group, (topic, [0, 0, 1]), (topic, [0])), arrange=in_order, label="twice")
    talk.ask(asked_of(group, (topic, [])), arrange=in_order, label="no partitions")
    talk.ask(asked_of(group), arrange=in_order, label="no topics")
    talk.ask(asked_of(talk.name("nobody"), (topic, [0])), arrange=in_order, label="an unknown group")
    talk.do(commit(group, topic, {1: 9}), 1)
    talk.ask(asked_of(group, (topic, [1])), arrange=in_order, label="what the coordinator has")


@scenario(OffsetCommitRequest, "1", settings=OLDER)
def times_of_commits(talk: Talk) -> None:
    group, topic = talk.group(), talk.topic(partitions=5)
    for index, time in enumerate((-1, 0, 1000, -5, (1 << 63) - 1)):
        timed = OffsetCommitRequestTopic(
            name=topic.name, topic_id=topic.id, partitions=[commit_partition(index, 3, commit_timestamp=time)]
        )
        talk.ask(commit(group, topic, {}, topics=[timed]), label=f"at {time}")
    with_order(talk, lambda each: offsets_of(each, group, topic, partitions=range(5), label="all of them"))


@scenario(OffsetCommitRequest, "1", settings=OLDER)
def commits_in_each_state(talk: Talk) -> None:
    with_order(talk, offset_commit.commits_in_each_state)
    # Between two rebalances 3.9's coordinator tells other assignments than that of 4.
    talk.steps[:] = [each for each in talk.steps if not each[0].endswith("describe")]


@scenario(OffsetCommitRequest, "1", settings=OLDER)
def commits_of_missing_partitions(talk: Talk) -> None:
    with_order(talk, offset_commit.partitions_that_do_not_exist)


@scenario(OffsetCommitRequest, "1", settings=OLDER)
def metadata_of_all_lengths(talk: Talk) -> None:
    with_order(talk, offset_commit.metadata_of_all_lengths)


# ------------------------------------------------------------------ records


@scenario(OffsetForLeaderEpochRequest, "0-1", settings=OLDER)
def ends_of_epochs(talk: Talk) -> None:
    leader_epochs.ends_of_epochs(talk)


@scenario(OffsetForLeaderEpochRequest, "0-1", settings=OLDER)
def epochs_of_missing_partitions(talk: Talk) -> None:
    leader_epochs.missing_partitions(talk)


@scenario(WriteTxnMarkersRequest, "0", settings=OLDER | transactional_records.UNVERIFIED)
def a_hanging_transaction(talk: Talk) -> None:
    transactional_records.a_hanging_transaction(talk)


# ------------------------------------------------------------------ settings and directories


@scenario(DescribeConfigsRequest, "0", settings=OLDER)
def settings_of_topics_and_brokers(talk: Talk) -> None:
    topic = talk.topic("changed", retention_ms="5000")
    keys = ["retention.ms", "cleanup.policy", "segment.ms", "no.such"]
    with_words_hidden(talk, describe_configs.names_that_are_no_topics)
    with_words_hidden(talk, describe_configs.types_that_are_no_resources)
    for label, asked in {
        "a topic": describe((TOPIC, topic.name), keys=keys),
        "a broker": describe((BROKER, OWN_ID), keys=["log.retention.hours", "ssl.keystore.password", "num.partitions"]),
        "another broker": describe((BROKER, "7"), keys=keys),
        "all brokers": describe((BROKER, ""), keys=keys),
        "a logger": describe((BROKER_LOGGER, OWN_ID), keys=["no.such"]),
    }.items():
        describe_configs.ask(talk, asked, label)


@scenario(AlterReplicaLogDirsRequest, "0", settings=OLDER | log_dirs.THREE_DIRECTORIES)
def a_replica_moves(talk: Talk) -> None:
    log_dirs.a_replica_moves(talk)


@scenario(AlterReplicaLogDirsRequest, "0", settings=OLDER | log_dirs.THREE_DIRECTORIES)
def replicas_that_cannot_move(talk: Talk) -> None:
    log_dirs.places_that_are_none(talk)


@scenario(DescribeLogDirsRequest, "0", settings=OLDER)
def what_is_in_directories(talk: Talk) -> None:
    topic, unknown = talk.topic(partitions=2), nowhere(talk)
    fill(talk, topic, [1000, 2000])

    def show(label: str, *asked: tuple[str, list[int]]) -> None:
        topics = [DescribableLogDirTopic(topic=name, partitions=partitions) for name, partitions in asked]

        def by_index(answer: Any) -> None:
            for result in answer.results:
                result.log_dir = "<directory>"
                for each in result.topics:
                    each.partitions.sort(key=lambda partition: partition.partition_index)

        talk.ask(DescribeLogDirsRequest(topics=topics), label=label, arrange=by_index)

    show("two partitions", (topic.name, [0, 1]))
    show("one partition twice", (topic.name, [0, 0]))
    show("none that is there", (topic.name, [5]), (unknown.name, [0]))
    show("no topics")


# ------------------------------------------------------------------ rules


@scenario(CreateAclsRequest, "0", settings=ZOOKEEPERS_RULES)
def rules_are_made(talk: Talk) -> None:
    name = talk.name("t")
    acls.create(
        talk, "two, one of them twice", acls.rule(name), acls.rule(name, acls.WRITE, acls.DENY), acls.rule(name)
    )
    acls.create(talk, "again", acls.rule(name))
    acls.settle(talk, name, 2)
    acls.told(talk, "there they are", acls.find(name))
    talk.ask(CreateAclsRequest(creations=[acls.rule("")]), label="a resource without a name", arrange=words)
    talk.ask(CreateAclsRequest(creations=[acls.rule(name, 0)]), label="an operation that is none")


@scenario(DescribeAclsRequest, "0", settings=ZOOKEEPERS_RULES)
def rules_are_told(talk: Talk) -> None:
    """A prefix is not told to clients that know no prefixes."""
    prefix = talk.name("t")
    name = f"{prefix}-more"
    made = [
        acls.rule(name),
        acls.rule(prefix, kind=acls.PREFIXED),
        acls.rule(name, acls.WRITE, acls.DENY, who="User:b"),
    ]
    talk.do(CreateAclsRequest(creations=made))
    acls.settle(talk, name, 2)
    acls.settle(talk, prefix, 1)
    for label, wanted in {
        "by name": acls.find(name),
        "the prefix": acls.find(prefix),
        "of b": acls.find(name, who="User:b"),
        "denied": acls.find(name, permission=acls.DENY),
        "another type": acls.find(name, of=acls.GROUP),
        "nothing of the name": acls.find(talk.name("nowhere")),
        "an operation without a name": acls.find(name, operation=77),
        "an operation that is none": acls.find(name, operation=0),
    }.items():
        acls.told(talk, label, wanted)


@scenario(DeleteAclsRequest, "0", settings=ZOOKEEPERS_RULES)
def rules_are_removed(talk: Talk) -> None:
    name = talk.name("t")
    made = [acls.rule(name), acls.rule(name, kind=acls.PREFIXED), acls.rule(name, acls.WRITE, acls.DENY, who="User:b")]
    talk.do(CreateAclsRequest(creations=made))
    acls.settle(talk, name, 3)
    acls.delete(talk, "of nobody", acls.find(name, who="User:nobody"))
    acls.delete(talk, "of b, and of nobody", acls.find(name, who="User:b"), acls.find(name, who="User:c"))
    acls.delete(talk, "all of the name", acls.find(name))
    acls.settle(talk, name, 1)
    acls.told(talk, "the prefix is left", acls.find(name))
    acls.delete(talk, "no filter")
    acls.delete(talk, "an operation that is none", acls.find(name, operation=0))


@scenario(DescribeAclsRequest, "0", settings=OLDER)
def without_an_authorizer(talk: Talk) -> None:
    talk.ask(acls.find(talk.name("t")), label="told", arrange=words)
    talk.ask(CreateAclsRequest(creations=[acls.rule("t")]), 0, label="made", arrange=words)
    talk.ask(DeleteAclsRequest(filters=[acls.gone(acls.find("t"))]), 0, label="removed", arrange=words)


# ------------------------------------------------------------------ tokens

TOKENS = (
    OLDER
    | {
        name: value
        for name, value in tokens.TOKENS.items()
        if "controller" not in name and name != "listener.security.protocol.map"
    }
    | {
        "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT",
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    }
)


@scenario(CreateDelegationTokenRequest, "0", settings=TOKENS)
def the_life_of_a_token(talk: Talk) -> None:
    tokens.everybody(talk)
    for label, request in {
        "one": tokens.creation(),
        "for two hours": tokens.creation(lifetime_ms=2 * tokens.HOUR_MS),
        "a renewer of another type": tokens.creation("User:bob", "Group:g"),
    }.items():
        tokens.ask(talk, "alice", label, request)
    hmac = talk.do(tokens.creation("User:bob"), 0, of="alice").hmac
    later = (
        ("bob", "renewed", tokens.renewal(hmac, 2 * tokens.HOUR_MS)),
        ("alice", "renewed by its owner", tokens.renewal(hmac, 3 * tokens.HOUR_MS)),
        ("bob", "renewed, which is not there", tokens.renewal(b"x", 1)),
        ("bob", "told", DescribeDelegationTokenRequest(owners=None)),
        ("bob", "told of nobody", tokens.owned_by()),
        ("bob", "in two hours", tokens.expiry(hmac, 2 * tokens.HOUR_MS)),
        ("bob", "ended, which is not there", tokens.expiry(b"x", -1)),
        ("alice", "ended at once", tokens.expiry(hmac, -1)),
    )
    for who, label, asked in later:
        talk.ask(asked, 0, of=who, label=label, arrange=tokens.from_now)


@scenario(CreateDelegationTokenRequest, "0", settings=OLDER)
def tokens_without_a_login(talk: Talk) -> None:
    talk.ask(tokens.creation(), label="made")
    talk.ask(tokens.renewal(b"x", 1000), 0, label="renewed")
    talk.ask(tokens.expiry(b"x", 1000), 0, label="ended")
    talk.ask(DescribeDelegationTokenRequest(owners=None), 0, label="told")
