"""The sticky assignor: the same answers as Kafka's own, and what these answers have to be good for.

`sticky_assignments_of_kafka.txt` was made by StickyTaskAssignor of Kafka 4.4: a random group on every other line, and
Kafka's answer below it.

    replicas | subtopology:tasks:stateful; ... | member:process:active:standby:offsets; ...
    member:active:standby; ...
"""

import random
from collections.abc import Iterable
from pathlib import Path

import pytest

from ottla.groupcoord.streams.assignor import AssignableMember, AssignableSubtopology, JavaQueue, StickyAssignor
from ottla.groupcoord.streams.members import Task, Tasks

KAFKA = (Path(__file__).parent / "sticky_assignments_of_kafka.txt").read_text().splitlines()


def tasks(text: str) -> list[Task]:
    found = []
    for each in text.split(",") if text else ():
        subtopology_id, _, partition = each.partition("-")
        found.append(Task(subtopology_id, int(partition)))
    return found


def group_of(text: str) -> tuple[dict[str, AssignableMember], list[AssignableSubtopology], int]:
    replicas, subtopologies, members = text.split("|")
    found = {}
    for each in members.split(";"):
        member_id, process_id, active, standby, told = each.split(":")
        pairs = [one.rpartition("=") for one in told.split(",")] if told else []
        offsets = {tasks(task)[0]: int(offset) for task, _, offset in pairs}
        found[member_id] = AssignableMember(process_id, tasks(active), frozenset(tasks(standby)), offsets)
    parts = [each.split(":") for each in subtopologies.split(";")]
    return found, [AssignableSubtopology(name, int(count), kept == "1") for name, count, kept in parts], int(replicas)


def shown(assignment: dict[str, Tasks]) -> str:
    def listed(those: Iterable[Task]) -> str:
        return ",".join(sorted(f"{task.subtopology_id}-{task.partition}" for task in those))

    each = (f"{name}:{listed(has.active)}:{listed(has.standby)}" for name, has in sorted(assignment.items()))
    return ";".join(each)


@pytest.mark.parametrize("number", range(len(KAFKA) // 2))
def test_the_answer_is_that_of_kafka(number: int) -> None:
    assert shown(StickyAssignor().assign(*group_of(KAFKA[2 * number]))) == KAFKA[2 * number + 1]


def members_on(processes: int, threads: int) -> dict[str, AssignableMember]:
    names = [(f"p{process}", f"p{process}-t{thread}") for process in range(processes) for thread in range(threads)]
    return {member: AssignableMember(process) for process, member in names}


def after(before: dict[str, AssignableMember], assignment: dict[str, Tasks]) -> dict[str, AssignableMember]:
    return {
        member_id: AssignableMember(member.process_id, assignment[member_id].active, assignment[member_id].standby)
        for member_id, member in before.items()
    }


def test_tasks_stay_when_nothing_changes() -> None:
    members, parts = members_on(3, 2), [AssignableSubtopology("0", 11, True), AssignableSubtopology("1", 4, False)]
    first = StickyAssignor().assign(members, parts, 1)
    assert StickyAssignor().assign(after(members, first), parts, 1) == first


def test_a_newcomer_takes_no_more_than_its_share() -> None:
    members, parts = members_on(2, 1), [AssignableSubtopology("0", 12, False)]
    first = StickyAssignor().assign(members, parts, 0)
    grown = after(members, first) | {"new": AssignableMember("p2")}
    second = StickyAssignor().assign(grown, parts, 0)
    assert {len(has.active) for has in second.values()} == {4}
    assert all(second[member].active < first[member].active for member in members)


def test_a_task_moves_to_its_copy_when_its_member_is_gone() -> None:
    members, parts = members_on(3, 1), [AssignableSubtopology("0", 6, True)]
    first = after(members, StickyAssignor().assign(members, parts, 1))
    gone = first.pop("p0-t0")
    second = StickyAssignor().assign(first, parts, 0)
    for task in gone.active:
        (owner,) = [member for member, has in second.items() if task in has.active]
        assert task in first[owner].standby


@pytest.mark.parametrize("seed", range(30))
def test_every_task_is_active_once_and_no_process_has_it_twice(seed: int) -> None:
    chance = random.Random(seed)
    members = members_on(chance.randint(1, 6), chance.randint(1, 4))
    parts = [AssignableSubtopology(str(each), chance.randint(1, 20), chance.random() < 0.5) for each in range(3)]
    replicas = chance.randint(0, 3)
    found = StickyAssignor().assign(members, parts, replicas)
    active = [task for has in found.values() for task in has.active]
    assert sorted(active) == sorted(task for each in parts for task in each.tasks)
    for process_id in {member.process_id for member in members.values()}:
        mine = [has for member_id, has in found.items() if members[member_id].process_id == process_id]
        held = [task for has in mine for role in (has.active, has.standby) for task in role]
        assert len(held) == len(set(held))
    processes = len({member.process_id for member in members.values()})
    copies = [task for has in found.values() for task in has.standby]
    stateful = sum(each.task_count for each in parts if each.is_stateful)
    assert len(copies) == stateful * min(replicas, processes - 1)


def test_without_members_nobody_gets_a_task() -> None:
    assert StickyAssignor().assign({}, [AssignableSubtopology("0", 3, True)], 1) == {}


def test_the_queue_gives_equal_items_out_as_java_does() -> None:
    # Java gave this order.
    queue = JavaQueue([("a", 1), ("b", 1), ("c", 1), ("d", 1), ("e", 0)], lambda item: item[1])
    assert [queue.take()[0] for _ in range(5)] == ["e", "b", "d", "c", "a"]
