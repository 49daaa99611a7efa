"""Streams groups as conversations: members join, get tasks, hand them over, come back, go; and what the log makes of it."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from ottla.groupcoord.modern import describing as modern_describing
from ottla.groupcoord.streams import targets
from ottla.groupcoord.streams.group import StreamsGroup
from ottla.groupcoord.streams.heartbeat import HeartbeatResult
from ottla.groupcoord.streams.manager import DescribeStreamsGroup
from ottla.groupcoord.streams.records import StreamsGroupMetadataKey, StreamsGroupTopologyKey
from ottla.groupcoord.streams.topology import Status
from ottla.groupcoord.tests.conversation import GROUP, Asked, Conversation
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.streams_group import (
    CopartitionGroup,
    Endpoint,
    EndpointToPartitions,
    KeyValue,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    Subtopology,
    TaskIds,
    TaskOffset,
    TopicInfo,
    Topology,
)

Tasks = dict[str, list[int]]
NO_DELAY: dict[str, Any] = {"group_streams_initial_rebalance_delay_ms": 0, "group_streams_assignment_interval_ms": 0}


def topic(name: str) -> TopicInfo:
    return TopicInfo(name=name, partitions=0, replication_factor=0, topic_configs=[])


def word_count(epoch: int = 0, *, store: str | None = None) -> Topology:
    """One subtopology that reads `topic`, with a store if it is named."""
    return Topology(
        epoch=epoch,
        subtopologies=[
            Subtopology(
                subtopology_id="0",
                source_topics=["topic"],
                source_topic_regex=[],
                state_changelog_topics=[] if store is None else [topic(store)],
                repartition_sink_topics=[],
                repartition_source_topics=[],
                copartition_groups=[
                    CopartitionGroup(source_topics=[0], source_topic_regex=[], repartition_source_topics=[])
                ],
            )
        ],
    )


def ids(tasks: Tasks) -> list[TaskIds]:
    return [TaskIds(subtopology_id=name, partitions=numbers) for name, numbers in tasks.items()]


def tasks(answered: Iterable[TaskIds] | None) -> Tasks | None:
    return None if answered is None else {each.subtopology_id: each.partitions for each in answered}


class Streams(Conversation):
    """Requests of streams groups' members. After each one the log has to make the same groups as those in memory."""

    def __init__(self, **config: Any) -> None:
        super().__init__(**(NO_DELAY | config))
        self.images.put("topic", 2)

    def ask(self, request: Any, version: int, client_id: str = "client") -> Asked:
        asked = super().ask(request, version, client_id)
        self.check_replay()
        return asked

    def check_replay(self) -> None:
        again = self._new_shard()
        for offset, (key, value) in enumerate(self.log):
            record = self.formats.decode_record(key, value)
            assert record is not None
            again.replay(record, offset)
        assert {name: kept(group) for name, group in groups_of(again).items()} == {
            name: kept(group) for name, group in groups_of(self.shard).items()
        }

    def beat(self, member_id: str, epoch: int, *, version: int = 1, **details: Any) -> StreamsGroupHeartbeatResponse:
        request = StreamsGroupHeartbeatRequest(
            **(
                {"group_id": GROUP, "member_id": member_id, "member_epoch": epoch, "endpoint_information_epoch": 0}
                | details
            )
        )
        answered = self.ask(request, version).response
        assert isinstance(answered, HeartbeatResult)
        self.missing = [each.name for each in answered.missing_topics]
        return answered.response

    def enter(self, member_id: str, process: str | None = None, **details: Any) -> StreamsGroupHeartbeatResponse:
        given: dict[str, Any] = {
            "topology": word_count(),
            "process_id": process or f"process-{member_id}",
            "rebalance_timeout_ms": 60_000,
            "active_tasks": [],
            "standby_tasks": [],
            "warmup_tasks": [],
            "client_tags": [],
        }
        return self.beat(member_id, 0, **(given | details))

    def owning(
        self, member_id: str, epoch: int, active: Tasks, standby: Tasks | None = None, **details: Any
    ) -> StreamsGroupHeartbeatResponse:
        """A heartbeat that says which tasks the member has."""
        has = {"active_tasks": ids(active), "standby_tasks": ids(standby or {}), "warmup_tasks": []}
        return self.beat(member_id, epoch, **(has | details))

    def group(self, name: str = GROUP) -> StreamsGroup:
        return groups_of(self.shard)[name]

    def described(self, name: str = GROUP) -> Any:
        return super().ask(DescribeStreamsGroup(name), 1).response


def groups_of(shard: Any) -> dict[str, StreamsGroup]:
    return {name: group for name, group in shard._groups.items() if isinstance(group, StreamsGroup)}


def kept(group: StreamsGroup) -> tuple[Any, ...]:
    return (
        group.metadata,
        group.assignment_epoch,
        group.assignment_timestamp_ms,
        group.members,
        group.static_members,
        group.targets,
        None if group.topology is None else group.topology.value,
        group.state_name,
    )


def told(response: StreamsGroupHeartbeatResponse) -> list[Status]:
    return [Status(each.status_code) for each in response.status or ()]


# ---------------------------------------------------------------------- joining and sharing


def test_the_first_member_gets_all_tasks() -> None:
    talk = Streams()
    answer = talk.enter("a")
    assert (answer.error_code, answer.member_epoch) == (ErrorCode.NONE, 2)
    assert tasks(answer.active_tasks) == {"0": [0, 1]}
    assert tasks(answer.standby_tasks) == tasks(answer.warmup_tasks) == {}
    assert (answer.heartbeat_interval_ms, answer.task_offset_interval_ms) == (5000, 60_000)
    assert answer.acceptable_recovery_lag == 10_000
    assert talk.group().state_name == "Stable"
    again = talk.beat("a", 2)
    assert again.active_tasks is None and again.member_epoch == 2


def test_a_second_member_gets_a_task_only_after_the_first_gave_it_up() -> None:
    talk = Streams()
    talk.enter("a")
    second = talk.enter("b")
    assert tasks(second.active_tasks) == {} and second.member_epoch == 3
    first = talk.owning("a", 2, {"0": [0, 1]})
    (kept_task,) = (tasks(first.active_tasks) or {})["0"]
    assert first.member_epoch == 2
    assert talk.group().state_name == "Reconciling"
    waiting = talk.beat("b", 3)
    assert waiting.active_tasks is None

    done = talk.owning("a", 2, {"0": [kept_task]})
    assert done.member_epoch == 3 and done.active_tasks is None
    got = talk.beat("b", 3)
    assert tasks(got.active_tasks) == {"0": [1 - kept_task]}
    assert talk.group().state_name == "Stable"


def test_a_member_that_does_not_give_up_its_task_in_time_is_taken_out() -> None:
    talk = Streams()
    talk.enter("a", rebalance_timeout_ms=10_000)
    talk.enter("b")
    talk.owning("a", 2, {"0": [0, 1]})
    talk.advance(9_999)
    assert talk.owning("a", 2, {"0": [0, 1]}).error_code == ErrorCode.NONE
    talk.advance(1)
    assert talk.owning("a", 2, {"0": [0, 1]}).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert tasks(talk.beat("b", 3).active_tasks) == {"0": [0, 1]}


def test_a_member_whose_end_the_log_refuses_has_to_give_up_its_tasks_all_the_same() -> None:
    talk = Streams()
    talk.enter("a", rebalance_timeout_ms=10_000)
    talk.enter("b")
    talk.owning("a", 2, {"0": [0, 1]})
    talk.refuse_appends = ErrorCode.NOT_COORDINATOR
    talk.advance(10_000)
    talk.refuse_appends = ErrorCode.NONE
    assert talk.owning("a", 2, {"0": [0, 1]}).error_code == ErrorCode.NONE
    talk.advance(10_000)
    assert talk.owning("a", 2, {"0": [0, 1]}).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_the_time_to_give_up_tasks_goes_on_if_the_log_refuses_that_they_were_given_up() -> None:
    talk = Streams()
    talk.enter("a", rebalance_timeout_ms=10_000)
    talk.enter("b")
    talk.owning("a", 2, {"0": [0, 1]})
    talk.advance(1_000)
    talk.refuse_appends = ErrorCode.NOT_COORDINATOR
    assert talk.owning("a", 2, {"0": [0]}).error_code == ErrorCode.NOT_COORDINATOR
    talk.refuse_appends = ErrorCode.NONE
    talk.advance(8_999)
    assert talk.owning("a", 2, {"0": [0, 1]}).error_code == ErrorCode.NONE
    talk.advance(1)
    assert talk.owning("a", 2, {"0": [0, 1]}).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_whose_next_step_the_log_refuses_need_not_give_up_anything() -> None:
    talk = Streams()
    talk.enter("a", rebalance_timeout_ms=10_000)
    talk.enter("b")
    talk.refuse_appends = ErrorCode.NOT_COORDINATOR
    talk.owning("a", 2, {"0": [0, 1]})
    talk.refuse_appends = ErrorCode.NONE
    talk.advance(10_000)
    assert "a" in talk.group().members


def test_a_group_whose_topology_is_lost_refuses_heartbeats_and_does_no_harm_to_others() -> None:
    talk = Streams()
    talk.enter("a")
    talk.log = [
        each for each in talk.log if not isinstance(talk.formats.decode_record(*each).key, StreamsGroupTopologyKey)
    ]
    talk.restart()
    assert talk.beat("a", 2).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert talk.enter("a").error_code == ErrorCode.NONE


def test_a_silent_member_loses_its_place_after_the_session_timeout() -> None:
    talk = Streams()
    talk.enter("a")
    talk.advance(44_999)
    assert "a" in talk.group().members
    talk.advance(1)
    assert not talk.group().members and talk.group().state_name == "Empty"
    talk.check_replay()


def test_sessions_begin_anew_after_a_restart() -> None:
    talk = Streams()
    talk.enter("a")
    talk.advance(40_000)
    talk.restart()
    talk.advance(40_000)
    assert talk.beat("a", 2).error_code == ErrorCode.NONE
    talk.advance(45_000)
    assert not talk.group().members


def test_a_member_that_leaves_hands_its_tasks_on() -> None:
    talk = Streams()
    talk.enter("a")
    talk.enter("b")
    left = talk.beat("a", -1)
    assert (left.error_code, left.member_epoch, left.status) == (ErrorCode.NONE, -1, [])
    assert tasks(talk.beat("b", 3).active_tasks) == {"0": [0, 1]}
    talk.beat("b", -1)
    assert talk.group().state_name == "Empty"
    assert talk.beat("b", 4).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_joins_of_a_new_group_are_gathered() -> None:
    talk = Streams(group_streams_initial_rebalance_delay_ms=3_000)
    first = talk.enter("a")
    assert told(first) == [Status.ASSIGNMENT_DELAYED]
    assert tasks(first.active_tasks) == {} and first.member_epoch == 1
    talk.advance(1_000)
    second = talk.enter("b")
    assert told(second) == [Status.ASSIGNMENT_DELAYED]
    talk.advance(2_000)
    talk.check_replay()
    found = [tasks(talk.beat(member, 1).active_tasks) for member in ("a", "b")]
    assert sorted(found, key=str) == [{"0": [0]}, {"0": [1]}]


def test_assignments_come_no_sooner_than_the_interval() -> None:
    talk = Streams(group_streams_assignment_interval_ms=1_000)
    talk.enter("a")
    delayed = talk.enter("b")
    assert told(delayed) == [Status.ASSIGNMENT_DELAYED] and talk.group().state_name == "Assigning"
    talk.advance(1_000)
    assert told(talk.beat("b", delayed.member_epoch)) == []
    assert talk.group().state_name == "Reconciling"


def test_standby_tasks_go_to_another_process() -> None:
    talk = Streams(group_streams_num_standby_replicas=1)
    talk.images.put("store", 2)
    for member in ("a", "b"):
        talk.enter(member, topology=word_count(store="store"))
    talk.owning("a", 2, {"0": [0]})
    talk.beat("b", 3)
    talk.owning("a", 3, {"0": [0]})
    targets = talk.group().targets
    assert all(len(each.active) == len(each.standby) == 1 for each in targets.values())
    assert targets["a"].active == targets["b"].standby


# ---------------------------------------------------------------------- fencing


def test_members_with_wrong_epochs_are_fenced() -> None:
    talk = Streams()
    talk.enter("a")
    talk.enter("b")
    assert talk.beat("a", 9).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert "greater member epoch (9)" in (talk.beat("a", 9).error_message or "")
    assert talk.beat("b", 1).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert talk.beat("nobody", 3).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert talk.beat("a", 3, group_id="none").error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_a_member_that_missed_its_new_epoch_may_come_with_the_one_before() -> None:
    talk = Streams()
    talk.enter("a")
    talk.enter("b")
    talk.owning("a", 2, {"0": [0, 1]})
    talk.owning("a", 2, {"0": [0]})
    assert talk.group().members["a"].member_epoch == 3
    assert talk.owning("a", 2, {"0": [0]}).member_epoch == 3
    assert talk.owning("a", 2, {"0": [1]}).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert talk.beat("a", 2).error_code == ErrorCode.FENCED_MEMBER_EPOCH


def test_a_member_that_missed_its_tasks_hears_of_them_again() -> None:
    talk = Streams()
    talk.enter("a")
    talk.enter("b")
    talk.beat("a", -1)
    talk.beat("b", 3)  # this answer with the tasks of a is lost
    again = talk.owning("b", 3, {})
    assert again.member_epoch == 4 and tasks(again.active_tasks) == {"0": [0, 1]}
    assert talk.owning("b", 4, {"0": [0, 1]}).active_tasks is None


def test_a_member_may_join_again_with_epoch_0() -> None:
    talk = Streams()
    talk.enter("a")
    again = talk.enter("a")
    assert again.member_epoch == 2 and tasks(again.active_tasks) == {"0": [0, 1]}


def test_a_full_group_takes_nobody_more() -> None:
    talk = Streams(group_streams_max_size=1)
    talk.enter("a")
    refused = talk.enter("b")
    assert refused.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert refused.error_message == "The streams group has reached its maximum capacity of 1 members."
    assert talk.enter("a").error_code == ErrorCode.NONE


# ---------------------------------------------------------------------- static members


def test_a_static_member_comes_back_to_its_tasks() -> None:
    talk = Streams()
    talk.enter("a", instance_id="i", process="p")
    epoch = talk.group().group_epoch
    paused = talk.beat("a", -2, instance_id="i")
    assert (paused.error_code, paused.member_epoch) == (ErrorCode.NONE, -2)
    back = talk.enter("a2", instance_id="i", process="p")
    assert back.error_code == ErrorCode.NONE and tasks(back.active_tasks) == {"0": [0, 1]}
    assert list(talk.group().members) == ["a2"] and talk.group().group_epoch == epoch
    assert back.member_epoch == 2


def test_a_static_member_that_has_not_left_keeps_its_place() -> None:
    talk = Streams()
    talk.enter("a", instance_id="i")
    assert talk.enter("b", instance_id="i").error_code == ErrorCode.UNRELEASED_INSTANCE_ID
    assert talk.beat("b", 2, instance_id="i").error_code == ErrorCode.FENCED_INSTANCE_ID
    assert talk.beat("b", -1, instance_id="i").error_code == ErrorCode.FENCED_INSTANCE_ID
    assert talk.beat("a", 2, instance_id="other").error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert talk.beat("a", 2, instance_id="i").error_code == ErrorCode.NONE


def test_a_static_member_that_does_not_come_back_is_gone_after_its_session() -> None:
    talk = Streams()
    talk.enter("a", instance_id="i")
    talk.beat("a", -2, instance_id="i")
    talk.advance(45_000)
    assert not talk.group().members and not talk.group().static_members


# ---------------------------------------------------------------------- topologies and topics


def test_missing_sources_are_told_and_tasks_come_when_they_are_there() -> None:
    talk = Streams()
    talk.images.remove("topic")
    first = talk.enter("a")
    assert told(first) == [Status.MISSING_SOURCE_TOPICS] and tasks(first.active_tasks) == {}
    assert (first.status or [])[0].status_detail == "Source topics topic are missing."
    assert talk.group().state_name == "NotReady" and talk.missing == []
    talk.images.put("topic", 3)
    then = talk.beat("a", first.member_epoch)
    assert told(then) == [] and tasks(then.active_tasks) == {"0": [0, 1, 2]}
    assert talk.group().state_name == "Stable"


def test_missing_internal_topics_are_asked_for_until_they_are_there() -> None:
    talk = Streams()
    first = talk.enter("a", topology=word_count(store="store"))
    assert told(first) == [Status.MISSING_INTERNAL_TOPICS] and talk.missing == ["store"]
    again = talk.beat("a", first.member_epoch)
    assert told(again) == [Status.MISSING_INTERNAL_TOPICS] and talk.missing == ["store"]
    talk.images.put("store", 2)
    ready = talk.beat("a", again.member_epoch)
    assert told(ready) == [] and tasks(ready.active_tasks) == {"0": [0, 1]} and talk.missing == []


def test_a_topic_that_grows_brings_more_tasks() -> None:
    talk = Streams()
    talk.enter("a")
    talk.images.put("topic", 4)
    assert tasks(talk.beat("a", 2).active_tasks) == {"0": [0, 1, 2, 3]}
    epoch = talk.group().group_epoch
    talk.images.put("unrelated", 4)
    talk.beat("a", epoch)
    assert talk.group().group_epoch == epoch


def test_tasks_are_taken_back_when_their_source_is_gone() -> None:
    talk = Streams()
    talk.enter("a")
    talk.images.remove("topic")
    told_so = talk.owning("a", 2, {"0": [0, 1]})
    assert told(told_so) == [Status.MISSING_SOURCE_TOPICS] and tasks(told_so.active_tasks) == {}
    assert told_so.member_epoch == 2 and talk.group().state_name == "NotReady"
    assert talk.owning("a", 2, {}).member_epoch == 3
    talk.images.put("topic", 1)
    assert tasks(talk.beat("a", 3).active_tasks) == {"0": [0]}


def test_changed_topics_are_seen_even_if_the_log_refuses_the_first_time() -> None:
    talk = Streams()
    talk.enter("a")
    talk.images.put("topic", 4)
    talk.refuse_appends = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert talk.beat("a", 2).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    talk.refuse_appends = ErrorCode.NONE
    assert tasks(talk.beat("a", 2).active_tasks) == {"0": [0, 1, 2, 3]}


def test_topologies_do_not_change() -> None:
    talk = Streams()
    talk.enter("a", topology=word_count(epoch=1))
    other = talk.enter("b", topology=word_count(epoch=2))
    assert other.error_code == ErrorCode.INVALID_REQUEST
    assert other.error_message == "Topology updates are not supported yet."
    stale = talk.enter("b", topology=word_count(epoch=0, store="store"))
    assert stale.error_code == ErrorCode.NONE and told(stale) == [Status.STALE_TOPOLOGY]
    detail = (stale.status or [])[0].status_detail
    assert detail == "The member's topology epoch 0 is behind the group's topology epoch 1."


def test_a_topology_that_cannot_work_makes_no_group() -> None:
    talk = Streams()
    topology = word_count()
    topology.subtopologies[0].repartition_source_topics = [topic("between")]
    refused = talk.enter("a", topology=topology)
    assert refused.error_code == ErrorCode.STREAMS_INVALID_TOPOLOGY
    assert "never used as a sink topic" in (refused.error_message or "")
    assert not groups_of(talk.shard) and not talk.log


def test_tasks_that_do_not_exist_are_refused() -> None:
    talk = Streams()
    talk.enter("a")
    wrong = talk.owning("a", 2, {"0": [2]})
    assert wrong.error_code == ErrorCode.INVALID_REQUEST
    assert wrong.error_message == "Task 2 for subtopology 0 is invalid. Number of tasks for this subtopology: 2"
    assert talk.owning("a", 2, {"7": [0]}).error_code == ErrorCode.INVALID_REQUEST


# ---------------------------------------------------------------------- what is not in records


def test_positions_of_tasks_are_kept_while_the_member_is_there() -> None:
    talk = Streams()
    talk.enter("a")
    ends = [TaskOffset(subtopology_id="0", partition=1, offset=9)]
    talk.beat("a", 2, task_offsets=[TaskOffset(subtopology_id="0", partition=1, offset=7)])
    talk.beat("a", 2, task_end_offsets=ends)
    (member,) = talk.described().members
    assert [each.offset for each in (*member.task_offsets, *member.task_end_offsets)] == [7, 9]
    assert talk.beat("a", 2, task_offsets=ends * 2).error_code == ErrorCode.INVALID_REQUEST
    talk.beat("a", -1)
    assert not talk.group().positions


def test_a_member_can_stop_the_whole_application() -> None:
    talk = Streams()
    talk.enter("a")
    talk.enter("b")
    assert told(talk.beat("a", 2, shutdown_application=True)) == [Status.SHUTDOWN_APPLICATION]
    other = talk.beat("b", 3)
    assert told(other) == [Status.SHUTDOWN_APPLICATION]
    assert "member a encountered a fatal error" in (other.status or [])[0].status_detail
    for member in ("a", "b"):
        talk.beat(member, -1)
    assert Status.SHUTDOWN_APPLICATION not in told(talk.enter("c"))


def places(response: StreamsGroupHeartbeatResponse) -> list[tuple[str, int, Tasks]] | None:
    def entry(each: EndpointToPartitions) -> tuple[str, int, Tasks]:
        partitions = {part.topic: part.partitions for part in each.active_partitions}
        return each.user_endpoint.host, each.user_endpoint.port, partitions

    found = response.partitions_by_user_endpoint
    return None if found is None else [entry(each) for each in found]


def test_members_hear_where_states_can_be_queried_when_that_changes() -> None:
    talk = Streams()
    talk.enter("a", user_endpoint=Endpoint(host="one", port=1))
    first = talk.beat("a", 2, endpoint_information_epoch=-1)
    assert places(first) == [("one", 1, {"topic": [0, 1]})]
    known = first.endpoint_information_epoch
    assert places(talk.beat("a", 2, endpoint_information_epoch=known)) is None

    talk.enter("b", user_endpoint=Endpoint(host="two", port=2), endpoint_information_epoch=known)
    moved = talk.owning("a", 2, {"0": [0, 1]}, endpoint_information_epoch=known)
    assert moved.endpoint_information_epoch > known
    assert sorted(places(moved) or []) == [("one", 1, {"topic": [0]}), ("two", 2, {})]


def test_another_number_of_standbys_counts_from_the_next_heartbeat_on() -> None:
    talk = Streams()
    talk.enter("a")
    assert talk.group().assignment_configs == {"num.standby.replicas": "0"}
    tags = ("zone", "rack")
    talk.settings = replace(talk.settings, streams_num_standby_replicas=2, streams_rack_aware_assignment_tags=tags)
    assert told(talk.beat("a", 2)) == [Status.MISSING_CLIENT_TAGS]
    assert talk.group().group_epoch == 3
    assert talk.group().assignment_configs == {"num.standby.replicas": "2", "rack.aware.assignment.tags": "zone,rack"}


def test_missing_client_tags_are_told_to_those_who_understand_it() -> None:
    talk = Streams(group_streams_rack_aware_assignment_tags=("zone", "rack"))
    has = [KeyValue(key="zone", value="z")]
    answer = talk.enter("a", client_tags=has)
    assert told(answer) == [Status.MISSING_CLIENT_TAGS]
    detail = (answer.status or [])[0].status_detail
    assert detail.startswith("Missing required client tags for rack-aware standby assignment: [rack]. ")
    assert told(talk.enter("b", client_tags=has, version=0)) == []


# ---------------------------------------------------------------------- offsets


def test_a_member_commits_with_its_epoch_or_with_one_since_it_had_the_task() -> None:
    talk = Streams()
    talk.enter("a")
    talk.enter("b")

    def commit(epoch: int, member: str = "a", partition: int = 0, version: int = 9) -> ErrorCode:
        given = {"member_id": member, "generation_id_or_member_epoch": epoch}
        return talk.commit(partition=partition, version=version, **given)

    assert commit(2) is ErrorCode.NONE
    assert commit(2, version=8) is ErrorCode.UNSUPPORTED_VERSION
    assert commit(3) is ErrorCode.STALE_MEMBER_EPOCH
    assert commit(2, member="nobody") is ErrorCode.UNKNOWN_MEMBER_ID
    talk.owning("a", 2, {"0": [0, 1]})
    talk.owning("a", 2, {"0": [0]})
    assert commit(2) is ErrorCode.NONE
    assert commit(1) is ErrorCode.STALE_MEMBER_EPOCH
    assert commit(2, partition=1) is ErrorCode.STALE_MEMBER_EPOCH
    talk.beat("b", 3)
    assert commit(2, member="b", partition=1) is ErrorCode.STALE_MEMBER_EPOCH
    assert commit(3, member="b", partition=1) is ErrorCode.NONE


def test_offsets_of_read_topics_stay_until_the_group_is_empty() -> None:
    talk = Streams(offsets_retention_minutes=1, offsets_retention_check_interval_ms=10_000)
    talk.enter("a")
    talk.commit(member_id="a", generation_id_or_member_epoch=2)
    for _ in range(10):
        talk.advance(20_000)
        talk.beat("a", 2)
    assert talk.committed() == 5
    assert (
        talk.delete_offset("topic").response.topics[0].partitions[0].error_code == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    )
    talk.beat("a", -1)
    talk.advance(80_000)
    assert talk.committed() == -1
    assert not groups_of(talk.shard)


# ---------------------------------------------------------------------- listed, described, deleted


def test_groups_are_listed_and_described() -> None:
    talk = Streams()
    talk.images.put("store", 2)
    talk.enter("a", topology=word_count(store="store"), rack_id="r", client_tags=[KeyValue(key="k", value="v")])
    talk.beat("a", 2)
    (listed,) = talk.listed(types=["streams"])
    assert (listed.group_id, listed.protocol_type, listed.group_state) == (GROUP, "streams", "Stable")
    found = talk.described()
    assert (found.error_code, found.group_state, found.group_epoch, found.assignment_epoch) == (0, "Stable", 2, 2)
    assert found.assignor_name == "sticky"
    (part,) = found.topology.subtopologies
    assert [(each.name, each.partitions) for each in part.state_changelog_topics] == [("store", 2)]
    (member,) = found.members
    assert (member.rack_id, member.client_id, member.client_host) == ("r", "client", "/127.0.0.1")
    assert tasks(member.assignment.active_tasks) == tasks(member.target_assignment.active_tasks) == {"0": [0, 1]}


def test_a_large_group_is_described_later_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    talk = Streams()
    talk.enter("a")
    talk.enter("b")
    at_once = talk.described()
    monkeypatch.setattr(modern_describing, "MEMBERS_AT_ONCE", 1)
    later = talk.described()
    talk.advance(45_000)
    assert not talk.group().members
    while later.add_member():
        pass
    assert later.description == at_once and len(at_once.members) == 2


def test_what_is_no_streams_group_is_not_described() -> None:
    talk = Streams()
    missing = talk.described("none")
    assert (missing.error_code, missing.error_message) == (ErrorCode.GROUP_ID_NOT_FOUND, "Group none not found.")
    talk.join_twice(group="classic")
    other = talk.described("classic")
    assert other.error_message == "Group classic is not a streams group."
    refused = talk.enter("a", group_id="classic")
    assert refused.error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_only_an_empty_group_can_be_deleted_and_nothing_is_left_of_it() -> None:
    talk = Streams()
    talk.enter("a")
    talk.commit(member_id="a", generation_id_or_member_epoch=2)
    assert talk.delete_group() is ErrorCode.NON_EMPTY_GROUP
    talk.beat("a", -1)
    assert talk.delete_group() is ErrorCode.NONE
    talk.check_replay()
    left: dict[bytes, bytes | None] = dict(talk.log)
    assert all(value is None for value in left.values())
    assert talk.shard.next_deadline_ms() is not None
    assert talk.described().error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_an_empty_classic_group_gives_way() -> None:
    talk = Streams()
    assert talk.commit(generation_id_or_member_epoch=-1) is ErrorCode.NONE
    answer = talk.enter("a")
    assert answer.error_code == ErrorCode.NONE and talk.group().members
    talk.restart()
    assert talk.group().members and talk.committed() == 5


def test_an_empty_streams_group_gives_way_to_a_classic_one_and_leaves_its_offsets() -> None:
    talk = Streams()
    talk.enter("a")
    assert talk.commit(member_id="a", generation_id_or_member_epoch=2) is ErrorCode.NONE
    assert talk.join().error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    talk.beat("a", -1)
    assert talk.join("somebody").error is ErrorCode.UNKNOWN_MEMBER_ID
    assert talk.group().state_name == "Empty"
    talk.stable_group(1)
    assert not groups_of(talk.shard) and talk.state() == "Stable" and talk.committed() == 5
    talk.restart()
    assert not groups_of(talk.shard) and talk.state() == "Stable" and talk.committed() == 5


def test_an_empty_streams_group_stays_if_the_log_refuses_the_classic_one() -> None:
    talk = Streams()
    talk.enter("a")
    talk.beat("a", -1)
    before = kept(talk.group())
    talk.refuse_appends = ErrorCode.NOT_COORDINATOR
    talk.join()
    assert kept(talk.group()) == before
    talk.refuse_appends = ErrorCode.NONE
    assert tasks(talk.enter("a").active_tasks) == {"0": [0, 1]}


# ---------------------------------------------------------------------- a log that refuses


@pytest.mark.parametrize("step", ["new group", "second member", "revocation", "leave", "pause", "delete"])
def test_what_the_log_refuses_has_not_happened(step: str) -> None:
    talk = Streams()
    if step != "new group":
        talk.enter("a", instance_id="i")
    if step == "revocation":
        talk.enter("b")
    if step == "delete":
        talk.beat("a", -1, instance_id="i")
    before = {name: kept(group) for name, group in groups_of(talk.shard).items()}
    talk.refuse_appends = ErrorCode.NOT_COORDINATOR
    error: Any = {
        "new group": lambda: talk.enter("a").error_code,
        "second member": lambda: talk.enter("b").error_code,
        "revocation": lambda: talk.owning("a", 2, {"0": [0, 1]}, instance_id="i").error_code,
        "leave": lambda: talk.beat("a", -1, instance_id="i").error_code,
        "pause": lambda: talk.beat("a", -2, instance_id="i").error_code,
        "delete": talk.delete_group,
    }[step]()
    assert error == ErrorCode.NOT_COORDINATOR
    assert {name: kept(group) for name, group in groups_of(talk.shard).items()} == before
    talk.refuse_appends = ErrorCode.NONE
    if before:
        talk.advance(45_000)
        assert not talk.group().members
    talk.check_replay()


def test_an_older_record_of_a_group_reads_with_what_it_lacks() -> None:
    talk = Streams()
    talk.enter("a")
    talk.restart()
    group = talk.group()
    assert group.value_of(StreamsGroupMetadataKey(group_id=GROUP)).last_assignment_configs
    assert group.assignment_configs == {"num.standby.replicas": "0"}


def test_a_large_assignment_is_made_beside_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(targets, "SIZE_AT_ONCE", 0)
    talk = Streams()
    talk.holds_jobs = True
    assert not talk.enter("a").active_tasks
    epoch = talk.group().members["a"].member_epoch
    assert not talk.beat("a", epoch, active_tasks=[], standby_tasks=[], warmup_tasks=[]).active_tasks
    assert len(talk.jobs) == 1, "one at a time"
    talk.do_jobs()
    told = talk.beat("a", epoch, active_tasks=[], standby_tasks=[], warmup_tasks=[])
    assert tasks(told.active_tasks) == {"0": [0, 1]}


def test_an_assignment_for_an_epoch_that_was_taken_back_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(targets, "SIZE_AT_ONCE", 0)
    talk = Streams()
    talk.enter("a")
    talk.holds_jobs = True
    talk.refuse_appends = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert talk.enter("b").error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    talk.refuse_appends = ErrorCode.NONE
    talk.enter("c")
    talk.do_jobs()
    assert set(talk.group().targets) == {"a", "c"}
    assert all(each.active for each in talk.group().targets.values())
