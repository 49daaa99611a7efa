"""Reads a token from a file, where another program puts it."""

from __future__ import annotations

from pathlib import Path

from ottla.server.auth.oauth.client_first import TOKEN_CHARACTERS_MAX

ROOM = 100  # for white space around it; what is longer is no token


def read_token_file(path: Path) -> str:
    """What is in the file, up to more than a token may have. OSError, whose strerror says why there is nothing; blocks."""
    # A pipe or a device would hold whoever reads it for ever.
    if not path.is_file():
        raise OSError(None, "it is no file" if path.exists() else "there is no such file")
    with path.open("rb") as file:
        return file.read(TOKEN_CHARACTERS_MAX + ROOM).decode("latin-1")
