"""Keys are taken only from a terminal in whose foreground the command runs."""

import fcntl
import os
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path
from typing import IO

import pytest
import trio

from ottla.server.launch import cluster_control
from ottla.server.launch.cluster_control import Keyboard, keys, terminal

FAR_S = 60.0


def modes(file: IO[bytes]) -> int:
    return int(termios.tcgetattr(file)[3] & (termios.ICANON | termios.ECHO))


@pytest.fixture
def ends() -> Iterator[tuple[int, IO[bytes]]]:
    """Both ends of a terminal."""
    outer, inner = os.openpty()
    with os.fdopen(inner, "rb+", buffering=0) as file:
        yield outer, file
    os.close(outer)


def use(monkeypatch: pytest.MonkeyPatch, file: IO[bytes]) -> None:
    """From now on this process has its input from there. Only in a test itself: between its parts pytest has other streams."""
    monkeypatch.setattr(sys, "stdin", file)
    monkeypatch.setattr(sys, "stdout", file)


async def test_keys_come_one_by_one_and_the_terminal_is_left_as_it_was(ends, monkeypatch: pytest.MonkeyPatch) -> None:
    outer, inner = ends
    use(monkeypatch, inner)
    monkeypatch.setattr(cluster_control, "_is_in_foreground", lambda descriptor: True)
    before, pressed = modes(inner), list[str]()
    assert before

    async def note() -> None:
        assert keyboard is not None
        async for key in keys(keyboard):
            pressed.append(key)
            came.set()
        ended.set()

    ended, came = trio.Event(), trio.Event()
    with trio.fail_after(FAR_S):
        async with trio.open_nursery() as nursery:
            with terminal() as keyboard:
                assert modes(inner) == 0
                nursery.start_soon(note)
                for number, text in enumerate((b"1", b"\xff", b"2\n"), 1):
                    came = trio.Event()
                    os.write(outer, text)
                    await came.wait()
                    assert len(pressed) >= number
            await ended.wait()  # closed, while it waited
    assert "".join(pressed) == "1\ufffd2\n"
    assert modes(inner) == before


async def test_a_terminal_that_goes_ends_the_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_control, "_is_in_foreground", lambda descriptor: True)
    outer, inner = os.openpty()
    os.close(outer)
    with trio.fail_after(FAR_S):
        assert [key async for key in keys(Keyboard(inner))] == []
    os.close(inner)


async def test_nothing_is_read_in_the_background(ends, monkeypatch: pytest.MonkeyPatch) -> None:
    outer, inner = ends
    use(monkeypatch, inner)
    answers = iter([True, False, False])
    monkeypatch.setattr(cluster_control, "_is_in_foreground", lambda descriptor: next(answers, True))
    monkeypatch.setattr(cluster_control, "BACKGROUND_S", 0.001)
    with trio.fail_after(FAR_S), terminal() as keyboard:
        assert keyboard is not None
        os.write(outer, b"1")
        async with aclosing(keys(keyboard)) as pressed:
            assert await anext(pressed) == "1" and next(answers, None) is None


@pytest.mark.parametrize("has_begun", [True, False])
async def test_a_closed_terminal_is_not_waited_for_although_its_number_is_somebody_elses(
    ends, monkeypatch: pytest.MonkeyPatch, has_begun: bool
) -> None:
    _, inner = ends
    use(monkeypatch, inner)
    in_background = trio.Event()

    def is_in_foreground(descriptor: int) -> bool:
        if has_begun and is_opened:
            in_background.set()
        return not is_opened

    async def read() -> None:
        assert keyboard is not None
        assert [key async for key in keys(keyboard)] == []
        ended.set()

    is_opened, ended = False, trio.Event()
    monkeypatch.setattr(cluster_control, "_is_in_foreground", is_in_foreground)
    monkeypatch.setattr(cluster_control, "BACKGROUND_S", 0.01)
    with trio.fail_after(FAR_S):
        async with trio.open_nursery() as nursery, trio.open_nursery() as others:
            with terminal() as keyboard:
                assert keyboard is not None
                is_opened = True
                nursery.start_soon(read)
                if has_begun:
                    os.write(ends[0], b"1")
                    await in_background.wait()
            # Another task waits for the file that has the number now. It has to be free, or it is some other thread's.
            hears, tells = os.pipe()
            if hears != keyboard.descriptor:
                assert fcntl.fcntl(hears, fcntl.F_DUPFD, keyboard.descriptor) == keyboard.descriptor
            others.start_soon(trio.lowlevel.wait_readable, keyboard.descriptor)
            await ended.wait()
            os.write(tells, b"x")
        for each in {hears, tells, keyboard.descriptor}:
            os.close(each)


async def test_a_terminal_that_is_closed_after_its_reader_was_woken_is_not_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hears, tells = os.pipe()
    keyboard = Keyboard(hears)
    os.write(tells, b"of another file")
    monkeypatch.setattr(cluster_control, "_is_in_foreground", lambda descriptor: True)

    async def wait_readable(descriptor: int) -> None:
        await trio.lowlevel.checkpoint()
        keyboard.is_open = False

    monkeypatch.setattr(trio.lowlevel, "wait_readable", wait_readable)
    assert [key async for key in keys(keyboard)] == []
    assert os.read(hears, 100) == b"of another file"
    os.close(hears)
    os.close(tells)


async def test_who_is_not_in_the_foreground_of_its_terminal_has_no_keys(ends, monkeypatch: pytest.MonkeyPatch) -> None:
    """This process has another terminal, or none."""
    _, inner = ends
    use(monkeypatch, inner)
    before = modes(inner)
    with terminal() as keyboard:
        assert keyboard is None and modes(inner) == before


async def test_without_a_terminal_there_are_no_keys(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with (tmp_path / "file").open("w+") as file:
        for stdin in (file, None):
            monkeypatch.setattr(sys, "stdin", stdin)
            with terminal() as keyboard:
                assert keyboard is None


def test_a_command_in_a_pipe_imports_no_terminal() -> None:
    program = "import sys, ottla.server.launch.cluster_command; print('termios' in sys.modules)"
    assert (
        subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout == "False\n"
    )
