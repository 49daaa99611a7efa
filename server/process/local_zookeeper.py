"""An Apache ZooKeeper on this machine for a cluster on this machine: where its jar is, how it is configured and called.

Two places may have the jar: Debian's package libzookeeper-java, and the jars of a PySpark that is installed beside Ottla.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
from pathlib import Path

DEBIAN = Path("/usr/share/java/zookeeper.jar")
SERVER = "org.apache.zookeeper.server.ZooKeeperServerMain"
# A small heap, and flags that shorten the start.
JVM = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto", "-Djava.awt.headless=true")


class ZooKeeperMissing(Exception):
    """What has to be installed; one line for the user."""


def zookeeper_command(configuration: Path) -> list[str]:
    """The command that runs the server in the foreground; raises ZooKeeperMissing."""
    return [_java(), *JVM, "-cp", _class_path(), SERVER, str(configuration)]


def write_configuration(path: Path, *, data: Path, port: int) -> None:
    """A server on 127.0.0.1 with ticks so short that sessions of 1 to 60 seconds are granted."""
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
    path.write_text("".join(f"{name}={_escaped(value)}\n" for name, value in settings.items()))


def _escaped(value: str) -> str:
    """As java.util.Properties reads it back."""
    return value.replace("\\", "\\\\")


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
