"""ApiVersions: the request types and versions that this broker serves, derived from the dispatch table.

Behaviour
* A version newer than ours is answered in format 0 with UNSUPPORTED_VERSION and our range of this key, so that the
  client can ask again (KIP-511). The connection hands such a request over with its original `api_version`.
* From v3 on the client names its software; a name or version outside Kafka's pattern is INVALID_REQUEST.
* From v5 on a client may say which broker of which cluster it means to reach, both or neither (else INVALID_REQUEST). If
  this broker is not that one, REBOOTSTRAP_REQUIRED sends the client back to its bootstrap servers (KIP-1242).
* Answers list features from v3 on (`server/cluster/features.py` has them). v3 omits supported features whose lowest level
  is 0, because older clients fail on them, but lists all finalized levels.
"""

from __future__ import annotations

import re

from ottla.server.broker import Broker
from ottla.server.cluster.features import Features
from ottla.server.dispatch.context import RequestContext
from ottla.server.dispatch.dispatch import handles, served_routes
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from ottla.wire.schema import VersionRange

FEATURES_VERSION, LEVEL_0_VERSION = 3, 4
ANYBODY = (None, -1)
"""The cluster and the node that a client means if it says nothing."""

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


@handles(ApiVersionsRequest)
def api_versions(request: ApiVersionsRequest, context: RequestContext[Broker]) -> ApiVersionsResponse:
    broker = context.broker
    restrictions = broker.environment.restrictions
    versions = restrictions.served(ApiVersionsRequest.api_key, ApiVersionsRequest.versions)
    if versions is None or context.api_version not in versions:
        # Kafka tells its range since it has version 3 (KIP-511).
        own = (
            []
            if versions is None or versions.last < FEATURES_VERSION
            else [_told(ApiVersionsRequest.api_key, versions)]
        )
        return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=own)
    if error := _refusal(request, context.api_version, broker):
        return ApiVersionsResponse(error_code=error, api_keys=[])
    if request.client_software_name:
        context.client_software = request.client_software_name, request.client_software_version
    if restrictions.versions is not None:
        served = [_told(key, each) for key, each in sorted(restrictions.versions.items())]
    else:
        served = _served(context)
    response = ApiVersionsResponse(error_code=ErrorCode.NONE, api_keys=served)
    if context.api_version >= FEATURES_VERSION and restrictions.tells_features:
        _tell_features(response, context.api_version, broker.member.features)
    return response


def _served(context: RequestContext[Broker]) -> list[ApiVersion]:
    broker = context.broker
    return served_api_versions(
        is_in_cluster=broker.is_in_cluster,
        is_between_brokers=context.listener_name in broker.config.between_brokers,
        has_receiver=broker.receiver is not None,
        has_older=broker.config.server.older_api_versions_enable,
    )


def _told(api_key: int, versions: VersionRange) -> ApiVersion:
    return ApiVersion(api_key=api_key, min_version=versions.first, max_version=versions.last)


def _tell_features(response: ApiVersionsResponse, version: int, features: Features) -> None:
    keys = frozenset(each.api_key for each in response.api_keys)
    if version >= LEVEL_0_VERSION:
        response.supported_features = [
            SupportedFeatureKey(name=each.name, min_version=0, max_version=each.latest)
            for each in features.supported(keys)
        ]
    response.finalized_features = [
        FinalizedFeatureKey(name=name, min_version_level=level, max_version_level=level)
        for name, level in features.finalized(keys).items()
    ]
    response.finalized_features_epoch = features.epoch


def served_api_versions(
    *, is_in_cluster: bool, is_between_brokers: bool = True, has_receiver: bool = False, has_older: bool = False
) -> list[ApiVersion]:
    """Return the API keys and version ranges that a listener serves, in key order.

    The parameters are those of `served_routes`, and `has_older` that of `Calls`.
    """
    routes = served_routes(
        is_in_cluster=is_in_cluster, is_between_brokers=is_between_brokers, has_receiver=has_receiver
    )
    return [
        _told(key, route.served(has_older=has_older)) for key, route in sorted(routes.items()) if not route.unadvertised
    ]


def _refusal(request: ApiVersionsRequest, version: int, broker: Broker) -> ErrorCode:
    names = request.client_software_name, request.client_software_version
    if version >= 3 and not all(_SOFTWARE.fullmatch(name) for name in names):
        return ErrorCode.INVALID_REQUEST
    meant = request.cluster_id, request.node_id
    if meant == ANYBODY:  # so are older requests, which cannot say it
        return ErrorCode.NONE
    if None in meant or -1 in meant:
        return ErrorCode.INVALID_REQUEST
    return ErrorCode.NONE if meant == (broker.cluster.cluster_id, broker.node_id) else ErrorCode.REBOOTSTRAP_REQUIRED
