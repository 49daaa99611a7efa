"""ApiVersions: which requests this broker answers, derived from the dispatch table.

Behaviour
* A version newer than ours is answered in format 0 with UNSUPPORTED_VERSION and our range of this key, so that the
  client can ask again (KIP-511). The connection hands such a request over with its original `api_version`.
* From v3 on the client names its software; a name or version outside Kafka's pattern is INVALID_REQUEST.
* No feature is advertised: transactions and the newer group protocols are not served yet, and clients take the absence
  of a feature as level 0.
"""

from __future__ import annotations

import re
from typing import Protocol

from ottla.server.gate.context import RequestContext
from ottla.server.gate.dispatch import handles, served_routes
from ottla.server.ports import HasMember, HasSettings
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


class Port(HasMember, HasSettings, Protocol):
    """What is needed of the broker here."""


@handles(ApiVersionsRequest)
def api_versions(request: ApiVersionsRequest, context: RequestContext[Port]) -> ApiVersionsResponse:
    versions = ApiVersionsRequest.versions
    if context.api_version not in versions:
        own = ApiVersion(api_key=ApiVersionsRequest.api_key, min_version=versions.first, max_version=versions.last)
        return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[own])
    if context.api_version >= 3 and not _is_named_properly(request):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST, api_keys=[])
    broker = context.broker
    served = served_api_versions(
        is_in_cluster=broker.is_in_cluster,
        is_between_brokers=context.listener_name == broker.config.inter_broker_listener_name,
    )
    return ApiVersionsResponse(error_code=ErrorCode.NONE, api_keys=served)


def served_api_versions(*, is_in_cluster: bool, is_between_brokers: bool = True) -> list[ApiVersion]:
    """Every key that such a broker serves on such a listener with its range, in key order."""
    routes = served_routes(is_in_cluster=is_in_cluster, is_between_brokers=is_between_brokers)
    return [
        ApiVersion(api_key=key, min_version=route.versions.first, max_version=route.versions.last)
        for key, route in sorted(routes.items())
    ]


def _is_named_properly(request: ApiVersionsRequest) -> bool:
    return all(_SOFTWARE.fullmatch(text) for text in (request.client_software_name, request.client_software_version))
