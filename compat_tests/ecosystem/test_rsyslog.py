"""rsyslog's omkafka, of Debian: each line of a log file arrives, while the broker is killed."""

import shutil
from pathlib import Path

import pytest
from compat_tests.applications.streams import make_topics
from compat_tests.ecosystem.programs import Program, size, values

pytestmark = pytest.mark.ecosystem
COUNT = 3000

CONFIG = """\
global(workDirectory="{folder}")
module(load="imfile")
module(load="omkafka")
template(name="line" type="string" string="%msg%")
input(type="imfile" file="{file}" tag="numbers")
action(
    type="omkafka" broker=["{bootstrap}"] topic="lines" partitions.auto="on" template="line"
    confParam=["enable.idempotence=true"]
    resubmitOnFailure="on" keepFailedMessages="on" failedMsgFile="{folder}/failed"
    queue.type="LinkedList" action.resumeRetryCount="-1" action.resumeInterval="1"
)
"""


@pytest.mark.timeout(600)
def test_each_line_arrives_while_the_broker_is_killed(start_broker, tmp_path, wait_until):
    if not list(Path("/usr/lib").glob("*/rsyslog/omkafka.so")):
        pytest.skip("rsyslog-kafka is not on this machine (`make ecosystem` brings it)")
    broker = start_broker()
    make_topics(broker.bootstrap, 3, "lines")
    file, config = tmp_path / "numbers.log", tmp_path / "rsyslog.conf"
    file.touch()
    config.write_text(CONFIG.format(folder=tmp_path, file=file, bootstrap=broker.bootstrap))
    command = [shutil.which("rsyslogd", path="/usr/sbin"), "-n", "-f", str(config), "-i", str(tmp_path / "pid")]
    rsyslog = Program(command, tmp_path / "rsyslog").start()
    try:
        write(file, range(COUNT // 2))
        wait_until(lambda: size(broker.bootstrap, "lines") > 0, f"lines arrive: {rsyslog.log}")
        write(file, range(COUNT // 2, COUNT))
        broker.kill()
        broker.restart()
        wanted = {str(number) for number in range(COUNT)}
        found = values(broker.bootstrap, "lines", lambda found: wanted <= set(found))
        assert set(found) == wanted  # at least once, and nothing else
    finally:
        rsyslog.close()


def write(file: Path, numbers: range) -> None:
    with file.open("a") as log:
        log.writelines(f"{number}\n" for number in numbers)
