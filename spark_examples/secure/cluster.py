"""Runs the job on a Spark cluster of several processes beside three brokers, and kills one of each half way.

    python cluster.py FOLDER

Clients and brokers show each other certificates here, and roles are named by them. Each partition has three replicas, of which two have to
have a record before it is acknowledged. Half way a broker, then a worker of Spark with its executor, then the driver are killed (SIGKILL) and
started again; the result has to be as if nothing had happened.
"""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import check
import pyspark
import roles
from broker import HOST, OTTLA, NotStarted, require_new
from kafka import KafkaAdminClient

HERE = Path(__file__).resolve().parent
SPARK = Path(pyspark.__file__).resolve().parent
BROKERS, WORKERS = 3, 2
RECORDS, RECORDS_PER_BATCH = 6000, 400
PATIENCE_S = 300

ENVIRONMENT = dict(os.environ) | {"SPARK_HOME": str(SPARK), "SPARK_LOCAL_IP": HOST, "PYSPARK_PYTHON": sys.executable}
# How the brokers call whoever shows the certificate of `ottla certificates --client shop`.
PRINCIPAL = "User:CN={}"
RULES = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:CN=client;User:CN=localhost",
    "auto.create.topics.enable": "false",
}


class Failed(Exception):
    """A process ended, or did not come so far in time; the text says which, and has the end of its log."""


class Program:
    """A process with all that it starts, and its log."""

    def __init__(self, command: list[object], log: Path) -> None:
        self.log = log
        with log.open("a") as out:
            self.process = subprocess.Popen(
                [str(each) for each in command],
                stdout=out,
                stderr=subprocess.STDOUT,
                env=ENVIRONMENT,
                cwd=HERE,
                start_new_session=True,
            )

    def kill(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def stop(self) -> None:
        """Let it end by itself, as a cluster of brokers does with its processes, and kill it if it does not."""
        self.process.terminate()
        try:
            self.process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            self.kill()

    def wait_for(self, is_so: Callable[[], object], what: str) -> None:
        end = time.monotonic() + PATIENCE_S
        while not is_so():
            if self.process.poll() is not None or time.monotonic() > end:
                raise Failed(f"{what}: not while {self.log.name} was written:\n{self.log.read_text()[-3000:]}")
            time.sleep(0.2)

    def says(self, pattern: str) -> str:
        """Wait for a line; returns what the group of its pattern holds."""
        found: list[str] = []

        def is_said() -> bool:
            found[:] = re.findall(pattern, self.log.read_text())
            return bool(found)

        self.wait_for(is_said, pattern)
        return found[0]


# --- the brokers


@contextmanager
def brokers(folder: Path) -> Iterator[None]:
    """Three brokers, and the files of the roles."""
    tls = folder / "tls"
    clients = [word for role in roles.ROLES[1:] for word in ("--client", role)]
    subprocess.run([*OTTLA, "certificates", tls, *clients], check=True, stdout=subprocess.DEVNULL)
    overrides = [word for name, text in RULES.items() for word in ("--override", f"{name}={text}")]
    command = [*OTTLA, "cluster", "--brokers", BROKERS, "--data", folder / "brokers", "--secure", tls, *overrides]
    cluster = Program(command, folder / "brokers.log")
    try:
        bootstrap = cluster.says(r"listening on (\S+)")
        for role in roles.ROLES:
            settings = roles.read(tls / f"{'client' if role == roles.ADMIN else role}.properties")
            roles.write(folder, role, {"bootstrap.servers": bootstrap} | settings)
        yield
    finally:
        cluster.stop()


def leader(folder: Path) -> int:
    """The broker that takes the counts."""
    admin = KafkaAdminClient(**roles.for_kafka_python(folder, roles.ADMIN))
    try:
        [topic] = admin.describe_topics([roles.COUNTS])
        return topic["partitions"][0]["leader_id"]
    finally:
        admin.close()


def kill_broker(folder: Path, number: int) -> None:
    command = [*OTTLA, "cluster", "status", "--data", folder / "brokers"]
    told = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    found = re.search(rf"^\W*(?:broker )?{number}\b.*\(pid (\d+)\)", told, re.MULTILINE)
    if found is None:
        raise Failed(f"broker {number} does not run:\n{told}")
    os.kill(int(found[1]), signal.SIGKILL)


def start_broker(folder: Path, number: int) -> None:
    command = [*OTTLA, "cluster", "start-broker", str(number), "--data", folder / "brokers"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


# --- Spark's processes


def start_master(folder: Path) -> tuple[Program, str]:
    """Returns the master and its address."""
    command = [SPARK / "bin" / "spark-class", "org.apache.spark.deploy.master.Master"]
    master = Program([*command, "--host", HOST, "--port", 0, "--webui-port", 0], folder / "master.log")
    return master, master.says(r"Starting Spark master at (spark://\S+)")


def start_worker(folder: Path, address: str, number: int) -> Program:
    command = [SPARK / "bin" / "spark-class", "org.apache.spark.deploy.worker.Worker", "--host", HOST]
    command += ["--webui-port", 0, "--cores", 1, "--memory", "1g", "--work-dir", folder / f"worker-{number}", address]
    return Program(command, folder / f"worker-{number}.log")


def start_driver(folder: Path, address: str) -> Program:
    settings = {
        "spark.driver.host": HOST,
        "spark.driver.bindAddress": HOST,
        "spark.executor.cores": "1",
        "spark.executor.memory": "600m",
    }
    confs = [word for name, text in settings.items() for word in ("--conf", f"{name}={text}")]
    command = [*OTTLA, "spark-submit", "--master", address, *confs, HERE / "stream.py", folder]
    return Program([*command, "--records-per-batch", RECORDS_PER_BATCH], folder / "driver.log")


def batches(folder: Path) -> int:
    """Number of batches of counts that are whole."""
    return len(list((folder / f"checkpoint-{roles.COUNTS}" / "commits").glob("[0-9]*")))


def tell(text: str) -> None:
    print(f"  {text}", flush=True)


def count_and_kill(folder: Path) -> None:
    """Run the job up to its end, through the end of a broker, a worker and a driver."""
    with ExitStack() as stack:
        master, address = start_master(folder)
        stack.callback(master.kill)
        workers = [start_worker(folder, address, number) for number in range(1, WORKERS + 1)]
        for worker in workers:
            stack.callback(worker.kill)
            worker.says(r"Successfully (registered) with master")
        driver = start_driver(folder, address)
        stack.callback(driver.kill)
        driver.wait_for(lambda: batches(folder) >= 3, "three batches")
        number = leader(folder)
        kill_broker(folder, number)
        tell(f"after {batches(folder)} batches broker {number}, which takes the counts, was killed")
        driver.wait_for(lambda: batches(folder) >= 5, "five batches")
        workers[0].kill()
        tell(f"after {batches(folder)} batches a worker was killed, with its executor")
        driver.wait_for(lambda: batches(folder) >= 7, "seven batches")
        driver.kill()
        tell(f"after {batches(folder)} batches the driver was killed")
        start_broker(folder, number)
        again = start_worker(folder, address, 1)
        stack.callback(again.kill)
        driver = start_driver(folder, address)
        stack.callback(driver.kill)
        tell("broker, worker and driver were started again")
        if driver.process.wait(timeout=PATIENCE_S):
            raise Failed(f"the driver ended:\n{driver.log.read_text()[-3000:]}")
        tell(f"the job ended after {batches(folder)} batches")


def main() -> None:
    folder = Path(sys.argv[1]).absolute()
    try:
        require_new(folder)
        with brokers(folder):
            grant = [sys.executable, HERE / "grant.py", folder, "--principal", PRINCIPAL, "--no-quotas"]
            grant += ["--replicas", str(BROKERS)]
            subprocess.run(grant, check=True)
            shop = roles.settings_of(folder, roles.SHOP)["bootstrap.servers"]
            shares = ["--late", "0.05", "--doubled", "0.02", "--poison", "0.005", "--closing"]
            generate = [*OTTLA, "generate", "clicks", "-b", shop, "--command-config", roles.file_of(folder, roles.SHOP)]
            subprocess.run([*generate, "--records", str(RECORDS), *shares], check=True)
            count_and_kill(folder)
            if differ := check.problems(folder):
                sys.exit("NOT EQUAL: " + ", ".join(differ))
    except (Failed, NotStarted, subprocess.TimeoutExpired) as error:
        sys.exit(str(error))
    print("equal")


if __name__ == "__main__":
    main()
