"""Groups as administrators see them: described, and listed by state and type."""

from collections.abc import Callable
from typing import Any

from compat_tests.differential.asking_groups import Member, describe, in_order_of_groups
from compat_tests.differential.asking_offsets import commit
from compat_tests.differential.asking_stages import COMPLETING, DELETED, EMPTY, PREPARING, STABLE, STATES, stage
from compat_tests.differential.conversation import Talk, scenario

from ottla.wire.messages.groups import DescribeGroupsRequest, ListGroupsRequest


@scenario(DescribeGroupsRequest)
def groups_in_each_state(talk: Talk) -> None:
    for state in STATES:
        describe(talk, stage(talk, state).group, label=state)


@scenario(DescribeGroupsRequest)
def groups_of_other_protocols(talk: Talk) -> None:
    for protocol_type in ("connect", "my own"):
        for state in (PREPARING, COMPLETING, STABLE, EMPTY):
            group = stage(
                talk, state, kind=protocol_type, protocol_type=protocol_type, protocols={"v2": b"\0\xff", "v1": b""}
            )
            describe(talk, group.group, label=f"{state}, {protocol_type}")


@scenario(DescribeGroupsRequest)
def groups_that_only_have_offsets(talk: Talk) -> None:
    group = talk.group()
    talk.do(commit(group, talk.topic(), {0: 5}))
    describe(talk, group)


@scenario(DescribeGroupsRequest)
def several_groups(talk: Talk) -> None:
    stable, empty = stage(talk, STABLE).group, stage(talk, EMPTY).group
    describe(talk, stable, talk.name("nowhere"), "", empty)
    describe(talk)


@scenario(DescribeGroupsRequest)
def groups_named_twice(talk: Talk) -> None:
    group = stage(talk, EMPTY).group
    describe(talk, group, group, "", "")


@scenario(DescribeGroupsRequest)
def operations_that_are_allowed(talk: Talk) -> None:
    group = stage(talk, STABLE).group
    request = DescribeGroupsRequest(groups=[group, talk.name("nowhere")], include_authorized_operations=True)
    talk.ask(request, arrange=in_order_of_groups)


def own_groups(talk: Talk) -> Callable[[Any], None]:
    """Other tellings' groups are not this one's matter, and Kafka lists groups in no order."""

    def keep(answer: Any) -> None:
        answer.groups = sorted(
            (each for each in answer.groups if talk.run in each.group_id), key=lambda each: each.group_id
        )

    return keep


def scene(talk: Talk) -> None:
    for state in (DELETED, EMPTY, PREPARING, COMPLETING, STABLE):
        stage(talk, state)
    connect = Member(talk, talk.group("connect"), "connect", protocol_type="connect", quiet=True)
    connect.join()
    connect.sync()
    talk.do(commit(talk.group("offsets"), talk.topic(), {0: 5}))


@scenario(ListGroupsRequest)
def all_groups(talk: Talk) -> None:
    scene(talk)
    talk.ask(ListGroupsRequest(), arrange=own_groups(talk))


@scenario(ListGroupsRequest, versions="4+")  # no filters before
def groups_by_state(talk: Talk) -> None:
    scene(talk)
    for states in (
        ["Stable"],
        ["stable"],
        ["STABLE", "empty"],
        [" Stable "],
        ["PreparingRebalance"],
        ["CompletingRebalance", "Dead"],
        ["Dead"],
        ["nonsense"],
        ["nonsense", "Empty"],
        [""],
        ["Assigning", "Reconciling"],
        ["Empty", "Empty"],
    ):
        talk.ask(ListGroupsRequest(states_filter=states), label=" ".join(states), arrange=own_groups(talk))


@scenario(ListGroupsRequest, versions="5+")  # no filter of types before
def groups_by_type(talk: Talk) -> None:
    scene(talk)
    for types in (
        ["classic"],
        ["Classic"],
        ["CLASSIC"],
        ["consumer"],
        ["share"],
        ["streams"],
        ["nonsense"],
        ["nonsense", "classic"],
        ["unknown"],
        [" classic "],
        [""],
    ):
        talk.ask(ListGroupsRequest(types_filter=types), label=" ".join(types), arrange=own_groups(talk))
    both = ListGroupsRequest(states_filter=["Empty"], types_filter=["Classic"])
    talk.ask(both, label="both", arrange=own_groups(talk))
    neither = ListGroupsRequest(states_filter=["Empty"], types_filter=["consumer"])
    talk.ask(neither, label="neither", arrange=own_groups(talk))
