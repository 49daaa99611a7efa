"""Creating topics: names, counts, manual assignments, several at once, timeouts, and what the answer tells."""

from typing import Any

from compat_tests.differential.asking_administration import (
    WITHOUT_INTERNAL_TOPICS,
    assigned_topic,
    by_name,
    create,
    metadata,
    new_topic,
)
from compat_tests.differential.conversation import OLDER, Talk, scenario

from ottla.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.wire.schema import ZERO_UUID

INT_MAX = (1 << 31) - 1
BAD_NAMES = ["", ".", "..", "x" * 250, "a b", "a/b", "ä", "a\x00b", "a:b", "a,b", " a", "a\n", "٣", "😀"]


def without_settings(answer: Any) -> None:
    """The settings of a new topic have scenarios of their own."""
    by_name()(answer)
    for topic in answer.topics:
        topic.configs = [] if topic.configs is None else topic.configs[:1]


def ask(talk: Talk, *topics: CreatableTopic, label: str | None = None, validate_only: bool = False) -> Any:
    request = create(*topics, validate_only=validate_only)
    return talk.ask(request, label=label, arrange=without_settings)


def told_partitions(answer: Any) -> None:
    for topic in answer.topics:
        topic.partitions.sort(key=lambda each: each.partition_index)


def show(talk: Talk, name: str, partitions: int) -> None:
    """Where a new topic is."""
    request = metadata(name)
    talk.until(request, lambda answer: len(answer.topics[0].partitions) == partitions)
    talk.ask(request, label="Metadata", arrange=lambda answer: (answer.brokers.clear(), told_partitions(answer)))


def is_not_there(talk: Talk, name: str) -> None:
    answer = talk.do(metadata(name))
    talk.note("the topic is there", not answer.topics[0].error_code)


@scenario(CreateTopicsRequest)
def names_that_cannot_be(talk: Talk) -> None:
    for name in BAD_NAMES:
        ask(talk, new_topic(name), label=repr(name[:20]))
    ask(talk, *(new_topic(name) for name in BAD_NAMES), label="all at once")


@scenario(CreateTopicsRequest)
def names_at_the_limits(talk: Talk) -> None:
    for kind in ("A-Z.a_z", "...", "_", "-", "0"):
        ask(talk, new_topic(talk.name(kind)))
    ask(talk, new_topic(talk.name("long").ljust(249, "x")), label="249 characters")
    ask(talk, new_topic(talk.name("long").ljust(250, "x")), label="250 characters")


@scenario(CreateTopicsRequest)
def names_that_collide(talk: Talk) -> None:
    ask(talk, new_topic(talk.name("of.two_kinds")))
    for kind in ("of_two.kinds", "of.two.kinds", "of_two_kinds", "of.two_kinds", "of-two-kinds", "OF.TWO.KINDS"):
        ask(talk, new_topic(talk.name(kind)), label=f"{kind} after of.two_kinds")
    ask(talk, new_topic(talk.name("in.one")), new_topic(talk.name("in_one")), label="both in one request")
    talk.do(
        DeleteTopicsRequest(
            topics=[DeleteTopicState(name=talk.name("of.two_kinds"), topic_id=ZERO_UUID)], timeout_ms=30_000
        )
    )
    ask(talk, new_topic(talk.name("of_two.kinds")), label="after its deletion")


@scenario(CreateTopicsRequest, settings=WITHOUT_INTERNAL_TOPICS)
def names_of_internal_topics(talk: Talk) -> None:
    ask(talk, new_topic("__cluster_metadata"))
    ask(talk, new_topic("__cluster_metadata"), new_topic("__cluster_metadata"), label="twice")
    ask(talk, new_topic("__cluster_metadata", 0, 0), label="with counts that cannot be")
    ask(talk, new_topic("__share_group_state"), validate_only=True)
    ask(talk, new_topic("__transaction_state", 1, 9), label="too many replicas")


@scenario(CreateTopicsRequest)
def names_that_are_taken(talk: Talk) -> None:
    topic = talk.topic(partitions=2)
    ask(talk, new_topic(topic.name))
    ask(talk, new_topic(topic.name), validate_only=True, label="validate only")
    ask(talk, new_topic(topic.name, 0, 0), label="with counts that cannot be")
    ask(talk, new_topic(topic.name, configs=[("no.such", "1")]), label="with a setting that cannot be")
    ask(talk, assigned_topic(topic.name, (5, [7])), label="with an assignment that cannot be")


@scenario(CreateTopicsRequest)
def twice_in_one_request(talk: Talk) -> None:
    twice, once, bad = talk.name("twice"), talk.name("once"), talk.name("bad")
    ask(talk, new_topic(twice), new_topic(once), new_topic(twice, 2), new_topic(bad, 0))
    is_not_there(talk, twice)
    ask(talk, *[new_topic(talk.name("thrice"))] * 3, label="three times")
    ask(talk, new_topic("a b"), new_topic("a b"), label="a name that cannot be, twice")
    ask(talk, new_topic(once), new_topic(once), label="a name that is taken, twice")


@scenario(CreateTopicsRequest)
def counts(talk: Talk) -> None:
    for partitions in (1, 3, 0, -1, -2, -INT_MAX, 10_000, 10_001, INT_MAX):
        ask(talk, new_topic(talk.name("counted"), partitions), validate_only=True, label=f"{partitions} partitions")
    for replicas in (1, 0, -1, -2, 2, 3, 32767, -32768):
        ask(talk, new_topic(talk.name("counted"), 1, replicas), validate_only=True, label=f"{replicas} replicas")
    ask(talk, new_topic(talk.name("counted"), 0, 0), label="0 and 0")
    ask(talk, new_topic(talk.name("counted"), 0, 2), label="0 partitions, 2 replicas")
    ask(talk, new_topic(talk.name("counted"), -1, -1), label="all by default")
    show(talk, talk.name("counted"), 4)


@scenario(CreateTopicsRequest)
def too_many_partitions_together(talk: Talk) -> None:
    first, second = talk.name("first"), talk.name("second")
    ask(talk, new_topic(first, 5000), new_topic(second, 5001), label="10,001 in two topics")
    ask(talk, new_topic(first, 9999), new_topic(second, -1), label="with the default's 4")
    ask(talk, new_topic(first, 10_001), new_topic("a b"), label="and a name that cannot be")
    ask(talk, new_topic(first, 10_001), new_topic(first, 1), label="twice, together too many")
    ask(talk, new_topic(first, 10_000), new_topic(second, -5), validate_only=True, label="and a negative number")
    ask(
        talk, new_topic(first, 9_998, configs=[("retention.ms", "1")]), validate_only=True, label="9,998 with a setting"
    )
    ask(talk, new_topic(first, 5_000), new_topic(second, 4_999), validate_only=True, label="9,999 in two topics")
    ask(talk, new_topic(second, 10_000), new_topic(first, 1), label="none is made if all are too many")
    is_not_there(talk, first)


@scenario(CreateTopicsRequest)
def manual_assignments(talk: Talk) -> None:
    ask(talk, assigned_topic(talk.name("assigned"), (0, [0]), (2, [0]), (1, [0])), label="three partitions")
    show(talk, talk.name("assigned"), 3)
    name = talk.name("other")
    for label, assignments in {
        "no replicas": [(0, [])],
        "one without replicas": [(0, [0]), (1, [])],
        "a broker twice": [(0, [0, 0])],
        "an unknown broker": [(0, [7])],
        "an unknown broker beside a known one": [(0, [0, 7])],
        "two unknown brokers": [(0, [9, 8])],
        "a negative broker": [(0, [-1])],
        "a partition twice": [(0, [0]), (0, [0])],
        "a partition twice, wrong the second time": [(0, [0]), (0, [7])],
        "a gap": [(0, [0]), (2, [0])],
        "not from 0": [(1, [0])],
        "a negative partition": [(-1, [0])],
        "a negative and 0": [(0, [0]), (-1, [0])],
        "different sizes": [(0, [0]), (1, [0, 1])],
        "different sizes, all unknown": [(0, [3]), (1, [3, 4])],
    }.items():
        ask(talk, assigned_topic(name, *assignments), label=label)
    is_not_there(talk, name)


@scenario(CreateTopicsRequest)
def assignments_and_counts(talk: Talk) -> None:
    name = talk.name("both")
    for partitions, replicas in ((1, -1), (-1, 1), (1, 1), (0, 0), (-2, -1), (-1, -2)):
        label = f"{partitions} partitions, {replicas} replicas"
        ask(talk, new_topic(name, partitions, replicas, [(0, [0])]), label=label)
    ask(talk, new_topic(name, 1, 1, [(0, [7])]), label="all wrong")
    ask(talk, assigned_topic(name, (0, [0])), validate_only=True, label="validate only")
    is_not_there(talk, name)


@scenario(CreateTopicsRequest)
def many_at_once(talk: Talk) -> None:
    kinds = [f"number {index}" for index in range(6)]
    names = [talk.name(each.replace(" ", "-")) for each in kinds]
    topics = [
        new_topic(names[0], 2),
        new_topic(names[1], 1, 3),
        new_topic(names[2], configs=[("retention.ms", "x")]),
        assigned_topic(names[3], (0, [0])),
        new_topic("no/name"),
        new_topic("__cluster_metadata"),
    ]
    ask(talk, *topics, validate_only=True, label="validate only")
    ask(talk, *topics)
    ask(talk, *topics, label="again")
    ask(talk, label="none")


@scenario(CreateTopicsRequest)
def order_of_checks(talk: Talk) -> None:
    """A topic that is wrong in several ways is told one of them."""
    name = talk.name("wrong")
    bad = [("no.such", "1")]
    ask(talk, new_topic("a b", 0, 0, configs=bad), label="name and all else")
    ask(talk, new_topic(name, 0, 0, configs=bad), label="setting and counts")
    ask(talk, new_topic(name, -1, -1, [(0, [7])], bad), label="setting and assignment")
    ask(talk, new_topic(name, configs=[("no.such", None)]), label="no value of an unknown setting")
    ask(talk, new_topic(name, 0, configs=[("retention.ms", None)]), label="no value and no partitions")
    ask(talk, new_topic("a b", configs=[("retention.ms", None)]), label="name and no value")


@scenario(CreateTopicsRequest)
def without_time(talk: Talk) -> None:
    for timeout_ms in (0, -1, -(1 << 31)):
        name = talk.name(f"in{timeout_ms}")
        request = create(new_topic(name), new_topic("a b"), timeout_ms=timeout_ms)
        talk.ask(request, label=f"timeout {timeout_ms}", arrange=without_settings)
    talk.ask(
        create(new_topic("a b"), timeout_ms=0, validate_only=True), label="validate only", arrange=without_settings
    )
    talk.ask(create(timeout_ms=0), label="nothing")
    twice = new_topic(talk.name("twice"))
    talk.ask(create(twice, twice, timeout_ms=0), label="twice", arrange=without_settings)
    request = create(twice, twice, new_topic("__cluster_metadata"), new_topic(talk.name("once")), timeout_ms=0)
    talk.ask(request, label="twice and once", arrange=without_settings)
    talk.ask(create(new_topic(talk.name("long")), timeout_ms=INT_MAX), label="for ever", arrange=without_settings)


@scenario(CreateTopicsRequest)
def what_the_answer_tells(talk: Talk) -> None:
    talk.ask(create(new_topic(talk.name("default"))), label="a topic", arrange=by_name())
    configs = [("retention.ms", "1000"), ("cleanup.policy", "compact,delete"), ("segment.bytes", " 2097152 ")]
    request = create(new_topic(talk.name("own"), 3, configs=configs))
    talk.ask(request, label="with settings of its own", arrange=by_name())
    validated = create(new_topic(talk.name("validated"), -1, -1, configs=configs[:1]), validate_only=True)
    talk.ask(validated, label="validate only", arrange=by_name())
    is_not_there(talk, talk.name("validated"))


@scenario(CreateTopicsRequest, versions="0-1", settings=OLDER)
def older_requests(talk: Talk) -> None:
    """Send v0 and v1, as Kafka 3.9 serves them: old tools send them without asking for the broker's versions."""
    one, two, three = (talk.name(each) for each in ("one", "two", "three"))
    ask(talk, new_topic(one, 2), label="a topic")
    show(talk, one, 2)
    ask(talk, assigned_topic(two, (0, [0]), (1, [0])), label="with assignments")
    ask(talk, new_topic(three, 1, configs=[("cleanup.policy", "compact")]), new_topic(one), label="one that is taken")
    for label, topic in (
        ("a name that cannot be", new_topic("a b")),
        ("no partitions", new_topic(talk.name("four"), 0)),
        ("too many replicas", new_topic(talk.name("four"), 1, 3)),
        ("an unknown setting", new_topic(talk.name("four"), configs=[("no.such", "1")])),
        ("a wrong value", new_topic(talk.name("four"), configs=[("retention.ms", "x")])),
    ):
        # Kafka 3.9 and 4 word their error messages differently.
        arrange = lambda answer: [setattr(each, "error_message", bool(each.error_message)) for each in answer.topics]
        talk.ask(create(topic), label=label, arrange=arrange)
    if talk.version >= 1:
        ask(talk, new_topic(talk.name("five")), label="only validated", validate_only=True)
        is_not_there(talk, talk.name("five"))
