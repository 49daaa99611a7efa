"""Runs a command beside a broker of its own, which encrypts and lets in only users that it knows; the broker ends with the command.

    python broker.py FOLDER sh steps.sh FOLDER

Certificates, passwords, the broker's data and the roles' files (`roles.py`) are made in the folder.
"""

import os
import re
import secrets
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import roles

OTTLA = [sys.executable, "-m", "ottla"]
HOST = "127.0.0.1"
MECHANISM = "SCRAM-SHA-512"
STOP_S = 60

BROKER = """\
listeners=SASL_SSL://{host}:0
security.inter.broker.protocol=SASL_SSL
sasl.enabled.mechanisms={mechanism}
ssl.keystore.type=PEM
ssl.keystore.location={tls}/{host}.pem
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:{admin}
auto.create.topics.enable=false
log.dirs={folder}/data
"""


class NotStarted(Exception):
    """The broker cannot start, or ended before it listened; the text says why."""


def settings_of(user: str, password: str, authority: Path, bootstrap: str) -> dict[str, str]:
    """A client's settings for SASL_SSL."""
    login = "org.apache.kafka.common.security.scram.ScramLoginModule"
    return {
        "bootstrap.servers": bootstrap,
        "security.protocol": "SASL_SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority),
        "sasl.mechanism": MECHANISM,
        "sasl.jaas.config": f'{login} required username="{user}" password="{password}";',
    }


def require_new(folder: Path) -> None:
    """Make the folder. Raises NotStarted if it holds an earlier run, whose users have other passwords."""
    for name in ("data", "brokers"):
        if (folder / name).exists():
            raise NotStarted(f"{folder} holds an earlier run; name another folder, or remove it")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)


@contextmanager
def running(folder: Path) -> Iterator[str]:
    """A broker, and the roles' files that lead to it; gives host:port."""
    folder = folder.absolute()
    require_new(folder)
    tls = folder / "tls"
    subprocess.run([*OTTLA, "certificates", tls, "--broker", HOST], check=True, stdout=subprocess.DEVNULL)
    passwords = {role: secrets.token_urlsafe(24) for role in roles.ROLES}
    users = folder / "users"
    users.touch(mode=0o600)
    users.write_text("".join(f"{MECHANISM}=[name={role},password={word}]\n" for role, word in passwords.items()))
    settings = folder / "server.properties"
    settings.write_text(BROKER.format(host=HOST, mechanism=MECHANISM, tls=tls, admin=roles.ADMIN, folder=folder))
    log = folder / "broker.log"
    with log.open("w") as errors:
        command = [*OTTLA, "start", settings, "--add-scram", f"@{users}"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
    assert process.stdout is not None
    try:
        listening = (re.search(rf"listening on \S*?({re.escape(HOST)}:\d+)", line) for line in process.stdout)
        bootstrap = next((found[1] for found in listening if found), None)
        if bootstrap is None:
            raise NotStarted(f"the broker did not start:\n{log.read_text()}")
        for role, password in passwords.items():
            roles.write(folder, role, settings_of(role, password, tls / "authority.pem", bootstrap))
        yield bootstrap
    finally:
        process.terminate()
        process.wait(timeout=STOP_S)
        process.stdout.close()


def main() -> int:
    folder, *command = sys.argv[1:]
    try:
        with running(Path(folder)) as bootstrap:
            print(f"a broker listens on SASL_SSL://{bootstrap}", flush=True)
            environment = dict(os.environ) | {"OTTLA_BOOTSTRAP_SERVERS": bootstrap}
            return subprocess.run(command, env=environment, check=False).returncode
    except NotStarted as error:
        sys.exit(str(error))


if __name__ == "__main__":
    sys.exit(main())
