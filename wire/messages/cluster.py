"""The cluster as a whole: DescribeCluster and UpdateFeatures."""

from ottla.wire.schema import Array, Bool, Int8, Int16, Int32, Message, String, Struct, Text, field


class DescribeClusterRequest(Message, key=60, versions="0-2", flexible="0+"):
    """DescribeCluster (key 60): return the cluster's id, controller and brokers (KIP-700).

    v0 flexible from the start   v1 endpoints of brokers (1) or controllers (2) (KIP-919)   v2 fenced brokers (KIP-1073)
    """

    include_cluster_authorized_operations: bool = field(Bool)
    endpoint_type: int = field(Int8, versions="1+", default=1)
    include_fenced_brokers: bool = field(Bool, versions="2+", default=False)


class DescribeClusterBroker(Struct):
    broker_id: int = field(Int32)
    host: str = field(String)
    port: int = field(Int32)
    rack: str | None = field(String, nullable="0+", default=None)
    is_fenced: bool = field(Bool, versions="2+", default=False)


class DescribeClusterResponse(Message, key=60, versions="0-2", flexible="0+"):
    throttle_time_ms: int = field(Int32, default=0)
    error_code: int = field(Int16)
    error_message: str | None = field(Text, nullable="0+", default=None)
    endpoint_type: int = field(Int8, versions="1+", default=1)
    cluster_id: str = field(String)
    controller_id: int = field(Int32, default=-1)
    brokers: list[DescribeClusterBroker] = field(Array(DescribeClusterBroker))
    cluster_authorized_operations: int = field(Int32, default=-(1 << 31))


class FeatureUpdateKey(Struct):
    feature: str = field(String)
    max_version_level: int = field(Int16)
    allow_downgrade: bool = field(Bool, versions="0", default=False)
    upgrade_type: int = field(Int8, versions="1+", default=1)


class UpdateFeaturesRequest(Message, key=57, versions="0-2", flexible="0+"):
    """UpdateFeatures (key 57): change feature levels.

    v1 dry run, type of the change (KIP-778)   v2 one result for all features (KIP-1022)
    """

    timeout_ms: int = field(Int32, default=60000)
    feature_updates: list[FeatureUpdateKey] = field(Array(FeatureUpdateKey))
    validate_only: bool = field(Bool, versions="1+", default=False)


class UpdatableFeatureResult(Struct):
    feature: str = field(String)
    error_code: int = field(Int16)
    error_message: str | None = field(Text, nullable="0+")


class UpdateFeaturesResponse(Message, key=57, versions="0-2", flexible="0+"):
    throttle_time_ms: int = field(Int32, default=0)
    error_code: int = field(Int16)
    error_message: str | None = field(Text, nullable="0+")
    results: list[UpdatableFeatureResult] = field(Array(UpdatableFeatureResult), versions="0-1", default=[])
