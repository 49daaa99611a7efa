"""Rules of the authorizer: what is taken and what is refused with which words, what filters find, and how rules are obeyed.

Nobody logs in here. Where rules are told and changed, the anonymous user is a super user. Where they are obeyed, it may do
what no rule is about (`allow.everyone.if.no.acl.found`).
"""

from typing import Any

from compat_tests.differential.asking import produce
from compat_tests.differential.conversation import Talk, scenario

from ottla.server.dispatch.access import AclOperation, ResourceType
from ottla.wire.messages.acls import (
    AclCreation,
    CreateAclsRequest,
    DeleteAclsFilter,
    DeleteAclsRequest,
    DescribeAclsRequest,
)
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.wire.messages.produce import ProduceRequest
from ottla.wire.record_encoding import encode_batch
from ottla.wire.records import Record
from ottla.wire.schema import ZERO_UUID

AUTHORIZER = {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}
ADMIN = AUTHORIZER | {"super.users": "User:other; User:ANONYMOUS ;"}
EVERYBODY = AUTHORIZER | {"allow.everyone.if.no.acl.found": "true"}

ANY, MATCH, LITERAL, PREFIXED = range(1, 5)
DENY, ALLOW = 2, 3
TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID = (
    ResourceType.TOPIC,
    ResourceType.GROUP,
    ResourceType.CLUSTER,
    ResourceType.TRANSACTIONAL_ID,
)
READ, WRITE, DESCRIBE, ALL = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.ALL
ME = "User:ANONYMOUS"


def rule(
    name: str,
    operation: int = READ,
    permission: int = ALLOW,
    *,
    who: str = "User:a",
    host: str = "*",
    kind: int = LITERAL,
    of: int = TOPIC,
) -> AclCreation:
    return AclCreation(
        resource_type=of,
        resource_name=name,
        resource_pattern_type=kind,
        principal=who,
        host=host,
        operation=operation,
        permission_type=permission,
    )


def find(
    name: str | None,
    kind: int = ANY,
    *,
    of: int = TOPIC,
    who: str | None = None,
    host: str | None = None,
    operation: int = ANY,
    permission: int = ANY,
) -> DescribeAclsRequest:
    return DescribeAclsRequest(
        resource_type_filter=of,
        resource_name_filter=name,
        pattern_type_filter=kind,
        principal_filter=who,
        host_filter=host,
        operation=operation,
        permission_type=permission,
    )


def gone(wanted: DescribeAclsRequest) -> DeleteAclsFilter:
    fields = DeleteAclsFilter.wire_fields
    return DeleteAclsFilter(**{name: getattr(wanted, name) for name in fields})


def by_name(answer: Any) -> None:
    """Kafka has patterns and rules in hash maps."""
    resources = getattr(answer, "resources", ())
    for each in resources:
        each.acls.sort(key=lambda one: (one.principal, one.host, one.operation, one.permission_type))
    if resources:
        resources.sort(key=lambda each: (each.resource_type, each.pattern_type, each.resource_name))
    for each in getattr(answer, "filter_results", ()):
        each.matching_acls.sort(
            key=lambda one: (
                one.resource_type,
                one.pattern_type,
                one.resource_name,
                one.principal,
                one.host,
                one.operation,
            )
        )


def create(talk: Talk, label: str, *rules: AclCreation) -> Any:
    return talk.ask(CreateAclsRequest(creations=list(rules)), label=label)


def told(talk: Talk, label: str, wanted: DescribeAclsRequest) -> Any:
    return talk.ask(wanted, label=label, arrange=by_name)


def delete(talk: Talk, label: str, *wanted: DescribeAclsRequest) -> Any:
    return talk.ask(DeleteAclsRequest(filters=[gone(each) for each in wanted]), label=label, arrange=by_name)


def settle(talk: Talk, name: str, count: int, *, of: int = TOPIC) -> None:
    """Waits until Kafka's broker has heard what its controller has decided."""
    talk.until(find(name, of=of), lambda answer: sum(len(each.acls) for each in answer.resources) == count)


# ------------------------------------------------------------------ telling and changing


@scenario(CreateAclsRequest, settings=ADMIN)
def added_told_and_removed(talk: Talk) -> None:
    prefix = talk.name("t")
    name = f"{prefix}-more"
    create(talk, "two, one of them twice", rule(name), rule(name, WRITE, DENY, host="10.0.0.1"), rule(name))
    create(talk, "again", rule(name))
    create(talk, "a prefix of the name", rule(prefix, ALL, kind=PREFIXED, who="User:b"))
    settle(talk, prefix, 1)
    for label, wanted in {
        "any pattern of the name": find(name),
        "what the name falls under": find(name, MATCH),
        "a literal": find(name, LITERAL),
        "a prefix": find(name, PREFIXED),
        "the prefix": find(prefix, PREFIXED),
        "of b": find(name, MATCH, who="User:b"),
        "of b without its type": find(name, MATCH, who="b"),
        "from everywhere": find(name, MATCH, host="*"),
        "denied": find(name, MATCH, permission=DENY),
        "to write": find(name, MATCH, operation=WRITE),
        "any type": find(name, MATCH, of=ANY),
        "another type": find(name, MATCH, of=GROUP),
        "a number without a name": find(name, MATCH, of=77),
        "an operation without a name": find(name, MATCH, operation=77),
        "a pattern without a name": find(name, 77),
    }.items():
        told(talk, label, wanted)
    delete(talk, "of nobody", find(name, who="User:nobody"))
    delete(talk, "twice the same", find(name, MATCH, who="User:a"), find(name, MATCH))
    settle(talk, name, 0)
    told(talk, "nothing is left", find(name, MATCH))
    delete(talk, "no filter")
    create(talk, "no rule")


@scenario(CreateAclsRequest, settings=ADMIN)
def rules_that_cannot_be(talk: Talk) -> None:
    """Kafka 4.4 refuses a request with ANY or MATCH in one rule as a whole, with UNKNOWN_SERVER_ERROR; Ottla only that rule."""
    name = talk.name("t")
    for label, bad in {
        "another cluster": rule("cluster", of=CLUSTER),
        "no name": rule(""),
        "a type without a name": rule(name, of=77),
        "a pattern without a name": rule(name, kind=77),
        "an operation without a name": rule(name, 77),
        "a permission without a name": rule(name, permission=77),
        "no type of principal": rule(name, who="a"),
        "no principal": rule(name, who=""),
        "no host": rule(name, host=""),
    }.items():
        create(talk, label, bad)
    create(talk, "one of three", rule(name), rule(name, who="a"), rule(name, WRITE))
    settle(talk, name, 2)
    delete(talk, "the two", find(name))


@scenario(CreateAclsRequest, settings=ADMIN)
def rules_of_any_kind(talk: Talk) -> None:
    name = talk.name("n")
    rules = {
        "letters": rule(f"Ä字 b{name}", who="User:Ä字 b"),
        "an operation that topics do not have": rule(name, AclOperation.IDEMPOTENT_WRITE),
        "another type of principal": rule(name, who="Team:a:b"),
        "no name of the principal": rule(name, who="User:"),
        "a host that is no address": rule(name, host="nowhere"),
        "a group": rule(name, of=GROUP),
        "a token": rule(name, DESCRIBE, of=ResourceType.DELEGATION_TOKEN),
        "a user": rule(name, AclOperation.CREATE_TOKENS, of=ResourceType.USER),
        "two phases": rule(name, AclOperation.TWO_PHASE_COMMIT, of=TRANSACTIONAL_ID),
    }
    for label, each in rules.items():
        create(talk, label, each)
        wanted = find(each.resource_name, LITERAL, of=each.resource_type, who=each.principal)
        talk.until(wanted, lambda answer: bool(answer.resources))
        told(talk, label, wanted)
        delete(talk, label, wanted)


@scenario(CreateAclsRequest, settings=ADMIN)
def networks(talk: Talk) -> None:
    name = talk.name("t")
    for host in (
        "10.0.0.0/8",
        "10.1.2.3/32",
        "0.0.0.0/0",
        "2001:db8::/32",
        "::/0",
        "10.0.0.0/33",
        "10.0.0/8",
        "10.0.0.256/8",
        "10.0.0.0/",
        "10.0.0.0/-1",
        "10.0.0.0/x",
        "/",
        "a/b",
        "2001:db8::/129",
        "2001:db8/32",
        "10.0.0.0/8/8",
    ):
        create(talk, host, rule(name, host=host))
    delete(talk, "all", find(name))


@scenario(DeleteAclsRequest, settings=ADMIN)
def filters_that_cannot_be(talk: Talk) -> None:
    name = talk.name("t")
    create(talk, "one", rule(name))
    settle(talk, name, 1)
    delete(
        talk,
        "some of them",
        find(name, 77),
        find(name, of=77),
        find(name, operation=77),
        find(name, permission=77),
        find(name, of=77, operation=77),
        find(name),
    )
    for label, wanted in {
        "no type": find(name, of=0),
        "no pattern": find(name, 0),
        "no operation": find(name, operation=0),
        "no permission": find(name, permission=0),
    }.items():
        delete(talk, label, wanted)
        told(talk, label, wanted)
    create(talk, "no operation", rule(name, 0))


@scenario(DescribeAclsRequest)
def without_an_authorizer(talk: Talk) -> None:
    told(talk, "all", find(None, of=ANY))
    create(talk, "one", rule("t"), rule(""))
    delete(talk, "all", find(None, of=ANY))


# ------------------------------------------------------------------ obeying


def metadata(*names: str, create_them: bool = False) -> MetadataRequest:
    return MetadataRequest(
        topics=[MetadataRequestTopic(topic_id=ZERO_UUID, name=name) for name in names],
        allow_auto_topic_creation=create_them,
        include_topic_authorized_operations=True,
    )


def by_topic(answer: Any) -> None:
    answer.topics.sort(key=lambda each: (each.error_code, each.name or ""))


@scenario(MetadataRequest, "8+", settings=EVERYBODY)
def topics_that_are_hidden(talk: Talk) -> None:
    topic, hidden, missing = talk.topic("seen"), talk.topic("hidden"), talk.name("missing")
    talk.do(CreateAclsRequest(creations=[rule(name, who="User:other") for name in (hidden.name, missing)]))
    settle(talk, missing, 1)
    talk.ask(metadata(topic.name, hidden.name, missing), label="by name", arrange=by_topic)
    talk.ask(metadata(topic.name, missing, talk.name("nowhere")), label="by name, two missing", arrange=by_topic)
    if talk.version >= 12:
        by_id = MetadataRequest(
            topics=[MetadataRequestTopic(topic_id=each.id, name=None) for each in (topic, hidden)],
            include_topic_authorized_operations=True,
        )
        talk.ask(by_id, label="by id", arrange=by_topic)
    everything = talk.link().talk.do(MetadataRequest(topics=None))
    names = {each.name for each in everything.topics}
    talk.note("of all topics", [topic.name in names, hidden.name in names])
    delete(talk, "the rules", find(hidden.name), find(missing))


@scenario(MetadataRequest, "8+", settings=EVERYBODY)
def what_may_be_done_to_a_topic(talk: Talk) -> None:
    topic = talk.topic()
    rules = [
        [rule(topic.name, READ, who=ME)],
        [rule(topic.name, WRITE, who="User:*"), rule(topic.name, DESCRIBE, DENY, who=ME)],
        [rule(topic.name, ALL, kind=PREFIXED, who=ME), rule(topic.name, AclOperation.DELETE, DENY, who=ME)],
        [rule(topic.name, AclOperation.ALTER_CONFIGS, who=ME), rule(topic.name, AclOperation.CREATE, who=ME)],
        [rule(topic.name, ALL, who=ME, host="127.0.0.0/8"), rule(topic.name, WRITE, DENY, who=ME, host="127.0.0.1")],
        [rule(topic.name, ALL, who=ME, host="10.0.0.0/8")],
    ]
    for number, some in enumerate(rules):
        talk.do(CreateAclsRequest(creations=some))
        settle(talk, some[0].resource_name, len({each.resource_name for each in some}) == 1 and len(some) or 1)
        settle(
            talk, some[-1].resource_name, len([each for each in some if each.resource_name == some[-1].resource_name])
        )
        talk.ask(metadata(topic.name), label=f"by rules {number}", arrange=by_topic)
        talk.do(DeleteAclsRequest(filters=[gone(find(topic.name, MATCH))]))
        settle(talk, topic.name, 0)


@scenario(ProduceRequest, "12+", settings=EVERYBODY)
def records_that_may_not_be_written(talk: Talk) -> None:
    good, bad = talk.topic("good"), talk.topic("bad")
    talk.do(CreateAclsRequest(creations=[rule(bad.name, READ, who=ME)]))
    settle(talk, bad.name, 1)
    batch = encode_batch([Record(0, 1, None, b"v")])
    for label, topic in (("good", good), ("bad", bad)):
        talk.ask(produce(topic, batch), label=label)
        talk.ask(produce(topic, batch, partition=9), label=f"{label}, no such partition")
        talk.ask(produce(topic, batch, acks=5), label=f"{label}, wrong acks")
    talk.ask(produce(bad._replace(id=b"x" * 16), batch), label="an unknown id, or the name")
    delete(talk, "the rule", find(bad.name))
