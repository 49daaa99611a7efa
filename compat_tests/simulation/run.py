"""Runs a whole cluster in one process on virtual time, one seed after the other; a seed that failed fails again the same way.

make simulate SEEDS=1..100
python -m compat_tests.simulation.run --seed 7 --trace         what happened, message by message
python -m compat_tests.simulation.run --seeds 1..1000 --processes 2
"""

import argparse
import multiprocessing
import sys
import time
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from compat_tests.simulation.cluster import Outcome, Plan, Simulation


class Told(NamedTuple):
    """What is printed of a seed; `seconds` are of processor time."""

    is_good: bool
    seconds: float
    words: str


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m compat_tests.simulation.run", description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, help="one seed")
    parser.add_argument("--seeds", default="1..10", help="A..B, both included")
    parser.add_argument("--seconds", type=float, default=Plan._field_defaults["seconds"], help="of virtual time")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--calm", action="store_true", help="without faults")
    parser.add_argument("--processors", type=int, default=2, help="producers that work in transactions")
    parser.add_argument(
        "--members", type=int, default=3, help="of a share group, a consumer group and a classic group each"
    )
    parser.add_argument("--trace", action="store_true", help="tell of every message and what the brokers log")
    chosen = parser.parse_args(arguments)
    first, last = map(int, chosen.seeds.split("..")) if chosen.seed is None else (chosen.seed, chosen.seed)
    load = {"processors": chosen.processors, "members": chosen.members, "has_faults": not chosen.calm}
    plans = [Plan(seed, chosen.seconds, **load) for seed in range(first, last + 1)]
    outcomes = map(_run_and_trace, plans) if chosen.trace else _run_all(plans, chosen.processes)
    count, bad, spent = 0, 0, 0.0
    for told in outcomes:
        print(told.words, flush=True)
        count, bad, spent = count + 1, bad + (not told.is_good), spent + told.seconds
    faster = count * chosen.seconds / spent
    print(f"{count} seeds, {bad} of them bad; {spent / count:.1f} s each, {faster:.0f} times as fast as the clock")
    return 1 if bad else 0


def _run_all(plans: list[Plan], processes: int) -> Iterator[Told]:
    if processes == 1:
        yield from map(_run, plans)
        return
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        yield from pool.imap_unordered(_run, plans)


def _run_and_trace(plan: Plan) -> Told:
    return _run(plan, is_traced=True)


def _run(plan: Plan, *, is_traced: bool = False) -> Told:
    began = time.process_time()
    tell = (lambda words: print(words[:500])) if is_traced else None
    outcome = Simulation(plan, tell).run()
    seconds = time.process_time() - began
    return Told(outcome.is_good, seconds, "\n".join(_words(outcome, seconds)))


def _words(outcome: Outcome, seconds: float) -> Iterable[str]:
    yield (
        f"seed {outcome.seed}: {'good' if outcome.is_good else 'BAD'}: {outcome.faults} faults,"
        f" {outcome.acknowledged} records acknowledged, {outcome.epochs_raised} epochs raised,"
        f" {outcome.transactions_committed} transactions committed, {outcome.accepted} acceptances of a share group,"
        f" {outcome.owned} times a partition was owned, {outcome.messages} things happened, trace {outcome.trace},"
        f" {seconds:.1f} s"
    )
    for each in (*outcome.problems, *outcome.proofs):
        yield f"  seed {outcome.seed}: {each}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
