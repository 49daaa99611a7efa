"""Signals that end a command with a clean end of its own."""

from __future__ import annotations

import os
import signal

import pytest

from ottla.server.cli.records.paced_output import Interruption


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_that_comes_twice_leaves_the_clean_end_alone(number: signal.Signals) -> None:
    before = signal.signal(number, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt), Interruption():
            os.kill(os.getpid(), number)
        os.kill(os.getpid(), number)  # by `timeout`, to the whole group
    finally:
        signal.signal(number, before)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_that_comes_while_the_command_ends_leaves_that_alone(number: signal.Signals) -> None:
    before = signal.signal(number, signal.default_int_handler)
    try:
        with Interruption() as interruption:
            interruption.begin_end()
            os.kill(os.getpid(), number)
            if number == signal.SIGINT:
                with pytest.raises(KeyboardInterrupt):
                    os.kill(os.getpid(), number)
        if number != signal.SIGINT:
            os.kill(os.getpid(), number)
    finally:
        signal.signal(number, before)


def test_a_second_ctrl_c_ends_the_clean_end() -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt), Interruption():
            os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)
