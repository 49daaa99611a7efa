"""Whatever happens to brokers, topics, controllers and the ways between them: in the end all say the same."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest
import trio
from trio.testing import MockClock

from ottla.replication.cluster import znodes
from ottla.replication.cluster.coordination import BadVersion, Create, Delete, NodeExists, NoNode, SetData
from ottla.replication.controller.elect_leaders import ElectionType
from ottla.server.tests.puppets import Candidate, Theatre, open_theatre
from ottla.server.tests.test_controller_election import proposal
from ottla.wire.errors import KafkaError

BROKERS = (1, 2, 3, 4)
TOPICS = ("t", "u", "v")
STEPS = 60


class Play:
    """Events at random, until `end` lets everything become well again."""

    def __init__(self, theatre: Theatre, seed: int) -> None:
        self.theatre = theatre
        self.random = random.Random(seed)
        self.told: list[str] = []
        self._candidates = 100
        self._topic_ids = 0
        self._asking = 0
        self._events: list[Callable[[], Awaitable[object]]] = [
            self.broker_dies,
            self.broker_comes,
            self.broker_comes,
            self.broker_bounces,
            self.broker_is_cut_off,
            self.broker_is_reached_again,
            self.controller_loses_its_connection,
            self.controller_is_cut_off,
            self.links_are_healed,
            self.controller_loses_its_session,
            self.controller_is_removed_by_hand,
            self.somebody_stands,
            self.topic_is_created,
            self.topic_is_created,
            self.topic_is_deleted,
            self.partition_is_added,
            self.isr_changes,
            self.isr_changes,
            self.isr_changes,
            self.reassignment,
            self.reassignment_by_node,
            self.election,
            self.election_by_node,
            self.shutdown,
            self.state_is_written_by_hand,
            self.log_dir_fails,
            self.unclean_election_is_allowed,
        ]

    async def step(self) -> None:
        event = self.random.choice(self._events)
        self.told.append(event.__name__)
        await event()
        await trio.sleep(self.random.choice((0, 0.001, 0.003, 0.01, 0.2, 3)))

    def _broker(self) -> int:
        return self.random.choice(BROKERS)

    def _replicas(self) -> tuple[int, ...]:
        return tuple(self.random.sample(BROKERS, self.random.randint(1, 3)))

    def _partition(self) -> tuple[str, int]:
        return self.random.choice(TOPICS), self.random.randrange(3)

    # --- brokers

    async def broker_dies(self) -> None:
        if (broker := self._broker()) in self.theatre.puppets:
            await self.theatre.down(broker)

    async def broker_comes(self) -> None:
        if (broker := self._broker()) not in self.theatre.puppets:
            await self.theatre.up(broker)

    async def broker_bounces(self) -> None:
        if (broker := self._broker()) in self.theatre.puppets:
            await self.theatre.down(broker)
            await self.theatre.up(broker)

    async def broker_is_cut_off(self) -> None:
        if (puppet := self.theatre.puppets.get(self._broker())) is not None:
            puppet.is_reachable = False

    async def broker_is_reached_again(self) -> None:
        for puppet in self.theatre.puppets.values():
            puppet.is_reachable = True

    async def log_dir_fails(self) -> None:
        broker, partition = self._broker(), self._partition()
        if (puppet := self.theatre.puppets.get(broker)) is not None and partition in puppet.replicas:
            puppet.failed.add(partition)
            path = f"{znodes.LOG_DIR_EVENTS}/log_dir_event_"
            await self.theatre.operator.multi([Create(path, znodes.encode_log_dir_failure(broker), sequential=True)])

    # --- controllers

    def _serving(self) -> list[Candidate]:
        return [each for each in self.theatre.candidates.values() if each.election.active is not None]

    async def controller_loses_its_connection(self) -> None:
        for candidate in self._serving():
            candidate.link.reset()

    async def controller_is_cut_off(self) -> None:
        for candidate in self._serving():
            candidate.link.cut(to_service=self.random.random() < 0.5)

    async def links_are_healed(self) -> None:
        for candidate in self.theatre.candidates.values():
            candidate.link.heal()

    async def controller_loses_its_session(self) -> None:
        for candidate in self._serving():
            self.theatre.service.expire(candidate.session.session_id)
        await self.somebody_stands()

    async def controller_is_removed_by_hand(self) -> None:
        with suppress(NoNode):
            await self.theatre.operator.multi([Delete(znodes.CONTROLLER)])

    async def somebody_stands(self) -> None:
        if len(self.theatre.candidates) < 8:
            self._candidates += 1
            await self.theatre.stand(self._candidates)

    # --- topics

    async def topic_is_created(self) -> None:
        self._topic_ids += 1
        topic_id = self._topic_ids.to_bytes(16)
        with suppress(NodeExists):
            replicas = [self._replicas() for _ in range(self.random.randint(1, 2))]
            await self.theatre.create(self.random.choice(TOPICS), *replicas, topic_id=topic_id)

    async def topic_is_deleted(self) -> None:
        with suppress(NodeExists):
            await self.theatre.delete(self.random.choice(TOPICS))

    async def partition_is_added(self) -> None:
        with suppress(NoNode, BadVersion):
            await self.theatre.add_partitions(self.random.choice(TOPICS), self._replicas())

    async def state_is_written_by_hand(self) -> None:
        """As a leader of an old version does it."""
        topic, index = self._partition()
        known = await self.theatre.state(topic, index)
        if known is None:
            return
        state, version = known
        if len(state.isr) > 1:
            state.isr.remove(next(each for each in state.isr if each != state.leader))
        path = f"{znodes.ISR_CHANGES}/isr_change_"
        with suppress(NoNode, BadVersion):
            await self.theatre.operator.multi(
                [
                    SetData(znodes.state_path(topic, index), znodes.encode_state(state), version),
                    Create(path, znodes.encode_partitions([(topic, index)]), sequential=True),
                ]
            )

    # --- requests

    async def _asked(self, ask: Callable[[], Awaitable[object]]) -> None:
        """Nobody waits for the answer: the controller may be cut off."""

        async def task() -> None:
            self._asking += 1
            with suppress(KafkaError):
                await ask()
            self._asking -= 1

        self.theatre.nursery.start_soon(task)

    async def isr_changes(self) -> None:
        topic, index = self._partition()
        state = self.theatre.known(topic, index)
        if state is None or state.leader not in self.theatre.puppets:
            return
        isr = {state.leader, *(each for each in state.replicas if self.random.random() < 0.8)}
        request = proposal(self.theatre, *isr, topic=topic, index=index)
        controller = self.theatre.controller
        await self._asked(lambda: controller.alter_partition(request, 3))

    async def reassignment(self) -> None:
        if (controller := self.theatre.active) is not None:
            target = {self._partition(): self.random.choice((None, self._replicas()))}
            await self._asked(lambda: controller.reassign(target))

    async def reassignment_by_node(self) -> None:
        data = znodes.encode_reassignments({self._partition(): self._replicas()})
        with suppress(NodeExists):
            await self.theatre.operator.multi([Create(znodes.REASSIGNMENTS, data)])

    async def election(self) -> None:
        if (controller := self.theatre.active) is not None:
            wanted = self.random.choice((None, [self._partition()]))
            await self._asked(lambda: controller.elect_leaders(ElectionType.PREFERRED, wanted))

    async def election_by_node(self) -> None:
        data = znodes.encode_partitions([self._partition()])
        with suppress(NodeExists):
            await self.theatre.operator.multi([Create(znodes.PREFERRED_ELECTION, data)])

    async def shutdown(self) -> None:
        if (controller := self.theatre.active) is not None:
            broker = self._broker()
            await self._asked(lambda: controller.controlled_shutdown(broker, -1))

    async def unclean_election_is_allowed(self) -> None:
        topic = self.random.choice(TOPICS)
        self.theatre.unclean.add(topic)
        if (controller := self.theatre.active) is not None:
            controller.unclean_election_changed([topic])

    # --- and everything becomes well

    def _unanswered(self) -> list[str]:
        """What was asked of the controller by nodes, and is still there."""
        paths = (znodes.DELETED_TOPICS, znodes.LOG_DIR_EVENTS, znodes.ISR_CHANGES)
        return [name for path in paths for name in self.theatre.service.tree.children(path)]

    async def end(self) -> None:
        theatre = self.theatre
        await self.links_are_healed()
        await self.broker_is_reached_again()
        await theatre.stand(200)
        await theatre.until(lambda: self._asking == 0)
        for broker in BROKERS:  # those that were shutting down or have failed disks come back as new ones
            if broker in theatre.puppets:
                await theatre.down(broker)
            await theatre.up(broker)
        with trio.move_on_after(60):
            while theatre.quarrels() or self._unanswered():
                await trio.sleep(0.1)
        assert theatre.quarrels() == [], self.told
        controller = theatre.controller
        for name, state in controller.states.partitions():
            assert state.leader in theatre.puppets, (name, state, self.told)
        assert self._unanswered() == [], self.told
        assert {puppet.controller_epoch for puppet in theatre.puppets.values()} == {controller.epoch}


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(15))
async def test_in_the_end_all_say_the_same(
    seed: int, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_theatre(seed) as theatre:
        play = Play(theatre, seed)
        await theatre.up(1, 2, 3)
        await theatre.stand(100)
        for _ in range(STEPS):
            await play.step()
        await play.end()
    assert "The controller failed" not in caplog.text, play.told
