"""Users that a broker begins with."""

import base64
import os
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.server.cli import start
from ottla.server.cli.cli import main
from ottla.server.cli.command_line import EXIT_USAGE
from ottla.server.config.broker_config import load_config
from ottla.server.security.scram_credentials import decode_credential, salted_password
from ottla.server.security.scram_users import MalformedUser, parse_first_user
from ottla.server.tests.administered import AdministeredBroker
from ottla.server.tests.security.test_scram_handlers import can_log_in, give


def test_a_user_with_a_password():
    user = parse_first_user('SCRAM-SHA-256=[name=alice, password="a, \\"b\\" c",iterations=5000]')
    assert (user.mechanism, user.name, user.password, user.iterations) == ("SCRAM-SHA-256", "alice", 'a, "b" c', 5000)
    assert "b" not in repr(user).replace("SCRAM", "")
    kept = decode_credential(user.credential())
    assert kept.iterations == 5000 and len(kept.salt) > 20


def test_a_user_whose_password_is_salted_already():
    salted = base64.b64encode(salted_password("SCRAM-SHA-512", "word", b"salt", 4096)).decode()
    user = parse_first_user(f'SCRAM-SHA-512=[name=bob,salt="c2FsdA==",saltedpassword="{salted}"]')
    direct = parse_first_user("SCRAM-SHA-512=[name=bob,salt=c2FsdA==,password=word]")
    assert user.credential() == direct.credential()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "PLAIN=[name=a,password=hunter2]",
        "SCRAM-SHA-256=name=a,password=hunter2",
        "SCRAM-SHA-256=[password=hunter2]",
        "SCRAM-SHA-256=[name=a]",
        "SCRAM-SHA-256=[name=a,password=hunter2,saltedpassword=aGk=]",
        "SCRAM-SHA-256=[name=a,saltedpassword=aGk=]",
        "SCRAM-SHA-256=[name=a,password=hunter2,iterations=4095]",
        "SCRAM-SHA-256=[name=a,password=hunter2,iterations=many]",
        "SCRAM-SHA-256=[name=a,password=hunter2,salt=%]",
        "SCRAM-SHA-256=[name=a,name=b,password=hunter2]",
        'SCRAM-SHA-256=[name=a,password="hunter2]',
        "SCRAM-SHA-256=[name=a,password=hunter2,role=x]",
    ],
)
def test_what_is_malformed_is_refused_without_the_password(text: str):
    with pytest.raises(MalformedUser) as refused:
        parse_first_user(text)
    assert "hunter2" not in str(refused.value)


@given(st.text(max_size=80))
def test_any_text_is_read_or_refused(text: str):
    for each in (text, f"SCRAM-SHA-256=[{text}]"):
        try:
            parse_first_user(each)
        except MalformedUser:
            continue


def test_the_command_reads_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / "users"
    path.write_text("SCRAM-SHA-256=[name=a,password=x]\n\nSCRAM-SHA-512=[name=b,password=y]\n")
    assert [each.name for each in start._first_users([f"@{path}", "SCRAM-SHA-256=[name=c,password=z]"])] == [
        "a",
        "b",
        "c",
    ]
    assert main(["start", "--add-scram", f"@{path}.not"]) == EXIT_USAGE
    assert main(["start", "--add-scram", "SCRAM-SHA-256=[password=hunter2]"]) == EXIT_USAGE
    told = capsys.readouterr().err
    assert "cannot read" in told and "name is missing" in told and "hunter2" not in told


def test_a_text_that_is_no_utf_8_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / "users"
    path.write_bytes(b"SCRAM-SHA-256=[name=a,password=\xe9t\xe9]\n")
    assert main(["start", "--add-scram", f"@{path}"]) == EXIT_USAGE
    assert capsys.readouterr().err == "ottla: --add-scram: the text is not UTF-8\n"
    with pytest.raises(MalformedUser):  # as the bytes of a command arrive
        parse_first_user(os.fsdecode(b"SCRAM-SHA-256=[name=a,password=\xe9]"))


async def test_only_who_has_no_credential_is_given_one(tmp_path: Path):
    async def started(*texts: str) -> AdministeredBroker:
        broker = AdministeredBroker(tmp_path, {}, None, None)
        broker.configs.started_with = replace(
            load_config({"node.id": "1", "log.dirs": str(tmp_path)}), first_users=tuple(map(parse_first_user, texts))
        )
        return await broker.start()

    broker = await started("SCRAM-SHA-256=[name=alice,password=first]")
    assert can_log_in(broker, "alice", "first")
    await give(broker, "alice", password="changed")
    await broker.stop()
    broker = await started("SCRAM-SHA-256=[name=alice,password=first]", "SCRAM-SHA-256=[name=bob,password=second]")
    assert can_log_in(broker, "alice", "changed") and can_log_in(broker, "bob", "second")
