"""Streams groups: joining, sharing tasks, fencing, static members, topologies that fit and that do not."""

from typing import Any

from compat_tests.differential.asking_groups import Member
from compat_tests.differential.asking_offsets import commit
from compat_tests.differential.asking_stages import EMPTY, STABLE, stage
from compat_tests.differential.asking_streams import (
    StreamsMember,
    describe,
    ids,
    internal,
    rounds,
    subtopology,
    topology,
)
from compat_tests.differential.conversation import Talk, scenario

from ottla.groupcoord.streams.topology import Status
from ottla.wire.messages.alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalConfig,
    IncrementalConfigsResource,
)
from ottla.wire.messages.groups import DeleteGroupsRequest, ListGroupsRequest
from ottla.wire.messages.streams_group import (
    Endpoint,
    KeyValue,
    StreamsGroupDescribeRequest,
    StreamsGroupHeartbeatRequest,
    StreamsGroupTopologyDescriptionUpdateRequest,
    TaskOffset,
    Topology,
    TopologyDescription,
)

AT_ONCE = {"group.streams.initial.rebalance.delay.ms": "0", "group.streams.assignment.interval.ms": "0"}
WITH_STANDBY = AT_ONCE | {"group.streams.num.standby.replicas": "1"}


def source(talk: Talk, kind: str = "topic", partitions: int = 2) -> str:
    """A topic that the group coordinator has heard of."""
    topic = talk.topic(kind, partitions).name
    plan = topology(subtopology("0", topic))
    probe = StreamsMember(talk, talk.group(f"probe-of-{kind}"), "probe", plan)

    def is_seen(answer: Any) -> bool:
        return all(each.status_code != Status.MISSING_SOURCE_TOPICS for each in answer.status)

    talk.until(probe.join_request(), is_seen, newest_heartbeat(talk))
    return topic


def newest_heartbeat(talk: Talk) -> int:
    return talk.version_of(StreamsGroupHeartbeatRequest)


def plain(talk: Talk, partitions: int = 2) -> Topology:
    return topology(subtopology("0", source(talk, partitions=partitions)))


def made(talk: Talk, member: StreamsMember, *kinds: str, partitions: int) -> None:
    """The member joins, and waits until the topics are there that it needs."""
    member.join()
    for kind in kinds:
        talk.known_topic(kind, partitions)
    talk.until(member.join_request(), lambda answer: not answer.status, newest_heartbeat(talk))
    member.join()


@scenario(StreamsGroupHeartbeatRequest, settings=AT_ONCE)
def one_member(talk: Talk) -> None:
    member = StreamsMember(talk, talk.group(), "alone", plain(talk))
    member.join()
    describe(talk, member.group)
    member.beat()
    describe(talk, member.group)
    member.beat_with_tasks()
    member.join()
    member.leave()
    member.beat()
    describe(talk, member.group)


@scenario(StreamsGroupHeartbeatRequest, settings=AT_ONCE)
def two_members_share(talk: Talk) -> None:
    group, plan = talk.group(), plain(talk, 4)
    first, second = (StreamsMember(talk, group, name, plan) for name in ("first", "second"))
    first.join()
    second.join()
    describe(talk, group)
    first.beat_with_tasks(active_tasks=ids({"0": [0, 1, 2, 3]}))
    describe(talk, group)
    second.beat()
    first.beat()
    first.beat_with_tasks()
    second.beat()
    describe(talk, group)
    first.leave()
    second.beat()
    second.beat_with_tasks()
    describe(talk, group)


@scenario(StreamsGroupHeartbeatRequest, settings=WITH_STANDBY)
def standby_tasks(talk: Talk) -> None:
    group, topic = talk.group(), source(talk, partitions=3)
    plan = topology(
        subtopology("0", topic, writes=[talk.name("between")]),
        subtopology("1", reads=[internal(talk.name("between"))], keeps=[internal(talk.name("store"))]),
    )
    members = [StreamsMember(talk, group, name, plan) for name in ("first", "second", "third")]
    made(talk, members[0], "between", "store", partitions=3)
    rounds(members[:1], 1)
    members[1].join()
    rounds(members[:2])
    members[2].join()
    rounds(members)
    describe(talk, group)
    members[0].leave()
    rounds(members[1:])
    describe(talk, group)


@scenario(StreamsGroupHeartbeatRequest, settings=WITH_STANDBY)
def many_members_in_few_processes(talk: Talk) -> None:
    """Kafka's own order decides who gets a task where the load is equal."""
    group, topic = talk.group(), source(talk, partitions=7)
    plan = topology(
        subtopology("0", topic, writes=[talk.name("between")]),
        subtopology("1", reads=[internal(talk.name("between"), 5)], keeps=[internal(talk.name("store"))]),
        subtopology("2", topic),
    )
    members = [
        StreamsMember(talk, group, f"m{number}", plan, process=f"p{number % 4}") for number in (5, 1, 8, 3, 9, 2, 7)
    ]
    made(talk, members[0], "between", "store", partitions=5)
    for count in range(2, len(members) + 1):
        members[count - 1].join()
        rounds(members[:count], 2)
    rounds(members, 3)
    describe(talk, group)


@scenario(StreamsGroupHeartbeatRequest, settings=AT_ONCE)
def members_out_of_step(talk: Talk) -> None:
    group, plan = talk.group(), plain(talk, 2)
    first, second = (StreamsMember(talk, group, name, plan) for name in ("first", "second"))
    nobody = StreamsMember(talk, group, "nobody", plan)
    nobody.beat(member_epoch=3)
    nobody.leave()
    first.join()
    nobody.beat(member_epoch=3)
    nobody.leave()
    for epoch in (1, 3, 2_000_000_000, -3):
        first.beat(member_epoch=epoch)
    second.join()
    first.beat_with_tasks(active_tasks=ids({"0": [0, 1]}))
    before = first.epoch
    first.beat_with_tasks()
    first.beat(member_epoch=before)
    first.beat_with_tasks(member_epoch=before)
    first.beat_with_tasks(member_epoch=before, active_tasks=ids({"0": [0, 1]}))
    first.beat(group_id=talk.name("nowhere"))
    first.leave()
    first.leave()


@scenario(StreamsGroupHeartbeatRequest, settings=AT_ONCE)
def static_members(talk: Talk) -> None:
    group, plan = talk.group(), plain(talk, 2)
    first = StreamsMember(talk, group, "first", plan, instance="instance", process="process")
    heir = StreamsMember(talk, group, "heir", plan, instance="instance", process="process")
    first.join()
    heir.join()
    heir.beat(member_epoch=2)
    heir.leave()
    first.beat(instance_id="another")
    first.leave(-2)
    describe(talk, group)
    heir.join()
    describe(talk, group)
    heir.beat()
    first.beat(member_epoch=2)
    heir.leave(-2)
    heir.join(process_id="another process")
    heir.leave()
    describe(talk, group)


@scenario(StreamsGroupHeartbeatRequest, settings=AT_ONCE)
def requests_that_cannot_be(talk: Talk) -> None:
    group, plan = talk.group(), plain(talk)
    member = StreamsMember(talk, group, "member", plan)
    topic = plan.subtopologies[0].source_topics[0]

    def wrong(label: str, **details: Any) -> None:
        member.send(member.join_request(**details), label)

    wrong("has no id", member_id="")
    wrong("has a blank id", member_id=" \t")
    wrong("has no group", group_id="")
    wrong("has an empty instance", instance_id="")
    wrong("has an empty rack", rack_id="")
    wrong("says no timeout", rebalance_timeout_ms=-1)
    wrong("says no topology", topology=None)
    for role in ("active_tasks", "standby_tasks", "warmup_tasks"):
        wrong(f"says nothing of {role}", **{role: None})
        wrong(f"has {role} already", **{role: ids({"0": [0]})})
    wrong("reads by an expression", topology=topology(subtopology("0", regex=["a.*"])))
    wrong("wants a changelog of a size", topology=topology(subtopology("0", topic, keeps=[internal("store", 3)])))
    wrong("reads Kafka's topics", topology=topology(subtopology("0", topic, "__consumer_offsets")))
    wrong("reads topics without a name", topology=topology(subtopology("0", topic, "", "a/b")))
    wrong("has no sources", topology=topology(subtopology("0")))
    wrong("has nobody who writes", topology=topology(subtopology("0", topic, reads=[internal("between")])))
    loop = (
        subtopology("0", reads=[internal("a")], writes=["b"]),
        subtopology("1", reads=[internal("b")], writes=["a"]),
    )
    wrong("writes in a circle", topology=topology(*loop))
    wrong("comes for a while", member_epoch=-2, topology=None)
    member.join()
    member.beat(topology=plan)
    member.beat(active_tasks=[])
    member.beat_with_tasks(active_tasks=ids({"0": [2]}))
    member.beat_with_tasks(active_tasks=ids({"0": [-1]}))
    member.beat_with_tasks(standby_tasks=ids({"1": [0]}))
    twice = [TaskOffset(subtopology_id="0", partition=0, offset=5)] * 2
    member.beat(task_offsets=twice)


@scenario(StreamsGroupHeartbeatRequest, settings=AT_ONCE)
def topologies_that_differ(talk: Talk) -> None:
    group, topic = talk.group(), source(talk)
    first = StreamsMember(talk, group, "first", topology(subtopology("0", topic), epoch=1))
    first.join()
    second = StreamsMember(talk, group, "second", first.plan)
    second.join(topology=topology(subtopology("0", topic), epoch=2))
    second.join(topology=topology(subtopology("1", topic), epoch=1))
    second.join(topology=topology(subtopology("7", topic), epoch=0))
    second.beat()
    describe(talk, group)


@scenario(StreamsGroupHeartbeatRequest, settings=AT_ONCE)
def topics_that_do_not_fit(talk: Talk) -> None:
    two, three, store = source(talk, "two", 2), source(talk, "three", 3), source(talk, "store", 2)
    plans = {
        "missing": topology(subtopology("0", two, *(talk.name(each) for each in ("e", "d", "c", "b", "a")))),
        "joined": topology(subtopology("0", two, three, joins=[([0, 1], [])])),
        "store": topology(subtopology("0", three, keeps=[internal(store)])),
        "fixed": topology(
            subtopology("0", two, writes=[talk.name("x")]),
            subtopology("1", three, reads=[internal(talk.name("x"), 4)], joins=[([0], [0])]),
        ),
        "both fixed": topology(
            subtopology("0", two, writes=[talk.name("y"), talk.name("z")]),
            subtopology("1", reads=[internal(talk.name("y"), 4), internal(talk.name("z"), 5)], joins=[([], [0, 1])]),
        ),
    }
    for kind, plan in plans.items():
        member = StreamsMember(talk, talk.group(f"group of {kind}".replace(" ", "-")), "member", plan)
        member.join()
        member.beat()
        describe(talk, member.group)


@scenario(StreamsGroupHeartbeatRequest, settings=AT_ONCE)
def internal_topics_that_cannot_be_created(talk: Talk) -> None:
    plan = topology(subtopology("0", source(talk), keeps=[internal(talk.name("store"), replication_factor=3)]))
    member = StreamsMember(talk, talk.group(), "member", plan)
    member.join()
    told = "Creation failed"
    version = newest_heartbeat(talk)
    talk.until(member.join_request(), lambda answer: told in answer.status[0].status_detail, version)
    describe(talk, member.group)


@scenario(StreamsGroupHeartbeatRequest, settings=AT_ONCE)
def sources_that_come_later(talk: Talk) -> None:
    plan = topology(subtopology("0", talk.name("topic")))
    member = StreamsMember(talk, talk.group(), "member", plan)
    member.join()
    describe(talk, member.group)
    talk.topic(partitions=3)
    version = newest_heartbeat(talk)
    talk.until(member.join_request(), lambda answer: not answer.status, version)
    member.join()
    describe(talk, member.group)


@scenario(StreamsGroupHeartbeatRequest, settings=AT_ONCE)
def endpoints(talk: Talk) -> None:
    group, plan = talk.group(), plain(talk, 2)
    first = StreamsMember(talk, group, "first", plan, endpoint=Endpoint(host="one", port=1))
    second = StreamsMember(talk, group, "second", plan, endpoint=Endpoint(host="two", port=65_535))
    first.join()
    first.beat()
    first.beat(endpoint_information_epoch=-1)
    first.beat()
    second.join()
    first.beat_with_tasks()
    first.beat_with_tasks()
    second.beat()
    first.beat()
    second.beat(user_endpoint=Endpoint(host="moved", port=2))
    first.beat()
    second.leave()
    first.beat()
    describe(talk, group)


@scenario(StreamsGroupHeartbeatRequest, settings=AT_ONCE | {"group.streams.rack.aware.assignment.tags": "zone,rack"})
def members_that_lack_tags(talk: Talk) -> None:
    member = StreamsMember(talk, talk.group(), "member", plain(talk))
    member.join()
    member.beat(client_tags=[KeyValue(key="zone", value="z")])
    member.beat(client_tags=[KeyValue(key="zone", value="z"), KeyValue(key="rack", value="r")])
    describe(talk, member.group)


@scenario(StreamsGroupHeartbeatRequest, settings=AT_ONCE)
def the_application_stops(talk: Talk) -> None:
    group, plan = talk.group(), plain(talk)
    first, second = (StreamsMember(talk, group, name, plan) for name in ("first", "second"))
    first.join()
    second.join()
    first.beat(shutdown_application=True)
    second.beat(shutdown_application=True)
    first.leave()
    second.beat()
    second.leave()
    second.join()


@scenario(StreamsGroupHeartbeatRequest)
def waiting_for_the_first_members(talk: Talk) -> None:
    group, plan = talk.group(), plain(talk, 2)
    first, second = (StreamsMember(talk, group, name, plan) for name in ("first", "second"))
    first.join()
    first.beat()
    second.join()
    describe(talk, group)
    version = newest_heartbeat(talk)
    talk.until(first.join_request(), lambda answer: not answer.status, version)
    first.join()
    second.join()
    describe(talk, group)


@scenario(StreamsGroupDescribeRequest, settings=AT_ONCE)
def described(talk: Talk) -> None:
    group = talk.group()
    plan = topology(subtopology("0", source(talk), keeps=[internal(source(talk, "store"))]))
    member = StreamsMember(talk, group, "member", plan, endpoint=Endpoint(host="host", port=9))
    member.join(rack_id="rack", client_tags=[KeyValue(key="zone", value="z")])
    offsets = [TaskOffset(subtopology_id="0", partition=number, offset=10 + number) for number in (1, 0)]
    member.beat(task_offsets=offsets, task_end_offsets=offsets[:1])
    # Kafka shows the counts of internal topics after the next record.
    member.beat(rack_id="another rack")
    describe(talk, group)
    describe(talk, group, include_authorized_operations=True)
    if talk.version_of(StreamsGroupDescribeRequest) > 0:
        describe(talk, group, include_topology_description=True)
    classic = stage(talk, STABLE, kind="classic").group
    describe(talk, talk.name("nowhere"), "", classic)
    describe(talk)


@scenario(StreamsGroupHeartbeatRequest, settings=AT_ONCE)
def offsets_of_members(talk: Talk) -> None:
    group, name = talk.group(), source(talk)
    topic = talk.known_topic("topic", 2)
    plan = topology(subtopology("0", name))
    first, second = (StreamsMember(talk, group, name, plan) for name in ("first", "second"))
    first.join()

    def commits(label: str, name: str, epoch: int, partition: int = 0, version: int | None = None) -> None:
        request = commit(group, topic, {partition: 5}, member_id=name, generation_id_or_member_epoch=epoch)
        talk.ask(request, version, label=label)

    commits("first", "first", 2)
    commits("first, of the future", "first", 3)
    commits("first, without an epoch", "first", -1)
    commits("first, by an older version", "first", 2, version=8)
    commits("nobody", "nobody", 2)
    commits("without a name", "", -1)
    second.join()
    first.beat_with_tasks(active_tasks=ids({"0": [0, 1]}))
    first.beat_with_tasks()
    second.beat()
    kept = first.has["active_tasks"]["0"][0]
    commits("first, late, of the task that it kept", "first", 2, kept)
    commits("first, late, of the other task", "first", 2, 1 - kept)
    commits("second, late", "second", 2, 1 - kept)
    commits("second", "second", 3, 1 - kept)
    first.leave()
    second.leave()
    commits("without a name, when all are gone", "", -1)


@scenario(StreamsGroupHeartbeatRequest, settings=AT_ONCE)
def groups_of_other_kinds(talk: Talk) -> None:
    plan = plain(talk)
    member = StreamsMember(talk, stage(talk, STABLE, kind="classic").group, "member", plan)
    member.join()
    member.beat(member_epoch=2)
    member.leave()

    streams = StreamsMember(talk, talk.group("streams"), "member", plan)
    streams.join()
    talk.ask(Member(talk, streams.group, "newcomer").join_request(), label="a classic member joins")
    talk.ask(Member(talk, streams.group, "newcomer").heartbeat_request(member_id="who"), label="a classic heartbeat")
    talk.ask(DeleteGroupsRequest(groups_names=[streams.group]), label="deletion of a group with members")
    listing = ListGroupsRequest(types_filter=["streams"])

    def only_this(answer: Any) -> None:
        answer.groups = [each for each in answer.groups if each.group_id == streams.group]

    talk.ask(listing, label="list", arrange=only_this)
    streams.leave()
    talk.ask(listing, label="list", arrange=only_this)
    talk.ask(DeleteGroupsRequest(groups_names=[streams.group]), label="deletion of an empty group")
    talk.ask(listing, label="list", arrange=only_this)
    streams.beat()


@scenario(StreamsGroupHeartbeatRequest, settings=AT_ONCE)
def there_and_back_again(talk: Talk) -> None:
    """An application changes from the classic protocol to that of streams groups, and back."""
    empty = stage(talk, EMPTY)
    member = StreamsMember(talk, empty.group, "member", plain(talk))
    member.join()
    describe(talk, member.group)
    member.leave()
    classic = Member(talk, empty.group, "classic member")
    talk.ask(classic.join_request(member_id="somebody"), label="somebody joins")
    talk.ask(classic.join_request(), label="a new member joins", arrange=without_member_id)
    describe(talk, member.group)


def without_member_id(answer: Any) -> None:
    answer.member_id = ""


@scenario(StreamsGroupHeartbeatRequest, settings=AT_ONCE)
def settings_of_a_group(talk: Talk) -> None:
    group, topic = talk.group(), source(talk, partitions=3)
    plan = topology(subtopology("0", topic, keeps=[internal(source(talk, "store", 3))]))
    members = [StreamsMember(talk, group, name, plan) for name in ("first", "second")]
    for member in members:
        member.join()
    rounds(members, 3)
    wanted = {
        "streams.heartbeat.interval.ms": "6000",
        "streams.num.standby.replicas": "1",
        "streams.session.timeout.ms": "50000",
    }
    configs = [IncrementalConfig(name=name, config_operation=0, value=value) for name, value in wanted.items()]
    resource = IncrementalConfigsResource(resource_type=32, resource_name=group, configs=configs)
    talk.ask(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False))
    # Kafka's coordinator hears of it a little later.
    talk.until(members[0].join_request(), lambda answer: answer.heartbeat_interval_ms == 6000, newest_heartbeat(talk))
    for member in members:
        member.join()
    rounds(members, 3)
    describe(talk, group)


@scenario(StreamsGroupTopologyDescriptionUpdateRequest)
def descriptions_of_topologies(talk: Talk) -> None:
    nothing = TopologyDescription(subtopologies=[], global_stores=[])
    for group, member in (("group", "member"), ("", "")):
        request = StreamsGroupTopologyDescriptionUpdateRequest(
            group_id=group, member_id=member, topology_epoch=0, topology_description=nothing
        )
        talk.ask(request)
