"""The tests of clients that any broker has to pass, with four workers in its place.

Those that cannot pass are marked `one_broker`, with the reason. `OTTLA_COMPAT_WORKERS=4 make test ARGS=compat_tests/clients/test_kgo.py`
runs whatever else is wanted in this way.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CLIENTS = (
    "aiokafka",
    "confluent_kafka",
    "confluent_kafka_admin",
    "kafka_python",
    "kafkajs",
    "kcat",
    "kgo",
    "mixed_groups",
)
RUN_S = 280


@pytest.mark.long
@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.timeout(RUN_S + 20)
def test_clients_see_no_difference(client):
    """The shorter twins are in `test_clients.py`."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "--quiet",
        "-p",
        "no:cacheprovider",
        f"compat_tests/clients/test_{client}.py",
    ]
    own = {
        "OTTLA_COMPAT_WORKERS": "4",
        "OTTLA_COMPAT_BROKER": "",
        "OTTLA_COMPAT_GUARDED": "",
        "OTTLA_COMPAT_PORTABLE": "",
    }
    done = subprocess.run(
        command, check=False, text=True, capture_output=True, env=os.environ | own, cwd=ROOT, timeout=RUN_S
    )
    assert done.returncode == 0, done.stdout[-8000:]
    assert re.search(r"[1-9]\d* passed", done.stdout)
