"""The error table."""

from ottla.wire.errors import ErrorCode, KafkaError


def test_codes_are_kafkas() -> None:
    assert ErrorCode.NONE == 0
    assert ErrorCode.UNKNOWN_SERVER_ERROR == -1
    assert ErrorCode(6) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert sorted(ErrorCode) == list(range(-1, 137))


def test_retriable_says_whether_a_client_may_try_again() -> None:
    assert ErrorCode.REQUEST_TIMED_OUT.retriable
    assert ErrorCode.NOT_COORDINATOR.retriable
    assert not ErrorCode.REBALANCE_IN_PROGRESS.retriable
    assert not ErrorCode.NONE.retriable


def test_every_error_explains_itself() -> None:
    assert all(code.message.endswith(".") for code in ErrorCode if code)
    assert ErrorCode.NONE.message == ""


def test_error_text_falls_back_to_the_codes_own() -> None:
    assert str(KafkaError(ErrorCode.INVALID_CONFIG, "segment.bytes is negative")) == (
        "INVALID_CONFIG: segment.bytes is negative"
    )
    error = KafkaError(ErrorCode.NOT_CONTROLLER)
    assert error.message is None
    assert str(error) == "NOT_CONTROLLER: This is not the correct controller for this cluster."


def test_a_text_that_quotes_too_much_is_shortened_to_fit() -> None:
    error = KafkaError(ErrorCode.INVALID_CONFIG, "Invalid value " + "\N{GRINNING FACE}" * 20_000)
    assert error.message is not None
    assert len(error.message.encode()) < 1 << 15
    assert error.message.startswith("Invalid value ")
    assert error.message.endswith("...")
