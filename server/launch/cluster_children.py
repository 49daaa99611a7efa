"""The processes of `ottla cluster`, and their files: settings, certificates, and Apache ZooKeeper's configuration."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import signal
import ssl
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

import trio

from ottla.replication.log.atomic_files import PRIVATE_FILE
from ottla.replication.system import dying_with_this_process, pidfd_open
from ottla.server.config.properties import MalformedProperties, format_properties, parse_properties


def write_settings(path: Path, texts: Mapping[str, str]) -> None:
    """Write a child's settings to a private file (command lines are public), atomically. Raises OSError."""
    unfinished = path.with_name(path.name + ".tmp")
    with suppress(FileNotFoundError):
        unfinished.unlink()  # a kill may have left one
    # A new one, and no link that somebody has put there.
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(format_properties(texts))
    unfinished.replace(path)


HOST_NAME: Final = "localhost"
DAYS: Final = 825


class NotSecured(Exception):
    """Raised if certificates are missing and cannot be made. The text is one line for the user."""


class Secured:
    """Certificates of `ottla cluster --secure FOLDER`, issued by one authority, and the settings that name them.

    Mutual TLS: who has the client's files may do everything; others are rejected. All brokers share one certificate,
    because all run on this machine. The constructor makes missing files; raises NotSecured if that fails.
    """

    def __init__(self, folder: Path) -> None:
        try:
            from ottla.server.launch.certificates_command import (
                AUTHORITY,
                CLIENT,
                CertificatesFailed,
                make_certificates,
            )
        except ImportError:
            raise NotSecured("certificates are made with cryptography: pip install 'ottla[security]'") from None
        self.folder = folder.absolute()
        try:
            make_certificates(self.folder, [HOST_NAME], DAYS)
        except CertificatesFailed as error:
            raise NotSecured(str(error)) from None
        self._authority, self._client = self.folder / AUTHORITY, self.folder / f"{CLIENT}.pem"
        self.client_properties = self.folder / f"{CLIENT}.properties"
        """Settings file for Kafka's tools, as --command-config takes it."""
        self.client_lines = _lines(self.client_properties)
        """Lines of that settings file."""

    def settings(self, host: str, port: int) -> dict[str, str]:
        """Return the TLS settings of a broker that listens at `host` and `port`."""
        return {
            "listeners": f"SSL://{host}:{port}",
            "security.inter.broker.protocol": "SSL",
            "ssl.client.auth": "required",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.folder / f"{HOST_NAME}.pem"),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self._authority),
        }

    def client_context(self) -> ssl.SSLContext:
        """Return the TLS context of a client. Raises OSError if its files cannot be used."""
        context = ssl.create_default_context(cafile=str(self._authority))
        context.load_cert_chain(self._client)
        return context

    @property
    def for_kcat(self) -> str:
        """Options of kcat for a secured cluster, with librdkafka's names."""
        named = {"security.protocol": "SSL", "ssl.ca.location": self._authority}
        named |= {"ssl.certificate.location": self._client, "ssl.key.location": self._client}
        return " ".join(f"-X {name}={value}" for name, value in named.items())


def _lines(file: Path) -> list[str]:
    try:
        texts = parse_properties(file.read_text(encoding="utf-8"))
    except (OSError, MalformedProperties) as error:
        raise NotSecured(f"cannot read {file}: {error}") from None
    return [f"{name}={text}" for name, text in texts.items()]


DEBIAN = Path("/usr/share/java/zookeeper.jar")
SERVER = "org.apache.zookeeper.server.ZooKeeperServerMain"
# A small heap, and flags that shorten the start.
JVM = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto", "-Djava.awt.headless=true")


class ZooKeeperMissing(Exception):
    """Raised if Java or ZooKeeper's jar is missing. The text is one line for the user."""


def zookeeper_command(configuration: Path) -> list[str]:
    """Return the command that runs Apache ZooKeeper on this machine in the foreground. Raises ZooKeeperMissing.

    The jar may come from Debian's package libzookeeper-java, or from a PySpark that is installed beside Ottla.
    """
    return [_java(), *JVM, "-cp", _class_path(), SERVER, str(configuration)]


def write_configuration(path: Path, *, data: Path, port: int) -> None:
    """Write the configuration of a ZooKeeper server on 127.0.0.1; short ticks allow session timeouts of 1 to 60 s."""
    settings = {
        "tickTime": "500",
        "minSessionTimeout": "1000",
        "maxSessionTimeout": "60000",
        "dataDir": str(data),
        "clientPort": str(port),
        "clientPortAddress": "127.0.0.1",
        # No limit: all brokers come from the same address.
        "maxClientCnxns": "0",
        # Its HTTP server would take port 8080.
        "admin.enableServer": "false",
        "autopurge.snapRetainCount": "3",
        "autopurge.purgeInterval": "1",
    }
    # java.util.Properties takes a backslash for an escape.
    path.write_text("".join([f"{name}={value}\n" for name, value in settings.items()]).replace("\\", "\\\\"))


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=f"{home}/bin") if home else None
    found = found or shutil.which("java")
    if found is None:
        raise ZooKeeperMissing(
            "ZooKeeper needs Java, and there is no `java`: install one (Debian: default-jre-headless)"
        )
    return found


def _class_path() -> str:
    if DEBIAN.exists():
        return str(DEBIAN)
    spark = importlib.util.find_spec("pyspark")
    for folder in () if spark is None else spark.submodule_search_locations or ():
        if any(Path(folder, "jars").glob("zookeeper-[0-9]*.jar")):
            return f"{folder}/jars/*"
    raise ZooKeeperMissing(
        f"there is no ZooKeeper: install Debian's libzookeeper-java ({DEBIAN}), or pyspark beside ottla, whose jars have one"
    )


SERVING: Final = b"listening on "
CONSOLE: Final = re.compile(rb"\n  console +(http://[!-~]{1,500})\n")
LOOK_AGAIN_S: Final = 0.1  # between two looks at a process whose end nobody tells


class Child:
    """Child process of a cluster. Its output is copied to a log file; a failed copy does not hide its end."""

    def __init__(self, name: str, command: list[str], log_path: Path) -> None:
        self.name, self.log_path = name, log_path
        self.exit_status: int | None = None
        self.console = ""
        """Address of the broker's console, from its banner; empty without one."""

        self.serving_or_ended, self.ended = trio.Event(), trio.Event()
        self.ended.set()  # until it is started
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None
        self._log_start = 0

    def start(self) -> None:
        """Start the process. Call this in the main thread: a child is killed when the thread that started it ends."""
        with open(self.log_path, "ab", opener=_for_us_alone) as log:
            self._log_start = log.tell()
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
                preexec_fn=dying_with_this_process(),  # noqa: PLW1509 - other threads write the tree's journal, and hold no lock that it needs
            )
        self.exit_status = None
        self.serving_or_ended, self.ended = trio.Event(), trio.Event()

    @property
    def pid(self) -> int:
        """Pid of the running or last process."""
        return self._process.pid if self._process is not None else 0

    async def until_ended(self) -> bool:
        """Copy the process's output to its log until it ends; return True if the process has ever served."""
        assert self._process is not None
        with suppress(OSError, trio.BrokenResourceError):  # what it says may be lost, its end may not
            await self._listen()
        has_served = self.serving_or_ended.is_set()
        await wait_for(self._process)
        self.exit_status = self._process.returncode
        self.serving_or_ended.set()
        self.ended.set()
        return has_served

    async def _listen(self) -> None:
        assert self._process is not None and self._process.stdout is not None
        with self._process.stdout as pipe:
            descriptor = os.dup(pipe.fileno())  # both Popen and the stream close theirs
        async with trio.lowlevel.FdStream(descriptor) as said:
            last = b""
            async for chunk in said:
                self._write_down(chunk)
                # The line may arrive in pieces.
                last = (last + chunk)[-4096:]
                if SERVING in last:
                    found = CONSOLE.search(last)
                    self.console = found[1].decode() if found else ""
                    self.serves()

    def _write_down(self, chunk: bytes | bytearray) -> None:
        # There may be no room, or somebody has put something else in the place of the log.
        with suppress(OSError), open(self.log_path, "ab", opener=_for_us_alone) as log:
            log.write(chunk)

    def serves(self) -> None:
        self.serving_or_ended.set()

    def signal(self, number: signal.Signals) -> None:
        if self._process is not None and not self.ended.is_set():
            self._process.send_signal(number)

    @property
    def end(self) -> str:
        """Text that says how the process ended: its exit status or signal."""
        assert self.exit_status is not None
        by = f"signal {-self.exit_status}" if self.exit_status < 0 else f"exit status {self.exit_status}"
        return f"has ended ({by}; its log is {self.log_path})"

    def epitaph(self) -> str:
        """Return one line about the end of the process.

        The line ends with the last line of the process's log, unless a signal ended it: then the log does not say why.
        """
        assert self.exit_status is not None
        if self.exit_status < 0:
            return f"{self.name} {self.end}"
        words: list[str] = []
        with suppress(OSError), self.log_path.open("rb") as log:
            # Not before this run: the log has the words of earlier ones.
            log.seek(max(self._log_start, self.log_path.stat().st_size - 4096))
            words = log.read().decode(errors="replace").split("\n")
        last = next((line.strip() for line in reversed(words) if line.strip()), "")
        return f"{self.name} {self.end}{': ' if last else ''}{last}"


def _for_us_alone(path: str, flags: int) -> int:
    return os.open(path, flags, PRIVATE_FILE)


async def wait_for(process: subprocess.Popen[bytes]) -> None:
    """Wait for the end of a process. No other function reaps the process, so its pid cannot be reused meanwhile."""
    with suppress(OSError):  # there is no descriptor for this; or it has ended, and somebody asked for its status
        if pidfd_open is not None:
            descriptor = pidfd_open(process.pid)
            try:
                await trio.lowlevel.wait_readable(descriptor)
            finally:
                os.close(descriptor)
    while process.poll() is None:
        await trio.sleep(LOOK_AGAIN_S)
