"""kafka-acls of 4.4 and of 3.9: rules are added, listed and removed, and what is said about them is the same at Apache Kafka."""

import re
from collections.abc import Iterator

import pytest
from compat_tests.apache.brokers import ApacheKafka3, ApacheKafka4
from compat_tests.support.brokers import OttlaProcess, wait_until
from compat_tests.support.java_tools import JavaTools, Said

STANDARD = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
TOOLS = {"kafka_4": "org.apache.kafka.tools.AclCommand", "kafka_3": "kafka.admin.AclCommand"}


class Acls:
    """The tool of a release, at Ottla and at that release's broker."""

    def __init__(self, tools: JavaTools, name: str, ours: str, kafkas: str) -> None:
        self._tools = tools
        self._name = name
        self._brokers = ours, kafkas

    def run(self, *arguments: str) -> tuple[Said, Said]:
        ours, kafkas = (self._tools(self._name, "--bootstrap-server", each, *arguments) for each in self._brokers)
        return arranged(ours), arranged(kafkas)

    def change(self, *arguments: str) -> str:
        """What the tool says it does. What rules there are afterwards `list` asks: Kafka answers before it knows them."""
        ours, kafkas = (each._replace(out=before_the_rules(each.out)) for each in self.run(*arguments))
        assert ours == kafkas
        return ours.fine()

    def same(self, *arguments: str) -> Said:
        ours, kafkas = self.run(*arguments)
        assert ours == kafkas
        return ours

    def list(self, *arguments: str) -> str:
        """As soon as both say the same."""
        told: list[tuple[Said, Said]] = []

        def alike() -> bool:
            told.append(self.run("--list", *arguments))
            return told[-1][0] == told[-1][1]

        try:
            wait_until(alike, "both list the same")
        except AssertionError:
            assert told[-1][0] == told[-1][1]
        return told[-1][0].fine()


def arranged(said: Said) -> Said:
    """Rules come in the order of hash maps, and failures with the lines of a stack."""
    err = re.sub(r"^\tat .*\n|^\t\.\.\. \d+ more\n|^(SLF4J|log4j|WARNING):?.*\n", "", said.err, flags=re.MULTILINE)
    return Said(said.status, "\n".join(sorted(line.strip() for line in said.out.splitlines())), err)


def before_the_rules(out: str) -> str:
    """Without what the tool lists when it has changed something."""
    return "\n".join(line for line in out.splitlines() if "Current ACLs" not in line)


@pytest.fixture(scope="module")
def ottla(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OttlaProcess]:
    broker = OttlaProcess(tmp_path_factory.mktemp("ottla"), STANDARD)
    broker.start()
    yield broker
    broker.stop()


@pytest.fixture(scope="module", params=["kafka_4", pytest.param("kafka_3", marks=pytest.mark.long)])
def acls(request, ottla, java_tools, tmp_path_factory) -> Iterator[Acls]:
    authorizer = (
        {} if request.param == "kafka_4" else {"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer"}
    )
    kind = ApacheKafka4 if request.param == "kafka_4" else ApacheKafka3
    kafka = kind(tmp_path_factory.mktemp(request.param), STANDARD | authorizer)
    kafka.start()
    yield Acls(java_tools(request.param), TOOLS[request.param], ottla.bootstrap, kafka.bootstrap)
    kafka.stop()


def test_rules_of_every_kind(acls, unique):
    name = unique("x")
    topic, group, transaction = f"topic-{name}", f"group-{name}", f"transaction-{name}"
    alice, bob = f"--allow-principal=User:alice-{name}", f"--allow-principal=User:bob-{name}"
    added = (
        (alice, "--operation", "Read", "--operation", "Write", "--topic", topic),
        (bob, "--producer", "--topic", topic),
        (alice, bob, "--consumer", "--topic", topic, "--group", group),
        (bob, "--producer", "--transactional-id", transaction, "--idempotent", "--topic", topic),
        (alice, "--allow-host", "10.0.0.1", "--allow-host", "10.0.0.2", "--operation", "Describe", "--group", group),
        (f"--deny-principal=User:carol-{name}", "--deny-host", "10.0.0.3", "--operation", "All", "--topic", topic),
        (alice, "--operation", "All", "--topic", f"pre-{name}", "--resource-pattern-type", "prefixed"),
        (alice, "--operation", "Alter", "--operation", "ClusterAction", "--cluster"),
        (alice, "--operation", "Describe", "--delegation-token", f"token-{name}"),
        (alice, "--operation", "CreateTokens", "--user-principal", f"User:dave-{name}"),
    )
    for arguments in added:
        acls.change("--add", *arguments)
    assert "GROUP" in acls.list("--group", group)
    named = ("--topic", f"pre-{name}-more")
    assert "pre-" not in acls.list(*named)
    assert "PREFIXED" in acls.list(*named, "--resource-pattern-type", "match")
    assert "LITERAL" in acls.list("--topic", topic, "--resource-pattern-type", "any")
    assert "PREFIXED" not in acls.list("--topic", topic, "--resource-pattern-type", "literal")
    listed = acls.list("--principal", f"User:alice-{name}", "--principal", f"User:bob-{name}")
    assert "TRANSACTIONAL_ID" in listed and "CLUSTER" in listed and "carol" not in listed
    assert "USER" in acls.list("--principal", f"User:alice-{name}", "--user-principal", f"User:dave-{name}")
    acls.change("--remove", alice, "--operation", "Read", "--topic", topic, "--force")
    assert "operation=READ" in acls.list("--topic", topic)  # bob's
    acls.change("--remove", bob, "--consumer", "--topic", topic, "--group", group, "--force")
    acls.change("--remove", "--topic", topic, "--force")
    assert "alice" not in acls.list("--topic", topic)
    acls.change("--remove", *named, "--resource-pattern-type", "match", "--force")
    assert "pre-" not in acls.list(*named, "--resource-pattern-type", "match")
    for others in (("--group", group), ("--cluster",), ("--transactional-id", transaction)):
        acls.change("--remove", *others, "--force")
        acls.list(*others)
    acls.change("--remove", "--delegation-token", f"token-{name}", "--user-principal", f"User:dave-{name}", "--force")
    assert acls.list().strip() == ""


@pytest.mark.parametrize(
    "arguments",
    [
        ("--add", "--allow-principal", "alice", "--operation", "Read", "--topic", "t"),
        ("--add", "--allow-principal", "User:alice", "--operation", "IdempotentWrite", "--topic", "t"),
        ("--add", "--allow-principal", "User:alice", "--operation", "Read"),
        ("--add", "--operation", "Read", "--topic", "t", "--resource-pattern-type", "match"),
        ("--list", "--resource-pattern-type", "nonsense"),
    ],
)
def test_what_is_refused(acls, arguments):
    acls.same(*arguments)
