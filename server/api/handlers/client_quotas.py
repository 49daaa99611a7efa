"""Quotas of users, clients and addresses (KIP-546): AlterClientQuotas and DescribeClientQuotas."""

from __future__ import annotations

import socket
from functools import partial
from typing import TYPE_CHECKING

import trio

from ottla.groupcoord.java_hashing import hash_map_slot
from ottla.server.broker import Broker
from ottla.server.dispatch.access import AclOperation, may_on_cluster
from ottla.server.dispatch.context import RequestContext
from ottla.server.dispatch.dispatch import handles
from ottla.server.network.sliced_work import each_in_slices
from ottla.server.security.quotas.client_quota_requests import (
    Component,
    Filter,
    changed,
    checked_changes,
    checked_entity,
    duplicate,
)
from ottla.server.security.quotas.entities import IP, path_of
from ottla.wire.errors import ErrorCode, KafkaError, bare
from ottla.wire.messages.client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlteredEntryData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    DescribedEntryData,
    EntityData,
    EntryData,
    ValueData,
)
from ottla.wire.time_slice import TimeSlice

if TYPE_CHECKING:
    from ottla.server.cluster.entity_configs import EntityConfigs
    from ottla.server.security.quotas.entities import Entity

CHANGES_MAX = 10_000  # Kafka's QuorumController.MAX_RECORDS_PER_USER_OP
_resolver = trio.CapacityLimiter(2)  # of its own: a resolver that hangs keeps the threads that others share

Name = tuple[tuple[str, str | None], ...]


@handles(AlterClientQuotasRequest)
async def alter_client_quotas(
    request: AlterClientQuotasRequest, context: RequestContext[Broker]
) -> AlterClientQuotasResponse:
    """AlterClientQuotas: set and remove quotas of users, clients and addresses (KIP-546).

    Behaviour
    * The client needs the right to alter the cluster's configs.
    * Each entity has one result: if one of its changes is invalid, none of them is made. Entities are independent.
    * If an entity is named twice, its first change is made, and its result is INVALID_REQUEST, as in Kafka.
    * Removing a quota that does not exist is no error, even with an unknown name.
    * An address may be a host name that can be resolved.
    * When the response is sent, the change is stored and in force at this broker; the other brokers follow within a
      moment. With `validate_only` nothing is changed.
    * A request that changes more than 10,000 quotas gets POLICY_VIOLATION as a whole. So does each new entity beyond
      20,000.
    """
    entities = context.broker.administration.settings.entities
    if not may_on_cluster(context, AclOperation.ALTER_CONFIGS):
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        denied = KafkaError(code, code.message)
        return AlterClientQuotasResponse(entries=[_result(_named(entry), denied) for entry in request.entries])
    if sum(len(entry.ops) for entry in request.entries) > CHANGES_MAX:
        excessive = KafkaError(ErrorCode.POLICY_VIOLATION, "Unable to perform excessively large batch operation.")
        return AlterClientQuotasResponse(entries=[_result(_named(entry), excessive) for entry in request.entries])
    results: dict[Name, KafkaError | None] = {}
    time_slice = TimeSlice()
    for entry in request.entries:
        await time_slice.yield_if_over()
        named = _named(entry)
        name = tuple(sorted(named.items()))
        if name in results:
            results[name] = duplicate(named)
            continue
        try:
            await _alter(entities, entry, is_trial=request.validate_only)
            results[name] = None
        except KafkaError as error:
            results[name] = bare(error)
    return AlterClientQuotasResponse(entries=[_result(dict(name), error) for name, error in results.items()])


def _named(entry: EntryData) -> dict[str, str | None]:
    # Of a kind that is named twice Kafka takes the last name.
    return {each.entity_type: each.entity_name for each in entry.entity}


async def _alter(entities: EntityConfigs, entry: EntryData, *, is_trial: bool) -> None:
    ops = [(op.key, None if op.remove else op.value) for op in entry.ops]
    if len({key for key, _ in ops}) < len(ops):
        raise duplicate(_named(entry))
    entity = checked_entity(_named(entry))
    if (
        entity[0][0] == IP
        and (address := entity[0][1]) is not None
        and not await trio.to_thread.run_sync(_resolves, address.strip("[]"), limiter=_resolver)
    ):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{address} is not a valid IP or resolvable host.")
    changes = checked_changes(entity, ops)
    if not is_trial and changes:
        await entities.alter(path_of(entity), partial(changed, changes=changes))


def _resolves(host: str) -> bool:
    try:
        return bool(socket.getaddrinfo(host, None, type=socket.SOCK_STREAM))
    except (OSError, ValueError):  # ValueError: a part of the name is too long, or it has a zero in it
        return False


def _result(named: dict[str, str | None], error: KafkaError | None) -> AlteredEntryData:
    return AlteredEntryData(
        error_code=ErrorCode.NONE if error is None else error.code,
        error_message=None if error is None else error.message,
        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in named.items()],
    )


@handles(DescribeClientQuotasRequest)
async def describe_client_quotas(
    request: DescribeClientQuotasRequest, context: RequestContext[Broker]
) -> DescribeClientQuotasResponse:
    """DescribeClientQuotas: list the quotas of users, clients and addresses that match a filter (KIP-546).

    Behaviour
    * The client needs the right to describe the cluster's configs.
    * A condition that cannot be met, or names an unknown entity type, is an error of the whole request, without
      entries.
    * Without conditions the response lists all quotas; with `strict` it is empty. A condition for any name matches the
      default, too.
    * Other data of users, such as credentials, are omitted.
    * Any broker answers from its own copy of the stored values, which may lag behind by a moment.
    """
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

    def entry(entity: Entity) -> DescribedEntryData | None:
        return _entry(entity, quotas.get(entity, {})) if wanted.takes(entity) else None

    entries = await each_in_slices(list(quotas), entry)
    return DescribeClientQuotasResponse(
        error_code=ErrorCode.NONE, error_message="", entries=[each for each in entries if each is not None]
    )


def _entry(entity: Entity, values: dict[str, float]) -> DescribedEntryData:
    # In the order of Kafka's hash maps.
    parts = sorted(entity, key=lambda part: hash_map_slot(part[0], len(entity)))
    keys = sorted(values, key=lambda key: hash_map_slot(key, len(values)))
    return DescribedEntryData(
        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in parts],
        values=[ValueData(key=key, value=values[key]) for key in keys],
    )
