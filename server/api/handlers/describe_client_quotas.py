"""DescribeClientQuotas: the quotas of users, clients and addresses, as far as the request's conditions find them (KIP-546).

Behaviour
* Only for those who may describe the configs of the cluster.
* Conditions that cannot be met, or name a kind that does not exist, make an error of the whole request, without entries.
* Without conditions everything is told; strictly, nothing. A condition for any name finds the default, too.
* What else is kept of users, such as credentials, is not told.
* Any broker answers from what it has heard of, which is all but the changes of the last moment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.groupcoord.java_hashing import hash_map_slot
from ottla.server.broker import Broker
from ottla.server.dispatch.access import may_on_cluster
from ottla.server.dispatch.authorized_operations import AclOperation
from ottla.server.dispatch.context import RequestContext
from ottla.server.dispatch.dispatch import handles
from ottla.server.network.sliced_work import each_in_slices
from ottla.server.security.quotas.requests import Component, Filter
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)

if TYPE_CHECKING:
    from ottla.server.security.quotas.entities import Entity


@handles(DescribeClientQuotasRequest)
async def describe_client_quotas(
    request: DescribeClientQuotasRequest, context: RequestContext[Broker]
) -> DescribeClientQuotasResponse:
    if not may_on_cluster(context, AclOperation.DESCRIBE_CONFIGS):
        return DescribeClientQuotasResponse(
            error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, error_message=None, entries=None
        )
    try:
        wanted = Filter(
            (Component(each.entity_type, each.match_type, each.match) for each in request.components),
            is_strict=request.strict,
        )
    except KafkaError as error:
        return DescribeClientQuotasResponse(error_code=error.code, error_message=error.message, entries=None)
    quotas = context.broker.quotas.by_entity

    def entry(entity: Entity) -> EntryData | None:
        return _entry(entity, quotas.get(entity, {})) if wanted.takes(entity) else None

    entries = await each_in_slices(list(quotas), entry)
    return DescribeClientQuotasResponse(
        error_code=ErrorCode.NONE, error_message="", entries=[each for each in entries if each is not None]
    )


def _entry(entity: Entity, values: dict[str, float]) -> EntryData:
    # In the order of Kafka's hash maps.
    parts = sorted(entity, key=lambda part: hash_map_slot(part[0], len(entity)))
    keys = sorted(values, key=lambda key: hash_map_slot(key, len(values)))
    return EntryData(
        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in parts],
        values=[ValueData(key=key, value=values[key]) for key in keys],
    )
