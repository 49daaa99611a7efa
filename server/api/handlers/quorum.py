"""The metadata quorum and its nodes: DescribeQuorum, AddRaftVoter, RemoveRaftVoter, UnregisterBroker and UnregisterController."""

from __future__ import annotations

from ottla.server.broker import Broker
from ottla.server.dispatch.access import AclOperation, may_on_cluster, refusal_on_cluster
from ottla.server.dispatch.context import RequestContext
from ottla.server.dispatch.dispatch import handles
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages.quorum import (
    AddRaftVoterRequest,
    AddRaftVoterResponse,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    RemoveRaftVoterRequest,
    RemoveRaftVoterResponse,
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
    UnregisterControllerRequest,
    UnregisterControllerResponse,
)

NO_QUORUM = KafkaError(ErrorCode.UNSUPPORTED_VERSION, "This broker is alone, and has no metadata quorum.")


@handles(DescribeQuorumRequest)
def describe_quorum(request: DescribeQuorumRequest, context: RequestContext[Broker]) -> DescribeQuorumResponse:
    """DescribeQuorum: refused, because there is no KRaft quorum.

    Behaviour
    * The client needs the right to describe the cluster.
    * The whole request gets UNSUPPORTED_VERSION: a single broker keeps its coordination tree in a journal, which has no
      voters. The broker still advertises the request, like every broker of Kafka 4, because clients derive a broker's
      release from the advertised versions. Java's Admin raises UnsupportedVersionException, as if the request were not
      served.
    """
    error = _denied_by_broker(context, AclOperation.DESCRIBE) or NO_QUORUM
    return DescribeQuorumResponse(error_code=error.code, error_message=error.message, topics=[])


@handles(AddRaftVoterRequest)
def add_raft_voter(request: AddRaftVoterRequest, context: RequestContext[Broker]) -> AddRaftVoterResponse:
    """AddRaftVoter: refused, because there is no metadata quorum.

    Behaviour
    * The client needs the right to alter the cluster.
    * The id of another cluster gets INCONSISTENT_CLUSTER_ID. Any other request gets UNSUPPORTED_VERSION, Kafka's answer
      while the voters of a quorum cannot change (kraft.version 0).
    """
    error = _refused_voter(context, request.cluster_id, "adding")
    return AddRaftVoterResponse(error_code=error.code, error_message=error.message)


@handles(RemoveRaftVoterRequest)
def remove_raft_voter(request: RemoveRaftVoterRequest, context: RequestContext[Broker]) -> RemoveRaftVoterResponse:
    """RemoveRaftVoter: refused, because there is no metadata quorum.

    Behaviour
    * The client needs the right to alter the cluster.
    * The id of another cluster gets INCONSISTENT_CLUSTER_ID. Any other request gets UNSUPPORTED_VERSION, Kafka's answer
      while the voters of a quorum cannot change (kraft.version 0).
    """
    error = _refused_voter(context, request.cluster_id, "removing")
    return RemoveRaftVoterResponse(error_code=error.code, error_message=error.message)


@handles(UnregisterBrokerRequest)
def unregister_broker(request: UnregisterBrokerRequest, context: RequestContext[Broker]) -> UnregisterBrokerResponse:
    """UnregisterBroker: remove a broker that will not return from the metadata.

    Behaviour
    * The client needs the right to alter the cluster.
    * An unknown broker id gets BROKER_ID_NOT_REGISTERED. A broker without a cluster refuses to unregister itself:
      INVALID_REQUEST. Kafka's controller would unregister any broker.
    """
    error = refusal_on_cluster(context, AclOperation.ALTER, "UnregisterBroker") or _answer(request.broker_id, context)
    return UnregisterBrokerResponse(error_code=error.code, error_message=error.message)


def _answer(broker_id: int, context: RequestContext[Broker]) -> KafkaError:
    if broker_id == context.broker.node_id:
        return KafkaError(
            ErrorCode.INVALID_REQUEST, f"Broker {broker_id} is the only one, and it answers this request."
        )
    return KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"Broker ID {broker_id} is not currently registered")


@handles(UnregisterControllerRequest)
def unregister_controller(
    request: UnregisterControllerRequest, context: RequestContext[Broker]
) -> UnregisterControllerResponse:
    """UnregisterController: remove a controller that will not return; refused, because no controllers are registered.

    Behaviour
    * The client needs the right to alter the cluster.
    * Every id gets CONTROLLER_ID_NOT_REGISTERED.
    """
    error = refusal_on_cluster(context, AclOperation.ALTER, "UnregisterController") or KafkaError(
        ErrorCode.CONTROLLER_ID_NOT_REGISTERED, f"Controller ID {request.controller_id} is not currently registered."
    )
    return UnregisterControllerResponse(error_code=error.code, error_message=error.message)


def _denied_by_broker(context: RequestContext[Broker], operation: AclOperation) -> KafkaError | None:
    """Return the error if the client may not do this operation on the cluster, else None.

    The message is that of Kafka's broker; Kafka's controller has another one.
    """
    if may_on_cluster(context, operation):
        return None
    return KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED.message)


def _refused_voter(context: RequestContext[Broker], cluster_id: str | None, doing: str) -> KafkaError:
    """Return the error for a change of voters. `doing`: the word "adding" or "removing" for the message."""
    if (denied := _denied_by_broker(context, AclOperation.ALTER)) is not None:
        return denied
    own = context.broker.cluster.cluster_id
    if cluster_id not in (None, own):
        text = f'The given id "{cluster_id}" doesn\'t match the cluster id "{own}"'
        return KafkaError(ErrorCode.INCONSISTENT_CLUSTER_ID, text)
    text = f"Cluster doesn't support {doing} voter because the kraft.version feature is 0"
    return KafkaError(ErrorCode.UNSUPPORTED_VERSION, text)
