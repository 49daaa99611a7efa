"""Faults by a seed, of brokers and on the wire towards their clients: the same seed gives the same schedule.

A schedule is an endless row of faults, one after the other: a pause, a fault, its duration, its end. Each is drawn from the seed
and its own number, so that a run with only some of them has these at their times (`kept`); that is how the fewest faults
are found that still fail a test. A fault on the wire (`wire_faults.py`) may act after its turn, when a client asks for its API.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import trio

from ottla.replication.reminders import counted
from ottla.server.serving import StartupError
from ottla.server.testing.chaos.wire_faults import ON_THE_WIRE, WireFaults, drawn
from ottla.server.testing.errors import LabError, nearest
from ottla.server.testing.world.cluster import CHAOS
from ottla.wire.errors import KafkaError

if TYPE_CHECKING:
    from ottla.server.testing.wire_tap.rules import Rule
    from ottla.server.testing.world.lab import Lab
    from ottla.server.testing.world.node import Node
    from ottla.server.testing.world.world import World

PAUSE_S, DURATION_S = (0.05, 0.5), (0.05, 0.4)
_OF_CLUSTER = ("isolate", "cut_pair", "expire_session")
ALONE = ("kill", "stop", "disconnect", "fill_disk", *ON_THE_WIRE)
IN_CLUSTER = (*ALONE, *_OF_CLUSTER)
SEED_MAX = 2**32


class Fault(NamedTuple):
    """A planned fault: its number in the schedule, its times in seconds, its kind, and a broker by its place."""

    number: int
    pause_s: float
    duration_s: float
    kind: str
    place: int
    """Which of the brokers, and of the others for a cut between two: any number, taken by its remainder."""
    draw: int
    """Details of a fault on the wire."""


class Happened(NamedTuple):
    """A fault that was made: one line of text, and its time in seconds since `chaos` began."""

    seed: int
    number: int
    at_s: float
    text: str
    rule: Rule | None = None
    """Rule of the wire tap that carries out a fault on the wire; None for other faults."""

    @property
    def hits(self) -> int | None:
        """Number of requests that a fault on the wire has met so far; None for other faults."""
        return None if self.rule is None else self.rule.hits

    def __str__(self) -> str:
        hits = "" if self.hits is None else f" (met {counted(self.hits, 'request')})"
        return f"{self.at_s:7.3f} s  {self.text}{hits} [{self.number}]"


def schedule(seed: int, kinds: Sequence[str]) -> Iterator[Fault]:
    """Yield the faults of a seed, without end."""
    for number in count(1):
        chance = random.Random(f"{seed} {number}")
        yield Fault(
            number,
            chance.uniform(*PAUSE_S),
            chance.uniform(*DURATION_S),
            chance.choice(kinds),
            chance.randrange(1 << 16),
            chance.randrange(1 << 32),
        )


class Chaos:
    """Random faults of the brokers, until `stop` or the end of the `with` block.

    `seed`: from which they are drawn. `happened`: those made so far.
    """

    def __init__(self, lab: Lab, seed: int, faults: Sequence[str] | None, kept: Collection[int] | None) -> None:
        """`faults`: their kinds, None for all that the world can have. `kept`: numbers of those to make, None for all."""
        self.seed, self.happened = seed, list[Happened]()
        self._lab, self._kept = lab, kept
        self._kinds = _checked(faults, IN_CLUSTER if len(lab.world.nodes) > 1 else ALONE)
        self._on_the_wire = WireFaults()
        self._life = trio.CancelScope()
        self._ended = trio.Event()
        lab.loop.call_sync(lambda: lab.loop.nursery.start_soon(self._run, lab.world))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Make no more faults, and undo those in effect; return when all brokers are up. A second call does nothing."""
        if self._lab.loop.is_usable:
            self._lab.call(self._end)

    def __str__(self) -> str:
        lines = [f"  {each}" for each in self.happened]
        return "\n".join([f"chaos(seed={self.seed}): {len(lines)} faults", *lines])

    # ------------------------------------------------------------------ in the lab's thread

    async def _end(self) -> None:
        if not self._ended.is_set():
            self._life.cancel()
            await self._ended.wait()
            await self._lab.world.until_settled()

    async def _run(self, world: World) -> None:
        began = trio.current_time()
        try:
            with self._life:
                for fault in schedule(self.seed, self._kinds):
                    await trio.sleep(fault.pause_s)
                    if not self._is_open(world):
                        return
                    if self._kept is None or fault.number in self._kept:
                        await self._make(fault, trio.current_time() - began, world)
                    else:
                        await trio.sleep(fault.duration_s)
        finally:
            self._on_the_wire.end()
            for node in world.nodes.values():
                node.cut_connections(lambda each: each.is_silent)
            self._ended.set()

    def _is_open(self, world: World) -> bool:
        """Return False if another thread has closed or reset this Kafka while the faults began."""
        return world in self._lab.loop.worlds

    async def _make(self, fault: Fault, at_s: float, world: World) -> None:
        if fault.kind in ON_THE_WIRE:
            on_the_wire = drawn(fault.kind, fault.draw, fault.duration_s)
            self._tell(fault, at_s, str(on_the_wire), self._on_the_wire.begin(world.wire, on_the_wire))
            await trio.sleep(fault.duration_s)
            return
        ids = list(world.nodes)
        broker = ids[fault.place % len(ids)]
        others = [each for each in ids if each != broker]
        other = others[fault.place // len(ids) % len(others)] if others else broker
        begin, end, text = _FAULTS[fault.kind]
        told = text.format(broker=broker, other=other, seconds=fault.duration_s)
        if (obstacle := _obstacle(world, world.node(broker), fault.kind)) is not None:
            self._tell(fault, at_s, f"{told}: not possible: {obstacle}")
            await trio.sleep(fault.duration_s)
            return
        try:
            try:
                # A cancelled stop would go on, and nobody would start the broker.
                with trio.CancelScope(shield=True):
                    await begin(world, broker, other)
            except (LabError, KafkaError) as problem:
                told += f": not possible: {problem}"
            self._tell(fault, at_s, told)
            await trio.sleep(fault.duration_s)
        finally:
            # Whoever ends the faults finds all brokers well.
            with trio.CancelScope(shield=True):
                try:
                    if self._is_open(world):
                        await end(world, broker, other)
                except (LabError, KafkaError, StartupError) as problem:  # as of a broker whose disk a test has filled
                    self._tell(fault, at_s, f"broker {broker} could not be mended: {problem}")

    def _tell(self, fault: Fault, at_s: float, text: str, rule: Rule | None = None) -> None:
        self.happened.append(Happened(self.seed, fault.number, at_s, text, rule))


def _checked(faults: Sequence[str] | None, possible: Sequence[str]) -> Sequence[str]:
    """Return the kinds of faults to make, all for None. Raises LabError for others than the possible ones."""
    if isinstance(faults, str):
        raise LabError(f"faults={faults!r} is a text; give a list, such as faults=[{faults!r}].")
    all_of_them = ", ".join(possible)
    for each in possible if faults is None else faults:
        if each in _OF_CLUSTER and each not in possible:
            raise LabError(f"There is no fault {each} of a broker that is alone; use Kafka(3) or kafka_cluster.")
        if each not in possible:
            raise LabError(f"There is no fault {each!r}{nearest(each, possible, f'; the faults are {all_of_them}.')}")
    if faults is not None and not faults:
        raise LabError(f"No fault is named; the faults are {all_of_them}.")
    return possible if faults is None else tuple(faults)


def _obstacle(world: World, node: Node, kind: str) -> str | None:
    """Return why a fault cannot be made. What a test has done itself is not undone, as it would be at the fault's end."""
    if node.is_reserved:
        return "a snapshot is being put back"
    if not node.is_alive:
        return f"broker {node.node_id} is down already"
    if world.is_paused(node.node_id):
        return f"broker {node.node_id} is paused"
    if kind == "fill_disk" and node.storage.space_left is not None:
        return "the disk is full already"
    return None


async def _kill(world: World, broker: int, other: int) -> None:
    await world.kill(broker)


async def _stop(world: World, broker: int, other: int) -> None:
    await world.stop(broker)


async def _start(world: World, broker: int, other: int) -> None:
    node = world.node(broker)
    # A test may have started it meanwhile, and a restore is about to.
    if not node.is_alive and not node.is_reserved:
        await node.start()


async def _disconnect(world: World, broker: int, other: int) -> None:
    for listener in world.node(broker).serving().listeners:
        for connection in list(listener.connections):
            connection.cancel_scope.cancel()


async def _fill(world: World, broker: int, other: int) -> None:
    world.node(broker).storage.space_left = 0


async def _free(world: World, broker: int, other: int) -> None:
    node = world.node(broker)
    node.storage.space_left = None
    # A disk that was full in the wrong moment has taken the log directory offline.
    if not node.is_well and not node.is_reserved:
        await world.stop(broker)
        await _start(world, broker, other)


async def _isolate(world: World, broker: int, other: int) -> None:
    world.cut(broker, None, CHAOS)


async def _cut_pair(world: World, broker: int, other: int) -> None:
    world.cut(broker, [other], CHAOS)


async def _heal(world: World, broker: int, other: int) -> None:
    world.heal(broker, CHAOS)


async def _expire(world: World, broker: int, other: int) -> None:
    await world.renew_session(broker)


async def _nothing(world: World, broker: int, other: int) -> None:
    pass


_FAULTS: dict[str, tuple[Callable[..., Any], Callable[..., Any], str]] = {
    "kill": (_kill, _start, "broker {broker} is killed, and started after {seconds:.3f} s"),
    "stop": (_stop, _start, "broker {broker} is stopped, and started after {seconds:.3f} s"),
    "disconnect": (_disconnect, _nothing, "all connections of broker {broker} are cut"),
    "fill_disk": (_fill, _free, "the disk of broker {broker} is full for {seconds:.3f} s"),
    "isolate": (_isolate, _heal, "broker {broker} is cut off from all others for {seconds:.3f} s"),
    "cut_pair": (_cut_pair, _heal, "brokers {broker} and {other} cannot reach each other for {seconds:.3f} s"),
    "expire_session": (_expire, _nothing, "the session of broker {broker} with the tree ends"),
}
