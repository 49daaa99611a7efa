from ottla.groupcoord.effects import TimerKey, Timers

A, B = TimerKey("session", "group", "a"), TimerKey("session", "group", "b")


def test_keys_come_up_in_order_of_their_deadlines() -> None:
    timers = Timers()
    timers.schedule(A, 20)
    timers.schedule(B, 10)
    assert timers.next_deadline_ms() == 10
    assert timers.pop_due(9) is None
    assert [timers.pop_due(20), timers.pop_due(20), timers.pop_due(20)] == [B, A, None]
    assert timers.next_deadline_ms() is None and len(timers) == 0


def test_deadline_put_off_is_kept_to() -> None:
    timers = Timers()
    timers.schedule(A, 10)
    timers.schedule(A, 30)
    assert timers.pop_due(29) is None
    assert timers.next_deadline_ms() == 30
    assert timers.pop_due(30) == A


def test_deadline_brought_forward_comes_up_once() -> None:
    timers = Timers()
    timers.schedule(A, 30)
    timers.schedule(A, 10)
    assert timers.pop_due(10) == A
    assert timers.pop_due(30) is None


def test_cancelled_key_does_not_come_up() -> None:
    timers = Timers()
    timers.schedule(A, 10)
    timers.cancel(A)
    timers.cancel(B)
    assert timers.pop_due(10) is None and timers.deadline_ms(A) is None


def test_key_scheduled_again_after_cancelling_comes_up_at_the_new_time_only() -> None:
    timers = Timers()
    timers.schedule(A, 10)
    timers.cancel(A)
    timers.schedule(A, 20)
    assert timers.pop_due(15) is None
    assert [timers.pop_due(20), timers.pop_due(20)] == [A, None]


def test_keys_that_come_and_go_leave_nothing_behind() -> None:
    timers = Timers()
    for number in range(10_000):
        key = TimerKey("session", "group", str(number))
        timers.schedule(key, 1_000_000 + number)
        timers.cancel(key)
    assert len(timers._heap) < 200
