"""Messages on docs/troubleshooting.md: each is in the code of the program that prints it, and tests provoke many of them."""

import functools
import json
import re
import shutil
import socket
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import confluent_kafka
import kafka
import pytest
from compat_tests.apache.brokers import jars
from compat_tests.docs.log_lines import PACKAGES
from compat_tests.docs.pages import DOCS, ROOT, headings, parsed
from compat_tests.support.brokers import OttlaProcess, free_port, wait_until
from spark_examples.tests.submitting import JARS as SPARK_JARS

from ottla.server.cli.client.security import read_properties

PAGE = DOCS / "troubleshooting.md"
OWN = ("ottla", "broker")
WHO = (*OWN, "Java", "librdkafka", "kafka-python", "Spark")
KNOWN_MIN = 0.6
LEAST = 10
"""Fewest characters of a constant part that is looked for; shorter ones would be found anywhere."""

OF_THE_JDK = (
    "PKIX path building failed: sun.security.provider.certpath.SunCertPathBuilderException",
    "unable to find valid certification path to requested target",
    "No subject alternative names matching IP address ",
    "No name matching",
    "java.net.UnknownHostException: ",
)
OF_THE_SYSTEM = (
    "Connection refused",
    "Name or service not known",
    "Cannot assign requested address",
    "Permission denied",
    "No space left on device",
)

_EXAMPLES = re.compile(
    r"…|\(id: .*? rack: null isFenced: false\)|API_VERSIONS|\(after .*|ipv4#|localhost(?:/127\.0\.0\.1)?:\d+|127\.0\.0\.1:\d+(?:/bootstrap|/1)?|ottla:19092(?:/1)?|java\.net\.UnknownHostException: ottla"
    r"|orders-0|nosuch|\[orders\]|billing|SCRAM-SHA-256|\[?PLAIN\b\]?|'a b'|\d+ ?ms|-?\d+|failed due to|org\.apache\.kafka\.common\.errors\.\w+"
)


def messages() -> Iterator[tuple[str, str, str]]:
    """Yield (heading of the entry, program that prints it, message) for each message on the page."""
    heading = ""
    tokens = parsed(PAGE)
    for number, token in enumerate(tokens):
        if token.type == "heading_open":
            heading = "".join(child.content for child in tokens[number + 1].children or ())
        elif token.type == "fence" and token.info == "text":
            for line in token.content.splitlines():
                who, _, message = line.partition(": ")
                if who in WHO:
                    yield heading, who, message


def constant_parts(message: str) -> list[str]:
    """Return the parts of a message that are the same each time, without the short ones."""
    return [each.strip() for each in _EXAMPLES.split(message) if len(each.strip()) >= LEAST]


@functools.cache
def own_texts() -> str:
    """Return Ottla's source: strings that go over several lines are joined, and each placeholder is a line feed."""
    found = [*OF_THE_SYSTEM]
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            if "tests" not in path.parts:
                joined = re.sub(r"""(["'])\s+f?["']""", "", path.read_text())
                found.append(re.sub(r"%[-.\d]*[sdr]|\{[^{}]*\}", "\n", joined))
    return "\n".join(found)


@functools.cache
def texts_of(who: str) -> str:
    """Return the strings of a client's code, perhaps among other bytes. Skips the test if the client is not on this machine."""
    if who == "Java":
        jar = next(jars("kafka_4", tools=True).glob("kafka-clients-*.jar"))
        with zipfile.ZipFile(jar) as archive:
            classes = (archive.read(name) for name in archive.namelist() if name.endswith(".class"))
            return "\n".join([*OF_THE_JDK, b"\n".join(classes).decode("latin-1").replace("{}", "\n")])
    if who == "librdkafka":
        package = Path(confluent_kafka.__file__).parent
        library = next(package.parent.glob("confluent_kafka.libs/librdkafka*"), None)
        if library is None:
            pytest.skip("this confluent-kafka has no librdkafka of its own")
        return library.read_bytes().decode("latin-1")
    if who == "kafka-python":
        return "\n".join(path.read_text() for path in Path(kafka.__file__).parent.rglob("*.py")) + _of_python
    jar = next(SPARK_JARS.glob("*/spark-sql-kafka-*.jar"), None)
    if jar is None:
        pytest.skip("Spark's connector is not on this machine")
    with zipfile.ZipFile(jar) as archive:
        conditions = json.loads(archive.read("error/kafka-error-conditions.json"))
    texts = [each for one in conditions.values() for each in (one, *one.get("subClass", {}).values())]
    return "\n".join(re.sub(r"<\w+>", "\n", " ".join(each["message"])) for each in texts)


_of_python = "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: self-signed certificate in certificate chain"


def test_the_page_has_thirty_entries_and_each_message_names_its_program() -> None:
    lines = [
        line
        for token in parsed(PAGE)
        if token.type == "fence" and token.info == "text"
        for line in token.content.splitlines()
    ]
    assert [each for each in lines if each.partition(": ")[0] not in WHO and "removed 50 records" not in each] == []
    assert len(headings(PAGE)) > 40
    assert len({heading for heading, *_ in messages()}) >= 30
    assert {who for _, who, _ in messages()} == set(WHO)


def known_share(message: str, texts: str) -> float:
    """Return the share of the message's runs of three words that `texts` contains. Programs assemble messages, so it may be below 1."""
    words = [piece.split() for part in constant_parts(message) for piece in part.split(": ")]
    runs = [" ".join(each[at : at + 3]) for each in words for at in range(max(1, len(each) - 2))]
    return sum(run in texts for run in runs) / len(runs) if runs else 1


@pytest.mark.parametrize("who", WHO)
def test_messages_are_in_the_code_of_the_program_that_prints_them(who: str) -> None:
    """A client's message may contain an error message of the broker."""
    texts = own_texts() if who in OWN else own_texts() + texts_of(who)
    asked = [message for _, printer, message in messages() if printer == who]
    assert len(asked) >= 3
    assert {each: share for each in asked if (share := known_share(each, texts)) < KNOWN_MIN} == {}


def test_a_made_up_message_is_not_taken_as_known() -> None:
    for made_up in ("the broker is tired and will not answer", "port … is busy, so another broker seems to be running"):
        assert known_share(made_up, own_texts()) < KNOWN_MIN


def test_settings_of_clients_on_the_page_can_be_read(tmp_path: Path) -> None:
    blocks = [
        each.content for each in parsed(PAGE) if each.type == "fence" and each.content.startswith("# client.properties")
    ]
    assert len(blocks) == 2
    for number, block in enumerate(blocks):
        path = tmp_path / f"{number}.properties"
        path.write_text(block)
        assert read_properties(path, [])["security.protocol"]


class Trouble:
    """A broker with four listeners: a plain one, one with logins, one with TLS, and one whose advertised host does not exist."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._ottla("certificates", str(folder / "tls"), "--broker", "broker1.example")
        self.sasl, self.tls, self.lost = free_port(), free_port(), free_port()
        self.broker = OttlaProcess(folder, {})
        self.broker.port = free_port()
        addresses = f"PLAINTEXT://127.0.0.1:{self.broker.port},SASL_PLAINTEXT://127.0.0.1:{self.sasl},SSL://127.0.0.1:{self.tls}"
        self.broker.settings |= {
            "listeners": f"{addresses},LOST://127.0.0.1:{self.lost}",
            "advertised.listeners": f"{addresses},LOST://ottla.invalid:19092",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,SSL:SSL,LOST:PLAINTEXT",
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule"
            ' required user_alice="right";',
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(folder / "tls" / "broker1.example.pem"),
            "auto.create.topics.enable": "false",
            "log.retention.check.interval.ms": "500",
        }
        self.broker.start()
        for name, setting in (
            ("small", "max.message.bytes=2000"),
            ("keyed", "cleanup.policy=compact"),
            ("fresh", "retention.ms=-1"),
        ):
            assert "created" in self.ottla("topics", "create", name, "-p", "1", "-c", setting)

    def _ottla(self, *words: str, stdin: str = "") -> str:
        return _said([sys.executable, "-m", "ottla", *words], stdin)

    def ottla(self, *words: str, port: int = 0, stdin: str = "") -> str:
        return self._ottla(*words, "-b", f"127.0.0.1:{port or self.broker.port}", stdin=stdin)

    def kcat(self, *words: str, port: int = 0, stdin: str = "") -> str:
        if shutil.which("kcat") is None:
            pytest.skip("kcat is not on this machine")
        return _said(["kcat", "-b", f"127.0.0.1:{port or self.broker.port}", "-m", "3", *words], stdin)

    def again(self, **settings: str) -> str:
        """Run `ottla start` with these settings beside the broker, and return its output; the start is to fail."""
        own = {"listeners": f"PLAINTEXT://127.0.0.1:{free_port()}", "log.dirs": str(self.folder / "other")} | settings
        return self._ottla(
            "start", *(word for name, value in own.items() for word in ("--override", f"{name}={value}"))
        )


def _said(command: list[str], stdin: str) -> str:
    done = subprocess.run(
        command,
        input=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        timeout=120,
        check=False,
    )
    return done.stdout


@pytest.fixture(scope="module")
def trouble(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trouble]:
    found = Trouble(tmp_path_factory.mktemp("trouble"))
    yield found
    found.broker.stop()


def spoken_to(trouble: Trouble, said: bytes, expected: str) -> str:
    with socket.create_connection(("127.0.0.1", trouble.broker.port), timeout=60) as peer:
        peer.sendall(said)
        peer.recv(1000)
    wait_until(lambda: expected in trouble.broker.log, "the broker logs it")
    return trouble.broker.log


def old_records(trouble: Trouble) -> str:
    producer = confluent_kafka.Producer({"bootstrap.servers": trouble.broker.bootstrap})
    producer.produce("small", b"y", timestamp=1_600_000_000_000)
    assert producer.flush(60) == 0
    wait_until(lambda: "small-0: retention.ms=" in trouble.broker.log, "retention removes the record")
    return trouble.broker.log


def fenced(trouble: Trouble) -> str:
    def producer() -> confluent_kafka.Producer:
        made = confluent_kafka.Producer({"bootstrap.servers": trouble.broker.bootstrap, "transactional.id": "till"})
        made.init_transactions(60)
        return made

    first = producer()
    first.begin_transaction()
    first.produce("fresh", b"1")
    assert first.flush(60) == 0
    second = producer()
    errors: list[str] = []
    first.produce("fresh", b"2", on_delivery=lambda error, _: errors.append(str(error)))
    with pytest.raises(confluent_kafka.KafkaException) as raised:
        first.commit_transaction(60)
    del second
    wait_until(lambda: "is fenced, because" in trouble.broker.log, "the broker logs it")
    return f"{raised.value} Local: This instance has been fenced by a newer instance\n{trouble.broker.log}"


LOGIN = ("-X", "security.protocol=SASL_PLAINTEXT", "-X", "sasl.username=alice")
WRONG = (*LOGIN, "-X", "sasl.mechanism=PLAIN", "-X", "sasl.password=wrong")
TLS = ("-X", "security.protocol=SSL")
LARGE = "y" * 5000

SCENARIOS: dict[str, tuple[str, Callable[[Trouble], str]]] = {
    "refused": ("Connection refused, Broker transport failure", lambda at: at.kcat("-L", port=1) + at.kcat("-P", "-t", "fresh", port=1, stdin="x") + at.ottla("status", port=1)),
    "unknown host": (
        "Clients connect, and fail a moment later: advertised.listeners",
        lambda at: at.ottla("consume", "fresh", port=at.lost),
    ),
    "http": ("HTTP or TLS is spoken to the port: a frame of 1347375956 bytes", lambda at: spoken_to(at, b"POST / HTTP/1.1\r\n\r\n", "the peer speaks HTTP")),
    "tls": ("HTTP or TLS is spoken to the port: a frame of 1347375956 bytes", lambda at: at.kcat("-L", *TLS) + at.ottla("status", *TLS) + at.broker.log),
    "no tls": ("Disconnected while requesting ApiVersion: a listener with TLS", lambda at: at.kcat("-L", port=at.tls) + at.ottla("status", port=at.tls)),
    "password": ("SASL authentication failed", lambda at: at.kcat("-L", *WRONG, port=at.sasl) + at.ottla("status", *WRONG, port=at.sasl) + at.broker.log),
    "mechanism": (
        "Client SASL mechanism not enabled in the server",
        lambda at: at.kcat("-L", *LOGIN, "-X", "sasl.mechanism=SCRAM-SHA-256", "-X", "sasl.password=right", port=at.sasl),
    ),
    "no login": ("Disconnected: broker might require SASL authentication", lambda at: at.kcat("-L", port=at.sasl) + at.ottla("status", port=at.sasl)),
    "untrusted": ("SSL handshake failed: the certificate is not trusted", lambda at: at.kcat("-L", *TLS, port=at.tls) + at.ottla("status", *TLS, port=at.tls) + at.broker.log),
    "hostname": (
        "No subject alternative names matching: the hostname",
        lambda at: at.ottla("status", *TLS, "-X", f"ssl.truststore.location={at.folder}/tls/authority.pem", "-X", "ssl.truststore.type=PEM", port=at.tls),
    ),
    "unknown topic": ("UNKNOWN_TOPIC_OR_PARTITION", lambda at: at.kcat("-C", "-t", "nosuch", "-e") + at.ottla("consume", "nosuch")),
    "replicas": ("INVALID_REPLICATION_FACTOR", lambda at: at.ottla("topics", "create", "x", "-r", "3")),
    "name": ("INVALID_TOPIC_EXCEPTION", lambda at: at.ottla("topics", "create", "a b")),
    "large": ("MESSAGE_TOO_LARGE", lambda at: at.kcat("-P", "-t", "small", stdin=LARGE) + at.ottla("produce", "small", stdin=LARGE)),
    "no key": ("INVALID_RECORD: a compacted topic needs keys", lambda at: at.kcat("-P", "-t", "keyed", stdin="x") + at.ottla("produce", "keyed", stdin="x")),
    "retention": ("Records vanish", old_records),
    "offset": (
        "Offset out of range",
        lambda at: old_records(at) + at.kcat("-C", "-t", "small", "-o", "0", "-e", "-X", "auto.offset.reset=error") + at.ottla("consume", "small", "-o", "0", "-e"),
    ),
    "fenced": ("ProducerFenced, INVALID_PRODUCER_EPOCH", fenced),
    "port": ("The port is taken", lambda at: at.again(listeners=f"PLAINTEXT://127.0.0.1:{at.broker.port}")),
    "directory": ("The data directory is in use", lambda at: at.again(**{"log.dirs": str(at.broker.data_dir)})),
    "setting": ("Unknown setting", lambda at: at.again(**{"num.partition": "3"})),
    "address": ("Cannot listen", lambda at: at.again(listeners="PLAINTEXT://192.0.2.1:9092")),
    "log directory": ("Log directory is offline", lambda at: at.again(**{"log.dirs": "/proc/ottla"}).replace("ERROR ", "")),
}  # fmt: skip
NOT_MADE = {
    "unknown host": ("librdkafka", "kafka-python"),
    "http": ("librdkafka", "ottla"),
    "password": ("kafka-python",),
    "untrusted": (
        "kafka-python",
        "broker",
    ),  # the broker logs one failed handshake a minute from an address, and an earlier scenario has had it
    "replicas": ("librdkafka",),
    "name": ("librdkafka",),
    "unknown topic": ("kafka-python",),
    "large": ("kafka-python",),
}
"""Programs whose messages of an entry the scenario does not provoke. No scenario runs a client in Java."""


@pytest.mark.parametrize("name", SCENARIOS)
def test_programs_print_the_messages_of_the_page(name: str, trouble: Trouble) -> None:
    heading, make = SCENARIOS[name]
    lines = [
        message for at, who, message in messages() if at == heading and who not in ("Java", *NOT_MADE.get(name, ()))
    ]
    assert lines
    said = make(trouble)
    if name in ("http", "tls", "address"):  # the entry has a line for each of several causes
        assert any(all(part in said for part in constant_parts(each)) for each in lines), said
    else:
        missing = [part for each in lines for part in constant_parts(each) if part not in said]
        assert missing == [], said
