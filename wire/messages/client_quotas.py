"""Quotas of users, clients and addresses (KIP-546): AlterClientQuotas and DescribeClientQuotas."""

from ottla.wire.schema import Array, Bool, Float64, Int8, Int16, Int32, Message, String, Struct, Text, field


class EntityData(Struct):
    entity_type: str = field(String)
    entity_name: str | None = field(String, nullable="0+")


class OpData(Struct):
    key: str = field(String)
    value: float = field(Float64)
    remove: bool = field(Bool)


class EntryData(Struct):
    entity: list[EntityData] = field(Array(EntityData))
    ops: list[OpData] = field(Array(OpData))


class AlterClientQuotasRequest(Message, key=49, versions="0-1", flexible="1+"):
    """AlterClientQuotas (key 49): change quotas of users, clients and addresses (KIP-546). v1 flexible."""

    entries: list[EntryData] = field(Array(EntryData))
    validate_only: bool = field(Bool)


class AlteredEntryData(Struct):
    error_code: int = field(Int16)
    error_message: str | None = field(Text, nullable="0+")
    entity: list[EntityData] = field(Array(EntityData))


class AlterClientQuotasResponse(Message, key=49, versions="0-1", flexible="1+"):
    throttle_time_ms: int = field(Int32, default=0)
    entries: list[AlteredEntryData] = field(Array(AlteredEntryData))


class ComponentData(Struct):
    entity_type: str = field(String)
    match_type: int = field(Int8)
    match: str | None = field(String, nullable="0+")


class DescribeClientQuotasRequest(Message, key=48, versions="0-1", flexible="1+"):
    """DescribeClientQuotas (key 48): return quotas of users, clients and addresses (KIP-546). v1 flexible."""

    components: list[ComponentData] = field(Array(ComponentData))
    strict: bool = field(Bool)


class ValueData(Struct):
    key: str = field(String)
    value: float = field(Float64)


class DescribedEntryData(Struct):
    entity: list[EntityData] = field(Array(EntityData))
    values: list[ValueData] = field(Array(ValueData))


class DescribeClientQuotasResponse(Message, key=48, versions="0-1", flexible="1+"):
    throttle_time_ms: int = field(Int32, default=0)
    error_code: int = field(Int16)
    error_message: str | None = field(Text, nullable="0+")
    entries: list[DescribedEntryData] | None = field(Array(DescribedEntryData), nullable="0+")
