"""StreamsGroupTopologyDescriptionUpdate (key 93): a streams application describes its topology (KIP-1331).

v0 is the only version.
"""

from ottla.wire.schema import Array, Int8, Int16, Int32, Message, String, Struct, Text, field


class TopologyDescriptionNode(Struct):
    name: str = field(String)
    node_type: int = field(Int8)
    source_topics: list[str] = field(Array(String))
    sink_topic: str | None = field(String, nullable="0+", default=None)
    stores: list[str] = field(Array(String))
    successors: list[str] = field(Array(String))


class TopologyDescriptionSubtopology(Struct):
    subtopology_id: str = field(String)
    nodes: list[TopologyDescriptionNode] = field(Array(TopologyDescriptionNode))


class TopologyDescriptionGlobalStore(Struct):
    source: TopologyDescriptionNode = field(TopologyDescriptionNode)
    processor: TopologyDescriptionNode = field(TopologyDescriptionNode)


class TopologyDescription(Struct):
    subtopologies: list[TopologyDescriptionSubtopology] = field(Array(TopologyDescriptionSubtopology))
    global_stores: list[TopologyDescriptionGlobalStore] = field(Array(TopologyDescriptionGlobalStore))


class StreamsGroupTopologyDescriptionUpdateRequest(Message, key=93, versions="0", flexible="0+"):
    group_id: str = field(String)
    member_id: str = field(String)
    topology_epoch: int = field(Int32)
    topology_description: TopologyDescription = field(TopologyDescription)


class StreamsGroupTopologyDescriptionUpdateResponse(Message, key=93, versions="0", flexible="0+"):
    throttle_time_ms: int = field(Int32, default=0)
    error_code: int = field(Int16)
    error_message: str | None = field(Text, nullable="0+", default=None)
