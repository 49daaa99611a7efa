"""The cluster as a whole: DescribeCluster and UpdateFeatures."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import trio

from ottla.groupcoord.java_hashing import hash_map_slot
from ottla.replication.cluster.metadata_cache import NO_CONTROLLER
from ottla.server.broker import Broker
from ottla.server.cluster.features import UPGRADE, UPGRADE_TYPES, Update
from ottla.server.dispatch.access import (
    CLUSTER_NAME,
    OPERATIONS_NOT_ASKED,
    AclOperation,
    ResourceType,
    authorized_operations,
    may_on_cluster,
    refusal_on_cluster,
)
from ottla.server.dispatch.context import RequestContext
from ottla.server.dispatch.dispatch import handles
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages.cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

BROKERS = 1
CONTROLLERS = 2


@handles(DescribeClusterRequest)
def describe_cluster(request: DescribeClusterRequest, context: RequestContext[Broker]) -> DescribeClusterResponse:
    """DescribeCluster: return the cluster's id, controller and brokers.

    Behaviour
    * Only endpoint type 1 (brokers) is supported: controllers have no listener of their own here. Another known type
      gets MISMATCHED_ENDPOINT_TYPE, an unknown one UNSUPPORTED_ENDPOINT_TYPE. Requests of v0 have no type.
    * Only clients that may describe the cluster learn their authorized operations on it. All clients get everything
      else.
    * All known brokers are alive, so including fenced brokers adds none.
    """
    if request.endpoint_type != BROKERS:
        return _refused(request.endpoint_type)
    cluster = context.broker.cluster
    brokers = [
        DescribeClusterBroker(broker_id=each.node_id, host=each.host, port=each.port, rack=each.rack)
        for each in cluster.endpoints(context.listener_name)
    ]
    is_reachable = any(each.broker_id == cluster.controller_id for each in brokers)
    return DescribeClusterResponse(
        error_code=ErrorCode.NONE,
        cluster_id=cluster.cluster_id,
        controller_id=cluster.controller_id if is_reachable else NO_CONTROLLER,
        brokers=brokers,
        cluster_authorized_operations=_operations(request, context),
    )


def _operations(request: DescribeClusterRequest, context: RequestContext[Broker]) -> int:
    if not request.include_cluster_authorized_operations:
        return OPERATIONS_NOT_ASKED
    if not may_on_cluster(context, AclOperation.DESCRIBE):
        return 0
    return authorized_operations(context, ResourceType.CLUSTER, CLUSTER_NAME)


def _refused(endpoint_type: int) -> DescribeClusterResponse:
    if endpoint_type == CONTROLLERS:
        code = ErrorCode.MISMATCHED_ENDPOINT_TYPE
        message = "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER"
    else:
        code = ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
        message = f"Unsupported endpoint type {endpoint_type}"
    return DescribeClusterResponse(error_code=code, error_message=message, cluster_id="", brokers=[])


ALL_FAILED = "The update failed for all features since the following feature had an error: "
NO_ERROR = "NONE"  # what Kafka tells of a feature that has nothing to be told of
VERSION_WITHOUT_RESULTS = 2
ORDERED_CHARACTERS_MAX = 4096
"""Limit of the names together. No cluster has so many features, and hashing a name costs its length."""


@handles(UpdateFeaturesRequest)
async def update_features(request: UpdateFeaturesRequest, context: RequestContext[Broker]) -> UpdateFeaturesResponse:
    """UpdateFeatures: change the finalized levels of features.

    Behaviour
    * The client needs the right to alter the cluster.
    * If one change is refused, nothing is changed. Since v2 the response has no results for single features; before,
      all of them have the same result.
    * Requests of v0 cannot ask for a downgrade: their flag has no meaning, as in Kafka 4.
    * The controller decides (`server/cluster/controller/finalized_levels.py`), and answers when it uses the levels
      itself. It refuses a level that one of its brokers does not support.
    * If the brokers know nothing of features, like those of Kafka 3.9, no feature has a level. The controller then
      refuses each feature separately, with the error message of Kafka 3.9.
    """
    denied = refusal_on_cluster(context, AclOperation.ALTER, "UpdateFeatures")
    if denied is not None:
        raise denied
    controller = context.broker.member.controller
    if controller is None:
        return UpdateFeaturesResponse(
            error_code=ErrorCode.NOT_CONTROLLER, error_message=ErrorCode.NOT_CONTROLLER.message
        )
    if not all(each.features for each in controller.states.brokers.values()):
        return _refused_in_mixed_cluster(request, context.api_version)
    # Of several changes of one feature the last counts. v0 has no kind of change, which makes it an upgrade.
    updates = {
        each.feature: Update(each.feature, each.max_version_level, each.upgrade_type)
        for each in request.feature_updates
    }
    try:
        # The tree of a broker that is alone is never out of reach.
        patience_s = max(request.timeout_ms, 0) / 1000 if context.broker.is_in_cluster else math.inf
        with trio.move_on_after(patience_s) as patience:
            await controller.update_features(_in_order(updates), validate_only=request.validate_only)
            await context.broker.member.features.catch_up()
        if patience.cancelled_caught:
            raise KafkaError(ErrorCode.FEATURE_UPDATE_FAILED)
    except KafkaError as error:
        return UpdateFeaturesResponse(error_code=error.code, error_message=f"{ALL_FAILED}{error.message}")
    names = (each.feature for each in request.feature_updates)
    return _answer(context.api_version, ((name, ErrorCode.NONE, NO_ERROR) for name in names))


def _in_order(updates: Mapping[str, Update]) -> list[Update]:
    """Return the names in the order of Kafka's hash map, because only the first error is returned."""
    if sum(map(len, updates)) > ORDERED_CHARACTERS_MAX:
        return list(updates.values())
    return sorted(updates.values(), key=lambda each: hash_map_slot(each.name, len(updates)))


def _answer(api_version: int, results: Iterable[tuple[str, ErrorCode, str]]) -> UpdateFeaturesResponse:
    listed = [UpdatableFeatureResult(feature=name, error_code=code, error_message=text) for name, code, text in results]
    if api_version < VERSION_WITHOUT_RESULTS:
        return UpdateFeaturesResponse(error_code=ErrorCode.NONE, error_message=None, results=listed)
    failed = next((each for each in listed if each.error_code), None)
    if failed is None:
        return UpdateFeaturesResponse(error_code=ErrorCode.NONE, error_message=None)
    return UpdateFeaturesResponse(error_code=failed.error_code, error_message=f"{ALL_FAILED}{failed.error_message}")


def _refused_in_mixed_cluster(request: UpdateFeaturesRequest, version: int) -> UpdateFeaturesResponse:
    refused = ((each.feature, ErrorCode.INVALID_REQUEST, _reason(each, version)) for each in request.feature_updates)
    return _answer(version, refused)


def _reason(update: FeatureUpdateKey, api_version: int) -> str:
    level = update.max_version_level
    is_upgrade = update.upgrade_type == UPGRADE if api_version else not update.allow_downgrade
    if not update.feature:
        return "Feature name can not be empty."
    if api_version and update.upgrade_type not in UPGRADE_TYPES:
        return "Received unknown upgrade type."
    if level < 1 and not is_upgrade:
        return "Can not delete non-existing finalized feature."
    if level < 1:
        return (
            f"Can not provide versionLevel: {level} less than 1 without setting the SAFE downgradeType in the request."
        )
    return "Could not apply finalized feature update because the provided feature is not supported."
