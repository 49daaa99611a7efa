"""Options that all commands have which speak to a cluster."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from ottla.server.client.cluster import Cluster, parse_bootstrap
from ottla.server.client.security import read_properties, security_of

BOOTSTRAP = "localhost:9092"
BOOTSTRAP_VARIABLE = "OTTLA_BOOTSTRAP_SERVERS"
TIMEOUT_S = 2.2
"""So that a command that finds no broker has said so after three seconds, its own start included."""

TIMEOUT_S_MAX = 3600.0


def add_connection(parser: argparse.ArgumentParser) -> None:
    """Where the cluster is, and how to speak to it."""
    group = parser.add_argument_group("connection")
    # Without defaults, because an action's parser would put its own over what was given before the action.
    group.add_argument(
        "-b",
        "--bootstrap-server",
        metavar="HOST:PORT",
        default=argparse.SUPPRESS,
        help=f"a broker, or several with commas (default: ${BOOTSTRAP_VARIABLE}, or {BOOTSTRAP})",
    )
    group.add_argument(
        "--command-config",
        type=Path,
        metavar="FILE",
        default=argparse.SUPPRESS,
        help="client.properties with Kafka's client settings of TLS and SASL",
    )
    group.add_argument(
        "-X",
        action="append",
        metavar="NAME=VALUE",
        default=argparse.SUPPRESS,
        dest="properties",
        help="one such setting, over the file's; repeatable",
    )
    group.add_argument(
        "--timeout",
        type=_seconds,
        metavar="S",
        default=argparse.SUPPRESS,
        help=f"how long to wait for a broker to answer at first, in seconds (default: {TIMEOUT_S:g})",
    )


def add_json(parser: argparse.ArgumentParser) -> None:
    """Whether a program reads."""
    parser.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="print JSON, for programs")


def wants_json(options: argparse.Namespace) -> bool:
    """Whether --json was given, before or after the action."""
    return bool(getattr(options, "json", False))


def client_settings(options: argparse.Namespace) -> dict[str, str]:
    """The settings that the options give by a file and by -X. WrongUse."""
    return read_properties(getattr(options, "command_config", None), getattr(options, "properties", []))


def reach(options: argparse.Namespace) -> Cluster:
    """The cluster that the options name. AskingFailed, WrongUse."""
    texts = client_settings(options)
    servers = getattr(options, "bootstrap_server", None) or os.environ.get(BOOTSTRAP_VARIABLE)
    servers = servers or texts.get("bootstrap.servers") or BOOTSTRAP
    timeout_s = getattr(options, "timeout", TIMEOUT_S)
    return Cluster.reached(parse_bootstrap(servers), security_of(texts), timeout_s)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 < seconds <= TIMEOUT_S_MAX:
        raise argparse.ArgumentTypeError(f"{text} is not a number of seconds from 0 to {TIMEOUT_S_MAX:g}")
    return seconds


def count(text: str) -> int:
    """A number from 1 on, as an option's type."""
    if not (text.isascii() and text.isdecimal() and len(text) < 19 and int(text) > 0):
        raise argparse.ArgumentTypeError(f"{text} is not a number from 1 on")
    return int(text)
