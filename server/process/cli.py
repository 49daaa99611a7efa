"""The `ottla` command.

    ottla start [server.properties] [--override name=value ...]
    ottla cluster [--brokers 3] [--data folder] [--secure folder] [--override name=value ...]
    ottla certificates folder [--broker host ...] [--client name ...] [--days 825]
    ottla version

Exit codes: 0 stopped cleanly, 1 could not start or had to stop (port taken, data directory in use or not writable),
2 wrong use or bad configuration. Whatever goes wrong is one line on stderr. The banner and the one line
"listening on host:port" go to stdout when clients can connect; of a cluster it is "listening on host:port,host:port".

The broker is imported after the settings are read, so that a wrong setting is refused at once.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ottla import __version__

if TYPE_CHECKING:
    from ottla.server.auth.first_users import FirstUser
    from ottla.server.broker import Broker
    from ottla.server.settings.broker_config import BrokerConfig

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
BROKERS_MAX = 99
DAYS, DAYS_MAX = 825, 36_500

_DESCRIPTION = """\
A broker that Apache Kafka's clients, tools and Spark talk to as if it were Apache Kafka.
"""

_EXAMPLES = """\
examples:
  ottla start                                    listen on 127.0.0.1:9092, data in ~/.local/share/ottla
  ottla start server.properties                  take the settings from a file, by Apache Kafka's names
  ottla start --override log.dirs=/srv/ottla     set one, over the file
  ottla start --override listeners=PLAINTEXT://127.0.0.1:0
                                                 take any free port and print it
  ottla start server.properties --add-scram @users
                                                 begin with the SCRAM users of a file, one a line:
                                                 SCRAM-SHA-512=[name=admin,password=...]
"""

_START = """\
Runs a broker in the foreground until SIGTERM or Ctrl-C.

Settings have Apache Kafka's names. Without a file the broker listens on PLAINTEXT://127.0.0.1:9092, coordinates in
process (no ZooKeeper) and keeps its data in $XDG_DATA_HOME/ottla, which is ~/.local/share/ottla if that is not set.

Every log directory has an id. A start on one that turns up empty, or is another one, is refused: its disk may not be
mounted. If what it held is gone for good, start once with --accept-empty-log-dir.
"""

_CLUSTER = """\
Runs a cluster on this machine in the foreground until SIGTERM or Ctrl-C: ZooKeeper and several brokers, each a process of
its own on a free port of 127.0.0.1. ZooKeeper is Debian's (libzookeeper-java) or the one among pyspark's jars; it needs Java.

Data and logs are in one folder, and a second start with the same folder brings the same cluster back, at the same addresses
if their ports are still free. If a process ends, one line says so and it is not started again; when the command ends, in
whatever way, all its processes end.

With --secure clients and brokers show certificates to each other, and what a client needs is printed. A cluster that was
secured once stays so at its next starts.

Settings have Apache Kafka's names and go to all brokers. With three brokers or more the defaults are those of a cluster that
can do without one of them: default.replication.factor=3, min.insync.replicas=2, and the same for the internal topics
(offsets.topic.replication.factor, transaction.state.log.replication.factor, transaction.state.log.min.isr); with two brokers
2 and 1, with one broker 1 and 1. zookeeper.session.timeout.ms is 6000: so long it takes until a dead broker is missed.
"""

_CLUSTER_EXAMPLES = """\
examples:
  ottla cluster                                  three brokers, data in ~/.local/share/ottla/cluster
  ottla cluster --brokers 5 --data /srv/five     five, with their data in /srv/five
  ottla cluster --override num.partitions=6      one setting for all brokers
  ottla cluster --secure tls                     with TLS, and certificates of brokers and clients in tls/
"""

_CERTIFICATES = """\
Makes certificates for listeners that encrypt: an authority, brokers, and a client. Each broker and the client have a file
with key and certificate, and one with the settings that name it. What is in the folder already is left alone, so the
command can be given again for more brokers. The authority's key belongs on none of them.
"""

_CERTIFICATES_EXAMPLES = """\
examples:
  ottla certificates tls                         for a broker on this machine
  ottla start tls/localhost.properties           which listens on SSL://:9092
  ottla certificates tls --broker broker1.example --broker broker2.example --broker broker3.example
  ottla certificates tls --client shop           for another client of the same authority, called User:CN=shop
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.command == "version":
        print(f"ottla {__version__}")
        return EXIT_OK
    if options.command == "start":
        return _start(options.file, options.override, options.accept_empty_log_dir, options.add_scram)
    if options.command == "cluster":
        return _cluster(
            options.brokers, options.data, options.override, options.accept_empty_log_dir, options.secure
        )
    if options.command == "certificates":
        return _certificates(options.folder, options.broker, options.client, options.days)
    parser.print_help()
    return EXIT_USAGE


def _parser() -> argparse.ArgumentParser:
    plain = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="ottla", description=_DESCRIPTION, epilog=_EXAMPLES, formatter_class=plain)
    parser.add_argument("--version", action="version", version=f"ottla {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="command")
    start = commands.add_parser(
        "start", help="run a broker in the foreground", description=_START, epilog=_EXAMPLES, formatter_class=plain
    )
    start.add_argument(
        "file", nargs="?", type=Path, metavar="server.properties", help="settings, one name=value a line"
    )
    start.add_argument(
        "--override", action="append", default=[], metavar="name=value", help="one setting, over the file's; repeatable"
    )
    start.add_argument(
        "--add-scram",
        action="append",
        default=[],
        metavar="MECHANISM=[name=...,password=...]",
        help="a SCRAM user to begin with, if there is none of that name; @FILE has one a line; repeatable",
    )
    _add_accepted(start)
    _add_cluster(commands)
    _add_certificates(commands)
    commands.add_parser("version", help="print the version")
    return parser


def _add_cluster(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    plain = argparse.RawDescriptionHelpFormatter
    cluster = commands.add_parser(
        "cluster",
        help="run several brokers and their ZooKeeper on this machine",
        description=_CLUSTER,
        epilog=_CLUSTER_EXAMPLES,
        formatter_class=plain,
    )
    cluster.add_argument(
        "--brokers", type=_count, metavar="N", help="how many (default: as many as the folder has data of, or 3)"
    )
    cluster.add_argument(
        "--data", type=Path, metavar="FOLDER", help="where data and logs go (default: $XDG_DATA_HOME/ottla/cluster)"
    )
    cluster.add_argument(
        "--override", action="append", default=[], metavar="name=value", help="one setting for all brokers; repeatable"
    )
    cluster.add_argument(
        "--secure",
        type=Path,
        metavar="FOLDER",
        help="encrypt, and let in only who shows a certificate; they are in this folder, and made if they are not",
    )
    _add_accepted(cluster)


def _add_certificates(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    certificates = commands.add_parser(
        "certificates",
        help="make certificates for TLS",
        description=_CERTIFICATES,
        epilog=_CERTIFICATES_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    certificates.add_argument("folder", type=Path, metavar="FOLDER", help="where the files go")
    certificates.add_argument(
        "--broker",
        action="append",
        default=[],
        metavar="HOST",
        help="name or address that clients reach a broker by (default: localhost); repeatable",
    )
    certificates.add_argument(
        "--client", action="append", default=[], metavar="NAME", help="another client beside `client`; repeatable"
    )
    certificates.add_argument(
        "--days", type=_days, default=DAYS, metavar="N", help=f"how long the certificates are good (default: {DAYS})"
    )


def _days(text: str) -> int:
    if not text.isdecimal() or len(text) > 5 or not 1 <= int(text) <= DAYS_MAX:
        raise argparse.ArgumentTypeError(f"{text} is not a number from 1 to {DAYS_MAX}")
    return int(text)


def _add_accepted(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--accept-empty-log-dir",
        action="append",
        default=[],
        type=os.path.abspath,
        metavar="PATH",
        help="start although this log directory is empty or another one than it was; repeatable",
    )


def _count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= BROKERS_MAX:
        raise argparse.ArgumentTypeError(f"{text} is not a number from 1 to {BROKERS_MAX}")
    return int(text)


def _start(
    file: Path | None, overrides: Sequence[str], accepted_log_dirs: Sequence[str], add_scram: Sequence[str]
) -> int:
    with _importing():
        from ottla.server.settings.broker_config import ConfigError, load_config

    try:
        config = load_config(_texts(file, overrides))
        config = replace(config, accepted_log_dirs=tuple(accepted_log_dirs), first_users=_first_users(add_scram))
    except ConfigError as error:
        return _fail(str(error), EXIT_USAGE)
    return _run(config)


def _cluster(
    brokers: int | None,
    data: Path | None,
    overrides: Sequence[str],
    accepted_log_dirs: Sequence[str],
    secure: Path | None,
) -> int:
    from ottla.server.process.cluster_command import ClusterFailed, run_cluster
    from ottla.server.settings.broker_config import ConfigError

    try:
        run_cluster(brokers, data, _texts(None, overrides), accepted_log_dirs, secure)
    except ConfigError as error:
        return _fail(str(error), EXIT_USAGE)
    except ClusterFailed as error:
        return _fail(str(error), EXIT_FAILED)
    return EXIT_OK


def _certificates(folder: Path, brokers: Sequence[str], clients: Sequence[str], days: int) -> int:
    try:
        from ottla.server.process.certificates_command import CertificatesFailed, check_host, make_certificates
    except ImportError:
        return _fail("certificates are made with cryptography: pip install 'ottla[security]'", EXIT_FAILED)
    if not brokers and not clients:
        brokers = ["localhost"]
    for option, names in (("--broker", brokers), ("--client", clients)):
        for problem in filter(None, map(check_host, names)):
            return _fail(f"{option}: {problem}", EXIT_USAGE)
    if both := set(brokers) & set(clients):
        return _fail(f"--client: {min(both)} is the name of a broker", EXIT_USAGE)
    try:
        made = make_certificates(folder, brokers, days, clients)
    except CertificatesFailed as error:
        return _fail(str(error), EXIT_FAILED)
    print("\n".join(map(str, made)) or f"nothing to do: everything is in {folder}")
    return EXIT_OK


def _texts(file: Path | None, overrides: Sequence[str]) -> dict[str, str]:
    """Settings from the file, then from the command line."""
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
    for override in overrides:
        name, separator, text = override.partition("=")
        if not separator or not name.strip():
            raise ConfigError(f"--override {override}: must be name=value")
        texts[name.strip()] = text.strip()
    return texts


def _first_users(given: Sequence[str]) -> tuple[FirstUser, ...]:
    """The users of --add-scram. From a file nobody reads their passwords in the list of processes."""
    if not given:
        return ()
    from ottla.server.auth.first_users import MalformedUser, parse_first_user
    from ottla.server.settings.broker_config import ConfigError

    try:
        texts = [line for each in given for line in (_lines(each[1:]) if each.startswith("@") else [each])]
        return tuple(parse_first_user(text) for text in texts)
    except OSError as error:
        raise ConfigError(f"--add-scram: cannot read {error.filename}: {error.strerror}") from None
    except MalformedUser as error:
        raise ConfigError(f"--add-scram: {error}") from None


def _lines(path: str) -> list[str]:
    text = Path(path).read_text(encoding="utf-8", errors="surrogateescape")  # what is no UTF-8 is refused later
    return [line for line in text.splitlines() if line.strip()]


def _run(config: BrokerConfig) -> int:
    with _importing():
        import logging

        import trio

        from ottla.server.process.log_lines import LogFormatter
        from ottla.server.process.running import run_broker
        from ottla.server.serving import StartupError

    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LogFormatter())
    logging.basicConfig(level=logging.INFO, handlers=[handler])

    async def run() -> None:
        await run_broker(config, on_ready=announce)

    try:
        trio.run(run)
    except StartupError as error:
        return _fail(str(error), EXIT_FAILED)
    except KeyboardInterrupt:
        pass
    return EXIT_OK


@contextmanager
def _importing() -> Iterator[None]:
    """What is imported stays: collections of garbage would look at it again and again, for nothing."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def announce(broker: Broker) -> None:
    """Say what is running and where; the last line is the one that scripts wait for."""
    config = broker.config
    ports = {listener.name: listener.port for listener in broker.listeners}
    bound = [replace(each, port=ports[each.listener]) for each in config.listeners]
    told = {each.listener: config.advertised_endpoint(each.listener, each.port) for each in bound}
    listeners = [
        str(each) if str(each) == str(told[each.listener]) else f"{each} (advertised as {told[each.listener]})"
        for each in bound
    ]
    first = told[bound[0].listener]
    lines = [
        f"ottla {__version__}",
        f"  cluster id      {broker.cluster.cluster_id}",
        f"  node id         {config.node_id}",
        f"  data directory  {', '.join(str(path.absolute()) for path in config.log_dirs)}",
        f"  listeners       {', '.join(listeners)}",
        f"  try             kcat -b {_address(first.host, first.port)} -L",
    ]
    if config.ignored_settings:
        lines.append(f"  without effect  {', '.join(config.ignored_settings)}")
    lines.append(f"listening on {_address(bound[0].host or '0.0.0.0', bound[0].port)}")
    print("\n".join(lines), flush=True)


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _fail(message: str, code: int) -> int:
    line = " ".join(message.split())
    # A name from the file may hold characters that stderr cannot write.
    print(f"ottla: {line}".encode("utf-8", "backslashreplace").decode(), file=sys.stderr)
    return code
