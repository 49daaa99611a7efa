"""ApiVersions (key 18): which requests a broker answers, and in which versions.

Every connection opens with it. A request newer than we know is answered in the layout of v0 with UNSUPPORTED_VERSION,
so that the client can read the answer without knowing our version; and the response header never has tagged fields.

v1 throttle time   v2 answers before throttling   v3 flexible; the client's name and version; features (KIP-511, 584)
v4 a supported feature may start at level 0 (older answers leave such features out)
v5 the cluster and the broker that the client means to reach, both or neither (KIP-1242)
"""

from ottla.wire.schema import Array, Bool, Int16, Int32, Int64, Message, String, Struct, field


class ApiVersionsRequest(Message, key=18, versions="0-5", flexible="3+"):
    client_software_name: str = field(String, versions="3+", default="")
    client_software_version: str = field(String, versions="3+", default="")
    cluster_id: str | None = field(String, versions="5+", nullable="5+", default=None)
    node_id: int = field(Int32, versions="5+", default=-1)


class ApiVersion(Struct):
    api_key: int = field(Int16)
    min_version: int = field(Int16)
    max_version: int = field(Int16)


class SupportedFeatureKey(Struct):
    name: str = field(String, versions="3+")
    min_version: int = field(Int16, versions="3+")
    max_version: int = field(Int16, versions="3+")


class FinalizedFeatureKey(Struct):
    name: str = field(String, versions="3+")
    max_version_level: int = field(Int16, versions="3+")
    min_version_level: int = field(Int16, versions="3+")


class ApiVersionsResponse(Message, key=18, versions="0-5", flexible="3+"):
    error_code: int = field(Int16)
    api_keys: list[ApiVersion] = field(Array(ApiVersion))
    throttle_time_ms: int = field(Int32, versions="1+", default=0)
    supported_features: list[SupportedFeatureKey] = field(Array(SupportedFeatureKey), versions="3+", tag=0, default=[])
    finalized_features_epoch: int = field(Int64, versions="3+", tag=1, default=-1)
    finalized_features: list[FinalizedFeatureKey] = field(Array(FinalizedFeatureKey), versions="3+", tag=2, default=[])
    zk_migration_ready: bool = field(Bool, versions="3+", tag=3, default=False)
