import errno
import fcntl
import json
import os
import ssl
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest
import trio

from ottla.replication.replica_manager.directories import LogDirectoryProblem
from ottla.server.cli.cli import main
from ottla.server.cli.command_line import given_texts
from ottla.server.config.broker_config import BrokerConfig, load_config
from ottla.server.launch import cluster_children, cluster_command
from ottla.server.launch.cluster_children import Secured
from ottla.server.launch.cluster_command import cluster_settings
from ottla.server.security.tls_listener import TlsListener
from ottla.server.tests.encrypted import pair_of


@pytest.fixture(autouse=True)
def nothing_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(*arguments: object, **options: object) -> None:
        pytest.fail("a process was started")

    monkeypatch.setattr("subprocess.Popen", start)


def failure(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    code = main(["cluster", *arguments])
    streams = capsys.readouterr()
    assert streams.out == ""
    assert streams.err.startswith("ottla: ")
    assert streams.err.count("\n") == 1
    return code, streams.err


@pytest.mark.parametrize(("size", "copies", "in_sync"), [(1, "1", "1"), (2, "2", "1"), (3, "3", "2"), (5, "3", "2")])
def test_a_cluster_has_as_many_copies_as_it_can_and_does_without_one_of_them(
    size: int, copies: str, in_sync: str
) -> None:
    settings = cluster_settings(size)
    assert settings["default.replication.factor"] == settings["offsets.topic.replication.factor"] == copies
    assert settings["min.insync.replicas"] == settings["transaction.state.log.min.isr"] == in_sync
    assert load_config(settings).replication.default_replication_factor == int(copies)


@pytest.mark.parametrize("name", ["listeners", "node.id", "log.dirs", "zookeeper.connect", "coordination.socket"])
def test_what_differs_from_broker_to_broker_is_not_the_users(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, words = failure(["--data", str(tmp_path), "--override", f"{name}=1"], capsys)
    assert code == 2
    assert name in words


def test_brokers_read_their_settings_in_files_that_nobody_else_can_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everybody may see the arguments of a process."""
    monkeypatch.setattr(cluster_command, "zookeeper_command", lambda configuration: ["none"])
    left = tmp_path / "broker-1.properties"
    left.write_text("of last time")
    left.chmod(0o644)
    given = {"ssl.keystore.password": " a\\secret\nin=lines", "num.partitions": "4"}
    cluster = cluster_command.LocalCluster(tmp_path, [1, 2, 3], given, (), log_level="warn")
    for number, broker in enumerate(cluster._brokers, 1):
        file = tmp_path / f"broker-{number}.properties"
        assert broker._command == [sys.executable, "-m", "ottla", "start", str(file), "--log-level", "warn"]
        assert file.stat().st_mode & 0o777 == 0o600
        found = given_texts(file, [])
        assert {name: found[name] for name in given} == given
        assert found["node.id"] == str(number)
    assert sorted(each.name for each in tmp_path.iterdir()) == [
        "broker-1.properties",
        "broker-2.properties",
        "zookeeper",
    ]


def test_a_bad_setting_is_told_before_anything_is_started(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, words = failure(["--data", str(tmp_path), "--override", "log.retention.hour=1"], capsys)
    assert code == 2
    assert "did you mean log.retention.hours?" in words


def test_an_empty_log_directory_is_accepted_for_the_broker_to_which_it_belongs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands: dict[str, Sequence[str]] = {}

    class Noted:
        def __init__(self, name: str, command: Sequence[str], log_path: Path) -> None:
            commands[name] = command

    monkeypatch.setattr(cluster_command, "Child", Noted)
    monkeypatch.setattr(cluster_command, "zookeeper_command", lambda configuration: [])
    monkeypatch.setattr(trio, "run", lambda run: None)
    path = str(tmp_path / "broker-2")
    assert main(["cluster", "--data", str(tmp_path), "--accept-empty-log-dir", path]) == 0
    assert [name for name, command in commands.items() if f"--accept-empty-log-dir={path}" in command] == ["broker 2"]


def test_a_log_directory_of_no_broker_cannot_be_accepted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, words = failure(["--data", str(tmp_path), "--accept-empty-log-dir", "/broker-2"], capsys)
    assert code == 2
    assert f"the log directories of this cluster are {tmp_path}/broker-1, " in words


async def test_a_key_for_which_no_process_can_be_made_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def start(*arguments: object, **options: object) -> None:
        raise BlockingIOError(errno.EAGAIN, "no process for now")

    monkeypatch.setattr("subprocess.Popen", start)
    cluster = cluster_command.LocalCluster(tmp_path, [None, 2], {}, (), log_level="warn")
    [broker] = cluster._brokers
    broker.exit_status = 1
    broker.serving_or_ended.set()
    async with trio.open_nursery() as cluster._nursery:
        await cluster._press(1)
    assert "no process for now" in capsys.readouterr().err


@pytest.mark.parametrize("has_begun", [False, True])
async def test_a_tree_that_cannot_be_kept_ends_the_cluster_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_begun: bool
) -> None:
    ended = []

    async def hold(folder: Path, where: Path, *, task_status: trio.TaskStatus[int]) -> None:
        if has_begun:
            task_status.started(1)
            await until_running.wait()
        raise LogDirectoryProblem("its disk is broken")

    async def end(cluster: cluster_command.LocalCluster) -> None:
        ended.append(cluster)

    async def running(cluster: cluster_command.LocalCluster) -> None:
        until_running.set()
        await trio.sleep_forever()

    until_running = trio.Event()
    monkeypatch.setattr(cluster_command, "hold_tree", hold)
    monkeypatch.setattr(
        cluster_command.LocalCluster, "_launch", lambda cluster, child, nursery: child.serving_or_ended.set()
    )
    monkeypatch.setattr(cluster_command.LocalCluster, "_until_all_have_ended", running)
    monkeypatch.setattr(cluster_command.LocalCluster, "_end", end)
    cluster = cluster_command.LocalCluster(tmp_path, [None, 2], {}, (), log_level="warn")
    with trio.fail_after(60), pytest.raises(cluster_command.ClusterFailed, match="cannot be kept: its disk is broken"):
        await cluster.run()
    assert ended == [cluster]


@pytest.mark.parametrize("count", ["0", "-1", "many", "1000"])
def test_the_number_of_brokers_has_bounds(count: str) -> None:
    with pytest.raises(SystemExit) as end:
        main(["cluster", "--brokers", count])
    assert end.value.code == 2


def test_a_cluster_does_not_shrink(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "cluster.json").write_text(json.dumps({"ports": [0, 0, 0, 0]}))
    code, words = failure(["--data", str(tmp_path), "--brokers", "2"], capsys)
    assert code == 2
    assert "holds a cluster of 3 brokers" in words


DAMAGED = [
    "", "{", "[]", '{"ports": [1, "x"]}', '{"ports": [1, null]}', '{"ports": 1}', '{"ports": [70000]}', '{"version": "1"}',
    '{"secure": 1}', "[" * 10_000,
]  # fmt: skip


@pytest.mark.parametrize("text", DAMAGED)
def test_a_cluster_that_may_have_been_secured_is_not_opened(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is left of cluster.json does not say whether it was."""
    (tmp_path / "cluster.json").write_text(text)
    code, words = failure(["--data", str(tmp_path)], capsys)
    assert code == 1
    assert f"{tmp_path}/cluster.json is damaged" in words
    assert (tmp_path / "cluster.json").read_text() == text


def test_what_a_newer_ottla_wrote_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cluster_command.Known.write(tmp_path, [1, 2], None)
    file = tmp_path / "cluster.json"
    kept = json.loads(file.read_text())
    assert kept == {"version": 1, "ports": [1, 2]}
    assert cluster_command.Known.read(tmp_path).ports == [1, 2]
    file.write_text(json.dumps(kept | {"version": 2}))
    code, words = failure(["--data", str(tmp_path)], capsys)
    assert code == 1
    assert words.count("\n") == 1
    assert f"{file} was written by a newer Ottla, as version 2, and this one reads 1" in words
    assert json.loads(file.read_text())["version"] == 2


def test_cluster_json_is_written_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal ends this process at any moment until the cluster runs."""
    cluster_command.Known.write(tmp_path, [1, 2], None)
    before = (tmp_path / "cluster.json").read_bytes()

    def ended(source: str, target: str, **directories: int) -> None:
        raise InterruptedError

    monkeypatch.setattr(os, "replace", ended)  # the last moment
    with suppress(InterruptedError):
        cluster_command.Known.write(tmp_path, [3, 4], None)
    assert (tmp_path / "cluster.json").read_bytes() == before


def test_one_command_at_a_time_has_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with (tmp_path / ".lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        code, words = failure(["--data", str(tmp_path)], capsys)
    assert code == 1
    assert "another `ottla cluster` runs" in words


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    code, words = failure(["--data", str(tmp_path / "file" / "x")], capsys)
    assert code == 1
    assert "Not a directory" in words


def test_without_java_it_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    code, words = failure(["--data", str(tmp_path), "--zookeeper"], capsys)
    assert code == 1
    assert "`java`" in words
    assert not (tmp_path / "cluster.json").exists()  # the next start may do without


def test_without_a_jar_it_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    java(tmp_path, monkeypatch)
    monkeypatch.setattr(cluster_children, "DEBIAN", tmp_path / "no.jar")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    code, words = failure(["--data", str(tmp_path), "--zookeeper"], capsys)
    assert code == 1
    assert "there is no ZooKeeper" in words


def java(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "bin").mkdir()
    (folder / "bin" / "java").touch(mode=0o755)
    monkeypatch.setenv("JAVA_HOME", str(folder))


def test_debians_zookeeper_goes_before_pysparks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java(tmp_path, monkeypatch)
    package = tmp_path / "pyspark"
    (package / "jars").mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "jars" / "zookeeper-3.9.5.jar").touch()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "pyspark", raising=False)
    debian = tmp_path / "zookeeper.jar"
    monkeypatch.setattr(cluster_children, "DEBIAN", debian)
    assert f"{package}/jars/*" in cluster_children.zookeeper_command(tmp_path / "zoo.cfg")
    debian.touch()
    command = cluster_children.zookeeper_command(tmp_path / "zoo.cfg")
    assert command[0] == str(tmp_path / "bin" / "java")
    assert str(debian) in command


def noted_settings(monkeypatch: pytest.MonkeyPatch) -> dict[str, BrokerConfig]:
    """What the brokers of the next clusters would be started with."""
    noted: dict[str, BrokerConfig] = {}

    class Noted:
        def __init__(self, name: str, command: Sequence[str], log_path: Path) -> None:
            if "start" in command:
                noted[name] = load_config(given_texts(Path(command[command.index("start") + 1]), []))

    monkeypatch.setattr(cluster_command, "Child", Noted)
    monkeypatch.setattr(cluster_command, "zookeeper_command", lambda configuration: [])
    monkeypatch.setattr(trio, "run", lambda run: None)
    return noted


def test_a_secured_cluster_has_certificates_and_stays_secured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    noted = noted_settings(monkeypatch)
    data, tls = tmp_path / "data", tmp_path / "tls"
    arguments = ["cluster", "--data", str(data), "--brokers", "2"]
    assert main(arguments) == 0
    assert {each.security_protocol for config in noted.values() for each in config.listeners} == {"PLAINTEXT"}
    for more in (["--secure", str(tls)], []):
        noted.clear()
        assert main([*arguments, *more]) == 0
        assert set(noted) == {"broker 1", "broker 2"}
        for config in noted.values():
            (listener,) = config.listeners
            assert (listener.host, listener.security_protocol) == ("127.0.0.1", "SSL")
            assert config.inter_broker_listener_name == "SSL"
            made = TlsListener("SSL", "SSL", config.static, is_between_brokers=True)
            assert made.context.verify_mode is ssl.CERT_REQUIRED
            # Brokers reach each other by this address, and look whether the certificate has it.
            pair = pair_of(made.context, made.to_others.context, "127.0.0.1")
            for end in pair:
                end.close()
    assert (tls / "client.properties").exists()


def test_a_cluster_goes_on_with_the_tree_that_it_began_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    noted = noted_settings(monkeypatch)
    served, with_zookeeper = ["--data", str(tmp_path / "served")], ["--data", str(tmp_path / "zookeeper")]
    for arguments in (
        served,
        [*with_zookeeper, "--zookeeper"],
        served,
        with_zookeeper,
        [*with_zookeeper, "--zookeeper"],
    ):
        noted.clear()
        assert main(["cluster", *arguments]) == 0
        assert len(noted) == 3
        for config in noted.values():
            assert (config.zookeeper is None) == (arguments is served)
            own = str(tmp_path / "served" / "tree" / "coordination.socket") if arguments is served else ""
            assert config.coordination.coordination_socket == own
    code, words = failure([*served, "--zookeeper"], capsys)
    assert code == 2
    assert "--zookeeper is for a new cluster" in words
    # What is in the folder tells it, too, if cluster.json was lost.
    (tmp_path / "zookeeper" / "cluster.json").unlink()
    (tmp_path / "zookeeper" / "zookeeper" / "version-2").mkdir()
    noted.clear()
    assert main(["cluster", *with_zookeeper]) == 0
    assert all(config.zookeeper is not None for config in noted.values())


def test_the_users_settings_go_over_those_of_a_secured_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    noted = noted_settings(monkeypatch)
    arguments = ["--data", str(tmp_path / "data"), "--secure", str(tmp_path / "tls")]
    assert main(["cluster", *arguments, "--override", "ssl.client.auth=requested"]) == 0
    assert {config.static["ssl.client.auth"] for config in noted.values()} == {"requested"}


def test_a_folder_without_an_authority_to_sign_with_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "tls").mkdir()
    (tmp_path / "tls" / "authority.pem").touch()
    code, words = failure(["--data", str(tmp_path / "data"), "--secure", str(tmp_path / "tls")], capsys)
    assert code == 1
    assert "nothing more can be signed" in words


def test_certificates_without_their_package_are_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ottla.server.launch.certificates_command", None)
    code, words = failure(["--data", str(tmp_path / "data"), "--secure", str(tmp_path / "tls")], capsys)
    assert code == 1
    assert "pip install 'ottla[security]'" in words


def test_how_to_connect_to_a_secured_cluster_is_said(tmp_path: Path) -> None:
    secured = Secured(tmp_path)
    assert secured.client_lines == [
        "security.protocol=SSL",
        "ssl.keystore.type=PEM",
        f"ssl.keystore.location={tmp_path}/client.pem",
        "ssl.truststore.type=PEM",
        f"ssl.truststore.location={tmp_path}/authority.pem",
    ]
    assert f"-X ssl.ca.location={tmp_path}/authority.pem" in secured.for_kcat
    assert Secured(tmp_path).client_lines == secured.client_lines


def test_each_broker_has_a_console_on_a_port_of_its_own(tmp_path: Path) -> None:
    for port, expected in ((9644, ["127.0.0.1:9644", "127.0.0.1:9645"]), (0, ["127.0.0.1:0"] * 2), (None, [None] * 2)):
        cluster_command.LocalCluster(tmp_path, [None, 2, 3], {}, (), http_port=port)
        found = [given_texts(tmp_path / f"broker-{number}.properties", []).get("http.listener") for number in (1, 2)]
        assert found == expected


def test_consoles_beside_an_endpoint_of_all_brokers_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["cluster", "--data", str(tmp_path / "c"), "--http", "9644", "--override", "http.listener=:9000"]
    assert main(words) == 2
    assert capsys.readouterr().err == "ottla: --http 9644: http.listener=:9000 is given, too\n"
    assert not (tmp_path / "c").exists()
    with pytest.raises(SystemExit):
        main(["cluster", "--data", str(tmp_path / "c"), "--http", "65535"])
    assert "is not a port" in capsys.readouterr().err
