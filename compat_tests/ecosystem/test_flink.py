"""Flink, exactly once: each running sum is written once, over a killed broker, a savepoint and a killed job."""

import subprocess
from pathlib import Path

import pytest
from compat_tests.applications.streams import make_topics
from compat_tests.ecosystem.programs import feed_by_parity, feeder, java_command, size, sums, values
from compat_tests.support.brokers import BrokerProcess, wait_until

pytestmark = pytest.mark.ecosystem
COUNT = 800
# As Flink's own scripts: it looks into classes of Java.
OPENED = ("java.lang", "java.net", "java.io", "java.nio", "java.time", "java.util", "java.util.concurrent")


class Job:
    """The job as a process, which begins again from a savepoint or a checkpoint."""

    def __init__(self, folder: Path, broker: BrokerProcess) -> None:
        opened = [f"--add-opens=java.base/{each}=ALL-UNNAMED" for each in OPENED]
        self.checkpoints = folder / "checkpoints"
        self._log = folder / "flink.txt"
        java = java_command("flink", "Sums", folder, *opened, "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")
        self._command = [*java, broker.bootstrap, "numbers", "sums", str(self.checkpoints)]
        self.process: subprocess.Popen[str] | None = None

    def start(self, *begin: str) -> None:
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                [*self._command, *begin], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
            )
        assert self._told("RUNNING") == ""

    def _told(self, word: str) -> str:
        line = self.process.stdout.readline().strip()
        assert line.startswith(word), f"{line}\n{self._log.read_text()[-4000:]}"
        return line.removeprefix(word).strip()

    def stop(self) -> str:
        """The path of the savepoint with which it stops."""
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        path = self._told("SAVEPOINT")
        assert self.process.wait(60) == 0
        return path

    def last_checkpoint(self) -> str:
        whole = [path.parent for path in self.checkpoints.glob("*/chk-*/_metadata")]
        return str(max(whole, key=lambda path: path.stat().st_mtime_ns))

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.communicate()


@pytest.mark.timeout(900)
def test_each_sum_is_written_once(start_broker, tmp_path):
    broker = start_broker()
    make_topics(broker.bootstrap, 2, "numbers", "sums")
    producer = feeder(broker.bootstrap)
    job = Job(tmp_path, broker)

    def write(quarter: int) -> None:
        feed_by_parity(producer, "numbers", range(quarter * COUNT // 4, (quarter + 1) * COUNT // 4))

    def committed(count: int) -> list[str]:
        return values(broker.bootstrap, "sums", lambda found: len(found) >= count)

    try:
        job.start()
        write(0)
        wait_until(lambda: size(broker.bootstrap, "sums") > 0, "the job has begun", 120)
        write(1)
        broker.kill()
        broker.restart()
        committed(COUNT // 2)
        savepoint = job.stop()
        write(2)
        job.start(savepoint)
        committed(3 * COUNT // 4)
        write(3)
        wait_until(lambda: size(broker.bootstrap, "sums") > 3 * COUNT // 4 + 10, "the job is in the middle", 120)
        job.kill()
        job.start(job.last_checkpoint())
        assert committed(COUNT) == sums(COUNT)
    finally:
        job.kill()
        assert producer.flush(60) == 0
