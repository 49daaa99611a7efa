"""Every state of a classic group times every request: what each is answered in the newest version.

                                      none   Empty  Preparing  Completing  Stable
    join, new                           79      79         79          79      79
    join, new and static                ok   waits      waits       waits   waits
    join, told to come with its id      25      ok      waits       waits   waits
    join, unknown                       25      25         25          25      25
    join, follower                      25      25      waits          ok      ok
    join, leader                        25      25      waits          ok   waits
    join, static with its old id        25      25         82          82      82
    join, other protocols               25      25         23          23      23
    sync, leader                        25      25         27          ok      ok
    sync, follower                      25      25         27       waits      ok
    sync, a generation behind           25      25         22          22      22
    sync, a generation ahead            25      25         22          22      22
    sync, other protocol                25      25         23          23      23
    sync, unknown                       25      25         25          25      25
    heartbeat, follower                 25      25         27          ok      ok
    heartbeat, a generation behind      25      25         22          22      22
    heartbeat, unknown                  25      25         25          25      25
    leave, follower                     25      25         ok          ok      ok
    leave, static                       25      25         ok          ok      ok
    leave, unknown                      25      25         25          25      25
    commit, nobody                      ok      ok         25          25      25
    commit, follower                    69      25         ok          27      ok
    commit, a generation behind         69      25         22          22      22
    commit, unknown                     69      25         25          25      25
    fetch offsets                       ok      ok         ok          ok      ok
    describe                            69      ok         ok          ok      ok
    delete the group                    69      ok         68          68      68
    delete offsets                      69      ok         ok          ok      ok

A group that was deleted (Dead) is none. 22 ILLEGAL_GENERATION, 23 INCONSISTENT_GROUP_PROTOCOL, 25 UNKNOWN_MEMBER_ID,
27 REBALANCE_IN_PROGRESS, 68 NON_EMPTY_GROUP, 69 GROUP_ID_NOT_FOUND, 79 MEMBER_ID_REQUIRED, 82 FENCED_INSTANCE_ID.
Who waits is answered when others have come, or have left, or have said what is assigned. The scenarios that are named
for a request ask it in all versions, with whole answers and many more speakers.
"""

from collections.abc import Callable
from typing import Any

from compat_tests.differential.asking_groups import Member, leave_request
from compat_tests.differential.asking_offsets import commit, fetch, fetch_group
from compat_tests.differential.asking_stages import (
    COMPLETING,
    EMPTY,
    PREPARING,
    STABLE,
    STATES,
    Stage,
    stage,
)
from compat_tests.differential.conversation import Talk, Topic, scenario

from ottla.wire.errors import ErrorCode
from ottla.wire.messages.groups import DeleteGroupsRequest, DescribeGroupsRequest
from ottla.wire.messages.offsets import OffsetDeleteRequest, OffsetDeleteRequestPartition, OffsetDeleteRequestTopic
from ottla.wire.schema import Message

Row = Callable[[Stage, Topic], Message]


def _deletion(group: Stage, topic: Topic) -> Message:
    partition = OffsetDeleteRequestPartition(partition_index=0)
    topics = [OffsetDeleteRequestTopic(name=topic.name, partitions=[partition])]
    return OffsetDeleteRequest(group_id=group.group, topics=topics)


def _newcomer(group: Stage, instance: str | None = None) -> Member:
    return Member(group.leader.talk, group.group, "newcomer", instance=instance, quiet=True)


def _commit(group: Stage, topic: Topic, member_id: str, behind: int = 0) -> Message:
    generation_id = group.generation_id - behind
    return commit(group.group, topic, {0: 1}, member_id=member_id, generation_id_or_member_epoch=generation_id)


ROWS: dict[str, Row] = {
    "join, new": lambda group, _: _newcomer(group).join_request(),
    "join, new and static": lambda group, _: _newcomer(group, "new").join_request(),
    "join, told to come with its id": lambda group, _: group.follower.join_request(member_id=group.pending),
    "join, unknown": lambda group, _: group.follower.join_request(member_id="who"),
    "join, follower": lambda group, _: group.follower.join_request(),
    "join, leader": lambda group, _: group.leader.join_request(),
    "join, static with its old id": lambda group, _: group.leader.join_request(member_id=group.fenced),
    "join, other protocols": lambda group, _: group.follower.join_request(protocols={"other": b""}),
    "sync, leader": lambda group, _: group.leader.sync_request({group.leader: b"1", group.follower: b"2"}),
    "sync, follower": lambda group, _: group.follower.sync_request(),
    "sync, a generation behind": lambda group, _: group.follower.sync_request(generation_id=group.generation_id - 1),
    "sync, a generation ahead": lambda group, _: group.follower.sync_request(generation_id=group.generation_id + 1),
    "sync, other protocol": lambda group, _: group.follower.sync_request(protocol_name="other"),
    "sync, unknown": lambda group, _: group.follower.sync_request(member_id="who"),
    "heartbeat, follower": lambda group, _: group.follower.heartbeat_request(),
    "heartbeat, a generation behind": lambda group, _: group.follower.heartbeat_request(
        generation_id=group.generation_id - 1
    ),
    "heartbeat, unknown": lambda group, _: group.follower.heartbeat_request(member_id="who"),
    "leave, follower": lambda group, _: leave_request(group.group, (group.follower.member_id, None)),
    "leave, static": lambda group, _: leave_request(group.group, ("", "one")),
    "leave, unknown": lambda group, _: leave_request(group.group, ("who", None)),
    "commit, nobody": lambda group, topic: commit(group.group, topic, {0: 1}, generation_id_or_member_epoch=-1),
    "commit, follower": lambda group, topic: _commit(group, topic, group.follower.member_id),
    "commit, a generation behind": lambda group, topic: _commit(group, topic, group.follower.member_id, behind=1),
    "commit, unknown": lambda group, topic: _commit(group, topic, "who"),
    "fetch offsets": lambda group, topic: fetch(fetch_group(group.group, (topic, (0,)))),
    "describe": lambda group, _: DescribeGroupsRequest(groups=[group.group]),
    "delete the group": lambda group, _: DeleteGroupsRequest(groups_names=[group.group]),
    "delete offsets": _deletion,
}
# What is not answered before others come, or leave, or have said what is assigned.
WAITING = {
    (EMPTY, "join, new and static"),
    (PREPARING, "join, new and static"),
    (COMPLETING, "join, new and static"),
    (STABLE, "join, new and static"),
    (PREPARING, "join, told to come with its id"),
    (COMPLETING, "join, told to come with its id"),
    (STABLE, "join, told to come with its id"),
    (PREPARING, "join, follower"),
    (PREPARING, "join, leader"),
    (STABLE, "join, leader"),
    (COMPLETING, "sync, follower"),
}


def codes_in(answer: Any) -> list[int]:
    """All error codes of an answer, the outermost first."""
    found = []
    for name in answer.wire_fields:
        value = getattr(answer, name)
        if name == "error_code":
            found.append(value)
        elif isinstance(value, list) and value and hasattr(value[0], "wire_fields"):
            found += [code for each in value for code in codes_in(each)]
    return found


@scenario(DescribeGroupsRequest, "6")  # the subject stands for all of them
def every_state_times_every_request(talk: Talk) -> None:
    """The table above."""
    topic = talk.topic()
    for number, (row, request) in enumerate(ROWS.items()):
        for state in STATES:
            group = stage(talk, state, kind=str(number))
            link = talk.link(f"{row} {state}")
            link.send(request(group, topic))
            if (state, row) in WAITING:
                link.stays_quiet()
            else:
                link.sent.pop()
                codes = codes_in(link.answer())
                talk.note(f"{row}, {state}", ErrorCode.of(max(codes, key=abs)).name)
            for name in (link.name, group.leader.name, group.follower.name):
                talk.hang_up(name)
