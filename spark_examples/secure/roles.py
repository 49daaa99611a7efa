"""Roles of the pipeline: who logs in, which rights each one has, and the file with its way to the brokers.

`FOLDER/roles/ROLE.properties` holds Kafka's client settings, as Kafka's tools, `ottla --command-config` and, with `kafka.` before each name,
Spark take them. Whoever may read the file has the role: it is its user's only.
"""

import os
import re
from pathlib import Path
from typing import Any

ADMIN, SHOP, READER, WRITER, AUDITOR, STRANGER = "admin", "shop", "spark-reader", "spark-writer", "auditor", "stranger"
ROLES = (ADMIN, SHOP, READER, WRITER, AUDITOR, STRANGER)

CLICKS, COUNTS, DEAD = "clicks", "page-clicks", "clicks-dead"
GROUP_PREFIX = "spark-clicks"

RIGHTS = {
    # A producer needs Write alone; `ottla generate` would create the topic, and looks how long it keeps records.
    SHOP: [("WRITE", "TOPIC", CLICKS), ("CREATE", "TOPIC", CLICKS), ("DESCRIBE_CONFIGS", "TOPIC", CLICKS)],
    READER: [("READ", "TOPIC", CLICKS), ("READ", "GROUP", GROUP_PREFIX)],
    WRITER: [("WRITE", "TOPIC", COUNTS), ("WRITE", "TOPIC", DEAD)],
    AUDITOR: [("READ", "TOPIC", CLICKS), ("READ", "TOPIC", COUNTS), ("READ", "TOPIC", DEAD)],
}
"""Operation, kind of resource and its name; a group's is a prefix. Whatever is not here is denied, but to `admin`."""

QUOTAS = {READER: ("consumer_byte_rate", 25_000.0), WRITER: ("producer_byte_rate", 5_000.0)}
"""Bytes a second, so few that the job has to wait."""

LOGIN = re.compile(r'username="([^"]+)" password="([^"]+)"')


def file_of(folder: Path, role: str) -> Path:
    return folder / "roles" / f"{role}.properties"


def write(folder: Path, role: str, settings: dict[str, str]) -> None:
    file = file_of(folder, role)
    file.parent.mkdir(mode=0o700, exist_ok=True)
    with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as out:
        out.writelines(f"{name}={text}\n" for name, text in settings.items())


def read(file: Path) -> dict[str, str]:
    lines = file.read_text(encoding="utf-8").splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def settings_of(folder: Path, role: str) -> dict[str, str]:
    return read(file_of(folder, role))


def for_spark(folder: Path, role: str) -> dict[str, str]:
    """Options of Spark's source or sink."""
    return {f"kafka.{name}": text for name, text in settings_of(folder, role).items()}


def for_kafka_python(folder: Path, role: str) -> dict[str, Any]:
    """Arguments of kafka-python's clients."""
    settings = settings_of(folder, role)
    arguments = {
        "bootstrap_servers": settings["bootstrap.servers"].split(","),
        "security_protocol": settings["security.protocol"],
        "ssl_cafile": settings["ssl.truststore.location"],
    }
    if login := LOGIN.search(settings.get("sasl.jaas.config", "")):
        user, password = login.groups()
        mechanism = settings["sasl.mechanism"]
        arguments |= {"sasl_mechanism": mechanism, "sasl_plain_username": user, "sasl_plain_password": password}
    if key := settings.get("ssl.keystore.location"):
        arguments |= {"ssl_certfile": key, "ssl_keyfile": key}
    return arguments
