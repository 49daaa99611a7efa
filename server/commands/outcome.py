"""How a command ends: its exit code, and one line on stderr if something went wrong."""

from __future__ import annotations

import sys

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_USAGE = 2


def fail(message: str, code: int) -> int:
    """Say what went wrong; returns the exit code."""
    line = " ".join(message.split())
    # A name from the file may hold characters that stderr cannot write.
    print(f"ottla: {line}".encode("utf-8", "backslashreplace").decode(), file=sys.stderr)
    return code
