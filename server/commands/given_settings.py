"""Settings of the command line: those of a file, over them those of the environment if wanted, then those of --override."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

LOG_LEVELS = ("trace", "debug", "info", "warn", "error", "fatal")


def add_accept_empty_log_dir(command: argparse.ArgumentParser) -> None:
    """The option by which a start accepts a log directory that is empty or another one."""
    command.add_argument(
        "--accept-empty-log-dir",
        action="append",
        default=[],
        type=os.path.abspath,
        metavar="PATH",
        help="start although this log directory is empty or another one than it was; repeatable",
    )


def add_log_level(command: argparse.ArgumentParser) -> None:
    """The option that says what a broker logs."""
    command.add_argument(
        "--log-level",
        choices=LOG_LEVELS,
        default="info",
        help="from what level on lines are logged, by Apache Kafka's names (default: info)",
    )


def given_texts(file: Path | None, overrides: Sequence[str], *, with_environment: bool = False) -> dict[str, str]:
    """Settings by name, not yet read. Raises ConfigError."""
    from ottla.server.settings.broker_config import ConfigError
    from ottla.server.settings.properties import MalformedProperties, parse_properties

    texts: dict[str, str] = {}
    if file is not None:
        try:
            texts = parse_properties(file.read_text(encoding="utf-8", errors="surrogateescape"))
        except OSError as error:
            raise ConfigError(f"cannot read {file}: {error.strerror}") from None
        except MalformedProperties as error:
            raise ConfigError(f"cannot read {file}: {error}") from None
    if with_environment:
        from ottla.server.settings import environment  # a start without it does not pay for its patterns

        texts |= environment.settings_from_environment(os.environ)
    for override in overrides:
        name, separator, text = override.partition("=")
        if not separator or not name.strip():
            raise ConfigError(f"--override {override}: must be name=value")
        texts[name.strip()] = text.strip()
    if with_environment:
        environment.add_listeners(texts)
    return texts
