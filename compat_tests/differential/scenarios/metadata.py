"""Metadata: which topics are told, which are made, and what is said of those that are missing."""

from collections import Counter
from typing import Any

from compat_tests.differential.asking_reading import SPARING, nowhere
from compat_tests.differential.conversation import Talk, scenario

from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.wire.schema import ZERO_UUID

SINGLE_FLAG_SINCE = 4
NULL_NAMES_SINCE = 10


def named(*names: str | None, topic_id: bytes = ZERO_UUID) -> list[MetadataRequestTopic]:
    return [MetadataRequestTopic(name=name, topic_id=topic_id) for name in names]


def request(topics: list[MetadataRequestTopic] | None, *, may_create: bool = False, **flags: bool) -> MetadataRequest:
    return MetadataRequest(topics=topics, allow_auto_topic_creation=may_create, **flags)


def ask(talk: Talk, asked: MetadataRequest, label: str) -> Any:
    """Of all topics only this telling's are looked at; they are sorted, as Kafka answers in the order of a hash map."""

    def arrange(answer: Any) -> None:
        told = answer.topics if asked.topics else [each for each in answer.topics if talk.run in each.name]
        answer.topics = sorted(told, key=lambda each: each.name or "")
        for topic in answer.topics:
            topic.partitions.sort(key=lambda partition: partition.partition_index)

    return talk.ask(asked, label=label, arrange=arrange)


@scenario(MetadataRequest)
def all_or_none(talk: Talk) -> None:
    talk.topic("one", partitions=3)
    talk.topic("two")
    if talk.version > 0:  # null is not in the language of v0, where an empty list means all
        ask(talk, request(None), "all topics")
        ask(talk, request(None, may_create=True), "all topics, and make those that are missing")
    ask(talk, request([]), "an empty list")


@scenario(MetadataRequest)
def some_by_name(talk: Talk) -> None:
    one, two = talk.topic("one", partitions=2), talk.topic("two")
    missing = talk.name("missing")
    ask(talk, request(named(one.name)), "one")
    ask(talk, request(named(two.name, one.name)), "two")
    ask(talk, request(named(one.name, one.name)), "one twice")
    if talk.version >= SINGLE_FLAG_SINCE:  # before, asking for it makes it
        ask(talk, request(named(missing)), "a missing one")
        ask(talk, request(named(missing, one.name, missing)), "a missing one twice, and one that is there")
        ask(talk, request(named(missing)), "it is still missing")


@scenario(MetadataRequest)
def names_that_cannot_be(talk: Talk) -> None:
    for name in ("", ".", "..", "a b", "a/b", "\u00e4", "x" * 250):
        for may_create in (False, True):
            ask(talk, request(named(name), may_create=may_create), f"{name[:9]!r}, {may_create}")
    ask(talk, request(named("a b", talk.topic().name, "a/b")), "among good")


@scenario(MetadataRequest)
def made_on_demand(talk: Talk) -> None:
    name = talk.name("made")
    first = talk.do(request(named(name), may_create=True), talk.version)
    talk.note("the first answer", [each.error_code for each in first.topics])
    talk.known_topic("made", partitions=4)
    ask(talk, request(named(name), may_create=True), "made with the default number of partitions")
    long = f"{talk.name('x')}{'x' * 200}"
    ask(talk, request(named(long, "a b"), may_create=True), "one that can be made and one that cannot")


@scenario(MetadataRequest)
def names_that_collide(talk: Talk) -> None:
    """A dot and an underscore are the same to the names of metrics, so only one of two such names can be had."""
    talk.topic("one.two")
    ask(talk, request(named(talk.name("one_two")), may_create=True), "colliding")


@scenario(MetadataRequest, settings=SPARING)
def nothing_is_made(talk: Talk) -> None:
    name = talk.name("missing")
    for may_create in (True, False):
        ask(talk, request(named(name, "a b"), may_create=may_create), f"may create {may_create}")
    ask(talk, request(named(name), may_create=True), "it is still missing")


@scenario(MetadataRequest, versions="10+")
def by_id(talk: Talk) -> None:
    """v10 brought ids; questions may hold them from v12 on."""
    one, two = talk.topic("one"), talk.topic("two")
    unknown = nowhere(talk)
    ask(talk, request(named(None, topic_id=one.id)), "an id")
    ask(talk, request(named(one.name, topic_id=one.id)), "an id with its name")
    ask(talk, request(named(two.name, topic_id=one.id)), "an id with another's name")
    ask(talk, request(named(None, topic_id=unknown.id)), "an unknown id")
    ask(talk, request(named(None, topic_id=unknown.id), may_create=True), "an unknown id, may create")
    ask(talk, request(named(talk.name("missing"), topic_id=unknown.id), may_create=True), "an unknown id with a name")
    several = named(None, topic_id=two.id) + named(None, topic_id=unknown.id) + named(None, topic_id=one.id)
    ask(talk, request(several), "several ids")
    ask(talk, request(several + several), "several ids twice")
    ask(talk, request(named(None, topic_id=one.id) + named(two.name)), "an id and a name")
    ask(talk, request(named(None, topic_id=one.id) + named(talk.name("missing"))), "an id and a missing name")
    ask(talk, request(named(None, topic_id=one.id) + named(None)), "an id and nothing")
    ask(talk, request(named(one.name, topic_id=bytes(15) + b"\x01")), "a reserved id with a name")


@scenario(MetadataRequest, versions=f"{NULL_NAMES_SINCE}+")
def neither_name_nor_id(talk: Talk) -> None:
    """Before v10 a name could not be null."""
    topic = talk.topic()
    ask(talk, request(named(None)), "neither")
    ask(talk, request(named(None, topic.name)), "neither, beside a name")
    ask(talk, request(named(None, topic_id=topic.id) + named(None, topic.name), may_create=True), "with a known id")


@scenario(MetadataRequest)
def internal_topics(talk: Talk) -> None:
    talk.group()  # makes __consumer_offsets
    answer = ask(talk, request(named("__consumer_offsets")), "__consumer_offsets")
    assert answer.topics


@scenario(MetadataRequest, versions="8+")
def authorized_operations(talk: Talk) -> None:
    """v8 brought the flags; from v11 on DescribeCluster answers for the cluster."""
    topic = talk.topic()
    asked = named(topic.name, talk.name("missing"), "a b")
    for cluster in (False, True):
        for topics in (False, True):
            flags = {
                "include_cluster_authorized_operations": cluster,
                "include_topic_authorized_operations": topics,
            }
            ask(talk, request(asked, **flags), f"cluster {cluster}, topics {topics}")
    ask(talk, request([], include_topic_authorized_operations=True), "of no topics")
    ask(talk, request(named("", topic.name), include_topic_authorized_operations=True), "of an empty name")
    if talk.version >= 12:
        unknown = named(None, topic_id=nowhere(talk).id) + named(None, topic_id=topic.id)
        ask(talk, request(unknown, include_topic_authorized_operations=True), "of ids")


@scenario(MetadataRequest)
def names_that_look_internal(talk: Talk) -> None:
    for name in ("__cluster_metadata", "__consumer_offsets_of_ours"):
        if talk.version >= SINGLE_FLAG_SINCE:
            ask(talk, request(named(name)), name)


@scenario(MetadataRequest)
def a_great_many_names(talk: Talk) -> None:
    """More than fit into one piece of work; none of them can be made."""
    topic = talk.topic()
    names = [f"no name {number:04}" for number in range(3000)]
    answer = talk.do(request(named(topic.name, *names, *names), may_create=True), talk.version)
    errors = Counter(each.error_code for each in answer.topics)
    told = sorted(each.name for each in answer.topics if each.error_code)
    talk.note("errors and how often", sorted(errors.items()))
    talk.note("each name once", told == names)
