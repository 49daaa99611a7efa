"""Changes of settings: IncrementalAlterConfigs and AlterConfigs."""

from ottla.wire.schema import Array, Bool, Int8, Int16, Int32, Message, String, Struct, Text, field


class IncrementalConfig(Struct):
    name: str = field(String)
    config_operation: int = field(Int8)
    value: str | None = field(String, nullable="0+")


class IncrementalConfigsResource(Struct):
    resource_type: int = field(Int8)
    resource_name: str = field(String)
    configs: list[IncrementalConfig] = field(Array(IncrementalConfig))


class IncrementalAlterConfigsRequest(Message, key=44, versions="0-1", flexible="1+"):
    """IncrementalAlterConfigs (key 44): change single settings of resources (KIP-339). v1 flexible.

    Operations: set (0), delete (1), append (2) and subtract (3) values.
    """

    resources: list[IncrementalConfigsResource] = field(Array(IncrementalConfigsResource))
    validate_only: bool = field(Bool)


class AlterConfigsResourceResponse(Struct):
    error_code: int = field(Int16)
    error_message: str | None = field(Text, nullable="0+")
    resource_type: int = field(Int8)
    resource_name: str = field(String)


class IncrementalAlterConfigsResponse(Message, key=44, versions="0-1", flexible="1+"):
    throttle_time_ms: int = field(Int32, default=0)
    responses: list[AlterConfigsResourceResponse] = field(Array(AlterConfigsResourceResponse))


class AlterableConfig(Struct):
    name: str = field(String)
    value: str | None = field(String, nullable="0+")


class AlterConfigsResource(Struct):
    resource_type: int = field(Int8)
    resource_name: str = field(String)
    configs: list[AlterableConfig] = field(Array(AlterableConfig))


class AlterConfigsRequest(Message, key=33, versions="0-2", flexible="2+"):
    """AlterConfigs (key 33): replace all of a resource's settings. v1 answers before throttling; v2 flexible."""

    resources: list[AlterConfigsResource] = field(Array(AlterConfigsResource))
    validate_only: bool = field(Bool)


class AlterConfigsResponse(Message, key=33, versions="0-2", flexible="2+"):
    throttle_time_ms: int = field(Int32, default=0)
    responses: list[AlterConfigsResourceResponse] = field(Array(AlterConfigsResourceResponse))
