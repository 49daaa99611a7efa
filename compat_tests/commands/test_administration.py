"""Commands that change a cluster, run against Ottla and against Apache Kafka 4 with equal results."""

import shlex

import pytest
from compat_tests.support.brokers import wait_until
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType


@pytest.fixture
def admin(servers):
    return AdminClient({"bootstrap.servers": servers})


def in_force(admin, kind, name, setting):
    """Return a setting's value as librdkafka reads it. A broker may learn of a change a moment later."""
    [found] = admin.describe_configs([ConfigResource(kind, name)]).values()
    return found.result(60)[setting].value


def undo(ottla, told):
    for line in told.lines:
        if line.startswith("To undo: "):
            words = shlex.split(line.removeprefix("To undo: "))[1:]
            ottla(words[0], *words[1 : words.index("-b")], *words[words.index("-b") + 2 :])


def test_topics_are_altered_and_trimmed(ottla, created, admin, servers):
    name = created(2)
    told = ottla("topics", "alter", name, "-c", "max.message.bytes=5000", "-p", "3")
    assert [line.split()[1:] for line in told.lines[1:3]] == [
        ["partitions", "2", "3"],
        ["max.message.bytes", "1048588", "5000"],
    ]
    of_topic = ResourceType.TOPIC
    wait_until(lambda: in_force(admin, of_topic, name, "max.message.bytes") == "5000", "it is in force", 60)
    wait_until(lambda: len(admin.list_topics(name, timeout=60).topics[name].partitions) == 3, "all are known", 60)
    undo(ottla, told)
    wait_until(lambda: in_force(admin, of_topic, name, "max.message.bytes") == "1048588", "it is in force", 60)
    for wrong in (("-c", "max.message.bytes=x"), ("-c", "max.message.byte=1"), ("-p", "3")):
        ottla("topics", "alter", name, "-c", "retention.ms=7", *wrong, status=1)
    assert in_force(admin, of_topic, name, "retention.ms") == "-1"
    producer = Producer({"bootstrap.servers": servers})
    for _ in range(5):
        producer.produce(name, b"x", partition=0)
    assert producer.flush(60) == 0
    ottla("topics", "trim", f"{name}:0", "--to-offset", "3", "--yes")
    consumer = Consumer({"bootstrap.servers": servers, "group.id": name})
    assert consumer.get_watermark_offsets(TopicPartition(name, 0), timeout=60) == (3, 5)
    assert "ends at 5, before 6" in ottla("topics", "trim", f"{name}:0", "--to-offset", "6", "--yes", status=1).err
    ottla("topics", "trim", name, "--to-latest", "--yes")
    assert consumer.get_watermark_offsets(TopicPartition(name, 0), timeout=60) == (5, 5)
    consumer.close()


def test_offsets_of_a_group_are_set_restored_and_deleted_with_it(ottla, created, admin, unique):
    topic, group = created(2), unique("group")
    begun = ottla("groups", "reset", group, "--topic", topic, "--to-earliest", "--execute")
    assert begun.lines[-1].startswith(f"To undo: ottla groups delete-offsets {group} --topic {topic}:0,1")
    told = ottla("groups", "delete-offsets", group, "--topic", f"{topic}:1", "--yes")
    assert [each["partition"] for each in ottla("groups", "describe", group, "--json").json[0]["offsets"]] == [0]
    undo(ottla, told)
    assert [each["partition"] for each in ottla("groups", "describe", group, "--json").json[0]["offsets"]] == [0, 1]
    [members] = ottla("groups", "members", group, "--json").json
    assert (members["state"], members["members"]) == ("Empty", [])
    ottla("groups", "delete", group, "--yes")
    assert group not in [each.group_id for each in admin.list_consumer_groups().result(60).valid]
    assert "does not exist" in ottla("groups", "delete", group, "--yes", status=1).err


@pytest.mark.one_broker("it names the only one")
def test_settings_say_where_they_come_from(ottla, created, admin):
    topic = created()
    [told] = ottla("configs", "topic", topic, "retention.ms", "--json").json[0]["settings"]
    assert (told["value"], told["source"]) == ("-1", "topic")
    assert told["synonyms"] == [{"name": "retention.ms", "value": "-1", "source": "topic"}]
    change = ottla("configs", "cluster", "--set", "log.cleaner.backoff.ms=15001")
    broker = str(ottla("status", "--json").json["brokers"][0]["id"])
    wait_until(
        lambda: in_force(admin, ResourceType.BROKER, broker, "log.cleaner.backoff.ms") == "15001", "all know it", 60
    )
    [told] = ottla("configs", "broker", broker, "log.cleaner.backoff.ms", "--json").json[0]["settings"]
    assert [each["source"] for each in told["synonyms"]] == ["cluster default", "default"]
    undo(ottla, change)
    wait_until(
        lambda: in_force(admin, ResourceType.BROKER, broker, "log.cleaner.backoff.ms") == "15000", "all know it", 60
    )
    assert "has no setting" in ottla("configs", "cluster", "--set", "log.cleaner.backof.ms=1", status=1).err


def test_quotas(ottla, unique):
    user = unique("user")
    told = ottla("quotas", "set", "--user", user, "producer_byte_rate=1024", "--client-defaults")
    become(ottla, user, {"producer_byte_rate": 1024.0})
    more = ottla(
        "quotas", "set", "--user", user, "--client-defaults", "producer_byte_rate=2048", "request_percentage=5"
    )
    assert more.lines[-1].startswith("To undo: ")
    become(ottla, user, {"producer_byte_rate": 2048.0, "request_percentage": 5.0})
    ottla("quotas", "remove", "--user", user, "--client-defaults", "--yes")
    become(ottla, user, None)
    assert told.lines[-1].startswith(f"To undo: ottla quotas remove --user {user} --client-defaults producer_byte_rate")
    assert "INVALID_REQUEST" in ottla("quotas", "set", "--user", user, "x=1", status=1).err


def become(ottla, user, values):
    """Wait until a user has these quotas: Kafka's brokers learn of a change after the controller has answered."""
    wanted = [] if values is None else [{"entity": {"user": user, "client-id": None}, "values": values}]
    wait_until(lambda: ottla("quotas", "list", "--user", user, "--json").json == wanted, "the quotas are so", 60)


def test_users(ottla, unique, admin, tmp_path):
    user, file = unique("user"), tmp_path / "password"
    file.write_text("secret\n")

    def known() -> list[tuple[int, str]]:
        """Of the user's credentials."""
        try:
            found = admin.describe_user_scram_credentials([user])[user].result(60)
        except KafkaException as refused:
            assert "RESOURCE_NOT_FOUND" in str(refused)
            return []
        return [(each.iterations, each.mechanism.name) for each in found.scram_credential_infos]

    ottla("users", "add", user, "--password-file", str(file), "--iterations", "8192")
    assert wait_until(known, "the user is known", 60) == [(8192, "SCRAM_SHA_512")]
    assert "already" in ottla("users", "add", user, "--password-file", str(file), status=1).err
    ottla("users", "add", user, "--password-file", str(file), "--mechanism", "SCRAM-SHA-256")
    wait_until(lambda: len(known()) == 2, "both passwords are known", 60)
    assert len(ottla("users", "list", user, "--json").json) == 2
    ottla("users", "alter", user, "--password-file", str(file))
    ottla("users", "delete", user, "--yes")
    wait_until(lambda: known() == [], "the user is gone", 60)
    assert f"user {user} does not exist" in ottla("users", "delete", user, "--yes", status=1).err


def test_transactions(ottla, created, servers, unique):
    topic, transactional_id = created(), unique("transactional-id")
    producer = Producer({"bootstrap.servers": servers, "transactional.id": transactional_id})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(topic, b"x")
    assert producer.flush(60) == 0
    [listed] = ottla("transactions", "list", "--pattern", transactional_id, "--state", "Ongoing", "--json").json
    assert listed["transactional_id"] == transactional_id
    [described] = ottla("transactions", "describe", transactional_id, "--json").json
    assert (described["state"], described["partitions"]) == ("Ongoing", {topic: [0]})
    assert ottla("transactions", "hanging", "--partition", topic).out == "no transaction hangs\n"
    ottla("transactions", "abort", transactional_id, "--yes")
    [described] = ottla("transactions", "describe", transactional_id, "--json").json
    assert described["state"] != "Ongoing"
    with pytest.raises(KafkaException):
        producer.commit_transaction(60)


@pytest.mark.one_broker("it names the only one")
def test_commands_that_need_several_brokers_or_logins_say_so(ottla, created):
    topic = created()
    assert ottla("reassign").out == "nothing is being moved\n"
    [broker] = (each["id"] for each in ottla("status", "--json").json["brokers"])
    assert ottla("reassign", "execute", f"{topic}:0={broker}").lines == [
        "nothing to move: the replicas are there already"
    ]
    assert ottla("reassign", "verify", f"{topic}:0={broker}", "--json").json[0]["state"] == "done"
    assert "broker 99 is not there" in ottla("reassign", "execute", f"{topic}:0=99", status=1).err
    for kind in ("preferred", "unclean"):
        assert ottla("elect", kind, topic).out.startswith("nothing to elect")
    assert "authorizer.class.name" in ottla("acls", status=1).err
    assert "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED" in ottla("tokens", status=1).err
