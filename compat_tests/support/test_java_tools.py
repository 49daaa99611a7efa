"""Programs that share a JVM get their own answers. Here a program of Python speaks for the JVM."""

import contextlib
import sys

import pytest
from compat_tests.support import java_tools
from compat_tests.support.java_tools import OneJvm, Said

PROGRAM = """
import struct, sys
number = struct.Struct(">i")
def read(): return sys.stdin.buffer.read(*number.unpack(sys.stdin.buffer.read(4)))
while head := sys.stdin.buffer.read(4):
    *command, stdin = [read() for _ in range(number.unpack(head)[0] + 1)]
    if command == [b"ends"]:
        break
    text = b" ".join(command)
    sys.stdout.buffer.write(number.pack(0) + number.pack(len(text)) + text + number.pack(0))
    sys.stdout.buffer.flush()
"""


@pytest.fixture
def jvm(monkeypatch, tmp_path):
    monkeypatch.setattr(java_tools, "bound_to_us", lambda: [sys.executable, "-c", PROGRAM])
    with contextlib.closing(OneJvm("none", tmp_path / "log.txt")) as jvm:
        yield jvm


def test_whoever_is_interrupted_leaves_no_answer_for_the_next(jvm, monkeypatch):
    assert jvm("first", "argument") == Said(0, "first argument", "")

    def interrupted(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(OneJvm, "_read_text", interrupted)
        jvm("interrupted")
    assert jvm("next") == Said(0, "next", "")


def test_a_jvm_that_has_ended_takes_one_program_with_it(jvm):
    with pytest.raises(AssertionError, match="the JVM has ended"):
        jvm("ends")
    assert jvm("next") == Said(0, "next", "")
