"""Builds and runs the image without a container engine: carries out the steps of Containerfile on an overlay file system.

    image = Image.built(Containerfile(ROOT / "Containerfile"), folder, base=Path("/"), skipped=...)
    container = image.run(folder / "one", {"KAFKA_NODE_ID": "1"}, command=["sh", "-c", "..."])

A container has its own mounts, processes, network and host name, so this module needs root. The base of an image is a root file system:

- either this machine's own, with Ottla from this Python environment (`on_this_machine`): built in a second, without compiling or downloads;
- or a fresh Debian (`debian`), on which all steps of Containerfile are carried out.
"""

import contextlib
import fnmatch
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from compat_tests.support.brokers import wait_until

ROOT = Path(__file__).resolve().parents[2]
HOST = "broker"
_MOUNTS = """
set -e
mount -t overlay overlay -o "lowerdir=$LOWER,upperdir=$UPPER,workdir=$WORK" "$TREE"
mount --rbind /dev "$TREE/dev"
if [ "$INSIDE" = yes ]; then
    ip link set lo up
    hostname "$NAME"
    mount -t proc proc "$TREE/proc"
fi
for volume in ${VOLUMES-}; do
    mount --bind "${volume%%:*}" "$TREE${volume#*:}"
done
exec "$@"
"""


def can_run() -> bool:
    """Tell whether this process may mount file systems and create namespaces."""
    if os.geteuid() != 0 or shutil.which("unshare") is None or shutil.which("ip") is None:
        return False
    mounted = ["unshare", "--mount", "--net", "--pid", "--fork", "sh", "-c", "mount -t tmpfs tmpfs /mnt"]
    return subprocess.run(mounted, check=False, capture_output=True).returncode == 0


class Containerfile:
    """Instructions of a Containerfile."""

    def __init__(self, path: Path) -> None:
        text = re.sub(r"(?m)^\s*#.*\n", "", path.read_text())
        lines = re.sub(r"\\\n\s*", "", text).splitlines()
        self.instructions = [(line.split(maxsplit=1)[0], line.split(maxsplit=1)[1]) for line in lines if line.strip()]

    def last(self, name: str) -> str:
        """Return the arguments of the last instruction `name`, which is the one of the final stage."""
        return [text for each, text in self.instructions if each == name][-1]

    @property
    def stages(self) -> list[list[tuple[str, str]]]:
        """Instructions of each stage; the first one is its FROM."""
        stages: list[list[tuple[str, str]]] = []
        for instruction in self.instructions:
            if instruction[0] == "FROM":
                stages.append([])
            stages[-1].append(instruction)
        return stages

    @property
    def labels(self) -> dict[str, str]:
        return dict(each.split("=", 1) for each in shlex.split(self.last("LABEL")))

    @property
    def health_check(self) -> list[str]:
        """Command of the health check."""
        words: list[str] = json.loads(self.last("HEALTHCHECK").partition("CMD ")[2])
        return words


@dataclass
class Stage:
    """File system of a build stage: a layer in `folder` over the root file system `base`."""

    folder: Path
    base: Path
    variables: dict[str, str]
    place: str = "/"

    def __post_init__(self) -> None:
        for name in ("upper", "work", "tree"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)

    @property
    def upper(self) -> Path:
        return self.folder / "upper"

    def inside(self, path: str) -> Path:
        """Return where this machine has `path` of the stage's layer; a relative path starts at its WORKDIR."""
        return self.upper / os.path.normpath(os.path.join(self.place, path)).lstrip("/")


@dataclass
class Image:
    containerfile: Containerfile
    stage: Stage
    user: str = "0"

    @classmethod
    def built(
        cls,
        containerfile: Containerfile,
        folder: Path,
        base: Path,
        *,
        is_skipped: Callable[[str, str], bool] = lambda name, text: False,
        prepare: Callable[[Stage], None] = lambda stage: None,
    ) -> "Image":
        """Carry out all steps except those for which `is_skipped` is true, and call `prepare` with each stage before its first step."""
        stages: dict[str, Stage] = {}
        for number, steps in enumerate(containerfile.stages):
            _, source = steps[0]
            name = source.partition(" AS ")[2] or str(number)
            stages[name] = stage = Stage(
                folder / f"stage-{name}", base, {"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"}
            )
            prepare(stage)
            for step, text in steps[1:]:
                if not is_skipped(step, text):
                    _carry_out(step, text, stage, stages)
        return cls(containerfile, stage, containerfile.last("USER"))

    def run(
        self,
        folder: Path,
        variables: Mapping[str, str],
        *,
        entrypoint: Sequence[str] | None = None,
        command: Sequence[str] | None = None,
        files: Mapping[str, bytes] | None = None,
        volumes: Mapping[str, Path] | None = None,
    ) -> "Container":
        """Start a container.

        `entrypoint` and `command` of None are the image's own. `files` are contents by path, written before the start. `volumes` are
        folders of this machine by the path at which the container sees them.
        """
        words = list(json.loads(self.containerfile.last("ENTRYPOINT")) if entrypoint is None else entrypoint)
        if command is not None or entrypoint is None:
            words += json.loads(self.containerfile.last("CMD")) if command is None else command
        lower = f"{self.stage.upper}:{self.stage.base}"
        if self.stage.base == Path("/"):
            # The image's layer is a folder below this base, and overlayfs wants layers that do not overlap.
            lower = "/"
            shutil.copytree(self.stage.upper, folder / "upper", symlinks=True)
            for path in [self.stage.upper, *self.stage.upper.rglob("*")]:
                status = path.lstat()
                os.chown(
                    folder / "upper" / path.relative_to(self.stage.upper),
                    status.st_uid,
                    status.st_gid,
                    follow_symlinks=False,
                )
        return Container(
            folder, self, lower, {**self.stage.variables, **variables}, words, dict(files or {}), dict(volumes or {})
        )


@dataclass
class Container:
    folder: Path
    image: Image
    lower: str
    variables: dict[str, str]
    words: list[str]
    files: dict[str, bytes] = field(default_factory=dict)
    volumes: dict[str, Path] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("upper", "work", "tree"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        self.put({"/etc/hosts": f"127.0.0.1 localhost\n127.0.0.1 {HOST}\n".encode(), **self.files})
        self.log_path = self.folder / "log.txt"
        inner = _inside(self.folder / "tree", self.image.user, self.image.stage.place, self.variables, self.words)
        spaces = [
            "unshare",
            "--mount",
            "--pid",
            "--net",
            "--uts",
            "--fork",
            "--kill-child",
            "sh",
            "-c",
            _MOUNTS,
            "sh",
            *inner,
        ]
        with self.log_path.open("wb") as log:
            self.process = subprocess.Popen(
                spaces,
                env=_mounts(self.folder, self.lower, inside="yes") | self._volumes(),
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
            )
        # Until chroot has run, /proc/PID/root of the first process is this machine's root.
        wait_until(lambda: self.process.poll() is not None or self._is_inside(), "the container's first process")

    def _volumes(self) -> dict[str, str]:
        return {"VOLUMES": "\n".join(f"{folder}:{path}" for path, folder in self.volumes.items())}

    def put(self, files: Mapping[str, bytes], mode: int = 0o777) -> None:
        """Write files as root before the start, as an engine copies them into a created container."""
        for path, content in files.items():
            target = self.folder / "upper" / path.lstrip("/")
            _make_parents(target.parent, self.folder / "upper")
            target.write_bytes(content)
            target.chmod(mode)

    def copy(self, path: str, content: bytes, mode: int = 0o777) -> None:
        """Copy a file into the running container, as root."""
        script = f"cat >{shlex.quote(path)}.new && chmod {mode:o} {shlex.quote(path)}.new && mv {shlex.quote(path)}.new {shlex.quote(path)}"
        self.execute(["sh", "-c", script], user="0", content=content)

    def execute(
        self, words: Sequence[str], *, user: str | None = None, content: bytes = b""
    ) -> subprocess.CompletedProcess[bytes]:
        """Run a command in the container, as `docker exec` does."""
        first = self._first_process()
        tree = Path(f"/proc/{first}/root")
        inner = _inside(tree, user or self.image.user, self.image.stage.place, self.variables, words)
        spaces = ["nsenter", "--mount", "--net", "--uts", "--pid", "--target", str(first)]
        # `nsenter --mount` shows the host's root, in which the container's tree is mounted.
        inner[inner.index(str(tree))] = str(self.folder / "tree")
        return subprocess.run([*spaces, *inner], input=content, capture_output=True, check=True)

    def client(self, code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run Python of this environment in the container's network."""
        spaces = ["nsenter", "--net", "--target", str(self._first_process())]
        words = [*spaces, sys.executable, "-P", "-c", code, *arguments]
        return subprocess.run(words, text=True, capture_output=True, check=False, timeout=120)

    def _first_process(self) -> int:
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return int(children[0]) if children else 0

    def _is_inside(self) -> bool:
        first = self._first_process()
        try:
            return bool(first) and os.readlink(f"/proc/{first}/root") != "/"
        except OSError:  # it has ended
            return False

    @property
    def log(self) -> str:
        return self.log_path.read_text(errors="replace")

    def wait_for_line(self, pattern: str) -> str:
        """Wait for a line of the log that matches, and return it. Raises AssertionError if the container ends before."""
        search = re.compile(pattern)

        def look() -> str:
            found = next((line for line in self.log.splitlines() if search.search(line)), "")
            assert found or self.process.poll() is None, f"the container ended:\n{self.log}"
            return found

        return wait_until(look, f"a line with {pattern}", 60)

    def stop(self) -> None:
        """Kill all processes of the container.

        They end with the first one, whose process namespace they share. `unshare --kill-child` alone would not reach them: the kernel
        forgets that request when the container's user is taken.
        """
        if self.process.poll() is None:
            if first := self._first_process():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(first, signal.SIGKILL)
            self.process.kill()
        self.process.wait()


def on_this_machine(folder: Path) -> Image:
    """Build the image on this machine's root file system, without the steps that compile or download."""

    def is_skipped(name: str, text: str) -> bool:
        if name == "COPY":
            return "container/" not in text or "requirements" in text
        return name == "RUN" and any(each in text for each in ("apt-get", "pip ", "compileall"))

    containerfile = Containerfile(ROOT / "Containerfile")
    return Image.built(containerfile, folder, Path("/"), is_skipped=is_skipped, prepare=with_this_ottla)


def with_this_ottla(stage: Stage) -> None:
    """Write /opt/ottla/bin/ottla, which runs the Ottla of this Python environment; the base must be this machine."""
    program = stage.inside("/opt/ottla/bin/ottla")
    _make_parents(program.parent, stage.upper)
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -P -m ottla "$@"\n')
    program.chmod(0o755)
    # The container's user must reach the interpreter: lay open folders over those that only root may enter.
    for folder in Path(sys.executable).resolve().parents:
        if folder != Path("/") and not folder.stat().st_mode & 0o001:
            _make_parents(stage.upper / str(folder).lstrip("/"), stage.upper)


def with_ways_out(stage: Stage) -> None:
    """Copy this machine's resolver and certificate files, with which the steps of a stage reach package registries."""
    for path in ("/etc/resolv.conf", "/etc/hosts", "/etc/ssl/certs/ca-certificates.crt"):
        if Path(path).exists():
            _make_parents(stage.inside(path).parent, stage.upper)
            shutil.copyfile(path, stage.inside(path))


def debian(folder: Path) -> Path:
    """Make a root file system like the base image's, Debian 13 with Python 3.13, unless `folder` has it; return `folder`."""
    if (folder / ".ready").exists():
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    sources = Path("/etc/apt/sources.list.d/debian.sources").read_text()
    mirror = re.search(r"(?m)^URIs: *(\S+)", sources)
    assert mirror is not None
    packages = "python3,python3-venv,ca-certificates,netbase"
    command = ["mmdebstrap", "--quiet", "--variant=minbase", f"--include={packages}", "trixie", str(folder), mirror[1]]
    subprocess.run(command, check=True, capture_output=True, timeout=600)
    (folder / "usr/local/bin/python").symlink_to("/usr/bin/python3")
    (folder / ".ready").touch()
    return folder


def _carry_out(step: str, text: str, stage: Stage, stages: Mapping[str, Stage]) -> None:
    if step == "RUN":
        inner = _inside(stage.folder / "tree", "0", stage.place, stage.variables | _registries(), ["sh", "-c", text])
        spaces = ["unshare", "--mount", "sh", "-c", _MOUNTS, "sh", *inner]
        done = subprocess.run(
            spaces, env=_mounts(stage.folder, str(stage.base)), text=True, capture_output=True, check=False
        )
        assert done.returncode == 0, f"{text}\n{done.stdout[-2000:]}{done.stderr[-4000:]}"
    elif step == "COPY":
        *sources, target = text.split()
        source_of = None
        if sources[0].startswith("--from="):
            source_of = stages[sources.pop(0).removeprefix("--from=")]
        for source in sources:
            _copy(ROOT / source if source_of is None else source_of.inside(source), stage, target)
    elif step == "WORKDIR":
        stage.place = text
        if not (stage.base / text.lstrip("/")).exists():
            _make_parents(stage.inside(text), stage.upper)
    elif step == "ENV":
        stage.variables |= dict(pair.split("=", 1) for pair in text.split())
    else:
        assert step in ("LABEL", "USER", "VOLUME", "EXPOSE", "STOPSIGNAL", "HEALTHCHECK", "ENTRYPOINT", "CMD"), step


def _copy(source: Path, stage: Stage, target: str) -> None:
    place = stage.inside(target)
    if source.is_dir():
        _make_parents(place, stage.upper)
        shutil.copytree(source, place, symlinks=True, dirs_exist_ok=True, ignore=_ignored)
    else:
        if target.endswith("/"):
            place = place / source.name
        _make_parents(place.parent, stage.upper)
        shutil.copy2(source, place)


def _ignored(folder: str, names: list[str]) -> set[str]:
    patterns = [line.removeprefix("**/") for line in (ROOT / ".dockerignore").read_text().split()]
    return {
        name
        for name in names
        if ROOT in Path(folder, name).parents and any(fnmatch.fnmatch(name, each) for each in patterns)
    }


def _make_parents(folder: Path, top: Path) -> None:
    """Make `folder` and its missing parents below `top`; everybody may enter them, whatever the umask is."""
    for each in reversed([folder, *folder.parents]):
        if top in each.parents and not each.exists():
            each.mkdir()
            each.chmod(0o755)


def _mounts(folder: Path, lower: str, *, inside: str = "no") -> dict[str, str]:
    own = {"LOWER": lower, "UPPER": f"{folder}/upper", "WORK": f"{folder}/work", "TREE": f"{folder}/tree"}
    return os.environ | own | {"INSIDE": inside, "NAME": HOST}


def _inside(tree: Path, user: str, place: str, variables: Mapping[str, str], words: Sequence[str]) -> list[str]:
    given = [f"{name}={text}" for name, text in variables.items()]
    chroot = ["chroot", f"--userspec={user}:{user}", "--groups=", str(tree)]
    return [*chroot, "env", "-i", f"--chdir={place}", *given, *words]


def _registries() -> dict[str, str]:
    """Return the environment variables with which pip reaches package registries."""
    names = ("PIP_", "SSL_CERT_", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "REQUESTS_CA")
    return {name: text for name, text in os.environ.items() if name.upper().startswith(names)}
