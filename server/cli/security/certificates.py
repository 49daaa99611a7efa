"""ottla certificates folder [--broker host ...] [--client name ...] [--days 825]"""

from __future__ import annotations

import argparse
from pathlib import Path

from ottla.server.cli.command_line import EXIT_FAILED, EXIT_OK, EXIT_USAGE, fail

DAYS, DAYS_MAX = 825, 36_500

DESCRIPTION = """\
Makes certificates for listeners that encrypt: an authority, brokers, and a client. Each broker and the client have a file
with key and certificate, and one with the settings that name it. What is in the folder already is left alone, so the
command can be given again for more brokers. The authority's key belongs on none of them.
"""

EXAMPLES = """\
examples:
  ottla certificates tls                         for a broker on this machine
  ottla start tls/localhost.properties           which listens on SSL://:9092
  ottla certificates tls --broker broker1.example --broker broker2.example --broker broker3.example
  ottla certificates tls --client shop           for another client of the same authority, called User:CN=shop
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `ottla certificates`: the folder and the names in the certificates."""
    add = parser.add_argument
    add("folder", type=Path, metavar="FOLDER", help="where the files go")
    host = "name or address that clients reach a broker by (default: localhost); repeatable"
    add("--broker", action="append", default=[], metavar="HOST", help=host)
    add("--client", action="append", default=[], metavar="NAME", help="another client beside `client`; repeatable")
    add("--days", type=_days, default=DAYS, metavar="N", help=f"how long the certificates are good (default: {DAYS})")


def run(options: argparse.Namespace) -> int:
    """Create missing certificates, and print the names of the created files; return the exit code."""
    try:
        from ottla.server.launch.certificates_command import CertificatesFailed, check_host, make_certificates
    except ImportError:
        return fail("certificates are made with cryptography: pip install 'ottla[security]'", EXIT_FAILED)
    brokers, clients = options.broker, options.client
    if not brokers and not clients:
        brokers = ["localhost"]
    for option, names in (("--broker", brokers), ("--client", clients)):
        for problem in filter(None, map(check_host, names)):
            return fail(f"{option}: {problem}", EXIT_USAGE)
    if both := set(brokers) & set(clients):
        return fail(f"--client: {min(both)} is the name of a broker", EXIT_USAGE)
    try:
        made = make_certificates(options.folder, brokers, options.days, clients)
    except CertificatesFailed as error:
        return fail(str(error), EXIT_FAILED)
    print("\n".join(map(str, made)) or f"nothing to do: everything is in {options.folder}")
    return EXIT_OK


def _days(text: str) -> int:
    if not text.isdecimal() or len(text) > 5 or not 1 <= int(text) <= DAYS_MAX:
        raise argparse.ArgumentTypeError(f"{text} is not a number from 1 to {DAYS_MAX}")
    return int(text)
