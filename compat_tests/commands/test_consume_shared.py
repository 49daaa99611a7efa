"""`ottla consume -g GROUP --share`: records of share groups, alone and beside another consumer."""

import contextlib
import os
import signal
import subprocess
import sys
from subprocess import PIPE

import pytest
from compat_tests.commands.conftest import write
from compat_tests.support.brokers import wait_until

from ottla.server.cli.client.cluster import Cluster, parse_bootstrap
from ottla.server.cli.client.security import Security
from ottla.wire.messages.alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalConfig,
    IncrementalConfigsResource,
)

COMMAND = (sys.executable, "-m", "ottla", "consume", "--timeout", "60")
GROUP = 32  # type of a resource with settings


@pytest.fixture
def topic(created, servers):
    """Two partitions with five records each."""
    name = created(2)
    write(servers, name, 10)
    return name


@pytest.fixture
def group(servers, unique):
    """A share group that begins with the first record."""
    name = unique("group")
    setting = IncrementalConfig(name="share.auto.offset.reset", config_operation=0, value="earliest")
    resource = IncrementalConfigsResource(resource_type=GROUP, resource_name=name, configs=[setting])
    cluster = Cluster.reached(parse_bootstrap(servers), Security(), 60)
    with contextlib.closing(cluster):
        [answer] = cluster.change(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)).responses
    assert answer.error_code == 0
    return name


@pytest.fixture
def read(ottla, topic, group):
    def read(*more, status=0):
        return ottla("consume", topic, "-g", group, "--share", *more, status=status)

    return read


def test_records_are_acknowledged_one_by_one(read, ottla, group):
    first = read("-n", "3")
    assert len(first.lines) == 3 and first.err == f"% Group {group} has 3 records accepted\n"
    released = read("-eq", "--acknowledge", "release", "-n", "7")
    rest = read("-eq")
    assert len(released.lines) == 7 and set(released.lines) <= set(rest.lines)
    assert sorted(first.lines + rest.lines) == [f"value {index} " for index in range(10)]
    assert read("-e").err == f"% Group {group} has 0 records accepted\n"
    [described] = ottla("groups", "describe", group, "--json").json
    assert described["kind"].lower() == "share" and described["members"] == []


def test_rejected_records_do_not_come_again(read, group):
    assert read("-e", "--acknowledge", "reject").err == f"% Group {group} has 10 records rejected\n"
    assert read("-eq").out == ""


def test_two_share_the_records(read, topic, group, servers):
    whole = [*COMMAND, "-b", servers, topic, "-g", group, "--share", "-q"]
    processes = [subprocess.Popen(whole, stdout=PIPE, stderr=PIPE) for _ in range(2)]
    for each in processes:
        os.set_blocking(each.stdout.fileno(), False)
    got = b""

    def more():
        nonlocal got
        got += b"".join(each.stdout.read() or b"" for each in processes)
        return got.count(b"\n") >= 60

    write(servers, topic, 50)
    wait_until(more, "both have read all", 60)
    for each in processes:
        each.send_signal(signal.SIGINT)
        assert each.wait(60) == 0 and each.stderr.read() == b""
        each.stderr.close()
    more()
    for each in processes:
        each.stdout.close()
    assert sorted(got.splitlines()) == sorted(
        [f"value {index} ".encode() for index in range(10)] + [f"value {index} ".encode() for index in range(50)]
    )
    assert read("-eq").out == ""


def test_what_a_closed_pipe_does_not_take_is_released(read, servers, topic, group):
    write(servers, topic, 2000, 200)
    reading, writing = os.pipe()
    with subprocess.Popen(
        [*COMMAND, "-b", servers, topic, "-g", group, "--share", "-q"], stdout=writing, stderr=PIPE
    ) as process:
        os.close(writing)
        taken = b""
        while taken.count(b"\n") < 100:
            taken += os.read(reading, 4096)
        os.close(reading)
        assert process.wait(60) == 0 and process.stderr.read() == b""
    rest = read("-eq").lines
    # What was in the pipe when it was closed counts as written, as far as the record is whole.
    assert 100 <= 2010 - len(rest) < 1500


def test_wrong_use(ottla, topic):
    for arguments, words in (
        (("--share",), "--share needs -g GROUP"),
        (("-g", "g", "--acknowledge", "reject"), "--acknowledge needs --share"),
        (("-g", "g", "--share", "-o", "latest"), "-o and --share cannot"),
        (("-g", "g", "--share", "-p", "0"), "-p and --share cannot"),
        (("-g", "g", "--share", "--commit", "end"), "--commit and --share cannot"),
    ):
        assert words in ottla("consume", topic, *arguments, status=2).err
