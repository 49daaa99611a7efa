"""`ottla certificates`: what it makes is good for both ends of a connection, and nothing that is there is lost."""

import contextlib
import ssl
import stat
from pathlib import Path

import pytest

from ottla.server.cli.cli import main
from ottla.server.config.properties import parse_properties
from ottla.server.launch.certificates_command import AUTHORITY, AUTHORITY_KEY
from ottla.server.security.tls_listener import TlsListener
from ottla.server.tests.encrypted import pair_of


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "tls"


def make(folder: Path, *arguments: str) -> int:
    return main(["certificates", str(folder), *arguments])


def is_trusted(folder: Path, broker: str, host: str) -> bool:
    """Whether a client with the files of the folder takes this broker, with its own, for the host; and is taken by it."""
    texts = parse_properties((folder / f"{broker}.properties").read_text())
    context = ssl.create_default_context(cafile=str(folder / AUTHORITY))
    context.load_cert_chain(folder / "client.pem")
    try:
        pair = pair_of(TlsListener("SSL", "SSL", texts).context, context, host)
    except ssl.SSLCertVerificationError:
        return False
    with contextlib.closing(pair[0]), contextlib.closing(pair[1]):
        return bool(pair[0].getpeercert())


def test_a_broker_and_a_client_trust_each_other(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert make(folder) == 0
    told = {Path(each) for each in capsys.readouterr().out.split()}
    assert told == set(folder.iterdir())
    assert len(told) == 6
    assert all(is_trusted(folder, "localhost", host) for host in ("localhost", "127.0.0.1", "::1"))
    assert not is_trusted(folder, "localhost", "broker1.example")


def test_only_their_owner_reads_keys(folder: Path) -> None:
    assert make(folder) == 0
    for path in folder.iterdir():
        is_open = bool(stat.S_IMODE(path.stat().st_mode) & 0o077)
        assert is_open is (b"PRIVATE KEY" not in path.read_bytes()), path


def test_more_brokers_are_added(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert make(folder, "--broker", "broker1.example") == 0
    before = {path: path.read_bytes() for path in folder.iterdir()}
    capsys.readouterr()
    assert make(folder, "--broker", "broker1.example", "--broker", "10.0.0.2") == 0
    assert {Path(each).name for each in capsys.readouterr().out.split()} == {"10.0.0.2.pem", "10.0.0.2.properties"}
    assert {path: path.read_bytes() for path in before} == before
    assert is_trusted(folder, "broker1.example", "broker1.example")
    assert is_trusted(folder, "10.0.0.2", "10.0.0.2")
    assert make(folder, "--broker", "10.0.0.2") == 0
    assert capsys.readouterr().out.startswith("nothing to do")


def test_more_clients_are_added(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert make(folder) == 0
    capsys.readouterr()
    assert make(folder, "--client", "shop") == 0
    assert {Path(each).name for each in capsys.readouterr().out.split()} == {"shop.pem", "shop.properties"}
    assert f"ssl.keystore.location={folder}/shop.pem" in (folder / "shop.properties").read_text().splitlines()
    (der,) = [
        ssl.PEM_cert_to_DER_cert(each + "-----END CERTIFICATE-----") for each in _certificates(folder / "shop.pem")
    ]
    texts = parse_properties((folder / "localhost.properties").read_text())
    assert TlsListener("SSL", "SSL", texts).principal(der) == "User:CN=shop"


def _certificates(path: Path) -> list[str]:
    _, _, rest = path.read_text().partition("-----BEGIN CERTIFICATE-----")
    return ["-----BEGIN CERTIFICATE-----" + each for each in rest.split("-----END CERTIFICATE-----")[:-1]]


def test_a_run_that_was_stopped_is_finished(folder: Path) -> None:
    assert make(folder) == 0
    for name in ("localhost.pem", AUTHORITY, "client.pem"):
        (folder / name).unlink()
    assert make(folder) == 0
    assert is_trusted(folder, "localhost", "localhost")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--broker", "a/b"], "a/b is neither a host name nor an address"),
        (["--client", "authority"], "--client: authority is the name of another file"),
        (["--client", "shop", "--broker", "shop"], "--client: shop is the name of a broker"),
        (["--broker", "bröker"], "neither a host name nor an address"),
        (["--broker", "client"], "client is the name of another file"),
        (["--broker", "x" * 65], "longer than 64 characters"),
    ],
)
def test_a_bad_name_is_one_line_and_exit_2(
    folder: Path, arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert make(folder, *arguments) == 2
    assert words in capsys.readouterr().err
    assert not folder.exists()


def test_what_cannot_be_done_is_one_line_and_exit_1(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder.write_text("a file")
    assert make(folder) == 1
    assert "cannot write" in capsys.readouterr().err
    folder.unlink()
    assert make(folder) == 0
    key = (folder / AUTHORITY_KEY).read_bytes()
    for content in (b"", (folder / "client.pem").read_bytes(), b"\xff"):
        (folder / AUTHORITY_KEY).write_bytes(content)
        assert make(folder, "--broker", "other") == 1
        assert "holds no authority to sign with" in capsys.readouterr().err
    (folder / AUTHORITY_KEY).unlink()
    assert make(folder, "--broker", "other") == 1
    assert "without authority.key.pem" in capsys.readouterr().err
    (folder / AUTHORITY_KEY).write_bytes(key)
    assert make(folder, "--broker", "other") == 0
