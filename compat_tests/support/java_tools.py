"""Kafka's command-line tools, many of them in one JVM: see Launcher.java. So are programs that use its clients."""

import contextlib
import struct
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from compat_tests.apache import brokers
from compat_tests.apache.brokers import bound_to_us, jars
from compat_tests.apache.class_sharing import shared

LAUNCHER = Path(__file__).parent / "Launcher.java"
FAST_START = (*brokers.FAST_START, "-Xmx256m")

_int = struct.Struct(">i")


class Said(NamedTuple):
    """How a tool ended, what it printed and what it complained of."""

    status: int
    out: str
    err: str

    def fine(self) -> str:
        """What it printed, if it ended well."""
        assert self.status == 0, f"exit status {self.status}:\n{self.out[-6000:]}\n{self.err[-6000:]}"
        return self.out


class OneJvm:
    """A JVM that runs classes one after the other: `one_jvm("Scenarios", "seek", ...)`.

    A class ends by `Exit.exit` of Kafka's clients, never by `System.exit`. If the JVM has ended all the same, the next class gets
    another one. It also gets another one if nobody has read the last answer to its end: that answer would be taken for its own.
    """

    def __init__(self, class_path: str, log: Path, options: Sequence[str] = FAST_START) -> None:
        self._command = [*bound_to_us(), "java", *options, "-cp", class_path, str(LAUNCHER)]
        self._log = log
        self._start()

    def _start(self) -> None:
        with self._log.open("ab") as errors:
            self.process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors)

    def __call__(self, class_name: str, *arguments: str, stdin: str = "") -> Said:
        if self.process.poll() is not None:
            self._start()
        try:
            return self._ask([class_name, *arguments], stdin)
        except BaseException:  # the time of a test is over, perhaps
            self.process.kill()
            self.close()
            raise

    def _ask(self, command: Sequence[str], stdin: str) -> Said:
        texts = [_text(each) for each in (*command, stdin)]
        self.process.stdin.write(_int.pack(len(command)) + b"".join(texts))
        self.process.stdin.flush()
        return Said(_int.unpack(self._read(4))[0], self._read_text(), self._read_text())

    def _read(self, count: int) -> bytes:
        data = self.process.stdout.read(count)
        assert len(data) == count, "the JVM has ended"
        return data

    def _read_text(self) -> str:
        return self._read(_int.unpack(self._read(4))[0]).decode(errors="replace")

    def close(self) -> None:
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.wait(timeout=60)
        self.process.stdout.close()


class JavaTools(OneJvm):
    """A JVM with a release's tools: `tools("org.apache.kafka.tools.TopicCommand", "--list", ...)`."""

    def __init__(self, release: str, log: Path) -> None:
        folder = jars(release, tools=True)
        super().__init__(f"{folder}/*", log, (*FAST_START, *shared("tools", folder)))


def _text(text: str) -> bytes:
    encoded = text.encode()
    return _int.pack(len(encoded)) + encoded
