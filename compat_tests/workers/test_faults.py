"""Workers and their supervisor are killed, stopped and starved: nothing acknowledged is lost, and the others go on."""

import signal
import socket
import subprocess
import threading
import time

import pytest
from compat_tests.support.brokers import serve_until, wait_until
from compat_tests.support.workers import TREE, FillingWorkers, start_command
from compat_tests.test_restarts import read_all
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.server.cli.cli import main

TOPIC = "t"
MOMENTS = 5


def make_topic(workers, partitions=4):
    admin = AdminClient({"bootstrap.servers": workers.bootstrap})
    admin.create_topics([NewTopic(TOPIC, partitions)])[TOPIC].result(60)
    workers.wait_until_all_lead(TOPIC)


def write(workers, values, partitions=4):
    producer = Producer({"bootstrap.servers": workers.bootstrap})
    for number, value in enumerate(values):
        producer.produce(TOPIC, value, partition=number % partitions)
    assert producer.flush(60) == 0


def read(workers, partitions=4):
    return sorted(value for index in range(partitions) for _, value in read_all(workers.bootstrap, TOPIC, index))


class Load:
    """Writes with acks=all until it is stopped, and remembers what was acknowledged."""

    def __init__(self, bootstrap):
        self.acknowledged, self.sent = set(), 0
        self._is_over = threading.Event()
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "acks": "all", "enable.idempotence": True, "linger.ms": 1}
        )
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self):
        while not self._is_over.is_set():
            value = b"%d" % self.sent
            self._producer.produce(TOPIC, value, partition=self.sent % 4, on_delivery=self._on_delivery)
            self.sent += 1
            self._producer.poll(0)
            self._is_over.wait(0.001)

    def _on_delivery(self, error, message):
        if error is None:
            self.acknowledged.add(message.value())

    def wait_for_more(self, count=200):
        wanted = len(self.acknowledged) + count
        wait_until(lambda: len(self.acknowledged) >= wanted, "the load goes on", 60)

    def stop(self):
        self._is_over.set()
        self._thread.join()
        assert self._producer.flush(60) == 0


def test_what_is_killed_under_load_loses_nothing(start_workers):
    workers = start_workers()
    make_topic(workers)
    load = Load(workers.bootstrap)
    for name in ("worker 0", "worker 1", TREE, "worker 1", "worker 0"):
        load.wait_for_more()
        if name == TREE:
            workers.signal(name, signal.SIGKILL)
        else:
            workers.kill_worker(name)
    load.wait_for_more()
    load.stop()
    found = read(workers)
    assert len(load.acknowledged) == load.sent
    assert sorted(load.acknowledged) == found  # nothing is lost, and nothing is there twice
    assert "worker 1 has ended (signal 9, SIGKILL) and is started again" in workers.log
    # With the supervisor the kernel ends all others, and the next start has everything.
    workers.kill()
    workers.wait_until_all_have_ended()
    workers.restart()
    workers.wait_until_all_lead(TOPIC)
    assert read(workers) == found
    workers.stop()


def test_a_worker_that_ends_again_and_again_stays_down_alone(start_workers):
    workers = start_workers()
    make_topic(workers)
    kills = 0

    def begins_or_stays_down() -> bool:
        return is_down() or workers.present_log.count("worker 1 begins as process") > kills

    def is_down() -> bool:
        return "it stays down" in workers.log

    while not is_down():
        # Not when it serves again: six ends have to come within a minute, however slow the machine.
        workers.signal("worker 1", signal.SIGKILL)
        kills += 1
        wait_until(begins_or_stays_down, "it begins again, or stays down")
    assert kills > 5
    admin = AdminClient({"bootstrap.servers": workers.bootstrap})
    wait_until(lambda: list(admin.list_topics(timeout=60).brokers) == [1], "worker 0 is alone", 60)
    led = [index for index, each in admin.list_topics(TOPIC).topics[TOPIC].partitions.items() if each.leader == 1]
    producer = Producer({"bootstrap.servers": workers.bootstrap})
    for index in led:
        producer.produce(TOPIC, b"x", partition=index)
    assert (producer.flush(60), len(led)) == (0, 2)
    # Its port is kept for it all the same.
    with pytest.raises(OSError, match="in use"):
        socket.create_server(("127.0.0.1", int(workers.own_addresses[1].rpartition(":")[2])))
    workers.stop()


def stop_until_gone(workers, names):
    """SIGSTOP to workers until they count as gone, and then SIGCONT."""
    heard = "nothing was heard for 1000 ms"
    wanted = workers.present_log.count(heard) + len(names)
    for name in names:
        workers.signal(name, signal.SIGSTOP)
    wait_until(lambda: workers.present_log.count(heard) >= wanted, f"the sessions of {names} end", 60)
    if "worker 0" not in names:
        admin = AdminClient({"bootstrap.servers": workers.own_addresses[0]})
        wait_until(lambda: list(admin.list_topics(timeout=60).brokers) == [1], f"{names} count as gone", 60)
    for name in names:
        workers.signal(name, signal.SIGCONT)
    workers.wait_until_all_lead(TOPIC)


def test_what_stands_still_under_load_holds_up_nobody_else_and_loses_nothing(start_workers):
    workers = start_workers({"coordination.session.timeout.ms": "1000"})
    make_topic(workers)
    load = Load(workers.bootstrap)
    for names in (["worker 1"], ["worker 0"], ["worker 0", "worker 1"]):
        load.wait_for_more()
        stop_until_gone(workers, names)
    load.wait_for_more()
    workers.signal(TREE, signal.SIGSTOP)
    wait_until(lambda: "the holder of the tree does not answer" in workers.present_log, "the tree counts as gone", 60)
    workers.signal(TREE, signal.SIGCONT)
    workers.wait_until_all_lead(TOPIC)
    load.wait_for_more()
    load.stop()
    assert len(load.acknowledged) == load.sent
    assert sorted(load.acknowledged) == read(workers)
    assert "is started again" not in workers.present_log
    workers.stop()


def test_a_full_disk_of_one_worker_stops_its_partitions_alone(start_workers):
    workers = start_workers(kind=FillingWorkers)
    make_topic(workers)
    workers.full.touch()
    results = []
    producer = Producer({"bootstrap.servers": workers.bootstrap, "message.timeout.ms": 600_000})
    for index in range(4):
        producer.produce(TOPIC, b"x", partition=index, on_delivery=lambda error, _: results.append(error))
    serve_until(producer, lambda: len(results) >= 2, "the other worker goes on", 60)
    assert producer.flush(3) == 2, "those that have no room are tried again and again"
    workers.full.unlink()
    assert producer.flush(60) == 0
    assert results == [None] * 4
    write(workers, [b"y"] * 4)
    assert read(workers).count(b"y") == 4
    workers.stop()


AWAY = "The coordination tree is away, and its members wait until there is room"


def test_a_full_disk_of_the_tree_ends_nobody_and_a_journal_that_is_gone_ends_all(start_workers):
    workers = start_workers(kind=FillingWorkers)
    make_topic(workers)
    values = [b"%d" % number for number in range(40)]
    write(workers, values)
    workers.journal_full.touch()
    workers.signal(TREE, signal.SIGKILL)
    wait_until(lambda: AWAY in workers.log, "the tree is away", 60)
    # Who begins meanwhile waits, too, and does not use up its attempts.
    workers.signal("worker 1", signal.SIGKILL)
    wait_until(lambda: workers.present_log.count("worker 1 begins as process") == 2, "worker 1 begins again", 60)
    workers.journal_full.unlink()
    wait_until(lambda: workers.times_served_again("worker 1"), "worker 1 serves again", 60)
    workers.wait_until_all_lead()
    write(workers, values)
    assert read(workers) == sorted(values * 2)
    assert workers.present_log.count("is started again") == 2  # the tree and worker 1, once each
    # As below a mount point without its disk. A tree that began anew there would know of no topic.
    (workers.data_dir / "coordination.journal").rename(workers.directory / "away")
    workers.signal(TREE, signal.SIGKILL)
    assert workers.process.wait(60) == 1
    lines = [line for line in workers.present_log.splitlines() if line.startswith("ottla: ")]
    assert len(lines) == 1
    assert "is gone, or an older one is in its place. Is its disk mounted?" in lines[0]
    assert not (workers.data_dir / "coordination.journal").exists()
    (workers.directory / "away").rename(workers.data_dir / "coordination.journal")
    workers.launch()
    workers.wait_until_serving()
    workers.wait_until_all_lead(TOPIC)
    assert read(workers) == sorted(values * 2)
    workers.stop()


# --- the start


def refused(directory, settings, status=1):
    done = subprocess.run(start_command(directory, settings), check=False, capture_output=True, text=True, timeout=60)
    lines = [line for line in done.stderr.splitlines() if line.startswith("ottla: ")]
    assert done.returncode == status, done.stderr
    assert "Traceback" not in done.stderr
    assert len(lines) == 1, done.stderr
    return lines[0]


def test_all_stop_together_without_a_warning(start_workers):
    workers = start_workers({"num.workers": "3", "default.replication.factor": "3", "num.partitions": "6"})
    producer = Producer({"bootstrap.servers": workers.bootstrap, "acks": "all"})
    producer.produce("led-by-all", b"value")
    assert producer.flush(60) == 0
    workers.stop()
    last = workers.log.partition("stopping on SIGTERM")[2]
    assert last.count("stopping with all brokers of the cluster") == 3
    assert "WARN" not in last and "ERROR" not in last


def test_a_port_that_somebody_has_is_told_in_one_line(workers, tmp_path):
    own = workers.own_addresses[1].rpartition(":")[2]
    for port, count in ((workers.port, 2), (own, 1)):
        told = refused(tmp_path, {"num.workers": str(count), "listeners": f"PLAINTEXT://127.0.0.1:{port}"})
        assert told.startswith(
            f"ottla: port {port} is taken: is another broker running? Stop it, or change the port of "
        )


def test_nobody_else_starts_on_the_same_folder(workers, tmp_path):
    data = {"log.dirs": str(workers.data_dir)}
    assert "A broker in another process is using this directory" in refused(tmp_path, data)
    assert "A broker in another process is using this directory" in refused(tmp_path, data | {"num.workers": "2"})


def test_from_one_worker_to_four_and_back(start_workers, capsys):
    values = [b"%d" % number for number in range(100)]
    workers = start_workers({"num.workers": "1"})
    make_topic(workers)
    write(workers, values)
    workers.stop()
    assert not (workers.data_dir / "workers").exists()  # to the byte as if there were no such thing
    workers.settings["num.workers"] = "4"
    workers.restart()
    workers.wait_until_all_lead()
    assert read(workers) == sorted(values)
    spread(workers)
    admin = AdminClient({"bootstrap.servers": workers.bootstrap})
    wait_until(lambda: leaders(admin) == [1, 2, 3, 4], "all workers lead", 60)
    write(workers, values)
    workers.stop()
    told = refused(workers.directory, {"num.workers": "1"})
    assert "num.workers=1 leaves out" in told
    assert "ottla spread --workers 1" in told
    workers.restart()
    workers.wait_until_all_lead()
    spread(workers, "--workers", "1")
    workers.stop()
    workers.settings["num.workers"] = "1"
    workers.restart()
    assert read(workers) == sorted(values * 2)
    workers.stop()


def leaders(admin):
    return sorted({each.leader for each in admin.list_topics(timeout=60).topics[TOPIC].partitions.values()})


def spread(workers, *options):
    assert main(["spread", "-b", workers.bootstrap, "--timeout", "60", *options]) == 0


def test_a_signal_ends_a_start_at_any_moment(tmp_path):
    command = start_command(tmp_path, {"num.workers": "2", "node.id": "1"})
    began = time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as whole:
        whole.stdout.readline()
        start_s = time.monotonic() - began
        whole.send_signal(signal.SIGTERM)
        whole.communicate(timeout=60)
        assert whole.returncode == 0
    for moment in range(MOMENTS):
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as start:
            wait_until(lambda: catches(start.pid, signal.SIGTERM), "it catches signals", 60)
            time.sleep(start_s * moment / MOMENTS)
            start.send_signal(signal.SIGINT if moment % 2 else signal.SIGTERM)
            _, errors = start.communicate(timeout=60)
        assert (start.returncode, b"Traceback" in errors) == (0, False), errors.decode()


def catches(pid, number):
    with open(f"/proc/{pid}/status") as status:
        caught = next(line for line in status if line.startswith("SigCgt:"))
    return bool(int(caught.partition(":")[2], 16) & (1 << (number - 1)))
