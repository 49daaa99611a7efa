"""Answers of a broker without a metadata quorum to requests about one: Kafka's where voters cannot change."""

from __future__ import annotations

from ottla.server.dispatch.access import may_on_cluster
from ottla.server.dispatch.authorized_operations import AclOperation
from ottla.server.dispatch.context import RequestContext
from ottla.server.ports import BrokerParts
from ottla.wire.errors import ErrorCode, KafkaError


def denied_by_broker(context: RequestContext[BrokerParts], operation: AclOperation) -> KafkaError | None:
    """The error of Kafka's broker for a client that may not do this to the cluster, when it does not ask the controller first."""
    if may_on_cluster(context, operation):
        return None
    return KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED.message)


def refused_voter(context: RequestContext[BrokerParts], cluster_id: str | None, doing: str) -> KafkaError:
    """Why a voter does not come or go. `doing`: adding or removing."""
    if (denied := denied_by_broker(context, AclOperation.ALTER)) is not None:
        return denied
    own = context.broker.cluster.cluster_id
    if cluster_id not in (None, own):
        text = f'The given id "{cluster_id}" doesn\'t match the cluster id "{own}"'
        return KafkaError(ErrorCode.INCONSISTENT_CLUSTER_ID, text)
    text = f"Cluster doesn't support {doing} voter because the kraft.version feature is 0"
    return KafkaError(ErrorCode.UNSUPPORTED_VERSION, text)
