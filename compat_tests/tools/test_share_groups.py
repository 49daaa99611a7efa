"""kafka-share-groups: what it lists, describes, resets and deletes, and every refusal."""

import re
import threading
from typing import Any

import pytest
from compat_tests.support.brokers import wait_until
from compat_tests.support.wire_client import WireClient

from ottla.wire.messages.find_coordinator import FindCoordinatorRequest
from ottla.wire.messages.share_group import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    ShareGroupHeartbeatRequest,
)

COMMAND = "consumer.group.ShareGroupCommand"
MEMBER = "member-0"
HEARTBEAT_S = 5.0  # its session lasts 45 s


class MemberOf:
    """A member of a share group that has partitions and reads nothing. It stays a member, however long a test takes."""

    def __init__(self, servers: str, group: str, topic: str) -> None:
        host, _, port = servers.rpartition(":")
        self._client = WireClient((host, int(port)), client_id="member")
        self._group = group
        self._leaves = threading.Event()
        self._ask(FindCoordinatorRequest(key_type=0, coordinator_keys=[group]), 4)
        self._beat(0, topic)
        epoch = 2
        asked = DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=None)
        request = DescribeShareGroupOffsetsRequest(groups=[asked])

        def is_known() -> bool:
            answer = self._beat(epoch)
            return answer.error_code == 0 and bool(self._ask(request, 0).groups[0].topics)

        wait_until(is_known, "the share coordinator knows the partitions")

        def is_assigned() -> bool:
            nonlocal epoch
            epoch = self._beat(epoch).member_epoch
            return epoch > 2

        wait_until(is_assigned, "the partitions are assigned")
        self._staying = threading.Thread(target=self._stay, args=(epoch,), daemon=True)
        self._staying.start()

    def _stay(self, epoch: int) -> None:
        while not self._leaves.wait(HEARTBEAT_S):
            epoch = self._beat(epoch).member_epoch

    def _beat(self, epoch: int, *topics: str) -> Any:
        request = ShareGroupHeartbeatRequest(
            group_id=self._group,
            member_id=MEMBER,
            member_epoch=epoch,
            rack_id=None,
            subscribed_topic_names=list(topics) or None,
        )

        def is_taken(answer: Any) -> bool:
            return answer.error_code not in (14, 15, 16)

        answers: list[Any] = []

        def ask() -> bool:
            answers[:] = [self._ask(request, 1)]
            return is_taken(answers[0])

        wait_until(ask, "the coordinator is there")
        return answers[0]

    def _ask(self, request: Any, version: int) -> Any:
        self._client.send(request, version)
        return self._client.receive()

    def leave(self) -> None:
        self._leaves.set()
        self._staying.join()
        self._beat(-1)
        self._client.close()


@pytest.fixture
def active_group(brokers, filled, unique):
    """A group with one member, which has the whole topic."""
    name = unique("active")
    members = [MemberOf(servers, name, filled) for servers in brokers]
    yield name
    for each in members:
        each.leave()


@pytest.fixture
def group(brokers, filled, unique):
    """A group that had a member."""
    name = unique("share")
    for servers in brokers:
        MemberOf(servers, name, filled).leave()
    return name


def spaced(printed: str) -> str:
    """Without the padding of the columns, which is as wide as random ids, and without what each broker says in its words."""
    return re.sub(r"The group (is not empty|still has members)\.", "<not empty>", re.sub(r" +", " ", printed))


def test_a_share_consumer_reads_a_topic_from_its_beginning(beside, filled, unique):
    group = unique("console")
    wanted = ("--entity-type", "groups", "--entity-name", group, "--add-config", "share.auto.offset.reset=earliest")
    assert beside("kafka.admin.ConfigCommand", "--alter", *wanted).status == 0
    limits = ("--max-messages", "10", "--timeout-ms", "60000")
    told = beside("consumer.ConsoleShareConsumer", "--topic", filled, "--group", group, *limits, unordered=True)
    assert told.out.split() == ["value"] * 10

    def without_start(printed: str) -> str:
        """The start follows what was acknowledged when there is time; what is left to read counts at once."""
        return re.sub(r"(?m)(\d) \d+ (\d+)$", r"\1 <start> \2", spaced(printed))

    told = beside(COMMAND, "--describe", "--group", group, arrange=without_start, unordered=True)
    assert f"{group} {filled} 0 <start> 0" in told.out


def test_a_group_is_described(beside, active_group, group, filled):
    for name in (active_group, group):
        for what in ("--offsets", "--members", "--state"):
            for verbose in ((), ("--verbose",)):
                told = beside(COMMAND, "--describe", "--group", name, what, *verbose, arrange=spaced, unordered=True)
                assert what == "--members" or name in told.out
    beside(COMMAND, "--describe", "--group", "nobody", arrange=spaced)


def test_groups_are_listed(beside, active_group, group):
    def ours(printed: str) -> str:
        kept = [line for line in printed.splitlines() if group in line or active_group in line]
        return spaced("\n".join(sorted(kept)))

    assert beside(COMMAND, "--list", arrange=ours).out.splitlines() == sorted([group, active_group])
    for options in (("--state",), ("--state", "empty"), ("--state", "Stable")):
        beside(COMMAND, "--list", *options, arrange=ours)


@pytest.mark.parametrize(
    "to", [("--to-earliest",), ("--to-latest",), ("--to-datetime", "2023-11-14T22:16:20.000")], ids=" ".join
)
def test_offsets_are_reset(beside, group, active_group, filled, to):
    reset = ("--reset-offsets", "--topic", filled, *to)
    dry = beside(COMMAND, "--group", group, *reset, "--dry-run", arrange=spaced, unordered=True)
    done = beside(COMMAND, "--group", group, *reset, "--execute", arrange=spaced, unordered=True)
    assert done.status == dry.status and filled in done.out
    told = beside(COMMAND, "--describe", "--group", group, "--offsets", arrange=spaced, unordered=True)
    assert filled in told.out
    beside(COMMAND, "--group", active_group, *reset, "--execute", arrange=spaced, unordered=True)


def test_offsets_and_groups_are_deleted(beside, group, active_group, filled):
    beside(COMMAND, "--delete-offsets", "--group", group, "--topic", filled, arrange=spaced)
    beside(COMMAND, "--delete-offsets", "--group", group, "--topic", filled, arrange=spaced)
    beside(COMMAND, "--delete-offsets", "--group", active_group, "--topic", filled, arrange=spaced)
    beside(COMMAND, "--delete", "--group", active_group, arrange=spaced)
    assert "successful" in beside(COMMAND, "--delete", "--group", group, arrange=spaced).out
    beside(COMMAND, "--delete", "--group", group, arrange=spaced)
