"""A Kerberos realm for tests: a KDC of Debian's krb5-kdc in a folder, on a free port, with keytabs and tickets.

    with Realm(folder) as realm:
        realm.keytab("kafka/localhost"), realm.tickets("alice"), realm.environment

Nothing of the machine's own Kerberos is read or written. `python_path` is a folder with the Python package gssapi: the
one of pip if the interpreter has it, or links to Debian's python3-gssapi.
"""

import importlib.util
import os
import secrets
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Self

import pytest
from compat_tests.support.brokers import free_port, wait_until

REALM = "TEST.OTTLA"
NEEDED = {"krb5kdc": "krb5-kdc", "kdb5_util": "krb5-kdc", "kadmin.local": "krb5-admin-server", "kinit": "krb5-user"}
_SYSTEM_PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
_DEBIANS = Path("/usr/lib/python3/dist-packages")


def find(command: str) -> str:
    """The path of a command of Kerberos. The test is skipped if it is not there."""
    found = shutil.which(command, path=_SYSTEM_PATH)
    if found is None:
        pytest.skip(f"{NEEDED[command]} is not on this machine (`make setup` brings it)")
    return found


def python_path(folder: Path) -> str:
    """What PYTHONPATH needs so that gssapi can be imported; "" if that is so without it. Skips the test if it is nowhere."""
    if importlib.util.find_spec("gssapi") is not None:
        return ""
    folder.mkdir(exist_ok=True)
    # Alone: the rest of Debian's packages is none of our interpreter's business.
    for name in ("gssapi", "decorator.py"):
        if (_DEBIANS / name).exists() and not (folder / name).is_symlink():
            (folder / name).symlink_to(_DEBIANS / name)
    command = [sys.executable, "-c", "import gssapi.raw"]
    if subprocess.run(
        command, env=os.environ | {"PYTHONPATH": str(folder)}, capture_output=True, check=False
    ).returncode:
        pytest.skip("gssapi is not there for this Python (`make setup` brings python3-gssapi for Debian's own)")
    return str(folder)


class Realm:
    """A KDC, from `with` to its end. `canonicalizes`: an address stands for the host name that DNS has for it."""

    def __init__(self, folder: Path, name: str = REALM, *, canonicalizes: bool = False) -> None:
        self.folder, self.name = folder, name
        self.port = free_port()
        self.kerberos_config = folder / "krb5.conf"
        self.environment = {
            "KRB5_CONFIG": str(self.kerberos_config),
            "KRB5_KDC_PROFILE": str(folder / "kdc.conf"),
            "KRB5CCNAME": f"FILE:{folder}/nobodys-tickets",
            "KRB5RCACHEDIR": str(folder),
            "KRB5_CLIENT_KTNAME": f"FILE:{folder}/nobodys-keys",
            "KRB5_KTNAME": f"FILE:{folder}/nobodys-keys",
        }
        self._write("true" if canonicalizes else "false")
        self._process: subprocess.Popen[bytes] | None = None

    def _write(self, canonicalizes: str) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.kerberos_config.write_text(
            f"[libdefaults]\n default_realm = {self.name}\n dns_lookup_kdc = false\n dns_lookup_realm = false\n"
            f" rdns = {canonicalizes}\n dns_canonicalize_hostname = {canonicalizes}\n clockskew = 300\n udp_preference_limit = 1\n"
            f"[realms]\n {self.name} = {{\n  kdc = 127.0.0.1:{self.port}\n }}\n"
        )
        (self.folder / "kdc.conf").write_text(
            f"[kdcdefaults]\n kdc_listen = 127.0.0.1:{self.port}\n kdc_tcp_listen = 127.0.0.1:{self.port}\n"
            f"[realms]\n {self.name} = {{\n  database_name = {self.folder}/principals\n"
            f"  key_stash_file = {self.folder}/stash\n  acl_file = {self.folder}/acl\n"
            f"  supported_enctypes = aes256-cts-hmac-sha1-96:normal\n }}\n"
            f"[logging]\n kdc = FILE:{self.folder}/kdc.log\n"
        )

    def __enter__(self) -> Self:
        for each in NEEDED:
            find(each)
        self.run("kdb5_util", "create", "-s", "-r", self.name, "-P", secrets.token_hex(8))
        with (self.folder / "kdc.out").open("wb") as log:
            self._process = subprocess.Popen(
                [find("krb5kdc"), "-n", "-r", self.name],
                env=os.environ | self.environment,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        wait_until(self._listens, "the KDC listens")
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process is not None
        self._process.terminate()
        self._process.wait(20)

    def _listens(self) -> bool:
        assert self._process is not None and self._process.poll() is None, (self.folder / "kdc.out").read_text()
        try:
            socket.create_connection(("127.0.0.1", self.port), 1).close()
        except OSError:
            return False
        return True

    def run(self, command: str, *arguments: str, stdin: str = "", **environment: str) -> str:
        done = subprocess.run(
            [find(command), *arguments],
            env=os.environ | self.environment | environment,
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.returncode == 0, f"{command} {arguments}: {done.stdout}\n{done.stderr}"
        return done.stdout

    def keytab(self, *principals: str) -> Path:
        """A file with the keys of these principals, which are made if there are none yet."""
        path = self.folder / f"{principals[0].replace('/', '-')}-{secrets.token_hex(2)}.keytab"
        wanted = [f"addprinc -randkey {each}\nktadd -norandkey -k {path} {each}" for each in principals]
        self.run("kadmin.local", "-r", self.name, stdin="\n".join(wanted) + "\n")
        assert path.exists()
        return path

    def tickets(self, principal: str, *options: str) -> str:
        """The name of a file with a ticket of this principal (KRB5CCNAME). `options` are kinit's: `-l`, `60s`."""
        name = f"FILE:{self.folder}/{principal.replace('/', '-')}-{secrets.token_hex(2)}.tickets"
        keys = self.keytab(principal)
        self.run("kinit", "-k", "-t", str(keys), "-c", name, *options, principal)
        return name
