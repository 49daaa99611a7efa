"""ListConfigResources: whatever has settings, or may have.

Behaviour
* Only who may describe the settings of the cluster gets an answer, others CLUSTER_AUTHORIZATION_FAILED.
* v0 asks for client metrics (16) only. From v1 on types are named; none named means all.
* A type that the version does not know is UNSUPPORTED_VERSION.
* All topics and brokers are listed, but of groups only those that have settings of their own. A broker also stands for its
  loggers (8).
* Subscriptions to metrics of clients are listed that have settings.
"""

from __future__ import annotations

from collections.abc import Iterable

from ottla.server.api.handlers.describe_configs import ResourceType
from ottla.server.broker import Broker
from ottla.server.dispatch.access import require_on_cluster
from ottla.server.dispatch.authorized_operations import AclOperation
from ottla.server.dispatch.context import RequestContext
from ottla.server.dispatch.dispatch import handles
from ottla.server.network.sliced_work import answer_each
from ottla.wire.answers import Worked
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

_TYPES = frozenset(ResourceType)
_TYPES_OF_V0 = frozenset([ResourceType.CLIENT_METRICS])


@handles(ListConfigResourcesRequest)
def list_config_resources(
    request: ListConfigResourcesRequest, context: RequestContext[Broker]
) -> Worked[ListConfigResourcesResponse]:
    require_on_cluster(context, AclOperation.DESCRIBE_CONFIGS)
    known = _TYPES if context.api_version > 0 else _TYPES_OF_V0
    wanted = frozenset(request.resource_types) or known
    if not wanted <= known:
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, config_resources=[])
    resources = [
        (kind, name)
        for kind in sorted(wanted, reverse=True)
        for name in _names(kind, context.broker, context.listener_name)
    ]
    return answer_each(
        resources,
        lambda each: ConfigResource(resource_name=each[1], resource_type=each[0]),
        lambda listed: ListConfigResourcesResponse(error_code=ErrorCode.NONE, config_resources=listed),
    )


def _names(kind: int, broker: Broker, listener: str) -> Iterable[str]:
    if kind == ResourceType.GROUP:
        return broker.configs.groups
    if kind in (ResourceType.BROKER_LOGGER, ResourceType.BROKER):
        return [str(each.node_id) for each in broker.cluster.endpoints(listener)]
    return broker.cluster.topics if kind == ResourceType.TOPIC else broker.configs.client_metrics
