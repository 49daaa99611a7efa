"""Environment variables that compose files give to other images of Kafka, written after the documentation of each image."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Environment:
    """Variables of one compose file, and the behaviour that its users expect."""

    name: str
    variables: Mapping[str, str]
    port: int
    """Port that the compose file publishes: clients on the host use it."""

    warned: tuple[str, ...] = ()
    """A part of each warning that the broker logs about the variables."""

    login: Mapping[str, str] = field(default_factory=dict)
    """Settings with which a client logs in."""

    topics: Mapping[str, int] = field(default_factory=dict)
    """Topics that the broker creates at its first start, with their numbers of partitions."""

    cluster_id: str | None = None
    """Cluster id that the variables give; None if they give none."""

    files: Mapping[str, str] = field(default_factory=dict)
    """Contents of the files that the compose file mounts, by path."""

    @property
    def has_zookeeper(self) -> bool:
        return any("ZOOKEEPER_CONNECT" in name for name in self.variables)


_ONE = {
    "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
    "KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR": "1",
    "KAFKA_TRANSACTION_STATE_LOG_MIN_ISR": "1",
}
_JVM = {"KAFKA_HEAP_OPTS": "-Xmx512m", "KAFKA_JMX_PORT": "9101", "KAFKA_JMX_HOSTNAME": "localhost"}
CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"
JAAS = """
// Logins of the broker, and of its clients
KafkaServer {
    org.apache.kafka.common.security.plain.PlainLoginModule required
    username="admin" password="admin-\\"secret\\""
    user_admin="admin-\\"secret\\"" user_shop="shop-secret";
    org.apache.kafka.common.security.scram.ScramLoginModule required;
};
Client {
    org.apache.zookeeper.server.auth.DigestLoginModule required username="kafka" password="zookeeper-secret";
};
"""

ENVIRONMENTS = [
    Environment(
        name="apache/kafka, one node",
        variables={
            "KAFKA_NODE_ID": "1",
            "KAFKA_PROCESS_ROLES": "broker,controller",
            "KAFKA_LISTENERS": "CONTROLLER://:29093,PLAINTEXT_HOST://:9092,PLAINTEXT://:19092",
            "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT_HOST://localhost:9092,PLAINTEXT://broker:19092",
            "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,PLAINTEXT_HOST:PLAINTEXT",
            "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@broker:29093",
            "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
            "KAFKA_INTER_BROKER_LISTENER_NAME": "PLAINTEXT",
            "KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
            "KAFKA_LOG_DIRS": "/tmp/kraft-combined-logs",
            "CLUSTER_ID": CLUSTER_ID,
            **_ONE,
        },
        port=9092,
        cluster_id=CLUSTER_ID,
    ),
    Environment(
        name="apache/kafka, one of three combined nodes",
        variables={
            "KAFKA_NODE_ID": "2",
            "KAFKA_PROCESS_ROLES": "broker,controller",
            "KAFKA_LISTENERS": "PLAINTEXT://:19092,CONTROLLER://:9093,PLAINTEXT_HOST://:9092",
            "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://kafka-2:19092,PLAINTEXT_HOST://localhost:9092",
            "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,PLAINTEXT_HOST:PLAINTEXT",
            "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@kafka-1:9093,2@kafka-2:9093,3@kafka-3:9093",
            "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
            "KAFKA_INTER_BROKER_LISTENER_NAME": "PLAINTEXT",
            "CLUSTER_ID": CLUSTER_ID,
        },
        port=9092,
        warned=("quorum of KRaft controllers has 3 members, but this broker is alone",),
        cluster_id=CLUSTER_ID,
    ),
    Environment(
        name="cp-kafka, all in one, KRaft",
        variables={
            "KAFKA_NODE_ID": "1",
            "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,PLAINTEXT_HOST:PLAINTEXT",
            "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://broker:29092,PLAINTEXT_HOST://localhost:9092",
            "KAFKA_LISTENERS": "PLAINTEXT://broker:29092,CONTROLLER://broker:29093,PLAINTEXT_HOST://0.0.0.0:9092",
            "KAFKA_INTER_BROKER_LISTENER_NAME": "PLAINTEXT",
            "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
            "KAFKA_PROCESS_ROLES": "broker,controller",
            "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@broker:29093",
            "KAFKA_CONFLUENT_LICENSE_TOPIC_REPLICATION_FACTOR": "1",
            "KAFKA_CONFLUENT_BALANCER_TOPIC_REPLICATION_FACTOR": "1",
            "KAFKA_METRIC_REPORTERS": "io.confluent.metrics.reporter.ConfluentMetricsReporter",
            "CONFLUENT_METRICS_REPORTER_BOOTSTRAP_SERVERS": "broker:29092",
            "CONFLUENT_METRICS_ENABLE": "true",
            "CONFLUENT_SUPPORT_CUSTOMER_ID": "anonymous",
            "KAFKA_LOG_DIRS": "/tmp/kraft-combined-logs",
            "CLUSTER_ID": "MkU3OEVBNTcwNTJENDM2Qk",
            **_ONE,
            **_JVM,
        },
        port=9092,
        warned=("no settings: KAFKA_CONFLUENT_BALANCER_TOPIC_REPLICATION_FACTOR, KAFKA_CONFLUENT_LICENSE_TOPIC",),
        cluster_id="MkU3OEVBNTcwNTJENDM2Qk",
    ),
    Environment(
        name="cp-kafka, all in one, ZooKeeper",
        variables={
            "KAFKA_BROKER_ID": "1",
            "KAFKA_ZOOKEEPER_CONNECT": "zookeeper:2181",
            "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "PLAINTEXT:PLAINTEXT,PLAINTEXT_HOST:PLAINTEXT",
            "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://broker:29092,PLAINTEXT_HOST://localhost:9092",
            "KAFKA_CONFLUENT_SCHEMA_REGISTRY_URL": "http://schema-registry:8081",
            **_ONE,
            **_JVM,
        },
        port=9092,
    ),
    Environment(
        name="cp-kafka, SASL/PLAIN with a JAAS file",
        variables={
            "KAFKA_NODE_ID": "1",
            "KAFKA_PROCESS_ROLES": "broker,controller",
            "KAFKA_LISTENERS": "SASL_PLAINTEXT://:9092,CONTROLLER://:9093",
            "KAFKA_ADVERTISED_LISTENERS": "SASL_PLAINTEXT://localhost:9092",
            "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
            "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
            "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@localhost:9093",
            "KAFKA_INTER_BROKER_LISTENER_NAME": "SASL_PLAINTEXT",
            "KAFKA_SASL_ENABLED_MECHANISMS": "PLAIN",
            "KAFKA_SASL_MECHANISM_INTER_BROKER_PROTOCOL": "PLAIN",
            "KAFKA_OPTS": "-Xlog:gc -Djava.security.auth.login.config=/etc/kafka/secrets/jaas.conf -Dzookeeper.sasl.client=false",
            **_ONE,
        },
        port=9092,
        login={"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
        | {"sasl.username": "admin", "sasl.password": 'admin-"secret"'},
        files={"/etc/kafka/secrets/jaas.conf": JAAS},
    ),
    Environment(
        name="bitnami/kafka, KRaft",
        variables={
            "KAFKA_CFG_NODE_ID": "0",
            "KAFKA_CFG_PROCESS_ROLES": "controller,broker",
            "KAFKA_CFG_LISTENERS": "PLAINTEXT://:9092,CONTROLLER://:9093",
            "KAFKA_CFG_LISTENER_SECURITY_PROTOCOL_MAP": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "KAFKA_CFG_CONTROLLER_QUORUM_VOTERS": "0@kafka:9093",
            "KAFKA_CFG_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
            "KAFKA_KRAFT_CLUSTER_ID": "abcdefghijklmnopqrstuv",
            "ALLOW_PLAINTEXT_LISTENER": "yes",
        },
        port=9092,
        cluster_id="abcdefghijklmnopqrstuv",
    ),
    Environment(
        name="bitnami/kafka, clients inside and outside",
        variables={
            "KAFKA_ENABLE_KRAFT": "yes",
            "KAFKA_BROKER_ID": "1",
            "KAFKA_CFG_NODE_ID": "1",
            "KAFKA_CFG_PROCESS_ROLES": "broker,controller",
            "KAFKA_CFG_LISTENERS": "PLAINTEXT://:9092,CONTROLLER://:9093,EXTERNAL://:9094",
            "KAFKA_CFG_ADVERTISED_LISTENERS": "PLAINTEXT://kafka:9092,EXTERNAL://localhost:9094",
            "KAFKA_CFG_LISTENER_SECURITY_PROTOCOL_MAP": "CONTROLLER:PLAINTEXT,EXTERNAL:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "KAFKA_CFG_CONTROLLER_QUORUM_VOTERS": "1@kafka:9093",
            "KAFKA_CFG_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
            "KAFKA_CFG_INTER_BROKER_LISTENER_NAME": "PLAINTEXT",
            "KAFKA_CFG_AUTO_CREATE_TOPICS_ENABLE": "true",
        },
        port=9094,
        warned=("no settings: KAFKA_ENABLE_KRAFT",),
    ),
    Environment(
        name="bitnami/kafka, SCRAM and PLAIN users",
        variables={
            "KAFKA_CFG_NODE_ID": "0",
            "KAFKA_CFG_PROCESS_ROLES": "controller,broker",
            "KAFKA_CFG_LISTENERS": "SASL_PLAINTEXT://:9092,CONTROLLER://:9093",
            "KAFKA_CFG_ADVERTISED_LISTENERS": "SASL_PLAINTEXT://localhost:9092",
            "KAFKA_CFG_LISTENER_SECURITY_PROTOCOL_MAP": "CONTROLLER:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT",
            "KAFKA_CFG_CONTROLLER_QUORUM_VOTERS": "0@kafka:9093",
            "KAFKA_CFG_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
            "KAFKA_CFG_INTER_BROKER_LISTENER_NAME": "SASL_PLAINTEXT",
            "KAFKA_CFG_SASL_ENABLED_MECHANISMS": "PLAIN,SCRAM-SHA-512",
            "KAFKA_CFG_SASL_MECHANISM_INTER_BROKER_PROTOCOL": "PLAIN",
            "KAFKA_CLIENT_USERS": "shop,bank",
            "KAFKA_CLIENT_PASSWORDS": "shop-secret,bank-secret",
            "KAFKA_INTER_BROKER_USER": "broker",
            "KAFKA_INTER_BROKER_PASSWORD": "broker-secret",
        },
        port=9092,
        login={"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-512"}
        | {"sasl.username": "bank", "sasl.password": "bank-secret"},
    ),
    Environment(
        name="wurstmeister/kafka, one broker",
        variables={
            "KAFKA_ADVERTISED_HOST_NAME": "localhost",
            "KAFKA_ADVERTISED_PORT": "9092",
            "KAFKA_PORT": "9092",
            "KAFKA_CREATE_TOPICS": "orders:3:1,users:1:1:compact",
            "KAFKA_ZOOKEEPER_CONNECT": "zookeeper:2181",
        },
        port=9092,
        topics={"orders": 3, "users": 1},
        warned=("KAFKA_BROKER_ID is not given: this broker is 1001",),
    ),
    Environment(
        name="wurstmeister/kafka, clients inside and outside",
        variables={
            "KAFKA_BROKER_ID": "7",
            "KAFKA_ADVERTISED_LISTENERS": "INSIDE://kafka:9093,OUTSIDE://localhost:9092",
            "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
            "KAFKA_LISTENERS": "INSIDE://0.0.0.0:9093,OUTSIDE://0.0.0.0:9092",
            "KAFKA_INTER_BROKER_LISTENER_NAME": "INSIDE",
            "KAFKA_ZOOKEEPER_CONNECT": "zookeeper:2181",
            "KAFKA_LOG_RETENTION_HOURS": "48",
            "BROKER_ID_COMMAND": "hostname | awk -F'-' '{print $$2}'",
        },
        port=9092,
        warned=("BROKER_ID_COMMAND: ignored, because commands in variables are not run",),
    ),
    Environment(
        name="a mistyped variable, and variables that Kubernetes adds",
        variables={
            "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://localhost:9092",
            "KAFKA_NUM_PARTITONS": "5",
            "KAFKA_CFG_AUTO_CREATE_TOPIC_ENABLE": "true",
            "KAFKA_SERVICE_HOST": "10.0.0.7",
            "KAFKA_PORT": "tcp://10.0.0.7:9092",
            "KAFKA_PORT_9092_TCP_ADDR": "10.0.0.7",
        },
        port=9092,
        warned=(
            "KAFKA_NUM_PARTITONS is ignored: there is no such setting; did you mean KAFKA_NUM_PARTITIONS?",
            "did you mean KAFKA_CFG_AUTO_CREATE_TOPICS_ENABLE?",
        ),
    ),
    Environment(
        name="beside Redpanda's console",
        variables={
            "KAFKA_BROKERS": "redpanda:9092",
            "KAFKA_SCHEMAREGISTRY_ENABLED": "true",
            "KAFKA_SCHEMAREGISTRY_URLS": "http://redpanda:8081",
            "REDPANDA_ADMINAPI_ENABLED": "true",
            "OTTLA_ADVERTISED_LISTENERS": "INTERNAL://redpanda:9092,EXTERNAL://localhost:19092",
            "OTTLA_LISTENER_SECURITY_PROTOCOL_MAP": "INTERNAL:PLAINTEXT,EXTERNAL:PLAINTEXT",
            "OTTLA_INTER_BROKER_LISTENER_NAME": "INTERNAL",
        },
        port=19092,
        warned=("no settings: KAFKA_BROKERS, KAFKA_SCHEMAREGISTRY_ENABLED, KAFKA_SCHEMAREGISTRY_URLS",),
    ),
]

_PLACE = re.compile(r"://(?P<host>[\w.-]*):(?P<port>\d+)")
_PLACES = ("LISTENERS",)
_PORTS = ("KAFKA_ADVERTISED_PORT", "KAFKA_PORT")


def on_this_host(
    environment: Environment, folder: Path, zookeeper: str, free_port: Callable[[], int]
) -> tuple[dict[str, str], int]:
    """Return variables with this machine's host names, ports and paths, and the port that stands for `environment.port`.

    Writes the environment's files below `folder`.
    """
    ports: dict[str, int] = {}

    def other(port: str) -> int:
        return ports.setdefault(port, free_port())

    variables = dict(environment.variables)
    for name, text in variables.items():
        if name.endswith(_PLACES):
            variables[name] = _PLACE.sub(lambda place: f"://127.0.0.1:{other(place['port'])}", text)
        elif name in _PORTS and text.isdecimal():
            variables[name] = str(other(text))
        elif name.endswith("ZOOKEEPER_CONNECT"):
            variables[name] = zookeeper
        elif name.endswith("LOG_DIRS"):
            variables[name] = str(folder / "logs")
        for path in environment.files:
            variables[name] = variables[name].replace(path, f"{folder}{path}")
    for path, content in environment.files.items():
        Path(f"{folder}{path}").parent.mkdir(parents=True, exist_ok=True)
        Path(f"{folder}{path}").write_text(content)
    variables["XDG_DATA_HOME"] = str(folder / "data")
    return variables, other(str(environment.port))
