"""Kafka's own command-line tools, run by their class names as the shell scripts of its distribution do."""

import re

import pytest

TOOLS = "org.apache.kafka.tools"


@pytest.fixture
def tool(run, java, bootstrap):
    """Runs a tool on the broker: `tool("TopicCommand", "--list")`."""

    def run_tool(name, *arguments, stdin=""):
        class_name = name if name.startswith("kafka.") else f"{TOOLS}.{name}"
        return run(*java, class_name, "--bootstrap-server", bootstrap, *arguments, stdin=stdin)

    return run_tool


def test_console_producer_and_consumer(tool, topic, unique):
    lines = "".join(f"k{i}\tvalue {i}\n" for i in range(50))
    zstd_with_keys = ("--compression-codec", "zstd", "--reader-property", "parse.key=true")
    tool("ConsoleProducer", "--topic", topic, *zstd_with_keys, stdin=lines)
    with_keys = ("--formatter-property", "print.key=true")
    read = ("consumer.ConsoleConsumer", "--topic", topic, *with_keys, "--timeout-ms", "10000", "--max-messages")
    assert tool(*read, "50", "--from-beginning", "--group", unique("group")) == lines
    assert tool(*read, "1", "--partition", "0", "--offset", "49") == "k49\tvalue 49\n"


def test_topic_command(tool, unique):
    name = unique("topic")
    tool("TopicCommand", "--create", "--topic", name, "--partitions", "2", "--config", "retention.ms=5000")
    tool("TopicCommand", "--alter", "--topic", name, "--partitions", "3")
    described = tool("TopicCommand", "--describe", "--topic", name)
    assert re.search(r"PartitionCount: 3\s+ReplicationFactor: 1\s+Configs: .*retention.ms=5000", described)
    assert len(re.findall(r"Partition: \d\s+Leader: \d+\s+Replicas: (\d+)\s+Isr: \1", described)) == 3
    assert name in tool("TopicCommand", "--list").splitlines()
    tool("TopicCommand", "--delete", "--topic", name)
    assert name not in tool("TopicCommand", "--list").splitlines()


def test_config_command(tool, topic):
    entity = ("--entity-type", "topics", "--entity-name", topic)
    tool(
        "kafka.admin.ConfigCommand",
        *entity,
        "--alter",
        "--add-config",
        "retention.ms=7000,cleanup.policy=[compact,delete]",
    )
    described = tool("kafka.admin.ConfigCommand", *entity, "--describe")
    assert "retention.ms=7000" in described and "cleanup.policy=compact,delete" in described
    tool("kafka.admin.ConfigCommand", *entity, "--alter", "--delete-config", "retention.ms")
    assert "retention.ms" not in tool("kafka.admin.ConfigCommand", *entity, "--describe")


def test_group_command_describes_and_resets_offsets(tool, topic, unique):
    group = unique("group")
    tool("ConsoleProducer", "--topic", topic, stdin="a\nb\nc\n")
    tool("consumer.ConsoleConsumer", "--topic", topic, "--group", group, "--from-beginning", "--max-messages", "3")
    groups = ("consumer.group.ConsumerGroupCommand", "--group", group)
    assert re.search(rf"{group}\s+{topic}\s+0\s+3\s+3\s+0", tool(*groups, "--describe"))
    tool(*groups, "--reset-offsets", "--topic", topic, "--to-offset", "1", "--execute")
    assert re.search(rf"{group}\s+{topic}\s+0\s+1\s+3\s+2", tool(*groups, "--describe", "--offsets"))
    assert group in tool("consumer.group.ConsumerGroupCommand", "--list").splitlines()
    assert "successful" in tool(*groups, "--delete")


def test_offsets_log_dirs_and_versions(tool, topic):
    tool("ConsoleProducer", "--topic", topic, stdin="a\nb\n")
    assert tool("GetOffsetShell", "--topic", topic, "--time", "latest") == f"{topic}:0:2\n"
    assert tool("GetOffsetShell", "--topic", topic, "--time", "earliest") == f"{topic}:0:0\n"
    assert f'"partition":"{topic}-0"' in tool("LogDirsCommand", "--describe", "--topic-list", topic)
    assert "Produce(0): 0 to 13 [usable: 13]" in tool("BrokerApiVersionsCommand")


def test_kafkas_own_compatibility_program(tool, unique, is_ottla):
    features = {
        "offsets-for-times": True,
        "cluster-id": True,
        "create-topics": True,
        "describe-acls": not is_ottla,
        "describe-configs": True,
        "idempotent-producer": True,
    }
    supported = [argument for name, yes in features.items() for argument in (f"--{name}-supported", str(yes).lower())]
    tool("TopicCommand", "--delete", "--if-exists", "--topic", "newtopic")  # its own name for a topic
    # It says nothing and ends with 0 where everything is as it should be.
    tool(
        "ClientCompatibilityTest",
        *("--topic", unique("topic"), "--num-cluster-nodes", "1", "--expect-record-too-large-exception", "false"),
        *supported,
    )


def test_verifiable_producer_and_consumer(tool, topic, unique):
    produced = tool("VerifiableProducer", "--topic", topic, "--max-messages", "500", "--acks", "-1")
    assert '"sent":500,"acked":500' in produced
    consumed = tool(
        "VerifiableConsumer",
        *("--topic", topic, "--group-id", unique("group"), "--max-messages", "500", "--reset-policy", "earliest"),
    )
    assert '"offset":500' in consumed, consumed[-2000:]
