"""Who may join streams groups, have topics made for them, and see them: each request with and without each right."""

from typing import Any

from compat_tests.differential.asking_rights import Right, everybody_asks
from compat_tests.differential.asking_streams import StreamsMember, in_order, internal, subtopology, topology
from compat_tests.differential.conversation import Talk, scenario
from compat_tests.differential.logins import SECURED
from compat_tests.differential.scenarios.rights_to_groups import GROUP
from compat_tests.differential.scenarios.rights_to_records import CLUSTER, CREATE, DESCRIBE, READ, TOPIC
from compat_tests.differential.scenarios.streams_groups import AT_ONCE, newest_heartbeat, source

from ottla.wire.messages.streams_group import (
    StreamsGroupDescribeRequest,
    StreamsGroupHeartbeatRequest,
    StreamsGroupTopologyDescriptionUpdateRequest,
    TopologyDescription,
)

STREAMS = SECURED | AT_ONCE


@scenario(StreamsGroupHeartbeatRequest, settings=STREAMS)
def joining(talk: Talk) -> None:
    group, topic = talk.group(), source(talk)
    member = StreamsMember(talk, group, "member", topology(subtopology("0", topic)))
    rights = Right(READ, GROUP, group), Right(DESCRIBE, TOPIC, topic)
    everybody_asks(talk, member.join_request(), *rights, arrange=in_order)


@scenario(StreamsGroupHeartbeatRequest, settings=STREAMS)
def joining_with_topics_that_are_missing(talk: Talk) -> None:
    """They are made for those who may create topics; others are told which ones they need."""
    topic = source(talk)
    for right in ("cluster", "topic"):
        group, kept = talk.group(f"group-{right}"), talk.name(f"kept-{right}")
        plan = topology(subtopology("0", topic, keeps=[internal(kept)]))
        member = StreamsMember(talk, group, "member", plan)
        rights = [Right(READ, GROUP, group), Right(DESCRIBE, TOPIC, topic), Right(DESCRIBE, TOPIC, kept)]
        rights.append(Right(CREATE, CLUSTER) if right == "cluster" else Right(CREATE, TOPIC, kept))
        everybody_asks(talk, member.join_request(), *rights, arrange=in_order)
        talk.known_topic(f"kept-{right}", 2)


@scenario(StreamsGroupDescribeRequest, settings=STREAMS)
def describing_groups(talk: Talk) -> None:
    group, topic = talk.group(), source(talk)
    member = StreamsMember(talk, group, "member", topology(subtopology("0", topic)))
    talk.do(member.join_request(), newest_heartbeat(talk))

    def by_name(answer: Any) -> None:
        answer.groups.sort(key=lambda each: each.group_id)

    for operations in (False, True):
        request = StreamsGroupDescribeRequest(
            group_ids=[group, talk.name("hidden")], include_authorized_operations=operations
        )
        rights = Right(DESCRIBE, GROUP, group), Right(DESCRIBE, TOPIC, topic)
        everybody_asks(talk, request, *rights, arrange=by_name)


@scenario(StreamsGroupTopologyDescriptionUpdateRequest, settings=STREAMS)
def describing_topologies(talk: Talk) -> None:
    group = talk.group()
    nothing = TopologyDescription(subtopologies=[], global_stores=[])
    request = StreamsGroupTopologyDescriptionUpdateRequest(
        group_id=group, member_id="member", topology_epoch=0, topology_description=nothing
    )
    everybody_asks(talk, request, Right(READ, GROUP, group))
