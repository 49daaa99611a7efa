"""`ottla consume -g`, alone, beside others in the group, and as it ends."""

import contextlib
import os
import select
import signal
import subprocess
import sys
import threading
from subprocess import PIPE

import pytest
from compat_tests.commands.conftest import write
from compat_tests.support.brokers import wait_until
from confluent_kafka import Consumer

from ottla.server.cli.client.cluster import Cluster, parse_bootstrap
from ottla.server.cli.client.membership import Coordinator
from ottla.server.cli.client.security import Security
from ottla.wire.messages.classic_group import LeaveGroupRequest, MemberIdentity
from ottla.wire.messages.consumer_group import ConsumerGroupHeartbeatRequest

COMMAND = (sys.executable, "-m", "ottla", "consume", "--timeout", "60")
PROTOCOLS = ("classic", "consumer")


@pytest.fixture
def topic(created, servers):
    """Two partitions with five records each."""
    name = created(2)
    write(servers, name, 10)
    return name


def described(ottla, group):
    [found] = ottla("groups", "describe", group, "--json").json
    return found


def committed(ottla, group):
    return [each["committed"] for each in described(ottla, group)["offsets"]]


@contextlib.contextmanager
def running(servers, *arguments, **streams):
    with subprocess.Popen(
        [*COMMAND, "-b", servers, *arguments], **{"stdout": PIPE, "stderr": PIPE} | streams
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_group_goes_on_where_it_was(ottla, topic, servers, unique, protocol):
    read = ("consume", topic, "-g", unique("group"), "--group-protocol", protocol)
    group = read[3]
    first = ottla(*read, "-n", "3")
    assert len(first.lines) == 3
    assert sum(each or 0 for each in committed(ottla, group)) == 3
    assert described(ottla, group)["members"] == [] and described(ottla, group)["kind"].lower() == protocol
    rest = ottla(*read, "-e", "-o", "stored")
    assert sorted(first.lines + rest.lines) == [f"value {index} " for index in range(10)]
    assert committed(ottla, group) == [5, 5]
    assert rest.err.endswith(f"% Group {group} has committed {topic} [0] at 5, {topic} [1] at 5\n")
    assert ottla(*read, "-eq").out == ottla(*read, "-eq").err == ""


def test_a_name_cannot_control_the_terminal(ottla, topic, unique):
    group = unique("group") + "\n\x1b[31m"
    told = ottla("consume", topic, "-g", group, "-n", "1").err
    assert told.count("\n") == 1 and "\x1b" not in told and "\\x1b[31m has committed" in told


def test_where_a_group_without_offsets_begins(ottla, topic, unique):
    read = ("consume", topic, "-eq", "-g")
    group = unique("group")
    assert ottla(*read, group, "-o", "latest").out == ""
    assert committed(ottla, group) == [5, 5]
    # What is committed wins over -o, as in Kafka's clients.
    assert ottla(*read, group, "--from-beginning").out == ""
    assert ottla(*read, unique("group"), "-X", "auto.offset.reset=largest").out == ""
    assert ottla(*read, unique("group"), "-o", "-1").out.count("\n") == 2
    assert ottla(*read, unique("group"), "-o", "e@1").out == ""
    assert ottla("consume", topic, "-q", "-g", unique("group"), "-o", "e@99999999999999").out.count("\n") == 10


@pytest.mark.parametrize(("commits", "wanted"), [("each", 10), ("end", 10), ("regularly", 10), ("never", 0)])
def test_choices_of_commits(ottla, topic, unique, commits, wanted):
    group = unique("group")
    ottla("consume", topic, "-e", "-g", group, "--commit", commits)
    known = [each for each in ottla("groups", "--json").json if each["group"] == group]
    assert sum(each or 0 for each in (committed(ottla, group) if known else [])) == wanted


@pytest.mark.parametrize("commits", ["each", "regularly"])
def test_offsets_are_committed_while_it_reads(ottla, topic, servers, unique, commits):
    group = unique("group")
    with running(servers, topic, "-q", "-g", group, "--commit", commits) as process:
        for _ in range(10):
            process.stdout.readline()
        wait_until(lambda: committed(ottla, group) == [5, 5], "the offsets are committed", 60)
        assert len(described(ottla, group)["members"]) == 1
        process.kill()  # nothing is committed at this end


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_commits_and_leaves(ottla, topic, servers, unique, protocol, sent):
    group = unique("group")
    with running(servers, topic, "-g", group, "--group-protocol", protocol, "--commit", "end") as process:
        for _ in range(10):
            process.stdout.readline()
        assert len(described(ottla, group)["members"]) == 1
        process.send_signal(sent)
        assert process.wait(60) == 0
        said = process.stderr.read().decode().splitlines()
    assert said[-1] == f"% Group {group} has committed {topic} [0] at 5, {topic} [1] at 5"
    assert not [line for line in said if not line.startswith("% ")]
    assert committed(ottla, group) == [5, 5] and described(ottla, group)["members"] == []


def test_a_signal_that_nohup_ignores_ends_nothing(topic, servers, unique):
    ignoring = {"preexec_fn": lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN)}
    with running(servers, topic, "-q", "-g", unique("group"), **ignoring) as process:
        for _ in range(10):
            process.stdout.readline()
        process.send_signal(signal.SIGHUP)
        write(servers, topic, 2)
        assert len([process.stdout.readline() for _ in range(2)]) == 2
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_partitions_are_shared_with_another_make(ottla, topic, servers, unique, protocol):
    """When another member comes, it gets a partition from where the command was; when it goes the command gets that back."""
    group = unique("group")
    with running(servers, topic, "-q", "-g", group, "--group-protocol", protocol, "-f", "%p\n") as process:
        assert sorted(process.stdout.readline() for _ in range(10)) == [b"0\n"] * 5 + [b"1\n"] * 5
        settings = {"bootstrap.servers": servers, "group.id": group, "auto.offset.reset": "error"}
        theirs = Consumer(settings | {"group.protocol": protocol})
        theirs.subscribe([topic])
        seen = []
        wait_until(lambda: (theirs.poll(0.2), len(theirs.assignment()) == 1)[1], "it has a partition", 60)
        write(servers, topic, 4)
        wait_until(lambda: len(seen) == 2 or seen.extend(theirs.consume(2, 0.5)), "it reads its own", 60)
        assert {each.error() for each in seen} == {None}
        [number] = {each.partition() for each in seen}
        assert [process.stdout.readline() for _ in range(2)] == [b"%d\n" % (1 - number)] * 2
        theirs.close()
        write(servers, topic, 2)
        assert sorted(process.stdout.readline() for _ in range(2)) == [b"0\n", b"1\n"]
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0 and process.stderr.read() == b""
    assert committed(ottla, group) == [8, 8]


def test_a_broken_pipe_commits_what_was_written(ottla, created, servers, unique):
    topic, group = created(2), unique("group")
    write(servers, topic, 5000, 100)
    with running(servers, topic, "-q", "-g", group) as process:
        got = sum(1 for _ in zip(process.stdout, range(1000), strict=False))
        process.stdout.close()
        assert process.wait(60) == 0 and process.stderr.read() == b""
    assert got == 1000
    done = sum(each or 0 for each in committed(ottla, group))
    # What the pipe held counts as written: more than was read, and far from all.
    assert 1000 <= done < 4000
    assert len(ottla("consume", topic, "-eq", "-g", group).lines) == 5000 - done


def test_a_slow_reader_does_not_cost_the_membership(ottla, created, servers, unique):
    """While the pipe is full heartbeats go on, and Ctrl-C commits the records that the pipe has taken."""
    topic, group = created(2), unique("group")
    write(servers, topic, 5000, 100)
    reading, writing = os.pipe()
    with running(servers, topic, "-q", "-g", group, stdout=writing) as process:
        wait_until(lambda: process.poll() is not None or _is_full(writing), "the pipe is full", 60)
        os.close(writing)
        process.send_signal(signal.SIGINT)
        taken: list[bytes] = []
        drain = threading.Thread(target=lambda: taken.extend(iter(lambda: os.read(reading, 1 << 20), b"")))
        drain.start()
        assert process.wait(60) == 0
        drain.join()
    os.close(reading)
    whole = b"".join(taken).count(b"\n")
    assert 0 < whole < 5000
    assert sum(each or 0 for each in committed(ottla, group)) == whole


def _is_full(pipe):
    # It may be full with far fewer bytes than it can hold: the bytes of each write begin a page of their own.
    return not select.select([], [pipe], [], 0)[1]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_member_that_was_removed_reads_again(ottla, topic, servers, unique, protocol):
    """It says so, joins again, and reads what it had not committed."""
    group = unique("group")
    with running(servers, topic, "-q", "-g", group, "--commit", "end", "--group-protocol", protocol) as process:
        first = [process.stdout.readline() for _ in range(10)]
        remove(servers, group, described(ottla, group)["members"][0]["member"], protocol)
        assert sorted(process.stdout.readline() for _ in range(10)) == sorted(first)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
        [said] = process.stderr.read().decode().splitlines()
    lost = f"ottla: group {group} has given 2 partitions to others before their offsets were committed"
    assert said == f"{lost}: some records come again"
    assert committed(ottla, group) == [5, 5]


def remove(servers, group, member_id, protocol):
    if protocol == "classic":
        request = LeaveGroupRequest(group_id=group, members=[MemberIdentity(member_id=member_id)])
    else:
        request = ConsumerGroupHeartbeatRequest(group_id=group, member_id=member_id, member_epoch=-1)
    cluster = Cluster.reached(parse_bootstrap(servers), Security(), 60)
    with contextlib.closing(cluster):
        assert Coordinator(cluster, group).ask(request).error_code == 0


def test_wrong_use(ottla, topic, unique):
    for arguments, words in (
        (("-o", "stored"), "-o stored needs a group: -g GROUP"),
        (("--commit", "end"), "need a group: -g GROUP"),
        (("--group-protocol", "classic"), "need a group: -g GROUP"),
        (("-g", "g", "-p", "0"), "-p and -g cannot be given together"),
        (("-g", "g", "-X", "group.protocol=new"), "group.protocol=new: must be classic or consumer"),
    ):
        assert words in ottla("consume", "t", *arguments, status=2).err
    missing = unique("topic")
    assert f"ottla topics create {missing}" in ottla("consume", missing, "-g", "g", status=1).err
    assert "INVALID_GROUP_ID" in ottla("consume", topic, "-g", "", status=1).err


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_member_goes_on_after_its_broker_was_restarted(start_broker, protocol):
    broker = start_broker({"num.partitions": "2"})
    write(broker.bootstrap, "topic", 2)
    with running(broker.bootstrap, "-q", "-g", "group", "--group-protocol", protocol, "topic") as reading:
        assert sorted(reading.stdout.readline() for _ in range(2)) == [b"value 0 \n", b"value 1 \n"]
        broker.kill()
        broker.restart()
        write(broker.bootstrap, "topic", 2)
        assert sorted(reading.stdout.readline() for _ in range(2)) == [b"value 0 \n", b"value 1 \n"]
        reading.send_signal(signal.SIGINT)
        assert reading.wait(60) == 0
        assert b"trying" in reading.stderr.read()
    read = [*COMMAND, "-b", broker.bootstrap, "topic", "-g", "group", "-eq"]
    assert subprocess.run(read, capture_output=True, check=True).stdout == b""


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_topic_that_is_made_again_is_read_from_its_beginning(ottla, created, servers, unique, protocol):
    topic, group = created(2), unique("group")
    write(servers, topic, 6)
    with running(servers, topic, "-q", "-g", group, "--group-protocol", protocol) as reading:
        first = [reading.stdout.readline() for _ in range(6)]
        ottla("topics", "delete", "--yes", topic)
        ottla("topics", "create", topic, "-p", "2")
        write(servers, topic, 2)
        assert sorted(reading.stdout.readline() for _ in range(2)) == [b"value 0 \n", b"value 1 \n"]
        reading.send_signal(signal.SIGINT)
        assert reading.wait(60) == 0
    assert len(set(first)) == 6
    assert committed(ottla, group) == [1, 1]
