"""`ottla produce` and `ottla consume`, also beside kcat."""

import contextlib
import json
import os
import pty
import signal
import subprocess
import sys
from subprocess import PIPE

import pytest
from compat_tests.support.brokers import wait_until
from confluent_kafka import Producer

MANY, LINES = 20_000, 3_000
COMMAND = (sys.executable, "-m", "ottla")


@pytest.fixture
def lines(tmp_path):
    path = tmp_path / "lines.txt"
    path.write_text("".join(f"key{i}:value {i} {'x' * (i % 50)}\n" for i in range(LINES)))
    return path


@pytest.fixture
def given(tmp_path):
    """A file with this text, for -l."""

    def write(text: str | bytes) -> str:
        path = tmp_path / "given"
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return str(path)

    return write


@pytest.mark.parametrize("codec", ["none", "snappy", "zstd"])
def test_lines_go_in_and_come_out(ottla, created, lines, codec, servers, run, kcat):
    topic = created()
    ottla("produce", topic, "-l", str(lines), "-K", ":", "-z", codec, "-H", "header=h\u00e9", "-H", "none")
    assert ottla("consume", topic, "-e", "-q", "-K", ":").out == lines.read_text()
    # What kcat reads is what ottla has written, and the other way round.
    read = ("-t", topic, "-c", "100", "-f", "%p %o %T %k %K %s %S %h %%\\n")
    theirs = run(kcat, "-b", servers, "-C", "-q", *read)
    assert ottla("consume", "-q", *read).out.encode() == theirs.encode()
    assert "header=h\u00e9,none=NULL" in theirs
    run(kcat, "-b", servers, "-P", "-t", topic, "-z", codec, "-l", str(lines))
    assert ottla("consume", "-t", topic, "-qe", "-o", str(LINES)).out == lines.read_text()


def test_an_object_is_kcats_object(ottla, created, given, servers, run, kcat):
    topic = created()
    ottla("produce", topic, "-l", given("k:v\n:\nvalue alone\n"), "-K:", "-Z", "-H", "a=1", "-H", "b")
    theirs = [json.loads(line) for line in run(kcat, "-b", servers, "-C", "-t", topic, "-eqJ").splitlines()]
    assert [json.loads(line) for line in ottla("consume", topic, "-eqJ").lines] == theirs
    assert [(each["key"], each["payload"]) for each in theirs] == [("k", "v"), (None, None), (None, "value alone")]


def test_offsets_from_either_end_and_by_time(ottla, created, servers):
    topic = created()
    producer = Producer({"bootstrap.servers": servers})
    for index, value in enumerate("abcd"):
        producer.produce(topic, value, timestamp=1_700_000_000_000 + 1000 * index)
    assert producer.flush(60) == 0
    read = ("consume", topic, "-e", "-q", "-f", "%s %o,")
    assert ottla(*read).out == "a 0,b 1,c 2,d 3,"
    assert ottla(*read, "-o", "2").out == "c 2,d 3,"
    assert ottla(*read, "-o", "-1").out == "d 3,"
    assert ottla(*read, "-o", "-99").out == "a 0,b 1,c 2,d 3,"
    assert ottla(*read, "-o", "end").out == ""
    assert ottla(*read, "-o", "1", "-c", "2").out == "b 1,c 2,"
    assert ottla(*read, "-o", "s@1700000001000").out == "b 1,c 2,d 3,"
    # With an end it needs no -e.
    window = ("-o", "s@1700000001000", "-o", "e@1700000003000", "--follow")
    assert ottla(*read, *window).out == "b 1,c 2,"
    assert ottla(*read, "-o", "e@99999999999999", "--follow").out == "a 0,b 1,c 2,d 3,"
    beyond = ottla("consume", topic, "-e", "-o", "77")
    assert "offset 77" in beyond.err and f"% Reached end of topic {topic} [0] at offset 4: exiting" in beyond.err


def test_keys_choose_partitions_as_kafkas_clients_do(ottla, created, given, servers):
    topic = created(5)
    keys = [f"key{i}" for i in range(50)]
    ottla("produce", topic, "-l", given("".join(f"{key},ours\n" for key in keys)), "-K", ",")
    producer = Producer({"bootstrap.servers": servers, "partitioner": "murmur2"})
    for key in keys:
        producer.produce(topic, "theirs", key)
    assert producer.flush(60) == 0
    ottla("produce", topic, "-k", keys[0], "-l", given("ours\ntheirs\n"))
    ottla("produce", topic, "-p", "3", "-l", given("here\n"))
    found = [line.split() for line in ottla("consume", topic, "-eq", "-f", "%s %k %p\n").lines]
    ours, theirs = (sorted(each[1:] for each in found if each[0] == who) for who in ("ours", "theirs"))
    assert ours == theirs and len(ours) == 51
    assert ottla("consume", topic, "-eq", "-p", "3", "-f", "%s %p,").out.endswith("here 3,")
    assert ottla("consume", topic, "-eq", "-p", "0,1,2,3,4").out.count("\n") == 103
    assert "has no partition 9" in ottla("consume", topic, "-p", "9", status=1).err
    assert "has no partition 9" in ottla("produce", topic, "-p", "9", "-l", given("x\n"), status=1).err


def test_files_limits_and_a_copy_of_what_is_written(ottla, created, given):
    topic = created()
    path = given(b"one\0two\0\0three\n")
    assert ottla("produce", topic, "-l", path, "-D", "\\x00", "-c", "2", "-T").out == "one\0two\0"
    ottla("produce", topic, path)
    ottla("produce", "-t", topic, "--acks", "1", path)
    assert ottla("consume", topic, "-eq", "-D", "|").out == "one|two|" + "one\0two\0\0three\n|" * 2
    assert "cannot read /no/such" in ottla("produce", topic, "-l", "/no/such", status=2).err
    huge = given(bytes(2_000_000))
    assert "max.message.bytes" in ottla("produce", topic, huge, status=1).err


def test_topics_by_a_pattern_until_no_more_comes(ottla, created, given, unique):
    topics = [created() for _ in range(2)]
    for each in topics:
        ottla("produce", each, "-l", given("x\n"), "-q")
    begun = "^" + topics[0][:-8]
    for protocol in ((), ("--group-protocol", "classic"), ("--group-protocol", "consumer")):
        lines = []
        for idle in ("0.5", "2", "8"):  # a busy machine may need longer for the first record
            member = ("-g", unique("group"), *protocol) if protocol else ()
            lines = sorted(ottla("consume", begun, "-f", "%t\n", "--idle", idle, *member).lines)
            if len(lines) >= 2:
                break
        assert lines == sorted(topics)
    assert ottla("consume", begun, "-g", unique("group"), "--share", "-q", "--idle", "0.5").out == ""
    assert "no topic matches ^nothing" in ottla("consume", "^nothing", status=1).err
    assert "^(: " in ottla("consume", "^(", status=2).err


def test_aborted_and_open_transactions(ottla, created, servers, unique):
    topic = created()
    producer = Producer({"bootstrap.servers": servers, "transactional.id": unique("id")})
    producer.init_transactions(60)
    for value, end in (
        ("a", producer.commit_transaction),
        ("b", producer.abort_transaction),
        ("c", producer.commit_transaction),
    ):
        producer.begin_transaction()
        producer.produce(topic, value)
        producer.flush(60)
        end(60)
    producer.begin_transaction()
    producer.produce(topic, "d")
    assert producer.flush(60) == 0
    # The marker that ends a transaction may come to its partition a moment later.
    wait_until(lambda: ottla("consume", topic, "-eq").out == "a\nc\n", "committed records are there", 60)
    assert ottla("consume", topic, "-eq", "--isolation-level", "read_uncommitted").out == "a\nb\nc\nd\n"
    producer.abort_transaction(60)


def test_wrong_use(ottla, unique):
    for arguments, words in (
        (("consume",), "which topic?"),
        (("produce",), "which topic?"),
        (("consume", "t", "-f", "%q"), "%q is not known"),
        (("consume", "t", "-o", "soon"), "-o soon"),
        (("produce", "t", "-D", ""), "-D: a delimiter has"),
        (("consume", "t" * 40_000), "too long"),
        (("topics", "create", "\udcff"), "no text"),
    ):
        assert words in ottla(*arguments, status=2).err
    missing = unique("topic")
    assert f"ottla topics create {missing}" in ottla("consume", missing, status=1).err


# --- processes


@contextlib.contextmanager
def running(command: str, bootstrap: str, *arguments: str, **streams):
    """The command in a process of its own, which has ended at the end."""
    whole = [*COMMAND, command, "-b", bootstrap, "--timeout", "60", *arguments]
    with subprocess.Popen(whole, **{"stdout": PIPE, "stderr": PIPE} | streams) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.terminate()


@pytest.fixture
def producer(bootstrap):
    return Producer({"bootstrap.servers": bootstrap})


def test_a_terminal_is_safe_and_ctrl_c_ends(bootstrap, topic, producer):
    producer.produce(topic, b"\x1b]0;owned\x07" + b"x" * 100_000)
    assert producer.flush(60) == 0
    ours, theirs = pty.openpty()
    with running("consume", bootstrap, topic, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        shown = b""
        while b"% Reached end" not in shown:
            shown += os.read(ours, 65536)
        # It goes on until it is told to stop.
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
    os.close(ours)
    assert b"\x1b" not in shown and b"\\x1b]0;owned\\x07xxx" in shown and b"... (100,010 bytes)" in shown
    assert b"Traceback" not in shown


def test_a_closed_pipe_ends_it(bootstrap, topic, producer):
    for _ in range(MANY):
        producer.produce(topic, bytes(50))
    assert producer.flush(60) == 0
    with running("consume", bootstrap, "-q", topic) as process:
        assert process.stdout.readline() == bytes(50) + b"\n"
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(60) == 0


@pytest.mark.parametrize("more", [(), ("-g", "of-a-closed-pipe"), ("-g", "share-of-a-closed-pipe", "--share")])
def test_a_closed_pipe_ends_it_even_if_no_record_comes(bootstrap, topic, more):
    with running("consume", bootstrap, "-q", topic, *more) as process:
        process.stdout.close()
        assert process.wait(60) == 0
        assert process.stderr.read() == b""


def test_lines_are_written_as_they_are_typed(bootstrap, topic):
    with (
        running("consume", bootstrap, "-q", topic) as reading,
        running("produce", bootstrap, topic, stdin=PIPE) as writing,
    ):
        for line in (b"one\n", b"two\n"):
            writing.stdin.write(line)
            writing.stdin.flush()
            assert reading.stdout.readline() == line
        writing.stdin.write(b"three")
        writing.stdin.close()
        assert reading.stdout.readline() == b"three\n"
        assert writing.wait(60) == 0 and writing.stderr.read() == b""


def test_a_reader_goes_on_after_its_broker_was_restarted(start_broker):
    broker = start_broker({"num.partitions": "1"})
    _produce(broker.bootstrap, "one")
    with running("consume", broker.bootstrap, "-q", "topic") as reading:
        assert reading.stdout.readline() == b"one\n"
        broker.kill()
        broker.restart()
        _produce(broker.bootstrap, "two")
        assert reading.stdout.readline() == b"two\n"
        reading.send_signal(signal.SIGINT)
        assert reading.wait(60) == 0
        assert b"trying again" in reading.stderr.read()


def _produce(bootstrap: str, value: str) -> None:
    """By a new producer, which need not wait before it connects again."""
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce("topic", value)
    assert producer.flush(60) == 0
