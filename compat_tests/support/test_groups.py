"""Whoever asks a coordinator gets what it says, once it says something."""

import pytest
from compat_tests.support.groups import ask_coordinator
from confluent_kafka import KafkaError, KafkaException, TopicPartition


class Told:
    """One partition of an answer."""

    def __init__(self, offset: int, error: KafkaError | None = None) -> None:
        self.offset, self.error = offset, error


@pytest.mark.parametrize("offset", [0, 1, -1001])
def test_any_offset_is_an_answer(offset: int) -> None:
    answers = iter([[TopicPartition("t", 0, offset)]])
    assert ask_coordinator(lambda: next(answers)) == offset


def test_a_coordinator_that_moves_is_asked_again_however_it_says_so() -> None:
    moving = KafkaError(KafkaError.NOT_COORDINATOR)
    answers = iter([Told(7, moving), Told(0)])

    def ask() -> list[Told]:
        if not refused:
            refused.append(True)
            raise KafkaException(moving)
        return [next(answers)]

    refused: list[bool] = []
    assert ask_coordinator(ask) == 0


def test_any_other_refusal_is_told() -> None:
    with pytest.raises(AssertionError):
        ask_coordinator(lambda: [Told(0, KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED))])
