"""ottla test [--brokers N] [--topic NAME[:PARTITIONS]]... [--override name=value]... -- COMMAND"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from typing import Final

from ottla.server.cli.command_line import EXIT_FAILED, EXIT_USAGE, fail
from ottla.server.config.broker_config import ConfigError
from ottla.server.serving import StartupError
from ottla.server.testing.errors import LabError
from ottla.server.testing.kafka import Kafka
from ottla.wire.errors import KafkaError

VARIABLES: Final = ("OTTLA_BOOTSTRAP", "OTTLA_BOOTSTRAP_SERVERS", "KAFKA_BOOTSTRAP_SERVERS")
NOT_FOUND, NOT_RUNNABLE = 127, 126  # as shells have it

DESCRIPTION = """\
Starts a broker with its disk in memory, runs a command beside it, and ends with the command's exit code. The command, of any language,
finds the broker's address in OTTLA_BOOTSTRAP and in KAFKA_BOOTSTRAP_SERVERS. Nothing is left when it has ended.
"""

EXAMPLES = """\
examples:
  ottla test -- pytest -q                        a test suite that reads KAFKA_BOOTSTRAP_SERVERS
  ottla test --topic orders:3 -- npm test        with a topic of three partitions
  ottla test --brokers 3 -- ./gradlew test       with a cluster of three brokers
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `ottla test`: the brokers, what they begin with, and the command."""
    parser.add_argument("--brokers", type=int, default=1, metavar="N", help="run so many brokers (default: 1)")
    parser.add_argument(
        "--topic",
        action="append",
        default=[],
        metavar="NAME[:PARTITIONS]",
        help="create a topic first (may be repeated)",
    )
    parser.add_argument(
        "--override",
        action="append",
        default=[],
        metavar="name=value",
        help="a setting of the brokers (may be repeated)",
    )
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="-- COMMAND", help="the command to run")


def run(options: argparse.Namespace) -> int:
    """Run the command beside a broker; return its exit code, 128 + N if signal N ended it."""
    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    if not command:
        return fail(
            "no command is given; write it behind --, such as: ottla test -- pytest (ottla test --help)", EXIT_USAGE
        )
    try:
        settings = dict(_pair(each) for each in options.override)
        topics = [_topic(each) for each in options.topic]
        with Kafka(options.brokers, settings) as kafka:
            for name, partitions in topics:
                kafka.topic(name, partitions)
            return _run(command, kafka.bootstrap)
    except (LabError, ConfigError) as error:
        return fail(str(error), EXIT_USAGE)
    except (StartupError, KafkaError) as error:
        return fail(str(error), EXIT_FAILED)


def _pair(text: str) -> tuple[str, str]:
    name, found, value = text.partition("=")
    if not found:
        raise LabError(f"--override {text}: write name=value")
    return name, value


def _topic(text: str) -> tuple[str, int]:
    name, found, count = text.partition(":")
    if found and not (count.isascii() and count.isdecimal() and int(count[:9]) > 0):
        raise LabError(
            f"--topic {text}: the number of partitions is a whole number above 0, as in {name or 'orders'}:3"
        )
    return name, int(count) if found else 1


def _run(command: Sequence[str], bootstrap: str) -> int:
    # The command gets Ctrl-C from the terminal itself, and decides what its end is.
    before = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        sys.stdout.flush()
        process = subprocess.Popen(command, env=os.environ | dict.fromkeys(VARIABLES, bootstrap))
    except OSError as error:
        code = NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_RUNNABLE
        return fail(f"{command[0]} cannot be run: {error.strerror}", code)
    else:
        handed_on = signal.signal(signal.SIGTERM, lambda number, _: process.send_signal(number))
        try:
            code = process.wait()
        finally:
            signal.signal(signal.SIGTERM, handed_on)
        return code if code >= 0 else 128 - code
    finally:
        signal.signal(signal.SIGINT, before)
