"""Random lives of streams groups: members that follow the protocol, forget answers, die, and find the log refusing.

After every word: no task is active on two members, what living members have agrees with what the group says, and the log
makes the same groups again. When all is calm every task is active once.
"""

import random
from typing import Any

import pytest

from ottla.groupcoord.tests.streams.test_streams_groups import GROUP, Streams, groups_of, ids, tasks, topic, word_count
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.streams_group import StreamsGroupHeartbeatResponse, Subtopology, Topology
from ottla.wire.tests.effort import first

ROLES = ("active", "standby", "warmup")
GONE = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND)


def topology() -> Topology:
    """Two subtopologies, the second one behind a repartition topic and with a store."""
    found = word_count()
    found.subtopologies[0].repartition_sink_topics = ["between"]
    found.subtopologies.append(
        Subtopology(
            subtopology_id="1",
            source_topics=[],
            source_topic_regex=[],
            state_changelog_topics=[topic("store")],
            repartition_sink_topics=[],
            repartition_source_topics=[topic("between")],
            copartition_groups=[],
        )
    )
    return found


class Client:
    """A member that does what it is told, a heartbeat at a time."""

    def __init__(self, talk: Streams, name: str, process: str, instance: str | None) -> None:
        self.talk, self.name, self.process, self.instance = talk, name, process, instance
        self.epoch = 0
        self.has: dict[str, dict[str, list[int]]] = {}
        self.says_all = False

    def beat(self, *, loses_answer: bool = False) -> None:
        if self.epoch == 0:
            answer = self.talk.enter(self.name, self.process, topology=topology(), instance_id=self.instance)
        else:
            answer = self.talk.beat(self.name, self.epoch, instance_id=self.instance, **self._owned())
        if loses_answer:
            self.says_all = True
        elif answer.error_code in GONE:
            self.epoch, self.has = 0, {}
        elif not answer.error_code:
            self._obey(answer)

    def _owned(self) -> dict[str, Any]:
        if not self.says_all:
            return {}
        return {f"{role}_tasks": ids(self.has.get(role, {})) for role in ROLES}

    def _obey(self, answer: StreamsGroupHeartbeatResponse) -> None:
        self.epoch, self.says_all = answer.member_epoch, False
        if answer.active_tasks is not None:
            told = (answer.active_tasks, answer.standby_tasks, answer.warmup_tasks)
            self.has = {role: tasks(each) or {} for role, each in zip(ROLES, told, strict=True)}
            # The next heartbeat says which tasks it has now, as a client does after it gave some up.
            self.says_all = True

    def leave(self, epoch: int = -1) -> None:
        self.talk.beat(self.name, epoch, instance_id=self.instance)


def check_active(talk: Streams) -> None:
    for group in groups_of(talk.shard).values():
        held = [
            task
            for member in group.members.values()
            for role in (member.assigned, member.pending_revocation)
            for task in role.active
        ]
        assert len(held) == len(set(held)), "a task is active twice"
        assert group.assignment_epoch <= group.group_epoch
        assert all(member.member_epoch <= group.assignment_epoch for member in group.members.values())


def settle(talk: Streams, clients: list[Client]) -> None:
    """Let everybody heartbeat until nothing moves any more."""
    for _ in range(30):
        talk.advance(1_000)
        for client in clients:
            client.beat()
            check_active(talk)
    wanted = {"0": 2, "1": 2} if clients else {}
    found: dict[str, list[int]] = {}
    for client in clients:
        for name, numbers in client.has.get("active", {}).items():
            found.setdefault(name, []).extend(numbers)
    assert {name: sorted(numbers) for name, numbers in found.items()} == {
        name: list(range(count)) for name, count in wanted.items()
    }


@pytest.mark.parametrize("seed", first(2, range(8)))
def test_whatever_members_do_no_task_runs_twice_and_in_the_end_each_runs(seed: int) -> None:
    chance = random.Random(seed)
    talk = Streams(
        group_streams_num_standby_replicas=chance.randint(0, 2),
        group_streams_assignment_interval_ms=chance.choice([0, 1_000]),
        group_streams_initial_rebalance_delay_ms=chance.choice([0, 3_000]),
        group_streams_session_timeout_ms=10_000,
    )
    talk.images.put("between", 2)
    talk.images.put("store", 2)
    clients: list[Client] = []
    for number in range(120):
        talk.refuse_appends = ErrorCode.COORDINATOR_NOT_AVAILABLE if chance.random() < 0.05 else ErrorCode.NONE
        deed = chance.random()
        if deed < 0.08 and len(clients) < 6:
            instance = f"i{number}" if chance.random() < 0.3 else None
            clients.append(Client(talk, f"m{number}", f"p{chance.randint(0, 3)}", instance))
        elif deed < 0.12 and clients:
            clients.pop(chance.randrange(len(clients))).leave()
        elif deed < 0.15 and clients:
            clients.pop(chance.randrange(len(clients)))
        elif deed < 0.18 and clients and (client := chance.choice(clients)).instance is not None:
            client.leave(-2)
            client.name, client.epoch, client.has = f"{client.name}x", 0, {}
        elif deed < 0.2:
            talk.refuse_appends = ErrorCode.NONE
            talk.restart()
        elif clients:
            chance.choice(clients).beat(loses_answer=chance.random() < 0.1)
        check_active(talk)
        talk.advance(chance.choice([0, 100, 2_000]))
    talk.refuse_appends = ErrorCode.NONE
    settle(talk, clients)
    for client in clients:
        client.leave()
    if GROUP in groups_of(talk.shard):
        talk.advance(20_000)
        assert talk.delete_group() is ErrorCode.NONE
    assert all(value is None for value in dict(talk.log).values())
