"""AlterConfigs (key 33): replace the whole set of a resource's settings; what is not named goes back to its default.

v1 answer first, throttle after   v2 flexible
"""

from ottla.wire.schema import Array, Bool, Int8, Int16, Int32, Message, String, Struct, Text, field


class AlterableConfig(Struct):
    name: str = field(String)
    value: str | None = field(String, nullable="0+")


class AlterConfigsResource(Struct):
    resource_type: int = field(Int8)
    resource_name: str = field(String)
    configs: list[AlterableConfig] = field(Array(AlterableConfig))


class AlterConfigsRequest(Message, key=33, versions="0-2", flexible="2+"):
    resources: list[AlterConfigsResource] = field(Array(AlterConfigsResource))
    validate_only: bool = field(Bool)


class AlterConfigsResourceResponse(Struct):
    error_code: int = field(Int16)
    error_message: str | None = field(Text, nullable="0+")
    resource_type: int = field(Int8)
    resource_name: str = field(String)


class AlterConfigsResponse(Message, key=33, versions="0-2", flexible="2+"):
    throttle_time_ms: int = field(Int32, default=0)
    responses: list[AlterConfigsResourceResponse] = field(Array(AlterConfigsResourceResponse))
