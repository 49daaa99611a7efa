"""DescribeClientQuotas (key 48): the quotas of users, clients and addresses (KIP-546).

v1 flexible
"""

from ottla.wire.schema import Array, Bool, Float64, Int8, Int16, Int32, Message, String, Struct, Text, field


class ComponentData(Struct):
    entity_type: str = field(String)
    match_type: int = field(Int8)
    match: str | None = field(String, nullable="0+")


class DescribeClientQuotasRequest(Message, key=48, versions="0-1", flexible="1+"):
    components: list[ComponentData] = field(Array(ComponentData))
    strict: bool = field(Bool)


class EntityData(Struct):
    entity_type: str = field(String)
    entity_name: str | None = field(String, nullable="0+")


class ValueData(Struct):
    key: str = field(String)
    value: float = field(Float64)


class EntryData(Struct):
    entity: list[EntityData] = field(Array(EntityData))
    values: list[ValueData] = field(Array(ValueData))


class DescribeClientQuotasResponse(Message, key=48, versions="0-1", flexible="1+"):
    throttle_time_ms: int = field(Int32, default=0)
    error_code: int = field(Int16)
    error_message: str | None = field(Text, nullable="0+")
    entries: list[EntryData] | None = field(Array(EntryData), nullable="0+")
