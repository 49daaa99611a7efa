"""ottla start [server.properties] [--port N] [--override name=value ...] [--settings-from-environment]

The broker is imported after the settings are read, so that a wrong setting is refused at once. The banner and the one line
"listening on host:port" go to stdout when clients can connect; the log goes to stderr.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.server.cli.command_line import (
    EXIT_FAILED,
    EXIT_OK,
    EXIT_USAGE,
    add_logs,
    add_overrides,
    fail,
    given_texts,
    port_number,
)
from ottla.server.standard_streams import announce

if TYPE_CHECKING:
    from ottla.server.broker import Broker
    from ottla.server.config.broker_config import BrokerConfig
    from ottla.server.config.environment import FromEnvironment
    from ottla.server.security.scram_users import FirstUser

logger = logging.getLogger("ottla.broker")

LOG_FORMATS = ("text", "json")
KAFKAS_WORDS = "[KafkaServer id={0}] started: Kafka Server started, Transitioning from RECOVERY to RUNNING"
"""Words of Kafka's log that testcontainers' modules wait for: ZooKeeper mode has the first ones, KRaft the others."""

DESCRIPTION = """\
Runs a broker in the foreground until SIGTERM or Ctrl-C.

Settings have Apache Kafka's names. Without a file the broker listens on PLAINTEXT://127.0.0.1:9092, coordinates in
process (no ZooKeeper) and keeps its data in $XDG_DATA_HOME/ottla, which is ~/.local/share/ottla if that is not set. Unless
you set it, group.initial.rebalance.delay.ms is 0 then, so that the first consumer of a group does not wait 3 s for others.

With --settings-from-environment, as in containers, variables such as OTTLA_NUM_PARTITIONS or KAFKA_NUM_PARTITIONS are settings:
_ stands for a dot, __ for an underscore, ___ for a hyphen. Variables of other images of Kafka are understood, or ignored with
a warning. Without listeners the broker is at localhost:9092 for the host, and at the container's name and port 19092 for
its network.

Every log directory has an id. A start on one that turns up empty, or is another one, is refused: its disk may not be
mounted. If what it held is gone for good, start once with --accept-empty-log-dir.

The log goes to stderr. `ottla configs loggers` changes its levels while the broker runs.
"""

EXAMPLES = """\
examples:
  ottla start                                    listen on 127.0.0.1:9092, data in ~/.local/share/ottla
  ottla start server.properties                  take the settings from a file, by Apache Kafka's names
  ottla start --override log.dirs=/srv/ottla     set one, over the file
  ottla start --port 9093                        listen on 127.0.0.1:9093; 0 takes any free port and prints it
  ottla start --http :9644                       console, health and metrics on http://127.0.0.1:9644
  ottla start --registry 8081                    a schema registry on http://127.0.0.1:8081
  ottla start --control 9098                     in memory, with clock and faults by HTTP, for tests
  ottla start --workers auto                     all cores: several brokers behind one bootstrap address
  ottla start server.properties --add-scram @users
                                     begin with the SCRAM users of a file, such as
                                     SCRAM-SHA-512=[name=a,password=b]
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `ottla start`: a settings file, and options that override its settings."""
    add = parser.add_argument
    add("file", nargs="?", type=Path, metavar="server.properties", help="settings, one name=value a line")
    add_overrides(parser, "one setting, over the file's; repeatable")
    port = "listen on 127.0.0.1:N; the same as --override listeners=PLAINTEXT://127.0.0.1:N"
    add("--port", type=port_number, metavar="N", help=port)
    http = (
        "serve console, health and metrics over HTTP, a PORT on loopback alone; the same as --override http.listener="
    )
    add("--http", metavar="HOST:PORT", help=http)
    registry = "serve a schema registry beside the broker, a PORT on loopback alone; it ends with the broker"
    add("--registry", metavar="HOST:PORT", help=registry)
    workers = "processes that serve, each a broker on a port of its own; auto: one for each processor; num.workers"
    add("--workers", metavar="N", help=workers)
    variables = "OTTLA_NUM_PARTITIONS=3 or KAFKA_NUM_PARTITIONS=3 is num.partitions=3, over the file's"
    add("--settings-from-environment", action="store_true", help=f"as in a container: {variables}")
    write = "let the console, which --http serves, make changes: topics, records, groups, rights; http.console.write"
    add("--console-write", action="store_true", help=write)
    user, users = "MECHANISM=[name=...,password=...]", "if there is none of that name; @FILE has one a line; repeatable"
    add("--add-scram", action="append", default=[], metavar=user, help=f"a SCRAM user to begin with, {users}")
    control = "keep all data in memory, and serve the control port of tests there (docs/testing.md)"
    add("--control", metavar="HOST:PORT", help=control)
    token = "who bring this token (default: $OTTLA_CONTROL_TOKEN)"
    add("--control-token", metavar="TOKEN", help=f"let only those use the control port {token}")
    add_logs(parser)
    form = "lines for people, or a JSON object a line (default: text)"
    add("--log-format", choices=LOG_FORMATS, default="text", help=form)


def run(options: argparse.Namespace) -> int:
    """Run a broker until a stop is requested; return the exit code."""
    with _without_collections():
        from ottla.server.config.broker_config import ConfigError, load_config

    try:
        environment = _environment() if options.settings_from_environment else None
        texts = _given(options, environment)
        users = _first_users(options.add_scram)
        if environment is not None:
            users += _complete(texts, environment)
        config = load_config(texts)
        if options.control is not None:
            # By its name, as the commands above this package are loaded.
            lab = importlib.import_module("ottla.server.testing.command")
            return int(lab.serve_controlled(texts, options.control, options.control_token))
        accepted = tuple(options.accept_empty_log_dir)
        config = replace(config, accepted_log_dirs=accepted, first_users=users)
        if environment is not None:
            config = replace(config, first_cluster_id=environment.cluster_id, first_topics=environment.topics)
    except ConfigError as error:
        return fail(str(error), EXIT_USAGE)
    count = _worker_count(config)
    if count == 1:
        return _run(config, environment, options.log_level.upper(), options.log_format, options.registry)
    if options.registry is not None:
        return fail("--registry: beside several workers run `ottla registry`", EXIT_USAGE)
    return _run_workers(texts, config, environment, count, options.log_level.upper(), options.log_format)


@contextmanager
def _without_collections() -> Iterator[None]:
    """Disable garbage collection in this block. Later collections skip the objects that the block has created."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def _worker_count(config: BrokerConfig) -> int:
    if config.workers.num_workers == "1":
        return 1
    from ottla.replication.system import processors

    return config.workers.count(processors())


def _environment() -> FromEnvironment:
    from ottla.server.config.environment import read_environment

    return read_environment(os.environ)


def _complete(texts: dict[str, str], environment: FromEnvironment) -> tuple[FirstUser, ...]:
    """Add listeners and logins of the environment to `texts`; return the SCRAM users that it names. Raises ConfigError."""
    from ottla.server.config.environment import add_listeners
    from ottla.server.config.environment_logins import add_logins

    add_listeners(texts)
    if not (users := add_logins(texts, environment.variables)):
        return ()
    from ottla.server.security.scram_credentials import ITERATIONS_MIN
    from ottla.server.security.scram_users import FirstUser

    return tuple(FirstUser(each.mechanism, each.name, each.password, b"", b"", ITERATIONS_MIN) for each in users)


def _tell(environment: FromEnvironment | None) -> None:
    """Log the notes and warnings about variables. `environment` None: settings do not come from variables."""
    if environment is not None:
        for line in environment.notes:
            logger.info("Environment: %s", line)
        for line in environment.warnings:
            logger.warning("Environment: %s", line)


def _given(options: argparse.Namespace, environment: FromEnvironment | None) -> dict[str, str]:
    from ottla.server.config.broker_config import ConfigError

    http = [] if options.http is None else [f"http.listener={_with_colon(options.http)}"]
    if http and (twice := next((each for each in options.override if each.startswith("http.listener=")), None)):
        raise ConfigError(f"--http {options.http}: --override {twice} is given, too; give one of them")
    http += ["http.console.write=true"] if options.console_write else []
    workers = [] if options.workers is None else [f"num.workers={options.workers}"]
    of_environment = None if environment is None else environment.texts
    texts = given_texts(options.file, [*options.override, *http, *workers], of_environment, options.port)
    if options.file is None and not of_environment:
        # As in the file that Kafka's own quickstart begins with.
        texts.setdefault("group.initial.rebalance.delay.ms", "0")
    if options.registry is not None:
        # The console decodes records with the schemas of this registry, and topics may require its schema ids.
        for name in ("http.console.schema.registry", "confluent.schema.registry.url"):
            texts.setdefault(name, _registry_url(options.registry))
    return texts


def _with_colon(text: str) -> str:
    """Return HOST:PORT as it is, and a PORT alone as :PORT, which is on this machine."""
    return f":{text}" if text.isascii() and text.isdecimal() else text


def _registry_url(text: str) -> str:
    """Return the schema registry's URL for `text`: HOST:PORT, or PORT on this machine. Raises ConfigError."""
    from ottla.server.config.broker_config import ConfigError
    from ottla.server.config.endpoint import host_and_port
    from ottla.server.config.server_config import parse_http_listener

    address = parse_http_listener(_with_colon(text))
    if address is None or not address[1]:
        raise ConfigError(f"--registry {text}: must be HOST:PORT, or a PORT on loopback")
    host = "127.0.0.1" if address[0] in ("0.0.0.0", "::") else address[0]
    return f"http://{host_and_port(host, address[1])}"


def _first_users(given: Sequence[str]) -> tuple[FirstUser, ...]:
    """Parse the values of --add-scram: a user, or @FILE with one user a line. Raises ConfigError.

    A file keeps passwords out of the list of processes.
    """
    if not given:
        return ()
    from ottla.server.config.broker_config import ConfigError
    from ottla.server.security.scram_users import MalformedUser, parse_first_user

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


def _run(
    config: BrokerConfig, environment: FromEnvironment | None, log_level: str, log_format: str, registry: str | None
) -> int:
    with _without_collections():
        import trio

        from ottla.server.config.loggers import set_up_log
        from ottla.server.launch.running import run_broker
        from ottla.server.serving import StartupError

    set_up_log(log_level, log_format)
    _tell(environment)
    announce_it = partial(_announce, for_scripts=_for_scripts(config, environment))

    async def run() -> None:
        if registry is None:
            await run_broker(config, on_ready=announce_it)
            return
        from ottla.server.launch.registry_child import run_with_registry

        more = ["--log-level", log_level.lower(), "--log-format", log_format]
        await run_with_registry(lambda ready: run_broker(config, on_ready=ready), registry, more, announce_it)

    try:
        trio.run(run)
    except StartupError as error:
        return fail(str(error), EXIT_FAILED)
    except KeyboardInterrupt:
        pass
    return EXIT_OK


def _run_workers(
    texts: Mapping[str, str],
    config: BrokerConfig,
    environment: FromEnvironment | None,
    count: int,
    log_level: str,
    log_format: str,
) -> int:
    with _without_collections():
        from ottla.server.config.broker_config import ConfigError
        from ottla.server.config.loggers import set_up_log
        from ottla.server.launch.workers_command import run_workers
        from ottla.server.serving import StartupError

    set_up_log(log_level, log_format)
    _tell(environment)
    try:
        run_workers(
            texts,
            config,
            count,
            log_level=log_level,
            log_format=log_format,
            for_scripts=_for_scripts(config, environment),
        )
    except ConfigError as error:
        return fail(str(error), EXIT_USAGE)
    except StartupError as error:
        return fail(str(error), EXIT_FAILED)
    return EXIT_OK


def _for_scripts(config: BrokerConfig, environment: FromEnvironment | None) -> str | None:
    """Return what scripts wait for that start images of Apache Kafka; None without an environment."""
    return None if environment is None else KAFKAS_WORDS.format(config.node_id)


def _announce(broker: Broker, *, for_scripts: str | None) -> None:
    """Print the running servers with their addresses. Scripts wait for the last of these lines, or for `for_scripts`."""
    from ottla.server.launch.banner import broker_banner

    announce(broker_banner(broker, for_scripts))
