"""`make pipeline NAME=payments`: runs an example with a broker of its own, which ends with it.

    python spark_examples/pipeline.py NAME [ARGUMENT ...]

Arguments go to the example's run.sh, behind the broker and the folder: `make pipeline NAME=metrics ARGS=continuous`. The folder is
.cache/pipelines/NAME, where the result stays until the next run.

OTTLA_COMPAT_BOOTSTRAP=host:port takes a running broker instead.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
OUTPUTS = HERE.parent / ".cache" / "pipelines"
sys.path.insert(0, str(HERE.parent))

from spark_examples.tests.broker import Broker, Registry


def main() -> int:
    names = sorted(path.parent.name for path in HERE.glob("*/run.sh"))
    name, *more = sys.argv[1:] or [""]
    if name not in names:
        print(f"make pipeline NAME=...: one of {', '.join(names)}", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix=f"ottla-{name}-") as folder:
        if (HERE / name / "broker.py").exists():  # it starts brokers itself
            return run(name, "-", more)
        if bootstrap := os.environ.get("OTTLA_COMPAT_BOOTSTRAP"):
            return run(name, bootstrap, more)
        broker = Broker(Path(folder))
        broker.start()
        try:
            return run(name, broker.bootstrap, more)
        finally:
            broker.stop()


def run(name: str, bootstrap: str, more: list[str]) -> int:
    output = OUTPUTS / name
    shutil.rmtree(output, ignore_errors=True)
    OUTPUTS.mkdir(parents=True, exist_ok=True)
    # `python` and `ottla` of this virtual environment.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    command = ["sh", str(HERE / name / "run.sh"), bootstrap, str(output), *more]
    environment = dict(os.environ) | {"PATH": path}
    if "SCHEMA_REGISTRY" in os.environ or "SCHEMA_REGISTRY" not in Path(command[1]).read_text():
        return subprocess.run(command, env=environment, check=False).returncode
    registry = Registry(bootstrap)
    try:
        return subprocess.run(command, env=environment | {"SCHEMA_REGISTRY": registry.url}, check=False).returncode
    finally:
        registry.stop()


if __name__ == "__main__":
    sys.exit(main())
