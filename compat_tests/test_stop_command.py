"""`ottla stop` and a closed terminal end brokers, workers and clusters in order."""

import re
import signal
import subprocess
import sys
from urllib.request import urlopen

from compat_tests.support.brokers import OttlaProcess

PROGRAM = [sys.executable, "-m", "ottla"]


def _stopped(*words: str) -> str:
    done = subprocess.run([*PROGRAM, "stop", *words], check=True, capture_output=True, text=True, timeout=120)
    return done.stdout


def test_a_broker_ends_in_order_and_can_be_started_again(tmp_path):
    process = OttlaProcess(tmp_path, {}).start()
    assert _stopped("--data", str(process.data_dir)) == f"stopped: {process.data_dir} (pid {process.process.pid})\n"
    process.wait_for_clean_end()
    assert "stopping on SIGTERM" in process.log and (process.data_dir / ".kafka_cleanshutdown").exists()
    process.start()
    process.process.send_signal(signal.SIGHUP)
    process.wait_for_clean_end()
    assert "stopping on SIGHUP" in process.log


def test_each_broker_of_a_cluster_has_a_console_and_stop_ends_all(tmp_path):
    cluster = subprocess.Popen(
        [*PROGRAM, "cluster", "--brokers", "2", "--http", "0", "--data", str(tmp_path / "c")],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        said = []
        while not said or not said[-1].startswith("listening on"):
            said.append(cluster.stdout.readline())
            assert said[-1], said
        [told] = [line for line in said if "ottla stop" in line]
        assert told.rstrip().endswith(f"ottla stop --data {tmp_path / 'c'}")
        consoles = re.findall(r"^  (?:console|  of broker 2) +(http://127\.0\.0\.1:\d+/)$", "".join(said), re.MULTILINE)
        assert len(set(consoles)) == 2
        for url in consoles:
            with urlopen(url, timeout=60) as answer:
                assert answer.status == 200 and b"<title>" in answer.read()
        assert _stopped("--data", str(tmp_path / "c")) == f"stopped: {tmp_path / 'c'} (pid {cluster.pid})\n"
        assert cluster.wait(60) == 0
    finally:
        cluster.kill()
        cluster.communicate()
