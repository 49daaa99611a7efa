"""ListConfigResources (key 74): the resources that have settings of their own.

v0 client metrics only (KIP-714)   v1 other types (KIP-1142)
"""

from ottla.wire.schema import Array, Int8, Int16, Int32, Message, String, Struct, field


class ListConfigResourcesRequest(Message, key=74, versions="0-1", flexible="0+"):
    resource_types: list[int] = field(Array(Int8), versions="1+", default=[])


class ConfigResource(Struct):
    resource_name: str = field(String)
    resource_type: int = field(Int8, versions="1+", default=16)


class ListConfigResourcesResponse(Message, key=74, versions="0-1", flexible="0+"):
    throttle_time_ms: int = field(Int32, default=0)
    error_code: int = field(Int16)
    config_resources: list[ConfigResource] = field(Array(ConfigResource))
