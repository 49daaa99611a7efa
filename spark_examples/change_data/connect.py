"""Kafka Connect with Debezium's connector for PostgreSQL, as a process: `connect-standalone`, and the two files that it reads.

Maven brings the jars once, to a folder of the user's cache. A standalone worker keeps in a file how far it has come; after it was killed
it goes on from there, and writes again what came after the last time that it wrote that file.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
JSON = "org.apache.kafka.connect.json.JsonConverter"
OFFSETS_WRITTEN_MS = 1000
STOP_S = 60
LOG_SHOWN = 3000


def jars() -> Path:
    """The folder of the jars that pom.xml names; fetched with Maven the first time."""
    version = re.findall(r"<debezium.version>(.*)</", (HERE / "pom.xml").read_text())[0]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ottla"
    folder = cache / f"debezium-{version}"
    if folder.exists():
        return folder
    maven = shutil.which("mvn")
    if maven is None:
        sys.exit(
            "Debezium and Kafka Connect are fetched with Maven, and there is no mvn here (Debian: apt-get install maven)"
        )
    print("  Maven fetches Debezium and Kafka Connect, once", flush=True)
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as partial:
        goal = ["dependency:copy-dependencies", f"-DoutputDirectory={partial}/jars"]
        subprocess.run([maven, "-q", "-B", "-f", str(HERE / "pom.xml"), *goal], check=True)
        Path(partial, "jars").rename(folder)
    return folder


def worker_properties(bootstrap: str, folder: Path) -> dict[str, str]:
    return {
        "bootstrap.servers": bootstrap,
        "listeners": "http://127.0.0.1:0",
        "offset.storage.file.filename": str(folder / "offsets"),
        "offset.flush.interval.ms": str(OFFSETS_WRITTEN_MS),
        **{f"{which}.converter": JSON for which in ("key", "value")},
        **{f"{which}.converter.schemas.enable": "false" for which in ("key", "value")},
    }


def connector_properties(port: int, user: str, max_message_bytes: int) -> dict[str, str]:
    """What is captured: the table `accounts`, into the topic `bank.public.accounts`."""
    return {
        "name": "bank",
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "database.hostname": "127.0.0.1",
        "database.port": str(port),
        "database.user": user,
        "database.dbname": user,
        "plugin.name": "pgoutput",
        "publication.autocreate.mode": "filtered",
        "table.include.list": "public.accounts",
        "topic.prefix": "bank",
        # By default Debezium leaves TRUNCATE out, and nobody hears of it.
        "skipped.operations": "none",
        "topic.creation.default.partitions": "2",
        "topic.creation.default.replication.factor": "1",
        "topic.creation.default.max.message.bytes": str(max_message_bytes),
    }


class Connect:
    """Standalone worker of Kafka Connect with one connector."""

    def __init__(self, folder: Path, worker: dict[str, str], connector: dict[str, str]) -> None:
        """Its files and its log are in the folder."""
        folder.mkdir(parents=True, exist_ok=True)
        files = []
        for name, properties in (("worker", worker), ("connector", connector)):
            path = folder / f"{name}.properties"
            path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
            files.append(str(path))
        quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
        main = "org.apache.kafka.connect.cli.ConnectStandalone"
        self._command = ["java", "-Xmx512m", "-XX:TieredStopAtLevel=1", quiet, "-cp", f"{jars()}/*", main, *files]
        self._log = folder / "connect.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log)

    def require_running(self) -> None:
        """End the program if the worker has ended."""
        if self._process is None or self._process.poll() is not None:
            sys.exit(f"Kafka Connect has ended: {self.log_end()}")

    def log_end(self) -> str:
        """Return the last lines of the log, and where it is."""
        return f"{self._log}\n{self._log.read_text(errors='replace')[-LOG_SHOWN:]}"

    def kill(self) -> None:
        """SIGKILL: nothing is written that was not written before."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def close(self) -> None:
        """Let it write what it has read, and end."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                self.kill()
