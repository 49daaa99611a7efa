"""UpdateFeatures (key 57): change the levels of features that the cluster uses.

v1 validate only, kind of change (KIP-778)   v2 no results for each feature (KIP-1022)
"""

from ottla.wire.schema import Array, Bool, Int8, Int16, Int32, Message, String, Struct, Text, field


class FeatureUpdateKey(Struct):
    feature: str = field(String)
    max_version_level: int = field(Int16)
    allow_downgrade: bool = field(Bool, versions="0", default=False)
    upgrade_type: int = field(Int8, versions="1+", default=1)


class UpdateFeaturesRequest(Message, key=57, versions="0-2", flexible="0+"):
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
