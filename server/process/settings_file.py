"""The settings of a child process as a file that only its user can read: everybody may see the arguments of a command."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path

from ottla.server.settings.properties import format_properties


def write_settings(path: Path, texts: Mapping[str, str]) -> None:
    """Put a new file in the place of the one that was there, if there was one. OSError: that one stays."""
    unfinished = path.with_name(path.name + ".tmp")
    with contextlib.suppress(FileNotFoundError):
        unfinished.unlink()  # a kill may have left one
    # A new one, and no link that somebody has put there.
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(format_properties(texts))
    unfinished.replace(path)
