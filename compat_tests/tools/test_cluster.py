"""kafka-broker-api-versions, kafka-cluster, and ClientCompatibilityTest."""

import re

import pytest

# Ottla still understands what Kafka 3.9 did (README, "What is served"); Kafka itself says so of Produce.
OLDEST_FETCH = ("4 to 18", "0 to 18")
ROW = re.compile(r"^\t(?P<name>\w+)\((?P<key>\d+)\): (?P<versions>.*?),?\n", re.MULTILINE)


def rows(printed: str) -> dict[int, tuple[str, str]]:
    return {int(found["key"]): (found["name"], found["versions"]) for found in ROW.finditer(printed)}


def test_api_versions(java_tools, brokers):
    """Every row of what Ottla serves is Kafka's; those of what it does not serve yet say UNSUPPORTED."""
    told = [
        java_tools("kafka_4")("org.apache.kafka.tools.BrokerApiVersionsCommand", "--bootstrap-server", servers)
        for servers in brokers
    ]
    assert [said.status for said in told] == [0, 0]
    ours, kafkas = (rows(said.out) for said in told)
    unserved = {key for key, (_, versions) in ours.items() if versions == "UNSUPPORTED"}
    # A tool that is older than the broker has no name for its newest requests, and shows them where they are served.
    unknown = {key for key, (name, _) in kafkas.items() if name.startswith("UNKNOWN")}
    assert list(ours) == [key for key in kafkas if key in ours or key not in unknown]
    kafkas[1] = ("Fetch", kafkas[1][1].replace(*OLDEST_FETCH))
    served = [key for key in ours if key not in unserved]
    assert [ours[key] for key in served] == [kafkas[key] for key in served]
    frames = [ROW.sub("", said.out).replace(broker, "<broker>") for said, broker in zip(told, brokers, strict=True)]
    assert frames[0] == frames[1]


def test_cluster_id_and_endpoints(beside):
    def without_id(printed: str) -> str:
        return re.sub(r"Cluster ID: [\w-]{22}", "Cluster ID: <id>", printed)

    assert beside("ClusterTool", "cluster-id", "--bootstrap-server", "{bootstrap}", arrange=without_id).status == 0
    listed = beside(
        "ClusterTool",
        "list-endpoints",
        "--bootstrap-server",
        "{bootstrap}",
        arrange=lambda text: re.sub(r" +", " ", text),
    )
    assert listed.status == 0


@pytest.mark.parametrize("wrong", ["", "cluster-id"])
def test_kafkas_own_compatibility_program(java_tools, brokers, unique, wrong):
    """It says nothing and ends with 0 where everything is as its arguments claim.

    Neither broker has an authorizer. The program takes SECURITY_DISABLED as a sign that ACLs are supported.
    """
    topic = unique("topic")
    features = ("offsets-for-times", "cluster-id", "create-topics", "describe-configs", "idempotent-producer")
    for servers in brokers:
        supported = dict.fromkeys([*features, "describe-acls"], True)
        if wrong:
            supported[wrong] = False
        claims = [each for name, yes in supported.items() for each in (f"--{name}-supported", str(yes).lower())]
        tool = java_tools("kafka_4")
        tool(
            "org.apache.kafka.tools.TopicCommand",
            "--bootstrap-server",
            servers,
            "--delete",
            "--if-exists",
            "--topic",
            "newtopic",
        )
        alone = ("--num-cluster-nodes", "1", "--expect-record-too-large-exception", "false")
        said = tool(
            "org.apache.kafka.tools.ClientCompatibilityTest",
            "--bootstrap-server",
            servers,
            "--topic",
            topic,
            *alone,
            *claims,
        )
        assert (said.status == 0) == (not wrong), said


def test_elections_and_moves_where_there_is_one_broker(beside, both_topic):
    """Nothing is to be elected or moved, nobody has an authorizer or a quota: that is said, and no error."""
    topic = both_topic(partitions=2)
    election = ("LeaderElectionCommand", "--election-type", "preferred", "--topic", topic, "--partition", "0")
    assert "Valid replica already elected for partitions" in beside(*election).out
    assert beside("reassign.ReassignPartitionsCommand", "--list").out == "No partition reassignments found.\n"
    assert "SecurityDisabledException" in "".join(beside("AclCommand", "--list")[1:])
    assert beside("ConfigCommand", "--describe", "--entity-type", "users").out == ""


def test_who_is_to_be_forgotten_and_who_votes(beside, java_tools, bootstrap):
    """A broker that nobody is cannot be forgotten; of a quorum that is not there a clear error tells, at once."""
    said = beside("ClusterTool", "unregister", "--bootstrap-server", "{bootstrap}", "--id", "7")
    assert said.status == 1
    assert "Broker ID 7 is not currently registered" in "".join(said[1:])
    for view in ("--status", "--replication"):
        told = java_tools("kafka_4")(
            "org.apache.kafka.tools.MetadataQuorumCommand", "--bootstrap-server", bootstrap, "describe", view
        )
        assert told.status == 1
        assert "UnsupportedVersionException: This broker is alone, and has no metadata quorum." in "".join(told[1:])
