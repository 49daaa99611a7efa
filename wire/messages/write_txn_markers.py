"""WriteTxnMarkers (key 27): a transaction coordinator tells the leaders of partitions how a transaction ended.

v1 flexible   v2 transaction version (KIP-1228)
"""

from ottla.wire.schema import Array, Bool, Int8, Int16, Int32, Int64, Message, String, Struct, field


class WritableTxnMarkerTopic(Struct):
    name: str = field(String)
    partition_indexes: list[int] = field(Array(Int32))


class WritableTxnMarker(Struct):
    producer_id: int = field(Int64)
    producer_epoch: int = field(Int16)
    transaction_result: bool = field(Bool)
    topics: list[WritableTxnMarkerTopic] = field(Array(WritableTxnMarkerTopic))
    coordinator_epoch: int = field(Int32)
    transaction_version: int = field(Int8, versions="2+", default=0)


class WriteTxnMarkersRequest(Message, key=27, versions="1-2", flexible="1+"):
    markers: list[WritableTxnMarker] = field(Array(WritableTxnMarker))


class WritableTxnMarkerPartitionResult(Struct):
    partition_index: int = field(Int32)
    error_code: int = field(Int16)


class WritableTxnMarkerTopicResult(Struct):
    name: str = field(String)
    partitions: list[WritableTxnMarkerPartitionResult] = field(Array(WritableTxnMarkerPartitionResult))


class WritableTxnMarkerResult(Struct):
    producer_id: int = field(Int64)
    topics: list[WritableTxnMarkerTopicResult] = field(Array(WritableTxnMarkerTopicResult))


class WriteTxnMarkersResponse(Message, key=27, versions="1-2", flexible="1+"):
    markers: list[WritableTxnMarkerResult] = field(Array(WritableTxnMarkerResult))
