"""Limits on the requests of streams groups' members, and on the state that the broker keeps of them."""

from collections.abc import Iterable
from typing import Any

import pytest

from ottla.groupcoord.streams.heartbeat_checks import TAGS_MAX, TOPOLOGY_SIZE_MAX, check_size
from ottla.groupcoord.streams.internal_topics import TASKS_MAX
from ottla.groupcoord.tests.conversation import GROUP
from ottla.groupcoord.tests.streams.test_streams_groups import Streams, topic, word_count
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages.streams_group import (
    CopartitionGroup,
    KeyValue,
    StreamsGroupHeartbeatRequest,
    TaskIds,
    TaskOffset,
    Topology,
)


def test_positions_are_kept_only_of_tasks_that_exist() -> None:
    talk = Streams()
    talk.enter("a")
    told = [("0", 1), ("0", 2), ("0", -1), ("nothing", 0)]
    offsets = [TaskOffset(subtopology_id=name, partition=number, offset=7) for name, number in told]
    for details in ({"task_offsets": offsets}, {"task_end_offsets": offsets}):
        assert not talk.beat("a", 2, **details).error_code
    positions = talk.group().positions["a"]
    assert list(positions.offsets) == list(positions.end_offsets) == [("0", 1)]


def test_a_member_that_is_not_ready_has_no_positions() -> None:
    talk = Streams()
    talk.images.remove("topic")
    talk.enter("a")
    offsets = [TaskOffset(subtopology_id="0", partition=1, offset=7)]
    assert not talk.beat("a", talk.group().members["a"].member_epoch, task_offsets=offsets).error_code
    assert not talk.group().positions


def too_much() -> Iterable[dict[str, Any]]:
    offsets = [TaskOffset(subtopology_id="0", partition=0, offset=0)] * (TASKS_MAX + 1)
    yield {"active_tasks": [TaskIds(subtopology_id="0", partitions=[0] * 2 * TASKS_MAX)]}
    yield {"warmup_tasks": [TaskIds(subtopology_id="0", partitions=[])] * (2 * TASKS_MAX + 1)}
    yield {"task_offsets": offsets}
    yield {"task_end_offsets": offsets}
    yield {"client_tags": [KeyValue(key="k", value="v")] * (TAGS_MAX + 1)}
    for name in ("source_topics", "repartition_sink_topics", "source_topic_regex"):
        yield {"topology": enlarged(**{name: ["t"] * TOPOLOGY_SIZE_MAX})}
    for name in ("repartition_source_topics", "state_changelog_topics"):
        yield {"topology": enlarged(**{name: [topic("t")] * TOPOLOGY_SIZE_MAX})}
    settings = topic("t")
    settings.topic_configs = [KeyValue(key="k", value="v")] * TOPOLOGY_SIZE_MAX
    yield {"topology": enlarged(state_changelog_topics=[settings])}
    group = CopartitionGroup(source_topics=[], source_topic_regex=[], repartition_source_topics=[])
    yield {"topology": enlarged(copartition_groups=[group] * TOPOLOGY_SIZE_MAX)}
    wide = CopartitionGroup(source_topics=[0] * TOPOLOGY_SIZE_MAX, source_topic_regex=[], repartition_source_topics=[])
    yield {"topology": enlarged(copartition_groups=[wide])}
    yield {"topology": Topology(epoch=0, subtopologies=word_count().subtopologies * TOPOLOGY_SIZE_MAX)}


def enlarged(**details: Any) -> Topology:
    topology = word_count()
    for name, value in details.items():
        setattr(topology.subtopologies[0], name, value)
    return topology


@pytest.mark.parametrize("details", list(too_much()))
def test_a_heartbeat_that_names_too_much_is_refused(details: dict[str, Any]) -> None:
    request = StreamsGroupHeartbeatRequest(
        group_id=GROUP, member_id="a", member_epoch=0, endpoint_information_epoch=0, **details
    )
    with pytest.raises(KafkaError) as caught:
        check_size(request)
    is_topology = "topology" in details
    assert caught.value.code is (ErrorCode.STREAMS_INVALID_TOPOLOGY if is_topology else ErrorCode.INVALID_REQUEST)


def test_a_heartbeat_of_a_large_application_is_not_refused() -> None:
    tasks = [TaskIds(subtopology_id=str(number), partitions=list(range(100))) for number in range(50)]
    offsets = [TaskOffset(subtopology_id="0", partition=number, offset=0) for number in range(5_000)]
    topology = Topology(epoch=0, subtopologies=word_count(store="s").subtopologies * 500)
    check_size(
        StreamsGroupHeartbeatRequest(
            group_id=GROUP,
            member_id="a",
            member_epoch=0,
            endpoint_information_epoch=0,
            topology=topology,
            active_tasks=tasks,
            standby_tasks=tasks,
            warmup_tasks=tasks,
            task_offsets=offsets,
            task_end_offsets=offsets,
        )
    )
