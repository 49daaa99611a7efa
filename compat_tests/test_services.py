"""A broker as a service: of systemd, of a workflow, of Kubernetes. The files of docs/examples/ are held against their schemas."""

import os
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from compat_tests.support.brokers import OttlaProcess, free_port

from ottla.server.config.broker_config import load_config
from ottla.server.config.environment import add_listeners, read_environment

yaml = pytest.importorskip("yaml")
ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "docs" / "examples"
SCHEMA_OF = {
    EXAMPLES / "github-actions.yaml": "vendor.github-workflows",
    ROOT / "compose.yaml": "vendor.compose-spec",
} | {file: "vendor.github-workflows" for file in sorted((ROOT / ".github" / "workflows").glob("*.yaml"))}
KUBERNETES = "1.33"
# prctl(PR_SET_MDWE, PR_MDWE_REFUSE_EXEC_GAIN), as MemoryDenyWriteExecute= means it; kernels before 6.3 refuse.
NO_CODE_IN_MEMORY = (
    "import ctypes, os, sys; ctypes.CDLL(None).prctl(65, 1, 0, 0, 0); os.execv(sys.argv[1], sys.argv[1:])"
)


class Heard:
    """The socket of a service manager."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(path))

    def next(self, timeout_s: float = 60) -> str | None:
        return self._socket.recv(4096).decode() if select.select([self._socket], [], [], timeout_s)[0] else None

    def until(self, line: str) -> None:
        deadline = time.monotonic() + 60
        while line not in (text := self.next() or "").splitlines():
            assert text and time.monotonic() < deadline, f"not heard: {line}"

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def heard(tmp_path):
    heard = Heard(tmp_path / "notify")
    yield heard
    heard.close()


def test_systemd_hears_of_start_life_and_stop(heard, tmp_path):
    broker = OttlaProcess(tmp_path, {})
    broker.inside = ["env", f"NOTIFY_SOCKET={heard.path}", "WATCHDOG_USEC=200000"]
    broker.inside += [sys.executable, "-c", NO_CODE_IN_MEMORY]
    broker.start()
    try:
        heard.until("READY=1")
        heard.until("WATCHDOG=1")
        heard.until("WATCHDOG=1")
    finally:
        broker.terminate()
    heard.until("STOPPING=1")
    broker.wait_for_clean_end()


STUCK = """
import os, sys, trio
from ottla.server.launch.running import ServiceManager

async def main():
    manager = ServiceManager.of(os.environ)
    manager.serving()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(manager.keep_informed)
        while True:
            await trio.sleep(0.2)
            print("stuck", flush=True)
            sys.stdin.readline()  # holds the loop

trio.run(main)
"""


def test_a_stuck_event_loop_is_noticed_and_shows_its_stacks(heard, tmp_path):
    own = os.environ | {"NOTIFY_SOCKET": str(heard.path), "WATCHDOG_USEC": "50000"}
    process = subprocess.Popen(
        [sys.executable, "-c", STUCK], text=True, env=own,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        heard.until("WATCHDOG=1")
        assert process.stdout.readline() == "stuck\n"
        while heard.next(0) is not None:  # what was said before
            pass
        assert heard.next(0.5) is None, "who is stuck cannot say anything"
        process.stdin.write("\n")
        process.stdin.flush()
        heard.until("WATCHDOG=1")
        assert process.stdout.readline() == "stuck\n"
        process.send_signal(signal.SIGABRT)  # what systemd does
        assert process.wait(60) == -signal.SIGABRT
        said = process.stderr.read()
        assert "Fatal Python error: Aborted" in said
        assert re.search(r'File "<string>", line \d+ in main', said)
    finally:
        process.kill()
        process.communicate()


def test_the_unit_is_one_that_systemd_understands(tmp_path):
    command = shutil.which("systemd-analyze")
    if command is None:
        pytest.skip("systemd-analyze is not on this machine (`make setup` brings it)")
    text = (EXAMPLES / "ottla.service").read_text()
    assert re.search(r"^ExecStart=/opt/ottla/bin/ottla start ", text, re.MULTILINE)
    unit = tmp_path / "ottla.service"
    unit.write_text(text.replace("/opt/ottla/bin/ottla", shutil.which("true")))
    for options in (["verify", "--man=no"], ["security", "--offline=true", "--threshold=20", "--no-pager"]):
        done = subprocess.run([command, *options, unit], check=False, text=True, capture_output=True)
        assert done.returncode == 0, done.stdout + done.stderr
        assert options[0] != "verify" or done.stderr == ""


@pytest.mark.parametrize("file", SCHEMA_OF, ids=lambda path: path.name)
def test_a_file_has_the_form_that_its_schema_says(file):
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", SCHEMA_OF[file], file]
    done = subprocess.run(command, check=False, text=True, capture_output=True)
    assert done.returncode == 0, done.stdout


def test_actions_are_named_by_commit():
    """Of the example, and of whatever workflow the project may have."""
    files = [EXAMPLES / "github-actions.yaml", *(ROOT / ".github").rglob("*.y*ml")]
    for file in files:
        for action in re.findall(r"uses: (.*)", file.read_text()):
            assert re.fullmatch(r"[\w./-]+@[0-9a-f]{40}  # v\d+\.\d+\.\d+", action), f"{file.name}: {action}"


def test_the_steps_of_the_workflow_start_a_broker_and_use_it(tmp_path):
    [job] = yaml.safe_load((EXAMPLES / "github-actions.yaml").read_text())["jobs"].values()
    steps = [step["run"] for step in job["steps"] if "run" in step and "if" not in step]
    assert steps.pop(0) == "pip install ottla kafka-python"
    script = "\n".join(["set -e", *steps, "kill $!", "wait $!"]).replace("127.0.0.1:9092", f"127.0.0.1:{free_port()}")
    (tmp_path / "bin").mkdir()
    for name, command in (("ottla", f"{sys.executable} -m ottla"), ("python", sys.executable)):
        (tmp_path / "bin" / name).write_text(f'#!/bin/sh\nexec {command} "$@"\n')
        (tmp_path / "bin" / name).chmod(0o755)
    port = re.search(r"127\.0\.0\.1:(\d+)", script)[1]
    own = {
        "PATH": f"{tmp_path}/bin:{os.environ['PATH']}",
        "RUNNER_TEMP": str(tmp_path),
        "BOOTSTRAP_SERVERS": f"127.0.0.1:{port}",
    }
    done = subprocess.run(
        ["bash", "-c", script], check=False, text=True, capture_output=True, env=os.environ | own, timeout=240
    )
    assert done.returncode == 0, f"{done.stdout}{done.stderr}{(tmp_path / 'ottla.log').read_text()}"


def test_kubernetes_accepts_the_resources_and_the_broker_its_variables():
    validate = pytest.importorskip("kubernetes_validate").validate
    resources = list(yaml.safe_load_all((EXAMPLES / "kubernetes.yaml").read_text()))
    for resource in resources:
        validate(resource, KUBERNETES, strict=True)
    service, _, stateful_set = resources
    pod = stateful_set["spec"]["template"]
    assert stateful_set["spec"]["serviceName"] == service["metadata"]["name"]
    assert service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
    [container] = pod["spec"]["containers"]
    assert f"USER {pod['spec']['securityContext']['runAsUser']}\n" in (ROOT / "Containerfile").read_text()
    # As Kubernetes does it for the first pod.
    variables = {each["name"]: each.get("value", "0") for each in container["env"]} | {"POD_NAME": "ottla-0"}
    given = {name: text.replace("$(POD_NAME)", "ottla-0") for name, text in variables.items()}
    texts = dict(read_environment(given).texts)
    add_listeners(texts)
    config = load_config(texts)
    assert config.node_id == 0
    assert [(each.host, each.port) for each in config.listeners] == [("", 9092)]
    assert config.advertised["PLAINTEXT"].host == "ottla-0.ottla"
    assert {each["mountPath"] for each in container["volumeMounts"]} == {"/var/lib/ottla", "/tmp"}
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert container[probe]["exec"]["command"] == ["ottla", "ping", "127.0.0.1:9092"]
