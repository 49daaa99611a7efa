"""Steps of members to their target assignments: those of Kafka, and the conversations that matter.

`reconciliations_of_kafka.txt` was made by CurrentAssignmentBuilder of Kafka 4.4: a random member of process p with its
target on every other line, and what Kafka makes of it below.
"""

from collections.abc import Collection
from pathlib import Path

import pytest

from ottla.groupcoord.streams.members import AssignedTasks, Member, MemberState, Task, TaskHolders, Tasks
from ottla.groupcoord.streams.reconciliation import reconcile
from ottla.wire.errors import ErrorCode, KafkaError

KAFKA = (Path(__file__).parent / "reconciliations_of_kafka.txt").read_text().splitlines()
A, B = Task("0", 0), Task("0", 1)


def task(text: str) -> Task:
    subtopology_id, _, partition = text.partition("-")
    return Task(subtopology_id, int(partition))


def role(text: str) -> frozenset[Task]:
    return frozenset(task(each) for each in text.split(",")) if text else frozenset()


def epochs(text: str) -> dict[Task, int]:
    pairs = [each.split("=") for each in text.split(",")] if text else []
    return {task(name): int(epoch) for name, epoch in pairs}


def processes(text: str) -> dict[Task, set[str]]:
    found: dict[Task, set[str]] = {}
    for each in text.split(",") if text else ():
        name, _, process = each.partition("=")
        found.setdefault(task(name), set()).add(process)
    return found


def answer(line: str) -> str:
    part = iter(line.split("|"))
    state, epoch, previous = (int(next(part)) for _ in range(3))
    assigned = AssignedTasks(epochs(next(part)), role(next(part)), role(next(part)))
    pending = AssignedTasks(epochs(next(part)), role(next(part)), role(next(part)))
    target_epoch, target = int(next(part)), Tasks(role(next(part)), role(next(part)), role(next(part)))
    active = {each: names.pop() for each, names in processes(next(part)).items()}
    holders = TaskHolders(active, processes(next(part)), processes(next(part)))
    is_told = next(part) == "1"
    owned = Tasks(role(next(part)), role(next(part)), role(next(part)))
    member = Member(
        "m", epoch, previous, MemberState(state), process_id="p", assigned=assigned, pending_revocation=pending
    )
    try:
        return shown(reconcile(member, target_epoch, target, holders, owned if is_told else None))
    except KafkaError as error:
        assert error.code is ErrorCode.FENCED_MEMBER_EPOCH
        return "fenced"


def shown(member: Member) -> str:
    def listed(tasks: Collection[Task]) -> str:
        return ",".join(sorted(f"{each.subtopology_id}-{each.partition}" for each in tasks))

    def with_epochs(tasks: AssignedTasks) -> str:
        return ",".join(
            sorted(f"{each.subtopology_id}-{each.partition}={epoch}" for each, epoch in tasks.active.items())
        )

    has, gives_up = member.assigned, member.pending_revocation
    return "|".join(
        [
            *(str(int(number)) for number in (member.state, member.member_epoch, member.previous_member_epoch)),
            *(with_epochs(has), listed(has.standby), listed(has.warmup)),
            *(with_epochs(gives_up), listed(gives_up.standby), listed(gives_up.warmup)),
        ]
    )


@pytest.mark.parametrize("number", range(len(KAFKA) // 2))
def test_the_step_is_that_of_kafka(number: int) -> None:
    assert answer(KAFKA[2 * number]) == KAFKA[2 * number + 1]


def test_a_task_goes_over_only_after_it_was_given_up() -> None:
    holders = TaskHolders({A: "p", B: "p"})
    first = Member("m1", 5, 4, process_id="p", assigned=AssignedTasks({A: 3, B: 3}))
    second = Member("m2", 0, process_id="q")
    first = reconcile(first, 6, Tasks(frozenset({A})), holders, None)
    assert first.state is MemberState.UNREVOKED_TASKS and first.member_epoch == 5
    assert first.pending_revocation.active == {B: 3}
    second = reconcile(second, 6, Tasks(frozenset({B})), holders, None)
    assert second.state is MemberState.UNRELEASED_TASKS and second.member_epoch == 6
    assert not second.assigned

    still = reconcile(first, 6, Tasks(frozenset({A})), holders, Tasks(frozenset({A, B})))
    assert still is first
    first = reconcile(first, 6, Tasks(frozenset({A})), holders, Tasks(frozenset({A})))
    assert first.state is MemberState.STABLE and first.member_epoch == 6 and first.assigned.active == {A: 3}
    del holders._active[B]
    second = reconcile(second, 6, Tasks(frozenset({B})), holders, None)
    assert second.state is MemberState.STABLE and second.assigned.active == {B: 6}


def test_a_standby_task_becomes_active_in_place() -> None:
    holders = TaskHolders({A: "q"}, {A: {"p"}})
    copy = Member("m", 5, 4, process_id="p", assigned=AssignedTasks({}, frozenset({A})))
    waiting = reconcile(copy, 6, Tasks(frozenset({A})), holders, Tasks())
    assert waiting.state is MemberState.UNRELEASED_TASKS
    assert waiting.assigned.standby == {A} and not waiting.pending_revocation
    del holders._active[A]
    promoted = reconcile(waiting, 6, Tasks(frozenset({A})), holders, None)
    assert promoted.state is MemberState.STABLE
    assert promoted.assigned == AssignedTasks({A: 6})


def test_a_member_of_an_unknown_state_begins_anew() -> None:
    strange = Member("m", 5, 4, MemberState(77), process_id="p")
    with pytest.raises(KafkaError, match="must abandon all its tasks and rejoin"):
        reconcile(strange, 7, Tasks(), TaskHolders(), None)
    assert reconcile(strange, 7, Tasks(), TaskHolders(), Tasks()).member_epoch == 7
