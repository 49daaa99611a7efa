"""collectd's write_kafka, of Debian: each value that it is told arrives."""

import json
import shutil
import socket
from pathlib import Path

import pytest
from compat_tests.applications.streams import make_topics, take
from compat_tests.ecosystem.programs import Program, size

pytestmark = pytest.mark.ecosystem
COUNT = 500

CONFIG = """\
Hostname "machine"
BaseDir "{folder}"
PIDFile "{folder}/pid"
TypesDB "/usr/share/collectd/types.db"
LoadPlugin unixsock
LoadPlugin write_kafka
<Plugin unixsock>
  SocketFile "{folder}/socket"
</Plugin>
<Plugin write_kafka>
  Property "metadata.broker.list" "{bootstrap}"
  Property "enable.idempotence" "true"
  <Topic "values">
    Format JSON
  </Topic>
</Plugin>
"""


@pytest.mark.timeout(600)
def test_each_value_arrives_once_while_the_broker_is_killed(start_broker, tmp_path, wait_until):
    if (daemon := shutil.which("collectd", path="/usr/sbin:/usr/bin")) is None:
        pytest.skip("collectd is not on this machine (`make ecosystem` brings it)")
    broker = start_broker()
    make_topics(broker.bootstrap, 2, "values")
    folder = Path(tmp_path / "collectd")
    folder.mkdir()
    config = folder / "collectd.conf"
    config.write_text(CONFIG.format(folder=folder, bootstrap=broker.bootstrap))
    collectd = Program([daemon, "-f", "-C", str(config)], folder).start()
    try:
        wait_until((folder / "socket").exists, f"collectd listens: {collectd.log}")
        tell(folder / "socket", range(COUNT // 2))
        wait_until(lambda: size(broker.bootstrap, "values") > 0, "values arrive")
        broker.kill()
        tell(folder / "socket", range(COUNT // 2, COUNT))
        broker.restart()
        found = take(broker.bootstrap, "values", lambda found: len(found) >= COUNT)
    finally:
        collectd.close()
    assert sorted(json.loads(value)[0]["values"][0] for _, value in found) == list(range(COUNT))


def tell(path: Path, numbers: range) -> None:
    """Values of one gauge, a second apart, by collectd's text protocol."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(str(path))
        answers = sock.makefile()
        for number in numbers:
            value = f"{1_700_000_000 + number}:{number}"
            sock.sendall(f'PUTVAL "machine/test/gauge-number" interval=1 {value}\n'.encode())
            assert answers.readline().startswith("0 Success")
        answers.close()
