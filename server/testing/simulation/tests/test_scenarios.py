"""Scenarios on virtual time: they repeat themselves, and a run that fails says how."""

import contextlib
import logging
import math
import os
import random
import secrets
import subprocess
import sys
import threading
import time
import uuid

import pytest
import trio

from ottla.server.testing.client.answers import NoAnswer
from ottla.server.testing.errors import LabError
from ottla.server.testing.simulation.faults import FAULTS
from ottla.server.testing.simulation.scenarios import simulate
from ottla.server.testing.simulation.simulation import EVENTS_MAX, Scenario, Simulation
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages.metadata import MetadataRequest


async def failover(sim: Simulation) -> None:
    client = sim.client()
    await client.create_topic("orders", replicas=3)
    producer = client.producer()
    await producer.send("orders", b"before")
    leader = sim.broker(await client.leader("orders"))
    await leader.kill()
    await producer.send("orders", b"after")
    sim.check([each.value for each in await client.read_all("orders")] == [b"before", b"after"], "a record is lost")
    await leader.start()
    sim.check(await client.leader("orders") != leader.node_id)


def test_a_cluster_survives_the_end_of_a_leader() -> None:
    result = simulate(failover, seeds=range(3))
    assert result.is_good and str(result) == "3 seeds, all of them good"
    assert len(set(result.traces.values())) == 3
    assert simulate(failover, seeds=[1]).traces[1] == result.traces[1]


def test_a_seed_repeats_itself_in_a_process_with_other_hashes() -> None:
    """Python orders sets of texts by its hash seed, and nothing in a broker may depend on that."""
    traces = set()
    for hash_seed in ("1", "2"):
        program = f"import runpy; print(runpy.run_path({__file__!r})['trace_of_a_stormy_run']())"
        environment = os.environ | {"PYTHONHASHSEED": hash_seed}
        traces.add(
            subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, check=True).stdout
        )
    assert len(traces) == 1 and traces != {b""}


def test_clocks_and_secrets_are_those_of_the_seed() -> None:
    async def looks(sim: Simulation) -> None:
        await sim.sleep(3.0)
        now = int(trio.current_time() * 1e9)
        assert now == time.monotonic_ns() == time.perf_counter_ns()
        sim.tell(f"{secrets.token_hex(8)} {random.SystemRandom().random()} {uuid.uuid4()} {os.urandom(4).hex()}")
        sim.check(False, "to see them")

    first, second, other = (simulate(looks, seeds=[seed], brokers=1).failures[0] for seed in (1, 1, 2))
    assert first == second and first.events[-1].text != other.events[-1].text


def trace_of_a_stormy_run() -> str:
    return simulate(_stormy, seeds=[3], faults=FAULTS, settings={"num.network.threads": 1}).traces[3]


async def _stormy(sim: Simulation) -> None:
    client = sim.client()
    topics = [f"topic-{number}" for number in range(4)]
    for topic in topics:
        await client.create_topic(topic, replicas=3)
    producer = client.producer(transactional_id="teller")
    for number in range(10):
        async with producer.transaction():
            for topic in topics:
                await producer.send(topic, b"%d" % number)
        await sim.sleep(sim.chance.random() * 3)
    await sim.check_promises()


async def _fails_by_chance(sim: Simulation) -> None:
    sim.tell("it goes well so far")
    await sim.broker(2).kill()
    sim.check(sim.chance.random() < 0.5, "bad luck")


def test_the_result_names_failing_seeds_and_how_to_repeat_them() -> None:
    result = simulate(_fails_by_chance, seeds=range(6), stop_after=None)
    assert 0 < len(result.failures) < 6 and result.seeds == 6
    seed = result.failing_seeds[0]
    text = str(result)
    assert f"of 6 seeds failed: {seed}" in text and f"seed {seed}: bad luck" in text
    assert "it goes well so far" in text and "broker 2 killed" in text
    assert f"simulate(_fails_by_chance, seeds=[{seed}])" in text
    again = simulate(_fails_by_chance, seeds=[seed])
    assert again.failures == [result.failures[0]]
    with pytest.raises(AssertionError, match="bad luck"):
        again.check()


def test_the_first_failure_ends_the_search() -> None:
    async def fails(sim: Simulation) -> None:
        raise ValueError("never mind")

    result = simulate(fails, seeds=range(1_000_000))
    assert result.seeds == 1 and "ValueError: never mind" in result.failures[0].error


def test_a_trace_tells_of_messages() -> None:
    async def asks(sim: Simulation) -> None:
        await sim.client().ask(MetadataRequest(topics=None), broker=2)

    lines: list[str] = []
    simulate(asks, seeds=[1], brokers=2, trace=lines.append)
    assert any("101>2" in each for each in lines) and any("LOG" in each for each in lines)


def test_faults_are_told_and_their_seeds_repeat_them() -> None:
    async def waits(sim: Simulation) -> None:
        await sim.sleep(60)
        sim.check(False, "to see what happened")

    first, second = (simulate(waits, seeds=[5], faults=["kill", "isolate"]).failures[0] for _ in range(2))
    assert first == second
    assert {each.text.split(":")[0] for each in first.events} <= {
        "SIGKILL", "partition from peers", "partition from both", "partition from peers inwards",
        "partition from peers outwards", "partition from both inwards", "partition from both outwards",
    }  # fmt: skip
    assert len(first.events) > 4


async def _isolates(sim: Simulation) -> None:
    client = sim.client()
    await client.create_topic("orders", replicas=3, configs={"min.insync.replicas": "2"})
    leader = sim.broker(await client.leader("orders"))
    leader.isolate()
    await client.producer().send("orders", b"one")
    sim.check(await client.leader("orders") != leader.node_id)
    leader.heal()
    await sim.until(lambda: not leader.leads("orders"))
    other = sim.broker(await client.leader("orders"))
    other.pause()
    await client.producer().send("orders", b"two")
    other.resume()
    with pytest.raises(LabError, match="is not paused"):
        other.resume()
    await sim.check_promises()


def test_an_isolated_leader_is_replaced_and_nothing_is_lost() -> None:
    simulate(_isolates, seeds=range(3)).check()


async def _shares_work(sim: Simulation, group_protocol: str = "consumer") -> None:
    client = sim.client()
    await client.create_topic("orders", partitions=4)
    producer = client.producer()
    seen: list[bytes | None] = []

    async def consume(name: str) -> None:
        async with sim.client(name).consumer("orders", group="billing", group_protocol=group_protocol) as consumer:
            while len(seen) < 40:
                seen.extend(each.value for each in await consumer.poll())
                await consumer.commit()

    async with trio.open_nursery() as nursery:
        for name in ("first", "second"):
            nursery.start_soon(consume, name)
        for number in range(40):
            await producer.send("orders", b"%d" % number)
            await sim.sleep(0.1)
    sim.check(sorted(seen) == sorted(b"%d" % number for number in range(40)), f"seen: {seen}")
    committed = [await client.committed("billing", "orders", partition) for partition in range(4)]
    sim.check(committed == [10, 10, 10, 10], f"committed: {committed}")
    await sim.check_promises()


async def _shares_work_classically(sim: Simulation) -> None:
    await _shares_work(sim, "classic")


@pytest.mark.parametrize("scenario", [_shares_work, _shares_work_classically])
def test_members_of_a_group_share_the_partitions(scenario: Scenario) -> None:
    simulate(scenario, seeds=range(2), brokers=1).check()


@pytest.mark.parametrize("group_protocol", ["consumer", "classic"])
def test_members_come_and_go_while_brokers_die(group_protocol: str) -> None:
    async def come_and_go(sim: Simulation) -> None:
        client = sim.client()
        await client.create_topic("orders", partitions=4)
        seen: set[bytes | None] = set()

        async def consume(number: int, leaves: bool) -> None:
            mine = sim.client(f"member {number}")
            async with mine.consumer("orders", group="billing", group_protocol=group_protocol) as consumer:
                end = sim.now() + sim.chance.uniform(5, 15) if leaves else math.inf
                while len(seen) < 60 and sim.now() < end:
                    seen.update(each.value for each in await consumer.poll())
                    with contextlib.suppress(KafkaError):  # a member that was removed meanwhile: others read it again
                        await consumer.commit()

        async with trio.open_nursery() as nursery:
            for number in range(4):
                nursery.start_soon(consume, number, number > 0)
            producer = client.producer()
            for number in range(60):
                await producer.send("orders", b"%d" % number)
                await sim.sleep(0.3)
                if number % 20 == 10:
                    coordinator = sim.broker(await client.coordinator("billing"))
                    await coordinator.kill()
                    nursery.start_soon(coordinator.start)
        sim.check(seen == {b"%d" % number for number in range(60)}, f"seen: {len(seen)} of 60")
        await sim.check_promises()

    result = simulate(come_and_go, seeds=range(2), faults=["break_connections"], limit_s=300)
    assert result.is_good, result


@pytest.mark.parametrize("brokers", [1, 2])
def test_faults_come_before_there_is_a_topic_and_to_few_brokers(brokers: int) -> None:
    async def waits(sim: Simulation) -> None:
        await sim.sleep(90)

    simulate(waits, seeds=range(3), brokers=brokers, faults=FAULTS).check()


def test_promises_are_checked_whatever_goes_on_meanwhile() -> None:
    async def goes_on(sim: Simulation) -> None:
        client = sim.client()
        await client.create_topic("orders")
        await client.producer().send("orders", b"of the topic before")
        async with client.consumer("orders", group="billing") as consumer:
            await consumer.poll()
            await consumer.commit()
        await client.delete_topic("orders")
        await sim.check_promises()
        await client.create_topic("orders")
        transacting = client.producer(transactional_id="t")
        await transacting.begin()
        await transacting.send("orders", b"open")

        async def write() -> None:
            for number in range(1000):
                await client.producer().send("orders", b"%d" % number)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(write)
            await sim.sleep(1)
            await sim.check_promises()
            nursery.cancel_scope.cancel()
        async with client.consumer("orders", group="billing") as consumer:
            sim.check((await consumer.poll())[0].offset == 0)
        await transacting.commit()
        await sim.check_promises()

    simulate(goes_on, seeds=range(2)).check()


async def _goes_on_and_on(sim: Simulation) -> None:
    while True:
        await sim.sleep(0)


async def _shields_itself(sim: Simulation) -> None:
    with trio.CancelScope(shield=True):
        await trio.sleep_forever()


async def _hides_its_end(sim: Simulation) -> None:
    with contextlib.suppress(trio.Cancelled):
        await trio.sleep_forever()


@pytest.mark.parametrize(
    ("scenario", "words"),
    [
        (_goes_on_and_on, "no virtual time passes, because a task goes on and on without waiting"),
        (_shields_itself, "the scenario does not end when it is cancelled, because it waits within a shielded"),
        (_hides_its_end, "the scenario is not over after 20 virtual seconds"),
    ],
)
def test_a_scenario_that_does_not_end_fails_and_the_next_seed_is_as_ever(scenario: Scenario, words: str) -> None:
    expected = simulate(_nothing, seeds=[1], brokers=1).traces
    (failure,) = simulate(scenario, seeds=[4], brokers=1, limit_s=20).failures
    assert failure.seed == 4 and failure.error.startswith(words)
    assert simulate(_nothing, seeds=[1], brokers=1).traces == expected


async def _transacts_first_way(sim: Simulation) -> None:
    await _transacts(sim, 1)


async def _transacts_second_way(sim: Simulation) -> None:
    await _transacts(sim, 2)


async def _transacts(sim: Simulation, version: int | None = None) -> None:
    client = sim.client()
    await client.create_topic("orders", partitions=2)
    producer = client.producer(transactional_id="teller", transaction_version=version)
    async with producer.transaction():
        await producer.send("orders", b"good", partition=0)
        await producer.send("orders", b"good", partition=1)
        await producer.send_offsets("billing", {("orders", 0): 7})
    with pytest.raises(ValueError, match="changed my mind"):
        async with producer.transaction():
            await producer.send("orders", b"bad", partition=0)
            await producer.send_offsets("billing", {("orders", 0): 8})
            raise ValueError("changed my mind")
    sim.check([each.value for each in await client.read_all("orders", committed_only=True)] == [b"good", b"good"])
    sim.check(sorted(each.value or b"" for each in await client.read_all("orders")) == [b"bad", b"good", b"good"])
    sim.check(await client.committed("billing", "orders", 0) == 7)
    successor = sim.client().producer(transactional_id="teller")
    await successor.begin()
    await producer.begin()
    with pytest.raises(KafkaError) as refusal:
        await producer.send("orders", b"late", partition=0)
    sim.check(refusal.value.code in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH))
    await successor.abort()
    await sim.check_promises()


@pytest.mark.parametrize("scenario", [_transacts, _transacts_first_way, _transacts_second_way])
def test_transactions_are_committed_aborted_and_fenced(scenario: Scenario) -> None:
    simulate(scenario, seeds=range(2), brokers=1).check()


def test_a_broken_promise_is_found() -> None:
    """Replication to nobody: a leader that loses power, and its log with it, is replaced by nobody who has its records."""

    async def loses(sim: Simulation) -> None:
        client = sim.client()
        await client.create_topic("orders", replicas=1, configs={"min.insync.replicas": "1"})
        await client.producer().send("orders", b"one")
        leader = sim.broker(await client.leader("orders"))
        await leader.kill()
        for path in list(leader._broker.disk.files()):
            if "orders-0" in path and path.endswith(".log"):
                leader._broker.disk.open(path).truncate(0)
        await sim.check_promises()

    found = simulate(loses, seeds=[1]).failures[0].error
    assert found.startswith(
        "1 promise of Kafka broken:\n\nLOST in orders-0: a record acknowledged with acks=all is not there"
    )
    assert "Acknowledged: producer=" in found


def test_who_asks_a_dead_broker_gets_no_answer() -> None:
    async def asks(sim: Simulation) -> None:
        await sim.broker(2).kill()
        with pytest.raises(NoAnswer, match="broker 2 does not answer MetadataRequest"):
            await sim.client(timeout_s=5).ask(MetadataRequest(topics=None), broker=2)

    simulate(asks, seeds=[1], brokers=2).check()


def test_the_last_events_are_told() -> None:
    async def tells(sim: Simulation) -> None:
        for number in range(EVENTS_MAX + 5):
            sim.tell(f"event {number}")
        sim.check(False)

    (failure,) = simulate(tells, seeds=[1], brokers=1).failures
    assert len(failure.events) == EVENTS_MAX and failure.events[-1].text == f"event {EVENTS_MAX + 4}"


def test_clients_may_come_during_a_pause() -> None:
    async def pauses(sim: Simulation) -> None:
        sim.broker(1).pause()
        clients = [sim.client() for _ in range(3)]
        sim.broker(1).resume()
        await clients[-1].ask(MetadataRequest(topics=None), broker=1)

    simulate(pauses, seeds=[1], brokers=1).check()


def test_an_endless_scenario_ends() -> None:
    result = simulate(lambda_waits, seeds=[1], brokers=1, limit_s=30)
    assert result.failures[0].error == "the scenario is not over after 30 virtual seconds: give limit_s for more"


async def lambda_waits(sim: Simulation) -> None:
    await trio.sleep_forever()


async def _nothing(sim: Simulation) -> None:
    """A scenario."""


def _sync(sim: Simulation) -> None:
    """No scenario."""


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"scenario": _sync}, "a scenario is an async function"),
        ({"scenario": None}, "a scenario is an async function"),
        ({"seeds": []}, "there are no seeds"),
        ({"seeds": 7}, r"seeds=\[7\] for one"),
        ({"seeds": ["7"]}, "a seed is a whole number, not '7'"),
        ({"brokers": 0}, "a cluster has 1 to"),
        ({"brokers": 3000}, "a cluster has 1 to"),
        ({"faults": "kill"}, r"faults=\['kill'\]"),
        ({"faults": ["fire"]}, "there is no fault 'fire': choose among kill, "),
        ({"settings": {"nonsense": 1}}, "nonsense"),
    ],
)
def test_wrong_use_says_what_to_do(arguments: dict[str, object], words: str) -> None:
    given: dict[str, object] = {"scenario": _nothing, "seeds": [1]} | arguments
    with pytest.raises(LabError, match=words):
        simulate(**given)  # type: ignore[arg-type]


async def test_a_simulation_within_trio_is_refused() -> None:
    with pytest.raises(LabError, match="call simulate"):
        simulate(_nothing, seeds=[1])


def test_a_real_sleep_is_refused() -> None:
    async def sleeps(sim: Simulation) -> None:
        time.sleep(5)  # noqa: ASYNC251 - the mistake that is looked for

    assert "use await sim.sleep(5)" in simulate(sleeps, seeds=[1], brokers=1).failures[0].error


def test_brokers_that_are_not_there_are_named() -> None:
    async def kills(sim: Simulation) -> None:
        await sim.broker(4).kill()

    assert "there is no broker 4: ids are 1, 2, 3" in simulate(kills, seeds=[1]).failures[0].error


def test_every_fault_has_its_name() -> None:
    async def looks(sim: Simulation) -> None:
        from ottla.server.testing.simulation.faults import Faults, name_of

        sim.check([name_of(each) for each in Faults(sim)._faults] == list(FAULTS))

    simulate(looks, seeds=[1], brokers=1).check()


def test_other_threads_go_on_as_they_are() -> None:
    """A lab runs in one: its clock is the real one meanwhile, and what it does takes nothing from the seed."""
    expected = simulate(failover, seeds=[1]).traces[1]
    seen: list[tuple[float, bytes, float]] = []
    is_over = threading.Event()

    def look() -> None:
        while not is_over.is_set():
            seen.append((time.monotonic(), os.urandom(4), random.Random().random()))
            time.sleep(0.001)

    async def with_a_trio_of_its_own() -> None:
        while not is_over.is_set():
            await trio.sleep(0.001)
            await trio.to_thread.run_sync(look_once)

    def look_once() -> None:
        logging.getLogger("ottla").error("of another thread", exc_info=ValueError("there"))

    threads = [threading.Thread(target=look), threading.Thread(target=trio.run, args=[with_a_trio_of_its_own])]
    began = time.monotonic()
    for each in threads:
        each.start()
    try:
        result = simulate(failover, seeds=[1])
    finally:
        is_over.set()
        for each in threads:
            each.join()
    assert result.is_good and result.traces[1] == expected
    assert all(began <= at <= time.monotonic() for at, _, _ in seen) and len(seen) > 5


def test_nothing_of_a_simulation_stays() -> None:
    before = time.time, time.sleep, os.urandom
    simulate(_nothing, seeds=[1], brokers=1)
    assert (time.time, time.sleep, os.urandom) == before
