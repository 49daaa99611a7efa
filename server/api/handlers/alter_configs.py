"""AlterConfigs: replace all settings of a topic, a group or this broker; what is not named goes back to its default.

Behaviour
* Rules, resources and errors are those of IncrementalAlterConfigs, which replaced this API in clients (KIP-339).
* Levels of loggers cannot be replaced, only changed singly.
* A request in which a resource comes twice is refused for that resource.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ottla.server.api.handlers.incremental_alter_configs import SETTINGS_AT_ONCE, alter_each, alter_resource
from ottla.server.broker import Broker
from ottla.server.config.changes import check_names
from ottla.server.config.repository import MIN_INSYNC_REPLICAS
from ottla.server.dispatch.context import RequestContext
from ottla.server.dispatch.dispatch import handles
from ottla.server.network.sliced_work import computed
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages.alter_configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)


@handles(AlterConfigsRequest)
async def alter_configs(request: AlterConfigsRequest, context: RequestContext[Broker]) -> AlterConfigsResponse:
    replace = partial(_replace, context, validate_only=request.validate_only)
    altered = await alter_each(request.resources, replace)
    return AlterConfigsResponse(responses=[_response(resource, error) for resource, error in altered])


async def _replace(context: RequestContext[Broker], resource: AlterConfigsResource, *, validate_only: bool) -> None:
    is_long = len(resource.configs) > SETTINGS_AT_ONCE
    texts = await computed(partial(_texts, resource.configs), in_thread=is_long)
    await alter_resource(
        context,
        resource.resource_type,
        resource.resource_name,
        change_topic=lambda _: texts,
        change_broker=lambda _: texts,
        change_group=lambda _: texts,
        change_client_metrics=lambda _: texts,
        # What is not among the settings of all brokers is taken away.
        names_min_insync_replicas=not resource.resource_name or MIN_INSYNC_REPLICAS in texts,
        validate_only=validate_only,
    )


def _texts(configs: Sequence[AlterableConfig]) -> dict[str, str]:
    texts = {each.name: each.value or "" for each in configs}
    check_names(len(configs), len(texts), [each.name for each in configs if each.value is None])
    return texts


def _response(resource: AlterConfigsResource, error: KafkaError | None) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(
        error_code=ErrorCode.NONE if error is None else error.code,
        error_message=None if error is None else error.message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )
