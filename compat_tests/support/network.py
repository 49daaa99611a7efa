"""A network of Linux namespaces on one machine, in which packets get lost between any two places, each way by itself.

    if enter_namespaces("compat_tests.history.run", arguments): ...    # the command goes on in namespaces of its own
    network = Network()
    place = network.add("broker-0")           # run something there: [*place.inside, "command"], it listens on place.host
    network.lose("broker-0", "broker-1")      # what 0 sends to 1 is lost; what 1 sends to 0 arrives
    network.mend()

Packets are lost in silence, as if a cable were cut: the sender's neighbour table names a hardware address for the other
place that nobody has. That needs no firewall, so that it works on every kernel that has bridges. Everything ends with the
process: the namespaces, what is mounted in them and all that runs in them.
"""

import os
import shutil
import subprocess
import sys
from typing import NamedTuple

from compat_tests.apache.brokers import bound_to_us
from compat_tests.support.brokers import wait_until

INSIDE = "OTTLA_TEST_NAMESPACES"  # in the environment of a process that has namespaces of its own
SUBNET = "10.77.0"
HERE = 254  # the place of the process itself, where clients are
NOBODY = "02:ff:ff:ff:ff:ff"


def has_namespaces() -> bool:
    return INSIDE in os.environ


def _unshare() -> list[str]:
    root = [] if os.geteuid() == 0 else ["--map-root-user"]
    return ["unshare", *root, "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]


def can_have_namespaces() -> bool:
    if shutil.which("unshare") is None or shutil.which("nsenter") is None or shutil.which("ip") is None:
        return False
    bridge = ["ip", "link", "add", "br0", "type", "bridge"]
    return subprocess.run([*_unshare(), *bridge], check=False, capture_output=True).returncode == 0


def enter_namespaces(module: str, arguments: list[str]) -> None:
    """Begins `python -m module` anew in namespaces of its own, unless it is in some or the machine allows none."""
    if not has_namespaces() and can_have_namespaces():
        os.environ[INSIDE] = "1"
        command = [*_unshare(), sys.executable, "-m", module, *arguments]
        os.execvp(command[0], command)


class Place(NamedTuple):
    host: str
    inside: list[str]
    """Before a command that is to run there."""


class Network:
    """Needs namespaces of its own around it."""

    def __init__(self) -> None:
        self._places: dict[str, Place] = {}
        self._lost: set[tuple[str, str]] = set()
        self._holders: list[subprocess.Popen[bytes]] = []
        _run("ip", "link", "set", "lo", "up")
        _run("ip", "link", "add", "br0", "type", "bridge")
        _run("ip", "address", "add", f"{SUBNET}.{HERE}/24", "dev", "br0")
        _run("ip", "link", "set", "br0", "up")

    def add(self, name: str) -> Place:
        number = len(self._places) + 1
        holder = subprocess.Popen([*bound_to_us(), "unshare", "--net", "sleep", "infinity"])
        self._holders.append(holder)
        ours = os.readlink("/proc/self/ns/net")
        wait_until(lambda: os.readlink(f"/proc/{holder.pid}/ns/net") != ours, "the namespace is there")
        place = Place(f"{SUBNET}.{number}", ["nsenter", f"--net=/proc/{holder.pid}/ns/net", "--"])
        outer = f"veth{number}"
        _run("ip", "link", "add", outer, "type", "veth", "peer", "name", "eth0", "netns", str(holder.pid))
        _run("ip", "link", "set", outer, "master", "br0", "up")
        _run(*place.inside, "ip", "address", "add", f"{place.host}/24", "dev", "eth0")
        _run(*place.inside, "ip", "link", "set", "eth0", "up")
        _run(*place.inside, "ip", "link", "set", "lo", "up")
        self._places[name] = place
        return place

    def lose(self, source: str, target: str) -> None:
        """What is sent from one place to the other, until `mend`."""
        self._lost.add((source, target))
        host, inside = self._places[target].host, self._places[source].inside
        _run(*inside, "ip", "neigh", "replace", host, "lladdr", NOBODY, "dev", "eth0", "nud", "permanent")

    def mend(self) -> None:
        for source, target in self._lost:
            _run(*self._places[source].inside, "ip", "neigh", "del", self._places[target].host, "dev", "eth0")
        self._lost.clear()


class SmallDisk:
    """A file system in memory whose size is ours to choose; in a mount namespace of our own it ends with us."""

    SIZE = 16 << 30

    def __init__(self, path: str) -> None:
        self._path = path
        os.makedirs(path, exist_ok=True)
        _run("mount", "-t", "tmpfs", "-o", f"size={self.SIZE}", "none", path)

    def fill(self) -> None:
        """Not a page more can be written, until `free`."""
        for spare_pages in range(100):
            found = os.statvfs(self._path)
            used = (found.f_blocks - found.f_bfree + spare_pages) * found.f_frsize
            done = subprocess.run(self._resize(used), check=False, capture_output=True)
            if done.returncode == 0:
                return
        raise AssertionError(f"{self._path} cannot be made small: {done.stderr.decode()}")

    def free(self) -> None:
        _run(*self._resize(self.SIZE))

    def unmount(self) -> None:
        _run("umount", self._path)

    def _resize(self, size: int) -> list[str]:
        return ["mount", "-o", f"remount,size={size}", self._path]


def _run(*command: str) -> None:
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
