"""Commands that speak to a cluster: their common options and actions, and how they end.

Failures and Ctrl-C end such a command without a traceback.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from ottla.server.cli.client.cluster import Cluster, parse_bootstrap
from ottla.server.cli.client.connection import CLIENT_ID, Address
from ottla.server.cli.client.output import RequestFailed, UsageError, shown_text
from ottla.server.cli.client.security import read_properties, security_of
from ottla.server.cli.command_line import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_USAGE, ONE_ADDRESS, fail, seconds

BOOTSTRAP = "localhost:9092"
BOOTSTRAP_VARIABLE = "OTTLA_BOOTSTRAP_SERVERS"
CLIENT_ID_BYTES_MAX = (1 << 15) - 1
"""Limit of a text in Kafka's protocol."""

TIMEOUT_S = 2.2
"""Default of --timeout, in seconds. With its own start, a command that finds no broker reports that within three seconds."""

Act = Callable[[Cluster, argparse.Namespace], int]
"""Run an action on a cluster; returns the exit code."""


def add_connection(parser: argparse.ArgumentParser) -> None:
    """Add the options for the cluster's address and the security of the connection."""
    group = parser.add_argument_group("connection")
    # Without defaults, because an action's parser would put its own over what was given before the action.
    add = partial(group.add_argument, default=argparse.SUPPRESS)
    where = f"a broker, or several with commas (default: ${BOOTSTRAP_VARIABLE}, or {BOOTSTRAP})"
    add("-b", "--bootstrap-server", metavar="HOST:PORT", help=where)
    file = "client.properties with Kafka's client settings of TLS and SASL"
    add("--command-config", type=Path, metavar="FILE", help=file)
    each = "one such setting, over the file's; repeatable"
    add("-X", action="append", metavar="NAME=VALUE", dest="properties", help=each)
    wait = f"how long to wait for a broker to answer at first, in seconds (default: {TIMEOUT_S:g})"
    add("--timeout", type=seconds, metavar="S", help=wait)


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add --json to the options."""
    parser.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="print JSON, for programs")


class Actions:
    """Actions of a command, such as `list` of `ottla topics`. Common options may come before or after the action."""

    def __init__(self, parser: argparse.ArgumentParser, default: str, act: Act) -> None:
        """`act` runs if the command line names no action. `default`: name of that action."""
        _add_common(parser, act)
        about = f"what is done (default: {default})"
        self._parsers = parser.add_subparsers(dest="action", metavar="ACTION", help=about)

    def add(self, name: str, what: str, act: Act) -> argparse.ArgumentParser:
        """Add an action; return its parser, for the action's own options."""
        parser = self._parsers.add_parser(name, help=what, description=what)
        _add_common(parser, act)
        return parser


def _add_common(parser: argparse.ArgumentParser, act: Act) -> None:
    add_connection(parser)
    add_json(parser)
    parser.set_defaults(act=act)


def wants_json(options: argparse.Namespace) -> bool:
    """Tell whether --json was given, before or after the action."""
    return bool(getattr(options, "json", False))


def client_settings(options: argparse.Namespace) -> dict[str, str]:
    """Return the client settings from --command-config and -X. Raises UsageError."""
    return read_properties(getattr(options, "command_config", None), getattr(options, "properties", []))


def bootstrap_addresses(options: argparse.Namespace, texts: Mapping[str, str]) -> list[Address]:
    """Return the bootstrap servers: from option, environment or client settings, else localhost. Raises UsageError."""
    given, address = getattr(options, "bootstrap_server", None), getattr(options, "address", None)
    if given and address:
        raise UsageError(ONE_ADDRESS)
    servers = given or address or os.environ.get(BOOTSTRAP_VARIABLE)
    return parse_bootstrap(servers or texts.get("bootstrap.servers") or BOOTSTRAP)


def read_input(option: str, file: str, bytes_max: int) -> bytes:
    """Read at most `bytes_max` bytes of the file that is the value of an option; "-" is stdin. Raises UsageError."""
    try:
        if file == "-":
            return b"" if sys.stdin is None else sys.stdin.buffer.read(bytes_max)
        with Path(file).open("rb") as opened:
            return opened.read(bytes_max)
    except OSError as error:
        raise UsageError(f"{option}: cannot read {file}: {error.strerror}") from None
    except ValueError:
        raise UsageError(f"{option}: {file!r} cannot be read: it is no name of a file") from None


def reach(options: argparse.Namespace) -> Cluster:
    """Connect to the cluster that the options name. Raises RequestFailed, UsageError."""
    texts = client_settings(options)
    timeout_s = getattr(options, "timeout", TIMEOUT_S)
    return Cluster.reached(bootstrap_addresses(options, texts), security_of(texts), timeout_s, _client_id(texts))


def _client_id(texts: Mapping[str, str]) -> str:
    """Return client.id of the client settings, else the commands' own. Raises UsageError if no request can have it."""
    client_id = texts.get("client.id") or CLIENT_ID
    try:
        size = len(client_id.encode())
    except UnicodeEncodeError:
        raise UsageError("client.id: is not UTF-8") from None
    if size > CLIENT_ID_BYTES_MAX:
        raise UsageError(f"client.id: is longer than {CLIENT_ID_BYTES_MAX} bytes")
    return client_id


def run_on_cluster(command: Callable[[Cluster], int], options: argparse.Namespace) -> int:
    """Connect to the cluster, call `command`, and return the exit code."""

    def connected() -> int:
        cluster = reach(options)
        try:
            return command(cluster)
        finally:
            cluster.close()

    return run_reporting(connected)


def run_reporting(command: Callable[[], int]) -> int:
    """Call `command`, report a failure in one line, and return the exit code."""
    try:
        return command()
    # A message of a broker becomes one line, and its control characters escapes.
    except UsageError as error:
        return fail(shown_text(str(error)), EXIT_USAGE)
    except RequestFailed as error:
        return fail(shown_text(str(error)), EXIT_FAILED)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except OSError as error:
        return fail(str(error), EXIT_FAILED)


def run_action(options: argparse.Namespace) -> int:
    """Run the action in the command line, or the default action; return the exit code."""
    act: Act = options.act
    return run_on_cluster(lambda cluster: act(cluster, options), options)
