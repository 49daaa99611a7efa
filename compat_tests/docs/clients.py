"""Which clients, applications and tools the tests run, in which version, and which tests prove it."""

import re
from collections.abc import Callable
from dataclasses import dataclass

from compat_tests.docs.pages import ROOT

Pin = Callable[[], str]


@dataclass(frozen=True, slots=True)
class Client:
    name: str
    language: str
    version: Pin
    """Read from where it is pinned."""

    proven_by: tuple[str, ...]
    """Files of tests, below compat_tests/."""

    what: str


def pinned(file: str, pattern: str) -> Pin:
    """What the only group of the pattern matches in a file of the repository."""

    def read() -> str:
        found = re.search(pattern, (ROOT / file).read_text())
        assert found is not None, f"{file} pins nothing by {pattern}"
        return found[1]

    return read


def python_package(name: str) -> Pin:
    """The oldest version that the tests are run with; pip takes the newest."""
    return pinned("pyproject.toml", rf'"{name}(?:\[[^\]]*\])?>=([\d.]+)"')


def release(name: str) -> Pin:
    """Of Apache Kafka."""
    return pinned("compat_tests/apache/releases/pom.xml", rf"<{name}>([\d.]+)</{name}>")


def _of_both(first: Pin, second: Pin) -> Pin:
    return lambda: f"{first()}, {second()}"


def _of_debian() -> str:
    return "Debian 12's"


LIBRDKAFKA = python_package("confluent-kafka")
KAFKA_4, KAFKA_4_TOOLS, KAFKA_3 = release("kafka_4"), release("kafka_4_tools"), release("kafka_3")

CLIENTS = (
    Client(
        "Apache Kafka's own clients", "Java", KAFKA_4,
        (
            "clients/test_java_clients.py", "clients/test_java_coordinated.py", "clients/test_java_keystores.py",
            "clients/test_mixed_groups.py", "clients/test_late_requests.py", "clients/test_oauth.py", "clients/test_gssapi.py",
            "clients/test_telemetry.py", "clients/test_telemetry_beside_kafka.py",
        ),
        "producers, consumers of all three protocols, transactions, share consumers, TLS, tokens, Kerberos, metrics that they push",
    ),
    Client(
        "librdkafka, by confluent-kafka", "C, Python", LIBRDKAFKA,
        (
            "clients/test_confluent_kafka.py", "clients/test_confluent_kafka_admin.py", "clients/test_consumer_protocol.py",
            "clients/test_profiles.py",
            "clients/test_transactions.py", "clients/test_refused_for_a_moment.py", "clients/test_tls.py", "clients/test_sasl.py",
            "clients/test_with_rights.py", "clients/test_telemetry.py", "clients/test_why.py",
        ),
        "everything that it can, administration included; KIP-848; TLS, SASL and rules; metrics that it pushes",
    ),
    Client(
        "kcat", "C", _of_debian, ("clients/test_kcat.py", "clients/test_gssapi.py"),
        "an old librdkafka with a strict parser; Kerberos",
    ),
    Client(
        "kafka-python", "Python", python_package("kafka-python"),
        (
            "clients/test_kafka_python.py", "clients/test_profiles.py", "clients/test_transactions.py", "clients/test_gssapi.py", "clients/test_traps.py",
            "suites/test_kafka_python_suite.py",
        ),
        "as its users write it, Kerberos included, and its own suite of integration tests",
    ),
    Client(
        "aiokafka", "Python", python_package("aiokafka"), ("clients/test_aiokafka.py", "clients/test_transactions.py", "clients/test_traps.py"),
        "producer, consumer, groups, administration, transactions",
    ),
    Client(
        "KafkaJS", "JavaScript", pinned("compat_tests/clients/kafkajs/package.json", r'"kafkajs": "([^"]+)"'),
        ("clients/test_kafkajs.py",), "producer, consumer, groups, administration",
    ),
    Client(
        "franz-go", "Go", pinned("compat_tests/clients/kgo/go.mod", r"twmb/franz-go v([\d.]+)"),
        ("clients/test_kgo.py",), "producer, consumer groups, share groups, transactions, under kills",
    ),
    Client(
        "kafka-go", "Go", pinned("compat_tests/clients/go_admin/go.mod", r"segmentio/kafka-go v([\d.]+)"),
        ("clients/test_go_admin.py",), "topics, at any broker of a cluster and at any worker",
    ),
    Client(
        "sarama", "Go", pinned("compat_tests/clients/go_admin/go.mod", r"IBM/sarama v([\d.]+)"),
        ("clients/test_go_admin.py",), "topics, at any broker of a cluster and at any worker",
    ),
    Client(
        "Terraform's provider", "Go", pinned("compat_tests/clients/go_admin/go.mod", r"Mongey/terraform-provider-kafka v([\d.]+)"),
        ("clients/test_go_admin.py",), "topics with settings, at any broker and at any worker",
    ),
    Client(
        "Kafka Streams", "Java", _of_both(KAFKA_4_TOOLS, KAFKA_3),
        ("clients/test_kafka_streams.py", "applications/test_kafka_streams.py"),
        "both group protocols, exactly once, under kills of the application and of the broker",
    ),
    Client(
        "Kafka Connect", "Java", KAFKA_4_TOOLS,
        ("clients/test_kafka_connect.py", "applications/test_connect_exactly_once.py"),
        "distributed workers, exactly-once sources",
    ),
    Client(
        "A processor on librdkafka", "Python", LIBRDKAFKA, ("applications/test_exactly_once.py",),
        "reads, processes and writes in transactions, under kills",
    ),
    Client(
        "Apache Spark", "Scala, Python", pinned("pyproject.toml", r'"pyspark==([\d.]+)"'),
        ("clients/test_spark_with_rights.py",), "batch and streaming, source and sink, with rules; the examples are run as tests, too",
    ),
    Client(
        "Kafka's command-line tools", "Java", _of_both(KAFKA_4_TOOLS, KAFKA_3),
        (
            "tools/test_acls.py", "tools/test_client_quotas.py", "tools/test_cluster.py", "tools/test_configs.py",
            "tools/test_features.py", "tools/test_groups.py", "tools/test_performance.py", "tools/test_records.py",
            "tools/test_resets.py", "tools/test_share_groups.py", "tools/test_topics.py", "tools/test_transactions.py",
        ),
        "what they print is compared with what they print of Apache Kafka",
    ),
)  # fmt: skip
