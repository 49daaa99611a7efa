"""ottla test [--brokers N] [--topic NAME[:PARTITIONS]]... [--override name=value]... [--control HOST:PORT] -- COMMAND

Also what `ottla start --control` does: such a broker until a signal, with the control port.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

from ottla import __version__
from ottla.server.cli.command_line import EXIT_FAILED, EXIT_OK, EXIT_USAGE, fail
from ottla.server.config.broker_config import ConfigError
from ottla.server.config.server_config import parse_http_listener
from ottla.server.serving import StartupError
from ottla.server.standard_streams import announce
from ottla.server.testing.errors import LabError
from ottla.server.testing.kafka import Kafka
from ottla.wire.errors import KafkaError

VARIABLES: Final = ("OTTLA_BOOTSTRAP", "OTTLA_BOOTSTRAP_SERVERS", "KAFKA_BOOTSTRAP_SERVERS")
CONTROL: Final = "OTTLA_CONTROL"
CONTROL_TOKEN: Final = "OTTLA_CONTROL_TOKEN"
ENDING: Final = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
LISTENERS: Final = "PLAINTEXT://127.0.0.1:9092"
OF_DISKS: Final = ("log.dir", "log.dirs", "num.workers")
"""Settings of a broker on disks, which one in memory does without."""

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
  ottla test --profile kafka-2.8 -- npm test     with a broker that behaves as Kafka 2.8
  ottla test --control 127.0.0.1:0 -- go test    with a control port, whose URL is in OTTLA_CONTROL
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
    parser.add_argument(
        "--profile", metavar="NAME", help="behave as a release of Kafka or a hosted service, such as kafka-2.8"
    )
    add_control(parser)
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="-- COMMAND", help="the command to run")


def add_control(parser: argparse.ArgumentParser) -> None:
    """Add --control and --control-token."""
    what = "serve the control port there: a test's clock, faults and looks by HTTP; a broker in memory has it"
    parser.add_argument("--control", metavar="HOST:PORT", help=what)
    parser.add_argument(
        "--control-token",
        metavar="TOKEN",
        help=f"let only those use it who bring this token (default: ${CONTROL_TOKEN})",
    )


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
        with Kafka(options.brokers, settings, profile=options.profile) as kafka:
            for name, partitions in topics:
                kafka.topic(name, partitions)
            with _control(kafka, options.control, options.control_token) as url:
                return _run(command, kafka.bootstrap, url)
    except (LabError, ConfigError) as error:
        return fail(str(error), EXIT_USAGE)
    except (StartupError, KafkaError) as error:
        return fail(str(error), EXIT_FAILED)


def serve_controlled(texts: Mapping[str, str], control: str, token: str | None) -> int:
    """Run a broker in memory with a control port until SIGTERM or Ctrl-C; return the exit code. `texts`: its settings."""
    # Blocked before there are threads, which would take the signals otherwise.
    signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    settings = {name: text for name, text in texts.items() if name not in OF_DISKS}
    try:
        with Kafka(settings={"listeners": LISTENERS} | settings) as kafka, _control(kafka, control, token) as url:
            announce(
                [
                    f"ottla {__version__}, with its data in memory: nothing is kept when it ends",
                    f"  control         {url}/openapi.json",
                    "  stop            Ctrl-C stops it",
                    f"listening on {kafka.bootstrap}",
                ]
            )
            signal.sigwait(ENDING)
    except (LabError, ConfigError) as error:
        return fail(str(error), EXIT_USAGE)
    except (StartupError, KafkaError) as error:
        return fail(str(error), EXIT_FAILED)
    return EXIT_OK


@contextmanager
def _control(kafka: Kafka, address: str | None, token: str | None) -> Iterator[str | None]:
    """Serve the control port at HOST:PORT, or PORT on loopback, in this block; yields its URL. None: there is none."""
    if address is None:
        yield None
        return
    from ottla.server.testing.control.control import Control  # here, because it loads an HTTP server

    place = parse_http_listener(f":{address}" if address.isascii() and address.isdecimal() else address)
    if place is None:
        raise LabError(f"--control {address}: write HOST:PORT, or a PORT on loopback")
    try:
        control = Control(kafka, *place, token or os.environ.get(CONTROL_TOKEN) or None)
    except OSError as error:
        raise LabError(f"--control {address}: {error.strerror or error}") from None
    try:
        yield control.url
    finally:
        control.close()


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


def _run(command: Sequence[str], bootstrap: str, control: str | None) -> int:
    # The command gets Ctrl-C from the terminal itself, and decides what its end is.
    before = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        sys.stdout.flush()
        variables = {} if control is None else {CONTROL: control}
        process = subprocess.Popen(command, env=os.environ | dict.fromkeys(VARIABLES, bootstrap) | variables)
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
