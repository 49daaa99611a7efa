"""Paths and contents of the nodes in which Kafka keeps its cluster state in the coordination tree.

Paths and JSON are those of Kafka 3.9's ZooKeeper mode (its class ZkData), so that such brokers and Ottla can share a
tree. Decoders accept what Kafka's own older versions wrote; anything else is `MalformedNode`.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

from ottla.replication.cluster.metadata_cache import TOPIC_NAME_LENGTH_MAX, BrokerEndpoint, BrokerRegistration
from ottla.replication.log.names import NO_NAMES
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.text import parse_uuid, uuid_text

CLUSTER_ID = "/cluster/id"
CONTROLLER = "/controller"
TAKES_ENVELOPES = "takesEnvelopes"
CONTROLLER_EPOCH = "/controller_epoch"
BROKER_IDS = "/brokers/ids"
TOPICS = "/brokers/topics"
TOPIC_CONFIGS = "/config/topics"
BROKER_CONFIGS = "/config/brokers"
GROUP_CONFIGS = "/config/groups"
USERS, CLIENTS, IPS = "users", "clients", "ips"
"""Below /config: entities that have quotas, users also credentials. A client of one user is users/<user>/clients/<client>."""
CLIENT_METRICS_CONFIGS = "/config/client-metrics"
CONFIG_CHANGES = "/config/changes"
FEATURE = "/feature"
DELETED_TOPICS = "/admin/delete_topics"
REASSIGNMENTS = "/admin/reassign_partitions"
PREFERRED_ELECTION = "/admin/preferred_replica_election"
ISR_CHANGES = "/isr_change_notification"
LOG_DIR_EVENTS = "/log_dir_event_notification"
PRODUCER_ID_BLOCK = "/latest_producer_id_block"

DEFAULT_ENTITY = "<default>"
SECURITY_PROTOCOLS = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}

_ENDPOINT = re.compile(r"(.*)://\[?([0-9a-zA-Z\-%._:]*)\]?:(-?[0-9]+)")
_LOG_DIRS_VERSION = 1
_LOG_DIR_FAILURE = 1  # Kafka knows no other event

PERSISTENT_PATHS = (
    "/cluster",
    "/consumers",
    "/brokers",
    "/brokers/ids",
    "/brokers/topics",
    "/brokers/seqid",
    "/config",
    "/config/changes",
    "/config/topics",
    "/config/clients",
    "/config/users",
    "/config/brokers",
    "/config/ips",
    "/config/client-metrics",
    "/admin",
    "/admin/delete_topics",
    "/isr_change_notification",
    "/latest_producer_id_block",
    "/log_dir_event_notification",
)
"""Nodes that a broker makes at start where they are missing, parents first."""

OWN_PATHS = (GROUP_CONFIGS, "/ottla", "/ottla/log_dirs")
"""Nodes of the same kind that brokers of Kafka know nothing of.

Kafka's ZooKeeper mode has no place for settings of groups. They are where it would look for them. There are no notices
of them below /config/changes, because brokers of Kafka would complain of those: the node /config/groups is rewritten with every
change of a child, so that its watchers are notified of the change. The same is done with /config/client-metrics, which
Kafka 3.9 makes and never uses.
"""


class MalformedNode(ValueError):
    """Error raised if a node's data does not have Kafka's format."""


@dataclass(frozen=True, slots=True)
class TopicAssignment:
    """Node /brokers/topics/<topic>: the topic's id and the replicas of each partition.

    `adding_replicas` and `removing_replicas` list only partitions in reassignment; `replicas` include both there.
    """

    topic_id: bytes | None
    partitions: Mapping[int, list[int]]
    adding_replicas: Mapping[int, list[int]] = field(default_factory=dict)
    removing_replicas: Mapping[int, list[int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LeaderAndIsr:
    """Node /brokers/topics/<topic>/partitions/<partition>/state: a partition's leader and in-sync replicas."""

    leader: int
    leader_epoch: int
    isr: list[int]
    controller_epoch: int
    leader_recovery_state: int = 0


def topic_path(topic: str) -> str:
    return _below(TOPICS, topic)


def partitions_path(topic: str) -> str:
    return f"{topic_path(topic)}/partitions"


def partition_path(topic: str, partition: int) -> str:
    return f"{topic_path(topic)}/partitions/{partition}"


def state_path(topic: str, partition: int) -> str:
    return f"{topic_path(topic)}/partitions/{partition}/state"


def deleted_topic_path(topic: str) -> str:
    return _below(DELETED_TOPICS, topic)


def _below(parent: str, name: str) -> str:
    """Return the path of a child node. Raises KafkaError if `name` would lead to a node elsewhere in the tree."""
    if "/" in name or name in NO_NAMES:
        raise KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION, f"there is no node for topic {name[:TOPIC_NAME_LENGTH_MAX]!r}"
        )
    return f"{parent}/{name}"


def topic_config_path(topic: str) -> str:
    # Kafka's Sanitizer encodes the names of all entities below /config.
    return f"{TOPIC_CONFIGS}/{quote(topic, safe='')}"


def group_config_path(group_id: str) -> str:
    return f"{GROUP_CONFIGS}/{_any_name(group_id)}"


def client_metrics_path(subscription: str) -> str:
    return f"{CLIENT_METRICS_CONFIGS}/{_any_name(subscription)}"


def _any_name(name: str) -> str:
    # No node can have one of NO_NAMES, which need no encoding otherwise.
    return name.replace(".", "%2E") if name in NO_NAMES else quote(name, safe="")


def name_of_config(path_element: str) -> str:
    """Decode the name of a group or a client metrics subscription from its path element."""
    return unquote(path_element)


def entity_path(entity: str) -> str:
    """Return the path of the node that holds the settings of an entity such as users/alice."""
    return f"/config/{entity}"


def entity_element(name: str | None) -> str:
    """Encode the name of a user, client or address for a path, like Kafka's Sanitizer; None is the default entity."""
    if name is None:
        return DEFAULT_ENTITY
    # No node can have one of NO_NAMES, which Kafka does not encode.
    return name.replace(".", "%2E") if name in NO_NAMES else quote(name, safe="", errors="replace").replace("~", "%7E")


def broker_config_path(broker: int | None) -> str:
    return f"{BROKER_CONFIGS}/{DEFAULT_ENTITY if broker is None else broker}"


def broker_path(broker: int) -> str:
    return f"{BROKER_IDS}/{broker}"


def entity_name(path_element: str) -> str:
    """Decode an entity's name from the name of a child of /config/<type>."""
    return path_element if path_element == DEFAULT_ENTITY else unquote(path_element)


def decode_uuid(text: str) -> bytes:
    """Parse Kafka's text for a UUID. Raises MalformedNode."""
    try:
        return parse_uuid(text)
    except ValueError:
        raise MalformedNode(f"{text!r} is not a UUID") from None


def encode_topic(assignment: TopicAssignment) -> bytes:
    return _encode(
        {
            "version": 3,
            "topic_id": uuid_text(assignment.topic_id or bytes(16)),
            "partitions": _encode_replicas(assignment.partitions),
            "adding_replicas": _encode_replicas(assignment.adding_replicas),
            "removing_replicas": _encode_replicas(assignment.removing_replicas),
        }
    )


def decode_topic(data: bytes) -> TopicAssignment:
    node = _decode(data)
    try:
        # Topics from before Kafka 2.8 have no id. The controller gives them one.
        topic_id = decode_uuid(node["topic_id"]) if node.get("topic_id") else None
        partitions = _decode_replicas(node["partitions"])
        # Older nodes lack these two, which came with KIP-455.
        adding = _decode_replicas(node.get("adding_replicas") or {})
        removing = _decode_replicas(node.get("removing_replicas") or {})
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise MalformedNode(f"not a topic's assignment: {error!r}") from None
    return TopicAssignment(topic_id, partitions, adding, removing)


def _encode_replicas(replicas: Mapping[int, list[int]]) -> dict[str, list[int]]:
    return {str(partition): ids for partition, ids in replicas.items()}


def _decode_replicas(node: Mapping[str, list[int]]) -> dict[int, list[int]]:
    # By number: in JSON the keys are texts, and callers take the position in this order for the number of a partition.
    return dict(sorted((int(partition), [int(each) for each in ids]) for partition, ids in node.items()))


def encode_state(state: LeaderAndIsr) -> bytes:
    node: dict[str, Any] = {
        "controller_epoch": state.controller_epoch,
        "leader": state.leader,
        "version": 1,
        "leader_epoch": state.leader_epoch,
        "isr": state.isr,
    }
    # Kafka writes this only for a leader that is recovering.
    if state.leader_recovery_state:
        node["leader_recovery_state"] = state.leader_recovery_state
    return _encode(node)


def decode_state(data: bytes) -> LeaderAndIsr:
    node = _decode(data)
    try:
        isr = [int(each) for each in node["isr"]]
        recovery = int(node.get("leader_recovery_state", 0))
        return LeaderAndIsr(
            int(node["leader"]), int(node["leader_epoch"]), isr, int(node["controller_epoch"]), recovery
        )
    except (KeyError, TypeError, ValueError) as error:
        raise MalformedNode(f"not a partition's state: {error!r}") from None


def encode_controller(broker: int, timestamp_ms: int) -> bytes:
    """Encode node /controller, version 2; an extra field, ignored by Kafka, says that Envelope is supported."""
    node = {"version": 2, "brokerid": broker, "timestamp": str(timestamp_ms), "kraftControllerEpoch": -1}
    return _encode(node | {TAKES_ENVELOPES: True})


def decode_controller(data: bytes) -> int:
    """Decode the broker id of the controller."""
    try:
        return int(_decode(data)["brokerid"])
    except (KeyError, TypeError, ValueError) as error:
        raise MalformedNode(f"not a controller: {error!r}") from None


def takes_envelopes(data: bytes) -> bool:
    """Tell whether the controller that wrote this node takes Envelope; Kafka 3.9 and Ottla's first versions do not."""
    return _decode(data).get(TAKES_ENVELOPES) is True


def encode_controller_epoch(epoch: int) -> bytes:
    return str(epoch).encode()


def decode_controller_epoch(data: bytes) -> int:
    try:
        return int(data)
    except ValueError:
        raise MalformedNode(f"{data!r} is not a controller epoch") from None


def encode_broker(broker: BrokerRegistration, timestamp_ms: int) -> bytes:
    """Encode node /brokers/ids/<id>, version 5; for old clients, host and port are those of a PLAINTEXT listener."""
    names = {number: name for name, number in SECURITY_PROTOCOLS.items()}
    protocols = {name: names[broker.security_protocols.get(name, 0)] for name in broker.endpoints}
    plain = next((each for name, each in broker.endpoints.items() if protocols[name] == "PLAINTEXT"), None)
    node: dict[str, Any] = {
        "version": 5,
        "host": None if plain is None else plain.host,
        "port": -1 if plain is None else plain.port,
        "jmx_port": -1,
        "timestamp": str(timestamp_ms),
        "endpoints": [f"{name}://{_bracketed(each.host)}:{each.port}" for name, each in broker.endpoints.items()],
        "listener_security_protocol_map": protocols,
        # The controller ignores a broker that lacks a feature that is finalized in /feature. Kafka before 3.9 reads no range
        # that begins with 0, the level of a feature that is not finalized.
        "features": {name: {"min_version": 1, "max_version": latest} for name, latest in broker.features.items()},
    }
    if broker.rack is not None:
        node["rack"] = broker.rack
    return _encode(node)


def decode_broker(node_id: int, data: bytes, epoch: int) -> BrokerRegistration:
    """Decode a broker's registration in any format that Kafka has written since 0.8 (versions 1 to 5)."""
    node = _decode(data)
    try:
        # Version 1 knows one address, and no listeners.
        if node["version"] < 2:
            listeners = [f"PLAINTEXT://{_bracketed(node['host'])}:{node['port']}"]
        else:
            listeners = [each.strip() for text in node["endpoints"] for each in text.split(",")]
        protocols = node.get("listener_security_protocol_map")
        rack = node.get("rack")
        endpoints: dict[str, BrokerEndpoint] = {}
        security: dict[str, int] = {}
        for text in listeners:
            name, host, port = _endpoint(text)
            endpoints[name] = BrokerEndpoint(node_id, host, port, rack)
            # Without the map listeners have no names of their own yet: each is called like its protocol.
            security[name] = SECURITY_PROTOCOLS[name if protocols is None else protocols[name]]
        features = {str(name): int(each["max_version"]) for name, each in (node.get("features") or {}).items()}
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise MalformedNode(f"not a broker's registration: {error!r}") from None
    return BrokerRegistration(node_id, endpoints, rack, epoch, security, features)


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _endpoint(text: str) -> tuple[str, str, int]:
    matched = _ENDPOINT.fullmatch(text)
    if matched is None:
        raise ValueError(f"{text!r} is not an endpoint")
    name, host, port = matched.groups()
    return name.upper(), host, int(port)


def encode_partitions(partitions: Iterable[tuple[str, int]]) -> bytes:
    return _encode({"version": 1, "partitions": [{"topic": topic, "partition": index} for topic, index in partitions]})


def decode_partitions(data: bytes) -> list[tuple[str, int]]:
    """Decode the partitions in a node that requests preferred leader elections or announces ISR changes."""
    try:
        return [(str(each["topic"]), int(each["partition"])) for each in _decode(data)["partitions"]]
    except (KeyError, TypeError, ValueError) as error:
        raise MalformedNode(f"not a list of partitions: {error!r}") from None


def encode_reassignments(targets: Mapping[tuple[str, int], Sequence[int]]) -> bytes:
    partitions = [
        {"topic": topic, "partition": index, "replicas": list(replicas)} for (topic, index), replicas in targets.items()
    ]
    return _encode({"version": 1, "partitions": partitions})


def decode_reassignments(data: bytes) -> dict[tuple[str, int], list[int]]:
    try:
        return {
            (str(each["topic"]), int(each["partition"])): [int(replica) for replica in each["replicas"]]
            for each in _decode(data)["partitions"]
        }
    except (KeyError, TypeError, ValueError) as error:
        raise MalformedNode(f"not a reassignment: {error!r}") from None


def encode_log_dir_failure(broker: int) -> bytes:
    return _encode({"version": 1, "broker": broker, "event": _LOG_DIR_FAILURE})


def decode_log_dir_failure(data: bytes) -> int:
    """Decode the id of the broker that reports the failure of a log directory."""
    node = _decode(data)
    try:
        if node["event"] == _LOG_DIR_FAILURE:
            return int(node["broker"])
    except (KeyError, TypeError, ValueError):
        pass
    raise MalformedNode("not the failure of a log directory")


def encode_config(config: Mapping[str, str]) -> bytes:
    return _encode({"version": 1, "config": dict(config)})


def decode_config(data: bytes) -> dict[str, str]:
    if not data:  # the node exists, but has no settings
        return {}
    config = _decode(data).get("config", {})
    if not isinstance(config, dict):
        raise MalformedNode("not a configuration")
    return {str(name): str(value) for name, value in config.items()}


def encode_config_change(entity_path: str) -> bytes:
    return _encode({"version": 2, "entity_path": entity_path})


def decode_config_change(data: bytes) -> str:
    """Decode the entity whose settings changed, such as "topics/<name>"; version 1 has type and name in two fields."""
    node = _decode(data)
    path = (
        node.get("entity_path") if node.get("version") == 2 else f"{node.get('entity_type')}/{node.get('entity_name')}"
    )
    if not isinstance(path, str) or node.get("version") not in (1, 2):
        raise MalformedNode("not a notice of changed settings")
    return path


def encode_cluster_id(cluster_id: str) -> bytes:
    return _encode({"version": "1", "id": cluster_id})  # this version is a text in Kafka, too


def decode_cluster_id(data: bytes) -> str:
    cluster_id = _decode(data).get("id")
    if not isinstance(cluster_id, str):
        raise MalformedNode("not a cluster id")
    return cluster_id


def log_dirs_path(broker: int) -> str:
    return f"{OWN_PATHS[-1]}/{broker}"


class KnownDirectory(NamedTuple):
    """A log directory as the tree records it; `is_new` if its id may not have been written into the directory yet."""

    path: str
    is_new: bool = False


def encode_log_dirs(known: Mapping[bytes, KnownDirectory]) -> bytes:
    """Encode a broker's log directories; `known` holds them by directory id."""
    directories = [
        {"id": uuid_text(directory_id), "path": entry.path} | ({"is_new": True} if entry.is_new else {})
        for directory_id, entry in known.items()
    ]
    return _encode({"version": _LOG_DIRS_VERSION, "directories": directories})


def decode_log_dirs(data: bytes) -> dict[bytes, KnownDirectory]:
    node = _decode(data)
    # No node of Kafka's: a version that is not known is one of a newer Ottla.
    if node.get("version") != _LOG_DIRS_VERSION:
        raise MalformedNode(f"version {node.get('version')!r} of a broker's log directories is not known")
    try:
        return {
            decode_uuid(each["id"]): KnownDirectory(str(each["path"]), bool(each.get("is_new")))
            for each in node["directories"]
        }
    except (KeyError, TypeError, AttributeError) as error:
        raise MalformedNode(f"not the log directories of a broker: {error!r}") from None


def encode_producer_id_block(broker: int, first: int, last: int) -> bytes:
    # Kafka writes these two numbers as texts.
    return _encode({"version": 1, "broker": broker, "block_start": str(first), "block_end": str(last)})


def decode_producer_id_block(data: bytes) -> tuple[int, int]:
    """Decode the producer id block that was allocated last; return its first and its last id."""
    node = _decode(data)
    try:
        return int(node["block_start"]), int(node["block_end"])
    except (KeyError, TypeError, ValueError) as error:
        raise MalformedNode(f"not a producer id block: {error!r}") from None


def _encode(node: Mapping[str, Any]) -> bytes:
    return json.dumps(node, separators=(",", ":")).encode()


def _decode(data: bytes) -> dict[str, Any]:
    try:
        node = json.loads(data)
    except ValueError as error:
        raise MalformedNode(f"not JSON: {error}") from None
    if not isinstance(node, dict):
        raise MalformedNode("not a JSON object")
    return node
