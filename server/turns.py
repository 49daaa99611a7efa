"""Answering the many partitions of one request without holding the event loop."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

import trio

PARTITIONS_PER_TURN = 1_000

Topic = TypeVar("Topic")
Partition = TypeVar("Partition")
Answer = TypeVar("Answer")
Response = TypeVar("Response")


def answer_partitions(
    topics: Sequence[Topic],
    partitions_of: Callable[[Topic], Sequence[Partition]],
    answer: Callable[[Topic, Partition], Answer],
    respond: Callable[[list[list[Answer]]], Response],
) -> Response | Coroutine[Any, Any, Response]:
    """`respond` of the answers, one list per topic: at once if they are few, else giving way between pieces."""
    if sum(len(partitions_of(topic)) for topic in topics) <= PARTITIONS_PER_TURN:
        return respond([[answer(topic, each) for each in partitions_of(topic)] for topic in topics])
    return _answer_in_turns(topics, partitions_of, answer, respond)


async def _answer_in_turns(
    topics: Sequence[Topic],
    partitions_of: Callable[[Topic], Sequence[Partition]],
    answer: Callable[[Topic, Partition], Answer],
    respond: Callable[[list[list[Answer]]], Response],
) -> Response:
    answers: list[list[Answer]] = []
    count = 0
    for topic in topics:
        answers.append([])
        for each in partitions_of(topic):
            answers[-1].append(answer(topic, each))
            count += 1
            if count % PARTITIONS_PER_TURN == 0:
                await trio.lowlevel.checkpoint()
    return respond(answers)
