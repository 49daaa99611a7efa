"""`ottla status` and `ottla topics`."""

import contextlib
import os
import pty
import subprocess
import sys


def test_the_status_counts_what_is_there(ottla, created, servers):
    before = ottla("status", "--json").json
    topic = created(3)
    after = ottla("status", "--json").json
    # Other tests may make topics of their own meanwhile, so the counts have no upper limit.
    assert after["topics"]["count"] >= before["topics"]["count"] + 1
    assert after["partitions"]["count"] >= before["partitions"]["count"] + 3
    assert not [each for each in after["partitions"]["offline"] if each.startswith(topic)]
    assert after["version"] == "4.4"
    [broker] = after["brokers"]
    assert (broker["address"], broker["id"], broker["leads"]) == (
        servers,
        after["controller"],
        after["partitions"]["count"],
    )
    told = ottla("status").out
    assert servers in told and "compatible with Apache Kafka 4.4" in told and after["cluster_id"] in told


def test_a_topics_life(ottla, unique):
    name = unique("topic")
    assert ottla("topics", "create", name, "-p", "3", "--dry-run").out == f"{name} could be created\n"
    create = ("create", name, "-p", "3", "-r", "1", "-c", "retention.ms=5000", "--config", "cleanup.policy=compact")
    assert ottla("topics", *create, "--json").json == [{"name": name, "created": True}]
    assert "is there already" in ottla("topics", *create, status=1).err
    assert ottla("topics", *create, "--if-not-exists").out == f"{name} is there already\n"
    [listed] = [each for each in ottla("topics", "--json").json if each["name"] == name]
    wanted = {"partitions": 3, "replicas": 1, "under_replicated": 0, "offline": 0, "internal": False}
    assert listed == {"name": name, **wanted}
    assert any(line.split() == [name, "3", "1", "0", "0"] for line in ottla("topics", "list").lines)
    [described] = ottla("topics", "describe", name, "--json").json
    own = {"retention.ms": "5000", "cleanup.policy": "compact"}
    assert {key: described["configs"].get(key) for key in own} == own
    assert [each["partition"] for each in described["partitions"]] == [0, 1, 2]
    assert all(each["isr"] == each["replicas"] == [each["leader"]] for each in described["partitions"])
    assert {(each["start_offset"], each["end_offset"]) for each in described["partitions"]} == {(0, 0)}
    assert len(described["id"]) == 22
    assert "segment.bytes" in ottla("topics", "describe", name, "--all-configs").out
    assert ottla("topics", "delete", "--yes", name).out == f"{name} is deleted\n"
    assert f"topics create {name}" in ottla("topics", "delete", "--yes", name, status=1).err


def test_refusals_are_the_brokers_own_words(ottla, unique):
    assert "INVALID_REPLICATION_FACTOR" in ottla("topics", "create", unique("topic"), "-r", "9", status=1).err
    assert "INVALID_CONFIG" in ottla("topics", "create", unique("topic"), "-c", "no.such=1", status=1).err
    misspelt = ottla("topics", "create", unique("topic"), "-c", "retention.msec=1", status=1).err
    assert misspelt.endswith("; did you mean retention.ms?\n")
    assert "INVALID_TOPIC_EXCEPTION" in ottla("topics", "create", "a/b", status=1).err
    assert "must be NAME=VALUE" in ottla("topics", "create", unique("topic"), "-c", "no.such", status=2).err


def test_tables_fit_a_terminal_and_are_whole_in_a_pipe(bootstrap, unique):
    topic = f"{unique('a')}.with-a_name.that-is.longer-than_the.terminal-is_wide"
    command = [sys.executable, "-m", "ottla", "topics", "-b", bootstrap, "--timeout", "60"]
    subprocess.run([*command, "create", topic, "-c", "retention.ms=5000"], check=True, capture_output=True)
    for what in ("list", "describe"):
        line = [*command, what, *([topic] if what == "describe" else [])]
        piped = subprocess.run(line, check=True, capture_output=True, text=True).stdout
        assert topic in piped and "\x1b" not in piped
        ours, theirs = pty.openpty()
        environment = {"COLUMNS": "80", "TERM": "xterm", "PATH": os.environ["PATH"]}
        with subprocess.Popen(line, stdout=theirs, stderr=theirs, env=environment) as process:
            os.close(theirs)
            shown = ""
            with contextlib.suppress(OSError):  # reading fails when the command has ended and closed the terminal
                while piece := os.read(ours, 65536).decode():
                    shown += piece
        os.close(ours)
        assert process.returncode == 0
        lines = shown.replace("\x1b[1m", "").replace("\x1b[0m", "").splitlines()
        assert max(map(len, lines)) <= 80
        assert topic in "".join(each.split("  ")[0 if what == "list" else -1].strip() for each in lines)
        assert "\x1b[1m" in shown


def test_a_misspelt_name_is_answered_with_the_nearest(ottla, created, tmp_path):
    topic = created()
    misspelt = f"{topic[:-4]}{topic[-3:]}"
    for arguments in (("topics", "describe", misspelt), ("topics", "delete", "--yes", misspelt), ("consume", misspelt)):
        wanted = (
            f"ottla: topic {misspelt} does not exist: did you mean {topic}? `ottla topics create {misspelt}` makes it\n"
        )
        assert ottla(*arguments, status=1).err == wanted
    assert "did you mean" not in ottla("consume", "\u20ac", status=1).err
    # These commands may mean a new group or topic, so they only warn.
    group = "a group of this test alone"
    ottla("groups", "reset", group, "--topic", topic, "--to-latest", "--execute")
    told = ottla("groups", "reset", f"{group}s", "--topic", topic, "--to-latest").err
    assert told == f"ottla: group {group}s does not exist yet: did you mean {group}?\n"
    (tmp_path / "records").write_text("x\n")
    told = ottla("produce", misspelt, "-l", str(tmp_path / "records")).err
    assert told == f"ottla: topic {misspelt} does not exist yet: did you mean {topic}?\n"
    assert ottla("produce", misspelt, "-l", str(tmp_path / "records")).err == ""


def test_nothing_is_deleted_that_nobody_has_agreed_to(ottla, created, monkeypatch):
    topic = created()
    monkeypatch.setattr("sys.stdin.isatty", lambda: False, raising=False)
    assert "give --yes" in ottla("topics", "delete", topic, status=2).err
    for answer in ("", "no\n", "yess\n"):
        monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
        monkeypatch.setattr("sys.stdin.readline", lambda answer=answer: answer, raising=False)
        asked = ottla("topics", "delete", topic, status=1).err
        assert f"Delete {topic} (1 partition) with all records? [y/N]" in asked
    assert topic in ottla("topics").out
    monkeypatch.setattr("sys.stdin.readline", lambda: "Y\n", raising=False)
    ottla("topics", "delete", topic)
    assert topic not in ottla("topics").out


def test_one_broker_has_nothing_to_spread(ottla, created, servers):
    created(3)
    found = ottla("spread", "--json").json
    assert (found["moved"], found["dry_run"], len(found["brokers"])) == ([], False, 1)
    assert "nothing to move: " in (dry := ottla("spread", "--dry-run").out) and dry.endswith("this is a dry run.\n")
    assert "the cluster has 1 brokers" in ottla("spread", "--workers", "2", status=2).err
    assert "--brokers: 99 is not there" in ottla("spread", "--brokers", "99", status=2).err
