from ottla.replication.cluster.metadata_cache import PartitionState
from ottla.replication.controller.control_batch import ControlBatch, Sender
from ottla.replication.controller.steps import at_once
from ottla.replication.tests.controlled import registration
from ottla.wire.messages.leader_and_isr import LeaderAndIsrRequest
from ottla.wire.messages.stop_replica import StopReplicaRequest
from ottla.wire.messages.update_metadata import UpdateMetadataRequest

STATE = PartitionState(1, 5, (3, 1, 2), (1, 2), 7, (3,), (2,), 0, 4)
SENDER = Sender(
    controller_id=9,
    controller_epoch=6,
    listener="PLAINTEXT",
    brokers={node_id: registration(node_id, rack="a") for node_id in (1, 2, 3)},
    topic_ids={"t": bytes(range(16))},
)


def batch() -> ControlBatch:
    made = ControlBatch()
    made.lead_or_follow(1, ("t", 0), STATE, is_new=True)
    made.lead_or_follow(1, ("t", 0), STATE, is_new=False)
    made.stop(1, ("u", 3), 5, delete=True)
    made.stop(1, ("u", 3), 6, delete=False)
    made.announce([1, 2], ("t", 0), STATE, (3,))
    made.announce_brokers([3])
    return made


def test_requests_have_kafkas_order_and_content() -> None:
    told = batch()
    assert told.receivers() == [1, 2, 3]
    lead, know, stop = at_once(SENDER.requests(told, 1))
    assert isinstance(lead, LeaderAndIsrRequest)
    assert (lead.controller_id, lead.controller_epoch, lead.broker_epoch) == (9, 6, 101)
    [topic] = lead.topic_states
    [state] = topic.partition_states
    assert (topic.topic_name, topic.topic_id) == ("t", bytes(range(16)))
    assert (state.leader, state.leader_epoch, state.isr, state.partition_epoch) == (1, 5, [1, 2], 7)
    assert (state.replicas, state.adding_replicas, state.removing_replicas) == ([3, 1, 2], [3], [2])
    assert (state.controller_epoch, state.is_new, state.leader_recovery_state) == (4, True, 0)
    assert [(live.broker_id, live.host_name, live.port) for live in lead.live_leaders] == [(1, "host1", 9001)]
    assert isinstance(know, UpdateMetadataRequest)
    [known] = know.topic_states[0].partition_states
    assert (known.leader, known.zk_version, known.offline_replicas) == (1, 7, [3])
    assert [(broker.id, broker.rack) for broker in know.live_brokers] == [(1, "a"), (2, "a"), (3, "a")]
    [endpoint] = know.live_brokers[0].endpoints
    assert (endpoint.host, endpoint.port, endpoint.listener, endpoint.security_protocol) == (
        "host1",
        9001,
        "PLAINTEXT",
        0,
    )
    assert isinstance(stop, StopReplicaRequest)
    [stopped] = stop.topic_states[0].partition_states
    assert (stopped.partition_index, stopped.leader_epoch, stopped.delete_partition) == (3, 6, True)


def test_everybody_hears_only_what_concerns_them() -> None:
    told = batch()
    [know] = at_once(SENDER.requests(told, 2))
    assert isinstance(know, UpdateMetadataRequest) and know.broker_epoch == 102
    [brokers_only] = at_once(SENDER.requests(told, 3))
    assert isinstance(brokers_only, UpdateMetadataRequest) and brokers_only.topic_states == []
    assert at_once(SENDER.requests(told, 4)) == []


def test_who_is_told_to_follow_a_new_broker_hears_of_it_before() -> None:
    told = batch()
    told.introduce_brokers([1, 2])
    first, lead, stop = at_once(SENDER.requests(told, 1))
    assert isinstance(first, UpdateMetadataRequest) and len(first.topic_states) == 1
    assert [broker.id for broker in first.live_brokers] == [1, 2, 3]
    assert isinstance(lead, LeaderAndIsrRequest) and isinstance(stop, StopReplicaRequest)
    [know] = at_once(SENDER.requests(told, 2))
    assert isinstance(know, UpdateMetadataRequest) and know.topic_states != []


def test_the_requests_can_be_written_in_the_versions_of_kafka_3_9() -> None:
    for request, version in zip(at_once(SENDER.requests(batch(), 1)), (7, 8, 4), strict=True):
        assert type(request).decode(request.encode(version), version) == request


def test_a_leader_that_is_gone_has_no_address() -> None:
    made = ControlBatch()
    assert not made
    made.lead_or_follow(1, ("u", 0), PartitionState(-1, 5, (1,), (1,)), is_new=False)
    [lead] = at_once(SENDER.requests(made, 1))
    assert isinstance(lead, LeaderAndIsrRequest)
    assert lead.live_leaders == [] and lead.topic_states[0].topic_id == bytes(16)
    assert made
