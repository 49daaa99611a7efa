"""`ottla reassign` and `ottla elect` beside three brokers; what they did is asked for by confluent-kafka."""

import json
import secrets
import subprocess
import sys

import pytest
from compat_tests.commands.conftest import Told
from compat_tests.support.brokers import wait_until
from compat_tests.support.cluster import Cluster
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from ottla.server.cli.cli import main

TOPIC = "orders"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    settings = {"unclean.leader.election.enable": "false", "min.insync.replicas": "1"}
    with Cluster(tmp_path_factory.mktemp("cluster"), settings=settings, is_served=True) as cluster:
        yield cluster


@pytest.fixture
def run(cluster, capsysbinary):
    def run(*words, status=0):
        capsysbinary.readouterr()
        code = main([*words, "-b", cluster.bootstrap, "--timeout", "60"])
        out, err = capsysbinary.readouterr()
        told = Told(code, out.decode(), err.decode())
        assert code == status, told
        return told

    return run


def partitions(cluster, name=TOPIC):
    """Leader and replicas of each partition, as librdkafka has them."""
    topic = AdminClient({"bootstrap.servers": cluster.bootstrap}).list_topics(name, timeout=60).topics[name]
    return {number: (each.leader, list(each.replicas)) for number, each in sorted(topic.partitions.items())}


def replicas_become(cluster, wanted, name=TOPIC):
    """Brokers hear of a change one after the other."""
    wait_until(
        lambda: {number: each for number, (_, each) in partitions(cluster, name).items()} == wanted, "all know it", 60
    )


def test_replicas_are_moved_and_leaders_elected(cluster, run, tmp_path):
    run("topics", "create", TOPIC, "-p", "2", "-r", "1")
    plan = run("reassign", "plan", TOPIC, "--replicas", "2", "--json").json
    assert [len(each["replicas"]) for each in plan["partitions"]] == [2, 2]
    file = tmp_path / "plan.json"
    file.write_text(json.dumps(plan))
    wait_until(lambda: len(partitions(cluster)) == 2, "all know the topic", 60)
    before = partitions(cluster)
    assert run("reassign", "execute", "--plan", str(file), "--dry-run").lines[-1] == (
        "Nothing is changed: this is a dry run."
    )
    assert partitions(cluster) == before
    assert run("reassign", "verify", "--plan", str(file), "--json", status=1).json[0]["state"] == "elsewhere"
    told = run("reassign", "execute", "--plan", str(file), "--wait", "--json").json
    assert [(each["from"], each["to"]) for each in told["moved"]] == [
        (before[each["partition"]][1], each["replicas"]) for each in plan["partitions"]
    ]
    replicas_become(cluster, {each["partition"]: each["replicas"] for each in plan["partitions"]})
    assert {each["state"] for each in run("reassign", "verify", "--plan", str(file), "--json").json} == {"done"}
    # The words by which it is taken back.
    [undo] = told["undo"]
    words = undo.split()[1:]
    run(*words[: words.index("-b")], "--wait")
    replicas_become(cluster, {number: replicas for number, (_, replicas) in before.items()})
    # With the replicas in another order the first one is preferred, and does not lead yet.
    run("reassign", "execute", f"{TOPIC}:0=0,1", "--wait")
    run("reassign", "execute", f"{TOPIC}:0=1,0", "--wait")
    replicas_become(cluster, {0: [1, 0], 1: before[1][1]})
    dry = run("elect", "preferred", f"{TOPIC}:0", "--dry-run", "--json").json
    assert dry["elected"] == [{"topic": TOPIC, "partition": 0, "from": 0, "to": 1}]
    assert partitions(cluster)[0] == (0, [1, 0])
    assert [line.split() for line in run("elect", "preferred", f"{TOPIC}:0").lines[1:]] == [[TOPIC, "0", "0", "1"]]
    wait_until(lambda: partitions(cluster)[0] == (1, [1, 0]), "broker 1 leads", 60)


def test_a_move_to_a_broker_that_stands_still_is_seen_and_cancelled(cluster, run):
    name = "stuck"
    run("topics", "create", name, "-p", "1", "-r", "1")
    run("reassign", "execute", f"{name}:0=0", "--wait")
    # Not the controller, which is asked, nor broker 0, which is asked first.
    still = 1 if run("status", "--json").json["controller"] == 2 else 2
    cluster.brokers[still].pause()
    try:
        told = run("reassign", "execute", f"{name}:0={still}")
        assert "1 partition is being moved" in told.lines
        assert run("reassign", "list", "--json").json == [
            {"topic": name, "partition": 0, "from": [0], "to": [still], "adding": [still], "removing": [0]}
        ]
        assert [line.split()[-1] for line in run("reassign", "verify", f"{name}:0={still}", status=1).lines] == [
            "STATE",
            "moving",
        ]
        assert f"is being moved to {still} already" in run("reassign", "execute", f"{name}:0={3 - still}", status=1).err
        dry = run("reassign", "cancel", name, "--dry-run", "--json").json
        assert dry["moved"] == [{"topic": name, "partition": 0, "from": [still], "to": [0]}]
        run("reassign", "cancel", f"{name}:0")
        wait_until(lambda: run("reassign").out == "nothing is being moved\n", "it is cancelled", 60)
    finally:
        cluster.brokers[still].resume()
    replicas_become(cluster, {0: [0]}, name)
    cluster.wait_until_whole()


def test_a_spread_is_taken_back(cluster, run):
    run("topics", "create", "uneven", "-p", "3", "-r", "1")
    run("reassign", "execute", "uneven:0=0", "uneven:1=0", "uneven:2=0", "--wait")
    dry = run("spread", "--dry-run", "--json").json
    assert dry["undo"] == [] and "uneven" in {each["topic"] for each in dry["moved"]}
    assert run("spread", "--dry-run").out.endswith("would be moved\nNothing is changed: this is a dry run.\n")
    told = run("spread", "--json").json
    [undo] = told["undo"]
    words = undo.split()[1:]
    run(*words[: words.index("-b")], "--wait")
    replicas_become(cluster, {0: [0], 1: [0], 2: [0]}, "uneven")


def test_a_throttle_is_set_while_replicas_move_and_removed_then(cluster, run):
    name = "throttled"
    run("topics", "create", name, "-p", "1", "-r", "1", "-c", "leader.replication.throttled.replicas=9:9")
    run("reassign", "execute", f"{name}:0=0", "--wait")
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for _ in range(40):
        producer.produce(name, secrets.token_bytes(100_000))
    assert producer.flush(60) == 0

    def throttled():
        topic = run("configs", "topic", name, "--json").json[0]["settings"]
        broker = run("configs", "broker", "1", "--json").json[0]["settings"]
        return {each["name"]: each["value"] for each in topic + broker if "throttled" in each["name"]}

    words = ["reassign", "execute", f"{name}:0=1", "--wait", "--throttle", "400KiB", "-b", cluster.bootstrap]
    with subprocess.Popen([sys.executable, "-m", "ottla", *words], stdout=subprocess.PIPE, text=True) as moving:

        def all_are_set():
            found = throttled()
            return found if len(found) == 4 or moving.poll() is not None else None

        assert wait_until(all_are_set, "the throttle is set", 60) == {
            "leader.replication.throttled.replicas": "0:0",
            "follower.replication.throttled.replicas": "0:1",
            "leader.replication.throttled.rate": "409600",
            "follower.replication.throttled.rate": "409600",
        }
        out, _ = moving.communicate(timeout=120)
        assert moving.returncode == 0 and "1 partition is moved" in out
    assert throttled() == {"leader.replication.throttled.replicas": "9:9"}


def test_a_leader_that_lacks_records_is_elected_only_if_somebody_says_so(cluster, run):
    name = "unclean"
    run("topics", "create", name, "-p", "1", "-r", "1")
    run("reassign", "execute", f"{name}:0=1,2", "--wait")
    run("elect", "preferred", f"{name}:0")
    # The follower falls out of sync, and then the leader dies.
    cluster.brokers[2].kill()
    wait_until(
        lambda: run("topics", "describe", name, "--json").json[0]["partitions"][0]["isr"] == [1], "out of sync", 60
    )
    cluster.brokers[1].kill()
    cluster.brokers[2].restart()
    leaderless = {"topic": name, "partition": 0, "from": None, "to": 2}
    wait_until(
        lambda: run("elect", "unclean", f"{name}:0", "--dry-run", "--json").json["elected"] == [leaderless],
        "broker 2 could lead",
        60,
    )
    assert "does not live" in run("elect", "preferred", f"{name}:0", status=1).err
    assert (
        f"may lack records, which then are lost: {name}-0 (broker 2)?"
        in run("elect", "unclean", f"{name}:0", status=2).err
    )
    told = run("elect", "unclean", f"{name}:0", "--yes")
    assert told.lines[-1] == "This cannot be undone: records that the new leader lacks are lost."
    found = run("topics", "describe", name, "--json").json[0]["partitions"][0]
    assert found["leader"] == 2
    cluster.brokers[1].restart()
    cluster.wait_until_whole()
