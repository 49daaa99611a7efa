"""Topics and settings that a rule of the authorizer hides from whoever asks, which is the anonymous user."""

from typing import Any

from compat_tests.differential.conversation import Talk, Topic, scenario
from compat_tests.differential.scenarios.acls import DESCRIBE, EVERYBODY, ME, delete, find, rule, settle

from ottla.server.dispatch.access import CLUSTER_NAME, AclOperation, ResourceType
from ottla.wire.messages.acls import CreateAclsRequest
from ottla.wire.messages.alter_configs import AlterableConfig, AlterConfigsRequest, AlterConfigsResource
from ottla.wire.messages.create_topics import (
    CreatableTopic,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
)
from ottla.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from ottla.wire.schema import ZERO_UUID


class Hidden:
    """A topic with rules for others only, one that may only be described, and a name of no topic that is hidden as well."""

    def __init__(self, talk: Talk, *, with_cluster: bool = True) -> None:
        """`with_cluster`: whether the asker may do everything to the cluster, as no rule is about it."""
        self._talk = talk
        self.hidden: Topic = talk.topic("hidden")
        self.seen: Topic = talk.topic("seen")
        self.missing = talk.name("missing")
        rules = [rule(self.hidden.name, who="User:other"), rule(self.seen.name, DESCRIBE, who=ME)]
        talk.do(CreateAclsRequest(creations=[*rules, rule(self.missing, who="User:other")]))
        for name in self.names:
            settle(talk, name, 1)
        self._of_cluster = [] if with_cluster else [find(CLUSTER_NAME, of=ResourceType.CLUSTER)]
        if not with_cluster:
            # What the broker itself needs, and what takes these rules away again.
            needed = [AclOperation.CLUSTER_ACTION, AclOperation.ALTER]
            of_cluster = [rule(CLUSTER_NAME, each, who=ME, of=ResourceType.CLUSTER) for each in needed]
            talk.do(CreateAclsRequest(creations=of_cluster))
            settle(talk, CLUSTER_NAME, 2, of=ResourceType.CLUSTER)

    @property
    def names(self) -> list[str]:
        return [self.hidden.name, self.seen.name, self.missing]

    def show(self) -> None:
        delete(self._talk, "the rules", *(find(name) for name in self.names), *self._of_cluster)


def by_error(answer: Any) -> None:
    """Kafka shuffles what it refuses."""
    for name in ("topics", "results", "responses"):
        if found := getattr(answer, name, None):
            found.sort(key=_place)


def _place(each: Any) -> tuple[Any, ...]:
    name = getattr(each, "name", None) or getattr(each, "resource_name", "")
    return each.error_code, name, getattr(each, "topic_id", ZERO_UUID) == ZERO_UUID


def _create(talk: Talk, made: Hidden) -> None:
    names = [*made.names, talk.name("twice"), talk.name("twice")]
    topics = [
        CreatableTopic(name=each, num_partitions=1, replication_factor=1, assignments=[], configs=[]) for each in names
    ]
    talk.ask(CreateTopicsRequest(topics=topics, timeout_ms=30_000, validate_only=True), arrange=by_error)
    made.show()


@scenario(CreateTopicsRequest, "5+", settings=EVERYBODY)
def hidden_topics_are_not_created(talk: Talk) -> None:
    _create(talk, Hidden(talk, with_cluster=False))


@scenario(CreateTopicsRequest, "5+", settings=EVERYBODY)
def hidden_topics_are_created_with_the_right_to_the_cluster(talk: Talk) -> None:
    _create(talk, Hidden(talk))


@scenario(CreatePartitionsRequest, "2+", settings=EVERYBODY)
def hidden_topics_get_no_partitions(talk: Talk) -> None:
    made = Hidden(talk)
    topics = [CreatePartitionsTopic(name=each, count=2, assignments=None) for each in made.names]
    talk.ask(CreatePartitionsRequest(topics=topics, timeout_ms=30_000, validate_only=False), arrange=by_error)
    made.show()


def _delete(talk: Talk, made: Hidden) -> None:
    by_name = [DeleteTopicState(name=each, topic_id=ZERO_UUID) for each in made.names]
    talk.ask(DeleteTopicsRequest(topics=by_name, timeout_ms=30_000), label="by name", arrange=by_error)
    for topic in (made.hidden, made.seen):
        by_id = DeleteTopicState(name=None, topic_id=topic.id)
        talk.ask(DeleteTopicsRequest(topics=[by_id], timeout_ms=30_000), label="by id")
    both = [
        DeleteTopicState(name=made.seen.name, topic_id=ZERO_UUID),
        DeleteTopicState(name=None, topic_id=made.seen.id),
    ]
    talk.ask(DeleteTopicsRequest(topics=both, timeout_ms=30_000), label="by both", arrange=by_error)
    made.show()


@scenario(DeleteTopicsRequest, "6", settings=EVERYBODY)
def hidden_topics_are_not_deleted(talk: Talk) -> None:
    _delete(talk, Hidden(talk, with_cluster=False))


@scenario(DeleteTopicsRequest, "6", settings=EVERYBODY)
def hidden_topics_are_deleted_with_the_right_to_the_cluster(talk: Talk) -> None:
    _delete(talk, Hidden(talk))


@scenario(DescribeTopicPartitionsRequest, settings=EVERYBODY)
def partitions_of_hidden_topics(talk: Talk) -> None:
    made = Hidden(talk)
    request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name=each) for each in made.names])
    talk.ask(request, arrange=by_error)
    made.show()


@scenario(DescribeConfigsRequest, "4", settings=EVERYBODY)
def settings_of_hidden_topics(talk: Talk) -> None:
    made = Hidden(talk)
    resources = [
        DescribeConfigsResource(resource_type=2, resource_name=each, configuration_keys=["segment.ms"])
        for each in [*made.names, talk.name("nowhere")]
    ]
    talk.ask(DescribeConfigsRequest(resources=resources), arrange=by_error)
    made.show()


@scenario(AlterConfigsRequest, "2", settings=EVERYBODY)
def settings_of_hidden_topics_stay(talk: Talk) -> None:
    made = Hidden(talk)
    resources = [
        AlterConfigsResource(
            resource_type=2, resource_name=each, configs=[AlterableConfig(name="segment.ms", value="x")]
        )
        for each in made.names
    ]
    talk.ask(AlterConfigsRequest(resources=resources, validate_only=False), arrange=by_error)
    made.show()
