"""franz-go (Go): clients/kgo/main.go does the work, what it has to find is here.

`OTTLA_KGO_KILLS=20` kills members of the group that reads, processes and writes so many times.
"""

import contextlib
import itertools
import os
import re
import subprocess
from collections import Counter

import pytest

pytest.importorskip("confluent_kafka")
from compat_tests.applications.streams import make_topics, put, take
from compat_tests.support.brokers import wait_until
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

KILLS = int(os.environ.get("OTTLA_KGO_KILLS", "1"))

# Members hear soon what they have, those that were killed are missed after some seconds, and what they left open is aborted.
SOON = {
    "group.consumer.min.session.timeout.ms": "6000",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.consumer.heartbeat.interval.ms": "500",
    "group.share.min.heartbeat.interval.ms": "500",
    "group.share.heartbeat.interval.ms": "500",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
}


@pytest.fixture
def scenario(run, kgo, bootstrap, unique):
    def play(name, topic, group=None, servers=bootstrap):
        printed = run(kgo, name, servers, topic, group or unique("group"))
        return dict(line.split("=", 1) for line in printed.splitlines())

    return play


def test_records_come_back_as_sent(scenario, topic):
    assert scenario("roundTrip", topic) == {"right": "50"}


@pytest.mark.one_broker("several are a cluster, which is like Kafka 3.9 with ZooKeeper")
def test_tools_guess_the_release_that_ottla_is_like(scenario):
    """By the highest version of every request that is told of; one that is missing makes it an older release."""
    assert scenario("release", "none") == {"release": "v4.4"}


@pytest.mark.one_broker("it counts them")
def test_exporters_and_tools_see_what_is_there(scenario, start_broker, make_topic):
    """What kminion and kcl ask, of a broker whose log complains of nothing."""
    broker = start_broker(SOON)
    told = scenario("observe", make_topic(servers=broker.bootstrap), servers=broker.bootstrap)
    assert told == {
        "brokers": "1", "partitions": "1", "listed": "Stable", "members": "1", "lag": "30", "offsets": "[0 50]",
        "hasSize": "true", "policy": "delete", "hasSettings": "true", "moving": "0", "producers": "1",
    }  # fmt: skip
    assert not re.search(" (WARNING|ERROR|CRITICAL) ", broker.log)


def test_transactions_are_committed_and_aborted(scenario, topic):
    assert scenario("transactions", topic) == {"committed": "[v0 v1 v5]", "all": "[v0 v1 v2 v3 v4 v5]"}


def test_an_older_producer_is_fenced(scenario, topic):
    told = scenario("fencing", topic)
    assert told.pop("zombie") in ("PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH")
    assert told == {"committed": "[v1 v2]"}


@pytest.mark.parametrize("protocol", ["classic", "serverSide"])
def test_a_group_shares_its_partitions_and_goes_on_where_it_committed(scenario, start_broker, make_topic, protocol):
    servers = start_broker(SOON).bootstrap
    following = " ".join(f"v{i}" for i in range(20, 30))
    told = scenario(protocol, make_topic(partitions=4, servers=servers), servers=servers)
    assert told == {"read": "20", "next": f"[{following}]"}


def test_a_share_group_counts_deliveries(scenario, start_broker, make_topic, unique):
    servers, group = start_broker(SOON).bootstrap, unique("group")
    from_the_start = ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET)
    wanted = ConfigResource(ConfigResource.Type.GROUP, group, incremental_configs=[from_the_start])
    admin = AdminClient({"bootstrap.servers": servers})
    admin.incremental_alter_configs([wanted])[wanted].result(60)
    once = [f"v{i}:1" for i in (0, 1, 3, 4, 6, 7)] + [f"v{i}:3" for i in (2, 5, 8)]
    told = scenario("share", make_topic(servers=servers), group, servers)
    assert told == {"deliveries": f"[{' '.join(sorted(once))}]", "refused": "0"}


# --- read, process, write ---------------------------------------------------------------------------------------------


class Member:
    """A process that reads one topic and writes another, in transactions. After `hold_after` of them it holds one open."""

    def __init__(self, *command, log_path):
        self._log_path = log_path
        with log_path.open("ab") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log)

    def holds_soon(self):
        """Whether it holds a transaction open before long. It may be given no records until it has joined its group."""
        with contextlib.suppress(AssertionError):
            wait_until(self._is_holding, "it holds one open", 1)
        assert self._process.poll() is None, self._log[-6000:]
        return self._is_holding()

    def _is_holding(self):
        return "state=holding" in self._log

    @property
    def _log(self):
        return self._log_path.read_text()

    def kill(self):
        self._process.kill()
        self._process.wait()
        self._process.stdin.close()

    def close(self):
        """The end of its standard input makes it leave its group and end; one that was killed has ended."""
        self._process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(30)
        self._process.kill()


@pytest.mark.parametrize("name", ["process", "processWithServerSide"])
def test_each_record_is_processed_once_while_members_are_killed(start_broker, kgo, tmp_path, unique, name):
    bootstrap = start_broker(SOON).bootstrap
    source, output, group, numbers = unique("in"), unique("out"), unique("group"), itertools.count()
    make_topics(bootstrap, 3, source, output)
    sent = []

    def send():
        more = [str(len(sent) + i) for i in range(60)]
        put(bootstrap, source, [(value, value, 1000) for value in more])
        sent.extend(more)

    with contextlib.ExitStack() as running:

        def start(transactional_id, hold_after=0):
            command = (kgo, name, bootstrap, source, group, output, transactional_id, str(hold_after))
            member = Member(*command, log_path=tmp_path / f"member-{next(numbers)}.txt")
            return running.enter_context(contextlib.closing(member))

        steady = start("steady")
        for kill in range(KILLS):
            # Every second victim is followed by nobody with its id, so that the broker has to end what it left open.
            victim = start(f"victim-{kill // 2}", hold_after=2)
            send()
            while not victim.holds_soon():
                send()
            victim.kill()
        send()
        found = take(bootstrap, output, lambda found: len(found) >= len(sent), timeout_s=180)
        assert Counter(value.decode() for _, value in found) == Counter(sent)
        steady.close()
