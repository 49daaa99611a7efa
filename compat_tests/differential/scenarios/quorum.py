"""Kafka's own metadata quorum, which a broker of Ottla that is alone does not have, and says so where Kafka describes it."""

import re
from typing import Any

from compat_tests.differential.conversation import Talk, scenario

from ottla.wire.messages.quorum import (
    AddRaftVoterRequest,
    DescribeQuorumRequest,
    Listener,
    PartitionData,
    RemoveRaftVoterRequest,
    TopicData,
    UnregisterBrokerRequest,
    UnregisterControllerRequest,
)

NOBODY = 7
DIRECTORY = bytes(15) + b"\1"


def described(name: str) -> DescribeQuorumRequest:
    partition = PartitionData(partition_index=0)
    return DescribeQuorumRequest(topics=[TopicData(topic_name=name, partitions=[partition])])


def added(cluster_id: str | None) -> AddRaftVoterRequest:
    listeners = [Listener(name="CONTROLLER", host="localhost", port=9093)]
    return AddRaftVoterRequest(
        cluster_id=cluster_id, timeout_ms=1000, voter_id=NOBODY, voter_directory_id=DIRECTORY, listeners=listeners
    )


def removed(cluster_id: str | None) -> RemoveRaftVoterRequest:
    return RemoveRaftVoterRequest(cluster_id=cluster_id, voter_id=NOBODY, voter_directory_id=DIRECTORY)


@scenario(DescribeQuorumRequest)
def the_quorum(talk: Talk) -> None:
    """How far its log has come is another each time."""
    talk.ask(described("__cluster_metadata"), arrange=few_numbers)


def few_numbers(answer: Any) -> None:
    for partition in (partition for topic in answer.topics for partition in topic.partitions):
        partition.high_watermark = partition.leader_epoch = 0
        partition.current_voters = partition.observers = []
    for node in answer.nodes:
        node.listeners = []


def without_own_id(answer: Any) -> None:
    answer.error_message = re.sub(r'(?<=cluster id ")[\w-]{22}', "<id>", answer.error_message)


@scenario(AddRaftVoterRequest)
def another_voter(talk: Talk) -> None:
    for cluster_id in (None, "not-this-one"):
        talk.ask(added(cluster_id), label=f"cluster {cluster_id}", arrange=without_own_id)


@scenario(RemoveRaftVoterRequest)
def one_voter_less(talk: Talk) -> None:
    for cluster_id in (None, "not-this-one"):
        talk.ask(removed(cluster_id), label=f"cluster {cluster_id}", arrange=without_own_id)


@scenario(UnregisterBrokerRequest)
def a_broker_that_nobody_is(talk: Talk) -> None:
    for broker in (NOBODY, -1, 2**31 - 1):
        talk.ask(UnregisterBrokerRequest(broker_id=broker), label=f"broker {broker}")


@scenario(UnregisterControllerRequest)
def a_controller_that_nobody_is(talk: Talk) -> None:
    for controller in (NOBODY, -1, 2**31 - 1):
        talk.ask(UnregisterControllerRequest(controller_id=controller), label=f"controller {controller}")
