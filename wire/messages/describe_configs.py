"""Settings and what has some: DescribeConfigs and ListConfigResources."""

from ottla.wire.schema import Array, Bool, Int8, Int16, Int32, Message, String, Struct, Text, field


class DescribeConfigsResource(Struct):
    resource_type: int = field(Int8)
    resource_name: str = field(String)
    configuration_keys: list[str] | None = field(Array(String), nullable="0+")


class DescribeConfigsRequest(Message, key=32, versions="0-4", flexible="4+"):
    """DescribeConfigs (key 32): return settings of topics (resource type 2), brokers (4), loggers (8) and others.

    v1 source and synonyms of each value (KIP-226)   v2 answers before throttling
    v3 type and documentation (KIP-569)   v4 flexible
    """

    resources: list[DescribeConfigsResource] = field(Array(DescribeConfigsResource))
    include_synonyms: bool = field(Bool, versions="1+", default=False)
    include_documentation: bool = field(Bool, versions="3+", default=False)


class DescribeConfigsSynonym(Struct):
    name: str = field(String, versions="1+")
    value: str | None = field(String, versions="1+", nullable="0+")
    source: int = field(Int8, versions="1+")


class DescribeConfigsResourceResult(Struct):
    name: str = field(String)
    value: str | None = field(String, nullable="0+")
    read_only: bool = field(Bool)
    is_default: bool = field(Bool, versions="0", default=False)  # which Kafka 3.9 never sets
    config_source: int = field(Int8, versions="1+", default=-1)
    is_sensitive: bool = field(Bool)
    synonyms: list[DescribeConfigsSynonym] = field(Array(DescribeConfigsSynonym), versions="1+", default=[])
    config_type: int = field(Int8, versions="3+", default=0)
    documentation: str | None = field(String, versions="3+", nullable="0+", default="")


class DescribeConfigsResult(Struct):
    error_code: int = field(Int16)
    error_message: str | None = field(Text, nullable="0+")
    resource_type: int = field(Int8)
    resource_name: str = field(String)
    configs: list[DescribeConfigsResourceResult] = field(Array(DescribeConfigsResourceResult))


class DescribeConfigsResponse(Message, key=32, versions="0-4", flexible="4+"):
    throttle_time_ms: int = field(Int32, default=0)
    results: list[DescribeConfigsResult] = field(Array(DescribeConfigsResult))


class ListConfigResourcesRequest(Message, key=74, versions="0-1", flexible="0+"):
    """ListConfigResources (key 74): list configured resources. v0 client metrics (KIP-714); v1 others (KIP-1142)."""

    resource_types: list[int] = field(Array(Int8), versions="1+", default=[])


class ConfigResource(Struct):
    resource_name: str = field(String)
    resource_type: int = field(Int8, versions="1+", default=16)


class ListConfigResourcesResponse(Message, key=74, versions="0-1", flexible="0+"):
    throttle_time_ms: int = field(Int32, default=0)
    error_code: int = field(Int16)
    config_resources: list[ConfigResource] = field(Array(ConfigResource))
