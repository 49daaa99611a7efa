"""Groups under random clients: they come, crash, leave, change their minds and disconnect, the log refuses writes, the
broker restarts. Whatever happens, a generation has one leader and one assignment, everybody who waits is answered, and
once the trouble is over the group consists of exactly those who are alive.
"""

import random

import pytest

from ottla.groupcoord.classic.group import COMPLETING_REBALANCE, EMPTY, PREPARING_REBALANCE, STABLE
from ottla.groupcoord.tests.conversation import GROUP, SESSION_MS, Asked, Conversation, subscription
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.classic_group import JoinGroupResponse
from ottla.wire.tests.effort import first

STEPS = 250
STEP_MS_MAX = 1_500
REBALANCE_MS = 12_000


Generation = tuple[int, int]
"""A restart, or a group that could not be written, counts again from the last number that is in the log; so a number
alone does not name a generation: before it stands how often that happened."""


class Witness:
    """Remembers what each generation was told, and objects to contradictions."""

    def __init__(self, talk: Conversation) -> None:
        self.talk = talk
        self.lives = 0
        self.group: object = None
        self.leaders: dict[Generation, str] = {}
        self.protocols: dict[Generation, str] = {}
        self.assignments: dict[Generation, dict[str, bytes]] = {}

    def life(self) -> int:
        """Which life of the group this is."""
        group = self.talk.shard._groups.get(GROUP)
        if group is not self.group:
            self.group = group
            self.lives += 1
        return self.lives

    def joined(self, generation: Generation, response: JoinGroupResponse) -> None:
        assert response.protocol_name is not None
        assert self.protocols.setdefault(generation, response.protocol_name) == response.protocol_name
        if response.members:
            assert response.leader in {each.member_id for each in response.members}

    def led(self, generation: Generation, identity: str) -> None:
        assert self.leaders.setdefault(generation, identity) == identity, "two leaders of one generation"

    def assigned(self, generation: Generation, identity: str, assignment: bytes) -> None:
        known = self.assignments.setdefault(generation, {}).setdefault(identity, assignment)
        assert known == assignment, "two assignments of one generation"


class Client:
    """A consumer that does what Kafka's consumer does."""

    def __init__(self, name: str, talk: Conversation, witness: Witness, chance: random.Random) -> None:
        self.name = name
        self.talk = talk
        self.witness = witness
        self.chance = chance
        self.instance = name if chance.random() < 0.4 else None
        self.version = chance.choice([3, 5, 9]) if self.instance is None else chance.choice([5, 9])
        self.alive = False
        self.member_id = ""
        self.metadata = 0
        self.asked: Asked | None = None
        self.joined: Asked | None = None
        self.is_in = False
        self.life = 0

    @property
    def identity(self) -> str:
        return self.instance or self.member_id

    # -------------------------------------------------------------- what it does by itself

    def step(self) -> None:
        if not self.alive:
            return
        if self.asked is None:
            if self.is_in:
                self.heartbeat()
            else:
                self.join()
        elif self.asked.response is not None:
            asked, self.asked = self.asked, None
            if asked is self.joined:
                self.on_joined(asked)
            else:
                self.on_synced(asked)
        elif self.joined is not self.asked and self.joined is not None:
            self.heard(self.talk.heartbeat(self.joined, group_instance_id=self.instance))

    def join(self) -> None:
        self.is_in = False
        protocols = {"range": subscription("topic") + bytes([self.metadata])}
        if self.chance.random() < 0.5:
            protocols["roundrobin"] = b""
        self.asked = self.joined = self.talk.join(
            self.member_id,
            version=self.version,
            instance=self.instance,
            protocols=protocols,
            rebalance_ms=REBALANCE_MS,
            client_id=self.name,
        )
        self.life = self.witness.life()

    def on_joined(self, asked: Asked) -> None:
        if asked.error is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = asked.response.member_id
        elif asked.error is not ErrorCode.NONE:
            self.heard(asked.error)
        else:
            self.member_id = asked.response.member_id
            self.witness.joined((self.life, asked.response.generation_id), asked.response)
            self.sync(asked)

    def sync(self, asked: Asked) -> None:
        response = asked.response
        assignments = None
        if response.leader == self.member_id and not response.skip_assignment:
            self.witness.led((self.life, response.generation_id), self.identity)
            assignments = {
                each.member_id: f"{response.generation_id}/{each.group_instance_id or each.member_id}".encode()
                for each in response.members
            }
        self.asked = self.talk.sync(asked, assignments, instance=self.instance)

    def on_synced(self, asked: Asked) -> None:
        if asked.error is ErrorCode.NONE:
            assert self.joined is not None
            generation = self.joined.response.generation_id
            assignment = asked.response.assignment
            assert assignment in (b"", f"{generation}/{self.identity}".encode())
            self.witness.assigned((self.life, generation), self.identity, assignment)
            self.is_in = True
        else:
            self.heard(asked.error)

    def heartbeat(self) -> None:
        assert self.joined is not None
        self.heard(self.talk.heartbeat(self.joined, group_instance_id=self.instance))

    def heard(self, error: ErrorCode) -> None:
        if error is ErrorCode.REBALANCE_IN_PROGRESS and self.asked is None:
            self.join()
        elif error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
            self.give_up()
            self.member_id = ""
        elif error is not ErrorCode.NONE and self.asked is None:
            self.is_in = False

    def give_up(self) -> None:
        if self.asked is not None and self.asked.response is None:
            self.talk.disconnect(self.asked)
        self.asked = None
        self.is_in = False

    # -------------------------------------------------------------- what happens to it

    def trouble(self) -> None:
        event = self.chance.choice(["start", "start", "crash", "leave", "change", "disconnect", "join"])
        if event == "start":
            self.alive = True
        elif not self.alive:
            return
        elif event == "crash":
            self.give_up()
            self.alive, self.member_id = False, ""
        elif event == "leave":
            if self.member_id:
                self.talk.leave((self.member_id, self.instance))
            self.give_up()
            self.alive, self.member_id = False, ""
        elif event == "change":
            self.metadata += 1
        elif event == "disconnect":
            self.give_up()
        elif event == "join" and self.is_in:
            self.join()


def check(talk: Conversation) -> None:
    group = talk.shard._groups.get(GROUP)
    if group is None:
        return
    members = group.members
    parked_joins = sum(member.awaiting_join is not None for member in members)
    assert parked_joins == members.awaiting_join_count
    assert parked_joins == 0 or group.state is PREPARING_REBALANCE
    assert group.state is COMPLETING_REBALANCE or all(member.awaiting_sync is None for member in members)
    assert (group.state is EMPTY) <= (len(members) == 0)
    assert members.leader_id in members or (members.leader_id is None and not members)
    assert members.pending_sync.keys() <= members.by_id.keys()
    assert not members.pending_join & set(members.by_id)
    assert len(members.static) == sum(member.is_static for member in members)


@pytest.mark.parametrize("seed", first(5, range(25)))
def test_random_clients_always_end_up_in_one_group(seed: int) -> None:
    chance = random.Random(seed)
    talk = Conversation(group_initial_rebalance_delay_ms=chance.choice([0, 3_000]))
    witness = Witness(talk)
    clients = [Client(f"client{number}", talk, witness, chance) for number in range(chance.randint(1, 6))]
    asked: list[Asked] = []

    def step() -> None:
        for client in clients:
            client.step()
            if client.asked is not None:
                asked.append(client.asked)
        check(talk)
        talk.advance(chance.randint(0, STEP_MS_MAX))
        check(talk)

    for _ in range(STEPS):
        if chance.random() < 0.25:
            chance.choice(clients).trouble()
        talk.refuse_appends = ErrorCode.COORDINATOR_NOT_AVAILABLE if chance.random() < 0.05 else ErrorCode.NONE
        if chance.random() < 0.01:
            talk.restart()
        step()
    talk.refuse_appends = ErrorCode.NONE
    clients[0].alive = True
    for _ in range(3 * (REBALANCE_MS + SESSION_MS) // STEP_MS_MAX * 4):
        step()

    alive = [client for client in clients if client.alive]
    group = talk.shard._groups[GROUP]
    assert group.state is STABLE
    assert all(client.is_in for client in alive)
    assert {member.member_id for member in group.members} == {client.member_id for client in alive}
    assert all(each.response is not None for each in asked if each.parked_member_id not in group.members)
    served = {
        who for (_, number), those in witness.assignments.items() if number == group.generation_id for who in those
    }
    assert {client.identity for client in alive} <= served
